package account

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Limits of an identity, in bytes. A subject has at most 255 characters (OpenID Connect
// Core 1.0, section 2).
const (
	maxIssuer  = 2048
	maxSubject = 255
)

// identifiedUser returns the user with an identity of the provider, even if the e-mail
// address has changed there. An unknown identity is linked to the user with its verified
// address, created if new.
//
// A user has one identity per provider: an address that passes to another person there
// does not open the account of its former owner.
func (s *Service) identifiedUser(ctx context.Context, tx *db.Tx, who ProviderIdentity) (User, error) {
	if !storableIdentity(who) {
		return User{}, problem.New(problem.Invalid, "The identity provider's response does not identify you.")
	}
	u, err := db.One(ctx, tx, scanUser, "SELECT "+userColumns+` FROM users u JOIN identities i ON i.user_id = u.id
		WHERE i.issuer = $1 AND i.subject = $2`, who.Issuer, who.Subject)
	switch {
	case err == nil:
		if err := tx.Queue(ctx, "UPDATE identities SET used_at = $3 WHERE issuer = $1 AND subject = $2",
			who.Issuer, who.Subject, tx.Now.UnixMicro()); err != nil {
			return User{}, fmt.Errorf("record use of identity: %w", err)
		}
		return u, nil
	case !errors.Is(err, db.ErrNoRows):
		return User{}, fmt.Errorf("find identity: %w", err)
	}

	var v problem.Validation
	checkEmail(&v, "email", who.Email)
	if err := v.Err(); err != nil {
		return User{}, problem.New(problem.Invalid, "The identity provider sent no valid e-mail address.").Because(err)
	}
	if !who.EmailVerified {
		return User{}, problem.New(problem.Invalid, "The identity provider has not verified your e-mail address. Verify it there, or sign in by e-mail.")
	}
	if u, err = s.provenUser(ctx, tx, strings.TrimSpace(who.Email), validName(who.Name), picture(who.Picture)); err != nil {
		return User{}, err
	}
	return u, s.linkIdentity(ctx, tx, u, who)
}

func storableIdentity(who ProviderIdentity) bool {
	var v problem.Validation
	v.Line("issuer", who.Issuer, 1, maxIssuer)
	v.Line("subject", who.Subject, 1, maxSubject)
	return v.Err() == nil
}

// linkIdentity adds an identity to a user; the identity proves the user's address.
func (s *Service) linkIdentity(ctx context.Context, tx *db.Tx, u User, who ProviderIdentity) error {
	if _, err := lockUser(ctx, tx, u.ID); err != nil {
		return err
	}
	// Concurrent inserts: the database's constraints admit one.
	n, err := tx.Exec(ctx, `INSERT INTO identities (issuer, subject, user_id, email, created_at, used_at)
		VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT DO NOTHING`,
		who.Issuer, who.Subject, u.ID, strings.TrimSpace(who.Email), tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("link identity: %w", err)
	}
	if n == 0 {
		var same bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM identities WHERE issuer = $1 AND subject = $2 AND user_id = $3)",
			who.Issuer, who.Subject, u.ID).Scan(&same); err != nil {
			return fmt.Errorf("find identity: %w", err)
		}
		if same {
			return nil
		}
		s.audit.Refuse(ctx, audit.Entry{OrganizationID: u.OrganizationID, Action: AuditIdentityRefused, Target: userTarget(u), Details: map[string]any{"issuer": who.Issuer}})
		return problem.New(problem.Invalid, "The account with your e-mail address belongs to another identity of this provider. "+
			"If both are you, ask the operator of this server to unlink the old one.").Because(fmt.Errorf("user %s", u.ID))
	}
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: u.OrganizationID, Action: "identity.linked", Target: audit.Target{Type: "user", ID: u.ID, Name: u.Email},
		Details: map[string]any{"issuer": who.Issuer, "subject": who.Subject},
	})
}

// UnlinkIdentities removes all provider identities of a user and returns their number.
// The next sign-in with a verified e-mail address of the user links again. An unknown
// address is a [problem.NotFound].
func (s *Service) UnlinkIdentities(ctx context.Context, email string) (int64, error) {
	u, err := s.UserByEmail(ctx, email)
	if err != nil {
		return 0, err
	}
	var n int64
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if u, err = lockUser(ctx, tx, u.ID); err != nil {
			return err
		}
		if n, err = tx.Exec(ctx, "DELETE FROM identities WHERE user_id = $1", u.ID); err != nil {
			return fmt.Errorf("unlink identities: %w", err)
		}
		if n == 0 {
			return nil
		}
		return s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: u.OrganizationID, Action: "identity.unlinked", Target: audit.Target{Type: "user", ID: u.ID, Name: u.Email},
		})
	})
	return n, err
}
