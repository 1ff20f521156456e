package account

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Members returns an organization's users, longest membership first.
func (s *Service) Members(ctx context.Context, organizationID string) ([]User, error) {
	list, err := db.All(ctx, s.db, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.organization_id = $1 ORDER BY u.id", organizationID)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return list, nil
}

// ChangeRole sets a member's role. Invitations by a former admin are deleted. A user
// outside of the organization is [problem.NotFound]; demoting the last admin is a
// [problem.Conflict].
func (s *Service) ChangeRole(ctx context.Context, organizationID, userID string, r Role) (User, error) {
	var v problem.Validation
	r.Check(&v, "role")
	if err := v.Err(); err != nil {
		return User{}, err
	}
	var u User
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if u, err = lockMember(ctx, tx, organizationID, userID); err != nil {
			return err
		}
		if u.Role == r {
			return nil
		}
		if err := requireAdminLeft(ctx, tx, u); err != nil {
			return err
		}
		if err := s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: organizationID, Action: AuditRoleChanged, Target: memberTarget(u),
			Changes: map[string]audit.Change{"role": {From: u.Role, To: r}},
		}); err != nil {
			return err
		}
		u.Role, u.UpdatedAt = r, tx.Now
		if err := tx.Queue(ctx, "UPDATE users SET role = $2, updated_at = $3 WHERE id = $1", u.ID, string(r), u.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("change role: %w", err)
		}
		s.notifyAfterCommit(tx, organizationID, "member")
		s.sessionsChanged(tx, u.ID)
		if r == Admin {
			return nil
		}
		return deleteInvitations(ctx, tx, organizationID, u.ID)
	})
	if err != nil {
		return User{}, err
	}
	return u, nil
}

// RemoveMember removes a user from an organization, ends all of their sessions and
// deletes their invitations. The user remains, as after a first sign-in, and can be
// invited again. Errors are those of [Service.ChangeRole].
func (s *Service) RemoveMember(ctx context.Context, organizationID, userID string) error {
	return s.removeMember(ctx, organizationID, userID, false)
}

// RemoveMemberAndCredentials is [Service.RemoveMember], and revokes the member's
// credentials in the same transaction, by [Config.OnMemberRemoved].
func (s *Service) RemoveMemberAndCredentials(ctx context.Context, organizationID, userID string) error {
	return s.removeMember(ctx, organizationID, userID, true)
}

func (s *Service) removeMember(ctx context.Context, organizationID, userID string, revoke bool) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := lockMember(ctx, tx, organizationID, userID)
		if err != nil {
			return err
		}
		if err := s.removeFromOrganizationTx(ctx, tx, u, revoke); err != nil {
			return err
		}
		if err := tx.Queue(ctx, "UPDATE users SET organization_id = NULL, role = NULL, updated_at = $2 WHERE id = $1", u.ID, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("remove member: %w", err)
		}
		if err := s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: organizationID, Action: AuditMemberRemoved, Target: memberTarget(u),
			Changes: map[string]audit.Change{"role": {From: u.Role}}, Details: map[string]any{"credentials_revoked": revoke},
		}); err != nil {
			return err
		}
		_, err = s.endSessions(ctx, tx, u.ID, "")
		return err
	})
}

// removeFromOrganizationTx removes a member's references in the organization, which is
// locked; membership and sessions stay.
func (s *Service) removeFromOrganizationTx(ctx context.Context, tx *db.Tx, u User, revoke bool) error {
	if err := requireAdminLeft(ctx, tx, u); err != nil {
		return err
	}
	if s.onMemberRemoved != nil {
		if err := s.onMemberRemoved(ctx, tx, u.OrganizationID, u.ID, revoke); err != nil {
			return fmt.Errorf("prepare removal of member: %w", err)
		}
	}
	s.notifyAfterCommit(tx, u.OrganizationID, "member")
	return deleteInvitations(ctx, tx, u.OrganizationID, u.ID)
}

// lockMember locks an organization's row, which serializes changes of admins, and returns
// one of its members.
func lockMember(ctx context.Context, tx *db.Tx, organizationID, userID string) (User, error) {
	if _, err := lockOrganization(ctx, tx, organizationID); err != nil {
		return User{}, err
	}
	u, err := db.One(ctx, tx, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.id = $1 AND u.organization_id = $2 FOR NO KEY UPDATE", userID, organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return User{}, problem.New(problem.NotFound, "there is no such member")
	}
	if err != nil {
		return User{}, fmt.Errorf("lock member: %w", err)
	}
	return u, nil
}

// lockOrganization locks an organization against changes of its members and invitations
// until tx ends. Take it before locks on users and invitations. Other rows of the
// organization stay unlocked.
func lockOrganization(ctx context.Context, tx *db.Tx, id string) (Organization, error) {
	return db.One(ctx, tx, scanOrganization, "SELECT "+organizationColumns+" FROM organizations WHERE id = $1 FOR NO KEY UPDATE", id)
}

// requireAdminLeft returns a [problem.Conflict] if u is the last admin of their
// organization.
func requireAdminLeft(ctx context.Context, tx *db.Tx, u User) error {
	if u.Role != Admin {
		return nil
	}
	var others bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM users WHERE organization_id = $1 AND role = $2 AND id <> $3)",
		u.OrganizationID, string(Admin), u.ID).Scan(&others); err != nil {
		return fmt.Errorf("find other admins: %w", err)
	}
	if !others {
		return problem.New(problem.Conflict, "this is the organization's last admin; make somebody else an admin first")
	}
	return nil
}
