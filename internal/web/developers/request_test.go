package developers_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// key creates a key of the organization.
func (h *harness) key(n apikey.New) apikey.Key {
	h.t.Helper()
	n.OrganizationID = h.Organization.ID
	if n.Service == "" {
		n.Service, n.Environment = apikey.Helpdesk, apikey.Live
	}
	k, _, err := h.keys.Create(h.t.Context(), n)
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

// log records a request of a key.
func (h *harness) logRequest(k apikey.Key, r requestlog.Request) {
	h.t.Helper()
	r.Key = requestlog.Key{ID: k.ID, OrganizationID: k.OrganizationID, Service: string(k.Service), Environment: string(k.Environment)}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if r.Method == "" {
		r.Method = "GET"
	}
	if r.Path == "" {
		r.Path = "/api/v1/tickets"
	}
	h.requests.Record(r)
	if err := h.requests.Flush(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func TestKeyRequests(t *testing.T) {
	h := newHarness(t)
	k := h.key(apikey.New{Name: "Import", Permissions: apikey.Permissions{Level: apikey.ReadOnly}})
	path := keysPath + "/" + k.ID
	h.admin.Page(path).Want("No requests in the log yet.", `curl -sS `+webtest.BaseURL+`/api/v1/key -H "Authorization: Bearer $KEY"`)
	h.logRequest(k, requestlog.Request{RequestID: "first", Path: "/api/v1/tickets?q=*&limit=5", Status: 200, Duration: 1500 * time.Microsecond, Address: netip.MustParseAddr("192.0.2.7")})
	h.logRequest(k, requestlog.Request{RequestID: "second", Method: "POST", Path: "/api/v1/ti'ck<b>ets", Status: 403, Code: "permission_denied", Refusal: requestlog.Refusal{Rule: requestlog.Level, Needed: "read_write"}})
	h.logRequest(k, requestlog.Request{RequestID: "third", Method: "`id`|sh&", Status: 405, Code: "method_not_allowed"})
	d := h.admin.Page(path)
	d.Want("curl -sS -X '`id`|sh&' '")
	d.Want("GET /api/v1/tickets?q=*&limit=5", "1.5 ms", "192.0.2.7", "200", `curl -sS '`+webtest.BaseURL+`/api/v1/tickets?q=*&limit=5' -H "Authorization: Bearer $KEY"`,
		"Replace each *", "Request ID first",
		"403", "permission_denied", "It needs the level Read and write.", "Change the level",
		`curl -sS -X POST '`+webtest.BaseURL+`/api/v1/ti'\''ck<b>ets' -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d @body.json`)
	if part := d.WithAttr("id", "requests"); len(part) != 1 || webtest.Attr(part[0], "data-live") != "key:"+k.ID {
		t.Error("the list is not live")
	}
	text := h.admin.Get(path + "?requests=failed").Body.String()
	if strings.Contains(text, "192.0.2.7") || !strings.Contains(text, "permission_denied") {
		t.Error("the errors have other requests, or lack theirs")
	}
	for n := range 30 {
		h.logRequest(k, requestlog.Request{RequestID: fmt.Sprint("more-", n), Status: 404, Code: "not_found"})
	}
	d = h.admin.Page(path + "?requests=failed")
	older := d.WithAttr("rel", "next")
	if len(older) != 1 || len(d.WithAttr("data-label", "Request")) != 25 {
		t.Fatalf("got %d links to older requests", len(older))
	}
	if rows := h.admin.Page(webtest.Attr(older[0], "href")).WithAttr("data-label", "Request"); len(rows) != 7 {
		t.Errorf("the second page has %d requests, want 7", len(rows))
	}
	if w := h.admin.Get(path + "?before=x"); w.Code != 404 {
		t.Errorf("a page that does not exist: got %d", w.Code)
	}
}

// TestExplain: each rule is explained, with the next step.
func TestExplain(t *testing.T) {
	h := newHarness(t)
	read := []apikey.Action{apikey.Read}
	for _, tt := range []struct {
		what    string
		key     apikey.New
		refusal requestlog.Refusal
		revoke  bool
		want    []string
	}{
		{"resource", apikey.New{Permissions: apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"tickets": read}}}},
			requestlog.Refusal{Rule: requestlog.Resource, Needed: "tickets.create"}, false, []string{"The key was not allowed to create tickets. Add the action to its resources.", "Change permissions"}},
		{"resource and level", apikey.New{Permissions: apikey.Permissions{Level: apikey.ReadOnly, Resources: apikey.Grants{Named: map[string][]apikey.Action{"tickets": read}}}},
			requestlog.Refusal{Rule: requestlog.Resource, Needed: "tickets.create"}, false, []string{"change the level: Read only does not allow it either."}},
		{"settings", apikey.New{Permissions: apikey.Permissions{Level: apikey.Admin, Resources: apikey.Grants{Named: map[string][]apikey.Action{"tickets": read}}}},
			requestlog.Refusal{Rule: requestlog.Resource, Needed: "settings.read"}, false, []string{"remove the list and set a level"}},
		{"resource since then", apikey.New{}, requestlog.Refusal{Rule: requestlog.Resource, Needed: "tickets.create"}, false, []string{"not allowed to create tickets. It is now."}},
		{"level since then", apikey.New{}, requestlog.Refusal{Rule: requestlog.Level, Needed: "read_write"}, false, []string{"The key has the level Read and write now."}},
		{"scope", apikey.New{}, requestlog.Refusal{Rule: requestlog.Scope, Needed: "sub_1"}, false, []string{"The subaccount sub_1 is outside", "Create key"}},
		{"whole scope", apikey.New{}, requestlog.Refusal{Rule: requestlog.Scope, Needed: "all"}, false, []string{"needs a key for all subaccounts"}},
		{"address", apikey.New{AllowedIPs: []string{"192.0.2.1"}}, requestlog.Refusal{Rule: requestlog.Address, Needed: "203.0.113.9"}, false, []string{"came from 203.0.113.9, which was not among the allowed addresses.", "Allow the address"}},
		{"address since then", apikey.New{}, requestlog.Refusal{Rule: requestlog.Address, Needed: "203.0.113.9"}, false, []string{"It is now."}},
		{"limit", apikey.New{RateLimit: new(int64(5))}, requestlog.Refusal{Rule: requestlog.Limit, Needed: "more than 5 requests a minute"}, false, []string{"allow more than 5 requests a minute", "Change the limit"}},
		{"environment", apikey.New{Service: apikey.Fleet, Environment: apikey.Test}, requestlog.Refusal{Rule: requestlog.Environment, Needed: "https://api.example.com/sandbox/v1"}, false,
			[]string{"This is a key for the fleet's sandbox. It works at https://api.example.com/sandbox/v1 only."}},
		{"revoked", apikey.New{}, requestlog.Refusal{Rule: requestlog.Revoked}, true, []string{"The key was revoked. It never works again", "Create key"}},
		{"no rule", apikey.New{}, requestlog.Refusal{}, false, []string{"No rule of the key refused this request.", "About some_code"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			tt.key.Name = tt.what
			if tt.key.Level == "" && !tt.key.Resources.Set() {
				tt.key.Level = apikey.ReadWrite
			}
			k := h.key(tt.key)
			if tt.revoke {
				if _, err := h.keys.Revoke(t.Context(), h.Organization.ID, k.ID); err != nil {
					t.Fatal(err)
				}
			}
			h.logRequest(k, requestlog.Request{Status: 403, Code: "some_code", Address: netip.MustParseAddr("203.0.113.9"), Refusal: tt.refusal})
			h.admin.Page(keysPath + "/" + k.ID).Want(tt.want...)
		})
	}
}

// TestRemainingClients: the page of a rotated key shows the addresses that still use it.
func TestRemainingClients(t *testing.T) {
	h := newHarness(t)
	k := h.key(apikey.New{Name: "Import", Permissions: apikey.Permissions{Level: apikey.ReadOnly}})
	h.logRequest(k, requestlog.Request{Status: 200, At: time.Now().Add(-time.Hour), Address: netip.MustParseAddr("198.51.100.1")})
	if _, _, err := h.keys.Rotate(t.Context(), h.Organization.ID, k.ID); err != nil {
		t.Fatal(err)
	}
	path := keysPath + "/" + k.ID
	h.admin.Page(path).Want("Used since the rotation", "The log has no request with this key since its rotation.")
	h.logRequest(k, requestlog.Request{Status: 200, Address: netip.MustParseAddr("198.51.100.2")})
	d := h.admin.Page(path)
	clients := d.WithAttr("data-label", "Requests in the log")
	if len(clients) != 1 || webtest.Text(clients[0]) != "1" {
		t.Errorf("got %d clients", len(clients))
	}
	d.Want("198.51.100.2")
}
