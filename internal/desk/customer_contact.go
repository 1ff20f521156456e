package desk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/phone"
)

// Customer is somebody who writes to the organization.
type Customer struct {
	ID             string     `json:"id"`
	OrganizationID string     `json:"organization_id"`
	Name           string     `json:"name"`
	Emails         []string   `json:"emails"`
	Phones         []string   `json:"phones"` // E.164
	Identities     []Identity `json:"identities"`
	// Undeliverable lists the addresses among Emails and Phones that have
	// failed for good.
	Undeliverable []string          `json:"undeliverable,omitempty"`
	ExternalID    string            `json:"external_id"` // the API client's own
	Metadata      map[string]string `json:"metadata"`
	CreatedAt     time.Time         `json:"created_at"`
	UpdatedAt     time.Time         `json:"updated_at"`
}

// Identity is an id that a channel knows somebody by, where it is neither a mail
// address nor a number.
type Identity struct {
	Channel    string `json:"channel"`
	ExternalID string `json:"external_id"`
}

// The kinds of contact points; any other is the channel whose id it is.
const (
	pointEmail  = "email"
	pointPhone  = "phone"
	pointThread = "thread"
)

// contactPoint is an entry of contact_points that a message gives rise to.
type contactPoint struct {
	value, scope, kind, display string
	customer                    bool // it says whose the message is
	thread                      bool // it is the message's thread
}

// maxKey bounds what is compared, in bytes: an index must hold it.
const maxKey = 255

// boundedKey is the key itself, or a digest of one that no honest sender would use.
func boundedKey(key string) string {
	if key = clean(key); len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// emailKey is the form in which mail addresses are compared.
func emailKey(address string) string {
	return boundedKey(strings.ToLower(strings.TrimSpace(address)))
}

// phoneKey is the form in which numbers are compared: the least of those that
// the number's owner may be known under, so that all lead to it.
func phoneKey(e164 string) string { return boundedKey(slices.Min(phone.Variants(e164))) }

// threadValue is the form in which thread keys are compared. A number is one
// thread, in whichever of its forms.
func threadValue(key string) string {
	if strings.HasPrefix(key, "+") {
		return phoneKey(key)
	}
	return boundedKey(key)
}

// threadScope is where thread keys and a channel's own ids have their meaning:
// the connection, or, where an organization has none, its channel.
func threadScope(organizationID, connectionID, channel string) string {
	if connectionID != "" {
		return connectionID
	}
	return organizationID + "/" + channel
}

// contactPoints are what p can be recognised by.
func (in *Inbound) contactPoints(p channel.Party) []contactPoint {
	var list []contactPoint
	add := func(value, scope, kind, display string) {
		if value != "" {
			list = append(list, contactPoint{value: value, scope: scope, kind: kind, display: display, customer: true})
		}
	}
	if p.Email != "" {
		add(emailKey(p.Email), in.OrganizationID, pointEmail, line(p.Email, maxKey))
	}
	if p.Phone != "" {
		add(phoneKey(p.Phone), in.OrganizationID, pointPhone, p.Phone)
	}
	if p.ID != "" {
		add(boundedKey(p.ID), in.scope(), in.Channel, line(p.ID, maxKey))
	}
	return list
}

// pointOwner is what a point belongs to after a claim.
type pointOwner struct {
	customerID     string
	conversationID string
}

// maxPoints is how many points one message can have: an address, a number and an
// id, and the keys of its thread.
const maxPoints = 3 + maxThreadKeys

const (
	claimInto = "INSERT INTO contact_points (value, scope, kind, display, customer_id, ticket_id, conversation_id) VALUES "
	claimFree = " ON CONFLICT DO NOTHING"
	claimAll  = ` ON CONFLICT (value, scope) DO UPDATE SET
			kind = CASE WHEN contact_points.customer_id IS NULL AND excluded.customer_id IS NOT NULL THEN excluded.kind ELSE contact_points.kind END,
			display = coalesce(contact_points.display, excluded.display),
			customer_id = coalesce(contact_points.customer_id, excluded.customer_id),
			ticket_id = coalesce(contact_points.ticket_id, excluded.ticket_id),
			conversation_id = coalesce(contact_points.conversation_id, excluded.conversation_id)
		RETURNING value, scope, customer_id, conversation_id`
)

var claimRows = [maxPoints]string{
	"($1, $2, $3, $4, $5, $6, $7)",
	"($8, $9, $10, $11, $12, $13, $14)",
	"($15, $16, $17, $18, $19, $20, $21)",
	"($22, $23, $24, $25, $26, $27, $28)",
	"($29, $30, $31, $32, $33, $34, $35)",
	"($36, $37, $38, $39, $40, $41, $42)",
	"($43, $44, $45, $46, $47, $48, $49)",
}

// claimPoints takes those of points that are free for a new customer and a new thread,
// and returns to whom each belongs then. Whoever comes second, also at the same
// moment, finds the first. points are of different keys.
func claimPoints(ctx context.Context, tx *db.Tx, points []contactPoint, customerID, ticketID, conversationID string) ([]pointOwner, error) {
	out := make([]pointOwner, len(points))
	args := make([]any, 0, 7*maxPoints)
	for i, p := range points {
		var display, customer, ticket, conversation any
		if p.display != p.value {
			display = db.Text(p.display)
		}
		if p.customer {
			customer, out[i].customerID = customerID, customerID
		}
		if p.thread {
			ticket, conversation, out[i].conversationID = ticketID, conversationID, conversationID
		}
		args = append(args, p.value, p.scope, p.kind, display, customer, ticket, conversation)
	}
	insert := claimInto + strings.Join(claimRows[:len(points)], ", ")
	// Usually all are free, and then there is nothing to read back.
	n, err := tx.Exec(ctx, insert+claimFree, args...)
	if err != nil {
		return nil, fmt.Errorf("claim contact points: %w", err)
	}
	if n == int64(len(points)) {
		return out, nil
	}
	rows, err := tx.Query(ctx, insert+claimAll, args...)
	if err != nil {
		return nil, fmt.Errorf("claim contact points: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var value, scope string
		var c pointOwner
		if err := rows.Scan(&value, &scope, db.IntoText(&c.customerID), db.IntoText(&c.conversationID)); err != nil {
			return nil, fmt.Errorf("claim contact points: %w", err)
		}
		// Neither engine promises the order of the rows.
		for i, p := range points {
			if p.value == value && p.scope == scope {
				out[i] = c
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("claim contact points: %w", err)
	}
	return out, nil
}

// customerRef is a customer as found or made, with the event that tells of it.
type customerRef struct {
	event.Customer
	events []event.Event
}

// findOrCreateCustomer finds or makes the customer that p is.
func (s *Service) findOrCreateCustomer(ctx context.Context, tx *db.Tx, in *Inbound, p channel.Party) (customerRef, error) {
	points := in.contactPoints(p)
	id := newID()
	switch len(points) {
	case 0: // nobody we could recognise again
		return insertCustomer(ctx, tx, in, id, p)
	case 1:
		k, err := findCustomer(ctx, tx, points[0].value, points[0].scope)
		if err == nil {
			return k, updateProfile(ctx, tx, in.OrganizationID, &k, p)
		}
		if !errors.Is(err, db.ErrNoRows) {
			return customerRef{}, fmt.Errorf("find customer: %w", err)
		}
	}
	owners, err := claimPoints(ctx, tx, points, id, "", "")
	if err != nil {
		return customerRef{}, err
	}
	return s.resolveCustomer(ctx, tx, in, p, id, points, owners)
}

// findCustomer returns whose a contact point is; [db.ErrNoRows] when nobody's.
func findCustomer(ctx context.Context, q db.Querier, value, scope string) (customerRef, error) {
	var k customerRef
	err := q.QueryRow(ctx, `SELECT u.id, u.name, u.email, u.phone FROM contact_points p JOIN customers u ON u.id = p.customer_id
		WHERE p.value = $1 AND p.scope = $2`, value, scope).Scan(&k.ID, &k.Name, &k.Email, &k.Phone)
	return k, err
}

// loadCustomer returns a customer that must be there.
func loadCustomer(ctx context.Context, q db.Querier, id string) (customerRef, error) {
	var k customerRef
	if err := q.QueryRow(ctx, "SELECT id, name, email, phone FROM customers WHERE id = $1", id).
		Scan(&k.ID, &k.Name, &k.Email, &k.Phone); err != nil {
		return customerRef{}, fmt.Errorf("load customer: %w", err)
	}
	return k, nil
}

// resolveCustomer makes the customer with the given new id, if all of a claim's points
// were free; otherwise it finds the one they belong to and gives it those that
// were. When several customers have points, the first point decides, and the
// others keep theirs.
func (s *Service) resolveCustomer(ctx context.Context, tx *db.Tx, in *Inbound, p channel.Party, newID string, points []contactPoint, owners []pointOwner) (customerRef, error) {
	owner, free := "", 0
	for i, pt := range points {
		switch {
		case !pt.customer:
		case owners[i].customerID == newID:
			free++
		case owner == "":
			owner = owners[i].customerID
		}
	}
	if owner == "" {
		return insertCustomer(ctx, tx, in, newID, p)
	}
	p = withoutForeign(p, points, owners, owner, newID)
	k, err := loadCustomer(ctx, tx, owner)
	if err != nil {
		return customerRef{}, err
	}
	if free == 0 {
		return k, updateProfile(ctx, tx, in.OrganizationID, &k, p)
	}
	before, err := loadContacts(ctx, tx, owner, k.Email, k.Phone)
	if err != nil {
		return customerRef{}, err
	}
	if _, err := tx.Exec(ctx, "UPDATE contact_points SET customer_id = $1 WHERE customer_id = $2", owner, newID); err != nil {
		return customerRef{}, fmt.Errorf("add contact points: %w", err)
	}
	changes := k.mergeProfile(p)
	after, err := loadContacts(ctx, tx, owner, k.Email, k.Phone)
	if err != nil {
		return customerRef{}, err
	}
	before.changes(&after, changes)
	return k, saveProfile(ctx, tx, in.OrganizationID, &k, changes)
}

// withoutForeign is p without what turned out to be another customer's, which must
// not be written to for the one who has either id.
func withoutForeign(p channel.Party, points []contactPoint, owners []pointOwner, id, alias string) channel.Party {
	for i, pt := range points {
		if c := owners[i].customerID; pt.customer && c != id && c != alias {
			switch pt.kind {
			case pointEmail:
				p.Email = ""
			case pointPhone:
				p.Phone = ""
			}
		}
	}
	return p
}

func insertCustomer(ctx context.Context, tx *db.Tx, in *Inbound, id string, p channel.Party) (customerRef, error) {
	k := customerRef{Customer: event.Customer{ID: id, Name: line(p.Name, maxName), Email: line(p.Email, maxKey), Phone: p.Phone}}
	if _, err := tx.Exec(ctx, `INSERT INTO customers (id, organization_id, name, email, phone, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $6)`, k.ID, in.OrganizationID, k.Name, k.Email, k.Phone, tx.Now.UnixMicro()); err != nil {
		return customerRef{}, fmt.Errorf("write customer: %w", err)
	}
	k.events = []event.Event{{
		OrganizationID: in.OrganizationID, Name: event.CustomerCreated, Data: event.Data{Customer: new(k.Customer)},
	}}
	return k, nil
}

// maxName bounds names, in characters.
const maxName = 200

// updateProfile adds to a customer what is not known of them yet. What is known stays:
// an agent may have corrected it, and display names change with the device.
func updateProfile(ctx context.Context, tx *db.Tx, organizationID string, k *customerRef, p channel.Party) error {
	return saveProfile(ctx, tx, organizationID, k, k.mergeProfile(p))
}

// mergeProfile takes from p what is not known of a customer yet, and says what changed.
func (k *customerRef) mergeProfile(p channel.Party) map[string]event.Change {
	changes := make(map[string]event.Change)
	for _, f := range []struct {
		name string
		has  *string
		get  string
	}{
		{"name", &k.Name, line(p.Name, maxName)},
		{"email", &k.Email, line(p.Email, maxKey)},
		{"phone", &k.Phone, p.Phone},
	} {
		if *f.has == "" && f.get != "" {
			changes[f.name] = event.Change{From: "", To: f.get}
			*f.has = f.get
		}
	}
	return changes
}

// saveProfile writes what changed of a customer, unless nothing did, and has
// it told of.
func saveProfile(ctx context.Context, tx *db.Tx, organizationID string, k *customerRef, changes map[string]event.Change) error {
	if len(changes) == 0 {
		return nil
	}
	n, err := tx.Exec(ctx, "UPDATE customers SET name = $2, email = $3, phone = $4, updated_at = $5 WHERE id = $1 AND deleted_at IS NULL",
		k.ID, k.Name, k.Email, k.Phone, tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("change customer: %w", err)
	}
	if n == 0 { // deleted this moment
		return nil
	}
	k.events = append(k.events, event.Event{
		OrganizationID: organizationID, Name: event.CustomerUpdated,
		Data: event.Data{Customer: new(k.Customer), Changes: changes},
	})
	return nil
}

// contacts is what a customer can be reached under and recognised by.
type contacts struct {
	emails, phones []string // the one they are written to first, the others in no meaningful order
	identities     []Identity
	undeliverable  []string
}

// loadContacts loads the contacts of a customer to whom one writes at email and number.
func loadContacts(ctx context.Context, q db.Querier, customerID, email, number string) (contacts, error) {
	type stored struct {
		kind, display string
		undeliverable time.Time
	}
	points, err := db.All(ctx, q, func(row db.Row) (p stored, err error) {
		err = row.Scan(&p.kind, &p.display, db.IntoTime(&p.undeliverable))
		return p, err
	}, "SELECT kind, coalesce(display, value), undeliverable_at FROM contact_points WHERE customer_id = $1 ORDER BY value, scope", customerID)
	if err != nil {
		return contacts{}, fmt.Errorf("load contact points: %w", err)
	}
	c := contacts{emails: []string{}, phones: []string{}, identities: []Identity{}}
	for _, p := range points {
		switch p.kind {
		case pointEmail:
			c.emails = append(c.emails, p.display)
		case pointPhone:
			c.phones = append(c.phones, p.display)
		default:
			c.identities = append(c.identities, Identity{Channel: p.kind, ExternalID: p.display})
		}
		if !p.undeliverable.IsZero() {
			c.undeliverable = append(c.undeliverable, p.display)
		}
	}
	putFirst(c.emails, email)
	putFirst(c.phones, number)
	return c, nil
}

// changes adds to changes what is different in after.
func (c *contacts) changes(after *contacts, changes map[string]event.Change) {
	if !slices.Equal(c.emails, after.emails) {
		changes["emails"] = event.Change{From: c.emails, To: after.emails}
	}
	if !slices.Equal(c.phones, after.phones) {
		changes["phones"] = event.Change{From: c.phones, To: after.phones}
	}
	if !slices.Equal(c.identities, after.identities) {
		changes["identities"] = event.Change{From: c.identities, To: after.identities}
	}
}

// Customer returns a customer by id, or a NotFound problem.
func (s *Service) Customer(ctx context.Context, q db.Querier, organizationID, id string) (Customer, error) {
	c, err := db.One(ctx, q, scanCustomer, selectCustomer+"WHERE id = $1 AND organization_id = $2 AND deleted_at IS NULL", id, organizationID)
	if err != nil {
		return Customer{}, notFound(err, "customer")
	}
	err = c.loadContacts(ctx, q)
	return c.Customer, err
}

// customerRecord is a customer with the first of several addresses.
type customerRecord struct {
	Customer
	email, phone string
}

const selectCustomer = "SELECT id, organization_id, name, email, phone, external_id, metadata, created_at, updated_at FROM customers "

func scanCustomer(row db.Row) (customerRecord, error) {
	var c customerRecord
	err := row.Scan(&c.ID, &c.OrganizationID, &c.Name, &c.email, &c.phone, db.IntoText(&c.ExternalID), db.IntoJSON(&c.Metadata),
		db.IntoTime(&c.CreatedAt), db.IntoTime(&c.UpdatedAt))
	return c, err
}

// loadContacts loads the contacts.
func (c *customerRecord) loadContacts(ctx context.Context, q db.Querier) error {
	found, err := loadContacts(ctx, q, c.ID, c.email, c.phone)
	c.Emails, c.Phones, c.Identities, c.Undeliverable = found.emails, found.phones, found.identities, found.undeliverable
	return err
}

func putFirst(list []string, value string) {
	if i := slices.Index(list, value); i > 0 {
		copy(list[1:], list[:i])
		list[0] = value
	}
}
