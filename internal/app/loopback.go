package app

import (
	"net/url"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// Loopback reports whether the base URL's host is this machine: localhost and names below
// it (RFC 6761, section 6.3), 127.0.0.0/8 or ::1. Policies that are lenient in
// development depend on it; an invalid base URL counts as production.
func (c Config) Loopback() bool {
	u, err := url.Parse(c.BaseURL)
	return err == nil && (isLocalhost(u.Hostname()) || netguard.Loopback(u))
}

// isLocalhost reports whether host is localhost or below it.
func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
