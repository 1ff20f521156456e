package channel

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// MediaType returns the media type of the Content-Type header in lower case without parameters,
// or "".
func (r *Request) MediaType() string {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// CleanText makes text storable in both databases: valid UTF-8 without NUL.
func CleanText(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "")
}

// BoundedID returns id if it has at most most bytes, and else its SHA-256 digest, which remains
// unique.
func BoundedID(id string, most int) string {
	if len(id) <= most {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// IndexKey makes a value of a request fit for an index column: long or unclean values are
// replaced by their digest.
func IndexKey(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return BoundedID(s, -1)
	}
	return BoundedID(s, 200)
}
