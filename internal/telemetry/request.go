package telemetry

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
)

// Request has what is known of an HTTP request so far: its handlers add to it. It is safe for
// concurrent use; the nil Request accepts and has nothing.
type Request struct {
	mu           sync.Mutex
	id           string
	surface      string
	route        string
	organization string
	key          string
}

type requestKey struct{}

// WithRequest returns a context with r.
func WithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestFrom returns the request of a context, or nil.
func RequestFrom(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// NewRequest returns a request with an id.
func NewRequest(id string) *Request { return &Request{id: id} }

// NewRequestID returns a random id of a request.
func NewRequestID() string { return strings.ToLower(rand.Text()) }

// IsRequestID reports whether an id of a request has an acceptable form: 1 to 64 letters, digits,
// dots, underscores and hyphens.
func IsRequestID(id string) bool {
	return id != "" && len(id) <= 64 && !strings.ContainsFunc(id, func(c rune) bool {
		return !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

// ID returns the id of the request.
func (r *Request) ID() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id
}

// SetID replaces the id.
func (r *Request) SetID(id string) { r.set(func() { r.id = id }) }

// SetRoute sets the surface that handles the request and the pattern of its route, unless they
// are set: inner handlers know more than outer ones. Both become labels, so they must be names
// from the code and never parts of a request.
func (r *Request) SetRoute(surface, route string) {
	r.set(func() {
		if r.surface == "" {
			r.surface = surface
		}
		if r.route == "" {
			r.route = route
		}
	})
}

// SetClient sets the organization and the API key of the request. Empty values change nothing.
func (r *Request) SetClient(organizationID, keyID string) {
	r.set(func() {
		if organizationID != "" {
			r.organization = organizationID
		}
		if keyID != "" {
			r.key = keyID
		}
	})
}

func (r *Request) set(fn func()) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

// labels returns the surface and the route; "other" for unknown ones.
func (r *Request) labels() (surface, route string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	surface, route = r.surface, r.route
	if surface == "" {
		surface = "other"
	}
	if route == "" {
		route = "other"
	}
	return surface, route
}
