package live

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Heartbeat is the interval at which an idle stream sends a comment. A client has as long to read
// an event.
const Heartbeat = 20 * time.Second

// Stream writes server-sent events to a response. It is not safe for concurrent use.
type Stream struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// NewStream returns a stream of a response, whose headers are the caller's.
func NewStream(w http.ResponseWriter) *Stream { return &Stream{w, http.NewResponseController(w)} }

// Send writes text and reports whether that succeeded.
func (s *Stream) Send(text string) bool {
	// The server's write timeout is for finite responses.
	if err := s.out.SetWriteDeadline(time.Now().Add(Heartbeat)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false
	}
	if _, err := fmt.Fprint(s.w, text); err != nil {
		return false
	}
	return s.out.Flush() == nil
}
