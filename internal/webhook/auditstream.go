package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Audit entries are delivered to webhooks that subscribe to [event.AuditRecorded] by name. Each
// such webhook has a cursor per ledger in audit_streams. [Service.RunAudit] reads the committed
// entries of its organization after the cursor, in chain order, and writes their deliveries in
// the transaction that advances the cursor. So every entry becomes one delivery, in order,
// across crashes and also for ledgers in other databases.
//
// The cursor of a webhook that is disabled, failed or has a long queue waits: entries stay in
// the chain and, unlike deliveries, are never dropped.
//
// The stream itself records no audit entries. A webhook that fails records one, once, and then
// has no further deliveries; so entries about deliveries of entries end.

// auditStream is the state of [Service.RunAudit].
type auditStream struct {
	logs []*audit.Log
	wake chan struct{} // capacity 1
}

const (
	auditPoll  = 10 * time.Second // interval; other processes record entries too
	auditBatch = 100              // entries per transaction
	// maxAuditQueue is the number of queued deliveries at which a webhook's cursor waits.
	maxAuditQueue = 1000
)

// isEvent reports whether name is an event of any source.
func isEvent(name event.Name) bool {
	return slices.ContainsFunc(event.Sources[:], func(s event.Source) bool { return isEventOf(s, name) })
}

// isEventOf reports whether name is an event of a source.
func isEventOf(source event.Source, name event.Name) bool {
	return slices.Contains(source.Names(), name) || name == event.AuditRecorded && source == event.Helpdesk
}

// subscribesAudit reports whether a list of events includes the audit log.
func subscribesAudit(events []string) bool {
	return slices.Contains(events, string(event.AuditRecorded))
}

func errMayNotAudit() error {
	return problem.New(problem.Forbidden, "webhooks of %s require permission to read the audit log", event.AuditRecorded)
}

// applyAuditChange checks the effect of a change on the audit subscription, creates or deletes
// the cursors, and returns the change to apply: webhooks with audit entries are ordered.
func (s *Service) applyAuditChange(ctx context.Context, tx *db.Tx, id string, before settings, c Change) (Change, error) {
	was := matches(before.Events, event.Helpdesk, event.AuditRecorded)
	is := was
	if c.Events != nil {
		is = subscribesAudit(*c.Events)
	}
	if !was && !is {
		return c, nil
	}
	if !c.MayAudit {
		return c, errMayNotAudit()
	}
	if is {
		c.Ordered = new(true)
	}
	return c, s.subscribeAudit(ctx, tx, id, was, is)
}

// subscribeAudit creates or deletes the cursors of a webhook. The first delivered entry is the
// change itself.
func (s *Service) subscribeAudit(ctx context.Context, tx *db.Tx, id string, was, is bool) error {
	switch {
	case is && !was:
		for _, l := range s.stream.logs {
			if err := tx.Queue(ctx, `INSERT INTO audit_streams (webhook_id, ledger, since, sequence) VALUES ($1, $2, $3, NULL)
				ON CONFLICT DO NOTHING`, id, l.Ledger(), tx.Now.UnixMicro()); err != nil {
				return fmt.Errorf("subscribe to the audit log: %w", err)
			}
		}
	case was && !is:
		if err := tx.Queue(ctx, "DELETE FROM audit_streams WHERE webhook_id = $1", id); err != nil {
			return fmt.Errorf("unsubscribe from the audit log: %w", err)
		}
	}
	return nil
}

// WakeAudit makes [Service.RunAudit] read new entries soon. It does not wait.
func (s *Service) WakeAudit() {
	select {
	case s.stream.wake <- struct{}{}:
	default:
	}
}

// RunAudit delivers audit entries to their subscribers until ctx ends. Several processes may
// run it on one database.
func (s *Service) RunAudit(ctx context.Context) {
	loop.EveryOr(ctx, auditPoll, s.stream.wake, s.log, "deliver the audit log", s.StreamAudit)
}

// cursor is the position of a webhook's stream in a ledger.
type cursor struct {
	webhookID, organizationID, ledger string
	since                             time.Time
	sequence                          int64
	started                           bool
}

const selectCursor = `SELECT a.webhook_id, w.organization_id, a.ledger, a.since, coalesce(a.sequence, 0), a.sequence IS NOT NULL
	FROM audit_streams a JOIN webhooks w ON w.id = a.webhook_id`

func scanCursor(row db.Row) (c cursor, err error) {
	err = row.Scan(&c.webhookID, &c.organizationID, &c.ledger, db.IntoTime(&c.since), &c.sequence, &c.started)
	return c, err
}

// StreamAudit writes the deliveries of all new entries. A failing webhook delays no other.
func (s *Service) StreamAudit(ctx context.Context) error {
	cursors, err := db.All(ctx, s.db, scanCursor, selectCursor+" WHERE w.state = 'enabled' ORDER BY a.webhook_id, a.ledger")
	if err != nil {
		return fmt.Errorf("find audit streams: %w", err)
	}
	var failed []error
	for _, c := range cursors {
		i := slices.IndexFunc(s.stream.logs, func(l *audit.Log) bool { return l.Ledger() == c.ledger })
		if i < 0 {
			continue // in a database that this process does not have
		}
		for more := true; more && err == nil; {
			more, err = s.advance(ctx, s.stream.logs[i], &c)
		}
		if err != nil {
			failed, err = append(failed, fmt.Errorf("webhook %s, ledger %s: %w", c.webhookID, c.ledger, err)), nil
		}
	}
	return errors.Join(failed...)
}

// advance delivers the next entries after a cursor, and reports whether there may be more.
func (s *Service) advance(ctx context.Context, l *audit.Log, c *cursor) (more bool, err error) {
	start := c.sequence
	if !c.started {
		if start, err = l.SequenceBefore(ctx, c.organizationID, c.since); err != nil {
			return false, err
		}
	}
	entries, err := l.After(ctx, c.organizationID, start, auditBatch)
	if err != nil || len(entries) == 0 && c.started {
		return false, err
	}
	advanced := false
	err = s.db.Write(ctx, func(tx *db.Tx) (err error) {
		advanced, err = s.deliverEntriesTx(ctx, tx, c, start, entries)
		return err
	})
	if more = err == nil && advanced && len(entries) == auditBatch; more {
		c.started, c.sequence = true, entries[len(entries)-1].Sequence
	}
	return more, err
}

// deliverEntriesTx enqueues the deliveries of entries after start and advances the cursor. It
// returns false, and writes nothing, if the webhook is deleted, disabled or has many
// deliveries waiting, or another process has advanced the cursor.
func (s *Service) deliverEntriesTx(ctx context.Context, tx *db.Tx, c *cursor, start int64, entries []audit.Entry) (bool, error) {
	sub, ready, err := s.lockStreamTx(ctx, tx, c)
	if err != nil || !ready {
		return false, err
	}
	last := start
	var all []newDelivery
	for i := range entries {
		d, err := s.auditDelivery(ctx, tx, sub, c.ledger, &entries[i])
		if err != nil {
			return false, err
		}
		all, last = append(all, d), entries[i].Sequence
	}
	if len(all) > 0 {
		if err := s.enqueue(ctx, tx, all); err != nil {
			return false, err
		}
	}
	_, err = tx.Exec(ctx, "UPDATE audit_streams SET sequence = $3 WHERE webhook_id = $1 AND ledger = $2", c.webhookID, c.ledger, last)
	return err == nil, err
}

// lockStreamTx locks the webhook of a cursor. ready reports whether it may get more deliveries
// and the cursor is still the stored one.
func (s *Service) lockStreamTx(ctx context.Context, tx *db.Tx, c *cursor) (sub subscription, ready bool, err error) {
	sub, err = db.One(ctx, tx, scanSubscription, selectSubscription+" WHERE id = $1 FOR UPDATE", c.webhookID)
	if errors.Is(err, db.ErrNoRows) {
		return sub, false, nil // deleted meanwhile
	}
	if err != nil {
		return sub, false, err
	}
	now, err := db.One(ctx, tx, scanCursor, selectCursor+" WHERE a.webhook_id = $1 AND a.ledger = $2", c.webhookID, c.ledger)
	if errors.Is(err, db.ErrNoRows) || err == nil && (now.started != c.started || now.sequence != c.sequence) {
		return sub, false, nil // another process advanced it
	}
	if err != nil {
		return sub, false, err
	}
	var waiting int64
	err = tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND state < 2 LIMIT $2) AS waiting",
		c.webhookID, maxAuditQueue).Scan(&waiting)
	return sub, sub.enabled && waiting < maxAuditQueue, err
}

// auditDelivery writes the event of an entry, under the entry's id, and returns its delivery.
func (s *Service) auditDelivery(ctx context.Context, tx *db.Tx, sub subscription, ledger string, entry *audit.Entry) (newDelivery, error) {
	record := entry.Record()
	record.Ledger = ledger
	text, err := json.Marshal(record)
	if err != nil {
		return newDelivery{}, err
	}
	e := &event.Event{ID: entry.ID, OrganizationID: entry.OrganizationID, Name: event.AuditRecorded, At: entry.At, Data: event.Data{Entry: text}}
	return newDelivery{sub, e, tx.NewID()}, event.WriteTx(ctx, tx, *e)
}
