package web

import (
	"errors"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxProviderError is how much of a provider's error code is kept, in bytes.
// Real ones are single words (RFC 6749, section 4.1.2.1).
const maxProviderError = 100

// providerCallback is where an identity provider sends a browser back to: it
// opens a session and sends the browser on. An answer that does not do sets no
// cookie.
func (s *Site) providerCallback(w http.ResponseWriter, r *http.Request) {
	if s.isSpeculative(w, r) {
		return
	}
	q := r.URL.Query()
	refusal := q.Get("error")
	in, err := s.accounts.FinishProvider(r.Context(), account.ProviderAnswer{
		State: q.Get("state"), Code: q.Get("code"), Issuer: q.Get("iss"), Error: refusal[:min(len(refusal), maxProviderError)],
	}, browser.Intent(r), s.gate.Client(r))
	if err == nil {
		s.enter(w, in)
		return
	}
	if s.signUpRefused(w, r, err) {
		return
	}
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && p.Kind == problem.Invalid:
		if p.Cause != nil { // what only the operator can do something about
			s.log.WarnContext(r.Context(), "identity provider's answer refused", "error", err)
		}
		s.renderMessage(w, r, http.StatusBadRequest, "You are not signed in", message{
			p.Message, "Start again in this browser, or ask for a sign-in link by e-mail instead.", SignInPath, "Sign in",
		})
	case ok && p.Kind == problem.Unavailable:
		s.log.WarnContext(r.Context(), "identity provider not available", "error", err)
		s.renderMessage(w, r, http.StatusServiceUnavailable, "You are not signed in", message{
			p.Message, "Start again in a moment, or ask for a sign-in link by e-mail instead.", SignInPath, "Sign in",
		})
	case ok && p.Kind == problem.Precondition: // there is no provider, so nothing leads here
		s.notFound(w, r)
	default:
		s.fail(w, r, err)
	}
}
