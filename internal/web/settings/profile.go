package settings

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// profile is the body of the profile page.
type profile struct {
	Email       string
	HasPassword bool
	Profile     web.Fields
	Password    web.Fields
	Places      []web.NavItem // items of the settings; nil on the page of the profile alone
}

func (p *pages) newProfile(r *web.Request) (*profile, error) {
	has, err := p.Accounts.HasPassword(r.Context(), r.UserID)
	if err != nil {
		return nil, err
	}
	u := r.User
	body := &profile{
		Email: u.Email, HasPassword: has,
		Profile: web.Fields{
			{Name: "name", Label: "Name", Type: "text", Autocomplete: "name", Most: 255, Value: u.Name, Help: "Shown to colleagues and customers beside your messages."},
			{Name: "avatar_url", Label: "Picture", Type: "url", Optional: true, Value: u.AvatarURL, Placeholder: "https://",
				Help: "The URL of an image, for API clients. The dashboard loads no remote images and shows your initials."},
		},
	}
	next := web.Field{Name: "newPassword", Label: "New password", Type: "password", Autocomplete: "new-password", Least: 8,
		Help: "At least 8 characters. Several random words are easy to remember and hard to guess."}
	if has {
		body.Password = web.Fields{{Name: "currentPassword", Label: "Current password", Type: "password", Autocomplete: "current-password"}, next}
	} else {
		next.Name, next.Label = "password", "Password"
		body.Password = web.Fields{next}
	}
	return body, nil
}

func (p *pages) profile(w http.ResponseWriter, r *web.Request) error {
	body, err := p.newProfile(r)
	if err != nil {
		return err
	}
	return p.showProfile(w, r, body, nil, http.StatusOK)
}

// showProfile renders the page, with the fields of the form that was refused.
func (p *pages) showProfile(w http.ResponseWriter, r *web.Request, body *profile, wrong web.Fields, status int) error {
	pg := page(r, "/settings/profile", "Profile", body)
	pg.Fields, pg.Status, pg.Scripts = wrong, status, []string{"passwords.js"}
	return p.Render(w, r, "profile", pg)
}

func (p *pages) saveProfile(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	name, avatar := form.Get("name"), form.Get("avatar_url")
	if _, err := p.Accounts.UpdateProfile(r.Context(), r.UserID, account.Profile{Name: &name, AvatarURL: &avatar}); err != nil {
		body, failed := p.newProfile(r)
		if failed != nil {
			return failed
		}
		body.Profile.Fill(form)
		if status := body.Profile.Answer(w, err); status != 0 {
			return p.showProfile(w, r, body, body.Profile, status)
		}
		return err
	}
	return p.Redirect(w, "/settings/profile", web.Notice{Text: "Profile saved."})
}

// savePassword sets or changes the password, which ends all other sessions.
func (p *pages) savePassword(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	done, err := p.setPassword(r, form)
	if err == nil {
		return p.Redirect(w, "/settings/profile", web.Notice{Text: done})
	}
	body, failed := p.newProfile(r)
	if failed != nil {
		return failed
	}
	if problem.Of(err) == problem.Unauthorized {
		body.Password[0].Error = "The current password is wrong."
		body.Password.Focus()
		return p.showProfile(w, r, body, body.Password, http.StatusUnprocessableEntity)
	}
	if status := body.Password.Answer(w, err); status != 0 {
		return p.showProfile(w, r, body, body.Password, status)
	}
	return err
}

func (p *pages) setPassword(r *web.Request, form url.Values) (done string, err error) {
	has, err := p.Accounts.HasPassword(r.Context(), r.UserID)
	if err != nil {
		return "", err
	}
	if !has {
		in := account.FirstPassword{Password: cmp.Or(form.Get("password"), form.Get("newPassword"))}
		return "Password set. You can sign in with it now.", p.Accounts.SetPassword(r.Context(), r.Identity, in)
	}
	in := account.PasswordChange{CurrentPassword: form.Get("currentPassword"), NewPassword: form.Get("newPassword")}
	return "Password changed, and all other sessions were signed out.", p.Accounts.ChangePassword(r.Context(), r.Identity, in)
}
