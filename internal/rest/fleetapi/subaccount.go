package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

var vehicleTypeRecord = &rest.Record{Name: "vehicle_type", Doc: "The common properties of vehicles.", Members: []rest.Member{
	{Name: "id", Type: rest.ID(), Access: rest.Writable, Doc: "Of one that there is already; a new one has none."},
	{Name: "name", Type: rest.String(1, 100), Access: rest.Required, Example: "Scooter"},
	{Name: "form_factor", Type: rest.Enum(formFactors...), Access: rest.Required, Doc: "Never changes."},
	{Name: "propulsion_type", Type: rest.Enum(propulsionTypes...), Access: rest.Required, Doc: "Never changes."},
	{Name: "max_range_meters", Type: rest.Int(0, maxExact), Access: rest.Writable, Nullable: true, Doc: "Required with a motor."},
	{Name: "wheel_count", Type: rest.Int(0, 100), Access: rest.Writable, Nullable: true},
	{Name: "max_permitted_speed_kph", Type: rest.Int(0, 1000), Access: rest.Writable, Nullable: true},
	{Name: "rider_capacity", Type: rest.Int(0, 100), Access: rest.Writable, Nullable: true},
	{Name: "reservation_minutes", Type: rest.Int(0, maxExact), Access: rest.Writable, Doc: "0: it cannot be reserved."},
	{Name: "license_required", Type: rest.Bool(), Access: rest.Writable},
	{Name: "min_age", Type: rest.Int(0, 150), Access: rest.Writable, Doc: "0: none."},
	{Name: "default_pricing_plan_id", Type: rest.ID(), Access: rest.Writable, Nullable: true},
}}

var subaccountRecord = &rest.Record{Name: "subaccount", Doc: "One operating area, and one system of the public feed.", Members: []rest.Member{
	{Name: "id", Type: rest.ID()},
	{Name: "object", Type: rest.Enum("subaccount")},
	{Name: "livemode", Type: rest.Bool()},
	{Name: "name", Type: rest.String(1, 256), Access: rest.Writable, Example: "Berlin"},
	{Name: "external_id", Type: rest.String(1, 128), Access: rest.Writable, Nullable: true},
	{Name: "status", Type: rest.Enum("active", "archived"), Access: rest.Writable},
	{Name: "timezone", Type: rest.String(1, 100), Access: rest.Writable, Doc: "IANA.", Example: "Europe/Berlin"},
	{Name: "currency", Type: rest.String(3, 3), Access: rest.Writable, Doc: "ISO 4217.", Example: "EUR"},
	{Name: "country_code", Type: rest.String(2, 2), Access: rest.Writable, Nullable: true, Doc: "ISO 3166-1.", Example: "DE"},
	{Name: "default_pricing_plan_id", Type: rest.ID(), Access: rest.Writable, Nullable: true},
	{Name: "global_rules", Type: rules(), Access: rest.Writable, Doc: "Where no zone decides."},
	{Name: "vehicle_types", Type: rest.Array(rest.Nested(vehicleTypeRecord), 100), Access: rest.Writable},
	{Name: "gbfs", Access: rest.Writable, Doc: "Content of the public feed, if enabled.", Type: rest.Object(
		rest.Member{Name: "enabled", Type: rest.Bool(), Access: rest.Writable},
		rest.Member{Name: "system_id", Type: rest.String(1, 100), Access: rest.Writable, Nullable: true, Example: "acme_berlin"},
		rest.Member{Name: "operator", Type: rest.String(1, 256), Access: rest.Writable, Nullable: true},
		rest.Member{Name: "opening_hours", Type: rest.String(1, 1000), Access: rest.Writable, Nullable: true, Doc: "OSM syntax.", Example: "24/7"},
		rest.Member{Name: "feed_contact_email", Type: rest.String(1, 254), Access: rest.Writable, Nullable: true},
		rest.Member{Name: "license_id", Type: rest.String(1, 100), Access: rest.Writable, Nullable: true, Doc: "SPDX.", Example: "CC0-1.0"},
	)},
	{Name: "alerts", Access: rest.Writable, Doc: "Information for riders.", Type: rest.Array(rest.Object(
		rest.Member{Name: "id", Type: rest.ID(), Access: rest.Writable, Doc: "Of one that there is already."},
		rest.Member{Name: "type", Type: rest.Enum("system_closure", "other"), Access: rest.Required},
		rest.Member{Name: "summary", Type: rest.String(1, 500), Access: rest.Required},
		rest.Member{Name: "description", Type: rest.String(1, 5000), Access: rest.Writable, Nullable: true},
		rest.Member{Name: "url", Type: rest.Formatted("uri", 2048), Access: rest.Writable, Nullable: true},
		rest.Member{Name: "starts_at", Type: rest.Timestamp(), Access: rest.Writable, Nullable: true},
		rest.Member{Name: "ends_at", Type: rest.Timestamp(), Access: rest.Writable, Nullable: true},
	), 100)},
	{Name: "created_at", Type: rest.Timestamp()},
	{Name: "updated_at", Type: rest.Timestamp()},
}}

func (a *API) subaccountRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/settings/subaccounts", ID: "listSubaccounts", Tag: "Settings", Summary: "List subaccounts",
		Needs: needs("settings", apikey.Read), Sort: []string{"created_at"}, Order: "created_at", Export: true, Output: subaccountRecord, List: true, Handle: a.listSubaccounts,
	}, {
		Method: "GET", Path: "/settings/subaccounts/{id}", ID: "getSubaccount", Tag: "Settings", Summary: "Read a subaccount",
		Needs: needs("settings", apikey.Read), Output: subaccountRecord, Handle: a.getSubaccount,
	}, {
		Method: "PUT", Path: "/settings/subaccounts/{id}", ID: "updateSubaccount", Tag: "Settings", Summary: "Change a subaccount",
		Doc:   "Lists are replaced as a whole. Items with an id keep it.",
		Needs: needs("settings", apikey.Update), Input: subaccountRecord, Output: subaccountRecord, Codes: []string{"already_exists"}, Handle: a.updateSubaccount,
	}}
}

func (a *API) listSubaccounts(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := a.Fleet.Subaccounts(ctx, a.DB, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	var reached []*fleet.Subaccount
	for i := range list {
		if r.Covers(list[i].ID) {
			reached = append(reached, &list[i])
		}
	}
	return whole(r, reached, func(s *fleet.Subaccount) listPosition { return listPosition{"", s.ID} })
}

func (a *API) getSubaccount(ctx context.Context, r *rest.Request) (rest.Response, error) {
	s, err := a.Fleet.Subaccount(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(s.ID); err != nil {
		return rest.Response{}, err
	}
	return ok(&s)
}

func (a *API) updateSubaccount(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		s, err := a.Fleet.LockSubaccountTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Within(s.ID); err != nil {
			return rest.Response{}, err
		}
		before, err := document(&s)
		if err != nil {
			return rest.Response{}, err
		}
		var in fleet.SubaccountChange
		if err := r.Update(before, &in); err != nil {
			return rest.Response{}, err
		}
		if s, err = a.Fleet.UpdateSubaccountTx(ctx, tx, r.Key.OrganizationID, s, in); err != nil {
			return rest.Response{}, err
		}
		after, err := document(&s)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(after).In(s.ID), nil
	})
}
