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

// Customer is a person asking the organization for help.
type Customer struct {
	ID             string     `json:"id"`
	OrganizationID string     `json:"organization_id"`
	Name           string     `json:"name"`
	Emails         []string   `json:"emails"`
	Phones         []string   `json:"phones"` // E.164
	Identities     []Identity `json:"identities"`
	// Undeliverable lists the Emails and Phones that failed permanently.
	Undeliverable []string          `json:"undeliverable,omitempty"`
	ExternalID    string            `json:"external_id"` // set by the API client
	Metadata      map[string]string `json:"metadata"`
	CreatedAt     time.Time         `json:"created_at"`
	UpdatedAt     time.Time         `json:"updated_at"`
}

// Identity is a customer's id on a channel, if it is neither an e-mail address nor
// a phone number.
type Identity struct {
	Channel    string `json:"channel"`
	ExternalID string `json:"external_id"`
}

// Kinds of contact points. Any other kind is the name of the channel that issued
// the id.
const (
	pointEmail  = "email"
	pointPhone  = "phone"
	pointThread = "thread"
)

// contactPoint is a row of contact_points.
type contactPoint struct {
	value, scope, kind, display string
	customer                    bool // identifies the customer
	thread                      bool // identifies the message's thread
}

// maxKey bounds keys, in bytes, so that an index can hold them.
const maxKey = 255

// boundedKey returns the key, or its SHA-256 digest if it is longer than maxKey.
func boundedKey(key string) string {
	if key = clean(key); len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// emailKey returns the form in which e-mail addresses are compared.
func emailKey(address string) string {
	return boundedKey(strings.ToLower(strings.TrimSpace(address)))
}

// phoneKey returns the form in which numbers are compared: the least of a number's
// variants.
func phoneKey(e164 string) string { return boundedKey(slices.Min(phone.Variants(e164))) }

// threadValue returns the form in which thread keys are compared; for a phone
// number its phoneKey.
func threadValue(key string) string {
	if strings.HasPrefix(key, "+") {
		return phoneKey(key)
	}
	return boundedKey(key)
}

// threadScope returns the scope of thread keys and provider ids: the connection,
// or, without one, the organization's channel.
func threadScope(organizationID, connectionID, channel string) string {
	if connectionID != "" {
		return connectionID
	}
	return organizationID + "/" + channel
}

// contactPoints returns the contact points of p that identify a customer.
func (in *InboundEvent) contactPoints(p channel.Party) []contactPoint {
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

// pointOwner is the owner of a contact point after a claim.
type pointOwner struct {
	customerID     string
	conversationID string
}

// maxPoints bounds the contact points of one message: an e-mail address, a number,
// an id, and the keys of its thread.
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

// claimPoints assigns the free ones of points to a customer and a thread, and
// returns the owner of each afterwards. Concurrent claims serialize: the second
// returns the first one's owners. The keys of points are distinct.
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
	// Usually all points are free; then there is nothing to read back.
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
		// Neither engine guarantees the order of RETURNING rows.
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

// customerRef is a matched or created customer, with the events that this causes.
type customerRef struct {
	event.Customer
	events []event.Event
}

// findOrCreateCustomer returns the customer that p identifies, and creates one if
// none matches.
func (s *Service) findOrCreateCustomer(ctx context.Context, tx *db.Tx, in *InboundEvent, p channel.Party) (customerRef, error) {
	points := in.contactPoints(p)
	id := newID()
	switch len(points) {
	case 0: // no contact point
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

// findCustomer returns the owner of a contact point; [db.ErrNoRows] if there is
// none, or if they are being merged. A merge waits for the transaction.
func findCustomer(ctx context.Context, q db.Querier, value, scope string) (customerRef, error) {
	var k customerRef
	err := q.QueryRow(ctx, `SELECT u.id, u.name, u.email, u.phone FROM contact_points p JOIN customers u ON u.id = p.customer_id
		WHERE p.value = $1 AND p.scope = $2 AND u.deleted_at IS NULL FOR KEY SHARE OF u`, value, scope).Scan(&k.ID, &k.Name, &k.Email, &k.Phone)
	return k, err
}

// loadCustomer returns a customer that exists, or the one that it is merged into.
func loadCustomer(ctx context.Context, q db.Querier, id string) (customerRef, error) {
	for {
		var k customerRef
		var organizationID, into string
		err := q.QueryRow(ctx, "SELECT id, name, email, phone, organization_id, merged_into_id FROM customers WHERE id = $1", id).
			Scan(&k.ID, &k.Name, &k.Email, &k.Phone, &organizationID, db.IntoText(&into))
		if err != nil {
			return customerRef{}, fmt.Errorf("load customer: %w", err)
		}
		if into == "" {
			return k, nil
		}
		if id, err = survivorID(ctx, q, organizationID, id); err != nil {
			return customerRef{}, err
		}
	}
}

// resolveCustomer creates the customer with id newID if all claimed points were
// free. Otherwise it returns the owner of the first owned point, and moves the
// points that were free to it. Points of further customers stay theirs.
func (s *Service) resolveCustomer(ctx context.Context, tx *db.Tx, in *InboundEvent, p channel.Party, newID string, points []contactPoint, owners []pointOwner) (customerRef, error) {
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
	if err := tx.Queue(ctx, "UPDATE contact_points SET customer_id = $1 WHERE customer_id = $2", owner, newID); err != nil {
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

// withoutForeign returns p without the e-mail address and number that belong to a
// customer other than id and alias, so that they do not become contact data of this
// one.
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

func insertCustomer(ctx context.Context, tx *db.Tx, in *InboundEvent, id string, p channel.Party) (customerRef, error) {
	k := customerRef{Customer: event.Customer{ID: id, Name: line(p.Name, maxName), Email: line(p.Email, maxKey), Phone: p.Phone}}
	if err := tx.Queue(ctx, `INSERT INTO customers (id, organization_id, name, email, phone, created_at, updated_at)
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

// updateProfile fills the empty fields of a customer from p. Set fields stay: an
// agent may have corrected them, and display names change with the device.
func updateProfile(ctx context.Context, tx *db.Tx, organizationID string, k *customerRef, p channel.Party) error {
	return saveProfile(ctx, tx, organizationID, k, k.mergeProfile(p))
}

// mergeProfile fills the empty fields of k from p, and returns the changes.
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

// saveProfile writes the changed fields of a customer and adds customer.updated to
// its events. No changes, no write.
func saveProfile(ctx context.Context, tx *db.Tx, organizationID string, k *customerRef, changes map[string]event.Change) error {
	if len(changes) == 0 {
		return nil
	}
	n, err := tx.Exec(ctx, "UPDATE customers SET name = $2, email = $3, phone = $4, updated_at = $5 WHERE id = $1 AND deleted_at IS NULL",
		k.ID, k.Name, k.Email, k.Phone, tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("change customer: %w", err)
	}
	if n == 0 { // deleted meanwhile
		return nil
	}
	k.events = append(k.events, event.Event{
		OrganizationID: organizationID, Name: event.CustomerUpdated,
		Data: event.Data{Customer: new(k.Customer), Changes: changes},
	})
	return nil
}

// contacts are a customer's addresses and identities.
type contacts struct {
	emails, phones []string // the preferred one first, the rest in no particular order
	identities     []Identity
	undeliverable  []string
}

// loadContacts loads the contacts of a customer with the preferred ones email and
// number.
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

// changes adds the differences from c to after.
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

// Customer returns a customer by id, or a NotFound problem. The id of a merged customer returns the
// one that it is merged into.
func (s *Service) Customer(ctx context.Context, q db.Querier, organizationID, id string) (Customer, error) {
	const where = "WHERE id = $1 AND organization_id = $2 AND deleted_at IS NULL"
	c, err := db.One(ctx, q, scanCustomer, selectCustomer+where, id, organizationID)
	if errors.Is(err, db.ErrNoRows) {
		survivor, upErr := survivorID(ctx, q, organizationID, id)
		if upErr != nil {
			return Customer{}, upErr
		}
		if survivor != id {
			c, err = db.One(ctx, q, scanCustomer, selectCustomer+where, survivor, organizationID)
		}
	}
	if err != nil {
		return Customer{}, notFound(err, "customer")
	}
	err = c.loadContacts(ctx, q)
	return c.Customer, err
}

// customerRecord is a customer with the preferred e-mail address and number.
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

// loadContacts sets the contacts from the database.
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
