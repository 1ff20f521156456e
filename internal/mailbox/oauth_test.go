package mailbox_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/emersion/go-imap/v2/imapserver/imapmemserver"
	"github.com/emersion/go-sasl"
)

// grantor is a provider of tokens.
type grantor struct {
	mu        sync.Mutex
	requests  int
	withdrawn bool
	down      bool
	valid     string // access token
	forms     []url.Values
	rotating  bool   // a refresh token is valid once
	refresh   string // the valid one, if rotating
	during    func() // called once, during a request
	ends      int    // seconds of a consent; 0: unknown
}

const (
	code         = "a code"
	refreshToken = "the lasting secret"
)

// ServeHTTP implements [http.Handler]: the endpoint for tokens.
func (g *grantor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ParseForm() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if during := g.during; during != nil {
		g.during = nil
		defer func() { // after the answer is known, before it is sent
			g.mu.Unlock()
			during()
			g.mu.Lock()
		}()
	}
	g.requests++
	g.forms = append(g.forms, r.PostForm)
	w.Header().Set("Content-Type", "application/json")
	known := r.PostForm.Get("grant_type") == "authorization_code" && r.PostForm.Get("code") == code && r.PostForm.Get("code_verifier") != "" ||
		r.PostForm.Get("grant_type") == "refresh_token" && (r.PostForm.Get("refresh_token") == refreshToken && !g.rotating || r.PostForm.Get("refresh_token") == g.refresh && g.rotating)
	switch {
	case g.down:
		w.WriteHeader(http.StatusBadGateway)
	case g.withdrawn, !known:
		w.WriteHeader(http.StatusBadRequest)
		json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": "repeats " + refreshToken})
	default:
		g.valid = "token " + strings.Repeat("x", g.requests)
		answer := map[string]any{"access_token": g.valid, "refresh_token": refreshToken, "token_type": "Bearer", "expires_in": 3600}
		if g.rotating {
			g.refresh = fmt.Sprint(refreshToken, " ", g.requests)
			answer["refresh_token"] = g.refresh
		}
		if g.ends > 0 {
			answer["refresh_token_expires_in"] = g.ends
		}
		json.NewEncoder(w).Encode(answer)
	}
}

func (g *grantor) set(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn()
}

// AuthenticateMechanisms implements [imapserver.SessionSASL].
func (s *testSession) AuthenticateMechanisms() []string { return []string{"PLAIN", "XOAUTH2"} }

// Authenticate implements [imapserver.SessionSASL].
func (s *testSession) Authenticate(mechanism string) (sasl.Server, error) {
	if mechanism == "XOAUTH2" {
		return &bearer{session: s}, nil
	}
	return sasl.NewPlainServer(func(_, name, secret string) error { return s.Login(name, secret) }), nil
}

// bearer is the server of the SASL mechanism XOAUTH2.
type bearer struct {
	session *testSession
	failed  bool
}

// Next implements [sasl.Server].
func (b *bearer) Next(response []byte) (challenge []byte, done bool, err error) {
	if b.failed {
		return nil, false, imapserver.ErrAuthFailed
	}
	if response == nil {
		return []byte{}, false, nil
	}
	g := b.session.house.grantor
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.valid == "" || string(response) != "user="+user+"\x01auth=Bearer "+g.valid+"\x01\x01" {
		b.failed = true
		return []byte(`{"status":"400"}`), false, nil
	}
	b.session.UserSession = imapmemserver.NewUserSession(b.session.house.box)
	return nil, true, nil
}

// withOAuth has the house's servers accept tokens of a provider.
func withOAuth(t *testing.T) func(*house) {
	return func(h *house) {
		h.grantor = new(grantor)
		server := httptest.NewServer(h.grantor)
		t.Cleanup(server.Close)
		h.clients = map[string]mailbox.OAuthClient{email.ProviderGoogle: {ID: "client", Secret: "client secret", AuthURL: server.URL + "/auth", TokenURL: server.URL + "/token"}}
		h.caps["AUTH=XOAUTH2"] = struct{}{}
	}
}

// consent has a user of the organization consent at the provider.
func (h *house) consent(id string) error {
	h.t.Helper()
	at, err := h.ConsentURL(h.t.Context(), "org-1", "user-1", id)
	if err != nil {
		h.t.Fatal(err)
	}
	u, err := url.Parse(at)
	if err != nil {
		h.t.Fatal(err)
	}
	query := u.Query()
	if query.Get("redirect_uri") != "https://help.example/settings/mailbox-consent" || query.Get("code_challenge_method") != "S256" || query.Get("login_hint") != user || query.Get("access_type") != "offline" {
		h.t.Errorf("the consent is asked for at %s", at)
	}
	for _, stranger := range [][2]string{{"org-2", "user-1"}, {"org-1", "user-2"}} {
		if _, err := h.AcceptConsent(h.t.Context(), stranger[0], stranger[1], query.Get("state"), code); problem.Of(err) != problem.Precondition {
			h.t.Errorf("the consent of %v is answered %v", stranger, err)
		}
	}
	_, err = h.AcceptConsent(h.t.Context(), "org-1", "user-1", query.Get("state"), code)
	return err
}

// TestOAuth: a mailbox is read with tokens of a provider, which are refreshed. When the consent
// ends, the state says so and admins get a notice, until somebody signs in again.
func TestOAuth(t *testing.T) {
	t.Parallel()
	h := start(t, withOAuth(t))
	n := h.connectable(nil)
	delete(n.Credentials, email.CredentialPassword)
	n.Credentials[email.CredentialProvider] = email.ProviderGoogle
	if p, err := h.Probe(t.Context(), &n); err != nil || len(p.Folders) > 0 {
		t.Errorf("the probe returns %+v, %v", p, err)
	}
	c, _, err := h.connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Consent })
	if !strings.Contains(s.Error, "nobody has signed in at Google yet") {
		t.Errorf("before the consent the error is %q", s.Error)
	}
	if err := h.consent(c.ID); err != nil {
		t.Fatal(err)
	}
	h.reading(c.ID)
	h.deliver("INBOX", "one")
	h.want("one")

	h.stop()
	h.grantor.set(func() { h.grantor.valid = "" }) // revoked; the stored token looks valid
	h.deliver("INBOX", "two")
	h.run()
	h.want("one", "two")

	h.stop()
	h.grantor.set(func() { h.grantor.valid, h.grantor.withdrawn = "", true })
	h.run()
	s = h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Consent })
	if !strings.Contains(s.Error, "the consent at Google has ended") {
		t.Errorf("after the consent the error is %q", s.Error)
	}
	found, err := h.connections.Find(t.Context(), c.ID)
	if err != nil || found.Notice == nil || !strings.Contains(found.Notice.Text, "has ended") {
		t.Errorf("the notice is %+v, %v", found.Notice, err)
	}
	h.deliver("INBOX", "three")
	h.grantor.set(func() { h.grantor.withdrawn = false })
	if err := h.consent(c.ID); err != nil {
		t.Fatal(err)
	}
	h.want("one", "two", "three")
	h.reading(c.ID)

	var stored []byte
	if err := h.db.QueryRow(t.Context(), "SELECT tokens FROM mailboxes").Scan(&stored); err != nil || strings.Contains(string(stored), "lasting") || len(stored) == 0 {
		t.Errorf("the stored tokens are %q, %v", stored, err)
	}
	if log := h.log.String(); strings.Contains(log, refreshToken) || strings.Contains(log, "token x") || strings.Contains(log, "client secret") {
		t.Errorf("the log has a secret: %s", log)
	}
}

// TestConsentRefused: a refused, late or forged consent stores nothing.
func TestConsentRefused(t *testing.T) {
	h := start(t, withOAuth(t))
	n := h.connectable(nil)
	delete(n.Credentials, email.CredentialPassword)
	n.Credentials[email.CredentialProvider] = email.ProviderGoogle
	c, _, err := h.connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	h.grantor.set(func() { h.grantor.withdrawn = true })
	if err := h.consent(c.ID); problem.Of(err) != problem.Precondition || strings.Contains(err.Error(), refreshToken) {
		t.Errorf("a refused code is answered %v", err)
	}
	if _, err := h.AcceptConsent(t.Context(), "org-1", "user-1", "forged", code); problem.Of(err) != problem.Precondition {
		t.Errorf("a forged state is answered %v", err)
	}
	if _, err := h.ConsentURL(t.Context(), "org-2", "user-1", c.ID); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization gets %v", err)
	}
	var stored int
	if err := h.db.QueryRow(t.Context(), "SELECT count(*) FROM mailboxes WHERE tokens IS NOT NULL").Scan(&stored); err != nil || stored != 0 {
		t.Errorf("%d tokens are stored, %v", stored, err)
	}
	n.Credentials[email.CredentialProvider] = email.ProviderMicrosoft
	if _, err := h.Probe(t.Context(), &n); problem.Of(err) != problem.Invalid {
		t.Errorf("a provider without a client is answered %v", err)
	}
}

// TestProviderDown: while the provider does not answer, the attempts go on, and the consent stands.
func TestProviderDown(t *testing.T) {
	t.Parallel()
	h := start(t, withOAuth(t))
	n := h.connectable(nil)
	delete(n.Credentials, email.CredentialPassword)
	n.Credentials[email.CredentialProvider] = email.ProviderGoogle
	c, _, err := h.connections.Connect(t.Context(), n)
	if err == nil {
		err = h.consent(c.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.grantor.set(func() { h.grantor.down, h.grantor.valid = true, "" })
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State != mailbox.Waiting })
	if s.State != mailbox.Failing || !strings.Contains(s.Error, "Google does not answer requests for tokens") {
		t.Errorf("the status is %+v", s)
	}
	h.grantor.set(func() { h.grantor.down = false })
	h.reading(c.ID)
}

// consented connects a mailbox with tokens, and has a user consent.
func (h *house) consented() connection.Connection {
	h.t.Helper()
	n := h.connectable(nil)
	delete(n.Credentials, email.CredentialPassword)
	n.Credentials[email.CredentialProvider] = email.ProviderGoogle
	c, _, err := h.connections.Connect(h.t.Context(), n)
	if err == nil {
		err = h.consent(c.ID)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// TestRotation: processes that request tokens at the same time do not take each other's for the end of
// the consent, also at a provider whose refresh tokens are valid once.
func TestRotation(t *testing.T) {
	h := start(t, withOAuth(t))
	h.grantor.rotating = true
	c := h.consented()
	h.grantor.set(func() { h.grantor.valid = "" }) // revoked
	var work sync.WaitGroup
	for _, s := range []*mailbox.Service{h.Service, h.open(), h.open()} {
		for range 3 {
			work.Go(func() {
				if err := s.Test(t.Context(), &c); err != nil {
					t.Error(err)
				}
			})
		}
	}
	work.Wait()
	if err := h.Test(t.Context(), &c); err != nil {
		t.Errorf("later: %v", err)
	}
}

// TestConsentDuringRefresh: the tokens of a new consent are not replaced by those of the old one.
func TestConsentDuringRefresh(t *testing.T) {
	h := start(t, withOAuth(t))
	h.grantor.rotating = true
	c := h.consented()
	var consented string // refresh token
	h.grantor.set(func() {
		h.grantor.valid = ""
		h.grantor.during = func() {
			if err := h.consent(c.ID); err != nil {
				t.Error(err)
			}
			h.grantor.set(func() { consented = h.grantor.refresh })
		}
	})
	if err := h.Test(t.Context(), &c); err != nil {
		t.Error(err)
	}
	h.grantor.set(func() { h.grantor.valid = "" })
	if err := h.Test(t.Context(), &c); err != nil {
		t.Error(err)
	}
	h.grantor.set(func() {
		if got := h.grantor.forms[len(h.grantor.forms)-1].Get("refresh_token"); got != consented {
			t.Errorf("the refresh token is %q, want that of the consent, %q", got, consented)
		}
	})
}

// TestMovedConsent: tokens are not sent to servers that were named after the consent.
func TestMovedConsent(t *testing.T) {
	h := start(t, withOAuth(t))
	c := h.consented()
	server := h.odd(inbox())
	err := h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := h.connections.UpdateTx(t.Context(), tx, "org-1", c.ID, connection.Change{Credentials: map[string]string{
			email.CredentialIMAP: "imaps://" + h.addr, email.CredentialProvider: email.ProviderGoogle,
		}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Consent })
	if !strings.Contains(s.Error, "the servers of the mailbox have changed") || server.count("") > 0 {
		t.Errorf("the status is %+v, and the server got %q", s, server.commands)
	}
	if err := h.consent(c.ID); err != nil {
		t.Fatal(err)
	}
	h.reading(c.ID)
}

// TestQuotedToken: a server that quotes the token in its answer reveals it to nobody.
func TestQuotedToken(t *testing.T) {
	h := start(t, withOAuth(t))
	server := h.odd(inbox())
	quoted := "" // what the client sent after its command
	server.answerBy(func(command string) string {
		switch {
		case command == "CAPABILITY":
			return "* CAPABILITY IMAP4rev1 SASL-IR AUTH=XOAUTH2\r\nOK done"
		case strings.HasPrefix(command, "AUTHENTICATE"):
			quoted = command[len("AUTHENTICATE XOAUTH2 "):]
			return "BAD unknown command: " + command
		}
		return ""
	})
	c := h.consented()
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
	server.set(func() {
		if quoted == "" || strings.Contains(s.Error+h.log.String(), quoted[:20]) || !strings.Contains(s.Error, "[redacted]") {
			t.Errorf("the error is %q, the log %s", s.Error, h.log.String())
		}
	})
}

// TestHealth: the health of a connection says that its mailbox cannot be read, and when the consent
// ends.
func TestHealth(t *testing.T) {
	t.Parallel()
	h := start(t, withOAuth(t))
	h.grantor.ends = 7 * 24 * 3600
	c := h.consented()
	h.run()
	h.reading(c.ID)
	got, err := h.connections.Health(t.Context(), h.db, &c)
	if left := time.Until(got.ConsentEndsAt); err != nil || left > 7*24*time.Hour || left < 6*24*time.Hour || got.Failing() {
		t.Errorf("the health is %+v, %v", got, err)
	}
	h.stop()
	h.grantor.set(func() { h.grantor.valid, h.grantor.withdrawn = "", true })
	h.run()
	h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Consent })
	got, err = h.connections.Health(t.Context(), h.db, &c)
	if err != nil || !got.Failing() || !strings.Contains(got.Error, "the consent at Google has ended") || got.ErrorAt.IsZero() {
		t.Errorf("the health is %+v, %v", got, err)
	}
}

var _ imapserver.SessionSASL = (*testSession)(nil)
