package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// linkPath takes the form with which a sign-in link is used.
const linkPath = SignInPath + "/link"

// callback is where a sign-in link leads: it opens a session and sends the
// browser on. A link that does not work sets no cookie.
//
// A person may have been sent somebody else's link, to be signed in to an account
// that is not theirs (login CSRF). So a browser other than the one that asked for
// the link gets a form that names the account; a GET there signs nobody in.
// Programs, which have no person to ask, use the link at once.
func (s *Site) callback(w http.ResponseWriter, r *http.Request) {
	if s.isSpeculative(w, r) {
		return
	}
	token := r.URL.Query().Get("token")
	if isBrowser(r) {
		link, err := s.accounts.SignInLink(r.Context(), token, browser.Intent(r))
		if err != nil {
			s.linkFailed(w, r, err)
			return
		}
		if !link.Asked {
			s.confirmLink(w, r, linkForm{Token: token, Email: link.Email})
			return
		}
	}
	s.follow(w, r, token)
}

// followLink takes the form of [Site.confirmLink].
func (s *Site) followLink(w http.ResponseWriter, r *http.Request) {
	if form, ok := s.form(w, r); ok {
		s.follow(w, r, form.Get("token"))
	}
}

func (s *Site) follow(w http.ResponseWriter, r *http.Request, token string) {
	in, err := s.accounts.FollowLink(r.Context(), token, browser.Intent(r), s.gate.Client(r))
	if err != nil {
		s.linkFailed(w, r, err)
		return
	}
	s.enter(w, in)
}

func (s *Site) linkFailed(w http.ResponseWriter, r *http.Request, err error) {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid {
		s.renderMessage(w, r, http.StatusBadRequest, "This link does not work", message{
			p.Message, "Ask for a new link, and open it in the same browser.", SignInPath, "Ask for a new link",
		})
		return
	}
	if !s.signUpRefused(w, r, err) {
		s.fail(w, r, err)
	}
}

// linkForm asks whether to use a sign-in link.
type linkForm struct {
	Token   string
	Email   string // of the account that the link signs in to
	Present string // of the account that this browser is signed in to; empty for none
}

func (s *Site) confirmLink(w http.ResponseWriter, r *http.Request, body linkForm) {
	if browser.HasSession(r) {
		ctx, err := s.gate.AuthenticateRestricted(w, r)
		if err != nil && problem.Of(err) != problem.Unauthorized {
			s.fail(w, r, err)
			return
		}
		if err == nil {
			id, _ := account.FromContext(ctx)
			body.Present = id.User.Email
		}
	}
	s.render(w, r, http.StatusOK, "link", page{Title: "Sign in", Posts: true, Script: zoneScript, Body: body})
}

// isBrowser reports whether a person's browser sends r. Browsers say from where a
// request comes by Fetch metadata; those from before it, and those on a plain
// connection, are known by what they accept.
func isBrowser(r *http.Request) bool {
	h := r.Header
	return h.Get("Sec-Fetch-Site") != "" || h.Get("Sec-Fetch-Mode") == "navigate" ||
		strings.HasPrefix(h.Get("User-Agent"), "Mozilla/") && strings.Contains(h.Get("Accept"), "text/html")
}

// signUpRefused answers a person whom the sign-up policy or their organization's
// provider policy does not admit, and reports whether err says so.
func (s *Site) signUpRefused(w http.ResponseWriter, r *http.Request, err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Forbidden {
		return false
	}
	if p.Code == account.ProviderRequired {
		s.renderMessage(w, r, http.StatusForbidden, "Sign in with your identity provider", message{Text: p.Message, Path: SignInPath, Label: "Go to sign-in"})
		return true
	}
	s.renderMessage(w, r, http.StatusForbidden, "You cannot sign up with this address", message{
		p.Message, "If you have an invitation, open the link in it.", SignInPath, "Sign in with another address",
	})
	return true
}

// enter gives the browser a session that was just opened and sends it on.
func (s *Site) enter(w http.ResponseWriter, in account.SignIn) {
	if in.Pending != "" {
		s.storePendingSignIn(w, in)
		return
	}
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

// isSpeculative answers whoever asks for an address that works once without
// somebody having opened it, and reports whether it did.
func (s *Site) isSpeculative(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method == http.MethodHead:
		w.Header().Set("Cache-Control", "no-store")
	case prefetch(r):
		// A browser throws a prefetched failure away, and asks again when the
		// link is really followed.
		s.showMessage(w, r, http.StatusServiceUnavailable, "Not opened yet",
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
