package desk

import (
	"context"
	"fmt"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MessageQuery describes a list of a ticket's messages; see [TicketQuery].
type MessageQuery struct {
	Kind      []string
	Direction []string
	CreatedAt period.Range
	Sort      Sort // by created_at
	After     *Cursor
	Limit     int // 0: 30; at most 200
}

// Check implements [problem.Checker].
func (q MessageQuery) Check(v *problem.Validation) {
	for _, kind := range q.Kind {
		if kind != KindReply && kind != KindNote {
			v.Add("kind", "must be one of reply, note")
		}
	}
	for _, direction := range q.Direction {
		if direction != DirectionInbound && direction != DirectionOutbound {
			v.Add("direction", "must be one of inbound, outbound")
		}
	}
	q.Sort.check(v, ByCreatedAt)
	checkLimit(v, q.Limit)
}

// FindMessages is [Service.FindTickets] for the messages of a ticket. Error:
// NotFound for another organization's ticket.
func (s *Service) FindMessages(ctx context.Context, q db.Querier, organizationID, ticketID string, query MessageQuery) ([]Message, *Cursor, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	if query.Limit == 0 {
		query.Limit = defaultPage
	}
	var messages []Message
	var next *Cursor
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
			return err
		}
		var err error
		messages, next, err = s.findMessages(ctx, q, ticketID, &query)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find messages: %w", err)
	}
	return messages, next, nil
}

// EachMessage is [Service.EachTicket] for the messages of a ticket. Error: NotFound
// for another organization's ticket.
func (s *Service) EachMessage(ctx context.Context, organizationID, ticketID string, query MessageQuery, fn func(*Message) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = exportPage
	return s.exportSnapshot(ctx, func(q db.Querier) error {
		if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
			return err
		}
		return exportPages("messages", fn, func(after *Cursor) ([]Message, *Cursor, error) {
			query.After = after
			return s.findMessages(ctx, q, ticketID, &query)
		})
	})
}

func (s *Service) findMessages(ctx context.Context, q db.Querier, ticketID string, query *MessageQuery) ([]Message, *Cursor, error) {
	order, later := query.Sort.orDefault().direction()
	st := &queryBuilder{args: []any{ticketID}}
	// A ticket's messages are stored together, and few enough to sort.
	st.WriteString("SELECT " + messageColumns + " FROM messages WHERE ticket_id = $1")
	if len(query.Kind) > 0 {
		st.addf(" AND kind IN (%s)", placeholders(st, query.Kind))
	}
	if len(query.Direction) > 0 {
		st.addf(" AND direction IN (%s)", placeholders(st, query.Direction))
	}
	if !query.CreatedAt.Whole() {
		first, last := query.CreatedAt.Micros()
		st.addf(" AND created_at >= %s AND created_at <= %s", st.arg(first), st.arg(last))
	}
	if query.After != nil {
		n, err := query.After.integer()
		if err != nil {
			return nil, nil, err
		}
		st.addf(" AND (created_at, id) %s (%s, %s)", later, st.arg(n), st.arg(query.After.ID))
	}
	st.addf(" ORDER BY created_at %s, id %s LIMIT %d", order, order, query.Limit+1)
	messages, err := db.All(ctx, q, scanMessage, st.String(), st.args...)
	if err != nil {
		return nil, nil, err
	}
	var next *Cursor
	if len(messages) > query.Limit {
		messages = messages[:query.Limit]
		last := &messages[query.Limit-1]
		next = &Cursor{Value: strconv.FormatInt(last.CreatedAt.UnixMicro(), 10), ID: last.ID}
	}
	return messages, next, s.fillAttachments(ctx, q, ticketID, messages)
}
