package desk

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
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
// the id of the newest message that the author has seen. newest is the ticket's
// newest message. The ticket is locked, so the second of two simultaneous replies
// finds the first. Errors: Invalid at seen_message_id; Conflict crossed_reply.
func checkCrossing(ctx context.Context, tx *db.Tx, t *Ticket, by Actor, seen, newest string) error {
	if seen == newest {
		return nil
	}
	if seen != "" {
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM messages WHERE ticket_id = $1 AND id = $2", t.ID, seen).Scan(&n); err != nil {
			return fmt.Errorf("look up the message seen last: %w", err)
		}
		if n == 0 {
			var v problem.Validation
			v.AddCode("not_found", "seen_message_id", "must be a message of the ticket")
			return v.Err()
		}
	}
	c, err := db.One(ctx, tx, func(row db.Row) (c CrossedReply, err error) {
		err = row.Scan(&c.ID, &c.Author.Type, db.IntoText(&c.Author.ID), &c.Author.Name, db.IntoTime(&c.CreatedAt))
		return c, err
	}, `SELECT id, author_type, author_id, author_name, created_at FROM messages
		WHERE ticket_id = $1 AND id > $2 AND author_type = $3 AND kind = $4 AND coalesce(author_id, '') <> $5 ORDER BY id DESC LIMIT 1`,
		t.ID, seen, AuthorAgent, KindReply, by.ID)
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

// newestMessage returns the id of a ticket's newest message; empty if it has none.
func newestMessage(ctx context.Context, q db.Querier, ticketID string) (id string, err error) {
	err = q.QueryRow(ctx, "SELECT max(id) FROM messages WHERE ticket_id = $1", ticketID).Scan(db.IntoText(&id))
	if err != nil {
		return "", fmt.Errorf("find the newest message: %w", err)
	}
	return id, nil
}

// newIDAfter returns a new id that sorts after other, even if other came from a
// process with a clock ahead.
func newIDAfter(other string) string {
	id := uuid.Must(uuid.NewV7())
	o, err := uuid.Parse(other)
	if err != nil || id.String() > other {
		return id.String()
	}
	// The first 48 bits of a UUIDv7 are its time.
	later := binary.BigEndian.Uint64(o[:8])>>16 + 1
	binary.BigEndian.PutUint64(id[:8], later<<16|uint64(binary.BigEndian.Uint16(id[6:8])))
	return id.String()
}
