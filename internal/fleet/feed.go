package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// The reads of the public feed. They take no locks.

// System is a subaccount with a public feed.
type System struct {
	OrganizationID string
	Subaccount     Subaccount
	Language       string    // BCP 47, of all texts
	LowBattery     int64     // percent; vehicles below are not rentable
	Now            time.Time // by the organization's clock, at the read
	// Stamp changes with the subaccount or one of its zones.
	Stamp int64
}

const systemColumns = `SELECT u.organization_id, u.stamp, u.doc, s.clock_offset, s.doc FROM subaccounts u
	JOIN settings s ON s.organization_id = u.organization_id WHERE u.system_id`

func (s *Service) scanSystem(row db.Row) (System, error) {
	var y System
	var settings Settings
	var offset int64
	err := row.Scan(&y.OrganizationID, &y.Stamp, db.IntoJSON(&y.Subaccount), &offset, db.IntoJSON(&settings))
	y.Language, y.LowBattery = settings.DefaultLanguage, settings.LowBatteryPercent
	y.Now = s.db.Now().Add(time.Duration(offset) * time.Microsecond)
	return y, err
}

// Systems returns all subaccounts with a feed, by feed id.
func (s *Service) Systems(ctx context.Context) ([]System, error) {
	list, err := db.All(ctx, s.db, s.scanSystem, systemColumns+" IS NOT NULL ORDER BY u.system_id")
	if err != nil {
		return nil, fmt.Errorf("read the systems of the feed: %w", err)
	}
	return list, nil
}

// System returns the subaccount with a [Subaccount.PublicSystemID]. Error:
// NotFound.
func (s *Service) System(ctx context.Context, systemID string) (System, error) {
	if !s.Live() {
		var ok bool
		if systemID, ok = strings.CutPrefix(systemID, sandboxSystem); !ok {
			return System{}, wrapReadError(db.ErrNoRows, "system")
		}
	}
	got, err := db.One(ctx, s.db, s.scanSystem, systemColumns+" = $1", systemID)
	return got, wrapReadError(err, "system")
}

// PublicVehicle is the public part of a vehicle. Its id changes after each ride, so
// that riders cannot be tracked.
type PublicVehicle struct {
	ID                 string       `json:"public_vehicle_id"`
	VehicleTypeID      string       `json:"vehicle_type_id"`
	State              VehicleState `json:"state"` // Available, VehicleTaken or NonOperational
	Location           geo.Position `json:"location"`
	CurrentRangeMeters *int64       `json:"current_range_meters"`
	BatteryPercent     *int64       `json:"battery_percent"`
	FuelPercent        *int64       `json:"fuel_percent"`
	LastReportedAt     rfc3339.Time `json:"last_reported_at"`
	PricingPlanID      NullString   `json:"pricing_plan_id"`
}

// Rentable reports whether a ride may start with a vehicle of the system. plans has the ids of its
// active plans.
func (s *System) Rentable(v *PublicVehicle, plans map[string]bool) bool {
	level := Vehicle{BatteryPercent: v.BatteryPercent, FuelPercent: v.FuelPercent}
	kind := s.Subaccount.vehicleType(v.VehicleTypeID)
	if s.Subaccount.Status == subaccountArchived || kind == nil || v.State == NonOperational || level.batteryBelow(s.LowBattery) {
		return false
	}
	return plans[string(applicablePlan(v.PricingPlanID, kind, &s.Subaccount))]
}

// PublicVehicles returns the vehicles of a system with a location, except ridden
// and removed ones, by public id, which is random.
func (s *Service) PublicVehicles(ctx context.Context, of *System) ([]PublicVehicle, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (v PublicVehicle, err error) {
		err = row.Scan(db.IntoJSON(&v))
		return v, err
	}, `SELECT doc FROM vehicles WHERE organization_id = $1 AND subaccount_id = $2
		AND state IN ('available', 'reserved', 'non_operational') AND cell IS NOT NULL`, of.OrganizationID, of.Subaccount.ID)
	if err != nil {
		return nil, fmt.Errorf("read the vehicles of the feed: %w", err)
	}
	slices.SortFunc(list, func(a, b PublicVehicle) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// PublicZones returns the zones of a system that have not ended, by precedence.
func (s *Service) PublicZones(ctx context.Context, of *System) ([]Zone, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (z Zone, err error) {
		err = row.Scan(db.IntoJSON(&z))
		return z, err
	}, `SELECT doc FROM zones WHERE organization_id = $1 AND subaccount_id = $2 AND (ends_at IS NULL OR ends_at > $3)
		ORDER BY priority, id`, of.OrganizationID, of.Subaccount.ID, db.Time(of.Now))
	if err != nil {
		return nil, fmt.Errorf("read the zones of the feed: %w", err)
	}
	return list, nil
}

// PublicPlans returns the active plans of a system.
func (s *Service) PublicPlans(ctx context.Context, of *System) ([]Plan, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (p Plan, err error) {
		err = row.Scan(db.IntoJSON(&p))
		return p, err
	}, "SELECT doc FROM plans WHERE organization_id = $1 AND subaccount_id = $2 ORDER BY id", of.OrganizationID, of.Subaccount.ID)
	if err != nil {
		return nil, fmt.Errorf("read the pricing plans of the feed: %w", err)
	}
	return slices.DeleteFunc(list, func(p Plan) bool { return !p.Active }), nil
}

// DefaultRules returns the rules outside of all zones: the subaccount's, else those
// of fleet-api.md 1.4.
func (s *System) DefaultRules(zones []Zone) []Rule {
	if len(s.Subaccount.GlobalRules) > 0 {
		return s.Subaccount.GlobalRules
	}
	bounded := slices.ContainsFunc(zones, func(z Zone) bool {
		f := fence{kind: z.Type, starts: z.StartsAt.Std(), ends: z.EndsAt.Std()}
		return f.kind == ServiceArea && f.inForce(s.Now)
	})
	return []Rule{{StartAllowed: !bounded, EndAllowed: !bounded, ThroughAllowed: true}}
}
