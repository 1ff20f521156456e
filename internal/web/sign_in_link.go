package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// linkPath receives the form that confirms a sign-in link.
const linkPath = SignInPath + "/link"

// callback handles a sign-in link: it creates a session and redirects. A link that does
// not work sets no cookie.
//
// An attacker may mail somebody a link to an account of the attacker (login CSRF). So a
// browser that did not request the link gets a form that names the account, and GET does
// not sign in. Clients that are not browsers use the link at once.
func (s *Site) callback(w http.ResponseWriter, r *http.Request) {
	if s.handleSpeculative(w, r) {
		return
	}
	token := r.URL.Query().Get("token")
	if isBrowser(r) {
		link, err := s.accounts.SignInLink(r.Context(), token, browser.Intent(r))
		if err != nil {
			s.linkFailed(w, r, err)
			return
		}
		if !link.SameBrowser {
			s.confirmLink(w, r, linkForm{Token: token, Email: link.Email})
			return
		}
	}
	s.follow(w, r, token)
}

// followLink handles the form of [Site.confirmLink].
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
		s.renderMessage(w, r, http.StatusBadRequest, "This link does not work", messagePage{
			p.Message, "Request a new link and open it in the same browser.", SignInPath, "Request a new link",
		})
		return
	}
	if !s.signUpRefused(w, r, err) {
		s.fail(w, r, err)
	}
}

// linkForm is the page that confirms the use of a sign-in link.
type linkForm struct {
	Token   string
	Email   string // of the link's account
	Present string // of the account signed in to in this browser; empty: none
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
	s.render(w, r, http.StatusOK, "link", page{Title: "Sign in", Posts: true, Script: zoneScript, Brand: s.brandOf(r.Context(), body.Email), Body: body})
}

// isBrowser reports whether a browser sent r: by its Fetch metadata, and for older
// browsers and plain connections by its Accept header.
func isBrowser(r *http.Request) bool {
	h := r.Header
	return h.Get("Sec-Fetch-Site") != "" || h.Get("Sec-Fetch-Mode") == "navigate" ||
		strings.HasPrefix(h.Get("User-Agent"), "Mozilla/") && strings.Contains(h.Get("Accept"), "text/html")
}

// signUpRefused renders the page for err if the sign-up policy or the organization's
// provider policy refused the user, and reports whether it did.
func (s *Site) signUpRefused(w http.ResponseWriter, r *http.Request, err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Forbidden {
		return false
	}
	if p.Code == account.ProviderRequired {
		s.renderMessage(w, r, http.StatusForbidden, "Sign in with your identity provider", messagePage{Text: p.Message, Path: SignInPath, Label: "Go to sign-in"})
		return true
	}
	s.renderMessage(w, r, http.StatusForbidden, "You can’t sign up with this address", messagePage{
		p.Message, "If you have an invitation, open its link.", SignInPath, "Sign in with another address",
	})
	return true
}

// enter sets the cookies of a new session and redirects.
func (s *Site) enter(w http.ResponseWriter, in account.SignIn) {
	if in.Pending != "" {
		s.storePendingSignIn(w, in)
		return
	}
	for _, c := range append(s.gate.SetSession(in.Tokens), s.gate.SetIntent("")) {
		http.SetCookie(w, c)
	}
	seeOther(w, in.RedirectTo)
}

// seeOther redirects to a validated target, which [http.Redirect] would rewrite.
func seeOther(w http.ResponseWriter, target string) {
	h := w.Header()
	h.Set("Location", target)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the address may contain a token
	w.WriteHeader(http.StatusSeeOther)
}

// handleSpeculative answers requests for a one-time link that no user has opened, such as
// HEAD and prefetches, and reports whether it did.
func (s *Site) handleSpeculative(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method == http.MethodHead:
		w.Header().Set("Cache-Control", "no-store")
	case prefetch(r):
		// A browser discards a failed prefetch and requests the page when the user
		// follows the link.
		s.showMessage(w, r, http.StatusServiceUnavailable, "Not opened yet",
			"The link was prefetched and has not been used.", "Open it again to sign in.")
	default:
		return false
	}
	return true
}

// prefetch reports whether r is a prefetch, by the standard's header or those of older
// browsers.
func prefetch(r *http.Request) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		purpose := strings.ToLower(r.Header.Get(name))
		if strings.HasPrefix(purpose, "prefetch") || strings.HasPrefix(purpose, "prerender") || strings.HasPrefix(purpose, "preview") {
			return true
		}
	}
	return false
}
