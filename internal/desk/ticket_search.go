package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/textwords"
)

// A search looks for words in documents: a ticket's subject with its facts is one, each of its
// messages another. Both engines index the words that [textwords.Split] returns, so that
// they agree. Each stored word has the code of its organization as a prefix, so
// that an index lookup touches one organization only.
//
// A document's number is composed of the code, the ticket's number and the
// document's place in the ticket. So documents are in the order of tickets.
const (
	placeBits  = 18
	numberBits = 29
	maxPlace   = 1<<placeBits - 1
	maxCode    = 1<<16 - 1
)

// documentRange returns the numbers of the first and last document of a range of
// tickets.
func documentRange(code, from, to int64) (first, last int64) {
	return (code<<numberBits | from) << placeBits, (code<<numberBits|to)<<placeBits | maxPlace
}

// term is a part of a search: all of its phrases must match, or the last digits of a phone number.
type term struct {
	phrases [][]string // of adjacent words
	digits  string     // empty: too few for a phone number
	prefix  bool       // the last word is a prefix
}

// minPrefix is the least length of a prefix, in letters.
const minPrefix = 3

// parseSearch parses a search: words, and quoted phrases, all of which must match, and numbers of
// tickets ("#6"), of which one must. The last word is a prefix if the text ends with it. Any
// other character separates words.
func parseSearch(text string) (terms []term, numbers []int64) {
	for i, part := range strings.Split(text, `"`) {
		if i%2 == 1 {
			terms = appendTerm(terms, part)
			continue
		}
		fields := strings.Fields(part)
		for len(fields) > 0 {
			if n, ok := ticketNumber(fields[0]); ok {
				numbers = append(numbers, n)
				fields = fields[1:]
				continue
			}
			n := 0
			for n < len(fields) && textwords.IsPhonePart(fields[n]) {
				n++
			}
			terms = appendTerm(terms, fields[:max(n, 1)]...)
			if n > 0 {
				terms[len(terms)-1].digits = textwords.PhoneDigits(fields[:n])
			}
			fields = fields[max(n, 1):]
		}
	}
	if last := len(terms) - 1; last >= 0 {
		r, _ := utf8.DecodeLastRuneInString(text)
		phrases := terms[last].phrases
		words := phrases[len(phrases)-1]
		if (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.M, r)) && strings.Count(text, `"`)%2 == 0 {
			terms[last].prefix = utf8.RuneCountInString(words[len(words)-1]) >= minPrefix
		}
	}
	return terms, numbers
}

// appendTerm appends a term of phrases, unless they have no words.
func appendTerm(terms []term, phrases ...string) []term {
	var t term
	for _, phrase := range phrases {
		if words := textwords.Split(phrase); len(words) > 0 {
			t.phrases = append(t.phrases, words)
		}
	}
	if len(t.phrases) == 0 {
		return terms
	}
	return append(terms, t)
}

// ticketNumber reads the number of a ticket, such as "#6".
func ticketNumber(field string) (int64, bool) {
	digits, ok := strings.CutPrefix(field, "#")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && n > 0 && n <= maxNumber
}

// codePrefix returns the prefix of an organization's words.
func codePrefix(code int64) string { return fmt.Sprintf("%04x", code) }

// wordQuery is a full-text query.
type wordQuery struct {
	postgres bool
	code     int64
	query    string // in the engine's syntax; only letters, digits and operators from here

	first, last int64 // bounds of the documents; inclusive
	documents   int   // that match, about; more than the limit if they exceed it
	oneByOne    bool  // they exceed it: tickets are tested for a match, one by one

	tickets map[int64]struct{} // see readTickets
}

// readWords parses query.Text. It returns false if there can be no match.
func (f *ticketFinder) readWords() (bool, error) {
	if strings.TrimSpace(f.query.Text) == "" {
		return true, nil
	}
	terms, numbers := parseSearch(f.query.Text)
	if len(numbers) > 0 {
		if f.query.Number != nil {
			numbers = slices.DeleteFunc(numbers, func(n int64) bool { return !slices.Contains(f.query.Number, n) })
		}
		if f.query.Number = numbers; len(numbers) == 0 {
			return false, nil
		}
	}
	if len(terms) == 0 {
		return len(numbers) > 0, nil
	}
	code, err := searchCode(f.ctx, f.q, f.organization)
	if err != nil || code == 0 {
		return false, err
	}
	f.words = &wordQuery{postgres: f.postgres, code: code}
	all := make([]string, len(terms))
	for i := range terms {
		all[i] = f.words.text(&terms[i])
	}
	f.words.query = strings.Join(all, f.words.and())
	if err := f.countDocuments(); err != nil {
		return false, err
	}
	f.words.oneByOne = f.words.documents > f.limits.documents
	return f.words.documents > 0 || f.postgres, nil
}

// and returns the operator between conditions that must all hold.
func (w *wordQuery) and() string {
	if w.postgres {
		return " & "
	}
	return " AND "
}

// text returns a term in the engine's syntax.
func (w *wordQuery) text(t *term) string {
	phrases := make([]string, len(t.phrases))
	for i, words := range t.phrases {
		phrases[i] = w.phrase(words, t.prefix && i == len(t.phrases)-1)
	}
	text := strings.Join(phrases, w.and())
	switch {
	case t.digits == "":
	case w.postgres:
		text = "(" + text + ") | " + w.phrase([]string{lastDigits(t.digits)}, true)
	default:
		text = "(" + text + ") OR " + w.phrase([]string{lastDigits(t.digits)}, true)
	}
	return "(" + text + ")"
}

// phrase returns adjacent words in the engine's syntax; with prefix, the last is one.
func (w *wordQuery) phrase(words []string, prefix bool) string {
	stored := make([]string, len(words))
	for i, word := range words {
		stored[i] = codePrefix(w.code) + word
	}
	if !w.postgres {
		text := `"` + strings.Join(stored, " ") + `"`
		if prefix {
			text += " *"
		}
		return text
	}
	text := "'" + strings.Join(stored, "' <-> '") + "'"
	if prefix {
		text += ":*"
	}
	return text
}

// searchCode returns the organization's code; 0 if it has no documents.
func searchCode(ctx context.Context, q db.Querier, organizationID string) (int64, error) {
	var code int64
	err := q.QueryRow(ctx, "SELECT coalesce((SELECT code FROM search_organizations WHERE organization_id = $1), 0)", organizationID).Scan(&code)
	return code, err
}

// matchCondition returns the condition that a document matches. PostgreSQL gets the
// words as a literal: its plan depends on their frequency.
func (w *wordQuery) matchCondition(st *keyset.Statement) string {
	if w.postgres {
		return "words @@ '" + strings.ReplaceAll(w.query, "'", "''") + "'::tsquery"
	}
	return "ticket_words MATCH " + st.Arg(w.query)
}

// ticketCondition returns the condition that a document of ticket t matches.
func (w *wordQuery) ticketCondition(st *keyset.Statement) string {
	first, _ := documentRange(w.code, 0, 0)
	if w.postgres {
		return fmt.Sprintf("EXISTS (SELECT 1 FROM search_docs WHERE doc >= %s + (t.number << %d) AND doc <= %s + (t.number << %d) + %d AND coalesce(%s, FALSE))",
			castBig(st, first), placeBits, castBig(st, first), placeBits, maxPlace, w.matchCondition(st))
	}
	return fmt.Sprintf("EXISTS (SELECT 1 FROM ticket_words WHERE %s AND rowid >= %s + (t.number << %d) AND rowid <= %s + (t.number << %d) + %d)",
		w.matchCondition(st), castBig(st, first), placeBits, castBig(st, first), placeBits, maxPlace)
}

func castBig(st *keyset.Statement, n int64) string { return "CAST(" + st.Arg(n) + " AS BIGINT)" }

// among returns the query for a range of tickets, whose documents are read first.
func (w *wordQuery) among(low, high int64) *wordQuery {
	part := *w
	part.first, part.last = documentRange(w.code, low, high)
	part.oneByOne = false
	return &part
}

// readTickets returns the numbers of the tickets with a matching document, which it reads once.
func (w *wordQuery) readTickets(ctx context.Context, q db.Querier) (map[int64]struct{}, error) {
	if w.tickets != nil {
		return w.tickets, nil
	}
	st := new(keyset.Statement)
	st.Addf("SELECT %s", w.numbers(st))
	rows, err := q.Query(ctx, st.String(), st.Args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := make(map[int64]struct{}, w.documents)
	var n int64
	into := []any{&n}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		list[n] = struct{}{}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	w.tickets = list
	return list, nil
}

// numbers returns a query, without its SELECT, of the numbers of the tickets with a matching
// document.
func (w *wordQuery) numbers(st *keyset.Statement) string {
	doc, from := w.documentsFrom(st)
	return fmt.Sprintf("(%s >> %d) & %d AS number FROM %s", doc, placeBits, int64(maxNumber), from)
}

// documentsFrom returns the column of the matching documents within the bounds, and their table
// with the condition.
func (w *wordQuery) documentsFrom(st *keyset.Statement) (doc, from string) {
	doc, table := "rowid", "ticket_words"
	if w.postgres {
		doc, table = "doc", "search_docs"
	}
	return doc, fmt.Sprintf("%s WHERE %s AND %s >= %s AND %[3]s <= %[5]s", table, w.matchCondition(st), doc, castBig(st, w.first), castBig(st, w.last))
}

// countDocuments counts the matching documents within the bounds, up to more than the limit. On
// PostgreSQL it is the estimate of its planner, which cannot count some without finding all.
func (f *ticketFinder) countDocuments() error {
	w := f.words
	w.first, w.last = documentRange(w.code, f.first, f.last)
	st := new(keyset.Statement)
	if !f.postgres {
		_, from := w.documentsFrom(st)
		st.Addf("SELECT count(*) FROM (SELECT 1 FROM %s LIMIT %d) AS c", from, f.limits.documents+1)
		return f.q.QueryRow(f.ctx, st.String(), st.Args...).Scan(&w.documents)
	}
	st.Addf("EXPLAIN (FORMAT JSON) SELECT doc FROM search_docs WHERE %s AND doc BETWEEN %d AND %d", w.matchCondition(st), w.first, w.last)
	var text string
	if err := f.q.QueryRow(f.ctx, st.String()).Scan(&text); err != nil {
		return err
	}
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return err
	}
	for _, p := range plans {
		w.documents = int(p.Plan.Rows)
	}
	return nil
}
