package desk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MergeTx merges a ticket into another one, the survivor, in the caller's
// transaction, and returns the survivor. The messages move there, and so do
// threads, replies and mentions of the merged ticket from now on. The merged ticket
// stays, closed and empty. [Service.UnmergeTx] undoes it. Merge emits ticket.updated
// of both, and ticket.status_changed of the merged one.
//
// Errors: NotFound; Invalid with code not_found at into; Conflict
// invalid_transition for a ticket and itself, and if either is merged already. So
// there are no cycles.
func (s *Service) MergeTx(ctx context.Context, tx *db.Tx, organizationID, ticketID, into string) (Ticket, error) {
	if ticketID == into {
		return Ticket{}, transitionError("a ticket cannot be merged into itself", nil)
	}
	locked, err := lockTickets(ctx, tx, organizationID, []string{ticketID, into})
	if err != nil {
		return Ticket{}, err
	}
	t, to := locked[ticketID], locked[into]
	switch {
	case t == nil:
		return Ticket{}, notFound(db.ErrNoRows, "ticket")
	case to == nil:
		var v problem.Validation
		v.AddCode("not_found", "into", "must be a ticket of the organization")
		return Ticket{}, v.Err()
	case t.MergedIntoID != "":
		return Ticket{}, mergedError(t)
	case to.MergedIntoID != "":
		return Ticket{}, mergedError(to)
	}
	for _, move := range []string{
		"UPDATE contact_points SET ticket_id = $2 WHERE conversation_id IN (SELECT id FROM conversations WHERE ticket_id = $1)",
		"UPDATE conversations SET ticket_id = $2, home_id = coalesce(home_id, ticket_id) WHERE ticket_id = $1",
		`UPDATE messages SET ticket_id = $2,
			home_id = CASE WHEN conversation_id = '' THEN coalesce(home_id, ticket_id) END WHERE ticket_id = $1`,
		"UPDATE message_ids SET ticket_id = $2 WHERE ticket_id = $1",
		"UPDATE attachments SET ticket_id = $2 WHERE ticket_id = $1",
		"UPDATE outbox SET ticket_id = $2 WHERE ticket_id = $1",
		"UPDATE pending_replies SET ticket_id = $2 WHERE ticket_id = $1",
		`INSERT INTO participants (ticket_id, email, name, role, created_at, home_id, unconfirmed)
			SELECT $2, email, name, role, created_at, coalesce(home_id, ticket_id), unconfirmed FROM participants WHERE ticket_id = $1
			ON CONFLICT DO NOTHING`,
		`UPDATE ticket_drafts SET ticket_id = $2 WHERE ticket_id = $1 AND NOT EXISTS (
			SELECT 1 FROM ticket_drafts d WHERE d.ticket_id = $2 AND d.user_id = ticket_drafts.user_id AND d.kind = ticket_drafts.kind)`,
		`INSERT INTO ticket_followers (ticket_id, user_id, organization_id, followed_at)
			SELECT $2, user_id, organization_id, followed_at FROM ticket_followers WHERE ticket_id = $1 ON CONFLICT DO NOTHING`,
		"UPDATE notices SET ticket_id = $2 WHERE ticket_id = $1",
		// A member with unread messages in the merged ticket has unread ones in the
		// survivor.
		`DELETE FROM ticket_reads WHERE ticket_id = $2 AND NOT EXISTS (SELECT 1 FROM ticket_reads r JOIN tickets t ON t.id = r.ticket_id
			WHERE r.ticket_id = $1 AND r.user_id = ticket_reads.user_id AND r.read_at >= coalesce(t.heard_at, t.created_at))`,
	} {
		if err := tx.Queue(ctx, move, t.ID, to.ID); err != nil {
			return Ticket{}, fmt.Errorf("move rows of ticket: %w", err)
		}
	}
	if t.Customer.ID != to.Customer.ID {
		if err := tx.Queue(ctx, `INSERT INTO participants (ticket_id, email, name, role, created_at, home_id)
			SELECT $1, value, $2, $7, CAST($3 AS BIGINT), $4 FROM contact_points WHERE customer_id = $5 AND kind = $6 ON CONFLICT DO NOTHING`,
			to.ID, t.Customer.Name, tx.Now.UnixMicro(), t.ID, t.Customer.ID, pointEmail, roleCustomer); err != nil {
			return Ticket{}, fmt.Errorf("write participant: %w", err)
		}
	}
	before := t.Status
	changes := map[string]event.Change{"merged_into_id": {From: nil, To: to.ID}}
	t.MergedIntoID, t.MergedAt = to.ID, tx.Now
	if err := s.writeMergeState(ctx, tx, t, StatusClosed, before, changes); err != nil {
		return Ticket{}, err
	}
	if err := s.recordTicketTx(ctx, tx, AuditTicketMerged, t, map[string]any{"into": to.ID, "into_number": to.Number}); err != nil {
		return Ticket{}, err
	}
	return s.emitMerge(ctx, tx, t, to, ChangeMerged, changes, event.Change{From: nil, To: t.ID})
}

// UnmergeTx undoes [Service.MergeTx], in the caller's transaction, and returns the
// ticket: its conversations move back, with the messages and replies they got
// since. Notes written on the survivor and messages split off stay there. The
// ticket gets its former status, or open if its customer has written since; an
// agent's reply since then becomes its first response, if it had none. Tickets
// merged into the ticket before stay in it. Unmerge emits the events of Merge.
//
// Errors: NotFound; Conflict invalid_transition if the ticket is not merged.
func (s *Service) UnmergeTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string) (Ticket, error) {
	f, err := lockMergeTree(ctx, tx, organizationID, ticketID)
	if err != nil {
		return Ticket{}, notFound(err, "ticket")
	}
	t, root := f.tickets[ticketID], f.root()
	if t.MergedIntoID == "" {
		return Ticket{}, transitionError("the ticket is not merged into another", nil)
	}
	const theirs = "(SELECT id FROM conversations WHERE ticket_id = $1 AND home_id = ANY($3))"
	for _, move := range []string{
		"UPDATE contact_points SET ticket_id = $2 WHERE conversation_id IN " + theirs,
		"UPDATE pending_replies SET ticket_id = $2 WHERE ticket_id = $1 AND conversation_id IN " + theirs,
		`UPDATE messages SET ticket_id = $2, home_id = CASE WHEN home_id <> $2 THEN home_id END
			WHERE ticket_id = $1 AND (conversation_id IN ` + theirs + ` OR home_id = ANY($3))`,
		`UPDATE conversations SET ticket_id = $2, home_id = CASE WHEN home_id <> $2 THEN home_id END
			WHERE ticket_id = $1 AND home_id = ANY($3)`,
	} {
		if err := tx.Queue(ctx, move, root.ID, t.ID, f.down); err != nil {
			return Ticket{}, fmt.Errorf("move rows back: %w", err)
		}
	}
	for _, table := range []string{"message_ids", "attachments", "outbox"} {
		if err := tx.Queue(ctx, "UPDATE "+table+` SET ticket_id = $2 WHERE ticket_id = $1
			AND (message_id IN (SELECT id FROM messages WHERE ticket_id = $2) OR message_id IN (SELECT message_id FROM pending_replies WHERE ticket_id = $2))`, root.ID, t.ID); err != nil {
			return Ticket{}, fmt.Errorf("move rows back: %w", err)
		}
	}
	if err := tx.Queue(ctx, `INSERT INTO participants (ticket_id, email, name, role, created_at, home_id, unconfirmed)
		SELECT $2, email, name, role, created_at, CASE WHEN home_id <> $2 THEN home_id END, unconfirmed FROM participants
		WHERE ticket_id = $1 AND home_id = ANY($3) AND (role <> $4 OR home_id <> $2) ON CONFLICT DO NOTHING`,
		root.ID, t.ID, f.down, roleCustomer); err != nil {
		return Ticket{}, fmt.Errorf("write participants: %w", err)
	}
	if err := tx.Queue(ctx, "DELETE FROM participants WHERE ticket_id = ANY($1) AND home_id = ANY($2)", f.up[1:], f.down); err != nil {
		return Ticket{}, fmt.Errorf("remove participants: %w", err)
	}
	var status Status
	var since int
	var answered time.Time
	if err := tx.QueryRow(ctx, `SELECT merged_status,
			(SELECT count(*) FROM messages m WHERE m.ticket_id = $1 AND m.author_type = $2 AND m.kind = $4 AND m.created_at > $5),
			(SELECT min(m.created_at) FROM messages m WHERE m.ticket_id = $1 AND m.author_type = $3 AND m.kind = $4 AND m.created_at > $5)
		FROM tickets WHERE id = $1`,
		t.ID, AuthorCustomer, AuthorAgent, KindReply, t.MergedAt.UnixMicro()).Scan(&status, &since, db.IntoTime(&answered)); err != nil {
		return Ticket{}, fmt.Errorf("find later messages: %w", err)
	}
	if since > 0 {
		status = StatusOpen
		if err := markUnread(ctx, tx, t.ID); err != nil {
			return Ticket{}, err
		}
	}
	if t.FirstRespondedAt.IsZero() {
		t.FirstRespondedAt = answered
	}
	if err := s.recordTicketTx(ctx, tx, AuditTicketUnmerged, t, map[string]any{"from": root.ID, "from_number": root.Number}); err != nil {
		return Ticket{}, err
	}
	changes := map[string]event.Change{"merged_into_id": {From: t.MergedIntoID, To: nil}}
	t.MergedIntoID, t.MergedAt = "", time.Time{}
	if err := s.writeMergeState(ctx, tx, t, status, "", changes); err != nil {
		return Ticket{}, err
	}
	if _, err := s.emitMerge(ctx, tx, t, root, ChangeUnmerged, changes, event.Change{From: t.ID, To: nil}); err != nil {
		return Ticket{}, err
	}
	return *t, nil
}

// writeMergeState writes the merge fields of t and its status, with the
// consequences of the status. before is the status to restore later.
func (s *Service) writeMergeState(ctx context.Context, tx *db.Tx, t *Ticket, status, before Status, changes map[string]event.Change) error {
	snoozed := t.snoozed // its job goes on while the ticket is merged
	if snoozable(status) && !snoozed.Until.IsZero() && !snoozed.Until.After(tx.Now) {
		status = StatusOpen
	}
	if status != t.Status {
		if err := s.recordBreaches(ctx, tx, t, tx.Now); err != nil {
			return err
		}
		changes["status"] = event.Change{From: string(t.Status), To: string(status)}
		if err := s.setStatus(ctx, tx, t, status); err != nil {
			return err
		}
	}
	if t.Status == StatusClosed || snoozable(t.Status) {
		t.snoozed = snoozed
	}
	t.UpdatedAt, t.movedAt = tx.Now, tx.Now
	if err := tx.Queue(ctx, `UPDATE tickets SET status = $2, resolved_at = $3, updated_at = $4, moved_at = $4,
			merged_into_id = $5, merged_at = $6, merged_status = $7, first_responded_at = $8, closed_at = $9, snoozed_until = $10 WHERE id = $1`,
		t.ID, string(t.Status), db.Time(t.ResolvedAt), tx.Now.UnixMicro(),
		db.Text(t.MergedIntoID), db.Time(t.MergedAt), db.Text(string(before)), db.Time(t.FirstRespondedAt), db.Time(t.closedAt), t.snoozed.column()); err != nil {
		return fmt.Errorf("change ticket: %w", err)
	}
	if err := s.enqueueTicketIndexing(ctx, tx, t); err != nil {
		return err
	}
	return s.syncClocks(ctx, tx, t, tx.Now, false)
}

// emitMerge records a merge or its undoing, emits its events, and marks the survivor as
// changed.
func (s *Service) emitMerge(ctx context.Context, tx *db.Tx, t, survivor *Ticket, action ChangeAction, changes map[string]event.Change, change event.Change) (Ticket, error) {
	if err := s.touchMoved(ctx, tx, survivor); err != nil {
		return Ticket{}, err
	}
	inSurvivor := map[string]event.Change{"merged_ticket_id": change}
	if err := recordChange(ctx, tx, t, originOf(ctx), action, changes); err != nil {
		return Ticket{}, err
	}
	if err := recordChange(ctx, tx, survivor, originOf(ctx), action, inSurvivor); err != nil {
		return Ticket{}, err
	}
	of, err := s.ticketSnapshot(ctx, tx, t)
	if err != nil {
		return Ticket{}, err
	}
	in, err := s.ticketSnapshot(ctx, tx, survivor)
	if err != nil {
		return Ticket{}, err
	}
	events := append(updateEvents(of, t.OrganizationID, changes),
		updateEvents(in, t.OrganizationID, inSurvivor)...)
	return *survivor, s.events.EmitTx(ctx, tx, events...)
}

// touchMoved records that messages moved into or out of a ticket.
func (s *Service) touchMoved(ctx context.Context, tx *db.Tx, t *Ticket) error {
	if err := s.enqueueTicketIndexing(ctx, tx, t); err != nil {
		return err
	}
	t.UpdatedAt, t.movedAt = tx.Now, tx.Now
	if err := tx.Queue(ctx, "UPDATE tickets SET updated_at = $2, moved_at = $2 WHERE id = $1", t.ID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("touch ticket: %w", err)
	}
	return nil
}

func transitionError(message string, details map[string]any) *problem.Error {
	return &problem.Error{Kind: problem.Conflict, Message: message, Code: "invalid_transition", Details: details}
}

// mergedError returns the Conflict for a change of a merged ticket.
func mergedError(t *Ticket) error {
	return transitionError(fmt.Sprintf("ticket #%d is merged into another ticket; unmerge it first", t.Number), map[string]any{"merged_into_id": t.MergedIntoID})
}

// lockTickets returns the existing tickets among ids, locked in the order of their
// ids, so that concurrent calls cannot deadlock.
func lockTickets(ctx context.Context, tx *db.Tx, organizationID string, ids []string) (map[string]*Ticket, error) {
	list, err := db.All(ctx, tx, scanTicket, selectTicket+"WHERE t.id = ANY($1) AND coalesce(t.organization_id = $2, FALSE) ORDER BY t.id FOR UPDATE OF t", ids, organizationID)
	if err != nil {
		return nil, fmt.Errorf("load tickets: %w", err)
	}
	found := make(map[string]*Ticket, len(list))
	for i := range list {
		found[list[i].ID] = &list[i]
	}
	return found, nil
}

// lockSurvivor returns a ticket, or the last survivor of its merges, locked.
func lockSurvivor(ctx context.Context, tx *db.Tx, organizationID, id string) (Ticket, error) {
	for {
		t, err := lockTicket(ctx, tx, organizationID, id)
		if err != nil || t.MergedIntoID == "" {
			return t, err
		}
		id = t.MergedIntoID
	}
}

// mergeTree is a ticket with its survivors and the tickets merged into it.
type mergeTree struct {
	up, down []string // from the ticket to the last survivor; the ticket and all merged into it
	tickets  map[string]*Ticket
}

func (f *mergeTree) root() *Ticket { return f.tickets[f.up[len(f.up)-1]] }

// mergeLine returns the ids from a record of table, tickets or customers, up to its last survivor,
// and those of the record and all merged into it, in order.
func mergeLine(ctx context.Context, q db.Querier, table, organizationID, id string) (up, down []string, err error) {
	up, err = db.All(ctx, q, scanText, `WITH RECURSIVE up(id, merged_into_id, step) AS (
			SELECT id, merged_into_id, 0 FROM `+table+` WHERE id = $1 AND organization_id = $2
			UNION ALL SELECT r.id, r.merged_into_id, step + 1 FROM `+table+` r JOIN up ON r.id = up.merged_into_id
		) SELECT id FROM up ORDER BY step`, id, organizationID)
	if err != nil {
		return nil, nil, fmt.Errorf("find survivors in %s: %w", table, err)
	}
	down, err = mergedDown(ctx, q, table, organizationID, id)
	return up, down, err
}

// mergedDown returns the ids of a record of table, tickets or customers, and of all merged into it, in
// order.
func mergedDown(ctx context.Context, q db.Querier, table, organizationID, id string) ([]string, error) {
	ids, err := db.All(ctx, q, scanText, `WITH RECURSIVE down(id) AS (
			SELECT id FROM `+table+` WHERE id = $1 AND organization_id = $2
			UNION ALL SELECT r.id FROM `+table+` r JOIN down ON r.merged_into_id = down.id
		) SELECT id FROM down ORDER BY id`, id, organizationID)
	if err != nil {
		return nil, fmt.Errorf("find merged %s: %w", table, err)
	}
	return ids, nil
}

// lockMergeTree returns the merge tree of a ticket, locked; [db.ErrNoRows] if there
// is no such ticket. The tree cannot change meanwhile: a merge needs the lock of
// the survivor.
func lockMergeTree(ctx context.Context, tx *db.Tx, organizationID, id string) (*mergeTree, error) {
	var f mergeTree
	for {
		up, down, err := mergeLine(ctx, tx, "tickets", organizationID, id)
		if err != nil {
			return nil, err
		}
		if len(up) == 0 {
			return nil, db.ErrNoRows
		}
		if f.tickets != nil && slices.Equal(f.up, up) && slices.Equal(f.down, down) {
			return &f, nil
		}
		f.up, f.down = up, down
		if f.tickets, err = lockTickets(ctx, tx, organizationID, slices.Concat(up, down)); err != nil {
			return nil, err
		}
	}
}

// removeMerged removes a deleted merged ticket from the tree: its messages become
// the survivor's, or those of the ticket in between.
func (f *mergeTree) removeMerged(ctx context.Context, tx *db.Tx, t *Ticket) error {
	for _, table := range []string{"conversations", "messages", "participants"} {
		if err := tx.Queue(ctx, "UPDATE "+table+` SET home_id = CASE WHEN ticket_id <> $1 THEN $1 END
			WHERE ticket_id = ANY($2) AND home_id = $3`, t.MergedIntoID, f.up[1:], t.ID); err != nil {
			return fmt.Errorf("remove merged ticket: %w", err)
		}
	}
	if err := tx.Queue(ctx, "UPDATE tickets SET merged_into_id = $1 WHERE merged_into_id = $2", t.MergedIntoID, t.ID); err != nil {
		return fmt.Errorf("remove merged ticket: %w", err)
	}
	return nil
}

// isCurrent reports whether the conversation is still in its ticket, which is
// locked.
func (p *threadRef) isCurrent(ctx context.Context, tx *db.Tx) (bool, error) {
	if p.ticket.movedAt.IsZero() {
		return true, nil
	}
	var n int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM conversations WHERE ticket_id = $1 AND id = $2", p.ticket.ID, p.conversationID).Scan(&n); err != nil {
		return false, fmt.Errorf("find conversation: %w", err)
	}
	return n > 0, nil
}
