package web

import (
	"errors"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxProviderError is the length to which a provider's error code is cut, in bytes. Error
// codes are single words (RFC 6749, section 4.1.2.1).
const maxProviderError = 100

// providerCallback handles an identity provider's redirect: it creates a session and
// redirects. A failed sign-in sets no cookie.
func (s *Site) providerCallback(w http.ResponseWriter, r *http.Request) {
	if s.handleSpeculative(w, r) {
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
		if p.Cause != nil { // only the operator can fix it
			s.log.WarnContext(r.Context(), "identity provider's answer refused", "error", err)
		}
		s.renderMessage(w, r, http.StatusBadRequest, "You are not signed in", messagePage{
			p.Message, "Start again in this browser, or request a sign-in link by e-mail.", SignInPath, "Sign in",
		})
	case ok && p.Kind == problem.Unavailable:
		s.log.WarnContext(r.Context(), "identity provider not available", "error", err)
		s.renderMessage(w, r, http.StatusServiceUnavailable, "You are not signed in", messagePage{
			p.Message, "Start again in a moment, or request a sign-in link by e-mail.", SignInPath, "Sign in",
		})
	case ok && p.Kind == problem.Precondition: // no provider is configured
		s.notFound(w, r)
	default:
		s.fail(w, r, err)
	}
}
