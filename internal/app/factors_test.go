package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/web"

	"github.com/pquerna/otp/totp"
)

const factorPassword = "correct horse battery"

// strict is a program that requires fresh proofs, with an organization of two admins.
type strict struct {
	*App
	t        *testing.T
	org      account.Organization
	ada, ben account.User
}

func openStrict(t *testing.T) *strict {
	t.Helper()
	a, err := Open(t.Context(), Config{
		BaseURL: "http://localhost:8080", Data: t.TempDir(), DatabaseURL: dbtest.URL(t), MailFrom: "no-reply@help.example",
		AccessLifetime: time.Hour, RefreshLifetime: time.Hour, RetryTimeScale: 1, FreshProof: 10 * time.Minute,
		Web: true, StopTimeout: time.Second,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := a.openHandler(); err != nil {
		t.Fatal(err)
	}
	s := &strict{App: a, t: t}
	if s.org, err = a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	s.ada, s.ben = s.admin("ada@example.com"), s.admin("ben@example.com")
	return s
}

func (s *strict) admin(email string) account.User {
	s.t.Helper()
	u, err := s.Accounts.CreateUser(s.t.Context(), account.NewUser{Email: email, Password: factorPassword, Organization: s.org.Slug, Role: account.Admin})
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

func (s *strict) signIn(u account.User) account.SignIn {
	s.t.Helper()
	in, err := s.Accounts.SignInWithPassword(s.t.Context(), account.PasswordSignIn{Email: u.Email, Password: factorPassword}, account.Client{IP: "192.0.2.1"})
	if err != nil {
		s.t.Fatal(err)
	}
	return in
}

// addApp sets up an authenticator app in a session.
func (s *strict) addApp(in account.SignIn) {
	s.t.Helper()
	id, _, err := s.Accounts.Authenticate(s.t.Context(), in.Tokens.Access, "", account.Client{})
	if err != nil {
		s.t.Fatal(err)
	}
	e, err := s.Factors.BeginTOTP(id)
	if err != nil {
		s.t.Fatal(err)
	}
	code, err := totp.GenerateCode(strings.ReplaceAll(e.Secret, " ", ""), time.Now())
	if err == nil {
		_, err = s.Factors.EnableTOTP(s.t.Context(), id, e.Sealed, code)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *strict) exec(statement string) {
	s.t.Helper()
	if err := s.DB.Write(s.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(s.t.Context(), statement)
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
}

// do sends a request with cookies.
func (s *strict) do(method, path, contentType, body string, cookies map[string]string) *httptest.ResponseRecorder {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), 10*time.Second) // ends a stream that should not have been opened
	defer stop()
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost:8080"+path, strings.NewReader(body))
	r.Host = "localhost:8080"
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for name, value := range cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

const formType = "application/x-www-form-urlencoded"

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// example returns a path that matches a pattern.
func example(pattern string) string {
	return wildcard.ReplaceAllStringFunc(pattern, func(w string) string {
		switch w {
		case "{$}":
			return ""
		case "{number}":
			return "1"
		}
		return "01a204c2-4df1-7bec-bcfb-0e27f87ff74c"
	})
}

// procedureNames returns all names.
func (s *strict) procedureNames() []string {
	names := s.procedures.Procedures()
	if len(names) < 30 {
		s.t.Fatalf("got procedures %q", names)
	}
	return names
}

type rpcFailure struct {
	Error struct {
		JSON struct {
			Data struct{ Code, Reason string }
		}
	}
}

// call calls a procedure with its method.
func (s *strict) call(name, input string, cookies map[string]string) (int, rpcFailure) {
	s.t.Helper()
	w := s.do("GET", "/api/trpc/"+name, "", "", cookies)
	if w.Code == http.StatusMethodNotAllowed {
		w = s.do("POST", "/api/trpc/"+name, "application/json", input, cookies)
	}
	var f rpcFailure
	if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil {
		s.t.Fatal(name, err)
	}
	return w.Code, f
}

// TestHalfSignedInReachesNothing: the token of a pending sign-in opens no path and no
// procedure, in its own or any other cookie.
func TestHalfSignedInReachesNothing(t *testing.T) {
	s := openStrict(t)
	s.addApp(s.signIn(s.ada))
	in := s.signIn(s.ada)
	if in.Pending == "" {
		t.Fatal("the sign-in waits for nothing")
	}
	half := map[string]string{browser.PendingCookie: in.Pending, browser.AccessCookie: in.Pending, browser.RefreshCookie: in.Pending}
	none := map[string]string{browser.AccessCookie: "none", browser.RefreshCookie: "none"}
	routes, walked := s.site.Routes(), 0
	for _, rt := range routes {
		path := example(rt.Path)
		for method, is := range map[string]bool{"GET": rt.Get, "POST": rt.Post} {
			if !is || path == "/sign-in/second-factor" { // the token's purpose
				continue
			}
			walked++
			got, want := s.do(method, path, formType, "name=x", half), s.do(method, path, formType, "name=x", none)
			if got.Code != want.Code || got.Header().Get("Location") != want.Header().Get("Location") {
				t.Errorf("%s %s: got %d to %q, want %d to %q as for nobody", method, path, got.Code, got.Header().Get("Location"), want.Code, want.Header().Get("Location"))
			}
			if rt.InDashboard && got.Code != http.StatusUnauthorized && !strings.HasPrefix(got.Header().Get("Location"), "/sign-in?next=") {
				t.Errorf("%s %s: got %d to %q", method, path, got.Code, got.Header().Get("Location"))
			}
		}
	}
	if walked < 100 {
		t.Errorf("walked only %d addresses", walked)
	}
	public := []string{
		"auth.sendPasswordReset", "auth.signInWithEmail", "auth.signInWithPassword", "auth.signInWithProvider",
		"auth.verifyRecoveryCode", "auth.verifyTotp",
	}
	for _, name := range s.procedureNames() {
		if code, f := s.call(name, `{"json":{}}`, half); !slices.Contains(public, name) && (code != http.StatusUnauthorized || f.Error.JSON.Data.Code != "UNAUTHORIZED") {
			t.Errorf("%s: got %d %+v", name, code, f)
		}
	}
	for _, path := range []string{"/live", "/api/v1/tickets", "/v1/vehicles", "/attachments/x"} {
		if w := s.do("GET", path, "", "", half); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
}

// TestRequirementCannotBeSkipped: a session without the required second factor reaches
// only its enrolment.
func TestRequirementCannotBeSkipped(t *testing.T) {
	s := openStrict(t)
	ben := s.signIn(s.ben)
	s.exec("UPDATE organizations SET second_factor_required = TRUE")
	cookies := map[string]string{browser.AccessCookie: ben.Tokens.Access}
	enrolment := []string{"/settings/security", "/settings/security/passkeys", "/settings/security/totp"}
	walked := 0
	for _, rt := range s.site.Routes() {
		if !rt.InDashboard || slices.Contains(enrolment, rt.Path) {
			continue
		}
		walked++
		if w := s.do("GET", example(rt.Path), "", "", cookies); rt.Get && (w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/settings/security") {
			t.Errorf("GET %s: got %d to %q", rt.Path, w.Code, w.Header().Get("Location"))
		}
		if w := s.do("POST", example(rt.Path), formType, "name=x", cookies); rt.Post && w.Code != http.StatusForbidden {
			t.Errorf("POST %s: got %d to %q", rt.Path, w.Code, w.Header().Get("Location"))
		}
	}
	if walked < 80 {
		t.Errorf("walked only %d addresses", walked)
	}
	for _, path := range []string{"/live", "/attachments/x", "/api/v1/tickets", "/v1/vehicles"} {
		if w := s.do("GET", path, "", "", cookies); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
	for _, path := range []string{"/", "/welcome"} {
		if w := s.do("GET", path, "", "", cookies); w.Header().Get("Location") != "/settings/security" {
			t.Errorf("%s: got %d to %q", path, w.Code, w.Header().Get("Location"))
		}
	}
	if w := s.do("GET", "/settings/security", "", "", cookies); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "requires a second factor") {
		t.Errorf("the way out: got %d", w.Code)
	}
	// Public ones are called with a session, too: they reveal nothing.
	free := []string{
		"auth.sendPasswordReset", "auth.signInWithEmail", "auth.signInWithPassword", "auth.signInWithProvider",
		"auth.verifyRecoveryCode", "auth.verifyTotp", "auth.signOut", "auth.proveIdentity", "auth.mailProofCode",
		"auth.getFactors", "auth.beginTotp", "auth.enableTotp",
	}
	for _, name := range s.procedureNames() {
		if slices.Contains(free, name) {
			continue
		}
		if code, f := s.call(name, `{"json":{}}`, cookies); code != http.StatusForbidden || f.Error.JSON.Data.Reason != account.SecondFactorSetupRequired {
			t.Errorf("%s: got %d %+v", name, code, f)
		}
	}
	s.addApp(ben)
	if w := s.do("GET", "/inbox", "", "", cookies); w.Code != http.StatusOK {
		t.Errorf("with an authenticator app: got %d to %q", w.Code, w.Header().Get("Location"))
	}
}

// guarded lists the forms that need a fresh proof of identity.
var guarded = []string{
	"/customers/{id}/delete",
	"/fleet/riders/{id}/anonymise",
	"/fleet/subaccounts/{id}/agencies/new",
	"/fleet/subaccounts/{id}/agencies/{agency}",
	"/settings/audit/export",
	"/settings/channels/{id}",
	"/settings/channels/{id}/delete",
	"/settings/channels/{id}/proof",
	"/settings/channels/{id}/secret",
	"/settings/connect/{channel}",
	"/settings/import/{id}/undo",
	"/settings/invitations",
	"/settings/invitations/{id}",
	"/settings/keys/new",
	"/settings/keys/{id}/delete",
	"/settings/keys/{id}/edit",
	"/settings/keys/{id}/revoke",
	"/settings/keys/{id}/rotate",
	"/settings/members/{id}",
	"/settings/members/{id}/remove",
	"/settings/members/{id}/reset-factors",
	"/settings/organization/second-factor",
	"/settings/organization/sign-in",
	"/settings/profile/delete",
	"/settings/profile/password",
	"/settings/security/passkeys",
	"/settings/security/passkeys/{id}/remove",
	"/settings/security/recovery-codes",
	"/settings/security/totp",
	"/settings/security/totp/remove",
	"/settings/server/{area}",
	"/settings/webhooks/new",
	"/settings/webhooks/{id}/delete",
	"/settings/webhooks/{id}/edit",
	"/settings/webhooks/{id}/secret",
	"/tickets/{number}/delete",
}

// TestStepUpNeeded: each guarded form first asks an old session for a proof, and then
// performs the submitted action.
func TestStepUpNeeded(t *testing.T) {
	s := openStrict(t)
	cookies := map[string]string{browser.AccessCookie: s.signIn(s.ada).Tokens.Access}
	s.exec("UPDATE sessions SET proven_at = 0")
	const asks = "Confirm your identity"
	for _, rt := range s.site.Routes() {
		if !rt.Post || !rt.InDashboard {
			continue
		}
		w := s.do("POST", example(rt.Path), formType, "name=x", cookies)
		if got, want := w.Code == http.StatusUnprocessableEntity && strings.Contains(w.Body.String(), asks), slices.Contains(guarded, rt.Path); got != want {
			t.Errorf("POST %s: asks for a proof: %t, want %t (%d)", rt.Path, got, want, w.Code)
		}
	}
	for _, path := range guarded {
		if !slices.ContainsFunc(s.site.Routes(), func(rt web.RouteInfo) bool { return rt.Path == path && rt.Proof }) {
			t.Errorf("there is no guarded form at %s", path)
		}
	}
	for _, name := range []string{"members.update", "members.remove", "invitations.create", "invitations.revoke", "organization.setSignIn", "auth.deleteAccount",
		"auth.enableTotp", "auth.disableTotp", "auth.createRecoveryCodes", "auth.removePasskey", "members.resetFactors", "organization.requireSecondFactor"} {
		if code, f := s.call(name, `{"json":{}}`, cookies); code != http.StatusPreconditionFailed || f.Error.JSON.Data.Reason != account.FreshProofRequired {
			t.Errorf("%s: got %d %+v", name, code, f)
		}
	}
	for _, name := range []string{"webhooks.list", "auth.getUser", "members.list", "auth.hasPassword"} { // need no proof
		if code, f := s.call(name, "", cookies); code != http.StatusOK {
			t.Errorf("%s: got %d %+v", name, code, f)
		}
	}

	s.resume(cookies)
}

var hidden = regexp.MustCompile(`name="proof-form" value="([^"]+)"`)

// resume interrupts an invitation by a proof of identity and continues it.
func (s *strict) resume(cookies map[string]string) {
	t := s.t
	const path = "/settings/invitations"
	invited := func() int {
		list, err := s.Accounts.Invitations(t.Context(), s.org.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	w := s.do("POST", path, formType, url.Values{"email": {"new@example.com"}, "role": {"agent"}}.Encode(), cookies)
	held := hidden.FindStringSubmatch(w.Body.String())
	if held == nil || invited() != 0 || strings.Contains(w.Body.String(), "new@example.com") {
		t.Fatalf("got %d, %d invitations: %s", w.Code, invited(), w.Body)
	}
	answer := func(path, form, password string, with map[string]string) *httptest.ResponseRecorder {
		return s.do("POST", path, formType, url.Values{"proof-form": {form}, "proof-password": {password}}.Encode(), with)
	}
	if w := answer(path, held[1], "wrong horse", cookies); w.Code != http.StatusUnprocessableEntity || invited() != 0 || !hidden.MatchString(w.Body.String()) {
		t.Errorf("a wrong password: got %d, %d invitations", w.Code, invited())
	}
	// A form sealed for another session or address.
	other := map[string]string{browser.AccessCookie: s.signIn(s.ben).Tokens.Access}
	if w := answer(path, held[1], factorPassword, other); w.Code == http.StatusSeeOther || invited() != 0 {
		t.Errorf("in another session: got %d, %d invitations", w.Code, invited())
	}
	if w := answer("/settings/keys/new", held[1], factorPassword, cookies); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "submit the form again") {
		t.Errorf("at another address: got %d, want the refusal of the sealed form: %s", w.Code, w.Body)
	}
	if w := answer(path, held[1], factorPassword, cookies); w.Code != http.StatusSeeOther || invited() != 1 {
		t.Errorf("the right password: got %d, %d invitations: %s", w.Code, invited(), w.Body)
	}
	// No further proof is required.
	if w := s.do("POST", path, formType, url.Values{"email": {"two@example.com"}, "role": {"agent"}}.Encode(), cookies); w.Code != http.StatusSeeOther || invited() != 2 {
		t.Errorf("right after a proof: got %d, %d invitations", w.Code, invited())
	}
}

// TestNoProofOnLoopback: with a base URL on this machine no proof is required.
func TestNoProofOnLoopback(t *testing.T) {
	for _, tt := range []struct {
		base  string
		fresh time.Duration
		want  time.Duration
	}{
		{"http://127.0.0.1:8080", 0, 0}, {"http://localhost:8080", 0, 0}, {"https://help.example.com", 0, 10 * time.Minute},
		{"https://help.example.com", -1, 0}, {"http://localhost:8080", time.Hour, time.Hour},
	} {
		if got := (Config{BaseURL: tt.base, FreshProof: tt.fresh}).freshProof(); got != tt.want {
			t.Errorf("%s, %v: got %v, want %v", tt.base, tt.fresh, got, tt.want)
		}
	}
}
