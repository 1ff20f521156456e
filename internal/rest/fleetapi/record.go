package fleetapi

import (
	"slices"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// maxExact is the largest integer that all JSON parsers represent exactly.
const maxExact = 1<<53 - 1

// record returns a record of fleet-api.md section 1: the common first and last fields, with its
// own between.
func record(name, doc string, own ...schema.Member) *schema.Record {
	head := []schema.Member{
		{Name: "id", Type: schema.ID()},
		{Name: "object", Type: schema.Enum(name)},
		{Name: "livemode", Type: schema.Bool(), Doc: "true for production, false for the sandbox."},
		{Name: "subaccount_id", Type: schema.ID(), Access: schema.CreateOnly, Doc: "Defaults to the only subaccount in the API key's scope."},
		{Name: "external_id", Type: schema.String(1, 128), Access: schema.Writable, Nullable: true, Doc: "Your own id, unique in the subaccount among records of this type."},
	}
	tail := []schema.Member{
		{Name: "metadata", Type: schema.Metadata(), Access: schema.Writable, Doc: "Your own. A PUT merges it key by key; null removes a key."},
		{Name: "created_at", Type: schema.Timestamp()},
		{Name: "updated_at", Type: schema.Timestamp()},
	}
	return &schema.Record{Name: name, Doc: doc, Members: slices.Concat(head, own, tail)}
}

// partial returns a record with optional fields except always: an expanded record that may be
// deleted.
func partial(name, doc string, of *schema.Record, always []string, more ...schema.Member) *schema.Record {
	r := &schema.Record{Name: name, Doc: doc}
	for _, m := range of.Members {
		m.Sometimes = !slices.Contains(always, m.Name)
		r.Members = append(r.Members, m)
	}
	r.Members = append(r.Members, more...)
	return r
}

// position is a geographic position (fleet-api.md 0).
func position() schema.Type { return schema.Nested(positionRecord) }

var positionRecord = &schema.Record{Name: "position", Doc: "A geographic position.", Members: []schema.Member{
	{Name: "lat", Type: schema.NumberIn(-90, 90), Access: schema.Required, Doc: "Degrees, WGS 84, rounded to 6 decimals.", Example: 52.520008},
	{Name: "lng", Type: schema.NumberIn(-180, 180), Access: schema.Required, Example: 13.404954},
	{Name: "accuracy_meters", Type: schema.NumberIn(0, 10_000_000), Access: schema.Writable, Sometimes: true},
	{Name: "heading", Type: schema.NumberIn(0, 360), Access: schema.Writable, Sometimes: true, Doc: "Degrees clockwise from north."},
	{Name: "speed_mps", Type: schema.NumberIn(0, 1000), Access: schema.Writable, Sometimes: true, Doc: "Meters per second."},
}}

// rules are the riding rules of a zone, or of a subaccount outside of zones.
func rules() schema.Type { return schema.Array(schema.Nested(ruleRecord), 100) }

var ruleRecord = &schema.Record{Name: "rule", Doc: "A riding rule.", Members: []schema.Member{
	{Name: "vehicle_type_ids", Type: schema.Array(schema.ID(), 100), Access: schema.Writable, Sometimes: true, Doc: "The vehicle types it applies to; defaults to all."},
	{Name: "ride_start_allowed", Type: schema.Bool(), Access: schema.Required},
	{Name: "ride_end_allowed", Type: schema.Bool(), Access: schema.Required},
	{Name: "ride_through_allowed", Type: schema.Bool(), Access: schema.Required, Doc: "For devices and apps: published, not enforced here."},
	{Name: "maximum_speed_kph", Type: schema.Int(0, 1000), Access: schema.Writable, Sometimes: true, Doc: "Likewise."},
}}

// amount is a non-negative amount in the minor unit of an adjacent currency.
func amount() schema.Type { return schema.Int(0, maxExact) }

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
