package inbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/bodypool"
	"github.com/kickstand-dev/kickstand/internal/fairqueue"
)

const (
	// largeBody is the body size in bytes up to which parsing reserves no memory.
	largeBody = 64 << 10
	// The memory in bytes of bodies being received, in total and per client, and of bodies
	// being parsed, which adapters may copy several times. Each must fit the largest body.
	maxReceiving = 128 << 20
	maxPerClient = 96 << 20
	maxParsing   = 40 << 20
	// unfolded is the factor by which parsing may enlarge a body. Attackers send bodies with a
	// large one.
	unfolded = 4
	// memoryWait is how long a request waits for parsing memory before it is answered with a
	// 503.
	memoryWait = 10 * time.Second
	// The number of bodies that may wait for memory, per client and in total.
	waitingBodies    = 2000
	allWaitingBodies = 4000
)

// body is a request body with its reserved memory.
type body struct {
	bytes    []byte
	reserved []func()
}

// release frees the reserved memory. The bytes must not be used afterwards.
func (b *body) release() {
	for _, release := range b.reserved {
		release()
	}
}

// bodyError is a refused body.
type bodyError struct{ response httpResponse }

func (e *bodyError) Error() string { return string(e.response.body) }

func tooLarge(limit int64) httpResponse {
	return errorResponse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must not be larger than %d bytes", limit))
}

// client returns the key under which r reserves memory: the client's network.
func (s *Service) client(r *http.Request) string {
	return account.Network(browser.ClientIP(r, s.trustedProxies).String())
}

// readBody reads the whole body into memory that clients share fairly. The caller releases it,
// also after an error. A [*bodyError] is the sender's fault.
func (e *endpoint) readBody(w http.ResponseWriter, r *http.Request) (b body, err error) {
	client := e.client(r)
	in, err := e.receiving.Read(w, r, client, e.limit)
	b = body{bytes: in.Bytes, reserved: []func(){in.Release}}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return b, &bodyError{tooLarge(e.limit)}
	}
	switch {
	case errors.Is(err, bodypool.ErrCrowded), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return b, err
	case errors.Is(err, bodypool.ErrSlow):
		w.Header().Set("Connection", "close")
		return b, &bodyError{errorResponse(http.StatusRequestTimeout, "the body arrived too slowly")}
	case err != nil:
		return b, &bodyError{errorResponse(http.StatusBadRequest, "the body is incomplete")}
	}
	if n := int64(len(in.Bytes)); n > largeBody {
		ctx, cancel := context.WithTimeout(r.Context(), memoryWait)
		defer cancel()
		release, err := e.parsing.Acquire(ctx, client, min(unfolded*n, maxParsing), 0)
		if err != nil {
			return b, fmt.Errorf("too many large requests at once: %w", err)
		}
		b.reserved = append(b.reserved, release)
	}
	return b, nil
}

// newParsing returns the memory for bodies being parsed.
func newParsing() *fairqueue.Queue {
	return fairqueue.New(fairqueue.Config{Capacity: maxParsing, PerKey: waitingBodies, Waiting: allWaitingBodies})
}
