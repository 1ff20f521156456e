package fleetapi_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// TestCustomerSearch: q finds customers page by page and in an export, within the key's subaccounts.
func TestCustomerSearch(t *testing.T) {
	r := newRig(t)
	p, stranger := r.live.tenant(t, ours), r.live.tenant(t, "org-9")
	want := []string{p.customer(), p.customer(), p.customer()}
	stranger.customer()
	slices.Sort(want)
	for _, q := range []string{"ada@example.com", "+4930901820", "exa", "901820"} {
		var got []string
		for at := "/customers?limit=1&q=" + url.QueryEscape(q); at != ""; {
			page := send(t, p.Client, "GET", at, "", 200)
			for _, c := range page["data"].([]any) {
				got = append(got, fields(c.(map[string]any)).text("id"))
			}
			if at = ""; page.text("next_cursor") != "" {
				at = "/customers?limit=1&q=" + url.QueryEscape(q) + "&cursor=" + url.QueryEscape(page.text("next_cursor"))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", q, got, want)
		}
		if a := p.Get("/customers?q="+url.QueryEscape(q), "Accept: application/x-ndjson"); a.Status != 200 || strings.Count(a.Body, "\n") != len(want) {
			t.Errorf("%q: exported %d %s", q, a.Status, a.Body)
		}
		scoped := r.live.As(r.live.key(ours, apikey.Permissions{Level: apikey.ReadOnly}, p.other.ID))
		if a := scoped.Get("/customers?q=" + url.QueryEscape(q)); a.Status != 200 || strings.Contains(a.Body, "Ada") {
			t.Errorf("%q: a key of another subaccount got %d %s", q, a.Status, a.Body)
		}
	}
	for _, accept := range []string{"application/json", "text/csv"} {
		refused(t, accept, p.Get("/customers?q=ada&sort=name", "Accept: "+accept), 400, "invalid_parameter", "sort invalid_value")
	}
	refused(t, "no text", p.Get("/customers?q=a%00b"), 400, "invalid_parameter", "q invalid_value")
}
