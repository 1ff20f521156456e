package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/phone"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Kinds of jobs.
const (
	privacyKind = "privacy"        // lanes are places, payloads request ids
	expiryKind  = "privacy-expiry" // payloads are request ids
)

// requestTerm is the legal time limit.
const requestTerm = 30 * 24 * time.Hour

// Request is a data protection request.
type Request struct {
	ID             string              `json:"id"`
	OrganizationID string              `json:"organization_id"`
	Kind           channel.PrivacyKind `json:"kind"`
	Shop           string              `json:"shop"`
	// Subject is the shop's id of the customer; empty after redaction, and for shops.
	Subject     string          `json:"subject,omitempty"`
	ReceivedAt  time.Time       `json:"received_at"`
	DueAt       time.Time       `json:"due_at"`
	CompletedAt time.Time       `json:"completed_at,omitzero"`
	Outcome     json.RawMessage `json:"outcome,omitempty"` // the counts of affected records
	Attempts    int             `json:"attempts"`          // failed ones
	Error       string          `json:"error,omitempty"`   // of the last attempt, if it failed

	place   string
	details details
}

// details are the inputs of a request until it is completed.
type details struct {
	Email    string   `json:"email,omitempty"`
	Phone    string   `json:"phone,omitempty"`
	OrderIDs []string `json:"orders,omitempty"`
	// Person is the person concerned, once identified: after redaction the desk cannot
	// identify them again.
	Person *Person `json:"person,omitempty"`
}

// IngestPrivacyRequestTx stores a data protection request in the caller's transaction, and
// enqueues its job. A repeated request returns the first one.
func (s *Service) IngestPrivacyRequestTx(ctx context.Context, tx *db.Tx, o channel.Source, p *channel.PrivacyRequest) (any, error) {
	switch p.Kind {
	case channel.PrivacyDataRequest, channel.PrivacyRedactCustomer, channel.PrivacyRedactShop:
	default:
		return nil, fmt.Errorf("shop: unknown kind of data protection request %q", p.Kind)
	}
	type result struct {
		Outcome   string `json:"outcome"` // accepted, duplicate
		RequestID string `json:"request_id"`
	}
	at, subject := placeKey(o), clean(p.CustomerID)
	id := queue.NewID()
	key := p.RequestID
	if key == "" {
		// An open request for the same data covers this one.
		waiting, err := db.All(ctx, tx, scanText, `SELECT id FROM privacy_requests
			WHERE place = $1 AND kind = $2 AND shop = $3 AND coalesce(subject, '') = $4 AND completed_at IS NULL AND details = $5`,
			at, string(p.Kind), clean(p.Shop), subject, db.JSON(detailsOf(p)))
		if err != nil {
			return nil, fmt.Errorf("find the same request: %w", err)
		}
		if len(waiting) > 0 {
			return result{"duplicate", waiting[0]}, nil
		}
		key = id
	}
	received := o.ReceivedAt
	if received.IsZero() {
		received = tx.Now
	}
	n, err := tx.Exec(ctx, `INSERT INTO privacy_requests (id, organization_id, place, kind, shop, request_key, subject, details, received_at, due_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (place, kind, request_key) DO NOTHING`,
		id, o.OrganizationID, at, string(p.Kind), clean(p.Shop), key, db.Text(subject), db.JSON(detailsOf(p)),
		received.UnixMicro(), received.Add(requestTerm).UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	if n == 0 {
		err := tx.QueryRow(ctx, "SELECT id FROM privacy_requests WHERE place = $1 AND kind = $2 AND request_key = $3", at, string(p.Kind), key).Scan(&id)
		if err != nil {
			return nil, fmt.Errorf("find request: %w", err)
		}
		return result{"duplicate", id}, nil
	}
	// Effective at once, so that concurrent events do not restore data.
	switch p.Kind {
	case channel.PrivacyRedactShop:
		err = recordRedaction(ctx, tx, at, ofPlace, "", received)
	case channel.PrivacyRedactCustomer:
		if subject != "" {
			err = recordRedaction(ctx, tx, at, ofCustomer, subject, received)
		}
		for _, orderID := range p.OrderIDs {
			if err == nil {
				err = recordRedaction(ctx, tx, at, ofOrder, orderID, received)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.recordTx(ctx, tx, AuditPrivacyReceived, o.OrganizationID, id, map[string]any{"kind": string(p.Kind), "shop": clean(p.Shop)}); err != nil {
		return nil, err
	}
	return result{"accepted", id}, s.queue.EnqueueTx(ctx, tx, queue.New{Kind: privacyKind, Lane: at, Payload: []byte(id)})
}

func detailsOf(p *channel.PrivacyRequest) details {
	return details{Email: clean(p.Email), Phone: clean(p.Phone), OrderIDs: p.OrderIDs}
}

const requestColumns = `id, organization_id, place, kind, shop, subject, details, received_at, due_at, completed_at, outcome, attempts, error`

func scanRequest(row db.Row) (*Request, error) {
	var r Request
	var outcome string
	err := row.Scan(&r.ID, &r.OrganizationID, &r.place, &r.Kind, &r.Shop, db.IntoText(&r.Subject), db.IntoJSON(&r.details),
		db.IntoTime(&r.ReceivedAt), db.IntoTime(&r.DueAt), db.IntoTime(&r.CompletedAt), db.IntoText(&outcome), &r.Attempts, db.IntoText(&r.Error))
	if outcome != "" {
		r.Outcome = json.RawMessage(outcome)
	}
	return &r, err
}

// Filter selects requests. Zero fields do not restrict.
type Filter struct {
	OrganizationID string
	Waiting        bool   // only open requests
	Before         string // only requests older than the one with this id
	Limit          int    // 0 means 100
}

// Requests returns data protection requests, newest first.
func (s *Service) Requests(ctx context.Context, f Filter) ([]*Request, error) {
	query, args := "SELECT "+requestColumns+" FROM privacy_requests WHERE id < $1", []any{f.Before}
	if f.Before == "" {
		args[0] = "g" // after every id
	}
	if f.OrganizationID != "" {
		args = append(args, f.OrganizationID)
		query += " AND organization_id = $2"
	}
	if f.Waiting {
		query += " AND completed_at IS NULL"
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	args = append(args, f.Limit)
	list, err := db.All(ctx, s.db, scanRequest, query+" ORDER BY id DESC LIMIT $"+strconv.Itoa(len(args)), args...)
	if err != nil {
		return nil, fmt.Errorf("list privacy requests: %w", err)
	}
	return list, nil
}

// runRequest performs a request.
func (s *Service) runRequest(ctx context.Context, j *queue.Job) error {
	r, err := db.One(ctx, s.db, scanRequest, "SELECT "+requestColumns+" FROM privacy_requests WHERE id = $1", string(j.Payload))
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load request: %w", err)
	}
	if !r.CompletedAt.IsZero() {
		return nil
	}
	switch r.Kind {
	case channel.PrivacyDataRequest:
		err = s.deliverExport(ctx, r)
	case channel.PrivacyRedactCustomer:
		err = s.redactCustomer(ctx, r)
	default:
		err = s.redactShop(ctx, r)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.log.WarnContext(ctx, "a data protection request failed and will be retried", "request", r.ID, "kind", string(r.Kind), "due", r.DueAt, "error", err)
	noted := s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE privacy_requests SET attempts = attempts + 1, error = $2 WHERE id = $1", r.ID, errorText(err))
		return err
	})
	return errors.Join(err, noted)
}

// errorText returns an error's text for display.
func errorText(err error) string {
	text := clean(err.Error())
	return text[:min(len(text), 1000)]
}

// complete marks a request as completed, in the caller's transaction.
func (s *Service) complete(ctx context.Context, tx *db.Tx, r *Request, outcome map[string]any) error {
	if err := tx.Queue(ctx, `UPDATE privacy_requests SET completed_at = $2, outcome = $3, error = NULL, details = NULL,
		subject = CASE WHEN kind = $4 THEN subject ELSE NULL END WHERE id = $1`,
		r.ID, tx.Now.UnixMicro(), db.JSON(outcome), string(channel.PrivacyDataRequest)); err != nil {
		return fmt.Errorf("complete request: %w", err)
	}
	details := map[string]any{"kind": string(r.Kind), "shop": r.Shop}
	maps.Copy(details, outcome)
	return s.recordTx(ctx, tx, AuditPrivacyCompleted, r.OrganizationID, r.ID, details)
}

// identify finds the person of a request and stores it, once.
func (s *Service) identify(ctx context.Context, r *Request) (*Person, error) {
	if r.details.Person != nil {
		return r.details.Person, nil
	}
	p, err := s.findPerson(ctx, r)
	if err != nil {
		return nil, err
	}
	r.details.Person = p
	return p, s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE privacy_requests SET details = $2 WHERE id = $1 AND completed_at IS NULL", r.ID, db.JSON(r.details))
		return err
	})
}

// places returns the scopes of a shop's ids: its connection, and former connections
// of the organization.
func (s *Service) places(ctx context.Context, r *Request) ([]string, error) {
	list, err := db.All(ctx, s.db, scanText, "SELECT place FROM shop_places WHERE address = $1 AND organization_id = $2 ORDER BY place", r.Shop, r.OrganizationID)
	if err != nil {
		return nil, fmt.Errorf("find the shop's connections: %w", err)
	}
	if !slices.Contains(list, r.place) {
		list = append(list, r.place)
	}
	return list, nil
}

// FormerOwner returns the only organization with proven connections to a shop;
// false if there are several or none.
func (s *Service) FormerOwner(ctx context.Context, q db.Querier, address string) (organizationID string, ok bool, err error) {
	list, err := db.All(ctx, q, scanText, "SELECT DISTINCT organization_id FROM shop_places WHERE address = $1 AND proven LIMIT 2", address)
	if err != nil || len(list) != 1 {
		return "", false, err
	}
	return list[0], true, nil
}

// findPerson finds the person of a request.
func (s *Service) findPerson(ctx context.Context, r *Request) (*Person, error) {
	p := &Person{OrganizationID: r.OrganizationID}
	var err error
	if p.Places, err = s.places(ctx, r); err != nil {
		return nil, err
	}
	if r.Subject != "" {
		p.Names = append(p.Names, r.Subject)
		found, err := db.All(ctx, s.db, scanText, `SELECT customer_id FROM shop_customers
			WHERE place = ANY($1) AND external_id = $2 AND customer_id <> '' ORDER BY updated_at DESC`, p.Places, r.Subject)
		if err != nil {
			return nil, fmt.Errorf("find customer: %w", err)
		}
		if len(found) > 0 {
			p.CustomerID = found[0]
		}
	}
	number, _ := phone.Parse(r.details.Phone, "")
	if p.CustomerID == "" {
		// The shop's records were never received: match by contact data within the
		// organization.
		party := channel.Party{Email: r.details.Email, Phone: number.E164}
		if p.CustomerID, err = s.desk.CustomerByContact(ctx, s.db, r.OrganizationID, party); err != nil {
			return nil, fmt.Errorf("find customer: %w", err)
		}
	}
	p.Names = append(p.Names, r.details.OrderIDs...)
	if p.CustomerID != "" {
		orders, err := db.All(ctx, s.db, scanText, "SELECT external_id FROM shop_orders WHERE customer_id = $1 AND place = ANY($2) ORDER BY external_id", p.CustomerID, p.Places)
		if err != nil {
			return nil, fmt.Errorf("find orders: %w", err)
		}
		p.Names = append(p.Names, orders...)
		d, err := s.desk.ExportCustomer(ctx, s.db, r.OrganizationID, p.CustomerID)
		switch {
		case isNotFound(err):
			p.CustomerID = "" // deleted before
		case err != nil:
			return nil, fmt.Errorf("load customer data: %w", err)
		default:
			p.CustomerID, p.TicketIDs = d.Person.CustomerID, d.Person.TicketIDs
			p.EventIDs, p.EventTicketIDs = d.Person.EventIDs, d.Person.EventTicketIDs
			p.Contacts = append(p.Contacts, d.Person.Contacts...)
		}
	}
	for _, contact := range []string{r.details.Email, r.details.Phone, number.E164} {
		if contact != "" {
			p.Contacts = append(p.Contacts, contact)
		}
	}
	slices.Sort(p.Contacts)
	p.Contacts = slices.Compact(p.Contacts)
	slices.Sort(p.Names)
	p.Names = slices.Compact(p.Names)
	return p, nil
}
