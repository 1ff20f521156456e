package settings

import (
	"cmp"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const membersPath = "/settings/members"

// memberList is the body of the members' page.
type memberList struct {
	Members     []memberRow
	Invitations []invitationRow // admins only
	Admin       bool
}

type memberRow struct {
	account.User
	Avatar web.Avatar
	Role   web.Badge
	Since  web.Time
	Self   bool
	Second bool // has a second factor
}

type invitationRow struct {
	account.Invitation
	Role          web.Badge
	Sent, Expires web.Time
}

func roleBadge(r account.Role) web.Badge {
	if r == account.Admin {
		return web.Badge{Text: "Admin", Tone: web.Accent, Icon: "shield"}
	}
	return web.Badge{Text: "Agent"}
}

func (p *pages) members(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	secured, err := p.Factors.Secured(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	body := memberList{Admin: r.Admin()}
	for _, u := range list {
		body.Members = append(body.Members, memberRow{u, web.NewAvatar(cmp.Or(u.Name, u.Email)), roleBadge(u.Role), r.Time(u.CreatedAt), u.ID == r.UserID, secured[u.ID]})
	}
	if body.Admin {
		waiting, err := p.Accounts.Invitations(r.Context(), r.OrganizationID)
		if err != nil {
			return err
		}
		for _, i := range waiting {
			body.Invitations = append(body.Invitations, invitationRow{i, roleBadge(i.Role), r.Time(i.CreatedAt), r.Time(i.ExpiresAt)})
		}
	}
	return p.Render(w, r, "members", page(r, membersPath, "Members", body))
}

// member returns the member in the request's path.
func (p *pages) member(r *web.Request) (account.User, error) {
	list, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return account.User{}, err
	}
	for _, u := range list {
		if u.ID == r.PathValue("id") {
			return u, nil
		}
	}
	return account.User{}, problem.New(problem.NotFound, "there is no such member")
}

var roles = []web.Option{{Value: string(account.Agent), Label: "Agent: answers messages"}, {Value: string(account.Admin), Label: "Admin: also manages settings and keys"}}

// roleForm is the body of the role form.
type roleForm struct {
	Name string
	Self bool
}

func roleFields(role account.Role) web.Fields {
	return web.Fields{{Name: "role", Label: "Role", Type: "select", Options: roles, Value: string(role), Focus: true}}
}

func (p *pages) showRoleForm(w http.ResponseWriter, r *web.Request) error {
	u, err := p.member(r)
	if err != nil {
		return err
	}
	return p.renderRole(w, r, u, roleFields(u.Role), 0)
}

func (p *pages) renderRole(w http.ResponseWriter, r *web.Request, u account.User, fs web.Fields, status int) error {
	pg := page(r, membersPath, "Role of "+cmp.Or(u.Name, u.Email), roleForm{cmp.Or(u.Name, u.Email), u.ID == r.UserID})
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "role", pg)
}

func (p *pages) changeRole(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	u, err := p.member(r)
	if err != nil {
		return err
	}
	role := account.Role(form.Get("role"))
	if _, err = p.Accounts.ChangeRole(r.Context(), r.OrganizationID, u.ID, role); err != nil {
		fs := roleFields(role)
		if status := fs.Answer(w, err); status != 0 {
			return p.renderRole(w, r, u, fs, status)
		}
		return err
	}
	n := web.Notice{Text: cmp.Or(u.Name, u.Email) + " is an " + string(role) + " now."}
	if u.ID != r.UserID && role != u.Role { // admins that demote themselves cannot undo it
		n.Undo, n.Fields = membersPath+"/"+u.ID, map[string]string{"role": string(u.Role)}
	}
	return p.Redirect(w, membersPath, n)
}

func memberRemoval(u account.User, self bool) web.Confirm {
	c := web.Confirm{
		Text: cmp.Or(u.Name, u.Email) + " is signed out everywhere and no longer has access to your organization. Their tickets that are not closed become unassigned. Their messages stay.",
		Type: u.Email, Label: "Remove", Cancel: membersPath,
	}
	if self {
		c.Text = "You are signed out everywhere and no longer have access to your organization. Your open tickets become unassigned. Your messages stay."
		c.Label = "Leave"
	}
	return c
}

func (p *pages) confirmRemoveMember(w http.ResponseWriter, r *web.Request) error {
	u, err := p.member(r)
	if err != nil {
		return err
	}
	return p.renderRemoval(w, r, u)
}

func (p *pages) renderRemoval(w http.ResponseWriter, r *web.Request, u account.User) error {
	title := "Remove " + cmp.Or(u.Name, u.Email)
	if u.ID == r.UserID {
		title = "Leave " + r.Organization.Name
	}
	c, err := p.withCredentials(r, memberRemoval(u, u.ID == r.UserID), u.ID)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, title, page(r, membersPath, "", nil), c)
}

func (p *pages) removeMember(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	u, err := p.member(r)
	if err != nil {
		return err
	}
	if !p.Confirmed(form, memberRemoval(u, u.ID == r.UserID)) {
		return p.renderRemoval(w, r, u)
	}
	remove := p.Accounts.RemoveMember
	if form.Get(revokeField) != "" {
		remove = p.Accounts.RemoveMemberAndCredentials
	}
	if err := remove(r.Context(), r.OrganizationID, u.ID); err != nil {
		return err
	}
	if u.ID == r.UserID {
		p.SignOut(w)
		return p.Redirect(w, web.SignInPath, web.Notice{Text: "You have left " + r.Organization.Name + "."})
	}
	return p.Redirect(w, membersPath, web.Notice{Text: cmp.Or(u.Name, u.Email) + " is no member any more."})
}

func inviteFields() web.Fields {
	return web.Fields{
		{Name: "email", Label: "E-mail address", Type: "email", Most: 254, Focus: true},
		{Name: "role", Label: "Role", Type: "select", Options: roles, Value: string(account.Agent)},
	}
}

func (p *pages) showInviteForm(w http.ResponseWriter, r *web.Request) error {
	return p.renderInvite(w, r, inviteFields(), 0)
}

func (p *pages) renderInvite(w http.ResponseWriter, r *web.Request, fs web.Fields, status int) error {
	pg := page(r, membersPath, "Invite member", nil)
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "invite", pg)
}

func (p *pages) invite(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	i, err := p.Accounts.Invite(r.Context(), r.Identity, account.NewInvitation{Email: form.Get("email"), Role: account.Role(form.Get("role"))})
	if err != nil {
		fs := inviteFields()
		fs.Fill(form)
		if status := fs.Answer(w, err); status != 0 {
			return p.renderInvite(w, r, fs, status)
		}
		return err
	}
	return p.Redirect(w, membersPath, web.Notice{Text: "Invitation sent to " + i.Email + "."})
}

// changeInvitation revokes or resends an invitation.
func (p *pages) changeInvitation(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	waiting, err := p.Accounts.Invitations(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	for _, i := range waiting {
		switch {
		case i.ID != r.PathValue("id"):
		case form.Get("do") == "resend":
			if _, err := p.Accounts.Invite(r.Context(), r.Identity, account.NewInvitation{Email: i.Email, Role: i.Role}); err != nil {
				return err
			}
			return p.Redirect(w, membersPath, web.Notice{Text: "Invitation sent again to " + i.Email + ". The previous link no longer works."})
		default:
			if err := p.Accounts.RevokeInvitation(r.Context(), r.OrganizationID, i.ID); err != nil {
				return err
			}
			return p.Redirect(w, membersPath, web.Notice{Text: "The invitation to " + i.Email + " was revoked."})
		}
	}
	return problem.New(problem.NotFound, "there is no such invitation")
}
