package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/pquerna/otp/totp"
)

// authenticator gives the visitor's browser a device with passkeys, whose owner
// always confirms.
func (v *visitor) authenticator() {
	v.t.Helper()
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
			Options: &webauthn.VirtualAuthenticatorOptions{
				Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
				HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
			},
		})
		return err
	}))
}

// code returns that of an authenticator app: the next one, so that it was not used
// a moment ago.
func code(t testing.TB, secret string, ahead time.Duration) string {
	t.Helper()
	code, err := totp.GenerateCode(strings.ReplaceAll(secret, " ", ""), time.Now().Add(ahead))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// secure sets up an authenticator app for somebody in a session of their own.
func (p *program) secure(u account.User) (secret string) {
	p.t.Helper()
	in, err := p.Accounts.SignInWithPassword(p.t.Context(), account.PasswordSignIn{Email: u.Email, Password: password}, account.Client{IP: "127.0.0.1"})
	if err != nil {
		p.t.Fatal(err)
	}
	id, _, err := p.Accounts.Authenticate(p.t.Context(), in.Tokens.Access, "", account.Client{IP: "127.0.0.1"})
	if err != nil {
		p.t.Fatal(err)
	}
	e, err := p.Factors.BeginTOTP(id)
	if err == nil {
		_, err = p.Factors.EnableTOTP(p.t.Context(), id, e.Sealed, code(p.t, e.Secret, 0))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return e.Secret
}

// setUpApp sets up an authenticator app on the page of the settings for it.
func (v *visitor) setUpApp() (secret string) {
	v.t.Helper()
	v.press("Set up an app")
	v.at("/settings/security/totp")
	secret = js[string](v, `document.querySelector(".code code").textContent`)
	v.fill("#field-code", code(v.t, secret, 0))
	v.press("Turn on")
	v.see("Your recovery codes", "This is shown only now.")
	v.press("I have them")
	v.at("/settings/security")
	v.see("On since")
	return secret
}

func (v *visitor) signOut() {
	v.t.Helper()
	v.click(`form[action="/sign-out"] button`)
	v.at("/sign-in")
}

// outdate makes the last proof of identity of every session old.
func (p *program) outdate() {
	p.t.Helper()
	if err := p.DB.Write(p.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(p.t.Context(), "UPDATE sessions SET proven_at = 0")
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
}

// TestPasskeysAndCodes: somebody signs up with a passkey, has their organization
// require a second factor, and comes in both ways; a colleague is led to an
// authenticator app, and uses it.
func TestPasskeysAndCodes(t *testing.T) {
	inTurn(t)
	p := start(t, atLocalhost, func(c *app.Config) { c.FreshProof = 10 * time.Minute })
	v := p.visit(t)
	v.authenticator()
	v.allow("NavigationEntryMarkedSkippable") // the browser answers for the person

	// The address is proven first, then there is a passkey, then an organization.
	v.open("/sign-up")
	v.fill("#field-email", "ana@acme.example")
	v.press("Mail me a link")
	v.at("/sign-in/sent")
	_, link := p.mailed("ana@acme.example", account.CallbackPath)
	v.open(link)
	v.at("/welcome/passkey")
	v.press("Create a passkey")
	v.at("/welcome")
	v.see("Your passkey is ready.")
	v.fill("#field-name", "Ana Lind")
	v.fill("#field-organizationName", "Acme Wheels")
	v.do(clickIn(`document.querySelector("input[name=planTier][value=free]")`))
	v.press("Begin")
	v.at("/inbox*")

	v.open("/settings/organization")
	v.press("Require a second factor")
	v.see("Members need a second factor from now on.")

	// In with the passkey alone: the browser offers it as soon as the page is there.
	v.click(`form[action="/sign-out"] button`)
	v.at("/inbox*")
	v.open("/settings/security")
	v.see("last used")

	// In with a mailed link and a code.
	secret := v.setUpApp()
	v.noPasskeys() // whose browser offers them by itself
	v.signOut()
	v.fill("#field-email", "ana@acme.example")
	v.press("Mail me a link")
	v.at("/sign-in/sent")
	_, link = p.mailed("ana@acme.example", account.CallbackPath)
	v.open(link)
	v.at("/sign-in/second-factor*")
	if status := v.open("/inbox"); status != 200 || !v.isAt("/sign-in?next=%2Finbox") {
		v.fatal("halfway through the sign-in the inbox is open", status)
	}
	v.open("/sign-in/second-factor")
	v.fill("#field-proof-code", "000000")
	v.press("Confirm")
	v.see("The code is wrong or was used already.")
	v.fill("#field-proof-code", code(t, secret, 30*time.Second))
	v.press("Confirm")
	v.at("/inbox*")

	colleague(t, p)
}

// colleague is a member without a second factor.
func colleague(t *testing.T, p *program) {
	t.Helper()
	o, err := p.Accounts.OrganizationBySlug(t.Context(), "acme-wheels")
	if err != nil {
		t.Fatal(err)
	}
	kim := p.member(o, "kim", "Kim Ortiz", account.Agent)
	v := p.as(t, kim)
	for _, path := range []string{"/inbox", "/customers", "/settings/profile"} {
		v.open(path)
		v.at("/settings/security")
		v.see("Acme Wheels requires a second factor.")
	}
	secret := v.setUpApp()
	v.open("/inbox")
	v.at("/inbox")
	v.signOut()
	v.fill("#field-email", kim.Email)
	v.fill("#field-password", password)
	v.press("Sign in")
	v.at("/sign-in/second-factor*")
	v.fill("#field-proof-code", code(t, secret, 30*time.Second))
	v.press("Confirm")
	v.at("/inbox*")
}

// TestFreshProof: an admin who has proven their identity long ago is asked before a
// key is created, and what was typed is kept; by passkey, and without scripts by
// password.
func TestFreshProof(t *testing.T) {
	inTurn(t)
	p := start(t, atLocalhost, func(c *app.Config) { c.FreshProof = 10 * time.Minute })
	_, u := p.organization("Acme Wheels")
	v := p.as(t, u)
	v.authenticator()
	v.open("/settings/security")
	v.fill("#field-name", "Laptop")
	v.press("Create a passkey")
	v.see("The passkey Laptop is ready.")

	create := func(name string) {
		p.outdate()
		v.open("/settings/keys/new")
		v.fill("#field-name", name)
		v.press("Make the key")
		v.see("Confirm your identity", "What you typed is kept.")
	}
	create("By passkey")
	v.press("Use a passkey")
	v.see("By passkey", "This is shown only now.")

	// In a dialog.
	v.allow("422 for /settings/invitations")
	p.outdate()
	v.open("/settings/members")
	v.press("Invite")
	v.fill("dialog #field-email", "new@acme.example")
	v.click("dialog .actions button")
	v.see("Confirm your identity")
	v.click("dialog [data-passkey-button]")
	v.see("An invitation is on its way to new@acme.example.")

	v.withoutScripts()
	create("By password")
	v.fill("#field-proof-password", "wrong horse")
	v.press("Confirm")
	v.see("The password is wrong.")
	v.fill("#field-proof-password", password)
	v.press("Confirm")
	v.see("By password", "This is shown only now.")
}

// isAt reports whether the browser is at an address now.
func (v *visitor) isAt(path string) bool {
	v.t.Helper()
	return js[bool](v, `location.pathname + location.search === `+quote(path))
}

// noPasskeys takes the passkeys away from the browser.
func (v *visitor) noPasskeys() {
	v.t.Helper()
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, webauthn.Disable, cdp.Empty{})
		return err
	}))
}
