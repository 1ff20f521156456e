package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// telemetryClients is the number of gateways that send reports at once.
const telemetryClients = 2

// telemetryAccepted measures reports of moving vehicles in requests of 10,000, with one and with
// ten reports per vehicle. The ceiling inserts the same lines as rows, with a commit per request.
func telemetryAccepted(ctx context.Context, b *bench, e engine) ([]row, error) {
	s, err := b.newStore(ctx, e, "telemetry")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	vehicles, requests := b.scale(20_000), 40
	if b.short {
		requests = 4 // with few vehicles, so that their reports are of less than two hours
	}
	if err := p.Fleet.BulkLoad(ctx, fleet.Organization{ID: p.org, Name: "Bench"}, fleet.SeedSize{Vehicles: vehicles, Customers: 100, Rides: 1000, Days: 30}); err != nil {
		return nil, err
	}
	key, err := p.createKey(ctx, apikey.Fleet)
	if err != nil {
		return nil, err
	}
	t := &telemetryLoad{program: p, key: key, start: time.Now().Add(-2 * time.Hour)}
	err = p.Fleet.EachVehicle(ctx, p.org, fleet.VehicleQuery{}, func(r *fleet.Record) error {
		t.vehicles = append(t.vehicles, r.ID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	ceiling, err := t.ceiling(ctx, b, e, requests)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, each := range []int{1, 10} {
		took, latencies, err := t.send(ctx, requests, each)
		if err != nil {
			return nil, err
		}
		aim := ""
		if each > 1 {
			aim = "≥ 20,000/s"
		}
		what := fmt.Sprintf("reports of vehicles accepted, %d a vehicle, %d clients", each, telemetryClients)
		rows = append(rows, besideCeiling(what+e.suffix(), perSecond(requests*fleet.MaxReports, took), ceiling, aim), latencyRow("… request p50, p99", latencies, ""))
	}
	return rows, p.stop()
}

// telemetryLoad is a client that reports for all vehicles.
type telemetryLoad struct {
	*program
	key      string
	vehicles []string
	start    time.Time
	turn     int // reports of each vehicle so far
}

// lines returns the reports of a request, with each reports of a vehicle one after the other, from
// the turn of that number on.
func (t *telemetryLoad) lines(request, each, turn int) []string {
	lines := make([]string, fleet.MaxReports)
	for i := range lines {
		n := request*(fleet.MaxReports/each) + i/each
		at := t.start.Add(time.Duration(turn+n/len(t.vehicles)*each+i%each) * 5 * time.Second)
		lines[i] = fmt.Sprintf(`{"vehicle":{"id":"%s"},"reported_at":"%s","location":{"lat":%.6f,"lng":%.6f,"accuracy_meters":5},"speed_kph":%d,"battery_percent":%d}`,
			t.vehicles[n%len(t.vehicles)], at.UTC().Format("2006-01-02T15:04:05.000Z"), 52.5+float64(n%1000+i)/1e5, 13.4+float64(i%7919)/1e5, i%25, 50+n%50)
	}
	return lines
}

// send sends requests with new reports.
func (t *telemetryLoad) send(ctx context.Context, requests, each int) (time.Duration, []time.Duration, error) {
	bodies := make([]string, requests)
	for i := range bodies {
		bodies[i] = strings.Join(t.lines(i, each, t.turn), "\n")
	}
	t.turn += (requests*fleet.MaxReports/len(t.vehicles) + 1) * each
	return load(requests, telemetryClients, func(c *http.Client, i int) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+fleetBase+"/telemetry", strings.NewReader(bodies[i]))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+t.key)
		r.Header.Set("Content-Type", "application/x-ndjson")
		answer, _, err := exchange(c, r)
		if err != nil {
			return err
		}
		var got struct{ Accepted, Ignored, Rejected int }
		if err := json.Unmarshal(answer, &got); err != nil {
			return err
		}
		// With two clients a request may come after the next one of the same vehicles.
		if got.Rejected > 0 || got.Accepted+got.Ignored != fleet.MaxReports {
			return fmt.Errorf("the reports of request %d: %.300s", i, answer)
		}
		return nil
	})
}

// ceiling returns the rate at which the lines of reports are inserted as rows.
func (t *telemetryLoad) ceiling(ctx context.Context, b *bench, e engine, requests int) (float64, error) {
	s, err := b.newStore(ctx, e, "telemetry-bare")
	if err != nil {
		return 0, err
	}
	defer b.remove(s)
	d, err := s.openBare()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	insert := insertEach
	if s.url != "" {
		insert = insertArrays
	}
	group, err := insert(ctx, d)
	if err != nil {
		return 0, err
	}
	var took time.Duration
	for i := range requests {
		var rows []rawInsert
		for n, line := range t.lines(i, 1, 0) {
			rows = append(rows, rawInsert{key: fmt.Sprintf("%d %d", i, n), body: []byte(line)})
		}
		began := time.Now()
		if err := group(rows); err != nil {
			return 0, err
		}
		took += time.Since(began)
	}
	return perSecond(requests*fleet.MaxReports, took), nil
}
