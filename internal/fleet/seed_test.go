package fleet_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

var acme = fleet.Organization{ID: "org-1", Name: "Acme Mobility"}

// whole is a decoded fleet.
type whole struct {
	subs      []fleet.Subaccount
	plans     map[string]fleet.Plan
	customers map[string]fleet.Customer
	vehicles  map[string]fleet.Vehicle
	zones     []fleet.Zone
	rides     []fleet.Ride // by start
	changes   map[string][]fleet.StateChange
	docs      map[string]string // by id, as stored
}

func readWhole(t *testing.T, d *db.DB, org string) *whole {
	t.Helper()
	w := &whole{
		plans: map[string]fleet.Plan{}, customers: map[string]fleet.Customer{}, vehicles: map[string]fleet.Vehicle{},
		changes: map[string][]fleet.StateChange{}, docs: map[string]string{},
	}
	read := func(table string, decode func(doc []byte) error) {
		docs, err := db.All(t.Context(), d, func(row db.Row) (text [2]string, err error) {
			err = row.Scan(&text[0], &text[1])
			return text, err
		}, "SELECT id, doc FROM "+table+" WHERE organization_id = $1 ORDER BY id", org)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range docs {
			w.docs[doc[0]] = doc[1]
			if err := decode([]byte(doc[1])); err != nil {
				t.Fatalf("%s: %v", doc[1], err)
			}
		}
	}
	read("subaccounts", into(func(s fleet.Subaccount) { w.subs = append(w.subs, s) }))
	read("plans", into(func(p fleet.Plan) { w.plans[p.ID] = p }))
	read("customers", into(func(c fleet.Customer) { w.customers[c.ID] = c }))
	read("vehicles", into(func(v fleet.Vehicle) { w.vehicles[v.ID] = v }))
	read("zones", into(func(z fleet.Zone) { w.zones = append(w.zones, z) }))
	read("rides", into(func(r fleet.Ride) { w.rides = append(w.rides, r) }))
	read("vehicle_events", into(func(c fleet.StateChange) { w.changes[c.VehicleID] = append(w.changes[c.VehicleID], c) }))
	slices.SortFunc(w.rides, func(a, b fleet.Ride) int { return begin(&a).Compare(begin(&b)) })
	return w
}

func into[T any](keep func(T)) func([]byte) error {
	return func(doc []byte) error {
		var v T
		err := json.Unmarshal(doc, &v)
		keep(v)
		return err
	}
}

// begin is the time from which a ride occupies its vehicle.
func begin(r *fleet.Ride) time.Time {
	if at := r.ReservedAt.Std(); !at.IsZero() {
		return at
	}
	return r.StartedAt.Std()
}

func (w *whole) typeOf(t *testing.T, v fleet.Vehicle) fleet.VehicleType {
	for _, s := range w.subs {
		for _, kind := range s.VehicleTypes {
			if kind.ID == v.VehicleTypeID && s.ID == v.SubaccountID {
				return kind
			}
		}
	}
	t.Fatalf("vehicle %s has type %s, which its subaccount has not", v.Code, v.VehicleTypeID)
	return fleet.VehicleType{}
}

// ruleAt evaluates the zones of a vehicle's subaccount.
func (w *whole) ruleAt(v fleet.Vehicle, p *geo.Position) (fleet.Rule, string) {
	var list []fleet.Fence
	for _, z := range w.zones {
		if z.SubaccountID == v.SubaccountID {
			list = append(list, fleet.Fence{ID: z.ID, Kind: z.Type, Area: z.Geometry, Rules: z.Rules, Priority: z.Priority})
		}
	}
	return fleet.Decide(list, nil, p.Lng, p.Lat, v.VehicleTypeID, time.Time{})
}

// checkWhole checks that a fleet satisfies the rules.
func checkWhole(t *testing.T, w *whole, now time.Time, history bool) {
	t.Helper()
	type standing struct {
		free     time.Time
		location *geo.Position
		rides    int64
		last     time.Time
		open     string
		status   fleet.RideStatus
	}
	vehicles, customers := map[string]*standing{}, map[string]*standing{}
	of := func(m map[string]*standing, id string) *standing {
		if m[id] == nil {
			m[id] = new(standing)
		}
		return m[id]
	}
	for i := range w.rides {
		r := &w.rides[i]
		wrong := func(format string, args ...any) {
			t.Helper()
			t.Errorf("ride %s (%s, %s): %s", r.ID, r.Status, r.TripType, fmt.Sprintf(format, args...))
		}
		vehicle, ok := w.vehicles[r.VehicleID]
		if !ok {
			t.Fatalf("ride %s has no vehicle", r.ID)
		}
		kind := w.typeOf(t, vehicle)
		v := of(vehicles, r.VehicleID)
		ends := r.EndedAt.Std()
		if begin(r).Before(v.free) {
			wrong("begins at %v, and its vehicle is free from %v", begin(r), v.free)
		}
		if !begin(r).Equal(r.CreatedAt.Std()) {
			wrong("was created at %v and began at %v", r.CreatedAt.Std(), begin(r))
		}
		if r.Status.Open() != ends.IsZero() || r.Status.Open() != (r.Price == nil) || ends.After(now) || r.UpdatedAt.Std().After(now) || begin(r).After(now) {
			wrong("ended at %v with %v, changed at %v", ends, r.Price, r.UpdatedAt.Std())
		}
		if r.Status.Open() {
			v.open, v.status, ends = r.ID, r.Status, now.Add(time.Hour)
		}
		if r.UpdatedAt.Std().Before(begin(r)) {
			wrong("was changed before it began")
		}
		v.free = ends
		var plan *fleet.Plan
		if r.TripType == fleet.RiderTrip {
			p, ok := w.plans[string(r.PricingPlanID)]
			if !ok || p.SubaccountID != r.SubaccountID || r.PricingPlanVersion == nil || *r.PricingPlanVersion != p.Version {
				t.Fatalf("ride %s has plan %q", r.ID, r.PricingPlanID)
			}
			plan = &p
			c := of(customers, string(r.CustomerID))
			customer, ok := w.customers[string(r.CustomerID)]
			if !ok || customer.SubaccountID != r.SubaccountID {
				t.Fatalf("ride %s has customer %q", r.ID, r.CustomerID)
			}
			if begin(r).Before(c.free) {
				wrong("begins at %v, and its customer is free from %v", begin(r), c.free)
			}
			c.free = ends
			if r.Status.Open() {
				c.open = r.ID
			}
			if r.Status == fleet.Completed {
				c.rides++
			}
			if at := r.StartedAt.Std(); at.After(c.last) {
				c.last = at
			}
			if kind.LicenseRequired && customer.LicenseStatus != "verified" && customer.Status != fleet.CustomerAnonymised {
				wrong("is of a customer without a licence")
			}
			if r.Status.Open() && customer.Status != fleet.CustomerActive {
				wrong("is of a customer who is %s", customer.Status)
			}
		} else if r.CustomerID != "" || r.PricingPlanID != "" || r.Price.TotalAmount != 0 {
			wrong("has a customer, a plan or a price")
		}
		if r.StartedAt.Std().IsZero() {
			if r.StartZoneID != "" || r.DurationSeconds != 0 || r.DistanceMeters != nil {
				wrong("was never started and went somewhere")
			}
		} else {
			rule, zone := w.ruleAt(vehicle, r.StartLocation)
			if !rule.StartAllowed || zone != string(r.StartZoneID) {
				wrong("began in zone %q, where %q decides: %+v", r.StartZoneID, zone, rule)
			}
			if v.location != nil && *v.location != *r.StartLocation {
				wrong("began at %v; the vehicle was at %v", *r.StartLocation, *v.location)
			}
			v.location = r.StartLocation
		}
		if r.EndLocation != nil {
			rule, zone := w.ruleAt(vehicle, r.EndLocation)
			if zone != string(r.EndZoneID) || rule.EndAllowed == (r.Price.OutOfZoneAmount > 0) {
				wrong("ended in zone %q, where %q decides: %+v; out of zone for %d", r.EndZoneID, zone, rule, r.Price.OutOfZoneAmount)
			}
			v.location = r.EndLocation
		}
		if !r.ReservedAt.Std().IsZero() {
			over := r.StartedAt.Std()
			if over.IsZero() {
				over = cmp.Or(r.EndedAt.Std(), now)
			}
			if expires := r.ReservedAt.Std().Add(time.Duration(kind.ReservationMinutes) * time.Minute); !r.ReservationExpiresAt.Std().Equal(expires) || over.After(expires) || kind.ReservationMinutes == 0 {
				wrong("was reserved until %v, lasted to %v", r.ReservationExpiresAt.Std(), over)
			}
		}
		if plan == nil || r.Price == nil {
			continue
		}
		u := tariff.Usage{ReservationMinutes: kind.ReservationMinutes}
		if !r.ReservedAt.Std().IsZero() {
			over := r.StartedAt.Std()
			if over.IsZero() {
				over = r.EndedAt.Std()
			}
			u.Reserved, u.ReservedSeconds = true, int64(over.Sub(r.ReservedAt.Std())/time.Second)
		}
		if r.Status == fleet.Completed {
			u.Ridden, u.Seconds, u.PausedSeconds, u.Meters = true, int64(r.EndedAt.Std().Sub(r.StartedAt.Std())/time.Second), r.PausedSeconds, *r.DistanceMeters
			u.OutOfZone = r.Price.OutOfZoneAmount > 0
			if u.Seconds != r.DurationSeconds || u.PausedSeconds > u.Seconds {
				wrong("lasted %d seconds, says %d, %d of them paused", u.Seconds, r.DurationSeconds, u.PausedSeconds)
			}
			// No ride is faster than 60 km/h.
			if float64(u.Meters) > float64(u.Seconds-u.PausedSeconds)*60/3.6 || u.Meters < 1 {
				wrong("went %d meters in %d seconds", u.Meters, u.Seconds)
			}
		}
		if want := plan.Price(u).Adjusted(r.AdjustmentAmount); *r.Price != want {
			wrong("costs\n     %+v, want\n     %+v", *r.Price, want)
		}
		unpaid := plan.Price(u).TotalAmount == 0
		if unpaid != (r.PaymentStatus == "not_due") || (r.AdjustmentAmount != 0) != (r.AdjustmentReason != "") || r.PaymentStatus == "refunded" && r.Price.TotalAmount != 0 {
			wrong("%s with %+v, %s", r.PaymentStatus, *r.Price, r.AdjustmentReason)
		}
	}
	for id, c := range w.customers {
		had := of(customers, id)
		if c.RideCount != had.rides || !c.LastRideAt.Std().Equal(had.last) || string(c.OpenRideID) != had.open {
			t.Errorf("customer %s: %d rides, the last at %v, now %q; the rides say %d, %v, %q",
				id, c.RideCount, c.LastRideAt.Std(), c.OpenRideID, had.rides, had.last, had.open)
		}
	}
	for id, v := range w.vehicles {
		had := of(vehicles, id)
		want := map[fleet.RideStatus]fleet.VehicleState{fleet.Reserved: fleet.VehicleReserved, fleet.Active: fleet.OnTrip, fleet.Paused: fleet.OnTrip}[had.status]
		if string(v.CurrentRideID) != had.open || want != "" && v.State != want || want == "" && (v.State == fleet.VehicleReserved || v.State == fleet.OnTrip) {
			t.Errorf("vehicle %s is %s with ride %q, its ride is %s %q", v.Code, v.State, v.CurrentRideID, had.status, had.open)
		}
		if had.location != nil && *v.Location != *had.location {
			t.Errorf("vehicle %s is at %v, its last ride left it at %v", v.Code, *v.Location, *had.location)
		}
		if v.BatteryPercent != nil && (*v.BatteryPercent < 15) != (v.LastEvent == "battery_low") {
			t.Errorf("vehicle %s is at %d percent after %s", v.Code, *v.BatteryPercent, v.LastEvent)
		}
		changes := w.changes[id]
		if !history {
			continue
		}
		last := changes[len(changes)-1]
		if last.State != v.State || last.Event != v.LastEvent || !last.At.Std().Equal(v.StateChangedAt.Std()) {
			t.Errorf("vehicle %s is %s after %s at %v, its last change says %+v", v.Code, v.State, v.LastEvent, v.StateChangedAt.Std(), last)
		}
		for i := range changes[1:] {
			if changes[i].At.Std().After(changes[i+1].At.Std()) || changes[i].State == changes[i+1].State {
				t.Errorf("vehicle %s: %+v comes before %+v", v.Code, changes[i], changes[i+1])
			}
		}
	}
}

func newSandbox(t testing.TB) (*fleet.Service, *db.DB) {
	t.Helper()
	d := dbtest.NewFleet(t)
	s := fleet.Open(fleet.Config{DB: d})
	if err := s.Provision(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	return s, d
}

// TestSandbox checks the contents of a new sandbox (fleet-api.md 6.10).
func TestSandbox(t *testing.T) {
	_, d := newSandbox(t)
	now := time.Now()
	w := readWhole(t, d, acme.ID)
	checkWhole(t, w, now, true)

	if got := [...]int{len(w.subs), len(w.vehicles), len(w.customers), len(w.zones), len(w.plans), len(w.rides)}; got != [...]int{2, 40, 30, 8, 3, 500} {
		t.Errorf("got %v subaccounts, vehicles, customers, zones, plans, rides", got)
	}
	counts := map[string]int{}
	for _, s := range w.subs {
		counts["in "+s.TimeZone+" "+s.Currency]++
		if !s.GBFS.Enabled {
			t.Errorf("%s has no public feed", s.Name)
		}
	}
	for _, v := range w.vehicles {
		counts[string(v.State)]++
	}
	for _, z := range w.zones {
		counts["zone "+string(z.Type)]++
	}
	for _, r := range w.rides {
		counts["ride "+string(r.Status)]++
		if at := begin(&r); at.Before(now.AddDate(0, 0, -91)) {
			t.Errorf("a ride began at %v", at)
		}
	}
	for _, c := range w.customers {
		counts["customer "+string(c.Status)]++
	}
	delete(counts, "ride completed") // the number of completed rides
	delete(counts, "ride cancelled") // is random
	want := map[string]int{
		"in Europe/Berlin EUR": 1, "in Asia/Tokyo JPY": 1,
		"available": 23, "reserved": 2, "on_trip": 4, "non_operational": 5, "non_contactable": 2, "missing": 2, "removed": 2,
		"zone service_area": 2, "zone no_ride": 1, "zone no_parking": 2, "zone slow": 1, "zone parking": 1, "zone custom": 1,
		"ride reserved": 2, "ride active": 3, "ride paused": 1,
		"customer active": 27, "customer blocked": 2, "customer anonymised": 1,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("got %v\nwant %v", counts, want)
	}
	var due int
	err := d.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM rides WHERE due_at <= $1) + (SELECT count(*) FROM vehicles WHERE due_at <= $1)", now.UnixMicro()).Scan(&due)
	if err != nil || due != 0 {
		t.Errorf("%d things are due already, %v", due, err)
	}
}

// TestSeedIsValid updates a record of each kind, which validates all of it.
func TestSeedIsValid(t *testing.T) {
	s, d := newSandbox(t)
	w := readWhole(t, d, acme.ID)
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		ctx := t.Context()
		for id := range w.customers {
			c, err := s.LockCustomerTx(ctx, tx, acme.ID, id)
			if err != nil {
				return err
			}
			if c.Status != fleet.CustomerAnonymised {
				if _, err := s.UpdateCustomerTx(ctx, tx, acme.ID, c, fleet.CustomerChange{MarketingConsent: optional.Of(!c.MarketingConsent)}); err != nil {
					return fmt.Errorf("%s: %s", w.docs[id], faults(err))
				}
			}
		}
		for id := range w.vehicles {
			v, err := s.LockVehicleTx(ctx, tx, acme.ID, id)
			if err != nil {
				return err
			}
			if _, err := s.UpdateVehicleTx(ctx, tx, acme.ID, v, fleet.VehicleChange{VIN: optional.Of(fleet.NullString("X"))}, fleet.Actor{Type: "user"}); err != nil {
				return fmt.Errorf("%s: %s", w.docs[id], faults(err))
			}
		}
		for _, z := range w.zones {
			z, err := s.LockZoneTx(ctx, tx, acme.ID, z.ID)
			if err != nil {
				return err
			}
			if _, err := s.UpdateZoneTx(ctx, tx, acme.ID, z, fleet.ZoneChange{Description: optional.Of(fleet.NullString("X"))}); err != nil {
				return fmt.Errorf("%s: %s", w.docs[z.ID], faults(err))
			}
		}
		for id := range w.plans {
			p, err := s.LockPlanTx(ctx, tx, acme.ID, id)
			if err != nil {
				return err
			}
			if _, err := s.UpdatePlanTx(ctx, tx, acme.ID, p, fleet.PlanChange{UnlockAmount: optional.Of(int64(7))}); err != nil {
				return fmt.Errorf("%s: %s", w.docs[id], faults(err))
			}
		}
		for _, sub := range w.subs {
			sub, err := s.LockSubaccountTx(ctx, tx, acme.ID, sub.ID)
			if err != nil {
				return err
			}
			if _, err := s.UpdateSubaccountTx(ctx, tx, acme.ID, sub, fleet.SubaccountChange{Name: optional.Of("X")}); err != nil {
				return fmt.Errorf("%s: %s", w.docs[sub.ID], faults(err))
			}
		}
		for _, r := range w.rides {
			change := fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of(fleet.NullString("operator"))}
			if r.Status == fleet.Reserved {
				change = fleet.RideChange{Status: optional.Of(fleet.Cancelled)}
			}
			switch {
			case !r.Status.Open() && r.TripType == fleet.RiderTrip:
				change = fleet.RideChange{AdjustmentAmount: optional.Of(int64(-1)), AdjustmentReason: optional.Of(fleet.NullString("X"))}
			case !r.Status.Open():
				change = fleet.RideChange{ExternalID: optional.Of(fleet.NullString(r.ID))}
			}
			r, err := s.LockRideTx(ctx, tx, acme.ID, r.ID)
			if err != nil {
				return err
			}
			if _, err := s.UpdateRideTx(ctx, tx, acme.ID, r, change, fleet.Actor{Type: "user"}); err != nil {
				return fmt.Errorf("%s: %s", w.docs[r.ID], faults(err))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReset: a reset restores all records with their ids, except open rides, which
// are new.
func TestReset(t *testing.T) {
	seeded := time.Now().UTC().Truncate(24 * time.Hour)
	s, d := newSandbox(t)
	before := readWhole(t, d, acme.ID)
	other := fleet.Organization{ID: "org-2", Name: "Acme Mobility"}
	if err := s.Provision(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	others := readWhole(t, d, other.ID)
	for id := range others.docs {
		if _, ok := before.docs[id]; ok {
			t.Fatalf("%s is the id of records of two organizations", id)
		}
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		ctx := t.Context()
		now, err := s.Now(ctx, tx, acme.ID)
		if err != nil {
			return err
		}
		if err := s.AdvanceClockTx(ctx, tx, acme.ID, now.AddDate(0, 1, 0)); err != nil {
			return err
		}
		if _, _, err := s.UpdateSettingsTx(ctx, tx, acme.ID, fleet.SettingsChange{LowBatteryPercent: optional.Of(int64(20))}); err != nil {
			return err
		}
		for id, v := range before.vehicles {
			if v.State == fleet.Available {
				return s.DeleteVehicleTx(ctx, tx, acme.ID, id, fleet.Actor{Type: "user"})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = d.Write(t.Context(), func(tx *db.Tx) error { return s.ResetTx(t.Context(), tx, acme) })
	if err != nil {
		t.Fatal(err)
	}
	after := readWhole(t, d, acme.ID)
	checkWhole(t, after, time.Now(), true)
	now, err := s.Now(t.Context(), d, acme.ID)
	if err != nil || now.After(time.Now()) {
		t.Errorf("it is %v, %v", now, err)
	}
	settings, revision, err := s.Settings(t.Context(), d, acme.ID)
	if err != nil || settings.LowBatteryPercent != 15 || revision != 3 {
		t.Errorf("settings are %+v in revision %d, %v", settings, revision, err)
	}
	for _, list := range []struct {
		kind          string
		before, after []string
	}{
		{"vehicles", ids(before.vehicles), ids(after.vehicles)},
		{"customers", ids(before.customers), ids(after.customers)},
		{"plans", ids(before.plans), ids(after.plans)},
	} {
		if !slices.Equal(list.before, list.after) {
			t.Errorf("%s were %v, are %v", list.kind, list.before, list.after)
		}
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for _, r := range before.rides { // those of another day are others
		if today.Equal(seeded) && !r.Status.Open() && begin(&r).Before(today) && after.docs[r.ID] != before.docs[r.ID] {
			t.Errorf("a ride was %s, is %s", before.docs[r.ID], after.docs[r.ID])
		}
	}
	if again := readWhole(t, d, other.ID); !maps.Equal(again.docs, others.docs) {
		t.Error("the reset of one sandbox changed another")
	}
}

func ids[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// TestSeedProduction: production can be seeded only while it is empty.
func TestSeedProduction(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := fleet.Open(fleet.Config{DB: d, Live: true})
	if err := s.Provision(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	if err := s.Seed(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	w := readWhole(t, d, acme.ID)
	checkWhole(t, w, time.Now(), true)
	if len(w.subs) != 2 || !w.subs[0].Live {
		t.Errorf("there are %d subaccounts, the first one live: %t", len(w.subs), w.subs[0].Live)
	}
	if err := s.Seed(t.Context(), acme); problem.Of(err) != problem.Precondition {
		t.Errorf("seeding twice: %v", err)
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error { return s.ResetTx(t.Context(), tx, acme) })
	if problem.Of(err) != problem.NotFound {
		t.Errorf("a reset of production: %v", err)
	}

	// A renamed subaccount must not be replaced.
	own := fleet.Organization{ID: "org-2", Name: "Own"}
	if err := s.Provision(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		list, err := s.SubaccountIDs(t.Context(), tx, own.ID)
		if err != nil {
			return err
		}
		sub, err := s.LockSubaccountTx(t.Context(), tx, own.ID, list[0])
		if err != nil {
			return err
		}
		_, err = s.UpdateSubaccountTx(t.Context(), tx, own.ID, sub, fleet.SubaccountChange{Name: optional.Of("Hamburg")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Seed(t.Context(), own); problem.Of(err) != problem.Precondition {
		t.Errorf("seeding over a subaccount that is in use: %v", err)
	}
}

// TestBulkLoad: a bulk-loaded fleet is consistent, and all indexes exist afterwards.
func TestBulkLoad(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := fleet.Open(fleet.Config{DB: d, Live: true})
	indexes := func() []string {
		if d.Postgres() {
			return nil
		}
		list, err := db.All(t.Context(), d, func(row db.Row) (s string, err error) { return s, row.Scan(&s) }, "SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY name")
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := indexes()
	if err := s.BulkLoad(t.Context(), acme, fleet.SeedSize{Vehicles: 200, Customers: 90, Rides: 2500, Days: 20}); err != nil {
		t.Fatal(err)
	}
	if after := indexes(); !slices.Equal(after, before) {
		t.Errorf("the indexes are %q, were %q", after, before)
	}
	w := readWhole(t, d, acme.ID)
	checkWhole(t, w, time.Now(), false)
	if len(w.vehicles) != 200 || len(w.customers) != 90 || len(w.rides) != 2500 {
		t.Errorf("got %d vehicles, %d customers, %d rides", len(w.vehicles), len(w.customers), len(w.rides))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.BulkLoad(ctx, fleet.Organization{ID: "org-2"}, fleet.SeedSize{Vehicles: 40, Customers: 30, Rides: 500, Days: 90}); err == nil {
		t.Error("filled although nobody waits for it")
	}
	if after := indexes(); !slices.Equal(after, before) {
		t.Errorf("after a failure the indexes are %q, were %q", after, before)
	}
}

func BenchmarkSeed(b *testing.B) {
	d := dbtest.NewFleetSQLite(b)
	s := fleet.Open(fleet.Config{DB: d})
	n := 0
	for b.Loop() {
		n++
		if err := s.Provision(b.Context(), fleet.Organization{ID: fmt.Sprint("org-", n), Name: "Acme"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBulkLoad(b *testing.B) {
	rides := 0
	for b.Loop() {
		d := dbtest.NewFleetSQLite(b)
		size := fleet.SeedSize{Vehicles: 10_000, Customers: 5_000, Rides: 200_000, Days: 30}
		if testing.Short() {
			size = fleet.SeedSize{Vehicles: 500, Customers: 250, Rides: 10_000, Days: 30}
		}
		if err := fleet.Open(fleet.Config{DB: d, Live: true}).BulkLoad(b.Context(), acme, size); err != nil {
			b.Fatal(err)
		}
		rides += size.Rides
	}
	b.ReportMetric(float64(rides)/b.Elapsed().Seconds(), "rides/s")
}

// TestFeedNameIsTaken: a reset succeeds after another organization took the id of a
// feed.
func TestFeedNameIsTaken(t *testing.T) {
	s, d := newSandbox(t)
	other := fleet.Organization{ID: "org-2", Name: "Acme Mobility"}
	if err := s.Provision(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	write := func(fn func(tx *db.Tx) error) {
		t.Helper()
		if err := d.Write(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	first := func(org string) (found fleet.Subaccount) {
		t.Helper()
		subs, err := s.Subaccounts(t.Context(), d, org)
		if err != nil || len(subs) != 2 {
			t.Fatalf("got %d subaccounts, %v, want 2", len(subs), err)
		}
		return subs[0]
	}
	mine := first(acme.ID)
	rename := func(org string, name fleet.NullString) {
		t.Helper()
		write(func(tx *db.Tx) error {
			sub, err := s.LockSubaccountTx(t.Context(), tx, org, first(org).ID)
			if err != nil {
				return err
			}
			feed := sub.GBFS
			feed.SystemID = name
			_, err = s.UpdateSubaccountTx(t.Context(), tx, org, sub, fleet.SubaccountChange{GBFS: optional.Of(feed)})
			return err
		})
	}
	rename(acme.ID, "elsewhere")
	rename(other.ID, mine.GBFS.SystemID)
	write(func(tx *db.Tx) error { return s.ResetTx(t.Context(), tx, acme) })
	if got := first(acme.ID); got.ID != mine.ID || got.GBFS.Enabled {
		t.Errorf("after the reset: got %s with a feed %t, want %s without", got.ID, got.GBFS.Enabled, mine.ID)
	}
	if system, err := s.System(t.Context(), "test_"+string(mine.GBFS.SystemID)); err != nil || system.OrganizationID != other.ID {
		t.Errorf("the feed is that of %s, %v, want %s", system.OrganizationID, err, other.ID)
	}
}
