package web

import (
	"errors"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// resetDonePath is the redirect target after a reset, so that neither the address nor a
// reload has the token.
const resetDonePath = account.ResetPath + "/done"

// reset is the form for a new password.
type reset struct {
	Token string
	Email string
}

// showReset shows the account of a reset link. It does not use the link up.
func (s *Site) showReset(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	email, err := s.accounts.ResetFor(r.Context(), token)
	if err != nil {
		s.resetFailed(w, r, err)
		return
	}
	s.renderReset(w, r, http.StatusOK, reset{token, email}, resetFields())
}

// resetPassword sets the password and deletes the session cookies: all sessions of the
// account have ended.
func (s *Site) resetPassword(w http.ResponseWriter, r *http.Request) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	token, password := form.Get("token"), form.Get("password")
	email, err := s.accounts.ResetFor(r.Context(), token)
	if err != nil {
		s.resetFailed(w, r, err)
		return
	}
	fs := resetFields()
	if form.Get("repeat") != password {
		fs[1].Error = "The passwords don’t match. Enter both again."
		s.renderReset(w, r, http.StatusUnprocessableEntity, reset{token, email}, fs)
		return
	}
	err = s.accounts.ResetPassword(r.Context(), token, password)
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid && len(p.Issues) > 0 {
		fs.Mark(p.Issues)
		s.renderReset(w, r, http.StatusUnprocessableEntity, reset{token, email}, fs)
		return
	}
	if err != nil {
		s.resetFailed(w, r, err)
		return
	}
	for _, c := range s.gate.ClearSession() {
		http.SetCookie(w, c)
	}
	seeOther(w, resetDonePath)
}

// resetDone confirms the new password.
func (s *Site) resetDone(w http.ResponseWriter, r *http.Request) {
	s.renderMessage(w, r, http.StatusOK, "Password changed", messagePage{
		"You were signed out on all devices.", "Sign in with the new password.",
		SignInPath, "Sign in",
	})
}

func (s *Site) resetFailed(w http.ResponseWriter, r *http.Request, err error) {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid {
		s.renderMessage(w, r, http.StatusBadRequest, "This link does not work", messagePage{
			p.Message, "If you have just set a new password, sign in with it. Otherwise request a new link.", forgotPath, "Request a new link",
		})
		return
	}
	if !s.signUpRefused(w, r, err) {
		s.fail(w, r, err)
	}
}

func resetFields() Fields {
	return Fields{
		{
			Name: "password", Label: "New password", Type: "password", Autocomplete: "new-password", Least: 8,
			Help: "At least 8 characters. Several random words are easy to remember and hard to guess.",
		},
		{Name: "repeat", Label: "Repeat the new password", Type: "password", Autocomplete: "new-password"},
	}
}

func (s *Site) renderReset(w http.ResponseWriter, r *http.Request, status int, body reset, fs Fields) {
	fs.Focus()
	s.render(w, r, status, "resetpassword", page{Title: "Choose a new password", Posts: true, Script: passwordScript, Brand: s.brandOf(r.Context(), body.Email), Fields: fs, Body: body})
}
