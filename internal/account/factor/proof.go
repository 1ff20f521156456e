package factor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Mailed codes, for users without another factor.
const (
	mailedLife     = 10 * time.Minute
	mailedAttempts = 5 // wrong attempts per code
	mailedDigits   = 8
	mailedPurpose  = "mailed proof code"
)

// Answer is a proof of identity; exactly one field is set.
type Answer struct {
	Code         string // of the authenticator app
	RecoveryCode string
	Passkey      string // the result of navigator.credentials.get, as JSON
	Password     string
	MailedCode   string
}

// verified is a correct answer. use, called in the transaction that accepts it, makes it
// valid once only.
type verified struct {
	second bool // the answer is a second factor
	use    func(ctx context.Context, tx *db.Tx) error
}

// Options are the answers that a user can give.
type Options struct {
	Code     bool
	Recovery bool
	Passkey  string // argument of navigator.credentials.get as JSON; empty: no passkeys
	Password bool
	Mail     bool // a mailed code, the only option
}

// PendingOptions returns the options to complete a sign-in.
func (s *Service) PendingOptions(ctx context.Context, p account.PendingSignIn) (Options, error) {
	st, err := s.State(ctx, p.User.ID)
	if err != nil {
		return Options{}, err
	}
	if p.RecoveryOnly {
		return Options{Recovery: st.RecoveryCodes > 0}, nil
	}
	return s.secondOptions(st, toComplete, p.ID)
}

func (s *Service) secondOptions(st State, p purpose, subject string) (Options, error) {
	o := Options{Code: st.TOTP, Recovery: st.RecoveryCodes > 0}
	var err error
	if len(st.Passkeys) > 0 && s.relying != nil {
		o.Passkey, err = s.requestOptions(p, subject, st.Passkeys)
	}
	return o, err
}

// ProofOptions returns the options to prove the caller's identity. If a sign-in would
// need two factors and the session has one, only a second factor does.
func (s *Service) ProofOptions(ctx context.Context, id account.Identity) (Options, error) {
	st, err := s.State(ctx, id.UserID)
	if err != nil {
		return Options{}, err
	}
	o, err := s.secondOptions(st, toProve, id.SessionID)
	if err != nil {
		return Options{}, err
	}
	strict, err := s.secondOnly(ctx, id)
	if err != nil || strict {
		return o, err
	}
	o.Password = st.Proves
	o.Mail = !st.Proves && !st.Second()
	return o, nil
}

// secondOnly reports whether the caller must prove a second factor.
func (s *Service) secondOnly(ctx context.Context, id account.Identity) (bool, error) {
	if id.SecondFactor {
		return false, nil
	}
	return s.accounts.SecondFactorDue(ctx, s.db, id.UserID)
}

// Complete checks the second factor of a sign-in, a code of the authenticator app, a
// recovery code or a passkey, and opens the session. A wrong answer is
// [problem.Unauthorized] or, for a passkey, [problem.Invalid]; the sign-in stays pending.
func (s *Service) Complete(ctx context.Context, pendingToken string, a Answer, c account.Client) (account.SignIn, error) {
	p, err := s.accounts.Pending(ctx, pendingToken)
	if err != nil {
		return account.SignIn{}, err
	}
	a.Password, a.MailedCode = "", "" // not second factors
	if p.RecoveryOnly {
		a = Answer{RecoveryCode: a.RecoveryCode}
	}
	v, err := s.verify(ctx, p.User, toComplete, p.ID, a)
	if err != nil {
		return account.SignIn{}, err
	}
	var in account.SignIn
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if err := v.use(ctx, tx); err != nil {
			return err
		}
		var err error
		in, err = s.accounts.CompleteTx(ctx, tx, p, c)
		return err
	})
	return in, err
}

// Prove records a fresh proof of the caller's identity. Errors are those of
// [Service.Complete]; an answer of an option that the caller does not have is
// [problem.Unauthorized].
func (s *Service) Prove(ctx context.Context, id account.Identity, a Answer) error {
	strict, err := s.secondOnly(ctx, id)
	if err != nil {
		return err
	}
	if strict {
		a.Password, a.MailedCode = "", ""
	}
	v, err := s.verify(ctx, id.User, toProve, id.SessionID, a)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := v.use(ctx, tx); err != nil {
			return err
		}
		return s.accounts.ProveTx(ctx, tx, id.SessionID, v.second)
	})
}

// verify checks a user's answer. Guessable answers count as an attempt first.
func (s *Service) verify(ctx context.Context, u account.User, p purpose, subject string, a Answer) (verified, error) {
	if a.Passkey != "" {
		got, err := s.verifyAssertion(ctx, p, subject, a.Passkey)
		if err == nil && got.user.ID != u.ID {
			err = errUnknownPasskey()
		}
		if problem.Of(err) == problem.Invalid {
			s.recordRefusal(ctx, u, "passkey")
		}
		return verified{true, func(ctx context.Context, tx *db.Tx) error { return s.acceptAssertion(ctx, tx, got) }}, err
	}
	if a == (Answer{}) {
		return verified{}, problem.New(problem.Unauthorized, "no code, passkey or password was given")
	}
	if err := s.allow(ctx, u); err != nil {
		return verified{}, err
	}
	v, method, err := s.verifyGuessable(ctx, u, subject, a)
	if problem.Of(err) == problem.Unauthorized {
		s.recordRefusal(ctx, u, method)
	}
	return v, err
}

// verifyGuessable checks a typed answer and returns its method.
func (s *Service) verifyGuessable(ctx context.Context, u account.User, subject string, a Answer) (v verified, method string, err error) {
	switch {
	case a.Code != "":
		step, err := s.verifyTOTP(ctx, u.ID, a.Code)
		return verified{true, func(ctx context.Context, tx *db.Tx) error { return useStep(ctx, tx, u.ID, step) }}, "totp", err
	case a.RecoveryCode != "":
		digest, err := s.verifyRecoveryCode(ctx, u.ID, a.RecoveryCode)
		return verified{true, func(ctx context.Context, tx *db.Tx) error { return s.useRecoveryCode(ctx, tx, u, digest) }}, "recovery code", err
	case a.Password != "":
		ok, err := s.accounts.CheckPassword(ctx, u.ID, a.Password)
		if err == nil && !ok {
			err = problem.New(problem.Unauthorized, "the password is wrong")
		}
		return verified{false, func(context.Context, *db.Tx) error { return nil }}, "password", err
	}
	err = s.verifyMailed(ctx, subject, a.MailedCode)
	return verified{false, func(ctx context.Context, tx *db.Tx) error { return useMailed(ctx, tx, subject) }}, "mailed code", err
}

// MailCode mails the caller a code that proves their identity and replaces earlier codes.
// A user with another factor gets a [problem.Precondition].
func (s *Service) MailCode(ctx context.Context, id account.Identity) error {
	st, err := s.State(ctx, id.UserID)
	if err != nil {
		return err
	}
	if st.Proves || st.Second() {
		return problem.New(problem.Precondition, "use your password, passkey or authenticator app")
	}
	if ok, wait := s.mails.Allow(ctx, id.UserID); !ok {
		return errTooMany("codes", wait)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1e8))
	if err != nil {
		return fmt.Errorf("generate a code: %w", err)
	}
	code := fmt.Sprintf("%0*d", mailedDigits, n)
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Queue(ctx, `INSERT INTO proof_codes (session_id, mac, tries, created_at) VALUES ($1, $2, 0, $3)
			ON CONFLICT (session_id) DO UPDATE SET mac = excluded.mac, tries = 0, created_at = excluded.created_at`,
			id.SessionID, s.box.MAC(mailedPurpose, id.SessionID, code), tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("insert mailed code: %w", err)
		}
		return s.accounts.SendMailTx(ctx, tx, id.User.Email, mail.Notification{
			Subject: "Your Kickstand code",
			Before:  []string{"Enter this code to confirm that it is you:", groupSecret(code)},
			After: []string{
				fmt.Sprintf("It works once, for %d minutes, in the browser that requested it.", mailedLife/time.Minute),
				"If you did not request it, somebody is using one of your sessions: sign in and end your other sessions in the settings.",
			},
		})
	})
}

// verifyMailed checks a mailed code of a session. It counts wrong ones.
func (s *Service) verifyMailed(ctx context.Context, sessionID, code string) error {
	code = strings.ReplaceAll(strings.TrimSpace(code), " ", "")
	var right bool
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var mac []byte
		var tries int
		var createdAt time.Time
		err := tx.QueryRow(ctx, "SELECT mac, tries, created_at FROM proof_codes WHERE session_id = $1 FOR UPDATE", sessionID).
			Scan(&mac, &tries, db.IntoTime(&createdAt))
		if errors.Is(err, db.ErrNoRows) || err == nil && (tries >= mailedAttempts || tx.Now.Sub(createdAt) >= mailedLife) {
			right = false
			return nil
		}
		if err != nil {
			return fmt.Errorf("find mailed code: %w", err)
		}
		if right = s.box.VerifyMAC(mailedPurpose, mac, sha256.Size, sessionID, code); right {
			return nil
		}
		if err := tx.Queue(ctx, "UPDATE proof_codes SET tries = tries + 1 WHERE session_id = $1", sessionID); err != nil {
			return fmt.Errorf("count wrong code: %w", err)
		}
		return nil
	})
	if err == nil && !right {
		err = problem.New(problem.Unauthorized, "the code is wrong or too old; request another one")
	}
	return err
}

// useMailed accepts a mailed code once.
func useMailed(ctx context.Context, tx *db.Tx, sessionID string) error {
	n, err := tx.Exec(ctx, "DELETE FROM proof_codes WHERE session_id = $1", sessionID)
	if err != nil {
		return fmt.Errorf("use mailed code: %w", err)
	}
	if n == 0 {
		return errWrongCode()
	}
	return nil
}

// Fresh reports whether the caller's proof of identity is recent enough for a sensitive
// change.
func (s *Service) Fresh(id account.Identity) bool {
	return s.fresh == 0 || s.db.Now().Sub(id.ProvenAt) < s.fresh
}

// RequireFresh returns a [problem.Precondition] with the code
// [account.FreshProofRequired] unless [Service.Fresh].
func (s *Service) RequireFresh(id account.Identity) error {
	if s.Fresh(id) {
		return nil
	}
	return &problem.Error{
		Kind: problem.Precondition, Code: account.FreshProofRequired,
		Message: fmt.Sprintf("prove your identity first: the last proof is older than %d minutes", int(s.fresh.Minutes())),
	}
}

// Forms interrupted by a proof of identity.
const (
	formPurpose = "interrupted form"
	formLife    = time.Hour
)

// SealForm encrypts a submitted form until its sender has proven their identity. It opens
// only in the same session, for the same address, within an hour.
func (s *Service) SealForm(id account.Identity, address, form string) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(s.db.Now().Add(formLife).Unix()))
	return base64.RawURLEncoding.EncodeToString(s.box.Seal(formPurpose, append(text, form...), id.SessionID+" "+address))
}

// OpenForm decrypts a form of [Service.SealForm]. Any other text is [problem.Invalid].
func (s *Service) OpenForm(id account.Identity, address, sealed string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		raw, err = s.box.Open(formPurpose, raw, id.SessionID+" "+address)
	}
	if err != nil || len(raw) < 8 || s.db.Now().Unix() >= int64(binary.BigEndian.Uint64(raw)) {
		return "", problem.New(problem.Invalid, "this page was open for too long; submit the form again")
	}
	return string(raw[8:]), nil
}
