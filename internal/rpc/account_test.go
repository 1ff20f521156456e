package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/rpc"
)

// postbox collects account mails.
type postbox struct {
	mu    sync.Mutex
	mails []mail.Message
}

func (p *postbox) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mails = append(p.mails, m)
	})
	return nil
}

type payments struct{}

func (payments) StartCheckout(_ context.Context, r account.CheckoutRequest) (string, error) {
	if r.OrganizationName == "Unlucky" {
		return "", errors.New("the provider is down, key=hunter2")
	}
	return "https://pay.example/" + string(r.Plan), nil
}

// accountFixture serves the account procedures to one browser.
type accountFixture struct {
	t        testing.TB
	accounts *account.Service
	config   account.Config
	db       *db.DB
	box      *postbox
	router   *rpc.Router
	jar      map[string]string
	set      []*http.Cookie // cookies of the last response
	header   http.Header    // of the last response
	ip       string         // client address; empty: any
}

func newAccountFixture(t testing.TB, change ...func(*account.Config)) *accountFixture {
	t.Helper()
	f := &accountFixture{t: t, box: new(postbox), jar: map[string]string{}}
	log := slog.New(slog.NewTextHandler(f, nil))
	c := account.Config{
		HashMemory: 8, Mailer: f.box, MailFrom: mail.Address{Address: "no-reply@help.example.com"},
		BaseURL: "https://help.example.com", Logger: log,
	}
	for _, fn := range change {
		fn(&c)
	}
	if c.DB == nil {
		c.DB = dbtest.New(t)
	}
	f.config, f.db = c, c.DB
	var err error
	if f.accounts, err = account.New(c); err != nil {
		t.Fatal(err)
	}
	gate := &browser.SessionAuth{Accounts: f.accounts, Secure: true}
	probe := func(name string, need rpc.Auth) rpc.Procedure {
		return rpc.Query(name, need, func(context.Context, rpc.None) (string, error) { return "in", nil })
	}
	f.router = rpc.New(rpc.Config{
		Procedures: slices.Concat(rpc.AccountProcedures(f.accounts, gate), rpc.MemberProcedures(f.accounts, gate), []rpc.Procedure{
			probe("probe.session", rpc.Session), probe("probe.member", rpc.Member), probe("probe.admin", rpc.Admin),
		}),
		Authenticate: gate.Authenticate,
		Authorize:    rpc.Authorize,
		Logger:       log,
	})
	return f
}

// Write logs to the test that uses the fixture.
func (f *accountFixture) Write(line []byte) (int, error) { return f.t.Output().Write(line) }

// call sends one procedure call with the browser's cookies, stores the cookies of the
// response, and returns status and body.
func (f *accountFixture) call(method, procedure, input string) (int, string) {
	f.t.Helper()
	var body io.Reader
	if input != "" {
		body = strings.NewReader(`{"json":` + input + `}`)
	}
	r := httptest.NewRequest(method, rpc.Prefix+procedure, body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "tests")
	if f.ip != "" {
		r.RemoteAddr = f.ip + ":1234"
	}
	for name, value := range f.jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	f.router.ServeHTTP(w, r)
	f.header, f.set = w.Header(), w.Result().Cookies()
	for _, c := range f.set {
		if c.MaxAge < 0 {
			delete(f.jar, c.Name)
		} else {
			f.jar[c.Name] = c.Value
		}
	}
	return w.Code, w.Body.String()
}

// want calls and compares; ids and times in the response are replaced by ID and TIME
// first.
func (f *accountFixture) want(method, procedure, input string, status int, body string) {
	f.t.Helper()
	gotStatus, got := f.call(method, procedure, input)
	if got = anonymous(got); gotStatus != status || got != body {
		f.t.Errorf("%s %s %s:\n got %d %s\nwant %d %s", method, procedure, input, gotStatus, got, status, body)
	}
}

var (
	anyID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyTime = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	faultID = regexp.MustCompile(`\(id [A-Z2-7]{12}\)`)
)

func anonymous(s string) string {
	return faultID.ReplaceAllString(anyTime.ReplaceAllString(anyID.ReplaceAllString(s, "ID"), "TIME"), "(id FAULT)")
}

// enter signs the browser in through another service, so that no limit is used up here.
func (f *accountFixture) enter(email string) account.SignIn {
	f.t.Helper()
	elsewhere, err := account.New(f.config)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := elsewhere.SignInWithEmail(f.t.Context(), account.EmailSignIn{Email: email}, "", account.Client{}); err != nil {
		f.t.Fatal(err)
	}
	in, err := elsewhere.FollowLink(f.t.Context(), f.token(), "", account.Client{IP: "192.0.2.7", UserAgent: "tests"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.jar[browser.AccessCookie], f.jar[browser.RefreshCookie] = in.Tokens.Access, in.Tokens.Refresh
	return in
}

// createUser creates a user in the organization Acme, or the given one.
func (f *accountFixture) createUser(email, password string, role account.Role, organization ...string) account.User {
	f.t.Helper()
	name := "Acme"
	if len(organization) > 0 {
		name = organization[0]
	}
	slug := strings.ToLower(name)
	if _, err := f.accounts.OrganizationBySlug(f.t.Context(), slug); err != nil {
		if _, err := f.accounts.CreateOrganization(f.t.Context(), account.NewOrganization{Name: name}); err != nil {
			f.t.Fatal(err)
		}
	}
	u, err := f.accounts.CreateUser(f.t.Context(), account.NewUser{Email: email, Password: password, Organization: slug, Role: role})
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// leave clears all cookies, as in a new browser.
func (f *accountFixture) leave() { f.jar = map[string]string{} }

// token returns the token of the link in the last mail.
func (f *accountFixture) token() string {
	f.t.Helper()
	_, rest, ok := strings.Cut(f.box.mails[len(f.box.mails)-1].Text, "token=")
	if !ok {
		f.t.Fatalf("no link in %q", f.box.mails[len(f.box.mails)-1].Text)
	}
	return strings.Fields(rest)[0]
}

func (f *accountFixture) exec(query string, args ...any) {
	f.t.Helper()
	if err := f.db.Write(f.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.t.Context(), query, args...)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
}

// expire makes all access tokens expire.
func (f *accountFixture) expire() {
	f.t.Helper()
	f.exec("UPDATE session_tokens SET issued_at = issued_at - $1 WHERE kind = 0", time.Hour.Microseconds())
}

func (f *accountFixture) cookieNames() string {
	var names []string
	for _, c := range f.set {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

const unauthorized = `{"error":{"json":{"message":"you are not signed in","code":-32001,"data":{"code":"UNAUTHORIZED","httpStatus":401,"path":"%s"}}}}`

func TestAuthSignInWithEmail(t *testing.T) {
	f := newAccountFixture(t, func(c *account.Config) { c.RedirectOrigins = []string{"https://app.example.com"} })
	const success = `{"result":{"data":{"json":{"success":true}}}}`
	f.want("POST", "auth.signInWithEmail", `{"email":"Ada@example.com"}`, 200, success)
	if len(f.set) != 1 || f.set[0].Name != "svc-login-intent" || f.set[0].MaxAge != 900 || !f.set[0].HttpOnly || !f.set[0].Secure ||
		f.set[0].SameSite != http.SameSiteLaxMode || f.set[0].Path != "/" {
		t.Errorf("got cookies %v", f.set)
	}
	intent := f.set[0].Value
	f.want("POST", "auth.signInWithEmail", `{"email":"ada@example.com","redirectTo":"https://app.example.com/x"}`, 200, success)
	if f.set[0].Value != intent {
		t.Error("the second request changed the intent")
	}
	f.want("POST", "auth.signInWithEmail", `{"email":"ada@example.com","redirectTo":null}`, 200, success)
	if len(f.box.mails) != 3 {
		t.Errorf("got %d mails, want 3", len(f.box.mails))
	}

	const invalid = `{"error":{"json":{"message":"%s","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"auth.signInWithEmail","issues":[{"path":"%s","message":"%s"}]}}}}`
	for _, tt := range []struct{ input, path, message string }{
		{`{}`, "email", "is required"},
		{`{"email":7}`, "email", "must be a string"},
		{`{"email":"ada"}`, "email", "must be an e-mail address"},
		{`{"email":"ada@example.com","redirectTo":"https://evil.example/"}`, "redirectTo", "must be under https://help.example.com or an allowed origin"},
		{`{"email":"ada@example.com","redirectTo":"//evil.example/"}`, "redirectTo", "must be under https://help.example.com or an allowed origin"},
	} {
		f.want("POST", "auth.signInWithEmail", tt.input, 400, fmt.Sprintf(invalid, tt.path+" "+tt.message, tt.path, tt.message))
		if len(f.set) != 0 {
			t.Errorf("%s: got cookies %v", tt.input, f.set)
		}
	}
	if len(f.box.mails) != 3 {
		t.Errorf("got %d mails after refusals, want 3", len(f.box.mails))
	}
	f.want("GET", "auth.signInWithEmail", "", 405, `{"error":{"json":{"message":"auth.signInWithEmail is called with POST","code":-32005,"data":{"code":"METHOD_NOT_SUPPORTED","httpStatus":405,"path":"auth.signInWithEmail"}}}}`)
}

func TestAuthSignInWithPassword(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("ada@example.com", "correct horse", account.Admin)
	f.want("POST", "auth.signInWithPassword", `{"email":"ADA@example.com","password":"correct horse"}`, 200,
		`{"result":{"data":{"json":{"success":true,"user":{"id":"ID","email":"ada@example.com","created_at":"TIME"}}}}}`)
	want := map[string]int{"svc-access-token": 3600, "svc-refresh-token": 2592000, "svc-browser": 34560000}
	for _, c := range f.set {
		if c.MaxAge != want[c.Name] || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || len(c.Value) != 43 {
			t.Errorf("got cookie %v", c)
		}
		delete(want, c.Name)
	}
	if len(want) != 0 {
		t.Errorf("no cookies for %v", want)
	}
	f.want("GET", "auth.getUser", "", 200, `{"result":{"data":{"json":{"id":"ID","email":"ada@example.com","name":"ada","avatar_url":null,"organization_id":"ID","role":"admin","preferences":{},"created_at":"TIME","updated_at":"TIME"}}}}`)

	const wrong = `{"error":{"json":{"message":"the e-mail address or the password is wrong","code":-32001,"data":{"code":"UNAUTHORIZED","httpStatus":401,"path":"auth.signInWithPassword"}}}}`
	for _, input := range []string{
		`{"email":"ada@example.com","password":"wrong horse"}`,
		`{"email":"nobody@example.com","password":"correct horse"}`,
	} {
		f.want("POST", "auth.signInWithPassword", input, 401, wrong)
		if len(f.set) != 0 {
			t.Errorf("got cookies %v with a refusal", f.set)
		}
	}
	f.want("POST", "auth.signInWithPassword", `{"email":"x","password":"12345"}`, 400,
		`{"error":{"json":{"message":"email must be an e-mail address (and 1 more)","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"auth.signInWithPassword","issues":[{"path":"email","message":"must be an e-mail address"},{"path":"password","message":"must have at least 6 characters"}]}}}}`)
	f.want("POST", "auth.signInWithPassword", `{"password":"12345"}`, 400,
		`{"error":{"json":{"message":"email is required (and 1 more)","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"auth.signInWithPassword","issues":[{"path":"email","message":"is required"},{"path":"password","message":"must have at least 6 characters"}]}}}}`)
}

func TestAuthGetUser(t *testing.T) {
	f := newAccountFixture(t)
	f.want("GET", "auth.getUser", "", 401, fmt.Sprintf(unauthorized, "auth.getUser"))
	f.jar["svc-access-token"] = strings.Repeat("A", 43)
	f.jar["svc-refresh-token"] = "nonsense"
	f.want("GET", "auth.getUser", "", 401, fmt.Sprintf(unauthorized, "auth.getUser"))
	f.enter("ada@example.com")
	f.want("GET", "auth.getUser", "", 200, `{"result":{"data":{"json":{"id":"ID","email":"ada@example.com","name":"","avatar_url":null,"organization_id":null,"role":null,"preferences":{},"created_at":"TIME","updated_at":"TIME"}}}}`)
	if len(f.set) != 0 {
		t.Errorf("got cookies %v from a current session", f.set)
	}
	f.exec("UPDATE users SET preferences = $1, avatar_url = $2", `{"theme":"dark"}`, "https://example.com/a.png")
	f.want("GET", "auth.getUser", "", 200, `{"result":{"data":{"json":{"id":"ID","email":"ada@example.com","name":"","avatar_url":"https://example.com/a.png","organization_id":null,"role":null,"preferences":{"theme":"dark"},"created_at":"TIME","updated_at":"TIME"}}}}`)
	f.want("POST", "auth.getUser", "", 405, `{"error":{"json":{"message":"auth.getUser is called with GET","code":-32005,"data":{"code":"METHOD_NOT_SUPPORTED","httpStatus":405,"path":"auth.getUser"}}}}`)
}

func TestRefreshOverTheWire(t *testing.T) {
	f := newAccountFixture(t)
	in := f.enter("ada@example.com")
	for _, spoil := range []func(){
		f.expire,
		func() { delete(f.jar, "svc-access-token") },
		func() { f.jar["svc-access-token"] = "nonsense" },
	} {
		spoil()
		old := f.jar["svc-refresh-token"]
		if status, body := f.call("GET", "auth.getUser", ""); status != 200 || !strings.Contains(body, "ada@example.com") {
			t.Fatalf("got %d %s", status, body)
		}
		if got := f.cookieNames(); got != "svc-access-token svc-refresh-token" {
			t.Fatalf("got cookies %q, want both", got)
		}
		if f.jar["svc-refresh-token"] == old {
			t.Error("the refresh token is still the same")
		}
		if status, _ := f.call("GET", "auth.getUser", ""); status != 200 || len(f.set) != 0 {
			t.Errorf("got %d and cookies %v with the new pair, want 200 and none", status, f.set)
		}
	}
	// An old token, used again long after: stolen.
	f.exec("UPDATE session_tokens SET consumed_at = consumed_at - $1", time.Minute.Microseconds())
	current := f.jar["svc-access-token"]
	f.jar = map[string]string{"svc-refresh-token": in.Tokens.Refresh}
	f.want("GET", "auth.getUser", "", 401, fmt.Sprintf(unauthorized, "auth.getUser"))
	f.jar = map[string]string{"svc-access-token": current}
	f.want("GET", "auth.getUser", "", 401, fmt.Sprintf(unauthorized, "auth.getUser"))
}

// TestParallelRequests loads a page after an hour's pause.
func TestParallelRequests(t *testing.T) {
	f := newAccountFixture(t)
	in := f.enter("ada@example.com")
	f.expire()
	var wg sync.WaitGroup
	var mu sync.Mutex
	pairs := map[string]int{}
	for range 200 {
		wg.Go(func() {
			r := httptest.NewRequest("GET", rpc.Prefix+"auth.getUser", nil)
			r.AddCookie(&http.Cookie{Name: "svc-access-token", Value: in.Tokens.Access})
			r.AddCookie(&http.Cookie{Name: "svc-refresh-token", Value: in.Tokens.Refresh})
			w := httptest.NewRecorder()
			f.router.ServeHTTP(w, r)
			if w.Code != 200 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			var pair strings.Builder
			for _, c := range w.Result().Cookies() {
				pair.WriteString(c.Value + " ")
			}
			mu.Lock()
			defer mu.Unlock()
			pairs[pair.String()]++
		})
	}
	wg.Wait()
	if len(pairs) != 1 {
		t.Errorf("got %d different pairs of cookies, want the same for all", len(pairs))
	}
	var sessions int
	if err := f.db.QueryRow(t.Context(), "SELECT count(*) FROM sessions").Scan(&sessions); err != nil || sessions != 1 {
		t.Errorf("got %d sessions, error %v, want 1", sessions, err)
	}
}

func TestAuthSignOut(t *testing.T) {
	f := newAccountFixture(t)
	f.want("POST", "auth.signOut", "", 401, fmt.Sprintf(unauthorized, "auth.signOut"))
	in := f.enter("ada@example.com")
	cleared := func() {
		t.Helper()
		if got := f.cookieNames(); got != "svc-access-token svc-refresh-token" {
			t.Errorf("got cookies %q, want both", got)
		}
		for _, c := range f.set {
			if c.MaxAge != -1 || c.Value != "" || c.Path != "/" {
				t.Errorf("got cookie %v, want it cleared", c)
			}
		}
	}
	f.want("POST", "auth.signOut", "", 200, `{"result":{"data":{"json":{"success":true}}}}`)
	cleared()
	f.jar = map[string]string{"svc-access-token": in.Tokens.Access, "svc-refresh-token": in.Tokens.Refresh}
	f.want("GET", "auth.getUser", "", 401, fmt.Sprintf(unauthorized, "auth.getUser"))

	// Signing out with a session that is refreshed by the same request leaves no cookies.
	f.enter("ada@example.com")
	f.expire()
	f.want("POST", "auth.signOut", `{}`, 200, `{"result":{"data":{"json":{"success":true}}}}`)
	cleared()
}

func TestAuthCompleteSignup(t *testing.T) {
	f := newAccountFixture(t)
	f.want("POST", "auth.completeSignup", `{"name":"Ada","organizationName":"Acme"}`, 401, fmt.Sprintf(unauthorized, "auth.completeSignup"))
	f.enter("ada@example.com")
	f.want("POST", "auth.completeSignup", `{"name":"","planTier":"gold"}`, 400,
		`{"error":{"json":{"message":"organizationName is required (and 2 more)","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"auth.completeSignup","issues":[{"path":"organizationName","message":"is required"},{"path":"name","message":"must not be empty"},{"path":"planTier","message":"must be free, pro or business"}]}}}}`)
	f.want("POST", "auth.completeSignup", `{"name":"Ada","organizationName":"Acme","planTier":"pro"}`, 412,
		`{"error":{"json":{"message":"paid plans are not available; sign up with planTier free","code":-32012,"data":{"code":"PRECONDITION_FAILED","httpStatus":412,"path":"auth.completeSignup"}}}}`)
	f.want("POST", "auth.completeSignup", `{"name":"Ada","organizationName":"Acme Rentals"}`, 200,
		`{"result":{"data":{"json":{"user":{"id":"ID","email":"ada@example.com","name":"Ada","organization_id":"ID","role":"admin"},"organization":{"id":"ID","name":"Acme Rentals","slug":"acme-rentals"},"requiresPayment":false}}}}`)
	f.want("POST", "auth.completeSignup", `{"name":"Ada","organizationName":"Acme","planTier":"free"}`, 409,
		`{"error":{"json":{"message":"you have completed your sign-up already","code":-32009,"data":{"code":"CONFLICT","httpStatus":409,"path":"auth.completeSignup"}}}}`)
	f.want("GET", "auth.getUser", "", 200, `{"result":{"data":{"json":{"id":"ID","email":"ada@example.com","name":"Ada","avatar_url":null,"organization_id":"ID","role":"admin","preferences":{},"created_at":"TIME","updated_at":"TIME"}}}}`)
}

// TestAuthCompleteSignupStranger: a user refused by the sign-up policy cannot create an
// organization.
func TestAuthCompleteSignupStranger(t *testing.T) {
	f := newAccountFixture(t)
	f.enter("ada@example.com")
	f.config.SignUp = account.InvitedSignUp
	closed := newAccountFixture(t, func(c *account.Config) { *c = f.config })
	closed.jar = f.jar
	closed.want("POST", "auth.completeSignup", `{"name":"Ada","organizationName":"Acme","planTier":"free"}`, 403,
		`{"error":{"json":{"message":"Sign-up here is by invitation only. Ask an admin of your organization to invite this address. If your organization is not here yet, ask the operator of this server to create it.","code":-32003,"data":{"code":"FORBIDDEN","httpStatus":403,"path":"auth.completeSignup"}}}}`)
	closed.want("POST", "auth.signInWithEmail", `{"email":"ada@example.com"}`, 200, `{"result":{"data":{"json":{"success":true}}}}`)
	closed.want("POST", "auth.signInWithEmail", `{"email":"eve@example.com"}`, 200, `{"result":{"data":{"json":{"success":true}}}}`)
}

func TestAuthCompleteSignupPaid(t *testing.T) {
	f := newAccountFixture(t, func(c *account.Config) { c.Checkout = payments{} })
	f.enter("ada@example.com")
	f.want("POST", "auth.completeSignup", `{"name":"Ada","organizationName":"Unlucky","planTier":"pro"}`, 500,
		`{"error":{"json":{"message":"internal error (id FAULT)","code":-32603,"data":{"code":"INTERNAL_SERVER_ERROR","httpStatus":500,"path":"auth.completeSignup"}}}}`)
	f.want("POST", "auth.completeSignup", `{"name":"Ada","organizationName":"Acme","planTier":"business"}`, 200,
		`{"result":{"data":{"json":{"user":{"id":"ID","email":"ada@example.com","name":"Ada","organization_id":"ID","role":"admin"},"organization":{"id":"ID","name":"Acme","slug":"acme"},"requiresPayment":true,"checkoutUrl":"https://pay.example/business"}}}}`)
}

func TestAuthorize(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("admin@example.com", "", account.Admin)
	f.createUser("agent@example.com", "", account.Agent)
	for _, tt := range []struct {
		email string
		want  [3]int // session, member, admin
	}{
		{"", [3]int{401, 401, 401}},
		{"newcomer@example.com", [3]int{200, 403, 403}},
		{"agent@example.com", [3]int{200, 200, 403}},
		{"admin@example.com", [3]int{200, 200, 200}},
	} {
		if tt.email != "" {
			f.enter(tt.email)
		}
		for i, name := range []string{"probe.session", "probe.member", "probe.admin"} {
			if status, body := f.call("GET", name, ""); status != tt.want[i] {
				t.Errorf("%s as %q: got %d %s, want %d", name, tt.email, status, body, tt.want[i])
			}
		}
	}
}

// TestStoreGone: a failed look-up of a session is not an ended session.
func TestStoreGone(t *testing.T) {
	f := newAccountFixture(t)
	f.enter("ada@example.com")
	if err := f.db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, call := range [][3]string{
		{"GET", "auth.getUser", ""},
		{"POST", "auth.signOut", ""},
		{"POST", "auth.signInWithEmail", `{"email":"ada@example.com"}`},
		{"POST", "auth.signInWithPassword", `{"email":"ada@example.com","password":"a guess"}`},
	} {
		status, body := f.call(call[0], call[1], call[2])
		if status != 503 || len(f.set) != 0 {
			t.Errorf("%s: got %d %s and cookies %v, want 503 and none", call[1], status, body, f.set)
		}
	}
}

// BenchmarkGetUser compares the procedure with a handler that writes the same bytes, both
// over loopback.
func BenchmarkGetUser(b *testing.B) {
	d := dbtest.New(b)
	box := new(postbox)
	accounts, err := account.New(account.Config{DB: d, Mailer: box, BaseURL: "https://help.example.com"})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := accounts.SignInWithEmail(b.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{}); err != nil {
		b.Fatal(err)
	}
	_, link, _ := strings.Cut(box.mails[0].Text, "token=")
	in, err := accounts.FollowLink(b.Context(), strings.Fields(link)[0], "", account.Client{})
	if err != nil {
		b.Fatal(err)
	}
	gate := &browser.SessionAuth{Accounts: accounts}
	router := rpc.New(rpc.Config{Procedures: rpc.AccountProcedures(accounts, gate), Authenticate: gate.Authenticate, Authorize: rpc.Authorize})
	request := func(url string) *http.Request {
		r, err := http.NewRequestWithContext(b.Context(), "GET", url+rpc.Prefix+"auth.getUser", nil)
		if err != nil {
			b.Fatal(err)
		}
		r.AddCookie(&http.Cookie{Name: "svc-access-token", Value: in.Tokens.Access})
		r.AddCookie(&http.Cookie{Name: "svc-refresh-token", Value: in.Tokens.Refresh})
		return r
	}
	w := httptest.NewRecorder()
	router.ServeHTTP(w, request(""))
	body := w.Body.Bytes()
	if w.Code != 200 || !json.Valid(body) {
		b.Fatalf("got %d %s", w.Code, body)
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.Copy(w, bytes.NewReader(body))
	})
	for name, handler := range map[string]http.Handler{"procedure": router, "bare": bare} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(handler)
			defer server.Close()
			server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					res, err := server.Client().Do(request(server.URL))
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if res.StatusCode != 200 {
						b.Errorf("got %d", res.StatusCode)
						return
					}
				}
			})
		})
	}
}
