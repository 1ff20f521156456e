package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	netmail "net/mail"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/phone"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// NewCustomer describes a customer created by a member or an API key. The first
// e-mail address and number are the preferred ones.
type NewCustomer struct {
	Name       string
	Emails     []string
	Phones     []string // in any international spelling
	ExternalID string   // unique among the organization's customers; empty: none
	Metadata   MetadataUpdate
}

// CustomerUpdate describes a change of a customer. A nil field stays; a list
// replaces the present one.
type CustomerUpdate struct {
	Name       *string
	Emails     *[]string
	Phones     *[]string
	ExternalID *string
	Metadata   MetadataUpdate
}

// maxContacts bounds each list of addresses.
const maxContacts = 20

// Check implements [problem.Checker].
func (n NewCustomer) Check(v *problem.Validation) {
	CustomerUpdate{&n.Name, &n.Emails, &n.Phones, &n.ExternalID, n.Metadata}.Check(v)
}

// Check implements [problem.Checker].
func (u CustomerUpdate) Check(v *problem.Validation) {
	if u.Name != nil {
		v.Line("name", *u.Name, 0, maxName)
	}
	for _, list := range []struct {
		path   string
		values *[]string
		check  func(v *problem.Validation, path, value string)
	}{{"emails", u.Emails, checkEmail}, {"phones", u.Phones, checkPhone}} {
		if list.values == nil {
			continue
		}
		if len(*list.values) > maxContacts {
			v.AddCode("too_long", list.path, "must have at most %d values", maxContacts)
		}
		for i, value := range *list.values {
			list.check(v, list.path+"."+strconv.Itoa(i), value)
		}
	}
	if u.ExternalID != nil {
		checkExternalID(v, *u.ExternalID)
	}
	u.Metadata.check(v)
}

// maxEmail is the longest address of SMTP, in bytes.
const maxEmail = 254

// checkEmail records an issue unless address, trimmed, is a bare e-mail address.
func checkEmail(v *problem.Validation, path, address string) {
	address = strings.TrimSpace(address)
	a, err := netmail.ParseAddress(address)
	if err != nil || a.Name != "" || a.Address != address || len(address) > maxEmail || clean(address) != address {
		v.AddCode("invalid_format", path, "must be an e-mail address")
	}
}

func checkPhone(v *problem.Validation, path, number string) {
	if e164(number) == "" {
		v.AddCode("invalid_format", path, "must be a telephone number with its country code, as in +4915112345678")
	}
}

// e164 returns the canonical form of a number; empty if it is invalid.
func e164(number string) string {
	n, _ := phone.Parse(number, "")
	return n.E164
}

// emailPoints and phonePoints return the contact points of lists, without
// duplicates, in the order given.
func emailPoints(organizationID string, addresses []string) []contactPoint {
	return distinct(addresses, func(a string) contactPoint {
		a = strings.TrimSpace(a)
		return contactPoint{value: emailKey(a), scope: organizationID, kind: pointEmail, display: a}
	})
}

func phonePoints(organizationID string, numbers []string) []contactPoint {
	return distinct(numbers, func(n string) contactPoint {
		n = e164(n)
		return contactPoint{value: phoneKey(n), scope: organizationID, kind: pointPhone, display: n}
	})
}

func distinct(values []string, of func(string) contactPoint) []contactPoint {
	var list []contactPoint
	for _, value := range values {
		p := of(value)
		if !slices.ContainsFunc(list, func(have contactPoint) bool { return have.value == p.value }) {
			list = append(list, p)
		}
	}
	return list
}

// preferred returns the preferred address of a list.
func preferred(list []contactPoint) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].display
}

// CreateCustomerTx creates a customer in the caller's transaction and emits
// customer.created. Of concurrent calls with the same address one succeeds. Errors:
// Invalid; Conflict already_exists with the field emails, phones or external_id
// that another customer has.
func (s *Service) CreateCustomerTx(ctx context.Context, tx *db.Tx, organizationID string, n NewCustomer) (Customer, error) {
	if err := problem.Check(n); err != nil {
		return Customer{}, err
	}
	emails, phones := emailPoints(organizationID, n.Emails), phonePoints(organizationID, n.Phones)
	c := customerRecord{email: preferred(emails), phone: preferred(phones), Customer: Customer{
		ID: newID(), OrganizationID: organizationID, Name: strings.TrimSpace(n.Name), ExternalID: n.ExternalID,
		CreatedAt: tx.Now, UpdatedAt: tx.Now,
	}}
	if _, err := n.Metadata.apply(&c.Metadata); err != nil {
		return Customer{}, err
	}
	inserted, err := tx.Exec(ctx, `INSERT INTO customers (id, organization_id, name, email, phone, external_id, metadata, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT DO NOTHING`,
		c.ID, organizationID, c.Name, c.email, c.phone, db.Text(c.ExternalID), metadataJSON(c.Metadata), tx.Now.UnixMicro())
	if err != nil {
		return Customer{}, fmt.Errorf("write customer: %w", err)
	}
	if inserted == 0 {
		return Customer{}, externalIDTaken("customer")
	}
	for _, list := range [][]contactPoint{emails, phones} {
		if err := setPoints(ctx, tx, c.ID, nil, list); err != nil {
			return Customer{}, err
		}
	}
	if err := c.loadContacts(ctx, tx); err != nil {
		return Customer{}, err
	}
	return c.Customer, s.events.EmitTx(ctx, tx, event.Event{
		OrganizationID: organizationID, Name: event.CustomerCreated, Data: event.Data{Customer: c.snapshot()},
	})
}

// snapshot returns c in the form of events.
func (c *customerRecord) snapshot() *event.Customer {
	return &event.Customer{ID: c.ID, Name: c.Name, Email: c.email, Phone: c.phone}
}

// UpdateCustomerTx changes a customer in the caller's transaction and emits
// customer.updated, unless nothing changes. A removed address no longer identifies
// the customer, but its threads go on: the next message from a thread's number
// joins the same ticket. Errors as of [Service.CreateCustomerTx]; NotFound; Conflict
// invalid_transition for a merged customer.
func (s *Service) UpdateCustomerTx(ctx context.Context, tx *db.Tx, organizationID, id string, u CustomerUpdate) (Customer, error) {
	if err := problem.Check(u); err != nil {
		return Customer{}, err
	}
	c, err := lockCustomer(ctx, tx, organizationID, id)
	if err != nil {
		return Customer{}, err
	}
	before := c
	changes := make(map[string]event.Change)
	if u.Name != nil {
		if c.Name = strings.TrimSpace(*u.Name); c.Name != before.Name {
			changes["name"] = event.Change{From: before.Name, To: c.Name}
		}
	}
	if u.ExternalID != nil && *u.ExternalID != c.ExternalID {
		changes["external_id"] = event.Change{From: orNil(c.ExternalID), To: orNil(*u.ExternalID)}
		c.ExternalID = *u.ExternalID
	}
	if change, err := u.Metadata.apply(&c.Metadata); err != nil {
		return Customer{}, err
	} else if change != nil {
		changes["metadata"] = *change
	}
	if u.Emails != nil {
		list := emailPoints(organizationID, *u.Emails)
		if err := setPoints(ctx, tx, c.ID, emailPoints(organizationID, before.Emails), list); err != nil {
			return Customer{}, err
		}
		c.email = preferred(list)
	}
	if u.Phones != nil {
		list := phonePoints(organizationID, *u.Phones)
		if err := setPoints(ctx, tx, c.ID, phonePoints(organizationID, before.Phones), list); err != nil {
			return Customer{}, err
		}
		c.phone = preferred(list)
	}
	if u.Emails != nil || u.Phones != nil {
		if err := c.loadContacts(ctx, tx); err != nil {
			return Customer{}, err
		}
		c.changesFrom(&before, changes)
	}
	if len(changes) == 0 {
		return c.Customer, nil
	}
	c.UpdatedAt = tx.Now
	if _, err := tx.Exec(ctx, "UPDATE customers SET name = $2, email = $3, phone = $4, external_id = $5, metadata = $6, updated_at = $7 WHERE id = $1",
		c.ID, c.Name, c.email, c.phone, db.Text(c.ExternalID), metadataJSON(c.Metadata), c.UpdatedAt.UnixMicro()); db.IsUnique(err) {
		return Customer{}, externalIDTaken("customer").Because(err)
	} else if err != nil {
		return Customer{}, fmt.Errorf("change customer: %w", err)
	}
	return c.Customer, s.events.EmitTx(ctx, tx, event.Event{
		OrganizationID: organizationID, Name: event.CustomerUpdated, Data: event.Data{Customer: c.snapshot(), Changes: changes},
	})
}

// changesFrom adds the differences in contacts from before to c.
func (c *customerRecord) changesFrom(before *customerRecord, changes map[string]event.Change) {
	if c.email != before.email {
		changes["email"] = event.Change{From: before.email, To: c.email}
	}
	if c.phone != before.phone {
		changes["phone"] = event.Change{From: before.phone, To: c.phone}
	}
	old := contacts{emails: before.Emails, phones: before.Phones, identities: before.Identities}
	old.changes(&contacts{emails: c.Emails, phones: c.Phones, identities: c.Identities}, changes)
}

// lockCustomer returns a customer, locked until the transaction ends. Errors: NotFound; Conflict
// invalid_transition for a merged customer.
func lockCustomer(ctx context.Context, tx *db.Tx, organizationID, id string) (customerRecord, error) {
	c, err := db.One(ctx, tx, scanCustomer, selectCustomer+"WHERE id = $1 AND organization_id = $2 AND deleted_at IS NULL FOR UPDATE", id, organizationID)
	if errors.Is(err, db.ErrNoRows) {
		survivor, upErr := survivorID(ctx, tx, organizationID, id)
		if upErr != nil {
			return customerRecord{}, upErr
		}
		if survivor != id {
			return customerRecord{}, customerMergedError(survivor)
		}
	}
	if err != nil {
		return customerRecord{}, notFound(err, "customer")
	}
	err = c.loadContacts(ctx, tx)
	return c, err
}

// setPoints replaces a customer's contact points of one kind. It writes them in the
// order of their values, e-mail addresses before numbers as intake does, so that
// concurrent calls cannot deadlock. Threads are not affected: they have a
// connection's scope.
func setPoints(ctx context.Context, tx *db.Tx, customerID string, old, list []contactPoint) error {
	type step struct {
		contactPoint
		had, has bool
	}
	steps := make(map[string]*step)
	for _, p := range old {
		steps[p.value] = &step{contactPoint: p, had: true}
	}
	for _, p := range list {
		if st := steps[p.value]; st != nil {
			st.contactPoint, st.has = p, true
		} else {
			steps[p.value] = &step{contactPoint: p, has: true}
		}
	}
	for _, st := range slices.SortedFunc(maps.Values(steps), func(a, b *step) int { return cmp.Compare(a.value, b.value) }) {
		var display any
		if st.display != st.value {
			display = db.Text(st.display)
		}
		var err error
		switch {
		case !st.has:
			_, err = tx.Exec(ctx, "DELETE FROM contact_points WHERE value = $1 AND scope = $2 AND customer_id = $3", st.value, st.scope, customerID)
		case st.had:
			_, err = tx.Exec(ctx, "UPDATE contact_points SET display = $4 WHERE value = $1 AND scope = $2 AND customer_id = $3",
				st.value, st.scope, customerID, display)
		default:
			var owner string
			err = tx.QueryRow(ctx, `INSERT INTO contact_points (value, scope, kind, display, customer_id) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (value, scope) DO UPDATE SET customer_id = coalesce(contact_points.customer_id, excluded.customer_id)
				RETURNING customer_id`, st.value, st.scope, st.kind, display, customerID).Scan(&owner)
			if err == nil && owner != customerID {
				return contactTaken(st.kind)
			}
		}
		if err != nil {
			return fmt.Errorf("change contact points: %w", err)
		}
	}
	return nil
}

func contactTaken(kind string) error {
	field, label := "emails", "e-mail address"
	if kind == pointPhone {
		field, label = "phones", "number"
	}
	e := problem.New(problem.Conflict, "another customer has this %s", label)
	e.Code, e.Details = "already_exists", map[string]any{"member": field}
	return e
}

// DeleteCustomerTx removes a customer's personal data in the caller's transaction,
// with that of the customers merged into it, and emits customer.updated. Tickets and
// messages stay, with a nameless customer. The addresses are free: the next message
// from one creates a new customer and ticket. Errors: NotFound, also if deleted
// before; Conflict invalid_transition for a merged customer.
func (s *Service) DeleteCustomerTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	c, err := lockCustomer(ctx, tx, organizationID, id)
	if err != nil {
		return err
	}
	return s.deleteCustomer(ctx, tx, c, true)
}

// deleteCustomer deletes a locked customer. withOldValues adds the values before to
// the event.
func (s *Service) deleteCustomer(ctx context.Context, tx *db.Tx, c customerRecord, withOldValues bool) error {
	before, id, organizationID := c, c.ID, c.OrganizationID
	var keys, mailboxes []string
	for _, p := range emailPoints(organizationID, c.Emails) {
		keys, mailboxes = append(keys, p.value), append(mailboxes, mailboxKey(p.value))
	}
	tickets, err := lockCustomerTickets(ctx, tx, organizationID, c)
	if err != nil {
		return err
	}
	all, err := mergedDown(ctx, tx, "customers", organizationID, id)
	if err != nil {
		return err
	}
	for _, change := range []struct {
		statement string
		args      []any
	}{
		{`DELETE FROM contact_points WHERE conversation_id IN (
			SELECT id FROM conversations WHERE ticket_id = ANY($1) AND customer_id = $2)`, []any{tickets, id}},
		{"DELETE FROM contact_points WHERE customer_id = $1", []any{id}},
		{"UPDATE conversations SET thread_key = NULL WHERE ticket_id = ANY($1) AND customer_id = $2", []any{tickets, id}},
		{"UPDATE messages SET author_name = '' WHERE ticket_id = ANY($1) AND author_id = $2", []any{tickets, id}},
		{"DELETE FROM participants WHERE ticket_id = ANY($1) AND email = ANY($2)", []any{tickets, keys}},
		{"DELETE FROM mail_senders WHERE organization_id = $1 AND address = ANY($2)", []any{organizationID, mailboxes}},
		{"DELETE FROM acknowledgements WHERE organization_id = $1 AND address = ANY($2)", []any{organizationID, mailboxes}},
		{"DELETE FROM voicemails WHERE organization_id = $1 AND ticket_id = ANY($2)", []any{organizationID, tickets}},
		// Without their merges, so that nothing can be undone.
		{`UPDATE customers SET name = '', email = '', phone = '', external_id = NULL, metadata = NULL, merged_into_id = NULL,
			merged_fields = NULL, merged_with = NULL, updated_at = $2, deleted_at = $2 WHERE id = ANY($1)`, []any{all, tx.Now.UnixMicro()}},
	} {
		if err := tx.Queue(ctx, change.statement, change.args...); err != nil {
			return fmt.Errorf("delete customer: %w", err)
		}
	}
	c.Name, c.email, c.phone = "", "", ""
	c.Emails, c.Phones, c.Identities = []string{}, []string{}, []Identity{}
	changes := make(map[string]event.Change)
	if before.Name != "" {
		changes["name"] = event.Change{From: before.Name, To: ""}
	}
	if before.ExternalID != "" {
		changes["external_id"] = event.Change{From: before.ExternalID, To: nil}
	}
	if len(before.Metadata) > 0 {
		changes["metadata"] = event.Change{From: before.Metadata, To: map[string]string{}}
	}
	c.changesFrom(&before, changes)
	action := AuditCustomerDeleted
	if !withOldValues {
		action, changes = AuditCustomerRedacted, withoutOldValues(changes)
	}
	if err := s.recordCustomerTx(ctx, tx, action, organizationID, id, nil); err != nil {
		return err
	}
	return s.events.EmitTx(ctx, tx, event.Event{
		OrganizationID: organizationID, Name: event.CustomerUpdated, Data: event.Data{Customer: c.snapshot(), Changes: changes},
	})
}

// lockCustomerTickets locks and returns the tickets that hold a customer's
// conversations. For a merged ticket that is its survivor, also after the merged
// one was deleted.
func lockCustomerTickets(ctx context.Context, tx *db.Tx, organizationID string, c customerRecord) ([]string, error) {
	var numbers, held []string
	for _, p := range phonePoints(organizationID, c.Phones) {
		numbers = append(numbers, p.value)
	}
	for {
		tickets, err := db.All(ctx, tx, scanText, `WITH RECURSIVE up(id, merged_into_id) AS (
				SELECT id, merged_into_id FROM tickets WHERE customer_id = $1
				UNION SELECT t.id, t.merged_into_id FROM tickets t JOIN up ON t.id = up.merged_into_id
			) SELECT id FROM up WHERE merged_into_id IS NULL
			UNION SELECT c.ticket_id FROM contact_points p JOIN conversations c ON c.ticket_id = p.ticket_id AND c.id = p.conversation_id
			WHERE (p.customer_id = $1 OR p.value = ANY($2)) AND c.customer_id = $1
			ORDER BY id`, c.ID, numbers)
		if err != nil {
			return nil, fmt.Errorf("find tickets: %w", err)
		}
		if slices.Equal(held, tickets) {
			return tickets, nil
		}
		if _, err := db.All(ctx, tx, scanText, "SELECT id FROM tickets WHERE id = ANY($1) ORDER BY id FOR UPDATE", tickets); err != nil {
			return nil, fmt.Errorf("lock tickets: %w", err)
		}
		held = tickets
	}
}

func scanText(row db.Row) (s string, err error) {
	err = row.Scan(&s)
	return s, err
}
