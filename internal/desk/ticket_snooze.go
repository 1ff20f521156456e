package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Snooze is when a ticket that is pending or on hold opens again by itself. The zero value is
// never. The customer's next message opens it in any case.
type Snooze struct {
	Until      time.Time // zero: no time
	UntilReply bool      // it waits for the customer's answer, without a time
}

// IsZero reports whether s is no snooze.
func (s Snooze) IsZero() bool { return s.Until.IsZero() && !s.UntilReply }

// snoozedUntilReply is the stored form of a snooze until the customer's answer.
const snoozedUntilReply = -1

// column returns the stored form.
func (s Snooze) column() any {
	if s.UntilReply {
		return int64(snoozedUntilReply)
	}
	return db.Time(s.Until)
}

// Scan implements [sql.Scanner].
func (s *Snooze) Scan(src any) error {
	*s = Snooze{}
	if n, ok := src.(int64); ok && n == snoozedUntilReply {
		s.UntilReply = true
		return nil
	}
	return db.IntoTime(&s.Until).Scan(src)
}

// change returns the form of events: a time, "reply" or nil.
func (s Snooze) change() any {
	switch {
	case s.UntilReply:
		return "reply"
	case s.Until.IsZero():
		return nil
	}
	return s.Until.UTC().Format(time.RFC3339)
}

// snoozeKind is the queue's kind of jobs that end a snooze.
const snoozeKind = "desk.snooze"

// snoozeJob is the payload of such a job. It belongs to one snooze: another time has another job.
type snoozeJob struct {
	OrganizationID string `json:"organization_id"`
	TicketID       string `json:"ticket_id"`
	Until          int64  `json:"until"` // microseconds
}

// resolveSnooze completes u.Snooze with the status that comes with it, and enqueues the job that
// ends it. An unchanged snooze gives way to a status. Errors: Invalid; Conflict invalid_transition.
func (s *Service) resolveSnooze(ctx context.Context, tx *db.Tx, t *Ticket, u *Update) error {
	to := Snooze{u.Snooze.Until.Truncate(time.Millisecond), u.Snooze.UntilReply}
	u.Snooze = &to
	switch {
	case to.column() == t.Snoozed().column():
		if to.IsZero() || u.Status == nil || !snoozable(*u.Status) {
			u.Snooze = nil
		}
		return nil
	case to.IsZero():
		if u.Status == nil {
			u.Status = new(StatusOpen)
		}
		return nil
	}
	var v problem.Validation
	checkSchedule(&v, "snoozed_until", to.Until, tx.Now)
	if u.Status != nil && !snoozable(*u.Status) {
		v.AddCode("conflict", "snoozed_until", "must not be given with the status %s", *u.Status)
	}
	if err := v.Err(); err != nil {
		return err
	}
	if u.Status == nil && !snoozable(t.Status) {
		if t.Status != StatusOpen {
			return transitionError("the ticket is "+string(t.Status)+": reopen it first", nil)
		}
		u.Status = new(StatusOnHold)
		if to.UntilReply {
			u.Status = new(StatusPending)
		}
	}
	if to.UntilReply {
		return nil
	}
	payload, err := json.Marshal(snoozeJob{t.OrganizationID, t.ID, to.Until.UnixMicro()})
	if err != nil {
		return err
	}
	return s.queue.EnqueueTx(ctx, tx, queue.New{
		Kind: snoozeKind, Lane: t.ID, Tenant: t.OrganizationID, Payload: payload, RunAt: to.Until,
	})
}

// Snoozed returns the ticket's snooze. It ends with the status.
func (t *Ticket) Snoozed() Snooze {
	if !snoozable(t.Status) {
		return Snooze{}
	}
	return t.snoozed
}

// snoozable reports whether a ticket of that status can be snoozed.
func snoozable(s Status) bool { return s == StatusPending || s == StatusOnHold }

// runSnoozeJob opens the ticket of a job and marks it unread, unless its snooze was changed or has
// ended.
func (s *Service) runSnoozeJob(ctx context.Context, j *queue.Job) error {
	var c snoozeJob
	if err := json.Unmarshal(j.Payload, &c); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	return s.finishWithTicket(ctx, j, c.OrganizationID, c.TicketID, func(tx *db.Tx, t *Ticket) error {
		if t.Snoozed().Until.UnixMicro() != c.Until {
			return nil
		}
		if err := s.applyUpdate(ctx, tx, t, Update{Status: new(StatusOpen)}); err != nil {
			return err
		}
		return markUnread(ctx, tx, t.ID)
	})
}
