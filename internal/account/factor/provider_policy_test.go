package factor_test

import (
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestAttackFactorsAroundTheProvider: under a provider policy neither a passkey nor an
// authenticator app signs in. Admins have emergency access by password and recovery code.
func TestAttackFactorsAroundTheProvider(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	ada, ben := f.user("ada@example.com", account.Admin), f.user("ben@example.com", account.Agent)
	adas, bens := f.signIn(ada.Email), f.signIn(ben.Email)
	passkey, _ := f.addPasskey(adas, "Laptop")
	adas = f.with2(adas)
	authenticator, codes := f.addApp(adas)
	if codes == nil {
		var err error
		if codes, err = f.NewRecoveryCodes(t.Context(), adas); err != nil {
			t.Fatal(err)
		}
	}
	_, bensCodes := f.addApp(bens)
	f.resetStep(ada.ID)
	f.exec("UPDATE organizations SET provider_only = 'all'")

	options, err := f.SignInOptions()
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.SignIn(t.Context(), passkey.get(t, options), "", client)
	want(t, "a passkey", err, problem.Forbidden, account.ProviderRequired)

	if len(bensCodes) == 0 {
		t.Fatal("the agent has no recovery codes")
	}
	_, err = f.accounts.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: ben.Email, Password: password}, client)
	want(t, "an agent with recovery codes", err, problem.Forbidden, account.ProviderRequired)

	in := f.byPassword(ada.Email)
	if in.Pending == "" || in.Tokens.Access != "" {
		t.Fatalf("got sign-in %+v, want one that waits for a recovery code", in)
	}
	p, err := f.accounts.Pending(t.Context(), in.Pending)
	if err != nil || !p.RecoveryOnly {
		t.Fatalf("got %+v, error %v", p, err)
	}
	if o, err := f.PendingOptions(t.Context(), p); err != nil || o != (factor.Options{Recovery: true}) {
		t.Errorf("got options %+v, error %v, want a recovery code only", o, err)
	}
	_, err = f.Complete(t.Context(), in.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client)
	want(t, "a code of the authenticator app", err, problem.Unauthorized, "")
	done, err := f.Complete(t.Context(), in.Pending, factor.Answer{RecoveryCode: codes[0]}, client)
	if err != nil {
		t.Fatal(err)
	}
	if id := f.identity(done); id.UserID != ada.ID || !id.ByProvider || !id.SecondFactor {
		t.Errorf("got identity %+v", id)
	}
}

// TestAttackEmergencyOfFormerAdmin: under a provider policy an admin starts a sign-in by
// password and recovery code, and completes it after losing the role.
func TestAttackEmergencyOfFormerAdmin(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	eve := f.user("eve@example.com", account.Admin)
	_, codes := f.addApp(f.signIn(eve.Email))
	f.exec("UPDATE organizations SET provider_only = 'all'")
	in := f.byPassword(eve.Email)
	if _, err := f.accounts.ChangeRole(t.Context(), f.org.ID, eve.ID, account.Agent); err != nil {
		t.Fatal(err)
	}
	_, err := f.Complete(t.Context(), in.Pending, factor.Answer{RecoveryCode: codes[0]}, client)
	want(t, "the second step of a former admin", err, problem.Forbidden, account.ProviderRequired)
	if n := f.count("SELECT count(*) FROM recovery_codes WHERE used_at IS NOT NULL"); n != 0 {
		t.Errorf("%d recovery codes are used up by a refusal", n)
	}
}
