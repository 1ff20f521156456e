package desk

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// CustomerQuery describes a list of customers; see [TicketQuery].
type CustomerQuery struct {
	Email      []string // any of the customer's, compared without case
	Phone      []string // any of the customer's, E.164
	ExternalID []string
	Name       string // prefix of the name; ASCII letters compare without case
	CreatedAt  period.Range
	UpdatedAt  period.Range
	Sort       Sort // by created_at, updated_at or name
	After      *Cursor
	Limit      int // 0: 30; at most 200
}

// Check implements [problem.Checker].
func (q CustomerQuery) Check(v *problem.Validation) {
	checkValues(v, "email", q.Email)
	checkValues(v, "phone", q.Phone)
	checkValues(v, "external_id", q.ExternalID)
	v.Length("name", q.Name, 0, maxName)
	q.Sort.check(v, ByCreatedAt, ByUpdatedAt, ByName)
	checkLimit(v, q.Limit)
}

// FindCustomers is [Service.FindTickets] for customers.
func (s *Service) FindCustomers(ctx context.Context, q db.Querier, organizationID string, query CustomerQuery) ([]Customer, *Cursor, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	if query.Limit == 0 {
		query.Limit = defaultPage
	}
	var customers []Customer
	var next *Cursor
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		var err error
		customers, next, err = s.findCustomers(ctx, q, organizationID, &query)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find customers: %w", err)
	}
	return customers, next, nil
}

// EachCustomer is [Service.EachTicket] for customers.
func (s *Service) EachCustomer(ctx context.Context, organizationID string, query CustomerQuery, fn func(*Customer) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = exportPage
	return s.exportSnapshot(ctx, func(q db.Querier) error {
		return exportPages("customers", fn, func(after *Cursor) ([]Customer, *Cursor, error) {
			query.After = after
			return s.findCustomers(ctx, q, organizationID, &query)
		})
	})
}

// asciiLower equals SQL's lower of both engines.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// conditions returns the filters as functions that write SQL. few reports that the
// first one is selective.
func (q *CustomerQuery) conditions() (list []func(st *queryBuilder) string, few bool) {
	points := func(of []string, key func(string) string, kind string) {
		var keys []string
		for _, v := range of {
			keys = append(keys, key(v))
		}
		list, few = append(list, func(st *queryBuilder) string {
			return fmt.Sprintf("id IN (SELECT customer_id FROM contact_points WHERE value = ANY(%s) AND scope = $1 AND kind = '%s' AND customer_id IS NOT NULL)",
				st.arg(keys), kind)
		}), true
	}
	if len(q.ExternalID) > 0 {
		list, few = append(list, func(st *queryBuilder) string {
			return fmt.Sprintf("external_id = ANY(%s)", st.arg(q.ExternalID))
		}), true
	}
	if len(q.Email) > 0 {
		points(q.Email, emailKey, pointEmail)
	}
	if len(q.Phone) > 0 {
		points(q.Phone, phoneKey, pointPhone)
	}
	if q.Name != "" {
		name := asciiLower(q.Name)
		list = append(list, func(st *queryBuilder) string {
			return fmt.Sprintf("lower(name) >= %s AND lower(name) < %s", st.arg(name), st.arg(name+"\U0010FFFF"))
		})
	}
	for _, r := range []struct {
		column string
		period.Range
	}{{"created_at", q.CreatedAt}, {"updated_at", q.UpdatedAt}} {
		if first, last := r.Micros(); !r.Whole() {
			list = append(list, func(st *queryBuilder) string {
				return fmt.Sprintf("%s >= %s AND %s <= %s", r.column, st.arg(first), r.column, st.arg(last))
			})
		}
	}
	return list, few
}

// customerFinder finds the customers of one page.
type customerFinder struct {
	q            db.Querier
	organization string
	query        *CustomerQuery
	sort         Sort
	conditions   []func(st *queryBuilder) string
	selective    bool // few rows match the first condition; sort them
}

func (s *Service) findCustomers(ctx context.Context, q db.Querier, organizationID string, query *CustomerQuery) ([]Customer, *Cursor, error) {
	f := customerFinder{q: q, organization: organizationID, query: query, sort: query.Sort.orDefault()}
	f.conditions, f.selective = query.conditions()
	for i, c := range f.conditions {
		if f.selective {
			break
		}
		st := &queryBuilder{args: []any{organizationID}}
		st.addf("SELECT count(*) FROM (SELECT 1 FROM customers WHERE organization_id = $1 AND %s LIMIT %d) AS c", c(st), s.budget.smallSet+1)
		var n int
		if err := q.QueryRow(ctx, st.String(), st.args...).Scan(&n); err != nil {
			return nil, nil, err
		}
		if f.selective = n <= s.budget.smallSet; f.selective {
			f.conditions[0], f.conditions[i] = f.conditions[i], f.conditions[0]
		}
	}
	want := query.Limit + 1
	rows, err := f.rows(ctx, want, false)
	if err != nil {
		return nil, nil, err
	}
	// Nameless customers come last in either direction.
	if f.sort.Field == ByName && len(rows) < want {
		more, err := f.rows(ctx, want-len(rows), true)
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, more...)
	}
	var next *Cursor
	if len(rows) > query.Limit {
		rows = rows[:query.Limit]
		last := &rows[query.Limit-1]
		next = &Cursor{ID: last.ID}
		switch f.sort.Field {
		case ByName:
			next.Value = asciiLower(last.Name)
		case ByUpdatedAt:
			next.Value = strconv.FormatInt(last.UpdatedAt.UnixMicro(), 10)
		default:
			next.Value = strconv.FormatInt(last.CreatedAt.UnixMicro(), 10)
		}
	}
	customers := make([]Customer, len(rows))
	for i := range rows {
		if err := rows[i].loadContacts(ctx, q); err != nil {
			return nil, nil, err
		}
		customers[i] = rows[i].Customer
	}
	return customers, next, nil
}

// rows reads customers in order; sorted by name, either the named or the nameless
// ones. Conditions that must not choose the index are wrapped in coalesce.
func (f *customerFinder) rows(ctx context.Context, limit int, nameless bool) ([]customerRecord, error) {
	order, later := f.sort.direction()
	st := &queryBuilder{args: []any{f.organization}}
	st.WriteString(selectCustomer)
	conditions := f.conditions
	if f.selective {
		st.addf("WHERE id IN (SELECT id FROM customers WHERE organization_id = $1 AND %s) AND coalesce(organization_id = $1, FALSE)", conditions[0](st))
		conditions = conditions[1:]
	} else {
		st.WriteString("WHERE organization_id = $1")
	}
	st.WriteString(" AND coalesce(deleted_at, 0) = 0")
	for _, c := range conditions {
		st.addf(" AND coalesce(%s, FALSE)", c(st))
	}
	key := "created_at"
	switch f.sort.Field {
	case ByUpdatedAt:
		key = "updated_at"
	case ByName:
		key = "lower(name)"
		if nameless {
			st.WriteString(" AND lower(name) = ''")
		} else {
			st.WriteString(" AND lower(name) > ''")
		}
	}
	if p := f.query.After; p != nil {
		var value any = p.Value
		if f.sort.Field != ByName {
			n, err := p.integer()
			if err != nil {
				return nil, err
			}
			value = n
		}
		switch {
		case f.sort.Field == ByName && !nameless && p.Value == "":
			return nil, nil // this part was on earlier pages
		case f.sort.Field == ByName && nameless && p.Value != "":
		default:
			// The first comparison is redundant, but lets the engines use the index.
			st.addf(" AND %s %s= %s AND (%s, id) %s (%s, %s)", key, later, st.arg(value), key, later, st.arg(value), st.arg(p.ID))
		}
	}
	st.addf(" ORDER BY %s %s, id %s LIMIT %d", key, order, order, limit)
	return db.All(ctx, f.q, scanCustomer, st.String(), st.args...)
}
