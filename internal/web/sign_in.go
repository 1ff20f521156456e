package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Paths of users without a session, beside [SignInPath].
const (
	signUpPath = "/sign-up"
	forgotPath = "/forgot-password"
)

// zoneScript stores the browser's time zone before the first dashboard page.
const zoneScript = "times.js"

// passwordScript toggles and rates passwords, and stores the time zone.
const passwordScript = "passwords.js"

// signForm is the body of the sign-in and sign-up pages.
type signForm struct {
	New      bool   // sign-up
	Next     string // redirect target; empty: the start page
	Provider bool   // an identity provider is available
	Open     bool   // sign-up is open to all addresses
	Passkey  string // argument of navigator.credentials.get; empty: no passkeys
	Error    string // of the passkey
}

func signFields(isNew bool) Fields {
	fs := Fields{{Name: "email", Label: "E-mail address", Type: "email", Autocomplete: "username", Most: 254}}
	if !isNew {
		fs = append(fs, Field{
			Name: "password", Label: "Password", Type: "password", Autocomplete: "current-password", Optional: true,
			Help: "Leave empty to receive a sign-in link by e-mail.",
		})
	}
	return fs
}

func (s *Site) showSignIn(w http.ResponseWriter, r *http.Request) { s.showSignForm(w, r, false) }
func (s *Site) showSignUp(w http.ResponseWriter, r *http.Request) { s.showSignForm(w, r, true) }
func (s *Site) signIn(w http.ResponseWriter, r *http.Request)     { s.submitSignForm(w, r, false) }
func (s *Site) signUp(w http.ResponseWriter, r *http.Request)     { s.submitSignForm(w, r, true) }

// showSignForm renders the form, or redirects a user with a session.
func (s *Site) showSignForm(w http.ResponseWriter, r *http.Request, isNew bool) {
	d := signForm{New: isNew, Next: next(r.URL.Query().Get("next"))}
	if browser.HasSession(r) {
		_, err := s.gate.AuthenticateRestricted(w, r)
		switch {
		case err == nil:
			to := d.Next
			if to == "" {
				to = "/"
			}
			seeOther(w, to)
			return
		case problem.Of(err) != problem.Unauthorized:
			s.fail(w, r, err)
			return
		}
	}
	s.renderSignForm(w, r, http.StatusOK, d, signFields(isNew))
}

func (s *Site) renderSignForm(w http.ResponseWriter, r *http.Request, status int, d signForm, fs Fields) {
	d.Provider, d.Open = s.accounts.HasProvider(), s.accounts.SignUp().Open()
	title := "Sign in"
	if d.New {
		title = "Sign up"
	}
	script := zoneScript
	if !d.New {
		script = passwordScript
	}
	if !d.New && s.passkeys() {
		var err error
		if d.Passkey, err = s.factors.SignInOptions(); err != nil {
			s.fail(w, r, err)
			return
		}
		script, fs[0].Autocomplete = passkeyScript, "username webauthn"
	}
	fs.Focus()
	s.render(w, r, status, "signin", page{Title: title, Posts: true, Script: script, Notice: s.popNotice(w, r), Fields: fs, Body: d})
}

// submitSignForm creates a session if a password was sent, and mails a link otherwise.
func (s *Site) submitSignForm(w http.ResponseWriter, r *http.Request, isNew bool) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	d := signForm{New: isNew, Next: next(form.Get("next"))}
	fs := signFields(isNew)
	fs.Fill(form)
	if password := form.Get("password"); !isNew && password != "" && form.Get("method") != "link" {
		in, err := s.accounts.SignInWithPassword(r.Context(), account.PasswordSignIn{Email: form.Get("email"), Password: password}, s.gate.Client(r))
		if err == nil {
			if d.Next != "" {
				in.RedirectTo = d.Next
			}
			s.enter(w, in)
			return
		}
		if problem.Of(err) == problem.Unauthorized {
			p := fs.Field("password")
			p.Error, p.Help = "The e-mail address or the password is wrong.", "Try again, or leave empty to receive a sign-in link by e-mail."
			s.renderSignForm(w, r, http.StatusUnprocessableEntity, d, fs)
			return
		}
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Code == account.ProviderRequired {
			fs.Field("password").Error = "Your organization requires sign-in with its identity provider. Continue below."
			s.renderSignForm(w, r, http.StatusForbidden, d, fs)
			return
		}
		s.refuse(w, r, err, d, fs)
		return
	}
	to := d.Next
	if isNew {
		to = s.passkeyFirst(to)
	}
	intent, err := s.accounts.SignInWithEmail(r.Context(), account.EmailSignIn{Email: form.Get("email"), RedirectTo: to}, browser.Intent(r), s.gate.Client(r))
	if err != nil {
		s.refuse(w, r, err, d, fs)
		return
	}
	http.SetCookie(w, s.gate.SetIntent(intent))
	s.sent(w, r, SignInPath+"/sent", "We sent a link to %s.", form)
}

// refuse renders the form again with the errors, or fails.
func (s *Site) refuse(w http.ResponseWriter, r *http.Request, err error, d signForm, fs Fields) {
	if status := fs.Answer(w, err); status != 0 {
		s.renderSignForm(w, r, status, d, fs)
		return
	}
	s.fail(w, r, err)
}

// sent redirects to the page that says that a mail was sent. A notice carries the address
// there, since the URL must not.
func (s *Site) sent(w http.ResponseWriter, r *http.Request, to, format string, form url.Values) {
	if err := s.redirect(w, to, Notice{Text: fmt.Sprintf(format, strings.TrimSpace(form.Get("email")))}); err != nil {
		s.fail(w, r, err)
	}
}

// mailed is the body of the page after a mail was sent.
type mailed struct {
	Text    string
	Again   string // path to request another mail
	Mailbox string // path of the built-in mailbox; empty: mails are sent by SMTP
}

func (s *Site) linkSent(w http.ResponseWriter, r *http.Request) {
	s.showSent(w, r, mailed{
		Text:  fmt.Sprintf("The link signs you in. It works once, for %d minutes; open it in this browser.", int(account.LinkLife.Minutes())),
		Again: SignInPath,
	})
}

func (s *Site) showSent(w http.ResponseWriter, r *http.Request, m mailed) {
	m.Mailbox = s.mailbox
	s.render(w, r, http.StatusOK, "sent", page{Title: "Check your e-mail", Notice: s.popNotice(w, r), Body: m})
}

// signInWithProvider redirects to the identity provider.
func (s *Site) signInWithProvider(w http.ResponseWriter, r *http.Request) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	to, intent, err := s.accounts.SignInWithProvider(r.Context(), account.ProviderSignIn{RedirectTo: next(form.Get("next"))}, browser.Intent(r), s.gate.Client(r))
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && p.Kind == problem.RateLimited:
		s.renderMessage(w, r, http.StatusTooManyRequests, "Too many requests", messagePage{Sentence(p.Message), "Or sign in with an e-mail link.", SignInPath, "Sign in"})
	case ok && p.Kind == problem.Precondition: // no provider is configured
		s.notFound(w, r)
	case err != nil:
		s.fail(w, r, err)
	default:
		http.SetCookie(w, s.gate.SetIntent(intent))
		s.redirectExternal(w, r, "Redirecting to your identity provider", "You return here after signing in there.", to)
	}
}

func forgotFields() Fields {
	return Fields{{Name: "email", Label: "E-mail address", Type: "email", Autocomplete: "username", Most: 254}}
}

func (s *Site) showForgot(w http.ResponseWriter, r *http.Request) {
	s.renderForgot(w, r, http.StatusOK, forgotFields())
}

func (s *Site) renderForgot(w http.ResponseWriter, r *http.Request, status int, fs Fields) {
	fs.Focus()
	s.render(w, r, status, "forgot", page{Title: "Choose a new password", Posts: true, Fields: fs})
}

// forgot mails a link to reset the password.
func (s *Site) forgot(w http.ResponseWriter, r *http.Request) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	fs := forgotFields()
	fs.Fill(form)
	if err := s.accounts.SendPasswordReset(r.Context(), account.PasswordReset{Email: form.Get("email")}, s.gate.Client(r)); err != nil {
		if status := fs.Answer(w, err); status != 0 {
			s.renderForgot(w, r, status, fs)
			return
		}
		s.fail(w, r, err)
		return
	}
	s.sent(w, r, forgotPath+"/sent", "We sent an e-mail to %s.", form)
}

func (s *Site) resetSent(w http.ResponseWriter, r *http.Request) {
	s.showSent(w, r, mailed{
		Text:  fmt.Sprintf("The link lets you set a new password. It works once, for %d minutes.", int(account.ResetLife.Minutes())),
		Again: forgotPath,
	})
}

// signOut ends the session of the request, if any.
func (s *Site) signOut(w http.ResponseWriter, r *http.Request) {
	req, err := s.authenticate(w, r)
	switch problem.Of(err) {
	case problem.Unauthorized:
	default:
		if err == nil {
			err = s.accounts.SignOut(r.Context(), req.SessionID)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
	}
	w.Header().Del("Set-Cookie") // of a session that was refreshed just now
	s.clearSession(w)
	if err := s.redirect(w, SignInPath, Notice{Text: "You are signed out."}); err != nil {
		s.fail(w, r, err)
	}
}

// clearSession deletes the session cookies.
func (s *Site) clearSession(w http.ResponseWriter) {
	for _, c := range s.gate.ClearSession() {
		http.SetCookie(w, c)
	}
}

// maxNext is the length limit of a redirect target, in bytes.
const maxNext = 1024

// next returns the redirect target to if it is a path of this site other than sign-in, or
// "".
func next(to string) string {
	if !local(to) || len(to) > maxNext {
		return ""
	}
	for i := range len(to) {
		if to[i] <= ' ' || to[i] >= 0x7f {
			return ""
		}
	}
	for _, out := range []string{SignInPath, signUpPath, "/sign-out"} {
		if rest, ok := strings.CutPrefix(to, out); ok && (rest == "" || strings.ContainsAny(rest[:1], "/?#")) {
			return ""
		}
	}
	return to
}
