package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/textwords"
)

// Indexing is asynchronous: indexing each message in its own transaction would cost
// more than all its other writes. A message adds a row to search_pending in its
// transaction; [Service.Run] indexes pending rows in batches and deletes each row
// in the transaction that indexes it. So no message is missed, in whichever order
// transactions commit.

const (
	// indexPause is the time to wait for more messages of a batch.
	indexPause = 300 * time.Millisecond
	// indexPoll is the interval of polling for messages of other processes.
	indexPoll = time.Second
	// indexBatch bounds the rows of one transaction.
	indexBatch = 300
)

// enqueueMessageIndexing enqueues a new message for indexing.
func (s *Service) enqueueMessageIndexing(ctx context.Context, tx *db.Tx, organizationID string, m *Message) error {
	if slices.ContainsFunc(m.Attachments, func(a Attachment) bool { return !a.Inline }) {
		if err := s.enqueueFacts(ctx, tx, organizationID, m.TicketID, ""); err != nil {
			return err
		}
	}
	return s.enqueueIndexing(ctx, tx, m.TicketID, m.ID, nil, nil)
}

// enqueueTicketIndexing enqueues a ticket with all its messages: after a change of
// its subject or its set of messages, and after deletion.
func (s *Service) enqueueTicketIndexing(ctx context.Context, tx *db.Tx, t *Ticket) error {
	return s.enqueueIndexing(ctx, tx, t.ID, "", t.OrganizationID, t.Number)
}

func (s *Service) enqueueIndexing(ctx context.Context, tx *db.Tx, ticketID, messageID string, organizationID, number any) error {
	if err := tx.Queue(ctx, "INSERT INTO search_pending (id, ticket_id, message_id, organization_id, number) VALUES ($1, $2, $3, $4, $5)",
		newID(), ticketID, db.Text(messageID), organizationID, number); err != nil {
		return fmt.Errorf("enqueue indexing: %w", err)
	}
	s.wakeIndexer(tx)
	return nil
}

// wakeIndexer wakes the indexer after the commit.
func (s *Service) wakeIndexer(tx *db.Tx) {
	tx.AfterCommit(func() {
		select {
		case s.indexNeeded <- struct{}{}:
		default:
		}
	})
}

// Run indexes pending messages until ctx ends, after [Service.ReconcileCustomers]. It may run in
// several processes; one works at a time.
func (s *Service) Run(ctx context.Context) {
	poll := time.NewTicker(indexPoll)
	defer poll.Stop()
	trouble := loop.NewTrouble(s.log, "indexing messages")
	reconciled := false
	for {
		var n int
		var err error
		if !reconciled {
			err = s.ReconcileCustomers(ctx)
			reconciled = err == nil
		}
		if err == nil {
			n, err = s.Index(ctx)
		}
		if ctx.Err() == nil {
			trouble.Observe(ctx, err)
		}
		if n >= indexBatch && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-s.indexNeeded:
			select {
			case <-ctx.Done():
				return
			case <-time.After(indexPause):
			}
		}
	}
}

// pendingEntry is a row of search_pending.
type pendingEntry struct {
	id, ticketID, messageID string
	organizationID          string // set for whole tickets
	number                  int64
}

// Index indexes a batch of pending rows of each kind, and returns the greater number; 0 if none are
// left.
func (s *Service) Index(ctx context.Context) (int, error) {
	var none bool
	if err := s.db.QueryRow(ctx, "SELECT NOT EXISTS (SELECT 1 FROM search_pending) AND NOT EXISTS (SELECT 1 FROM facts_pending)").Scan(&none); err != nil || none {
		return 0, err
	}
	n := 0
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		n = 0
		if ok, err := tx.TryLock(ctx, "search"); err != nil || !ok {
			return err
		}
		x := indexer{ctx: ctx, tx: tx, postgres: s.db.Postgres(), codes: make(map[string]int64), done: make(map[string]bool)}
		entries, err := x.dequeue()
		if err != nil {
			return err
		}
		if err := x.index(entries); err != nil {
			return err
		}
		facts, err := x.facts()
		n = max(len(entries), facts)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("index: %w", err)
	}
	return n, nil
}

// dequeue deletes and returns the next rows of search_pending.
func (x *indexer) dequeue() ([]pendingEntry, error) {
	entries, err := db.All(x.ctx, x.tx, func(row db.Row) (e pendingEntry, err error) {
		err = row.Scan(&e.id, &e.ticketID, db.IntoText(&e.messageID), db.IntoText(&e.organizationID), &e.number)
		return e, err
	}, "SELECT id, ticket_id, message_id, organization_id, coalesce(number, 0) FROM search_pending ORDER BY id LIMIT "+strconv.Itoa(indexBatch))
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.id
	}
	_, err = x.tx.Exec(x.ctx, "DELETE FROM search_pending WHERE id = ANY($1)", ids)
	return entries, err
}

// indexer indexes the rows of one transaction.
type indexer struct {
	ctx      context.Context
	tx       *db.Tx
	postgres bool
	codes    map[string]int64 // of organizations
	done     map[string]bool  // tickets indexed with all their messages
}

func (x *indexer) index(entries []pendingEntry) error {
	for _, e := range entries {
		if e.messageID == "" && !x.done[e.ticketID] {
			x.done[e.ticketID] = true
			if err := x.ticket(e); err != nil {
				return err
			}
		}
	}
	for _, e := range entries {
		if e.messageID != "" && !x.done[e.ticketID] {
			if err := x.message(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// code returns the code of an organization, and assigns one if it has none.
func (x *indexer) code(organizationID string) (int64, error) {
	if code := x.codes[organizationID]; code != 0 {
		return code, nil
	}
	if _, err := x.tx.Exec(x.ctx, `INSERT INTO search_organizations (organization_id, code)
		SELECT $1, coalesce(max(code), 0) + 1 FROM search_organizations WHERE TRUE ON CONFLICT DO NOTHING`, organizationID); err != nil {
		return 0, err
	}
	code, err := searchCode(x.ctx, x.tx, organizationID)
	if code > maxCode {
		return 0, errors.New("too many organizations for the search index")
	}
	x.codes[organizationID] = code
	return code, err
}

// ticket indexes a whole ticket, or removes a deleted one from the index.
func (x *indexer) ticket(e pendingEntry) error {
	code, err := x.code(e.organizationID)
	if err != nil {
		return err
	}
	first, last := documentRange(code, e.number, e.number)
	if err := x.remove(first, last); err != nil {
		return err
	}
	err = x.insertFacts(code, first, e.ticketID)
	type text struct{ id, body string }
	for after, doc := "", first+1; err == nil; {
		var texts []text
		texts, err = db.All(x.ctx, x.tx, func(row db.Row) (t text, err error) {
			err = row.Scan(&t.id, &t.body)
			return t, err
		}, "SELECT id, body FROM messages WHERE ticket_id = $1 AND id > $2 ORDER BY id LIMIT 100", e.ticketID, after)
		if err != nil || len(texts) == 0 {
			break
		}
		for _, t := range texts {
			if doc > last {
				return nil // beyond the documents of one ticket
			}
			if err := x.insert(code, doc, t.body); err != nil {
				return err
			}
			after = t.id
			doc++
		}
	}
	return err
}

// remove removes documents.
func (x *indexer) remove(first, last int64) error {
	if !x.postgres {
		if _, err := x.tx.Exec(x.ctx, "DELETE FROM ticket_words WHERE rowid IN (SELECT doc FROM search_docs WHERE doc >= $1 AND doc <= $2)", first, last); err != nil {
			return err
		}
	}
	_, err := x.tx.Exec(x.ctx, "DELETE FROM search_docs WHERE doc >= $1 AND doc <= $2", first, last)
	return err
}

// message indexes a message, and the ticket's facts with the first one.
func (x *indexer) message(e pendingEntry) error {
	var organizationID, body string
	var number int64
	err := x.tx.QueryRow(x.ctx, `SELECT t.organization_id, t.number, m.body FROM messages m
		JOIN tickets t ON t.id = m.ticket_id WHERE m.ticket_id = $1 AND m.id = $2`, e.ticketID, e.messageID).
		Scan(&organizationID, &number, &body)
	if errors.Is(err, db.ErrNoRows) {
		return nil // deleted, or moved, which indexes its ticket again
	}
	if err != nil {
		return err
	}
	code, err := x.code(organizationID)
	if err != nil {
		return err
	}
	first, last := documentRange(code, number, number)
	doc := int64(-1) // the last one; -1: none
	if err := x.tx.QueryRow(x.ctx, "SELECT coalesce(max(doc), -1) FROM search_docs WHERE doc >= $1 AND doc <= $2", first, last).Scan(&doc); err != nil {
		return err
	}
	if doc < 0 {
		doc = first
		if err := x.insertFacts(code, doc, e.ticketID); err != nil {
			return err
		}
	}
	if doc == last {
		return nil
	}
	return x.insert(code, doc+1, body)
}

// insert writes a document.
func (x *indexer) insert(code, doc int64, text string) error {
	return x.insertWords(doc, indexText(x.postgres, code, text))
}

// insertWords writes a document with words in their stored form.
func (x *indexer) insertWords(doc int64, words string) error {
	if x.postgres {
		_, err := x.tx.Exec(x.ctx, "INSERT INTO search_docs (doc, words) VALUES ($1, $2::tsvector)", doc, words)
		return err
	}
	if _, err := x.tx.Exec(x.ctx, "INSERT INTO search_docs (doc) VALUES ($1)", doc); err != nil {
		return err
	}
	_, err := x.tx.Exec(x.ctx, "INSERT INTO ticket_words (rowid, words) VALUES ($1, $2)", doc, words)
	return err
}

// indexText returns the stored form of a text: on SQLite the words joined by
// spaces, on PostgreSQL a tsvector with positions.
func indexText(postgres bool, code int64, text string) string {
	words, prefix := textwords.Split(text), codePrefix(code)
	for i, w := range words {
		words[i] = prefix + w
	}
	if !postgres {
		return strings.Join(words, " ")
	}
	places := make(map[string][]string, len(words))
	var order []string
	for i, w := range words {
		if places[w] == nil {
			order = append(order, w)
		}
		places[w] = append(places[w], strconv.Itoa(i+1))
	}
	slices.Sort(order)
	var b strings.Builder
	for _, w := range order {
		b.WriteString("'" + w + "':" + strings.Join(places[w][:min(len(places[w]), maxPlaces)], ",") + " ")
	}
	return b.String()
}

// maxPlaces is PostgreSQL's limit of positions per word.
const maxPlaces = 255
