package desk

import (
	"cmp"
	"context"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ByThread sorts messages as their ticket shows them: in the order of acceptance.
const ByThread = "thread"

// MessageQuery describes a list of a ticket's messages; see [TicketQuery].
type MessageQuery struct {
	Kind      []string
	Direction []string
	CreatedAt period.Range
	Sort      keyset.Sort // by created_at, or in the order of the thread, newest first by default
	After     *keyset.Cursor
	Limit     int // 0: 30; at most 200
}

// Check implements [problem.Checker].
func (q MessageQuery) Check(v *problem.Validation) {
	for _, kind := range q.Kind {
		if kind != KindReply && kind != KindNote && kind != KindForward {
			v.Add("kind", "must be one of reply, note, forward")
		}
	}
	for _, direction := range q.Direction {
		if direction != DirectionInbound && direction != DirectionOutbound {
			v.Add("direction", "must be one of inbound, outbound")
		}
	}
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, ByCreatedAt, ByThread)
}

// FindMessages is [Service.FindTickets] for the messages of a ticket. Error:
// NotFound for another organization's ticket.
func (s *Service) FindMessages(ctx context.Context, q db.Querier, organizationID, ticketID string, query MessageQuery) ([]Message, *keyset.Cursor, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	query.Limit = cmp.Or(query.Limit, defaultPage)
	return findPage(ctx, s, q, "messages", func(q db.Querier) ([]Message, *keyset.Cursor, error) {
		if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
			return nil, nil, err
		}
		return s.findMessages(ctx, q, ticketID, &query)
	})
}

// EachMessage is [Service.EachTicket] for the messages of a ticket. Error: NotFound
// for another organization's ticket.
func (s *Service) EachMessage(ctx context.Context, organizationID, ticketID string, query MessageQuery, fn func(*Message) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = keyset.ExportPage
	return s.export(ctx, func(ctx context.Context, q db.Querier) error {
		if _, err := s.Ticket(ctx, q, organizationID, ticketID); err != nil {
			return err
		}
		return keyset.EachPage("messages", fn, func(after *keyset.Cursor) ([]Message, *keyset.Cursor, error) {
			query.After = after
			return s.findMessages(ctx, q, ticketID, &query)
		})
	})
}

func (s *Service) findMessages(ctx context.Context, q db.Querier, ticketID string, query *MessageQuery) ([]Message, *keyset.Cursor, error) {
	column := "created_at"
	if query.Sort.Field == "" {
		query.Sort = keyset.Sort{Field: ByThread, Descending: true}
	}
	if query.Sort.Field == ByThread {
		column = "seq"
	}
	order, later := query.Sort.SQL()
	st := &keyset.Statement{Args: []any{ticketID}}
	// A ticket's messages are stored together, and few enough to sort.
	st.WriteString("SELECT " + messageColumns + " FROM messages WHERE ticket_id = $1")
	if len(query.Kind) > 0 {
		st.Addf(" AND kind IN (%s)", keyset.Placeholders(st, query.Kind))
	}
	if len(query.Direction) > 0 {
		st.Addf(" AND direction IN (%s)", keyset.Placeholders(st, query.Direction))
	}
	if !query.CreatedAt.Whole() {
		first, last := query.CreatedAt.Micros()
		st.Addf(" AND created_at >= %s AND created_at <= %s", st.Arg(first), st.Arg(last))
	}
	if query.After != nil {
		n, err := query.After.Integer()
		if err != nil {
			return nil, nil, err
		}
		st.Addf(" AND (%s, id) %s (%s, %s)", column, later, st.Arg(n), st.Arg(query.After.ID))
	}
	st.Addf(" ORDER BY %s %s, id %s LIMIT %d", column, order, order, query.Limit+1)
	messages, err := db.All(ctx, q, scanMessage, st.String(), st.Args...)
	if err != nil {
		return nil, nil, err
	}
	cursor := ThreadCursor
	if query.Sort.Field == ByCreatedAt {
		cursor = func(last *Message) *keyset.Cursor {
			return &keyset.Cursor{Value: strconv.FormatInt(last.CreatedAt.UnixMicro(), 10), ID: last.ID}
		}
	}
	messages, next := keyset.TrimPage(messages, query.Limit, cursor)
	return messages, next, s.fillAttachments(ctx, q, ticketID, messages)
}

// ThreadCursor returns the cursor of the page that begins after a message, in the order [ByThread].
func ThreadCursor(last *Message) *keyset.Cursor {
	return &keyset.Cursor{Value: strconv.FormatInt(last.seq, 10), ID: last.ID}
}
