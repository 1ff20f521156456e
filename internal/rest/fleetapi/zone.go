package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var zoneRecord = record("zone", "An area in which rules hold (GBFS geofencing zone).",
	schema.Member{Name: "name", Type: schema.String(1, 256), Access: schema.Required, Example: "Mitte"},
	schema.Member{Name: "description", Type: schema.String(1, 5000), Access: schema.Writable, Nullable: true},
	schema.Member{Name: "type", Type: schema.Enum(zoneTypes...), Access: schema.Required, Doc: "A template that fills in rules and priority of a new zone without them. custom requires rules."},
	schema.Member{Name: "geometry", Type: schema.Checked(shape), Access: schema.Required, Doc: "GeoJSON: a Polygon or a MultiPolygon of at most 10,000 positions; answered as MultiPolygon, outer rings counter-clockwise.",
		Example: map[string]any{"type": "Polygon", "coordinates": [][][2]float64{{{13.36, 52.5}, {13.43, 52.5}, {13.43, 52.54}, {13.36, 52.54}, {13.36, 52.5}}}}},
	schema.Member{Name: "rules", Type: rules(), Access: schema.Writable, Doc: "The first that is for a vehicle's type counts."},
	schema.Member{Name: "priority", Type: schema.Int(0, 1000), Access: schema.Writable, Doc: "Where zones overlap, the one with the smaller number decides."},
	schema.Member{Name: "starts_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true, Doc: "Before, the zone does not count."},
	schema.Member{Name: "ends_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true, Doc: "From then on, neither."},
)

func (a *API) zoneRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/zones", ID: "listZones", Tag: "Zones", Summary: "List zones",
		Needs: needs("zones", apikey.Read),
		Query: []rest.Param{
			{Name: "type", Kind: rest.EnumsParam, Values: zoneTypes},
			{Name: "subaccount_id", Kind: rest.StringsParam},
			{Name: "in_force", Kind: rest.BoolParam, Doc: "Only zones in force now, or not."},
			boxParam("Only zones that intersect it."),
			latParam("Only zones that contain the point, together with lng."), lngParam(),
		},
		Sort: []string{"priority", "created_at", "name"}, Export: true, GeoJSON: true, Output: zoneRecord, List: true, Handle: a.listZones,
	}, {
		Method: "POST", Path: "/zones", ID: "createZone", Tag: "Zones", Summary: "Create a zone, or import many",
		Needs: needs("zones", apikey.Create), Input: zoneRecord, Output: zoneRecord, Codes: []string{"already_exists"}, Handle: a.createZone,
		Import: &rest.Import{Types: []string{rest.GeoJSON, rest.NDJSON, rest.CSV}, Handle: a.importZones},
	}, {
		Method: "GET", Path: "/zones/{id}", ID: "getZone", Tag: "Zones", Summary: "Read a zone",
		Needs: needs("zones", apikey.Read), Output: zoneRecord, Handle: a.getZone,
	}, {
		Method: "PUT", Path: "/zones/{id}", ID: "updateZone", Tag: "Zones", Summary: "Change a zone",
		Needs: needs("zones", apikey.Update), Input: zoneRecord, Output: zoneRecord, Codes: []string{"already_exists"}, Handle: a.updateZone,
	}, {
		Method: "DELETE", Path: "/zones/{id}", ID: "deleteZone", Tag: "Zones", Summary: "Delete a zone",
		Doc:   "Its rules end at once. Rides keep its id.",
		Needs: needs("zones", apikey.Delete), Handle: a.deleteZone,
	}}
}

// shape validates the geometry of a zone.
func shape(text []byte) error {
	var a geo.Area
	return a.UnmarshalJSON(text)
}

func (a *API) getZone(ctx context.Context, r *rest.Request) (rest.Response, error) {
	z, err := a.Fleet.Zone(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(z.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	return ok(&z)
}

func (a *API) createZone(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in fleet.NewZone
	subaccountID, err := r.DecodeSole(ctx, &in)
	if err != nil {
		return rest.Response{}, err
	}
	in.SubaccountID = subaccountID
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		z, err := a.Fleet.CreateZoneTx(ctx, tx, r.Key.OrganizationID, in)
		if err != nil {
			return rest.Response{}, err
		}
		return created("/zones/", z.ID, z.SubaccountID, &z)
	})
}

func (a *API) importZones(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return rest.ImportEach(ctx, r, func(tx *db.Tx, l *rest.Line, in *fleet.NewZone) (string, error) {
		n := *in
		n.SubaccountID = l.Subaccount
		z, err := a.Fleet.CreateZoneTx(ctx, tx, r.Key.OrganizationID, n)
		return z.ID, err
	}, func(tx *db.Tx, l *rest.Line) (*rest.Existing, error) {
		id, err := a.Fleet.FindZoneID(ctx, tx, r.Key.OrganizationID, l.ID, l.Subaccount, l.ExternalID)
		if id == "" || err != nil {
			return nil, err
		}
		z, err := a.Fleet.LockZoneTx(ctx, tx, r.Key.OrganizationID, id)
		if err != nil {
			return nil, err
		}
		current, err := document(&z)
		return &rest.Existing{ID: z.ID, Subaccount: z.SubaccountID, Current: current, Change: func(decode func(any) error) ([]string, error) {
			var in fleet.ZoneChange
			if err := decode(&in); err != nil {
				return nil, err
			}
			_, err := a.Fleet.UpdateZoneTx(ctx, tx, r.Key.OrganizationID, z, in)
			return nil, err
		}}, err
	})
}

func (a *API) updateZone(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		z, current, err := a.lockZone(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		var in fleet.ZoneChange
		if err := r.Update(current, &in); err != nil {
			return rest.Response{}, err
		}
		z, err = a.Fleet.UpdateZoneTx(ctx, tx, r.Key.OrganizationID, z, in)
		if err != nil {
			return rest.Response{}, err
		}
		return changed(z.SubaccountID, &z)
	})
}

func (a *API) deleteZone(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		z, current, err := a.lockZone(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(current); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent().In(z.SubaccountID), a.Fleet.DeleteZoneTx(ctx, tx, r.Key.OrganizationID, z.ID)
	})
}

// lockZone returns the zone of the path, locked and in scope, and its wire format.
func (a *API) lockZone(ctx context.Context, tx *db.Tx, r *rest.Request) (z fleet.Zone, current rest.Document, err error) {
	if z, err = a.Fleet.LockZoneTx(ctx, tx, r.Key.OrganizationID, r.Path("id")); err == nil {
		current, err = reached(r, z.SubaccountID, &z)
	}
	return z, current, err
}
