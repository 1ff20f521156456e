package channel

import (
	"context"
	"net/http"
	"time"
)

// CredentialTester is implemented by channels if a harmless call shows whether credentials work.
// A [ProviderProof] is one without implementing it.
type CredentialTester interface {
	// TestCall returns the next call of the test, given the responses so far; a nil call means that
	// the credentials work. An error is the reason why they do not, as a sentence without its full
	// stop. at is the present time.
	TestCall(address string, credentials Credentials, answers []Response, at time.Time) (*APIRequest, error)
}

// Sampler is implemented by channels whose requests can be signed with a connection's secret. The
// others with an endpoint are [TestKeySampler].
type Sampler interface {
	// Sample returns a request to a connection as its provider sends it, signed. It is never stored.
	Sample(s Sample) *Request
}

// TestKeySampler is implemented by channels whose provider signs with a private key of its own.
type TestKeySampler interface {
	// SampleByTestKey is [Sampler.Sample] with a signature by a key made for tests. The returned
	// adapter trusts this key alone, and is the receiver otherwise; it must get no other request. An
	// error is the reason why the secret can verify no request of the provider, as a sentence without
	// its full stop.
	SampleByTestKey(s Sample) (*Request, Adapter, error)
}

// KeySource is implemented by channels that fetch the keys of their provider.
type KeySource interface {
	// CheckKeySource returns the reason why the keys for a connection's address cannot be fetched, as a
	// sentence without its full stop.
	CheckKeySource(ctx context.Context, address string) error
}

// SecretMaker is implemented by channels whose provider makes the signing secrets, while a connection
// may have a generated one, which verifies nothing, and use the deployment's.
type SecretMaker interface {
	// MayBeProviders reports whether a secret has the form of the provider's.
	MayBeProviders(secret string) bool
}

// Sample describes a request of a [Sampler].
type Sample struct {
	URL     string // the connection's endpoint
	Address string // the connection's
	Secret  string
	Setting map[string]string // the connection's settings
	At      time.Time
}

// NewRequest returns a request with a body, without a signature.
func (s *Sample) NewRequest(contentType string, body []byte) *Request {
	return &Request{Method: http.MethodPost, URL: s.URL, Header: http.Header{"Content-Type": {contentType}}, Body: body, Received: s.At}
}
