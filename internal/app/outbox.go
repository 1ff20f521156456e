package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// outbox sends mail through the queue: a mail exists exactly when the change
// that caused it does, and a mail server that is down delays it.
type outbox struct {
	queue  *queue.Queue
	sender mail.Sender
	from   mail.Address // of mails that name no sender
	box    *seal.Box    // seals what waits: sign-in links are as good as passwords
}

const mailKind = "mail"

func (a *App) openOutbox(from mail.Address, box *seal.Box) (*outbox, error) {
	o := &outbox{queue: a.queue, from: from, box: box}
	if a.config.SMTPURL == "" {
		box, err := mail.OpenMailbox(filepath.Join(a.config.Data, "mailbox"), a.BaseURL, a.log)
		if err != nil {
			return nil, fmt.Errorf("mailbox: %w", err)
		}
		a.mailbox, o.sender = box, box
	} else {
		server, err := mail.OpenSMTP(a.config.SMTPURL)
		if err != nil {
			return nil, fmt.Errorf("smtp-url: %w", err)
		}
		o.sender = server
	}
	a.queue.Handle(queue.Worker{Kind: mailKind, Concurrency: 8, Run: o.send, Retry: mailRetry})
	return o, nil
}

// EnqueueMail has m sent once tx is committed.
func (o *outbox) EnqueueMail(ctx context.Context, tx *db.Tx, m mail.Message) error {
	if len(m.To) == 0 {
		return fmt.Errorf("mail %q has no recipient", m.Subject)
	}
	if m.From == (mail.Address{}) {
		m.From = o.from
	}
	if m.MessageID == "" {
		// Fixed now, so that a mail sent twice is seen to be one.
		m.MessageID = queue.NewID() + "@kickstand"
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("enqueue mail: %w", err)
	}
	id := queue.NewID()
	return o.queue.Enqueue(ctx, tx, queue.New{
		ID: id, Kind: mailKind, Lane: m.To[0].Address, Payload: o.box.Seal(mailKind, payload, id),
	})
}

func (o *outbox) send(ctx context.Context, j *queue.Job) error {
	payload, err := o.box.Open(mailKind, j.Payload, j.ID)
	if err != nil {
		return fmt.Errorf("stored mail: %w", err)
	}
	var m mail.Message
	if err := json.Unmarshal(payload, &m); err != nil {
		return fmt.Errorf("stored mail: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return o.sender.Send(ctx, m)
}

// The waits between attempts. A server that says "later" means it: two days in
// all (channels.md 1E). One that cannot be reached, or does not let us in, is
// ours, often back in a moment, while people wait for the links in these mails,
// and no fault of the mail's: that goes on for a week.
var (
	whenRefused     = []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour, 8 * time.Hour, 10 * time.Hour, 12 * time.Hour, 12 * time.Hour}
	whenUnreachable = []time.Duration{5 * time.Second, 15 * time.Second, 45 * time.Second, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute}
)

const (
	unreachableWait     = 30 * time.Minute // after those
	unreachableAttempts = 7 * 48
)

// mailRetry waits longer and longer; a mail that the server refuses for good is
// not tried again.
func mailRetry(attempt int, err error) (time.Duration, bool) {
	e, ok := errors.AsType[*mail.Error](err)
	unreachable := ok && (e.Temporary && e.Code == 0 || shutOut(e))
	switch {
	case unreachable && attempt <= len(whenUnreachable):
		return whenUnreachable[attempt-1], true
	case unreachable:
		return unreachableWait, attempt <= unreachableAttempts
	case !mail.Temporary(err):
		return 0, false
	case attempt <= len(whenRefused):
		return whenRefused[attempt-1], true
	}
	return 0, false
}

// shutOut reports whether the server refused us rather than the mail, which it
// has not seen: a password that was changed must not lose what waits.
func shutOut(e *mail.Error) bool {
	switch e.Op {
	case mail.OpConnect, mail.OpTLS, mail.OpLogin:
		return e.Code >= 500
	}
	return e.Code == 530 // log in first, or start TLS first (RFC 4954, RFC 3207)
}
