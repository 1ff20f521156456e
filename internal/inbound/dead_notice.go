package inbound

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

const (
	// deadInterval is the minimum time between two mails about dead events to the same
	// recipients.
	deadInterval = time.Hour
	deadKind     = "dead" // kind of the operator's notice; an organization's has "/" and its id appended
)

// DeadCount returns the number of an organization's dead events.
func (s *Service) DeadCount(ctx context.Context, organizationID string) (n int, err error) {
	err = s.db.QueryRow(ctx, "SELECT count(*) FROM inbound_events WHERE state = 'dead' AND organization_id = $1", organizationID).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count dead events: %w", err)
	}
	return n, nil
}

// NotifyDead mails admins and the operator about events that died since their last mail, at
// most once an hour over all processes. The first death after a quiet hour is mailed at once;
// NotifyDead is for later deaths.
func (s *Service) NotifyDead(ctx context.Context) error {
	if s.mailer == nil {
		return nil
	}
	ids, err := db.All(ctx, s.db, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT DISTINCT coalesce(organization_id, '') FROM inbound_events WHERE state = 'dead'")
	if err != nil {
		return fmt.Errorf("find dead events: %w", err)
	}
	for _, id := range ids {
		if err := s.db.Write(ctx, func(tx *db.Tx) error { return s.notifyDead(ctx, tx, id) }); err != nil {
			return err
		}
	}
	return nil
}

// notifyDead enqueues the due mails about an organization's dead events.
func (s *Service) notifyDead(ctx context.Context, tx *db.Tx, organizationID string) error {
	if s.mailer == nil {
		return nil
	}
	if s.operator != (mail.Address{}) {
		if err := s.enqueueDeadMails(ctx, tx, deadKind, "", []mail.Address{s.operator}); err != nil {
			return fmt.Errorf("notify the operator of dead events: %w", err)
		}
	}
	if s.admins == nil || organizationID == "" {
		return nil
	}
	admins, err := s.admins.AdminAddresses(ctx, tx, organizationID)
	if err != nil {
		return fmt.Errorf("find admins: %w", err)
	}
	if err := s.enqueueDeadMails(ctx, tx, deadKind+"/"+organizationID, organizationID, admins); err != nil {
		return fmt.Errorf("notify admins of dead events: %w", err)
	}
	return nil
}

// enqueueDeadMails enqueues mails about events of an organization, or of all if the id is
// empty, that died since the last mail of this kind, unless that was less than an hour ago.
func (s *Service) enqueueDeadMails(ctx context.Context, tx *db.Tx, kind, organizationID string, to []mail.Address) error {
	if len(to) == 0 {
		return nil
	}
	if err := tx.Lock(ctx, "notice/"+kind); err != nil {
		return err
	}
	var last time.Time
	err := tx.QueryRow(ctx, "SELECT sent_at FROM operator_notices WHERE kind = $1", kind).Scan(db.IntoTime(&last))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return err
	}
	if tx.Now.Sub(last) < deadInterval {
		return nil
	}
	since := int64(0)
	if !last.IsZero() {
		since = last.UnixMicro()
	}
	counts, err := db.All(ctx, tx, func(row db.Row) (c deadCount, err error) {
		err = row.Scan(&c.channel, &c.events)
		return c, err
	}, `SELECT channel, count(*) FROM inbound_events WHERE state = 'dead' AND processed_at > $1 AND ($2 = '' OR organization_id = $2)
		GROUP BY channel ORDER BY channel`, since, organizationID)
	if err != nil || len(counts) == 0 {
		return err
	}
	if err := tx.Queue(ctx, `INSERT INTO operator_notices (kind, sent_at) VALUES ($1, $2)
			ON CONFLICT (kind) DO UPDATE SET sent_at = excluded.sent_at`, kind, tx.Now.UnixMicro()); err != nil {
		return err
	}
	for _, one := range to {
		m, err := s.deadMail(one, counts, organizationID == "")
		if err != nil {
			return err
		}
		if err := s.mailer.EnqueueMailTx(ctx, tx, m); err != nil {
			return err
		}
	}
	return nil
}

// deadCount is the number of a channel's dead events.
type deadCount struct {
	channel string
	events  int
}

// deadMail returns the mail about dead events. It holds only channels and counts, because event
// content may come from a stranger.
func (s *Service) deadMail(to mail.Address, counts []deadCount, operator bool) (mail.Message, error) {
	lines := make([]string, len(counts))
	for i, c := range counts {
		lines[i] = fmt.Sprintf("%s: %s", c.channel, plural(c.events))
	}
	l := mail.Notification{
		Unbranded: true,
		Subject:   "Inbound events could not be processed",
		Before: []string{
			"Hello,",
			"Kickstand received these events at " + s.baseURL + " and could not process them; every attempt failed. They are not in the inbox until they are processed.",
			strings.Join(lines, ", ") + ".",
			"Each event shows its error. Replay it when the cause is fixed. Events are deleted when their retention ends.",
		},
	}
	if operator {
		l.After = []string{"`kickstand inbound list --state dead` lists them, and `kickstand inbound replay --state dead` processes them again."}
	} else {
		l.Action = mail.Action{Label: "View events", URL: s.baseURL + "/settings/inbound?state=dead"}
	}
	return l.Message(mail.Address{}, to)
}

func plural(events int) string {
	if events == 1 {
		return "1 event"
	}
	return fmt.Sprint(events, " events")
}
