// Package oidc implements [account.Provider]: OpenID Connect's authorization code flow
// (OpenID Connect Core 1.0, section 3.1) with PKCE (RFC 7636).
//
// A [Provider] fetches the identity provider's metadata on first use and caches it for a
// day; starting the server does not need it. Requests are bounded in time and size,
// redirects are not followed, and no response text reaches a log or a user: error texts
// of some providers repeat codes, tokens and the client's secret.
package oidc

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	metadataAge   = 24 * time.Hour   // lifetime of cached metadata
	metadataRetry = 10 * time.Minute // wait after a failed fetch
	requestLimit  = 10 * time.Second // for one request to the provider
	exchangeLimit = 20 * time.Second // for all requests of one sign-in
	extrasLimit   = 3 * time.Second  // for optional requests of a sign-in
)

// Config configures a [Provider].
type Config struct {
	Issuer       string // as the provider spells it
	ClientID     string
	ClientSecret string // empty for a public client
	RedirectURL  string // callback URL

	// Transport sends requests to the provider; nil: dial, through HTTPS_PROXY if set.
	Transport http.RoundTripper
	Logger    *slog.Logger // nil: no log

	// Now returns the time at which ID tokens must be valid; nil: by the process's clock.
	Now func() time.Time
}

// Provider is an identity provider as configured for one client. It is safe for
// concurrent use.
type Provider struct {
	issuer string
	client *http.Client
	oauth  oauth2.Config // without the endpoint
	log    *slog.Logger
	now    func() time.Time // nil: by the process's clock

	discovery  singleflight.Group
	discovered atomic.Pointer[metadata] // nil until a discovery succeeds
}

var _ account.Provider = (*Provider)(nil)

// New returns a provider. It makes no requests; an error means that c is invalid.
func New(c Config) (*Provider, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, fmt.Errorf("issuer of the identity provider: %w", err)
	}
	if err := checkURL(c.RedirectURL, "https", "http"); err != nil {
		return nil, fmt.Errorf("redirect URL for the identity provider: %w", err)
	}
	if c.ClientID == "" {
		return nil, errors.New("the identity provider needs a client ID")
	}
	if c.Transport == nil {
		c.Transport = defaultTransport()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Provider{
		issuer: c.Issuer,
		now:    c.Now,
		client: &http.Client{
			Transport:     boundedTransport{c.Transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       requestLimit,
		},
		oauth: oauth2.Config{
			ClientID:     c.ClientID,
			ClientSecret: c.ClientSecret,
			RedirectURL:  c.RedirectURL,
			Scopes:       []string{oidc.ScopeOpenID, oidc.ScopeEmail, oidc.ScopeProfile},
		},
		log: c.Logger,
	}, nil
}

// CheckIssuer checks an issuer URL. Its error completes a sentence about the issuer.
func CheckIssuer(issuer string) error { return checkURL(issuer, "https", "http") }

// checkURL refuses a URL that is not absolute or has none of the schemes.
func checkURL(raw string, schemes ...string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("is not a URL") // the parser's error quotes the URL, which may have a password
	case u.Host == "" || !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("must begin with %s://", strings.Join(schemes, ":// or "))
	case u.User != nil || u.Fragment != "":
		return errors.New("must have neither a user name nor a fragment")
	}
	return nil
}

// metadata is the result of discovery.
type metadata struct {
	goodUntil  time.Time
	provider   *oidc.Provider
	keys       *oidc.RemoteKeySet
	oauth      oauth2.Config
	algorithms []string // signature algorithms of ID tokens; empty: RS256 only
	sendsIss   bool     // in every callback (RFC 9207)
}

// metadata returns the cached result of discovery, or runs one if there is none or it is
// too old; while the provider is down, the old result stays in use. Concurrent callers
// share one discovery, which the end of a caller's context does not cancel. Its error is
// a [problem.Unavailable].
func (p *Provider) metadata(ctx context.Context) (*metadata, error) {
	if m := p.discovered.Load(); m != nil && time.Now().Before(m.goodUntil) {
		return m, nil
	}
	done := p.discovery.DoChan("", func() (any, error) {
		old := p.discovered.Load()
		if old != nil && time.Now().Before(old.goodUntil) {
			return old, nil // stored by a concurrent call
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
		defer cancel()
		m, err := p.discover(ctx)
		if err != nil && old != nil {
			p.log.WarnContext(ctx, "identity provider not rediscovered", "issuer", p.issuer, "error", err)
			kept := *old
			kept.goodUntil = time.Now().Add(metadataRetry)
			p.discovered.Store(&kept)
			return &kept, nil
		}
		if err != nil {
			return nil, err
		}
		m.goodUntil = time.Now().Add(metadataAge)
		p.discovered.Store(m)
		p.log.InfoContext(ctx, "identity provider discovered", "issuer", p.issuer)
		return m, nil
	})
	select {
	case <-ctx.Done():
		return nil, unavailable("wait for discovery", ctx.Err())
	case r := <-done:
		if r.Err != nil {
			return nil, unavailable("discovery", r.Err)
		}
		return r.Val.(*metadata), nil
	}
}

func (p *Provider) discover(ctx context.Context) (*metadata, error) {
	ctx = oidc.ClientContext(ctx, p.client)
	provider, err := oidc.NewProvider(ctx, p.issuer)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Authorization string   `json:"authorization_endpoint"`
		Token         string   `json:"token_endpoint"`
		UserInfo      string   `json:"userinfo_endpoint"`
		Keys          string   `json:"jwks_uri"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
		AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
		SendsIss      bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := provider.Claims(&doc); err != nil {
		return nil, err
	}
	schemes := []string{"https"}
	if strings.HasPrefix(p.issuer, "http:") {
		schemes = append(schemes, "http") // for development
	}
	for _, endpoint := range []struct{ name, url string }{
		{"authorization_endpoint", doc.Authorization},
		{"token_endpoint", doc.Token},
		{"jwks_uri", doc.Keys},
		{"userinfo_endpoint", cmp.Or(doc.UserInfo, doc.Token)}, // optional
	} {
		if err := checkURL(endpoint.url, schemes...); err != nil {
			return nil, fmt.Errorf("%s %w", endpoint.name, err)
		}
	}
	m := &metadata{
		provider:   provider,
		keys:       oidc.NewRemoteKeySet(ctx, doc.Keys),
		oauth:      p.oauth,
		algorithms: slices.DeleteFunc(doc.Algorithms, func(a string) bool { return !slices.Contains(algorithms, a) }),
		sendsIss:   doc.SendsIss,
	}
	m.oauth.Endpoint = provider.Endpoint()
	// Trying both ways would send a code twice, which providers treat as theft. The
	// secret goes into the body if the metadata allows it: encodings of the header differ
	// between providers.
	m.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if p.oauth.ClientSecret == "" || slices.Contains(doc.AuthMethods, "client_secret_post") {
		m.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return m, nil
}

// algorithms are the accepted signature algorithms of ID tokens: with a key of the
// provider, not the client's secret and not "none".
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// AuthorizationURL implements [account.Provider].
func (p *Provider) AuthorizationURL(ctx context.Context, s account.ProviderSecrets) (string, error) {
	m, err := p.metadata(ctx)
	if err != nil {
		return "", err
	}
	return m.oauth.AuthCodeURL(s.State, oidc.Nonce(s.Nonce), oauth2.S256ChallengeOption(s.Verifier)), nil
}

// Exchange implements [account.Provider]. E-mail address and verification always come
// from the same source. Name and address are not validated; the picture must be a URL
// that a page can load.
func (p *Provider) Exchange(ctx context.Context, code, issuer string, s account.ProviderSecrets) (account.ProviderIdentity, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeLimit)
	defer cancel()
	m, err := p.metadata(ctx)
	if err != nil {
		return account.ProviderIdentity{}, err
	}
	// Checked before the code is sent anywhere: it may be another provider's (RFC 9207).
	if issuer == "" && m.sendsIss {
		return account.ProviderIdentity{}, problem.New(problem.Invalid, "The response does not name its identity provider.")
	}
	if issuer != "" && issuer != p.issuer {
		return account.ProviderIdentity{}, problem.New(problem.Invalid, "The response is from another identity provider.")
	}
	if code == "" || s.Nonce == "" || s.Verifier == "" {
		return account.ProviderIdentity{}, errCodeUsed(nil)
	}

	ctx = oidc.ClientContext(ctx, p.client)
	token, err := m.oauth.Exchange(ctx, code, oauth2.VerifierOption(s.Verifier))
	if err != nil {
		return account.ProviderIdentity{}, exchangeError(err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return account.ProviderIdentity{}, errUnverified("the response has no ID token")
	}
	subject, who, err := p.verify(ctx, m, raw, token.AccessToken, s.Nonce)
	if err != nil {
		return account.ProviderIdentity{}, err
	}
	if err := p.complete(ctx, m, token, subject, &who); err != nil {
		return account.ProviderIdentity{}, err
	}
	id := who.identity()
	id.Issuer, id.Subject = p.issuer, subject
	return id, nil
}

// verify returns subject and claims of an ID token that satisfies OpenID Connect Core
// 1.0, section 3.1.3.7. Additional audiences are accepted, with or without azp, since
// some providers send them.
func (p *Provider) verify(ctx context.Context, m *metadata, raw, accessToken, nonce string) (subject string, who claims, err error) {
	keys := &keySet{remote: m.keys}
	verifier := oidc.NewVerifier(p.issuer, keys, &oidc.Config{ClientID: p.oauth.ClientID, SupportedSigningAlgs: m.algorithms, Now: p.now})
	token, err := verifier.Verify(ctx, raw)
	switch {
	case keys.fault != nil:
		return "", claims{}, unavailable("keys", keys.fault)
	case err != nil:
		return "", claims{}, errUnverified("%s", truncate(err))
	case token.Subject == "":
		return "", claims{}, errUnverified("the ID token has no subject")
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return "", claims{}, errUnverified("the ID token belongs to another request: its nonce differs")
	case token.AccessTokenHash != "" && token.VerifyAccessToken(accessToken) != nil:
		return "", claims{}, errUnverified("the ID token is for another access token")
	}
	if err := token.Claims(&who); err != nil {
		return "", claims{}, errUnverified("claims of the ID token: %s", truncate(err))
	}
	if who.AuthorizedParty != "" && who.AuthorizedParty != p.oauth.ClientID {
		return "", claims{}, errUnverified("the ID token was issued to another client")
	}
	return token.Subject, who, nil
}

// complete adds claims missing in the ID token from the userinfo endpoint. It fails
// without an e-mail address; the name is optional.
func (p *Provider) complete(ctx context.Context, m *metadata, token *oauth2.Token, subject string, who *claims) error {
	needed := who.Email == "" || who.EmailVerified == nil
	if m.provider.UserInfoEndpoint() == "" || !needed && who.Name != "" && who.Picture != "" {
		return nil
	}
	if !needed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, extrasLimit)
		defer cancel()
	}
	more, err := userInfo(ctx, m, token, subject)
	if err != nil {
		if needed {
			return err
		}
		p.log.WarnContext(ctx, "no name or picture from the identity provider", "error", err)
		return nil
	}
	switch {
	case who.Email == "":
		who.Email, who.EmailVerified = more.Email, more.EmailVerified
	case who.EmailVerified == nil && strings.EqualFold(who.Email, more.Email):
		who.EmailVerified = more.EmailVerified
	}
	who.Name = cmp.Or(who.Name, more.Name)
	who.Picture = cmp.Or(who.Picture, more.Picture)
	return nil
}

func userInfo(ctx context.Context, m *metadata, token *oauth2.Token, subject string) (claims, error) {
	info, err := m.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		if isTransportError(err) {
			return claims{}, unavailable("userinfo", err)
		}
		return claims{}, errUnverified("userinfo: %s", truncate(err))
	}
	if info.Subject != subject { // OpenID Connect Core 1.0, section 5.3.2
		return claims{}, errUnverified("the userinfo has another subject")
	}
	var more claims
	if err := info.Claims(&more); err != nil {
		return claims{}, errUnverified("userinfo: %s", truncate(err))
	}
	return more, nil
}

// claims are the claims about a person (OpenID Connect Core 1.0, section 5.1), and the
// authorized party.
type claims struct {
	Email           string        `json:"email"`
	EmailVerified   *boolOrString `json:"email_verified"` // nil: absent
	Name            string        `json:"name"`
	Picture         string        `json:"picture"`
	AuthorizedParty string        `json:"azp"`
}

func (c *claims) identity() account.ProviderIdentity {
	id := account.ProviderIdentity{
		Email:         c.Email,
		EmailVerified: c.EmailVerified != nil && bool(*c.EmailVerified),
		Name:          strings.TrimSpace(c.Name),
	}
	if checkURL(c.Picture, "https", "http") == nil {
		id.Picture = c.Picture
	}
	return id
}

// boolOrString is a boolean that some providers encode as a string. Any value but true or
// "true" is false.
type boolOrString bool

func (t *boolOrString) UnmarshalJSON(b []byte) error {
	*t = string(b) == "true" || string(b) == `"true"`
	return nil
}

// keySet is the provider's key set during one verification. It stores the error of
// fetching keys, which the verifier returns only as text.
type keySet struct {
	remote *oidc.RemoteKeySet
	fault  error
}

func (k *keySet) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, jwt)
	if isTransportError(err) {
		k.fault = err
	}
	return payload, err
}

// exchangeError maps an error of the token request to a [problem.Error]. The provider's
// text is left out: some providers repeat the code or the secret.
func exchangeError(err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		// RFC 6749, section 5.2.
		switch refused.ErrorCode {
		case "invalid_grant":
			return errCodeUsed(errors.New("token endpoint: invalid_grant"))
		case "invalid_request", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope":
			return unavailable("token endpoint refuses this client", errors.New(refused.ErrorCode))
		}
		return unavailable("token endpoint", fmt.Errorf("status %d", refused.Response.StatusCode))
	}
	if isTransportError(err) {
		return unavailable("token endpoint", err)
	}
	return errUnverified("the token endpoint's response has no tokens")
}

func errCodeUsed(cause error) error {
	return problem.New(problem.Invalid, "This sign-in is over or was used already. Please start again.").Because(cause)
}

// errUnverified returns the error for a response that fails verification. The cause is
// for the log.
func errUnverified(format string, args ...any) error {
	return problem.New(problem.Invalid, "The identity provider's response could not be verified. Please start again.").
		Because(fmt.Errorf(format, args...))
}

func unavailable(what string, cause error) error {
	return problem.New(problem.Unavailable, "The identity provider cannot be reached at the moment. Please try again later.").
		Because(fmt.Errorf("%s: %w", what, cause))
}
