package desk

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// CustomerQuery describes a list of customers; see [TicketQuery].
type CustomerQuery struct {
	Email      []string // any of the customer's, compared without case
	Phone      []string // any of the customer's, E.164
	ExternalID []string // the customer's, or that of one merged into it
	Name       string   // prefix of the name; ASCII letters compare without case
	Text       string   // such a prefix, or words as of [Service.CustomersByWords], of up to 500 customers
	CreatedAt  period.Range
	UpdatedAt  period.Range
	Sort       keyset.Sort // by created_at, updated_at or name
	After      *keyset.Cursor
	Limit      int // 0: 30; at most 200
}

// Check implements [problem.Checker].
func (q CustomerQuery) Check(v *problem.Validation) {
	keyset.CheckValues(v, "email", q.Email)
	keyset.CheckValues(v, "phone", q.Phone)
	keyset.CheckValues(v, "external_id", q.ExternalID)
	v.Length("name", q.Name, 0, maxName)
	v.Length("q", q.Text, 0, maxName)
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, ByCreatedAt, ByUpdatedAt, ByName)
}

// FindCustomers is [Service.FindTickets] for customers.
func (s *Service) FindCustomers(ctx context.Context, q db.Querier, organizationID string, query CustomerQuery) ([]Customer, *keyset.Cursor, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	query.Limit = cmp.Or(query.Limit, defaultPage)
	return findPage(ctx, s, q, "customers", func(q db.Querier) ([]Customer, *keyset.Cursor, error) {
		return s.findCustomers(ctx, q, organizationID, &query)
	})
}

// EachCustomer is [Service.EachTicket] for customers.
func (s *Service) EachCustomer(ctx context.Context, organizationID string, query CustomerQuery, fn func(*Customer) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = keyset.ExportPage
	return s.export(ctx, func(ctx context.Context, q db.Querier) error {
		return keyset.EachPage("customers", fn, func(after *keyset.Cursor) ([]Customer, *keyset.Cursor, error) {
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
// first one is selective. ids are the customers that the text finds, external those with one of
// the external ids.
func (q *CustomerQuery) conditions(ids, external []string) (list []func(st *keyset.Statement) string, few bool) {
	points := func(of []string, key func(string) string, kind string) {
		var keys []string
		for _, v := range of {
			keys = append(keys, key(v))
		}
		list, few = append(list, func(st *keyset.Statement) string {
			return fmt.Sprintf("id IN (SELECT customer_id FROM contact_points WHERE value = ANY(%s) AND scope = $1 AND kind = '%s' AND customer_id IS NOT NULL)",
				st.Arg(keys), kind)
		}), true
	}
	if len(q.ExternalID) > 0 {
		list, few = append(list, func(st *keyset.Statement) string {
			return fmt.Sprintf("id = ANY(%s)", st.Arg(external))
		}), true
	}
	if len(q.Email) > 0 {
		points(q.Email, emailKey, pointEmail)
	}
	if len(q.Phone) > 0 {
		points(q.Phone, phoneKey, pointPhone)
	}
	named := func(st *keyset.Statement, prefix string) string {
		name := asciiLower(prefix)
		return fmt.Sprintf("lower(name) >= %s AND lower(name) < %s", st.Arg(name), st.Arg(name+"\U0010FFFF"))
	}
	if q.Name != "" {
		list = append(list, func(st *keyset.Statement) string { return named(st, q.Name) })
	}
	if q.Text != "" {
		list = append(list, func(st *keyset.Statement) string {
			return fmt.Sprintf("(%s OR id = ANY(%s))", named(st, q.Text), st.Arg(ids))
		})
	}
	for _, r := range []struct {
		column string
		period.Range
	}{{"created_at", q.CreatedAt}, {"updated_at", q.UpdatedAt}} {
		if first, last := r.Micros(); !r.Whole() {
			list = append(list, func(st *keyset.Statement) string {
				return fmt.Sprintf("%s >= %s AND %s <= %s", r.column, st.Arg(first), r.column, st.Arg(last))
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
	sort         keyset.Sort
	conditions   []func(st *keyset.Statement) string
	selective    bool // few rows match the first condition; sort them
}

func (s *Service) findCustomers(ctx context.Context, q db.Querier, organizationID string, query *CustomerQuery) ([]Customer, *keyset.Cursor, error) {
	f := customerFinder{q: q, organization: organizationID, query: query, sort: byDefault(query.Sort)}
	var ids []string
	if query.Text != "" {
		var err error
		if ids, err = s.customerIDsByWords(ctx, q, organizationID, query.Text); err != nil {
			return nil, nil, err
		}
	}
	external, err := customersByExternalID(ctx, q, organizationID, query.ExternalID)
	if err != nil {
		return nil, nil, err
	}
	f.conditions, f.selective = query.conditions(append([]string{}, ids...), append([]string{}, external...))
	for i, c := range f.conditions {
		if f.selective {
			break
		}
		st := &keyset.Statement{Args: []any{organizationID}}
		st.Addf("SELECT count(*) FROM (SELECT 1 FROM customers WHERE organization_id = $1 AND %s LIMIT %d) AS c", c(st), s.limits.customers+1)
		var n int
		if err := q.QueryRow(ctx, st.String(), st.Args...).Scan(&n); err != nil {
			return nil, nil, err
		}
		if f.selective = n <= s.limits.customers; f.selective {
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
	rows, next := keyset.TrimPage(rows, query.Limit, f.cursorAfter)
	customers := make([]Customer, len(rows))
	for i := range rows {
		if err := rows[i].loadContacts(ctx, q); err != nil {
			return nil, nil, err
		}
		customers[i] = rows[i].Customer
	}
	return customers, next, nil
}

// customersByExternalID returns the customers with one of the external ids; for a merged one, which may
// have one still, the survivor.
func customersByExternalID(ctx context.Context, q db.Querier, organizationID string, externalIDs []string) ([]string, error) {
	if len(externalIDs) == 0 {
		return nil, nil
	}
	ids, err := db.All(ctx, q, scanText, "SELECT id FROM customers WHERE organization_id = $1 AND external_id = ANY($2) ORDER BY id", organizationID, externalIDs)
	if err != nil {
		return nil, fmt.Errorf("find customers by external id: %w", err)
	}
	return survivorIDs(ctx, q, organizationID, ids)
}

// cursorAfter returns the cursor after c.
func (f *customerFinder) cursorAfter(c *customerRecord) *keyset.Cursor {
	switch f.sort.Field {
	case ByName:
		return &keyset.Cursor{Value: asciiLower(c.Name), ID: c.ID}
	case ByUpdatedAt:
		return &keyset.Cursor{Value: strconv.FormatInt(c.UpdatedAt.UnixMicro(), 10), ID: c.ID}
	default:
		return &keyset.Cursor{Value: strconv.FormatInt(c.CreatedAt.UnixMicro(), 10), ID: c.ID}
	}
}

// rows reads customers in order; sorted by name, either the named or the nameless
// ones. Conditions that must not choose the index are wrapped in coalesce.
func (f *customerFinder) rows(ctx context.Context, limit int, nameless bool) ([]customerRecord, error) {
	order, later := f.sort.SQL()
	st := &keyset.Statement{Args: []any{f.organization}}
	st.WriteString(selectCustomer)
	conditions := f.conditions
	if f.selective {
		st.Addf("WHERE id IN (SELECT id FROM customers WHERE organization_id = $1 AND %s) AND coalesce(organization_id = $1, FALSE)", conditions[0](st))
		conditions = conditions[1:]
	} else {
		st.WriteString("WHERE organization_id = $1")
	}
	st.WriteString(" AND coalesce(deleted_at, 0) = 0")
	for _, c := range conditions {
		st.Addf(" AND coalesce(%s, FALSE)", c(st))
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
			n, err := p.Integer()
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
			st.Addf(" AND %s %s= %s AND (%s, id) %s (%s, %s)", key, later, st.Arg(value), key, later, st.Arg(value), st.Arg(p.ID))
		}
	}
	st.Addf(" ORDER BY %s %s, id %s LIMIT %d", key, order, order, limit)
	return db.All(ctx, f.q, scanCustomer, st.String(), st.Args...)
}
