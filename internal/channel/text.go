package channel

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// MediaType returns the type that the request says its body is of, in lower case and
// without parameters; empty when it says none.
func (r *Request) MediaType() string {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// CleanText makes text fit for a database: UTF-8 without NUL.
func CleanText(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "")
}

// BoundedID is an id of at most so many bytes as it is, and a longer one by its digest, so
// that it stays unlike others.
func BoundedID(id string, most int) string {
	if len(id) <= most {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// IndexKey makes a value from a request fit for an index: what is long or is not clean
// text stands by its digest.
func IndexKey(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return BoundedID(s, -1)
	}
	return BoundedID(s, 200)
}
