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

// InvitationLife is the lifetime of an invitation.
const InvitationLife = 7 * 24 * time.Hour

// InvitationPath is the path of invitation links below the base URL.
const InvitationPath = "/invitation"

// Limits of an organization's invitations, which are unsolicited mail.
const (
	maxInvitations = 500 // pending at the same time
	inviteLimit    = 100 // per hour
)

// Invitation lets the owner of an e-mail address join an organization.
type Invitation struct {
	ID             string
	OrganizationID string
	Email          string // as given
	Role           Role
	InvitedBy      string // name of the inviter
	CreatedAt      time.Time
	ExpiresAt      time.Time
}

const invitationColumns = "i.id, i.organization_id, i.email, i.role, i.invited_by, i.created_at"

func invitationFields(i *Invitation) []any {
	return []any{&i.ID, &i.OrganizationID, &i.Email, &i.Role, &i.InvitedBy, db.IntoTime(&i.CreatedAt)}
}

// NewInvitation is the invitee's address and role.
type NewInvitation struct {
	Email string `json:"email"`
	Role  Role   `json:"role"`
}

// Check implements [problem.Checker].
func (n NewInvitation) Check(v *problem.Validation) {
	checkEmail(v, "email", n.Email)
	n.Role.Check(v, "role")
}

// deleteInvitations deletes the pending invitations by a former admin.
func deleteInvitations(ctx context.Context, tx *db.Tx, organizationID, inviterID string) error {
	if err := tx.Queue(ctx, "DELETE FROM invitations WHERE organization_id = $1 AND inviter_id = $2", organizationID, inviterID); err != nil {
		return fmt.Errorf("drop invitations: %w", err)
	}
	return nil
}

// Invite mails an invitation link to the organization of by; by must still be an admin.
// The link ends when by is no longer an admin. A second invitation of the same address
// replaces the first. A member's address is a [problem.Conflict]; the result does not
// show whether the address has an account elsewhere.
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
		o, err := lockOrganization(ctx, tx, by.OrganizationID)
		if err != nil {
			return err
		}
		var may, member bool
		var waiting int
		var to string
		// The mail goes to the user's stored address, not to one that merely compares as
		// equal: its link signs in as that user.
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM users WHERE id = $5 AND organization_id = $1 AND role = $6),
				EXISTS (SELECT 1 FROM users WHERE email_key = $2 AND organization_id = $1),
				(SELECT count(*) FROM invitations WHERE organization_id = $1 AND email_key <> $2 AND created_at > $3),
				coalesce((SELECT email FROM users WHERE email_key = $2), $4)
			FROM organizations WHERE id = $1`, by.OrganizationID, key, tx.Now.Add(-InvitationLife).UnixMicro(), i.Email, by.UserID, string(Admin)).
			Scan(&may, &member, &waiting, &to); err != nil {
			return fmt.Errorf("find member: %w", err)
		}
		switch {
		case !may:
			return problem.New(problem.Forbidden, "only admins may do this") // no longer an admin
		case member:
			return problem.New(problem.Conflict, "%s is a member already", i.Email)
		case waiting >= maxInvitations:
			return problem.New(problem.Conflict, "%d invitations are pending already; revoke some first", waiting)
		}
		if err := tx.Queue(ctx, "DELETE FROM invitations WHERE organization_id = $1 AND email_key = $2", by.OrganizationID, key); err != nil {
			return fmt.Errorf("replace invitation: %w", err)
		}
		t := newToken()
		i.CreatedAt, i.ExpiresAt = tx.Now, tx.Now.Add(InvitationLife)
		if err := tx.Queue(ctx, `INSERT INTO invitations (id, digest, organization_id, email, email_key, role, invited_by, inviter_id, created_at)
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
		return s.sendMail(ctx, tx, to, s.invitationMail(i, o, by.User.Email, t))
	})
	if err != nil {
		return Invitation{}, err
	}
	return i, nil
}

// invitationMail is unsolicited. Names are chosen by the inviter, so they go through
// [mail.PlainName]; the inviter's proven e-mail address identifies them.
func (s *Service) invitationMail(i Invitation, o Organization, inviter string, t token) mail.Notification {
	organization := mail.PlainName(o.Name, "an organization")
	if strings.ContainsAny(inviter, "/:") { // a local part may contain a path and look like a URL
		inviter = mail.PlainName(inviter, "a user")
	}
	return mail.Notification{
		Brand:   s.mailBrand(o),
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

// Invitations returns an organization's pending invitations, oldest first.
func (s *Service) Invitations(ctx context.Context, organizationID string) ([]Invitation, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (Invitation, error) {
		var i Invitation
		err := row.Scan(invitationFields(&i)...)
		i.ExpiresAt = i.CreatedAt.Add(InvitationLife)
		return i, err
	}, "SELECT "+invitationColumns+" FROM invitations i WHERE i.organization_id = $1 AND i.created_at > $2 ORDER BY i.id",
		organizationID, s.db.Now().Add(-InvitationLife).UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("list invitations: %w", err)
	}
	return list, nil
}

// RevokeInvitation deletes an invitation. One of another organization is
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

// InvitationPreview is an invitation as its invitee sees it.
type InvitationPreview struct {
	Invitation
	Organization string // name
	Accent       Accent // of the organization
	Logo         Logo
	Name         string // the invitee's name; empty: none yet
}

// PreviewInvitation returns the invitation of a link's token. An unusable token is a
// [problem.Invalid] with the reason.
func (s *Service) PreviewInvitation(ctx context.Context, invitationToken string) (InvitationPreview, error) {
	return findInvitation(ctx, s.db, invitationToken, s.db.Now())
}

func findInvitation(ctx context.Context, q db.Querier, invitationToken string, now time.Time) (InvitationPreview, error) {
	t, ok := parseToken(invitationToken)
	if !ok {
		return InvitationPreview{}, errUnknownInvitation()
	}
	var w InvitationPreview
	err := q.QueryRow(ctx, "SELECT "+invitationColumns+`, o.name, o.accent, o.logo, coalesce((SELECT name FROM users WHERE email_key = i.email_key), '')
		FROM invitations i JOIN organizations o ON o.id = i.organization_id WHERE i.digest = $1`, t.digest()).
		Scan(append(invitationFields(&w.Invitation), &w.Organization, (*string)(&w.Accent), (*string)(&w.Logo), &w.Name)...)
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

// AcceptInvitation adds the holder of a link's token to the organization and opens a
// session: the link proves ownership of the address. It sets name if the user has none.
// Errors: [problem.Invalid] without issues for an unusable link, with issues for an
// invalid name; [problem.Conflict] if the user has an organization; [problem.Forbidden]
// with the code [ProviderRequired] if the new member must sign in by the identity
// provider.
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
		// It may have been accepted or replaced concurrently.
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
		if err := tx.Queue(ctx, "UPDATE users SET name = $2, organization_id = $3, role = $4, updated_at = $5 WHERE id = $1",
			u.ID, u.Name, u.OrganizationID, string(u.Role), u.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("join organization: %w", err)
		}
		s.notifyAfterCommit(tx, w.OrganizationID, "member")
		n, err := tx.Exec(ctx, "DELETE FROM invitations WHERE id = $1", w.ID)
		if err != nil {
			return fmt.Errorf("use up invitation: %w", err)
		}
		if n == 0 { // revoked concurrently
			return errUnknownInvitation()
		}
		in.User, organization = u, w.Organization
		if err := s.audit.RecordTx(asUser(ctx, u), tx, audit.Entry{
			OrganizationID: u.OrganizationID, Action: AuditMemberJoined, Target: memberTarget(u), Details: map[string]any{"role": u.Role, "invitation": w.ID},
		}); err != nil {
			return err
		}
		if err = s.completeSignIn(ctx, tx, &in, ByInvitation, client); isProviderRequired(err) {
			elsewhere = true // the member signs in another way
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
