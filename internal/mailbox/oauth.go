package mailbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"golang.org/x/oauth2"
)

// OAuthClient is the deployment's client at a provider of mailboxes.
type OAuthClient struct {
	ID     string
	Secret string
	// AuthURL and TokenURL are the provider's endpoints; empty: the public ones.
	AuthURL  string
	TokenURL string
}

// oauthProvider is a provider of OAuth tokens.
type oauthProvider struct {
	title   string
	config  oauth2.Config
	options []oauth2.AuthCodeOption
}

// CallbackPath is the path below the base URL to which a provider returns from a consent.
const CallbackPath = "/settings/mailbox-consent"

// newProviders returns the providers with a client.
func newProviders(clients map[string]OAuthClient, baseURL string) map[string]*oauthProvider {
	known := map[string]*oauthProvider{
		email.ProviderGoogle: {"Google", oauth2.Config{
			Endpoint: oauth2.Endpoint{AuthURL: "https://accounts.google.com/o/oauth2/v2/auth", TokenURL: "https://oauth2.googleapis.com/token"},
			Scopes:   []string{"https://mail.google.com/"},
		}, []oauth2.AuthCodeOption{oauth2.AccessTypeOffline, oauth2.ApprovalForce}}, // else a second consent has no refresh token
		email.ProviderMicrosoft: {"Microsoft", oauth2.Config{
			Endpoint: oauth2.Endpoint{AuthURL: "https://login.microsoftonline.com/common/oauth2/v2.0/authorize", TokenURL: "https://login.microsoftonline.com/common/oauth2/v2.0/token"},
			Scopes:   []string{"https://outlook.office.com/IMAP.AccessAsUser.All", "https://outlook.office.com/SMTP.Send", "offline_access"},
		}, []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("prompt", "select_account")}},
	}
	providers := make(map[string]*oauthProvider)
	for name, c := range clients {
		p := known[name]
		if p == nil || c.ID == "" {
			continue
		}
		p.config.ClientID, p.config.ClientSecret, p.config.RedirectURL = c.ID, c.Secret, baseURL+CallbackPath
		if c.AuthURL != "" {
			p.config.Endpoint.AuthURL = c.AuthURL
		}
		if c.TokenURL != "" {
			p.config.Endpoint.TokenURL = c.TokenURL
		}
		providers[name] = p
	}
	return providers
}

// Providers returns the names of the providers for which the deployment has a client, in order.
func (s *Service) Providers() []string {
	var names []string
	for name := range s.providers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ProviderTitle returns the name of a provider for people.
func (s *Service) ProviderTitle(name string) string {
	if p := s.providers[name]; p != nil {
		return p.title
	}
	return name
}

// checkProvider returns the problem that the deployment has no client at a provider, or nil.
func (s *Service) checkProvider(name string) error {
	if name == "" || s.providers[name] != nil {
		return nil
	}
	return invalid("credentials."+email.CredentialProvider, "is not available: the operator of this server has no client at this provider")
}

// consentRequest is what the provider returns from a consent, encrypted.
type consentRequest struct {
	ConnectionID   string `json:"c"`
	OrganizationID string `json:"o"`
	UserID         string `json:"u"`
	Verifier       string `json:"v"` // of PKCE
	Until          int64  `json:"t"` // microseconds
}

const (
	consentPurpose = "mailbox consent" // of the encryption
	tokensPurpose  = "mailbox tokens"
	consentTime    = 15 * time.Minute
)

// ConsentURL returns the URL at the provider where a user consents that the mailbox of one of the
// organization's connections is read.
func (s *Service) ConsentURL(ctx context.Context, organizationID, userID, connectionID string) (string, error) {
	c, err := s.connections.FindOf(ctx, s.db, organizationID, connectionID)
	if err != nil {
		return "", err
	}
	p := s.providers[c.CredentialValues()[email.CredentialProvider]]
	if c.Channel != email.MailboxName || p == nil {
		return "", problem.New(problem.Precondition, "this channel does not sign in at a provider")
	}
	request := consentRequest{c.ID, organizationID, userID, oauth2.GenerateVerifier(), s.db.Now().Add(consentTime).UnixMicro()}
	plain, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	state := base64.RawURLEncoding.EncodeToString(s.box.Seal(consentPurpose, plain, ""))
	user := c.CredentialValues()[email.CredentialUser]
	if user == "" {
		user = c.Address
	}
	options := append(slices.Clone(p.options), oauth2.S256ChallengeOption(request.Verifier), oauth2.SetAuthURLParam("login_hint", user))
	return p.config.AuthCodeURL(state, options...), nil
}

var errConsent = problem.New(problem.Precondition, "the consent was not given, or took too long: try again")

// AcceptConsent stores the tokens of a consent that the user has given, and has the mailbox read. It
// returns the id of the connection, "" if state names none.
func (s *Service) AcceptConsent(ctx context.Context, organizationID, userID, state, code string) (connectionID string, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil {
		return "", errConsent
	}
	plain, err := s.box.Open(consentPurpose, sealed, "")
	var request consentRequest
	if err != nil || json.Unmarshal(plain, &request) != nil || request.OrganizationID != organizationID || request.UserID != userID {
		return "", errConsent
	}
	if code == "" || request.Until < s.db.Now().UnixMicro() {
		return request.ConnectionID, errConsent
	}
	c, err := s.connections.FindOf(ctx, s.db, organizationID, request.ConnectionID)
	if err != nil {
		return "", err
	}
	p := s.providers[c.CredentialValues()[email.CredentialProvider]]
	if p == nil {
		return c.ID, errConsent
	}
	token, err := p.config.Exchange(s.oauthContext(ctx), code, oauth2.VerifierOption(request.Verifier))
	if err != nil {
		return c.ID, errConsent.Because(tokenError(err))
	}
	if token.RefreshToken == "" {
		return c.ID, problem.New(problem.Precondition, "%s has given no lasting consent: remove the access of this server in the settings of the account, and try again", p.title)
	}
	account, err := email.ParseAccount(c.Address, c.Settings, c.CredentialValues())
	if err != nil {
		return c.ID, problem.New(problem.Precondition, "the settings of the channel are not valid: %s", err)
	}
	return c.ID, s.db.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE mailboxes SET tokens = $2, revision = revision + 1, retry_at = 0 WHERE connection_id = $1 AND organization_id = $3",
			c.ID, s.sealTokens(grant(c.ID, &account), token, time.Time{}), organizationID)
		if err != nil {
			return fmt.Errorf("store tokens: %w", err)
		}
		if n == 0 {
			return errConsent
		}
		tx.AfterCommit(s.signal)
		return nil
	})
}

// tokens are the stored tokens of a mailbox.
type tokens struct {
	Access  string    `json:"access"`
	Refresh string    `json:"refresh"`
	Expiry  time.Time `json:"expiry"`        // of Access
	Ends    time.Time `json:"ends,omitzero"` // of Refresh, if the provider says so
}

// grant returns what tokens are bound to: with other servers, which may be anybody's, somebody has
// to consent again.
func grant(connectionID string, a *email.Account) string {
	return strings.Join([]string{connectionID, a.Provider, a.IMAP.Address(), a.SMTP.Address()}, "\n")
}

// sealTokens encrypts tokens for a grant. ends is that of the consent if the provider does not
// repeat it.
func (s *Service) sealTokens(grant string, t *oauth2.Token, ends time.Time) []byte {
	life, ok := seconds(t, "expires_in")
	if !ok {
		life = unknownLife
	}
	// Of Google for consents of limited time and of unverified clients, and of Microsoft's public clients.
	if left, ok := seconds(t, "refresh_token_expires_in"); ok {
		ends = s.db.Now().Add(left)
	}
	plain, _ := json.Marshal(tokens{t.AccessToken, t.RefreshToken, s.db.Now().Add(life), ends}) // does not fail
	return s.box.Seal(tokensPurpose, plain, grant)
}

// seconds returns a member of a provider's answer that is a time in seconds.
func seconds(t *oauth2.Token, name string) (d time.Duration, ok bool) {
	n, ok := t.Extra(name).(float64)
	return time.Duration(n) * time.Second, ok && n > 0 && n < 1e9
}

// oauthContext has the requests to a provider go through the service's client.
func (s *Service) oauthContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport: s.http, Timeout: tokenTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
}

const (
	// tokenTime bounds a request for tokens.
	tokenTime = 20 * time.Second
	// unknownLife is the life of a token if the provider does not say.
	unknownLife = 30 * time.Minute
	// tokenMargin is the remaining life of a token that is used.
	tokenMargin = 2 * time.Minute
)

const (
	// rotationWait is how long another process may take to store the tokens that it has got, and
	// rotationStep the interval of looking for them.
	rotationWait = time.Second
	rotationStep = 50 * time.Millisecond
)

// token returns an access token of a mailbox. Without a valid one, or to replace refused, it
// requests one. Failures are a [*Trouble].
func (s *Service) token(ctx context.Context, connectionID string, a *email.Account, refused string) (string, error) {
	p := s.providers[a.Provider]
	if p == nil {
		return "", &Trouble{Kind: TroubleSettings, Text: "the operator of this server has no client at the provider any more"}
	}
	t, _, err := s.loadTokens(ctx, p, connectionID, a)
	if err != nil || s.valid(t, refused) {
		return t.Access, err
	}
	// The reader and the senders share a request. It goes on without them, since some providers
	// end the old refresh token with the answer.
	request := s.refreshing.DoChan(grant(connectionID, a)+"\n"+refused, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*tokenTime)
		defer cancel()
		return s.refresh(ctx, p, connectionID, a, refused)
	})
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-request:
		access, _ := r.Val.(string)
		return access, r.Err
	}
}

// valid reports whether an access token can be used.
func (s *Service) valid(t tokens, refused string) bool {
	return t.Access != refused && s.db.Now().Add(tokenMargin).Before(t.Expiry)
}

// loadTokens returns the stored tokens of a mailbox, also encrypted.
func (s *Service) loadTokens(ctx context.Context, p *oauthProvider, connectionID string, a *email.Account) (t tokens, sealed []byte, err error) {
	err = s.db.QueryRow(ctx, "SELECT tokens FROM mailboxes WHERE connection_id = $1", connectionID).Scan(&sealed)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return t, nil, fmt.Errorf("read tokens: %w", err)
	}
	if len(sealed) == 0 {
		return t, nil, &Trouble{Kind: TroubleConsent, Text: fmt.Sprintf("nobody has signed in at %s yet. Sign in on the page of the channel", p.title)}
	}
	plain, err := s.box.Open(tokensPurpose, sealed, grant(connectionID, a))
	if err == nil {
		err = json.Unmarshal(plain, &t)
	}
	if err != nil {
		return t, nil, &Trouble{Kind: TroubleConsent, Text: fmt.Sprintf("the servers of the mailbox have changed since somebody signed in at %s. Sign in again on the page of the channel", p.title), Cause: err}
	}
	return t, sealed, nil
}

// refresh requests an access token and stores it with what else the provider returns, unless the
// tokens are others meanwhile: those of another process, or of a new consent.
func (s *Service) refresh(ctx context.Context, p *oauthProvider, connectionID string, a *email.Account, refused string) (string, error) {
	t, sealed, err := s.loadTokens(ctx, p, connectionID, a)
	if err != nil || s.valid(t, refused) {
		return t.Access, err
	}
	next, err := p.config.TokenSource(s.oauthContext(ctx), &oauth2.Token{RefreshToken: t.Refresh}).Token()
	if err != nil {
		err = refreshTrouble(ctx, p, err)
		if t, ok := errors.AsType[*Trouble](err); !ok || t.Kind != TroubleConsent {
			return "", err
		}
		// Another process may have used the refresh token just before.
		for range rotationWait / rotationStep {
			loop.Pause(ctx, rotationStep)
			if other, now, lerr := s.loadTokens(ctx, p, connectionID, a); lerr == nil && !bytes.Equal(now, sealed) && s.valid(other, refused) {
				return other.Access, nil
			}
		}
		return "", err
	}
	if next.RefreshToken == "" {
		next.RefreshToken = t.Refresh
	}
	stored := int64(0)
	err = s.db.Write(ctx, func(tx *db.Tx) (err error) {
		stored, err = tx.Exec(ctx, "UPDATE mailboxes SET tokens = $2 WHERE connection_id = $1 AND tokens = $3", connectionID, s.sealTokens(grant(connectionID, a), next, t.Ends), sealed)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("store tokens: %w", err)
	}
	if stored == 0 {
		t, _, err := s.loadTokens(ctx, p, connectionID, a)
		return t.Access, err
	}
	return next.AccessToken, nil
}

// consentEnds returns when the consent for a connection's mailbox ends, as far as its provider says
// so; else the zero time.
func (s *Service) consentEnds(ctx context.Context, c *connection.Connection) (time.Time, error) {
	a, err := email.ParseAccount(c.Address, c.Settings, c.CredentialValues())
	p := s.providers[a.Provider]
	if err != nil || p == nil {
		return time.Time{}, nil
	}
	t, _, err := s.loadTokens(ctx, p, c.ID, &a)
	if _, ok := errors.AsType[*Trouble](err); ok {
		err = nil // the state says so
	}
	return t.Ends, err
}

// refreshTrouble describes a refused or failed request for tokens.
func refreshTrouble(ctx context.Context, p *oauthProvider, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := &Trouble{Kind: TroubleConnect, Text: p.title + " does not answer requests for tokens", Cause: tokenError(err)}
	refusal, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok:
	case refusal.ErrorCode == "invalid_grant" || refusal.ErrorCode == "interaction_required" || refusal.ErrorCode == "consent_required":
		t.Kind = TroubleConsent
		t.Text = fmt.Sprintf("the consent at %s has ended: it was withdrawn, has expired, or the password was changed. Sign in again on the page of the channel", p.title)
	case refusal.Response != nil && refusal.Response.StatusCode/100 == 4:
		t.Kind, t.Text = TroubleSettings, p.title+" refuses the client of this server. The operator must check its id and secret"
	}
	return t
}

// tokenError returns an error without the response, which may repeat codes and secrets.
func tokenError(err error) error {
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := 0
		if refusal.Response != nil {
			status = refusal.Response.StatusCode
		}
		return fmt.Errorf("the request for tokens is answered %d %s", status, printable(refusal.ErrorCode))
	}
	return errors.New("the request for tokens failed")
}

// xoauth2 is the client of the SASL mechanism XOAUTH2.
type xoauth2 struct{ user, token string }

// Start implements [sasl.Client].
func (a xoauth2) Start() (mechanism string, response []byte, err error) {
	return "XOAUTH2", []byte("user=" + a.user + "\x01auth=Bearer " + a.token + "\x01\x01"), nil
}

// Next implements [sasl.Client]: the challenge is an error, which an empty response concludes.
func (xoauth2) Next([]byte) ([]byte, error) { return []byte{}, nil }
