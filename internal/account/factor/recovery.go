package factor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// A set has 10 recovery codes of 80 bits. ASVS 2.6.2 requires salted hashes for codes of
// less than 112 bits.
const (
	recoveryCodes = 10
	recoveryBytes = 10
	saltBytes     = 16
)

// newRecoveryCodes replaces a user's recovery codes and returns the new ones.
func newRecoveryCodes(ctx context.Context, tx *db.Tx, userID string) ([]string, error) {
	if err := tx.Queue(ctx, "DELETE FROM recovery_codes WHERE user_id = $1", userID); err != nil {
		return nil, fmt.Errorf("delete recovery codes: %w", err)
	}
	codes := make([]string, recoveryCodes)
	for i := range codes {
		secret := make([]byte, recoveryBytes+saltBytes)
		rand.Read(secret) // never fails: crypto/rand ends the program instead
		code, salt := strings.ToLower(base32Plain.EncodeToString(secret[:recoveryBytes])), secret[recoveryBytes:]
		if err := tx.Queue(ctx, "INSERT INTO recovery_codes (user_id, digest, salt, created_at) VALUES ($1, $2, $3, $4)",
			userID, recoveryDigest(salt, code), salt, tx.Now.UnixMicro()); err != nil {
			return nil, fmt.Errorf("insert recovery code: %w", err)
		}
		codes[i] = strings.ReplaceAll(groupSecret(code), " ", "-")
	}
	return codes, nil
}

func recoveryDigest(salt []byte, code string) []byte {
	sum := sha256.Sum256(append(append([]byte(nil), salt...), code...))
	return sum[:]
}

// NewRecoveryCodes replaces the caller's recovery codes and returns the new ones, to be
// shown once. A caller without a second factor gets a [problem.Precondition].
func (s *Service) NewRecoveryCodes(ctx context.Context, id account.Identity) ([]string, error) {
	var codes []string
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := s.accounts.LockUserTx(ctx, tx, id.UserID)
		if err != nil {
			return err
		}
		if err := s.requireChangeAllowed(ctx, tx, id); err != nil {
			return err
		}
		var second bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM passkeys WHERE user_id = $1) OR EXISTS (SELECT 1 FROM totp_secrets WHERE user_id = $1)`,
			u.ID).Scan(&second); err != nil {
			return fmt.Errorf("find a second factor: %w", err)
		}
		if !second {
			return problem.New(problem.Precondition, "recovery codes replace a second factor; add one first")
		}
		if codes, err = newRecoveryCodes(ctx, tx, u.ID); err != nil {
			return err
		}
		return s.recordChangeTx(ctx, tx, u, "recovery_codes.created", nil, "New recovery codes were created for your account. Earlier ones no longer work.")
	})
	return codes, err
}

// verifyRecoveryCode returns the stored digest of an unused code. The caller uses it up
// with [Service.useRecoveryCode].
func (s *Service) verifyRecoveryCode(ctx context.Context, userID, code string) ([]byte, error) {
	type stored struct{ digest, salt []byte }
	list, err := db.All(ctx, s.db, func(row db.Row) (stored, error) {
		var c stored
		err := row.Scan(&c.digest, &c.salt)
		return c, err
	}, "SELECT digest, salt FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL", userID)
	if err != nil {
		return nil, fmt.Errorf("find recovery codes: %w", err)
	}
	typed := strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(code))
	var match []byte
	for _, c := range list {
		if subtle.ConstantTimeCompare(recoveryDigest(c.salt, typed), c.digest) == 1 {
			match = c.digest
		}
	}
	if match == nil {
		return nil, errWrongCode()
	}
	return match, nil
}

// useRecoveryCode accepts a code once and mails the user about its use.
func (s *Service) useRecoveryCode(ctx context.Context, tx *db.Tx, u account.User, digest []byte) error {
	n, err := tx.Exec(ctx, "UPDATE recovery_codes SET used_at = $3 WHERE user_id = $1 AND digest = $2 AND used_at IS NULL", u.ID, digest, tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("use recovery code: %w", err)
	}
	if n == 0 {
		return errWrongCode()
	}
	var left int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL", u.ID).Scan(&left); err != nil {
		return fmt.Errorf("count recovery codes: %w", err)
	}
	ctx = audit.WithActor(ctx, audit.Actor{Type: audit.User, ID: u.ID, Email: u.Email})
	return s.recordChangeTx(ctx, tx, u, "recovery_code.used", map[string]any{"left": left}, fmt.Sprintf("A recovery code of your account was used. %d are left.", left))
}
