package fleetapi

import (
	"context"
	"encoding/json"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var vehicleRecord = func() *schema.Record {
	r := record("vehicle", "A vehicle.",
		schema.Member{Name: "code", Type: schema.String(1, 32), Access: schema.Required, Doc: "The code on the vehicle: letters, digits and hyphens, unique in the account, ignoring case.", Example: "B-0417"},
		schema.Member{Name: "vehicle_type_id", Type: schema.ID(), Access: schema.Required, Doc: "One of the subaccount's."},
		schema.Member{Name: "form_factor", Type: schema.Enum(formFactors...), Doc: "The type's."},
		schema.Member{Name: "propulsion_type", Type: schema.Enum(propulsionTypes...), Doc: "Likewise."},
		schema.Member{Name: "state", Type: schema.Enum(vehicleStates...), Access: schema.Writable, OnCreate: []string{"removed", "available"}, OnUpdate: []string{"available", "non_operational", "removed"}, Doc: "Defaults to removed at creation; available is possible. Imports that create vehicles skip other states."},
		schema.Member{Name: "event", Type: schema.Enum(requestReasons...), Access: schema.UpdateOnly, WriteOnly: true, Doc: "Why the state changes; each change has a usual reason."},
		schema.Member{Name: "last_event", Type: schema.Enum(vehicleEvents...), Doc: "Why the state changed last (MDS event type)."},
		schema.Member{Name: "state_changed_at", Type: schema.Timestamp()},
		schema.Member{Name: "location", Type: position(), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "battery_percent", Type: schema.Int(0, 100), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "fuel_percent", Type: schema.Int(0, 100), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "current_range_meters", Type: schema.Int(0, maxExact), Access: schema.Writable, Nullable: true, Doc: "If a battery or fuel report omits it, it is derived from the type's range."},
		schema.Member{Name: "odometer_meters", Type: schema.Int(0, maxExact), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "last_reported_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true, Doc: "Defaults to now when telemetry is written; at most 5 minutes in the future. Telemetry older than the stored time is ignored. null clears the time, so that the next report counts whatever its own."},
		schema.Member{Name: "pricing_plan_id", Type: schema.ID(), Access: schema.Writable, Nullable: true, Doc: "In place of the type's."},
		schema.Member{Name: "device_id", Type: schema.String(1, 128), Access: schema.Writable, Nullable: true, Doc: "The tracker's, unique in the account."},
		schema.Member{Name: "vin", Type: schema.String(1, 64), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "license_plate", Type: schema.String(1, 32), Access: schema.Writable, Nullable: true},
		schema.Member{Name: "current_ride_id", Type: schema.ID(), Nullable: true, Doc: "The open one."},
		schema.Member{Name: "public_vehicle_id", Type: schema.Formatted("uuid", 36), Doc: "Its id in the public feed; another one after each ride."},
	)
	r.Members = append(r.Members, schema.Member{Name: "ignored", Type: schema.Array(schema.Enum("location", "battery_percent", "fuel_percent", "current_range_meters", "odometer_meters", "last_reported_at"), 6), Sometimes: true,
		Doc: "Fields of the request that were ignored because the stored report is newer."})
	r.Members = append(r.Members, schema.Member{Name: "distance_meters", Type: schema.Integer(), Sometimes: true, Doc: "From the point that is searched around."})
	return r
}()

// ridden is the expanded vehicle of a ride, which may be deleted.
var ridden = partial("ride_vehicle", "The vehicle of a ride. Of one that was deleted there are id, object, code and deleted.",
	vehicleRecord, []string{"id", "object", "code"},
	schema.Member{Name: "deleted", Type: schema.Bool(), Sometimes: true, Doc: "true when it is."},
)

func (a *API) vehicleRoutes() []rest.Route {
	expand := []rest.Expansion{
		{Name: "vehicle_type", Needs: needs("vehicles", apikey.Read), Record: vehicleTypeRecord},
		{Name: "current_ride", Needs: needs("rides", apikey.Read), Record: rideRecord},
		{Name: "pricing_plan", Needs: needs("pricing", apikey.Read), Record: planRecord},
	}
	return []rest.Route{{
		Method: "GET", Path: "/vehicles", ID: "listVehicles", Tag: "Vehicles", Summary: "List vehicles",
		Needs: needs("vehicles", apikey.Read),
		Query: []rest.Param{
			{Name: "state", Kind: rest.EnumsParam, Values: vehicleStates},
			{Name: "vehicle_type_id", Kind: rest.StringsParam},
			{Name: "form_factor", Kind: rest.EnumsParam, Values: formFactors},
			{Name: "code", Kind: rest.StringsParam, Doc: "Case-insensitive."},
			{Name: "device_id", Kind: rest.StringsParam},
			{Name: "external_id", Kind: rest.StringsParam},
			{Name: "subaccount_id", Kind: rest.StringsParam},
			{Name: "zone_id", Kind: rest.StringsParam, Doc: "Only vehicles inside."},
			boxParam("Where they are."),
			latParam("The point to search around, together with lng."), lngParam(), radiusParam(),
			{Name: "battery_percent", Kind: rest.IntRange},
			{Name: "last_reported_at", Kind: rest.TimeRange},
			{Name: "updated_at", Kind: rest.TimeRange},
		},
		Sort:   []string{"created_at", "updated_at", "code", "battery_percent", "last_reported_at", byDistance},
		Doc:    "A search around a point, with lat and lng, is sorted by distance by default; each record has distance_meters.",
		Expand: expand, Export: true, Output: vehicleRecord, List: true, Handle: a.listVehicles,
	}, {
		Method: "POST", Path: "/vehicles", ID: "createVehicle", Tag: "Vehicles", Summary: "Create a vehicle, or import many",
		Needs: needs("vehicles", apikey.Create), Input: vehicleRecord, Output: vehicleRecord, Codes: []string{"already_exists"}, Handle: a.createVehicle,
		Import: &rest.Import{Types: []string{rest.NDJSON, rest.CSV}, Handle: a.importVehicles},
	}, {
		Method: "GET", Path: "/vehicles/{id}", ID: "getVehicle", Tag: "Vehicles", Summary: "Read a vehicle",
		Needs: needs("vehicles", apikey.Read), Expand: expand, Output: vehicleRecord, Handle: a.getVehicle,
	}, {
		Method: "PUT", Path: "/vehicles/{id}", ID: "updateVehicle", Tag: "Vehicles", Summary: "Change a vehicle, or report its telemetry",
		Doc:   "A vehicle with an open ride takes telemetry, but no other state.",
		Needs: needs("vehicles", apikey.Update), Input: vehicleRecord, Output: vehicleRecord,
		Codes: []string{"invalid_transition", "vehicle_low_battery", "vehicle_in_use", "already_exists"}, Handle: a.updateVehicle,
	}, {
		Method: "DELETE", Path: "/vehicles/{id}", ID: "deleteVehicle", Tag: "Vehicles", Summary: "Delete a vehicle",
		Doc:   "Its rides stay, and keep its id.",
		Needs: needs("vehicles", apikey.Delete), Codes: []string{"vehicle_in_use"}, Handle: a.deleteVehicle,
	}}
}

func (a *API) getVehicle(ctx context.Context, r *rest.Request) (rest.Response, error) {
	v, err := a.Fleet.Vehicle(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(v.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	return expanded(ctx, r, &v, a.expandVehicles)
}

func (a *API) createVehicle(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in fleet.NewVehicle
	subaccountID, err := r.DecodeSole(ctx, &in)
	if err != nil {
		return rest.Response{}, err
	}
	in.SubaccountID = subaccountID
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Fleet.CreateVehicleTx(ctx, tx, r.Key.OrganizationID, in, actorOf(r))
		if err != nil {
			return rest.Response{}, err
		}
		return created("/vehicles/", v.ID, v.SubaccountID, &v)
	})
}

func (a *API) importVehicles(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return rest.ImportEach(ctx, r, func(tx *db.Tx, l *rest.Line, in *fleet.NewVehicle) (string, error) {
		n := *in
		n.SubaccountID = l.Subaccount
		if n.State != "" && n.State != fleet.Removed && n.State != fleet.Available {
			n.State = "" // of an export: no vehicle begins in it
			l.Skip("state")
		}
		v, err := a.Fleet.CreateVehicleTx(ctx, tx, r.Key.OrganizationID, n, actorOf(r))
		return v.ID, err
	}, func(tx *db.Tx, l *rest.Line) (*rest.Existing, error) {
		id, err := a.Fleet.FindVehicleID(ctx, tx, r.Key.OrganizationID, l.ID, l.Subaccount, l.ExternalID)
		if id == "" || err != nil {
			return nil, err
		}
		v, err := a.Fleet.LockVehicleTx(ctx, tx, r.Key.OrganizationID, id)
		if err != nil {
			return nil, err
		}
		current, err := document(&v)
		return &rest.Existing{ID: v.ID, Subaccount: v.SubaccountID, Current: current, Change: func(decode func(any) error) ([]string, error) {
			var in fleet.VehicleChange
			if err := decode(&in); err != nil {
				return nil, err
			}
			v, err := a.Fleet.UpdateVehicleTx(ctx, tx, r.Key.OrganizationID, v, in, actorOf(r))
			return v.Ignored(), err
		}}, err
	})
}

func (a *API) updateVehicle(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Fleet.LockVehicleTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		current, err := reached(r, v.SubaccountID, &v)
		if err != nil {
			return rest.Response{}, err
		}
		var in fleet.VehicleChange
		if err := r.Update(current, &in, "distance_meters", "ignored"); err != nil {
			return rest.Response{}, err
		}
		v, err = a.Fleet.UpdateVehicleTx(ctx, tx, r.Key.OrganizationID, v, in, actorOf(r))
		if err != nil {
			return rest.Response{}, err
		}
		d, err := document(&v)
		if err != nil {
			return rest.Response{}, err
		}
		if ignored := v.Ignored(); len(ignored) > 0 {
			names, err := json.Marshal(ignored)
			if err != nil {
				return rest.Response{}, err
			}
			d = d.With("ignored", names)
		}
		return rest.OK(d).In(v.SubaccountID), nil
	})
}

func (a *API) deleteVehicle(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Fleet.LockVehicleTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		current, err := reached(r, v.SubaccountID, &v)
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(current); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent().In(v.SubaccountID), a.Fleet.DeleteVehicleTx(ctx, tx, r.Key.OrganizationID, v.ID, actorOf(r))
	})
}
