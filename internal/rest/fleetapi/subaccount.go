package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var vehicleTypeRecord = &schema.Record{Name: "vehicle_type", Doc: "The common properties of vehicles.", Members: []schema.Member{
	{Name: "id", Type: schema.ID(), Access: schema.Writable, Doc: "Of one that there is already; a new one has none."},
	{Name: "name", Type: schema.String(1, 100), Access: schema.Required, Example: "Scooter"},
	{Name: "form_factor", Type: schema.Enum(formFactors...), Access: schema.Required, Doc: "Never changes."},
	{Name: "propulsion_type", Type: schema.Enum(propulsionTypes...), Access: schema.Required, Doc: "Never changes."},
	{Name: "max_range_meters", Type: schema.Int(0, maxExact), Access: schema.Writable, Nullable: true, Doc: "Required with a motor."},
	{Name: "wheel_count", Type: schema.Int(0, 100), Access: schema.Writable, Nullable: true},
	{Name: "max_permitted_speed_kph", Type: schema.Int(0, 1000), Access: schema.Writable, Nullable: true},
	{Name: "rider_capacity", Type: schema.Int(0, 100), Access: schema.Writable, Nullable: true},
	{Name: "reservation_minutes", Type: schema.Int(0, maxExact), Access: schema.Writable, Doc: "0: it cannot be reserved."},
	{Name: "license_required", Type: schema.Bool(), Access: schema.Writable},
	{Name: "min_age", Type: schema.Int(0, 150), Access: schema.Writable, Doc: "0: none."},
	{Name: "default_pricing_plan_id", Type: schema.ID(), Access: schema.Writable, Nullable: true},
}}

var subaccountRecord = &schema.Record{Name: "subaccount", Doc: "One operating area, and one system of the public feed.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("subaccount")},
	{Name: "livemode", Type: schema.Bool()},
	{Name: "name", Type: schema.String(1, 256), Access: schema.Writable, Example: "Berlin"},
	{Name: "external_id", Type: schema.String(1, 128), Access: schema.Writable, Nullable: true},
	{Name: "status", Type: schema.Enum("active", "archived"), Access: schema.Writable},
	{Name: "timezone", Type: schema.String(1, 100), Access: schema.Writable, Doc: "IANA.", Example: "Europe/Berlin"},
	{Name: "currency", Type: schema.String(3, 3), Access: schema.Writable, Doc: "ISO 4217.", Example: "EUR"},
	{Name: "country_code", Type: schema.String(2, 2), Access: schema.Writable, Nullable: true, Doc: "ISO 3166-1.", Example: "DE"},
	{Name: "default_pricing_plan_id", Type: schema.ID(), Access: schema.Writable, Nullable: true},
	{Name: "global_rules", Type: rules(), Access: schema.Writable, Doc: "Where no zone decides."},
	{Name: "vehicle_types", Type: schema.Array(schema.Nested(vehicleTypeRecord), 100), Access: schema.Writable},
	{Name: "gbfs", Access: schema.Writable, Doc: "Content of the public feed, if enabled.", Type: schema.Object(
		schema.Member{Name: "enabled", Type: schema.Bool(), Access: schema.Writable},
		schema.Member{Name: "system_id", Type: schema.String(1, 100), Access: schema.Writable, Nullable: true, Example: "acme_berlin"},
		schema.Member{Name: "operator", Type: schema.String(1, 256), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "opening_hours", Type: schema.String(1, 1000), Access: schema.Writable, Nullable: true, Doc: "OSM syntax.", Example: "24/7"},
		schema.Member{Name: "feed_contact_email", Type: schema.String(1, 254), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "license_id", Type: schema.String(1, 100), Access: schema.Writable, Nullable: true, Doc: "SPDX.", Example: "CC0-1.0"},
		schema.Member{Name: "rental_uri_web", Type: schema.String(1, 2048), Access: schema.Writable, Nullable: true, Doc: "A page to rent a vehicle; `{vehicle_id}` stands for its public id. The next two are links into your apps.", Example: "https://rent.example.com/v/{vehicle_id}"},
		schema.Member{Name: "rental_uri_android", Type: schema.String(1, 2048), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "rental_uri_ios", Type: schema.String(1, 2048), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "store_uri_android", Type: schema.String(1, 2048), Access: schema.Writable, Nullable: true, Doc: "The app's page in the store; required with links into the app, and so is discovery_uri, by which others detect the app."},
		schema.Member{Name: "discovery_uri_android", Type: schema.String(1, 2048), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "store_uri_ios", Type: schema.String(1, 2048), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "discovery_uri_ios", Type: schema.String(1, 2048), Access: schema.Writable, Nullable: true},
	)},
	{Name: "mds", Access: schema.Writable, Doc: "Data for agencies by the Mobility Data Specification, if enabled.", Type: schema.Object(
		schema.Member{Name: "enabled", Type: schema.Bool(), Access: schema.Writable},
		schema.Member{Name: "provider_id", Type: schema.String(36, 36), Access: schema.Writable, Nullable: true, Doc: "The operator's UUID in the list of the Open Mobility Foundation.", Example: "c8051767-4b14-4794-abc1-85aad48baff1"},
		schema.Member{Name: "agencies", Access: schema.Writable, Doc: "Those who may read the data.", Type: schema.Array(schema.Object(
			schema.Member{Name: "id", Type: schema.String(1, 64), Access: schema.Required, Doc: "The issuer of its tokens.", Example: "berlin"},
			schema.Member{Name: "name", Type: schema.String(1, 256), Access: schema.Required, Example: "City of Berlin"},
			schema.Member{Name: "public_key", Type: schema.String(1, 10_000), Access: schema.Required, Doc: "PEM, without other text; RSA of 2048 to 8192 bits or ECDSA P-256. It verifies the agency's tokens.", Example: "-----BEGIN PUBLIC KEY-----\n…\n-----END PUBLIC KEY-----\n"},
		), 20)},
	)},
	{Name: "alerts", Access: schema.Writable, Doc: "Information for riders.", Type: schema.Array(schema.Object(
		schema.Member{Name: "id", Type: schema.ID(), Access: schema.Writable, Doc: "Of one that there is already."},
		schema.Member{Name: "type", Type: schema.Enum("system_closure", "other"), Access: schema.Required},
		schema.Member{Name: "summary", Type: schema.String(1, 500), Access: schema.Required, Example: "No rides during the marathon"},
		schema.Member{Name: "description", Type: schema.String(1, 5000), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "url", Type: schema.Formatted("uri", 2048), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "starts_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "ends_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true},
	), 100)},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
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
		before, err := reached(r, s.ID, &s)
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
		return changed(s.ID, &s)
	})
}
