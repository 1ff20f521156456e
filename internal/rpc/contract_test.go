package rpc_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rpc"
)

// The rest of helpdesk.md 4.2, row by row, and all of 7 and 8, on the wire. The first
// rows are in account_test.go.

const success = `{"result":{"data":{"json":{"success":true}}}}`

// refused returns the body of an error without issues.
func refused(procedure, code string, number, status int, message string) string {
	return fmt.Sprintf(`{"error":{"json":{"message":%q,"code":%d,"data":{"code":%q,"httpStatus":%d,"path":%q}}}}`, message, number, code, status, procedure)
}

// invalid returns the body of an error with one issue.
func invalid(procedure, path, message string) string {
	return fmt.Sprintf(`{"error":{"json":{"message":"%[2]s %[3]s","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"%[1]s","issues":[{"path":"%[2]s","message":"%[3]s"}]}}}}`,
		procedure, path, message)
}

// idp is an identity provider that accepts everybody.
type idp struct {
	err error
	who account.ProviderIdentity
}

func (p *idp) AuthorizationURL(_ context.Context, s account.ProviderSecrets) (string, error) {
	return "https://idp.example/authorize?state=" + s.State, p.err
}

func (p *idp) Exchange(context.Context, string, string, account.ProviderSecrets) (account.ProviderIdentity, error) {
	return p.who, p.err
}

func TestAuthSignInWithProvider(t *testing.T) {
	const name = "auth.signInWithProvider"
	t.Run("success", func(t *testing.T) {
		f := newAccountFixture(t, func(c *account.Config) { c.Provider = new(idp) })
		for _, input := range []string{"", `{}`, `{"redirectTo":"https://help.example.com/inbox"}`} {
			status, body := f.call("POST", name, input)
			const before, after = `{"result":{"data":{"json":{"url":"https://idp.example/authorize?state=`, `"}}}}`
			if status != 200 || !strings.HasPrefix(body, before) || !strings.HasSuffix(body, after) || len(body) != len(before)+43+len(after) {
				t.Errorf("%s: got %d %s", input, status, body)
			}
			if got := f.cookieNames(); got != "svc-login-intent" {
				t.Errorf("%s: got cookies %q", input, got)
			}
		}
	})
	t.Run("not configured", func(t *testing.T) {
		newAccountFixture(t).want("POST", name, "", 412, refused(name, "PRECONDITION_FAILED", -32012, 412, "sign-in with an identity provider is not set up here"))
	})
	t.Run("provider down", func(t *testing.T) {
		f := newAccountFixture(t, func(c *account.Config) {
			c.Provider = &idp{err: problem.New(problem.Unavailable, "the identity provider does not answer")}
		})
		f.want("POST", name, "", 503, refused(name, "SERVICE_UNAVAILABLE", -32603, 503, "the identity provider does not answer"))
		if len(f.set) != 0 {
			t.Errorf("got cookies %v", f.set)
		}
	})
	t.Run("open redirect", func(t *testing.T) {
		f := newAccountFixture(t, func(c *account.Config) { c.Provider = new(idp) })
		for _, target := range []string{"https://evil.example/", "//evil.example", "javascript:alert(1)", "https://help.example.com@evil.example/", "https://help.example.com\\\\@evil.example/"} {
			f.want("POST", name, `{"redirectTo":"`+target+`"}`, 400, invalid(name, "redirectTo", "must be under https://help.example.com or an allowed origin"))
		}
		f.want("POST", name, `{"redirectTo":7}`, 400, invalid(name, "redirectTo", "must be a string"))
	})
}

// userJSON returns a User record.
func userJSON(email, name, avatar, organization, role, preferences string) string {
	return fmt.Sprintf(`{"result":{"data":{"json":{"id":"ID","email":%q,"name":%q,"avatar_url":%s,"organization_id":%s,"role":%s,"preferences":%s,"created_at":"TIME","updated_at":"TIME"}}}}`,
		email, name, cmp.Or(avatar, "null"), cmp.Or(organization, "null"), cmp.Or(role, "null"), cmp.Or(preferences, "{}"))
}

func TestAuthUpdateProfile(t *testing.T) {
	const name = "auth.updateProfile"
	t.Run("success", func(t *testing.T) {
		f := newAccountFixture(t)
		f.enter("ada@example.com")
		record := func(name, avatar, preferences string) string {
			return userJSON("ada@example.com", name, avatar, "", "", preferences)
		}
		f.want("POST", name, `{"name":" Ada "}`, 200, record("Ada", "", ""))
		f.want("POST", name, `{"avatar_url":"https://example.com/a.png","preferences":{"theme":"dark","n":1.0e400,"since":"1 May"}}`, 200,
			record("Ada", `"https://example.com/a.png"`, `{"theme":"dark","n":1.0e400,"since":"1 May"}`))
		f.want("POST", name, "", 200, record("Ada", `"https://example.com/a.png"`, `{"theme":"dark","n":1.0e400,"since":"1 May"}`))
		f.want("POST", name, `{"name":null,"avatar_url":"","preferences":{}}`, 200, record("Ada", "", ""))
		f.want("GET", "auth.getUser", "", 200, record("Ada", "", ""))
	})
	t.Run("invalid", func(t *testing.T) {
		f := newAccountFixture(t)
		f.enter("ada@example.com")
		for _, tt := range []struct{ input, path, message string }{
			{`{"name":""}`, "name", "must not be empty"},
			{`{"name":7}`, "name", "must be a string"},
			{`{"name":"` + strings.Repeat("ä", 256) + `"}`, "name", "must have at most 255 characters"},
			{`{"name":"a\r\nBcc: b@example.com"}`, "name", "must not contain control characters"},
			{`{"name":"a\u0000"}`, "name", "must not contain NUL characters"},
			{`{"avatar_url":"javascript:alert(1)"}`, "avatar_url", "must be an http or https URL of at most 2048 bytes"},
			{`{"avatar_url":"data:image/png;base64,AAAA"}`, "avatar_url", "must be an http or https URL of at most 2048 bytes"},
			{`{"avatar_url":"https://example.com/` + strings.Repeat("a", 2048) + `"}`, "avatar_url", "must be an http or https URL of at most 2048 bytes"},
			{`{"preferences":[]}`, "preferences", "must be an object"},
			{`{"preferences":"dark"}`, "preferences", "must be an object"},
			{`{"preferences":{"a":"` + strings.Repeat("a", 16<<10) + `"}}`, "preferences", "must have at most 16384 bytes"},
		} {
			f.want("POST", name, tt.input, 400, invalid(name, tt.path, tt.message))
		}
		f.want("GET", "auth.getUser", "", 200, userJSON("ada@example.com", "", "", "", "", ""))
	})
}

func TestAuthSetPassword(t *testing.T) {
	const name = "auth.setPassword"
	f := newAccountFixture(t)
	f.enter("ada@example.com")
	for _, tt := range []struct{ input, message string }{
		{`{}`, "is required"},
		{`{"password":12345678}`, "must be a string"},
		{`{"password":"1234567"}`, "must have at least 8 characters"},
		{`{"password":"` + strings.Repeat("a", 1025) + `"}`, "must have at most 1024 bytes"},
		{`{"password":"ADA@example.com"}`, "must not be the e-mail address"},
		{`{"password":"Password1"}`, "is a common password; choose another"},
	} {
		f.want("POST", name, tt.input, 400, invalid(name, "password", tt.message))
	}
	f.want("GET", "auth.hasPassword", "", 200, `{"result":{"data":{"json":{"hasPassword":false}}}}`)
	f.want("POST", name, `{"password":"correct horse"}`, 200, success)
	f.want("GET", "auth.hasPassword", "", 200, `{"result":{"data":{"json":{"hasPassword":true}}}}`)
	f.want("POST", name, `{"password":"another horse"}`, 412,
		refused(name, "PRECONDITION_FAILED", -32012, 412, "you have a password already; change it with auth.changePassword"))
	f.leave()
	f.want("POST", "auth.signInWithPassword", `{"email":"ada@example.com","password":"another horse"}`, 401,
		refused("auth.signInWithPassword", "UNAUTHORIZED", -32001, 401, "the e-mail address or the password is wrong"))
	if status, body := f.call("POST", "auth.signInWithPassword", `{"email":"ada@example.com","password":"correct horse"}`); status != 200 {
		t.Errorf("got %d %s with the password that was set", status, body)
	}
}

func TestAuthChangePassword(t *testing.T) {
	const name = "auth.changePassword"
	f := newAccountFixture(t)
	f.enter("newcomer@example.com")
	f.want("POST", name, `{"currentPassword":"whatever it was","newPassword":"correct horse"}`, 412,
		refused(name, "PRECONDITION_FAILED", -32012, 412, "you have no password yet; set one with auth.setPassword"))

	f.createUser("ada@example.com", "correct horse", account.Agent)
	f.enter("ada@example.com")
	other := maps.Clone(f.jar)
	f.enter("ada@example.com")
	for _, tt := range []struct{ input, path, message string }{
		{`{"newPassword":"better horse"}`, "currentPassword", "is required"},
		{`{"currentPassword":"correct horse"}`, "newPassword", "is required"},
		{`{"currentPassword":"correct horse","newPassword":"1234567"}`, "newPassword", "must have at least 8 characters"},
		{`{"currentPassword":"correct horse","newPassword":"ada@example.com"}`, "newPassword", "must not be the e-mail address"},
		{`{"currentPassword":"correct horse","newPassword":"qwertyuiop"}`, "newPassword", "is a common password; choose another"},
		{`{"currentPassword":"` + strings.Repeat("a", 1025) + `","newPassword":"better horse"}`, "currentPassword", "must have at most 1024 bytes"},
	} {
		f.want("POST", name, tt.input, 400, invalid(name, tt.path, tt.message))
	}
	f.want("POST", name, `{"currentPassword":"correct horse","newPassword":"better horse"}`, 200, success)
	f.want("GET", "auth.hasPassword", "", 200, `{"result":{"data":{"json":{"hasPassword":true}}}}`) // this session is valid
	f.jar = other
	f.want("GET", "auth.getUser", "", 401, fmt.Sprintf(unauthorized, "auth.getUser")) // the other has ended
	f.leave()
	f.want("POST", "auth.signInWithPassword", `{"email":"ada@example.com","password":"correct horse"}`, 401,
		refused("auth.signInWithPassword", "UNAUTHORIZED", -32001, 401, "the e-mail address or the password is wrong"))
	if status, body := f.call("POST", "auth.signInWithPassword", `{"email":"ada@example.com","password":"better horse"}`); status != 200 {
		t.Errorf("got %d %s with the new password", status, body)
	}
}

func TestAuthHasPassword(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("ada@example.com", "correct horse", account.Agent)
	f.createUser("bob@example.com", "", account.Agent)
	for email, want := range map[string]string{"ada@example.com": "true", "bob@example.com": "false"} {
		f.enter(email)
		f.want("GET", "auth.hasPassword", "", 200, `{"result":{"data":{"json":{"hasPassword":`+want+`}}}}`)
	}
	f.want("POST", "auth.hasPassword", "", 405, refused("auth.hasPassword", "METHOD_NOT_SUPPORTED", -32005, 405, "auth.hasPassword is called with GET"))
}

func TestAuthSendPasswordReset(t *testing.T) {
	const name = "auth.sendPasswordReset"
	f := newAccountFixture(t)
	f.createUser("ada@example.com", "correct horse", account.Agent)
	for _, email := range []string{"ADA@example.com", "nobody@example.com"} {
		f.want("POST", name, `{"email":"`+email+`"}`, 200, success)
		if len(f.set) != 0 {
			t.Errorf("%s: got cookies %v", email, f.set)
		}
	}
	if len(f.box.mails) != 2 || f.box.mails[0].To[0].Address != "ada@example.com" || !strings.Contains(f.box.mails[0].Text, "https://help.example.com/reset-password?token=") {
		t.Fatalf("got mails %+v", f.box.mails)
	}
	if m := f.box.mails[1]; m.To[0].Address != "nobody@example.com" || strings.Contains(m.Text+m.HTML, "token=") {
		t.Errorf("nobody got a link: %+v", m)
	}
	for _, tt := range []struct{ input, message string }{
		{`{}`, "is required"},
		{`{"email":null}`, "is required"},
		{`{"email":["ada@example.com"]}`, "must be a string"},
		{`{"email":"ada@example.com\r\nBcc: bob@example.com"}`, "must be an e-mail address"},
		{`{"email":"ada@example.com, bob@example.com"}`, "must be an e-mail address"},
		{`{"email":"` + strings.Repeat("a", 250) + `@example.com"}`, "must be an e-mail address"},
	} {
		f.want("POST", name, tt.input, 400, invalid(name, "email", tt.message))
	}
	if len(f.box.mails) != 2 {
		t.Errorf("got %d mails after refusals, want 2", len(f.box.mails))
	}
}

// TestSection7 is the table of errors.
func TestSection7(t *testing.T) {
	t.Run("Sign-in rate limit exceeded", func(t *testing.T) {
		for _, l := range limits {
			t.Run(l.procedure, func(t *testing.T) {
				f := newAccountFixture(t)
				for range 5 {
					f.call("POST", l.procedure, l.input)
				}
				status, body := f.call("POST", l.procedure, l.input)
				seconds := f.header.Get("Retry-After")
				want := refused(l.procedure, "TOO_MANY_REQUESTS", -32600, 429, "too many sign-in attempts, try again in "+seconds+" seconds")
				if status != 429 || body != want || len(f.set) != 0 {
					t.Errorf("got %d %s and cookies %v, want %s", status, body, f.set, want)
				}
			})
		}
	})
	t.Run("auth.changePassword with wrong current password", func(t *testing.T) {
		f := newAccountFixture(t)
		f.createUser("ada@example.com", "correct horse", account.Agent)
		f.enter("ada@example.com")
		f.want("POST", "auth.changePassword", `{"currentPassword":"wrong horse","newPassword":"better horse"}`, 401,
			refused("auth.changePassword", "UNAUTHORIZED", -32001, 401, "the current password is wrong"))
		if len(f.set) != 0 {
			t.Errorf("got cookies %v", f.set)
		}
		f.want("GET", "auth.hasPassword", "", 200, `{"result":{"data":{"json":{"hasPassword":true}}}}`)
	})
}

// limits are the rows of section 8, each with a call of one key and its response within
// the limit.
var limits = []struct {
	procedure, input string
	status           int
}{
	{"auth.signInWithEmail", `{"email":"ada@example.com"}`, 200},
	{"auth.signInWithPassword", `{"email":"ada@example.com","password":"a guess"}`, 401},
	{"auth.signInWithProvider", `{}`, 412},
	{"auth.sendPasswordReset", `{"email":"ada@example.com"}`, 200},
}

// TestSection8 is the table of limits: five in any minute, exact waits, and separate
// counts for each kind.
func TestSection8(t *testing.T) {
	for _, l := range limits {
		t.Run(l.procedure, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newAccountFixture(t, func(c *account.Config) { c.DB = dbtest.NewSQLite(t) }) // a socket would stall synctest's clock
				try := func(input string, want int, retryAfter string) {
					t.Helper()
					status, body := f.call("POST", l.procedure, input)
					if got := f.header.Get("Retry-After"); status != want || got != retryAfter {
						t.Errorf("got %d %s, Retry-After %q, want %d, %q", status, body, got, want, retryAfter)
					}
				}
				for i := range 5 {
					try(strings.Replace(l.input, "ada", []string{"ada", "ADA", "Ada", " ada", "aDa"}[i], 1), l.status, "")
					time.Sleep(time.Second)
				}
				for range 3 { // retrying early does not extend the wait
					try(l.input, 429, "55")
				}
				time.Sleep(54*time.Second + 999*time.Millisecond)
				try(l.input, 429, "1")
				time.Sleep(time.Millisecond)
				try(l.input, l.status, "")
				try(l.input, 429, "1")
				for _, other := range limits {
					if other.procedure == l.procedure {
						continue
					}
					if status, body := f.call("POST", other.procedure, other.input); status != other.status {
						t.Errorf("%s after %s was used up: got %d %s, want %d", other.procedure, l.procedure, status, body, other.status)
					}
				}
				if l.procedure == "auth.signInWithProvider" {
					f.ip = "192.0.2.99"
				}
				try(strings.Replace(l.input, "ada", "bob", 1), l.status, "")
			})
		})
	}
}

// TestSection8Bounds is the table of other bounds, at and next to each edge.
func TestSection8Bounds(t *testing.T) {
	text := func(n int) string { return strings.Repeat("é", n) }
	for _, tt := range []struct {
		row, procedure, input, path string
		low, high                   int // 0: not in the contract
		status                      int // within the bounds
	}{
		{"password at sign-in", "auth.signInWithPassword", `{"email":"ada@example.com","password":%q}`, "password", 6, 0, 401},
		{"password on setPassword", "auth.setPassword", `{"password":%q}`, "password", 8, 0, 200},
		{"password on changePassword", "auth.changePassword", `{"currentPassword":"wrong horse","newPassword":%q}`, "newPassword", 8, 0, 401},
		{"name at signup", "auth.completeSignup", `{"name":%q,"organizationName":"Acme"}`, "name", 1, 255, 200},
		{"organizationName at signup", "auth.completeSignup", `{"name":"Ada","organizationName":%q}`, "organizationName", 1, 255, 200},
	} {
		t.Run(tt.row, func(t *testing.T) {
			for n, ok := range map[int]bool{tt.low - 1: false, tt.low: true, cmp.Or(tt.high, 255): true, cmp.Or(tt.high, 1024) + 1: false} {
				f := newAccountFixture(t)
				if strings.HasPrefix(tt.procedure, "auth.change") {
					f.createUser("ada@example.com", "correct horse", account.Agent)
				}
				f.enter("ada@example.com")
				status, body := f.call("POST", tt.procedure, fmt.Sprintf(tt.input, text(n)))
				if ok && status != tt.status || !ok && (status != 400 || !strings.Contains(body, `"issues":[{"path":"`+tt.path+`"`)) {
					t.Errorf("%d characters: got %d %s", n, status, body)
				}
			}
		})
	}
}

// sessionCalls are all procedures that need a session. ID stands for the id of another
// organization's record.
var sessionCalls = []struct {
	method, procedure, input string
	foreign                  int // status for an admin of another organization
}{
	{"GET", "auth.getUser", "", 200},
	{"POST", "auth.updateProfile", `{"name":"Mallory"}`, 200},
	{"POST", "auth.setPassword", `{"password":"mallory's horse"}`, 412},
	{"POST", "auth.changePassword", `{"currentPassword":"correct horse","newPassword":"mallory's horse"}`, 401},
	{"GET", "auth.hasPassword", "", 200},
	{"POST", "auth.completeSignup", `{"name":"Mallory","organizationName":"Acme"}`, 409},
	{"GET", "sessions.list", "", 200},
	{"POST", "sessions.end", `{"id":"SESSION"}`, 404},
	{"POST", "sessions.endAll", `{}`, 200},
	{"GET", "members.list", "", 200},
	{"POST", "members.update", `{"id":"USER","role":"agent"}`, 404},
	{"POST", "members.remove", `{"id":"USER"}`, 404},
	{"GET", "invitations.list", "", 200},
	{"POST", "invitations.create", `{"email":"eve@example.com","role":"admin"}`, 200},
	{"POST", "invitations.revoke", `{"id":"INVITATION"}`, 404},
	{"POST", "auth.signOut", "", 200},
}

// TestSessionProceduresRefuse calls each with every kind of invalid session.
func TestSessionProceduresRefuse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(f *accountFixture)
	}{
		{"without cookies", func(f *accountFixture) { f.leave() }},
		{"expired access token", func(f *accountFixture) {
			f.expire()
			delete(f.jar, "svc-refresh-token")
		}},
		{"revoked session", func(f *accountFixture) { f.exec("DELETE FROM sessions") }},
		{"made-up tokens", func(f *accountFixture) {
			f.jar = map[string]string{"svc-access-token": strings.Repeat("A", 43), "svc-refresh-token": strings.Repeat("A", 43)}
		}},
		{"tokens swapped", func(f *accountFixture) {
			f.jar["svc-access-token"], f.jar["svc-refresh-token"] = f.jar["svc-refresh-token"], f.jar["svc-access-token"]
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newAccountFixture(t)
			f.createUser("ada@example.com", "correct horse", account.Admin)
			f.enter("ada@example.com")
			tt.spoil(f)
			mails := len(f.box.mails)
			for _, c := range sessionCalls {
				f.want(c.method, c.procedure, c.input, 401, fmt.Sprintf(unauthorized, c.procedure))
				if len(f.set) != 0 {
					t.Errorf("%s: got cookies %v", c.procedure, f.set)
				}
			}
			if len(f.box.mails) != mails {
				t.Errorf("got %d mails from refusals", len(f.box.mails)-mails)
			}
		})
	}
}

// TestSessionProceduresRefresh calls each with an expired access token and a valid
// refresh token.
func TestSessionProceduresRefresh(t *testing.T) {
	for _, c := range sessionCalls {
		f := newAccountFixture(t)
		f.createUser("ada@example.com", "correct horse", account.Admin)
		f.enter("ada@example.com")
		f.expire()
		if status, body := f.call(c.method, c.procedure, c.input); status == 401 && c.foreign != 401 {
			t.Errorf("%s: got %d %s with a refresh token", c.procedure, status, body)
		}
		if got := f.cookieNames(); got != "svc-access-token svc-refresh-token" {
			t.Errorf("%s: got cookies %q, want both", c.procedure, got)
		}
	}
}

// TestSessionProceduresKeepApart calls each as an admin of another organization, with ids
// of this one, and checks that nothing changed here.
func TestSessionProceduresKeepApart(t *testing.T) {
	f := newAccountFixture(t)
	ada := f.createUser("ada@example.com", "correct horse", account.Admin)
	in := f.enter("ada@example.com")
	f.createUser("mallory@example.com", "mallory's own", account.Admin, "Other")
	if status, body := f.call("POST", "invitations.create", `{"email":"bob@example.com","role":"agent"}`); status != 200 {
		t.Fatalf("got %d %s", status, body)
	}
	_, list := f.call("GET", "invitations.list", "")
	invitation := anyID.FindString(list)
	seen := func() string {
		var all strings.Builder
		for _, c := range sessionCalls {
			if c.method == "GET" {
				_, body := f.call(c.method, c.procedure, "")
				all.WriteString(body + "\n")
			}
		}
		return all.String()
	}
	mine := maps.Clone(f.jar)
	before := seen()
	ids := strings.NewReplacer("USER", ada.ID, "SESSION", in.SessionID, "INVITATION", invitation)
	for _, c := range sessionCalls {
		f.enter("mallory@example.com")
		status, body := f.call(c.method, c.procedure, ids.Replace(c.input))
		if status != c.foreign {
			t.Errorf("%s: got %d %s, want %d", c.procedure, status, body, c.foreign)
		}
		for _, secret := range []string{ada.ID, "ada@example.com", "bob@example.com", ada.OrganizationID, in.SessionID} {
			if strings.Contains(body, secret) {
				t.Errorf("%s told another organization's admin %s", c.procedure, secret)
			}
		}
	}
	f.jar = mine
	if after := seen(); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
}

// TestRoles: agents may not call procedures for admins.
func TestRoles(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("admin@example.com", "", account.Admin)
	agent := f.createUser("agent@example.com", "", account.Agent)
	newcomer := map[string]int{"members.list": 403, "members.update": 403, "members.remove": 403, "invitations.list": 403, "invitations.create": 403, "invitations.revoke": 403}
	agents := map[string]int{"members.update": 403, "members.remove": 403, "invitations.list": 403, "invitations.create": 403, "invitations.revoke": 403}
	ids := strings.NewReplacer("USER", agent.ID, "SESSION", agent.ID, "INVITATION", agent.ID)
	for email, forbidden := range map[string]map[string]int{"newcomer@example.com": newcomer, "agent@example.com": agents} {
		for _, c := range sessionCalls {
			if c.procedure == "auth.completeSignup" {
				continue // makes the new user an admin
			}
			f.enter(email)
			if status, body := f.call(c.method, c.procedure, ids.Replace(c.input)); (status == 403) != (forbidden[c.procedure] == 403) {
				t.Errorf("%s as %s: got %d %s", c.procedure, email, status, body)
			}
		}
	}
}

func TestSessionsProcedures(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("ada@example.com", "", account.Agent)
	first := f.enter("ada@example.com")
	f.exec("UPDATE sessions SET used_at = used_at - 60000000, user_agent = 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0'")
	second := f.enter("ada@example.com")
	f.want("GET", "sessions.list", "", 200, `{"result":{"data":{"json":[`+
		`{"id":"ID","device":"tests","ip":"192.0.2.7","userAgent":"tests","current":true,"created_at":"TIME","lastUsedAt":"TIME"},`+
		`{"id":"ID","device":"Firefox on Linux","ip":"192.0.2.7","userAgent":"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0","current":false,"created_at":"TIME","lastUsedAt":"TIME"}]}}}`)
	f.want("POST", "sessions.end", `{"id":"x"}`, 400, invalid("sessions.end", "id", "must be a UUID"))
	f.want("POST", "sessions.end", `{"id":"`+first.SessionID+`"}`, 200, success)
	f.want("POST", "sessions.end", `{"id":"`+first.SessionID+`"}`, 404, refused("sessions.end", "NOT_FOUND", -32004, 404, "there is no such session"))
	if len(f.set) != 0 {
		t.Errorf("got cookies %v", f.set)
	}
	f.want("POST", "sessions.end", `{"id":"`+second.SessionID+`"}`, 200, success)
	if got := f.cookieNames(); got != "svc-access-token svc-refresh-token" || len(f.jar) != 0 {
		t.Errorf("got cookies %q and jar %v, want both cleared", got, f.jar)
	}

	for range 3 {
		f.enter("ada@example.com")
	}
	f.want("POST", "sessions.endAll", "", 200, `{"result":{"data":{"json":{"success":true,"ended":2}}}}`)
	f.want("GET", "auth.hasPassword", "", 200, `{"result":{"data":{"json":{"hasPassword":false}}}}`)
	f.want("POST", "sessions.endAll", `{"includeCurrent":true}`, 200, `{"result":{"data":{"json":{"success":true,"ended":1}}}}`)
	if len(f.jar) != 0 {
		t.Errorf("got jar %v, want it empty", f.jar)
	}
	f.want("GET", "auth.getUser", "", 401, fmt.Sprintf(unauthorized, "auth.getUser"))
}

func TestMembersProcedures(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("ada@example.com", "", account.Admin)
	bob := f.createUser("bob@example.com", "", account.Agent)
	member := func(email, role string) string {
		name, _, _ := strings.Cut(email, "@")
		return fmt.Sprintf(`{"id":"ID","email":%q,"name":%q,"avatar_url":null,"role":%q,"created_at":"TIME","updated_at":"TIME"}`, email, name, role)
	}
	f.enter("bob@example.com")
	bobs := maps.Clone(f.jar)
	in := f.enter("ada@example.com")
	f.want("GET", "members.list", "", 200, result("["+member("ada@example.com", "admin")+","+member("bob@example.com", "agent")+"]"))
	lastAdmin := func(procedure string) string {
		return refused(procedure, "CONFLICT", -32009, 409, "this is the organization's last admin; make somebody else an admin first")
	}
	f.want("POST", "members.update", `{"id":"`+in.User.ID+`","role":"agent"}`, 409, lastAdmin("members.update"))
	f.want("POST", "members.remove", `{"id":"`+in.User.ID+`"}`, 409, lastAdmin("members.remove"))
	f.want("POST", "members.update", `{"id":"`+bob.ID+`","role":"owner"}`, 400, invalid("members.update", "role", "must be admin or agent"))
	f.want("POST", "members.update", `{"id":"bob","role":"owner"}`, 400,
		`{"error":{"json":{"message":"id must be a UUID (and 1 more)","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"members.update","issues":[{"path":"id","message":"must be a UUID"},{"path":"role","message":"must be admin or agent"}]}}}}`)
	f.want("POST", "members.update", `{"id":"`+bob.ID+`","role":"admin"}`, 200, result(member("bob@example.com", "admin")))
	f.want("POST", "members.update", `{"id":"`+in.User.ID+`","role":"agent"}`, 200, result(member("ada@example.com", "agent")))
	f.want("POST", "members.remove", `{"id":"`+bob.ID+`"}`, 403, refused("members.remove", "FORBIDDEN", -32003, 403, "only admins may do this")) // the change applies from the next request

	f.jar = bobs
	f.want("POST", "members.remove", `{"id":"`+in.User.ID+`"}`, 200, success)
	f.want("POST", "members.remove", `{"id":"`+in.User.ID+`"}`, 404, refused("members.remove", "NOT_FOUND", -32004, 404, "there is no such member"))
	f.want("GET", "members.list", "", 200, result("["+member("bob@example.com", "admin")+"]"))
	f.enter("ada@example.com")
	f.want("GET", "members.list", "", 403, refused("members.list", "FORBIDDEN", -32003, 403, "you belong to no organization yet; call auth.completeSignup first"))
}

func TestInvitationsProcedures(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("ada@example.com", "", account.Admin)
	f.enter("ada@example.com")
	invitation := func(email, role string) string {
		return fmt.Sprintf(`{"id":"ID","email":%q,"role":%q,"invitedBy":"ada","created_at":"TIME","expiresAt":"TIME"}`, email, role)
	}
	f.want("POST", "invitations.create", `{"email":"bob","role":"boss"}`, 400,
		`{"error":{"json":{"message":"email must be an e-mail address (and 1 more)","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"invitations.create","issues":[{"path":"email","message":"must be an e-mail address"},{"path":"role","message":"must be admin or agent"}]}}}}`)
	f.want("POST", "invitations.create", `{"email":"ADA@example.com","role":"agent"}`, 409,
		refused("invitations.create", "CONFLICT", -32009, 409, "ADA@example.com is a member already"))
	f.want("POST", "invitations.create", `{"email":"Bob@example.com","role":"agent"}`, 200, result(invitation("Bob@example.com", "agent")))
	old := f.token()
	f.want("POST", "invitations.create", `{"email":"bob@example.com","role":"admin"}`, 200, result(invitation("bob@example.com", "admin")))
	f.want("POST", "invitations.create", `{"email":"eve@example.com","role":"agent"}`, 200, result(invitation("eve@example.com", "agent")))
	eves := f.token()
	f.want("GET", "invitations.list", "", 200, result("["+invitation("bob@example.com", "admin")+","+invitation("eve@example.com", "agent")+"]"))
	_, list := f.call("GET", "invitations.list", "")
	id := anyID.FindAllString(list, -1)[1]
	f.want("POST", "invitations.revoke", `{"id":"`+id+`"}`, 200, success)
	f.want("POST", "invitations.revoke", `{"id":"`+id+`"}`, 404, refused("invitations.revoke", "NOT_FOUND", -32004, 404, "there is no such invitation"))
	for _, token := range []string{old, eves} {
		if _, err := f.accounts.AcceptInvitation(t.Context(), token, "X", account.Client{}); problem.Of(err) != problem.Invalid {
			t.Errorf("got %v from a link that ended, want an Invalid", err)
		}
	}
	for range 2 {
		f.call("POST", "invitations.create", `{"email":"bob@example.com","role":"admin"}`)
	}
	in, err := f.accounts.AcceptInvitation(t.Context(), f.token(), "Bob", account.Client{})
	if err != nil || in.User.Role != account.Admin {
		t.Fatalf("got %+v, %v", in, err)
	}
	f.want("GET", "invitations.list", "", 200, result("[]"))
	status, body := f.call("POST", "invitations.create", `{"email":"bob@example.com","role":"agent"}`)
	if status != 409 {
		t.Errorf("got %d %s for a member", status, body)
	}
	status, body = f.call("POST", "invitations.create", `{"email":"bob@example.com","role":"agent"}`)
	if want := refused("invitations.create", "TOO_MANY_REQUESTS", -32600, 429, "too many invitations to this address, try again in "+f.header.Get("Retry-After")+" seconds"); status != 429 || body != want {
		t.Errorf("got %d %s, want %s", status, body, want)
	}
}

// TestSameAnswerOverTheWire: status, body and headers do not show whether an address has
// an account.
func TestSameAnswerOverTheWire(t *testing.T) {
	f := newAccountFixture(t)
	f.createUser("known@example.com", "correct horse", account.Agent)
	f.createUser("linked@example.com", "", account.Agent)
	for _, l := range limits {
		var first string
		for _, email := range []string{"known@example.com", "linked@example.com", "unknown@example.com"} {
			f.leave()
			status, body := f.call("POST", l.procedure, strings.Replace(l.input, "ada@example.com", email, 1))
			header := f.header.Clone()
			header.Del("Set-Cookie") // random
			got := fmt.Sprint(status, body, header, f.cookieNames())
			if first == "" {
				first = got
			} else if got != first {
				t.Errorf("%s for %s:\n got %s\nwant %s", l.procedure, email, got, first)
			}
		}
	}
}

// TestCrossSite: cross-site requests are refused before any procedure runs; package app
// mounts the protection, this test shows the response.
func TestCrossSite(t *testing.T) {
	f := newAccountFixture(t)
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.router.Refuse(w, r, problem.New(problem.Forbidden, "this request comes from another site"))
	}))
	f.enter("ada@example.com")
	for _, header := range []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"} {
		r := httptest.NewRequest("POST", "https://help.example.com"+rpc.Prefix+"auth.signOut", nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		for name, value := range f.jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		w := httptest.NewRecorder()
		protection.Handler(f.router).ServeHTTP(w, r)
		if want := refused("auth.signOut", "FORBIDDEN", -32003, 403, "this request comes from another site"); w.Code != 403 || w.Body.String() != want {
			t.Errorf("%s: got %d %s, want %s", header, w.Code, w.Body, want)
		}
	}
	f.want("GET", "auth.hasPassword", "", 200, `{"result":{"data":{"json":{"hasPassword":false}}}}`)
}

// FuzzAccounts sends arbitrary input to every procedure: the response is well-formed and
// not an internal error.
func FuzzAccounts(f *testing.F) {
	names := []string{"auth.signInWithEmail", "auth.signInWithPassword", "auth.signInWithProvider", "auth.sendPasswordReset"}
	for _, l := range limits {
		f.Add(l.procedure, []byte(`{"json":`+l.input+`}`))
	}
	for _, c := range sessionCalls {
		names = append(names, c.procedure)
		f.Add(c.procedure, []byte(`{"json":`+cmp.Or(c.input, "{}")+`}`))
	}
	f.Add("auth.updateProfile", []byte(`{"json":{"name":"\u202e\ud800","avatar_url":"https://[::1]/","preferences":{"a":{"a":[1e999,null]}}},"meta":{"values":{"name":["undefined"]}}}`))
	f.Add("auth.signInWithEmail", []byte("{\"json\":{\"email\":\"\\\"a b\\\"@[127.0.0.1]\",\"redirectTo\":\"/\\\\evil\xff\"}}"))
	f.Add("members.update", []byte(`{"json":{"id":"00000000-0000-7000-8000-000000000000","role":"admin","role":"x"}}`))
	// One fixture for all inputs: each call starts from the state of the previous one.
	fixture := newAccountFixture(f, func(c *account.Config) { c.Provider = new(idp) })
	fixture.createUser("ada@example.com", "correct horse", account.Admin)
	var cookies map[string]string
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		if !slices.Contains(names, name) {
			t.Skip()
		}
		fixture.t = t
		if cookies == nil || strings.Contains(name, "end") || name == "auth.signOut" || name == "members.remove" {
			fixture.exec("DELETE FROM login_links")
			fixture.enter("ada@example.com")
			cookies = maps.Clone(fixture.jar)
		}
		method := http.MethodPost
		for _, c := range sessionCalls {
			if c.procedure == name {
				method = c.method
			}
		}
		target := rpc.Prefix + name
		r := httptest.NewRequest(method, target, strings.NewReader(string(body)))
		if method == http.MethodGet {
			r = httptest.NewRequest(method, target, nil)
			r.URL.RawQuery = "input=" + string(body)
		}
		r.Header.Set("Content-Type", "application/json")
		for name, value := range cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		w := httptest.NewRecorder()
		fixture.router.ServeHTTP(w, r)
		checkAnswer(t, w)
		if w.Code >= 500 {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	})
}
