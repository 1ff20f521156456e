package account_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func policy(t *testing.T, text string) account.SignUpPolicy {
	t.Helper()
	p, err := account.ParseSignUpPolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParseSignUpPolicy(t *testing.T) {
	for text, want := range map[string]string{
		"open":                               "open",
		"invited":                            "invited",
		" open ":                             "open",
		"domain:example.com":                 "domain:example.com",
		"domain: Example.COM , example.org ": "domain:example.com,example.org",
		"domain:münchen.example":             "domain:xn--mnchen-3ya.example",
		"domain:XN--MNCHEN-3YA.example":      "domain:xn--mnchen-3ya.example",
		"domain:a-1.example.co.uk":           "domain:a-1.example.co.uk",
	} {
		if p, err := account.ParseSignUpPolicy(text); err != nil || p.String() != want || p.Open() != (want == "open") {
			t.Errorf("%q: got %q, open %t, error %v, want %q", text, p, p.Open(), err, want)
		}
	}
	for _, text := range []string{
		"", "closed", "Open", "domain", "domain:", "domain:,", "domain:example.com,", "domain:*.example.com", "domain:.example.com",
		"domain:example.com.", "domain:@example.com", "domain:a@example.com", "domain:example", "domain:exa mple.com", "domain:exam_ple.com",
		"domain:[127.0.0.1]", "domain:example.com/x", "domain:https://example.com", "open,invited", "domain:example.com;example.org",
	} {
		if p, err := account.ParseSignUpPolicy(text); err == nil || p.String() != "open" {
			t.Errorf("%q: got %q, error %v, want a refusal", text, p, err)
		}
	}
}

// wantNotAdmitted checks a refusal by the sign-up policy.
func wantNotAdmitted(t *testing.T, err error, reason string) {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Forbidden || !strings.Contains(p.Message, reason) ||
		!strings.Contains(p.Message, "Ask an admin of your organization") || !strings.Contains(p.Message, "the operator of this server") {
		t.Errorf("got error %v, want a refusal: %q, and the people to ask", err, reason)
	}
}

const byInvitation = "by invitation only"

// TestStrangersCannotSignUp: under the policy invited no way to sign in creates a user or
// an organization for an address without an invitation, or reveals which addresses have
// accounts.
func TestStrangersCannotSignUp(t *testing.T) {
	p := &provider{who: account.ProviderIdentity{Email: "stranger@example.net", EmailVerified: true, Name: "Mallory"}}
	paid := new(checkout)
	f := newFixture(t, dbtest.New(t), func(c *account.Config) {
		c.SignUp, c.Provider, c.Checkout = account.InvitedSignUp, p, paid
	})
	acme := f.organization(t, "Acme")
	admin, _ := f.member(t, acme, "ada@example.com", account.Admin)
	left, _ := f.member(t, acme, "left@example.com", account.Agent)
	if err := f.RemoveMember(t.Context(), acme.ID, left.UserID); err != nil {
		t.Fatal(err)
	}
	const users, organizations = 2, 1
	unchanged := func(way string) {
		t.Helper()
		if u, o := f.count(t, "SELECT count(*) FROM users"), f.count(t, "SELECT count(*) FROM organizations"); u != users || o != organizations {
			t.Errorf("%s: got %d users and %d organizations, want %d and %d", way, u, o, users, organizations)
		}
	}

	// By link: the same result, and a mail without a sign-in link.
	for _, email := range []string{"stranger@example.net", "ada@example.com"} {
		intent, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", account.Client{})
		if err != nil || len(intent) != 43 {
			t.Errorf("%s: got intent %q, error %v", email, intent, err)
		}
	}
	mails := f.mail.all()
	refused, known := mails[len(mails)-2], mails[len(mails)-1]
	checkMail(t, refused, "stranger@example.net", known.Subject)
	for _, body := range []string{refused.Text, refused.HTML} {
		if strings.Contains(body, "token=") || !strings.Contains(body, "There is no account with this e-mail address") || !strings.Contains(body, "Ask an admin of your organization") {
			t.Errorf("got mail %q", body)
		}
	}
	if !strings.Contains(known.Text, account.CallbackPath+"?token=") {
		t.Errorf("got mail %q to a member, want a link", known.Text)
	}
	unchanged("link")

	// By a link mailed under another policy, or while an invitation was pending.
	open, err := account.New(account.Config{DB: f.db, Mailer: f.mail, MailFrom: refused.From, BaseURL: "https://help.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	intent, err := open.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "stranger@example.net"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the refusal does not use the link up
		_, err = f.FollowLink(t.Context(), f.mail.token(t), intent, client)
		wantNotAdmitted(t, err, byInvitation)
	}
	unchanged("older link")

	// By the identity provider.
	state, intent := f.depart(t, client)
	_, err = f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
	wantNotAdmitted(t, err, byInvitation)
	unchanged("provider")

	// By a password reset.
	if err := f.SendPasswordReset(t.Context(), account.PasswordReset{Email: "stranger@example.net"}, account.Client{}); err != nil {
		t.Error(err)
	}
	mails = f.mail.all()
	if text := mails[len(mails)-1].Text; strings.Contains(text, "token=") || strings.Contains(text, "ask for a sign-in link") {
		t.Errorf("got mail %q, want no way in", text)
	}
	unchanged("reset")

	// By a revoked, replaced or expired invitation.
	revoked, token := f.invite(t, admin, "stranger@example.net", account.Agent)
	if err := f.RevokeInvitation(t.Context(), acme.ID, revoked.ID); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, f, token, "accepted or revoked")
	_, token = f.invite(t, admin, "late@example.net", account.Agent)
	f.exec(t, "UPDATE invitations SET created_at = created_at - $1", (account.InvitationLife + time.Minute).Microseconds())
	wantRefused(t, f, token, "older than 7 days")
	if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "late@example.net"}, "", account.Client{}); err != nil {
		t.Error(err)
	}
	mails = f.mail.all()
	if strings.Contains(mails[len(mails)-1].Text, "token=") {
		t.Error("an expired invitation admits")
	}
	unchanged("invitation")

	// By creating an organization, as a removed member, with a free or a paid plan.
	for _, plan := range []account.Plan{account.Free, account.Pro} {
		_, err := f.CompleteSignup(t.Context(), left.UserID, account.SignupRequest{Name: "Left", OrganizationName: "Mine", Plan: plan})
		wantNotAdmitted(t, err, byInvitation)
	}
	wantNotAdmitted(t, f.MayCompleteSignup(t.Context(), left.UserID), byInvitation)
	unchanged("sign-up")
	if len(paid.seen) != 0 {
		t.Errorf("got checkouts %+v, want none", paid.seen)
	}
}

// TestInvitedSignUp: an invitation admits its address once, by any way to sign in.
func TestInvitedSignUp(t *testing.T) {
	p := &provider{who: account.ProviderIdentity{Email: "By-Provider@example.net", EmailVerified: true, Name: "Eve"}}
	f := newFixture(t, dbtest.New(t), func(c *account.Config) { c.SignUp, c.Provider = account.InvitedSignUp, p })
	acme := f.organization(t, "Acme")
	admin, _ := f.member(t, acme, "ada@example.com", account.Admin)

	for _, email := range []string{"by-link@example.net", "by-provider@example.net", "by-invitation@example.net"} {
		_, token := f.invite(t, admin, email, account.Agent)
		if email == "by-invitation@example.net" {
			if _, err := f.AcceptInvitation(t.Context(), token, "Bob", client); err != nil {
				t.Error(err)
			}
		}
	}
	in := f.signIn(t, "By-Link@Example.NET")
	state, intent := f.depart(t, client)
	other, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []account.User{in.User, other.User} {
		if err := f.MayCompleteSignup(t.Context(), u.ID); err != nil {
			t.Errorf("%s: %v", u.Email, err)
		}
		if _, err := f.CompleteSignup(t.Context(), u.ID, account.SignupRequest{Name: "N", OrganizationName: "New"}); err != nil {
			t.Errorf("%s: %v", u.Email, err)
		}
	}
	if list := f.invitations(t, acme); len(list) != 0 {
		t.Errorf("got invitations %+v after they were used, want none", list)
	}
	f.exec(t, "UPDATE users SET organization_id = NULL, role = NULL WHERE id = $1", in.User.ID)
	_, err = f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: "N", OrganizationName: "Again"})
	wantNotAdmitted(t, err, byInvitation)
}

// TestDomainPolicy: only the listed domains sign up, however an address is disguised.
func TestDomainPolicy(t *testing.T) {
	p := new(provider)
	f := newFixture(t, dbtest.New(t), func(c *account.Config) {
		c.SignUp, c.Provider = policy(t, "domain:example.com,münchen.example"), p
	})
	users := 0
	for _, email := range []string{
		"a@example.com", "b@EXAMPLE.com", "c@münchen.example", "d@MÜNCHEN.example", "e@xn--mnchen-3ya.example", "f+evil.test@example.com",
		"g%evil.test@example.com", "h@ｅｘａｍｐｌｅ.com",
	} {
		in := f.signIn(t, email)
		if _, err := f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: "N", OrganizationName: "Org"}); err != nil {
			t.Errorf("%s: %v", email, err)
		}
		users++
	}
	for _, email := range []string{
		"a@example.com.evil.test", "a@evilexample.com", "a@sub.example.com", "a@example.co", "a@example.comm", "a@com",
		"a@exаmple.com", // Cyrillic а
		"a@munchen.example", "a@example-com.test", "example.com@evil.test", "a=example.com@evil.test", "a@xn--mnchen-3ya.example.evil.test",
	} {
		if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", account.Client{}); err != nil {
			t.Errorf("%s: got error %v, want the answer that everybody gets", email, err)
		}
		mails := f.mail.all()
		if m := mails[len(mails)-1]; strings.Contains(m.Text, "token=") || !strings.Contains(m.Text, "cannot sign up") {
			t.Errorf("%s: got mail %q, want no link", email, m.Text)
		}
		p.who = account.ProviderIdentity{Email: email, EmailVerified: true}
		state, intent := f.depart(t, account.Client{IP: email})
		_, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
		wantNotAdmitted(t, err, "limited to certain e-mail domains")
	}
	for _, email := range []string{
		`"a@evil.test"@example.com`, "a@evil.test@example.com", "a@example.com,b@evil.test", "a@example.com.", "<a@evil.test>a@example.com",
		"a@evil.test(@example.com", "a@evil.test\x00@example.com", "a@example.com\n@evil.test", "A <a@example.com>",
	} {
		_, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", account.Client{})
		wantKind(t, err, problem.Invalid)
	}

	// Only a verified claim counts.
	p.who = account.ProviderIdentity{Email: "z@example.com", EmailVerified: false}
	state, intent := f.depart(t, client)
	_, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
	wantInvalid(t, err, "has not verified")
	if n := f.count(t, "SELECT count(*) FROM users"); n != users {
		t.Errorf("got %d users, want %d", n, users)
	}

	// An invitation admits any domain to its organization, but not to create one.
	acme := f.organization(t, "Acme")
	admin, _ := f.member(t, acme, "ada@example.com", account.Admin)
	_, token := f.invite(t, admin, "guest@evil.test", account.Agent)
	in, err := f.AcceptInvitation(t.Context(), token, "Guest", client)
	if err != nil || in.User.OrganizationID != acme.ID {
		t.Fatalf("got user %+v, error %v", in.User, err)
	}
	if err := f.RemoveMember(t.Context(), acme.ID, in.User.ID); err != nil {
		t.Fatal(err)
	}
	f.invite(t, admin, "guest@evil.test", account.Agent)
	_, err = f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: "N", OrganizationName: "Mine"})
	wantNotAdmitted(t, err, "limited to certain e-mail domains")
}
