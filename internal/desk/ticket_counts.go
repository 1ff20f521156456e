package desk

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// CountTickets returns the number of tickets in a list, at most most. It ignores
// query's Sort, After and Limit. Error: Invalid.
func (s *Service) CountTickets(ctx context.Context, q db.Querier, organizationID string, query TicketQuery, most int) (int, error) {
	query.Sort, query.After, query.Limit = keyset.Sort{}, nil, 0
	if err := problem.Check(query); err != nil {
		return 0, err
	}
	n := 0
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		var err error
		n, err = s.countTickets(ctx, q, organizationID, &query, most)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count tickets: %w", err)
	}
	return n, nil
}

func (s *Service) countTickets(ctx context.Context, q db.Querier, organizationID string, query *TicketQuery, most int) (int, error) {
	f := ticketFinder{
		ctx: ctx, q: q, postgres: s.db.Postgres(), budget: s.budget, organization: organizationID, query: query, sort: byDefault(query.Sort),
		first: 1, last: maxNumber, want: most,
	}
	if some, err := f.readWords(); err != nil || !some {
		return 0, err
	}
	some, err := f.bounds()
	if err != nil || !some {
		return 0, err
	}
	// Conditions that index entries answer, in any order.
	from := ""
	st := f.newStatement()
	switch plain := f.words == nil && len(query.ExternalID)+len(query.Tags)+len(query.CustomerID) == 0; {
	case plain && !query.DueAt.Whole() && query.UpdatedAt.Whole():
		from = "t.due_at IS NOT NULL AND t." + f.dueAt(st)
	case plain && len(query.Status) > 0 && f.statusOnly():
		from = "t.status IN (" + keyset.Placeholders(st, query.Status) + ")"
	case plain && f.excludesClosed() && query.DueAt.Whole():
		from = "t.status <> 'closed' AND t.status IN (" + keyset.Placeholders(st, query.Status) + ")"
	default:
		if err := f.byNumber(nil); err != nil {
			return 0, err
		}
		return min(len(f.found), most), nil
	}
	st.Addf("SELECT count(*) FROM (SELECT 1 FROM tickets t WHERE t.organization_id = $1 AND %s AND coalesce(%s, FALSE) LIMIT %d) AS c", from, f.entryPredicate(st), most)
	n := 0
	err = q.QueryRow(ctx, st.String(), st.Args...).Scan(&n)
	return n, err
}

// statusOnly reports whether only the status filter is set.
func (f *ticketFinder) statusOnly() bool {
	q := f.query
	return len(q.Priority)+len(q.Channel)+len(q.AssigneeID)+len(q.Number) == 0 && q.CreatedAt.Whole() && q.UpdatedAt.Whole() && q.DueAt.Whole()
}

// TicketCounts are the counts beside the filters of the inbox. Mine, Unassigned,
// Channel and Priority count open tickets.
type TicketCounts struct {
	Status     map[Status]int // each at most the requested limit
	Mine       int
	Unassigned int
	Channel    map[string]int
	Priority   map[Priority]int
	Due        int // tickets of any status with a due time, up to the limit
	Overdue    int // with a past due time, up to the limit
	// More reports that there are more open tickets than were examined: their counts
	// are lower bounds.
	More bool
}

// TicketCounts returns the counts of an organization for a member, each at most
// most.
func (s *Service) TicketCounts(ctx context.Context, q db.Querier, organizationID, userID string, most int) (TicketCounts, error) {
	t := TicketCounts{Status: make(map[Status]int), Channel: make(map[string]int), Priority: make(map[Priority]int)}
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		if err := t.countOpen(ctx, q, organizationID, userID, s.budget.openTickets); err != nil {
			return err
		}
		for _, status := range Statuses[1:] {
			n, err := s.countTickets(ctx, q, organizationID, &TicketQuery{Status: []Status{status}}, most)
			if err != nil {
				return err
			}
			t.Status[status] = n
		}
		t.Status[StatusOpen] = min(t.Status[StatusOpen], most)
		for _, due := range []struct {
			n  *int
			at time.Time
		}{{&t.Due, time.Time{}}, {&t.Overdue, time.Now()}} {
			st := &keyset.Statement{Args: []any{organizationID}}
			st.WriteString("SELECT count(*) FROM (SELECT 1 FROM tickets t WHERE t.organization_id = $1 AND t.due_at IS NOT NULL")
			if !due.at.IsZero() {
				st.Addf(" AND t.due_at <= %s", st.Arg(due.at.UnixMicro()))
			}
			st.Addf(" LIMIT %d) AS c", most)
			if err := q.QueryRow(ctx, st.String(), st.Args...).Scan(due.n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return TicketCounts{}, fmt.Errorf("count tickets: %w", err)
	}
	return t, nil
}

// countOpen counts up to most open tickets, by one index scan.
func (t *TicketCounts) countOpen(ctx context.Context, q db.Querier, organizationID, userID string, most int) error {
	const open = "FROM tickets WHERE organization_id = $1 AND status <> 'closed' AND status = 'open'"
	if err := q.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 "+open+" LIMIT 1 OFFSET %d)", most), organizationID).Scan(&t.More); err != nil {
		return err
	}
	from := open
	if t.More {
		from = fmt.Sprintf("FROM (SELECT assignee_id, channel, priority "+open+" ORDER BY assignee_id, channel, priority LIMIT %d) AS o", most)
	}
	// Grouped in the order of the index, without a sort.
	rows, err := q.Query(ctx, "SELECT assignee_id, channel, priority, count(*) "+from+" GROUP BY assignee_id, channel, priority", organizationID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var assignee, channel string
		var priority Priority
		var n int
		if err := rows.Scan(db.IntoText(&assignee), &channel, &priority, &n); err != nil {
			return err
		}
		t.Channel[channel] += n
		t.Priority[priority] += n
		t.Status[StatusOpen] += n
		switch assignee {
		case "":
			t.Unassigned += n
		case userID:
			t.Mine += n
		}
	}
	return rows.Err()
}
