package factor

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ResetMember deletes all passkeys, the authenticator app and the recovery codes of a
// member after their loss, ends the member's sessions and mails the member. by must be
// another user, an admin of the organization. Errors: [problem.Forbidden],
// [problem.NotFound], [problem.Conflict] for oneself and for a member without a second
// factor.
func (s *Service) ResetMember(ctx context.Context, by account.Identity, userID string) error {
	if err := s.RequireFresh(by); err != nil {
		return err
	}
	if userID == by.UserID {
		return problem.New(problem.Conflict, "change your own factors in your settings, or ask another admin")
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		admin, err := s.accounts.LockMemberTx(ctx, tx, by.OrganizationID, by.UserID)
		if err != nil {
			return err
		}
		if admin.Role != account.Admin {
			return problem.New(problem.Forbidden, "only admins may do this")
		}
		u, err := s.accounts.LockMemberTx(ctx, tx, by.OrganizationID, userID)
		if err != nil {
			return err
		}
		name := admin.Name
		if name == "" {
			name = admin.Email
		}
		return s.reset(ctx, tx, u, name+", an admin of your organization,")
	})
}

// ResetByOperator is ResetMember for the operator, by e-mail address.
func (s *Service) ResetByOperator(ctx context.Context, email string) (account.User, error) {
	u, err := s.accounts.UserByEmail(ctx, email)
	if err != nil {
		return account.User{}, err
	}
	return u, s.db.Write(ctx, func(tx *db.Tx) error {
		if u, err = s.accounts.LockUserTx(ctx, tx, u.ID); err != nil {
			return err
		}
		return s.reset(ctx, tx, u, "The operator of the server")
	})
}

func (s *Service) reset(ctx context.Context, tx *db.Tx, u account.User, by string) error {
	var deleted int64
	for _, table := range []string{"passkeys", "totp_secrets", "recovery_codes"} {
		n, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE user_id = $1", u.ID)
		if err != nil {
			return fmt.Errorf("reset %s: %w", table, err)
		}
		deleted += n
	}
	if deleted == 0 {
		return problem.New(problem.Conflict, "%s has no second factor", u.Email)
	}
	if err := s.accounts.EndSessionsTx(ctx, tx, u.ID, ""); err != nil {
		return err
	}
	if err := s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: u.OrganizationID, Action: "factors.reset", Target: audit.Target{Type: "user", ID: u.ID, Name: u.Email},
	}); err != nil {
		return err
	}
	return s.accounts.SendMailTx(ctx, tx, u.Email, notice(
		by+" removed your passkeys, your authenticator app and your recovery codes. All sessions were signed out; sign in by your password or a mailed link.",
		"If you did not ask for this, write to an admin of your organization."))
}
