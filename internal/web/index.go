package web

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// index redirects signed-in users to the inbox. Others see links to sign in and sign up,
// and the endpoints for developers.
func (s *Site) index(w http.ResponseWriter, r *http.Request) {
	n := checkoutNotice(r)
	if browser.HasSession(r) {
		req, err := s.identify(w, r)
		switch {
		case err == nil:
			to := "/inbox"
			switch {
			case req.OrganizationID == "":
				to = WelcomePath
			case n.Text != "" && req.Admin():
				to = "/settings/plan"
			}
			if err := s.redirect(w, to, n); err != nil {
				s.fail(w, r, err)
			}
			return
		case code(err) == account.SecondFactorSetupRequired:
			s.restricted(w, req)
			return
		case problem.Of(err) != problem.Unauthorized:
			s.fail(w, r, err)
			return
		}
	}
	p := page{Title: "Kickstand", Wide: true, Script: zoneScript, Body: s.endpoints}
	if n.Text != "" {
		p.Notice = &n
	}
	s.render(w, r, http.StatusOK, "index", p)
}

// checkoutNotice returns the notice after a checkout.
func checkoutNotice(r *http.Request) Notice {
	switch r.URL.Query().Get("checkout") {
	case "paid":
		return Notice{Text: "Thank you. Your plan changes as soon as the payment is confirmed, which takes a few seconds."}
	case "cancelled":
		return Notice{Text: "No payment was made. Your plan is unchanged."}
	}
	return Notice{}
}
