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
	return findMentions(text, members), nil
}

// mentionName is a name by which notes mention a member.
type mentionName struct {
	name   string // lower-case
	userID string // empty: several members have it
}

// mentionNames returns the names of members, the longest first.
func mentionNames(members []event.Person) []mentionName {
	owners := make(map[string]string)
	add := func(name, id string) {
		name = strings.ToLower(strings.TrimSpace(name))
		if owner, taken := owners[name]; taken && owner != id {
			id = ""
		}
		owners[name] = id
	}
	for _, p := range members {
		local, _, _ := strings.Cut(p.Email, "@")
		first, _, _ := strings.Cut(strings.TrimSpace(p.Name), " ")
		for _, name := range []string{p.Name, local, first} {
			add(name, p.ID)
		}
	}
	delete(owners, "")
	list := make([]mentionName, 0, len(owners))
	for name, id := range owners {
		list = append(list, mentionName{name, id})
	}
	slices.SortFunc(list, func(a, b mentionName) int { return len(b.name) - len(a.name) })
	return list
}

func findMentions(text string, members []event.Person) []string {
	names := mentionNames(members)
	text = strings.ToLower(text)
	var found []string
	for at := 0; len(found) < maxMentions; {
		i := strings.IndexByte(text[at:], '@')
		if i < 0 {
			break
		}
		before, rest := text[:at+i], text[at+i+1:]
		at += i + 1
		if r, _ := utf8.DecodeLastRuneInString(before); before != "" && isNameRune(r) {
			continue // an address
		}
		k := slices.IndexFunc(names, func(n mentionName) bool { return strings.HasPrefix(rest, n.name) && endsName(rest[len(n.name):]) })
		if k >= 0 && names[k].userID != "" && !slices.Contains(found, names[k].userID) {
			found = append(found, names[k].userID)
		}
	}
	return found
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
