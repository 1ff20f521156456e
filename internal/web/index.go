package web

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// index says where things are, and who is signed in.
func (s *site) index(w http.ResponseWriter, r *http.Request) {
	p := page{Title: "Kickstand", Wide: true, Body: s.places}
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
