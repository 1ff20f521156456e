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

// maxURL is the length of the longest URL accepted, in bytes.
const maxURL = 2048

// CheckURL parses the URL of a receiver and refuses one that could not be a public
// HTTPS endpoint, whatever the DNS says. With allowPrivate, http and any host are
// fine. The name is not resolved: that is for the [Guard], at each connection.
//
// Errors read as the rest of a sentence that begins with the name of the field
// ("must use https"), or are an [*AddressError]; they never repeat the URL, which
// may hold a secret.
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
	// Some resolvers read 127.1, 0x7f.1 and 2130706433 as addresses; no
	// top-level domain looks like one.
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

// toASCII does what net/http will do to a host before it is resolved, which may
// turn full-width digits and dots into an address.
func toASCII(host string) (string, error) {
	if !strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return host, nil
	}
	return idna.Lookup.ToASCII(host)
}

// validLabel reports whether the resolver will take label as part of a name.
// Underscores are not for host names, but some have them.
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

// ParseAPIURL reads the configured address of an API, standard if there is none.
// It must be https, as credentials go there with every request; only on this
// machine http will do.
func ParseAPIURL(raw, standard string) (*url.URL, error) {
	if raw == "" {
		raw = standard
	}
	u, err := url.Parse(strings.TrimRight(raw, "/"))
	switch {
	case strings.Contains(raw, "@"): // not repeated: there may be a key in it
		return nil, errors.New("it must not hold a user name or a key, which is a setting of its own")
	case err != nil, u.Hostname() == "", u.Opaque != "", u.RawQuery != "", u.ForceQuery, u.Fragment != "",
		u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("%q is not an address such as %s", raw, standard)
	case u.Scheme == "http" && !Loopback(u):
		return nil, fmt.Errorf("%q must be https: credentials go there", raw)
	}
	return u, nil
}

// Loopback reports whether a URL is on this machine, by its looks.
func Loopback(u *url.URL) bool {
	if u.Hostname() == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.Unmap().IsLoopback()
}
