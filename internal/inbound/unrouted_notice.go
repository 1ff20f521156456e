package inbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

const (
	// unroutedLogInterval is the minimum time between two log lines about an address.
	unroutedLogInterval = time.Hour
	// maxUnrouted bounds the addresses in memory, which strangers can choose. Further ones of a
	// channel are counted together.
	maxUnrouted = 1000
	// noticeInterval is the minimum time between two mails to the operator.
	noticeInterval = 24 * time.Hour
	// noticeOverlap covers events that were received before a notice and stored after.
	noticeOverlap = time.Minute
	// noticeLines bounds the addresses in a mail.
	noticeLines = 20

	noticeKind = "unrouted"
)

// recipient is an address on a channel.
type recipient struct{ channel, address string }

// unroutedCounts counts unrouted events by recipient, for the log. It is safe for concurrent
// use.
type unroutedCounts struct {
	mu sync.Mutex
	by map[recipient]*unroutedCount
}

type unroutedCount struct {
	events int // since the process started or the entry was evicted
	logged time.Time
}

// add counts an event and returns the recipient's count and whether to log it: the first at
// once, later ones once per unroutedLogInterval. The returned address is empty if there are too
// many addresses.
func (u *unroutedCounts) add(r recipient, now time.Time) (_ recipient, events int, log bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.by = make(map[recipient]*unroutedCount)
	}
	c := u.by[r]
	if c == nil && len(u.by) >= maxUnrouted {
		for old, count := range u.by {
			if now.Sub(count.logged) >= unroutedLogInterval {
				delete(u.by, old)
			}
		}
		if len(u.by) >= maxUnrouted {
			r.address = ""
			c = u.by[r]
		}
	}
	if c == nil {
		c = new(unroutedCount)
		u.by[r] = c
	}
	c.events++
	if log = now.Sub(c.logged) >= unroutedLogInterval; log {
		c.logged = now
	}
	return r, c.events, log
}

// logUnrouted logs an event stored without an organization.
func (s *Service) logUnrouted(ctx context.Context, e *StoredEvent) {
	r, events, log := s.unrouted.add(recipient{e.Channel, e.Address}, time.Now())
	if log {
		s.log.WarnContext(ctx, "an inbound event has no organization: connect its address, or run `kickstand org default`",
			"channel", r.channel, "address", cmp.Or(r.address, "(others)"), "events", events, "event", e.ID)
	}
}

// NotifyOperator mails the operator about unrouted events if there are new ones, at most once
// in 24 hours over all processes. It does nothing without an operator address.
func (s *Service) NotifyOperator(ctx context.Context) error {
	if s.operator == (mail.Address{}) || s.mailer == nil {
		return nil
	}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "operator notice"); err != nil {
			return err
		}
		var last time.Time
		err := tx.QueryRow(ctx, "SELECT sent_at FROM operator_notices WHERE kind = $1", noticeKind).Scan(db.IntoTime(&last))
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return err
		}
		if tx.Now.Sub(last) < noticeInterval {
			return nil
		}
		counts, more, err := listUnrouted(ctx, tx, last)
		if err != nil || len(counts) == 0 {
			return err
		}
		m, err := s.unroutedMail(counts, more)
		if err != nil {
			return err
		}
		if err := tx.Queue(ctx, `INSERT INTO operator_notices (kind, sent_at) VALUES ($1, $2)
				ON CONFLICT (kind) DO UPDATE SET sent_at = excluded.sent_at`, noticeKind, tx.Now.UnixMicro()); err != nil {
			return err
		}
		return s.mailer.EnqueueMailTx(ctx, tx, m)
	})
	if err != nil {
		return fmt.Errorf("notify the operator of unrouted events: %w", err)
	}
	return nil
}

// recipientCount is the number of unrouted events of a recipient.
type recipientCount struct {
	recipient
	events int
	newest time.Time
}

// listUnrouted returns the recipients of all unrouted events, those of the newest event first,
// and whether there are more. It returns none if no event is newer than since.
func listUnrouted(ctx context.Context, tx *db.Tx, since time.Time) (list []recipientCount, more bool, err error) {
	var fresh bool
	from := int64(0)
	if !since.IsZero() {
		from = since.Add(-noticeOverlap).UnixMicro()
	}
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM inbound_events WHERE state = 'unrouted' AND received_at > $1)", from).Scan(&fresh); err != nil || !fresh {
		return nil, false, err
	}
	list, err = db.All(ctx, tx, func(row db.Row) (l recipientCount, err error) {
		err = row.Scan(&l.channel, &l.address, &l.events, db.IntoTime(&l.newest))
		return l, err
	}, `SELECT channel, address, count(*), max(received_at) FROM inbound_events WHERE state = 'unrouted'
		GROUP BY channel, address ORDER BY max(received_at) DESC, channel, address LIMIT $1`, noticeLines+1)
	if len(list) > noticeLines {
		return list[:noticeLines], true, err
	}
	return list, false, err
}

// unroutedMail returns the mail about unrouted events.
func (s *Service) unroutedMail(list []recipientCount, more bool) (mail.Message, error) {
	l := mail.Notification{
		Unbranded: true,
		Subject:   "Inbound events have no organization",
		Before: []string{
			"Hello,",
			"These addresses received events at " + s.baseURL + " without a connection. They are not in the inbox until they are routed.",
		},
		After: []string{
			"Connect an address with `kickstand channel connect`, then run `kickstand inbound replay`. Or route single events with `kickstand inbound route`.",
			"`kickstand org default SLUG` names the organization that gets such events from now on. `kickstand inbound list --state unrouted` lists them. Events are deleted when their retention ends.",
		},
	}
	for _, line := range list {
		l.Before = append(l.Before, fmt.Sprintf("%s %s: %s, the last on %s",
			line.channel, quoteAddress(line.address), plural(line.events), line.newest.UTC().Format("2 January 2006 at 15:04 UTC")))
	}
	if more {
		l.Before = append(l.Before, "There are more addresses than this mail lists.")
	}
	return l.Message(mail.Address{}, s.operator)
}

// quoteAddress quotes an address, which a stranger may have chosen, on one line.
func quoteAddress(address string) string {
	if address == "" {
		return "(no address)"
	}
	if r := []rune(address); len(r) > 100 {
		address = string(r[:99]) + "…"
	}
	return fmt.Sprintf("%q", strings.ToValidUTF8(address, "\uFFFD"))
}
