package mailauth

import (
	"io"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// anyCharset accepts names in unknown charsets: only the address matters.
func anyCharset(_ string, r io.Reader) (io.Reader, error) { return r, nil }

// ascii returns the canonical form of a domain: lower case, international names in Punycode. It
// is empty for an invalid name.
func ascii(domain string) string {
	domain = strings.TrimSpace(domain)
	if plain(domain) {
		return strings.ToLower(domain)
	}
	a, err := idna.Lookup.ToASCII(domain)
	if err != nil || !plain(a) {
		return ""
	}
	return strings.ToLower(a)
}

// plain reports whether name has the characters of a DNS name, without empty
// labels.
func plain(name string) bool {
	if name == "" || len(name) > 253 || name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// Organization returns the organizational domain of a domain (RFC 7489, 3.2) in canonical form,
// or "" for a public suffix.
func Organization(domain string) string {
	d, err := publicsuffix.EffectiveTLDPlusOne(ascii(domain))
	if err != nil {
		return ""
	}
	return d
}

// aligned reports whether two domains belong to one organization.
func aligned(a, b string) bool {
	o := Organization(a)
	return o != "" && o == Organization(b)
}
