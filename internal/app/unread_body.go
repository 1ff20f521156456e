package app

import (
	"net/http"
	"time"
)

// unreadLinger is the time limit for the rest of a body that the handler does not read.
// The server reads up to 256 KB of it before the response, so that the connection can be
// reused.
const unreadLinger = 2 * time.Second

// limitUnreadBody limits the time for the unread rest of a request body: a refused client cannot
// occupy its connection by sending slowly.
func limitUnreadBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadLinger)) // in-memory connections have no deadline
		}
	})
}
