package rpc_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/rpc"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/pquerna/otp/totp"
)

const factorPassword = "correct horse battery"

// newFactorFixture serves accounts and factors, with a proof of identity valid for ten
// minutes.
func newFactorFixture(t *testing.T) *accountFixture {
	t.Helper()
	f := newAccountFixture(t, func(c *account.Config) { c.FreshProof = 10 * time.Minute })
	factors, err := factor.Open(factor.Config{
		DB: f.db, Accounts: f.accounts, Box: seal.New(seal.NewKey()), BaseURL: "https://help.example.com", FreshProof: 10 * time.Minute,
		NewLimiter: func(_ string, _ int, window time.Duration) account.Limiter { return ratelimit.New(100, window) },
	})
	if err != nil {
		t.Fatal(err)
	}
	gate := &browser.SessionAuth{Accounts: f.accounts, Secure: true}
	f.router = rpc.New(rpc.Config{
		Procedures:   slices.Concat(rpc.AccountProcedures(f.accounts, gate), rpc.FactorProcedures(factors, gate), rpc.MemberProcedures(f.accounts, gate)),
		Authenticate: gate.AuthenticateRestricted, Authorize: rpc.Authorize, RequireProof: rpc.RequireProof(factors),
	})
	return f
}

// mustCall calls a procedure, requires success and decodes the result.
func (f *accountFixture) mustCall(method, procedure, input string, out any) {
	f.t.Helper()
	status, body := f.call(method, procedure, input)
	if status != http.StatusOK {
		f.t.Fatalf("%s: got %d %s", procedure, status, body)
	}
	var envelope struct {
		Result struct {
			Data struct{ JSON json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(body), &envelope); err != nil {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(envelope.Result.Data.JSON, out); err != nil {
		f.t.Fatal(err)
	}
}

// refused calls a procedure and checks code and reason of the refusal.
func (f *accountFixture) refused(procedure, input, code, reason string) {
	f.t.Helper()
	_, body := f.call("POST", procedure, input)
	var got rpcError
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		f.t.Fatal(err)
	}
	if d := got.Error.JSON.Data; d.Code != code || d.Reason != reason {
		f.t.Errorf("%s %s: got %s, want %s %s", procedure, input, body, code, reason)
	}
}

type rpcError struct {
	Error struct {
		JSON struct {
			Data struct{ Code, Reason string }
		}
	}
}

func (f *accountFixture) byPassword(email, reason string) {
	f.t.Helper()
	f.leave()
	input := fmt.Sprintf(`{"email":%q,"password":%q}`, email, factorPassword)
	if reason != "" {
		f.refused("auth.signInWithPassword", input, "UNAUTHORIZED", reason)
		return
	}
	if status, body := f.call("POST", "auth.signInWithPassword", input); status != http.StatusOK {
		f.t.Fatalf("got %d %s", status, body)
	}
}

type enrolment struct{ Secret, URI, Enrolment string }

// code returns the app's current code.
func (e enrolment) code(t *testing.T) string {
	t.Helper()
	code, err := totp.GenerateCode(strings.ReplaceAll(e.Secret, " ", ""), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// pass advances time until earlier codes count as unused.
func (f *accountFixture) pass() {
	f.t.Helper()
	f.exec("UPDATE totp_secrets SET last_step = 0")
}

// enable sets up an authenticator app.
func (f *accountFixture) enable(t *testing.T) (app enrolment, codes []string) {
	t.Helper()
	f.mustCall("POST", "auth.beginTotp", "{}", &app)
	var out struct{ RecoveryCodes []string }
	f.mustCall("POST", "auth.enableTotp", fmt.Sprintf(`{"enrolment":%q,"code":%q}`, app.Enrolment, app.code(t)), &out)
	f.pass()
	return app, out.RecoveryCodes
}

// TestTOTPOverTRPC sets up an authenticator app, signs in with it and with a recovery
// code, and removes it, as a client without the pages does.
func TestTOTPOverTRPC(t *testing.T) {
	f := newFactorFixture(t)
	f.createUser("ada@example.com", factorPassword, account.Admin)
	f.byPassword("ada@example.com", "")
	f.want("GET", "auth.getFactors", "", http.StatusOK, `{"result":{"data":{"json":{"hasPassword":true,"totpSince":null,"passkeys":[],"recoveryCodes":0,"required":false}}}}`)
	app, codes := f.enable(t)
	if len(codes) != 10 || !strings.HasPrefix(app.URI, "otpauth://totp/Kickstand:ada@example.com?secret=") {
		t.Fatalf("got codes %q, address %s", codes, app.URI)
	}
	f.want("GET", "auth.getFactors", "", http.StatusOK,
		`{"result":{"data":{"json":{"hasPassword":true,"totpSince":"TIME","passkeys":[],"recoveryCodes":10,"required":false}}}}`)

	f.byPassword("ada@example.com", account.SecondFactorRequired)
	f.refused("auth.getFactors", "", "METHOD_NOT_SUPPORTED", "")
	if status, body := f.call("GET", "auth.getUser", ""); status != http.StatusUnauthorized {
		t.Errorf("half signed in: got %d %s", status, body)
	}
	f.refused("auth.verifyTotp", `{"code":"000000"}`, "UNAUTHORIZED", "")
	right := fmt.Sprintf(`{"code":%q}`, app.code(t))
	waiting := f.jar[browser.PendingCookie]
	if status, body := f.call("POST", "auth.verifyTotp", right); status != http.StatusOK || f.jar[browser.AccessCookie] == "" || f.jar[browser.PendingCookie] != "" {
		t.Fatalf("got %d %s, cookies %v", status, body, f.jar)
	}
	// Neither the code nor the token of the pending sign-in works again.
	f.byPassword("ada@example.com", account.SecondFactorRequired)
	f.refused("auth.verifyTotp", right, "UNAUTHORIZED", "")
	f.pass()
	f.jar = map[string]string{browser.PendingCookie: waiting}
	f.refused("auth.verifyTotp", right, "UNAUTHORIZED", "")
	f.byPassword("ada@example.com", account.SecondFactorRequired)
	if status, body := f.call("POST", "auth.verifyRecoveryCode", fmt.Sprintf(`{"code":%q}`, codes[0])); status != http.StatusOK {
		t.Fatalf("got %d %s", status, body)
	}
	// The app renews an old proof, and then can be removed.
	f.exec("UPDATE sessions SET proven_at = 0")
	for _, name := range []string{"auth.disableTotp", "auth.createRecoveryCodes"} {
		f.refused(name, "{}", "PRECONDITION_FAILED", account.FreshProofRequired)
	}
	f.refused("auth.proveIdentity", "{}", "UNAUTHORIZED", "")
	f.want("POST", "auth.proveIdentity", fmt.Sprintf(`{"totp":%q}`, app.code(t)), http.StatusOK, `{"result":{"data":{"json":{"success":true}}}}`)
	f.want("POST", "auth.disableTotp", "{}", http.StatusOK, `{"result":{"data":{"json":{"success":true}}}}`)
	f.refused("auth.createRecoveryCodes", "{}", "PRECONDITION_FAILED", "")
	f.byPassword("ada@example.com", "")
}

// TestSecondFactorRequiredOverTRPC: an organization requires a second factor, a member
// adds one, and an admin resets it.
func TestSecondFactorRequiredOverTRPC(t *testing.T) {
	f := newFactorFixture(t)
	f.createUser("ada@example.com", factorPassword, account.Admin)
	ben := f.createUser("ben@example.com", factorPassword, account.Agent)
	f.byPassword("ada@example.com", "")
	f.refused("organization.requireSecondFactor", `{"required":true}`, "PRECONDITION_FAILED", "") // no second factor
	f.refused("organization.requireSecondFactor", `{}`, "BAD_REQUEST", "")
	f.enable(t)
	f.want("POST", "organization.requireSecondFactor", `{"required":true}`, http.StatusOK,
		`{"result":{"data":{"json":{"providerOnly":"off","hasProvider":false,"secondFactorRequired":true}}}}`)
	admin := f.jar

	f.byPassword("ben@example.com", "")
	f.refused("organization.requireSecondFactor", `{"required":false}`, "FORBIDDEN", account.SecondFactorSetupRequired)
	f.want("GET", "auth.getFactors", "", http.StatusOK, `{"result":{"data":{"json":{"hasPassword":true,"totpSince":null,"passkeys":[],"recoveryCodes":0,"required":true}}}}`)
	f.enable(t)
	f.refused("organization.requireSecondFactor", `{"required":false}`, "FORBIDDEN", "") // as an agent
	f.refused("auth.disableTotp", "{}", "CONFLICT", "")                                  // the last factor
	f.refused("members.resetFactors", fmt.Sprintf(`{"id":%q}`, ben.ID), "FORBIDDEN", "")
	member := f.jar

	f.jar = admin
	f.want("POST", "members.resetFactors", fmt.Sprintf(`{"id":%q}`, ben.ID), http.StatusOK, `{"result":{"data":{"json":{"success":true}}}}`)
	f.jar = member
	if status, body := f.call("GET", "auth.getUser", ""); status != http.StatusUnauthorized {
		t.Errorf("after the reset: got %d %s", status, body)
	}
}

// TestAttackPasskeyOfAnotherOverTRPC: no user removes another's passkey or resets a
// member of another organization.
func TestAttackPasskeyOfAnotherOverTRPC(t *testing.T) {
	f := newFactorFixture(t)
	ada := f.createUser("ada@example.com", factorPassword, account.Admin)
	f.createUser("eve@example.net", factorPassword, account.Admin, "Other")
	const passkey = "01985ec5-8a60-7000-8000-5a7e1c0d2b3f"
	f.exec("INSERT INTO passkeys (id, user_id, credential_id, credential, name, created_at) VALUES ($1, $2, $3, '{}', 'Laptop', 0)", passkey, ada.ID, []byte("x"))
	f.byPassword("eve@example.net", "")
	f.refused("auth.removePasskey", fmt.Sprintf(`{"id":%q}`, passkey), "NOT_FOUND", "")
	f.refused("members.resetFactors", fmt.Sprintf(`{"id":%q}`, ada.ID), "NOT_FOUND", "")
	f.byPassword("ada@example.com", "")
	var got struct{ Passkeys []struct{ ID, Name string } }
	f.mustCall("GET", "auth.getFactors", "", &got)
	if len(got.Passkeys) != 1 || got.Passkeys[0].ID != passkey {
		t.Fatalf("got passkeys %+v", got.Passkeys)
	}
	f.want("POST", "auth.removePasskey", fmt.Sprintf(`{"id":%q}`, passkey), http.StatusOK, `{"result":{"data":{"json":{"success":true}}}}`)
}

// TestAttackSessionFixation: signing in replaces a planted session or pending sign-in in
// the browser; the planted one keeps its user.
func TestAttackSessionFixation(t *testing.T) {
	f := newFactorFixture(t)
	f.createUser("ada@example.com", factorPassword, account.Admin)
	f.createUser("eve@example.net", factorPassword, account.Admin, "Other")
	f.byPassword("eve@example.net", "")
	planted := map[string]string{browser.AccessCookie: f.jar[browser.AccessCookie], browser.RefreshCookie: f.jar[browser.RefreshCookie], browser.PendingCookie: "planted"}
	f.jar = map[string]string{}
	maps.Copy(f.jar, planted)
	if status, body := f.call("POST", "auth.signInWithPassword", fmt.Sprintf(`{"email":"ada@example.com","password":%q}`, factorPassword)); status != http.StatusOK {
		t.Fatalf("got %d %s", status, body)
	}
	for _, name := range []string{browser.AccessCookie, browser.RefreshCookie} {
		if f.jar[name] == planted[name] || f.jar[name] == "" {
			t.Errorf("%s is the planted one", name)
		}
	}
	app, _ := f.enable(t)
	f.byPassword("ada@example.com", account.SecondFactorRequired)
	half := f.jar[browser.PendingCookie]
	if status, body := f.call("POST", "auth.verifyTotp", fmt.Sprintf(`{"code":%q}`, app.code(t))); status != http.StatusOK {
		t.Fatalf("got %d %s", status, body)
	}
	if f.jar[browser.AccessCookie] == half || f.jar[browser.RefreshCookie] == half {
		t.Error("the token of the first step became that of the session")
	}
	f.jar = planted
	var user struct{ Email string }
	if f.mustCall("GET", "auth.getUser", "", &user); user.Email != "eve@example.net" {
		t.Errorf("the planted session became that of %s", user.Email)
	}
}

// TestAttackPasswordPlantedForProof: in a stolen session of an admin without a password
// an attacker sets one, proves identity with it, and invites an admin.
func TestAttackPasswordPlantedForProof(t *testing.T) {
	f := newFactorFixture(t)
	f.createUser("ada@example.com", "", account.Admin)
	f.enter("ada@example.com")
	old := func() { f.exec("UPDATE sessions SET proven_at = proven_at - $1", time.Hour.Microseconds()) }
	prove := func(password string) string { return fmt.Sprintf(`{"password":%q}`, password) }
	const invite = `{"email":"eve@example.com","role":"admin"}`
	old()
	f.refused("invitations.create", invite, "PRECONDITION_FAILED", account.FreshProofRequired)
	f.want("POST", "auth.setPassword", prove(factorPassword), http.StatusOK, success)
	f.refused("auth.proveIdentity", prove(factorPassword), "UNAUTHORIZED", "")
	f.refused("invitations.create", invite, "PRECONDITION_FAILED", account.FreshProofRequired)
	f.want("POST", "auth.changePassword", `{"currentPassword":"`+factorPassword+`","newPassword":"another horse battery"}`, http.StatusOK, success)
	f.refused("auth.proveIdentity", prove("another horse battery"), "UNAUTHORIZED", "")
	f.want("POST", "auth.changePassword", `{"currentPassword":"another horse battery","newPassword":"`+factorPassword+`"}`, http.StatusOK, success)

	f.byPassword("ada@example.com", "")
	f.refused("invitations.create", invite, "PRECONDITION_FAILED", account.FreshProofRequired)
	f.refused("auth.proveIdentity", prove(factorPassword), "UNAUTHORIZED", "")
	f.refused("invitations.create", invite, "PRECONDITION_FAILED", account.FreshProofRequired)

	// The owner has access to the mailbox.
	f.want("POST", "auth.mailProofCode", "{}", http.StatusOK, success)
	parts := mailedCode.FindStringSubmatch(f.box.mails[len(f.box.mails)-1].Text)
	if parts == nil {
		t.Fatalf("no code in %q", f.box.mails[len(f.box.mails)-1].Text)
	}
	f.want("POST", "auth.proveIdentity", `{"mailedCode":"`+parts[1]+parts[2]+`"}`, http.StatusOK, success)
	f.want("POST", "auth.changePassword", `{"currentPassword":"`+factorPassword+`","newPassword":"another horse battery"}`, http.StatusOK, success)
	old()
	f.want("POST", "auth.proveIdentity", prove("another horse battery"), http.StatusOK, success)
	if status, body := f.call("POST", "invitations.create", invite); status != http.StatusOK {
		t.Errorf("the owner's invitation: got %d %s", status, body)
	}
}

var mailedCode = regexp.MustCompile(`\b(\d{4}) (\d{4})\b`)
