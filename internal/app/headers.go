package app

import (
	"maps"
	"net/http"
	"strings"
)

// baseline has the headers for responses of unknown content, such as errors or JSON: no
// sniffing, scripts, framing or referrer. Handlers of pages and files replace them.
// Shared, so never append to it.
var baseline = map[string][]string{
	"Content-Security-Policy": {"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
	"Permissions-Policy":      {"camera=(), geolocation=(), microphone=(), payment=(), usb=()"}, // unused by the pages
	"Referrer-Policy":         {"no-referrer"},
	"X-Content-Type-Options":  {"nosniff"},
}

// strictTransport makes browsers use https for a year (RFC 6797), without subdomains,
// which may not be the operator's.
var strictTransport = []string{"max-age=31536000"}

// withHeaders adds the baseline to every response, and Strict-Transport-Security if the
// base URL is https and not this machine: on localhost it would affect all other
// programs.
func (c *Config) withHeaders(next http.Handler) http.Handler {
	https := !c.Loopback() && strings.HasPrefix(c.BaseURL, "https:")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		maps.Copy(h, baseline)
		if https {
			h["Strict-Transport-Security"] = strictTransport
		}
		next.ServeHTTP(w, r)
	})
}
