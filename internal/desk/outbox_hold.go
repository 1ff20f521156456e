package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// ViaUnknown is the [OutboxMessage.SubmittedVia] of a message that waited in a restored backup: it
// may have been submitted after the backup, by an unknown route, and not before its creation.
const ViaUnknown = "unknown, before a restore"

// MarkRestoredTx records that the waiting messages may have been submitted after the backup that
// the database was restored from. Call it before the restored database sends messages. Messages
// with a known submission keep it.
func MarkRestoredTx(ctx context.Context, tx *db.Tx) error {
	const created = "(SELECT m.created_at FROM messages m WHERE m.ticket_id = outbox.ticket_id AND m.id = outbox.message_id)"
	if err := tx.Queue(ctx, "UPDATE outbox SET handed_at = "+created+", doubted_at = "+created+", handed_by = $1 WHERE handed_at IS NULL", ViaUnknown); err != nil {
		return fmt.Errorf("mark restored messages: %w", err)
	}
	// Pending ones may have been sent, or undone, since: a person decides.
	if err := tx.Queue(ctx, "UPDATE pending_replies SET state = $1, error = $2 WHERE state <> $1", string(channel.ReceiptFailed),
		"it may have been sent or undone: it waited in the backup from which this server was restored"); err != nil {
		return fmt.Errorf("mark restored replies: %w", err)
	}
	return nil
}

// ClearRestoredTx removes the marks of [MarkRestoredTx]: the messages are sent like new ones.
func (s *Service) ClearRestoredTx(ctx context.Context, tx *db.Tx) error {
	if err := tx.Queue(ctx, "UPDATE outbox SET handed_at = NULL, doubted_at = NULL, handed_by = NULL WHERE handed_by = $1", ViaUnknown); err != nil {
		return fmt.Errorf("clear marks of restored messages: %w", err)
	}
	return nil
}

// OutboxEntry describes a waiting message.
type OutboxEntry struct {
	MessageID      string
	OrganizationID string
	TicketID       string
	TicketNumber   int64
	Channel        string
	Recipient      string // address, number or id
	CreatedAt      time.Time
	Submitted      bool // a submission has an unknown outcome
	Restored       bool // it waited in a restored backup
}

// OutboxEntries lists the waiting messages of all organizations by creation, after the entry of a
// message id or from the start, at most limit.
func (s *Service) OutboxEntries(ctx context.Context, q db.Querier, after string, limit int) ([]OutboxEntry, error) {
	list, err := db.All(ctx, q, func(row db.Row) (e OutboxEntry, err error) {
		var d Details
		var via string
		err = row.Scan(&e.MessageID, &e.OrganizationID, &e.TicketID, &e.TicketNumber, &e.Channel, &e.Recipient, db.IntoTime(&e.CreatedAt), &e.Submitted, db.IntoText(&via), db.IntoJSON(&d))
		if e.Restored = via == ViaUnknown; e.Restored {
			e.Submitted = false
		}
		for _, to := range d.To {
			if e.Recipient == "" {
				e.Recipient = to.Email
			}
		}
		return e, err
	}, `SELECT o.message_id, o.organization_id, o.ticket_id, t.number, m.channel, coalesce(o.recipient_id, o.recipient), m.created_at, o.handed_at IS NOT NULL, o.handed_by, m.details
		FROM outbox o
		JOIN messages m ON m.ticket_id = o.ticket_id AND m.id = o.message_id
		JOIN tickets t ON t.id = o.ticket_id
		WHERE o.message_id > $1 ORDER BY o.message_id LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list waiting messages: %w", err)
	}
	return list, nil
}

// FailWaitingTx fails waiting messages with a reason, as if they had been refused, and removes
// their jobs. Messages that left the outbox meanwhile are skipped.
func (s *Service) FailWaitingTx(ctx context.Context, tx *db.Tx, reason string, messageIDs ...string) error {
	for _, id := range messageIDs {
		w, err := s.OutboxMessage(ctx, tx, id)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("load message: %w", err)
		}
		if err := s.RecordFailureTx(ctx, tx, &w, channel.SendResult{Verdict: channel.VerdictRefused, Reason: reason}); err != nil {
			return fmt.Errorf("fail message: %w", err)
		}
	}
	return s.queue.DeleteTx(ctx, tx, messageIDs...)
}
