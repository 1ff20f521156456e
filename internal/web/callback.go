package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// callback is where a sign-in link leads: it opens a session and sends the
// browser on. A link that does not work sets no cookie.
func (s *site) callback(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		// Asks what is here, and does not use it up.
		w.Header().Set("Cache-Control", "no-store")
		return
	}
	if prefetch(r) {
		// A browser throws a prefetched failure away, and asks again when the
		// link is really followed.
		s.message(w, r, http.StatusServiceUnavailable, "Not opened yet",
			"This sign-in link was fetched ahead of time and has not been used.", "Open it again to sign in.")
		return
	}
	in, err := s.accounts.FollowLink(r.Context(), r.URL.Query().Get("token"), browser.Intent(r), s.gate.Client(r))
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid {
		s.message(w, r, http.StatusBadRequest, "This link does not work", p.Message,
			"Ask for a new link where you signed in, and open it in the same browser.")
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	for _, c := range append(s.gate.SignedIn(in.Tokens), s.gate.KeepIntent("")) {
		http.SetCookie(w, c)
	}
	h := w.Header()
	// Not by http.Redirect, which would rewrite the target that was checked.
	h.Set("Location", in.RedirectTo)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the token is in the address
	w.WriteHeader(http.StatusSeeOther)
}

// prefetch reports whether r fetches ahead of time what nobody has opened yet.
// The first is the standard's header, the others are of older browsers.
func prefetch(r *http.Request) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		purpose := strings.ToLower(r.Header.Get(name))
		if strings.HasPrefix(purpose, "prefetch") || strings.HasPrefix(purpose, "prerender") || strings.HasPrefix(purpose, "preview") {
			return true
		}
	}
	return false
}
