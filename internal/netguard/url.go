package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// maxURL is the maximum length of a URL in bytes.
const maxURL = 2048

// CheckURL parses the URL of a receiver and refuses one that cannot be a public HTTPS endpoint.
// With allowPrivate, http and any host are allowed. It does not resolve the name; the [Guard]
// does at each connection.
//
// Errors are the rest of a sentence that begins with the field's name ("must use https"), or an
// [*AddressError]; they never repeat the URL, which may hold a secret.
func CheckURL(raw string, allowPrivate bool) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("must not be empty")
	}
	if len(raw) > maxURL {
		return nil, fmt.Errorf("must be at most %d bytes long", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("is not a valid URL") // err quotes it
	}
	switch {
	case u.Scheme == "https":
	case u.Scheme == "http" && allowPrivate:
	case allowPrivate:
		return nil, errors.New("must use https or http")
	default:
		return nil, errors.New("must use https")
	}
	if u.Opaque != "" || u.Host == "" {
		return nil, errors.New("must name a host, as in https://example.com/path")
	}
	if u.User != nil {
		return nil, errors.New("must not contain a user name or password")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("must have a port from 1 to 65535")
		}
	}
	if err := checkHost(u.Hostname(), allowPrivate); err != nil {
		return nil, err
	}
	return u, nil
}

func checkHost(host string, allowPrivate bool) error {
	host, err := toASCII(host)
	if err != nil {
		return errors.New("must have a valid host name")
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(name); err == nil {
		return Guard{AllowPrivate: allowPrivate}.Check(addr)
	}
	if len(name) > 253 {
		return errors.New("must have a valid host name")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !validLabel(label) {
			return errors.New("must have a valid host name")
		}
	}
	last := labels[len(labels)-1]
	// Some resolvers parse 127.1, 0x7f.1 and 2130706433 as addresses; no top-level domain has
	// such a form.
	if strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == "" {
		return errors.New("must have a valid host name or address")
	}
	if allowPrivate {
		return nil
	}
	if len(labels) == 1 || last == "localhost" || last == "local" || last == "internal" ||
		name == "home.arpa" || strings.HasSuffix(name, ".home.arpa") {
		return errors.New("must have a public host name")
	}
	return nil
}

// toASCII converts a host like net/http before resolution, which may turn full-width digits and
// dots into an address.
func toASCII(host string) (string, error) {
	if !strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return host, nil
	}
	return idna.Lookup.ToASCII(host)
}

// validLabel reports whether label may be part of a resolvable name. Underscores are invalid in
// host names but in use.
func validLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for _, c := range []byte(label) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// ParseAPIURL parses the configured URL of an API, or standard if raw is empty. It must be
// https, because every request carries credentials; http is allowed on this machine only.
func ParseAPIURL(raw, standard string) (*url.URL, error) {
	if raw == "" {
		raw = standard
	}
	u, err := url.Parse(strings.TrimRight(raw, "/"))
	switch {
	case strings.Contains(raw, "@"): // not repeated, because it may hold a key
		return nil, errors.New("it must not contain a user name or a key; set the key separately")
	case err != nil, u.Hostname() == "", u.Opaque != "", u.RawQuery != "", u.ForceQuery, u.Fragment != "",
		u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("%q is not an address such as %s", raw, standard)
	case u.Scheme == "http" && !Loopback(u):
		return nil, fmt.Errorf("%q must be https: credentials go there", raw)
	}
	return u, nil
}

// Loopback reports whether a URL's host is this machine.
func Loopback(u *url.URL) bool {
	if u.Hostname() == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.Unmap().IsLoopback()
}
