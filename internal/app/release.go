package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// Outgoing work is held after a restore; see [queue.Hold].

const (
	auditHeld      audit.Action = "outgoing.held"
	auditReleased  audit.Action = "outgoing.released"
	auditDiscarded audit.Action = "outgoing.discarded"
)

// OutgoingWork is the work that waits to leave the deployment.
type OutgoingWork struct {
	Hold    queue.Hold
	Held    bool // Hold exists
	Replies []desk.OutboxEntry
	// Deliveries are those of webhooks.
	Deliveries []webhook.WaitingDeliveries
	Mails      queue.WaitingKind // notices, without sign-in links and invitations, which are never held
	Others     []queue.WaitingKind
}

// repliesPage bounds the replies that are read or discarded in one step.
const repliesPage = 200

// OutgoingWork lists the work of all organizations that waits.
func (a *App) OutgoingWork(ctx context.Context) (w OutgoingWork, err error) {
	if w.Hold, w.Held, err = queue.OutgoingHold(ctx, a.DB); err != nil {
		return w, err
	}
	if err = a.eachReply(ctx, func(page []desk.OutboxEntry) error {
		w.Replies = append(w.Replies, page...)
		return nil
	}); err != nil {
		return w, err
	}
	if w.Deliveries, err = a.Webhooks.Waiting(ctx); err != nil {
		return w, err
	}
	kinds, err := a.queue.OutgoingJobs(ctx)
	for _, k := range kinds {
		switch {
		case k.Kind == mailKind:
			w.Mails = k
		case !slices.Contains(webhook.Kinds[:], k.Kind) && !strings.HasPrefix(k.Kind, desk.SendKind("")):
			w.Others = append(w.Others, k)
		}
	}
	return w, err
}

// eachReply calls fn with the waiting replies, in pages.
func (a *App) eachReply(ctx context.Context, fn func([]desk.OutboxEntry) error) error {
	for after := ""; ; {
		page, err := a.Desk.OutboxEntries(ctx, a.DB, after, repliesPage)
		if err == nil && len(page) > 0 {
			err = fn(page)
		}
		if err != nil || len(page) < repliesPage {
			return err
		}
		after = page[len(page)-1].MessageID
	}
}

// Discard selects the outgoing work that [App.DiscardOutgoing] discards.
type Discard struct {
	Before     time.Time // only what was created before
	Replies    bool      // they fail, with a note in their tickets
	Deliveries bool      // of webhooks; they can be replayed
	Mails      bool
}

// Discarded counts discarded work.
type Discarded struct {
	Replies    int64 `json:"replies"`
	Deliveries int64 `json:"deliveries"`
	Mails      int64 `json:"mails"`
}

// DiscardOutgoing discards work that waits, in steps. After an error, a part is discarded.
func (a *App) DiscardOutgoing(ctx context.Context, d Discard) (n Discarded, err error) {
	if d.Replies {
		if n.Replies, err = a.discardReplies(ctx, d.Before); err != nil {
			return n, err
		}
	}
	if d.Deliveries {
		if n.Deliveries, err = a.Webhooks.DiscardWaiting(ctx, d.Before); err != nil {
			return n, err
		}
	}
	if d.Mails {
		if n.Mails, err = a.discardMails(ctx, d.Before); err != nil {
			return n, err
		}
	}
	return n, a.DB.Write(ctx, func(tx *db.Tx) error {
		return a.Audit.RecordTx(ctx, tx, audit.Entry{
			Action: auditDiscarded, Target: audit.Target{Type: "outgoing_work"},
			Details: map[string]any{"replies": n.Replies, "deliveries": n.Deliveries, "mails": n.Mails},
		})
	})
}

func (a *App) discardReplies(ctx context.Context, before time.Time) (n int64, err error) {
	const reason = "the operator discarded it: it waited in the backup from which this server was restored"
	err = a.eachReply(ctx, func(page []desk.OutboxEntry) error {
		var ids []string
		for _, e := range page {
			if e.CreatedAt.Before(before) {
				ids = append(ids, e.MessageID)
			}
		}
		for some := range slices.Chunk(ids, 50) {
			if err := a.DB.Write(ctx, func(tx *db.Tx) error { return a.Desk.FailWaitingTx(ctx, tx, reason, some...) }); err != nil {
				return fmt.Errorf("discard replies: %w", err)
			}
			n += int64(len(some))
		}
		return nil
	})
	return n, err
}

func (a *App) discardMails(ctx context.Context, before time.Time) (total int64, err error) {
	for {
		var n int64
		if err := a.DB.Write(ctx, func(tx *db.Tx) (err error) {
			n, err = a.queue.DeleteOlderTx(ctx, tx, mailKind, before, 500)
			return err
		}); err != nil {
			return total, fmt.Errorf("discard mails: %w", err)
		}
		if total += n; n == 0 {
			return total, nil
		}
	}
}

// HoldOutgoing holds outgoing work in a database that was restored by other means than [Restore].
// reason is one line for people.
func (a *App) HoldOutgoing(ctx context.Context, reason string) error {
	return a.DB.Write(ctx, func(tx *db.Tx) error {
		if err := outbound.HoldAfterRestoreTx(ctx, tx, reason); err != nil {
			return err
		}
		return a.Audit.RecordTx(ctx, tx, audit.Entry{Action: auditHeld, Target: audit.Target{Type: "outgoing_work"}, Details: map[string]any{"reason": reason}})
	})
}

// ReleaseOutgoing ends the hold of outgoing work. Servers notice it within seconds. A reply that
// waited in the restored backup is looked up at its provider, or repeated with its idempotency
// key, or else fails visibly; with repeat it is sent like a new one.
func (a *App) ReleaseOutgoing(ctx context.Context, repeat bool) error {
	return a.DB.Write(ctx, func(tx *db.Tx) error {
		if repeat {
			if err := a.Desk.ClearRestoredTx(ctx, tx); err != nil {
				return err
			}
		}
		if err := a.queue.ReleaseOutgoingTx(ctx, tx); err != nil {
			return err
		}
		return a.Audit.RecordTx(ctx, tx, audit.Entry{
			Action: auditReleased, Target: audit.Target{Type: "outgoing_work"}, Details: map[string]any{"replies_repeated": repeat},
		})
	})
}
