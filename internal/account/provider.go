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

// ProviderCallbackPath is where an identity provider sends browsers back to,
// below the base URL.
const ProviderCallbackPath = "/api/auth/provider/callback"

// Provider is the identity provider: OpenID Connect's authorization code flow
// with PKCE (package oidc). It is safe for concurrent use.
type Provider interface {
	// AuthorizationURL returns where a browser goes to sign in.
	AuthorizationURL(ctx context.Context, p ProviderSecrets) (string, error)

	// Exchange returns who signed in, given the code and, where it was sent,
	// the issuer (RFC 9207) that came back to the callback. What the provider
	// or its word did wrong is a [problem.Invalid] that may be shown; one that
	// does not answer is [problem.Unavailable].
	Exchange(ctx context.Context, code, issuer string, p ProviderSecrets) (ProviderIdentity, error)
}

// ProviderSecrets tie a callback to the request that it answers.
type ProviderSecrets struct {
	State    string
	Nonce    string // comes back inside the ID token
	Verifier string // of PKCE (RFC 7636)
}

// ProviderIdentity is a person as the provider knows them. Issuer and subject
// identify them for good (OpenID Connect Core 1.0, section 5.7); an e-mail address
// may pass to another person.
type ProviderIdentity struct {
	Issuer        string
	Subject       string
	Email         string
	EmailVerified bool
	Name          string // empty when not known
	Picture       string // URL; empty when not known
}

// ProviderLife is how long a browser may stay at the identity provider.
const ProviderLife = LinkLife

// ProviderSignIn is the input of auth.signInWithProvider.
type ProviderSignIn struct {
	RedirectTo string `json:"redirectTo,omitempty"` // where the sign-in leads in the end; empty means home
}

// HasProvider reports whether anybody can sign in with an identity provider.
func (s *Service) HasProvider() bool { return s.provider != nil }

// SignInWithProvider returns where a browser goes to sign in at the identity
// provider, and the intent that it keeps meanwhile, as for
// [Service.SignInWithEmail]: only the browser that asked can come back. Without
// a provider it is a [problem.Precondition].
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
		if _, err := tx.Exec(ctx, "INSERT INTO provider_logins (digest, intent, redirect, created_at) VALUES ($1, $2, $3, $4)",
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

// providerSecrets derives what ties a callback to its request from what the
// browser keeps and the state: whoever sees the state pass by can make neither
// the verifier nor the nonce, and nothing of it needs to be stored.
func providerSecrets(asker, state token) ProviderSecrets {
	derive := func(label string) string {
		m := hmac.New(sha256.New, asker[:])
		m.Write([]byte(label))
		m.Write(state[:])
		return tokenEncoding.EncodeToString(m.Sum(nil))
	}
	return ProviderSecrets{State: state.encode(), Nonce: derive("provider nonce"), Verifier: derive("provider verifier")}
}

// ProviderAnswer is what a browser brings back from the identity provider.
type ProviderAnswer struct {
	State  string
	Code   string
	Issuer string // RFC 9207; empty when the provider does not say
	Error  string // RFC 6749 4.1.2.1; empty when it went well
}

// FinishProvider opens a session for the browser that comes back. The user is the
// one with the identity of the provider. An identity that is new here links to the
// user with the e-mail address that the provider has verified; a first sign-in
// creates that user, or is a [problem.Forbidden] for an address that the sign-up
// policy does not admit. Other failures are a [problem.Invalid] that says why.
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
			// Somebody else's answer, in a browser that did not ask for it.
			return errStateMismatch()
		}
		if err != nil {
			return fmt.Errorf("find provider login: %w", err)
		}
		expired = tx.Now.Sub(createdAt) >= ProviderLife
		// Used up before the provider is asked: a code is good for one attempt.
		if _, err := tx.Exec(ctx, "DELETE FROM provider_logins WHERE digest = $1", state.digest()); err != nil {
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
		return SignIn{}, problem.New(problem.Invalid, "The identity provider refused the sign-in.").Because(fmt.Errorf("it answered %q", a.Error))
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

// presentable is a name as the provider tells it, or none if it would not do.
func presentable(name string) string {
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
