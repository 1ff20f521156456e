package fleetpages_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// formOf returns the values that a page's form would submit.
func formOf(d webtest.Document) url.Values {
	form := url.Values{}
	for _, kind := range []string{"input", "textarea", "select"} {
		for _, n := range d.All(kind) {
			name, value := webtest.Attr(n, "name"), webtest.Attr(n, "value")
			switch {
			case name == "":
			case webtest.Attr(n, "type") == "checkbox":
				if webtest.Has(n, "checked") {
					form.Set(name, "on")
				}
			case kind == "textarea":
				form.Set(name, webtest.Text(n))
			case kind == "select":
				for o := range n.Descendants() {
					if o.Data == "option" && (!form.Has(name) || webtest.Has(o, "selected")) {
						form.Set(name, webtest.Attr(o, "value"))
					}
				}
			default:
				form.Set(name, value)
			}
		}
	}
	return form
}

func TestPlans(t *testing.T) {
	y := newYard(t)
	y.admin.Page("/fleet/pricing").Want("No pricing plans yet", "New plan")
	y.agent.Page("/fleet/pricing").Want("No pricing plans yet")
	l := furnish(y)
	y.agent.Page("/fleet/pricing").Want("1 plan.", "Standard "+hostile, "€1.00 to unlock, then €0.25 a minute", "Active")
	path := "/fleet/pricing/" + l.plan.ID
	d := y.agent.Page(path)
	d.Want("The out-of-zone fee is €9.00.", "Price calculator", "12 × €0.25", "€4.00")
	if len(links(d, path+"/edit")) != 0 {
		t.Error("an agent is offered to edit a plan")
	}
	y.agent.Page(path + "?km=2,5").Want("12 × €0.25")
	y.agent.Page(path+"?minutes=61&outside=yes").Want("61 × €0.25", "€25.25")
	for query, want := range map[string]string{
		"minutes=-1": "Must not be negative", "reserved=-1": "Must not be negative", "minutes=999999999999": "Must be at most 527,040.", "minutes=x": "Must be a whole number",
		"km=NaN": "Must be a number such as 2.5.", "km=x": "Must be a number such as 2.5.", "km=1,000": "Must be a number such as 2.5.", "km=-1": "Must not be negative", "km=1e300": "Must be at most 10,000.", "minutes=5&paused=6": "Exceeds the duration",
	} {
		d := y.agent.Page(path + "?" + query)
		d.Want(want)
		if len(rows(d)) != 0 {
			t.Errorf("%s: got a price", query)
		}
	}
	y.agent.WantRefused(y.agent.Get("/sandbox/fleet/pricing/"+l.plan.ID), http.StatusNotFound)
	d = y.agent.Page("/sandbox/fleet/pricing")
	for _, at := range links(d, "/sandbox/fleet/pricing/plan_") {
		y.agent.Page(at + "?reserved=20&km=7")
		y.admin.Page(at + "/edit")
	}
	d.Want("3 plans.", "¥")
}

func TestPlanForms(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	const path = "/fleet/pricing/new"
	y.agent.WantRefused(y.agent.Post(path, nil), http.StatusForbidden)
	form := formOf(y.admin.Page(path))
	form.Set("name", "Night "+hostile)
	form.Set("unlock_amount", "1.005")
	form.Set("per_min_pricing.1.rate_amount", "0.20")
	form.Set("per_min_pricing.1.start", "soon")
	form.Set("fare_cap.amount", "12")
	form.Set("tax_basis_points", "a lot")
	d := y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity)
	d.Want("Unlocking, in EUR must be an amount such as 1.50", "After … minutes must be a whole number", "In each … minutes is required with an amount.", "Percent must be a number such as 19")
	// The submitted row moved up, with its error.
	if got := webtest.Attr(d.Field("per_min_pricing.0.start"), "value"); got != "soon" || len(d.DescribedBy("per_min_pricing.0.start")) != 1 {
		t.Errorf("got %q, %v", got, d.DescribedBy("per_min_pricing.0.start"))
	}
	form = formOf(d)
	for name, value := range map[string]string{
		"unlock_amount": "1", "per_min_pricing.0.start": "2", "per_min_pricing.0.end": "1", "fare_cap.duration_minutes": "1440", "tax_basis_points": "7.7%", "is_taxable": "added",
		"reservation_per_min_amount": "0.1", "reservation_flat_amount": "1", "url": "javascript:alert(1)",
	} {
		form.Set(name, value)
	}
	y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity).Want("Until must be after “After … minutes”.", "Flat fee, in EUR must not be given with “A minute, in EUR”.", "Information page for riders must be an http")
	form.Set("reservation_flat_amount", "")
	form.Set("per_min_pricing.0.end", "")
	form.Set("url", "")
	y.admin.WantRefused(y.admin.Post(path, with(form, "tax_basis_points", "119")), http.StatusUnprocessableEntity).Want("Percent must be from 0 to 100.")
	d = y.admin.WantRefused(y.admin.Post(path, with(form, "unlock_amount", "90071992547409.91")), http.StatusUnprocessableEntity)
	d.Want("There is a problem: These prices are too high: the longest ride would cost more than can be charged.")
	for _, name := range []string{"name", "subaccount_id"} {
		if got := d.DescribedBy(name); strings.Contains(strings.Join(got, " "), "high") {
			t.Errorf("%s is described by %q", name, got)
		}
	}
	form.Set("url", "https://example.com/?a=b&c")
	form.Set("per_km_pricing.0.rate_amount", "−0,10")
	d, notice := y.admin.Follow(y.admin.Post(path, form))
	d.Want("Night "+hostile, "€1.00 to unlock, then free for the first 2 minutes, then €0.20 a minute, and €0.10 less a kilometer, at most €12.00 in each 24 hours.", "7.7% tax is added.", "A reservation costs €0.10 a minute.")
	if !strings.HasPrefix(notice, "Plan created.") {
		t.Errorf("got %q", notice)
	}

	// A request for more rows retains values and changes nothing.
	at := "/fleet/pricing/" + l.plan.ID
	form = formOf(y.admin.Page(at + "/edit"))
	if form.Get("out_of_zone_amount") != "9.00" || form.Get("per_min_pricing.0.rate_amount") != "0.25" || form.Get("active") != "on" {
		t.Errorf("got form %v", form)
	}
	form.Set("name", "Renamed")
	form.Set("per_min_pricing.1.rate_amount", "0.05")
	form.Set("more", "1")
	w := y.admin.Post(at+"/edit", form)
	d = webtest.Parse(t, w.Body.String())
	if got := webtest.Attr(d.Field("per_min_pricing.3.rate_amount"), "name"); got == "" || webtest.Attr(d.Field("name"), "value") != "Renamed" || webtest.Attr(d.Field("per_min_pricing.1.rate_amount"), "value") != "0.05" {
		t.Error("what was typed is gone")
	}
	form = formOf(d)
	form.Set("type."+l.scooter, "on")
	form.Del("active")
	y.agent.WantRefused(y.agent.Post(at+"/edit", form), http.StatusForbidden)
	d, _ = y.admin.Follow(y.admin.Post(at+"/edit", form))
	d.Want("Renamed", "Inactive", "€0.25 a minute, plus €0.05 a minute", "Scooter", "Updated by "+y.Admin.Email)
	plan, err := l.Plan(t.Context(), l.db, l.organization.ID, l.plan.ID)
	if err != nil || plan.Version != 2 || plan.Active || len(plan.PerMinute) != 2 || plan.PausePerMinAmount != nil || *plan.OutOfZoneAmount != 900 {
		t.Errorf("got %+v, %v", plan, err)
	}
	log := audittest.List(t, l.log, y.Organization.ID, audit.Query{TargetID: l.plan.ID, ActorType: audit.User})
	if len(log) != 1 || log[0].Action != "pricing.updated" || len(log[0].Changes) != 4 {
		t.Errorf("got log %+v", log)
	}
	y.admin.WantRefused(y.admin.Get("/fleet/pricing/plan_nothing"), http.StatusNotFound)
	y.admin.WantRefused(y.admin.Get("/fleet/pricing/plan_nothing/edit"), http.StatusNotFound)
}

// TestTariffsComeBack: submitting the unchanged form of any plan changes nothing.
func TestTariffsComeBack(t *testing.T) {
	y := newYard(t)
	y.admin.Page("/sandbox/fleet/pricing")
	org := y.Organization.ID
	before, err := y.sandbox.Plans(t.Context(), y.sandbox.db, org)
	if err != nil || len(before) < 3 {
		t.Fatal(before, err)
	}
	for _, plan := range before {
		path := "/sandbox/fleet/pricing/" + plan.ID + "/edit"
		y.admin.Follow(y.admin.Post(path, formOf(y.admin.Page(path))))
		after, err := y.sandbox.Plan(t.Context(), y.sandbox.db, org, plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		after.Version, after.UpdatedAt = plan.Version, plan.UpdatedAt
		if got, want := text(t, &after), text(t, &plan); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

func text(t *testing.T, plan *fleet.Plan) string {
	t.Helper()
	doc, err := plan.Record()
	if err != nil {
		t.Fatal(err)
	}
	return string(doc.JSON)
}

// TestPlanExamples: the form prices example rides by its amounts, and stores nothing.
func TestPlanExamples(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	const path = "/fleet/pricing/new"
	d := y.admin.Page(path)
	d.Want("By the example amounts in the fields", "Unlocking €1.00, Riding €1.25", "€2.25")
	if got := webtest.Attr(d.Field("per_min_pricing.0.rate_amount"), "placeholder"); got != "0.25" {
		t.Errorf("got the example %q", got)
	}
	form := formOf(d)
	for values, want := range map[[2]string]string{
		{"unlock_amount", "2"}:                 "Unlocking €2.00",
		{"per_min_pricing.0.rate_amount", "1"}: "€5.00",
		{"unlock_amount", "much"}:              "must be an amount such as 1.50",
		{"fare_cap.amount", "9"}:               "The period of the fare cap is required with an amount.",
	} {
		f := url.Values{"preview": {"1"}}
		maps.Copy(f, form)
		f.Set(values[0], values[1])
		w := y.admin.Post(path, f)
		d := webtest.Parse(t, w.Body.String())
		if w.Code != http.StatusOK {
			t.Errorf("%v: got %d", values, w.Code)
		}
		d.Want(want)
		if got := webtest.Attr(d.Field(values[0]), "value"); got != values[1] {
			t.Errorf("%v came back as %q", values, got)
		}
	}
	// Numbers that no tariff can have.
	for _, values := range []url.Values{
		{"fare_cap.amount": {"9"}, "fare_cap.duration_minutes": {"0"}}, {"fare_cap.amount": {"9"}, "fare_cap.duration_minutes": {"-1"}},
		{"unlock_amount": {"92233720368547758.07"}}, {"per_min_pricing.0.rate_amount": {"92233720368547758.07"}},
		{"per_min_pricing.0.rate_amount": {"1"}, "per_min_pricing.0.interval": {"-1"}}, {"per_min_pricing.0.rate_amount": {"1"}, "per_min_pricing.0.start": {"9223372036854775807"}},
	} {
		f := url.Values{"preview": {"1"}}
		maps.Copy(f, form)
		maps.Copy(f, values)
		w := y.admin.Post(path, f)
		if faults := webtest.Parse(t, w.Body.String()).WithAttr("id", "examples"); w.Code != http.StatusOK || len(faults) != 1 || strings.Contains(webtest.Text(faults[0]), "€") {
			t.Errorf("%v: got %d", values, w.Code)
		}
	}
	edit := "/fleet/pricing/" + l.plan.ID + "/edit"
	d = y.admin.Page(edit)
	d.Want("Example rides", "€6.00") // 20 minutes
	f := formOf(d)
	f.Set("preview", "1")
	f.Set("per_min_pricing.0.rate_amount", "0.30")
	webtest.Parse(t, y.admin.Post(edit, f).Body.String()).Want("€7.00")
	if plan, err := l.Plan(t.Context(), l.db, l.organization.ID, l.plan.ID); err != nil || plan.Version != l.plan.Version {
		t.Errorf("got version %d, %v", plan.Version, err)
	}
}
