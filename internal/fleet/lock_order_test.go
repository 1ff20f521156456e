package fleet_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// newPatientYard returns a yard of production on PostgreSQL whose transactions wait for locks
// instead of trying again, so that an order of locks which needs retries fails.
func newPatientYard(t *testing.T) *yard {
	t.Helper()
	u, err := url.Parse(dbtest.FleetURL(t))
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme == "sqlite" {
		t.Skip("transactions exclude each other on SQLite")
	}
	q := u.Query()
	q.Set("deadlock_timeout", "10min")
	q.Set("lock_timeout", "30s")
	u.RawQuery = q.Encode()
	y := furnish(t, newSiteOn(t, dbtest.Open(t, u.String()), true))
	y.listen(t)
	return y
}

// waiting waits until n transactions wait for locks.
func (y *yard) waiting(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); ; {
		var got int
		err := y.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&got)
		if err != nil || got >= n {
			if err != nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Errorf("%d transactions wait, want %d", got, n)
			return
		}
	}
}

// silent creates vehicles that nobody has seen and that are due to be missing, the last one first.
func (y *yard) silent(t *testing.T, n int) []fleet.Vehicle {
	t.Helper()
	list := make([]fleet.Vehicle, n)
	for i := range list {
		list[i] = y.vehicle(t, func(v *fleet.NewVehicle) { v.LastReportedAt = rfc3339.Time(time.Now().AddDate(0, 0, -10)) })
		y.write(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE vehicles SET due_at = $1, seen_at = NULL, doc = replace(doc, 'provider_drop_off', 'battery_charged') WHERE id = $2", tx.Now.Add(-time.Duration(i+1)*time.Minute).UnixMicro(), list[i].ID)
			return err
		})
	}
	return list
}

// lockVehicle holds a vehicle while the functions of start run, which wait for it, and updates it
// before the commit. The functions must succeed.
func (y *yard) lockVehicle(t *testing.T, id string, start ...func() error) {
	t.Helper()
	done := make(chan error, len(start))
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		v, err := y.LockVehicleTx(ctx, tx, y.org, id)
		if err != nil {
			return err
		}
		for i, fn := range start {
			go func() { done <- fn() }()
			y.waiting(t, i+1)
		}
		_, err = y.UpdateVehicleTx(ctx, tx, y.org, v, fleet.VehicleChange{LicensePlate: optional.Of(fleet.NullString("B 1"))}, testActor)
		return err
	})
	for range start {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestTimersAndReportsLockInOneOrder makes timers, whose order is that of their times, and reports
// of the same vehicles wait for the first of them.
func TestTimersAndReportsLockInOneOrder(t *testing.T) {
	y := newPatientYard(t)
	list := y.silent(t, 4)
	y.lockVehicle(t, list[0].ID, func() error {
		return y.try(t, func(ctx context.Context, tx *db.Tx) error {
			var reports []fleet.Report
			for i := range list {
				reports = append(reports, report(&list[i], tx.Now, map[track.Field]int64{track.Battery: 50}))
			}
			_, err := y.RecordTelemetryTx(ctx, tx, y.org, reports, func(string) bool { return true })
			return err
		})
	}, func() error { return y.ApplyDue(t.Context(), y.org) })
}

// TestTimersLockBeforeEvents makes timers wait for a vehicle whose transaction has an event.
func TestTimersLockBeforeEvents(t *testing.T) {
	y := newPatientYard(t)
	list := y.silent(t, 4)
	y.lockVehicle(t, list[0].ID, func() error { return y.ApplyDue(t.Context(), y.org) })
	for i := range list[1:] {
		v, err := y.Vehicle(t.Context(), y.db, y.org, list[i+1].ID)
		if err != nil || v.State != fleet.Missing {
			t.Errorf("got the state %s, %v, want %s", v.State, err, fleet.Missing)
		}
	}
}

// TestNewRideLocksInOneOrder starts a ride of a customer whose ride of another vehicle is due, while a
// transaction locks both vehicles by id.
func TestNewRideLocksInOneOrder(t *testing.T) {
	y := newPatientYard(t)
	first, second := y.vehicle(t), y.vehicle(t)
	if first.ID > second.ID {
		first, second = second, first
	}
	r := y.ride(t, fleet.Active, second)
	done := make(chan error, 1)
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE rides SET due_at = $1 WHERE id = $2", tx.Now.UnixMicro(), r.ID)
		return err
	})
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		for _, v := range []fleet.Vehicle{first, second} {
			if _, err := tx.Exec(ctx, "SELECT id FROM vehicles WHERE id = $1 FOR UPDATE", v.ID); err != nil {
				return err
			}
			if v.ID == first.ID {
				go func() {
					_, err := y.tryRide(t, fleet.NewRide{VehicleID: fleet.NullString(first.ID), CustomerID: r.CustomerID})
					done <- err
				}()
				y.waiting(t, 1)
			}
		}
		return nil
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := y.storedRide(t, r.ID); got.Status != fleet.Completed {
		t.Errorf("the ride that was due is %s", got.Status)
	}
}

// TestZonesLockInOneOrder makes changes of zones wait for a vehicle that alert rules examine after them.
func TestZonesLockInOneOrder(t *testing.T) {
	y := newPatientYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.LeftZone, 0, 0)
	if err := y.ApplyDue(t.Context(), y.org); err != nil {
		t.Fatal(err)
	}
	y.lockVehicle(t, v.ID, func() error {
		return y.try(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteZoneTx(ctx, tx, y.org, y.zone.ID) })
	}, func() error {
		return y.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := y.CreateZoneTx(ctx, tx, y.org, newZone(t, y.sub.ID))
			return err
		})
	})
}
