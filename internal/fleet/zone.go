package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Zone is an area in which rules hold (fleet-api.md 1.4).
type Zone struct {
	Head
	Name        string       `json:"name"`
	Description Text         `json:"description"`
	Type        ZoneType     `json:"type"`
	Geometry    Area         `json:"geometry"`
	Rules       []Rule       `json:"rules"`    // of which the first for a vehicle type counts
	Priority    int64        `json:"priority"` // smaller first
	StartsAt    rfc3339.Time `json:"starts_at"`
	EndsAt      rfc3339.Time `json:"ends_at"`
	Tail

	revision int64
}

// NewZone is what a zone is made of.
type NewZone struct {
	SubaccountID string            `json:"subaccount_id"`
	ExternalID   Text              `json:"external_id"`
	Name         string            `json:"name"`
	Description  Text              `json:"description"`
	Type         ZoneType          `json:"type"`
	Geometry     Area              `json:"geometry"`
	Rules        []Rule            `json:"rules"`    // empty: those of the type
	Priority     *int64            `json:"priority"` // nil: that of the type
	StartsAt     rfc3339.Time      `json:"starts_at"`
	EndsAt       rfc3339.Time      `json:"ends_at"`
	Metadata     map[string]string `json:"metadata"`
}

// ZoneChange is what a PUT changes of a zone. What is absent stays.
type ZoneChange struct {
	ExternalID  optional.Value[Text]              `json:"external_id"`
	Name        optional.Value[string]            `json:"name"`
	Description optional.Value[Text]              `json:"description"`
	Type        optional.Value[ZoneType]          `json:"type"`
	Geometry    optional.Value[Area]              `json:"geometry"`
	Rules       optional.Value[[]Rule]            `json:"rules"`
	Priority    optional.Value[int64]             `json:"priority"`
	StartsAt    optional.Value[rfc3339.Time]      `json:"starts_at"`
	EndsAt      optional.Value[rfc3339.Time]      `json:"ends_at"`
	Metadata    optional.Value[map[string]string] `json:"metadata"` // the whole, merged already
}

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

// fences are the zones of a subaccount, in memory.
type fences struct{ list []fence }

// ruleAt returns the rule that decides for a vehicle of a type at a point, and
// the zone it is of; see [decide].
func (s *Service) ruleAt(ctx context.Context, q db.Querier, a account, subaccountID string, lng, lat float64, vehicleTypeID string) (Rule, string, error) {
	sub, stamp, err := s.subaccount(ctx, q, a.id, subaccountID)
	if err != nil {
		return Rule{}, "", err
	}
	around, err := s.fences.get(subaccountID, stamp, func(into *fences) error {
		list, err := db.All(ctx, q, scanFence, "SELECT doc FROM zones WHERE organization_id = $1 AND subaccount_id = $2", a.id, subaccountID)
		into.list = list
		return err
	})
	if err != nil {
		return Rule{}, "", fmt.Errorf("read the zones of a subaccount: %w", err)
	}
	rule, zoneID := decide(around.list, sub.GlobalRules, lng, lat, vehicleTypeID, a.now)
	return rule, zoneID, nil
}

func scanFence(row db.Row) (fence, error) {
	var z Zone
	err := row.Scan(db.IntoJSON(&z))
	return fence{z.ID, z.Type, z.Geometry, z.Rules, z.Priority, z.StartsAt.Std(), z.EndsAt.Std()}, err
}
