package fleet

import (
	"slices"
	"time"
)

// Rule says what is allowed for some types of vehicles, or for all (GBFS
// geofencing rule). Passing and speed are for apps and devices: they are
// published, and not enforced here.
type Rule struct {
	VehicleTypeIDs []string `json:"vehicle_type_ids,omitempty"` // none: all
	StartAllowed   bool     `json:"ride_start_allowed"`
	EndAllowed     bool     `json:"ride_end_allowed"`
	ThroughAllowed bool     `json:"ride_through_allowed"`
	MaximumSpeed   *int64   `json:"maximum_speed_kph,omitempty"`
}

// covers reports whether a rule is for vehicles of a type.
func (r *Rule) covers(vehicleTypeID string) bool {
	return len(r.VehicleTypeIDs) == 0 || slices.Contains(r.VehicleTypeIDs, vehicleTypeID)
}

// ZoneType is a label that fills in the rules and the priority of a zone that
// has none of its own.
type ZoneType string

// The types.
const (
	ServiceArea ZoneType = "service_area"
	Parking     ZoneType = "parking"
	NoParking   ZoneType = "no_parking"
	Slow        ZoneType = "slow"
	NoRide      ZoneType = "no_ride"
	CustomZone  ZoneType = "custom" // has rules of its own
)

// defaults returns what a type of zone means (fleet-api.md 1.4). A custom one
// means nothing.
func (t ZoneType) defaults() (priority int64, rules []Rule) {
	switch t {
	case NoRide:
		return 10, []Rule{{}}
	case NoParking:
		return 20, []Rule{{StartAllowed: true, ThroughAllowed: true}}
	case Slow:
		return 30, []Rule{{StartAllowed: true, EndAllowed: true, ThroughAllowed: true, MaximumSpeed: new(int64(10))}}
	case Parking:
		return 40, []Rule{{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}}
	case ServiceArea:
		return 100, []Rule{{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}}
	}
	return 100, nil
}

// fence is as much of a zone as decides.
type fence struct {
	id       string
	kind     ZoneType
	area     Area
	rules    []Rule
	priority int64
	starts   time.Time // zero: always was
	ends     time.Time // zero: never
}

// inForce reports whether a zone counts at a time.
func (f *fence) inForce(at time.Time) bool {
	return !at.Before(f.starts) && (f.ends.IsZero() || at.Before(f.ends))
}

// decide returns the rule that decides for a vehicle of a type at a point and a
// time, and the zone it is of: empty when none of the zones decides. That is the
// precedence of GBFS (fleet-api.md 1.4): zones by priority, then id, and in each
// the first rule for the type; the first hit wins whole.
func decide(fences []fence, global []Rule, lng, lat float64, vehicleTypeID string, at time.Time) (Rule, string) {
	var winner *fence
	var rule *Rule
	bounded := false
	for i := range fences {
		f := &fences[i]
		if !f.inForce(at) {
			continue
		}
		bounded = bounded || f.kind == ServiceArea
		if winner != nil && (f.priority > winner.priority || f.priority == winner.priority && f.id > winner.id) {
			continue
		}
		first := slices.IndexFunc(f.rules, func(r Rule) bool { return r.covers(vehicleTypeID) })
		if first >= 0 && f.area.Contains(lng, lat) {
			winner, rule = f, &f.rules[first]
		}
	}
	if winner != nil {
		return *rule, winner.id
	}
	for _, r := range global {
		if r.covers(vehicleTypeID) {
			return r, ""
		}
	}
	if len(global) == 0 && bounded {
		return Rule{ThroughAllowed: true}, ""
	}
	return Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}, ""
}
