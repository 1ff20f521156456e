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
	return p.Render(w, r, "settings", p.page(r, "/settings", "Fleet settings", b))
}

// settingsFields are the fields of the settings.
func settingsFields(s *fleet.Settings) web.Fields {
	count := func(name, label, help string, value int64) web.Field {
		return web.Field{Name: name, Label: label, Type: "text", Mode: "numeric", Value: optionalInteger(&value), Help: help}
	}
	return web.Fields{
		{Name: "name", Label: "Name", Type: "text", Most: 256, Value: s.Name},
		{Name: "timezone", Label: "Time zone", Type: "text", Most: 100, Value: s.TimeZone, Help: "Default for reports, such as Europe/Berlin."},
		{Name: "default_language", Label: "Language", Type: "text", Most: 35, Value: s.DefaultLanguage, Help: "Of the public feed, such as en."},
		count("low_battery_percent", "Low battery (%)", "Below this level, rides can't start and vehicles go out of service.", s.LowBatteryPercent),
		count("battery_ready_percent", "Battery recharged (%)", "From this level, vehicles return to service.", s.BatteryReadyPercent),
		count("max_ride_minutes", "Maximum ride duration (minutes)", "Longer rides end automatically.", s.MaxRideMinutes),
		count("cancel_grace_seconds", "Cancellation period (seconds)", "From the start of a ride.", s.CancelGraceSeconds),
		count("cancel_grace_meters", "Cancellation distance (meters)", "", s.CancelGraceMeters),
		count("contact_lost_minutes", "Out of contact after (minutes)", "Without a report. Applies to vehicles that have sent one.", s.ContactLostMinutes),
		count("missing_after_hours", "Missing after (hours)", "", s.MissingAfterHours),
		count("track_retention_days", "Retention of positions (days)", "", s.TrackRetentionDays),
		count("offline_ride_hours", "Late rides (hours)", "An app that was offline can create or end a ride so long after its start or end.", s.OfflineRideHours),
		count("alert_retention_days", "Retention of cleared alerts (days)", "", s.AlertRetentionDays),
	}
}

// editSettings updates the settings.
func (p *pages) editSettings(w http.ResponseWriter, r *web.Request) error {
	s, _, err := p.Fleet.Settings(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	fields, t := settingsFields(&s), new(formInput)
	back := p.base + "/settings"
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
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
			TrackRetentionDays: n("track_retention_days"), OfflineRideHours: n("offline_ride_hours"), AlertRetentionDays: n("alert_retention_days"),
		}
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			now, _, err := p.Fleet.LockSettingsTx(ctx, tx, r.OrganizationID)
			if err != nil {
				return err
			}
			after, _, err := p.Fleet.UpdateSettingsTx(ctx, tx, r.OrganizationID, c)
			if err != nil {
				return err
			}
			return t.checkStored(settingsFields(&now), settingsFields(&after))
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Settings saved. They apply at once, including to open rides."})
		}
	}
	return p.showForm(w, r, p.page(r, "/settings", "Edit settings", nil), fields, form{
		Groups: layout(fields, part{"", "", 3, false}, part{"Batteries", "", 2, true}, part{"Rides", "", 3, true}, part{"Vehicles that say nothing", "", 0, true}), Was: t.openedWith(fields), Label: "Save", Cancel: back,
	})
}

// advanceClock advances the sandbox's clock.
func (p *pages) advanceClock(w http.ResponseWriter, r *web.Request) error {
	zone := r.Now.Location()
	fields := web.Fields{
		{Name: "by", Label: "Advance by", Type: "select", Value: "1h", Options: []web.Option{
			{Value: "10m", Label: "10 minutes"}, {Value: "1h", Label: "An hour"}, {Value: "24h", Label: "A day"}, {Value: "168h", Label: "A week"}, {Value: "", Label: "Until the moment below"},
		}},
		{Name: "now", Label: "Until", Type: "datetime-local", Optional: true, Help: "Time zone " + zone.String() + "; at most one year ahead."},
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
			t.v.AddCode("required", "now", "is required, or a choice above")
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
			return p.Fleet.AdvanceClockTx(ctx, tx, r.OrganizationID, until)
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Clock advanced. Changes due until then have taken effect."})
		}
	}
	return p.showForm(w, r, p.page(r, "/settings", "Advance the sandbox clock", nil), fields, form{
		Intro: "The clock can't go back, and runs on from the new time. Reservations expire, rides end and vehicles lose contact as usual. Reset the sandbox to return to real time.", Label: "Advance clock", Cancel: back,
	})
}

// reset resets the sandbox.
func (p *pages) reset(w http.ResponseWriter, r *web.Request) error {
	back := p.base + "/settings"
	yes, err := p.confirmed(w, r, p.page(r, "/settings", "Reset sandbox", nil), web.Confirm{
		Text: "This deletes all sandbox records and restores the initial ones. Production is not affected.", Type: "reset", Label: "Reset sandbox", Cancel: back,
	})
	if err != nil || !yes {
		return err
	}
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		return p.Fleet.ResetTx(ctx, tx, fleet.Organization{ID: r.OrganizationID, Name: r.Organization.Name})
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, back, web.Notice{Text: "Sandbox reset."})
}
