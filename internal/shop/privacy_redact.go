package shop

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// batch bounds the rows that one transaction deletes.
const batch = 200

func isNotFound(err error) bool { return err != nil && problem.Of(err) == problem.NotFound }

// redactCustomer redacts a customer everywhere. The person was stored with the
// request before: afterwards there is no other record of the remaining work.
func (s *Service) redactCustomer(ctx context.Context, r *Request) error {
	p, err := s.identify(ctx, r)
	if err != nil {
		return err
	}
	if err := s.redactPerson(ctx, p); err != nil {
		return err
	}
	if err := s.deletePersonExports(ctx, p, r.Subject); err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		orders, err := deleteOrders(ctx, tx, p.Places, p.CustomerID, r.details.OrderIDs)
		if err != nil {
			return err
		}
		// Records of the organization's other shops stay, without the link to the
		// customer.
		for _, change := range []struct {
			statement string
			args      []any
		}{
			{"UPDATE shop_orders SET customer_id = NULL WHERE customer_id = $1 AND organization_id = $2", []any{p.CustomerID, p.OrganizationID}},
			{"DELETE FROM shop_customers WHERE customer_id = $1 AND organization_id = $2 AND customer_id <> ''", []any{p.CustomerID, p.OrganizationID}},
			{"DELETE FROM shop_customers WHERE place = ANY($1) AND external_id = $2", []any{p.Places, r.Subject}},
			{"UPDATE privacy_requests SET subject = NULL WHERE place = ANY($1) AND subject = $2", []any{p.Places, r.Subject}},
		} {
			if err := tx.Queue(ctx, change.statement, change.args...); err != nil {
				return fmt.Errorf("redact customer: %w", err)
			}
		}
		if err := recordPersonRedaction(ctx, tx, r, p); err != nil {
			return err
		}
		return s.complete(ctx, tx, r, map[string]any{"customer_known": p.CustomerID != "", "tickets": len(p.TicketIDs), "orders": orders})
	})
}

// recordPersonRedaction records, for each place, that the customer and the orders of a person
// are redacted.
func recordPersonRedaction(ctx context.Context, tx *db.Tx, r *Request, p *Person) error {
	for _, at := range p.Places {
		if r.Subject != "" {
			if err := recordRedaction(ctx, tx, at, ofCustomer, r.Subject, r.ReceivedAt); err != nil {
				return err
			}
		}
		for _, id := range p.Names {
			if err := recordRedaction(ctx, tx, at, ofOrder, id, r.ReceivedAt); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteOrders deletes orders with their returns, and returns their number.
func deleteOrders(ctx context.Context, tx *db.Tx, places []string, customerID string, ids []string) (int, error) {
	type key struct{ place, id string }
	list, err := db.All(ctx, tx, func(row db.Row) (k key, err error) {
		err = row.Scan(&k.place, &k.id)
		return k, err
	}, `DELETE FROM shop_orders WHERE place = ANY($1) AND (external_id = ANY($2) OR customer_id = $3)
		RETURNING place, external_id`, places, append([]string{}, ids...), customerID)
	if err != nil {
		return 0, fmt.Errorf("delete orders: %w", err)
	}
	for _, k := range list {
		if err := tx.Queue(ctx, "DELETE FROM shop_returns WHERE place = $1 AND order_id = $2", k.place, k.id); err != nil {
			return 0, fmt.Errorf("delete returns: %w", err)
		}
	}
	return len(list), nil
}

// redactShop redacts all data of a shop.
func (s *Service) redactShop(ctx context.Context, r *Request) error {
	places, err := s.places(ctx, r)
	if err != nil {
		return err
	}
	var outcome struct {
		Customers int `json:"customers"` // known only from the shop
		Orders    int `json:"orders"`
	}
	for _, at := range places {
		n, err := s.deletePlaceOrders(ctx, at)
		if err != nil {
			return err
		}
		outcome.Orders += n
		if n, err = s.redactPlaceCustomers(ctx, r.OrganizationID, at); err != nil {
			return err
		}
		outcome.Customers += n
		for _, k := range s.redactors {
			if err := k.RedactPlace(ctx, r.OrganizationID, at); err != nil {
				return fmt.Errorf("redact data of the shop: %w", err)
			}
		}
	}
	if err := s.deleteExports(ctx, "SELECT e.digest, e.blob_key FROM privacy_exports e JOIN privacy_requests q ON q.id = e.request_id WHERE q.place = ANY($1)", places); err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		for _, at := range places {
			if err := recordRedaction(ctx, tx, at, ofPlace, "", r.ReceivedAt); err != nil {
				return err
			}
			if err := s.connections.RetireTx(ctx, tx, r.OrganizationID, at); err != nil {
				return fmt.Errorf("retire connection: %w", err)
			}
		}
		if err := tx.Queue(ctx, "UPDATE privacy_requests SET subject = NULL WHERE place = ANY($1)", places); err != nil {
			return fmt.Errorf("clear subjects of requests: %w", err)
		}
		return s.complete(ctx, tx, r, map[string]any{"customers": outcome.Customers, "orders": outcome.Orders})
	})
}

// deletePlaceOrders deletes the orders of a place.
func (s *Service) deletePlaceOrders(ctx context.Context, at string) (total int, err error) {
	for {
		n := 0
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			ids, err := db.All(ctx, tx, scanText, `DELETE FROM shop_orders WHERE place = $1 AND external_id IN (
				SELECT external_id FROM shop_orders WHERE place = $1 ORDER BY external_id LIMIT $2) RETURNING external_id`, at, batch)
			if err != nil {
				return err
			}
			n = len(ids)
			_, err = tx.Exec(ctx, "DELETE FROM shop_returns WHERE place = $1 AND order_id = ANY($2)", at, append([]string{}, ids...))
			return err
		})
		if err != nil {
			return total, fmt.Errorf("delete orders: %w", err)
		}
		if total += n; n == 0 {
			return total, nil
		}
	}
}

// placeCustomer is a customer of a place.
type placeCustomer struct {
	externalID, customerID string
	made                   bool // created from the records of the place
}

// redactPlaceCustomers redacts the customers known only from a place, and removes
// the place's identities from the rest. It returns the number of redacted
// customers.
func (s *Service) redactPlaceCustomers(ctx context.Context, organizationID, at string) (total int, err error) {
	for {
		list, err := db.All(ctx, s.db, func(row db.Row) (c placeCustomer, err error) {
			err = row.Scan(&c.externalID, &c.customerID, &c.made)
			return c, err
		}, "SELECT external_id, customer_id, made FROM shop_customers WHERE place = $1 ORDER BY external_id LIMIT $2", at, batch)
		if err != nil {
			return total, fmt.Errorf("find customers: %w", err)
		}
		if len(list) == 0 {
			return total, nil
		}
		for _, c := range list {
			p, err := s.knownOnlyFrom(ctx, organizationID, at, c)
			if err != nil {
				return total, err
			}
			if p == nil {
				err = s.removeFromPlace(ctx, organizationID, at, c)
			} else if err = s.redactPerson(ctx, p); err == nil {
				total++
				err = s.db.Write(ctx, func(tx *db.Tx) error { return deletePlaceCustomer(ctx, tx, at, c) })
			}
			if err != nil {
				return total, fmt.Errorf("redact customer: %w", err)
			}
		}
	}
}

// removeFromPlace removes a place's identities from a customer, which other records need.
func (s *Service) removeFromPlace(ctx context.Context, organizationID, at string, c placeCustomer) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if c.customerID != "" {
			if err := s.desk.RemoveIdentitiesTx(ctx, tx, organizationID, at, c.customerID); err != nil && !isNotFound(err) {
				return err
			}
		}
		if c.made {
			// The other place inherits the responsibility.
			if err := tx.Queue(ctx, "UPDATE shop_customers SET made = $3 WHERE customer_id = $1 AND place <> $2", c.customerID, at, true); err != nil {
				return err
			}
		}
		return deletePlaceCustomer(ctx, tx, at, c)
	})
}

func deletePlaceCustomer(ctx context.Context, tx *db.Tx, at string, c placeCustomer) error {
	_, err := tx.Exec(ctx, "DELETE FROM shop_customers WHERE place = $1 AND external_id = $2", at, c.externalID)
	return err
}

// knownOnlyFrom returns the person of a customer known only from a place: created
// from its records, without messages, and unknown to other places. Otherwise it
// returns nil.
func (s *Service) knownOnlyFrom(ctx context.Context, organizationID, at string, c placeCustomer) (*Person, error) {
	if !c.made || c.customerID == "" {
		return nil, nil
	}
	var elsewhere int
	if err := s.db.QueryRow(ctx, "SELECT count(*) FROM shop_customers WHERE customer_id = $1 AND place <> $2", c.customerID, at).Scan(&elsewhere); err != nil {
		return nil, fmt.Errorf("check other places: %w", err)
	}
	if elsewhere > 0 {
		return nil, nil
	}
	d, err := s.desk.ExportCustomer(ctx, s.db, organizationID, c.customerID)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load customer data: %w", err)
	}
	if len(d.Person.TicketIDs) > 0 {
		return nil, nil
	}
	p := d.Person
	p.OrganizationID, p.CustomerID, p.Places = organizationID, c.customerID, []string{at}
	return &p, nil
}

// redactPerson redacts a person in the desk, if it has the customer, and elsewhere.
func (s *Service) redactPerson(ctx context.Context, p *Person) error {
	if p.CustomerID != "" {
		if err := s.desk.Redact(ctx, p.OrganizationID, p.CustomerID); err != nil {
			return fmt.Errorf("redact the customer: %w", err)
		}
	}
	for _, k := range s.redactors {
		if err := k.RedactPerson(ctx, p); err != nil {
			return fmt.Errorf("redact data outside the desk: %w", err)
		}
	}
	return nil
}

// deletePersonExports deletes the archives of a person.
func (s *Service) deletePersonExports(ctx context.Context, p *Person, subject string) error {
	if subject == "" {
		return nil
	}
	return s.deleteExports(ctx, `SELECT e.digest, e.blob_key FROM privacy_exports e JOIN privacy_requests q ON q.id = e.request_id
		WHERE q.place = ANY($1) AND q.subject = $2`, p.Places, subject)
}

// deleteExports deletes the archives of a query. Each has unique content, so no
// other record needs the blob.
func (s *Service) deleteExports(ctx context.Context, query string, args ...any) error {
	type export struct {
		digest []byte
		key    string
	}
	list, err := db.All(ctx, s.db, func(row db.Row) (e export, err error) {
		err = row.Scan(&e.digest, &e.key)
		return e, err
	}, query, args...)
	if err != nil {
		return fmt.Errorf("find archives: %w", err)
	}
	for _, e := range list {
		if err := s.blob.Delete(ctx, e.key); err != nil {
			return fmt.Errorf("delete archive: %w", err)
		}
		if err := s.db.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "DELETE FROM privacy_exports WHERE digest = $1", e.digest)
			return err
		}); err != nil {
			return fmt.Errorf("delete archive: %w", err)
		}
	}
	return nil
}
