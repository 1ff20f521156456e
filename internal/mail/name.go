package mail

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxName is the maximum length of [PlainName] in characters.
const maxName = 60

// PlainName returns a name that a user chose, such as an organization's, in a
// form that is safe in the subject and the text of a mail to a third party.
// Mail programs turn host names, URLs and addresses into links wherever they
// stand, so PlainName removes the characters that make them up: dots, colons,
// slashes and at signs inside a word become spaces. It also removes control,
// format and bidirectional characters and line ends, and shortens the result
// to 60 characters. It returns fallback when no letter, digit or symbol remains.
func PlainName(name, fallback string) string {
	runes := []rune(norm.NFKC.String(strings.ToValidUTF8(name, " ")))
	var b strings.Builder
	for i, r := range runes {
		switch {
		case r == '\u200c', r == '\u200d': // joiners, which scripts and emoji need
			b.WriteRune(r)
		case unicode.IsControl(r), unicode.IsSpace(r), unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
			b.WriteByte(' ')
		case strings.ContainsRune(".。:/\\@", r) && isJoined(runes, i-1) && isJoined(runes, i+1):
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	plain := strings.Join(strings.Fields(b.String()), " ")
	if !strings.ContainsFunc(plain, func(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.S) }) {
		return fallback
	}
	if short := []rune(plain); len(short) > maxName {
		plain = strings.TrimSpace(string(short[:maxName-1])) + "…"
	}
	return plain
}

// isJoined reports whether the character at i is inside a word.
func isJoined(runes []rune, i int) bool {
	return i >= 0 && i < len(runes) && !unicode.IsSpace(runes[i])
}
