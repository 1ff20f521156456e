package app

import (
	"maps"
	"net/http"
	"strings"
)

// baseline has headers that are right for an answer of which nothing is known, such
// as an error or JSON: browsers do not guess its type, run nothing in it, frame it
// nowhere, and pass its address on to nobody. Handlers of pages and files replace
// them. Shared, so never appended to.
var baseline = map[string][]string{
	"Content-Security-Policy": {"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
	"Permissions-Policy":      {"camera=(), geolocation=(), microphone=(), payment=(), usb=()"}, // pages use none of them
	"Referrer-Policy":         {"no-referrer"},
	"X-Content-Type-Options":  {"nosniff"},
}

// strictTransport has browsers use https for a year (RFC 6797), subdomains not
// included: they may not be the operator's.
var strictTransport = []string{"max-age=31536000"}

// withHeaders adds the baseline to every answer of next, and
// Strict-Transport-Security where the public address is https. On this machine that
// would stick to localhost, for every other program.
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
