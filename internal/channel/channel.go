// Package channel defines the model that all channels share: the HTTP request as received, the
// normalized event parsed from it, and the adapter interface between them.
//
// An adapter maps data to data. It never touches the database, the router or another channel,
// and cannot tell a first delivery from a repeated one. The core (package inbound) reads the
// body once, asks the adapter for the claimed recipients, verifies the request with their
// secrets, has the adapter split it into parts, stores the parts, answers, and later has each
// stored part parsed.
//
// Verification always covers the bytes as received. Every value that an adapter returns before
// Verify has succeeded is unauthenticated.
package channel

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Request is an inbound HTTP request with its whole body.
type Request struct {
	Method   string
	URL      string // as called: public base URL + request URI, unchanged
	Header   http.Header
	Body     []byte
	Received time.Time
	// TXT holds the TXT records of the names that a [DNSVerifier] requested. An empty entry
	// means that the name has no records, a missing entry that the lookup failed. Nil means
	// that no lookup was made.
	TXT map[string][]string
	// Settings are those of the connection that receives the part, when the event is processed; nil
	// before, and without a connection.
	Settings map[string]string
}

// Query returns the parsed query of the URL. Malformed pairs are dropped.
func (r *Request) Query() url.Values {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil
	}
	return u.Query()
}

// First returns the first non-empty header among names. List the neutral name before the
// vendor's alias. There is no fallback after a failed check.
func (r *Request) First(names ...string) string {
	for _, n := range names {
		if v := r.Header.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// Info describes an adapter to the core.
type Info struct {
	Name          string // adapter name: "sms", "email-raw"
	TicketChannel string // channel of the ticket: "sms", "email"
	Path          string // endpoint for the provider: "/api/webhooks/sms"
	MaxBody       int64  // bytes; larger bodies get a 413

	// Aliases are further endpoint paths.
	Aliases []string

	// Serves lists other adapters of the same ticket channel. This one also accepts requests for their
	// connections, because it reports on their messages or offers another endpoint. See
	// [SecretResolver].
	Serves []string

	// Deployment marks events that belong to the deployment rather than to an organization,
	// because the provider account is the operator's. Such a channel has no connections; only
	// the deployment's secrets verify its requests, and its events are neither routed nor
	// unrouted.
	Deployment bool

	// Collected marks a channel without an endpoint: a reader collects its requests at the
	// provider. It has no path, and its connections have no signing secrets.
	Collected bool

	// SharedKey marks a provider that signs for all its customers with one key. No secret of a
	// connection can verify a request, so a connection receives only once its address is
	// proven.
	SharedKey bool

	// AcceptWhenDisabled marks channels that carry legally required requests. They are accepted
	// for disabled connections, and for removed ones routed to the last owner of the address.
	AcceptWhenDisabled bool

	// OwnName marks a channel whose addresses are names that each organization chooses for
	// itself. There is nothing to prove, and the endpoint's URL names the connection.
	OwnName bool
}

// ErrUnreadable marks a verified request or part that the adapter cannot parse. The core stores
// it for the operator and never retries it.
var ErrUnreadable = errors.New("unreadable")

// ErrContentType marks a request with an unsupported content type.
var ErrContentType = errors.New("unsupported content type")

// Adapter implements one channel. Implementations are stateless and safe for concurrent use.
type Adapter interface {
	Info() Info

	// Addresses returns the recipients that the unverified request claims, in the form that
	// connections store, or nil if it names none. It has no side effects. An error means that
	// the request is malformed for this channel: [ErrContentType], or any other error for the
	// body.
	Addresses(r *Request) ([]string, error)

	// Verify reports whether r is signed with secret and, where the signature carries a time,
	// fresh. It compares in constant time. An empty secret never matches.
	Verify(r *Request, secret string) bool

	// Split divides a verified request into parts, which are stored and processed one by one.
	// It runs before the answer and must be quick; leave expensive parsing to Parse. Errors
	// wrap [ErrUnreadable].
	Split(r *Request) ([]Part, error)

	// Parse returns the event of a stored part. It is deterministic, because a part may be
	// parsed again years later. Errors wrap [ErrUnreadable].
	Parse(r *Request, p Part) (Event, error)
}

// HeaderProof is the result of checking a request by its URL and headers alone.
type HeaderProof int

const (
	// BodyDecides means that the signature is in the body or covers it.
	BodyDecides HeaderProof = iota
	// HeadersRefuse means that Verify fails for every body and secret: the signature is
	// missing, malformed or outside its time window.
	HeadersRefuse
	// HeadersDecide means that Verify does not read the body.
	HeadersDecide
)

// HeaderProver is implemented by channels with signatures in the URL or the headers. The core
// refuses requests without it before it reads the body.
type HeaderProver interface {
	// HeaderProof checks r, which has no body yet.
	HeaderProof(r *Request) HeaderProof
}

// BodyDecidesIf returns [BodyDecides] if wellFormed, else [HeadersRefuse].
func BodyDecidesIf(wellFormed bool) HeaderProof {
	if wellFormed {
		return BodyDecides
	}
	return HeadersRefuse
}

// Recognizer is implemented by adapters that share an endpoint. Recognizes reports, by shape
// alone, whether the request is in this adapter's format.
type Recognizer interface {
	Recognizes(r *Request) bool
}

// AddressNormalizer is implemented by channels if an address has several spellings.
// NormalizeAddress returns the form that Addresses and Split use, or the reason why raw is not
// an address of the channel.
type AddressNormalizer interface {
	NormalizeAddress(raw string) (string, error)
}

// SecretChecker is implemented by channels if signing secrets have a required form, such as a
// public key.
type SecretChecker interface {
	// CheckSecret returns the reason why secret can never verify a request, as the rest of a
	// sentence that does not repeat the secret. The core generates a secret only if one passes.
	CheckSecret(secret string) error
}

// ConnectionChecker is implemented by channels if values of a connection have a required form.
type ConnectionChecker interface {
	// CheckConnection adds issues of the credentials and settings of a connection at an address, at
	// paths such as credentials.webhook_url. Issues do not repeat a secret.
	CheckConnection(v *problem.Validation, address string, credentials, settings map[string]string)
}

// SecretResolver is implemented by channels that verify requests with keys other than a
// connection's signing secrets.
type SecretResolver interface {
	// SigningSecrets returns the secrets that verify requests for a connection of the named
	// channel, newest first. secrets are the connection's valid signing secrets. An empty
	// result verifies nothing.
	SigningSecrets(channel string, secrets []string, credentials Credentials) []string
}

// AliasReader is implemented by channels if a connection can have further addresses.
type AliasReader interface {
	// Aliases returns the further addresses that settings name, in the form of connections, and
	// domains, which begin with @.
	Aliases(settings map[string]string) []string
}

// Preparer is implemented by channels that must fetch a certificate before they can verify.
type Preparer interface {
	// Prepare fetches the data that Verify needs for r, which is not verified yet. An error
	// means that it is temporarily unavailable and that the provider must send r again. If it
	// will never be available, Prepare returns nil and Verify fails.
	Prepare(ctx context.Context, r *Request) error
}

// RecipientChecker is implemented by channels if the signature may not cover the recipient.
type RecipientChecker interface {
	// RecipientUnsigned reports whether the signed content of a verified request names no
	// recipient, so that any tenant signing with the same key could have sent it. If
	// organizations share the deployment's key, it then verifies only for the connection that
	// the URL names.
	RecipientUnsigned(r *Request) bool
}

// PartFilter is implemented by channels if connections can select the parts they receive.
type PartFilter interface {
	// WantsPart reports whether a connection with these settings selects p. Settings are nil
	// without a connection. A request with no selected part is answered as ignored.
	WantsPart(settings map[string]string, r *Request, p Part) bool
}

// Handshaker is implemented by channels if the provider verifies an endpoint with a GET before
// it posts there.
type Handshaker interface {
	// Handshake returns the verify token of the request and the body, as text/plain, to answer
	// if the token is valid. ok is false if the request is not a handshake. Valid tokens are
	// the connections' credential [VerifyToken] and the deployment's tokens.
	Handshake(r *Request) (token, challenge string, ok bool)
}

// VerifyToken is the name of the credential with the token of a [Handshaker].
const VerifyToken = "verify_token"

// ChallengeResponder is implemented by channels if the provider posts a signed challenge and
// expects it in the answer.
type ChallengeResponder interface {
	// ChallengeResponse returns the answer to a verified challenge request, as text/plain. Such
	// a request is not stored. ok is false for all other requests.
	ChallengeResponse(r *Request) (challenge string, ok bool)
}

// TicketChannels lists the channels of tickets: the [Info.TicketChannel] of every adapter, and the API.
var TicketChannels = []string{
	"email", "sms", "business_messaging", "social_messenger", "voice", "chat", "storefront", "marketplace", "payments", "api",
}

// TicketChannelName converts a ticket channel to its canonical spelling: business-messaging becomes
// business_messaging. Unknown names are returned unchanged.
func TicketChannelName(name string) string {
	if folded := strings.ReplaceAll(name, "-", "_"); slices.Contains(TicketChannels, folded) {
		return folded
	}
	return name
}

// AdapterName converts an adapter name to its canonical spelling: business_messaging becomes
// business-messaging.
func AdapterName(name string) string { return strings.ReplaceAll(name, "_", "-") }

// ReplayTokenReader is implemented by channels if the signature does not cover everything that
// determines how the request is read. Each token is valid for one request, which may be
// repeated.
type ReplayTokenReader interface {
	// ReplayToken returns the token of a verified request, or the zero value if it has none.
	ReplayToken(r *Request) ReplayToken
}

// ReplayToken identifies the signed content of a request. Verify refuses the token after Until.
type ReplayToken struct {
	Value string
	Until time.Time
	// Signed means that Value is a digest of signed content, which a provider sends once: the
	// token is then unique in the whole deployment, whichever key verified it. A random token
	// of the provider is unique per key.
	Signed bool
}

// Enricher is implemented by channels if requests only refer to data that the provider's API
// holds. The worker makes the calls before it parses.
type Enricher interface {
	// EnrichCall returns the next call, given the responses to the previous ones, or nil when
	// no more data is needed or available. A Status of 0 marks a call that failed.
	EnrichCall(r *Request, p Part, answers []Response, credentials Credentials) *APIRequest
	// ParseEnriched is Parse with the responses. If they are of no use, it falls back to the
	// request's own data.
	ParseEnriched(r *Request, p Part, answers []Response) (Event, error)
}

// RetryDecider is implemented by an [Enricher] or a [MediaLocator] if the provider does not
// signal a temporary failure by the status alone.
type RetryDecider interface {
	// ShouldRetry reports whether a repeated call may get a better response.
	ShouldRetry(a Response) bool
}

// DNSVerifier is implemented by channels that verify senders by DNS records. The worker
// resolves them before it parses.
type DNSVerifier interface {
	// TXTNames returns the names of the TXT records that Parse expects in [Request.TXT], at
	// most a handful, given the responses to the calls of an [Enricher].
	TXTNames(r *Request, p Part, answers []Response) []string
}

// Acknowledger is implemented by channels if the provider expects its own body in place of the
// JSON status.
type Acknowledger interface {
	// Acknowledgement returns the body that answers a stored request. The provider sends a
	// non-empty reply to the customer.
	Acknowledgement(o Outcome, reply string) (contentType string, body []byte)
}

// MediaSource is implemented by channels if attachments must be downloaded from the provider.
type MediaSource interface {
	// MediaRequest describes how to download a with the connection's credentials. The core adds
	// limits of time and size and the address rules.
	MediaRequest(a Attachment, credentials Credentials) MediaRequest
}

// MediaLocator is implemented by a [MediaSource] if the provider issues download URLs on
// request, valid for minutes: the attachment has a Lookup and no URL. The core calls it right
// before the download. A [RetryDecider] may postpone that.
type MediaLocator interface {
	// Locate returns the call that requests the URL of a, or nil with the reason, for agents,
	// if these credentials do not allow it.
	Locate(a Attachment, credentials Credentials) (call *APIRequest, why string)
	// Located returns a with its URL, or with the reason for its absence in Error. A Status of
	// 0 marks a call that failed.
	Located(a Attachment, answer Response) Attachment
}

// MediaRequest describes a download.
type MediaRequest struct {
	URL string
	// Header holds credentials. It is sent to HeaderHosts only, and dropped when a redirect
	// leaves the first host.
	Header      http.Header
	HeaderHosts []string
	Hosts       []string // allowed hosts; ".example.com" allows subdomains too
	// SignIn is the error for agents if the provider answers with a sign-in page, or redirects
	// to one, in place of the file. Empty means that an HTML page may be the file.
	SignIn string
}

// Outcome is the result of a verified request.
type Outcome string

// The outcomes, as the JSON answer spells them.
const (
	Accepted  Outcome = "accepted"
	Duplicate Outcome = "duplicate"
	Ignored   Outcome = "ignored"
)

// Part is one event of a request, before it is parsed.
type Part struct {
	// Key is the idempotency key within the channel and connection. Parts with equal keys are
	// the same event.
	Key string
	// Sender groups parts that must be processed in order. Empty means that order does not
	// matter.
	Sender string
	// Address is the recipient that the part names and selects the connection. Empty means the
	// connection that verified the request.
	Address string
	// Account is a wider address that contains Address, such as the account of a phone number.
	// It selects the connection if Address has none.
	Account string
	// Guessed marks an Address read from the sender's text, because the request names no
	// envelope recipient. Several guessed parts are one event with uncertain recipients: the
	// parts with a connection count, or, if none has one, only the first.
	Guessed bool
	// Kind is the channel's name for the type of the part.
	Kind string
	// Skip marks a kind that the channel does not handle. It is answered as ignored and not
	// stored.
	Skip bool
	// Setup marks a part with which the provider configures the connection and which holds no
	// customer data. A connection named by the URL accepts it before its address is proven.
	Setup bool
	// Body is the part's own content if the request has several parts. Nil means the whole
	// request.
	Body []byte
}
