package factor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
)

// challengeLife is the lifetime of a challenge, and so of a page with one.
const challengeLife = 30 * time.Minute

// purpose is the use of a challenge. An assertion for one purpose is refused for any
// other.
type purpose string

const (
	toSignIn   purpose = "sign in"
	toRegister purpose = "register"    // subject: a session
	toComplete purpose = "second step" // subject: a pending sign-in
	toProve    purpose = "fresh proof" // subject: a session
	macPurpose         = "passkey challenge"
)

// A challenge is nonce (16 bytes) | end (8 bytes, Unix seconds) | MAC (32 bytes).
const (
	nonceSize = 16
	headSize  = nonceSize + 8
)

// newChallenge returns a challenge for a purpose and a subject: the id of a session or of
// a pending sign-in.
func (s *Service) newChallenge(p purpose, subject string, now time.Time) []byte {
	c := make([]byte, nonceSize, headSize+sha256.Size)
	rand.Read(c) // never fails: crypto/rand ends the program instead
	c = binary.BigEndian.AppendUint64(c, uint64(now.Add(challengeLife).Unix()))
	return append(c, s.box.MAC(macPurpose, string(p), subject, string(c))...)
}

// checkChallenge refuses a challenge of another purpose or subject, and an expired one.
func (s *Service) checkChallenge(p purpose, subject, challenge string, now time.Time) error {
	c, err := base64.RawURLEncoding.Strict().DecodeString(challenge)
	if err != nil || len(c) != headSize+sha256.Size ||
		!s.box.VerifyMAC(macPurpose, c[headSize:], sha256.Size, string(p), subject, string(c[:headSize])) {
		return errBadPasskey(errors.New("the challenge has another purpose or subject"))
	}
	if now.Unix() >= int64(binary.BigEndian.Uint64(c[nonceSize:headSize])) {
		return problem.New(problem.Invalid, "this page was open for more than %d minutes; try again", challengeLife/time.Minute)
	}
	return nil
}

// useChallenge refuses a challenge that was used before.
func useChallenge(ctx context.Context, tx *db.Tx, challenge string) error {
	digest := sha256.Sum256([]byte(challenge))
	n, err := tx.Exec(ctx, "INSERT INTO passkey_challenges (digest, used_at) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING", digest[:], tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("use challenge: %w", err)
	}
	if n == 0 {
		return errBadPasskey(errors.New("the challenge was used before"))
	}
	return nil
}

// SignInOptions returns the argument of navigator.credentials.get for a sign-in
// with a discoverable passkey, as JSON.
func (s *Service) SignInOptions() (string, error) {
	return s.requestOptions(toSignIn, "", nil)
}

// requestOptions offers the given passkeys; none: any passkey of the authenticator for
// this server.
func (s *Service) requestOptions(p purpose, subject string, offered []Passkey) (string, error) {
	if s.relying == nil {
		return "", errNoPasskeys()
	}
	descriptors := webauthn.Credentials(webauthnUser{passkeys: offered}.WebAuthnCredentials()).CredentialDescriptors()
	options, _, err := s.relying.BeginDiscoverableLogin(webauthn.WithAllowedCredentials(descriptors),
		webauthn.WithChallenge(s.newChallenge(p, subject, s.db.Now())))
	if err != nil {
		return "", fmt.Errorf("begin assertion: %w", err)
	}
	return encode(options)
}

// assertion is a verified WebAuthn assertion.
type assertion struct {
	user      account.User
	passkeyID string
	challenge string
	counter   uint32
	flags     webauthn.CredentialFlags
}

// verifyAssertion verifies response, the result of navigator.credentials.get as JSON. It
// stores nothing; see [Service.acceptAssertion].
func (s *Service) verifyAssertion(ctx context.Context, p purpose, subject, response string) (assertion, error) {
	if s.relying == nil {
		return assertion{}, errNoPasskeys()
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(response))
	if err != nil {
		return assertion{}, errBadPasskey(err)
	}
	challenge := parsed.Response.CollectedClientData.Challenge
	if err := s.checkChallenge(p, subject, challenge, s.db.Now()); err != nil {
		return assertion{}, err
	}
	key, err := db.One(ctx, s.db, scanPasskey, "SELECT "+passkeyColumns+" FROM passkeys WHERE credential_id = $1", parsed.RawID)
	if errors.Is(err, db.ErrNoRows) {
		return assertion{}, errUnknownPasskey()
	}
	if err != nil {
		return assertion{}, fmt.Errorf("find passkey: %w", err)
	}
	if h := parsed.Response.UserHandle; !sameHandle(h, key.UserID) || p == toSignIn && len(h) == 0 {
		return assertion{}, errBadPasskey(errors.New("the user handle is another user's"))
	}
	u, err := s.accounts.User(ctx, key.UserID)
	if err != nil {
		return assertion{}, err
	}
	verified, err := s.relying.ValidateLogin(webauthnUser{u, []Passkey{key}}, webauthn.SessionData{
		Challenge: challenge, UserID: handle(u.ID), UserVerification: protocol.VerificationRequired,
	}, parsed)
	if err != nil {
		return assertion{}, errBadPasskey(err)
	}
	return assertion{u, key.ID, challenge, parsed.Response.AuthenticatorData.Counter, verified.Flags}, nil
}

func errUnknownPasskey() error {
	return problem.New(problem.Invalid, "unknown passkey; it may have been removed. Sign in another way")
}

// acceptAssertion uses up the challenge and stores the signature counter. A counter that
// does not grow is refused: the key was copied (WebAuthn 7.2, step 22).
func (s *Service) acceptAssertion(ctx context.Context, tx *db.Tx, a assertion) error {
	key, err := db.One(ctx, tx, scanPasskey, "SELECT "+passkeyColumns+" FROM passkeys WHERE id = $1 FOR UPDATE", a.passkeyID)
	if errors.Is(err, db.ErrNoRows) {
		return errUnknownPasskey() // removed concurrently
	}
	if err != nil {
		return fmt.Errorf("lock passkey: %w", err)
	}
	if err := useChallenge(ctx, tx, a.challenge); err != nil {
		return err
	}
	c := &key.credential
	c.Authenticator.CloneWarning = false
	if c.Authenticator.UpdateCounter(a.counter); c.Authenticator.CloneWarning {
		s.log.WarnContext(ctx, "a passkey's signature counter went back: the passkey may have been copied", "passkey", key.ID, "user", key.UserID)
		return errBadPasskey(errors.New("the signature counter did not grow"))
	}
	c.Flags = a.flags
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode passkey: %w", err)
	}
	if err := tx.Queue(ctx, "UPDATE passkeys SET credential = $2, used_at = $3 WHERE id = $1", key.ID, string(text), tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("update passkey: %w", err)
	}
	return nil
}

// SignIn opens a session for the owner of a passkey. It leads to redirectTo, a path of
// this server; empty: home. A response that does not verify is [problem.Invalid].
func (s *Service) SignIn(ctx context.Context, response, redirectTo string, c account.Client) (account.SignIn, error) {
	if ok, wait := s.addresses.Allow(ctx, account.Network(c.IP)); !ok {
		return account.SignIn{}, errTooMany("sign-in attempts", wait)
	}
	a, err := s.verifyAssertion(ctx, toSignIn, "", response)
	if err != nil {
		return account.SignIn{}, err
	}
	var in account.SignIn
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if err := s.acceptAssertion(ctx, tx, a); err != nil {
			return err
		}
		var err error
		in, err = s.accounts.AdmitTx(ctx, tx, a.user, redirectTo, c)
		return err
	})
	return in, err
}
