package factor_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
)

func TestFreshProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), fresh)
		f.user("ada@example.com", account.Admin)
		in := f.byPassword("ada@example.com")
		if err := f.RequireFresh(f.identity(in)); err != nil {
			t.Errorf("right after the sign-in: %v", err)
		}
		time.Sleep(10 * time.Minute)
		id := f.identity(in)
		want(t, "ten minutes later", f.RequireFresh(id), problem.Precondition, account.FreshProofRequired)
		want(t, "a wrong password", f.Prove(t.Context(), id, factor.Answer{Password: "wrong horse"}), problem.Unauthorized, "")
		want(t, "after a wrong password", f.RequireFresh(f.identity(in)), problem.Precondition, account.FreshProofRequired)
		if err := f.Prove(t.Context(), id, factor.Answer{Password: password}); err != nil {
			t.Fatal(err)
		}
		if id := f.identity(in); f.RequireFresh(id) != nil || id.SecondFactor {
			t.Errorf("after the right password: fresh %v, second factor %t", f.Fresh(id), id.SecondFactor)
		}
		off := newFixture(t, dbtest.NewSQLite(t))
		if err := off.RequireFresh(id); err != nil {
			t.Errorf("where no proof is asked for: %v", err)
		}
	})
}

// TestOwnFactorsNeedProof covers every change of a user's own factors.
func TestOwnFactorsNeedProof(t *testing.T) {
	f := newFixture(t, dbtest.New(t), fresh)
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	_, p := f.addPasskey(id, "")
	authenticator, _ := f.addApp(id)
	id.SecondFactor = true
	for name, change := range ownChanges(t, f, p, authenticator) {
		stale := id
		f.age(&stale, 10*time.Minute)
		want(t, name+" with an old proof", change(stale), problem.Precondition, account.FreshProofRequired)
		f.exec("UPDATE sessions SET proven_at = $1", id.ProvenAt.UnixMicro())

		// A session by one factor from before the second: it must prove the other first.
		weak := id
		weak.SecondFactor = false
		want(t, name+" with one of two factors", change(weak), problem.Precondition, account.FreshProofRequired)
	}
	if st, err := f.State(t.Context(), id.UserID); err != nil || len(st.Passkeys) != 1 || !st.TOTP || st.RecoveryCodes != 10 || !st.Password {
		t.Errorf("got state %+v, error %v", st, err)
	}
	want(t, "a password where a second factor is due", f.Prove(t.Context(), weak(id), factor.Answer{Password: password}), problem.Unauthorized, "")
	options, err := f.ProofOptions(t.Context(), weak(id))
	if err != nil || options.Password || options.Mail || !options.Code || !options.Recovery || options.Passkey == "" {
		t.Errorf("got options %+v, error %v", options, err)
	}
}

func weak(id account.Identity) account.Identity {
	id.SecondFactor = false
	return id
}

func ownChanges(t *testing.T, f *fixture, p factor.Passkey, authenticator app) map[string]func(account.Identity) error {
	return map[string]func(account.Identity) error{
		"add a passkey": func(id account.Identity) error {
			options, err := f.RegistrationOptions(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.AddPasskey(t.Context(), id, "", newDevice(t).create(t, options))
			return err
		},
		"remove a passkey": func(id account.Identity) error { return f.RemovePasskey(t.Context(), id, p.ID) },
		"set up another app": func(id account.Identity) error {
			e, err := f.BeginTOTP(id)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.EnableTOTP(t.Context(), id, e.Sealed, app{strings.ReplaceAll(e.Secret, " ", "")}.code(t, time.Now()))
			return err
		},
		"remove the app":        func(id account.Identity) error { return f.DisableTOTP(t.Context(), id) },
		"create recovery codes": func(id account.Identity) error { _, err := f.NewRecoveryCodes(t.Context(), id); return err },
	}
}

var mailedCode = regexp.MustCompile(`\b(\d{4}) (\d{4})\b`)

// byLink signs in by a mailed link.
func (f *fixture) byLink(email string) account.Identity {
	f.t.Helper()
	if _, err := f.accounts.SignInWithEmail(f.t.Context(), account.EmailSignIn{Email: email}, "", account.Client{}); err != nil {
		f.t.Fatal(err)
	}
	in, err := f.accounts.FollowLink(f.t.Context(), tokenIn(f.t, f.mails.last(f.t).Text), "", client)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.identity(in)
}

// TestAttackPasswordPlantedForProof: in a stolen session of a user without a password an
// attacker sets one, to prove identity with it there or in a session that it opens.
func TestAttackPasswordPlantedForProof(t *testing.T) {
	f := newFixture(t, dbtest.New(t), fresh, func(c *factor.Config) {
		c.NewLimiter = func(_ string, _ int, window time.Duration) account.Limiter { return ratelimit.New(100, window) }
	})
	stolen := f.byLink("ada@example.com")
	f.age(&stolen, time.Hour)
	proofs := func(id account.Identity, mail bool) {
		t.Helper()
		o, err := f.ProofOptions(t.Context(), id)
		if err != nil || o != (factor.Options{Password: !mail, Mail: mail}) {
			t.Errorf("got options %+v, error %v, want a mailed code: %t", o, err, mail)
		}
	}
	planted := func(text string) {
		t.Helper()
		want(t, "the planted password in the stolen session", f.Prove(t.Context(), stolen, factor.Answer{Password: text}), problem.Unauthorized, "")
		in, err := f.accounts.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: "ada@example.com", Password: text}, client)
		if err != nil {
			t.Fatal(err)
		}
		opened := f.identity(in)
		want(t, "a session that the planted password opened", f.RequireFresh(opened), problem.Precondition, account.FreshProofRequired)
		want(t, "the planted password in that session", f.Prove(t.Context(), opened, factor.Answer{Password: text}), problem.Unauthorized, "")
		later := f.byLink("ada@example.com")
		if err := f.RequireFresh(later); err != nil {
			t.Errorf("the owner by link: %v", err)
		}
		want(t, "the planted password after the owner signed in", f.Prove(t.Context(), stolen, factor.Answer{Password: text}), problem.Unauthorized, "")
		proofs(stolen, true)
	}
	if err := f.accounts.SetPassword(t.Context(), stolen, account.FirstPassword{Password: password}); err != nil {
		t.Fatal(err)
	}
	planted(password)
	change := func(id account.Identity, from, to string) {
		t.Helper()
		if err := f.accounts.ChangePassword(t.Context(), id, account.PasswordChange{CurrentPassword: from, NewPassword: to}); err != nil {
			t.Fatal(err)
		}
	}
	change(stolen, password, "another horse battery")
	planted("another horse battery")

	// The owner proves their identity by mail and changes the password.
	own := f.byLink("ada@example.com")
	f.age(&own, time.Hour)
	if err := f.MailCode(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	parts := mailedCode.FindStringSubmatch(f.mails.last(t).Text)
	if err := f.Prove(t.Context(), own, factor.Answer{MailedCode: parts[1] + parts[2]}); err != nil {
		t.Fatal(err)
	}
	own.ProvenAt = time.Now()
	change(own, "another horse battery", "the owner's horse")
	f.age(&own, time.Hour)
	proofs(own, false)
	if err := f.Prove(t.Context(), own, factor.Answer{Password: "the owner's horse"}); err != nil {
		t.Errorf("a password of a session with a fresh proof: %v", err)
	}
	f.age(&own, time.Hour)
	change(own, "the owner's horse", "the owner's foal")
	if err := f.Prove(t.Context(), own, factor.Answer{Password: "the owner's foal"}); err != nil {
		t.Errorf("a password that followed a proof: %v", err)
	}
}

// TestFirstPasswordAsProof: a password set with a fresh proof of identity is a proof
// itself.
func TestFirstPasswordAsProof(t *testing.T) {
	f := newFixture(t, dbtest.New(t), fresh)
	soon := f.byLink("ada@example.com")
	if err := f.accounts.SetPassword(t.Context(), soon, account.FirstPassword{Password: password}); err != nil {
		t.Fatal(err)
	}
	f.age(&soon, time.Hour)
	if err := f.Prove(t.Context(), soon, factor.Answer{Password: password}); err != nil {
		t.Errorf("set right after the sign-in: %v", err)
	}

	late := f.byLink("ben@example.com")
	f.age(&late, time.Hour)
	if err := f.accounts.SetPassword(t.Context(), late, account.FirstPassword{Password: "another horse battery"}); err != nil {
		t.Fatal(err)
	}
	if err := f.accounts.SendPasswordReset(t.Context(), account.PasswordReset{Email: "ben@example.com"}, client); err != nil {
		t.Fatal(err)
	}
	if err := f.accounts.ResetPassword(t.Context(), tokenIn(t, f.mails.last(t).Text), password); err != nil {
		t.Fatal(err)
	}
	in := f.byPassword("ben@example.com")
	if err := f.RequireFresh(f.identity(in)); err != nil {
		t.Errorf("a sign-in by a password that a mailed link set: %v", err)
	}
	if err := f.Prove(t.Context(), f.identity(in), factor.Answer{Password: password}); err != nil {
		t.Errorf("set by a mailed link: %v", err)
	}
}

func TestMailedCode(t *testing.T) {
	f := newFixture(t, dbtest.New(t), fresh)
	id, other := f.byLink("new@example.com"), f.byLink("new@example.com")
	f.age(&id, time.Hour)
	options, err := f.ProofOptions(t.Context(), id)
	if err != nil || options != (factor.Options{Mail: true}) {
		t.Errorf("got options %+v, error %v", options, err)
	}
	if err := f.MailCode(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	parts := mailedCode.FindStringSubmatch(f.mails.last(t).Text)
	if parts == nil {
		t.Fatalf("no code in %s", f.mails.last(t).Text)
	}
	code := parts[1] + " " + parts[2]
	want(t, "the code in another session", f.Prove(t.Context(), other, factor.Answer{MailedCode: code}), problem.Unauthorized, "")
	want(t, "a wrong code", f.Prove(t.Context(), id, factor.Answer{MailedCode: "0000 000x"}), problem.Unauthorized, "")
	if err := f.Prove(t.Context(), id, factor.Answer{MailedCode: code}); err != nil {
		t.Errorf("the code: %v", err)
	}
	want(t, "the code again", f.Prove(t.Context(), id, factor.Answer{MailedCode: code}), problem.Unauthorized, "")

	f.addPasskey(other, "")
	want(t, "a code for somebody with a passkey", f.MailCode(t.Context(), other), problem.Precondition, "")
}

// TestMailedCodeGuessing: five wrong codes invalidate the mailed one, independent of
// other limits.
func TestMailedCodeGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), fresh)
		u := f.user("ada@example.com", account.Admin)
		id := f.signIn("ada@example.com")
		f.exec("UPDATE users SET password_hash = NULL WHERE id = $1", u.ID)
		if err := f.MailCode(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		parts := mailedCode.FindStringSubmatch(f.mails.last(t).Text)
		for range 5 {
			want(t, "a guess", f.Prove(t.Context(), id, factor.Answer{MailedCode: "99999999x"}), problem.Unauthorized, "")
		}
		time.Sleep(2 * time.Minute)
		want(t, "the right code after five guesses", f.Prove(t.Context(), id, factor.Answer{MailedCode: parts[1] + parts[2]}), problem.Unauthorized, "")
		if err := f.MailCode(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		parts = mailedCode.FindStringSubmatch(f.mails.last(t).Text)
		time.Sleep(10 * time.Minute)
		want(t, "a code of ten minutes ago", f.Prove(t.Context(), id, factor.Answer{MailedCode: parts[1] + parts[2]}), problem.Unauthorized, "")
	})
}

// TestRequirement: the effects on members of an organization's requirement of a second
// factor.
func TestRequirement(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	f.user("ben@example.com", account.Agent)
	ada, ben := f.signIn("ada@example.com"), f.byPassword("ben@example.com")
	_, err := f.accounts.RequireSecondFactor(t.Context(), ada, true)
	want(t, "without a second factor of one's own", err, problem.Precondition, "")
	_, err = f.accounts.RequireSecondFactor(t.Context(), f.with2(f.identity(ben)), true)
	want(t, "an agent", err, problem.Forbidden, "")
	key, p := f.addPasskey(ada, "")
	o, err := f.accounts.RequireSecondFactor(t.Context(), f.with2(ada), true)
	if err != nil || !o.SecondFactorRequired {
		t.Fatalf("got %+v, error %v", o, err)
	}

	id := f.identity(ben)
	if !id.NeedsSecondFactor {
		t.Error("a member's session of one factor goes on as before")
	}
	f.addPasskey(id, "")
	if id = f.identity(ben); id.NeedsSecondFactor || !id.SecondFactor {
		t.Error("a session in which a passkey was added lacks a second factor")
	}

	// Ada's passkey is now due as second factor, and cannot be removed.
	in := f.byPassword("ada@example.com")
	if in.Pending == "" {
		t.Fatal("a password alone opened a session")
	}
	pending, err := f.accounts.Pending(t.Context(), in.Pending)
	if err != nil {
		t.Fatal(err)
	}
	options, err := f.PendingOptions(t.Context(), pending)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(options.Passkey, "allowCredentials") || options.Code || options.Recovery || options.Password {
		t.Errorf("got options %+v", options)
	}
	done, err := f.Complete(t.Context(), in.Pending, factor.Answer{Passkey: key.get(t, options.Passkey)}, client)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "removing the last second factor", f.RemovePasskey(t.Context(), f.identity(done), p.ID), problem.Conflict, "")
	authenticator, _ := f.addApp(f.identity(done))
	if err := f.RemovePasskey(t.Context(), f.identity(done), p.ID); err != nil {
		t.Errorf("removing one of two: %v", err)
	}
	want(t, "removing the last second factor", f.DisableTOTP(t.Context(), f.identity(done)), problem.Conflict, "")
	_ = authenticator
	if _, err := f.accounts.RequireSecondFactor(t.Context(), f.identity(done), false); err != nil {
		t.Fatal(err)
	}
	if err := f.DisableTOTP(t.Context(), f.identity(done)); err != nil {
		t.Errorf("removing the last one without the requirement: %v", err)
	}
	if n := f.count("SELECT count(*) FROM recovery_codes"); n != 0 {
		t.Errorf("got %d recovery codes of nothing", n)
	}
}

func TestReset(t *testing.T) {
	f := newFixture(t, dbtest.New(t), fresh)
	f.user("ada@example.com", account.Admin)
	f.user("ben@example.com", account.Agent)
	ada, in := f.signIn("ada@example.com"), f.byPassword("ben@example.com")
	ben := f.identity(in)
	f.addPasskey(ben, "")
	f.addApp(ben)
	other := newFixture(t, f.db, fresh)
	other.user("eve@example.com", account.Admin)

	want(t, "an admin of another organization", f.ResetMember(t.Context(), other.signIn("eve@example.com"), ben.UserID), problem.NotFound, "")
	want(t, "an agent", f.ResetMember(t.Context(), ben, ada.UserID), problem.Forbidden, "")
	want(t, "oneself", f.ResetMember(t.Context(), ada, ada.UserID), problem.Conflict, "")
	stale := ada
	stale.ProvenAt = stale.ProvenAt.Add(-time.Hour)
	want(t, "an old proof", f.ResetMember(t.Context(), stale, ben.UserID), problem.Precondition, account.FreshProofRequired)
	if err := f.ResetMember(t.Context(), ada, ben.UserID); err != nil {
		t.Fatal(err)
	}
	if got := f.mails.last(t); got.To[0].Address != "ben@example.com" || !strings.Contains(got.Text, "an admin of your organization, removed your passkeys") {
		t.Errorf("got mail to %v: %s", got.To, got.Text)
	}
	if _, _, err := f.accounts.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, client); problem.Of(err) != problem.Unauthorized {
		t.Errorf("the member's session: got error %v, want it ended", err)
	}
	ben = f.signIn("ben@example.com") // one factor
	want(t, "nothing to reset", f.ResetMember(t.Context(), ada, ben.UserID), problem.Conflict, "")

	f.addApp(ben)
	if u, err := f.ResetByOperator(t.Context(), " BEN@example.com"); err != nil || u.ID != ben.UserID {
		t.Errorf("got user %+v, error %v", u, err)
	}
	f.signIn("ben@example.com")
	_, err := f.ResetByOperator(t.Context(), "nobody@example.com")
	want(t, "an unknown address", err, problem.NotFound, "")
	if n := f.count("SELECT count(*) FROM audit_entries WHERE action = 'factors.reset' AND organization_id = $1", f.org.ID); n != 2 {
		t.Errorf("got %d resets in the audit log, want 2", n)
	}
}

func TestPlacesWithoutPasskeys(t *testing.T) {
	for base, has := range map[string]bool{
		"https://help.example.com": true, "https://help.example.com:8443": true, "http://localhost:8080": true, "http://kickstand.localhost": true, "https://münchen.example": true, "HTTPS://Help.Example.com:443": true,
		"http://127.0.0.1:8080": false, "https://192.0.2.1": false, "https://[2001:db8::1]": false, "http://help.example.com": false,
	} {
		f := newFixture(t, dbtest.NewSQLite(t), func(c *factor.Config) { c.BaseURL = base })
		if f.HasPasskeys() != has {
			t.Errorf("%s: got passkeys %t, want %t", base, f.HasPasskeys(), has)
		}
		_, err := f.SignInOptions()
		if has != (err == nil) {
			t.Errorf("%s: got error %v", base, err)
		}
	}
}

// TestOptions: the options sent to browsers.
func TestOptions(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	f.addPasskey(id, "")
	text, err := f.RegistrationOptions(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		PublicKey struct {
			RP                     struct{ ID, Name string }
			User                   struct{ ID, Name, DisplayName string }
			AuthenticatorSelection struct{ ResidentKey, UserVerification string }
			ExcludeCredentials     []struct{ ID string }
			Attestation            string
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	k := got.PublicKey
	if k.RP.ID != "help.example.com" || k.RP.Name != "Kickstand" || k.User.Name != "ada@example.com" || k.User.ID == "" || strings.Contains(k.User.ID, "ada") ||
		k.AuthenticatorSelection.ResidentKey != "required" || k.AuthenticatorSelection.UserVerification != "required" ||
		len(k.ExcludeCredentials) != 1 || k.Attestation != "none" {
		t.Errorf("got options %s", text)
	}
}

// TestAttackSessionOfRemovedFactor: removing or replacing a passkey or an authenticator
// app ends the sessions that a thief opened with it.
func TestAttackSessionOfRemovedFactor(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	own := f.signIn("ada@example.com")
	stolen, p := f.addPasskey(own, "Stolen")
	enter := func() account.SignIn {
		t.Helper()
		options, err := f.SignInOptions()
		if err != nil {
			t.Fatal(err)
		}
		in, err := f.SignIn(t.Context(), stolen.get(t, options), "", client)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	ended := func(in account.SignIn, why string) {
		t.Helper()
		_, _, err := f.accounts.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, client)
		want(t, why, err, problem.Unauthorized, "")
		if _, _, err := f.accounts.CheckSession(t.Context(), own.SessionID); err != nil {
			t.Errorf("%s: the session that asked: %v", why, err)
		}
	}
	own = f.with2(own)
	in := enter()
	f.addApp(own)
	ended(in, "after an app was set up")
	in = enter()
	f.addApp(own)
	ended(in, "after an app was replaced")
	in = enter()
	if err := f.DisableTOTP(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	ended(in, "after the app was removed")
	in = enter()
	if err := f.RemovePasskey(t.Context(), own, p.ID); err != nil {
		t.Fatal(err)
	}
	ended(in, "after the passkey was removed")
}

// TestAttackTwoFactorsThatAreGone: a session had two factors, the second is removed, and
// then the organization requires one. The session counts as one factor.
func TestAttackTwoFactorsThatAreGone(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	in := f.byPassword("ada@example.com")
	_, p := f.addPasskey(f.identity(in), "Laptop")
	f.addApp(f.identity(in))
	if err := f.RemovePasskey(t.Context(), f.identity(in), p.ID); err != nil {
		t.Fatal(err)
	}
	if !f.identity(in).SecondFactor {
		t.Error("one of two second factors was removed, and the session has none")
	}
	if err := f.DisableTOTP(t.Context(), f.identity(in)); err != nil {
		t.Fatal(err)
	}
	f.exec("UPDATE organizations SET second_factor_required = TRUE")
	if id := f.identity(in); id.SecondFactor || !id.NeedsSecondFactor {
		t.Errorf("got identity %+v, want one that needs a second factor", id)
	}
}
