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
// scan of all events finds them soon. The list equals that of the index
// events_name.
const frequentNames = "('customer.created', 'ticket.created', 'conversation.created', 'message.created', 'message.customer_reply')"

// maxTransaction bounds the time from the start of a transaction to the id of its
// last event.
const maxTransaction = time.Hour

// maxClockSkew bounds how far the time in an id precedes that of the transaction. Ids of previous
// versions have the time of the process's clock.
const maxClockSkew = db.SkewRefuse + time.Minute

// list scans an index in the order of ids; conditions that must not choose the
// index are wrapped in coalesce.
func list(ctx context.Context, q db.Querier, organizationID string, query *Query) ([]Event, string, error) {
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
	order, later := "DESC", "<"
	if query.Ascending {
		order, later = "ASC", ">"
		if query.After != "" {
			low = max(low, query.After)
		}
	} else if query.After != "" {
		high = min(high, query.After)
	}
	from := "organization_id = $1"
	if query.TicketID != "" {
		from = "coalesce(organization_id = $1, FALSE) AND ticket_id = " + st.Arg(query.TicketID)
	}
	rare := query.TicketID == "" && len(query.Names) > 0
	for _, name := range query.Names {
		rare = rare && !strings.Contains(frequentNames, "'"+string(name)+"'")
	}
	limit := query.Limit + 1
	bounds := fmt.Sprintf(" AND id >= %s AND id <= %s", st.Arg(low), st.Arg(high))
	if query.After != "" {
		bounds += " AND id " + later + " " + st.Arg(query.After)
	}
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
			fmt.Fprintf(&tests, " AND coalesce(name IN (%s), FALSE)", keyset.Placeholders(&st, query.Names))
		} else {
			fmt.Fprintf(&tests, " AND coalesce(name <> '%s', TRUE)", AuditRecorded)
		}
		parts = []string{fmt.Sprintf("SELECT id FROM events WHERE %s%s%s ORDER BY id %s LIMIT %d", from, bounds, tests.String(), order, limit)}
	}
	st.Addf(`SELECT id, organization_id, name, data, created_at FROM events
		WHERE id IN (SELECT id FROM (%s) AS p) ORDER BY id %s LIMIT %d`, strings.Join(parts, " UNION ALL "), order, limit)
	events, err := db.All(ctx, q, scan, st.String(), st.Args...)
	if err != nil {
		return nil, "", fmt.Errorf("list events: %w", err)
	}
	events, next := keyset.TrimPage(events, query.Limit, func(last *Event) string { return last.ID })
	return events, next, nil
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
