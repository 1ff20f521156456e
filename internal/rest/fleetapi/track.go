package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

const (
	maxTrackDays = 31
	// trackPage bounds the points of an answer. Those of one millisecond stay together.
	trackPage = 10_000
)

var trackPoint = &schema.Record{Name: "track_point", Doc: "A position of a vehicle.", Members: []schema.Member{
	{Name: "at", Type: schema.Timestamp()},
	{Name: "lat", Type: schema.NumberIn(-90, 90), Example: 52.520008},
	{Name: "lng", Type: schema.NumberIn(-180, 180), Example: 13.404954},
	{Name: "speed_kph", Type: schema.Number(), Nullable: true},
}}

var trackRecord = &schema.Record{Name: "track", Doc: "The positions of a vehicle.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("track")},
	{Name: "points", Type: schema.Array(schema.Nested(trackPoint), 1<<30), Doc: "In the order of time, at most 10,000, apart from those of the same millisecond."},
	{Name: "next_from", Type: schema.Timestamp(), Nullable: true, Doc: "from of the next request, if there are more points."},
}}

var vehicleEventRecord = &schema.Record{Name: "vehicle_event", Doc: "A change of a vehicle's state.", Members: []schema.Member{
	{Name: "id", Type: schema.ID(), Example: "evt_01KKNTQ6YAEDQRB018TR4SJM6R"},
	{Name: "object", Type: schema.Enum("vehicle_event")},
	{Name: "at", Type: schema.Timestamp()},
	{Name: "state", Type: schema.Enum(vehicleStates...)},
	{Name: "last_event", Type: schema.Enum(vehicleEvents...)},
	{Name: "event_types", Type: schema.Array(schema.Enum(vehicleEvents...), 8), Doc: "As MDS lists them: last_event, and the events of its ride while it was out of contact."},
	{Name: "location", Type: position(), Nullable: true},
	{Name: "battery_percent", Type: schema.Int(0, 100), Nullable: true},
	{Name: "ride_id", Type: schema.ID(), Nullable: true},
	{Name: "actor", Type: schema.Object(
		schema.Member{Name: "type", Type: schema.Enum("system", "key", "user")},
		schema.Member{Name: "id", Type: schema.Text(), Nullable: true},
	), Doc: "Who caused it."},
}}

func (a *API) trackRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/vehicles/{id}/track", ID: "getVehicleTrack", Tag: "Telemetry", Summary: "Read where a vehicle was",
		Doc: "The positions that the vehicle's tracker reported. They are deleted after track_retention_days. An export has all points of the time; as GeoJSON it is one LineString.",
		Query: []rest.Param{
			{Name: "from", Kind: rest.TimeParam, Doc: "Included; a day before to unless given."},
			{Name: "to", Kind: rest.TimeParam, Doc: "Excluded; now unless given. At most 31 days after from."},
			{Name: "simplify_meters", Kind: rest.NumberParam, Doc: "Omit points that are within this distance of the line through the others."},
		},
		Needs: needs("vehicles", apikey.Read), Export: true, GeoJSON: true, Output: trackRecord, Rows: trackPoint, Codes: []string{"range_too_large"}, Handle: a.getTrack,
	}, {
		Method: "GET", Path: "/vehicles/{id}/events", ID: "listVehicleEvents", Tag: "Telemetry", Summary: "List the changes of a vehicle's state",
		Doc: "Newest first.", Needs: needs("vehicles", apikey.Read), Export: true, List: true, Output: vehicleEventRecord, Handle: a.listVehicleEvents,
	}}
}

type wireTrack struct {
	Object   string           `json:"object"`
	Points   []wireTrackPoint `json:"points"`
	NextFrom rfc3339.Time     `json:"next_from"`
}

type wireTrackPoint struct {
	At    rfc3339.Time `json:"at"`
	Lat   float64      `json:"lat"`
	Lng   float64      `json:"lng"`
	Speed *float64     `json:"speed_kph"`
}

func wireOfPoint(r *track.Report) wireTrackPoint {
	lat, _ := r.Get(track.Lat)
	lng, _ := r.Get(track.Lng)
	w := wireTrackPoint{At: rfc3339.Time(r.Time()), Lat: geo.Degrees(lat), Lng: geo.Degrees(lng)}
	if speed, ok := r.Get(track.Speed); ok {
		w.Speed = new(float64(speed) / 10)
	}
	return w
}

// trackProperties are the properties of a track as a feature.
type trackProperties struct {
	VehicleID string       `json:"vehicle_id"`
	From      rfc3339.Time `json:"from"` // of the first point
	To        rfc3339.Time `json:"to"`   // of the last point
}

func (a *API) getTrack(ctx context.Context, r *rest.Request) (rest.Response, error) {
	v, err := a.Fleet.Vehicle(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(v.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	from, to := r.Time("from"), r.Time("to")
	if to.IsZero() {
		if to, err = a.Fleet.Now(ctx, a.DB, r.Key.OrganizationID); err != nil {
			return rest.Response{}, err
		}
	}
	if from.IsZero() {
		from = to.AddDate(0, 0, -1)
	}
	meters, _ := r.Number("simplify_meters")
	switch {
	case !to.After(from):
		return rest.Response{}, rest.BadParameter("to", "to must be after from.")
	case to.After(from.AddDate(0, 0, maxTrackDays)):
		e := problem.New(problem.Invalid, "A track is of at most %d days.", maxTrackDays)
		e.Code = "range_too_large"
		return rest.Response{}, e
	case meters < 0:
		return rest.Response{}, rest.BadParameter("simplify_meters", "simplify_meters must be at least 0.")
	}
	if r.Exporting() {
		// In pages, each simplified: all points of a month could exhaust the memory.
		return exportTrack(r, v.ID, func(fn func(points []track.Report) error) error {
			for at := from; !at.IsZero(); {
				points, next, err := a.Fleet.Track(ctx, a.DB, r.Key.OrganizationID, v.ID, at, to, trackPage)
				if err == nil {
					err = fn(track.Simplify(points, meters))
				}
				if err != nil {
					return err
				}
				at = next
			}
			return nil
		}), nil
	}
	points, next, err := a.Fleet.Track(ctx, a.DB, r.Key.OrganizationID, v.ID, from, to, trackPage)
	if err != nil {
		return rest.Response{}, err
	}
	points = track.Simplify(points, meters)
	w := wireTrack{Object: "track", Points: make([]wireTrackPoint, len(points)), NextFrom: rfc3339.Time(next)}
	for i := range points {
		w.Points[i] = wireOfPoint(&points[i])
	}
	return rest.OK(w), nil
}

// exportTrack returns an export of pages of points.
func exportTrack(r *rest.Request, vehicleID string, pages func(fn func(points []track.Report) error) error) rest.Response {
	points := rest.Each(func(give func(wireTrackPoint) error) error {
		return pages(func(points []track.Report) error {
			for i := range points {
				if err := give(wireOfPoint(&points[i])); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if !r.ExportingGeoJSON() {
		return rest.Export(points)
	}
	line := trackProperties{VehicleID: vehicleID}
	return rest.ExportLine(vehicleID, func(yield func([2]float64, error) bool) {
		for w, err := range points {
			if line.From.Std().IsZero() {
				line.From = w.At
			}
			line.To = w.At
			if !yield([2]float64{w.Lng, w.Lat}, err) {
				return
			}
		}
	}, func() any { return line })
}

type wireVehicleEvent struct {
	ID         string               `json:"id"`
	Object     string               `json:"object"`
	At         rfc3339.Time         `json:"at"`
	State      fleet.VehicleState   `json:"state"`
	LastEvent  fleet.VehicleEvent   `json:"last_event"`
	EventTypes []fleet.VehicleEvent `json:"event_types"`
	Location   *geo.Position        `json:"location"`
	Battery    *int64               `json:"battery_percent"`
	RideID     fleet.NullString     `json:"ride_id"`
	Actor      fleet.Actor          `json:"actor"`
}

func wireOfEvent(c *fleet.StateChange) wireVehicleEvent {
	return wireVehicleEvent{
		ID: c.ID, Object: "vehicle_event", At: c.At, State: c.State, LastEvent: c.Event, EventTypes: c.EventTypes(),
		Location: c.Location, Battery: c.BatteryPercent, RideID: c.RideID, Actor: c.Actor,
	}
}

func (a *API) listVehicleEvents(ctx context.Context, r *rest.Request) (rest.Response, error) {
	v, err := a.Fleet.Vehicle(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(v.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	if r.Exporting() {
		return rest.Export(rest.Each(func(give func(wireVehicleEvent) error) error {
			return a.Fleet.EachVehicleChange(ctx, r.Key.OrganizationID, v.ID, func(c *fleet.StateChange) error { return give(wireOfEvent(c)) })
		})), nil
	}
	var before string
	if _, err := r.Cursor(&before); err != nil {
		return rest.Response{}, err
	}
	list, err := a.Fleet.VehicleChanges(ctx, a.DB, r.Key.OrganizationID, v.ID, before, r.Limit()+1)
	if err != nil {
		return rest.Response{}, err
	}
	var next any
	if len(list) > r.Limit() {
		list = list[:r.Limit()]
		next = list[len(list)-1].ID
	}
	events := make([]wireVehicleEvent, len(list))
	for i := range list {
		events[i] = wireOfEvent(&list[i])
	}
	return rest.List(events, next), nil
}
