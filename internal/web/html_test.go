package web_test

import (
	"net/http/httptest"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// wantPage asserts the rules of all pages outside of the dashboard, and parses the page.
func wantPage(t testing.TB, w *httptest.ResponseRecorder) webtest.Document {
	t.Helper()
	d := webtest.Parse(t, w.Body.String())
	referrer := "no-referrer"
	if len(d.All("form")) > 0 {
		referrer = "strict-origin"
	}
	policy := "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	if len(d.All("script")) > 0 {
		policy += "; script-src 'self'"
	}
	for name, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": policy,
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         referrer,
		"Cache-Control":           "no-store, no-transform",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	return d
}
