package desk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// SavedDraft is a member's unsent text in a ticket, at most one of each kind.
type SavedDraft struct {
	TicketID       string
	UserID         string
	Kind           string // [KindReply] or [KindNote]
	ConversationID string // of the reply; empty: not chosen
	Text           string
	UpdatedAt      time.Time // set on read
}

// Check implements [problem.Checker].
func (d SavedDraft) Check(v *problem.Validation) {
	if d.Kind != KindReply && d.Kind != KindNote {
		v.Add("kind", "must be one of reply, note")
	}
	v.Length("text", d.Text, 0, maxText)
	v.Length("conversation_id", d.ConversationID, 0, maxKey)
}

// SaveDraftTx replaces a member's draft in the caller's transaction. A blank text
// deletes it. Sending deletes it too: see [Service.ReplyTx] and [Service.AddNoteTx].
// Errors: NotFound; Invalid.
func (s *Service) SaveDraftTx(ctx context.Context, tx *db.Tx, organizationID string, d SavedDraft) error {
	if err := problem.Check(d); err != nil {
		return err
	}
	if err := hasTicket(ctx, tx, organizationID, d.TicketID); err != nil {
		return err
	}
	if strings.TrimSpace(d.Text) == "" {
		return s.DeleteDraftTx(ctx, tx, organizationID, d.UserID, d.TicketID, d.Kind)
	}
	if err := tx.Queue(ctx, `INSERT INTO ticket_drafts (ticket_id, user_id, kind, organization_id, conversation_id, body, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (ticket_id, user_id, kind)
		DO UPDATE SET conversation_id = excluded.conversation_id, body = excluded.body, updated_at = excluded.updated_at`,
		d.TicketID, d.UserID, d.Kind, organizationID, db.Text(d.ConversationID), d.Text, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("save draft: %w", err)
	}
	return nil
}

// SavedDrafts returns a member's drafts in a ticket, by kind.
func (s *Service) SavedDrafts(ctx context.Context, q db.Querier, organizationID, userID, ticketID string) (map[string]SavedDraft, error) {
	list, err := db.All(ctx, q, func(row db.Row) (d SavedDraft, err error) {
		err = row.Scan(&d.TicketID, &d.UserID, &d.Kind, db.IntoText(&d.ConversationID), &d.Text, db.IntoTime(&d.UpdatedAt))
		return d, err
	}, `SELECT ticket_id, user_id, kind, conversation_id, body, updated_at FROM ticket_drafts
		WHERE ticket_id = $1 AND user_id = $2 AND organization_id = $3`, ticketID, userID, organizationID)
	if err != nil {
		return nil, fmt.Errorf("load drafts: %w", err)
	}
	drafts := make(map[string]SavedDraft, len(list))
	for _, d := range list {
		drafts[d.Kind] = d
	}
	return drafts, nil
}

// TicketsWithDrafts returns the ids of the tickets in which a member has drafts.
func (s *Service) TicketsWithDrafts(ctx context.Context, q db.Querier, userID string, tickets []Ticket) (map[string]bool, error) {
	ids := make([]string, len(tickets))
	for i := range tickets {
		ids[i] = tickets[i].ID
	}
	list, err := db.All(ctx, q, scanText, "SELECT DISTINCT ticket_id FROM ticket_drafts WHERE ticket_id = ANY($1) AND user_id = $2", ids, userID)
	if err != nil {
		return nil, fmt.Errorf("find drafts: %w", err)
	}
	drafted := make(map[string]bool, len(list))
	for _, id := range list {
		drafted[id] = true
	}
	return drafted, nil
}

// DeleteDraftTx deletes a member's draft in the caller's transaction, if there is
// one.
func (s *Service) DeleteDraftTx(ctx context.Context, tx *db.Tx, organizationID, userID, ticketID, kind string) error {
	if err := tx.Queue(ctx, "DELETE FROM ticket_drafts WHERE ticket_id = $1 AND user_id = $2 AND kind = $3 AND organization_id = $4",
		ticketID, userID, kind, organizationID); err != nil {
		return fmt.Errorf("delete draft: %w", err)
	}
	return nil
}

// deleteDraft deletes the draft of a sent message, in a ticket or its survivor.
func deleteDraft(ctx context.Context, tx *db.Tx, by Actor, kind string, ticketIDs ...string) error {
	if by.ID == "" {
		return nil
	}
	if err := tx.Queue(ctx, "DELETE FROM ticket_drafts WHERE ticket_id = ANY($1) AND user_id = $2 AND kind = $3", ticketIDs, by.ID, kind); err != nil {
		return fmt.Errorf("delete draft: %w", err)
	}
	return nil
}
