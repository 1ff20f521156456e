package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// invitation is the body of the invitation page.
type invitation struct {
	Token string
	account.InvitationPreview
}

// showInvitation shows the organization and role of an invitation. It does not use the
// link up.
func (s *Site) showInvitation(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	welcome, err := s.accounts.PreviewInvitation(r.Context(), token)
	if err != nil {
		s.invitationFailed(w, r, err)
		return
	}
	s.invite(w, r, http.StatusOK, invitation{token, welcome}, invitationFields(welcome, ""))
}

// acceptInvitation adds the user to the organization and creates a session.
func (s *Site) acceptInvitation(w http.ResponseWriter, r *http.Request) {
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	token := form.Get("token")
	welcome, err := s.accounts.PreviewInvitation(r.Context(), token)
	if err != nil {
		s.invitationFailed(w, r, err)
		return
	}
	var name string // users with a name don't change it here
	if welcome.Name == "" {
		name = form.Get("name")
	}
	in, err := s.accounts.AcceptInvitation(r.Context(), token, name, s.gate.Client(r))
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid && len(p.Issues) > 0 {
		fs := invitationFields(welcome, name)
		fs.Mark(p.Issues)
		s.invite(w, r, http.StatusUnprocessableEntity, invitation{token, welcome}, fs)
		return
	}
	if err != nil {
		s.invitationFailed(w, r, err)
		return
	}
	in.RedirectTo = s.passkeyFirst(next(in.RedirectTo))
	s.enter(w, in)
}

func (s *Site) invitationFailed(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && p.Kind == problem.Invalid:
		s.renderMessage(w, r, http.StatusBadRequest, "This invitation does not work", messagePage{
			p.Message, "If you have already accepted it, sign in. Otherwise request a new invitation from an admin.", SignInPath, "Sign in",
		})
	case ok && p.Kind == problem.Conflict:
		s.renderMessage(w, r, http.StatusConflict, "You cannot join with this address", messagePage{
			p.Message, "Sign in to work in your organization. To join another one, have an admin remove you from it first " +
				"and open the invitation again, or request an invitation to another e-mail address.", SignInPath, "Sign in",
		})
	default:
		if !s.signUpRefused(w, r, err) {
			s.fail(w, r, err)
		}
	}
}

// invitationFields returns the name field for users without a name.
func invitationFields(w account.InvitationPreview, typed string) Fields {
	if w.Name != "" {
		return nil
	}
	return Fields{{
		Name: "name", Label: "Your name", Type: "text", Autocomplete: "name", Value: strings.TrimSpace(typed),
		Help: "Shown to colleagues and customers beside your messages.",
	}}
}

func (s *Site) invite(w http.ResponseWriter, r *http.Request, status int, body invitation, fs Fields) {
	fs.Focus()
	s.render(w, r, status, "invitation", page{Title: "You are invited", Posts: true, Script: zoneScript, Brand: newBrand("", body.Organization, body.Accent, body.Logo), Fields: fs, Body: body})
}
