package account

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ProviderCallbackPath is the path below the base URL to which an identity provider
// redirects.
const ProviderCallbackPath = "/api/auth/provider/callback"

// Provider is an identity provider: OpenID Connect's authorization code flow with PKCE
// (package oidc). It is safe for concurrent use.
type Provider interface {
	// AuthorizationURL returns the provider's sign-in URL.
	AuthorizationURL(ctx context.Context, p ProviderSecrets) (string, error)

	// Exchange returns the identity for the code and, if sent, the issuer (RFC 9207) of a
	// callback. A wrong response of the provider is a [problem.Invalid] with a message
	// for the user; a provider that does not respond is [problem.Unavailable].
	Exchange(ctx context.Context, code, issuer string, p ProviderSecrets) (ProviderIdentity, error)
}

// ProviderSecrets bind a callback to its request.
type ProviderSecrets struct {
	State    string
	Nonce    string // repeated in the ID token
	Verifier string // of PKCE (RFC 7636)
}

// ProviderIdentity is a person's identity at the provider. Issuer and subject identify it
// for good (OpenID Connect Core 1.0, section 5.7); an e-mail address may pass to another
// person.
type ProviderIdentity struct {
	Issuer        string
	Subject       string
	Email         string
	EmailVerified bool
	Name          string // empty: unknown
	Picture       string // URL; empty: unknown
}

// ProviderLife is the time for a sign-in at the identity provider.
const ProviderLife = LinkLife

// ProviderSignIn is the input of auth.signInWithProvider.
type ProviderSignIn struct {
	RedirectTo string `json:"redirectTo,omitempty"` // target after the sign-in; empty means home
}

// HasProvider reports whether an identity provider is configured.
func (s *Service) HasProvider() bool { return s.provider != nil }

// SignInWithProvider returns the provider's sign-in URL and the browser's intent to
// store, as for [Service.SignInWithEmail]: only the requesting browser can finish the
// sign-in. Without a provider it is a [problem.Precondition].
func (s *Service) SignInWithProvider(ctx context.Context, in ProviderSignIn, intent string, client Client) (url, keep string, err error) {
	var v problem.Validation
	redirect := s.redirects.check(&v, in.RedirectTo)
	if err := v.Err(); err != nil {
		return "", "", err
	}
	browser, err := s.recognize(ctx, "", client.Browser)
	if err != nil {
		return "", "", err
	}
	if err := s.providerAttempts.allow(ctx, Network(client.IP), browser, client); err != nil {
		return "", "", err
	}
	if s.provider == nil {
		return "", "", errNoProvider()
	}
	asker := browserSecret(intent)
	state := newToken()
	if url, err = s.provider.AuthorizationURL(ctx, providerSecrets(asker, state)); err != nil {
		return "", "", err
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Queue(ctx, "INSERT INTO provider_logins (digest, intent, redirect, created_at) VALUES ($1, $2, $3, $4)",
			state.digest(), asker.digest(), redirect, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("insert provider login: %w", err)
		}
		return nil
	})
	if err != nil {
		return "", "", err
	}
	return url, asker.encode(), nil
}

func errNoProvider() error {
	return problem.New(problem.Precondition, "sign-in with an identity provider is not set up here")
}

// providerSecrets derives the secrets of a sign-in from the browser's intent and the
// state: an observer of the state can compute neither verifier nor nonce, and nothing
// needs to be stored.
func providerSecrets(asker, state token) ProviderSecrets {
	derive := func(label string) string {
		m := hmac.New(sha256.New, asker[:])
		m.Write([]byte(label))
		m.Write(state[:])
		return tokenEncoding.EncodeToString(m.Sum(nil))
	}
	return ProviderSecrets{State: state.encode(), Nonce: derive("provider nonce"), Verifier: derive("provider verifier")}
}

// ProviderAnswer holds the parameters of the provider's callback.
type ProviderAnswer struct {
	State  string
	Code   string
	Issuer string // RFC 9207; empty: not sent
	Error  string // RFC 6749 4.1.2.1; empty: success
}

// FinishProvider opens a session for the browser that returns from the provider. The user
// is the one with the provider's identity. A new identity is linked to the user with the
// verified e-mail address; a first sign-in creates that user, or is a [problem.Forbidden]
// if the sign-up policy refuses the address. Other failures are a [problem.Invalid] with
// the reason.
func (s *Service) FinishProvider(ctx context.Context, a ProviderAnswer, intent string, client Client) (SignIn, error) {
	in, err := s.finishProvider(ctx, a, intent, client)
	switch problem.Of(err) {
	case problem.Invalid, problem.Forbidden, problem.Unauthorized:
		s.audit.Refuse(ctx, audit.Entry{Action: AuditSignInRefused, Target: audit.Target{Type: "user"}, Details: map[string]any{"method": string(ByProvider)}})
	}
	return in, err
}

func (s *Service) finishProvider(ctx context.Context, a ProviderAnswer, intent string, client Client) (SignIn, error) {
	if s.provider == nil {
		return SignIn{}, errNoProvider()
	}
	asker, asked := parseToken(intent)
	state, ok := parseToken(a.State)
	if !ok {
		return SignIn{}, errStateMismatch()
	}
	in := SignIn{}
	var expired bool
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var want []byte
		var createdAt time.Time
		err := tx.QueryRow(ctx, "SELECT intent, redirect, created_at FROM provider_logins WHERE digest = $1 FOR UPDATE", state.digest()).
			Scan(&want, &in.RedirectTo, db.IntoTime(&createdAt))
		if errors.Is(err, db.ErrNoRows) || err == nil && (!asked || subtle.ConstantTimeCompare(want, asker.digest()) != 1) {
			// The callback of another browser's sign-in.
			return errStateMismatch()
		}
		if err != nil {
			return fmt.Errorf("find provider login: %w", err)
		}
		expired = tx.Now.Sub(createdAt) >= ProviderLife
		// Deleted before the exchange: a code is good for one attempt.
		if err := tx.Queue(ctx, "DELETE FROM provider_logins WHERE digest = $1", state.digest()); err != nil {
			return fmt.Errorf("use up provider login: %w", err)
		}
		return nil
	})
	switch {
	case err != nil:
		return SignIn{}, err
	case expired:
		return SignIn{}, problem.New(problem.Invalid, "This sign-in took longer than %d minutes.", ProviderLife/time.Minute)
	case a.Error == "access_denied":
		return SignIn{}, problem.New(problem.Invalid, "The sign-in was cancelled.")
	case a.Error != "":
		return SignIn{}, problem.New(problem.Invalid, "The identity provider refused the sign-in.").Because(fmt.Errorf("it responded %q", a.Error))
	}
	who, err := s.provider.Exchange(ctx, a.Code, a.Issuer, providerSecrets(asker, state))
	if err != nil {
		return SignIn{}, err
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := s.identifiedUser(ctx, tx, who)
		if err != nil {
			return err
		}
		in.User = u
		return s.completeSignIn(ctx, tx, &in, ByProvider, client)
	})
	if err != nil {
		return SignIn{}, err
	}
	return in, nil
}

func errStateMismatch() error {
	return problem.New(problem.Invalid, "This sign-in was not started in this browser, or it was completed already.")
}

// validName returns the provider's name of a person, or an empty one if it is not a
// valid name.
func validName(name string) string {
	name = strings.TrimSpace(name)
	var v problem.Validation
	if v.Line("name", name, 0, 255); v.Err() != nil {
		return ""
	}
	return name
}

func picture(url string) string {
	if !webAddress(url) {
		return ""
	}
	return url
}
