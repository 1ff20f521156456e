package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// CodeCrossedReply is the code of the Conflict by which [Service.ReplyTx] refuses a
// reply if its author has not seen a colleague's; see [AsCrossedReply].
const CodeCrossedReply = "crossed_reply"

// CrossedReply is the newest reply that the author of a refused one has not seen.
// It has no text: permission to write messages does not imply permission to read
// them.
type CrossedReply struct {
	ID        string
	Author    event.Author
	CreatedAt time.Time
}

// AsCrossedReply returns the unseen reply of err; false for other errors.
func AsCrossedReply(err error) (CrossedReply, bool) {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok || e.Code != CodeCrossedReply {
		return CrossedReply{}, false
	}
	c, ok := e.Details["message"].(CrossedReply)
	return c, ok
}

// checkCrossing refuses a reply if another agent or API key has replied after seen,
// the id of the newest message or pending reply that the author has seen. The ticket is
// locked, so the second of two simultaneous replies finds the first. Errors: Invalid at
// seen_message_id; Conflict crossed_reply.
func checkCrossing(ctx context.Context, tx *db.Tx, t *Ticket, by Actor, seen string) error {
	place, ordinal, last := int64(-1), int64(0), seen // before all messages
	if seen != "" {
		err := tx.QueryRow(ctx, `SELECT seq, 0 FROM messages WHERE ticket_id = $1 AND id = $2
			UNION ALL SELECT place, ordinal FROM pending_replies WHERE ticket_id = $1 AND message_id = $2`, t.ID, seen).Scan(&place, &ordinal)
		if errors.Is(err, db.ErrNoRows) {
			var v problem.Validation
			v.AddCode("not_found", "seen_message_id", "must be a message of the ticket")
			return v.Err()
		}
		if err != nil {
			return fmt.Errorf("look up the message seen last: %w", err)
		}
	}
	unseen, after := "place >= $2", place
	if ordinal > 0 {
		unseen, after, last = "ordinal > $2", ordinal, lastAt
	}
	if err := refuseCrossing(ctx, tx, t, by, place, last); err != nil {
		return err
	}
	return refuseIfFound(ctx, tx, `SELECT message_id, 'agent', author_id, author_name, created_at FROM pending_replies
		WHERE ticket_id = $1 AND `+unseen+` AND author_id <> $3 AND state <> 'failed'
		AND conversation_id NOT IN (SELECT id FROM conversations WHERE ticket_id = $1 AND forwarded) ORDER BY ordinal DESC LIMIT 1`, t.ID, after, by.ID)
}

// lastAt follows the ids of all messages with the same number.
const lastAt = "~"

// refuseCrossing refuses a reply if another agent or API key has written one after the message with
// a number and an id.
func refuseCrossing(ctx context.Context, tx *db.Tx, t *Ticket, by Actor, place int64, id string) error {
	return refuseIfFound(ctx, tx, `SELECT id, author_type, author_id, author_name, created_at FROM messages
		WHERE ticket_id = $1 AND (seq, id) > ($2, $3) AND author_type = $4 AND kind = $5 AND coalesce(author_id, '') <> $6
		ORDER BY seq DESC, id DESC LIMIT 1`, t.ID, place, id, AuthorAgent, KindReply, by.ID)
}

// refuseIfFound returns Conflict crossed_reply if a query finds a reply.
func refuseIfFound(ctx context.Context, tx *db.Tx, query string, args ...any) error {
	c, err := db.One(ctx, tx, func(row db.Row) (c CrossedReply, err error) {
		err = row.Scan(&c.ID, &c.Author.Type, db.IntoText(&c.Author.ID), &c.Author.Name, db.IntoTime(&c.CreatedAt))
		return c, err
	}, query, args...)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("find newer replies: %w", err)
	}
	return &problem.Error{
		Kind: problem.Conflict, Code: CodeCrossedReply,
		Message: cmp.Or(c.Author.Name, "a colleague") + " has replied since the last message you have seen",
		Details: map[string]any{"message": c},
	}
}
