package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
)

// BenchmarkTelemetry records calls of 10,000 reports of moving vehicles.
func BenchmarkTelemetry(b *testing.B) {
	for _, each := range []int{1, 10} {
		b.Run(fmt.Sprintf("%d reports per vehicle", each), func(b *testing.B) {
			y := furnish(b, newSiteOn(b, dbtest.NewFleet(b), true))
			vehicles := make([]fleet.Vehicle, fleet.MaxReports/each)
			y.write(b, func(ctx context.Context, tx *db.Tx) (err error) {
				for i := range vehicles {
					vehicles[i], err = y.CreateVehicleTx(ctx, tx, y.org, fleet.NewVehicle{SubaccountID: y.sub.ID, Code: fmt.Sprintf("V-%05d", i), VehicleTypeID: y.scooter}, testActor)
					if err != nil {
						return err
					}
				}
				return nil
			})
			call, start := 0, y.clock(b).Add(-2*time.Hour)
			for b.Loop() {
				b.StopTimer()
				now := start.Add(time.Duration(call) * 5 * time.Second)
				reports := make([]fleet.Report, 0, fleet.MaxReports)
				for n := range each {
					for i := range vehicles {
						values := northBy(float64((call*each+n)*20 + i))
						values[track.Speed], values[track.Battery] = 180+int64(i%20), int64(90-call%50)
						reports = append(reports, report(&vehicles[i], now.Add(time.Duration(n-each)*5*time.Second/time.Duration(each)), values))
					}
				}
				call++
				b.StartTimer()
				if got := y.record(b, reports...); got.Accepted < int64(len(reports)) {
					b.Fatalf("got %d accepted", got.Accepted)
				}
			}
			b.ReportMetric(float64(fleet.MaxReports*b.N)/b.Elapsed().Seconds(), "reports/s")
		})
	}
}
