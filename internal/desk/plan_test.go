package desk_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// explainer fails the test if a statement scans a whole table.
type explainer struct {
	db.Querier
	t      *testing.T
	n      int
	refuse *regexp.Regexp // further lines of plans that are errors; nil: none
}

// wholeTable matches a full scan in a plan of SQLite. Aliases of small sets have
// one letter.
var wholeTable = regexp.MustCompile(`^SCAN (tickets|ticket_tags|ticket_reads|ticket_drafts|ticket_views|customers|messages|events|search_docs)\b`)

func (e *explainer) explain(ctx context.Context, query string, args []any) {
	e.t.Helper()
	lines, err := db.All(ctx, e.Querier, func(row db.Row) (string, error) {
		var id, parent, unused int64
		var detail string
		err := row.Scan(&id, &parent, &unused, &detail)
		return detail, err
	}, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		e.t.Fatalf("%s: %v", query, err)
	}
	e.n++
	for _, line := range lines {
		if wholeTable.MatchString(line) || e.refuse != nil && e.refuse.MatchString(line) {
			e.t.Errorf("%s\n%s: %q", query, line, lines)
		}
	}
}

func (e *explainer) Query(ctx context.Context, query string, args ...any) (*db.Rows, error) {
	e.explain(ctx, query, args)
	return e.Querier.Query(ctx, query, args...)
}

func (e *explainer) QueryRow(ctx context.Context, query string, args ...any) db.Row {
	e.explain(ctx, query, args)
	return e.Querier.QueryRow(ctx, query, args...)
}

// TestIDsGoByKeys checks that lists of ids are looked up by the key on SQLite, whatever else is tested.
func TestIDsGoByKeys(t *testing.T) {
	f := fixtureOn(t, dbtest.NewSQLite(t))
	ana, num := f.two()
	ids := []string{ana.CustomerID, num.CustomerID}
	e := &explainer{t: t, refuse: regexp.MustCompile(`^SEARCH (customers|t) .*\(organization_id=\?\)$`)}
	err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		e.Querier = tx
		if found, err := f.desk.CustomersByID(t.Context(), e, orgA, ids); err != nil || len(found) != 2 {
			t.Errorf("found %v, %v", found, err)
		}
		if _, err := f.desk.PreviewCustomerMerge(t.Context(), e, orgA, ana.CustomerID, num.CustomerID); err != nil {
			return err
		}
		_, err := desk.SurvivorIDs(t.Context(), e, orgA, ids)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if e.n < 3 {
		t.Errorf("%d plans were checked", e.n)
	}
}

// TestListsGoByIndexes checks the plan of every statement of many lists on SQLite.
func TestListsGoByIndexes(t *testing.T) {
	f := fixtureOn(t, dbtest.NewSQLite(t))
	f.desk.SmallSteps()
	w := newWorld(f)
	r := newRand(5)
	w.add(r, 60)
	w.index()
	e := &explainer{Querier: f.db, t: t}
	err := f.db.Read(t.Context(), func(tx *db.Tx) error {
		e.Querier = tx
		for range 300 {
			if _, _, err := f.desk.FindTickets(t.Context(), e, w.org, randomQuery(r, w)); err != nil {
				return err
			}
		}
		tickets, _, err := f.desk.FindTickets(t.Context(), e, w.org, desk.TicketQuery{})
		if err != nil {
			return err
		}
		if _, err := f.desk.TicketCounts(t.Context(), e, w.org, graceID, 3); err != nil {
			return err
		}
		if _, err := f.desk.Unread(t.Context(), e, graceID, tickets); err != nil {
			return err
		}
		if _, err := f.desk.TicketsWithDrafts(t.Context(), e, graceID, tickets); err != nil {
			return err
		}
		if _, err := f.desk.Previews(t.Context(), e, tickets); err != nil {
			return err
		}
		for _, member := range []string{desk.ByCreatedAt, desk.ByUpdatedAt, desk.ByName} {
			for _, name := range []string{"", "cust"} {
				q := desk.CustomerQuery{Name: name, Sort: keyset.Sort{Field: member}, Limit: 2}
				for range 3 {
					_, next, err := f.desk.FindCustomers(t.Context(), e, w.org, q)
					if err != nil {
						return err
					}
					if q.After = next; next == nil {
						break
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.shuffle(r) // so that times and numbers differ in their order
	if err := f.db.Read(t.Context(), func(tx *db.Tx) error {
		e.Querier = tx
		for range 300 {
			if _, _, err := f.desk.FindTickets(t.Context(), e, w.org, randomQuery(r, w)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if e.n < 600 {
		t.Errorf("looked at %d statements, want hundreds", e.n)
	}
}
