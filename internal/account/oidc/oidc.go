// Package oidc signs people in by an identity provider: OpenID Connect's
// authorization code flow (OpenID Connect Core 1.0, section 3.1) with PKCE
// (RFC 7636), for [account.Service].
//
// A [Provider] asks the identity provider for its metadata when it is first
// needed and keeps it for a day; a start does not depend on it. Whatever the
// provider answers is bounded in time and size, redirects are not followed, and
// no answer reaches a log or a person: codes, tokens and the client's secret
// come back in the error texts of some providers.
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
	metadataAge   = 24 * time.Hour   // after which the provider is asked for it anew
	metadataRetry = 10 * time.Minute // after such an asking that failed
	requestLimit  = 10 * time.Second // for one request to the provider
	exchangeLimit = 20 * time.Second // for all requests of one sign-in
	extrasLimit   = 3 * time.Second  // for what a sign-in can do without
)

// Config is what a [Provider] is made of.
type Config struct {
	Issuer       string // as the provider spells it
	ClientID     string
	ClientSecret string // empty for a public client
	RedirectURL  string // where the provider sends browsers back to

	// Transport reaches the provider; nil dials it, by way of the proxy that
	// HTTPS_PROXY names if it is set.
	Transport http.RoundTripper
	Logger    *slog.Logger // nil discards
}

// Provider is one identity provider as one of its clients sees it. It is safe
// for concurrent use.
type Provider struct {
	issuer string
	client *http.Client
	oauth  oauth2.Config // without the endpoint
	log    *slog.Logger

	discovery  singleflight.Group
	discovered atomic.Pointer[metadata] // nil until a discovery succeeded
}

var _ account.Provider = (*Provider)(nil)

// New returns a provider. It makes no requests; its error is one of the
// configuration.
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

// CheckIssuer refuses what cannot be the issuer of an identity provider. Its
// error is the rest of a sentence about the issuer.
func CheckIssuer(issuer string) error { return checkURL(issuer, "https", "http") }

// checkURL refuses what is no absolute URL with one of the schemes.
func checkURL(raw string, schemes ...string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("is not a URL") // the parser's error repeats it, with a password in it
	case u.Host == "" || !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("must begin with %s://", strings.Join(schemes, ":// or "))
	case u.User != nil || u.Fragment != "":
		return errors.New("must hold neither a user name nor a fragment")
	}
	return nil
}

// metadata is what discovery tells of the provider.
type metadata struct {
	goodUntil  time.Time
	provider   *oidc.Provider
	keys       *oidc.RemoteKeySet
	oauth      oauth2.Config
	algorithms []string // for signatures of ID tokens; empty for RS256 only
	sendsIss   bool     // with every answer (RFC 9207)
}

// metadata returns what discovery told, and has it done if it was not yet, or
// is long ago; then what was told before serves on while the provider is down.
// Whoever comes while it is under way waits for the same one; that one does not
// end with whoever asked first. Its error is a [problem.Unavailable].
func (p *Provider) metadata(ctx context.Context) (*metadata, error) {
	if m := p.discovered.Load(); m != nil && time.Now().Before(m.goodUntil) {
		return m, nil
	}
	done := p.discovery.DoChan("", func() (any, error) {
		old := p.discovered.Load()
		if old != nil && time.Now().Before(old.goodUntil) {
			return old, nil // while this call was on its way here
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
		defer cancel()
		m, err := p.discover(ctx)
		if err != nil && old != nil {
			p.log.WarnContext(ctx, "identity provider not discovered anew", "issuer", p.issuer, "error", err)
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
		{"userinfo_endpoint", cmp.Or(doc.UserInfo, doc.Token)}, // the one that may be missing
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
	// To try one way after the other would send a code twice, and providers
	// take that for a theft. The secret goes into the body where that is said
	// to work: of the header there is more than one reading.
	m.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if p.oauth.ClientSecret == "" || slices.Contains(doc.AuthMethods, "client_secret_post") {
		m.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return m, nil
}

// algorithms are those with which ID tokens may be signed: with a key of the
// provider's, as opposed to the client's secret or none at all.
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

// Exchange implements [account.Provider]. Of the identity, e-mail address and
// verification always come from one source. Nothing in it is checked, but that
// the picture is a URL that a page can show.
func (p *Provider) Exchange(ctx context.Context, code, issuer string, s account.ProviderSecrets) (account.ProviderIdentity, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeLimit)
	defer cancel()
	m, err := p.metadata(ctx)
	if err != nil {
		return account.ProviderIdentity{}, err
	}
	// Before the code goes anywhere: it may be another provider's (RFC 9207).
	if issuer == "" && m.sendsIss {
		return account.ProviderIdentity{}, problem.New(problem.Invalid, "The answer does not say which identity provider it is from.")
	}
	if issuer != "" && issuer != p.issuer {
		return account.ProviderIdentity{}, problem.New(problem.Invalid, "The answer is from another identity provider.")
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
		return account.ProviderIdentity{}, errUnverified("there is no ID token")
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

// verify returns whom an ID token is about and what it says of them, if what
// OpenID Connect Core 1.0 section 3.1.3.7 asks for is so. Further audiences
// beside us are let be, with or without azp, since some providers have them.
func (p *Provider) verify(ctx context.Context, m *metadata, raw, accessToken, nonce string) (subject string, who claims, err error) {
	keys := &keySet{remote: m.keys}
	verifier := oidc.NewVerifier(p.issuer, keys, &oidc.Config{ClientID: p.oauth.ClientID, SupportedSigningAlgs: m.algorithms})
	token, err := verifier.Verify(ctx, raw)
	switch {
	case keys.fault != nil:
		return "", claims{}, unavailable("keys", keys.fault)
	case err != nil:
		return "", claims{}, errUnverified("%s", truncate(err))
	case token.Subject == "":
		return "", claims{}, errUnverified("the ID token names no subject")
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return "", claims{}, errUnverified("the ID token answers another request: its nonce is not ours")
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

// complete asks the provider's userinfo endpoint for what the ID token did not
// tell. Without an e-mail address there is no sign-in, without a name there is.
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
		p.log.WarnContext(ctx, "identity provider tells no name or picture", "error", err)
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
		return claims{}, errUnverified("the userinfo is about somebody else")
	}
	var more claims
	if err := info.Claims(&more); err != nil {
		return claims{}, errUnverified("userinfo: %s", truncate(err))
	}
	return more, nil
}

// claims are what a provider says about a person (OpenID Connect Core 1.0,
// section 5.1), and who may read it.
type claims struct {
	Email           string        `json:"email"`
	EmailVerified   *boolOrString `json:"email_verified"` // nil when not said
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

// boolOrString is a boolean that some providers write as a string. Whatever is not
// surely true is false.
type boolOrString bool

func (t *boolOrString) UnmarshalJSON(b []byte) error {
	*t = string(b) == "true" || string(b) == `"true"`
	return nil
}

// keySet is the provider's keys during one verification. It remembers why they
// could not be had, which the verifier's error only tells in words.
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

// exchangeError tells what err, of asking for tokens, means for whoever waits.
// What the provider wrote is left out: some repeat the code or the secret.
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
	return errUnverified("the token endpoint's answer holds no tokens")
}

func errCodeUsed(cause error) error {
	return problem.New(problem.Invalid, "This sign-in is over or was used already. Please start again.").Because(cause)
}

// errUnverified is for a word of the provider that does not hold. The cause is
// for the log.
func errUnverified(format string, args ...any) error {
	return problem.New(problem.Invalid, "The identity provider's answer could not be verified. Please start again.").
		Because(fmt.Errorf(format, args...))
}

func unavailable(what string, cause error) error {
	return problem.New(problem.Unavailable, "The identity provider cannot be reached at the moment. Please try again later.").
		Because(fmt.Errorf("%s: %w", what, cause))
}
