package fleet_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// northBy is the position meters north of inside.
func northBy(meters float64) map[track.Field]int64 {
	return map[track.Field]int64{track.Lat: geo.Millionths(inside().Lat + meters/111_195.08), track.Lng: geo.Millionths(inside().Lng)}
}

// perKilometer makes the plan charge 100 per kilometer.
func (y *yard) perKilometer(t testing.TB) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		plan, err := y.LockPlanTx(ctx, tx, y.org, y.plan.ID)
		if err != nil {
			return err
		}
		_, err = y.UpdatePlanTx(ctx, tx, y.org, plan, fleet.PlanChange{PerKilometer: optional.Of([]tariff.Segment{{Rate: 100, Interval: 1}})})
		return err
	})
}

// TestDistance: the odometer, else the track, else the straight line; and late reports correct it
// until the ride is paid for.
func TestDistance(t *testing.T) {
	type late struct {
		meters float64
		after  time.Duration // of the start
	}
	thereAndBack := []late{{1000, 2 * time.Minute}, {2000, 4 * time.Minute}, {1000, 6 * time.Minute}}
	for name, tt := range map[string]struct {
		before, after []late
		odometer      int64
		given         *int64
		paid          bool
		want, then    int64 // meters
	}{
		"line":                      {want: 0, then: 0},
		"track":                     {before: thereAndBack, want: 4000, then: 4000},
		"late":                      {after: thereAndBack, want: 0, then: 4000},
		"partly late":               {before: thereAndBack[:1], after: thereAndBack[1:], want: 0, then: 4000},
		"late, but paid":            {after: thereAndBack, paid: true, want: 0, then: 0},
		"late, but given":           {after: thereAndBack, given: new(int64(700)), want: 700, then: 700},
		"odometer":                  {before: thereAndBack, odometer: 3900, want: 3900, then: 3900},
		"odometer, and late":        {after: thereAndBack, odometer: 3900, want: 3900, then: 3900},
		"reports of another minute": {after: []late{{5000, -2 * time.Minute}, {9000, 12 * time.Minute}}, want: 0, then: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.perKilometer(t)
			v := y.vehicle(t, func(n *fleet.NewVehicle) { n.OdometerMeters = new(int64(0)) })
			y.travel(t, 5*time.Minute)
			r := y.ride(t, fleet.Active, v)
			start := r.StartedAt.Std()
			send := func(list []late) {
				var reports []fleet.Report
				for _, l := range list {
					reports = append(reports, report(&v, start.Add(l.after), northBy(l.meters)))
				}
				if got := y.record(t, reports...); got.Rejected > 0 {
					t.Fatalf("got %s", verdicts(got))
				}
			}
			y.travel(t, 8*time.Minute)
			send(tt.before)
			if tt.odometer > 0 {
				y.record(t, report(&v, start.Add(7*time.Minute), map[track.Field]int64{track.Odometer: tt.odometer}))
			}
			end := to(fleet.Completed)
			end.EndLocation = optional.Of(*inside())
			if tt.given != nil {
				end.DistanceMeters = optional.Of(*tt.given)
			}
			r = y.put(t, r.ID, end)
			if *r.DistanceMeters != tt.want {
				t.Errorf("got %d meters, want %d", *r.DistanceMeters, tt.want)
			}
			r = y.put(t, r.ID, fleet.RideChange{AdjustmentAmount: optional.Of(int64(-50))})
			if tt.paid {
				r = y.put(t, r.ID, fleet.RideChange{PaymentStatus: optional.Of("paid")})
			}
			y.travel(t, 5*time.Minute)
			send(tt.after)
			if err := fleet.CorrectDistances(t.Context(), y.Service); err != nil {
				t.Fatal(err)
			}
			then := y.storedRide(t, r.ID)
			want := r.Price.TotalAmount + 100*(tt.then-tt.want)/1000
			if *then.DistanceMeters != tt.then || then.Price.TotalAmount != want || then.PaymentStatus != r.PaymentStatus {
				t.Errorf("then got %d meters for %d, %s; want %d for %d, %s", *then.DistanceMeters, then.Price.TotalAmount, then.PaymentStatus, tt.then, want, r.PaymentStatus)
			}
			if left, err := db.All(t.Context(), y.db, func(row db.Row) (id string, err error) { err = row.Scan(&id); return id, err }, "SELECT ride_id FROM late_distances"); err != nil || len(left) > 0 {
				t.Errorf("notes are left: %v, %v", left, err)
			}
		})
	}
}

// TestDistanceOutOfContact: late reports correct the distance of a ride that ended while its vehicle was
// out of contact.
func TestDistanceOutOfContact(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	y.travel(t, 50*time.Minute) // out of contact since minute 30
	end := to(fleet.Completed)
	end.EndLocation = optional.Of(*inside())
	if r = y.put(t, r.ID, end); *r.DistanceMeters != 0 {
		t.Fatalf("got %d meters", *r.DistanceMeters)
	}
	start := r.StartedAt.Std()
	y.record(t, report(&v, start.Add(40*time.Minute), northBy(1000)), report(&v, start.Add(45*time.Minute), northBy(2000)))
	if err := fleet.CorrectDistances(t.Context(), y.Service); err != nil {
		t.Fatal(err)
	}
	if got := *y.storedRide(t, r.ID).DistanceMeters; got != 4000 {
		t.Errorf("got %d meters, want 4000", got)
	}
}

// TestPaymentOfLateReports: a late report makes a free ride due, but not one that a request has made not due.
func TestPaymentOfLateReports(t *testing.T) {
	for name, tt := range map[string]struct {
		unlock int64
		set    string
		want   string
	}{
		"free":                    {0, "", "due"},
		"not free":                {100, "", "due"},
		"not free, but not due":   {100, "not_due", "not_due"},
		"free, but due by itself": {0, "due", "due"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.changePlan(t, fleet.PlanChange{
				UnlockAmount: optional.Of(tt.unlock), PerMinute: optional.Of([]tariff.Segment(nil)), PerKilometer: optional.Of([]tariff.Segment{{Rate: 100, Interval: 1}}),
			})
			v := y.vehicle(t)
			r := y.ride(t, fleet.Active, v)
			start := r.StartedAt.Std()
			y.travel(t, 8*time.Minute)
			end := to(fleet.Completed)
			end.EndLocation = optional.Of(*inside())
			r = y.put(t, r.ID, end)
			if tt.set != "" {
				y.put(t, r.ID, fleet.RideChange{PaymentStatus: optional.Of(tt.set)})
			}
			y.record(t, report(&v, start.Add(2*time.Minute), northBy(1000)), report(&v, start.Add(6*time.Minute), northBy(2000)))
			if err := fleet.CorrectDistances(t.Context(), y.Service); err != nil {
				t.Fatal(err)
			}
			if then := y.storedRide(t, r.ID); then.Price.TotalAmount != tt.unlock+400 || then.PaymentStatus != tt.want {
				t.Errorf("got %d, %s; want %d, %s", then.Price.TotalAmount, then.PaymentStatus, tt.unlock+400, tt.want)
			}
		})
	}
}

// TestDistanceOfExpiredTrack: a late report leaves the distance of a ride without a whole track,
// also after the retention was raised again.
func TestDistanceOfExpiredTrack(t *testing.T) {
	for _, retention := range []int64{1, 90} {
		t.Run(fmt.Sprint(retention), func(t *testing.T) {
			y := newYard(t)
			y.changeSettings(t, fleet.SettingsChange{TrackRetentionDays: optional.Of(int64(1)), MaxRideMinutes: optional.Of(int64(600))})
			v := y.vehicle(t)
			r := y.ride(t, fleet.Active, v)
			start := r.StartedAt.Std()
			y.travel(t, 4*time.Hour)
			for i := range 8 {
				y.record(t, report(&v, start.Add(time.Duration(i)*30*time.Minute), northBy(float64(i%2*500))))
			}
			end := to(fleet.Completed)
			end.EndLocation = optional.Of(*inside())
			if r = y.put(t, r.ID, end); *r.DistanceMeters != 4000 {
				t.Fatalf("got %d meters", *r.DistanceMeters)
			}
			y.travel(t, 22*time.Hour)
			if err := fleet.PruneTracks(t.Context(), y.Service); err != nil {
				t.Fatal(err)
			}
			if left := len(y.track(t, v.ID)); left == 0 || left == 8 {
				t.Fatalf("%d of 8 reports are left", left)
			}
			y.changeSettings(t, fleet.SettingsChange{TrackRetentionDays: optional.Of(retention)})
			y.record(t, report(&v, start.Add(3*time.Hour+45*time.Minute), northBy(700)))
			if err := fleet.CorrectDistances(t.Context(), y.Service); err != nil {
				t.Fatal(err)
			}
			if got := *y.storedRide(t, r.ID).DistanceMeters; got != 4000 {
				t.Errorf("then got %d meters", got)
			}
		})
	}
}

// TestLateReportsBesideCorrection: reports that are stored while the distance of their ride is
// corrected are part of it afterwards.
func TestLateReportsBesideCorrection(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	start := r.StartedAt.Std()
	y.travel(t, 8*time.Minute)
	end := to(fleet.Completed)
	end.EndLocation = optional.Of(*inside())
	y.put(t, r.ID, end)
	y.record(t, report(&v, start.Add(2*time.Minute), northBy(100)))
	corrected := make(chan error, 1)
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := y.RecordTelemetryTx(ctx, tx, y.org, []fleet.Report{report(&v, start.Add(4*time.Minute), northBy(3000))}, func(string) bool { return true })
		if err != nil || !y.db.Postgres() { // on SQLite this is the only writer
			corrected <- nil
			return err
		}
		var stored int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM late_distances").Scan(&stored); err != nil {
			return err
		}
		go func() { corrected <- fleet.CorrectDistances(ctx, y.Service) }()
		for waits := false; !waits && len(corrected) == 0; {
			if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))").Scan(&waits); err != nil {
				return err
			}
		}
		return nil
	})
	if err := <-corrected; err != nil {
		t.Fatal(err)
	}
	if err := fleet.CorrectDistances(t.Context(), y.Service); err != nil {
		t.Fatal(err)
	}
	if got := *y.storedRide(t, r.ID).DistanceMeters; got != 6000 {
		t.Errorf("got %d meters, want 6000", got)
	}
}

// TestImplausiblePositions: the vehicle was not where the ride begins, or jumps for single reports, or is as far as no
// vehicle of its type can go.
func TestImplausiblePositions(t *testing.T) {
	const reports = 120
	for name, tt := range map[string]struct {
		speed    *int64 // permitted, kilometers per hour
		position func(i int) float64
		want     int64
	}{
		"another start":     {nil, func(i int) float64 { return 18_000 + float64(i)*1000/(reports-1) }, 1000},
		"jumps":             {nil, func(i int) float64 { return float64((i + 5) % 10 / 9 * 300) }, 0},
		"as fast as may be": {new(int64(36)), func(i int) float64 { return float64(i * 100) }, 11_900},
		"too fast":          {new(int64(20)), func(i int) float64 { return float64(i * 100) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			kind := y.sub.VehicleTypes[0]
			kind.MaxPermittedSpeed = tt.speed
			y.changeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of([]fleet.VehicleType{kind})})
			v := y.vehicle(t)
			y.travel(t, 10*time.Minute)
			r := y.ride(t, fleet.Active, v)
			y.travel(t, 11*time.Minute)
			var list []fleet.Report
			for i := range reports {
				list = append(list, report(&v, r.StartedAt.Std().Add(time.Duration(i+1)*5*time.Second), northBy(tt.position(i))))
			}
			y.record(t, list...)
			end := to(fleet.Completed)
			end.EndReason = optional.Of(fleet.NullString("operator"))
			if r = y.put(t, r.ID, end); *r.DistanceMeters < tt.want-20 || *r.DistanceMeters > tt.want+20 {
				t.Errorf("got %d meters, want %d", *r.DistanceMeters, tt.want)
			}
		})
	}
}

// TestOdometer: the odometer counts if it was read at the start or during a ride of ten minutes, and at its end; late
// readings correct the distance.
func TestOdometer(t *testing.T) {
	type value struct {
		after  time.Duration // of the start
		meters int64
	}
	positions := []time.Duration{2 * time.Minute, 5 * time.Minute, 9 * time.Minute} // 100 meters farther each
	for name, tt := range map[string]struct {
		atStart    *int64
		before     []value
		atEnd      *int64 // by a change of the vehicle, not in the track
		after      []value
		want, then int64
	}{
		"at the end":                   {new(int64(1000)), []value{{time.Minute, 1100}, {9 * time.Minute, 4000}}, nil, nil, 3000, 3000},
		"too early":                    {new(int64(1000)), []value{{time.Minute, 1100}}, nil, nil, 300, 300},
		"late":                         {new(int64(1000)), []value{{4 * time.Minute, 2000}}, nil, []value{{7 * time.Minute, 3500}, {599 * time.Second, 6000}}, 300, 5000},
		"partly late":                  {new(int64(1000)), []value{{9 * time.Minute, 4000}}, nil, []value{{599 * time.Second, 6000}}, 3000, 5000},
		"late, but not at the end":     {new(int64(1000)), []value{{9 * time.Minute, 4000}}, nil, []value{{5 * time.Minute, 2000}}, 3000, 3000},
		"during":                       {nil, []value{{time.Minute, 1100}, {9 * time.Minute, 4000}}, nil, nil, 2900, 2900},
		"at the end only":              {nil, []value{{9 * time.Minute, 4000}, {599 * time.Second, 4300}}, nil, nil, 300, 300},
		"of another odometer":          {new(int64(5000)), []value{{time.Minute, 1100}, {9 * time.Minute, 4000}}, nil, nil, 2900, 2900},
		"too far for the time":         {new(int64(0)), []value{{time.Minute, 1_204_330}, {9 * time.Minute, 1_205_330}}, nil, nil, 1000, 1000},
		"a jump":                       {nil, []value{{time.Minute, 1000}, {9 * time.Minute, 90_000}}, nil, nil, 300, 300},
		"a late jump":                  {new(int64(1000)), []value{{9 * time.Minute, 4000}}, nil, []value{{599 * time.Second, 90_000}}, 3000, 3000},
		"not in the track":             {new(int64(1000)), nil, new(int64(3500)), nil, 2500, 2500},
		"not in the track, and late":   {new(int64(1000)), nil, new(int64(3500)), []value{{9 * time.Minute, 3300}}, 2500, 2500},
		"not in the track, and during": {nil, []value{{time.Minute, 1100}}, new(int64(3500)), nil, 2400, 2400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			v := y.vehicle(t, func(n *fleet.NewVehicle) { n.OdometerMeters = tt.atStart })
			y.travel(t, 5*time.Minute)
			r := y.ride(t, fleet.Active, v)
			start := r.StartedAt.Std()
			y.travel(t, 10*time.Minute)
			values := func(list []value) (reports []fleet.Report) {
				for _, l := range list {
					reports = append(reports, report(&v, start.Add(l.after), map[track.Field]int64{track.Odometer: l.meters}))
				}
				return reports
			}
			sent := values(tt.before)
			for i, after := range positions {
				sent = append(sent, report(&v, start.Add(after), northBy(float64(100*(i+1)))))
			}
			if got := y.record(t, sent...); got.Accepted != int64(len(sent)) {
				t.Fatalf("got %s", verdicts(got))
			}
			if tt.atEnd != nil {
				y.putVehicle(t, v.ID, fleet.VehicleChange{OdometerMeters: optional.Of(*tt.atEnd)})
			}
			r = y.put(t, r.ID, to(fleet.Completed))
			if *r.DistanceMeters != tt.want {
				t.Errorf("got %d meters, want %d", *r.DistanceMeters, tt.want)
			}
			y.travel(t, time.Minute)
			if got := y.record(t, values(tt.after)...); got.Rejected > 0 {
				t.Fatalf("got %s", verdicts(got))
			}
			if err := fleet.CorrectDistances(t.Context(), y.Service); err != nil {
				t.Fatal(err)
			}
			if r = y.storedRide(t, r.ID); *r.DistanceMeters != tt.then {
				t.Errorf("then got %d meters, want %d", *r.DistanceMeters, tt.then)
			}
		})
	}
}

// TestOdometerBounds: a reading from long before a ride is none at its start, and a vehicle goes at most twice as
// fast as vehicles of its type may, and a minute longer than the ride.
func TestOdometerBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		speed  *int64        // permitted, kilometers per hour
		before time.Duration // of the reading before the start
		gone   int64         // meters in ten minutes
		want   int64
	}{
		"shortly before":      {nil, 59 * time.Minute, 7000, 7000},
		"long before":         {nil, 61 * time.Minute, 7000, 0},
		"twice as fast":       {new(int64(20)), time.Minute, 7300, 7300},
		"three times as fast": {new(int64(20)), time.Minute, 10_000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			kind := y.sub.VehicleTypes[0]
			kind.MaxPermittedSpeed = tt.speed
			y.changeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of([]fleet.VehicleType{kind})})
			v := y.vehicle(t, func(n *fleet.NewVehicle) { n.OdometerMeters = new(int64(1000)) })
			y.travel(t, tt.before)
			y.record(t, report(&v, y.clock(t), nil)) // it stays in contact
			r := y.ride(t, fleet.Active, v)
			y.travel(t, 10*time.Minute)
			y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Odometer: 1000 + tt.gone}))
			if r = y.put(t, r.ID, to(fleet.Completed)); *r.DistanceMeters != tt.want {
				t.Errorf("got %d meters, want %d", *r.DistanceMeters, tt.want)
			}
		})
	}
}

// TestDistanceMemory: a track is measured in little memory, however long the ride was.
func TestDistanceMemory(t *testing.T) {
	const segments = 2 * 24 * 4
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(3 * 24 * 60))})
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	begin := track.Start(r.StartedAt.Std().UnixMilli()) + track.Period.Milliseconds()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		for n := range int64(segments) {
			var list track.Segment
			start := begin + n*track.Period.Milliseconds()
			for second := range int64(900) {
				p := report(&v, time.UnixMilli(start+second*1000), northBy(float64(n*900+second)))
				list = append(list, p.Data)
			}
			_, err := tx.Exec(ctx, "INSERT INTO tracks (organization_id, vehicle_id, start_at, reports) VALUES ($1, $2, $3, $4)", y.org, v.ID, start*1000, list.Append(nil, start))
			if err != nil {
				return err
			}
		}
		return nil
	})
	y.travel(t, 49*time.Hour)
	var before, after runtime.MemStats
	end := to(fleet.Completed)
	end.EndReason = optional.Of(fleet.NullString("operator"))
	end.EndLocation = optional.Of(geo.Position{Lat: inside().Lat + segments*900/111_195.08, Lng: inside().Lng})
	runtime.ReadMemStats(&before)
	r = y.put(t, r.ID, end)
	runtime.ReadMemStats(&after)
	if got, want := *r.DistanceMeters, int64(segments*900); got < want-20 || got > want+20 {
		t.Errorf("got %d meters, want %d", got, want)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("took %d MB", took>>20)
	}
}
