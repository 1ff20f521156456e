package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var trackerRecord = &schema.Record{Name: "tracker", Doc: "The address to which the tracker of a vehicle reports.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("tracker")},
	{Name: "vehicle_id", Type: schema.ID()},
	{Name: "url", Type: schema.Formatted("uri", 2048), Doc: "With a secret, which is shown only now.", Example: "https://kickstand.example/osmand/SECRET"},
}}

func (a *API) trackerRoutes() []rest.Route {
	return []rest.Route{{
		Method: "POST", Path: "/vehicles/{id}/tracker", ID: "createVehicleTracker", Tag: "Telemetry", Summary: "Create an address for a vehicle's tracker",
		Doc:   "For trackers and apps that speak the OsmAnd protocol, such as Traccar Client. The address has a secret of its own, good for reports of this vehicle only. The former address of the vehicle becomes invalid. Also needs the permission vehicles.read.",
		Needs: needs("vehicles", apikey.Update), Output: trackerRecord, Status: 200, Handle: a.createTracker,
	}, {
		Method: "DELETE", Path: "/vehicles/{id}/tracker", ID: "deleteVehicleTracker", Tag: "Telemetry", Summary: "Invalidate the address for a vehicle's tracker",
		Needs: needs("vehicles", apikey.Update), Handle: a.deleteTracker,
	}}
}

type wireTracker struct {
	Object    string `json:"object"`
	VehicleID string `json:"vehicle_id"`
	URL       string `json:"url"`
}

func (a *API) createTracker(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if err := r.Require("vehicles", apikey.Read); err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Fleet.LockVehicleTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Within(v.SubaccountID); err != nil {
			return rest.Response{}, err
		}
		secret, err := a.Fleet.CreateTrackerTx(ctx, tx, r.Key.OrganizationID, v.ID)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireTracker{Object: "tracker", VehicleID: v.ID, URL: a.TrackerURL + secret}).In(v.SubaccountID), nil
	})
}

func (a *API) deleteTracker(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Fleet.LockVehicleTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Within(v.SubaccountID); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent().In(v.SubaccountID), a.Fleet.DeleteTrackerTx(ctx, tx, r.Key.OrganizationID, v.ID)
	})
}
