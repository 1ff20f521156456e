package account

import (
	"context"
	"errors"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Actions in the audit log.
const (
	AuditSignedIn        audit.Action = "sign_in.completed"
	AuditSignInRefused   audit.Action = "sign_in.refused"
	AuditSignInLimited   audit.Action = "sign_in.limited"
	AuditSignUpRefused   audit.Action = "sign_up.refused"
	AuditIdentityRefused audit.Action = "identity.refused"
	AuditSignedOut       audit.Action = "sign_out.completed"
	AuditSessionsEnded   audit.Action = "session.ended"
	AuditTokenReused     audit.Action = "session.token_reused"
	AuditPasswordSet     audit.Action = "password.set"
	AuditPasswordChanged audit.Action = "password.changed"
	AuditPasswordReset   audit.Action = "password.reset"
	AuditPasswordRefused audit.Action = "password.change_refused"
	AuditProfileUpdated  audit.Action = "user.profile_updated"
	AuditUserCreated     audit.Action = "user.created"
	AuditUserDeleted     audit.Action = "user.deleted"
	AuditMemberJoined    audit.Action = "member.joined"
	AuditRoleChanged     audit.Action = "member.role_changed"
	AuditMemberRemoved   audit.Action = "member.removed"
	AuditInvited         audit.Action = "invitation.created"
	AuditUninvited       audit.Action = "invitation.revoked"
	AuditFounded         audit.Action = "organization.created"
	AuditOrganization    audit.Action = "organization.updated"
	AuditPlanChanged     audit.Action = "organization.plan_changed"
)

// AuditedOrganizations is the query of the organizations with a creation entry in the
// audit log: all that were created after the log was introduced.
const AuditedOrganizations = `SELECT id FROM organizations WHERE created_at >= (SELECT applied_at FROM schema_migrations WHERE name = 'audit')`

func userTarget(u User) audit.Target { return audit.Target{Type: "user", ID: u.ID, Name: u.Email} }

func memberTarget(u User) audit.Target {
	return audit.Target{Type: "member", ID: u.ID, Name: u.Email}
}

func organizationTarget(o Organization) audit.Target {
	return audit.Target{Type: "organization", ID: o.ID, Name: o.Name}
}

// asUser returns a context with u as the audit actor.
func asUser(ctx context.Context, u User) context.Context {
	return audit.WithActor(ctx, audit.Actor{Type: audit.User, ID: u.ID, Email: u.Email})
}

// recordUserTx records an action by and on a user, in the chain of the user's
// organization.
func (s *Service) recordUserTx(ctx context.Context, tx *db.Tx, a audit.Action, userID string, details map[string]any) error {
	if s.audit == nil {
		return nil
	}
	u, err := db.One(ctx, tx, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.id = $1", userID)
	if errors.Is(err, db.ErrNoRows) {
		return nil // deleted concurrently, and that is recorded
	}
	if err != nil {
		return err
	}
	return s.audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: u.OrganizationID, Action: a, Target: userTarget(u), Details: details})
}

// recordSignInTx records a completed sign-in.
func (s *Service) recordSignInTx(ctx context.Context, tx *db.Tx, u User, details map[string]any) error {
	return s.audit.RecordTx(asUser(ctx, u), tx, audit.Entry{
		OrganizationID: u.OrganizationID, Action: AuditSignedIn, Target: userTarget(u), Details: details,
	})
}

// refuseSignUp records that the sign-up policy refused an address, and returns the error
// for the client. The address is left out of the record: people type passwords into that
// field.
func (s *Service) refuseSignUp(ctx context.Context) error {
	s.audit.Refuse(ctx, audit.Entry{Action: AuditSignUpRefused, Target: audit.Target{Type: "user"}})
	return s.SignUp().refusal()
}

// recordRefusal records a refused sign-in if err is a refusal. An address without an
// account is left out of the record: people type passwords into that field.
func (s *Service) recordRefusal(ctx context.Context, emailKey string, way Method, err error) {
	e := audit.Entry{Action: AuditSignInRefused, Target: audit.Target{Type: "user"}, Details: map[string]any{"method": string(way)}}
	switch problem.Of(err) {
	case problem.Unauthorized, problem.Forbidden:
	case problem.RateLimited:
		e.Action = AuditSignInLimited
	default:
		return
	}
	if s.audit == nil {
		return
	}
	u, err := db.One(ctx, s.db, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.email_key = $1", emailKey)
	if err == nil {
		e.OrganizationID, e.Target = u.OrganizationID, userTarget(u)
	}
	s.audit.Refuse(ctx, e)
}
