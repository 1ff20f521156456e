package desk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// maxMentions bounds the members whom a note mentions.
const maxMentions = 20

// mentionedIn returns the members whom a note mentions, in the order of the text, each once: "@"
// followed by a member's name, or by the part of their address before the @, without case. A
// first name is enough if no other member has it.
func (s *Service) mentionedIn(ctx context.Context, q db.Querier, organizationID, text string) ([]string, error) {
	if !strings.Contains(text, "@") {
		return nil, nil
	}
	members, err := s.directory.Agents(ctx, q, organizationID)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	var ids []string
	for _, m := range Mentions(text, members) {
		if !slices.Contains(ids, m.UserID) && len(ids) < maxMentions {
			ids = append(ids, m.UserID)
		}
	}
	return ids, nil
}

// Mention is a part of a text that names a member.
type Mention struct {
	Start, End int // bytes, with the @
	UserID     string
}

// mentionName is a name by which notes mention a member.
type mentionName struct {
	name   string
	userID string // empty: several members have it
}

// maxExamined bounds the @ of a text that are examined.
const maxExamined = 200

// mentionNames returns the names of members, the longest first.
func mentionNames(members []event.Person) []mentionName {
	var list []mentionName
	known := make(map[string]int)
	add := func(name, id string) {
		if name = strings.TrimSpace(name); name == "" {
			return
		}
		i, ok := known[strings.ToLower(name)]
		if !ok {
			known[strings.ToLower(name)] = len(list)
			list = append(list, mentionName{name, id})
		} else if list[i].userID != id {
			list[i].userID = ""
		}
	}
	for _, p := range members {
		local, _, _ := strings.Cut(p.Email, "@")
		first, _, _ := strings.Cut(strings.TrimSpace(p.Name), " ")
		for _, name := range []string{p.Name, local, first} {
			add(name, p.ID)
		}
	}
	slices.SortStableFunc(list, func(a, b mentionName) int { return len(b.name) - len(a.name) })
	return list
}

// Mentions finds the members whom a text mentions, in order; a member may be there several times.
func Mentions(text string, members []event.Person) []Mention {
	if !strings.Contains(text, "@") {
		return nil
	}
	names := mentionNames(members)
	var found []Mention
	for at, examined := 0, 0; ; examined++ {
		i := strings.IndexByte(text[at:], '@')
		if i < 0 || examined == maxExamined {
			return found
		}
		start := at + i
		before, rest := text[:start], text[start+1:]
		at = start + 1
		if r, _ := utf8.DecodeLastRuneInString(before); before != "" && isNameRune(r) {
			continue // an address
		}
		k := slices.IndexFunc(names, func(n mentionName) bool {
			return len(rest) >= len(n.name) && strings.EqualFold(rest[:len(n.name)], n.name) && endsName(rest[len(n.name):])
		})
		if k >= 0 && names[k].userID != "" {
			at += len(names[k].name)
			found = append(found, Mention{start, at, names[k].userID})
		}
	}
}

func isNameRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// endsName reports whether a name ends before rest, rather than being the start of a longer one or
// of an address.
func endsName(rest string) bool {
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case rest == "":
		return true
	case r == '.' || r == '-' || r == '+':
		next, _ := utf8.DecodeRuneInString(rest[size:])
		return len(rest) == size || !isNameRune(next)
	}
	return !isNameRune(r) && r != '@'
}
