package event

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// Query describes a list of events, in the order of writing. A field with several
// values matches any of them; a zero field does not restrict the list.
type Query struct {
	Names     []Name
	TicketID  string
	CreatedAt period.Range
	Ascending bool   // oldest first
	After     string // id of the last event of the page before; it may have been deleted since
	Limit     int    // 0: 30; at most 200
}

const (
	defaultPage = 30
	maxPage     = 200
)

// Check implements [problem.Checker].
func (q Query) Check(v *problem.Validation) {
	for _, name := range q.Names {
		if !slices.Contains(Names[:], name) {
			v.Add("event", "is not the name of an event")
		}
	}
	v.Text("ticket_id", q.TicketID)
	v.Text("after", q.After)
	if q.Limit < 0 || q.Limit > maxPage {
		v.Add("limit", "must be from 1 to %d", maxPage)
	}
}

// List returns a page of an organization's events, and the After of the next page;
// empty after the last. Error: Invalid.
func List(ctx context.Context, q db.Querier, organizationID string, query Query) (events []Event, next string, err error) {
	if err := problem.Check(query); err != nil {
		return nil, "", err
	}
	if query.Limit == 0 {
		query.Limit = defaultPage
	}
	return list(ctx, q, organizationID, &query)
}

// Each calls fn with every event of a list, in order, from one snapshot. It ignores
// query.After and query.Limit, and stops at the first error of fn, which it
// returns. It runs for at most [keyset.MaxExport].
func Each(ctx context.Context, d *db.DB, organizationID string, query Query, fn func(*Event) error) error {
	query.After, query.Limit = "", 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = keyset.ExportPage
	return keyset.Export(ctx, d, func(ctx context.Context, tx *db.Tx) error {
		return keyset.EachPage("events", fn, func(after string) ([]Event, string, error) {
			query.After = after
			return list(ctx, tx, organizationID, &query)
		})
	})
}

// frequentNames are the most frequent events: they have no index by name, since a
// scan of all events finds them soon. Only they share rows. The list equals that of the index
// events_name.
const frequentNames = "('customer.created', 'ticket.created', 'conversation.created', 'message.created', 'message.customer_reply')"

// maxTransaction bounds the time from the start of a transaction to the id of its
// last event.
const maxTransaction = time.Hour

// maxClockSkew bounds how far the time in an id precedes that of the transaction. Ids of previous
// versions have the time of the process's clock.
const maxClockSkew = db.SkewRefuse + time.Minute

// list reads rows until they have a page of events.
func list(ctx context.Context, q db.Querier, organizationID string, query *Query) ([]Event, string, error) {
	limit := query.Limit + 2 // two of them may be those around query.After
	var events []Event
	for after := query.After; ; {
		rows, err := listRows(ctx, q, organizationID, query, after, limit)
		if err != nil {
			return nil, "", fmt.Errorf("list events: %w", err)
		}
		events = append(events, query.eventsOf(rows, after)...)
		if len(rows) < limit || len(events) > query.Limit {
			break
		}
		if after = rows[len(rows)-1].ID; query.Ascending {
			after = memberID(after, maxMembers-1)
		}
	}
	events, next := keyset.TrimPage(events, query.Limit, func(last *Event) string { return last.ID })
	return events, next, nil
}

// eventsOf returns the events of rows after an id that the query asks for, in its order.
func (q *Query) eventsOf(rows []eventRow, after string) []Event {
	if !q.Ascending {
		rows = slices.Clone(rows)
		slices.Reverse(rows)
	}
	events := expand(rows, func(e *Event) bool {
		switch {
		case len(q.Names) > 0 && !slices.Contains(q.Names, e.Name), q.TicketID != "" && (e.Data.Ticket == nil || e.Data.Ticket.ID != q.TicketID):
			return false
		case after == "":
			return true
		case q.Ascending:
			return e.ID > after
		}
		return e.ID < after
	})
	if !q.Ascending {
		slices.Reverse(events)
	}
	return events
}

// listRows returns the next rows with events that a query asks for after an id. The first may hold
// only events before it. It scans an index in the order of ids; conditions that must not
// choose the index are wrapped in coalesce.
func listRows(ctx context.Context, q db.Querier, organizationID string, query *Query, after string, limit int) ([]eventRow, error) {
	st := keyset.Statement{Args: []any{organizationID}}
	low, high := "", "~" // before and after every id
	var tests strings.Builder
	if !query.CreatedAt.Whole() {
		first, last := query.CreatedAt.Micros()
		fmt.Fprintf(&tests, " AND coalesce(created_at >= %s AND created_at <= %s, FALSE)", st.Arg(first), st.Arg(last))
		if query.CreatedAt.Low != nil {
			low = FirstID(query.CreatedAt.Low.Add(-maxClockSkew))
		}
		if query.CreatedAt.High != nil {
			high = FirstID(query.CreatedAt.High.Add(maxTransaction))
		}
	}
	order := "DESC"
	if query.Ascending {
		order = "ASC"
		if after != "" {
			low = max(low, rowID(after))
		}
	} else if after != "" {
		high = min(high, after)
	}
	from := "organization_id = $1"
	if query.TicketID != "" {
		from = "coalesce(organization_id = $1, FALSE) AND ticket_id = " + st.Arg(query.TicketID)
	}
	rare := query.TicketID == "" && len(query.Names) > 0
	for _, name := range query.Names {
		rare = rare && !name.isFrequent()
	}
	bounds := fmt.Sprintf(" AND id >= %s AND id <= %s", st.Arg(low), st.Arg(high))
	var parts []string
	if rare {
		names := slices.Clone(query.Names)
		slices.Sort(names)
		for i, name := range slices.Compact(names) {
			parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT id FROM events WHERE %s AND name = %s AND name NOT IN %s%s%s ORDER BY id %s LIMIT %d) AS p%d",
				from, st.Arg(string(name)), frequentNames, bounds, tests.String(), order, limit, i))
		}
	} else {
		if len(query.Names) > 0 {
			fmt.Fprintf(&tests, " AND coalesce(name IN (%s)", keyset.Placeholders(&st, query.Names))
			for _, name := range query.Names {
				if name != CustomerCreated { // the first of its row; SQLite reads the whole row for the rest
					fmt.Fprintf(&tests, " OR members LIKE %s", st.Arg("%"+string(name)+":%"))
				}
			}
			tests.WriteString(", FALSE)")
		} else {
			fmt.Fprintf(&tests, " AND coalesce(name <> '%s', TRUE)", AuditRecorded)
		}
		parts = []string{fmt.Sprintf("SELECT id FROM events WHERE %s%s%s ORDER BY id %s LIMIT %d", from, bounds, tests.String(), order, limit)}
	}
	st.Addf(selectRows+`WHERE id IN (SELECT id FROM (%s) AS p) ORDER BY id %s LIMIT %d`, strings.Join(parts, " UNION ALL "), order, limit)
	return db.All(ctx, q, scanRow, st.String(), st.Args...)
}

// FirstID returns an id that sorts before every event of a transaction at time t or
// later.
func FirstID(t time.Time) string {
	var id uuid.UUID
	ms := uint64(max(t.UnixMilli(), 0))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id.String()
}
