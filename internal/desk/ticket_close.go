package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// closeKind is the queue's kind of jobs that close a resolved ticket.
const closeKind = "desk.close"

// closeJob is the payload of such a job. It belongs to one resolution: a ticket
// that is reopened and resolved again gets another job.
type closeJob struct {
	OrganizationID string `json:"organization_id"`
	TicketID       string `json:"ticket_id"`
	ResolvedAt     int64  `json:"resolved_at"` // microseconds
}

func (s *Service) enqueueClose(ctx context.Context, tx *db.Tx, t *Ticket) error {
	payload, err := json.Marshal(closeJob{t.OrganizationID, t.ID, t.ResolvedAt.UnixMicro()})
	if err != nil {
		return err
	}
	return s.queue.EnqueueTx(ctx, tx, queue.New{
		Kind: closeKind, Lane: t.ID, Tenant: t.OrganizationID, Payload: payload, RunAt: t.ResolvedAt.Add(s.closeAfter),
	})
}

// runCloseJob closes the ticket of a job, unless it was reopened or resolved again.
func (s *Service) runCloseJob(ctx context.Context, j *queue.Job) error {
	var c closeJob
	if err := json.Unmarshal(j.Payload, &c); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	return s.finishWithTicket(ctx, j, c.OrganizationID, c.TicketID, func(tx *db.Tx, t *Ticket) error {
		if t.Status != StatusResolved || t.ResolvedAt.UnixMicro() != c.ResolvedAt {
			return nil
		}
		return s.applyUpdate(ctx, tx, t, Update{Status: new(StatusClosed)})
	})
}

// finishWithTicket runs fn with a locked ticket in the transaction that ends a job. The job of a
// deleted ticket ends without it.
func (s *Service) finishWithTicket(ctx context.Context, j *queue.Job, organizationID, ticketID string, fn func(tx *db.Tx, t *Ticket) error) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		t, err := lockTicket(ctx, tx, organizationID, ticketID)
		switch {
		case errors.Is(err, db.ErrNoRows):
			return j.FinishTx(ctx, tx)
		case err != nil:
			return fmt.Errorf("load ticket: %w", err)
		}
		if err := fn(tx, &t); err != nil {
			return err
		}
		return j.FinishTx(ctx, tx)
	})
}
