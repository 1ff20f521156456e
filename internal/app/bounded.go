package app

import (
	"net/http"
	"time"
)

// unreadLinger is how long the rest of a body that no handler reads may take to arrive.
// The server reads up to 256 KB of it before it sends the answer, so that the
// connection can be used again.
const unreadLinger = 2 * time.Second

// bounded has next answer, and then gives what is left of the body little time: a
// sender that was refused cannot hold its connection by sending the rest slowly.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadLinger)) // connections in memory have none
		}
	})
}
