package settings

import (
	"net/http"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const (
	organizationPath = "/settings/organization"
	timeZonePath     = "/settings/organization/time-zone"
	planPath         = "/settings/plan"
)

// organization is the body of the organization's page.
type organization struct {
	account.Organization
	Plan  string
	Since web.Time
	Admin bool

	HasProvider bool
	SignIn      string // the provider policy, as a sentence
	Usage       usage
	Zone        web.Field
}

// signInText describes a provider policy.
func signInText(p account.ProviderPolicy) string {
	switch p {
	case account.ProviderOptional:
		return "Members choose how to sign in"
	case account.ProviderForEveryone:
		return "All members sign in with the identity provider only"
	}
	return "Members of " + strings.Join(p.Domains(), ", ") + " sign in with the identity provider only"
}

func organizationFields(name string) web.Fields {
	return web.Fields{{Name: "name", Label: "Name", Type: "text", Autocomplete: "organization", Most: 255, Value: name,
		Help: "Customers see it as the sender of your mails."}}
}

func timeZoneFields(zone string) web.Fields {
	return web.Fields{{Name: "timeZone", Label: "Time zone", Type: "text", Most: 100, Value: zone, Help: "Days, weeks and months of reports begin at its midnight. Such as Europe/Berlin."}}
}

func (p *pages) organization(w http.ResponseWriter, r *web.Request) error {
	return p.showOrganization(w, r, organizationFields(r.Organization.Name), timeZoneFields(r.Organization.TimeZone), 0)
}

func (p *pages) showOrganization(w http.ResponseWriter, r *web.Request, fs, zone web.Fields, status int) error {
	o := r.Organization
	used, err := p.usage(r)
	if err != nil {
		return err
	}
	pg := page(r, organizationPath, "Organization", organization{o, web.PlanName(o.Plan), r.Time(o.CreatedAt), r.Admin(), p.Accounts.HasProvider(), signInText(o.ProviderOnly), used, zone[0]})
	pg.Fields, pg.Status = slices.Concat(fs, zone), status
	return p.Render(w, r, "organization", pg)
}

func (p *pages) rename(w http.ResponseWriter, r *web.Request) error {
	if !r.Admin() { // agents can read the page
		return problem.New(problem.Forbidden, "Only admins of %s can change this.", r.Organization.Name)
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	o, err := p.Accounts.RenameOrganization(r.Context(), r.OrganizationID, form.Get("name"))
	if err != nil {
		fs := organizationFields(form.Get("name"))
		if status := fs.Answer(w, err); status != 0 {
			return p.showOrganization(w, r, fs, timeZoneFields(r.Organization.TimeZone), status)
		}
		return err
	}
	n := web.Notice{Text: "Organization renamed to " + o.Name + "."}
	if o.Name != r.Organization.Name {
		n.Undo, n.Fields = organizationPath, map[string]string{"name": r.Organization.Name}
	}
	return p.Redirect(w, organizationPath, n)
}

// setTimeZone sets the time zone of the reports.
func (p *pages) setTimeZone(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	o, err := p.Accounts.SetTimeZone(r.Context(), r.OrganizationID, form.Get("timeZone"))
	if err != nil {
		zone := timeZoneFields(form.Get("timeZone"))
		if status := zone.Answer(w, err); status != 0 {
			return p.showOrganization(w, r, organizationFields(r.Organization.Name), zone, status)
		}
		return err
	}
	n := web.Notice{Text: "Time zone of reports set to " + o.TimeZone + "."}
	if o.TimeZone != r.Organization.TimeZone {
		n.Undo, n.Fields = timeZonePath, map[string]string{"timeZone": r.Organization.TimeZone}
	}
	return p.Redirect(w, organizationPath, n)
}

// plan is the body of the plan's page.
type plan struct {
	billing.State
	Name, Pending string
	Limit         string // requests per minute of a key
	Until         web.Time
	Plans         []planRow
	Subscribed    bool // at the payment provider
	Sells         bool // there is a plan to change to
	Built         bool // built-in checkout: no payment
	Usage         usage
}

type planRow struct {
	web.Plan
	Current bool
	Buy     bool
	Wanted  bool // its checkout was not completed
}

func (p *pages) plan(w http.ResponseWriter, r *web.Request) error {
	return p.showPlan(w, r, "", 0)
}

// showPlan renders the page with an error, if any.
func (p *pages) showPlan(w http.ResponseWriter, r *web.Request, wrong string, status int) error {
	state, err := p.Billing.State(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	used, err := p.usage(r)
	if err != nil {
		return err
	}
	body := plan{
		State: state, Usage: used, Name: web.PlanName(state.Plan), Limit: web.Number(billing.KeyPlan(state.Plan).Limit(r.Organization.FleetRateLimit)), Until: r.Time(state.PeriodEnd),
		Subscribed: state.SubscriptionID != "", Built: p.Billing.HasDevCheckout(),
	}
	if state.PendingPlan != "" {
		body.Pending = web.PlanName(state.PendingPlan)
	}
	for _, known := range web.Plans() {
		row := planRow{
			Plan: known, Current: known.Tier == state.Plan, Wanted: known.Tier == state.PendingPlan,
			Buy: known.Tier.Compare(state.Plan) > 0 && p.Billing.CanBuy(known.Tier),
		}
		body.Plans = append(body.Plans, row)
		body.Sells = body.Sells || row.Buy
	}
	pg := page(r, planPath, "Plan", body)
	if wrong != "" {
		pg.Status, pg.Fields = status, web.Fields{{Name: "plans", Error: wrong}}
	}
	return p.Render(w, r, "plan", pg)
}

// changePlan redirects to the checkout of a plan.
func (p *pages) changePlan(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	wanted := account.Plan(form.Get("plan"))
	to, err := p.Billing.StartForOrganization(r.Context(), r.User, wanted)
	fs := web.Fields{{Name: "planTier", Label: "Plan"}}
	if status := fs.Answer(w, err); status != 0 {
		return p.showPlan(w, r, fs[0].Error, status)
	}
	if err != nil {
		return err
	}
	p.ToCheckout(w, r, wanted, to)
	return nil
}
