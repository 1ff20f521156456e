package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/phone"
	"github.com/kickstand-dev/kickstand/internal/textwords"
)

const (
	// MaxCustomerText bounds the characters of [CustomerQuery.Text].
	MaxCustomerText = 200
	// searchBudget bounds the customers that a page of a search compares, searchBatch those of one
	// statement.
	searchBudget = 20_000
	searchBatch  = 2_000
	// exactValue marks the cursors of pages of exact matches.
	exactValue = "exact"
)

// searchCustomers returns a page of the customers that query.Text finds, the newest first.
//
// A customer with exactly this address, number or external id is found by an index, and hides
// those who have the text as a part. These are found by comparing the columns of an index, with a
// budget: a page may have fewer customers than its limit, or none, and a next one.
func (s *Service) searchCustomers(ctx context.Context, q db.Querier, organizationID string, query *CustomerQuery) (docs []Record, next *keyset.Cursor, err error) {
	err = s.snapshot(ctx, q, func(q db.Querier) error {
		docs, next, err = s.searchPage(ctx, q, organizationID, query)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("search customers: %w", err)
	}
	return docs, next, nil
}

// searchPage is searchCustomers in a snapshot.
func (s *Service) searchPage(ctx context.Context, q db.Querier, organizationID string, query *CustomerQuery) ([]Record, *keyset.Cursor, error) {
	limit := cmp.Or(query.Limit, defaultPage)
	if query.After == nil || query.After.Value == exactValue {
		docs, next, err := s.exactCustomers(ctx, q, organizationID, query, limit)
		if err != nil || len(docs) > 0 || query.After != nil {
			return docs, next, err
		}
	}
	parts := textwords.Plain(textwords.Sought(query.Text))
	if len(parts) == 0 {
		return nil, nil, nil
	}
	after := customerPrefix + "`" // after all ids
	if query.After != nil {
		if query.After.ID == "" {
			return nil, nil, keyset.ErrCursor
		}
		after = query.After.ID
	}
	var found []Record
	for compared := 0; compared < searchBudget; compared += searchBatch {
		ids, last, err := matchingCustomers(ctx, q, organizationID, after, parts)
		if err != nil {
			return nil, nil, err
		}
		docs, err := s.customersOf(ctx, q, organizationID, ids, query)
		if err != nil {
			return nil, nil, err
		}
		if found = append(found, docs...); len(found) > limit {
			return found[:limit], &keyset.Cursor{ID: found[limit-1].ID}, nil
		}
		if last == "" {
			return found, nil, nil
		}
		after = last
	}
	return found, &keyset.Cursor{ID: after}, nil
}

// selectSearched reads the index customers_search, of which length(id) > 0 is the predicate.
const selectSearched = `SELECT id, coalesce(name, '') || ' ' || coalesce(email, '') || ' ' || coalesce(external_id, '') || ' ' || coalesce(phone, '')
	FROM customers WHERE organization_id = $1 AND id < $2 AND length(id) > 0 ORDER BY id DESC LIMIT $3`

// matchingCustomers returns the ids among the next searchBatch customers before an id whose columns
// match, and the id of the last one; empty at the end.
func matchingCustomers(ctx context.Context, q db.Querier, organizationID, after string, parts []string) (ids []string, last string, err error) {
	rows, err := q.Query(ctx, selectSearched, organizationID, after, searchBatch)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id, text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, "", err
		}
		n, last = n+1, id
		if textwords.MatchText(text, parts) {
			ids = append(ids, id)
		}
	}
	if n < searchBatch {
		last = ""
	}
	return ids, last, rows.Err()
}

// customersOf returns the customers with these ids that meet the other conditions of a query, the
// newest first.
func (s *Service) customersOf(ctx context.Context, q db.Querier, organizationID string, ids []string, query *CustomerQuery) ([]Record, error) {
	var list []Record
	for chunk := range slices.Chunk(ids, keyset.MaxValues) {
		docs, err := s.CustomersByID(ctx, q, organizationID, chunk)
		if err != nil {
			return nil, err
		}
		for i := range docs {
			var c Customer
			if err := json.Unmarshal(docs[i].JSON, &c); err != nil {
				return nil, fmt.Errorf("read a customer of a search: %w", err)
			}
			if query.includes(&c) {
				list = append(list, docs[i])
			}
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return strings.Compare(b.ID, a.ID) })
	return list, nil
}

// includes reports whether a customer meets the conditions of a query except its text.
func (q *CustomerQuery) includes(c *Customer) bool {
	any := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	email := func(e string) bool { return strings.EqualFold(e, string(c.Email)) }
	return (q.Subaccounts == nil || slices.Contains(q.Subaccounts, c.SubaccountID)) && any(q.Subaccount, c.SubaccountID) &&
		any(texts(q.Status), string(c.Status)) && (len(q.Email) == 0 || slices.ContainsFunc(q.Email, email)) &&
		any(q.Phone, string(c.Phone)) && any(q.ExternalID, string(c.ExternalID)) &&
		q.CreatedAt.Contains(c.CreatedAt.Std()) && q.UpdatedAt.Contains(c.UpdatedAt.Std()) &&
		(q.LastRideAt.Whole() || !c.LastRideAt.Std().IsZero() && q.LastRideAt.Contains(c.LastRideAt.Std()))
}

// exactCustomers returns a page of the customers with exactly the address, number or external id of a
// text.
func (s *Service) exactCustomers(ctx context.Context, q db.Querier, organizationID string, query *CustomerQuery, limit int) ([]Record, *keyset.Cursor, error) {
	exact := *query
	if query.After != nil {
		exact.After = &keyset.Cursor{ID: query.After.ID}
	}
	f := customerListQuery(ctx, q, organizationID, &exact)
	text := strings.TrimSpace(query.Text)
	if strings.Contains(text, "@") {
		f.whereEqual("email", []string{strings.ToLower(text)}, true, "")
	} else if number, ok := phone.Parse(text, ""); ok {
		f.whereEqual("phone", []string{number.E164}, true, "")
	} else {
		f.whereEqual("external_id", []string{text}, true, "")
	}
	s.configure(f)
	docs, next, err := f.page(limit)
	if next != nil {
		next.Value = exactValue
	}
	return docs, next, err
}
