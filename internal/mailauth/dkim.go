package mailauth

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

const (
	// maxSignatures bounds the verified signatures, maxSeen the signatures of a mail.
	maxSignatures = 5
	maxSeen       = 20
	// maxRecord bounds a key record in bytes: RSA time grows with the square of the key size.
	maxRecord = 2048
)

// signature is a DKIM signature with an aligned domain.
type signature struct {
	index  int // among the mail's signatures
	domain string
	record string   // the DNS name of the key
	keys   []string // covered fields, lower case
	agent  string   // domain of i=; may be empty
	flaw   string   // reason why it does not count; empty if it does once verified
	strict bool     // flaw matters only here, not for DMARC
}

// tags parses a tag list (RFC 6376, 3.2). ok is false if a tag occurs twice or has no value.
func tags(v string) (list map[string]string, ok bool) {
	list = make(map[string]string)
	for item := range strings.SplitSeq(v, ";") {
		name, value, found := strings.Cut(item, "=")
		if name = strings.TrimSpace(name); !found {
			if name != "" {
				return list, false
			}
			continue
		}
		if _, twice := list[name]; twice {
			return list, false
		}
		list[name] = strings.TrimSpace(value)
	}
	return list, true
}

// squeezed returns a tag's value without white space.
func squeezed(v string) string { return strings.Join(strings.Fields(v), "") }

// readSignatures collects the aligned signatures.
func (c *Check) readSignatures() {
	if !c.mail.Intact {
		return
	}
	values := c.values(dkimField)
	if len(values) > maxSeen {
		c.skipped = "the mail has " + strconv.Itoa(len(values)) + " DKIM signatures, which is too many to check"
		return
	}
	for i, v := range values {
		if s, ok := c.readSignature(i, v); ok && len(c.signatures) < maxSignatures {
			c.signatures = append(c.signatures, s)
		}
	}
}

// readSignature parses one signature. It returns false if its domain cannot prove the mail.
func (c *Check) readSignature(index int, v string) (signature, bool) {
	t, ok := tags(v)
	s := signature{index: index, domain: ascii(squeezed(t["d"]))}
	if !aligned(s.domain, c.domain) {
		return s, false
	}
	s.record = strings.ToLower(squeezed(t["s"])) + "._domainkey." + s.domain
	s.keys = signedKeys(t)
	if i := squeezed(t["i"]); i != "" {
		s.agent = ascii(domainPart(i))
	}
	_, partial := t["l"]
	many := strings.Count(t["h"], ":") >= maxKeys
	expires, err := strconv.ParseInt(squeezed(t["x"]), 10, 64)
	repeated := c.repeated(s.keys)
	s.strict = partial || many || repeated != "" || c.count("subject") > 0 && occurrences(s.keys, "subject") == 0
	switch {
	case !ok:
		s.flaw = "is malformed"
	case !plain(s.record):
		s.flaw = "names no key"
	case many:
		s.flaw = "names too many fields"
	case partial:
		s.flaw = "covers only the beginning of the text (l=)"
	case err == nil && c.mail.Received.After(time.Unix(expires, 0)):
		s.flaw = "has expired"
	case repeated != "":
		s.flaw = "covers only one of several " + shown(repeated) + " headers"
	case s.strict:
		s.flaw = "does not cover the subject"
	}
	return s, true
}

// signedKeys returns the fields that a signature covers, up to a limit.
func signedKeys(t map[string]string) []string {
	var keys []string
	for key := range strings.SplitSeq(t["h"], ":") {
		if len(keys) == maxKeys {
			break
		}
		keys = append(keys, squeezed(key))
	}
	return keys
}

// verified is the result of verifying the signatures.
type verified struct {
	passes []pass
	why    string // reason why one does not count; may be empty
	waits  string // name of a failed lookup; empty if none failed
	strict bool   // one counts for DMARC but not here
}

// verify verifies the signatures with the keys in answers.
func (c *Check) verify(answers map[string][]string) (v verified) {
	list := slices.Clone(c.signatures)
	defer func() {
		for _, s := range list {
			if s.flaw != "" && v.why == "" {
				v.why = "the DKIM signature of " + s.domain + " " + s.flaw
			}
			v.strict = v.strict || s.strict
		}
	}()
	wanted := func(record string) bool {
		return slices.ContainsFunc(list, func(s signature) bool { return s.flaw == "" && (record == "" || s.record == record) })
	}
	if !wanted("") {
		return v
	}
	if answers == nil {
		v.why = "DKIM signatures are not checked here"
		return v
	}
	// The verifier reads the body only for signatures with a key.
	results, err := dkim.VerifyWithOptions(c.reader(), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
		records := answers[asciiRecord(name)]
		switch {
		case !wanted(asciiRecord(name)):
			return nil, errNotAsked
		case len(records) == 0:
			return nil, errNoKey
		case len(records[0]) > maxRecord:
			return nil, errLongKey
		}
		return records, nil
	}})
	if err != nil || len(results) != c.count(dkimField) {
		v.why = "the DKIM signatures cannot be read"
		return v
	}
	for i := range list {
		s := &list[i]
		if s.flaw != "" {
			continue
		}
		records, answered := answers[s.record]
		switch result := results[s.index]; {
		case !answered:
			v.waits = "the key of the DKIM signature of " + s.domain
			continue
		case ascii(result.Domain) != s.domain:
			s.flaw = "cannot be read"
		case result.Err != nil:
			s.flaw = explain(result.Err)
		default:
			s.flaw = keyFlaw(records, s)
			s.strict = s.flaw != ""
		}
		if s.flaw == "" {
			v.passes = append(v.passes, pass{
				domain: s.domain, uncovered: c.uncovered(s.keys),
				words: "DKIM signature of " + s.domain + " matches the From address",
			})
		}
	}
	return v
}

const dkimField = "DKIM-Signature"

// reader returns the mail in the verifier's form: header, blank line, body.
func (c *Check) reader() io.Reader {
	head := c.mail.Head
	between := "\r\n"
	if len(head) > 0 && head[len(head)-1] != '\n' {
		between = "\r\n\r\n"
	}
	return io.MultiReader(bytes.NewReader(head), strings.NewReader(between), bytes.NewReader(c.mail.Body))
}

// asciiRecord returns the name of a key in the form of [signature].
func asciiRecord(name string) string {
	selector, domain, _ := strings.Cut(name, "._domainkey.")
	return strings.ToLower(selector) + "._domainkey." + ascii(domain)
}

var (
	errNotAsked = errors.New("not asked for")
	errNoKey    = errors.New("no key is published")
	errLongKey  = errors.New("the key is too long")
)

// explain explains in plain words why a signature does not verify. The verifier has error texts
// only.
func explain(err error) string {
	text := err.Error()
	for _, e := range [][2]string{
		{"body hash did not verify", "does not match: the text was changed after it was signed"},
		{"signature did not verify", "does not match: the header was changed after it was signed, or the key is another"},
		{"has expired", "has expired"},
		{"too short", "uses a key of less than 1024 bits"},
		{errLongKey.Error(), "uses a key that is too long"},
		{errNoKey.Error(), "names a key that is not published"},
		{"no key for signature", "names a key that is not published"},
		{"no valid key", "names a key that is not published"},
		{"revoked", "uses a key that was revoked"},
		{"hash algorithm too weak", "uses SHA-1"},
		{"key", "uses a key that cannot be read"},
	} {
		if strings.Contains(text, e[0]) {
			return e[1]
		}
	}
	return "is malformed"
}

// keyFlaw returns the reason why a valid signature does not count because of its key's flags
// (RFC 6376, 3.6.1): keys in testing mode prove nothing, and some allow no subdomains.
func keyFlaw(records []string, s *signature) string {
	if len(records) == 0 {
		return "names a key that is not published"
	}
	t, _ := tags(records[0])
	for flag := range strings.SplitSeq(t["t"], ":") {
		switch strings.TrimSpace(flag) {
		case "y":
			return "uses a key that is marked as a test (t=y)"
		case "s":
			if s.agent != "" && s.agent != s.domain {
				return "is for a subdomain, which its key does not allow"
			}
		}
	}
	return ""
}
