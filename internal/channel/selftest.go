package channel

import (
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
// others are signed with a key that only the provider has.
type Sampler interface {
	// Sample returns a request to a connection as its provider sends it, signed. It is never stored.
	Sample(s Sample) *Request
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
