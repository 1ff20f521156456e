package web

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// start is what the start page shows.
type start struct {
	Notice string // what has just happened; empty for nothing
	Places []Place
}

// index says where things are, and who is signed in.
func (s *Site) index(w http.ResponseWriter, r *http.Request) {
	p := page{Title: "Kickstand", Wide: true, Body: start{s.notice(r), s.places}}
	if browser.HasSession(r) {
		ctx, err := s.gate.Authenticate(w, r)
		switch {
		case err == nil:
			if id, ok := account.FromContext(ctx); ok {
				p.User = &id.User
			}
		case problem.Of(err) != problem.Unauthorized:
			s.fail(w, r, err)
			return
		}
	}
	s.render(w, r, http.StatusOK, "index", p)
}

// notice is for whoever comes back from a checkout.
func (s *Site) notice(r *http.Request) string {
	switch r.URL.Query().Get("checkout") {
	case "paid":
		return "Thank you. Your plan changes as soon as the payment is confirmed, which takes a few seconds."
	case "cancelled":
		return "Nothing was paid, and your plan stays as it is."
	}
	return ""
}
