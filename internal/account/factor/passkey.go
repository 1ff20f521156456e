package factor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"
)

const (
	maxPasskeys    = 20 // per user
	maxPasskeyName = 80 // characters
)

// Passkey is a credential of a user's authenticator.
type Passkey struct {
	ID        string
	UserID    string
	Name      string
	CreatedAt time.Time
	UsedAt    time.Time // zero: never

	credential webauthn.Credential
}

// Synced reports whether the passkey has copies on other devices of its owner.
func (p *Passkey) Synced() bool { return p.credential.Flags.BackupState }

const passkeyColumns = "id, user_id, name, created_at, used_at, credential"

func scanPasskey(row db.Row) (Passkey, error) {
	var p Passkey
	var credential []byte
	if err := row.Scan(&p.ID, &p.UserID, &p.Name, db.IntoTime(&p.CreatedAt), db.IntoTime(&p.UsedAt), &credential); err != nil {
		return Passkey{}, err
	}
	if err := json.Unmarshal(credential, &p.credential); err != nil {
		return Passkey{}, fmt.Errorf("passkey %s: %w", p.ID, err)
	}
	return p, nil
}

// Passkeys returns a user's passkeys, oldest first.
func (s *Service) Passkeys(ctx context.Context, userID string) ([]Passkey, error) {
	return passkeys(ctx, s.db, userID)
}

func passkeys(ctx context.Context, q db.Querier, userID string) ([]Passkey, error) {
	list, err := db.All(ctx, q, scanPasskey, "SELECT "+passkeyColumns+" FROM passkeys WHERE user_id = $1 ORDER BY id", userID)
	if err != nil {
		return nil, fmt.Errorf("list passkeys: %w", err)
	}
	return list, nil
}

// webauthnUser implements [webauthn.User].
type webauthnUser struct {
	account.User
	passkeys []Passkey
}

// WebAuthnID returns the user handle, which has no personal data (WebAuthn 14.6.1).
func (o webauthnUser) WebAuthnID() []byte { return handle(o.ID) }

func handle(userID string) []byte {
	id, err := uuid.Parse(userID)
	if err != nil {
		return []byte(userID)
	}
	return id[:]
}

func (o webauthnUser) WebAuthnName() string { return o.Email }

func (o webauthnUser) WebAuthnDisplayName() string {
	if o.Name == "" {
		return o.Email
	}
	return o.Name
}

func (o webauthnUser) WebAuthnCredentials() []webauthn.Credential {
	list := make([]webauthn.Credential, len(o.passkeys))
	for i, p := range o.passkeys {
		list[i] = p.credential
	}
	return list
}

// RegistrationOptions returns the argument of navigator.credentials.create for a
// new passkey of the caller, as JSON.
func (s *Service) RegistrationOptions(ctx context.Context, id account.Identity) (string, error) {
	if s.relying == nil {
		return "", errNoPasskeys()
	}
	list, err := s.Passkeys(ctx, id.UserID)
	if err != nil {
		return "", err
	}
	o := webauthnUser{id.User, list}
	options, _, err := s.relying.BeginRegistration(o, webauthn.WithExclusions(webauthn.Credentials(o.WebAuthnCredentials()).CredentialDescriptors()))
	if err != nil {
		return "", fmt.Errorf("begin registration: %w", err)
	}
	options.Response.Challenge = s.newChallenge(toRegister, id.SessionID, s.db.Now())
	return encode(options)
}

func encode(options any) (string, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return "", fmt.Errorf("encode options of a passkey: %w", err)
	}
	return string(text), nil
}

func errNoPasskeys() error {
	return problem.New(problem.Precondition, "passkeys need a host name and https, which this server's address lacks")
}

// AddPasskey stores a new passkey: response is the result of navigator.credentials.create
// as JSON. The caller's session then has two factors. A response that does not verify is
// [problem.Invalid]; too many passkeys are [problem.Conflict].
func (s *Service) AddPasskey(ctx context.Context, id account.Identity, name, response string) (Passkey, error) {
	if s.relying == nil {
		return Passkey{}, errNoPasskeys()
	}
	name, err := checkName(name)
	if err != nil {
		return Passkey{}, err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(response))
	if err != nil {
		return Passkey{}, errBadPasskey(err)
	}
	challenge := parsed.Response.CollectedClientData.Challenge
	if err := s.checkChallenge(toRegister, id.SessionID, challenge, s.db.Now()); err != nil {
		return Passkey{}, err
	}
	credential, err := s.relying.CreateCredential(webauthnUser{User: id.User}, webauthn.SessionData{
		Challenge: challenge, UserID: handle(id.UserID), UserVerification: protocol.VerificationRequired,
		CredParams: webauthn.CredentialParametersDefault(),
	}, parsed)
	if err != nil {
		return Passkey{}, errBadPasskey(err)
	}
	credential.Attestation = webauthn.CredentialAttestation{} // large, and useless without attestation
	text, err := json.Marshal(credential)
	if err != nil {
		return Passkey{}, fmt.Errorf("encode passkey: %w", err)
	}
	p := Passkey{ID: uuid.Must(uuid.NewV7()).String(), UserID: id.UserID, Name: name, credential: *credential}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		p.CreatedAt = tx.Now
		return s.insertPasskey(ctx, tx, id, p, text, challenge)
	})
	return p, err
}

func (s *Service) insertPasskey(ctx context.Context, tx *db.Tx, id account.Identity, p Passkey, credential []byte, challenge string) error {
	u, err := s.accounts.LockUserTx(ctx, tx, id.UserID)
	if err != nil {
		return err
	}
	if err := s.requireChangeAllowed(ctx, tx, id); err != nil {
		return err
	}
	var count int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM passkeys WHERE user_id = $1", u.ID).Scan(&count); err != nil {
		return fmt.Errorf("count passkeys: %w", err)
	}
	if count >= maxPasskeys {
		return problem.New(problem.Conflict, "you have %d passkeys; remove one first", count)
	}
	if err := useChallenge(ctx, tx, challenge); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `INSERT INTO passkeys (id, user_id, credential_id, credential, name, created_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (credential_id) DO NOTHING`, p.ID, u.ID, p.credential.ID, string(credential), p.Name, p.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("insert passkey: %w", err)
	}
	if n == 0 {
		return problem.New(problem.Conflict, "this passkey is in use already")
	}
	if err := s.accounts.ProveTx(ctx, tx, id.SessionID, true); err != nil {
		return err
	}
	return s.recordChangeTx(ctx, tx, u, "passkey.added", map[string]any{"name": p.Name},
		fmt.Sprintf("The passkey “%s” was added to your account. Anyone with it can sign in as you.", p.Name))
}

// checkName returns a valid passkey name, trimmed.
func checkName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		name = "Passkey"
	}
	var v problem.Validation
	v.Line("name", name, 1, maxPasskeyName)
	return name, v.Err()
}

func errBadPasskey(cause error) error {
	var details string
	if e, ok := errors.AsType[*protocol.Error](cause); ok { // its text leaves out the reason
		details = e.Details + ": " + e.DevInfo
	}
	return problem.New(problem.Invalid, "this passkey could not be verified; try again").Because(fmt.Errorf("%w %s", cause, details))
}

// RenamePasskey sets the name of one of the caller's passkeys. Another user's is
// [problem.NotFound].
func (s *Service) RenamePasskey(ctx context.Context, id account.Identity, passkeyID, name string) error {
	name, err := checkName(name)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE passkeys SET name = $3 WHERE id = $1 AND user_id = $2", passkeyID, id.UserID, name)
		if err != nil {
			return fmt.Errorf("rename passkey: %w", err)
		}
		if n == 0 {
			return errNoPasskey()
		}
		return nil
	})
}

func errNoPasskey() error { return problem.New(problem.NotFound, "there is no such passkey") }

// RemovePasskey deletes one of the caller's passkeys and ends their other sessions, which
// its holder may have opened. Another user's passkey is [problem.NotFound]; the last
// second factor is [problem.Conflict] if the organization requires one.
func (s *Service) RemovePasskey(ctx context.Context, id account.Identity, passkeyID string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := s.accounts.LockUserTx(ctx, tx, id.UserID)
		if err != nil {
			return err
		}
		p, err := db.One(ctx, tx, scanPasskey, "SELECT "+passkeyColumns+" FROM passkeys WHERE id = $1 AND user_id = $2", passkeyID, u.ID)
		if errors.Is(err, db.ErrNoRows) {
			return errNoPasskey()
		}
		if err != nil {
			return fmt.Errorf("find passkey: %w", err)
		}
		if err := s.requireChangeAllowed(ctx, tx, id); err != nil {
			return err
		}
		if err := requireFactorLeft(ctx, tx, u.ID); err != nil {
			return err
		}
		if err := tx.Queue(ctx, "DELETE FROM passkeys WHERE id = $1", p.ID); err != nil {
			return fmt.Errorf("delete passkey: %w", err)
		}
		if err := s.endFactorSessions(ctx, tx, id); err != nil {
			return err
		}
		return s.recordChangeTx(ctx, tx, u, "passkey.removed", map[string]any{"name": p.Name},
			fmt.Sprintf("The passkey “%s” was removed from your account. It no longer signs in, and all other sessions were signed out.", p.Name))
	})
}

// sameHandle reports whether a user handle is absent or the user's.
func sameHandle(got []byte, userID string) bool {
	return len(got) == 0 || bytes.Equal(got, handle(userID))
}
