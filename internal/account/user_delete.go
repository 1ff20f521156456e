package account

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Deletion is the input of auth.deleteAccount.
type Deletion struct {
	Email string `json:"email"` // of the account, to confirm
	// RevokeCredentials also revokes the API keys and disables the webhooks that
	// the user created in their organization.
	RevokeCredentials bool `json:"revokeCredentials,omitempty"`
}

// DeleteAccount deletes the caller's user for good: profile, factors, identities, known
// browsers and sessions. Their tickets that are not closed become unassigned. Messages
// retain the display name, and the audit log its entries.
//
// Errors: [problem.Invalid] if the address is not the caller's, [problem.Conflict] for
// the last admin of an organization.
func (s *Service) DeleteAccount(ctx context.Context, by Identity, d Deletion) error {
	if emailKey(d.Email) != emailKey(by.User.Email) {
		var v problem.Validation
		v.Add("email", "must be the e-mail address of your account")
		return v.Err()
	}
	return s.deleteUser(ctx, by.UserID, d.RevokeCredentials)
}

// DeleteUser is [Service.DeleteAccount] for the operator, and returns the deleted user.
// An unknown address is a [problem.NotFound].
func (s *Service) DeleteUser(ctx context.Context, email string, revokeCredentials bool) (User, error) {
	u, err := s.UserByEmail(ctx, email)
	if err != nil {
		return User{}, err
	}
	return u, s.deleteUser(ctx, u.ID, revokeCredentials)
}

func (s *Service) deleteUser(ctx context.Context, userID string, revoke bool) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := s.lockWithOrganization(ctx, tx, userID)
		if err != nil {
			return err
		}
		if u.OrganizationID != "" {
			if err := s.removeFromOrganizationTx(ctx, tx, u, revoke); err != nil {
				return err
			}
		}
		if s.onUserDeleted != nil {
			if err := s.onUserDeleted(ctx, tx, u.ID); err != nil {
				return fmt.Errorf("prepare deletion of user: %w", err)
			}
		}
		key := emailKey(u.Email)
		for _, statement := range []string{"DELETE FROM login_links WHERE email_key = $1", "DELETE FROM invitations WHERE email_key = $1"} {
			if err := tx.Queue(ctx, statement, key); err != nil {
				return fmt.Errorf("%.30s…: %w", statement, err)
			}
		}
		if _, err := s.endSessions(ctx, tx, u.ID, ""); err != nil {
			return err
		}
		// Factors, identities, browsers and resets are deleted by cascade.
		if err := tx.Queue(ctx, "DELETE FROM users WHERE id = $1", u.ID); err != nil {
			return fmt.Errorf("delete user: %w", err)
		}
		if err := s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: u.OrganizationID, Action: AuditUserDeleted, Target: userTarget(u),
			Details: map[string]any{"credentials_revoked": revoke},
		}); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, u.Email, deletionMail())
	})
}

// lockWithOrganization locks a user's organization, if any, and then the user: the lock
// order of all changes of members.
func (s *Service) lockWithOrganization(ctx context.Context, tx *db.Tx, userID string) (User, error) {
	var organizationID string
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(organization_id), '') FROM users WHERE id = $1", userID).Scan(&organizationID); err != nil {
		return User{}, fmt.Errorf("find organization of user: %w", err)
	}
	if organizationID != "" {
		if _, err := lockOrganization(ctx, tx, organizationID); err != nil {
			return User{}, err
		}
	}
	u, err := lockUser(ctx, tx, userID)
	if err == nil && u.OrganizationID != organizationID {
		return User{}, problem.New(problem.Conflict, "your membership has just changed; try again")
	}
	return u, err
}

func deletionMail() mail.Notification {
	return mail.Notification{
		Subject: "Your Kickstand account is deleted",
		Before: []string{
			"Your account, its ways to sign in and all sessions are deleted.",
			"Your messages remain in your organization under your name.",
		},
		After: []string{"If this was not you, inform the admins of your organization at once."},
	}
}
