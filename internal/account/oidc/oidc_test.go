package oidc_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/oidc"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const callback = "https://help.example.com" + account.ProviderCallbackPath

var secrets = account.ProviderSecrets{
	State:    "state-of-the-browser",
	Nonce:    "nonce-of-the-request",
	Verifier: "verifier-of-forty-three-characters-or-more-0123",
}

const (
	msgReach    = "The identity provider cannot be reached at the moment. Please try again later."
	msgVerified = "The identity provider's response could not be verified. Please start again."
	msgSpent    = "This sign-in is over or was used already. Please start again."
)

// refused checks that err is a problem of a kind and message with logged in its cause,
// and returns the whole text.
func refused(t *testing.T, err error, kind problem.Kind, message, logged string) string {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != kind || p.Message != message {
		t.Errorf("got error %v, want %v: %s", err, kind, message)
		return ""
	}
	if !strings.Contains(err.Error(), logged) {
		t.Errorf("got %q for the log, want %q in it", err, logged)
	}
	return err.Error()
}

// startMock starts a third-party mock provider.
func startMock(t *testing.T) *mockoidc.MockOIDC {
	t.Helper()
	m, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Shutdown() })
	return m
}

func newMockProvider(t *testing.T, m *mockoidc.MockOIDC) *oidc.Provider {
	t.Helper()
	p, err := oidc.New(oidc.Config{
		Issuer: m.Issuer(), ClientID: m.ClientID, ClientSecret: m.ClientSecret, RedirectURL: callback,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// authorize follows the authorization URL as a browser and returns the callback's
// parameters.
func authorize(t *testing.T, p *oidc.Provider, s account.ProviderSecrets) url.Values {
	t.Helper()
	to, err := p.AuthorizationURL(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", to, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	back, err := res.Location()
	if err != nil {
		t.Fatalf("got status %d from %s: %v", res.StatusCode, to, err)
	}
	if got := back.Scheme + "://" + back.Host + back.Path; got != callback {
		t.Fatalf("the provider sends back to %s, want %s", got, callback)
	}
	return back.Query()
}

// person is a user of the mock provider with additional claims.
type person struct {
	mockoidc.MockUser
	claims map[string]any // added to the ID token; nil: none
	info   map[string]any
}

func (p *person) Claims(scope []string, base *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	if p.claims == nil {
		return p.MockUser.Claims(scope, base)
	}
	all := jwt.MapClaims{
		"iss": base.Issuer, "sub": cmp.Or(base.Subject, "6"), "aud": base.Audience, "exp": base.ExpiresAt, "iat": base.IssuedAt,
		"nonce": base.Nonce,
	}
	maps.Copy(all, p.claims)
	return all, nil
}

func (p *person) Userinfo([]string) ([]byte, error) { return json.Marshal(p.info) }

func TestSignIn(t *testing.T) {
	m := startMock(t)
	p := newMockProvider(t, m)
	for name, tt := range map[string]struct {
		user mockoidc.User
		want account.ProviderIdentity
	}{
		"the provider's own user": {
			mockoidc.DefaultUser(),
			account.ProviderIdentity{Email: "jane.doe@example.com", EmailVerified: true},
		},
		"all in the ID token": {
			&person{claims: map[string]any{"email": "ada@example.com", "email_verified": true, "name": " Ada ", "picture": "https://example.com/a.png"}},
			account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true, Name: "Ada", Picture: "https://example.com/a.png"},
		},
		"a verification in words": {
			&person{claims: map[string]any{"email": "ada@example.com", "email_verified": "true"}},
			account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true},
		},
		"other words": {
			&person{claims: map[string]any{"email": "ada@example.com", "email_verified": "yes", "name": "Ada"}},
			account.ProviderIdentity{Email: "ada@example.com", Name: "Ada"},
		},
		"not verified": {
			&person{claims: map[string]any{"email": "ada@example.com", "email_verified": false}},
			account.ProviderIdentity{Email: "ada@example.com"},
		},
		"all in the userinfo": {
			&person{
				MockUser: mockoidc.MockUser{Subject: "7"}, claims: map[string]any{},
				info: map[string]any{"sub": "7", "email": "ada@example.com", "email_verified": true, "name": "Ada", "picture": "https://example.com/a.png"},
			},
			account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true, Name: "Ada", Picture: "https://example.com/a.png"},
		},
		"the rest in the userinfo": {
			&person{
				MockUser: mockoidc.MockUser{Subject: "7"}, claims: map[string]any{"email": "ada@example.com", "email_verified": true, "name": "Ada"},
				info: map[string]any{"sub": "7", "email": "eve@example.com", "email_verified": true, "name": "Eve", "picture": "https://example.com/a.png"},
			},
			account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true, Name: "Ada", Picture: "https://example.com/a.png"},
		},
		"the verification in the userinfo": {
			&person{
				MockUser: mockoidc.MockUser{Subject: "7"}, claims: map[string]any{"email": "ada@example.com"},
				info: map[string]any{"sub": "7", "email": "Ada@example.com", "email_verified": "true"},
			},
			account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true},
		},
		"the verification of another address": {
			&person{
				MockUser: mockoidc.MockUser{Subject: "7"}, claims: map[string]any{"email": "ada@example.com"},
				info: map[string]any{"sub": "7", "email": "eve@example.com", "email_verified": true},
			},
			account.ProviderIdentity{Email: "ada@example.com"},
		},
		"a verification taken back": {
			&person{
				MockUser: mockoidc.MockUser{Subject: "7"}, claims: map[string]any{"email": "ada@example.com", "email_verified": false},
				info: map[string]any{"sub": "7", "email": "ada@example.com", "email_verified": true},
			},
			account.ProviderIdentity{Email: "ada@example.com"},
		},
		"an address without verification in the userinfo": {
			&person{
				MockUser: mockoidc.MockUser{Subject: "7"}, claims: map[string]any{"email_verified": true},
				info: map[string]any{"sub": "7", "email": "ada@example.com"},
			},
			account.ProviderIdentity{Email: "ada@example.com"},
		},
		"userinfo of somebody else, for a name": {
			&person{
				MockUser: mockoidc.MockUser{Subject: "7"}, claims: map[string]any{"email": "ada@example.com", "email_verified": true},
				info: map[string]any{"sub": "8", "email": "eve@example.com", "email_verified": true, "name": "Eve"},
			},
			account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true},
		},
		"a picture that is a script": {
			&person{claims: map[string]any{"email": "ada@example.com", "email_verified": true, "name": "Ada", "picture": "javascript:alert(1)"}},
			account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true, Name: "Ada"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.Issuer, tt.want.Subject = m.Issuer(), cmp.Or(tt.user.ID(), "6")
			m.QueueUser(tt.user)
			back := authorize(t, p, secrets)
			if got := back.Get("state"); got != secrets.State {
				t.Errorf("got state %q back, want %q", got, secrets.State)
			}
			for _, issuer := range []string{m.Issuer(), ""} {
				got, err := p.Exchange(t.Context(), back.Get("code"), issuer, secrets)
				if issuer == "" { // repeated
					refused(t, err, problem.Invalid, msgSpent, "invalid_grant")
				} else if err != nil || got != tt.want {
					t.Errorf("got %+v, error %v, want %+v", got, err, tt.want)
				}
			}
		})
	}
}

func TestAuthorizationURL(t *testing.T) {
	m := startMock(t)
	to, err := newMockProvider(t, m).AuthorizationURL(t.Context(), secrets)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(secrets.Verifier))
	want := url.Values{
		"client_id": {m.ClientID}, "redirect_uri": {callback}, "response_type": {"code"}, "scope": {"openid email profile"},
		"state": {secrets.State}, "nonce": {secrets.Nonce},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	if got := u.Query().Encode(); got != want.Encode() {
		t.Errorf("got query\n%s, want\n%s", got, want.Encode())
	}
	u.RawQuery = ""
	if got := u.String(); got != m.AuthorizationEndpoint() {
		t.Errorf("got %s, want %s", got, m.AuthorizationEndpoint())
	}
}

func TestRefusals(t *testing.T) {
	m := startMock(t)
	p := newMockProvider(t, m)
	other := secrets
	other.Verifier = strings.ToUpper(other.Verifier)
	back := authorize(t, p, secrets)
	_, err := p.Exchange(t.Context(), back.Get("code"), "", other)
	refused(t, err, problem.Invalid, msgSpent, "invalid_grant")

	other = secrets
	other.Nonce += "x"
	back = authorize(t, p, secrets)
	_, err = p.Exchange(t.Context(), back.Get("code"), "", other)
	refused(t, err, problem.Invalid, msgVerified, "its nonce differs")

	back = authorize(t, p, secrets)
	for _, issuer := range []string{"https://evil.example", m.Issuer() + "/"} {
		_, err = p.Exchange(t.Context(), back.Get("code"), issuer, secrets)
		refused(t, err, problem.Invalid, "The response is from another identity provider.", "")
	}
	if _, err := p.Exchange(t.Context(), back.Get("code"), m.Issuer(), secrets); err != nil {
		t.Errorf("the code was spent on answers that are not the provider's: %v", err)
	}

	_, err = p.Exchange(t.Context(), "", "", secrets)
	refused(t, err, problem.Invalid, msgSpent, "")
	for _, spoil := range []func(*account.ProviderSecrets){
		func(s *account.ProviderSecrets) { s.Nonce = "" },
		func(s *account.ProviderSecrets) { s.Verifier = "" },
	} {
		s := secrets
		spoil(&s)
		_, err = p.Exchange(t.Context(), "a-code", "", s)
		refused(t, err, problem.Invalid, msgSpent, "")
	}

	m.FastForward(-time.Hour)
	back = authorize(t, p, secrets)
	_, err = p.Exchange(t.Context(), back.Get("code"), "", secrets)
	refused(t, err, problem.Invalid, msgVerified, "token is expired")
}

// TestNothingLeaks: the provider repeats codes and secrets in its errors.
func TestNothingLeaks(t *testing.T) {
	m := startMock(t)
	var log bytes.Buffer
	config := oidc.Config{
		Issuer: m.Issuer(), ClientID: m.ClientID, ClientSecret: "not-to-be-told", RedirectURL: callback,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	p, err := oidc.New(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Exchange(t.Context(), "code-not-to-be-told", "", secrets)
	text := refused(t, err, problem.Unavailable, msgReach, "token endpoint refuses this client: invalid_client")

	config.ClientSecret = m.ClientSecret
	if p, err = oidc.New(config); err != nil {
		t.Fatal(err)
	}
	_, err = p.Exchange(t.Context(), "code-not-to-be-told", "", secrets)
	text += refused(t, err, problem.Invalid, msgSpent, "invalid_grant")

	m.QueueError(&mockoidc.ServerError{Code: 400, Error: "code-not-to-be-told", Description: "code-not-to-be-told"})
	_, err = p.Exchange(t.Context(), "code-not-to-be-told", "", secrets)
	text += refused(t, err, problem.Unavailable, msgReach, "token endpoint: status 400")

	if text += log.String(); strings.Contains(text, "not-to-be-told") || !strings.Contains(text, m.Issuer()) {
		t.Errorf("got texts %s", text)
	}
}

func TestKeyRotation(t *testing.T) {
	m := startMock(t)
	p := newMockProvider(t, m)
	signIn := func() error {
		_, err := p.Exchange(t.Context(), authorize(t, p, secrets).Get("code"), "", secrets)
		return err
	}
	if err := signIn(); err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if m.Keypair, err = mockoidc.NewKeypair(key); err != nil {
		t.Fatal(err)
	}
	if err := signIn(); err != nil {
		t.Errorf("after a change of keys: %v", err)
	}
}

// TestDownAtFirst: the server starts before the provider.
func TestDownAtFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := mockoidc.NewServer(nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := oidc.New(oidc.Config{
		Issuer: "http://" + l.Addr().String() + mockoidc.IssuerBase, ClientID: m.ClientID, ClientSecret: m.ClientSecret, RedirectURL: callback,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = p.AuthorizationURL(t.Context(), secrets)
	refused(t, err, problem.Unavailable, msgReach, "connection refused")
	_, err = p.Exchange(t.Context(), "a-code", "", secrets)
	refused(t, err, problem.Unavailable, msgReach, "connection refused")

	if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(l, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Shutdown() })
	if _, err := p.Exchange(t.Context(), authorize(t, p, secrets).Get("code"), m.Issuer(), secrets); err != nil {
		t.Errorf("after the provider came up: %v", err)
	}
}

func TestNew(t *testing.T) {
	good := oidc.Config{Issuer: "https://id.example.com", ClientID: "kickstand", RedirectURL: callback}
	if _, err := oidc.New(good); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		spoil func(*oidc.Config)
		want  string
	}{
		{func(c *oidc.Config) { c.Issuer = "" }, "issuer of the identity provider: must begin with https:// or http://"},
		{func(c *oidc.Config) { c.Issuer = "id.example.com" }, "issuer of the identity provider: must begin with https:// or http://"},
		{func(c *oidc.Config) { c.Issuer = "https://me:hunter2@id.example.com" }, "issuer of the identity provider: must have neither a user name nor a fragment"},
		{func(c *oidc.Config) { c.Issuer = "https://me:hunter2@id example.com" }, "issuer of the identity provider: is not a URL"},
		{func(c *oidc.Config) { c.RedirectURL = account.ProviderCallbackPath }, "redirect URL for the identity provider: must begin with https:// or http://"},
		{func(c *oidc.Config) { c.ClientID = "" }, "the identity provider needs a client ID"},
	} {
		c := good
		tt.spoil(&c)
		if _, err := oidc.New(c); err == nil || err.Error() != tt.want {
			t.Errorf("got error %v, want %s", err, tt.want)
		}
	}
}

func TestProxy(t *testing.T) {
	// The test proxy only has to receive a CONNECT request.
	var asked atomic.Pointer[string]
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(new(r.Method + " " + r.RequestURI))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	// The environment variable is read once per process, so the proxy is set as a
	// function.
	via, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := oidc.DefaultTransport()
	if transport.Proxy == nil {
		t.Fatal("the transport looks for no proxy")
	}
	transport.Proxy = http.ProxyURL(via)
	p, err := oidc.New(oidc.Config{Issuer: "https://id.example.com", ClientID: "kickstand", RedirectURL: callback, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.AuthorizationURL(t.Context(), secrets)
	refused(t, err, problem.Unavailable, msgReach, "Forbidden")
	if got := asked.Load(); got == nil || *got != "CONNECT id.example.com:443" {
		t.Errorf("the proxy was asked for %v", got)
	}
}

// rogue is an in-memory provider of which each part can misbehave. Its fields do not
// change while it serves.
type rogue struct {
	key      *ecdsa.PrivateKey
	metadata map[string]any
	claims   map[string]any
	header   map[string]any
	userinfo any

	on       map[string]http.HandlerFunc // by path, replaces the response
	mu       sync.Mutex
	requests []string // path, and Authorization or form
}

const rogueIssuer = "https://id.example.com"

func newRogue(t *testing.T) *rogue {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return &rogue{
		key: key,
		metadata: map[string]any{
			"issuer": rogueIssuer, "authorization_endpoint": rogueIssuer + "/authorize", "token_endpoint": rogueIssuer + "/token",
			"userinfo_endpoint": rogueIssuer + "/userinfo", "jwks_uri": rogueIssuer + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
		},
		header: map[string]any{"alg": "ES256", "kid": "one"},
		claims: map[string]any{
			"iss": rogueIssuer, "sub": "7", "aud": "kickstand", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(),
			"nonce": secrets.Nonce, "email": "ada@example.com", "email_verified": true, "name": "Ada", "picture": "https://example.com/a.png",
		},
		on: map[string]http.HandlerFunc{},
	}
}

func segment(v any) string {
	b, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(b)
}

// idToken signs with the algorithm of its header.
func (g *rogue) idToken() string {
	text := segment(g.header) + "." + segment(g.claims)
	if g.header["alg"] == "none" {
		return text + "."
	}
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, g.key, sum[:])
	if err != nil {
		panic(err)
	}
	sig := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func (g *rogue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	g.mu.Lock()
	g.requests = append(g.requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.PostForm.Encode()))
	g.mu.Unlock()
	if h := g.on[r.URL.Path]; h != nil {
		h(w, r)
		return
	}
	public, err := g.key.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = g.metadata
	case "/token":
		answer = map[string]any{"access_token": "an-access-token", "token_type": "Bearer", "expires_in": 60, "id_token": g.idToken()}
	case "/keys":
		answer = map[string]any{"keys": []map[string]string{{
			"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig",
			"x": base64.RawURLEncoding.EncodeToString(public[1:33]), "y": base64.RawURLEncoding.EncodeToString(public[33:]),
		}}}
	case "/userinfo":
		answer = g.userinfo
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

// RoundTrip implements http.RoundTripper in memory.
func (g *rogue) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func (g *rogue) provider(t *testing.T, secret string) *oidc.Provider {
	t.Helper()
	p, err := oidc.New(oidc.Config{
		Issuer: rogueIssuer, ClientID: "kickstand", ClientSecret: secret, RedirectURL: callback, Transport: g,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var ada = account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true, Name: "Ada", Picture: "https://example.com/a.png"}

// answer returns a handler with a fixed response.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://evil.example/")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(body))
	}
}

// TestWords covers responses with one defect each.
func TestWords(t *testing.T) {
	accessTokenHash := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return base64.RawURLEncoding.EncodeToString(sum[:16])
	}
	const discovery = "/.well-known/openid-configuration"
	huge := `{"issuer":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, tt := range map[string]struct {
		change  func(g *rogue)
		issuer  string
		kind    problem.Kind // Internal: no error
		message string
		logged  string
	}{
		"nothing wrong":      {},
		"several audiences":  {change: func(g *rogue) { g.claims["aud"] = []string{"other", "kickstand"} }},
		"issued to us":       {change: func(g *rogue) { g.claims["azp"] = "kickstand" }},
		"right access token": {change: func(g *rogue) { g.claims["at_hash"] = accessTokenHash("an-access-token") }},
		"says who it is": {
			change: func(g *rogue) { g.metadata["authorization_response_iss_parameter_supported"] = true },
			issuer: rogueIssuer,
		},
		"does not say who it is": {
			change:  func(g *rogue) { g.metadata["authorization_response_iss_parameter_supported"] = true },
			kind:    problem.Invalid,
			message: "The response does not name its identity provider.",
		},
		"another's answer": {issuer: "https://evil.example", kind: problem.Invalid, message: "The response is from another identity provider."},

		"wrong nonce": {
			change: func(g *rogue) { g.claims["nonce"] = "another" },
			kind:   problem.Invalid, message: msgVerified, logged: "its nonce differs",
		},
		"no nonce": {
			change: func(g *rogue) { delete(g.claims, "nonce") },
			kind:   problem.Invalid, message: msgVerified, logged: "its nonce differs",
		},
		"wrong audience": {
			change: func(g *rogue) { g.claims["aud"] = "other" },
			kind:   problem.Invalid, message: msgVerified, logged: `expected audience "kickstand" got ["other"]`,
		},
		"issued to another": {
			change: func(g *rogue) { g.claims["aud"], g.claims["azp"] = []string{"other", "kickstand"}, "other" },
			kind:   problem.Invalid, message: msgVerified, logged: "issued to another client",
		},
		"expired": {
			change: func(g *rogue) { g.claims["exp"] = time.Now().Add(-time.Second).Unix() },
			kind:   problem.Invalid, message: msgVerified, logged: "token is expired",
		},
		"without expiry": {
			change: func(g *rogue) { delete(g.claims, "exp") },
			kind:   problem.Invalid, message: msgVerified, logged: "token is expired",
		},
		"wrong issuer": {
			change: func(g *rogue) { g.claims["iss"] = "https://evil.example" },
			kind:   problem.Invalid, message: msgVerified, logged: "issued by a different provider",
		},
		"about nobody": {
			change: func(g *rogue) { delete(g.claims, "sub") },
			kind:   problem.Invalid, message: msgVerified, logged: "has no subject",
		},
		"wrong access token": {
			change: func(g *rogue) { g.claims["at_hash"] = accessTokenHash("another") },
			kind:   problem.Invalid, message: msgVerified, logged: "for another access token",
		},
		"not signed": {
			change: func(g *rogue) { g.header["alg"] = "none" },
			kind:   problem.Invalid, message: msgVerified, logged: `unexpected signature algorithm "none"`,
		},
		"signed with what the client knows": {
			change: func(g *rogue) { g.header["alg"] = "HS256" },
			kind:   problem.Invalid, message: msgVerified, logged: `unexpected signature algorithm "HS256"`,
		},
		"not signed, and no algorithms announced": {
			change: func(g *rogue) {
				g.header["alg"] = "none"
				delete(g.metadata, "id_token_signing_alg_values_supported")
			},
			kind: problem.Invalid, message: msgVerified, logged: `unexpected signature algorithm "none"`,
		},
		"signed by another": {
			change: func(g *rogue) {
				other := newRogue(t)
				g.on["/keys"] = other.ServeHTTP
			},
			kind: problem.Invalid, message: msgVerified, logged: "failed to verify id token signature",
		},
		"no ID token": {
			change: func(g *rogue) { g.on["/token"] = answer(200, `{"access_token":"secret-a","token_type":"Bearer"}`) },
			kind:   problem.Invalid, message: msgVerified, logged: "the response has no ID token",
		},
		"no tokens": {
			change: func(g *rogue) { g.on["/token"] = answer(200, `{"expires_in":"secret-a"}`) },
			kind:   problem.Invalid, message: msgVerified, logged: "has no tokens",
		},
		"an ID token that is none": {
			change: func(g *rogue) { g.on["/token"] = answer(200, `{"access_token":"secret-a","id_token":"secret-b"}`) },
			kind:   problem.Invalid, message: msgVerified, logged: "malformed jwt",
		},
		"an address that is none": {
			change: func(g *rogue) { g.claims["email"] = 7 },
			kind:   problem.Invalid, message: msgVerified, logged: "claims of the ID token",
		},
		"token endpoint down": {
			change: func(g *rogue) { g.on["/token"] = answer(502, `{"error":"secret-a"}`) },
			kind:   problem.Unavailable, message: msgReach, logged: "status 502",
		},
		"token endpoint elsewhere": {
			change: func(g *rogue) { g.on["/token"] = answer(307, ``) },
			kind:   problem.Unavailable, message: msgReach, logged: "status 307",
		},
		"token endpoint in words": {
			change: func(g *rogue) { g.on["/token"] = answer(400, `<p>secret-a`) },
			kind:   problem.Unavailable, message: msgReach, logged: "not JSON",
		},
		"keys down": {
			change: func(g *rogue) { g.on["/keys"] = answer(503, `secret-a`) },
			kind:   problem.Unavailable, message: msgReach, logged: "keys: ",
		},
		"keys garbled": {
			change: func(g *rogue) { g.on["/keys"] = answer(200, `{"keys":"`+strings.Repeat("x", 10000)+`"}`) },
			kind:   problem.Invalid, message: msgVerified, logged: "failed to decode keys",
		},
		"keys too many": {
			change: func(g *rogue) { g.on["/keys"] = answer(200, huge) },
			kind:   problem.Unavailable, message: msgReach, logged: "larger than 1048576 bytes",
		},

		"userinfo of somebody else": {
			change: func(g *rogue) {
				delete(g.claims, "email")
				g.userinfo = map[string]any{"sub": "8", "email": "eve@example.com", "email_verified": true}
			},
			kind: problem.Invalid, message: msgVerified, logged: "has another subject",
		},
		"userinfo of nobody": {
			change: func(g *rogue) {
				delete(g.claims, "email")
				g.userinfo = map[string]any{"email": "eve@example.com", "email_verified": true}
			},
			kind: problem.Invalid, message: msgVerified, logged: "has another subject",
		},
		"userinfo garbled": {
			change: func(g *rogue) {
				delete(g.claims, "email")
				g.userinfo = []string{"secret-a"}
			},
			kind: problem.Invalid, message: msgVerified, logged: "failed to decode userinfo",
		},
		"userinfo down": {
			change: func(g *rogue) {
				delete(g.claims, "email")
				g.on["/userinfo"] = answer(401, `{"error":"secret-a"}`)
			},
			kind: problem.Unavailable, message: msgReach, logged: "status 401",
		},
		"userinfo down, for a name": {
			change: func(g *rogue) {
				g.claims["picture"] = ""
				g.on["/userinfo"] = answer(500, `secret-a`)
			},
		},

		"discovery down": {
			change: func(g *rogue) { g.on[discovery] = answer(500, `secret-a`) },
			kind:   problem.Unavailable, message: msgReach, logged: "status 500",
		},
		"discovery elsewhere": {
			change: func(g *rogue) { g.on[discovery] = answer(302, `{}`) },
			kind:   problem.Unavailable, message: msgReach, logged: "status 302",
		},
		"discovery garbled": {
			change: func(g *rogue) { g.on[discovery] = answer(200, `<html>`) },
			kind:   problem.Unavailable, message: msgReach, logged: "not JSON",
		},
		"discovery too large": {
			change: func(g *rogue) { g.on[discovery] = answer(200, huge) },
			kind:   problem.Unavailable, message: msgReach, logged: "larger than 1048576 bytes",
		},
		"discovery of nothing": {
			change: func(g *rogue) { g.on[discovery] = answer(200, `{"issuer":"`+rogueIssuer+`"}`) },
			kind:   problem.Unavailable, message: msgReach, logged: "authorization_endpoint must begin with https://",
		},
		"discovery of numbers": {
			change: func(g *rogue) { g.metadata["token_endpoint"] = 7 },
			kind:   problem.Unavailable, message: msgReach, logged: "failed to decode provider discovery object",
		},
		"discovery of another": {
			change: func(g *rogue) { g.metadata["issuer"] = "https://evil.example" },
			kind:   problem.Unavailable, message: msgReach, logged: "did not match the issuer URL",
		},
		"discovery of an open line": {
			change: func(g *rogue) { g.metadata["token_endpoint"] = "http://id.example.com/token" },
			kind:   problem.Unavailable, message: msgReach, logged: "token_endpoint must begin with https://",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRogue(t)
			if tt.change != nil {
				tt.change(g)
			}
			got, err := g.provider(t, "secret-c").Exchange(t.Context(), "secret-d", tt.issuer, secrets)
			if tt.kind != problem.Internal {
				text := refused(t, err, tt.kind, tt.message, tt.logged)
				if strings.Contains(text, "secret-") || len(text) > 600 {
					t.Errorf("got error of %d bytes: %s", len(text), text)
				}
				return
			}
			want := ada
			want.Issuer, want.Subject = rogueIssuer, "7"
			if g.claims["picture"] == "" {
				want.Picture = ""
			}
			if err != nil || got != want {
				t.Errorf("got %+v, error %v, want %+v", got, err, want)
			}
		})
	}
}

// TestClientAuthentication: the code is sent once, with the authentication method that
// the provider supports.
func TestClientAuthentication(t *testing.T) {
	form := url.Values{
		"code": {"a-code"}, "code_verifier": {secrets.Verifier}, "grant_type": {"authorization_code"}, "redirect_uri": {callback},
	}
	basic := "/token Basic " + base64.StdEncoding.EncodeToString([]byte("kickstand:s%26cret")) + " " + form.Encode()
	form.Set("client_id", "kickstand")
	public := "/token  " + form.Encode()
	form.Set("client_secret", "s&cret")
	post := "/token  " + form.Encode()
	for _, tt := range []struct {
		secret  string
		methods []string
		want    string
	}{
		{"s&cret", nil, basic},
		{"s&cret", []string{"client_secret_basic"}, basic},
		{"s&cret", []string{"client_secret_basic", "client_secret_post"}, post},
		{"", nil, public},
		{"", []string{"none"}, public},
	} {
		for _, refuse := range []bool{false, true} {
			g := newRogue(t)
			if tt.methods != nil {
				g.metadata["token_endpoint_auth_methods_supported"] = tt.methods
			}
			if refuse {
				g.on["/token"] = answer(401, `{"error":"invalid_client"}`)
			}
			if _, err := g.provider(t, tt.secret).Exchange(t.Context(), "a-code", "", secrets); refuse == (err == nil) {
				t.Errorf("got error %v", err)
			}
			var sent []string
			for _, r := range g.requests {
				if strings.HasPrefix(r, "/token") {
					sent = append(sent, r)
				}
			}
			if len(sent) != 1 || sent[0] != tt.want {
				t.Errorf("got\n%s, want\n%s", strings.Join(sent, "\n"), tt.want)
			}
		}
	}
}

// TestSlow: the wait for a provider that does not respond is bounded, and shorter for
// optional requests.
func TestSlow(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, tt := range []struct {
		path   string
		change func(g *rogue)
		want   time.Duration
		ok     bool
	}{
		{path: "/.well-known/openid-configuration", want: 10 * time.Second},
		{path: "/token", want: 10 * time.Second},
		{path: "/keys", want: 10 * time.Second},
		{path: "/userinfo", change: func(g *rogue) { delete(g.claims, "email") }, want: 10 * time.Second},
		{path: "/userinfo", change: func(g *rogue) { delete(g.claims, "name") }, want: 3 * time.Second, ok: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newRogue(t)
			if tt.change != nil {
				tt.change(g)
			}
			g.on[tt.path] = hang
			start := time.Now()
			_, err := g.provider(t, "").Exchange(t.Context(), "a-code", "", secrets)
			if tt.ok && err != nil {
				t.Errorf("%s: %v", tt.path, err)
			} else if !tt.ok {
				refused(t, err, problem.Unavailable, msgReach, "deadline exceeded")
			}
			if got := time.Since(start); got != tt.want {
				t.Errorf("%s: took %v, want %v", tt.path, got, tt.want)
			}
		})
	}
}

// TestSlowAltogether: three slow responses in a row share one limit.
func TestSlowAltogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRogue(t)
		for _, path := range []string{"/.well-known/openid-configuration", "/token", "/keys"} {
			g.on[path] = func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(8 * time.Second):
				case <-r.Context().Done():
					return
				}
				quick := *newRogue(t)
				quick.key = g.key
				quick.ServeHTTP(w, r)
			}
		}
		start := time.Now()
		_, err := g.provider(t, "").Exchange(t.Context(), "a-code", "", secrets)
		refused(t, err, problem.Unavailable, msgReach, "keys: fetching keys context deadline exceeded")
		if got := time.Since(start); got != 20*time.Second {
			t.Errorf("took %v, want 20 s", got)
		}
		synctest.Wait()
		time.Sleep(10 * time.Second) // the keys arrive for the next caller
	})
}

// TestSharedDiscovery: concurrent first uses share one request; it survives the first
// caller, and a failure is not cached.
func TestSharedDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/.well-known/openid-configuration"
		g := newRogue(t)
		release := make(chan int)
		g.on[path] = func(w http.ResponseWriter, r *http.Request) {
			if status := <-release; status != 200 {
				w.WriteHeader(status)
				return
			}
			json.NewEncoder(w).Encode(g.metadata)
		}
		p := g.provider(t, "")
		for _, tt := range []struct{ status, failed, requests int }{{503, 20, 1}, {200, 1, 2}} {
			hasty, leave := context.WithCancel(t.Context())
			var failed atomic.Int32
			var wg sync.WaitGroup
			ask := func(ctx context.Context) {
				if _, err := p.AuthorizationURL(ctx, secrets); err != nil {
					failed.Add(1)
					refused(t, err, problem.Unavailable, msgReach, "")
				}
			}
			wg.Go(func() { ask(hasty) })
			synctest.Wait()
			for range 19 {
				wg.Go(func() { ask(t.Context()) })
			}
			synctest.Wait()
			leave()
			synctest.Wait()
			if got := failed.Load(); got != 1 {
				t.Errorf("%d gave up with the first, want it alone", got)
			}
			release <- tt.status
			wg.Wait()
			if got := int(failed.Load()); got != tt.failed {
				t.Errorf("%d of 20 failed after status %d, want %d", got, tt.status, tt.failed)
			}
			if got := len(g.requests); got != tt.requests {
				t.Errorf("got %d requests, want %d", got, tt.requests)
			}
		}
		if _, err := p.AuthorizationURL(t.Context(), secrets); err != nil || len(g.requests) != 2 {
			t.Errorf("got error %v and %d requests, want what is known already", err, len(g.requests))
		}
	})
}

// TestLeaving: a cancelled request differs from an unavailable provider.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRogue(t)
		g.on["/token"] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		ctx, leave := context.WithCancel(t.Context())
		p := g.provider(t, "")
		done := make(chan error)
		go func() {
			_, err := p.Exchange(ctx, "a-code", "", secrets)
			done <- err
		}()
		synctest.Wait()
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want that of the context", err)
		}
	})
}
