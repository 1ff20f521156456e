package fleetpages

import (
	"context"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// settingsPage is the body of the settings page.
type settingsPage struct {
	*fleet.Settings
	Path    string
	Edit    bool
	Sandbox bool
	Now     web.Time // of the sandbox's clock
	API     string
	Feeds   []feed
}

// feed is a public feed with its URL.
type feed struct {
	Name string
	URL  string
}

// settings shows the fleet's settings and public feeds.
func (p *pages) settings(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	settings, _, err := p.Fleet.Settings(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	b := settingsPage{Settings: &settings, Path: p.base + "/settings", Edit: r.Admin(), Sandbox: !p.Fleet.Live(), Now: r.Time(r.Now), API: p.API}
	for _, s := range subs {
		if s.GBFS.Enabled {
			b.Feeds = append(b.Feeds, feed{s.Name, p.Feed + s.PublicSystemID() + "/gbfs.json"})
		}
	}
	return p.Render(w, r, "settings", p.page(r, "/settings", "Settings of the fleet", b))
}

// editSettings updates the settings.
func (p *pages) editSettings(w http.ResponseWriter, r *web.Request) error {
	s, _, err := p.Fleet.Settings(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	count := func(name, label, help string, value int64) web.Field {
		return web.Field{Name: name, Label: label, Type: "text", Mode: "numeric", Value: optionalInteger(&value), Help: help}
	}
	fields := web.Fields{
		{Name: "name", Label: "Name", Type: "text", Most: 256, Value: s.Name},
		{Name: "timezone", Label: "Time zone", Type: "text", Most: 100, Value: s.TimeZone, Help: "Of reports, unless they ask for another: Europe/Berlin."},
		{Name: "default_language", Label: "Language", Type: "text", Most: 35, Value: s.DefaultLanguage, Help: "Of the public feed: en."},
		count("low_battery_percent", "Low battery, in percent", "Below it no ride begins, and a vehicle goes out of service.", s.LowBatteryPercent),
		count("battery_ready_percent", "Charged again, in percent", "From it on a vehicle comes back.", s.BatteryReadyPercent),
		count("max_ride_minutes", "Longest ride, in minutes", "Then it is ended by itself.", s.MaxRideMinutes),
		count("cancel_grace_seconds", "Riders can cancel for, in seconds", "After the start.", s.CancelGraceSeconds),
		count("cancel_grace_meters", "And over, in meters", "", s.CancelGraceMeters),
		count("contact_lost_minutes", "Out of contact after, in minutes", "Without a report of a vehicle that has ever sent one.", s.ContactLostMinutes),
		count("missing_after_hours", "Missing after, in hours", "", s.MissingAfterHours),
	}
	back := p.base + "/settings"
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		t := &formInput{Values: values}
		n := func(name string) optional.Value[int64] {
			if t.text(name) == "" {
				t.v.AddCode("required", name, "is required")
			}
			return optional.Of(t.integer(name))
		}
		c := fleet.SettingsChange{
			Name: optional.Of(t.text("name")), TimeZone: optional.Of(t.text("timezone")), DefaultLanguage: optional.Of(t.text("default_language")),
			LowBatteryPercent: n("low_battery_percent"), BatteryReadyPercent: n("battery_ready_percent"), MaxRideMinutes: n("max_ride_minutes"),
			CancelGraceSeconds: n("cancel_grace_seconds"), CancelGraceMeters: n("cancel_grace_meters"), ContactLostMinutes: n("contact_lost_minutes"), MissingAfterHours: n("missing_after_hours"),
		}
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			_, _, err := p.Fleet.UpdateSettings(ctx, tx, r.OrganizationID, c)
			return err
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "The settings are changed. They hold at once, for open rides too."})
		}
	}
	return p.showForm(w, r, p.page(r, "/settings", "Edit the settings", nil), fields, form{
		Groups: layout(fields, part{"", 3, false}, part{"Batteries", 2, true}, part{"Rides", 3, true}, part{"Vehicles that say nothing", 0, true}), Label: "Save", Cancel: back,
	})
}

// advanceClock advances the sandbox's clock.
func (p *pages) advanceClock(w http.ResponseWriter, r *web.Request) error {
	zone := r.Now.Location()
	fields := web.Fields{
		{Name: "by", Label: "Put it forward by", Type: "select", Value: "1h", Options: []web.Option{
			{Value: "10m", Label: "10 minutes"}, {Value: "1h", Label: "An hour"}, {Value: "24h", Label: "A day"}, {Value: "168h", Label: "A week"}, {Value: "", Label: "Until the moment below"},
		}},
		{Name: "now", Label: "Until", Type: "datetime-local", Optional: true, Help: "In the time zone " + zone.String() + ", by a year at most."},
	}
	back := p.base + "/settings"
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		t := &formInput{Values: values}
		to := t.moment("now", zone).Std()
		by, err := time.ParseDuration(t.text("by"))
		switch {
		case err != nil && to.IsZero() && t.v.Err() == nil:
			t.v.AddCode("required", "now", "is needed, or a choice above")
		case err == nil && (by < 0 || by > 366*24*time.Hour):
			t.v.AddCode("invalid_value", "by", "must be one of the choices")
		}
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			until := to
			if by > 0 {
				now, err := p.Fleet.Now(ctx, tx, r.OrganizationID)
				if err != nil {
					return err
				}
				until = now.Add(by)
			}
			return p.Fleet.AdvanceClock(ctx, tx, r.OrganizationID, until)
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "The clock is put forward. What was due until then has happened."})
		}
	}
	return p.showForm(w, r, p.page(r, "/settings", "Put the sandbox's clock forward", nil), fields, form{
		Intro: "It only goes forward, and runs on from there. Reservations expire, rides end and vehicles fall silent as they would. A reset sets it back.", Label: "Put it forward", Cancel: back,
	})
}

// reset resets the sandbox.
func (p *pages) reset(w http.ResponseWriter, r *web.Request) error {
	back := p.base + "/settings"
	yes, err := p.confirmed(w, r, p.page(r, "/settings", "Reset the sandbox", nil), web.Confirm{
		Text: "Everything in the sandbox goes, and what a new one has is there again. Production is not touched.", Type: "reset", Label: "Reset the sandbox", Cancel: back,
	})
	if err != nil || !yes {
		return err
	}
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		return p.Fleet.Reset(ctx, tx, fleet.Organization{ID: r.OrganizationID, Name: r.Organization.Name})
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, back, web.Notice{Text: "The sandbox is as new."})
}
