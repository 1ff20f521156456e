package mds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// millis is a time in milliseconds since 1970.
type millis int64

func millisOf(t rfc3339.Time) millis { return millis(t.Std().UnixMilli()) }

// uuidOf returns the id of a record as a UUID: its ULID has the same 128 bits.
func uuidOf(id string) (string, error) {
	_, text, _ := strings.Cut(id, "_")
	u, err := ulid.ParseStrict(text)
	if err != nil {
		return "", fmt.Errorf("id %q has no UUID: %w", id, err)
	}
	return uuid.UUID(u).String(), nil
}

// idOf is the reverse of uuidOf, for ids with a prefix; false for another text.
func idOf(prefix, text string) (string, bool) {
	u, err := uuid.Parse(text)
	if err != nil || u.String() != text {
		return "", false
	}
	return prefix + "_" + ulid.ULID(u).String(), true
}

// point is a position in the form of MDS.
type point struct {
	Lat      float64  `json:"lat"`
	Lng      float64  `json:"lng"`
	Heading  *float64 `json:"heading,omitempty"`
	Speed    *float64 `json:"speed,omitempty"` // meters per second
	Accuracy *float64 `json:"horizontal_accuracy,omitempty"`
	Altitude *float64 `json:"altitude,omitempty"` // meters
}

func pointOf(at *geo.Position) *point {
	if at == nil {
		return nil
	}
	return &point{Lat: at.Lat, Lng: at.Lng, Heading: at.Heading, Speed: at.SpeedMPS, Accuracy: at.AccuracyMeters}
}

type vehicle struct {
	DeviceID        string   `json:"device_id"`
	ProviderID      string   `json:"provider_id"`
	VehicleID       string   `json:"vehicle_id"`
	VehicleType     string   `json:"vehicle_type"`
	PropulsionTypes []string `json:"propulsion_types"`
	MaximumSpeed    *int64   `json:"maximum_speed,omitempty"` // kph
}

func (c *call) newVehicle(v *fleet.Vehicle) (vehicle, error) {
	id, err := uuidOf(v.ID)
	shown := vehicle{
		DeviceID: id, ProviderID: c.provider(), VehicleID: v.Code, VehicleType: v.FormFactor, PropulsionTypes: []string{v.PropulsionType},
	}
	for _, t := range c.area.Subaccount.VehicleTypes {
		if t.ID == v.VehicleTypeID {
			shown.MaximumSpeed = t.MaxPermittedSpeed
		}
	}
	return shown, err
}

// provider is the operator's UUID.
func (c *call) provider() string { return string(c.area.Subaccount.MDS.ProviderID) }

type event struct {
	DeviceID       string   `json:"device_id"`
	ProviderID     string   `json:"provider_id"`
	EventID        string   `json:"event_id"`
	VehicleState   string   `json:"vehicle_state"`
	EventTypes     []string `json:"event_types"`
	Timestamp      millis   `json:"timestamp"`
	Location       *point   `json:"location"`
	BatteryPercent *int64   `json:"battery_percent,omitempty"`
	TripIDs        []string `json:"trip_ids,omitempty"`
}

// newEvent returns a state change with a location.
func (c *call) newEvent(s *fleet.StateChange) (event, error) {
	device, err := uuidOf(s.VehicleID)
	id, err2 := uuidOf(s.ID)
	trips, err3 := tripsOf(s)
	types := []string{string(s.Event)}
	for _, t := range s.RideEvents {
		if legal(s.State, t) {
			types = append(types, string(t))
		}
	}
	return event{
		DeviceID: device, ProviderID: c.provider(), EventID: id, VehicleState: string(s.State), EventTypes: types,
		Timestamp: millisOf(s.At), Location: pointOf(s.Location), BatteryPercent: s.BatteryPercent, TripIDs: trips,
	}, cmp.Or(err, err2, err3)
}

// legal reports whether MDS allows an event of a ride in the state of its vehicle afterwards. A vehicle
// that was out of contact may have missed several, of which only the last one led to its state.
func legal(state fleet.VehicleState, event fleet.VehicleEvent) bool {
	switch event {
	case "reservation_start":
		return state == fleet.VehicleReserved
	case "trip_start":
		return state == fleet.OnTrip
	default: // the ends of rides
		return state == fleet.Available
	}
}

// tripsOf returns the trip of a state change; nil for none. A reservation is no trip.
func tripsOf(s *fleet.StateChange) ([]string, error) {
	types := s.EventTypes()
	if s.RideID == "" || slices.Contains(types, "reservation_start") || slices.Contains(types, "reservation_cancel") || s.State == fleet.VehicleReserved {
		return nil, nil
	}
	id, err := uuidOf(string(s.RideID))
	return []string{id}, err
}

type telemetryPoint struct {
	DeviceID       string   `json:"device_id"`
	ProviderID     string   `json:"provider_id"`
	TelemetryID    string   `json:"telemetry_id"`
	Timestamp      millis   `json:"timestamp"`
	TripIDs        []string `json:"trip_ids"`
	JourneyID      *string  `json:"journey_id"` // nil: the mode has no journeys
	Location       *point   `json:"location"`
	BatteryPercent *int64   `json:"battery_percent,omitempty"`
	FuelPercent    *int64   `json:"fuel_percent,omitempty"`
}

// telemetrySpace is the namespace of ids of points that have none of their own.
var telemetrySpace = uuid.MustParse("3b1f2f0e-5b1c-4a55-9f0e-0d2a6f1f7c41")

// newPoint returns a point of telemetry.
func (c *call) newPoint(p *fleet.MDSPoint) (telemetryPoint, error) {
	if p.Change != nil {
		return c.changePoint(p.Change)
	}
	device, err := uuidOf(p.VehicleID)
	shown := telemetryPoint{
		DeviceID: device, ProviderID: c.provider(), TelemetryID: reportID(p.VehicleID, p.At, p.N), Timestamp: millis(p.At.UnixMilli()),
		Location: pointOf(p.Location), BatteryPercent: p.BatteryPercent, FuelPercent: p.FuelPercent,
	}
	shown.Location.Altitude = p.AltitudeMeters
	if p.RideID == "" || err != nil {
		return shown, err
	}
	trip, err := uuidOf(p.RideID)
	shown.TripIDs = []string{trip}
	return shown, err
}

// reportID returns the id of a report, after n others of the vehicle at the same time.
func reportID(vehicleID string, at time.Time, n int) string {
	name := vehicleID + at.UTC().String()
	if n > 0 {
		name += " " + strconv.Itoa(n)
	}
	return uuid.NewSHA1(telemetrySpace, []byte(name)).String()
}

// changePoint returns the point of a state change with a location.
func (c *call) changePoint(s *fleet.StateChange) (telemetryPoint, error) {
	device, err := uuidOf(s.VehicleID)
	trips, err2 := tripsOf(s)
	if len(s.RideEvents) > 0 && s.State != fleet.OnTrip {
		trips = nil // the trip ended before
	}
	return telemetryPoint{
		DeviceID: device, ProviderID: c.provider(), TelemetryID: uuid.NewSHA1(telemetrySpace, []byte(s.ID)).String(),
		Timestamp: millisOf(s.At), TripIDs: trips, Location: pointOf(s.Location), BatteryPercent: s.BatteryPercent,
	}, cmp.Or(err, err2)
}

// latestPoint returns where a vehicle with a location is: its last report, unless its
// last state change is later.
func (c *call) latestPoint(v *fleet.MDSVehicle, last *fleet.StateChange) (telemetryPoint, error) {
	reported := v.LastReportedAt
	if !reported.Std().After(last.At.Std()) {
		return c.changePoint(last)
	}
	p, err := c.changePoint(last)
	p.TelemetryID = reportID(v.ID, reported.Std(), 0)
	p.Timestamp, p.Location, p.BatteryPercent, p.FuelPercent = millisOf(reported), pointOf(v.Location), v.BatteryPercent, v.FuelPercent
	if v.State != fleet.OnTrip {
		p.TripIDs = nil
	}
	return p, err
}

type status struct {
	DeviceID      string         `json:"device_id"`
	ProviderID    string         `json:"provider_id"`
	LastEvent     event          `json:"last_event"`
	LastTelemetry telemetryPoint `json:"last_telemetry"`
}

// newStatus returns the status of a vehicle; false if its location is unknown.
func (c *call) newStatus(v *fleet.MDSVehicle) (status, bool, error) {
	if v.Last == nil || v.Location == nil {
		return status{}, false, nil
	}
	last := *v.Last
	if last.Location == nil {
		last.Location = v.Location
	}
	e, err := c.newEvent(&last)
	if err != nil {
		return status{}, false, err
	}
	p, err := c.latestPoint(v, &last)
	return status{e.DeviceID, e.ProviderID, e, p}, true, err
}

type trip struct {
	ProviderID    string   `json:"provider_id"`
	DeviceID      string   `json:"device_id"`
	TripID        string   `json:"trip_id"`
	TripType      []string `json:"trip_type"`
	StartTime     millis   `json:"start_time"`
	EndTime       millis   `json:"end_time"`
	StartLocation *point   `json:"start_location"`
	EndLocation   *point   `json:"end_location"`
	Duration      int64    `json:"duration"` // seconds
	Distance      int64    `json:"distance"` // meters
	ParkingURL    string   `json:"parking_verification_url,omitempty"`
	Parking       string   `json:"parking_category,omitempty"`
	StandardCost  *int64   `json:"standard_cost,omitempty"`
	ActualCost    *int64   `json:"actual_cost,omitempty"`
	Currency      string   `json:"currency,omitempty"`
}

// newTrip returns a trip; false if neither its start nor its end is known. The one that is
// known stands for the other.
func (c *call) newTrip(r *fleet.Ride) (trip, bool, error) {
	from, to := cmp.Or(r.StartLocation, r.EndLocation), cmp.Or(r.EndLocation, r.StartLocation)
	if from == nil {
		return trip{}, false, nil
	}
	device, err := uuidOf(r.VehicleID)
	id, err2 := uuidOf(r.ID)
	t := trip{
		ProviderID: c.provider(), DeviceID: device, TripID: id, TripType: []string{string(r.TripType)},
		StartTime: millisOf(r.StartedAt), EndTime: millisOf(r.EndedAt), StartLocation: pointOf(from), EndLocation: pointOf(to),
		Duration: r.DurationSeconds, ParkingURL: string(r.ParkingURL), Parking: string(r.ParkingCategory),
	}
	if r.DistanceMeters != nil {
		t.Distance = *r.DistanceMeters
	}
	if r.Price != nil {
		t.StandardCost, t.ActualCost, t.Currency = new(r.Price.Adjusted(0).TotalAmount), new(r.Price.TotalAmount), r.Price.Currency
	}
	return t, true, cmp.Or(err, err2)
}

// otherForm is the form factor of vehicle types that the operator has removed.
const otherForm = "other"

// formFactors returns the form factors of an area, sorted, each with its vehicle types. ridden are the
// types of rides, also removed ones.
func formFactors(area *fleet.MDSArea, ridden []string) (names []string, types map[string][]string) {
	types = make(map[string][]string)
	known := make(map[string]bool)
	for _, t := range area.Subaccount.VehicleTypes {
		types[t.FormFactor] = append(types[t.FormFactor], t.ID)
		known[t.ID] = true
	}
	for _, id := range ridden {
		if !known[id] {
			types[otherForm] = append(types[otherForm], id)
		}
	}
	return slices.Sorted(maps.Keys(types)), types
}
