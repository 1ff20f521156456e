package fleet

import (
	"context"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// CustomerQuery says which customers a list has; see [RideQuery].
type CustomerQuery struct {
	Subaccounts []string // whose customers may be seen; nil: all
	Subaccount  []string // of those
	Status      []CustomerStatus
	Email       []string // whatever the case
	Phone       []string // E.164
	ExternalID  []string
	CreatedAt   period.Range
	UpdatedAt   period.Range
	LastRideAt  period.Range
	Sort        Sort // by created_at, updated_at or name
	After       *Cursor
	Limit       int // 0: 20; at most 100
}

// Check implements [problem.Checker].
func (q *CustomerQuery) Check(v *problem.Validation) {
	checkPage(v, q.Limit, q.Sort, q.After, "created_at", "updated_at", "name")
	checkValues(v, "subaccount_id", q.Subaccount)
	checkValues(v, "status", q.Status)
	checkValues(v, "email", q.Email)
	checkValues(v, "phone", q.Phone)
	checkValues(v, "external_id", q.ExternalID)
}

// FindCustomers is [Service.FindRides] for customers.
func (s *Service) FindCustomers(ctx context.Context, q db.Querier, organizationID string, query CustomerQuery) ([]Doc, *Cursor, error) {
	if err := problem.Check(&query); err != nil {
		return nil, nil, err
	}
	return s.find(ctx, q, query.Limit, func(q db.Querier) (*search, error) { return searchCustomers(ctx, q, organizationID, &query), nil })
}

// EachCustomer is [Service.EachRide] for customers.
func (s *Service) EachCustomer(ctx context.Context, organizationID string, query CustomerQuery, fn func(*Doc) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(&query); err != nil {
		return err
	}
	return s.each(ctx, func(ctx context.Context, q db.Querier) (*search, error) {
		return searchCustomers(ctx, q, organizationID, &query), nil
	}, fn)
}

func searchCustomers(ctx context.Context, q db.Querier, organizationID string, query *CustomerQuery) *search {
	f := &search{
		ctx: ctx, q: q, organization: organizationID, table: "customers", after: query.After, descending: query.Sort.Descending,
	}
	switch query.Sort.Member {
	case "updated_at":
		f.key = key{column: "updated_at", always: true}
	case "name":
		f.key = key{column: "name", text: true}
	case "":
		f.descending = true
	}
	emails := slices.Clone(query.Email)
	for i := range emails {
		emails[i] = strings.ToLower(emails[i])
	}
	f.equal("email", emails, true, "")
	f.equal("phone", query.Phone, true, "")
	f.equal("external_id", query.ExternalID, true, "")
	f.equal("status", texts(query.Status), !slices.Contains(query.Status, CustomerActive), "status <> 'active'")
	f.of(query.Subaccounts, query.Subaccount)
	f.created(customerPrefix, query.CreatedAt)
	f.during("updated_at", query.UpdatedAt, "")
	f.during("last_ride_at", query.LastRideAt, "")
	return f
}
