package inbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/fair"
	"github.com/kickstand-dev/kickstand/internal/intake"
)

const (
	// largeBody is the size up to which a body is parsed without asking.
	largeBody = 64 << 10
	// What bodies may hold at once while they are received, all of them and those of
	// one client, and what adapters, which may make several copies, have in hand.
	// Each must take in the largest body.
	maxReceiving = 128 << 20
	maxPerClient = 96 << 20
	maxParsing   = 40 << 20
	// unfolded is how much more a body may take, once read as what it is, than its
	// bytes: strangers send some that are made for it.
	unfolded = 4
	// memoryWait is how long a request waits for its turn to be parsed before the
	// provider is asked to come back.
	memoryWait = 10 * time.Second
	// Bodies that wait for their turn, of one client and in all.
	waitingBodies    = 2000
	allWaitingBodies = 4000
)

// body is a request's, with the memory that is reserved for it.
type body struct {
	bytes    []byte
	reserved []func()
}

// release gives up what was reserved. The bytes must not be used any more.
func (b *body) release() {
	for _, release := range b.reserved {
		release()
	}
}

// bodyError is a body that is refused.
type bodyError struct{ response httpResponse }

func (e *bodyError) Error() string { return string(e.response.body) }

func tooLarge(limit int64) httpResponse {
	return errorResponse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must not be larger than %d bytes", limit))
}

// client is on whose behalf r takes memory: the network that it comes from.
func (s *Service) client(r *http.Request) string {
	return account.Network(browser.ClientIP(r, s.trustedProxies).String())
}

// readBody reads the body to its end, in memory that is shared fairly between
// clients. The caller releases it, also when there is an error, which is a
// [*bodyError] when the sender is to blame.
func (e *endpoint) readBody(w http.ResponseWriter, r *http.Request) (b body, err error) {
	client := e.client(r)
	in, err := e.receiving.Read(w, r, client, e.limit)
	b = body{bytes: in.Bytes, reserved: []func(){in.Release}}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return b, &bodyError{tooLarge(e.limit)}
	}
	switch {
	case errors.Is(err, intake.ErrCrowded), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return b, err
	case errors.Is(err, intake.ErrSlow):
		w.Header().Set("Connection", "close")
		return b, &bodyError{errorResponse(http.StatusRequestTimeout, "the body arrived too slowly")}
	case err != nil:
		return b, &bodyError{errorResponse(http.StatusBadRequest, "the body could not be read to its end")}
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

// newParsing returns the memory of bodies that are parsed.
func newParsing() *fair.Queue {
	return fair.New(fair.Config{Capacity: maxParsing, PerKey: waitingBodies, Waiting: allWaitingBodies})
}
