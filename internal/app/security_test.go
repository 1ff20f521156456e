package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// attempt is a refused request and its security event.
type attempt struct {
	event                    string
	method, path, body, kind string
	header                   map[string]string
	cookies                  map[string]string
	host                     string
	chain                    string // of the audit entry: "", "org", or "-" for none
}

// guardedWorld is a deployment with the records that attempts need.
type guardedWorld struct {
	*strict
	log            *logged
	foreign        desk.Ticket
	webhook        string // of another organization
	session        string // ada's session token
	pending        string // token of ben's pending sign-in
	key            string // a valid key
	revoked, spent string // invalid keys
}

const (
	plantedPassword = "planted-Passw0rd"
	plantedCode     = "938271"
	plantedSecret   = "planted-signing-secret"
	plantedToken    = "planted-token-in-a-path"
)

func newGuardedWorld(t *testing.T) guardedWorld {
	log := new(logged)
	a := deployment(t, "http://localhost:8080", log.logger(), func(c *Config) {
		c.AccessLifetime, c.RefreshLifetime, c.SignUp, c.Secrets = time.Hour, time.Hour, "invited", map[string][]string{"sms": {plantedSecret}}
		c.AllowPrivateReceivers = true
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")} // their X-Request-Id counts
	})
	w := guardedWorld{strict: &strict{App: a, t: t}, log: log}
	var err error
	if w.org, err = a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	other, err := a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Other"})
	if err != nil {
		t.Fatal(err)
	}
	w.ada, w.ben = w.admin("ada@example.com"), w.admin("ben@example.com")
	w.session = w.signIn(w.ada).Tokens.Access
	w.addApp(w.signIn(w.ben))
	w.pending = w.signIn(w.ben).Pending
	w.foreign, w.webhook = w.ticketOf(other.ID), w.webhookOf(other.ID)
	_, w.key = w.makeKey()
	var id string
	id, w.revoked = w.makeKey()
	if _, err := a.Keys.Revoke(t.Context(), w.org.ID, id); err != nil {
		t.Fatal(err)
	}
	id, w.spent = w.makeKey()
	w.exec("UPDATE api_keys SET expires_at = 1 WHERE id = '" + id + "'")
	return w
}

func (w *guardedWorld) makeKey() (id, token string) {
	w.t.Helper()
	k, secret, err := w.Keys.Create(w.t.Context(), apikey.New{
		OrganizationID: w.org.ID, Service: apikey.Helpdesk, Environment: apikey.Live, Name: fmt.Sprint("Key ", time.Now().UnixNano()), Permissions: apikey.Permissions{Level: apikey.Admin},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return k.ID, secret.Reveal()
}

func (w *guardedWorld) ticketOf(organizationID string) (ticket desk.Ticket) {
	w.t.Helper()
	if err := w.DB.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		ticket, err = w.Desk.CreateTicketTx(w.t.Context(), tx, organizationID, desk.NewTicket{Subject: "Theirs", Customer: &desk.Person{Email: "cyn@example.com"}})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return ticket
}

func (w *guardedWorld) webhookOf(organizationID string) string {
	w.t.Helper()
	h, err := w.Webhooks.Create(w.t.Context(), organizationID, webhook.New{URL: "http://127.0.0.1:1/", Events: []string{"*"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return h.ID
}

func (w *guardedWorld) attempts() []attempt {
	const form, json = "application/x-www-form-urlencoded", "application/json"
	bearer := func(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }
	ada := map[string]string{browser.AccessCookie: w.session}
	return []attempt{
		{event: "sign_in.refused", method: "POST", path: "/api/trpc/auth.signInWithPassword", kind: json, body: `{"json":{"email":"ada@example.com","password":"` + plantedPassword + `"}}`, chain: "org"},
		{event: "sign_in.refused", method: "POST", path: "/api/trpc/auth.signInWithPassword", kind: json, body: `{"json":{"email":"` + plantedPassword + `@example.com","password":"` + plantedPassword + `"}}`},
		{event: "sign_up.refused", method: "POST", path: "/api/trpc/auth.signInWithEmail", kind: json, body: `{"json":{"email":"` + plantedPassword + `@example.com"}}`},
		{event: "second_factor.refused", method: "POST", path: "/api/trpc/auth.verifyTotp", kind: json, body: `{"json":{"code":"` + plantedCode + `"}}`, cookies: map[string]string{browser.PendingCookie: w.pending}, chain: "org"},
		{event: "api_key.refused", method: "GET", path: deskapi.Base + "/tickets", header: bearer(w.revoked), chain: "org"},
		{event: "api_key.refused", method: "GET", path: deskapi.Base + "/tickets", header: bearer(w.spent), chain: "org"},
		{event: "request.refused", method: "GET", path: deskapi.Base + "/tickets", header: bearer(w.key[:len(w.key)-8] + "AAAAAAAA"), chain: "-"},
		{event: "tenant.refused", method: "GET", path: deskapi.Base + "/tickets/" + w.foreign.ID, header: bearer(w.key)},
		{event: "tenant.refused", method: "GET", path: "/customers/" + w.foreign.Customer.ID, cookies: ada},
		{event: "tenant.refused", method: "POST", path: "/api/trpc/webhooks.delete", kind: json, body: `{"json":{"id":"` + w.webhook + `"}}`, cookies: ada},
		{event: "request.foreign_host", method: "GET", path: "/reset-password?token=" + plantedToken, host: "evil.example"},
		{event: "request.refused", method: "POST", path: "/reset-password?token=" + plantedToken, kind: form, body: "token=" + plantedToken + "&password=" + plantedPassword, header: map[string]string{"Sec-Fetch-Site": "cross-site"}, chain: "-"},
		{event: "inbound.refused", method: "POST", path: "/api/webhooks/sms?token=" + plantedToken, kind: form, body: "From=%2B1&Body=" + plantedToken, header: map[string]string{"X-Twilio-Signature": plantedSecret}},
	}
}

// TestSecurityEventsOnceEach: every refusal is one line of the server's log, with address
// and request id, and one audit entry; none has a password, token, key, code or signing
// secret.
func TestSecurityEventsOnceEach(t *testing.T) {
	w := newGuardedWorld(t)
	list := w.attempts()
	for i, at := range list {
		w.refused(i, at)
	}
	// Repeated: no further lines.
	before := strings.Count(w.log.String(), "msg=security")
	w.refusedQuietly(len(list), list[0], list[4], list[len(list)-1])
	if n := strings.Count(w.log.String(), "msg=security"); n != before {
		t.Errorf("%d more lines for the same refusals", n-before)
	}
	audittest.Flush(t, w.Audit)
	for i, at := range list {
		w.recorded(i, at)
	}
	w.searched(w.revoked, w.spent, w.key, w.session, w.pending)
}

// send sends an attempt from its own address.
func (w *guardedWorld) send(i int, id string, at attempt) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(at.method, "http://localhost:8080"+at.path, strings.NewReader(at.body))
	r.RemoteAddr = fmt.Sprintf("198.51.100.%d:4000", i+1)
	if r.Host = "localhost:8080"; at.host != "" {
		r.Host = at.host
	}
	r.Header.Set("X-Request-Id", id)
	if at.kind != "" {
		r.Header.Set("Content-Type", at.kind)
	}
	for name, value := range at.header {
		r.Header.Set(name, value)
	}
	for name, value := range at.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	return answer
}

func (w *guardedWorld) refused(i int, at attempt) {
	w.t.Helper()
	id := fmt.Sprintf("attempt-%d-", i)
	answer := w.send(i, id, at)
	var lines []string
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "msg=security") && strings.Contains(line, "request_id="+id) {
			lines = append(lines, line)
		}
	}
	want := fmt.Sprintf("event=%s address=198.51.100.%d request_id=%s", at.event, i+1, id)
	if len(lines) != 1 || !strings.Contains(lines[0], want) {
		w.t.Errorf("%s %s: answered %d, logged %q, want one line with %s", at.method, at.path, answer.Code, lines, want)
	}
}

// refusedQuietly repeats attempts from their earlier addresses.
func (w *guardedWorld) refusedQuietly(n int, again ...attempt) {
	w.t.Helper()
	for i, at := range w.attempts()[:n] {
		for _, a := range again {
			if a.event == at.event && a.path == at.path && a.body == at.body && fmt.Sprint(a.header) == fmt.Sprint(at.header) {
				w.send(i, "again", at)
			}
		}
	}
}

// recorded checks the audit entry of an attempt.
func (w *guardedWorld) recorded(i int, at attempt) {
	w.t.Helper()
	if at.chain == "-" {
		return
	}
	organization := ""
	if at.chain == "org" {
		organization = w.org.ID
	}
	n := 0
	for _, e := range audittest.List(w.t, w.Audit, organization, audit.Query{Action: at.event, Outcome: audit.Refused}) {
		if e.Source.IP() == fmt.Sprintf("198.51.100.%d", i+1) {
			n++
		}
	}
	if n == 0 {
		w.t.Errorf("%s %s: no entry of %s in the chain %q", at.method, at.path, at.event, organization)
	}
}

// searched checks that no secret is in the server's log or the audit log.
func (w *guardedWorld) searched(tokens ...string) {
	w.t.Helper()
	var all strings.Builder
	all.WriteString(w.log.String())
	rows, err := db.All(w.t.Context(), w.DB, func(row db.Row) (text string, err error) {
		var parts [9]string
		err = row.Scan(&parts[0], &parts[1], &parts[2], &parts[3], &parts[4], &parts[5], &parts[6], &parts[7], &parts[8])
		return strings.Join(parts[:], " "), err
	}, "SELECT action, actor_id, actor_email, target_id, target_name, partial_key, user_agent, changes, details FROM audit_entries")
	if err != nil || len(rows) < 12 {
		w.t.Fatalf("%d entries, %v", len(rows), err)
	}
	for _, row := range rows {
		all.WriteString(row + "\n")
	}
	text := strings.ToLower(all.String()) // addresses compare in lower case
	for _, secret := range append(tokens, plantedPassword, plantedSecret, plantedToken, factorPassword) {
		if secret == "" || strings.Contains(text, strings.ToLower(secret)) {
			w.t.Errorf("%q is in the log or the audit log", secret)
		}
	}
	if regexp.MustCompile(`\b` + plantedCode + `\b`).MatchString(text) {
		w.t.Error("a code is in the log or the audit log")
	}
}
