package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Plan describes a plan for display.
type Plan struct {
	Tier     account.Plan
	Name     string
	Features []string // one sentence each
	Price    string
}

// Plans returns all plans, smallest first. The payment provider's page has their prices.
func Plans() []Plan {
	limit := func(p account.Plan) string { return Number(billing.KeyPlan(p).Limit(0)) }
	return []Plan{
		{account.Free, "Free", []string{
			"Helpdesk and fleet with all features.",
			limit(account.Free) + " requests a minute for each API key.",
		}, "Free of charge."},
		{account.Pro, "Pro", []string{
			"All features.",
			limit(account.Pro) + " requests a minute for each API key.",
		}, "Price on the payment page."},
		{account.Business, "Business", []string{
			"All features.",
			limit(account.Business) + " requests a minute for each API key, or more by agreement.",
		}, "Price on the payment page."},
	}
}

// PlanName returns the display name of a plan.
func PlanName(p account.Plan) string {
	for _, known := range Plans() {
		if known.Tier == p {
			return known.Name
		}
	}
	return string(p)
}

// signupForm is the body of the page that completes a sign-up.
type signupForm struct {
	Email  string
	Plans  []Plan
	Chosen account.Plan
	Error  string // of the plan
}

func welcomeFields(name string) Fields {
	return Fields{
		{Name: "name", Label: "Your name", Type: "text", Autocomplete: "name", Most: 255, Value: name, Help: "Shown to colleagues and customers beside your messages."},
		{Name: "organizationName", Label: "Organization", Type: "text", Autocomplete: "organization", Most: 255, Help: "Your company. You become its admin and can invite colleagues."},
		{Name: "planTier", Label: "Plan", Type: "plan"},
	}
}

// identifyNewcomer returns the request of a user without an organization. Other users are
// redirected and ok is false.
func (s *Site) identifyNewcomer(w http.ResponseWriter, r *http.Request) (*Request, bool) {
	req, err := s.identify(w, r)
	switch {
	case err == nil && req.OrganizationID == "":
		return req, true
	case err == nil:
		seeOther(w, "/inbox")
	case problem.Of(err) == problem.Unauthorized:
		s.redirectToSignIn(w, r)
	case code(err) == account.SecondFactorSetupRequired:
		s.restricted(w, req)
	default:
		s.fail(w, r, err)
	}
	return nil, false
}

// showWelcome renders the form that completes a sign-up.
func (s *Site) showWelcome(w http.ResponseWriter, r *http.Request) {
	req, ok := s.identifyNewcomer(w, r)
	if !ok {
		return
	}
	err := s.accounts.MayCompleteSignup(r.Context(), req.UserID)
	p, known := errors.AsType[*problem.Error](err)
	switch {
	case err == nil:
		s.renderWelcome(w, req, http.StatusOK, account.Free, welcomeFields(req.User.Name))
	case known && p.Kind == problem.Forbidden:
		s.notAdmitted(w, req, p)
	default:
		s.fail(w, r, err)
	}
}

// notAdmitted renders the refusal of a user that the sign-up policy does not admit.
func (s *Site) notAdmitted(w http.ResponseWriter, r *Request, p *problem.Error) {
	s.render(w, r.Request, http.StatusForbidden, "notadmitted", page{
		Title: "You don’t belong to an organization", Posts: true, Notice: s.popNotice(w, r.Request),
		Body: refusedNewcomer{r.User.Email, p.Message},
	})
}

// refusedNewcomer is a user that may not create an organization.
type refusedNewcomer struct{ Email, Reason string }

func (s *Site) renderWelcome(w http.ResponseWriter, r *Request, status int, chosen account.Plan, fs Fields) {
	body := signupForm{Email: r.User.Email, Chosen: chosen, Error: fs.Field("planTier").Error}
	for _, p := range Plans() {
		if p.Tier == account.Free || s.billing != nil && s.billing.CanBuy(p.Tier) {
			body.Plans = append(body.Plans, p)
		}
	}
	fs.Focus()
	s.render(w, r.Request, status, "welcome", page{
		Title: "Welcome to Kickstand", Wide: true, Posts: true, Script: zoneScript, Notice: s.popNotice(w, r.Request), Fields: fs, Body: body,
	})
}

// completeSignup creates the organization and, for a paid plan, redirects to its
// checkout.
func (s *Site) completeSignup(w http.ResponseWriter, r *http.Request) {
	req, ok := s.identifyNewcomer(w, r)
	if !ok {
		return
	}
	form, ok := s.form(w, r)
	if !ok {
		return
	}
	in := account.SignupRequest{Name: form.Get("name"), OrganizationName: form.Get("organizationName"), Plan: account.Plan(form.Get("planTier"))}
	done, err := s.accounts.CompleteSignup(r.Context(), req.UserID, in)
	fs := welcomeFields("")
	fs.Fill(form)
	p, known := errors.AsType[*problem.Error](err)
	switch {
	case known && p.Kind == problem.Conflict: // done in another tab a moment ago
		seeOther(w, "/inbox")
	case known && p.Kind == problem.Forbidden:
		s.notAdmitted(w, req, p)
	case known && (p.Kind == problem.Unavailable || p.Kind == problem.Precondition) && in.Plan != account.Free && in.Plan != "":
		status := http.StatusUnprocessableEntity
		if p.Kind == problem.Unavailable {
			s.log.WarnContext(r.Context(), "sign-up could not lead to a checkout", "error", err)
			status = http.StatusServiceUnavailable
		}
		fs.Field("planTier").Error = Sentence(p.Message) + " Or begin with Free, and change the plan later in the settings."
		s.renderWelcome(w, req, status, in.Plan, fs)
	case err != nil:
		if status := fs.Answer(w, err); status != 0 {
			s.renderWelcome(w, req, status, in.Plan, fs)
			return
		}
		s.fail(w, r, err)
	case done.CheckoutURL == "":
		if err := s.redirect(w, "/inbox", Notice{Text: "Welcome to Kickstand, " + strings.TrimSpace(in.Name) + "."}); err != nil {
			s.fail(w, r, err)
		}
	default:
		s.toCheckout(w, r, in.Plan, done.CheckoutURL)
	}
}

// toCheckout redirects to the checkout of a plan: built-in, or the payment provider's.
func (s *Site) toCheckout(w http.ResponseWriter, r *http.Request, plan account.Plan, to string) {
	if s.billing.HasDevCheckout() {
		seeOther(w, to)
		return
	}
	s.redirectExternal(w, r, "Redirecting to payment", "Kickstand "+PlanName(plan)+" is paid at the payment provider. You return here afterwards.", to)
}

// ToCheckout redirects to the checkout URL of a plan, as package billing returned it.
func (a *Section) ToCheckout(w http.ResponseWriter, r *Request, plan account.Plan, to string) {
	a.site.toCheckout(w, r.Request, plan, to)
}
