package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// Query filters the deliveries of [Service.Search]. Zero fields match all.
type Query struct {
	WebhookID    string
	Events       []event.Name
	EventID      string
	TicketID     string // of the event's ticket
	TicketNumber int64
	States       []DeliveryState
	From, To     time.Time // creation time from From, before To
	Before       string    // Next of the previous page
	Limit        int       // up to [MaxPage]; 0 means 50
}

// Page is a page of search results.
type Page struct {
	Deliveries []Delivery // newest first
	// Next continues the search; empty at its end. Even a short or empty page may have a Next:
	// each page reads at most a few thousand deliveries, matching or not.
	Next string
}

// MaxPage bounds the deliveries of a page.
const MaxPage = 500

const (
	defaultPage = 50
	// maxScan bounds the deliveries read for one page.
	maxScan = 5000
	// maxTicketEvents bounds the events of a ticket that are looked up by event. For
	// tickets with more, all deliveries are scanned.
	maxTicketEvents = 1000
	firstChunk      = 8 // deliveries read at once
	maxChunk        = 512
)

// candidate is the part of a delivery that a search filters by.
type candidate struct {
	id, webhookID, eventID string
	event                  event.Name
	state                  DeliveryState
	test                   bool
	created                time.Time
	elsewhere              bool // of another ticket than the filter's
}

const selectCandidate = "SELECT id, webhook_id, event_id, event, state, is_test, created_at FROM deliveries"

func scanCandidate(row db.Row) (c candidate, err error) {
	var test int64
	err = row.Scan(&c.id, &c.webhookID, &c.eventID, &c.event, &c.state, &test, db.IntoTime(&c.created))
	c.test = test != 0
	return c, err
}

// Search finds deliveries of all webhooks of an organization, newest first. Its cost depends on
// the size of the page, not on the number of deliveries.
func (s *Service) Search(ctx context.Context, organizationID string, q Query) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	var page Page
	err := s.read(ctx, func(tx *db.Tx) (err error) {
		page, err = searchIn(ctx, tx, organizationID, q)
		return err
	})
	if err != nil {
		return Page{}, fmt.Errorf("search deliveries: %w", err)
	}
	return page, nil
}

// Each calls fn with every delivery that matches q, newest first, from one snapshot. It ignores
// q's Before and Limit. It returns the first error of fn. It runs for at most
// [keyset.MaxExport].
func (s *Service) Each(ctx context.Context, organizationID string, q Query, fn func(*Delivery) error) error {
	q.Before, q.Limit = "", MaxPage
	if err := q.check(); err != nil {
		return err
	}
	return keyset.Export(ctx, s.db, func(ctx context.Context, tx *db.Tx) error {
		if err := s.byIndexes(ctx, tx); err != nil {
			return err
		}
		return keyset.EachPage("deliveries", fn, func(before string) ([]Delivery, string, error) {
			q.Before = before
			page, err := searchIn(ctx, tx, organizationID, q)
			return page.Deliveries, page.Next, err
		})
	})
}

func searchIn(ctx context.Context, tx *db.Tx, organizationID string, q Query) (Page, error) {
	se := search{tx: tx, query: q, upper: "~", lower: ""} // before and after every id
	if err := se.open(ctx, organizationID); err != nil {
		return Page{}, err
	}
	found, next, err := se.merge(ctx)
	if err != nil {
		return Page{}, err
	}
	deliveries, err := load(ctx, tx, found)
	return Page{deliveries, next}, err
}

func (q *Query) check() error {
	var v problem.Validation
	for _, name := range q.Events {
		checkEvent(&v, name)
	}
	if q.TicketID != "" && q.TicketNumber != 0 {
		v.Add("ticketNumber", "must not be combined with ticketId")
	}
	if q.TicketNumber < 0 {
		v.Add("ticketNumber", "must be positive")
	}
	for i, state := range q.States {
		if state < Pending || state > Dropped {
			v.Add(fmt.Sprintf("states.%d", i), "is not the state of a delivery")
		}
	}
	if !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To) {
		v.Add("to", "must be after from")
	}
	if q.Before != "" && (uuid.Validate(q.Before) != nil || len(q.Before) != 36) {
		v.Add("before", "is not the end of a page")
	}
	if q.Limit < 0 || q.Limit > MaxPage {
		v.Add("limit", "must be from 1 to %d", MaxPage)
	}
	return v.Err()
}

func checkEvent(v *problem.Validation, name event.Name) {
	if name != "" && !isEvent(name) {
		v.Add("event", "is not the name of an event")
	}
}

// read runs fn on a snapshot.
func (s *Service) read(ctx context.Context, fn func(tx *db.Tx) error) error {
	return s.db.Read(ctx, func(tx *db.Tx) error {
		if err := s.byIndexes(ctx, tx); err != nil {
			return err
		}
		return fn(tx)
	})
}

// byIndexes makes PostgreSQL use indexes in their order: it may have cached plans from when a
// table was almost empty.
func (s *Service) byIndexes(ctx context.Context, tx *db.Tx) error {
	if !s.db.Postgres() {
		return nil
	}
	_, err := tx.Exec(ctx, "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)")
	return err
}

// search merges sources of candidates, each in descending order of id.
type search struct {
	tx           *db.Tx
	query        Query
	upper, lower string // exclusive bounds of ids
	ticket       string // filter of candidates; empty if all sources match it
	webhooks     map[string]bool
	sources      []*source
}

// source is the deliveries of a webhook, or a list of keys.
type source struct {
	query     string      // for the next chunk
	webhookID string      // of query
	before    string      // where the next chunk starts
	keys      []key       // instead of query: not read yet
	chunk     []candidate // read and not merged yet
	size      int         // of the next chunk
	head      string      // upper bound of the ids not merged yet
	end       bool        // all is read
}

// key is the primary key of a delivery.
type key struct{ id, webhookID string }

// The parts in which the deliveries of a webhook are scanned: all of them, or one of the rare
// states. The seemingly redundant conditions select the partial index.
const everything DeliveryState = -1

func condition(part DeliveryState) string {
	switch {
	case part == everything:
		return "TRUE"
	case part < Delivered:
		return fmt.Sprintf("state < 2 AND state = %d", int64(part))
	default:
		return fmt.Sprintf("state > 2 AND state = %d", int64(part))
	}
}

// sqlHeads finds the newest delivery of each of the webhooks $1 between two ids.
func sqlHeads(where string) string {
	return `SELECT w.value, (SELECT max(id) FROM deliveries WHERE webhook_id = w.value AND ` + where + ` AND id < $2 AND id > $3)
		FROM unnest($1::text[]) AS w(value)`
}

// sqlChunk reads the next deliveries of a webhook.
func sqlChunk(where string) string {
	return selectCandidate + " WHERE webhook_id = $1 AND " + where + " AND id < $2 AND id > $3 ORDER BY id DESC LIMIT $4"
}

// sqlKeys finds the newest deliveries of events.
const sqlKeys = "SELECT id, webhook_id FROM deliveries WHERE event_id = ANY($1) AND id < $2 AND id > $3 ORDER BY id DESC LIMIT $4"

// sqlTicketEvents selects the newest rows of events of a ticket; see [ticketIDs].
const sqlTicketEvents = "SELECT id, coalesce(members, '') FROM events WHERE ticket_id = $1 ORDER BY id DESC LIMIT $2"

// sqlOfTicket selects the rows of events of a ticket among given ones. The ticket is wrapped in
// coalesce so that PostgreSQL does not scan all events of the ticket.
const sqlOfTicket = "SELECT id, coalesce(members, '') FROM events WHERE id = ANY($1) AND coalesce(ticket_id, '') = $2"

// ticketIDs returns the ids of the events about a ticket in rows that a statement selects.
func ticketIDs(ctx context.Context, tx *db.Tx, query string, args ...any) ([]string, error) {
	rows, err := db.All(ctx, tx, func(row db.Row) ([]string, error) {
		var id, members string
		err := row.Scan(&id, &members)
		return event.IDs(id, members, "t"), err
	}, query, args...)
	return slices.Concat(rows...), err
}

func scanText(row db.Row) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// open selects the sources.
func (se *search) open(ctx context.Context, organizationID string) error {
	q := &se.query
	ids, err := db.All(ctx, se.tx, scanText, "SELECT id FROM webhooks WHERE organization_id = $1", organizationID)
	if err != nil {
		return err
	}
	if q.WebhookID != "" {
		if !slices.Contains(ids, q.WebhookID) {
			return errNotFound()
		}
		ids = []string{q.WebhookID}
	}
	se.webhooks = make(map[string]bool, len(ids))
	for _, id := range ids {
		se.webhooks[id] = true
	}
	if !q.From.IsZero() {
		se.lower = idAt(q.From.Add(-clockSlack))
	}
	if !q.To.IsZero() {
		se.upper = idAt(q.To.Add(clockSlack))
	}
	if q.Before != "" {
		se.upper = min(se.upper, q.Before)
	}
	if se.ticket, err = se.findTicket(ctx, organizationID); err != nil {
		return err
	}
	if q.EventID != "" { // fill applies the ticket filter of an event's deliveries
		return se.openEvents(ctx, []string{q.EventID})
	}
	if se.ticket != "" {
		events, err := ticketIDs(ctx, se.tx, sqlTicketEvents, se.ticket, maxTicketEvents+1)
		if err != nil {
			return err
		}
		if len(events) <= maxTicketEvents {
			se.ticket = ""
			return se.openEvents(ctx, events)
		}
	}
	parts := []DeliveryState{everything}
	if len(q.States) > 0 && !slices.Contains(q.States, Delivered) {
		parts = slices.Compact(slices.Sorted(slices.Values(q.States)))
	}
	for _, part := range parts {
		if err := se.openPart(ctx, ids, condition(part)); err != nil {
			return err
		}
	}
	return nil
}

// findTicket returns the id of the filter's ticket. The desk assigns numbers; everything else
// about tickets is read from events.
func (se *search) findTicket(ctx context.Context, organizationID string) (string, error) {
	if se.query.TicketNumber == 0 {
		return se.query.TicketID, nil
	}
	var id string
	err := se.tx.QueryRow(ctx, "SELECT id FROM tickets WHERE organization_id = $1 AND number = $2", organizationID, se.query.TicketNumber).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return "", problem.New(problem.NotFound, "there is no ticket #%d", se.query.TicketNumber)
	}
	return id, err
}

func (se *search) openEvents(ctx context.Context, events []string) error {
	if len(events) == 0 {
		return nil
	}
	keys, err := db.All(ctx, se.tx, func(row db.Row) (k key, err error) {
		err = row.Scan(&k.id, &k.webhookID)
		return k, err
	}, sqlKeys, events, se.upper, se.lower, maxScan+1)
	if err != nil || len(keys) == 0 {
		return err
	}
	se.sources = append(se.sources, &source{keys: keys, head: keys[0].id, size: maxChunk})
	return nil
}

func (se *search) openPart(ctx context.Context, webhooks []string, where string) error {
	type head struct {
		webhookID string
		id        *string
	}
	heads, err := db.All(ctx, se.tx, func(row db.Row) (h head, err error) {
		err = row.Scan(&h.webhookID, &h.id)
		return h, err
	}, sqlHeads(where), webhooks, se.upper, se.lower)
	if err != nil {
		return err
	}
	for _, h := range heads {
		if h.id != nil {
			se.sources = append(se.sources, &source{query: sqlChunk(where), webhookID: h.webhookID, before: se.upper, head: *h.id, size: firstChunk})
		}
	}
	return nil
}

// merge examines candidates, newest first, until the page is full, the sources are exhausted,
// or the scan budget is spent.
func (se *search) merge(ctx context.Context) (found []candidate, next string, err error) {
	if len(se.sources) == 1 {
		se.sources[0].size = min(max(se.sources[0].size, se.query.Limit+1), maxChunk)
	}
	last := ""
	for range maxScan {
		c, ok, err := se.next(ctx)
		if err != nil || !ok {
			return found, "", err
		}
		if se.matches(&c) {
			if len(found) == se.query.Limit {
				return found, last, nil
			}
			found = append(found, c)
		}
		last = c.id
	}
	return found, last, nil
}

// next returns the newest candidate not examined yet.
func (se *search) next(ctx context.Context) (c candidate, ok bool, err error) {
	for len(se.sources) > 0 {
		newest := slices.MaxFunc(se.sources, func(a, b *source) int { return cmp.Compare(a.head, b.head) })
		if len(newest.chunk) > 0 {
			c, newest.chunk = newest.chunk[0], newest.chunk[1:]
			newest.before, newest.head = c.id, c.id
			if len(newest.chunk) > 0 {
				newest.head = newest.chunk[0].id
			}
			return c, true, nil
		}
		if err := se.fill(ctx, newest); err != nil {
			return c, false, err
		}
		if len(newest.chunk) == 0 {
			se.sources = slices.DeleteFunc(se.sources, func(s *source) bool { return s == newest })
		} else {
			newest.head = newest.chunk[0].id
		}
	}
	return c, false, nil
}

// fill reads the next chunk of a source. An empty chunk means its end.
func (se *search) fill(ctx context.Context, s *source) (err error) {
	switch {
	case s.end:
		return nil
	case s.query == "":
		n := min(s.size, len(s.keys))
		s.chunk, err = candidates(ctx, se.tx, s.keys[:n])
		s.keys = s.keys[n:]
		s.end = len(s.keys) == 0
	default:
		s.chunk, err = db.All(ctx, se.tx, scanCandidate, s.query, s.webhookID, s.before, se.lower, s.size)
		s.end = len(s.chunk) < s.size
	}
	s.size = min(2*s.size, maxChunk)
	if err != nil || se.ticket == "" {
		return err
	}
	events := make([]string, len(s.chunk))
	for i, c := range s.chunk {
		events[i] = c.eventID
	}
	ours, err := ticketIDs(ctx, se.tx, sqlOfTicket, event.WithRows(events), se.ticket)
	for i := range s.chunk {
		s.chunk[i].elsewhere = !slices.Contains(ours, s.chunk[i].eventID)
	}
	return err
}

// matches reports whether a candidate matches the query.
func (se *search) matches(c *candidate) bool {
	q := &se.query
	return se.webhooks[c.webhookID] && !c.elsewhere &&
		(len(q.Events) == 0 || slices.Contains(q.Events, c.event)) &&
		(len(q.States) == 0 || slices.Contains(q.States, c.state)) &&
		(q.From.IsZero() || !c.created.Before(q.From)) &&
		(q.To.IsZero() || c.created.Before(q.To))
}

// byWebhook calls fn with the keys of each webhook.
func byWebhook(keys []key, fn func(webhookID string, ids []string) error) error {
	ids := make(map[string][]string)
	for _, k := range keys {
		ids[k.webhookID] = append(ids[k.webhookID], k.id)
	}
	for _, webhookID := range slices.Sorted(maps.Keys(ids)) {
		if err := fn(webhookID, ids[webhookID]); err != nil {
			return err
		}
	}
	return nil
}

// candidates reads the candidates with the given keys, newest first.
func candidates(ctx context.Context, q db.Querier, keys []key) (out []candidate, err error) {
	err = byWebhook(keys, func(webhookID string, ids []string) error {
		some, err := db.All(ctx, q, scanCandidate, selectCandidate+" WHERE webhook_id = $1 AND id = ANY($2)", webhookID, ids)
		out = append(out, some...)
		return err
	})
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Compare(b.id, a.id) })
	return out, err
}

// load reads the deliveries of candidates, newest first.
func load(ctx context.Context, q db.Querier, found []candidate) (out []Delivery, err error) {
	keys := make([]key, len(found))
	for i, c := range found {
		keys[i] = key{c.id, c.webhookID}
	}
	err = byWebhook(keys, func(webhookID string, ids []string) error {
		some, err := db.All(ctx, q, scanDelivery, selectDelivery+" WHERE d.webhook_id = $1 AND d.id = ANY($2)", webhookID, ids)
		out = append(out, some...)
		return err
	})
	slices.SortFunc(out, func(a, b Delivery) int { return cmp.Compare(b.ID, a.ID) })
	return out, err
}
