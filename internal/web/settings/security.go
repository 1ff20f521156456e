package settings

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const (
	securityPath = web.SecurityPath
	totpPath     = securityPath + "/totp"
	recoveryPath = securityPath + "/recovery-codes"
	passkeysPath = securityPath + "/passkeys"
)

// passkeyScript creates passkeys in the browser.
const passkeyScript = "passkeys.js"

// security is the body of the security page.
type security struct {
	factor.State
	Passkeys     []passkeyRow
	Since        web.Time // of the authenticator app
	Options      string   // for a new passkey; empty: browsers have none at this origin
	New          web.Fields
	Organization string // requires a second factor that this session lacks; empty: none
}

// On is the badge of an enabled authenticator app.
func (*security) On() web.Badge { return web.Badge{Text: "On", Tone: web.Good, Icon: "check"} }

type passkeyRow struct {
	factor.Passkey
	Created, Used web.Time
}

func (p *pages) newSecurity(r *web.Request) (*security, error) {
	st, err := p.Factors.State(r.Context(), r.UserID)
	if err != nil {
		return nil, err
	}
	body := &security{State: st, Since: r.Time(st.TOTPSince), New: web.Fields{
		{Name: "name", Label: "Name", Type: "text", Autocomplete: "off", Most: 80, Optional: true, Value: account.Device(r.UserAgent()), Help: "To recognize the device."},
	}}
	for _, k := range st.Passkeys {
		body.Passkeys = append(body.Passkeys, passkeyRow{k, r.Time(k.CreatedAt), r.Time(k.UsedAt)})
	}
	if r.NeedsSecondFactor {
		body.Organization = r.Organization.Name
	}
	if p.Factors.HasPasskeys() {
		body.Options, err = p.Factors.RegistrationOptions(r.Context(), r.Identity)
	}
	return body, err
}

func (p *pages) security(w http.ResponseWriter, r *web.Request) error {
	return p.showSecurity(w, r, nil, 0)
}

func (p *pages) showSecurity(w http.ResponseWriter, r *web.Request, wrong web.Fields, status int) error {
	body, err := p.newSecurity(r)
	if err != nil {
		return err
	}
	pg := page(r, securityPath, "Security", body)
	pg.Scripts, pg.Status = []string{passkeyScript}, status
	if wrong != nil {
		body.New, pg.Fields = wrong, wrong
	}
	return p.Render(w, r, "security", pg)
}

func (p *pages) addPasskey(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	k, err := p.Factors.AddPasskey(r.Context(), r.Identity, form.Get("name"), form.Get("proof-passkey"))
	if err != nil {
		body, failed := p.newSecurity(r)
		if failed != nil {
			return failed
		}
		body.New.Fill(form)
		if needsProof(err) {
			return err
		}
		if status := body.New.Answer(w, err); status != 0 {
			return p.showSecurity(w, r, body.New, status)
		}
		return err
	}
	return p.Redirect(w, securityPath, web.Notice{Text: "Passkey " + k.Name + " created."})
}

// needsProof reports whether err requests a proof of identity, which package web handles.
func needsProof(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	return ok && p.Code == account.FreshProofRequired
}

// passkey returns the user's passkey in the request's path.
func (p *pages) passkey(r *web.Request) (factor.Passkey, error) {
	list, err := p.Factors.Passkeys(r.Context(), r.UserID)
	if err != nil {
		return factor.Passkey{}, err
	}
	for _, k := range list {
		if k.ID == r.PathValue("id") {
			return k, nil
		}
	}
	return factor.Passkey{}, problem.New(problem.NotFound, "there is no such passkey")
}

func nameFields(name string) web.Fields {
	return web.Fields{{Name: "name", Label: "Name", Type: "text", Autocomplete: "off", Most: 80, Value: name, Focus: true}}
}

func (p *pages) showPasskeyForm(w http.ResponseWriter, r *web.Request) error {
	k, err := p.passkey(r)
	if err != nil {
		return err
	}
	return p.renderPasskeyForm(w, r, nameFields(k.Name), 0)
}

func (p *pages) renderPasskeyForm(w http.ResponseWriter, r *web.Request, fs web.Fields, status int) error {
	pg := page(r, securityPath, "Rename passkey", nil)
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "passkey", pg)
}

func (p *pages) renamePasskey(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	if err := p.Factors.RenamePasskey(r.Context(), r.Identity, r.PathValue("id"), form.Get("name")); err != nil {
		fs := nameFields(form.Get("name"))
		if status := fs.Answer(w, err); status != 0 {
			return p.renderPasskeyForm(w, r, fs, status)
		}
		return err
	}
	return p.Redirect(w, securityPath, web.Notice{Text: "Passkey renamed."})
}

func (p *pages) confirmRemovePasskey(w http.ResponseWriter, r *web.Request) error {
	k, err := p.passkey(r)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Remove passkey "+k.Name, page(r, securityPath, "", nil), web.Confirm{
		Text: "You can no longer sign in with it, and all your other sessions are signed out. Delete it from your device too, or the device will still offer it.", Label: "Remove", Cancel: securityPath,
	})
}

func (p *pages) removePasskey(w http.ResponseWriter, r *web.Request) error {
	if err := p.Factors.RemovePasskey(r.Context(), r.Identity, r.PathValue("id")); err != nil {
		return err
	}
	return p.Redirect(w, securityPath, web.Notice{Text: "Passkey removed."})
}

// totp is the body of the authenticator app's setup.
type totp struct {
	factor.Enrolment
	Replaces bool
}

func codeFields() web.Fields {
	return web.Fields{{Name: "code", Label: "Code from the app", Type: "text", Autocomplete: "one-time-code", Mode: "numeric", Most: 9, Focus: true}}
}

func (p *pages) showTOTPForm(w http.ResponseWriter, r *web.Request) error {
	e, err := p.Factors.BeginTOTP(r.Identity)
	if err != nil {
		return err
	}
	return p.renderTOTP(w, r, e, codeFields(), 0)
}

func (p *pages) renderTOTP(w http.ResponseWriter, r *web.Request, e factor.Enrolment, fs web.Fields, status int) error {
	st, err := p.Factors.State(r.Context(), r.UserID)
	if err != nil {
		return err
	}
	pg := page(r, securityPath, "Set up an authenticator app", totp{e, st.TOTP})
	pg.Fields, pg.Status = fs, status
	pg.Secret = true
	return p.Render(w, r, "totp", pg)
}

func (p *pages) enableTOTP(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	codes, err := p.Factors.EnableTOTP(r.Context(), r.Identity, form.Get("enrolment"), form.Get("code"))
	if err != nil {
		fs := codeFields()
		status := 0
		if problem.Of(err) == problem.Unauthorized {
			status, fs[0].Error = http.StatusUnprocessableEntity, "The code is wrong or expired. Enter the current code of the app."
		} else if problem.Of(err) == problem.RateLimited {
			status = fs.Answer(w, err)
		}
		if status == 0 {
			return err
		}
		e, failed := p.Factors.ContinueTOTP(r.Identity, form.Get("enrolment"))
		if failed != nil {
			return failed
		}
		return p.renderTOTP(w, r, e, fs, status)
	}
	const done = "Authenticator app added."
	if len(codes) == 0 {
		return p.Redirect(w, securityPath, web.Notice{Text: done})
	}
	return p.showCodes(w, r, done+" Signing in requires its codes from now on.", codes)
}

func (p *pages) confirmRemoveTOTP(w http.ResponseWriter, r *web.Request) error {
	return p.Confirm(w, r, "Remove authenticator app", page(r, securityPath, "", nil), web.Confirm{
		Text: "Sign-in no longer requires its codes: your password or access to your e-mail is then enough to sign in as you. All your other sessions are signed out.", Label: "Remove", Cancel: securityPath,
	})
}

func (p *pages) removeTOTP(w http.ResponseWriter, r *web.Request) error {
	if err := p.Factors.DisableTOTP(r.Context(), r.Identity); err != nil {
		return err
	}
	return p.Redirect(w, securityPath, web.Notice{Text: "Authenticator app removed."})
}

// recoveryCodes is the page that shows new recovery codes once.
type recoveryCodes struct {
	Text   string
	Secret web.Secret
}

func (p *pages) showCodes(w http.ResponseWriter, r *web.Request, text string, list []string) error {
	pg := page(r, securityPath, "Your recovery codes", recoveryCodes{text, web.Secret{
		Label: "Recovery codes", Value: strings.Join(list, "\n"),
		Note: "Print them or store them in a password manager. Each replaces your second factor once.",
	}})
	pg.Secret = true
	return p.Render(w, r, "codes", pg)
}

func (p *pages) confirmCreateCodes(w http.ResponseWriter, r *web.Request) error {
	return p.Confirm(w, r, "Create recovery codes", page(r, securityPath, "", nil), web.Confirm{
		Text: "This creates ten codes. Earlier codes stop working.", Label: "Create", Cancel: securityPath,
	})
}

func (p *pages) createCodes(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Factors.NewRecoveryCodes(r.Context(), r.Identity)
	if err != nil {
		return err
	}
	return p.showCodes(w, r, "", list)
}

func (p *pages) confirmResetFactors(w http.ResponseWriter, r *web.Request) error {
	u, err := p.member(r)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Reset the second factors of "+cmp.Or(u.Name, u.Email), page(r, membersPath, "", nil), factorReset(u))
}

func factorReset(u account.User) web.Confirm {
	return web.Confirm{
		Text: "For members who lost their device. Verify the member’s identity first. This deletes their passkeys, authenticator app and recovery codes, " +
			"they are signed out everywhere, and they hear of it by mail.",
		Type: u.Email, Label: "Reset", Cancel: membersPath,
	}
}

func (p *pages) resetFactors(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	u, err := p.member(r)
	if err != nil {
		return err
	}
	if !p.Confirmed(form, factorReset(u)) {
		return p.Confirm(w, r, "Reset the second factors of "+cmp.Or(u.Name, u.Email), page(r, membersPath, "", nil), factorReset(u))
	}
	if err := p.Factors.ResetMember(r.Context(), r.Identity, u.ID); err != nil {
		return err
	}
	return p.Redirect(w, membersPath, web.Notice{Text: cmp.Or(u.Name, u.Email) + " signs in without a second factor until a new one is added."})
}

// requireSecondFactor sets whether members need a second factor.
func (p *pages) requireSecondFactor(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	o, err := p.Accounts.RequireSecondFactor(r.Context(), r.Identity, form.Get("required") == "on")
	if err != nil {
		return err
	}
	text := "Second factor no longer required."
	if o.SecondFactorRequired {
		text = "Second factor required for all members."
	}
	return p.Redirect(w, organizationPath, web.Notice{Text: text})
}
