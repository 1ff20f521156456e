package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// largeBody is the size up to which a body is read without asking.
	largeBody = 64 << 10
	// What bodies beyond it may hold at once: those that are read or wait,
	// and those that adapters, which may make several copies, have in hand.
	// Both must take in the largest body.
	maxReceiving = 128 << 20
	maxParsing   = 40 << 20
	// unfolded is how much more a body may take, once read as what it is, than its
	// bytes: strangers send some that are made for it.
	unfolded = 4
	// memoryWait is how long a request waits for memory before the provider
	// is asked to come back.
	memoryWait = 10 * time.Second
	// A body that holds memory must arrive within bodyTime, and bodyTimePerMB
	// for each of its megabytes.
	bodyTime      = 30 * time.Second
	bodyTimePerMB = time.Second
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

// reserve waits for memory.
func (b *body) reserve(ctx context.Context, from *semaphore.Weighted, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	if err := from.Acquire(ctx, size); err != nil {
		return fmt.Errorf("too many large requests at once: %w", err)
	}
	b.reserved = append(b.reserved, func() { from.Release(size) })
	return nil
}

// bodyError is a body that is refused.
type bodyError struct{ answer answer }

func (e *bodyError) Error() string { return string(e.answer.body) }

func tooLarge(limit int64) answer {
	return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must not be larger than %d bytes", limit))
}

// readBody reads the body to its end. For a large one memory is reserved before
// it is read, so that any number of them fits. The caller releases it, also
// when there is an error, which is a [*bodyError] when the sender is to blame.
func (e *endpoint) readBody(w http.ResponseWriter, r *http.Request) (b body, err error) {
	if r.ContentLength > e.limit {
		return b, &bodyError{tooLarge(e.limit)}
	}
	size := r.ContentLength
	if size < 0 {
		size = e.limit + 1 // one more, to meet the end
	}
	from := http.MaxBytesReader(w, r.Body, e.limit)
	b.bytes = make([]byte, min(size, largeBody))
	n, ended, err := fill(from, b.bytes)
	if err == nil && !ended && size > largeBody {
		if err := b.reserve(r.Context(), e.receiving, size); err != nil {
			return b, err
		}
		// Where the connection has no deadlines, as in tests, the server's
		// own time limit has to do.
		line := http.NewResponseController(w)
		_ = line.SetReadDeadline(time.Now().Add(bodyTime + time.Duration(size>>20)*bodyTimePerMB))
		b.bytes = append(make([]byte, 0, size), b.bytes...)[:size]
		var more int
		more, ended, err = fill(from, b.bytes[n:])
		n += more
		_ = line.SetReadDeadline(time.Time{})
	}
	b.bytes = b.bytes[:n]
	if ended && int64(n) < r.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return b, &bodyError{tooLarge(e.limit)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return b, fmt.Errorf("the body came too slowly: %w", err)
	}
	if err != nil {
		return b, &bodyError{refuse(http.StatusBadRequest, "the body could not be read to its end")}
	}
	if n > largeBody {
		return b, b.reserve(r.Context(), e.parsing, min(unfolded*int64(n), maxParsing))
	}
	return b, nil
}

// fill reads until buf is full or r has ended.
func fill(r io.Reader, buf []byte) (n int, ended bool, err error) {
	for n < len(buf) && err == nil {
		var more int
		more, err = r.Read(buf[n:])
		n += more
	}
	if err == io.EOF {
		return n, true, nil
	}
	return n, false, err
}
