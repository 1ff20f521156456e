package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// callback is where a sign-in link leads: it opens a session and sends the
// browser on. A link that does not work sets no cookie.
func (s *Site) callback(w http.ResponseWriter, r *http.Request) {
	if s.aheadOfTime(w, r) {
		return
	}
	in, err := s.accounts.FollowLink(r.Context(), r.URL.Query().Get("token"), browser.Intent(r), s.gate.Client(r))
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid {
		s.tell(w, r, http.StatusBadRequest, "This link does not work", message{
			p.Message, "Ask for a new link, and open it in the same browser.", SignInPath, "Ask for a new link",
		})
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.enter(w, in)
}

// enter gives the browser a session that was just opened and sends it on.
func (s *Site) enter(w http.ResponseWriter, in account.SignIn) {
	for _, c := range append(s.gate.SignedIn(in.Tokens), s.gate.KeepIntent("")) {
		http.SetCookie(w, c)
	}
	seeOther(w, in.RedirectTo)
}

// seeOther sends the browser on to a target that was checked, and which
// [http.Redirect] would rewrite.
func seeOther(w http.ResponseWriter, target string) {
	h := w.Header()
	h.Set("Location", target)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // there may be a token in the address
	w.WriteHeader(http.StatusSeeOther)
}

// aheadOfTime answers whoever asks for an address that works once without
// somebody having opened it, and reports whether it did.
func (s *Site) aheadOfTime(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method == http.MethodHead:
		w.Header().Set("Cache-Control", "no-store")
	case prefetch(r):
		// A browser throws a prefetched failure away, and asks again when the
		// link is really followed.
		s.message(w, r, http.StatusServiceUnavailable, "Not opened yet",
			"This sign-in was fetched ahead of time and has not been used.", "Open it again to sign in.")
	default:
		return false
	}
	return true
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
