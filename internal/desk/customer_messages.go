package desk

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// CustomerMessage is a message in a list of a customer's.
type CustomerMessage struct {
	ID           string
	TicketNumber int64
	Channel      string
	Author       event.Author
	Text         string // its beginning, without quoted mail
	At           time.Time
}

// maxMessageTickets bounds the tickets whose messages [Service.CustomerMessages] reads.
const maxMessageTickets = 200

// CustomerMessages returns the newest messages of a customer's newest 200 tickets, of all channels and
// both directions, without notes: those before a time, all for the zero time; at most limit.
func (s *Service) CustomerMessages(ctx context.Context, q db.Querier, organizationID, customerID string, before time.Time, limit int) ([]CustomerMessage, error) {
	until := int64(math.MaxInt64)
	if !before.IsZero() {
		until = before.UnixMicro()
	}
	list, err := db.All(ctx, q, func(row db.Row) (m CustomerMessage, err error) {
		err = row.Scan(&m.ID, &m.TicketNumber, &m.Channel, &m.Author.Type, db.IntoText(&m.Author.ID), &m.Author.Name, &m.Text, db.IntoTime(&m.At))
		return m, err
	}, fmt.Sprintf(`SELECT m.id, t.number, m.channel, m.author_type, m.author_id, m.author_name, substr(coalesce(m.stripped, m.body), 1, 400), m.created_at
		FROM (SELECT id, number FROM tickets WHERE customer_id = $1 AND organization_id = $2 ORDER BY number DESC LIMIT %d) AS t
		JOIN messages m ON m.ticket_id = t.id WHERE m.kind = $3 AND m.created_at < $4 ORDER BY m.created_at DESC, m.id DESC LIMIT $5`, maxMessageTickets),
		customerID, organizationID, KindReply, until, limit)
	if err != nil {
		return nil, fmt.Errorf("find messages of customer: %w", err)
	}
	return list, nil
}
