package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// fleetBase is the path of the fleet's production API.
const fleetBase = "/v1"

// fleetUnderLoad measures the fleet's API over a year of rides in two cities.
func fleetUnderLoad(ctx context.Context, b *bench) ([]row, error) {
	size := fleet.SeedSize{Vehicles: b.scale(100_000), Customers: b.scale(50_000), Rides: b.scale(5_000_000), Days: 365}
	if b.short {
		size.Rides = 10_000
	}
	data := filepath.Join(b.folder(), "fleet")
	_, err := os.Stat(data)
	made := err == nil
	p, err := b.open(ctx, data, false)
	if err != nil {
		return nil, err
	}
	defer func() { p.stop() }()
	var rows []row
	if !made {
		began := time.Now()
		if err := p.Fleet.BulkLoad(ctx, fleet.Organization{ID: p.org, Name: "Bench"}, size); err != nil {
			return nil, err
		}
		rows = append(rows, row{fmt.Sprintf("fleet: %d vehicles and %d rides made up", size.Vehicles, size.Rides), rate(perSecond(size.Rides, time.Since(began))), "", "", ""})
		// Restart, to free the memory of the import.
		if err := p.stop(); err != nil {
			return nil, err
		}
		if p, err = b.open(ctx, data, false); err != nil {
			return nil, err
		}
	} else if err := p.Fleet.PackRollups(ctx, p.org); err != nil { // the rides of the last run, as maintenance would
		return nil, err
	}
	key, err := p.createKey(ctx, apikey.Fleet)
	if err != nil {
		return nil, err
	}
	f := &fleetLoad{program: p, key: key, size: size}
	if err := f.readPlaces(ctx); err != nil {
		return nil, err
	}
	for _, measure := range []func(ctx context.Context, b *bench) ([]row, error){f.space, f.analytics, f.export, f.rides, f.bulk} {
		got, err := measure(ctx, b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	return rows, p.stop()
}

// fleetLoad is a client of the fleet's API with the ids of its records.
type fleetLoad struct {
	*program
	key  string
	size fleet.SeedSize

	// Existing records.
	subaccountID  string
	vehicleTypeID string
	places        []place // of vehicles
	free          []string
	customers     []string
}

type place struct{ Lat, Lng float64 }

func (f *fleetLoad) request(ctx context.Context, method, path, body string, headers ...string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, f.url+fleetBase+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+f.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r, nil
}

// readPlaces reads the free vehicles and customers and the vehicles' positions.
func (f *fleetLoad) readPlaces(ctx context.Context) error {
	each := func(path string, fn func(line []byte) error) error {
		r, err := f.request(ctx, http.MethodGet, path, "", "Accept", "application/x-ndjson")
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			return fmt.Errorf("%s: %s: %s", path, resp.Status, text)
		}
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if err := fn(lines.Bytes()); err != nil {
				return err
			}
		}
		return lines.Err()
	}
	err := each("/vehicles", func(line []byte) error {
		var v fleet.Vehicle
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		if v.Location == nil {
			return nil
		}
		f.places = append(f.places, place{v.Location.Lat, v.Location.Lng})
		if f.subaccountID == "" {
			f.subaccountID, f.vehicleTypeID = v.SubaccountID, v.VehicleTypeID
		}
		// One subaccount's, of a type without requirements, without a tracker, so that it
		// never counts as silent.
		if v.State == fleet.Available && v.LastReportedAt.Std().IsZero() && v.SubaccountID == f.subaccountID && v.FormFactor != "moped" && v.BatteryPercent != nil && *v.BatteryPercent > 50 {
			f.free = append(f.free, v.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return each("/customers?status=active&subaccount_id="+f.subaccountID, func(line []byte) error {
		var c fleet.Customer
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		if c.OpenRideID == "" && c.BirthDate < "1990" {
			f.customers = append(f.customers, c.ID)
		}
		return nil
	})
}

// latencies requests n pages and returns the latency of each.
func (f *fleetLoad) latencies(ctx context.Context, n int, path func(i int) string) ([]time.Duration, error) {
	var took []time.Duration
	for i := range n {
		r, err := f.request(ctx, http.MethodGet, path(i), "")
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if _, _, err := exchange(http.DefaultClient, r); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// space measures searches by position, from one client.
func (f *fleetLoad) space(ctx context.Context, b *bench) ([]row, error) {
	random := rand.New(rand.NewPCG(1, 2))
	filters := []string{"limit=20", "limit=100", "state=available", "state=missing", "battery_percent[lt]=20", "sort=-battery_percent", "vehicle_type_id=" + f.vehicleTypeID, "sort=code"}
	box := func(path string) func(filter string) string {
		return func(filter string) string {
			at := f.places[random.IntN(len(f.places))]
			half := 0.00025 * float64(int(1)<<random.IntN(11)) // degrees
			return fmt.Sprintf("%s?bbox=%.6f,%.6f,%.6f,%.6f&%s", path, at.Lng-half, at.Lat-half, at.Lng+half, at.Lat+half, filter)
		}
	}
	var rows []row
	for _, search := range []struct {
		what, aim string
		filters   []string
		path      func(filter string) string
	}{
		{"vehicles in a box of 50 m to 50 km", "≤ 10 ms", filters, box("/vehicles")},
		{"vehicles within 50 m to 50 km", "≤ 10 ms", filters, func(filter string) string {
			at := f.places[random.IntN(len(f.places))]
			return fmt.Sprintf("/vehicles?lat=%.6f&lng=%.6f&radius_meters=%d&%s", at.Lat, at.Lng, min(50_000, 50<<random.IntN(11)), filter)
		}},
		{"rides that began in a box of 50 m to 50 km, by time", "≤ 15 ms",
			[]string{"limit=20", "limit=100", "status=active", "payment_status=refunded", "sort=created_at", "sort=started_at", "sort=-started_at"}, box("/rides")},
		{"… within 92 days, by other keys", "≤ 150 ms",
			[]string{"sort=-total_amount", "sort=duration_seconds", "sort=-updated_at", "sort=ended_at", "sort=-total_amount&payment_status=refunded", "sort=-total_amount&status=completed"},
			func(filter string) string {
				from := time.Now().UTC().AddDate(0, 0, -92-random.IntN(f.size.Days-92))
				return box("/rides")(filter) + "&started_at[gte]=" + from.Format(time.RFC3339) + "&started_at[lt]=" + from.AddDate(0, 0, 92).Format(time.RFC3339)
			}},
	} {
		measured, err := f.slowest(ctx, b, search.what, search.aim, search.filters, search.path)
		if err != nil {
			return nil, err
		}
		rows = append(rows, measured)
	}
	return rows, nil
}

// slowest measures the 99th percentile of lists with each filter and returns the
// greatest.
func (f *fleetLoad) slowest(ctx context.Context, b *bench, what, aim string, filters []string, path func(filter string) string) (row, error) {
	worst, which := time.Duration(0), ""
	for _, filter := range filters {
		n := b.scale(500)
		// As many requests before, to warm the file cache.
		took, err := f.latencies(ctx, 2*n, func(int) string { return path(filter) })
		if err != nil {
			return row{}, err
		}
		took = took[n:]
		if d := quantile(took, 0.99); d > worst {
			worst, which = d, filter
		}
	}
	return row{fmt.Sprintf("%s: slowest filter's p99 (%s)", what, which), ms(worst), "", "", aim}, nil
}

// analytics measures a year by day.
func (f *fleetLoad) analytics(ctx context.Context, b *bench) ([]row, error) {
	to := time.Now().UTC().AddDate(0, 0, 1)
	span := "?timezone=Europe/Berlin&from=" + to.AddDate(-1, 0, 0).Format(time.DateOnly) + "&to=" + to.Format(time.DateOnly)
	var rows []row
	for _, q := range []struct{ what, path string }{
		{"rides of a year by day", "/analytics/rides" + span},
		{"revenue of a year by day", "/analytics/revenue" + span},
		{"revenue of a year by day and vehicle type", "/analytics/revenue" + span + "&group_by=vehicle_type_id"},
	} {
		took, err := f.latencies(ctx, 20, func(int) string { return q.path })
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{q.what + ": median", ms(quantile(took, 0.5)), "", "", "≤ 200 ms"})
	}
	return rows, nil
}

// export measures the rate of an export of all rides, and its additional memory.
func (f *fleetLoad) export(ctx context.Context, b *bench) ([]row, error) {
	debug.FreeOSMemory()
	peak := watchMemory()
	r, err := f.request(ctx, http.MethodGet, "/rides", "", "Accept", "application/x-ndjson")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("export: " + resp.Status)
	}
	lines, buffer := 0, make([]byte, 1<<20)
	for {
		n, err := resp.Body.Read(buffer)
		lines += bytes.Count(buffer[:n], []byte{'\n'})
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	took, used := time.Since(began), peak()
	if lines < f.size.Rides {
		return nil, fmt.Errorf("the export has %d of %d rides", lines, f.size.Rides)
	}
	return []row{
		{"export of all rides as NDJSON", rate(perSecond(lines, took)), "", "", "≥ 100,000/s"},
		{"… peak memory of server and client", fmt.Sprintf("%d MB", used/1_000_000), "", "", "flat"},
	}, nil
}

// rides measures starts and ends, each with another vehicle and customer.
func (f *fleetLoad) rides(ctx context.Context, b *bench) ([]row, error) {
	const clients = 64
	n := min(b.scale(10_000), len(f.free), len(f.customers))
	var done atomic.Int64
	took, latencies, err := load(n, clients, func(c *http.Client, i int) error {
		r, err := f.request(ctx, http.MethodPost, "/rides", `{"customer_id":"`+f.customers[i]+`","vehicle_id":"`+f.free[i]+`"}`)
		if err != nil {
			return err
		}
		body, _, err := exchange(c, r)
		if err != nil {
			if strings.Contains(err.Error(), "ride_start_not_allowed") {
				return nil // it stands in a zone without starts
			}
			return err
		}
		var ride struct{ ID string }
		if err := json.Unmarshal(body, &ride); err != nil {
			return err
		}
		if r, err = f.request(ctx, http.MethodPut, "/rides/"+ride.ID, `{"status":"completed","accept_out_of_zone_fee":true}`); err != nil {
			return err
		}
		if _, _, err = exchange(c, r); err != nil && !strings.Contains(err.Error(), "ride_end_not_allowed") {
			return err
		}
		done.Add(2)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if done.Load() < int64(n) {
		return nil, fmt.Errorf("only %d of %d rides could be started", done.Load()/2, n)
	}
	return []row{
		{fmt.Sprintf("rides started and ended, %d clients, %d stored", clients, f.size.Rides), rate(perSecond(int(done.Load()), took)), "", "", "≥ 2,000/s"},
		{"… latency of a start and its end p50, p99", ms(quantile(latencies, 0.5)) + ", " + ms(quantile(latencies, 0.99)), "", "", ""},
	}, nil
}

// bulk measures an import.
func (f *fleetLoad) bulk(ctx context.Context, b *bench) ([]row, error) {
	n := b.scale(10_000)
	var body strings.Builder
	for i := range n {
		at := f.places[i%len(f.places)]
		fmt.Fprintf(&body, `{"subaccount_id":"%s","code":"NEW-%d-%d","vehicle_type_id":"%s","state":"available","location":{"lat":%.6f,"lng":%.6f},"battery_percent":80,"device_id":"imei-new-%d-%d"}`+"\n",
			f.subaccountID, len(f.places), i, f.vehicleTypeID, at.Lat, at.Lng, len(f.places), i)
	}
	r, err := f.request(ctx, http.MethodPost, "/vehicles", body.String(), "Content-Type", "application/x-ndjson")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	answer, _, err := exchange(http.DefaultClient, r)
	took := time.Since(began)
	if err != nil {
		return nil, err
	}
	if want := fmt.Sprintf(`{"summary":{"created":%d,"failed":0}}`, n); !strings.Contains(string(answer), want) {
		return nil, fmt.Errorf("the import ended with %.300s", answer[max(0, len(answer)-300):])
	}
	return []row{{fmt.Sprintf("import of %d vehicles", n), ms(took), "", "", "≤ 2,000 ms"}}, nil
}
