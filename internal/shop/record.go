package shop

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Outcome is the result of a record.
type Outcome string

// The outcomes.
const (
	Recorded Outcome = "recorded"
	Older    Outcome = "older"     // older than the stored state
	Redacted Outcome = "forgotten" // of a redacted customer, order or shop
)

// Result is the effect of [Service.IngestRecordTx].
type Result struct {
	Outcome    Outcome `json:"outcome"`
	CustomerID string  `json:"customer_id,omitempty"` // the desk's
	OrderID    string  `json:"order_id,omitempty"`    // the provider's
}

// IngestRecordTx applies a record in the caller's transaction. The returned message,
// nil if there is none, belongs to the order's thread.
func (s *Service) IngestRecordTx(ctx context.Context, tx *db.Tx, o channel.Source, r *channel.Record) (any, *channel.Message, error) {
	result, m, err := s.applyRecord(ctx, tx, o, r)
	return result, m, err
}

func (s *Service) applyRecord(ctx context.Context, tx *db.Tx, o channel.Source, r *channel.Record) (Result, *channel.Message, error) {
	at := placeKey(o)
	news := r.UpdatedAt
	if news.IsZero() {
		news = o.ReceivedAt
	}
	var result Result
	if r.Order != nil {
		result.OrderID = r.Order.ExternalID
	}
	forgotten, err := isRedacted(ctx, tx, at, r, news)
	if err != nil {
		return result, nil, err
	}
	if forgotten {
		result.Outcome = Redacted
		return result, nil, nil
	}
	fresh := false
	if result.CustomerID, fresh, err = s.matchCustomer(ctx, tx, o, at, r, news); err != nil {
		return result, nil, err
	}
	if r.Order != nil {
		if fresh, err = writeOrder(ctx, tx, o.OrganizationID, at, result.CustomerID, r.Order, news); err != nil {
			return result, nil, err
		}
	}
	if result.Outcome = Older; fresh {
		result.Outcome = Recorded
	}
	return result, message(r), nil
}

// message returns the customer's message in a record, in the thread of the order.
func message(r *channel.Record) *channel.Message {
	m := r.Message
	if m == nil {
		return nil
	}
	if r.Order != nil && m.ThreadKey == "" {
		m.ThreadKey = orderKey(r.Order.ExternalID)
	}
	if m.From == (channel.Party{}) {
		m.From = r.Customer
	}
	if m.From.ID == "" {
		if m.From.ID = r.ExternalID; m.From.ID == "" && m.From.Email == "" && m.From.Phone == "" {
			m.From.ID = m.ThreadKey // the customer is known by the order only
		}
	}
	return m
}

// orderKey returns the thread key of an order, which also identifies its customer
// if nothing else does.
func orderKey(id string) string { return "order:" + id }

// redactionKey returns the digest stored for a redacted record.
func redactionKey(place, kind, id string) []byte {
	h := sha256.New()
	for _, part := range []string{place, kind, id} {
		io.WriteString(h, part) // a hash does not fail
		h.Write([]byte{0})
	}
	return h.Sum(nil)
}

// Kinds of redacted records.
const (
	ofCustomer = "customer"
	ofOrder    = "order"
	ofPlace    = "place"
)

// isRedacted reports whether a record concerns a customer, order or shop that was
// redacted since.
func isRedacted(ctx context.Context, q db.Querier, at string, r *channel.Record, news time.Time) (bool, error) {
	keys := [][]byte{redactionKey(at, ofPlace, "")}
	if r.ExternalID != "" {
		keys = append(keys, redactionKey(at, ofCustomer, r.ExternalID))
	}
	if r.Order != nil {
		keys = append(keys, redactionKey(at, ofOrder, r.Order.ExternalID))
	}
	for _, key := range keys {
		var n int
		err := q.QueryRow(ctx, "SELECT count(*) FROM shop_forgotten WHERE digest = $1 AND at >= $2", key, news.UnixMicro()).Scan(&n)
		if err != nil {
			return false, fmt.Errorf("find redaction: %w", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}

// recordRedaction makes records of something older than a time be ignored from now
// on.
func recordRedaction(ctx context.Context, tx *db.Tx, place, kind, id string, at time.Time) error {
	if err := tx.Queue(ctx, `INSERT INTO shop_forgotten (digest, at) VALUES ($1, $2)
		ON CONFLICT (digest) DO UPDATE SET at = excluded.at WHERE shop_forgotten.at < excluded.at`,
		redactionKey(place, kind, id), at.UnixMicro()); err != nil {
		return fmt.Errorf("record redaction: %w", err)
	}
	return nil
}

// matchCustomer returns the desk's id of a record's customer, empty if it names
// none, and whether the record is newer than the stored state.
func (s *Service) matchCustomer(ctx context.Context, tx *db.Tx, o channel.Source, at string, r *channel.Record, news time.Time) (id string, fresh bool, err error) {
	p := r.Customer
	if p.ID == "" {
		p.ID = r.ExternalID
	}
	if p.ID == "" && p.Email == "" && p.Phone == "" {
		return "", false, nil
	}
	if r.ExternalID == "" {
		customerID, made, err := s.desk.MatchCustomerTx(ctx, tx, o, p, channel.Party{})
		if err != nil {
			return "", false, err
		}
		_, err = tx.Exec(ctx, insertCustomer, at, "guest:"+customerID, o.OrganizationID, customerID, "", "", "", made, false, 0)
		if err != nil {
			return "", false, fmt.Errorf("write guest: %w", err)
		}
		return customerID, true, nil
	}
	// Serialize simultaneous first events of a customer.
	if err := tx.Lock(ctx, "shop customer "+at+" "+r.ExternalID); err != nil {
		return "", false, err
	}
	var k struct {
		customerID string
		was        channel.Party
		deleted    bool
		updatedAt  int64
	}
	err = tx.QueryRow(ctx, `SELECT customer_id, name, email, phone, deleted, updated_at FROM shop_customers
		WHERE place = $1 AND external_id = $2 FOR UPDATE`, at, r.ExternalID).
		Scan(&k.customerID, &k.was.Name, &k.was.Email, &k.was.Phone, &k.deleted, &k.updatedAt)
	known := err == nil
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", false, fmt.Errorf("find customer: %w", err)
	}
	// An order has customer data too, but not the time of its last change.
	own := r.Order == nil
	fresh = !known || own && news.UnixMicro() > k.updatedAt
	switch {
	case known && (k.deleted || r.Deleted) && !fresh:
		return k.customerID, false, nil
	case r.Deleted:
		if !known {
			k.customerID = ""
		}
		_, err := tx.Exec(ctx, `INSERT INTO shop_customers (place, external_id, organization_id, customer_id, name, email, phone, made, deleted, updated_at)
			VALUES ($1, $2, $3, $4, '', '', '', $5, $5, $6)
			ON CONFLICT (place, external_id) DO UPDATE SET deleted = excluded.deleted, updated_at = excluded.updated_at`,
			at, r.ExternalID, o.OrganizationID, k.customerID, true, news.UnixMicro())
		if err != nil {
			return "", false, fmt.Errorf("write customer: %w", err)
		}
		return k.customerID, true, nil
	}
	was := k.was
	if !known || !fresh || !own {
		was = channel.Party{} // replace nothing
	}
	customerID, made, err := s.desk.MatchCustomerTx(ctx, tx, o, p, was)
	if err != nil {
		return "", false, err
	}
	switch stamp := news.UnixMicro(); {
	case !known:
		if !own {
			stamp = 0
		}
		_, err = tx.Exec(ctx, insertCustomer, at, r.ExternalID, o.OrganizationID, customerID, clean(p.Name), clean(p.Email), clean(p.Phone), made, false, stamp)
	case fresh:
		_, err = tx.Exec(ctx, `UPDATE shop_customers SET customer_id = $3, name = CASE WHEN $4 = '' THEN name ELSE $4 END,
				email = CASE WHEN $5 = '' THEN email ELSE $5 END, phone = CASE WHEN $6 = '' THEN phone ELSE $6 END, deleted = $7, updated_at = $8
			WHERE place = $1 AND external_id = $2`, at, r.ExternalID, customerID, clean(p.Name), clean(p.Email), clean(p.Phone), false, stamp)
	default:
		_, err = tx.Exec(ctx, `UPDATE shop_customers SET customer_id = $3, name = CASE WHEN name = '' THEN $4 ELSE name END,
				email = CASE WHEN email = '' THEN $5 ELSE email END, phone = CASE WHEN phone = '' THEN $6 ELSE phone END
			WHERE place = $1 AND external_id = $2`, at, r.ExternalID, customerID, clean(p.Name), clean(p.Email), clean(p.Phone))
	}
	if err != nil {
		return "", false, fmt.Errorf("write customer: %w", err)
	}
	return customerID, fresh, nil
}

const insertCustomer = `INSERT INTO shop_customers (place, external_id, organization_id, customer_id, name, email, phone, made, deleted, updated_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`

// writeOrder writes an order with its returns, and reports whether it is newer than
// the stored state.
func writeOrder(ctx context.Context, tx *db.Tx, organizationID, at, customerID string, o *channel.Order, news time.Time) (bool, error) {
	stamp := news.UnixMicro()
	if o.Status == "" && o.Total == "" && o.Items == nil && o.PlacedAt.IsZero() && o.URL == "" && len(o.Returns) > 0 {
		stamp = 0 // it has returns only
	}
	items := o.Items
	if items == nil {
		items = []channel.OrderItem{}
	}
	// Fields that the newer state lacks stay.
	n, err := tx.Exec(ctx, `INSERT INTO shop_orders (place, external_id, organization_id, customer_id, number, status, currency, total, url, items, placed_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (place, external_id) DO UPDATE SET
			customer_id = coalesce(excluded.customer_id, shop_orders.customer_id),
			number = CASE WHEN excluded.number = '' THEN shop_orders.number ELSE excluded.number END,
			status = CASE WHEN excluded.status = '' THEN shop_orders.status ELSE excluded.status END,
			currency = CASE WHEN excluded.currency = '' THEN shop_orders.currency ELSE excluded.currency END,
			total = CASE WHEN excluded.total = '' THEN shop_orders.total ELSE excluded.total END,
			url = CASE WHEN excluded.url = '' THEN shop_orders.url ELSE excluded.url END,
			items = CASE WHEN excluded.items = '[]' THEN shop_orders.items ELSE excluded.items END,
			placed_at = coalesce(excluded.placed_at, shop_orders.placed_at),
			updated_at = excluded.updated_at
		WHERE shop_orders.updated_at <= excluded.updated_at`,
		at, o.ExternalID, organizationID, db.Text(customerID), clean(o.Number), clean(o.Status), clean(o.Currency), clean(o.Total), clean(o.URL),
		db.JSON(items), db.Time(o.PlacedAt), stamp)
	if err != nil {
		return false, fmt.Errorf("write order: %w", err)
	}
	fresh := n > 0
	if !fresh {
		if err := tx.Queue(ctx, `UPDATE shop_orders SET
				customer_id = coalesce(customer_id, $3), placed_at = coalesce(placed_at, $4),
				number = CASE WHEN number = '' THEN $5 ELSE number END,
				status = CASE WHEN status = '' THEN $6 ELSE status END,
				currency = CASE WHEN currency = '' THEN $7 ELSE currency END,
				total = CASE WHEN total = '' THEN $8 ELSE total END,
				url = CASE WHEN url = '' THEN $9 ELSE url END,
				items = CASE WHEN items = '[]' THEN $10 ELSE items END
			WHERE place = $1 AND external_id = $2`,
			at, o.ExternalID, db.Text(customerID), db.Time(o.PlacedAt), clean(o.Number), clean(o.Status), clean(o.Currency), clean(o.Total), clean(o.URL),
			db.JSON(items)); err != nil {
			return false, fmt.Errorf("complete order: %w", err)
		}
	}
	for _, r := range o.Returns {
		items := r.Items
		if items == nil {
			items = []channel.OrderItem{}
		}
		n, err := tx.Exec(ctx, `INSERT INTO shop_returns (place, order_id, external_id, status, reason, items, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (place, order_id, external_id) DO UPDATE SET status = excluded.status,
				reason = CASE WHEN excluded.reason = '' THEN shop_returns.reason ELSE excluded.reason END,
				items = CASE WHEN excluded.items = '[]' THEN shop_returns.items ELSE excluded.items END,
				updated_at = excluded.updated_at
			WHERE shop_returns.updated_at <= excluded.updated_at`,
			at, o.ExternalID, r.ExternalID, clean(r.Status), clean(r.Reason), db.JSON(items), news.UnixMicro())
		if err != nil {
			return false, fmt.Errorf("write return: %w", err)
		}
		if n == 0 {
			if err := tx.Queue(ctx, `UPDATE shop_returns SET reason = CASE WHEN reason = '' THEN $4 ELSE reason END,
				items = CASE WHEN items = '[]' THEN $5 ELSE items END WHERE place = $1 AND order_id = $2 AND external_id = $3`,
				at, o.ExternalID, r.ExternalID, clean(r.Reason), db.JSON(items)); err != nil {
				return false, fmt.Errorf("complete return: %w", err)
			}
		}
		fresh = fresh || n > 0
	}
	return fresh, nil
}

// Order is an order, as shown beside its customer.
type Order struct {
	ConnectionID string              `json:"connection_id"` // empty: the organization has none for it
	ExternalID   string              `json:"external_id"`
	CustomerID   string              `json:"customer_id"` // the desk's; empty: unknown
	Number       string              `json:"number"`      // for display: "#1001"
	Status       string              `json:"status"`      // in the provider's terms
	Currency     string              `json:"currency"`
	Total        string              `json:"total"`
	URL          string              `json:"url"`
	Items        []channel.OrderItem `json:"items"`
	Returns      []channel.Return    `json:"returns"`
	PlacedAt     time.Time           `json:"placed_at,omitzero"`
	UpdatedAt    time.Time           `json:"updated_at,omitzero"`

	place string
}

// maxOrders bounds [Service.Orders].
const maxOrders = 200

// Orders returns a customer's newest orders, newest first.
func (s *Service) Orders(ctx context.Context, q db.Querier, organizationID, customerID string) ([]Order, error) {
	return orders(ctx, q, "customer_id = $1 AND organization_id = $2 ORDER BY placed_at DESC, external_id DESC LIMIT $3", customerID, organizationID, maxOrders)
}

// OrdersByNumber returns the organization's newest orders with one of the numbers, as customers see
// them, at most limit.
func (s *Service) OrdersByNumber(ctx context.Context, q db.Querier, organizationID string, numbers []string, limit int) ([]Order, error) {
	return orders(ctx, q, "organization_id = $1 AND number = ANY($2) ORDER BY placed_at DESC, external_id DESC LIMIT $3", organizationID, numbers, limit)
}

// MoveCustomerTx moves the records of a customer of the desk, in the caller's transaction. homes is nil
// for a merge: all records move to the customer to, and note from as their home, unless they have one.
// Otherwise a merge is undone: the records of from with one of the homes return to the customer to.
func (s *Service) MoveCustomerTx(ctx context.Context, tx *db.Tx, organizationID, from, to string, homes []string) error {
	for _, table := range []string{"shop_customers", "shop_orders"} {
		move, args := "UPDATE "+table+` SET customer_id = $2, home_customer_id = coalesce(home_customer_id, customer_id)
			WHERE customer_id = $1 AND organization_id = $3`, []any{from, to, organizationID}
		if homes != nil {
			move = "UPDATE " + table + ` SET customer_id = $2, home_customer_id = CASE WHEN home_customer_id <> $2 THEN home_customer_id END
				WHERE customer_id = $1 AND organization_id = $3 AND home_customer_id = ANY($4)`
			args = append(args, homes)
		}
		if err := tx.Queue(ctx, move, args...); err != nil {
			return fmt.Errorf("move records of customer: %w", err)
		}
	}
	return nil
}

// Order returns one order, or [db.ErrNoRows].
func (s *Service) Order(ctx context.Context, q db.Querier, o channel.Source, externalID string) (Order, error) {
	list, err := orders(ctx, q, "place = $1 AND external_id = $2", placeKey(o), externalID)
	if err != nil {
		return Order{}, err
	}
	if len(list) == 0 {
		return Order{}, db.ErrNoRows
	}
	return list[0], nil
}

func orders(ctx context.Context, q db.Querier, where string, args ...any) ([]Order, error) {
	list, err := db.All(ctx, q, func(row db.Row) (Order, error) {
		o := Order{Items: []channel.OrderItem{}, Returns: []channel.Return{}}
		var organizationID string
		err := row.Scan(&o.place, &organizationID, &o.ExternalID, db.IntoText(&o.CustomerID), &o.Number, &o.Status, &o.Currency, &o.Total, &o.URL,
			db.IntoJSON(&o.Items), db.IntoTime(&o.PlacedAt), db.IntoTime(&o.UpdatedAt))
		if len(o.place) <= len(organizationID) || o.place[:len(organizationID)+1] != organizationID+"/" {
			o.ConnectionID = o.place
		}
		if o.UpdatedAt.UnixMicro() == 0 {
			o.UpdatedAt = time.Time{}
		}
		return o, err
	}, `SELECT place, organization_id, external_id, customer_id, number, status, currency, total, url, items, placed_at, updated_at
		FROM shop_orders WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", err)
	}
	byPlace := make(map[string][]string)
	for _, o := range list {
		byPlace[o.place] = append(byPlace[o.place], o.ExternalID)
	}
	for at, ids := range byPlace {
		type returned struct {
			channel.Return
			orderID string
		}
		returns, err := db.All(ctx, q, func(row db.Row) (r returned, err error) {
			err = row.Scan(&r.orderID, &r.ExternalID, &r.Status, &r.Reason, db.IntoJSON(&r.Items))
			return r, err
		}, "SELECT order_id, external_id, status, reason, items FROM shop_returns WHERE place = $1 AND order_id = ANY($2) ORDER BY external_id", at, ids)
		if err != nil {
			return nil, fmt.Errorf("list returns: %w", err)
		}
		for _, r := range returns {
			i := slices.IndexFunc(list, func(o Order) bool { return o.place == at && o.ExternalID == r.orderID })
			list[i].Returns = append(list[i].Returns, r.Return)
		}
	}
	return list, nil
}
