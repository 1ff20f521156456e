package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

const (
	// demoReportPause is the time between the reports of vehicles on a trip. Others report once in
	// demoReportsQuiet of these.
	demoReportPause  = 20 * time.Second
	demoReportsQuiet = 15
	// demoStep is the way of a vehicle on a trip in that time, in millionths of a degree.
	demoStep = 600
)

// track lets the vehicles report until ctx ends.
func (c *demoCompany) track(ctx context.Context, a *app.App, organizationID string, log *slog.Logger) {
	ticker := time.NewTicker(demoReportPause)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		states := []fleet.VehicleState{fleet.OnTrip}
		if n%demoReportsQuiet == 0 {
			states = demoReporting
		}
		if err := reportDemoVehicles(ctx, a, organizationID, states); err != nil && ctx.Err() == nil {
			log.Warn("the vehicles of the demo could not report", "error", err)
		}
	}
}

// demoReporting are the states of the vehicles that report.
var demoReporting = []fleet.VehicleState{fleet.Available, fleet.VehicleReserved, fleet.OnTrip, fleet.NonOperational}

// reportDemoVehicles stores a report of each vehicle with a motor in some states, of both fleets.
func reportDemoVehicles(ctx context.Context, a *app.App, organizationID string, states []fleet.VehicleState) error {
	for _, f := range []app.Fleet{a.Fleet, a.Sandbox} {
		now, err := f.Now(ctx, f.DB, organizationID)
		if err != nil {
			return err
		}
		var reports []fleet.Report
		err = f.EachVehicle(ctx, organizationID, fleet.VehicleQuery{State: states}, func(d *fleet.Record) error {
			var v fleet.Vehicle
			if err := json.Unmarshal(d.JSON, &v); err != nil {
				return fmt.Errorf("read a vehicle: %w", err)
			}
			if v.Location != nil && v.PropulsionType != "human" {
				reports = append(reports, demoReport(&v, now))
			}
			return nil
		})
		if err != nil {
			return err
		}
		for some := range slices.Chunk(reports, fleet.MaxReports) {
			err := f.DB.Write(ctx, func(tx *db.Tx) error {
				_, err := f.RecordTelemetryTx(ctx, tx, organizationID, some, func(string) bool { return true })
				return err
			})
			if err != nil {
				return fmt.Errorf("record reports: %w", err)
			}
		}
	}
	return nil
}

// demoReport is a report of a vehicle. One on a trip moves on, each in a direction of its own.
func demoReport(v *fleet.Vehicle, now time.Time) fleet.Report {
	r := track.Report{At: now.UnixMilli()}
	lat, lng := geo.Millionths(v.Location.Lat), geo.Millionths(v.Location.Lng)
	if v.State == fleet.OnTrip {
		h := fnv.New32a()
		h.Write([]byte(v.ID))
		angle := float64(h.Sum32()%360)/180*math.Pi + float64(now.Unix()%600)/100
		lat += int64(demoStep * math.Sin(angle))
		lng += int64(demoStep * math.Cos(angle))
		r.Set(track.Speed, 120)
	}
	r.Set(track.Lat, lat)
	r.Set(track.Lng, lng)
	if v.BatteryPercent != nil {
		r.Set(track.Battery, *v.BatteryPercent)
	}
	return fleet.Report{Vehicle: fleet.VehicleRef{ID: v.ID}, Data: r}
}
