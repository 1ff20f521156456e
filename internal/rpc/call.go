package rpc

import (
	"context"
	"net/http"
	"strings"
)

// callContext is the context of a call: its parent with the HTTP request.
type callContext struct {
	context.Context
	w http.ResponseWriter
	r *http.Request
}

type callKey struct{}

func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Request returns the HTTP request of a call, for its cookies, the client's address and
// its user agent. Do not read its body. It panics unless ctx is, or derives from, the
// context of a procedure.
func Request(ctx context.Context) *http.Request {
	return ctx.Value(callKey{}).(*callContext).r
}

// SetCookie adds a cookie to the response. It replaces one of the same name set earlier
// in this request, such as that of a session that was refreshed just before its end. It
// panics unless ctx is, or derives from, the context of a procedure.
func SetCookie(ctx context.Context, cookie *http.Cookie) {
	h := ctx.Value(callKey{}).(*callContext).w.Header()
	old := h.Values("Set-Cookie")
	kept := make([]string, 0, len(old)+1)
	for _, line := range old {
		if !strings.HasPrefix(line, cookie.Name+"=") {
			kept = append(kept, line)
		}
	}
	h["Set-Cookie"] = append(kept, cookie.String())
}
