package account

import "context"

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

// ProviderIdentity is a person as the provider knows them.
type ProviderIdentity struct {
	Email         string
	EmailVerified bool
	Name          string // empty when not known
	Picture       string // URL; empty when not known
}
