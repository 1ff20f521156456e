package desk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// A merge moves the rows of a customer to the surviving one: contact points, tickets, conversations,
// messages, and the records of other packages. Each row that moves notes its home, the customer to
// which it returns when the merge is undone. Rows that arrive later have no home, so they stay.
// The merged customer's row stays, marked as deleted, with the fields that are restored.

// maxMergedTickets bounds the tickets that a merge moves, since it is one transaction.
const maxMergedTickets = 1000

// takenFields are the fields of a merged customer that the survivor took over because its own were
// empty. The preferred address and number are not among them: they follow from the contact points.
type takenFields struct {
	Name       string            `json:"name,omitempty"`
	ExternalID string            `json:"external_id,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// mergeRecord is a customer with the state of its merges.
type mergeRecord struct {
	customerRecord
	intoID string      // the customer that it is merged into; empty: none
	taken  takenFields // by that customer
	with   []string    // customers of undone merges
}

const selectMergeRecord = `SELECT id, organization_id, name, email, phone, external_id, metadata, created_at, updated_at,
	merged_into_id, merged_fields, merged_with FROM customers `

func scanMergeRecord(row db.Row) (mergeRecord, error) {
	var m mergeRecord
	err := row.Scan(&m.ID, &m.OrganizationID, &m.Name, &m.email, &m.phone, db.IntoText(&m.ExternalID), db.IntoJSON(&m.Metadata),
		db.IntoTime(&m.CreatedAt), db.IntoTime(&m.UpdatedAt), db.IntoText(&m.intoID), db.IntoJSON(&m.taken), db.IntoJSON(&m.with))
	return m, err
}

// lockMergeRecords returns the customers among ids, merged ones included, without contacts. They are
// locked in the order of their ids, so that concurrent calls cannot deadlock.
func lockMergeRecords(ctx context.Context, tx *db.Tx, organizationID string, ids []string) (map[string]*mergeRecord, error) {
	list, err := db.All(ctx, tx, scanMergeRecord, selectMergeRecord+"WHERE id = ANY($1) AND "+inOrganization+`
		AND (deleted_at IS NULL OR merged_into_id IS NOT NULL) ORDER BY id FOR UPDATE`, ids, organizationID)
	if err != nil {
		return nil, fmt.Errorf("load customers: %w", err)
	}
	found := make(map[string]*mergeRecord, len(list))
	for i := range list {
		found[list[i].ID] = &list[i]
	}
	return found, nil
}

// survivorID returns the customer that has the records of a merged one; the same id if it is not
// merged, or unknown.
func survivorID(ctx context.Context, q db.Querier, organizationID, id string) (string, error) {
	var survivor string
	err := q.QueryRow(ctx, `WITH RECURSIVE up(id, merged_into_id) AS (
			SELECT id, merged_into_id FROM customers WHERE id = $1 AND organization_id = $2
			UNION ALL SELECT c.id, c.merged_into_id FROM customers c JOIN up ON c.id = up.merged_into_id
		) SELECT id FROM up WHERE merged_into_id IS NULL`, id, organizationID).Scan(&survivor)
	if errors.Is(err, db.ErrNoRows) {
		return id, nil
	}
	if err != nil {
		return "", fmt.Errorf("find surviving customer: %w", err)
	}
	return survivor, nil
}

// lockSurvivingCustomer returns the customer that has the records of a merged one, or the customer
// itself; [db.ErrNoRows] if it was deleted. A merge waits for the transaction.
func lockSurvivingCustomer(ctx context.Context, tx *db.Tx, organizationID, id string) (customerRef, error) {
	for {
		survivor, err := survivorID(ctx, tx, organizationID, id)
		if err != nil {
			return customerRef{}, err
		}
		var k customerRef
		err = tx.QueryRow(ctx, "SELECT id, name, email, phone FROM customers WHERE id = $1 AND organization_id = $2 AND deleted_at IS NULL FOR KEY SHARE", survivor, organizationID).
			Scan(&k.ID, &k.Name, &k.Email, &k.Phone)
		if !errors.Is(err, db.ErrNoRows) || survivor == id {
			return k, err
		}
		id = survivor // merged or deleted meanwhile
	}
}

// survivorIDs returns ids with the survivors of merged customers instead of these.
func survivorIDs(ctx context.Context, q db.Querier, organizationID string, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return ids, nil
	}
	merged, err := db.All(ctx, q, scanText, "SELECT id FROM customers WHERE id = ANY($1) AND "+inOrganization+" AND merged_into_id IS NOT NULL ORDER BY id", ids, organizationID)
	if err != nil {
		return nil, fmt.Errorf("find merged customers: %w", err)
	}
	if len(merged) == 0 {
		return ids, nil
	}
	var list []string
	for _, id := range ids {
		if slices.Contains(merged, id) {
			if id, err = survivorID(ctx, q, organizationID, id); err != nil {
				return nil, err
			}
		}
		list = withIDs(list, []string{id})
	}
	return list, nil
}

// customerMergedError returns the Conflict for a change of a merged customer.
func customerMergedError(intoID string) error {
	return transitionError("the customer is merged into another one; unmerge it first", map[string]any{"merged_into_id": intoID})
}

// CustomerMerge is a merge of two customers that could be made.
type CustomerMerge struct {
	Merged, Survivor Customer // as they are
	Result           Customer // the survivor afterwards
	Tickets          int      // that move
}

// PreviewCustomerMerge returns what [Service.MergeCustomersTx] would do. Errors: those of
// MergeCustomersTx.
func (s *Service) PreviewCustomerMerge(ctx context.Context, q db.Querier, organizationID, id, into string) (CustomerMerge, error) {
	if err := s.CheckUpgraded(ctx, q); err != nil {
		return CustomerMerge{}, err
	}
	list, err := db.All(ctx, q, scanMergeRecord, selectMergeRecord+"WHERE id = ANY($1) AND "+inOrganization+`
		AND (deleted_at IS NULL OR merged_into_id IS NOT NULL)`, []string{id, into}, organizationID)
	if err != nil {
		return CustomerMerge{}, fmt.Errorf("load customers: %w", err)
	}
	found := make(map[string]*mergeRecord, len(list))
	for i := range list {
		if err := list[i].loadContacts(ctx, q); err != nil {
			return CustomerMerge{}, err
		}
		found[list[i].ID] = &list[i]
	}
	from, to, err := mergePair(found, id, into)
	if err != nil {
		return CustomerMerge{}, err
	}
	m := CustomerMerge{Merged: from.Customer, Survivor: to.Customer}
	if err := q.QueryRow(ctx, "SELECT count(*) FROM tickets WHERE customer_id = $1", id).Scan(&m.Tickets); err != nil {
		return CustomerMerge{}, fmt.Errorf("count tickets: %w", err)
	}
	to.fillFrom(from)
	m.Result = to.Customer
	for _, list := range []struct {
		to    *[]string
		more  []string
		first string
	}{{&m.Result.Emails, from.Emails, to.email}, {&m.Result.Phones, from.Phones, to.phone}, {&m.Result.Undeliverable, from.Undeliverable, ""}} {
		*list.to = append(slices.Clone(*list.to), list.more...)
		putFirst(*list.to, list.first)
	}
	m.Result.Identities = append(slices.Clone(m.Result.Identities), from.Identities...)
	return m, nil
}

// mergePair returns the customers of a merge, or why they cannot be merged.
func mergePair(found map[string]*mergeRecord, id, into string) (from, to *mergeRecord, err error) {
	from, to = found[id], found[into]
	switch {
	case from == nil:
		return nil, nil, notFound(db.ErrNoRows, "customer")
	case id == into:
		return nil, nil, transitionError("a customer cannot be merged into itself", nil)
	case to == nil:
		var v problem.Validation
		v.AddCode("not_found", "into", "must be a customer of the organization")
		return nil, nil, v.Err()
	case from.intoID != "":
		return nil, nil, customerMergedError(from.intoID)
	case to.intoID != "":
		return nil, nil, customerMergedError(to.intoID)
	}
	return from, to, nil
}

// fillFrom fills the empty fields of the survivor from a merged customer, and records them in its taken.
// Set fields of the survivor stay, and so does the value of each key of its metadata.
func (to *mergeRecord) fillFrom(from *mergeRecord) {
	from.taken = takenFields{}
	if to.Name == "" {
		to.Name, from.taken.Name = from.Name, from.Name
	}
	if to.ExternalID == "" && from.ExternalID != "" {
		to.ExternalID, from.taken.ExternalID = from.ExternalID, from.ExternalID
	}
	metadata := make(map[string]string)
	maps.Copy(metadata, to.Metadata)
	for _, key := range slices.Sorted(maps.Keys(from.Metadata)) {
		if _, ok := metadata[key]; ok || len(metadata) >= maxKeys {
			continue
		}
		if from.taken.Metadata == nil {
			from.taken.Metadata = make(map[string]string)
		}
		metadata[key], from.taken.Metadata[key] = from.Metadata[key], from.Metadata[key]
	}
	if len(from.taken.Metadata) > 0 {
		to.Metadata = metadata
	}
	if to.email == "" {
		to.email = from.email
	}
	if to.phone == "" {
		to.phone = from.phone
	}
}

// MergeCustomersTx merges a customer into another one, the survivor, in the caller's transaction, and
// returns the survivor. Its addresses, numbers, identities, tickets, messages and orders move, and
// later messages from its addresses go to the survivor. Fields that the survivor has stay; empty ones
// are filled. [Service.UnmergeCustomerTx] undoes it. It emits customer.updated of both, and
// ticket.updated of each ticket.
//
// Errors: NotFound; Invalid with code not_found at into; Conflict invalid_transition for a customer and
// itself, if either is merged already, and for more than 1,000 tickets; that of [Service.CheckUpgraded].
func (s *Service) MergeCustomersTx(ctx context.Context, tx *db.Tx, organizationID, id, into string) (Customer, error) {
	if err := s.CheckUpgraded(ctx, tx); err != nil {
		return Customer{}, err
	}
	found, err := lockMergeRecords(ctx, tx, organizationID, []string{id, into})
	if err != nil {
		return Customer{}, err
	}
	from, to, err := mergePair(found, id, into)
	if err != nil {
		return Customer{}, err
	}
	for _, c := range []*mergeRecord{from, to} {
		if err := c.loadContacts(ctx, tx); err != nil {
			return Customer{}, err
		}
	}
	tickets, err := lockMovingTickets(ctx, tx, organizationID, from.ID, func() ([]string, error) { return ticketsInvolving(ctx, tx, from.ID) })
	if err != nil {
		return Customer{}, err
	}
	if len(tickets) > maxMergedTickets {
		return Customer{}, transitionError(fmt.Sprintf("a customer with more than %d tickets cannot be merged into another one; merge the other one into it", maxMergedTickets), nil)
	}
	for _, move := range []struct {
		statement string
		also      []any
	}{
		{"UPDATE contact_points SET customer_id = $2, home_customer_id = coalesce(home_customer_id, customer_id) WHERE customer_id = $1", nil},
		{`UPDATE tickets SET customer_id = $2, home_customer_id = coalesce(home_customer_id, customer_id), updated_at = $3
			WHERE customer_id = $1`, []any{tx.Now.UnixMicro()}},
		{`UPDATE conversations SET customer_id = $2, home_customer_id = coalesce(home_customer_id, customer_id)
			WHERE customer_id = $1 AND ticket_id = ANY($3)`, []any{ticketIDs(tickets)}},
		{`UPDATE messages SET author_id = $2, home_author_id = coalesce(home_author_id, author_id)
			WHERE author_id = $1 AND author_type = 'customer' AND ticket_id = ANY($3)`, []any{ticketIDs(tickets)}},
	} {
		if err := tx.Queue(ctx, move.statement, append([]any{from.ID, to.ID}, move.also...)...); err != nil {
			return Customer{}, fmt.Errorf("move rows of customer: %w", err)
		}
	}
	if err := s.moveElsewhere(ctx, tx, organizationID, from.ID, to.ID, nil); err != nil {
		return Customer{}, err
	}
	beforeFrom, beforeTo := from.customerRecord, to.customerRecord
	to.fillFrom(from)
	if from.taken.ExternalID != "" {
		from.ExternalID = "" // it is unique
	}
	from.intoID = to.ID
	if err := from.write(ctx, tx); err != nil {
		return Customer{}, err
	}
	if err := to.write(ctx, tx); err != nil {
		return Customer{}, err
	}
	if err := s.recordCustomerTx(ctx, tx, AuditCustomerMerged, organizationID, from.ID, map[string]any{"into": to.ID}); err != nil {
		return Customer{}, err
	}
	return to.Customer, s.emitCustomerMove(ctx, tx, tickets, customerMove{
		from: from, to: to, beforeFrom: &beforeFrom, beforeTo: &beforeTo, merged: from, other: to, change: event.Change{From: nil, To: to.ID}, inOther: event.Change{From: nil, To: from.ID},
	})
}

// UnmergeCustomerTx undoes [Service.MergeCustomersTx], in the caller's transaction, and returns the
// customer. The rows that moved with it return, unless they were deleted since or another customer
// has them. Tickets and addresses that the survivor got since stay there; but the next message from an
// address of the customer is the customer's, in a ticket of its own. Fields of the survivor return to
// empty if they still have the customer's values. Customers merged into the customer before stay in
// it. It emits the events of a merge.
//
// Errors: NotFound; Conflict invalid_transition if the customer is not merged.
func (s *Service) UnmergeCustomerTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Customer, error) {
	tree, err := lockCustomerTree(ctx, tx, organizationID, id)
	if err != nil {
		return Customer{}, err
	}
	c, root := tree.records[id], tree.root()
	if c.intoID == "" {
		return Customer{}, transitionError("the customer is not merged into another one", nil)
	}
	if err := root.loadContacts(ctx, tx); err != nil {
		return Customer{}, err
	}
	tickets, err := lockMovingTickets(ctx, tx, organizationID, root.ID, func() ([]string, error) {
		return db.All(ctx, tx, scanText, `SELECT id FROM tickets WHERE home_customer_id = ANY($1) AND customer_id = $2
			UNION SELECT ticket_id FROM conversations WHERE home_customer_id = ANY($1) AND customer_id = $2
			UNION SELECT ticket_id FROM messages WHERE home_author_id = ANY($1) AND author_id = $2 ORDER BY 1`, tree.down, root.ID)
	})
	if err != nil {
		return Customer{}, err
	}
	returning, err := db.All(ctx, tx, scanText, "SELECT id FROM tickets WHERE home_customer_id = ANY($1) AND customer_id = $2", tree.down, root.ID)
	if err != nil {
		return Customer{}, fmt.Errorf("find tickets: %w", err)
	}
	tickets = slices.DeleteFunc(tickets, func(t *Ticket) bool { return !slices.Contains(returning, t.ID) })
	points, err := db.All(ctx, tx, scanText, "SELECT value FROM contact_points WHERE home_customer_id = ANY($1) AND customer_id = $2 ORDER BY value", tree.down, root.ID)
	if err != nil {
		return Customer{}, fmt.Errorf("find contact points: %w", err)
	}
	for _, table := range []struct{ name, column, home, also string }{
		{"contact_points", "customer_id", "home_customer_id", ""},
		{"tickets", "customer_id", "home_customer_id", ", updated_at = $4"},
		{"conversations", "customer_id", "home_customer_id", ""},
		{"messages", "author_id", "home_author_id", ""},
	} {
		args := []any{root.ID, c.ID, tree.down}
		if table.also != "" {
			args = append(args, tx.Now.UnixMicro())
		}
		if err := tx.Queue(ctx, fmt.Sprintf("UPDATE %s SET %s = $2, %[3]s = CASE WHEN %[3]s <> $2 THEN %[3]s END%[4]s WHERE %[3]s = ANY($3) AND %[2]s = $1",
			table.name, table.column, table.home, table.also), args...); err != nil {
			return Customer{}, fmt.Errorf("move rows back: %w", err)
		}
	}
	if err := leaveThreads(ctx, tx, root.ID, points); err != nil {
		return Customer{}, err
	}
	if err := s.moveElsewhere(ctx, tx, organizationID, root.ID, c.ID, tree.down); err != nil {
		return Customer{}, err
	}
	beforeRoot := root.customerRecord
	beforeC := c.customerRecord
	beforeC.Emails, beforeC.Phones, beforeC.Identities = []string{}, []string{}, []Identity{}
	into := c.intoID
	tree.clearTaken(points)
	c.intoID, c.taken = "", takenFields{}
	c.with = withIDs(c.with, tree.up[1:])
	// The survivors first: the external id is unique.
	for _, up := range tree.up[1:] {
		m := tree.records[up]
		m.with = withIDs(m.with, tree.down)
		if err := m.writePreferred(ctx, tx); err != nil {
			return Customer{}, err
		}
	}
	if err := c.writePreferred(ctx, tx); err != nil {
		return Customer{}, err
	}
	if err := s.recordCustomerTx(ctx, tx, AuditCustomerUnmerged, organizationID, c.ID, map[string]any{"from": root.ID}); err != nil {
		return Customer{}, err
	}
	return c.Customer, s.emitCustomerMove(ctx, tx, tickets, customerMove{
		from: root, to: c, beforeFrom: &beforeRoot, beforeTo: &beforeC, merged: c, other: root, change: event.Change{From: into, To: nil}, inOther: event.Change{From: c.ID, To: nil},
	})
}

// withIDs returns ids with more, each once.
func withIDs(ids, more []string) []string {
	for _, id := range more {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// leaveThreads frees the keys of a customer's threads that are identities of another one, so that
// the next message with such a key creates a ticket of its owner.
func leaveThreads(ctx context.Context, tx *db.Tx, customerID string, keys []string) error {
	const threads = `value = ANY($1) AND conversation_id IN (SELECT c.id FROM contact_points p
		JOIN conversations c ON c.ticket_id = p.ticket_id AND c.id = p.conversation_id WHERE p.value = ANY($1) AND c.customer_id = $2)`
	for _, change := range []string{
		"DELETE FROM contact_points WHERE customer_id IS NULL AND " + threads,
		"UPDATE contact_points SET ticket_id = NULL, conversation_id = NULL WHERE customer_id <> $2 AND " + threads,
	} {
		if err := tx.Queue(ctx, change, keys, customerID); err != nil {
			return fmt.Errorf("leave threads: %w", err)
		}
	}
	return nil
}

// lockMovingTickets locks a customer's contact points and then the tickets that find returns, until
// it returns no others. A message that is being received holds one of these locks, so its rows
// are committed, and move, or it waits, and finds the new owner.
func lockMovingTickets(ctx context.Context, tx *db.Tx, organizationID, customerID string, find func() ([]string, error)) ([]*Ticket, error) {
	if _, err := db.All(ctx, tx, scanText, "SELECT value FROM contact_points WHERE customer_id = $1 ORDER BY value, scope FOR UPDATE", customerID); err != nil {
		return nil, fmt.Errorf("lock contact points: %w", err)
	}
	var held []string
	var locked map[string]*Ticket
	for {
		ids, err := find()
		if err != nil {
			return nil, fmt.Errorf("find tickets: %w", err)
		}
		if locked != nil && slices.Equal(held, ids) {
			list := make([]*Ticket, 0, len(ids))
			for _, id := range ids {
				if t := locked[id]; t != nil {
					list = append(list, t)
				}
			}
			return list, nil
		}
		held = ids
		if locked, err = lockTickets(ctx, tx, organizationID, ids); err != nil {
			return nil, err
		}
	}
}

func ticketIDs(tickets []*Ticket) []string {
	ids := make([]string, len(tickets))
	for i, t := range tickets {
		ids[i] = t.ID
	}
	return ids
}

// write stores the fields and the state of a locked customer.
func (m *mergeRecord) write(ctx context.Context, tx *db.Tx) error {
	m.UpdatedAt = tx.Now
	var taken, with, deleted any
	if m.intoID != "" {
		taken, deleted = db.JSON(m.taken), tx.Now.UnixMicro()
	}
	if len(m.with) > 0 {
		with = db.JSON(m.with)
	}
	if err := tx.Queue(ctx, `UPDATE customers SET name = $2, email = $3, phone = $4, external_id = $5, metadata = $6, updated_at = $7,
			merged_into_id = $8, merged_fields = $9, merged_with = $10, deleted_at = CASE WHEN merged_into_id = $8 THEN deleted_at ELSE $11 END WHERE id = $1`,
		m.ID, m.Name, m.email, m.phone, db.Text(m.ExternalID), metadataJSON(m.Metadata), m.UpdatedAt.UnixMicro(),
		db.Text(m.intoID), taken, with, deleted); err != nil {
		return fmt.Errorf("change customer: %w", err)
	}
	return m.loadContacts(ctx, tx)
}

// writePreferred is write after the contact points changed: a preferred address or number that is gone
// is replaced by the first of the rest.
func (m *mergeRecord) writePreferred(ctx context.Context, tx *db.Tx) error {
	if m.intoID == "" {
		if err := m.loadContacts(ctx, tx); err != nil {
			return err
		}
		m.email, m.phone = firstOf(m.email, m.Emails, emailKey), firstOf(m.phone, m.Phones, phoneKey)
	}
	return m.write(ctx, tx)
}

// firstOf returns value if list has it, else the first of the list; empty if there is none.
func firstOf(value string, list []string, key func(string) string) string {
	if value != "" && slices.ContainsFunc(list, func(other string) bool { return key(other) == key(value) }) {
		return value
	}
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// customerTree is a customer with those that it is merged into and those merged into it.
type customerTree struct {
	up, down []string // from the customer to the last survivor; the customer and all merged into it
	records  map[string]*mergeRecord
}

func (f *customerTree) root() *mergeRecord { return f.records[f.up[len(f.up)-1]] }

// lockCustomerTree returns the tree of a customer, locked, or a NotFound problem. The tree cannot
// change meanwhile: a merge needs the lock of the survivor.
func lockCustomerTree(ctx context.Context, tx *db.Tx, organizationID, id string) (*customerTree, error) {
	var f customerTree
	for {
		up, down, err := mergeLine(ctx, tx, "customers", organizationID, id)
		if err != nil {
			return nil, err
		}
		if f.records != nil && slices.Equal(f.up, up) && slices.Equal(f.down, down) {
			return &f, nil
		}
		f.up, f.down = up, down
		if f.records, err = lockMergeRecords(ctx, tx, organizationID, slices.Concat(up, down)); err != nil {
			return nil, err
		}
		if f.records[id] == nil || f.root() == nil {
			return nil, notFound(db.ErrNoRows, "customer")
		}
	}
}

// clearTaken removes from the survivors the fields that they took from the customer, and the
// preferred addresses and numbers among the returned keys.
func (f *customerTree) clearTaken(keys []string) {
	c := f.records[f.up[0]]
	taken := c.taken
	for _, id := range f.up[1:] {
		m := f.records[id]
		if taken.Name != "" && m.Name == taken.Name {
			m.Name = ""
		}
		if taken.ExternalID != "" && m.ExternalID == taken.ExternalID {
			c.ExternalID, m.ExternalID = taken.ExternalID, ""
		}
		metadata := maps.Clone(m.Metadata)
		maps.DeleteFunc(metadata, func(key, value string) bool {
			was, ok := taken.Metadata[key]
			return ok && was == value
		})
		m.Metadata = metadata
		if m.email != "" && slices.Contains(keys, emailKey(m.email)) {
			m.email = ""
		}
		if m.phone != "" && slices.Contains(keys, phoneKey(m.phone)) {
			m.phone = ""
		}
		if m.intoID != "" {
			taken = m.taken.without(taken)
		}
	}
}

// without removes the fields of another merge, and returns those that it removed.
func (t *takenFields) without(other takenFields) (removed takenFields) {
	if t.Name != "" && t.Name == other.Name {
		removed.Name, t.Name = t.Name, ""
	}
	if t.ExternalID != "" && t.ExternalID == other.ExternalID {
		removed.ExternalID, t.ExternalID = t.ExternalID, ""
	}
	rest := make(map[string]string)
	for key, value := range t.Metadata {
		if was, ok := other.Metadata[key]; !ok || was != value {
			rest[key] = value
			continue
		}
		if removed.Metadata == nil {
			removed.Metadata = make(map[string]string)
		}
		removed.Metadata[key] = value
	}
	t.Metadata = rest
	return removed
}

// OnCustomerMove adds a function that moves the records of another package in the transaction of a
// merge. homes is nil for a merge: all records of from move to to and note from as their home, unless
// they have one. Otherwise the records of from with one of the homes return to to. It must be
// called before the service is used.
func (s *Service) OnCustomerMove(fn func(ctx context.Context, tx *db.Tx, organizationID, from, to string, homes []string) error) {
	s.onMove = append(s.onMove, fn)
}

func (s *Service) moveElsewhere(ctx context.Context, tx *db.Tx, organizationID, from, to string, homes []string) error {
	for _, move := range s.onMove {
		if err := move(ctx, tx, organizationID, from, to, homes); err != nil {
			return fmt.Errorf("move records of customer: %w", err)
		}
	}
	return nil
}

func (s *Service) recordCustomerTx(ctx context.Context, tx *db.Tx, a audit.Action, organizationID, id string, details map[string]any) error {
	// By id alone: the entry outlives the person's data.
	return s.audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: organizationID, Action: a, Target: audit.Target{Type: "customer", ID: id}, Details: details})
}

// customerMove is a merge, or its undoing, that was written: rows moved between two customers.
type customerMove struct {
	from, to             *mergeRecord
	beforeFrom, beforeTo *customerRecord
	merged, other        *mergeRecord // the same two: the merged one, and the survivor
	change, inOther      event.Change // of the merged one's merged_into_id, and the survivor's merged_customer_id
}

// emitCustomerMove records and emits a move: of both customers, and of the locked tickets that were
// the first one's.
func (s *Service) emitCustomerMove(ctx context.Context, tx *db.Tx, tickets []*Ticket, m customerMove) error {
	organizationID := m.from.OrganizationID
	var events []event.Event
	for _, c := range []struct {
		now    *mergeRecord
		before *customerRecord
	}{{m.from, m.beforeFrom}, {m.to, m.beforeTo}} {
		changes := make(map[string]event.Change)
		if c.now == m.merged {
			changes["merged_into_id"] = m.change
		} else {
			changes["merged_customer_id"] = m.inOther
			c.now.fieldChanges(c.before, changes)
		}
		c.now.changesFrom(c.before, changes)
		events = append(events, event.Event{
			OrganizationID: organizationID, Name: event.CustomerUpdated, Data: event.Data{Customer: c.now.snapshot(), Changes: changes},
		})
		if err := s.enqueueFacts(ctx, tx, organizationID, "", c.now.ID); err != nil {
			return err
		}
	}
	changes := map[string]event.Change{"customer": {From: m.from.ID, To: m.to.ID}}
	for _, t := range tickets {
		if t.Customer.ID != m.from.ID {
			continue
		}
		t.Customer, t.UpdatedAt = *m.to.snapshot(), tx.Now
		if err := recordChange(ctx, tx, t, originOf(ctx), ChangeUpdated, changes); err != nil {
			return err
		}
		snapshot, err := s.ticketSnapshot(ctx, tx, t)
		if err != nil {
			return err
		}
		events = append(events, updateEvents(snapshot, organizationID, changes)...)
	}
	return s.events.EmitTx(ctx, tx, events...)
}

// fieldChanges adds the differences in name, external id and metadata from before to c.
func (c *customerRecord) fieldChanges(before *customerRecord, changes map[string]event.Change) {
	if c.Name != before.Name {
		changes["name"] = event.Change{From: before.Name, To: c.Name}
	}
	if c.ExternalID != before.ExternalID {
		changes["external_id"] = event.Change{From: orNil(before.ExternalID), To: orNil(c.ExternalID)}
	}
	if !maps.Equal(c.Metadata, before.Metadata) {
		changes["metadata"] = event.Change{From: orEmpty(before.Metadata), To: orEmpty(c.Metadata)}
	}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// MergedCustomer is a customer merged into another one.
type MergedCustomer struct {
	ID, Name, Email, Phone string // the address and the number that were preferred
	At                     time.Time
}

// MergedCustomers returns the customers merged into one, directly or through others, the newest merge
// first. They have no contacts: the survivor has them.
func (s *Service) MergedCustomers(ctx context.Context, q db.Querier, organizationID, id string) ([]MergedCustomer, error) {
	list, err := db.All(ctx, q, func(row db.Row) (m MergedCustomer, err error) {
		err = row.Scan(&m.ID, &m.Name, &m.Email, &m.Phone, db.IntoTime(&m.At))
		return m, err
	}, `WITH RECURSIVE down(id) AS (
			SELECT id FROM customers WHERE merged_into_id = $1 AND organization_id = $2
			UNION ALL SELECT c.id FROM customers c JOIN down ON c.merged_into_id = down.id
		) SELECT c.id, c.name, c.email, c.phone, c.deleted_at FROM customers c JOIN down ON down.id = c.id ORDER BY c.deleted_at DESC, c.id`, id, organizationID)
	if err != nil {
		return nil, fmt.Errorf("find merged customers: %w", err)
	}
	return list, nil
}
