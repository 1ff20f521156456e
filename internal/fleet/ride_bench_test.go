package fleet_test

import (
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// BenchmarkRides starts and ends rides with 16 goroutines, each change in its own
// transaction. One operation is a start or an end.
func BenchmarkRides(b *testing.B) {
	const clients, pairs = 16, 32
	y := newYard(b)
	type pair struct {
		vehicle  fleet.Vehicle
		customer fleet.Customer
	}
	list := make([]pair, clients*pairs)
	for i := range list {
		list[i] = pair{y.vehicle(b), y.customer(b)}
	}
	ctx := b.Context()
	b.ResetTimer()
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for n := client; n < b.N; n += 2 * clients {
				p := &list[client*pairs+n/clients/2%pairs]
				var r fleet.Ride
				err := y.db.Write(ctx, func(tx *db.Tx) (err error) {
					r, err = y.StartRideTx(ctx, tx, y.org, fleet.NewRide{VehicleID: fleet.NullString(p.vehicle.ID), CustomerID: fleet.NullString(p.customer.ID)}, testActor)
					return err
				})
				if err == nil {
					_, err = r.Record()
				}
				if err == nil {
					err = y.db.Write(ctx, func(tx *db.Tx) error {
						if r, err = y.LockRideTx(ctx, tx, y.org, r.ID); err != nil {
							return err
						}
						r, err = y.UpdateRideTx(ctx, tx, y.org, r, to(fleet.Completed), testActor)
						return err
					})
				}
				if err == nil {
					_, err = r.Record()
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
