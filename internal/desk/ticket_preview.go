package desk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// Preview is a short form of a ticket's newest message.
type Preview struct {
	TicketID  string
	MessageID string
	Text      string // one line, without quotes; empty: see the other fields
	Direction string
	Kind      string
	Channel   string
	Author    event.Author
	Deleted   bool      // by its author
	Redacted  bool      // its customer's data was redacted
	Files     int       // attachments, if Text is empty
	FileName  string    // of the first attachment
	At        time.Time // when it reached us
}

const (
	previewText = 140  // characters
	previewRead = 2000 // characters of a message that are examined
)

// Previews returns the newest message of each ticket, by the ticket's id. It skips
// automatic replies; a ticket without messages has none.
func (s *Service) Previews(ctx context.Context, q db.Querier, tickets []Ticket) (map[string]Preview, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	ids := make([]string, len(tickets))
	for i := range tickets {
		ids[i] = tickets[i].ID
	}
	list, err := db.All(ctx, q, func(row db.Row) (p Preview, err error) {
		var d Details
		var text string
		err = row.Scan(&p.TicketID, &p.MessageID, &text, &p.Direction, &p.Kind, &p.Channel,
			&p.Author.Type, db.IntoText(&p.Author.ID), &p.Author.Name, db.IntoJSON(&d), db.IntoTime(&p.At))
		p.Text, p.Deleted, p.Redacted = previewLine(text), d.Deleted, d.Redacted
		return p, err
	}, fmt.Sprintf(`SELECT m.ticket_id, m.id, substr(coalesce(m.stripped, m.body), 1, %d), m.direction, m.kind, m.channel,
			m.author_type, m.author_id, m.author_name, m.details, m.created_at
		FROM unnest($1::text[]) AS l(value) JOIN messages m ON m.ticket_id = l.value AND m.id = %s`,
		previewRead, sqlNewest("l.value", `coalesce(n.details, '') NOT LIKE '%"collapsed":true%'`)), ids)
	if err != nil {
		return nil, fmt.Errorf("load previews: %w", err)
	}
	previews := make(map[string]Preview, len(list))
	for _, p := range list {
		if p.Text == "" && !p.Deleted && !p.Redacted {
			if err := q.QueryRow(ctx, `SELECT count(*), (SELECT name FROM attachments WHERE ticket_id = $1 AND message_id = $2 ORDER BY id LIMIT 1)
				FROM attachments WHERE ticket_id = $1 AND message_id = $2`, p.TicketID, p.MessageID).Scan(&p.Files, db.IntoText(&p.FileName)); err != nil {
				return nil, fmt.Errorf("look for attachments: %w", err)
			}
		}
		previews[p.TicketID] = p
	}
	return previews, nil
}

// previewLine returns a text in one line, without quoted lines unless there are no
// others.
func previewLine(text string) string {
	var own []string
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(l), ">") {
			own = append(own, l)
		}
	}
	if short := line(strings.Join(own, " "), previewText); short != "" {
		return short
	}
	return line(text, previewText)
}
