package fleet_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// TestEnsure: of many concurrent calls on two services, one provisions the fleet.
func TestEnsure(t *testing.T) {
	d := dbtest.NewFleet(t)
	nodes := [2]*fleet.Service{fleet.Open(fleet.Config{DB: d, Live: true}), fleet.Open(fleet.Config{DB: d, Live: true})}
	organizations := []fleet.Organization{{ID: "org-1", Name: " Acme Mobility "}, {ID: "org-2", Name: "\x00"}}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			o := organizations[i/2%2]
			if err := nodes[i%2].Provision(t.Context(), o); err != nil {
				t.Error(err)
			}
			if ids, err := nodes[i%2].SubaccountIDs(t.Context(), d, o.ID); err != nil || len(ids) != 1 {
				t.Errorf("got %q, %v; want one subaccount", ids, err)
			}
		})
	}
	wg.Wait()
	subs, err := nodes[0].Subaccounts(t.Context(), d, "org-1")
	if err != nil || len(subs) != 1 || subs[0].Name != "Acme Mobility" || subs[0].Currency != "EUR" || subs[0].TimeZone != "UTC" || subs[0].Status != "active" || !subs[0].Live {
		t.Errorf("got %+v, %v", subs, err)
	}
	settings, revision, err := nodes[1].Settings(t.Context(), d, "org-1")
	want := fleet.Settings{
		Name: "Acme Mobility", TimeZone: "UTC", DefaultLanguage: "en", LowBatteryPercent: 15, BatteryReadyPercent: 30, MaxRideMinutes: 1440,
		CancelGraceSeconds: 60, CancelGraceMeters: 50, ContactLostMinutes: 30, MissingAfterHours: 72,
		TrackRetentionDays: 90, OfflineRideHours: 24, AlertRetentionDays: 730, UpdatedAt: settings.UpdatedAt,
	}
	if err != nil || revision != 1 || settings != want || time.Since(settings.UpdatedAt.Std()) > time.Minute {
		t.Errorf("got %+v, %d, %v; want %+v", settings, revision, err, want)
	}
	if settings, _, err := nodes[1].Settings(t.Context(), d, "org-2"); err != nil || settings.Name != "org-2" {
		t.Errorf("without a name that can be shown: got %q, %v; want the id", settings.Name, err)
	}
	_, _, err = nodes[1].Settings(t.Context(), d, "org-3")
	wantFaults(t, "no fleet", err, "not found")
}

func TestSettingsFaults(t *testing.T) {
	s := newSite(t)
	number := optional.Of[int64]
	for _, tt := range []struct {
		name   string
		change fleet.SettingsChange
		want   string
	}{
		{"nothing", fleet.SettingsChange{}, "none"},
		{"low", fleet.SettingsChange{
			Name: optional.Of(""), TimeZone: optional.Of(""), DefaultLanguage: optional.Of(""), LowBatteryPercent: number(-1), BatteryReadyPercent: number(-1), MaxRideMinutes: number(0),
			CancelGraceSeconds: number(-1), CancelGraceMeters: number(-1), ContactLostMinutes: number(0), MissingAfterHours: number(0),
			TrackRetentionDays: number(0), OfflineRideHours: number(-1), AlertRetentionDays: number(0),
		}, "alert_retention_days too_small, battery_ready_percent too_small, cancel_grace_meters too_small, cancel_grace_seconds too_small, contact_lost_minutes too_small, default_language invalid_format, " +
			"low_battery_percent too_small, max_ride_minutes too_small, missing_after_hours too_small, name required, offline_ride_hours too_small, timezone required, track_retention_days too_small"},
		{"high", fleet.SettingsChange{
			Name: optional.Of(long(257)), TimeZone: optional.Of("Europe/Bonn"), DefaultLanguage: optional.Of("english"), LowBatteryPercent: number(101), BatteryReadyPercent: number(101),
			MaxRideMinutes: number(1 << 62), CancelGraceSeconds: number(1 << 62), CancelGraceMeters: number(1 << 62), ContactLostMinutes: number(1 << 62), MissingAfterHours: number(1 << 62),
			TrackRetentionDays: number(1 << 62), OfflineRideHours: number(1 << 62), AlertRetentionDays: number(1 << 62),
		}, "alert_retention_days too_large, battery_ready_percent too_large, cancel_grace_meters too_large, cancel_grace_seconds too_large, contact_lost_minutes too_large, default_language invalid_format, " +
			"low_battery_percent too_large, max_ride_minutes too_large, missing_after_hours too_large, name too_long, offline_ride_hours too_large, timezone invalid_value, track_retention_days too_large"},
		{"ready before low", fleet.SettingsChange{LowBatteryPercent: number(31)}, "battery_ready_percent too_small"},
		{"ready at low", fleet.SettingsChange{LowBatteryPercent: number(30)}, "none"},
		{"missing before out of contact", fleet.SettingsChange{ContactLostMinutes: number(61), MissingAfterHours: number(1)}, "missing_after_hours too_small"},
		{"language in usual form", fleet.SettingsChange{DefaultLanguage: optional.Of("PT-br"), Name: optional.Of("New")}, "none"},
	} {
		wantFaults(t, tt.name, s.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, _, err := s.UpdateSettingsTx(ctx, tx, s.org, tt.change)
			return err
		}), tt.want)
	}
	got, revision, err := s.Settings(t.Context(), s.db, s.org)
	if err != nil || revision != 3 || got.DefaultLanguage != "pt-BR" || got.LowBatteryPercent != 30 || got.Name != "New" {
		t.Errorf("got revision %d of %+v, %v; want 3", revision, got, err)
	}
}

// TestSettingsMoveTimers: due times follow the settings, but not into the past;
// times already due remain.
func TestSettingsMoveTimers(t *testing.T) {
	s := newSite(t)
	minute := time.Minute.Microseconds()
	now := time.Now().UnixMicro()
	s.write(t, func(ctx context.Context, tx *db.Tx) error {
		for id, row := range map[string]struct {
			status       string
			started, due any
		}{
			"active":   {"active", now - 30*minute, now + 1410*minute},
			"paused":   {"paused", now - 90*minute, now + 1350*minute},
			"due":      {"active", now - 1441*minute, now - minute},
			"reserved": {"reserved", nil, now + 5*minute},
			"over":     {"completed", now - 90*minute, nil},
		} {
			_, err := tx.Exec(ctx, `INSERT INTO rides (organization_id, id, subaccount_id, revision, status, trip_type, vehicle_id, vehicle_type_id, payment_status, started_at, due_at, updated_at, doc)
				VALUES ($1, $2, 's', 1, $3, 'rider', $2, 't', 'not_due', $4, $5, 0, '{}')`, s.org, id, row.status, row.started, row.due)
			if err != nil {
				return err
			}
		}
		for id, row := range map[string]struct {
			state         string
			reported, due any
		}{
			"heard":   {"available", now - 10*minute, now + 20*minute},
			"silent":  {"non_contactable", now - 600*minute, now + 3720*minute},
			"unheard": {"available", nil, nil},
			"gone":    {"removed", now - 10*minute, nil},
		} {
			_, err := tx.Exec(ctx, `INSERT INTO vehicles (organization_id, id, subaccount_id, revision, code, vehicle_type_id, form_factor, state, last_reported_at, due_at, updated_at, doc)
				VALUES ($1, $2, 's', 1, $2, 't', 'car', $3, $4, $5, 0, '{}')`, s.org, id, row.state, row.reported, row.due)
			if err != nil {
				return err
			}
		}
		return nil
	})
	var before int64
	s.write(t, func(ctx context.Context, tx *db.Tx) error {
		before = tx.Now.UnixMicro()
		number := optional.Of[int64]
		_, _, err := s.UpdateSettingsTx(ctx, tx, s.org, fleet.SettingsChange{MaxRideMinutes: number(60), ContactLostMinutes: number(15), MissingAfterHours: number(48)})
		return err
	})
	for _, tt := range []struct {
		table, id string
		want      int64 // 0: none
	}{
		{"rides", "active", now + 30*minute},
		{"rides", "paused", before}, // 90 minutes are over: due now
		{"rides", "due", now - minute},
		{"rides", "reserved", now + 5*minute},
		{"rides", "over", 0},
		{"vehicles", "heard", now + 5*minute},
		{"vehicles", "silent", now + (48*60-600)*minute},
		{"vehicles", "unheard", 0},
		{"vehicles", "gone", 0},
	} {
		var got int64
		if err := s.db.QueryRow(t.Context(), "SELECT coalesce(due_at, 0) FROM "+tt.table+" WHERE id = $1", tt.id).Scan(&got); err != nil || got != tt.want {
			t.Errorf("%s %s: due %v before now, %v; want %v", tt.table, tt.id, time.Duration(now-got)*time.Microsecond, err, time.Duration(now-tt.want)*time.Microsecond)
		}
	}
}

// TestZonesElsewhere: a service sees committed changes of zones by another at once,
// and never rolled-back ones.
func TestZonesElsewhere(t *testing.T) {
	s := newSite(t)
	elsewhere := fleet.Open(fleet.Config{DB: s.db, Live: true})
	look := func(name, want string) {
		t.Helper()
		for where, node := range map[string]*fleet.Service{"here": s.Service, "elsewhere": elsewhere} {
			rule, zone, err := node.RuleAt(t.Context(), s.db, s.org, s.sub.ID, 13.5, 52.5, s.scooter)
			if err != nil || zone != want || rule.EndAllowed != (zone == "") {
				t.Errorf("%s, %s: got %+v of %q, %v; want %q", name, where, rule, zone, err, want)
			}
		}
	}
	look("at first", "")
	var z fleet.Zone
	n := newZone(t, s.sub.ID)
	n.Type = fleet.NoParking
	failed := errors.New("for some reason")
	err := s.try(t, func(ctx context.Context, tx *db.Tx) error {
		made, err := s.CreateZoneTx(ctx, tx, s.org, n)
		if err != nil {
			return err
		}
		if _, zone, err := s.RuleAt(ctx, tx, s.org, s.sub.ID, 13.5, 52.5, s.scooter); err != nil || zone != made.ID {
			t.Errorf("in its own transaction: got %q, %v; want %q", zone, err, made.ID)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	look("rolled back", "")
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		z, err = s.CreateZoneTx(ctx, tx, s.org, n)
		return err
	})
	look("made", z.ID)
	move := func(geometry geo.Area) func(ctx context.Context, tx *db.Tx) error {
		return func(ctx context.Context, tx *db.Tx) error {
			locked, err := s.LockZoneTx(ctx, tx, s.org, z.ID)
			if err != nil {
				return err
			}
			_, err = s.UpdateZoneTx(ctx, tx, s.org, locked, fleet.ZoneChange{Geometry: optional.Of(geometry)})
			return err
		}
	}
	s.write(t, move(box(t, "1", "1", "2", "2")))
	look("moved away", "")
	s.write(t, move(box(t, "1", "1", "60", "60")))
	look("moved back", z.ID)
	s.write(t, func(ctx context.Context, tx *db.Tx) error { return s.DeleteZoneTx(ctx, tx, s.org, z.ID) })
	look("deleted", "")
}

// TestDecideAmongMany compares with an evaluation of each zone on its own.
func TestDecideAmongMany(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []fleet.ZoneType{fleet.ServiceArea, fleet.Parking, fleet.NoParking, fleet.Slow, fleet.NoRide}
	priorities := map[fleet.ZoneType]int64{fleet.NoRide: 10, fleet.NoParking: 20, fleet.Slow: 30, fleet.Parking: 40, fleet.ServiceArea: 100}
	var list []fleet.Fence
	for i := range 300 {
		west, south := random.IntN(20), random.IntN(20)
		list = append(list, fleet.Fence{
			ID: "zone_" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Kind: kinds[random.IntN(len(kinds))],
			Area: box(t, strconv.Itoa(west), strconv.Itoa(south), strconv.Itoa(west+1+random.IntN(5)), strconv.Itoa(south+1+random.IntN(5))),
		})
	}
	for x := range 52 {
		for y := range 52 {
			lng, lat := float64(x)/2, float64(y)/2
			var in []fleet.Fence
			for _, f := range list {
				if f.Area.Contains(lng, lat) {
					in = append(in, f)
				}
			}
			var want fleet.Rule
			var wantZone string
			var best int64
			for _, f := range in {
				// Of the zones evaluated one by one, the least priority and id
				// applies.
				rule, id := fleet.Decide([]fleet.Fence{f}, nil, lng, lat, "vt", moment)
				if p := priorities[f.Kind]; wantZone == "" || p < best || p == best && id < wantZone {
					want, wantZone, best = rule, id, p
				}
			}
			if wantZone == "" {
				want = fleet.Rule{ThroughAllowed: true}
			}
			if got, zone := fleet.Decide(list, nil, lng, lat, "vt", moment); zone != wantZone || !reflect.DeepEqual(got, want) {
				t.Fatalf("at %v, %v: got %+v of %q, want %+v of %q", lng, lat, got, zone, want, wantZone)
			}
		}
	}
}

// BenchmarkRuleAt evaluates a point among 10,000 zones.
func BenchmarkRuleAt(b *testing.B) {
	s := newSite(b)
	s.write(b, func(ctx context.Context, tx *db.Tx) error {
		n := newZone(b, s.sub.ID)
		for i := range 10_000 {
			n.Geometry = box(b, strconv.Itoa(i%100), strconv.Itoa(i/100-50), strconv.Itoa(i%100+1), strconv.Itoa(i/100-49))
			if _, err := s.CreateZoneTx(ctx, tx, s.org, n); err != nil {
				return err
			}
		}
		return nil
	})
	for b.Loop() {
		if _, zone, err := s.RuleAt(b.Context(), s.db, s.org, s.sub.ID, 13.5, 20.5, s.scooter); err != nil || zone == "" {
			b.Fatal(zone, err)
		}
	}
}

// BenchmarkZoneChanged evaluates a point among 10,000 zones after a change of one.
func BenchmarkZoneChanged(b *testing.B) {
	s := newSite(b)
	var last fleet.Zone
	s.write(b, func(ctx context.Context, tx *db.Tx) (err error) {
		n := newZone(b, s.sub.ID)
		for i := range 10_000 {
			n.Geometry = box(b, strconv.Itoa(i%100), strconv.Itoa(i/100-50), strconv.Itoa(i%100+1), strconv.Itoa(i/100-49))
			if last, err = s.CreateZoneTx(ctx, tx, s.org, n); err != nil {
				return err
			}
		}
		return nil
	})
	i := 0
	for b.Loop() {
		i++
		s.write(b, func(ctx context.Context, tx *db.Tx) (err error) {
			last, err = s.UpdateZoneTx(ctx, tx, s.org, last, fleet.ZoneChange{Name: optional.Of(strconv.Itoa(i))})
			return err
		})
		if _, zone, err := s.RuleAt(b.Context(), s.db, s.org, s.sub.ID, 13.5, 20.5, s.scooter); err != nil || zone == "" {
			b.Fatal(zone, err)
		}
	}
}
