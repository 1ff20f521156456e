package desk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk/query"
	"github.com/kickstand-dev/kickstand/internal/textwords"
)

// Span is a part of an excerpt.
type Span struct {
	Text string
	Hit  bool // it matches the search
}

// Highlighter finds the words of a search in texts, as the search index does.
type Highlighter struct {
	terms []term
}

// NewHighlighter returns the highlighter of a search. Its filters do not matter.
func NewHighlighter(search string) *Highlighter {
	if parsed := query.Parse(search, filterFields...); len(parsed.Filters) > 0 {
		search = parsed.Words
	}
	terms, _ := parseSearch(search)
	return &Highlighter{terms}
}

// excerptBefore and excerptLength are the characters of an excerpt before its first match, and in
// all.
const (
	excerptBefore = 40
	excerptLength = 160
)

// token is a word of a text, with its place.
type token struct {
	word       string
	start, end int
}

// tokens returns the words of a text, up to a bound.
func tokens(text string) []token {
	var list []token
	start := -1
	end := func(at int) {
		if start >= 0 {
			for _, word := range textwords.Split(text[start:at]) {
				list = append(list, token{word, start, at})
			}
			start = -1
		}
	}
	for i, r := range text {
		if len(list) >= textwords.MaxWords {
			return list
		}
		switch inWord := unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.M, r); {
		case !inWord:
			end(i)
		case start < 0:
			start = i
		}
	}
	end(len(text))
	return list
}

// Matches reports whether a text has all words of the search, its phrases in their order.
func (h *Highlighter) Matches(text string) bool {
	list := tokens(text)
	for i := range h.terms {
		t := &h.terms[i]
		for j, phrase := range t.phrases {
			if !occurs(list, phrase, t.prefix && j == len(t.phrases)-1) {
				return false
			}
		}
	}
	return len(h.terms) > 0
}

// occurs reports whether words have a phrase, whose last word may be a prefix.
func occurs(words []token, phrase []string, prefix bool) bool {
	for ; len(words) >= len(phrase); words = words[1:] {
		last := len(phrase) - 1
		i := 0
		for i < last && words[i].word == phrase[i] {
			i++
		}
		if i == last && (words[i].word == phrase[i] || prefix && strings.HasPrefix(words[i].word, phrase[i])) {
			return true
		}
	}
	return false
}

// hits reports whether a word of a text is one of the search.
func (h *Highlighter) hits(word string) bool {
	for i := range h.terms {
		t := &h.terms[i]
		for j, phrase := range t.phrases {
			for k, part := range phrase {
				last := t.prefix && j == len(t.phrases)-1 && k == len(phrase)-1
				if word == part || last && strings.HasPrefix(word, part) {
					return true
				}
			}
		}
		if digits := textwords.Digits(word); t.digits != "" && len(digits) >= textwords.MinSuffix && (strings.HasSuffix(digits, t.digits) || strings.HasSuffix(t.digits, digits)) {
			return true
		}
	}
	return false
}

// Excerpt returns the part of a text around its first word of the search, on one line; nil if it
// has none.
func (h *Highlighter) Excerpt(text string) []Span {
	text = strings.Join(strings.Fields(text), " ")
	list := tokens(text)
	first := slices.IndexFunc(list, func(t token) bool { return h.hits(t.word) })
	if first < 0 {
		return nil
	}
	from := list[first].start
	for n := 0; from > 0 && n < excerptBefore; n++ {
		_, size := utf8.DecodeLastRuneInString(text[:from])
		from -= size
	}
	if from > 0 { // at a word
		for i := range list {
			if list[i].start >= from {
				from = list[i].start
				break
			}
		}
	}
	to := from
	for n := 0; to < len(text) && n < excerptLength; n++ {
		_, size := utf8.DecodeRuneInString(text[to:])
		to += size
	}
	var spans []Span
	add := func(text string, hit bool) {
		if text != "" {
			spans = append(spans, Span{text, hit})
		}
	}
	at := from
	if from > 0 {
		add("… ", false)
	}
	for _, t := range list[first:] {
		if t.end > to {
			break
		}
		if t.start >= at && h.hits(t.word) {
			add(text[at:t.start], false)
			add(text[t.start:t.end], true)
			at = t.end
		}
	}
	add(text[at:to], false)
	if to < len(text) {
		add(" …", false)
	}
	return spans
}

// Bounds of the messages that are examined for a search: per ticket, their characters, and the
// bytes of all.
const (
	matchedMessages = 20
	matchedText     = 5_000
	matchedInAll    = 200_000
)

// MatchingMessages returns the newest message of each ticket that matches a search, by the
// ticket's id. It examines the newest messages of each ticket.
func (s *Service) MatchingMessages(ctx context.Context, q db.Querier, tickets []Ticket, h *Highlighter) (map[string]Message, error) {
	found := make(map[string]Message)
	if len(tickets) == 0 || len(h.terms) == 0 {
		return found, nil
	}
	left := matchedInAll
	for i := range tickets {
		if left <= 0 {
			break
		}
		messages, err := db.All(ctx, q, func(row db.Row) (m Message, err error) {
			err = row.Scan(&m.ID, &m.TicketID, &m.Direction, &m.Kind, &m.Author.Type, db.IntoText(&m.Author.ID), &m.Author.Name, &m.Text, db.IntoTime(&m.CreatedAt))
			return m, err
		}, fmt.Sprintf(`SELECT id, ticket_id, direction, kind, author_type, author_id, author_name, substr(body, 1, %d), created_at
			FROM messages WHERE ticket_id = $1 ORDER BY seq DESC, id DESC LIMIT %d`, matchedText, matchedMessages), tickets[i].ID)
		if err != nil {
			return nil, fmt.Errorf("find matching messages: %w", err)
		}
		for _, m := range messages {
			if left -= len(m.Text); h.Matches(m.Text) {
				found[tickets[i].ID] = m
				break
			}
		}
	}
	return found, nil
}
