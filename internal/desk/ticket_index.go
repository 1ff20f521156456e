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
)

// What is written is not indexed at once: with every single message that would
// cost more than all else that is written for it. A message leaves an entry in
// search_pending, in its transaction, and [Service.Run] indexes what is pending,
// many messages at a time. An entry is deleted in the transaction that does what
// it asks for. So nothing is passed over, in whichever order transactions end.

const (
	// indexPause is how long what was written waits for more to be indexed with it.
	indexPause = 300 * time.Millisecond
	// indexPoll is how often it is looked for what other processes wrote.
	indexPoll = time.Second
	// indexBatch bounds the entries that one transaction takes.
	indexBatch = 300
)

// enqueueMessageIndexing has a new message indexed.
func (s *Service) enqueueMessageIndexing(ctx context.Context, tx *db.Tx, m *Message) error {
	return s.enqueueIndexing(ctx, tx, m.TicketID, m.ID, nil, nil)
}

// enqueueTicketIndexing has a ticket indexed anew, with all its messages: when its subject,
// or which messages it has, is changed, and when it is deleted.
func (s *Service) enqueueTicketIndexing(ctx context.Context, tx *db.Tx, t *Ticket) error {
	return s.enqueueIndexing(ctx, tx, t.ID, "", t.OrganizationID, t.Number)
}

func (s *Service) enqueueIndexing(ctx context.Context, tx *db.Tx, ticketID, messageID string, organizationID, number any) error {
	if _, err := tx.Exec(ctx, "INSERT INTO search_pending (id, ticket_id, message_id, organization_id, number) VALUES ($1, $2, $3, $4, $5)",
		newID(), ticketID, db.Text(messageID), organizationID, number); err != nil {
		return fmt.Errorf("have it indexed: %w", err)
	}
	tx.AfterCommit(func() {
		select {
		case s.indexNeeded <- struct{}{}:
		default:
		}
	})
	return nil
}

// Run keeps searches in step with what is written, until ctx ends. Several
// processes may run it; one at a time works.
func (s *Service) Run(ctx context.Context) {
	poll := time.NewTicker(indexPoll)
	defer poll.Stop()
	for {
		n, err := s.Index(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "messages could not be indexed for searches; trying again", "error", err)
		}
		if n == indexBatch && err == nil {
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

// pendingEntry is an entry of search_pending.
type pendingEntry struct {
	id, ticketID, messageID string
	organizationID          string // of entries that are about a whole ticket
	number                  int64
}

// Index indexes some of what is pending and returns how many entries it took.
// Nothing is pending once it returns 0.
func (s *Service) Index(ctx context.Context) (int, error) {
	var none bool
	if err := s.db.QueryRow(ctx, "SELECT NOT EXISTS (SELECT 1 FROM search_pending)").Scan(&none); err != nil || none {
		return 0, err
	}
	n := 0
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		n = 0
		if ok, err := tx.TryLock(ctx, "search"); err != nil || !ok {
			return err
		}
		entries, err := db.All(ctx, tx, func(row db.Row) (e pendingEntry, err error) {
			err = row.Scan(&e.id, &e.ticketID, db.IntoText(&e.messageID), db.IntoText(&e.organizationID), &e.number)
			return e, err
		}, "SELECT id, ticket_id, message_id, organization_id, coalesce(number, 0) FROM search_pending ORDER BY id LIMIT "+strconv.Itoa(indexBatch))
		if err != nil {
			return err
		}
		x := indexer{ctx: ctx, tx: tx, postgres: s.db.Postgres(), codes: make(map[string]int64), done: make(map[string]bool)}
		if err := x.index(entries); err != nil {
			return err
		}
		ids := make([]string, len(entries))
		for i, e := range entries {
			ids[i] = e.id
		}
		n = len(entries)
		_, err = tx.Exec(ctx, "DELETE FROM search_pending WHERE id = ANY($1)", ids)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("index: %w", err)
	}
	return n, nil
}

// indexer indexes the entries of one transaction.
type indexer struct {
	ctx      context.Context
	tx       *db.Tx
	postgres bool
	codes    map[string]int64 // of organizations
	done     map[string]bool  // tickets that are indexed with all their messages
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

// code returns the code of an organization, which gets one if it has none.
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
		return 0, errors.New("there are too many organizations to be searched")
	}
	x.codes[organizationID] = code
	return code, err
}

// ticket indexes a whole ticket, or forgets one that is no more.
func (x *indexer) ticket(e pendingEntry) error {
	code, err := x.code(e.organizationID)
	if err != nil {
		return err
	}
	first, last := documentRange(code, e.number, e.number)
	if !x.postgres {
		if _, err := x.tx.Exec(x.ctx, "DELETE FROM ticket_words WHERE rowid IN (SELECT doc FROM search_docs WHERE doc >= $1 AND doc <= $2)", first, last); err != nil {
			return err
		}
	}
	if _, err := x.tx.Exec(x.ctx, "DELETE FROM search_docs WHERE doc >= $1 AND doc <= $2", first, last); err != nil {
		return err
	}
	var subject string
	err = x.tx.QueryRow(x.ctx, "SELECT subject FROM tickets WHERE id = $1", e.ticketID).Scan(&subject)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = x.insert(code, first, subject)
	}
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
				return nil // more than anybody can find anything in
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

// message indexes a message, and its ticket's subject if it is the first.
func (x *indexer) message(e pendingEntry) error {
	var organizationID, subject, body string
	var number int64
	err := x.tx.QueryRow(x.ctx, `SELECT t.organization_id, t.number, t.subject, m.body FROM messages m
		JOIN tickets t ON t.id = m.ticket_id WHERE m.ticket_id = $1 AND m.id = $2`, e.ticketID, e.messageID).
		Scan(&organizationID, &number, &subject, &body)
	if errors.Is(err, db.ErrNoRows) {
		return nil // deleted, or moved, which has its ticket indexed anew
	}
	if err != nil {
		return err
	}
	code, err := x.code(organizationID)
	if err != nil {
		return err
	}
	first, last := documentRange(code, number, number)
	doc := first
	if err := x.tx.QueryRow(x.ctx, "SELECT coalesce(max(doc), $1) FROM search_docs WHERE doc >= $1 AND doc <= $2", first, last).Scan(&doc); err != nil {
		return err
	}
	if doc == first {
		var has bool
		if err := x.tx.QueryRow(x.ctx, "SELECT EXISTS (SELECT 1 FROM search_docs WHERE doc = $1)", first).Scan(&has); err != nil {
			return err
		}
		if !has {
			if err := x.insert(code, first, subject); err != nil {
				return err
			}
		}
	}
	if doc == last {
		return nil
	}
	return x.insert(code, doc+1, body)
}

// insert writes a document.
func (x *indexer) insert(code, doc int64, text string) error {
	words := indexText(x.postgres, code, text)
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

// indexText is a text as it is indexed. On SQLite the words are a text again, which
// is taken apart where they end; on PostgreSQL they are given with their places.
func indexText(postgres bool, code int64, text string) string {
	words, prefix := splitWords(text), codePrefix(code)
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

// maxPlaces is how many places of one word PostgreSQL keeps.
const maxPlaces = 255
