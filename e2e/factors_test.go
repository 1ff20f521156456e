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

// authenticator adds a virtual passkey authenticator that confirms every request.
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

// code returns the next TOTP code, since the present one may have been used.
func code(t testing.TB, secret string, ahead time.Duration) string {
	t.Helper()
	code, err := totp.GenerateCode(strings.ReplaceAll(secret, " ", ""), time.Now().Add(ahead))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// enableTOTP adds an authenticator app to a user.
func (p *program) enableTOTP(u account.User) (secret string) {
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

// setUpApp adds an authenticator app on the settings page.
func (v *visitor) setUpApp() (secret string) {
	v.t.Helper()
	v.press("Set up app")
	v.at("/settings/security/totp")
	secret = js[string](v, `document.querySelector(".code code").textContent`)
	v.fill("#field-code", code(v.t, secret, 0))
	v.press("Turn on")
	v.waitText("Your recovery codes", "It is shown only once.")
	v.press("I have saved them")
	v.at("/settings/security")
	v.waitText("On since")
	return secret
}

func (v *visitor) signOut() {
	v.t.Helper()
	v.click(`form[action="/sign-out"] button`)
	v.at("/sign-in")
}

// expireProofs ages the last proof of identity of every session.
func (p *program) expireProofs() {
	p.t.Helper()
	if err := p.DB.Write(p.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(p.t.Context(), "UPDATE sessions SET proven_at = 0")
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
}

// TestPasskeysAndCodes: a user signs up with a passkey, requires a second factor of the
// organization, and signs in with passkey and code; a colleague is led to enrol an
// authenticator app.
func TestPasskeysAndCodes(t *testing.T) {
	parallel(t)
	p := start(t, atLocalhost, func(c *app.Config) { c.FreshProof = 10 * time.Minute })
	v := p.visit(t)
	v.authenticator()
	v.allow("NavigationEntryMarkedSkippable") // the virtual authenticator confirms without a gesture

	// First the address, then the passkey, then the organization.
	v.open("/sign-up")
	v.fill("#field-email", "ana@acme.example")
	v.press("Send link")
	v.at("/sign-in/sent")
	_, link := p.mailed("ana@acme.example", account.CallbackPath)
	v.open(link)
	v.at("/welcome/passkey")
	v.press("Create passkey")
	v.at("/welcome")
	v.waitText("Passkey created.")
	v.fill("#field-name", "Ana Lind")
	v.fill("#field-organizationName", "Acme Wheels")
	v.do(clickIn(`document.querySelector("input[name=planTier][value=free]")`))
	v.press("Create organization")
	v.at("/inbox*")

	v.open("/settings/organization")
	v.press("Require a second factor")
	v.waitText("Second factor required for all members.")

	// By passkey alone: the browser offers it as soon as the page is loaded.
	v.click(`form[action="/sign-out"] button`)
	v.at("/inbox*")
	v.open("/settings/security")
	v.waitText("last used")

	// By e-mail link and code.
	secret := v.setUpApp()
	v.noPasskeys() // the browser would offer them
	v.signOut()
	v.fill("#field-email", "ana@acme.example")
	v.press("Send sign-in link")
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
	v.waitText("The code is wrong or was used already.")
	v.fill("#field-proof-code", code(t, secret, 30*time.Second))
	v.press("Confirm")
	v.at("/inbox*")

	colleague(t, p)
}

// colleague signs in as a member without a second factor.
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
		v.waitText("Acme Wheels requires a second factor.")
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

// TestFreshProof: creating a key requires a fresh proof of identity and retains the
// form's input; by passkey, and without scripts by password.
func TestFreshProof(t *testing.T) {
	parallel(t)
	p := start(t, atLocalhost, func(c *app.Config) { c.FreshProof = 10 * time.Minute })
	_, u := p.organization("Acme Wheels")
	v := p.as(t, u)
	v.authenticator()
	v.open("/settings/security")
	v.fill("#field-name", "Laptop")
	v.press("Create passkey")
	v.waitText("Passkey Laptop created.")

	create := func(name string) {
		p.expireProofs()
		v.open("/settings/keys/new")
		v.fill("#field-name", name)
		v.press("Create key")
		v.waitText("Confirm your identity", "Your input is saved.")
	}
	create("By passkey")
	v.press("Use a passkey")
	v.waitText("By passkey", "It is shown only once.")

	// In a dialog.
	v.allow("422 for /settings/invitations")
	p.expireProofs()
	v.open("/settings/members")
	v.press("Invite")
	v.fill("dialog #field-email", "new@acme.example")
	v.click("dialog .actions button")
	v.waitText("Confirm your identity")
	v.click("dialog [data-passkey-button]")
	v.waitText("Invitation sent to new@acme.example.")

	v.withoutScripts()
	create("By password")
	v.fill("#field-proof-password", "wrong horse")
	v.press("Confirm")
	v.waitText("The password is wrong.")
	v.fill("#field-proof-password", password)
	v.press("Confirm")
	v.waitText("By password", "It is shown only once.")
}

// isAt reports whether the browser is at path.
func (v *visitor) isAt(path string) bool {
	v.t.Helper()
	return js[bool](v, `location.pathname + location.search === `+quote(path))
}

// noPasskeys removes the virtual authenticator.
func (v *visitor) noPasskeys() {
	v.t.Helper()
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, webauthn.Disable, cdp.Empty{})
		return err
	}))
}
