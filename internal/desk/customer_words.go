package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/textwords"
)

// A customer has a document in the index of searches: the groups of three letters of its words, so
// that any part of a word is found, and the first one and two letters of each. A match of all
// groups is compared with the words before it counts. Documents of customers have negative numbers,
// in the order of indexing, and their words another prefix than those of tickets.

const (
	// customerPrefix precedes the organization's code in words of customers. No code begins so.
	customerPrefix = "u"
	// maxCustomerWords bounds the words of a customer, since addresses are not bounded.
	maxCustomerWords = 500
	// maxPartMatches bounds the documents that a search for parts of words compares.
	maxPartMatches = 2000
	// maxPartCustomers bounds the customers that it finds.
	maxPartCustomers = 500
)

// words returns the words of the customer's name, external id, addresses and channel ids, and the digits
// of its numbers.
func (c *Customer) words() []string {
	values := slices.Concat([]string{c.Name, c.ExternalID}, c.Emails)
	for _, i := range c.Identities {
		values = append(values, i.ExternalID)
	}
	words := textwords.Split(strings.Join(values, " "))
	for _, number := range c.Phones {
		words = append(words, textwords.Digits(number))
	}
	return words[:min(len(words), maxCustomerWords)]
}

// parts returns the indexed parts of a word: its first letters, and all groups of three.
func parts(word string) []string {
	r := []rune(word)
	list := []string{"0" + string(r[:1]), "0" + string(r[:min(len(r), 2)])}
	return append(list, groups(r)...)
}

// groups returns all groups of three letters.
func groups(r []rune) (list []string) {
	for i := range len(r) - 2 {
		list = append(list, string(r[i:i+3]))
	}
	return list
}

// CustomersByWords returns customers whose name, addresses, numbers, channel ids and external id have all
// words of text as parts, in any order, without regard to case and accents: at most limit, the latest
// changes first. Phone numbers are found in any form and by their last digits. A customer is found
// within a second after a change. It compares the first 2,000 customers that the index finds.
func (s *Service) CustomersByWords(ctx context.Context, q db.Querier, organizationID, text string, limit int) ([]Customer, error) {
	var list []Customer
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		ids, err := s.customerIDsByWords(ctx, q, organizationID, text)
		if err != nil {
			return err
		}
		byID, err := s.CustomersByID(ctx, q, organizationID, ids[:min(len(ids), limit)])
		for _, id := range ids {
			if c, ok := byID[id]; ok {
				list = append(list, c)
			}
		}
		return err
	})
	return list, err
}

// customerIDsByWords returns the ids of [Service.CustomersByWords], at most maxPartCustomers.
func (s *Service) customerIDsByWords(ctx context.Context, q db.Querier, organizationID, text string) ([]string, error) {
	wanted := textwords.Sought(text)
	if len(wanted) == 0 {
		return nil, nil
	}
	code, err := searchCode(ctx, q, organizationID)
	if err != nil || code == 0 {
		return nil, err
	}
	w := wordQuery{postgres: s.db.Postgres(), code: code}
	var terms []string
	for _, word := range wanted {
		r := []rune(word)
		some := groups(r)
		if len(some) == 0 {
			some = []string{"0" + word}
		}
		for _, part := range some {
			if w.postgres {
				terms = append(terms, "'"+customerPrefix+codePrefix(code)+part+"'")
			} else {
				terms = append(terms, `"`+customerPrefix+codePrefix(code)+part+`"`)
			}
		}
	}
	w.query = strings.Join(terms, w.and())
	st := new(keyset.Statement)
	doc, table := "rowid", "ticket_words"
	if w.postgres {
		doc, table = "doc", "search_docs"
	}
	st.Addf("SELECT d.customer_id FROM (SELECT %s AS doc FROM %s WHERE %s AND %[1]s < 0 LIMIT %[4]d) AS m JOIN customer_docs d ON d.doc = m.doc ORDER BY d.doc",
		doc, table, w.matchCondition(st), maxPartMatches)
	ids, err := db.All(ctx, q, scanText, st.String(), st.Args...)
	if err != nil {
		return nil, fmt.Errorf("search customers: %w", err)
	}
	var found []string
	for chunk := range slices.Chunk(ids, 100) {
		byID, err := s.CustomersByID(ctx, q, organizationID, chunk)
		if err != nil {
			return nil, err
		}
		for _, id := range chunk {
			if c, ok := byID[id]; ok && textwords.Match(c.words(), wanted) {
				found = append(found, id)
			}
		}
		if len(found) >= maxPartCustomers {
			return found[:maxPartCustomers], nil
		}
	}
	return found, nil
}

// customer writes the document of a customer, and removes that of a deleted or merged one.
func (x *indexer) customer(organizationID, customerID string) error {
	var doc int64
	err := x.tx.QueryRow(x.ctx, "DELETE FROM customer_docs WHERE customer_id = $1 RETURNING doc", customerID).Scan(&doc)
	if err == nil {
		err = x.remove(doc, doc)
	}
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return err
	}
	c, err := db.One(x.ctx, x.tx, scanCustomer, selectCustomer+"WHERE id = $1 AND deleted_at IS NULL", customerID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.loadContacts(x.ctx, x.tx); err != nil {
		return err
	}
	code, err := x.code(organizationID)
	if err != nil {
		return err
	}
	if err := x.tx.QueryRow(x.ctx, "SELECT coalesce(min(doc), 0) - 1 FROM search_docs WHERE doc < 0").Scan(&doc); err != nil {
		return err
	}
	if _, err := x.tx.Exec(x.ctx, "INSERT INTO customer_docs (customer_id, doc) VALUES ($1, $2)", customerID, doc); err != nil {
		return err
	}
	var all []string
	for _, word := range c.words() {
		all = append(all, parts(word)...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for i, part := range all {
		if all[i] = customerPrefix + codePrefix(code) + part; x.postgres {
			all[i] = "'" + all[i] + "'"
		}
	}
	return x.insertWords(doc, strings.Join(all, " "))
}

// reconciledAtOnce bounds the customers that one transaction of [Service.ReconcileCustomers] compares.
const reconciledAtOnce = 1000

// ReconcileCustomers enqueues living customers without a document, and documents of deleted ones. A
// previous version of the program, which knows no such documents, may have taken their rows of the
// indexer. It reads customers in steps and writes only differences.
func (s *Service) ReconcileCustomers(ctx context.Context) error {
	type difference struct {
		id, organizationID string
		is                 bool
	}
	for _, statement := range []string{
		`SELECT c.id, c.organization_id, c.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM customer_docs d WHERE d.customer_id = c.id)
			FROM customers c WHERE c.id > $1 ORDER BY c.id LIMIT $2`,
		`SELECT d.customer_id, coalesce(c.organization_id, ''), coalesce(c.deleted_at IS NOT NULL, TRUE)
			FROM customer_docs d LEFT JOIN customers c ON c.id = d.customer_id WHERE d.customer_id > $1 ORDER BY d.customer_id LIMIT $2`,
	} {
		for after := ""; ; {
			list, err := db.All(ctx, s.db, func(row db.Row) (d difference, err error) {
				err = row.Scan(&d.id, &d.organizationID, &d.is)
				return d, err
			}, statement, after, reconciledAtOnce)
			if err != nil {
				return fmt.Errorf("compare customers with the index: %w", err)
			}
			if len(list) == 0 {
				break
			}
			after = list[len(list)-1].id
			list = slices.DeleteFunc(list, func(d difference) bool { return !d.is })
			if len(list) == 0 {
				continue
			}
			if err := s.db.Write(ctx, func(tx *db.Tx) error {
				for _, d := range list {
					if err := tx.Queue(ctx, "INSERT INTO facts_pending (id, organization_id, customer_id, last) VALUES ($1, $2, $1, $3) ON CONFLICT DO NOTHING",
						d.id, d.organizationID, customerAlone); err != nil {
						return fmt.Errorf("enqueue customers for indexing: %w", err)
					}
				}
				s.wakeIndexer(tx)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}
