package mailparse

import (
	"net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/jhillyerd/enmime/v2"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

const (
	MaxID        = 500 // bytes of a Message-ID; RFC 5322 lines hold at most 998
	maxIDs       = 100 // ids in References
	maxAddresses = 200 // addresses in one header
)

// Addresses parses every value of an address header. Values that violate the grammar are
// searched for address-like text.
func Addresses(h textproto.MIMEHeader, name string) []mail.Address {
	var list []mail.Address
	for _, v := range h.Values(name) {
		if len(v) > MaxHeader/4 {
			v = v[:strings.LastIndexByte(v[:MaxHeader/4], ',')+1]
		}
		for _, p := range AddressList(v) {
			if len(list) == maxAddresses {
				return list
			}
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}

func AddressList(v string) []mail.Address {
	var list []mail.Address
	parsed, err := enmime.ParseAddressList(v)
	if err == nil {
		for _, a := range parsed {
			if usable(a.Address) {
				list = append(list, mail.Address{Name: safehtml.Clip(Text(a.Name), 200), Address: a.Address})
			}
		}
		if list != nil {
			return list
		}
	}
	for item := range SplitAddresses(v) {
		name, address := "", strings.TrimSpace(item)
		if i := strings.LastIndexByte(address, '<'); i >= 0 {
			name, address = address[:i], address[i+1:]
			address, _, _ = strings.Cut(address, ">")
		} else if i := strings.LastIndexByte(address, ' '); i >= 0 {
			name, address = address[:i], address[i+1:]
		}
		address = strings.Trim(address, " \t\"'<>()[];:,")
		if usable(address) {
			list = append(list, mail.Address{Name: safehtml.Clip(strings.Trim(Text(name), " \t\"'"), 200), Address: address})
		}
	}
	return list
}

// SplitAddresses splits at commas and semicolons outside quotes.
func SplitAddresses(v string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		quoted, start := false, 0
		for i := range len(v) {
			switch v[i] {
			case '"':
				quoted = !quoted
			case ',', ';':
				if quoted {
					continue
				}
				if !yield(v[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(v[start:])
	}
}

// usable reports whether mail can be sent to s.
func usable(s string) bool {
	local, domain, ok := CutAddress(s)
	return ok && local != "" && domain != "" && len(s) <= 254 &&
		strings.ToValidUTF8(s, "") == s &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`<>(),;:\`, r) })
}

func CutAddress(s string) (local, domain string, ok bool) {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// Address returns an envelope address without name and brackets.
func Address(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '<'); i >= 0 {
		s, _, _ = strings.Cut(s[i+1:], ">")
	}
	s = strings.Trim(s, "<> \t\r\n")
	if !usable(s) {
		return ""
	}
	return s
}

var idPattern = regexp.MustCompile(`<\s*([^<>\s]+)\s*>`)

// IDs parses every message id in the header values, without brackets.
func IDs(values []string) []string {
	var list []string
	add := func(id string) {
		if id != "" && len(id) <= MaxID && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	for _, v := range values {
		found := idPattern.FindAllStringSubmatch(v, -1)
		if len(found) > 10*maxIDs {
			found = found[len(found)-10*maxIDs:]
		}
		for _, m := range found {
			add(Text(m[1]))
		}
		if found == nil { // some programs write the bare id
			for word := range strings.FieldsSeq(v) {
				if strings.Contains(word, "@") && len(list) < maxIDs {
					add(Text(strings.Trim(word, "<>,;")))
				}
			}
		}
	}
	if len(list) > maxIDs { // the thread's root, and the most recent ids
		list = slices.Concat(list[:1], list[len(list)-maxIDs+1:])
	}
	return list
}

// MessageID returns the first usable Message-ID, without brackets.
func MessageID(h textproto.MIMEHeader) string {
	for _, v := range h.Values("Message-Id") {
		if m := idPattern.FindStringSubmatch(v); m != nil {
			v = m[1]
		}
		id := Text(v)
		if id != "" && len(id) <= MaxID && !strings.ContainsAny(id, " <>") {
			return id
		}
	}
	return ""
}
