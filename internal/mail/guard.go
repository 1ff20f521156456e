package mail

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// GuardBody has check called before each part of a request's body is sent, also by a retry of the
// transport. Its error ends the request with an incomplete body, which no server processes.
// refused returns that error, or nil. A request without a body is not guarded.
func GuardBody(req *http.Request, body []byte, check func() error) (refused func() error) {
	g := &bodyGuard{check: check}
	if len(body) > 0 {
		open := func() (io.ReadCloser, error) { return guardedBody{g, bytes.NewReader(body)}, nil }
		req.Body, _ = open()
		req.GetBody = open
	}
	return g.refused
}

type bodyGuard struct {
	check func() error

	mu  sync.Mutex
	err error
}

// mayRead calls check, until it has failed once.
func (g *bodyGuard) mayRead() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = g.check()
	}
	return g.err
}

func (g *bodyGuard) refused() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

type guardedBody struct {
	guard *bodyGuard
	body  *bytes.Reader
}

func (b guardedBody) Read(p []byte) (int, error) {
	if b.body.Len() > 0 {
		if err := b.guard.mayRead(); err != nil {
			return 0, err
		}
	}
	return b.body.Read(p)
}

func (guardedBody) Close() error { return nil }
