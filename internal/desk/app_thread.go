package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// AppThread is a conversation on a connection of [ChannelAPI], as its user may see it.
type AppThread struct {
	Key            string // the thread key
	ConversationID string
	TicketID       string
	TicketNumber   int64
	Subject        string
	Status         Status
	CreatedAt      time.Time
	LastMessageAt  time.Time // of the last public message
}

// maxAppThreads bounds the list of a user's conversations.
const maxAppThreads = 200

const selectAppThread = `SELECT p.value, c.id, t.id, t.number, t.subject, t.status, c.created_at,
		(SELECT max(m.created_at) FROM messages m WHERE m.ticket_id = c.ticket_id AND m.conversation_id = c.id AND m.kind = 'reply') AS last
	FROM contact_points p
	JOIN tickets t ON t.id = p.ticket_id
	JOIN conversations c ON c.ticket_id = p.ticket_id AND c.id = p.conversation_id `

func scanAppThread(row db.Row) (t AppThread, err error) {
	err = row.Scan(&t.Key, &t.ConversationID, &t.TicketID, &t.TicketNumber, &t.Subject, &t.Status, db.IntoTime(&t.CreatedAt), db.IntoTime(&t.LastMessageAt))
	return t, err
}

// AppThreads returns the conversations of a connection whose keys are user, a slash, and more, the
// one with the newest message first; at most 200. user has no slash.
func (s *Service) AppThreads(ctx context.Context, q db.Querier, connectionID, user string) ([]AppThread, error) {
	// "0" follows "/" in the order of bytes.
	list, err := db.All(ctx, q, scanAppThread, selectAppThread+`WHERE p.scope = $1 AND p.value > $2 AND p.value < $3
		ORDER BY last DESC, p.value LIMIT $4`, connectionID, user+"/", user+"0", maxAppThreads)
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", err)
	}
	return list, nil
}

// AppThread returns the conversation of a connection with a key, or a NotFound problem.
func (s *Service) AppThread(ctx context.Context, q db.Querier, connectionID, key string) (AppThread, error) {
	t, err := db.One(ctx, q, scanAppThread, selectAppThread+"WHERE p.scope = $1 AND p.value = $2", connectionID, key)
	return t, notFound(err, "conversation")
}

// AppMessages returns public messages of a conversation after a cursor, in the order of their
// acceptance, at most limit of them, and the cursor of the last one; without messages, after. Their
// attachments have signed links ([Service.AppFileURL]).
func (s *Service) AppMessages(ctx context.Context, q db.Querier, t *AppThread, after *keyset.Cursor, limit int) ([]Message, *keyset.Cursor, error) {
	seq, id := int64(-1), ""
	if after != nil {
		n, err := after.Integer()
		if err != nil {
			return nil, nil, err
		}
		seq, id = n, after.ID
	}
	list, err := db.All(ctx, q, scanMessage, "SELECT "+messageColumns+` FROM messages
		WHERE ticket_id = $1 AND conversation_id = $2 AND kind = 'reply' AND (seq, id) > ($3, $4) ORDER BY seq, id LIMIT $5`,
		t.TicketID, t.ConversationID, seq, id, limit)
	if err != nil {
		return nil, nil, fmt.Errorf("list messages: %w", err)
	}
	if len(list) > 0 {
		after = ThreadCursor(&list[len(list)-1])
	}
	return list, after, s.fillAttachments(ctx, q, t.TicketID, list)
}

// AppFileURL returns a link to an attachment that needs no account, valid for a week; empty while
// there is no content.
func (s *Service) AppFileURL(a *Attachment) string {
	if a.BlobKey == "" {
		return ""
	}
	return s.shareFile(a.ID, s.db.Now())
}

// IdentifyTx creates or changes the customer of an app's user, in the caller's transaction. Empty
// fields of p stay as they are, and so does an address or number that another customer has. An
// unknown user with the address or number of a customer becomes that customer. Errors as of
// [Service.UpdateCustomerTx].
func (s *Service) IdentifyTx(ctx context.Context, tx *db.Tx, o channel.Source, p channel.Party, metadata MetadataUpdate) (c Customer, created bool, err error) {
	var v problem.Validation
	if p.Email != "" {
		checkEmail(&v, "email", p.Email)
	}
	if p.Phone != "" {
		checkPhone(&v, "phone", p.Phone)
	}
	metadata.check(&v)
	if err := v.Err(); err != nil {
		return Customer{}, false, err
	}
	var was channel.Party
	k, err := findCustomer(ctx, tx, boundedKey(p.ID), o.ConnectionID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return Customer{}, false, fmt.Errorf("find customer: %w", err)
	}
	if err == nil {
		was = channel.Party{Name: k.Name, Email: k.Email, Phone: k.Phone}
	}
	id, created, err := s.MatchCustomerTx(ctx, tx, o, p, was)
	if err != nil {
		return Customer{}, false, err
	}
	if len(metadata) > 0 {
		c, err = s.UpdateCustomerTx(ctx, tx, o.OrganizationID, id, CustomerUpdate{Metadata: metadata})
	} else {
		c, err = s.Customer(ctx, tx, o.OrganizationID, id)
	}
	return c, created, err
}

// AppCustomer returns the customer of an app's user, or a NotFound problem.
func (s *Service) AppCustomer(ctx context.Context, q db.Querier, organizationID, connectionID, user string) (Customer, error) {
	k, err := findCustomer(ctx, q, boundedKey(user), connectionID)
	if err != nil {
		return Customer{}, notFound(err, "identity")
	}
	return s.Customer(ctx, q, organizationID, k.ID)
}

// LastAppThread returns the thread in which a reply of a ticket would reach an app; false if its
// customer last wrote elsewhere.
func (s *Service) LastAppThread(ctx context.Context, q db.Querier, t *Ticket) (c Conversation, ok bool, err error) {
	if t.Channel != ChannelAPI {
		return c, false, nil
	}
	list, err := replyCandidates(ctx, q, t, "")
	if err != nil || len(list) == 0 || list[0].Channel != ChannelAPI || list[0].ConnectionID == "" {
		return c, false, err
	}
	return list[0], true, nil
}
