package factor

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
)

// TOTP parameters that every authenticator app supports.
const (
	stepSize      = 30 * time.Second
	skew          = 1  // accepted steps before and after the current one
	totpSecret    = 20 // bytes: 160 bits (RFC 4226, section 4)
	totpPurpose   = "totp secret"
	enrolPurpose  = "totp enrolment"
	enrolmentLife = time.Hour
)

var base32Plain = base32.StdEncoding.WithPadding(base32.NoPadding)

// Enrolment is a TOTP secret that is not active yet.
type Enrolment struct {
	Secret string // base32, in groups of four for typing
	URI    string // otpauth://…, the content of the QR code
	QR     QR
	Sealed string // for [Service.EnableTOTP]; opens in this session only
}

// BeginTOTP returns a new secret for the caller. It stores nothing.
func (s *Service) BeginTOTP(id account.Identity) (Enrolment, error) {
	secret := make([]byte, totpSecret)
	rand.Read(secret) // never fails: crypto/rand ends the program instead
	plain := binary.BigEndian.AppendUint64(secret, uint64(s.db.Now().Add(enrolmentLife).Unix()))
	sealed := base64.RawURLEncoding.EncodeToString(s.box.Seal(enrolPurpose, plain, id.UserID+"/"+id.SessionID))
	return newEnrolment(secret, id.User.Email, sealed)
}

// ContinueTOTP returns the enrolment sealed by [Service.BeginTOTP]. One of another
// session, or older than an hour, is [problem.Invalid].
func (s *Service) ContinueTOTP(id account.Identity, sealed string) (Enrolment, error) {
	secret, err := s.openEnrolment(id, sealed)
	if err != nil {
		return Enrolment{}, err
	}
	return newEnrolment(secret, id.User.Email, sealed)
}

func newEnrolment(secret []byte, email, sealed string) (Enrolment, error) {
	text := base32Plain.EncodeToString(secret)
	uri := url.URL{Scheme: "otpauth", Host: "totp", Path: "/Kickstand:" + email, RawQuery: "secret=" + text + "&issuer=Kickstand"}
	code, err := newQR(uri.String())
	if err != nil {
		return Enrolment{}, err
	}
	return Enrolment{Secret: groupSecret(text), URI: uri.String(), QR: code, Sealed: sealed}, nil
}

// groupSecret separates text into groups of four.
func groupSecret(text string) string {
	var b strings.Builder
	for i, r := range text {
		if i > 0 && i%4 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (s *Service) openEnrolment(id account.Identity, sealed string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		raw, err = s.box.Open(enrolPurpose, raw, id.UserID+"/"+id.SessionID)
	}
	if err != nil || len(raw) != totpSecret+8 || s.db.Now().Unix() >= int64(binary.BigEndian.Uint64(raw[totpSecret:])) {
		return nil, problem.New(problem.Invalid, "this set-up has expired or belongs to another session; start again")
	}
	return raw[:totpSecret:totpSecret], nil
}

// EnableTOTP activates the enrolment in sealed if code is correct: the caller's sign-ins
// need codes from now on. It replaces an earlier app, ends the caller's other sessions
// and, for a first app, returns recovery codes. A wrong code is [problem.Unauthorized].
func (s *Service) EnableTOTP(ctx context.Context, id account.Identity, sealed, code string) (recoveryCodes []string, err error) {
	secret, err := s.openEnrolment(id, sealed)
	if err != nil {
		return nil, err
	}
	if err := s.allow(ctx, id.User); err != nil {
		return nil, err
	}
	step, ok, err := matchingStep(secret, code, s.db.Now())
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errWrongCode()
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := s.accounts.LockUserTx(ctx, tx, id.UserID)
		if err != nil {
			return err
		}
		if err := s.requireChangeAllowed(ctx, tx, id); err != nil {
			return err
		}
		recoveryCodes, err = s.storeTOTP(ctx, tx, id, u, s.box.Seal(totpPurpose, secret, u.ID), step)
		return err
	})
	return recoveryCodes, err
}

func (s *Service) storeTOTP(ctx context.Context, tx *db.Tx, id account.Identity, u account.User, sealed []byte, step int64) (recoveryCodes []string, err error) {
	var first, without bool
	if err := tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT 1 FROM totp_secrets WHERE user_id = $1),
		NOT EXISTS (SELECT 1 FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL)`, u.ID).Scan(&first, &without); err != nil {
		return nil, fmt.Errorf("find an authenticator app: %w", err)
	}
	if err := tx.Queue(ctx, `INSERT INTO totp_secrets (user_id, secret, last_step, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (user_id) DO UPDATE SET secret = excluded.secret, last_step = excluded.last_step, created_at = excluded.created_at`,
		u.ID, sealed, step, tx.Now.UnixMicro()); err != nil {
		return nil, fmt.Errorf("store totp secret: %w", err)
	}
	if without {
		if recoveryCodes, err = newRecoveryCodes(ctx, tx, u.ID); err != nil {
			return nil, err
		}
	}
	if err := s.accounts.ProveTx(ctx, tx, id.SessionID, true); err != nil {
		return nil, err
	}
	action, text := "totp.replaced", "Another authenticator app was set up for your account. The earlier one no longer works, and all other sessions were signed out."
	if first {
		action, text = "totp.enabled", "An authenticator app was set up for your account. Signing in requires its codes from now on, and all other sessions were signed out."
	}
	if err := s.accounts.EndSessionsTx(ctx, tx, u.ID, id.SessionID); err != nil {
		return nil, err
	}
	return recoveryCodes, s.recordChangeTx(ctx, tx, u, action, nil, text)
}

// DisableTOTP removes the caller's authenticator app and ends their other sessions.
// Without an app it is [problem.NotFound]; the last second factor is [problem.Conflict]
// if the organization requires one.
func (s *Service) DisableTOTP(ctx context.Context, id account.Identity) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := s.accounts.LockUserTx(ctx, tx, id.UserID)
		if err != nil {
			return err
		}
		if err := s.requireChangeAllowed(ctx, tx, id); err != nil {
			return err
		}
		if err := requireFactorLeft(ctx, tx, u.ID); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, "DELETE FROM totp_secrets WHERE user_id = $1", u.ID)
		if err != nil {
			return fmt.Errorf("delete totp secret: %w", err)
		}
		if n == 0 {
			return problem.New(problem.NotFound, "there is no authenticator app")
		}
		if err := s.endFactorSessions(ctx, tx, id); err != nil {
			return err
		}
		return s.recordChangeTx(ctx, tx, u, "totp.disabled", nil, "Your authenticator app was removed. Signing in no longer requires its codes. All other sessions were signed out.")
	})
}

func errWrongCode() error {
	return problem.New(problem.Unauthorized, "the code is wrong or was used already")
}

// verifyTOTP returns the time step of a code that is valid now. The caller uses it up
// with [useStep].
func (s *Service) verifyTOTP(ctx context.Context, userID, code string) (step int64, err error) {
	var sealed []byte
	err = s.db.QueryRow(ctx, "SELECT secret FROM totp_secrets WHERE user_id = $1", userID).Scan(&sealed)
	if errors.Is(err, db.ErrNoRows) {
		return 0, errWrongCode()
	}
	if err != nil {
		return 0, fmt.Errorf("find totp secret: %w", err)
	}
	secret, err := s.box.Open(totpPurpose, sealed, userID)
	if err != nil {
		return 0, fmt.Errorf("open totp secret of user %s: %w", userID, err)
	}
	step, ok, err := matchingStep(secret, code, s.db.Now())
	if err == nil && !ok {
		err = errWrongCode()
	}
	return step, err
}

// useStep accepts a time step once: steps up to the last accepted one are refused (RFC
// 6238, section 5.2).
func useStep(ctx context.Context, tx *db.Tx, userID string, step int64) error {
	n, err := tx.Exec(ctx, "UPDATE totp_secrets SET last_step = $2 WHERE user_id = $1 AND last_step < $2", userID, step)
	if err != nil {
		return fmt.Errorf("use code: %w", err)
	}
	if n == 0 {
		return errWrongCode()
	}
	return nil
}

// matchingStep returns the time step of code among the current one and its neighbours, in
// constant time.
func matchingStep(secret []byte, code string, now time.Time) (step int64, ok bool, err error) {
	code = strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, code)
	text := base32Plain.EncodeToString(secret)
	present := now.Unix() / int64(stepSize/time.Second)
	for at := present - skew; at <= present+skew; at++ {
		want, err := hotp.GenerateCodeCustom(text, uint64(at), hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err != nil {
			return 0, false, fmt.Errorf("compute code: %w", err)
		}
		if subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			step, ok = at, true
		}
	}
	return step, ok, nil
}
