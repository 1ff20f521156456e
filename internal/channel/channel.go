// Package channel holds what every channel shares: the request as it came in,
// the normalized event that a request means, and the adapter interface between
// them.
//
// An adapter is data in, data out. It never touches the database, the router
// or another channel; it may not even know whether a request is a repetition.
// The core (package inbound) reads the body once, asks the adapter where the
// request says it is going, verifies it with the secrets of that place, lets
// the adapter split it into parts, stores them, answers, and later hands each
// stored part back to be parsed.
//
// Verification always runs over the bytes as received, and everything that an
// adapter says before Verify succeeded is a hint from a stranger.
package channel

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Request is one inbound HTTP request whose body was read once, in full.
type Request struct {
	Method   string
	URL      string // as the sender called it: public base URL + request URI, unchanged
	Header   http.Header
	Body     []byte
	Received time.Time
	// TXT holds the DNS records that a [DNSVerifier] asked for, by name: an empty entry
	// means that there is none, a missing one that DNS did not answer. Nil: nobody
	// asked.
	TXT map[string][]string
}

// Query returns the parsed query of the URL. Malformed pairs are dropped.
func (r *Request) Query() url.Values {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil
	}
	return u.Query()
}

// First returns the first non-empty header among names: the neutral name
// first, then the vendor's alias. There is no fallback after a failed check.
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
	Name    string // what a user writes: "sms", "email-raw"
	Medium  string // what a ticket shows: "sms", "email"
	Path    string // where the provider posts: "/api/webhooks/sms"
	MaxBody int64  // bytes; a larger body is answered 413

	// Aliases are further paths at which the provider may post.
	Aliases []string

	// Serves are the names of other channels of the same medium whose connections
	// this one takes requests for, too: it reports on what they send, or has another
	// path for them. See [SecretResolver].
	Serves []string

	// Deployment says that the events belong to the deployment, not to an
	// organization: the provider's account is the operator's own. Nobody
	// connects an address to such a channel, only the deployment's secrets
	// vouch for it, and its events are neither routed nor ever unrouted.
	Deployment bool

	// SharedKey says that the provider signs for all of its customers with one key: no
	// secret of a connection's own vouches for a request, so that a connection receives
	// only once its address is proven.
	SharedKey bool

	// AcceptWhenDisabled says that what comes is what the law asks for: connections that are
	// switched off take it, too, and what is for a connection that is gone is taken
	// by whoever had the address.
	AcceptWhenDisabled bool
}

// ErrUnreadable marks a verified request or part that the channel cannot make
// sense of. It is kept for an operator to see and never retried.
var ErrUnreadable = errors.New("unreadable")

// ErrContentType marks a request whose content type the channel does not take.
var ErrContentType = errors.New("unsupported content type")

// Adapter is one channel.
// Implementations are stateless and safe for concurrent use.
type Adapter interface {
	Info() Info

	// Addresses names the recipients that the unverified request claims, in
	// the form in which connections store them. It has no side effect and
	// returns nil when the request names none. An error means that the
	// request is not of the channel's form at all: [ErrContentType], or
	// anything else for a malformed body.
	Addresses(r *Request) ([]string, error)

	// Verify reports whether r was signed with secret, and is fresh where the
	// signature carries a time. It must compare in constant time and treat an
	// empty secret as never matching.
	Verify(r *Request, secret string) bool

	// Split cuts a verified request into the parts that are stored and
	// processed one by one. It must be quick; what needs real parsing waits
	// for Parse. An error wraps [ErrUnreadable].
	Split(r *Request) ([]Part, error)

	// Parse turns a stored part into the event it means. It is deterministic:
	// a part may be parsed again years later. An error wraps [ErrUnreadable].
	Parse(r *Request, p Part) (Event, error)
}

// HeaderProof is a judgement on a request from its URL and headers alone.
type HeaderProof int

const (
	// BodyDecides: the proof is in the body, or covers it.
	BodyDecides HeaderProof = iota
	// HeadersRefuse: no body and no secret makes Verify true, because a signature is missing
	// or misshapen, or its time is out of the window.
	HeadersRefuse
	// HeadersDecide: Verify does not look at the body.
	HeadersDecide
)

// HeaderProver is implemented by channels whose requests carry their proof, or its
// signature, in the URL or the headers. The core refuses requests without it before it
// reads the body.
type HeaderProver interface {
	// HeaderProof judges r, of which the body is not read.
	HeaderProof(r *Request) HeaderProof
}

// BodyDecidesIf returns [BodyDecides] for a signature that has the right form, else
// [HeadersRefuse].
func BodyDecidesIf(ok bool) HeaderProof {
	if ok {
		return BodyDecides
	}
	return HeadersRefuse
}

// Recognizer is implemented by adapters that share their path with others: it
// reports, from the shape alone, whether the request is of this one's style.
type Recognizer interface {
	Recognizes(r *Request) bool
}

// AddressNormalizer is implemented by channels whose addresses have more than one
// spelling: it returns the form that Addresses and Split use, or why raw is not
// an address of the channel.
type AddressNormalizer interface {
	NormalizeAddress(raw string) (string, error)
}

// SecretChecker is implemented by channels whose signing secrets have a form, as a
// public key has.
type SecretChecker interface {
	// CheckSecret returns why secret verifies nothing, whatever is signed: the rest
	// of a sentence, which does not repeat it. One that the core makes up is used if
	// it passes.
	CheckSecret(secret string) error
}

// SecretResolver is implemented by channels whose requests are not signed with what a
// connection has as its signing secrets.
type SecretResolver interface {
	// SigningSecrets returns what requests for a connection of the named channel may be
	// signed with, newest first, given its valid signing secrets and its
	// credentials. None: nothing is verified.
	SigningSecrets(channel string, secrets []string, credentials Credentials) []string
}

// Preparer is implemented by channels whose signatures are checked with something
// that must be fetched first: a certificate.
type Preparer interface {
	// Prepare gets what Verify needs for r, which is not verified. An error means
	// that it cannot be had at the moment, and the provider shall send r again;
	// where it never can be, Prepare does nothing and Verify fails.
	Prepare(ctx context.Context, r *Request) error
}

// RecipientChecker is implemented by channels whose signature may leave open for whom a
// request is.
type RecipientChecker interface {
	// RecipientUnsigned reports whether nothing that is signed says for whom a verified
	// request is: whoever else has the key signed too may have sent it. Where
	// organizations share the deployment's key, that vouches only for the connection
	// that the URL names then.
	RecipientUnsigned(r *Request) bool
}

// PartFilter is implemented by channels of whose parts a connection may want only
// some.
type PartFilter interface {
	// WantsPart reports whether a connection with these settings wants p; what none
	// wants is answered as ignored. Settings are nil where there is no connection.
	WantsPart(settings map[string]string, r *Request, p Part) bool
}

// Handshaker is implemented by channels whose providers ask, with a GET, whether
// an address is really ours before they post there.
type Handshaker interface {
	// Handshake returns the token that must be one of those agreed on with the
	// provider, and what to answer if it is, as text/plain. ok is false when the
	// request is no handshake. Tokens are a connection's credential
	// [VerifyToken], and the deployment's.
	Handshake(r *Request) (token, challenge string, ok bool)
}

// VerifyToken is the credential that holds the token of a [Handshaker].
const VerifyToken = "verify_token"

// ChallengeResponder is implemented by channels whose providers post a challenge, signed like
// everything else, and want it back.
type ChallengeResponder interface {
	// ChallengeResponse returns what a verified request is answered with, as text/plain,
	// instead of being stored. ok is false for every other request.
	ChallengeResponse(r *Request) (challenge string, ok bool)
}

// Media are the channels of tickets: the [Info.Medium] of every adapter, and the API.
var Media = []string{
	"email", "sms", "business_messaging", "social_messenger", "voice", "chat", "storefront", "marketplace", "payments", "api",
}

// MediumName returns a channel of tickets as it is spelled: business_messaging for
// business-messaging. A name of none is returned as it is.
func MediumName(name string) string {
	if folded := strings.ReplaceAll(name, "-", "_"); slices.Contains(Media, folded) {
		return folded
	}
	return name
}

// AdapterName returns the name of an adapter as it is spelled: business-messaging for
// business_messaging.
func AdapterName(name string) string { return strings.ReplaceAll(name, "_", "-") }

// ReplayTokenReader is implemented by channels whose signature leaves out a part of the request
// that decides how it is read. A token is good for one request, which may come again.
type ReplayTokenReader interface {
	// ReplayToken returns the token of a verified request; a zero value if the request has
	// none. Until is the time after which Verify refuses the token.
	ReplayToken(r *Request) ReplayToken
}

// ReplayToken stands for what a signature covers.
type ReplayToken struct {
	Value string
	Until time.Time
	// Signed says that the value is a digest of signed content, which comes from the
	// provider once: it counts for the whole deployment, whichever key verified it. A
	// token that the provider chose at random counts for each key alone.
	Signed bool
}

// Enricher is implemented by channels whose requests leave out part of what they tell
// of, which the provider's API then has. The worker asks before it parses.
type Enricher interface {
	// EnrichCall returns the call that comes next, given the answers to those before it;
	// nil when nothing is missing, or could be asked for. An answer whose Status
	// is 0 never came.
	EnrichCall(r *Request, p Part, answers []Response, credentials Credentials) *Call
	// ParseEnriched is Parse with the answers. Where they do not help, it makes do
	// with what the request has.
	ParseEnriched(r *Request, p Part, answers []Response) (Event, error)
}

// RetryDecider is implemented by an [Enricher] or a [MediaLocator] whose provider does not say by the status
// alone that it cannot tell at the moment.
type RetryDecider interface {
	// ShouldRetry reports whether another try can get a better answer.
	ShouldRetry(a Response) bool
}

// DNSVerifier is implemented by channels whose senders are proven by records in the DNS.
// The worker looks these up before it parses.
type DNSVerifier interface {
	// TXTNames returns the names of the TXT records that Parse wants in [Request.TXT],
	// a handful, given the answers to the calls of an [Enricher].
	TXTNames(r *Request, p Part, answers []Response) []string
}

// Acknowledger is implemented by channels whose providers expect a body of their
// own instead of the JSON status.
type Acknowledger interface {
	// Acknowledgement returns the body for an accepted request. A non-empty reply is
	// sent to the customer by the provider.
	Acknowledgement(o Outcome, reply string) (contentType string, body []byte)
}

// MediaSource is implemented by channels whose attachments must be fetched
// from the provider.
type MediaSource interface {
	// MediaRequest describes how to fetch a, with the connection's
	// credentials. The core adds time and size limits and the address rules.
	MediaRequest(a Attachment, credentials Credentials) MediaRequest
}

// MediaLocator is implemented by a [MediaSource] whose provider says only on request,
// and for some minutes, where a file is: the attachment has a Lookup and no URL. The core
// asks when it is about to fetch the file. A [RetryDecider] may put that off.
type MediaLocator interface {
	// Locate returns the call that asks where a is; nil with the reason, for an agent,
	// when these credentials cannot ask.
	Locate(a Attachment, credentials Credentials) (call *Call, why string)
	// Located returns a with its URL, or with why there is none as its Error. An answer
	// whose Status is 0 never came.
	Located(a Attachment, answer Response) Attachment
}

// MediaRequest says how to fetch an attachment.
type MediaRequest struct {
	URL string
	// Header holds credentials. It goes to HeaderHosts only, and is dropped when a
	// redirect leaves the first host.
	Header      http.Header
	HeaderHosts []string
	Hosts       []string // allowed hosts; ".example.com" allows subdomains too
	// SignIn is what to tell an agent when the provider shows a page to sign in
	// with, or leads to one, instead of the file; empty: a page may be the file.
	SignIn string
}

// Outcome is what became of a request that was verified.
type Outcome string

// The outcomes, with the words of the JSON answer.
const (
	Accepted  Outcome = "accepted"
	Duplicate Outcome = "duplicate"
	Ignored   Outcome = "ignored"
)

// Part is one event inside a request, before it is parsed.
type Part struct {
	// Key is the idempotency key within the channel and connection: two parts
	// with one key are one event.
	Key string
	// Sender groups parts that must be processed in order. Empty means the
	// part stands alone.
	Sender string
	// Address is the recipient that the part names, which decides the
	// connection. Empty means the connection that verified the request.
	Address string
	// Account is a wider address that Address is in, as a telephone number is in
	// an account with several: it decides the connection where Address is nobody's.
	Account string
	// Guessed marks an Address that was read from what the sender wrote,
	// because the request names no envelope recipient. Several guessed parts
	// are one event on its way to unknown places: those whose address belongs
	// to a connection count, and when none does, only the first.
	Guessed bool
	// Kind is the channel's own word for what the part is.
	Kind string
	// Skip marks a kind that the channel does not handle; it is answered as
	// ignored and not stored.
	Skip bool
	// Setup marks a part by which the provider sets the connection up, and which brings
	// nothing of a customer's. A connection takes it before its address is proven, where
	// the URL names the connection.
	Setup bool
	// Body holds the part's own bytes when the request holds several;
	// nil means the whole request.
	Body []byte
}
