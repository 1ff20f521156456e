package fleetapi

import (
	"slices"

	"github.com/kickstand-dev/kickstand/internal/rest"
)

// maxExact is the largest integer that all JSON parsers represent exactly.
const maxExact = 1<<53 - 1

// record returns a record of fleet-api.md section 1: the common first and last fields, with its
// own between.
func record(name, doc string, own ...rest.Member) *rest.Record {
	head := []rest.Member{
		{Name: "id", Type: rest.ID()},
		{Name: "object", Type: rest.Enum(name)},
		{Name: "livemode", Type: rest.Bool(), Doc: "true for production, false for the sandbox."},
		{Name: "subaccount_id", Type: rest.ID(), Access: rest.CreateOnly, Doc: "Defaults to the only subaccount in the API key's scope."},
		{Name: "external_id", Type: rest.String(1, 128), Access: rest.Writable, Nullable: true, Doc: "Your own id, unique in the subaccount among records of this type."},
	}
	tail := []rest.Member{
		{Name: "metadata", Type: rest.Metadata(), Access: rest.Writable, Doc: "Your own. A PUT merges it key by key; null removes a key."},
		{Name: "created_at", Type: rest.Timestamp()},
		{Name: "updated_at", Type: rest.Timestamp()},
	}
	return &rest.Record{Name: name, Doc: doc, Members: slices.Concat(head, own, tail)}
}

// partial returns a record with optional fields except always: an expanded record that may be
// deleted.
func partial(name, doc string, of *rest.Record, always []string, more ...rest.Member) *rest.Record {
	r := &rest.Record{Name: name, Doc: doc}
	for _, m := range of.Members {
		m.Sometimes = !slices.Contains(always, m.Name)
		r.Members = append(r.Members, m)
	}
	r.Members = append(r.Members, more...)
	return r
}

// position is a geographic position (fleet-api.md 0).
func position() rest.Type {
	return rest.Object(
		rest.Member{Name: "lat", Type: rest.NumberIn(-90, 90), Access: rest.Required, Doc: "Degrees, WGS 84, rounded to 6 decimals.", Example: 52.520008},
		rest.Member{Name: "lng", Type: rest.NumberIn(-180, 180), Access: rest.Required, Example: 13.404954},
		rest.Member{Name: "accuracy_meters", Type: rest.NumberIn(0, 10_000_000), Access: rest.Writable, Sometimes: true},
		rest.Member{Name: "heading", Type: rest.NumberIn(0, 360), Access: rest.Writable, Sometimes: true, Doc: "Degrees clockwise from north."},
		rest.Member{Name: "speed_mps", Type: rest.NumberIn(0, 1000), Access: rest.Writable, Sometimes: true, Doc: "Meters per second."},
	)
}

// rules are the riding rules of a zone, or of a subaccount outside of zones.
func rules() rest.Type {
	return rest.Array(rest.Object(
		rest.Member{Name: "vehicle_type_ids", Type: rest.Array(rest.ID(), 100), Access: rest.Writable, Sometimes: true, Doc: "The vehicle types it applies to; defaults to all."},
		rest.Member{Name: "ride_start_allowed", Type: rest.Bool(), Access: rest.Required},
		rest.Member{Name: "ride_end_allowed", Type: rest.Bool(), Access: rest.Required},
		rest.Member{Name: "ride_through_allowed", Type: rest.Bool(), Access: rest.Required, Doc: "For devices and apps: published, not enforced here."},
		rest.Member{Name: "maximum_speed_kph", Type: rest.Int(0, 1000), Access: rest.Writable, Sometimes: true, Doc: "Likewise."},
	), 100)
}

// amount is a non-negative amount in the minor unit of an adjacent currency.
func amount() rest.Type { return rest.Int(0, maxExact) }

// Enumerations.
var (
	rideStatuses    = []string{"reserved", "active", "paused", "completed", "cancelled"}
	tripTypes       = []string{"rider", "rebalance", "maintenance"}
	paymentStatuses = []string{"not_due", "due", "paid", "refunded", "waived"}
	vehicleStates   = []string{"available", "reserved", "on_trip", "non_operational", "non_contactable", "missing", "removed"}
	formFactors     = []string{"bicycle", "cargo_bicycle", "car", "moped", "scooter_standing", "scooter_seated", "other"}
	propulsionTypes = []string{"human", "electric_assist", "electric", "combustion", "combustion_diesel", "hybrid", "plug_in_hybrid", "hydrogen_fuel_cell"}
	zoneTypes       = []string{"service_area", "parking", "no_parking", "slow", "no_ride", "custom"}

	// requestReasons are the transition reasons that requests may set; rides, reports and timers cause
	// the rest.
	requestReasons = []string{
		"maintenance", "off_hours", "on_hours", "system_suspend", "system_resume", "battery_low", "battery_charged", "unspecified",
		"maintenance_pick_up", "rebalance_pick_up", "compliance_pick_up", "agency_pick_up", "decommissioned",
		"provider_drop_off", "agency_drop_off", "located",
	}
	vehicleEvents = append(slices.Clone(requestReasons),
		"reservation_start", "reservation_cancel", "trip_start", "trip_end", "trip_cancel", "comms_lost", "comms_restored", "not_located")
)
