package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// InvitationLife is how long an invitation can be accepted.
const InvitationLife = 7 * 24 * time.Hour

// InvitationPath is where invitations lead, below the base URL.
const InvitationPath = "/invitation"

// What an organization may do in the way of invitations: they go to people who
// never asked for mail from us.
const (
	maxInvitations = 500 // waiting at the same time
	inviteLimit    = 100 // in any hour
)

// Invitation lets the owner of an e-mail address join an organization.
type Invitation struct {
	ID             string
	OrganizationID string
	Email          string // as given
	Role           Role
	InvitedBy      string // the name of who did
	CreatedAt      time.Time
	ExpiresAt      time.Time
}

const invitationColumns = "i.id, i.organization_id, i.email, i.role, i.invited_by, i.created_at"

func invitationFields(i *Invitation) []any {
	return []any{&i.ID, &i.OrganizationID, &i.Email, &i.Role, &i.InvitedBy, db.IntoTime(&i.CreatedAt)}
}

// NewInvitation describes whom to invite as what.
type NewInvitation struct {
	Email string `json:"email"`
	Role  Role   `json:"role"`
}

// Check implements [problem.Checker].
func (n NewInvitation) Check(v *problem.Validation) {
	checkEmail(v, "email", n.Email)
	n.Role.Check(v, "role")
}

// deleteInvitations ends what somebody has invited to who may not invite any more.
func deleteInvitations(ctx context.Context, tx *db.Tx, organizationID, inviterID string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM invitations WHERE organization_id = $1 AND inviter_id = $2", organizationID, inviterID); err != nil {
		return fmt.Errorf("drop invitations: %w", err)
	}
	return nil
}

// Invite mails somebody a link that lets them join the organization of who
// asks, who must be an admin of it still. The link ends when they no longer are. A second one for the same address takes the place of the first, whose
// link ends. A member is a [problem.Conflict]; whether the address is known
// otherwise does not show.
func (s *Service) Invite(ctx context.Context, by Identity, n NewInvitation) (Invitation, error) {
	if err := problem.Check(n); err != nil {
		return Invitation{}, err
	}
	key := emailKey(n.Email)
	if err := allowFew(ctx, s.inviteAttempts, mailbox(n.Email), "too many invitations to this address"); err != nil {
		return Invitation{}, err
	}
	if err := allowFew(ctx, s.inviteCounts, by.OrganizationID, "too many invitations"); err != nil {
		return Invitation{}, err
	}
	i := Invitation{
		ID: newID(), OrganizationID: by.OrganizationID, Email: strings.TrimSpace(n.Email), Role: n.Role, InvitedBy: by.User.Name,
	}
	if i.InvitedBy == "" {
		i.InvitedBy = by.User.Email
	}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := lockOrganization(ctx, tx, by.OrganizationID); err != nil {
			return err
		}
		var may, member bool
		var waiting int
		var organization, to string
		// A user's mail goes to the address on file, not to one that merely
		// compares as equal: its link signs in as that user.
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM users WHERE id = $5 AND organization_id = $1 AND role = $6),
				EXISTS (SELECT 1 FROM users WHERE email_key = $2 AND organization_id = $1),
				(SELECT count(*) FROM invitations WHERE organization_id = $1 AND email_key <> $2 AND created_at > $3), name,
				coalesce((SELECT email FROM users WHERE email_key = $2), $4)
			FROM organizations WHERE id = $1`, by.OrganizationID, key, tx.Now.Add(-InvitationLife).UnixMicro(), i.Email, by.UserID, string(Admin)).
			Scan(&may, &member, &waiting, &organization, &to); err != nil {
			return fmt.Errorf("look for member: %w", err)
		}
		switch {
		case !may:
			return problem.New(problem.Forbidden, "only admins may do this") // any more
		case member:
			return problem.New(problem.Conflict, "%s is a member already", i.Email)
		case waiting >= maxInvitations:
			return problem.New(problem.Conflict, "%d invitations are waiting already; revoke some first", waiting)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM invitations WHERE organization_id = $1 AND email_key = $2", by.OrganizationID, key); err != nil {
			return fmt.Errorf("replace invitation: %w", err)
		}
		t := newToken()
		i.CreatedAt, i.ExpiresAt = tx.Now, tx.Now.Add(InvitationLife)
		if _, err := tx.Exec(ctx, `INSERT INTO invitations (id, digest, organization_id, email, email_key, role, invited_by, inviter_id, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			i.ID, t.digest(), i.OrganizationID, i.Email, key, string(i.Role), i.InvitedBy, by.UserID, i.CreatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("insert invitation: %w", err)
		}
		if err := s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: i.OrganizationID, Action: AuditInvited, Target: audit.Target{Type: "invitation", ID: i.ID, Name: i.Email},
			Details: map[string]any{"role": i.Role},
		}); err != nil {
			return err
		}
		s.notifyAfterCommit(tx, by.OrganizationID, "member")
		return s.sendMail(ctx, tx, to, s.invitationMail(i, organization, by.User.Email, t))
	})
	if err != nil {
		return Invitation{}, err
	}
	return i, nil
}

// invitationMail reaches people who never asked for mail from here. The names
// in it are whatever an inviter chose, so only [mail.PlainName] of them goes
// out; the inviter's e-mail address, which was proven, says who it is.
func (s *Service) invitationMail(i Invitation, organization, inviter string, t token) mail.Notification {
	organization = mail.PlainName(organization, "an organization")
	if strings.ContainsAny(inviter, "/:") { // a local part may hold a path, and so look like a URL
		inviter = mail.PlainName(inviter, "a user")
	}
	return mail.Notification{
		Subject: "Join " + organization + " on Kickstand",
		Before: []string{
			fmt.Sprintf("%s invites you to work with %s on Kickstand, as %s.", mail.PlainName(i.InvitedBy, "Somebody"), organization, i.Role),
			"The invitation comes from the account of " + inviter + ".",
		},
		Action: mail.Action{Label: "See the invitation", URL: s.tokenURL(InvitationPath, t)},
		After: []string{
			fmt.Sprintf("It can be accepted for %d days.", InvitationLife/(24*time.Hour)),
			"If you do not know this sender, ignore this mail: nothing happens unless you accept.",
		},
	}
}

// Invitations returns those of an organization that can be accepted, oldest
// first.
func (s *Service) Invitations(ctx context.Context, organizationID string) ([]Invitation, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (Invitation, error) {
		var i Invitation
		err := row.Scan(invitationFields(&i)...)
		i.ExpiresAt = i.CreatedAt.Add(InvitationLife)
		return i, err
	}, "SELECT "+invitationColumns+" FROM invitations i WHERE i.organization_id = $1 AND i.created_at > $2 ORDER BY i.id",
		organizationID, time.Now().Add(-InvitationLife).UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("list invitations: %w", err)
	}
	return list, nil
}

// RevokeInvitation ends an invitation. Whatever is not the organization's is
// [problem.NotFound].
func (s *Service) RevokeInvitation(ctx context.Context, organizationID, id string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		var email string
		err := tx.QueryRow(ctx, "DELETE FROM invitations WHERE id = $1 AND organization_id = $2 RETURNING email", id, organizationID).Scan(&email)
		if errors.Is(err, db.ErrNoRows) {
			return problem.New(problem.NotFound, "there is no such invitation")
		}
		if err != nil {
			return fmt.Errorf("revoke invitation: %w", err)
		}
		s.notifyAfterCommit(tx, organizationID, "member")
		return s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: organizationID, Action: AuditUninvited, Target: audit.Target{Type: "invitation", ID: id, Name: email},
		})
	})
}

// InvitationPreview is an invitation as the person sees it who holds its link.
type InvitationPreview struct {
	Invitation
	Organization string // its name
	Name         string // what the user is called; empty for who has no name yet
}

// PreviewInvitation returns the invitation of a link's token. One that does not work is a
// [problem.Invalid] that says why.
func (s *Service) PreviewInvitation(ctx context.Context, invitationToken string) (InvitationPreview, error) {
	return findInvitation(ctx, s.db, invitationToken, time.Now())
}

func findInvitation(ctx context.Context, q db.Querier, invitationToken string, now time.Time) (InvitationPreview, error) {
	t, ok := parseToken(invitationToken)
	if !ok {
		return InvitationPreview{}, errUnknownInvitation()
	}
	var w InvitationPreview
	err := q.QueryRow(ctx, "SELECT "+invitationColumns+`, o.name, coalesce((SELECT name FROM users WHERE email_key = i.email_key), '')
		FROM invitations i JOIN organizations o ON o.id = i.organization_id WHERE i.digest = $1`, t.digest()).
		Scan(append(invitationFields(&w.Invitation), &w.Organization, &w.Name)...)
	if errors.Is(err, db.ErrNoRows) {
		return InvitationPreview{}, errUnknownInvitation()
	}
	if err != nil {
		return InvitationPreview{}, fmt.Errorf("find invitation: %w", err)
	}
	w.ExpiresAt = w.CreatedAt.Add(InvitationLife)
	if !now.Before(w.ExpiresAt) {
		return InvitationPreview{}, problem.New(problem.Invalid, "This invitation is older than %d days. Ask for a new one.", InvitationLife/(24*time.Hour))
	}
	return w, nil
}

func errUnknownInvitation() error {
	return problem.New(problem.Invalid, "This invitation was accepted or revoked, or a newer one has taken its place.")
}

// AcceptInvitation makes the holder of a link's token a member and opens a
// session: having the link proves to own the address. The name is for who has
// none yet. Errors: [problem.Invalid] without issues for a link that does not
// work, with issues for a name that will not do; [problem.Conflict] for who
// belongs to an organization already; [problem.Forbidden] of the code
// [ProviderRequired] for a new member who signs in by the identity provider only.
func (s *Service) AcceptInvitation(ctx context.Context, invitationToken, name string, client Client) (SignIn, error) {
	name = strings.TrimSpace(name)
	var v problem.Validation
	v.Line("name", name, 0, 255)
	if err := v.Err(); err != nil {
		return SignIn{}, err
	}
	in := SignIn{RedirectTo: s.redirects.home()}
	var organization string
	var elsewhere bool
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		w, err := findInvitation(ctx, tx, invitationToken, tx.Now)
		if err != nil {
			return err
		}
		if _, err := lockOrganization(ctx, tx, w.OrganizationID); err != nil {
			return err
		}
		// It may have been accepted or replaced in the meantime.
		if w, err = findInvitation(ctx, tx, invitationToken, tx.Now); err != nil {
			return err
		}
		u, err := findOrCreate(ctx, tx, w.Email, name, "")
		if err != nil {
			return err
		}
		if u, err = lockUser(ctx, tx, u.ID); err != nil {
			return err
		}
		switch {
		case u.OrganizationID == w.OrganizationID:
			return problem.New(problem.Conflict, "You are a member of %s already.", w.Organization)
		case u.OrganizationID != "":
			return problem.New(problem.Conflict, "You belong to another organization. A user can belong to one at a time.")
		case u.Name == "" && name == "":
			var v problem.Validation
			v.Add("name", "must not be empty")
			return v.Err()
		case u.Name == "":
			u.Name = name
		}
		u.OrganizationID, u.Role, u.UpdatedAt = w.OrganizationID, w.Role, tx.Now
		if _, err := tx.Exec(ctx, "UPDATE users SET name = $2, organization_id = $3, role = $4, updated_at = $5 WHERE id = $1",
			u.ID, u.Name, u.OrganizationID, string(u.Role), u.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("join organization: %w", err)
		}
		s.notifyAfterCommit(tx, w.OrganizationID, "member")
		n, err := tx.Exec(ctx, "DELETE FROM invitations WHERE id = $1", w.ID)
		if err != nil {
			return fmt.Errorf("use up invitation: %w", err)
		}
		if n == 0 { // revoked a moment ago
			return errUnknownInvitation()
		}
		in.User, organization = u, w.Organization
		if err := s.audit.RecordTx(asUser(ctx, u), tx, audit.Entry{
			OrganizationID: u.OrganizationID, Action: AuditMemberJoined, Target: memberTarget(u), Details: map[string]any{"role": u.Role, "invitation": w.ID},
		}); err != nil {
			return err
		}
		if err = s.completeSignIn(ctx, tx, &in, ByInvitation, client); isProviderRequired(err) {
			elsewhere = true // a member, who signs in another way
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		return SignIn{}, err
	case elsewhere:
		return SignIn{}, &problem.Error{
			Kind: problem.Forbidden, Code: ProviderRequired,
			Message: "You are a member of " + organization + " now, which signs in with its identity provider only. Choose the identity provider where you sign in.",
		}
	}
	return in, nil
}
