package desk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Import is the import that writes records.
type Import struct {
	ID             string
	OrganizationID string
	Source         string // the kind of helpdesk, within which ids of records are unique
	// EndedAt is when the import wrote its last record; only for [Service.UndoImportTx].
	EndedAt time.Time
}

// ImportedPerson is a person at the source. The id may be empty: then the address identifies them.
type ImportedPerson struct {
	ID        string
	Name      string
	Email     string
	Phone     string // in any international spelling
	CreatedAt time.Time
}

// ImportedTicket is a ticket of another helpdesk with its history.
type ImportedTicket struct {
	ID         string // at the source
	ExternalID string // the ticket's external id here, by which it is found
	Subject    string
	Status     Status
	Priority   Priority
	Tags       []string
	Assignee   string // mail address; ignored unless it is a member's
	Customer   ImportedPerson
	CreatedAt  time.Time // zero: the first message's
	UpdatedAt  time.Time // zero: the last message's
	ResolvedAt time.Time // zero for a resolved ticket: UpdatedAt
	Messages   []ImportedMessage
	// Channel is the channel by which it came, and ConnectionID the connection. Empty: email for a
	// customer with an address, else api, and no connection.
	Channel, ConnectionID string
	// SLA measures an answered or resolved ticket by the present policy of its priority.
	SLA bool
	// Joins means that the ticket may be a part of one that exists: messages with the ids of mails
	// in its messages decide.
	Joins bool
}

// ImportedMessage is a message or note of an [ImportedTicket].
type ImportedMessage struct {
	ID        string // at the source
	At        time.Time
	Note      bool
	Agent     bool           // by an agent, who need not be a member
	Author    ImportedPerson // of a customer; of an agent the name and the address
	Text      string
	Stripped  string // Text without quoted mail; empty if there is none
	HTML      string // not sanitized
	Subject   string
	MessageID string // of a mail, without brackets
	// References are the mails that it answers, the nearest last.
	References []string
	To, Cc     []channel.Party
	Automatic  bool // an automatic reply or a bounce
	Files      []ImportedFile
}

// ImportedFile is a file of an [ImportedMessage].
type ImportedFile struct {
	ID          string // at the source
	Name        string
	ContentType string
	ContentID   string
	Inline      bool
	blob.Ref           // zero: no content
	Error       string // why there is none; a further run may bring it
}

// ImportCounts counts records of an import.
type ImportCounts struct {
	Customers int64 `json:"customers"`
	Tickets   int64 `json:"tickets"`
	Messages  int64 `json:"messages"`
	Notes     int64 `json:"notes"`
	Files     int64 `json:"files"`
	Known     int64 `json:"known"` // tickets and messages that were there already
}

// Add adds n to c.
func (c *ImportCounts) Add(n ImportCounts) {
	c.Customers += n.Customers
	c.Tickets += n.Tickets
	c.Messages += n.Messages
	c.Notes += n.Notes
	c.Files += n.Files
	c.Known += n.Known
}

// The kinds of import_records.
const (
	importedCustomer = "customer"
	importedTicket   = "ticket"
	importedMessage  = "message"
	importedFile     = "file"
)

// heardNever is heard_at of a ticket of which nothing has been heard since its import.
const heardNever = -1

// importer writes one ticket of an import.
type importer struct {
	s    *Service
	tx   *db.Tx
	of   Import
	done ImportCounts
	ours bool // the ticket came by a connection, and answers left by it
	// authors are the customers of the ticket, by id at the source or address.
	authors map[string]customerRef
}

// ImportTicketTx writes a ticket with its history, in the caller's transaction, with the times of
// the source. What exists already, by its id at the source or the id of the mail, is not written
// again: of a ticket that exists, only the messages and files that it lacks are written. A ticket
// that was deleted here stays deleted.
//
// Nothing leaves: there are no events, no mail, no notices and no SLA clocks, and the messages do not
// count for the day's quota; the files count. Error: the quota of storage, as the transaction ends.
func (s *Service) ImportTicketTx(ctx context.Context, tx *db.Tx, of Import, t ImportedTicket) (ImportCounts, error) {
	w := &importer{s: s, tx: tx, of: of, ours: t.ConnectionID != "", authors: make(map[string]customerRef)}
	if err := tx.Lock(ctx, "desk/import/"+of.OrganizationID); err != nil {
		return ImportCounts{}, err
	}
	id, known, err := w.record(ctx, importedTicket, t.ID)
	if err != nil {
		return ImportCounts{}, err
	}
	var p threadRef
	switch {
	case known:
		p, err = w.existing(ctx, id)
	case t.Joins:
		p, err = w.joined(ctx, &t)
	}
	if err != nil {
		return ImportCounts{}, err
	}
	switch {
	case p.ticket.ID != "":
		w.done.Known++
		return w.done, w.extend(ctx, &p, &t)
	case known:
		w.done.Known++ // deleted here
		return w.done, nil
	}
	return w.done, w.create(ctx, &t)
}

// recordKey returns the stored form of an id at a source. Ids may be mail addresses and Message-IDs,
// which must not outlive the erasure of a person.
func recordKey(organizationID, externalID string) string {
	sum := sha256.Sum256([]byte(organizationID + "\x00" + externalID))
	return hex.EncodeToString(sum[:])
}

// record returns our id of a record of the source.
func (w *importer) record(ctx context.Context, kind, externalID string) (id string, known bool, err error) {
	err = w.tx.QueryRow(ctx, "SELECT record_id FROM import_records WHERE organization_id = $1 AND source = $2 AND kind = $3 AND external_id = $4",
		w.of.OrganizationID, w.of.Source, kind, recordKey(w.of.OrganizationID, externalID)).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look up imported record: %w", err)
	}
	return id, true, nil
}

// insertRecord records that the import wrote a record, unless an import wrote one with the id before.
func (w *importer) insertRecord(ctx context.Context, kind, externalID, id string, incomplete bool) error {
	if err := w.tx.Queue(ctx, `INSERT INTO import_records (organization_id, source, kind, external_id, import_id, record_id, incomplete)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
		w.of.OrganizationID, w.of.Source, kind, recordKey(w.of.OrganizationID, externalID), w.of.ID, id, incomplete); err != nil {
		return fmt.Errorf("write imported record: %w", err)
	}
	return nil
}

// existing locks a ticket that an import wrote, or the one into which it was merged, with its
// first conversation. The ticket is empty if it was deleted.
func (w *importer) existing(ctx context.Context, ticketID string) (threadRef, error) {
	t, err := lockSurvivor(ctx, w.tx, w.of.OrganizationID, ticketID)
	if errors.Is(err, db.ErrNoRows) {
		return threadRef{}, nil
	}
	if err != nil {
		return threadRef{}, fmt.Errorf("load ticket: %w", err)
	}
	p := threadRef{ticket: t}
	err = w.tx.QueryRow(ctx, "SELECT id, customer_id FROM conversations WHERE ticket_id = $1 ORDER BY created_at, id LIMIT 1", t.ID).Scan(&p.conversationID, &p.customerID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return threadRef{}, fmt.Errorf("find conversation: %w", err)
	}
	return p, nil
}

// joined locks the ticket that has one of the mails of t, or one that they answer; empty if there is
// none.
func (w *importer) joined(ctx context.Context, t *ImportedTicket) (threadRef, error) {
	in := &InboundEvent{OrganizationID: w.of.OrganizationID}
	for i := range t.Messages {
		m := &t.Messages[i]
		backwards := append(slices.Clone(m.References), m.MessageID)
		slices.Reverse(backwards)
		ids, err := findMessageIDs(ctx, w.tx, []string{w.of.OrganizationID}, backwards)
		if err != nil {
			return threadRef{}, err
		}
		for _, id := range backwards {
			k, ok := ids.find(id)
			if !ok {
				continue
			}
			p, err := matchThreadByID(ctx, w.tx, in, id, k)
			if errors.Is(err, db.ErrNoRows) {
				continue
			}
			p.customerID = p.ticket.Customer.ID
			return p, err
		}
	}
	return threadRef{}, nil
}

// unknown returns the messages that no import has written, each once, and counts the others.
func (w *importer) unknown(ctx context.Context, list []ImportedMessage) (fresh []ImportedMessage, err error) {
	seen := make(map[string]bool, len(list))
	for i := range list {
		m := &list[i]
		_, known, err := w.record(ctx, importedMessage, m.ID)
		if err != nil {
			return nil, err
		}
		if !known && !seen[m.ID] {
			seen[m.ID] = true
			fresh = append(fresh, *m)
			continue
		}
		w.done.Known++
		if err := w.completeFiles(ctx, m); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// create writes a new ticket, unless all its messages were imported with others.
func (w *importer) create(ctx context.Context, in *ImportedTicket) error {
	fresh, err := w.unknown(ctx, in.Messages)
	if err != nil || len(fresh) == 0 && len(in.Messages) > 0 {
		return err
	}
	in.Messages = fresh
	slices.SortStableFunc(in.Messages, func(a, b ImportedMessage) int { return a.At.Compare(b.At) })
	k, err := w.customers(ctx, in)
	if err != nil {
		return err
	}
	t := Ticket{
		ID: newID(), OrganizationID: w.of.OrganizationID, Subject: cmp.Or(line(in.Subject, maxSubject), "(no subject)"), Status: cmp.Or(in.Status, StatusResolved),
		Priority: cmp.Or(in.Priority, PriorityNormal), Channel: ChannelAPI, Tags: importedTags(in.Tags), Customer: k.Customer,
	}
	if k.Email != "" {
		t.Channel = channelEmail
	}
	t.Channel = cmp.Or(in.Channel, t.Channel)
	if err := w.setTimes(&t, in); err != nil {
		return err
	}
	if in.Assignee != "" {
		agent, ok, err := w.s.directory.AgentByEmail(ctx, w.tx, w.of.OrganizationID, in.Assignee)
		if err != nil {
			return fmt.Errorf("look up assignee: %w", err)
		}
		if ok {
			t.AssigneeID = agent.ID
		}
	}
	if t.ExternalID, err = w.freeExternalID(ctx, in.ExternalID); err != nil {
		return err
	}
	p := threadRef{ticket: t, conversationID: newID(), customerID: k.ID}
	c := Conversation{ID: p.conversationID, TicketID: t.ID, ConnectionID: in.ConnectionID, Channel: t.Channel, CustomerID: k.ID, CreatedAt: t.CreatedAt}
	if t.Channel != channelEmail {
		c.ThreadKey = threadValue(k.Phone)
	} else if len(in.Messages) > 0 {
		c.ThreadKey = boundedKey(in.Messages[0].MessageID)
	}
	if err := insertConversation(ctx, w.tx, &c); err != nil {
		return err
	}
	for i := range in.Messages {
		if err := w.message(ctx, &p, &in.Messages[i], i == 0); err != nil {
			return err
		}
	}
	if err := w.insertTicket(ctx, &p.ticket); err != nil {
		return err
	}
	if in.SLA {
		if err := w.measure(ctx, &p.ticket); err != nil {
			return err
		}
	}
	if len(in.Messages) == 0 {
		if err := w.s.enqueueTicketIndexing(ctx, w.tx, &p.ticket); err != nil {
			return err
		}
	}
	w.done.Tickets++
	return w.insertRecord(ctx, importedTicket, in.ID, t.ID, false)
}

// importedTags returns the tags that can be stored.
func importedTags(tags []string) []string {
	var list []string
	for _, tag := range tags {
		if tag = line(tag, maxTag); tag != "" && len(list) < maxTags {
			list = append(list, tag)
		}
	}
	return tagSet(list)
}

// setTimes sets the times of a new ticket from the source's, none of which is in the future.
func (w *importer) setTimes(t *Ticket, in *ImportedTicket) error {
	past := func(at time.Time) time.Time {
		if at.After(w.tx.Now) {
			at = w.tx.Now
		}
		return at.UTC().Truncate(time.Microsecond)
	}
	t.CreatedAt, t.UpdatedAt = in.CreatedAt, in.UpdatedAt
	for i := range in.Messages {
		m := &in.Messages[i]
		m.At = past(m.At)
		if t.CreatedAt.IsZero() {
			t.CreatedAt = m.At
		}
		if m.At.After(t.UpdatedAt) {
			t.UpdatedAt = m.At
		}
	}
	if t.CreatedAt.Year() < 1970 {
		var v problem.Validation
		v.AddCode("required", "created_at", "must be given")
		return v.Err()
	}
	t.CreatedAt, t.UpdatedAt = past(t.CreatedAt), past(t.UpdatedAt)
	if t.UpdatedAt.Before(t.CreatedAt) {
		t.UpdatedAt = t.CreatedAt
	}
	asked := false // by the customer
	for i := range in.Messages {
		switch m := &in.Messages[i]; {
		case m.Note:
		case !m.Agent:
			asked = true
		case asked && t.FirstRespondedAt.IsZero():
			t.FirstRespondedAt = m.At
		}
	}
	if t.Status == StatusResolved || t.Status == StatusClosed {
		t.ResolvedAt = past(in.ResolvedAt)
		if t.ResolvedAt.Before(t.CreatedAt) {
			t.ResolvedAt = t.UpdatedAt
		}
	}
	if t.Status == StatusClosed {
		t.closedAt = t.ResolvedAt
	}
	return nil
}

// freeExternalID returns an external id, or none if another ticket has it.
func (w *importer) freeExternalID(ctx context.Context, id string) (string, error) {
	if id = line(id, maxExternal); id == "" {
		return "", nil
	}
	var taken bool
	if err := w.tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tickets WHERE organization_id = $1 AND external_id = $2)", w.of.OrganizationID, id).Scan(&taken); err != nil {
		return "", fmt.Errorf("look up external id: %w", err)
	}
	if taken {
		return "", nil
	}
	return id, nil
}

// insertTicket numbers an imported ticket and writes it, without SLA clocks. The number is taken
// last, as by [Service.insertTicket].
func (w *importer) insertTicket(ctx context.Context, t *Ticket) error {
	if err := w.tx.QueryRowInOrder(ctx, t.OrganizationID, `INSERT INTO ticket_numbers (organization_id, last, last_at) VALUES ($1, 1, $2)
		ON CONFLICT (organization_id) DO UPDATE SET last = ticket_numbers.last + 1,
			unordered = ticket_numbers.unordered OR excluded.last_at < ticket_numbers.last_at,
			last_at = CASE WHEN ticket_numbers.last_at < excluded.last_at THEN excluded.last_at ELSE ticket_numbers.last_at END
		RETURNING last`, t.OrganizationID, t.CreatedAt.UnixMicro()).Scan(&t.Number); err != nil {
		return fmt.Errorf("number ticket: %w", err)
	}
	n, err := w.tx.Exec(ctx, `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, assignee_id, tags,
			external_id, created_at, updated_at, first_responded_at, resolved_at, closed_at, heard_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING`,
		t.ID, t.OrganizationID, t.Number, t.Subject, string(t.Status), string(t.Priority), t.Channel, t.Customer.ID, db.Text(t.AssigneeID), t.tagsJSON(),
		db.Text(t.ExternalID), t.CreatedAt.UnixMicro(), t.UpdatedAt.UnixMicro(), db.Time(t.FirstRespondedAt), db.Time(t.ResolvedAt), db.Time(t.closedAt), int64(heardNever))
	if err != nil {
		return fmt.Errorf("write ticket: %w", err)
	}
	if n == 0 {
		return externalIDTaken("ticket")
	}
	if err := insertTags(ctx, w.tx, t, t.Tags); err != nil {
		return err
	}
	// One resolved long ago stays resolved, so that an answer still joins it.
	if t.Status == StatusResolved && t.ResolvedAt.Add(w.s.closeAfter).After(w.tx.Now) {
		return w.s.enqueueClose(ctx, w.tx, t)
	}
	return nil
}

// measure stores the targets of an imported ticket that were met or breached at the source, by the
// present policy of its priority. Targets that are still open have no clock.
func (w *importer) measure(ctx context.Context, t *Ticket) error {
	var id string
	err := w.tx.QueryRow(ctx, "SELECT id FROM sla_policies WHERE organization_id = $1 AND priority = $2 AND replaced_at IS NULL",
		t.OrganizationID, string(t.Priority)).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find SLA policy: %w", err)
	}
	p, err := w.s.slaPolicy(ctx, w.tx, id)
	if err != nil {
		return err
	}
	met := map[Metric]time.Time{FirstResponse: t.FirstRespondedAt, Resolution: t.ResolvedAt}
	for _, metric := range []Metric{FirstResponse, Resolution} {
		if met[metric].IsZero() || p.minutes(metric) == 0 {
			continue
		}
		c := clock{Metric: metric, PolicyID: p.id, Minutes: p.minutes(metric), MetAt: met[metric].UnixMicro()}
		c.start(t.CreatedAt.UnixMicro(), p)
		due := c.DueAt
		c.stop(c.MetAt, p)
		if c.DueAt = due; c.MetAt > due {
			c.BreachedAt = due
		}
		t.clocks = append(t.clocks, c)
	}
	if err := w.tx.Queue(ctx, "UPDATE tickets SET sla = $2 WHERE id = $1", t.ID, t.clocksJSON()); err != nil {
		return fmt.Errorf("write SLA clocks: %w", err)
	}
	return nil
}

// extend writes the messages and files that an existing ticket lacks.
func (w *importer) extend(ctx context.Context, p *threadRef, in *ImportedTicket) error {
	slices.SortStableFunc(in.Messages, func(a, b ImportedMessage) int { return a.At.Compare(b.At) })
	last := p.ticket.UpdatedAt
	for i := range in.Messages {
		m := &in.Messages[i]
		if m.At.After(w.tx.Now) {
			m.At = w.tx.Now
		}
		m.At = m.At.UTC().Truncate(time.Microsecond)
		_, known, err := w.record(ctx, importedMessage, m.ID)
		if err != nil {
			return err
		}
		if !known && m.MessageID != "" {
			ids, err := findMessageIDs(ctx, w.tx, []string{w.of.OrganizationID}, []string{m.MessageID})
			if err != nil {
				return err
			}
			_, known = ids.find(m.MessageID)
		}
		if known {
			w.done.Known++
			if err := w.completeFiles(ctx, m); err != nil {
				return err
			}
			continue
		}
		if p.conversationID == "" {
			c := Conversation{ID: newID(), TicketID: p.ticket.ID, Channel: p.ticket.Channel, CustomerID: p.ticket.Customer.ID, CreatedAt: m.At}
			if err := insertConversation(ctx, w.tx, &c); err != nil {
				return err
			}
			p.conversationID, p.customerID = c.ID, c.CustomerID
		}
		if err := w.message(ctx, p, m, false); err != nil {
			return err
		}
		if m.At.After(last) {
			last = m.At
		}
	}
	if last.Equal(p.ticket.UpdatedAt) {
		return nil
	}
	if err := w.tx.Queue(ctx, "UPDATE tickets SET updated_at = $2 WHERE id = $1", p.ticket.ID, last.UnixMicro()); err != nil {
		return fmt.Errorf("touch ticket: %w", err)
	}
	return nil
}

// customers returns the customer of a ticket, after those of its messages have been found or
// created in the order of their addresses, as concurrent imports and messages expect.
func (w *importer) customers(ctx context.Context, t *ImportedTicket) (customerRef, error) {
	people := []*ImportedPerson{&t.Customer}
	for i := range t.Messages {
		if m := &t.Messages[i]; !m.Agent {
			people = append(people, &m.Author)
		}
	}
	slices.SortStableFunc(people, func(a, b *ImportedPerson) int { return cmp.Compare(emailKey(a.Email), emailKey(b.Email)) })
	for _, p := range people {
		if _, err := w.customer(ctx, p); err != nil {
			return customerRef{}, err
		}
	}
	return w.customer(ctx, &t.Customer)
}

// customer finds or creates the customer of a person, without events.
func (w *importer) customer(ctx context.Context, p *ImportedPerson) (customerRef, error) {
	key := cmp.Or(p.ID, emailKey(p.Email), p.Phone, "name:"+p.Name)
	if k, ok := w.authors[key]; ok {
		return k, nil
	}
	k, err := w.findOrCreate(ctx, key, p)
	if err != nil {
		return customerRef{}, err
	}
	w.authors[key] = k
	return k, nil
}

func (w *importer) findOrCreate(ctx context.Context, key string, p *ImportedPerson) (customerRef, error) {
	id, known, err := w.record(ctx, importedCustomer, key)
	if err != nil {
		return customerRef{}, err
	}
	if known {
		k, err := lockSurvivingCustomer(ctx, w.tx, w.of.OrganizationID, id)
		if err == nil {
			return k, nil
		}
		if !errors.Is(err, db.ErrNoRows) {
			return customerRef{}, fmt.Errorf("load customer: %w", err)
		}
	}
	party := normalizeParty(channel.Party{Name: p.Name, Email: p.Email, Phone: p.Phone})
	k, err := w.s.findOrCreateCustomer(ctx, w.tx, &InboundEvent{OrganizationID: w.of.OrganizationID, Channel: ChannelAPI}, party)
	if err != nil {
		return customerRef{}, err
	}
	for _, e := range k.events {
		if e.Name == event.CustomerUpdated {
			if err := w.s.enqueueFacts(ctx, w.tx, w.of.OrganizationID, "", k.ID); err != nil {
				return customerRef{}, err
			}
			continue
		}
		w.done.Customers++
		if err := w.s.enqueueCustomer(ctx, w.tx, w.of.OrganizationID, k.ID); err != nil {
			return customerRef{}, err
		}
		if at := p.CreatedAt; at.Year() >= 1970 && at.Before(w.tx.Now) {
			if err := w.tx.Queue(ctx, "UPDATE customers SET created_at = $2 WHERE id = $1", k.ID, at.UnixMicro()); err != nil {
				return customerRef{}, fmt.Errorf("date customer: %w", err)
			}
		}
		if known { // deleted here, and created anew
			if err := w.tx.Queue(ctx, "DELETE FROM import_records WHERE organization_id = $1 AND source = $2 AND kind = $3 AND external_id = $4",
				w.of.OrganizationID, w.of.Source, importedCustomer, recordKey(w.of.OrganizationID, key)); err != nil {
				return customerRef{}, fmt.Errorf("forget customer: %w", err)
			}
		}
		if err := w.insertRecord(ctx, importedCustomer, key, k.ID, false); err != nil {
			return customerRef{}, err
		}
	}
	k.events = nil
	return k, nil
}

// message writes a message of a ticket.
func (w *importer) message(ctx context.Context, p *threadRef, in *ImportedMessage, first bool) error {
	m := Message{
		ID: newID(), TicketID: p.ticket.ID, ConversationID: p.conversationID, Channel: p.ticket.Channel, Kind: KindReply, PlacedBy: RuleThreadKey,
		Text: clean(in.Text), HTML: w.s.sanitizer.Sanitize(clean(in.HTML)), ExternalID: boundedKey(in.MessageID), CreatedAt: in.At,
		Details: Details{
			Subject: line(in.Subject, maxSubject), Sender: emailKey(in.Author.Email), To: addresses(in.To), Cc: addresses(in.Cc),
			References: boundReferences(in.References), NoAutoAnswer: true, Collapsed: in.Automatic,
		},
	}
	if in.Stripped != in.Text {
		m.Stripped = clean(in.Stripped)
	}
	switch {
	case first:
		m.PlacedBy = RuleNone
	case len(in.References) > 0:
		m.PlacedBy = RuleReference
	}
	if in.Note || in.Automatic {
		m.Kind = KindNote
	}
	if err := w.setAuthor(ctx, &m, in); err != nil {
		return err
	}
	files := w.attach(&m, in)
	fresh, err := w.s.insertMessage(ctx, w.tx, w.of.OrganizationID, &m)
	if err != nil {
		return err
	}
	if !fresh { // the conversation has the mail
		w.done.Known++
		return nil
	}
	if err := w.s.insertAttachments(ctx, w.tx, w.of.OrganizationID, &m, quota.Enforced); err != nil {
		return err
	}
	for i, f := range files {
		if err := w.insertRecord(ctx, importedFile, f.ID, m.Attachments[i].ID, m.Attachments[i].BlobKey == ""); err != nil {
			return err
		}
		w.done.Files++
	}
	if err := insertID(ctx, w.tx, w.of.OrganizationID, in.MessageID, &m); err != nil {
		return err
	}
	if err := w.participants(ctx, p, in); err != nil {
		return err
	}
	if m.Kind == KindNote {
		w.done.Notes++
	} else {
		w.done.Messages++
	}
	return w.insertRecord(ctx, importedMessage, in.ID, m.ID, false)
}

// setAuthor sets the author and the direction of a message.
func (w *importer) setAuthor(ctx context.Context, m *Message, in *ImportedMessage) error {
	if !in.Agent {
		k, err := w.customer(ctx, &in.Author)
		if err != nil {
			return err
		}
		m.Direction, m.Author = DirectionInbound, event.Author{Type: AuthorCustomer, ID: k.ID, Name: cmp.Or(k.Name, line(in.Author.Name, maxName))}
		if in.Author.Email != "" && !in.Automatic {
			m.Details.Recipient = &Address{Name: line(in.Author.Name, maxName), Email: line(in.Author.Email, maxKey)}
		}
		return nil
	}
	m.Direction, m.Author = DirectionOutbound, event.Author{Type: AuthorAgent, Name: line(cmp.Or(in.Author.Name, in.Author.Email), maxName)}
	if in.Author.Email != "" {
		agent, ok, err := w.s.directory.AgentByEmail(ctx, w.tx, w.of.OrganizationID, in.Author.Email)
		if err != nil {
			return fmt.Errorf("look up author: %w", err)
		}
		if ok {
			m.Author.ID, m.Author.Name = agent.ID, agent.Name
		}
	}
	if m.Kind == KindReply {
		m.Delivery.State, m.Details.SentElsewhere, m.SentAt = channel.ReceiptSent, !w.ours, in.At
	}
	return nil
}

// attach adds the files of a message, and returns them in the order of its attachments.
func (w *importer) attach(m *Message, in *ImportedMessage) []ImportedFile {
	m.Attachments = []Attachment{}
	from, files := make([]channel.Attachment, len(in.Files)), make([]blob.Ref, len(in.Files))
	for i, f := range in.Files {
		from[i] = channel.Attachment{Name: f.Name, ContentType: f.ContentType, ContentID: f.ContentID, Inline: f.Inline, Error: f.Error}
		files[i] = f.Ref
	}
	w.s.attach(m, from, files, nil)
	return in.Files
}

// participants adds the people of a mail beside the ticket's customer. They get no copies until an
// agent selects them.
func (w *importer) participants(ctx context.Context, p *threadRef, in *ImportedMessage) error {
	if in.Note || in.MessageID == "" {
		return nil
	}
	customer := emailKey(p.ticket.Customer.Email)
	list := slices.Concat(in.To, in.Cc)
	if !in.Agent {
		list = append(list, channel.Party{Name: in.Author.Name, Email: in.Author.Email})
	}
	for i, who := range list[:min(len(list), maxIDs)] {
		key := emailKey(who.Email)
		if key == "" || key == customer {
			continue
		}
		_, isAgent, own, err := w.s.resolveAddress(ctx, w.tx, w.of.OrganizationID, who.Email)
		if err != nil {
			return err
		}
		if isAgent || own {
			continue
		}
		role := "recipient"
		if i == len(list)-1 && !in.Agent {
			role = "sender"
		}
		if _, err := insertParticipant(ctx, w.tx, p, participant{email: key, name: line(who.Name, maxName), role: role, unconfirmed: true}); err != nil {
			return err
		}
	}
	return nil
}

// completeFiles stores the content of files that an earlier run could not read.
func (w *importer) completeFiles(ctx context.Context, m *ImportedMessage) error {
	for _, f := range m.Files {
		if f.Key == "" {
			continue
		}
		var id string
		err := w.tx.QueryRow(ctx, `UPDATE import_records SET incomplete = FALSE
			WHERE organization_id = $1 AND source = $2 AND kind = $3 AND external_id = $4 AND incomplete RETURNING record_id`,
			w.of.OrganizationID, w.of.Source, importedFile, recordKey(w.of.OrganizationID, f.ID)).Scan(&id)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("complete imported file: %w", err)
		}
		counts, err := w.s.quotas.Counts(ctx, w.tx, w.of.OrganizationID, quota.Storage)
		if err != nil {
			return err
		}
		n, err := w.tx.Exec(ctx, "UPDATE attachments SET blob_key = $2, size = $3, error = NULL, counted = $4 WHERE id = $1 AND blob_key IS NULL", id, f.Key, f.Size, counts)
		if err != nil {
			return fmt.Errorf("complete attachment: %w", err)
		}
		if n == 1 {
			w.done.Files++
			if counts {
				w.s.quotas.AddStorageTx(ctx, w.tx, w.of.OrganizationID, f.Size, quota.Enforced)
			}
		}
	}
	return nil
}

// OwnAddress reports whether a mail address is a member's or a channel address of the organization,
// and returns the member.
func (s *Service) OwnAddress(ctx context.Context, q db.Querier, organizationID, address string) (member event.Person, own bool, err error) {
	member, isMember, own, err := s.resolveAddress(ctx, q, organizationID, strings.TrimSpace(address))
	return member, isMember || own, err
}

// ImportedIDs returns which of the ids at a source have been imported, for the kinds ticket and file.
// A file without content has not.
func (s *Service) ImportedIDs(ctx context.Context, q db.Querier, organizationID, source, kind string, ids []string) (map[string]bool, error) {
	keys := make(map[string]string, len(ids))
	folded := make([]string, len(ids))
	for i, id := range ids {
		folded[i] = recordKey(organizationID, id)
		keys[folded[i]] = id
	}
	list, err := db.All(ctx, q, scanText, "SELECT external_id FROM import_records WHERE organization_id = $1 AND source = $2 AND kind = $3 AND external_id = ANY($4) AND NOT incomplete",
		organizationID, source, kind, folded)
	if err != nil {
		return nil, fmt.Errorf("look up imported records: %w", err)
	}
	known := make(map[string]bool, len(list))
	for _, key := range list {
		known[keys[key]] = true
	}
	return known, nil
}
