package web

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Redirect targets after a checkout, built-in or of a payment provider; package billing
// uses them too. They are relative, so that the origin of the form stays.
const (
	paidPath      = "/?checkout=paid"
	cancelledPath = "/?checkout=cancelled"
)

// checkout is the built-in checkout page, for servers without a payment provider.
type checkout struct {
	billing.DevCheckout
	Path   string // of this page
	Cancel string
}

// showCheckout shows the plan and its organization.
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

// pay posts the provider's event for a successful payment.
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
		s.showMessage(w, r, http.StatusNotFound, "Checkout not found", "The address is wrong or has expired.",
			"Choose the plan again for a new checkout.")
	case problem.Unavailable:
		s.log.WarnContext(r.Context(), "payment not reported", "error", err)
		s.renderMessage(w, r, http.StatusServiceUnavailable, "The payment could not be recorded", messagePage{
			"The payment could not be saved right now.", "Try again. You won’t be charged twice.",
			billing.DevCheckoutPath + r.PathValue("token"), "Back to the checkout",
		})
	default:
		s.fail(w, r, err)
	}
}

// PlanName returns the plan's display name.
func (c checkout) PlanName() string { return PlanName(c.Plan) }
