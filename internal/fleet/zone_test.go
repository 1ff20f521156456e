package fleet_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

var moment = time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)

// box is a rectangle between two corners.
func box(t testing.TB, west, south, east, north string) geo.Area {
	t.Helper()
	var a geo.Area
	if err := json.Unmarshal([]byte(`{"type":"Polygon","coordinates":[[[`+west+`,`+south+`],[`+east+`,`+south+`],[`+east+`,`+north+`],[`+west+`,`+north+`],[`+west+`,`+south+`]]]}`), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestZoneDefaults checks start, end and through of the types in fleet-api.md 1.4.
func TestZoneDefaults(t *testing.T) {
	for kind, want := range map[fleet.ZoneType]fleet.Rule{
		fleet.NoRide:      {},
		fleet.NoParking:   {StartAllowed: true, ThroughAllowed: true},
		fleet.Slow:        {StartAllowed: true, EndAllowed: true, ThroughAllowed: true, MaximumSpeed: new(int64(10))},
		fleet.Parking:     {StartAllowed: true, EndAllowed: true, ThroughAllowed: true},
		fleet.ServiceArea: {StartAllowed: true, EndAllowed: true, ThroughAllowed: true},
	} {
		got, id := fleet.Decide([]fleet.Fence{{ID: "zone_1", Kind: kind, Area: box(t, "0", "0", "10", "10")}}, nil, 5, 5, "vt_1", moment)
		if id != "zone_1" || got.StartAllowed != want.StartAllowed || got.EndAllowed != want.EndAllowed || got.ThroughAllowed != want.ThroughAllowed ||
			(got.MaximumSpeed == nil) != (want.MaximumSpeed == nil) || got.MaximumSpeed != nil && *got.MaximumSpeed != *want.MaximumSpeed {
			t.Errorf("%s: got %+v of %q, want %+v", kind, got, id, want)
		}
	}
}

// TestZonePrecedence checks the precedence of zones in fleet-api.md 1.4.
func TestZonePrecedence(t *testing.T) {
	everywhere := box(t, "0", "0", "10", "10")
	west := box(t, "0", "0", "5", "10")
	all := fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}
	none := fleet.Rule{}
	type at struct {
		lng, lat float64
		kind     string
	}
	middle := at{2, 5, "vt_scooter"}
	for _, tt := range []struct {
		name   string
		zones  []fleet.Fence
		global []fleet.Rule
		at     at
		zone   string
		end    bool
	}{
		{"nothing: all is allowed", nil, nil, middle, "", true},
		{"nothing, and global rules", nil, []fleet.Rule{none}, middle, "", false},
		{"global rules for another type: all is allowed", nil, []fleet.Rule{{VehicleTypeIDs: []string{"vt_car"}}}, middle, "", true},
		{"the first global rule for the type", nil, []fleet.Rule{{VehicleTypeIDs: []string{"vt_car"}}, all, none}, middle, "", true},
		{"inside of the service area", []fleet.Fence{{ID: "a", Kind: fleet.ServiceArea, Area: west}}, nil, middle, "a", true},
		{"outside of the service area", []fleet.Fence{{ID: "a", Kind: fleet.ServiceArea, Area: west}}, nil, at{7, 5, "vt_scooter"}, "", false},
		{"outside of it, by global rules", []fleet.Fence{{ID: "a", Kind: fleet.ServiceArea, Area: west}}, []fleet.Rule{all}, at{7, 5, "vt_scooter"}, "", true},
		{"outside of one that is over", []fleet.Fence{{ID: "a", Kind: fleet.ServiceArea, Area: west, Ends: moment}}, nil, at{7, 5, "vt_scooter"}, "", true},
		{"outside of one that begins now", []fleet.Fence{{ID: "a", Kind: fleet.ServiceArea, Area: west, Starts: moment}}, nil, at{7, 5, "vt_scooter"}, "", false},
		{"on the edge", []fleet.Fence{{ID: "a", Kind: fleet.NoParking, Area: west}}, nil, at{5, 5, "vt_scooter"}, "a", false},
		{"smaller priority first", []fleet.Fence{{ID: "a", Kind: fleet.ServiceArea, Area: everywhere}, {ID: "b", Kind: fleet.NoParking, Area: west}}, nil, middle, "b", false},
		{"the priority may say otherwise", []fleet.Fence{
			{ID: "a", Kind: fleet.ServiceArea, Area: everywhere, Priority: 1}, {ID: "b", Kind: fleet.NoParking, Area: west},
		}, nil, middle, "a", true},
		{"of equals the smaller id", []fleet.Fence{{ID: "b", Kind: fleet.CustomZone, Area: west, Rules: []fleet.Rule{all}}, {ID: "a", Kind: fleet.CustomZone, Area: west, Rules: []fleet.Rule{none}}}, nil, middle, "a", false},
		{"rules for another type pass on", []fleet.Fence{
			{ID: "a", Kind: fleet.CustomZone, Area: west, Priority: 1, Rules: []fleet.Rule{{VehicleTypeIDs: []string{"vt_car"}}}},
			{ID: "b", Kind: fleet.Parking, Area: west},
		}, nil, middle, "b", true},
		{"the first rule for the type wins whole", []fleet.Fence{
			{ID: "a", Kind: fleet.CustomZone, Area: west, Rules: []fleet.Rule{{VehicleTypeIDs: []string{"vt_scooter"}, StartAllowed: true}, all}},
		}, nil, middle, "a", false},
	} {
		rule, zone := fleet.Decide(tt.zones, tt.global, tt.at.lng, tt.at.lat, tt.at.kind, moment)
		if zone != tt.zone || rule.EndAllowed != tt.end {
			t.Errorf("%s: got %+v of zone %q, want end %v of %q", tt.name, rule, zone, tt.end, tt.zone)
		}
	}
}

// TestRulesWith: what a draft would do at a place is what the zone does there once it is stored.
func TestRulesWith(t *testing.T) {
	s := newSite(t)
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []fleet.ZoneType{fleet.ServiceArea, fleet.Parking, fleet.NoParking, fleet.Slow, fleet.NoRide}
	draft := func() fleet.NewZone {
		west, south := random.IntN(8), random.IntN(8)
		n := fleet.NewZone{
			SubaccountID: s.sub.ID, Name: "Zone", Type: kinds[random.IntN(len(kinds))],
			Geometry: box(t, strconv.Itoa(west), strconv.Itoa(south), strconv.Itoa(west+1+random.IntN(3)), strconv.Itoa(south+1+random.IntN(3))),
		}
		if random.IntN(2) == 0 {
			n.Priority = new(int64(random.IntN(3) * 20))
		}
		return n
	}
	var stored []fleet.Zone
	for i := range 30 {
		n := draft()
		replaces := ""
		if i%3 == 2 {
			replaces = stored[random.IntN(len(stored))].ID
		}
		var places []geo.Position
		var want []fleet.Decision
		for range 12 {
			at := geo.Position{Lat: float64(random.IntN(22)) / 2, Lng: float64(random.IntN(22)) / 2}
			got, err := s.RulesWith(t.Context(), s.db, s.org, s.sub.ID, &n, replaces, at)
			if err != nil || len(got) != 1 || got[0].VehicleTypeID != s.scooter {
				t.Fatalf("got %+v, %v", got, err)
			}
			places, want = append(places, at), append(want, got[0])
		}
		id := replaces
		s.write(t, func(ctx context.Context, tx *db.Tx) error {
			if replaces == "" {
				z, err := s.CreateZoneTx(ctx, tx, s.org, n)
				id, stored = z.ID, append(stored, z)
				return err
			}
			z, err := s.LockZoneTx(ctx, tx, s.org, replaces)
			if err != nil {
				return err
			}
			c := fleet.ZoneChange{Type: optional.Of(n.Type), Geometry: optional.Of(n.Geometry), Rules: optional.Of(n.Rules), Priority: optional.Value[int64]{Set: true, Null: true}}
			if n.Priority != nil {
				c.Priority = optional.Of(*n.Priority)
			}
			_, err = s.UpdateZoneTx(ctx, tx, s.org, z, c)
			return err
		})
		for j, at := range places {
			rule, zoneID, err := s.RuleAt(t.Context(), s.db, s.org, s.sub.ID, at.Lng, at.Lat, s.scooter)
			if err != nil {
				t.Fatal(err)
			}
			w := want[j]
			if w.ZoneID == fleet.DraftID {
				w.ZoneID = id
			}
			if w.ZoneID != zoneID || !reflect.DeepEqual(w.Rule, rule) {
				t.Fatalf("step %d at %v: as a draft %+v, stored %+v of %q", i, at, w, rule, zoneID)
			}
		}
	}
	if _, err := s.RulesWith(t.Context(), s.db, "org-2", s.sub.ID, &fleet.NewZone{}, "", geo.Position{}); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization gets %v", err)
	}
}
