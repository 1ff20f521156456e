package fleet_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// TestRides is the table of rides in fleet-api.md 2, with the effects of every row.
func TestRides(t *testing.T) {
	for _, tt := range []struct {
		row    string
		first  fleet.RideStatus // status at creation
		then   []fleet.RideChange
		wait   time.Duration // before the last change
		passes bool          // the last change is time-based
		status fleet.RideStatus
		state  fleet.VehicleState
		events []string // since the vehicle was dropped off
		reason fleet.NullString
		total  int64
		count  int64 // of the customer's rides
	}{
		{row: "POST reserved", first: fleet.Reserved, status: fleet.Reserved, state: fleet.VehicleReserved,
			events: []string{"reservation_start reserved"}},
		{row: "POST active", first: fleet.Active, status: fleet.Active, state: fleet.OnTrip,
			events: []string{"trip_start on_trip"}},
		{row: "reserved, PUT active", first: fleet.Reserved, then: []fleet.RideChange{to(fleet.Active)}, status: fleet.Active, state: fleet.OnTrip,
			events: []string{"reservation_start reserved", "trip_start on_trip"}},
		{row: "reserved, PUT cancelled", first: fleet.Reserved, then: []fleet.RideChange{to(fleet.Cancelled)}, wait: 7 * time.Minute,
			status: fleet.Cancelled, state: fleet.Available, reason: "rider", total: 2 * 15,
			events: []string{"reservation_start reserved", "reservation_cancel available"}},
		{row: "reserved, PUT cancelled by the operator", first: fleet.Reserved, wait: 7 * time.Minute,
			then:   []fleet.RideChange{{Status: optional.Of(fleet.Cancelled), CancelReason: optional.Of(fleet.NullString("operator"))}},
			status: fleet.Cancelled, state: fleet.Available, reason: "operator",
			events: []string{"reservation_start reserved", "reservation_cancel available"}},
		{row: "reserved, expiry reached", first: fleet.Reserved, wait: 15 * time.Minute, passes: true,
			status: fleet.Cancelled, state: fleet.Available, reason: "reservation_expired", total: 10 * 15,
			events: []string{"reservation_start reserved", "reservation_cancel available"}},
		{row: "active, PUT paused", first: fleet.Active, then: []fleet.RideChange{to(fleet.Paused)}, status: fleet.Paused, state: fleet.OnTrip,
			events: []string{"trip_start on_trip"}},
		{row: "paused, PUT active", first: fleet.Active, then: []fleet.RideChange{to(fleet.Paused), to(fleet.Active)}, wait: 2 * time.Minute,
			status: fleet.Active, state: fleet.OnTrip, events: []string{"trip_start on_trip"}},
		{row: "active, PUT completed", first: fleet.Active, then: []fleet.RideChange{to(fleet.Completed)}, wait: 10 * time.Minute,
			status: fleet.Completed, state: fleet.Available, reason: "rider", total: 100 + 10*25, count: 1,
			events: []string{"trip_start on_trip", "trip_end available"}},
		{row: "paused, PUT completed", first: fleet.Active, then: []fleet.RideChange{to(fleet.Paused), to(fleet.Completed)}, wait: 4 * time.Minute,
			status: fleet.Completed, state: fleet.Available, reason: "rider", total: 100 + 4*25, count: 1,
			events: []string{"trip_start on_trip", "trip_end available"}},
		{row: "active, PUT cancelled", first: fleet.Active, then: []fleet.RideChange{to(fleet.Cancelled)}, wait: 59 * time.Second,
			status: fleet.Cancelled, state: fleet.Available, reason: "rider",
			events: []string{"trip_start on_trip", "trip_cancel available"}},
		{row: "active, PUT cancelled by the operator, late", first: fleet.Active, wait: time.Hour,
			then:   []fleet.RideChange{{Status: optional.Of(fleet.Cancelled), CancelReason: optional.Of(fleet.NullString("operator"))}},
			status: fleet.Cancelled, state: fleet.NonContactable, reason: "operator",
			events: []string{"trip_start on_trip", "comms_lost non_contactable"}},
		{row: "active, max_ride_minutes since start", first: fleet.Active, wait: 20 * time.Minute, passes: true,
			status: fleet.Completed, state: fleet.Available, reason: "max_duration", total: 100 + 20*25, count: 1,
			events: []string{"trip_start on_trip", "trip_end available"}},
		{row: "paused, max_ride_minutes since start", first: fleet.Active, then: []fleet.RideChange{to(fleet.Paused)}, wait: 20 * time.Minute, passes: true,
			status: fleet.Completed, state: fleet.Available, reason: "max_duration", total: 100 + 20*25, count: 1,
			events: []string{"trip_start on_trip", "trip_end available"}},
		{row: "the same status", first: fleet.Active, then: []fleet.RideChange{{Status: optional.Of(fleet.Active), ParkingCategory: optional.Of(fleet.NullString("rack"))}},
			status: fleet.Active, state: fleet.OnTrip, events: []string{"trip_start on_trip"}},
	} {
		t.Run(tt.row, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.changePlan(t, fleet.PlanChange{ReservationPerMin: optional.Of(int64(15)), ReservationFreeMinutes: optional.Of(int64(5))})
			if tt.reason == "max_duration" {
				y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(20))})
			}
			v := y.vehicle(t)
			r := y.ride(t, tt.first, v)
			for i, c := range tt.then {
				if i == len(tt.then)-1 && !tt.passes && tt.wait > 0 {
					r = y.putAfter(t, r.CreatedAt, tt.wait, r.ID, c)
					continue
				}
				r = y.put(t, r.ID, c)
			}
			if tt.passes {
				y.after(t, r.CreatedAt, tt.wait+time.Minute)
			}
			r = y.storedRide(t, r.ID)
			w, c := y.storedVehicle(t, v.ID), y.storedCustomer(t, r.CustomerID)
			if r.Status != tt.status || w.State != tt.state {
				t.Errorf("got a ride that is %s and a vehicle that is %s, want %s and %s", r.Status, w.State, tt.status, tt.state)
			}
			if got := y.history(t, v.ID)[1:]; !slices.Equal(got, tt.events) {
				t.Errorf("got events %q, want %q", got, tt.events)
			}
			if got := r.EndReason + r.CancelReason; got != tt.reason {
				t.Errorf("got reason %q, want %q", got, tt.reason)
			}
			if c.RideCount != tt.count {
				t.Errorf("got %d rides of the customer, want %d", c.RideCount, tt.count)
			}
			if tt.status.Open() {
				if r.Price != nil || w.CurrentRideID != fleet.NullString(r.ID) || c.OpenRideID != fleet.NullString(r.ID) || w.PublicVehicleID != v.PublicVehicleID || !r.EndedAt.Std().IsZero() {
					t.Errorf("got %+v, %+v and %+v, want all to know of the ride", r, w, c)
				}
				return
			}
			if r.Price == nil || r.Price.TotalAmount != tt.total || (r.PaymentStatus == "due") != (tt.total > 0) {
				t.Errorf("got price %+v, %s; want a total of %d", r.Price, r.PaymentStatus, tt.total)
			}
			if w.CurrentRideID != "" || c.OpenRideID != "" {
				t.Errorf("got open rides %q and %q, want none", w.CurrentRideID, c.OpenRideID)
			}
			if started := !r.StartedAt.Std().IsZero(); (w.PublicVehicleID != v.PublicVehicleID) != started {
				t.Errorf("got public id %s after %s", w.PublicVehicleID, v.PublicVehicleID)
			}
			lasted := r.EndedAt.Std().Sub(r.CreatedAt.Std())
			if tt.passes && lasted != tt.wait || lasted < tt.wait || lasted > tt.wait+30*time.Second {
				t.Errorf("ended after %v, want %v", lasted, tt.wait)
			}
		})
	}
}

// TestPause checks the seconds of pauses.
func TestPause(t *testing.T) {
	y := newYard(t)
	y.changePlan(t, fleet.PlanChange{PausePerMinAmount: optional.Of(int64(10))})
	r := y.ride(t, fleet.Active, y.vehicle(t))
	y.putAfter(t, r.StartedAt, 5*time.Minute, r.ID, to(fleet.Paused))
	y.after(t, r.StartedAt, 6*time.Minute)
	if now := y.storedRide(t, r.ID); shown(t, now).PausedSeconds < 60 || shown(t, now).DurationSeconds < 360 || now.PausedSeconds != 0 {
		t.Errorf("paused: got %d of %d seconds, and stored %d", shown(t, now).PausedSeconds, shown(t, now).DurationSeconds, now.PausedSeconds)
	}
	y.putAfter(t, r.StartedAt, 7*time.Minute+10*time.Second, r.ID, to(fleet.Active))
	r = y.putAfter(t, r.StartedAt, 25*time.Minute, r.ID, to(fleet.Completed))
	if r.DurationSeconds != 1500 || r.PausedSeconds != 130 {
		t.Errorf("got %d seconds, %d of them paused; want 1500 and 130", r.DurationSeconds, r.PausedSeconds)
	}
	if p := r.Price; p.BilledPausedMinutes != 3 || p.BilledMinutes != 23 || p.TotalAmount != 100+23*25+3*10 {
		t.Errorf("got %+v", p)
	}
}

// shown is a ride as the API returns it.
func shown(t *testing.T, r fleet.Ride) (shown fleet.Ride) {
	t.Helper()
	doc, err := r.Record()
	if err != nil {
		t.Fatal(err)
	}
	decode(t, doc.JSON, &shown)
	return shown
}

// TestRidePrices checks how place and kind of the end affect the price.
func TestRidePrices(t *testing.T) {
	end := func(change func(*fleet.RideChange)) fleet.RideChange {
		c := to(fleet.Completed)
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name     string
		first    fleet.RideStatus
		reserved time.Duration // before the start
		ridden   time.Duration
		change   fleet.RideChange
		trip     fleet.TripType
		want     tariff.Price
		outside  bool
	}{
		{name: "inside", first: fleet.Active, ridden: 10 * time.Minute, change: to(fleet.Completed),
			want: tariff.Price{UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, SubtotalAmount: 350, TaxAmount: 67, TotalAmount: 417, BilledMinutes: 10}},
		{name: "reserved before", first: fleet.Reserved, reserved: 12*time.Minute + 30*time.Second, ridden: 10 * time.Minute, change: to(fleet.Completed),
			want: tariff.Price{UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, ReservationAmount: 120, SubtotalAmount: 470, TaxAmount: 89, TotalAmount: 559, BilledMinutes: 10, BilledReservationMinutes: 8}},
		{name: "outside for the fee", first: fleet.Active, ridden: 10 * time.Minute, outside: true,
			change: end(func(c *fleet.RideChange) {
				c.EndLocation, c.AcceptOutOfZoneFee, c.DistanceMeters = optional.Of(*outside()), optional.Of(true), optional.Of(int64(2140))
			}),
			want: tariff.Price{UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, OutOfZoneAmount: 1500, SubtotalAmount: 1850, TaxAmount: 352, TotalAmount: 2202, BilledMinutes: 10, BilledKilometers: 3}},
		{name: "outside, by the operator", first: fleet.Active, ridden: 10 * time.Minute, outside: true,
			change: end(func(c *fleet.RideChange) {
				c.EndLocation, c.EndReason, c.DistanceMeters = optional.Of(*outside()), optional.Of(fleet.NullString("operator")), optional.Of(int64(0))
			}),
			want: tariff.Price{UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, SubtotalAmount: 350, TaxAmount: 67, TotalAmount: 417, BilledMinutes: 10}},
		{name: "reserved, started and cancelled within the grace", first: fleet.Reserved, reserved: 7 * time.Minute, ridden: 30 * time.Second, change: to(fleet.Cancelled),
			want: tariff.Price{ReservationAmount: 30, SubtotalAmount: 30, TaxAmount: 6, TotalAmount: 36, BilledReservationMinutes: 2}},
		{name: "adjusted with the end", first: fleet.Active, ridden: 10 * time.Minute,
			change: end(func(c *fleet.RideChange) { c.AdjustmentAmount = optional.Of(int64(-100)) }),
			want:   tariff.Price{UnlockAmount: 100, TimeAmount: 250, FareAmount: 350, SubtotalAmount: 350, TaxAmount: 67, AdjustmentAmount: -100, TotalAmount: 317, BilledMinutes: 10}},
		{name: "rebalance", first: fleet.Active, ridden: 10 * time.Minute, trip: fleet.RebalanceTrip, change: to(fleet.Completed)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.changePlan(t, fleet.PlanChange{
				ReservationPerMin: optional.Of(int64(15)), ReservationFreeMinutes: optional.Of(int64(5)), OutOfZoneAmount: optional.Of(int64(1500)),
				Taxable: optional.Of(true), TaxBasisPoints: optional.Of(int64(1900)),
			})
			v := y.vehicle(t)
			n := fleet.NewRide{Status: tt.first, TripType: tt.trip, VehicleCode: fleet.NullString("b-0001")}
			if tt.trip == "" {
				n.CustomerID = fleet.NullString(y.customer(t).ID)
			}
			r, err := y.tryRide(t, n)
			if err != nil {
				t.Fatal(err)
			}
			if tt.first == fleet.Reserved {
				r = y.putAfter(t, r.ReservedAt, tt.reserved, r.ID, to(fleet.Active))
			}
			r = y.putAfter(t, r.StartedAt, tt.ridden, r.ID, tt.change)
			tt.want.Currency = "EUR"
			if r.Price == nil || *r.Price != tt.want {
				t.Errorf("got %+v\nwant %+v", r.Price, tt.want)
			}
			zone := fleet.NullString(y.zone.ID)
			if tt.outside {
				zone = ""
			}
			if r.StartZoneID != fleet.NullString(y.zone.ID) || r.Status == fleet.Completed && r.EndZoneID != zone {
				t.Errorf("got zones %s and %s", r.StartZoneID, r.EndZoneID)
			}
			if got := y.storedVehicle(t, v.ID).Location; r.EndLocation != nil && *got != *r.EndLocation {
				t.Errorf("the vehicle is at %v, want %v", got, r.EndLocation)
			}
		})
	}
}

// TestRideRefusals has every error of starting, ending and changing a ride
// (fleet-api.md 2 and 5).
func TestRideRefusals(t *testing.T) {
	y := newYard(t)
	text := func(s string) optional.Value[fleet.NullString] { return optional.Of(fleet.NullString(s)) }
	customer := func(change ...func(*fleet.NewCustomer)) fleet.NullString {
		return fleet.NullString(y.customer(t, change...).ID)
	}
	vehicle := func(change ...func(*fleet.NewVehicle)) fleet.NullString {
		return fleet.NullString(y.vehicle(t, change...).ID)
	}
	details := func(name string, err error, want map[string]any) {
		t.Helper()
		e, _ := errors.AsType[*problem.Error](err)
		if e == nil || !reflect.DeepEqual(e.Details, want) {
			t.Errorf("%s: got %+v, want details %v", name, err, want)
		}
	}

	// A second subaccount, and types with requirements.
	var other *yard
	types := append(slices.Clone(y.sub.VehicleTypes),
		fleet.VehicleType{Name: "Moped", FormFactor: "moped", PropulsionType: "electric", MaxRangeMeters: new(int64(60_000)), LicenseRequired: true, ReservationMinutes: 15},
		fleet.VehicleType{Name: "Car", FormFactor: "car", PropulsionType: "electric", MaxRangeMeters: new(int64(300_000)), MinAge: 21})
	y.changeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of(types)})
	// Vehicles that became available before the limit was raised.
	y.changeSettings(t, fleet.SettingsChange{LowBatteryPercent: optional.Of(int64(10))})
	low := func() fleet.NullString {
		return fleet.NullString(y.vehicle(t, func(n *fleet.NewVehicle) { n.BatteryPercent = new(int64(14)) }).ID)
	}
	low1, low2 := low(), low()
	y.changeSettings(t, fleet.SettingsChange{LowBatteryPercent: optional.Of(int64(15))})
	moped := func(n *fleet.NewVehicle) { n.VehicleTypeID = y.sub.VehicleTypes[1].ID }
	car := func(n *fleet.NewVehicle) { n.VehicleTypeID = y.sub.VehicleTypes[2].ID }
	other = elsewhere(t, y)

	busy := y.ride(t, fleet.Active, y.vehicle(t))
	now, err := y.Now(t.Context(), y.db, y.org)
	if err != nil {
		t.Fatal(err)
	}
	today := func(years, days int) fleet.NullString {
		return fleet.NullString(now.AddDate(-years, 0, days).Format(time.DateOnly))
	}
	for _, tt := range []struct {
		name string
		ride fleet.NewRide
		want string
	}{
		{"nothing", fleet.NewRide{}, "customer_id required, vehicle_id required"},
		{"a customer of a rebalance trip", fleet.NewRide{TripType: fleet.RebalanceTrip, VehicleID: vehicle(), CustomerID: customer()}, "customer_id conflict"},
		{"another status", fleet.NewRide{Status: fleet.Paused, TripType: "joy", VehicleID: vehicle(), CustomerID: customer()}, "status invalid_value, trip_type invalid_value"},
		{"no such vehicle", fleet.NewRide{VehicleID: "veh_0", CustomerID: customer()}, "vehicle_id not_found"},
		{"no such code", fleet.NewRide{VehicleCode: "Z-1", CustomerID: customer()}, "vehicle_code not_found"},
		{"another subaccount's vehicle", fleet.NewRide{SubaccountID: other.sub.ID, VehicleID: vehicle(), CustomerID: fleet.NullString(other.customer(t).ID)}, "customer_id not_found, vehicle_id not_found"},
		{"code of another vehicle", fleet.NewRide{VehicleID: vehicle(), VehicleCode: "B-0001", CustomerID: customer()}, "vehicle_code conflict"},
		{"no such customer", fleet.NewRide{VehicleID: vehicle(), CustomerID: "cus_0"}, "customer_id not_found"},
		{"another subaccount's customer", fleet.NewRide{VehicleID: vehicle(), CustomerID: fleet.NullString(other.customer(t).ID)}, "customer_id not_found"},
		{"another subaccount's plan", fleet.NewRide{VehicleID: vehicle(), CustomerID: customer(), PricingPlanID: fleet.NullString(other.plan.ID)}, "pricing_plan_id not_found"},
		{"another version", fleet.NewRide{VehicleID: vehicle(), CustomerID: customer(), PricingPlanID: fleet.NullString(y.plan.ID), PricingPlanVersion: new(int64(2))}, "pricing_changed"},
		{"a type that cannot be reserved", fleet.NewRide{Status: fleet.Reserved, VehicleID: vehicle(car), CustomerID: customer()}, "status invalid_value"},
		{"a vehicle in use", fleet.NewRide{VehicleID: fleet.NullString(busy.VehicleID), CustomerID: customer()}, "vehicle_unavailable"},
		{"a vehicle that is away", fleet.NewRide{VehicleID: vehicle(func(n *fleet.NewVehicle) { n.State = fleet.Removed }), CustomerID: customer()}, "vehicle_unavailable"},
		{"a customer who rides", fleet.NewRide{VehicleID: vehicle(), CustomerID: busy.CustomerID}, "customer_has_open_ride"},
		{"a blocked customer", fleet.NewRide{Status: fleet.Reserved, VehicleID: vehicle(), CustomerID: customer(func(n *fleet.NewCustomer) { n.Status = fleet.CustomerBlocked })}, "customer_blocked"},
		{"an empty battery", fleet.NewRide{VehicleID: low1, CustomerID: customer()}, "vehicle_low_battery"},
		{"the place", fleet.NewRide{VehicleID: vehicle(func(n *fleet.NewVehicle) { n.Location = outside() }), CustomerID: customer()}, "ride_start_not_allowed"},
		{"no license", fleet.NewRide{VehicleID: vehicle(moped), CustomerID: customer()}, "license_required"},
		{"too young", fleet.NewRide{VehicleID: vehicle(car), CustomerID: customer(func(n *fleet.NewCustomer) { n.BirthDate = today(21, 2) })}, "age_required"},
		{"a battery just full enough", fleet.NewRide{VehicleID: vehicle(func(n *fleet.NewVehicle) { n.BatteryPercent = new(int64(15)) }), CustomerID: customer()}, "none"},
		{"a battery nobody knows of", fleet.NewRide{VehicleID: vehicle(func(n *fleet.NewVehicle) { n.BatteryPercent = nil }), CustomerID: customer()}, "none"},
		{"an empty battery, reserved", fleet.NewRide{Status: fleet.Reserved, VehicleID: low2, CustomerID: customer()}, "vehicle_low_battery"},
		{"a license", fleet.NewRide{VehicleID: vehicle(moped), CustomerID: customer(func(n *fleet.NewCustomer) { n.LicenseStatus = "verified" })}, "none"},
		{"old enough today", fleet.NewRide{VehicleID: vehicle(car), CustomerID: customer(func(n *fleet.NewCustomer) { n.BirthDate = today(21, 0) })}, "none"},
		{"an age nobody knows", fleet.NewRide{VehicleID: vehicle(car), CustomerID: customer()}, "none"},
		{"the plan that applies", fleet.NewRide{VehicleID: vehicle(), CustomerID: customer(), PricingPlanID: fleet.NullString(y.plan.ID), PricingPlanVersion: new(int64(1)), ExternalID: "x-1"}, "none"},
		{"an external id once more", fleet.NewRide{VehicleID: vehicle(), CustomerID: customer(), ExternalID: "x-1"}, "already_exists external_id"},
		{"too much metadata", fleet.NewRide{VehicleID: vehicle(), CustomerID: customer(), StartLocation: &geo.Position{Lat: 91}}, "start_location.lat too_large"},
	} {
		_, err := y.tryRide(t, tt.ride)
		wantFaults(t, tt.name, err, tt.want)
	}

	_, err = y.tryPut(t, busy.ID, to(fleet.Reserved))
	wantFaults(t, "active to reserved", err, "invalid_transition")
	details("active to reserved", err, map[string]any{"from": "active", "to": "reserved", "allowed": []string{"paused", "completed", "cancelled"}})
	_, err = y.tryPut(t, busy.ID, fleet.RideChange{AdjustmentAmount: optional.Of(int64(-1))})
	wantFaults(t, "an adjustment of an open ride", err, "invalid_transition")
	_, err = y.tryPut(t, busy.ID, fleet.RideChange{EndLocation: optional.Of(*inside()), EndReason: text("rider"), CancelReason: text("rider"), DistanceMeters: optional.Of(int64(1))})
	wantFaults(t, "an end without one", err, "cancel_reason conflict, distance_meters conflict, end_location conflict, end_reason conflict")
	_, err = y.tryPut(t, busy.ID, fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: text("max_duration"), DistanceMeters: optional.Of(int64(-1)), ParkingCategory: text("tree")})
	wantFaults(t, "wrong values", err, "distance_meters too_small, end_reason invalid_value, parking_category invalid_value")

	away := fleet.RideChange{Status: optional.Of(fleet.Completed), EndLocation: optional.Of(*outside()), AcceptOutOfZoneFee: optional.Of(true)}
	_, err = y.tryPut(t, busy.ID, away)
	wantFaults(t, "outside without a fee", err, "ride_end_not_allowed")
	_, err = y.tryPut(t, busy.ID, fleet.RideChange{Status: optional.Of(fleet.Cancelled)})
	wantFaults(t, "within the grace", err, "none")

	y.changePlan(t, fleet.PlanChange{OutOfZoneAmount: optional.Of(int64(1500))})
	r := y.ride(t, fleet.Active, y.vehicle(t, func(n *fleet.NewVehicle) { n.OdometerMeters = new(int64(1000)) }))
	away.AcceptOutOfZoneFee = optional.Value[bool]{}
	_, err = y.tryPut(t, r.ID, away)
	wantFaults(t, "outside with a fee", err, "out_of_zone_fee_required")
	details("outside with a fee", err, map[string]any{"out_of_zone_amount": int64(1500), "currency": "EUR"})
	y.putVehicle(t, r.VehicleID, fleet.VehicleChange{OdometerMeters: optional.Of(int64(1051))})
	_, err = y.tryPut(t, r.ID, to(fleet.Cancelled))
	wantFaults(t, "51 meters away", err, "ride_not_cancellable")
	y.put(t, r.ID, to(fleet.Paused))
	_, err = y.tryPut(t, r.ID, to(fleet.Cancelled))
	wantFaults(t, "paused to cancelled", err, "invalid_transition")
	y.put(t, r.ID, to(fleet.Active))
	y.after(t, r.StartedAt, 61*time.Second)
	_, err = y.tryPut(t, r.ID, to(fleet.Cancelled))
	wantFaults(t, "61 seconds later", err, "ride_not_cancellable")

	// An end is final; payment fields can change.
	done := fleet.RideChange{Status: optional.Of(fleet.Completed), DistanceMeters: optional.Of(int64(500)), EndReason: text("operator")}
	r = y.put(t, r.ID, done)
	if again := y.put(t, r.ID, done); again.UpdatedAt != r.UpdatedAt {
		t.Errorf("the same once more: got another revision")
	}
	_, err = y.tryPut(t, r.ID, to(fleet.Active))
	wantFaults(t, "completed to active", err, "invalid_transition")
	details("completed to active", err, map[string]any{"from": "completed", "to": "active", "allowed": []string{}})
	_, err = y.tryPut(t, r.ID, fleet.RideChange{DistanceMeters: optional.Of(int64(501))})
	wantFaults(t, "another distance", err, "invalid_transition")
	r = y.put(t, r.ID, fleet.RideChange{AdjustmentAmount: optional.Of(int64(-100_000)), AdjustmentReason: text("goodwill"), PaymentStatus: optional.Of("refunded"), ExternalID: text("x-2"), Metadata: optional.Of(map[string]string{"a": "b"})})
	if r.Price.TotalAmount != 0 || r.Price.AdjustmentAmount != -100_000 || r.AdjustmentAmount != -100_000 || r.PaymentStatus != "refunded" || r.Metadata["a"] != "b" {
		t.Errorf("adjusted: got %+v, %+v", r.Price, r)
	}
	_, err = y.tryPut(t, r.ID, fleet.RideChange{ExternalID: text("x-1")})
	wantFaults(t, "another's external id", err, "already_exists external_id")

	// Without a plan, riders cannot start.
	y.changeSub(t, fleet.SubaccountChange{DefaultPricingPlanID: optional.Value[fleet.NullString]{Set: true, Null: true}})
	_, err = y.tryRide(t, fleet.NewRide{VehicleID: vehicle(), CustomerID: customer()})
	wantFaults(t, "no plan", err, "no_pricing_plan")
	own := vehicle(func(n *fleet.NewVehicle) { n.PricingPlanID = fleet.NullString(y.plan.ID) })
	if _, err = y.tryRide(t, fleet.NewRide{VehicleID: own, CustomerID: customer()}); err != nil {
		t.Errorf("a vehicle's own plan: got %v", err)
	}
}

// TestStartReserved checks the conditions of starting a reservation.
func TestStartReserved(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Reserved, v)
	try := func(name, want string) {
		t.Helper()
		_, err := y.tryPut(t, r.ID, to(fleet.Active))
		wantFaults(t, name, err, want)
	}
	y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(3))})
	try("an empty battery", "vehicle_low_battery")
	y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(50)), Location: optional.Of(*outside())})
	try("outside", "ride_start_not_allowed")
	y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(*inside())})
	y.changeCustomer(t, r.CustomerID, fleet.CustomerChange{Status: optional.Of(fleet.CustomerBlocked)})
	try("blocked", "customer_blocked")
	y.changeCustomer(t, r.CustomerID, fleet.CustomerChange{Status: optional.Of(fleet.CustomerActive)})
	try("all right", "none")
}
