package email

import (
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jhillyerd/enmime/v2"
	"github.com/kickstand-dev/kickstand/internal/channel"
)

const (
	maxID        = 500 // bytes of a Message-ID; RFC 5322 lines hold at most 998
	maxIDs       = 100 // ids in References
	maxAddresses = 200 // addresses in one header
)

// addresses parses every value of an address header. Values that violate the grammar are
// searched for address-like text.
func addresses(h textproto.MIMEHeader, name string) []channel.Party {
	var list []channel.Party
	for _, v := range h.Values(name) {
		if len(v) > maxHeader/4 {
			v = v[:strings.LastIndexByte(v[:maxHeader/4], ',')+1]
		}
		for _, p := range addressList(v) {
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

func addressList(v string) []channel.Party {
	var list []channel.Party
	parsed, err := enmime.ParseAddressList(v)
	if err == nil {
		for _, a := range parsed {
			if usable(a.Address) {
				list = append(list, channel.Party{Name: clip(headerText(a.Name), 200), Email: a.Address})
			}
		}
		if list != nil {
			return list
		}
	}
	for item := range splitAddresses(v) {
		name, address := "", strings.TrimSpace(item)
		if i := strings.LastIndexByte(address, '<'); i >= 0 {
			name, address = address[:i], address[i+1:]
			address, _, _ = strings.Cut(address, ">")
		} else if i := strings.LastIndexByte(address, ' '); i >= 0 {
			name, address = address[:i], address[i+1:]
		}
		address = strings.Trim(address, " \t\"'<>()[];:,")
		if usable(address) {
			list = append(list, channel.Party{Name: clip(strings.Trim(headerText(name), " \t\"'"), 200), Email: address})
		}
	}
	return list
}

// splitAddresses splits at commas and semicolons outside quotes.
func splitAddresses(v string) func(yield func(string) bool) {
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
	local, domain, ok := cutAddress(s)
	return ok && local != "" && domain != "" && len(s) <= 254 &&
		strings.ToValidUTF8(s, "") == s &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`<>(),;:\`, r) })
}

func cutAddress(s string) (local, domain string, ok bool) {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func domainOf(address string) string {
	_, domain, _ := cutAddress(address)
	return strings.ToLower(strings.TrimSuffix(domain, "."))
}

// plain returns an envelope address without name and brackets.
func plain(s string) string {
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

// envelopeSender parses the sender of an envelope. Only the null sender is ""; an invalid
// address is returned unchanged.
func envelopeSender(s string) string {
	if a := plain(s); a != "" {
		return a
	}
	return clip(strings.Trim(headerText(s), "<> "), 254)
}

// Canonical returns the form of an address that connections store: lower case, without
// plus-tag. It returns "" for an invalid address.
func Canonical(address string) string {
	address = strings.ToLower(plain(address))
	local, domain, ok := cutAddress(address)
	if !ok {
		return ""
	}
	if i := strings.IndexByte(local, '+'); i > 0 {
		local = local[:i]
	}
	return local + "@" + domain
}

// within reports whether domain is in list or a subdomain of an entry.
func within(domain string, list []string) bool {
	return domain != "" && slices.ContainsFunc(list, func(d string) bool {
		return strings.EqualFold(domain, d) || strings.HasSuffix(domain, "."+strings.ToLower(d))
	})
}

var idPattern = regexp.MustCompile(`<\s*([^<>\s]+)\s*>`)

// ids parses every message id in the header values, without brackets.
func ids(values []string) []string {
	var list []string
	add := func(id string) {
		if id != "" && len(id) <= maxID && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	for _, v := range values {
		found := idPattern.FindAllStringSubmatch(v, -1)
		if len(found) > 10*maxIDs {
			found = found[len(found)-10*maxIDs:]
		}
		for _, m := range found {
			add(headerText(m[1]))
		}
		if found == nil { // some programs write the bare id
			for word := range strings.FieldsSeq(v) {
				if strings.Contains(word, "@") && len(list) < maxIDs {
					add(headerText(strings.Trim(word, "<>,;")))
				}
			}
		}
	}
	if len(list) > maxIDs { // the thread's root, and the most recent ids
		list = slices.Concat(list[:1], list[len(list)-maxIDs+1:])
	}
	return list
}

// messageID returns the first usable Message-ID, without brackets.
func messageID(h textproto.MIMEHeader) string {
	for _, v := range h.Values("Message-Id") {
		if m := idPattern.FindStringSubmatch(v); m != nil {
			v = m[1]
		}
		id := headerText(v)
		if id != "" && len(id) <= maxID && !strings.ContainsAny(id, " <>") {
			return id
		}
	}
	return ""
}

var tagPattern = regexp.MustCompile(`(?i)\[Ticket #(\d{1,18})\]`)

// ticketTag returns the number of the last "[Ticket #n]" in a subject, or 0.
func ticketTag(subject string) int64 {
	all := tagPattern.FindAllStringSubmatch(subject, -1)
	if all == nil {
		return 0
	}
	n, _ := strconv.ParseInt(all[len(all)-1][1], 10, 64) // 18 digits fit
	return n
}

// key makes a value of a mail fit for an index; long values are replaced by their digest.
func key(s string) string { return channel.BoundedID(s, 300) }
