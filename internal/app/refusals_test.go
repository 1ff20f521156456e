package app

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// TestRefusedAccessIsLogged: each refusal by access control is one line in the server's
// log, with event, address and request id, and without the key.
func TestRefusedAccessIsLogged(t *testing.T) {
	var log bytes.Buffer
	a := deployment(t, "http://localhost:8080", slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), func(c *Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // their X-Request-Id counts
	})
	org, err := a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Accounts.CreateUser(t.Context(), account.NewUser{Email: "ben@example.com", Password: factorPassword, Organization: org.Slug, Role: account.Agent}); err != nil {
		t.Fatal(err)
	}
	in, err := a.Accounts.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: "ben@example.com", Password: factorPassword}, account.Client{IP: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	key, token, err := a.Keys.Create(t.Context(), apikey.New{
		OrganizationID: org.ID, Service: apikey.Helpdesk, Environment: apikey.Live, Name: "Report", Permissions: apikey.Permissions{Level: apikey.ReadOnly},
	})
	if err != nil {
		t.Fatal(err)
	}
	unknown := apikey.NewToken(apikey.Live)
	for _, tt := range []struct {
		method, path, header, value string
		status                      int
		attr, want                  string
	}{
		{"GET", deskapi.Base + "/tickets", "Authorization", "Bearer " + unknown.Reveal(), 401, "path", deskapi.Base + "/tickets"},
		{"DELETE", deskapi.Base + "/tickets/1", "Authorization", "Bearer " + token.Reveal(), 403, "actor", "key:" + key.ID},
		{"POST", "/api/trpc/invitations.create", "Cookie", browser.AccessCookie + "=" + in.Tokens.Access, 403, "actor", "user:" + in.User.ID},
		{"GET", "/settings/keys", "Cookie", browser.AccessCookie + "=" + in.Tokens.Access, 403, "page", "GET /settings/keys"},
		{"POST", "/settings/profile", "Sec-Fetch-Site", "cross-site", 403, "reason", "this request comes from another site"},
		{"POST", "/api/trpc/auth.signOut", "Sec-Fetch-Site", "cross-site", 403, "procedure", "auth.signOut"},
	} {
		log.Reset()
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(`{"json":{"email":"x@example.com","role":"agent"}}`))
		r.Host = "localhost:8080"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-Id", "the-request")
		r.Header.Set(tt.header, tt.value)
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%s %s: %d, want %d: %s", tt.method, tt.path, w.Code, tt.status, w.Body)
		}
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil { // a single line
			t.Errorf("%s %s: logged %q: %v", tt.method, tt.path, log.String(), err)
			continue
		}
		if line["event"] != "request.refused" || line["address"] != "192.0.2.1" || line["request_id"] != "the-request" || line[tt.attr] != tt.want {
			t.Errorf("%s %s: logged %v, want %s %q", tt.method, tt.path, line, tt.attr, tt.want)
		}
		for _, secret := range []string{unknown.Reveal(), token.Reveal(), in.Tokens.Access} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("%s %s: a secret is in %s", tt.method, tt.path, log.String())
			}
		}
	}
}
