package mailauth

import (
	"bytes"
	"mime"
	"net/mail"
	"slices"
	"strings"
)

const (
	// maxHead and maxLines bound the header, maxFields its fields, maxKeys the fields of one
	// signature: verification time is their product.
	maxHead   = 128 << 10
	maxLines  = 4000
	maxFields = 1000
	maxKeys   = 100
)

// field is a header field. Name is as received, without white space around it, and
// value with its line breaks.
type field struct{ name, value string }

// is compares names like the DKIM verifier, which folds letters of all scripts: both must count
// the same fields.
func (f *field) is(name string) bool { return strings.EqualFold(f.name, name) }

// readFields splits a header block like the DKIM verifier: a line that starts with white space
// continues the field before, and a name ends at the first colon. ok is false if the block
// exceeds a limit.
func readFields(head []byte) (fields []field, ok bool) {
	if len(head) > maxHead || bytes.Count(head, []byte("\n")) > maxLines {
		return nil, false
	}
	var current []byte
	end := func() {
		if current == nil {
			return
		}
		name, value, _ := bytes.Cut(current, []byte(":"))
		fields = append(fields, field{strings.TrimSpace(string(name)), string(value)})
		current = nil
	}
	for line := range bytes.Lines(head) {
		if text := bytes.TrimSuffix(line, []byte("\n")); len(bytes.TrimSuffix(text, []byte("\r"))) == 0 {
			break
		}
		if current != nil && (line[0] == ' ' || line[0] == '\t') {
			current = append(current, line...)
			continue
		}
		end()
		current = slices.Clone(line)
	}
	end()
	return fields, len(fields) <= maxFields
}

// values returns the values of all fields of a name in order, each unfolded to one line.
func (c *Check) values(name string) []string {
	var list []string
	for _, f := range c.fields {
		if f.is(name) {
			list = append(list, unfold(f.value))
		}
	}
	return list
}

func (c *Check) count(name string) int {
	n := 0
	for _, f := range c.fields {
		if f.is(name) {
			n++
		}
	}
	return n
}

func unfold(v string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(v))
}

// author returns the domain of the single From address, or the reason for its absence.
func (c *Check) author() (domain, flaw string) {
	switch from := c.values("from"); {
	case len(from) == 0:
		return "", "the mail has no From header"
	case len(from) > 1:
		return "", "the mail has more than one From header, so that programs may show different senders"
	default:
		address, ok := single(from[0])
		if !ok {
			return "", "the From header does not name one sender"
		}
		if !strings.EqualFold(address, strings.TrimSuffix(c.mail.Author, ".")) {
			return "", "the From header is ambiguous"
		}
		if domain = ascii(domainPart(address)); Organization(domain) == "" {
			return "", "the domain of the From address is a public suffix or invalid"
		}
		return domain, ""
	}
}

// single returns the only address of a From value. It fails for lists and groups, and for any
// value that two programs could read as different addresses.
func single(v string) (address string, ok bool) {
	decoder := &mime.WordDecoder{CharsetReader: anyCharset}
	parser := mail.AddressParser{WordDecoder: decoder}
	if list, err := parser.ParseList(v); err == nil {
		if len(list) != 1 || strings.HasPrefix(list[0].Address, `"`) || strings.Count(list[0].Address, "@") != 1 || strings.Contains(v, ";") && group(v) {
			return "", false
		}
		return strings.TrimSuffix(list[0].Address, "."), true
	}
	// Mail programs leave names unquoted. One address in brackets at the end is unambiguous if
	// nothing before it could be an address.
	name, rest, found := strings.Cut(v, "<")
	inside, after, closed := strings.Cut(rest, ">")
	if !found || !closed || strings.TrimSpace(after) != "" || strings.ContainsAny(name, `@,;:>"\`) || strings.Count(inside, "@") != 1 ||
		strings.ContainsAny(inside, "<>(),;:\\\" \t") {
		return "", false
	}
	return strings.TrimSuffix(inside, "."), true
}

// group reports whether v uses the syntax of address groups ("name: a, b;").
func group(v string) bool {
	quoted := false
	for i := range len(v) {
		switch {
		case v[i] == '"' && (i == 0 || v[i-1] != '\\'):
			quoted = !quoted
		case v[i] == ';' && !quoted:
			return true
		}
	}
	return false
}

func domainPart(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// once are the fields that must not occur twice (RFC 5322, 3.6; RFC 2045): programs may use
// either one.
var once = []string{
	"from", "sender", "reply-to", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references",
	"content-type", "content-transfer-encoding", "mime-version",
}

// coverable are the fields that determine threads and recipients.
var coverable = []string{"reply-to", "to", "cc", "in-reply-to", "references", "message-id"}

// repeated returns a field that occurs more than once and more often than in keys, the fields
// of a signature, or "".
func (c *Check) repeated(keys []string) string {
	for _, name := range once {
		if n := c.count(name); n > 1 && occurrences(keys, name) < n {
			return name
		}
	}
	return ""
}

// uncovered returns the present coverable fields that are not in keys.
func (c *Check) uncovered(keys []string) []string {
	var list []string
	for _, name := range coverable {
		if n := c.count(name); n > 0 && occurrences(keys, name) < n {
			list = append(list, name)
		}
	}
	return list
}

func occurrences(keys []string, name string) int {
	n := 0
	for _, k := range keys {
		if strings.EqualFold(k, name) {
			n++
		}
	}
	return n
}

// shown returns the usual spelling of a field's name.
func shown(name string) string {
	parts := strings.Split(name, "-")
	for i, p := range parts {
		switch {
		case p == "id" || p == "mime":
			parts[i] = strings.ToUpper(p)
		case p != "":
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "-")
}
