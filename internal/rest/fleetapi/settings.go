package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var settingsRecord = &schema.Record{Name: "settings", Doc: "The settings of the whole account.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("settings")},
	{Name: "livemode", Type: schema.Bool()},
	{Name: "name", Type: schema.String(1, 256), Access: schema.Writable, Example: "Acme Mobility"},
	{Name: "plan", Type: schema.Enum("standard", "professional", "enterprise")},
	{Name: "rate_limit_per_minute", Type: schema.Integer(), Doc: "Requests per minute that the plan grants to each API key."},
	{Name: "timezone", Type: schema.String(1, 100), Access: schema.Writable, Doc: "IANA.", Example: "Europe/Berlin"},
	{Name: "default_language", Type: schema.String(1, 35), Access: schema.Writable, Doc: "BCP 47.", Example: "en"},
	{Name: "low_battery_percent", Type: schema.Int(0, 100), Access: schema.Writable, Doc: "Below it no ride starts, and a vehicle goes out of service."},
	{Name: "battery_ready_percent", Type: schema.Int(0, 100), Access: schema.Writable, Doc: "Battery level at which a vehicle returns to service."},
	{Name: "max_ride_minutes", Type: schema.Int(1, 1_000_000), Access: schema.Writable, Doc: "Rides are completed automatically after this time."},
	{Name: "cancel_grace_seconds", Type: schema.Int(0, 1_000_000), Access: schema.Writable, Doc: "For how long after its start a ride can be cancelled."},
	{Name: "cancel_grace_meters", Type: schema.Int(0, 1_000_000), Access: schema.Writable, Doc: "Maximum distance of a ride that can be cancelled."},
	{Name: "contact_lost_minutes", Type: schema.Int(1, 1_000_000), Access: schema.Writable, Doc: "A vehicle that reports nothing for so long is out of contact."},
	{Name: "missing_after_hours", Type: schema.Int(1, 1_000_000), Access: schema.Writable, Doc: "Hours without contact after which a vehicle is missing."},
	{Name: "track_retention_days", Type: schema.Int(1, 1_000_000), Access: schema.Writable, Doc: "Days after which positions of vehicles are deleted."},
	{Name: "offline_ride_hours", Type: schema.Int(0, 1_000_000), Access: schema.Writable, Doc: "For how long after its start or end a ride of an app that was offline can be created or ended."},
	{Name: "alert_retention_days", Type: schema.Int(1, 1_000_000), Access: schema.Writable, Doc: "Days after the last change of a cleared alert after which it is deleted."},
	{Name: "updated_at", Type: schema.Timestamp()},
}}

// settings are the account's settings and the limits of its plan.
type settings struct {
	Object    string `json:"object"`
	Live      bool   `json:"livemode"`
	Name      string `json:"name"`
	Plan      string `json:"plan"`
	RateLimit int64  `json:"rate_limit_per_minute"`
	fleet.Settings
}

func (a *API) settingsRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/settings", ID: "getSettings", Tag: "Settings", Summary: "Read the settings",
		Needs: needs("settings", apikey.Read), WholeScope: true, Output: settingsRecord, Handle: a.getSettings,
	}, {
		Method: "PUT", Path: "/settings", ID: "updateSettings", Tag: "Settings", Summary: "Change the settings",
		Doc:   "Changed durations apply at once, also to current rides and vehicles.",
		Needs: needs("settings", apikey.Update), WholeScope: true, Input: settingsRecord, Output: settingsRecord, Handle: a.updateSettings,
	}}
}

// settings returns the settings in wire format. Their tag is a hash: a change of the plan has
// no revision.
func (a *API) settings(s fleet.Settings, of Account) settings {
	return settings{Object: "settings", Live: a.Fleet.Live(), Name: s.Name, Plan: of.Plan.String(), RateLimit: of.RateLimit, Settings: s}
}

func (a *API) getSettings(ctx context.Context, r *rest.Request) (rest.Response, error) {
	of, err := a.Account(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	s, _, err := a.Fleet.Settings(ctx, a.DB, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(a.settings(s, of)), nil
}

func (a *API) updateSettings(ctx context.Context, r *rest.Request) (rest.Response, error) {
	of, err := a.Account(ctx, r.Key.OrganizationID) // in another database
	if err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		s, _, err := a.Fleet.LockSettingsTx(ctx, tx, r.Key.OrganizationID)
		if err != nil {
			return rest.Response{}, err
		}
		before := a.settings(s, of)
		var in fleet.SettingsChange
		if err := r.Update(before, &in); err != nil {
			return rest.Response{}, err
		}
		if s, _, err = a.Fleet.UpdateSettingsTx(ctx, tx, r.Key.OrganizationID, in); err != nil {
			return rest.Response{}, err
		}
		return rest.OK(a.settings(s, of)), nil
	})
}
