package settings_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

func TestServiceLevels(t *testing.T) {
	const path = "/settings/sla"
	h := newHarness(t)
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)
	d := agent.Page(path)
	d.Want("Urgent", "High", "Normal", "Low", "No target.")
	if len(d.WithAttr("href", path+"/urgent")) != 0 {
		t.Error("an agent may promise something")
	}
	for _, p := range []string{path + "/urgent", path + "/urgent/delete"} {
		agent.WantRefused(agent.Get(p), http.StatusForbidden)
		agent.WantRefused(agent.Post(p, url.Values{"response": {"30m"}}), http.StatusForbidden)
	}
	for _, p := range []string{path + "/none", path + "/none/delete", path + "/low/delete"} {
		admin.WantRefused(admin.Get(p), http.StatusNotFound)
	}
	for _, p := range []string{path + "/none", path + "/none/delete", path + "/low/delete"} {
		admin.WantRefused(admin.Post(p, url.Values{"response": {"30m"}}), http.StatusNotFound)
	}
	d = admin.Page(path + "/normal")
	if got := webtest.Attr(d.Field("mon"), "value") + webtest.Attr(d.Field("sun"), "value") + webtest.Attr(d.Field("zone"), "value"); got != "09:00-17:00UTC" {
		t.Errorf("a new form has the week %q", got)
	}

	full := func() url.Values {
		return url.Values{
			"response": {"1h30m"}, "resolution": {"8 hours"}, "hours": {"on"}, "zone": {"Europe/Berlin"},
			"mon": {"13:00-17:00 09:00–12:00"}, "tue": {"09:00-12:00, 13:00-17:00"}, "wed": {"00:00-24:00"}, "sat": {"10:00-14:00"},
			"holidays": {"2026-12-25\r\n2026-12-26\n\n2026-12-25"},
		}
	}
	for _, tt := range []struct {
		name, value, field, says string
	}{
		{"response", "soon", "response", "First response must be a time such as 30m, 8h or 1h30m."},
		{"response", "0h", "response", "must be at least a minute"},
		{"resolution", "999999h", "resolution", "Resolution must be from 1 to 525600"},
		{"mon", "9-17", "mon", "Monday must have times such as 09:00"},
		{"mon", "morning", "mon", "Monday must have hours such as"},
		{"tue", "09:00-12:00 11:00-17:00", "tue", "Tuesday must not have intervals that overlap."},
		{"sat", "22:00-06:00", "sat", "enter hours after midnight on the next day"},
		{"zone", "Nowhere/<b>", "zone", "Time zone"},
		{"zone", "", "zone", "Time zone"},
		{"holidays", "2026-12-25\n25.12.2026", "holidays", "Holidays must be a date such as 2026-12-25."},
	} {
		form := full()
		form.Set(tt.name, tt.value)
		d := admin.WantRefused(admin.Post(path+"/normal", form), 422)
		if said := strings.Join(d.DescribedBy(tt.field), " "); !strings.Contains(said, tt.says) {
			t.Errorf("%s %q: said %q, alert %q", tt.name, tt.value, said, d.Alert())
		}
		for name := range form {
			if got := webtest.Attr(d.Field(name), "value"); name != "hours" && name != "holidays" && got != form.Get(name) {
				t.Errorf("%s is %q now", name, got)
			}
		}
	}
	form := full()
	form.Del("response")
	form.Del("resolution")
	admin.WantRefused(admin.Post(path+"/normal", form), 422).Want("Set at least one target.")
	form = full()
	for _, day := range businesshours.Days {
		form.Del(day)
	}
	admin.WantRefused(admin.Post(path+"/normal", form), 422).Want("Set hours for at least one day.")
	list := func() []desk.SLAPolicy {
		t.Helper()
		list, err := h.desk.SLAPolicies(t.Context(), h.Organization.ID)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := list(); len(got) != 0 {
		t.Fatalf("got %+v", got)
	}

	// The preview comes before the change.
	form = full()
	form.Set("do", "preview")
	w := admin.Post(path+"/normal", form)
	words := []string{"within 1 hour 30 minutes", "within 8 hours", "Tuesday 09:00–12:00, 13:00–17:00; Wednesday 00:00–24:00; Saturday 10:00–14:00", "(Europe/Berlin)"}
	d = admin.WantRefused(w, http.StatusOK)
	d.Want(append(words, "Preview (not saved)")...)
	if len(list()) != 0 {
		t.Error("a look at it changed something")
	}
	d, notice := admin.Follow(admin.Post(path+"/normal", full()))
	d.Want(append(words, "Monday to Tuesday 09:00–12:00, 13:00–17:00", "2 holidays", "a ticket created now: by")...)
	got := list()
	if len(got) != 1 || got[0].FirstResponseMinutes != 90 || got[0].ResolutionMinutes != 480 || len(got[0].Hours.Holidays) != 2 ||
		got[0].Hours.Weekly.String() != "mon-tue 09:00-12:00 13:00-17:00, wed 00:00-24:00, sat 10:00-14:00" || !strings.HasPrefix(notice, "Saved. New tickets of priority normal") {
		t.Errorf("got %+v, notice %q", got, notice)
	}
	// The form has the saved policy; another priority starts with its business hours.
	for _, priority := range []string{"normal", "urgent"} {
		d = admin.Page(path + "/" + priority)
		if webtest.Attr(d.Field("mon"), "value") != "09:00-12:00 13:00-17:00" || webtest.Attr(d.Field("zone"), "value") != "Europe/Berlin" ||
			webtest.Has(d.Field("hours"), "checked") != (priority == "normal") {
			t.Errorf("%s: got form %s", priority, webtest.Text(d.Root))
		}
	}
	d, _ = admin.Follow(admin.Post(path+"/urgent", url.Values{"response": {"15"}, "mon": {"not read"}}))
	d.Want("within 15 minutes", "24 hours a day.")

	admin.Page(path + "/normal/delete").Want("will have no targets")
	admin.Follow(admin.Post(path+"/normal/delete", nil))
	if got := list(); len(got) != 1 || got[0].Priority != desk.PriorityUrgent {
		t.Errorf("got %+v", got)
	}
}

func TestAudit(t *testing.T) {
	const path = "/settings/audit"
	h := newHarness(t)
	agent, b := h.SignIn(h.Agent), h.SignIn(h.Admin)
	agent.WantRefused(agent.Get(path), http.StatusForbidden)
	b.Page(path).Want("No entries yet.", "Not verified yet.", "curl -H 'Authorization: Bearer KEY' -H 'Accept: text/csv' "+webtest.BaseURL+"/api/v1/settings/audit-log")

	ada := audit.Source{Actor: audit.Actor{Type: audit.User, ID: h.Admin.ID, Email: h.Admin.Email}, Address: netip.MustParseAddr("192.0.2.9"), RequestID: "r-1"}
	record := func(l *audit.Log, by audit.Source, e audit.Entry) {
		t.Helper()
		if err := l.Record(audit.WithSource(t.Context(), by), e); err != nil {
			t.Fatal(err)
		}
	}
	hostile := `K <script>"'&` + "\u202e" + strings.Repeat("W", 300)
	record(h.Audit, ada, audit.Entry{
		OrganizationID: h.Organization.ID, Service: "fleet", Environment: "test", Action: apikey.KeyUpdated,
		Target: audit.Target{Type: "api_key", ID: "key_1", Name: hostile, PartialKey: "abcd1234"},
		Changes: map[string]audit.Change{
			"allowed_ips": {From: []string{"192.0.2.1", "192.0.2.2"}, To: []string{}}, "expires_at": {From: nil, To: "2027-01-01"},
			"resources": {From: map[string]any{"rides": "<b>"}, To: true}, "name": {From: "", To: hostile},
		},
	})
	record(h.fleetLog, audit.Source{Actor: audit.Actor{Type: audit.Key, ID: "key_2"}}, audit.Entry{
		OrganizationID: h.Organization.ID, Service: "fleet", Environment: "live", Action: "pricing.updated", Target: audit.Target{Type: "pricing_plan", ID: "basic"},
		Changes: map[string]audit.Change{"rate": {From: 1.5, To: 2}},
	})
	record(h.Audit, audit.Source{Actor: audit.Actor{Type: audit.System}}, audit.Entry{
		OrganizationID: h.Organization.ID, Service: "helpdesk", Environment: "live", Action: "something.new", Target: audit.Target{Type: "api_key", ID: "key_3"},
	})
	record(h.Audit, ada, audit.Entry{OrganizationID: "another", Service: "fleet", Environment: "live", Action: apikey.KeyCreated, Target: audit.Target{ID: "key_4", Name: "Secret plans"}})

	d := b.Page(path)
	d.Want("API key changed", "Sandbox", hostile+" …abcd1234", h.Admin.Name, "192.0.2.9", "r-1", "4 changes",
		"192.0.2.1, 192.0.2.2 became none", "expires at 2027-01-01", `{ "rides": "<b>" } became yes`, "Pricing changed", "API key key_2", "rate 1.5 became 2", "1 change",
		"something.new", "System")
	if strings.Contains(webtest.Text(d.Root), "Secret plans") {
		t.Error("another organization's entry")
	}
	count := func(query string) int { return len(b.Page(path+query).All("tr")) - 1 }
	for query, want := range map[string]int{
		"?actor=" + h.Admin.ID: 1, "?actor=key_2": 1, "?actor=system": 1, "?actor=" + h.Agent.ID: -1, "?actor=%25": -1,
		"?action=api_key.updated": 1, "?group=api_key": 1, "?group=pricing": 1, "?group=ride": -1, "?action=pricing.updated": 1, "?action=nothing": -1, "?target=key_3": 1, "?target=basic": 1,
		"?from=2020-01-01": 3, "?to=2020-01-01": -1, "?from=2020-01-01&to=2100-01-01": 3, "?actor=system&action=something.new&target=key_3&from=2020-01-01": 1,
	} {
		if got := count(query); got != want {
			t.Errorf("%s: got %d entries, want %d", query, got, want)
		}
	}
	b.Page(path + "?actor=%25").Want("No entries match these filters.")
	// Filters stay in the form, and entries link to similar ones.
	d = b.Page(path + "?action=api_key.updated&from=2020-01-01")
	if len(d.WithAttr("href", path+"?action=api_key.updated&actor="+h.Admin.ID+"&from=2020-01-01")) != 1 || webtest.Attr(d.Field("from"), "value") != "2020-01-01" {
		t.Error("the filters do not stay")
	}
	b.WantRefused(b.Get(path+"?from=yesterday"), 422).Want("From must be a date such as 2026-12-25.")
	b.WantRefused(b.Get(path+"?before=x"), 404)

	// Pages.
	for i := range 60 {
		record(h.Audit, ada, audit.Entry{OrganizationID: h.Organization.ID, Service: "fleet", Environment: "live", Action: apikey.KeyCreated, Target: audit.Target{ID: fmt.Sprint("key_x", i)}})
	}
	d = b.Page(path + "?action=api_key.created")
	older := d.WithAttr("rel", "next")
	if n := len(d.All("tr")) - 1; n != 50 || len(older) != 1 {
		t.Fatalf("got %d entries and %d ways on", n, len(older))
	}
	d = b.Page(webtest.Attr(older[0], "href"))
	if n := len(d.All("tr")) - 1; n != 10 || len(d.WithAttr("rel", "next")) != 0 || len(d.WithAttr("href", path+"?action=api_key.created")) != 1 {
		t.Errorf("got %d entries on the second page", n)
	}
}
