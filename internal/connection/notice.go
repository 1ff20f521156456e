package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Notice is a problem of a connection, for administrators.
type Notice struct {
	Kind channel.ConnectionEventKind `json:"kind"`
	Text string                      `json:"text"`
	At   time.Time                   `json:"at"`
}

// EnableAdminMail enables mail to admins about their connections: about each disconnection, and
// about other notices once a day. Call it before the service is used; without it, notices are
// only displayed. baseURL is the public address without a trailing slash.
func (s *Service) EnableAdminMail(admins mail.Admins, mailer mail.Enqueuer, baseURL string) {
	s.admins, s.mailer, s.baseURL = admins, mailer, baseURL
}

// noticeInterval is the minimum time between two mails about a connection.
const noticeInterval = 24 * time.Hour

// EventResult is the result of a connection event.
type EventResult struct {
	Outcome      string `json:"outcome"`          // disconnected, noticed, duplicate, recorded
	Reason       string `json:"reason,omitempty"` // why it is only recorded
	ConnectionID string `json:"connection_id,omitempty"`
}

// IngestConnectionEventTx applies a provider's event about a connection in the caller's
// transaction. A connection that the provider ended is disabled with a notice, and its admins
// get a mail. Events older than the last change of the notice have no effect.
func (s *Service) IngestConnectionEventTx(ctx context.Context, tx *db.Tx, o channel.Source, n *channel.ConnectionEvent) (any, error) {
	if o.ConnectionID == "" {
		return EventResult{Outcome: "recorded", Reason: "there is no connection that it could be about"}, nil
	}
	c, err := s.lock(ctx, tx, o.OrganizationID, o.ConnectionID)
	if problem.Of(err) == problem.NotFound {
		return EventResult{Outcome: "recorded", Reason: "the connection was removed", ConnectionID: o.ConnectionID}, nil
	}
	if err != nil {
		return nil, err
	}
	r := EventResult{ConnectionID: c.ID}
	ended := c.Notice != nil && c.Notice.Kind == channel.Disconnected
	switch {
	case !o.ReceivedAt.IsZero() && o.ReceivedAt.Before(c.noticedAt):
		r.Outcome, r.Reason = "recorded", "something newer is known of the connection"
		return r, nil
	case ended, c.Notice != nil && c.Notice.Kind == n.Kind && c.Notice.Text == noticeText(n.Text):
		r.Outcome = "duplicate"
		return r, nil
	}
	at := tx.Now
	if !o.ReceivedAt.IsZero() {
		at = o.ReceivedAt
	}
	switch n.Kind {
	case channel.Disconnected:
		c.Enabled = false
	case channel.Noticed:
	default:
		return nil, fmt.Errorf("connection: unknown event %q", n.Kind)
	}
	r.Outcome = string(n.Kind)
	return r, s.notice(ctx, tx, &c, &Notice{n.Kind, noticeText(n.Text), at})
}

const maxNotice = 1000 // characters

func noticeText(text string) string {
	if r := []rune(text); len(r) > maxNotice {
		text = string(r[:maxNotice-1]) + "…"
	}
	return text
}

// NoticeTx sets the notice of a connection in the caller's transaction; an empty text clears
// it. A disconnection notice stays. Error: NotFound.
func (s *Service) NoticeTx(ctx context.Context, tx *db.Tx, organizationID, id, text string) error {
	c, err := s.lock(ctx, tx, organizationID, id)
	if err != nil {
		return err
	}
	text = noticeText(text)
	switch {
	case c.Notice != nil && c.Notice.Kind == channel.Disconnected:
		return nil
	case text == "" && c.Notice == nil, c.Notice != nil && c.Notice.Text == text:
		return nil
	case text == "":
		c.Notice, c.noticedAt = nil, tx.Now
		return s.update(ctx, tx, &c)
	}
	return s.notice(ctx, tx, &c, &Notice{channel.Noticed, text, tx.Now})
}

// notice sets a notice and mails admins if it is a disconnection or the last mail is a day old.
func (s *Service) notice(ctx context.Context, tx *db.Tx, c *Connection, n *Notice) error {
	c.Notice, c.noticedAt = n, n.At
	if s.admins != nil && (n.Kind == channel.Disconnected || tx.Now.Sub(c.noticeMailedAt) >= noticeInterval) {
		c.noticeMailedAt = tx.Now
		admins, err := s.admins.AdminAddresses(ctx, tx, c.OrganizationID)
		if err != nil {
			return fmt.Errorf("find admins: %w", err)
		}
		for _, to := range admins {
			m, err := noticeMail(to, c, s.baseURL)
			if err != nil {
				return err
			}
			if err := s.mailer.EnqueueMailTx(ctx, tx, m); err != nil {
				return fmt.Errorf("enqueue mail: %w", err)
			}
		}
	}
	if n.Kind == channel.Noticed {
		return s.update(ctx, tx, c) // only the notice has changed
	}
	return s.save(ctx, tx, c)
}

// noticeMail returns the mail to an admin about a notice.
func noticeMail(to mail.Address, c *Connection, baseURL string) (mail.Message, error) {
	name := c.Channel + " " + c.Address
	l := mail.Notification{
		Subject: "Channel " + name + " needs attention",
		Before:  []string{"Hello,", "This is about the channel " + name + ": " + c.Notice.Text},
		After:   []string{"Channel id: " + c.ID},
	}
	if c.Notice.Kind == channel.Disconnected {
		l.Subject = "Channel " + name + " is disconnected"
		l.Before = []string{
			"Hello,",
			"The channel " + name + " is disconnected: " + c.Notice.Text,
			"It neither receives nor sends. When it works at the provider again, enable it.",
		}
	}
	if baseURL != "" {
		l.Action = mail.Action{Label: "Open Kickstand", URL: baseURL + "/"}
	}
	return l.Message(mail.Address{}, to)
}

// RetireTx disables a connection and deletes its credentials in the caller's transaction. A
// missing connection is no error.
func (s *Service) RetireTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	c, err := s.lock(ctx, tx, organizationID, id)
	if err != nil {
		if problem.Of(err) == problem.NotFound || errors.Is(err, db.ErrNoRows) {
			return nil
		}
		return err
	}
	before := c
	c.Enabled, c.credentials = false, map[string]string{}
	if err := s.recordUpdateTx(ctx, tx, &before, &c, Change{}); err != nil {
		return err
	}
	return s.save(ctx, tx, &c)
}
