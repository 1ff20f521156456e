package account_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// bound is an organization with a provider policy for all members.
type bound struct {
	*fixture
	provider *provider
	acme     account.Organization
	admin    account.Identity // signed in by the provider
	agent    account.User     // has a password
}

const agentPassword = "correct horse"

func newBound(t *testing.T) *bound {
	t.Helper()
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	b := &bound{fixture: f, provider: p, acme: f.organization(t, "Acme")}
	for _, n := range []account.NewUser{
		{Email: "ada@acme.example", Password: agentPassword, Organization: b.acme.Slug, Role: account.Admin},
		{Email: "ben@acme.example", Password: agentPassword, Organization: b.acme.Slug, Role: account.Agent},
	} {
		var err error
		if b.agent, err = f.CreateUser(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	in, err := f.arrive(t, p, identity("ada", "ada@acme.example"))
	if err != nil {
		t.Fatal(err)
	}
	b.admin = f.identity(t, in)
	return b
}

func (b *bound) require(t *testing.T, policy string) {
	t.Helper()
	p, err := account.ParseProviderPolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.RequireProvider(t.Context(), b.admin, p)
	if err != nil || o.ProviderOnly != p {
		t.Fatalf("got organization %+v, error %v", o, err)
	}
}

func (b *bound) byPassword(t *testing.T, email, password string) (account.SignIn, error) {
	t.Helper()
	return b.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: email, Password: password}, client)
}

func wantProviderRequired(t *testing.T, err error) {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Forbidden || p.Code != account.ProviderRequired || !strings.Contains(p.Message, "identity provider") {
		t.Errorf("got error %v, want a refusal that leads to the identity provider", err)
	}
}

// TestAttackAroundTheProvider: a user refused by the identity provider tries every other
// way to sign in.
func TestAttackAroundTheProvider(t *testing.T) {
	b := newBound(t)
	by, err := b.byPassword(t, "ben@acme.example", agentPassword)
	if err != nil {
		t.Fatal(err)
	}
	intent, err := b.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ben@acme.example"}, "", client)
	if err != nil {
		t.Fatal(err)
	}
	link := b.mail.token(t)
	reset := b.reset(t, "ben@acme.example")
	b.require(t, "all")

	// An earlier session.
	if b.works(t, by.Tokens.Access) {
		t.Error("a session by password goes on")
	}
	if _, _, err := b.Authenticate(t.Context(), "", by.Tokens.Refresh, client); problem.Of(err) != problem.Unauthorized {
		t.Errorf("a session by password is refreshed: error %v", err)
	}
	// Earlier links.
	_, err = b.FollowLink(t.Context(), link, intent, client)
	wantProviderRequired(t, err)
	wantProviderRequired(t, b.ResetPassword(t.Context(), reset, "another horse"))
	// The password.
	_, err = b.byPassword(t, "ben@acme.example", agentPassword)
	wantProviderRequired(t, err)
	// New links: the mails have none.
	for name, ask := range map[string]func() error{
		"sign-in": func() error {
			_, err := b.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ben@acme.example"}, "", client)
			return err
		},
		"reset": func() error {
			return b.SendPasswordReset(t.Context(), account.PasswordReset{Email: "ben@acme.example"}, client)
		},
	} {
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mails := b.mail.all()
		if m := mails[len(mails)-1]; strings.Contains(m.Text, "token=") || !strings.Contains(m.Text, "identity provider only") {
			t.Errorf("%s: got mail %q", name, m.Text)
		}
	}
	// The provider admits the agent, and the admin's session is valid.
	in, err := b.arrive(t, b.provider, identity("ben", "ben@acme.example"))
	if err != nil || b.identity(t, in).UserID != b.agent.ID {
		t.Errorf("got %+v, error %v", in, err)
	}
	if _, err := b.byPassword(t, "ada@acme.example", "not the password"); problem.Of(err) != problem.Unauthorized {
		t.Errorf("got error %v for a wrong password", err)
	}
	b.require(t, "off")
	if _, err := b.byPassword(t, "ben@acme.example", agentPassword); err != nil {
		t.Errorf("after the policy was lifted: %v", err)
	}
}

// TestAttackProbeMembership: a stranger cannot find out which addresses belong to an
// organization with a provider policy.
func TestAttackProbeMembership(t *testing.T) {
	b := newBound(t)
	b.require(t, "all")
	for _, email := range []string{"ben@acme.example", "nobody@acme.example", "nobody@elsewhere.example"} {
		_, err := b.byPassword(t, email, "not the password")
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.Unauthorized || p.Message != "the e-mail address or the password is wrong" || p.Code != "" {
			t.Errorf("%s: got error %v", email, err)
		}
		sent := len(b.mail.all())
		if intent, err := b.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", client); err != nil || len(intent) != 43 {
			t.Errorf("%s: got intent %q, error %v", email, intent, err)
		}
		if err := b.SendPasswordReset(t.Context(), account.PasswordReset{Email: email}, client); err != nil {
			t.Errorf("%s: %v", email, err)
		}
		mails := b.mail.all()[sent:]
		if len(mails) != 2 || mails[0].Subject != "Sign in to Kickstand" || mails[1].Subject != "A new password for Kickstand" {
			t.Errorf("%s: got mails %+v", email, mails)
		}
	}
}

// TestProviderPolicyCovers: a domain policy covers members with addresses in the domain,
// and no other organization.
func TestProviderPolicyCovers(t *testing.T) {
	b := newBound(t)
	guest, err := b.CreateUser(t.Context(), account.NewUser{Email: "gil@agency.example", Password: agentPassword, Organization: b.acme.Slug, Role: account.Agent})
	if err != nil {
		t.Fatal(err)
	}
	other := b.organization(t, "Other")
	if _, err := b.CreateUser(t.Context(), account.NewUser{Email: "cyn@acme.example", Password: agentPassword, Organization: other.Slug, Role: account.Admin}); err != nil {
		t.Fatal(err)
	}
	b.require(t, "domain:ACME.example, acme.test")
	_, err = b.byPassword(t, "ben@acme.example", agentPassword)
	wantProviderRequired(t, err)
	for _, email := range []string{guest.Email, "cyn@acme.example"} {
		if _, err := b.byPassword(t, email, agentPassword); err != nil {
			t.Errorf("%s: %v", email, err)
		}
	}
	for text, want := range map[string]string{
		"off": "off", "all": "all", " domain:b.example,A.example,b.example ": "domain:a.example,b.example", "domain:bücher.example": "domain:xn--bcher-kva.example",
	} {
		if p, err := account.ParseProviderPolicy(text); err != nil || p.String() != want {
			t.Errorf("%q: got %q, error %v, want %q", text, p, err, want)
		}
	}
	for _, text := range []string{"", "on", "domain:", "domain:localhost", "domain:a@b.example", "domain:a.example,", "domain:*.example", "domain:" + strings.Repeat("a.example,", 51) + "a.example"} {
		if p, err := account.ParseProviderPolicy(text); err == nil && strings.Count(text, ",") < 51 {
			t.Errorf("%q: got %q, want an error", text, p)
		}
	}
}

// TestAttackJoinAroundTheProvider: neither an earlier session nor the session of an
// invitation bypasses the policy.
func TestAttackJoinAroundTheProvider(t *testing.T) {
	b := newBound(t)
	b.require(t, "all")
	before := b.signIn(t, "zoe@acme.example")
	_, token := b.invite(t, b.admin, "zoe@acme.example", account.Agent)
	in, err := b.AcceptInvitation(t.Context(), token, "Zoe", client)
	wantProviderRequired(t, err)
	if in.Tokens.Access != "" || in.SessionID != "" || b.works(t, before.Tokens.Access) {
		t.Error("somebody is signed in past the provider")
	}
	wantMembers(t, b.fixture, b.acme, "ada@acme.example admin", "ben@acme.example agent", "zoe@acme.example agent")
	if in, err := b.arrive(t, b.provider, identity("zoe", "zoe@acme.example")); err != nil || in.User.ID != before.User.ID {
		t.Errorf("got %+v, error %v", in, err)
	}
}

// TestProviderPolicyLocksNobodyOut: an admin cannot end their own session by the policy,
// and the operator can always sign a user in.
func TestProviderPolicyLocksNobodyOut(t *testing.T) {
	b := newBound(t)
	in, err := b.byPassword(t, "ada@acme.example", agentPassword)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.RequireProvider(t.Context(), b.identity(t, in), account.ProviderForEveryone)
	wantKind(t, err, problem.Precondition)
	agent, err := b.arrive(t, b.provider, identity("ben", "ben@acme.example"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.RequireProvider(t.Context(), b.identity(t, agent), account.ProviderForEveryone)
	wantKind(t, err, problem.Forbidden)
	if o, err := b.RequireProviderByOperator(t.Context(), b.acme.Slug, account.ProviderForEveryone); err != nil || o.ProviderOnly != account.ProviderForEveryone {
		t.Errorf("got %+v, error %v", o, err)
	}

	link, err := b.OperatorLink(t.Context(), "BEN@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(link, "token=")
	by, err := b.FollowLink(t.Context(), token, "", client)
	if err != nil || b.identity(t, by).UserID != b.agent.ID {
		t.Errorf("got %+v, error %v, want to be let in by the operator's link", by, err)
	}
	_, err = b.FollowLink(t.Context(), token, "", client)
	wantInvalid(t, err, "used already")
	_, err = b.OperatorLink(t.Context(), "nobody@acme.example")
	wantKind(t, err, problem.NotFound)
	_, err = b.RequireProviderByOperator(t.Context(), "nowhere", account.ProviderOptional)
	wantKind(t, err, problem.NotFound)

	f := newFixture(t, dbtest.New(t)) // no provider
	o := f.organization(t, "Acme")
	eve, _ := f.member(t, o, "eve@example.com", account.Admin)
	_, err = f.RequireProvider(t.Context(), eve, account.ProviderForEveryone)
	wantKind(t, err, problem.Precondition)
}
