package web

import (
	"net/http"
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Paths of sign-in after the first factor.
const (
	passkeyPath      = SignInPath + "/passkey"
	secondFactorPath = SignInPath + "/second-factor"
	newPasskeyPath   = WelcomePath + "/passkey"
)

// passkeys reports whether passkeys are available.
func (s *Site) passkeys() bool { return s.factors != nil && s.factors.HasPasskeys() }

// signInWithPasskey creates a session for the owner of a passkey.
func (s *Site) signInWithPasskey(w http.ResponseWriter, r *http.Request) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	d := signForm{Next: next(r.URL.Query().Get("next"))}
	in, err := s.factors.SignIn(r.Context(), form.Get("proof-passkey"), d.Next, s.gate.Client(r))
	if err != nil {
		fs := signFields(false)
		if status := fs.Answer(w, err); status != 0 {
			// The error is about the passkey, not about the empty address field.
			d.Error, fs[0].Error = fs[0].Error, ""
			s.renderSignForm(w, r, status, d, fs)
			return
		}
		s.fail(w, r, err)
		return
	}
	s.enter(w, in)
}

// storePendingSignIn stores a sign-in that needs a second factor in a cookie and
// redirects to its page.
func (s *Site) storePendingSignIn(w http.ResponseWriter, in account.SignIn) {
	http.SetCookie(w, s.gate.SetPending(in.Pending))
	http.SetCookie(w, s.gate.SetIntent(""))
	to := secondFactorPath
	if path := next(in.RedirectTo); path != "" {
		to += "?next=" + url.QueryEscape(path)
	}
	seeOther(w, to)
}

// secondFactorPage is the body of the second factor's page.
type secondFactorPage struct {
	Email  string
	Next   string
	Answer *Answer
}

func (s *Site) showSecondFactor(w http.ResponseWriter, r *http.Request) {
	s.renderSecondFactor(w, r, next(r.URL.Query().Get("next")), nil, nil)
}

// renderSecondFactor renders the page; wrong is the reason why the answer in form was
// refused.
func (s *Site) renderSecondFactor(w http.ResponseWriter, r *http.Request, to string, form url.Values, wrong error) {
	p, err := s.accounts.Pending(r.Context(), browser.Pending(r))
	if problem.Of(err) == problem.Unauthorized {
		http.SetCookie(w, s.gate.SetPending(""))
		if err := s.redirect(w, SignInPath, Notice{Text: "This sign-in has expired or was already completed. Sign in again.", Bad: true}); err != nil {
			s.fail(w, r, err)
		}
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	o, err := s.factors.PendingOptions(r.Context(), p)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body := secondFactorPage{p.User.Email, to, newAnswer(o, "", false)}
	status := http.StatusOK
	if wrong != nil {
		if status = body.Answer.refused(w, form, wrong); status == 0 {
			s.fail(w, r, wrong)
			return
		}
	}
	s.render(w, r, status, "secondfactor", page{Title: "Second factor", Posts: true, Script: passkeyScript, Brand: s.brandOf(r.Context(), p.User.Email), Body: body})
}

// completeSignIn checks the second factor and creates the session.
func (s *Site) completeSignIn(w http.ResponseWriter, r *http.Request) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	to := next(form.Get("next"))
	in, err := s.factors.Complete(r.Context(), browser.Pending(r), readAnswer(form), s.gate.Client(r))
	if err != nil {
		s.renderSecondFactor(w, r, to, form, err)
		return
	}
	if to != "" {
		in.RedirectTo = to
	}
	http.SetCookie(w, s.gate.SetPending(""))
	s.enter(w, in)
}

// newPasskey offers a passkey after sign-up or joining.
type newPasskey struct {
	Email   string
	Next    string
	Options string
	Error   string
}

func (s *Site) showNewPasskey(w http.ResponseWriter, r *http.Request) { s.offerPasskey(w, r, nil) }

// offerPasskey renders the offer unless the user has a passkey. wrong is the reason why
// the one in the form was refused.
func (s *Site) offerPasskey(w http.ResponseWriter, r *http.Request, wrong error) {
	s.withConfirmForm(w, r, func(req *Request) error {
		to := afterPasskey(r)
		list, err := s.factors.Passkeys(r.Context(), req.UserID)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			seeOther(w, to)
			return nil
		}
		body := newPasskey{Email: req.User.Email, Next: to}
		if body.Options, err = s.factors.RegistrationOptions(r.Context(), req.Identity); err != nil {
			return err
		}
		status := http.StatusOK
		if wrong != nil {
			fs := Fields{{}}
			if status = fs.Answer(w, wrong); status == 0 {
				return wrong
			}
			body.Error = fs[0].Error
		}
		s.render(w, r, status, "newpasskey", page{Title: "Create passkey", Posts: true, Script: passkeyScript, Body: body})
		return nil
	})
}

// afterPasskey returns the redirect target after the offer.
func afterPasskey(r *http.Request) string {
	if to := next(r.URL.Query().Get("next")); to != "" {
		return to
	}
	return "/"
}

func (s *Site) addNewPasskey(w http.ResponseWriter, r *http.Request) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	s.withConfirmForm(w, r, func(req *Request) error {
		_, err := s.factors.AddPasskey(r.Context(), req.Identity, account.Device(r.UserAgent()), form.Get("proof-passkey"))
		switch {
		case code(err) == account.FreshProofRequired:
			seeOther(w, ConfirmPath+"?next="+url.QueryEscape(r.URL.RequestURI()))
			return nil
		case err != nil:
			s.offerPasskey(w, r, err)
			return nil
		}
		return s.redirect(w, afterPasskey(r), Notice{Text: "Passkey created. You can sign in with it now."})
	})
}

// passkeyFirst returns the path of the offer of a passkey, with to as its redirect
// target.
func (s *Site) passkeyFirst(to string) string {
	if !s.passkeys() {
		return to
	}
	if to == "" {
		return newPasskeyPath
	}
	return newPasskeyPath + "?next=" + url.QueryEscape(to)
}
