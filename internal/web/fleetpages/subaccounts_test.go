package fleetpages_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// subaccount reads the subaccount.
func (l *lot) subaccount() fleet.Subaccount {
	l.tb.Helper()
	s, err := l.Subaccount(l.tb.Context(), l.db, l.organization.ID, l.sub.ID)
	if err != nil {
		l.tb.Fatal(err)
	}
	return s
}

func TestSubaccounts(t *testing.T) {
	y := newYard(t)
	d := y.agent.Page("/fleet/subaccounts")
	d.Want(y.Organization.Name, "none")
	bare := links(d, "/fleet/subaccounts/sub_")[0]
	y.agent.Page(bare).Want("No vehicle types yet. Each vehicle needs one.", "Vehicles are not published.")
	l := furnish(y)
	d = y.agent.Page(bare)
	d.Want("Scooter "+hostile, "Scooter standing, electric", "45.0 km", "reserved for up to 15 minutes", "Standard "+hostile)
	if got := links(d, bare+"/"); len(got) != 0 {
		t.Errorf("an agent is offered %v", got)
	}
	offered := links(y.admin.Page(bare), bare+"/")
	if len(offered) != 7 {
		t.Errorf("an admin is offered %v", offered)
	}
	for _, path := range offered {
		y.agent.WantRefused(y.agent.Get(path), http.StatusForbidden)
		y.agent.WantRefused(y.agent.Post(path, nil), http.StatusForbidden)
		y.admin.Page(path)
	}
	for _, path := range []string{"", "/edit", "/rules", "/types/new", "/types/type_nothing", "/types/type_nothing/delete", "/alerts/new", "/alerts/x", "/alerts/x/delete"} {
		y.admin.WantRefused(y.admin.Get("/fleet/subaccounts/sub_nothing"+path), http.StatusNotFound)
	}
	y.admin.WantRefused(y.admin.Get(bare+"/types/type_nothing"), http.StatusNotFound)
	y.admin.WantRefused(y.admin.Get("/sandbox/fleet/subaccounts/"+l.sub.ID), http.StatusNotFound)
	for _, at := range links(y.admin.Page("/sandbox/fleet/subaccounts"), "/sandbox/fleet/subaccounts/sub_") {
		for _, path := range append(links(y.admin.Page(at), at+"/"), at) {
			y.admin.Page(path)
		}
		y.admin.Follow(y.admin.Post(at+"/edit", formOf(y.admin.Page(at+"/edit"))))
		y.admin.Follow(y.admin.Post(at+"/rules", formOf(y.admin.Page(at+"/rules"))))
	}
}

func TestSubaccountForms(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	y.admin.WantRefused(y.admin.Post("/fleet/subaccounts/new", url.Values{"name": {""}, "timezone": {"Mars"}, "currency": {"XYZ"}, "country_code": {"00"}}), http.StatusUnprocessableEntity).
		Want("Name is required", "Time zone", "Currency must be an ISO 4217 currency", "Country must be")
	d, _ := y.admin.Follow(y.admin.Post("/fleet/subaccounts/new", url.Values{"name": {hostile}, "timezone": {"Asia/Tokyo"}, "currency": {"jpy"}, "external_id": {"tokyo"}}))
	d.Want(hostile, "JPY", "Asia/Tokyo")
	// With several subaccounts, lists have a column and amounts need a selection.
	y.admin.Page("/fleet/vehicles").Want("Subaccount", hostile)
	y.admin.Page("/fleet/rides?least=1").Want("Select a subaccount")
	y.admin.Page("/fleet/rides?least=1&subaccount=" + l.sub.ID)

	at := "/fleet/subaccounts/" + l.sub.ID
	form := formOf(y.admin.Page(at + "/edit"))
	form.Set("gbfs.enabled", "on")
	form.Set("gbfs.feed_contact_email", "nobody")
	form.Set("external_id", "tokyo")
	form.Set("currency", "USD")
	y.admin.WantRefused(y.admin.Post(at+"/edit", form), http.StatusUnprocessableEntity).
		Want("Feed id (system_id) is required", "Opening hours is required", "Contact for the feed must be an e-mail address", "Currency cannot be changed")
	for name, value := range map[string]string{"gbfs.system_id": "lime_hh", "gbfs.opening_hours": "24/7", "gbfs.feed_contact_email": "a@example.com", "currency": "EUR"} {
		form.Set(name, value)
	}
	y.admin.WantRefused(y.admin.Post(at+"/edit", form), http.StatusUnprocessableEntity).Want("External id is already in use")
	form.Set("external_id", "")
	d, _ = y.admin.Follow(y.admin.Post(at+"/edit", form))
	d.Want("https://help.example.com/gbfs/v3/lime_hh/gbfs.json", "Updated by "+y.Admin.Email)
	y.admin.Page("/fleet/settings").Want("https://help.example.com/gbfs/v3/lime_hh/gbfs.json")
	log := audittest.List(t, l.log, y.Organization.ID, audit.Query{TargetID: l.sub.ID, ActorType: audit.User})
	if len(log) != 1 || log[0].Action != "subaccount.updated" {
		t.Errorf("got log %+v", log)
	}

	// Vehicle types.
	y.admin.WantRefused(y.admin.Post(at+"/types/new", url.Values{"name": {"Moped"}, "form_factor": {"moped"}, "propulsion_type": {"electric"}, "min_age": {"200"}}), http.StatusUnprocessableEntity).
		Want("Maximum range (meters) is required with a motor", "Minimum age (years) must be at most")
	d, _ = y.admin.Follow(y.admin.Post(at+"/types/new", url.Values{"name": {"Moped " + hostile}, "form_factor": {"moped"}, "propulsion_type": {"electric"}, "max_range_meters": {"90,000"}, "min_age": {"18"}, "license_required": {"on"}}))
	d.Want("Moped "+hostile, "90.0 km", "from 18 years, with a verified license")
	moped := l.subaccount().VehicleTypes[1].ID
	form = formOf(y.admin.Page(at + "/types/" + moped))
	form.Set("reservation_minutes", "x")
	y.admin.WantRefused(y.admin.Post(at+"/types/"+moped, form), http.StatusUnprocessableEntity).Want("Maximum reservation (minutes) must be a whole number")
	form.Set("reservation_minutes", "20")
	y.admin.Follow(y.admin.Post(at+"/types/"+moped, form))
	if got := l.subaccount().VehicleTypes[1]; got.ReservationMinutes != 20 || got.FormFactor != "moped" || !got.LicenseRequired {
		t.Errorf("got %+v", got)
	}
	l.vehicle()
	d, _ = y.admin.Follow(y.admin.Post(at+"/types/"+l.scooter+"/delete", nil))
	d.Want("was not deleted, since vehicles, rides, pricing plans, zones or rules use it.")
	y.admin.Follow(y.admin.Post(at+"/types/"+moped+"/delete", nil))
	if got := l.subaccount().VehicleTypes; len(got) != 1 {
		t.Errorf("got %+v", got)
	}

	// Rules.
	rule := "global_rules.0."
	y.admin.WantRefused(y.admin.Post(at+"/rules", url.Values{rule + "vehicle_type_ids": {"*"}, rule + "maximum_speed_kph": {"-1"}}), http.StatusUnprocessableEntity).Want("Maximum speed (km/h) must be")
	y.admin.WantRefused(y.admin.Post(at+"/rules", url.Values{rule + "vehicle_type_ids": {"type_nothing"}}), http.StatusUnprocessableEntity).Want("For must be")
	d, _ = y.admin.Follow(y.admin.Post(at+"/rules", url.Values{rule + "vehicle_type_ids": {l.scooter}, rule + "ride_start_allowed": {"on"}, rule + "maximum_speed_kph": {"15"}}))
	d.Want("rides can start, not end, not pass through, at up to 15 km/h.")
	form = formOf(y.admin.Page(at + "/rules"))
	form.Set("global_rules.0.vehicle_type_ids", "")
	d, _ = y.admin.Follow(y.admin.Post(at+"/rules", form))
	d.Want("Rides can start and end anywhere")

	// Agencies.
	agency := url.Values{"name": {"City " + hostile}, "id": {"city"}, "public_key": {"none"}}
	y.admin.WantRefused(y.admin.Post(at+"/agencies/new", agency), http.StatusUnprocessableEntity).Want("Public key must be a public key in PEM form")
	agency.Set("public_key", agencyKey(t))
	d, _ = y.admin.Follow(y.admin.Post(at+"/agencies/new", agency))
	d.Want("City "+hostile, "city")
	form = formOf(y.admin.Page(at + "/edit"))
	form.Set("mds.enabled", "on")
	y.admin.WantRefused(y.admin.Post(at+"/edit", form), http.StatusUnprocessableEntity).Want("Provider id is required")
	form.Set("mds.provider_id", "c8051767-4b14-4794-abc1-85aad48baff1")
	d, _ = y.admin.Follow(y.admin.Post(at+"/edit", form))
	d.Want("https://help.example.com/mds/v2", "City "+hostile)
	form = formOf(y.admin.Page(at + "/agencies/city"))
	form.Set("name", "County")
	form.Set("public_key", agency.Get("public_key")) // formOf joins lines
	y.admin.Follow(y.admin.Post(at+"/agencies/city", form))
	if got := l.subaccount().MDS; !got.Enabled || len(got.Agencies) != 1 || got.Agencies[0].Name != "County" {
		t.Errorf("got %+v", got)
	}
	y.admin.Follow(y.admin.Post(at+"/agencies/city/delete", nil))
	if got := l.subaccount().MDS; !got.Enabled || len(got.Agencies) != 0 {
		t.Errorf("got %+v", got)
	}

	// Alerts.
	y.admin.WantRefused(y.admin.Post(at+"/alerts/new", url.Values{"type": {"other"}, "summary": {""}, "starts_at": {"tomorrow"}}), http.StatusUnprocessableEntity).Want("From must be a date and a time")
	y.admin.WantRefused(y.admin.Post(at+"/alerts/new", url.Values{"type": {"war"}, "summary": {""}}), http.StatusUnprocessableEntity).Want("Type must be one of", "Summary is required")
	d, _ = y.admin.Follow(y.admin.Post(at+"/alerts/new", url.Values{"type": {"other"}, "summary": {"Flood " + hostile}, "starts_at": {"2026-11-21T10:42"}}))
	d.Want("Flood "+hostile, "from 21 Nov 2026, 10:42")
	alert := l.subaccount().Alerts[0].ID
	form = formOf(y.admin.Page(at + "/alerts/" + alert))
	if form.Get("starts_at") != "2026-11-21T10:42" {
		t.Errorf("got %v", form)
	}
	form.Set("ends_at", "2026-11-20T10:42")
	y.admin.WantRefused(y.admin.Post(at+"/alerts/"+alert, form), http.StatusUnprocessableEntity).Want("Until must be after")
	y.admin.Follow(y.admin.Post(at+"/alerts/"+alert+"/delete", nil))
	if got := l.subaccount().Alerts; len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestFleetSettings(t *testing.T) {
	y := newYard(t)
	d := y.agent.Page("/fleet/settings")
	d.Want("1440 minutes", "https://api.example.com/v1", "No public feed.")
	if len(links(d, "/fleet/settings/")) != 0 {
		t.Error("an agent is offered to change settings")
	}
	y.agent.WantRefused(y.agent.Get("/fleet/settings/edit"), http.StatusForbidden)
	form := formOf(y.admin.Page("/fleet/settings/edit"))
	form.Set("low_battery_percent", "")
	y.admin.WantRefused(y.admin.Post("/fleet/settings/edit", form), http.StatusUnprocessableEntity).Want("Low battery (%) is required")
	form.Set("low_battery_percent", "50")
	form.Set("timezone", "Nowhere")
	y.admin.WantRefused(y.admin.Post("/fleet/settings/edit", form), http.StatusUnprocessableEntity).Want("Battery recharged (%) must not be below", "Time zone")
	form.Set("low_battery_percent", "20")
	form.Set("timezone", "Europe/Berlin")
	form.Set("name", hostile)
	d, _ = y.admin.Follow(y.admin.Post("/fleet/settings/edit", form))
	d.Want("Europe/Berlin", "below 20%", hostile)
	log := audittest.List(t, y.live.log, y.Organization.ID, audit.Query{Action: "settings.updated"})
	if len(log) != 1 || len(log[0].Changes) != 3 {
		t.Errorf("got log %+v", log)
	}
	for _, path := range []string{"/fleet/settings/clock", "/fleet/settings/reset"} {
		if w := y.admin.Get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s in production: got %d", path, w.Code)
		}
	}
}

func TestSandboxSettings(t *testing.T) {
	y := newYard(t)
	const path = "/sandbox/fleet/settings"
	y.agent.Page(path).Want("Clock: ")
	for _, at := range []string{"/clock", "/reset"} {
		y.agent.WantRefused(y.agent.Get(path+at), http.StatusForbidden)
		y.agent.WantRefused(y.agent.Post(path+at, nil), http.StatusForbidden)
		y.admin.Page(path + at)
	}
	now := func() time.Time {
		t.Helper()
		now, err := y.sandbox.Now(t.Context(), y.sandbox.db, y.Organization.ID)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := now()
	y.admin.Follow(y.admin.Post(path+"/clock", url.Values{"by": {"24h"}}))
	if got := now().Sub(before); got < 24*time.Hour {
		t.Errorf("got %s on", got)
	}
	for text, form := range map[string]url.Values{
		"Until is required":                  {"by": {""}},
		"Until must be a date":               {"by": {""}, "now": {"x"}},
		"Advance by must be one of":          {"by": {"-1h"}},
		"cannot go back":                     {"by": {""}, "now": {"2001-01-01T00:00"}},
		"Until must be at most a year ahead": {"by": {""}, "now": {before.AddDate(2, 0, 0).Format("2006-01-02T15:04")}},
		"Advance by must be one of the c":    {"by": {"99999h"}},
	} {
		y.admin.WantRefused(y.admin.Post(path+"/clock", form), http.StatusUnprocessableEntity).Want(text)
	}
	to := before.AddDate(0, 1, 0).Truncate(time.Minute)
	y.admin.Follow(y.admin.Post(path+"/clock", url.Values{"by": {""}, "now": {to.UTC().Format("2006-01-02T15:04")}}))
	if got := now(); got.Before(to) {
		t.Errorf("got %s, want %s", got, to)
	}
	y.admin.WantRefused(y.admin.Post(path+"/reset", url.Values{"confirm": {"yes"}}), http.StatusUnprocessableEntity)
	y.admin.Follow(y.admin.Post(path+"/reset", url.Values{"confirm": {"reset"}}))
	if got := now(); got.After(before.Add(time.Hour)) {
		t.Errorf("got %s after a reset", got)
	}
	log := audittest.List(t, y.sandbox.log, y.Organization.ID, audit.Query{})
	if len(log) != 3 || log[0].Action != "sandbox.reset" || log[2].Action != "sandbox.clock_advanced" {
		t.Errorf("got log %+v", log)
	}
}

func TestData(t *testing.T) {
	y := newYard(t)
	d := y.agent.Page("/fleet/data")
	d.Want(`curl -X POST https://api.example.com/v1/vehicles -H "Authorization: Bearer $KEY" -H "Content-Type: text/csv" --data-binary @vehicles.csv`,
		`curl https://api.example.com/v1/rides -H "Authorization: Bearer $KEY" -H "Accept: text/csv" -o rides.csv`, "kickstand fleet export --org "+y.Organization.Slug+" --environment live")
	y.agent.Page("/sandbox/fleet/data").Want("--environment test")
	for _, code := range d.All("pre") {
		if strings.TrimSpace(webtest.Attr(code, "aria-label")) == "" {
			t.Error("a command has no name")
		}
	}
}

// agencyKey is a new public key of an agency.
func agencyKey(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
