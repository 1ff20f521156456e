package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// PendingLife is the time for the second factor of a sign-in.
const PendingLife = 10 * time.Minute

// Codes of a [problem.Error] that surfaces handle.
const (
	// SecondFactorRequired: the first factor is accepted, and a second one is due.
	SecondFactorRequired = "second_factor_required"
	// SecondFactorSetupRequired: the organization requires a second factor, which
	// this session lacks.
	SecondFactorSetupRequired = "second_factor_setup_required"
	// FreshProofRequired: the last proof of identity is too old, or too weak, for
	// this change.
	FreshProofRequired = "fresh_proof_required"
)

// Restricted returns a [problem.Forbidden] if the session lacks the second factor that
// its organization requires; nil otherwise.
func (id Identity) Restricted() error {
	if !id.NeedsSecondFactor {
		return nil
	}
	return &problem.Error{
		Kind: problem.Forbidden, Code: SecondFactorSetupRequired,
		Message: "your organization requires a second factor; add or confirm one in your settings first",
	}
}

// Method is a way to sign in.
type Method string

// The ways to sign in. Only a passkey is two factors.
const (
	ByPassword   Method = "password"
	ByLink       Method = "link"
	ByProvider   Method = "provider"
	ByInvitation Method = "invitation"
	ByPasskey    Method = "passkey"
	ByOperator   Method = "operator" // link created by the operator
)

// PendingSignIn is a sign-in that waits for a second factor. It is not a session: only the
// second step accepts its token.
type PendingSignIn struct {
	ID         string // of the session to come
	User       User
	RedirectTo string
	CreatedAt  time.Time

	// RecoveryOnly requires a recovery code as the second factor.
	RecoveryOnly bool
	byProvider   bool // of the session to come
}

// completeSignIn completes a sign-in of in.User that leads to in.RedirectTo: with a
// session, or with in.Pending if a second factor is due. Every way to sign in ends here.
//
// Under a provider policy other ways are a [problem.Forbidden] with the code
// [ProviderRequired], except that an admin's password is pending until a recovery code.
func (s *Service) completeSignIn(ctx context.Context, tx *db.Tx, in *SignIn, way Method, c Client) error {
	trusted := way == ByProvider || way == ByOperator
	if !trusted {
		rule, err := s.providerRule(ctx, tx, in.User.ID)
		switch {
		case err != nil:
			return err
		case rule.required && rule.recovers && way == ByPassword:
			return createPending(ctx, tx, in, true, true)
		case rule.required:
			return errProviderRequired()
		}
	}
	if way != ByPasskey {
		due, err := secondFactorDue(ctx, tx, in.User.ID)
		if err != nil {
			return err
		}
		if due {
			return createPending(ctx, tx, in, trusted, false)
		}
	}
	var err error
	in.SessionID = newID()
	n := newSession{id: in.SessionID, userID: in.User.ID, twoFactors: way == ByPasskey, byProvider: trusted}
	if way == ByPassword {
		if n.unproven, err = unprovenPassword(ctx, tx, in.User.ID); err != nil {
			return err
		}
	}
	if in.Tokens, err = s.openSession(ctx, tx, n, c); err != nil {
		return err
	}
	return s.recordSignInTx(ctx, tx, in.User, map[string]any{"method": string(way), "session": in.SessionID})
}

// unprovenPassword reports whether a user's password is no proof of identity.
func unprovenPassword(ctx context.Context, tx *db.Tx, userID string) (bool, error) {
	var unproven bool
	if err := tx.QueryRow(ctx, "SELECT password_unproven FROM users WHERE id = $1", userID).Scan(&unproven); err != nil {
		return false, fmt.Errorf("find the proof of a password: %w", err)
	}
	return unproven, nil
}

// SecondFactorDue reports whether a user's sign-in by one factor needs another.
func (s *Service) SecondFactorDue(ctx context.Context, q db.Querier, userID string) (bool, error) {
	return secondFactorDue(ctx, q, userID)
}

// secondFactorDue reports whether a sign-in by one factor needs another: always for users
// with an authenticator app; for users with passkeys only, if their organization requires
// a second factor.
func secondFactorDue(ctx context.Context, q db.Querier, userID string) (bool, error) {
	var due bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM totp_secrets WHERE user_id = $1)
		OR EXISTS (SELECT 1 FROM passkeys p JOIN users u ON u.id = p.user_id JOIN organizations o ON o.id = u.organization_id
			WHERE p.user_id = $1 AND o.second_factor_required)`, userID).Scan(&due)
	if err != nil {
		return false, fmt.Errorf("find a second factor: %w", err)
	}
	return due, nil
}

// createPending stores in until its second factor, which must be a recovery code if
// recoveryOnly is set.
func createPending(ctx context.Context, tx *db.Tx, in *SignIn, byProvider, recoveryOnly bool) error {
	t := newToken()
	in.SessionID, in.Pending = newID(), t.encode()
	if err := tx.Queue(ctx, `INSERT INTO pending_sign_ins (id, digest, user_id, redirect, created_at, by_provider, recovery_only)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		in.SessionID, t.digest(), in.User.ID, in.RedirectTo, tx.Now.UnixMicro(), byProvider, recoveryOnly); err != nil {
		return fmt.Errorf("insert pending sign-in: %w", err)
	}
	return nil
}

// Pending returns the pending sign-in of a token. An unknown or expired one is
// [problem.Unauthorized].
func (s *Service) Pending(ctx context.Context, pendingToken string) (PendingSignIn, error) {
	t, ok := parseToken(pendingToken)
	if !ok {
		return PendingSignIn{}, errNoPending()
	}
	var p PendingSignIn
	err := s.db.QueryRow(ctx, "SELECT p.id, p.redirect, p.created_at, p.by_provider, p.recovery_only, "+userColumns+
		" FROM pending_sign_ins p JOIN users u ON u.id = p.user_id WHERE p.digest = $1", t.digest()).
		Scan(append([]any{&p.ID, &p.RedirectTo, db.IntoTime(&p.CreatedAt), &p.byProvider, &p.RecoveryOnly}, userFields(&p.User)...)...)
	if errors.Is(err, db.ErrNoRows) || err == nil && s.db.Now().Sub(p.CreatedAt) >= PendingLife {
		return PendingSignIn{}, errNoPending()
	}
	if err != nil {
		return PendingSignIn{}, fmt.Errorf("find pending sign-in: %w", err)
	}
	return p, nil
}

func errNoPending() error {
	return problem.New(problem.Unauthorized, "there is no pending sign-in; sign in again")
}

// CompleteTx opens the session of a pending sign-in. One that no longer exists is
// [problem.Unauthorized]; an emergency sign-in of a former admin is a [problem.Forbidden]
// with the code [ProviderRequired].
func (s *Service) CompleteTx(ctx context.Context, tx *db.Tx, p PendingSignIn, c Client) (SignIn, error) {
	n, err := tx.Exec(ctx, "DELETE FROM pending_sign_ins WHERE id = $1 AND created_at > $2", p.ID, tx.Now.Add(-PendingLife).UnixMicro())
	if err != nil {
		return SignIn{}, fmt.Errorf("complete sign-in: %w", err)
	}
	if n == 0 {
		return SignIn{}, errNoPending()
	}
	if p.RecoveryOnly { // for admins only, who may have lost the role since
		var admin bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM users WHERE id = $1 AND role = $2)", p.User.ID, string(Admin)).Scan(&admin); err != nil {
			return SignIn{}, fmt.Errorf("find the role: %w", err)
		}
		if !admin {
			return SignIn{}, errProviderRequired()
		}
	}
	in := SignIn{User: p.User, SessionID: p.ID, RedirectTo: p.RedirectTo}
	if in.Tokens, err = s.openSession(ctx, tx, newSession{id: p.ID, userID: p.User.ID, twoFactors: true, byProvider: p.byProvider}, c); err != nil {
		return in, err
	}
	return in, s.recordSignInTx(ctx, tx, p.User, map[string]any{"second_factor": true, "session": p.ID})
}

// AdmitTx opens a session for a user with a passkey, which is two factors.
func (s *Service) AdmitTx(ctx context.Context, tx *db.Tx, u User, redirectTo string, c Client) (SignIn, error) {
	in := SignIn{User: u, RedirectTo: redirectTo}
	if in.RedirectTo == "" {
		in.RedirectTo = s.redirects.home()
	}
	err := s.completeSignIn(ctx, tx, &in, ByPasskey, c)
	return in, err
}

// ProveTx records a proof of identity in a session, and whether the session now has two
// factors. An ended session is [problem.Unauthorized].
func (s *Service) ProveTx(ctx context.Context, tx *db.Tx, sessionID string, twoFactors bool) error {
	n, err := tx.Exec(ctx, "UPDATE sessions SET proven_at = $2, second_factor = second_factor OR $3 WHERE id = $1",
		sessionID, tx.Now.UnixMicro(), twoFactors)
	if err != nil {
		return fmt.Errorf("note proof: %w", err)
	}
	if n == 0 {
		return errNotSignedIn()
	}
	return nil
}

// EndSessionsTx ends all of a user's sessions but except, or all if it is empty, and
// deletes their pending sign-ins.
func (s *Service) EndSessionsTx(ctx context.Context, tx *db.Tx, userID, except string) error {
	_, err := s.endSessions(ctx, tx, userID, except)
	return err
}

// SendMailTx mails a letter of package factor if and when tx commits.
func (s *Service) SendMailTx(ctx context.Context, tx *db.Tx, to string, l mail.Notification) error {
	return s.sendMail(ctx, tx, to, l)
}

// RequireSecondFactor sets whether by's organization requires a second factor; by is an
// admin. Members in sessions of one factor can do nothing until they add or prove a
// second one; API keys continue to work.
//
// An admin in a session of one factor cannot switch it on: [problem.Precondition].
func (s *Service) RequireSecondFactor(ctx context.Context, by Identity, required bool) (Organization, error) {
	var o Organization
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := s.LockMemberTx(ctx, tx, by.OrganizationID, by.UserID)
		if err != nil {
			return err
		}
		if o, err = lockOrganization(ctx, tx, by.OrganizationID); err != nil || o.SecondFactorRequired == required {
			return err
		}
		switch {
		case u.Role != Admin:
			return problem.New(problem.Forbidden, "only admins may do this")
		case required && !by.SecondFactor:
			return problem.New(problem.Precondition, "sign in with a passkey or a second factor of your own first")
		}
		return s.setSecondFactorRequired(ctx, tx, &o, required)
	})
	return o, err
}

// RequireSecondFactorByOperator is [Service.RequireSecondFactor] for the operator. An
// unknown slug is [problem.NotFound].
func (s *Service) RequireSecondFactorByOperator(ctx context.Context, slug string, required bool) (Organization, error) {
	var o Organization
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		found, err := organizationBySlug(ctx, tx, slug)
		if err != nil {
			return err
		}
		if o, err = lockOrganization(ctx, tx, found.ID); err != nil || o.SecondFactorRequired == required {
			return err
		}
		return s.setSecondFactorRequired(ctx, tx, &o, required)
	})
	return o, err
}

// setSecondFactorRequired sets the requirement of an organization that tx has locked.
func (s *Service) setSecondFactorRequired(ctx context.Context, tx *db.Tx, o *Organization, required bool) error {
	o.SecondFactorRequired, o.UpdatedAt = required, tx.Now
	if err := tx.Queue(ctx, "UPDATE organizations SET second_factor_required = $2, updated_at = $3 WHERE id = $1",
		o.ID, required, o.UpdatedAt.UnixMicro()); err != nil {
		return fmt.Errorf("require second factor: %w", err)
	}
	s.notifyAfterCommit(tx, o.ID, "organization")
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: o.ID, Action: AuditOrganization, Target: organizationTarget(*o),
		Changes: map[string]audit.Change{"second_factor_required": {From: !required, To: required}},
	})
}

// LockMemberTx locks an organization and then one of its members until tx ends. A user
// outside of the organization is [problem.NotFound].
func (s *Service) LockMemberTx(ctx context.Context, tx *db.Tx, organizationID, userID string) (User, error) {
	return lockMember(ctx, tx, organizationID, userID)
}

// LockUserTx locks a user until tx ends. A deleted one is
// [problem.Unauthorized].
func (s *Service) LockUserTx(ctx context.Context, tx *db.Tx, userID string) (User, error) {
	return lockUser(ctx, tx, userID)
}

// UserByEmail returns the user with an e-mail address, or a [problem.NotFound].
func (s *Service) UserByEmail(ctx context.Context, email string) (User, error) {
	u, err := db.One(ctx, s.db, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.email_key = $1", emailKey(email))
	if errors.Is(err, db.ErrNoRows) {
		return User{}, problem.New(problem.NotFound, "there is no user with this e-mail address")
	}
	return u, err
}

// CheckPassword reports whether password is the user's, in the same time if the user has
// none. A correct password that is no proof of identity is [problem.Unauthorized]; see
// [Service.ProvingPassword]. The caller limits attempts.
func (s *Service) CheckPassword(ctx context.Context, userID, password string) (bool, error) {
	stored, owner, err := s.storedPassword(ctx, userID)
	if err != nil || len(password) > maxPassword {
		return false, err
	}
	ok, err := s.verify(ctx, "user "+userID, stored, password)
	if ok && err == nil && owner.unproven {
		return false, problem.New(problem.Unauthorized, "this password was set without a fresh proof of identity and is no proof itself: "+
			"sign in again by a mailed link, or use a mailed code")
	}
	return ok, err
}
