package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

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
		if err := t.countOpen(ctx, q, organizationID, userID, s.limits.open); err != nil {
			return err
		}
		for _, status := range Statuses[1:] {
			from, n := "tickets WHERE organization_id = $1 AND status <> 'closed'", 0
			if status == StatusClosed { // mostly the oldest ones
				from = fmt.Sprintf("(SELECT status FROM tickets WHERE organization_id = $1 ORDER BY created_at LIMIT %d) AS t WHERE TRUE", s.limits.open)
			}
			if err := q.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s AND status = '%s' LIMIT %d) AS c", from, status, most), organizationID).Scan(&n); err != nil {
				return err
			}
			t.Status[status] = n
		}
		t.Status[StatusOpen] = min(t.Status[StatusOpen], most)
		for _, due := range []struct {
			n  *int
			at time.Time
		}{{&t.Due, time.Time{}}, {&t.Overdue, s.db.Now()}} {
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

// forCounts returns the limits of [Service.CountTickets], which takes at most about four
// milliseconds with them.
func (l limits) forCounts() limits {
	return limits{walk: min(l.walk, 1000), work: min(l.work, 4000), documents: min(l.documents, 1000)}
}

// CountTickets counts the tickets of a list, at most most. more reports that there may be more: few
// of very many tickets are not counted to the end, and a search for frequent words not at all. It
// ignores query.After and query.Limit. Error: Invalid.
func (s *Service) CountTickets(ctx context.Context, q db.Querier, organizationID string, query TicketQuery, most int) (n int, more bool, err error) {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return 0, false, err
	}
	query.Limit = most
	if query.Sort.Field != ByDueAt { // the order with the cheapest entries
		query.Sort = keyset.Sort{Field: ByUpdatedAt, Descending: true}
	}
	err = s.snapshot(ctx, q, func(q db.Querier) error {
		f := s.newFinder(ctx, q, organizationID, &query)
		f.limits = s.limits.forCounts()
		some, err := f.prepare(s)
		if err != nil || !some {
			return err
		}
		if f.words != nil && f.words.oneByOne {
			more = true
			return nil
		}
		err = f.find()
		n, more = min(len(f.found), most), len(f.found) > most
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Code == "range_too_large" {
			more, err = true, nil
		}
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("count tickets: %w", err)
	}
	return n, more, nil
}
