package rest

import (
	"context"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/live"
)

// Stream answers with server-sent events. run sends them, each as the text of whole events or
// comments, until it returns, send reports false or its context ends. The route must set Stream.
func Stream(run func(ctx context.Context, send func(text string) bool)) Response {
	return Response{stream: run}
}

// LastEventID returns the header of a client that resumes a stream; empty without one.
func (r *Request) LastEventID() string { return r.http.Header.Get("Last-Event-ID") }

// sendStream writes the head of a stream and runs it.
func (r *Request) sendStream(w http.ResponseWriter, run func(ctx context.Context, send func(text string) bool)) {
	h := w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["X-Accel-Buffering"] = []string{"no"}
	r.answerStarted = true
	r.writeStatus(w, http.StatusOK)
	if r.http.Method == http.MethodHead {
		return
	}
	run(r.http.Context(), live.NewStream(w).Send)
}
