package web

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Where the browser goes from a checkout, ours or a payment provider's (package
// billing sends people there too). Relative, so that it stays the origin which
// the form came from.
const (
	paidPath      = "/?checkout=paid"
	cancelledPath = "/?checkout=cancelled"
)

// checkout is the page that takes the place of a payment provider's.
type checkout struct {
	billing.DevCheckout
	Path   string // of the page itself
	Cancel string
}

// showCheckout says what would be paid for.
func (s *Site) showCheckout(w http.ResponseWriter, r *http.Request) {
	token := r.PathValue("token")
	c, err := s.billing.DevCheckout(token)
	if err != nil {
		s.checkoutFailed(w, r, err)
		return
	}
	body := checkout{c, billing.DevCheckoutPath + token, cancelledPath}
	s.render(w, r, http.StatusOK, "checkout", page{Title: "Pay for Kickstand " + body.PlanName(), Posts: true, Body: body})
}

// pay has the payment reported as the provider would.
func (s *Site) pay(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.form(w, r); !ok {
		return
	}
	if err := s.billing.Pay(r.Context(), r.PathValue("token")); err != nil {
		s.checkoutFailed(w, r, err)
		return
	}
	seeOther(w, paidPath)
}

func (s *Site) checkoutFailed(w http.ResponseWriter, r *http.Request, err error) {
	switch problem.Of(err) {
	case problem.NotFound:
		s.showMessage(w, r, http.StatusNotFound, "There is no such checkout", "The address is not one of ours, or it is too old.",
			"Choose the plan again to get a new one.")
	case problem.Unavailable:
		s.log.WarnContext(r.Context(), "payment not reported", "error", err)
		s.renderMessage(w, r, http.StatusServiceUnavailable, "The payment did not arrive", message{
			"It could not be stored at the moment.", "Try again: paying twice changes nothing.",
			billing.DevCheckoutPath + r.PathValue("token"), "Back to the checkout",
		})
	default:
		s.fail(w, r, err)
	}
}

// PlanName is the plan as people read it.
func (c checkout) PlanName() string { return PlanName(c.Plan) }
