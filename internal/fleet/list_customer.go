package fleet

import (
	"context"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// CustomerQuery selects customers; see [RideQuery].
type CustomerQuery struct {
	Subaccounts []string // permitted subaccounts; nil: all
	Subaccount  []string // among the permitted
	Status      []CustomerStatus
	Email       []string // ignoring case
	Phone       []string // E.164
	ExternalID  []string
	// Text has words that are parts of the name, the address or the external id, without regard to
	// case and accents, and of the number in any form; empty: any. The newest customers are first,
	// and Sort must be zero. A page can have fewer customers than Limit and a next one.
	Text       string
	CreatedAt  period.Range
	UpdatedAt  period.Range
	LastRideAt period.Range
	Sort       keyset.Sort // by created_at, updated_at or name
	After      *keyset.Cursor
	Limit      int // 0: 20; at most 100
}

// Check implements [problem.Checker].
func (q *CustomerQuery) Check(v *problem.Validation) {
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, "created_at", "updated_at", "name")
	keyset.CheckValues(v, "subaccount_id", q.Subaccount)
	keyset.CheckValues(v, "status", q.Status)
	keyset.CheckValues(v, "email", q.Email)
	keyset.CheckValues(v, "phone", q.Phone)
	keyset.CheckValues(v, "external_id", q.ExternalID)
	v.Text("q", q.Text)
	v.Length("q", q.Text, 0, MaxCustomerText)
	if q.Text != "" && q.Sort != (keyset.Sort{}) {
		v.AddCode("conflict", "sort", "must not be given with q: the newest customers are first")
	}
}

// ListCustomers is [Service.ListRides] for customers.
func (s *Service) ListCustomers(ctx context.Context, q db.Querier, organizationID string, query CustomerQuery) ([]Record, *keyset.Cursor, error) {
	if err := problem.Check(&query); err != nil {
		return nil, nil, err
	}
	if query.Text != "" {
		return s.searchCustomers(ctx, q, organizationID, &query)
	}
	return s.listPage(ctx, q, query.Limit, func(q db.Querier) (*listQuery, error) { return customerListQuery(ctx, q, organizationID, &query), nil })
}

// EachCustomer is [Service.EachRide] for customers.
func (s *Service) EachCustomer(ctx context.Context, organizationID string, query CustomerQuery, fn func(*Record) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(&query); err != nil {
		return err
	}
	if query.Text != "" {
		query.Limit = maxPage
		return keyset.Export(ctx, s.db, func(ctx context.Context, tx *db.Tx) error {
			return keyset.EachPage("customers", fn, func(after *keyset.Cursor) ([]Record, *keyset.Cursor, error) {
				query.After = after
				return s.searchPage(ctx, tx, organizationID, &query)
			})
		})
	}
	return s.eachRecord(ctx, func(ctx context.Context, q db.Querier) (*listQuery, error) {
		return customerListQuery(ctx, q, organizationID, &query), nil
	}, fn)
}

func customerListQuery(ctx context.Context, q db.Querier, organizationID string, query *CustomerQuery) *listQuery {
	f := &listQuery{
		ctx: ctx, q: q, organization: organizationID, table: "customers", after: query.After, descending: query.Sort.Descending,
	}
	switch query.Sort.Field {
	case "updated_at":
		f.key = sortKey{column: "updated_at", always: true}
	case "name":
		f.key = sortKey{column: "name", text: true}
	case "":
		f.descending = true
	}
	emails := slices.Clone(query.Email)
	for i := range emails {
		emails[i] = strings.ToLower(emails[i])
	}
	f.whereEqual("email", emails, true, "")
	f.whereEqual("phone", query.Phone, true, "")
	f.whereEqual("external_id", query.ExternalID, true, "")
	f.whereEqual("status", texts(query.Status), !slices.Contains(query.Status, CustomerActive), "status <> 'active'")
	f.whereSubaccounts(query.Subaccounts, query.Subaccount)
	f.whereCreated(customerPrefix, query.CreatedAt)
	f.whereTime("updated_at", query.UpdatedAt, "")
	f.whereTime("last_ride_at", query.LastRideAt, "")
	return f
}
