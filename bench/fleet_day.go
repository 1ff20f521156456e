package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

const (
	reportEvery = 5 * time.Second
	// healTime is the time after which a clock that is behind is corrected, with some calls to spare.
	healTime = 10*time.Minute + 8*reportEvery
	// clockError is the greatest error of corrected times: the tolerance of the correction, the drift
	// of two calls, and the latency of the call that it was measured by.
	clockError = 45 * time.Second
	rideTime   = time.Minute
)

// fleetDay runs vehicles that all report every five seconds, by gateways, to a server that is a
// process of its own, beside rides that start and end and beside reads. Some trackers have wrong
// clocks. Afterwards all reports must be in the tracks, and all clocks corrected.
func fleetDay(ctx context.Context, b *bench, e engine) ([]row, error) {
	s, err := b.newStore(ctx, e, "fleet-day")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	d := &day{length: 5 * b.duration, rounds: int(5 * b.duration / reportEvery), random: rand.New(rand.NewPCG(1, 2))}
	d.every = reportEvery
	if b.short { // the same number of reports a second, from fewer vehicles
		d.length, d.every = b.duration, 100*time.Millisecond
		d.rounds = int(d.length / d.every)
	}
	if err := d.prepare(ctx, b, s); err != nil {
		return nil, err
	}
	out, err := b.serve(ctx, s, "web,worker")
	if err != nil {
		return nil, err
	}
	defer out.stop()
	d.url = out.url
	if err := d.run(ctx, b.short); err != nil {
		return nil, err
	}
	if err := d.checkClocks(ctx, b.short); err != nil {
		return nil, err
	}
	if err := out.stop(); err != nil {
		return nil, err
	}
	stored, err := d.checkTracks(ctx, b, s)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d vehicles report every %s for %s by %d gateways, beside %d rides: reports accepted, all of them stored",
		len(d.vehicles), d.every, d.length, len(d.gateways), d.ended)
	rows := []row{
		{What: what + e.suffix(), Got: fmt.Sprintf("%d, %s", stored, rate(float64(d.timely)/d.took.Seconds())), Aim: "no report lost"},
		latencyRow("… call of a gateway p50, p99", d.calls, ""),
		{What: "… a call begins late, because the one before is not answered, at most", Got: ms(d.late)},
		{What: "… wrong clocks of trackers, all corrected", Got: strconv.Itoa(d.wrong)},
		latencyRow("… start of a ride p50, p99", d.starts, ""),
		latencyRow("… end of a ride p50, p99", d.ends, ""),
	}
	for _, r := range d.reads {
		rows = append(rows, latencyRow("… "+r.what+" p50, p99", r.took, r.aim))
	}
	return rows, nil
}

// day is the load of fleetDay.
type day struct {
	length   time.Duration
	every    time.Duration
	rounds   int
	random   *rand.Rand // of the preparation
	url, key string
	system   string // of the public feed
	vehicles []*tracker
	gateways [][]*tracker
	riders   []string // customers
	rentable []*tracker
	reads    []*dayRead
	start    time.Time // of the first round

	mu           sync.Mutex
	calls        []time.Duration
	late         time.Duration // that a call began after its time, at most
	starts, ends []time.Duration
	ended        int           // rides
	timely       int           // reports stored in the rounds
	took         time.Duration // of the rounds
	wrong        int           // clocks
}

// tracker is the tracker of a vehicle.
type tracker struct {
	id       string
	lat, lng int64 // millionths, at the first round
	moving   bool
	ahead    time.Duration // of its clock
	drift    time.Duration // that it gains in a round

	last   sighting // of the last report sent
	kept   int      // reports that are accepted or part of the track
	failed int      // rejected, because of its clock
}

// sighting is a position at a time.
type sighting struct {
	at       time.Time
	lat, lng int64
}

// at returns the position of a round: a circle at 18 km/h, or the scatter of a parked vehicle.
func (t *tracker) at(round int) (lat, lng int64) {
	if !t.moving {
		return t.lat + int64(round%3), t.lng + int64(round%2)
	}
	angle := float64(round) / 8
	return t.lat + int64(1800*math.Sin(angle)), t.lng + int64(2900*(math.Cos(angle)-1))
}

// clock returns the time of its clock in a round.
func (t *tracker) clock(now time.Time, round int) time.Time {
	return now.Add(t.ahead + time.Duration(round)*t.drift)
}

// dayRead is a kind of read with its latencies.
type dayRead struct {
	what, aim string
	path      func(random *rand.Rand) string // from the origin
	took      []time.Duration
}

// prepare makes up the fleet, in this process.
func (d *day) prepare(ctx context.Context, b *bench, s *store) error {
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return err
	}
	defer func() { p.stop() }()
	size := fleet.SeedSize{Vehicles: b.scale(20_000), Customers: b.scale(20_000), Rides: b.scale(200_000), Days: 92}
	if err := p.Fleet.BulkLoad(ctx, fleet.Organization{ID: p.org, Name: "Bench"}, size); err != nil {
		return err
	}
	if d.key, err = p.createKey(ctx, apikey.Fleet); err != nil {
		return err
	}
	f := &fleetLoad{program: p, key: d.key, size: size}
	if err := f.readPlaces(ctx); err != nil {
		return err
	}
	d.riders = f.customers
	subs, err := p.Fleet.Subaccounts(ctx, p.Fleet.DB, p.org)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		if sub.GBFS.Enabled {
			d.system = string(sub.GBFS.SystemID)
		}
	}
	if err := d.readVehicles(ctx, p, f); err != nil {
		return err
	}
	d.addReads(f)
	return p.stop()
}

// readVehicles gives each vehicle a tracker, some of them with a wrong clock, and each tracker a
// gateway.
func (d *day) readVehicles(ctx context.Context, p *program, f *fleetLoad) error {
	free := make(map[string]bool)
	for _, id := range f.free {
		free[id] = true
	}
	err := p.Fleet.EachVehicle(ctx, p.org, fleet.VehicleQuery{}, func(r *fleet.Record) error {
		var v fleet.Vehicle
		if err := json.Unmarshal(r.JSON, &v); err != nil {
			return err
		}
		at := f.places[len(d.vehicles)%len(f.places)]
		if v.Location != nil {
			at = place{v.Location.Lat, v.Location.Lng}
		}
		t := &tracker{id: v.ID, lat: geo.Millionths(at.Lat), lng: geo.Millionths(at.Lng), moving: v.State == fleet.OnTrip}
		d.vehicles = append(d.vehicles, t)
		if free[t.id] && len(d.rentable) < len(d.riders) {
			d.rentable = append(d.rentable, t)
			t.moving = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	clocks := []tracker{
		{ahead: 10 * time.Minute}, {ahead: 24 * time.Hour}, {ahead: -10 * time.Minute}, {ahead: -24 * time.Hour},
		{ahead: 6 * time.Minute, drift: d.every / 6},
	}
	for i, t := range d.vehicles {
		if i%100 == 50 {
			c := clocks[i/100%len(clocks)]
			t.ahead, t.drift = c.ahead, c.drift
			d.wrong++
		}
	}
	d.random.Shuffle(len(d.vehicles), func(i, j int) { d.vehicles[i], d.vehicles[j] = d.vehicles[j], d.vehicles[i] })
	for rest := d.vehicles; len(rest) > 0; {
		n := min(len(rest), 50+d.random.IntN(451))
		d.gateways, rest = append(d.gateways, rest[:n]), rest[n:]
	}
	return nil
}

// addReads adds the reads, with the limits of the benchmark "fleet" where it has them.
func (d *day) addReads(f *fleetLoad) {
	box := func(path string) func(random *rand.Rand) string {
		return func(random *rand.Rand) string {
			at := f.places[random.IntN(len(f.places))]
			half := 0.00025 * float64(int(1)<<random.IntN(11)) // degrees
			return fmt.Sprintf("%s%s?bbox=%.6f,%.6f,%.6f,%.6f&limit=100", fleetBase, path, at.Lng-half, at.Lat-half, at.Lng+half, at.Lat+half)
		}
	}
	d.reads = []*dayRead{
		{what: "a vehicle", path: func(random *rand.Rand) string {
			return fleetBase + "/vehicles/" + d.vehicles[random.IntN(len(d.vehicles))].id
		}},
		{what: "the last changed vehicles", path: func(*rand.Rand) string { return fleetBase + "/vehicles?limit=100&sort=-updated_at" }},
		{what: "vehicles in a box of 50 m to 50 km", aim: "p99 ≤ 10 ms", path: box("/vehicles")},
		{what: "vehicles within 50 m to 50 km", aim: "p99 ≤ 10 ms", path: func(random *rand.Rand) string {
			at := f.places[random.IntN(len(f.places))]
			return fmt.Sprintf("%s/vehicles?lat=%.6f&lng=%.6f&radius_meters=%d&limit=100", fleetBase, at.Lat, at.Lng, min(50_000, 50<<random.IntN(11)))
		}},
		{what: "rides that began in a box of 50 m to 50 km", aim: "p99 ≤ 15 ms", path: box("/rides")},
	}
	if d.system != "" {
		d.reads = append(d.reads, &dayRead{what: "vehicles of the public feed", path: func(*rand.Rand) string { return "/gbfs/v3/" + d.system + "/vehicle_status.json" }})
	}
}

// run reports, rides and reads until the rounds are over. Clocks that are behind then report until
// they are corrected, unless short.
func (d *day) run(ctx context.Context, short bool) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	d.start = time.Now().Add(100 * time.Millisecond)
	errs := make(chan error, len(d.gateways)+len(d.reads)+1)
	var reporting, others sync.WaitGroup
	for i, g := range d.gateways {
		offset := time.Duration(i) * d.every / time.Duration(len(d.gateways))
		reporting.Go(func() { errs <- d.report(ctx, g, offset, 0, d.rounds, true) })
	}
	for i, r := range d.reads {
		others.Go(func() { errs <- d.read(running, r, rand.New(rand.NewPCG(3, uint64(i)))) })
	}
	others.Go(func() { errs <- d.ride(running) })
	reporting.Wait()
	d.took = time.Since(d.start)
	for _, t := range d.vehicles {
		d.timely += t.kept
	}
	stop()
	others.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	if short {
		return nil
	}
	var behind []*tracker
	for _, t := range d.vehicles {
		if t.ahead < 0 {
			behind = append(behind, t)
		}
	}
	return d.report(ctx, behind, 0, d.rounds, max(d.rounds, int(healTime/d.every)), false)
}

// client is a client with a connection of its own.
func client() *http.Client { return &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}} }

// report sends the reports of a gateway in rounds.
func (d *day) report(ctx context.Context, gateway []*tracker, offset time.Duration, from, until int, timed bool) error {
	c := client()
	defer c.CloseIdleConnections()
	var body bytes.Buffer
	var took []time.Duration
	var late time.Duration
	for round := from; round < until; round++ {
		due := d.start.Add(offset + time.Duration(round)*d.every)
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		late = max(late, time.Since(due))
		body.Reset()
		for _, t := range gateway {
			lat, lng := t.at(round)
			measured := due
			if t.ahead != 0 { // else a call that is late would look like a better clock
				measured = time.Now()
			}
			t.last = sighting{measured.Truncate(time.Millisecond), lat, lng}
			fmt.Fprintf(&body, `{"vehicle":{"id":"%s"},"reported_at":"%s","location":{"lat":%.6f,"lng":%.6f,"accuracy_meters":5},"speed_kph":%d,"battery_percent":%d}`+"\n",
				t.id, t.clock(measured, round).UTC().Format("2006-01-02T15:04:05.000Z"), geo.Degrees(lat), geo.Degrees(lng), round%3, 90-round/30)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+fleetBase+"/telemetry", bytes.NewReader(body.Bytes()))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+d.key)
		r.Header.Set("Content-Type", "application/x-ndjson")
		began := time.Now()
		answer, _, err := exchange(c, r)
		if err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := countOutcomes(gateway, answer); err != nil {
			return err
		}
	}
	if timed {
		d.mu.Lock()
		d.calls = append(d.calls, took...)
		d.late = max(d.late, late)
		d.mu.Unlock()
	}
	return nil
}

// countOutcomes counts the outcomes of a gateway's reports. Only wrong clocks may be rejected.
func countOutcomes(gateway []*tracker, answer []byte) error {
	var got struct {
		Accepted, Ignored, Rejected int
		Results                     []struct {
			Index        int
			Status, Code string
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return err
	}
	if got.Accepted+got.Ignored+got.Rejected != len(gateway) || got.Ignored+got.Rejected != len(got.Results) {
		return fmt.Errorf("%d reports have the outcome %.300s", len(gateway), answer)
	}
	for _, t := range gateway {
		t.kept++
	}
	for _, r := range got.Results {
		t := gateway[r.Index]
		switch {
		case r.Code == "out_of_order": // part of the track
		case r.Code == "in_future" && t.ahead > 0:
			t.kept--
			t.failed++
		default:
			return fmt.Errorf("a report of vehicle %s, whose clock is %s ahead, is %s: %s", t.id, t.ahead, r.Status, r.Code)
		}
	}
	return nil
}

// read repeats a read until ctx ends, about ten times a second. The pauses are random, so that reads
// of different kinds do not come together. One goroutine writes the request and reads the response,
// and does not unpack it: on busy processors each goroutine of a [http.Client] waits for its turn.
func (d *day) read(ctx context.Context, kind *dayRead, random *rand.Rand) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		return atEnd(ctx, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in := bufio.NewReader(conn)
	for ctx.Err() == nil {
		if err := pause(ctx, time.Duration(random.ExpFloat64()*float64(100*time.Millisecond))); err != nil {
			return atEnd(ctx, err)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+kind.path(random), nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+d.key)
		r.Header.Set("Accept-Encoding", "gzip")
		began := time.Now()
		if err := readOnce(conn, in, r); err != nil {
			return atEnd(ctx, fmt.Errorf("%s: %w", kind.what, err))
		}
		kind.took = append(kind.took, time.Since(began))
	}
	return nil
}

// readOnce sends a request and reads its response, which must have status 200.
func readOnce(conn net.Conn, in *bufio.Reader, r *http.Request) error {
	if err := r.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return resp.Body.Close()
}

// atEnd returns err unless the load is over.
func atEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ride starts a ride twenty times a second, and ends each after rideTime.
func (d *day) ride(ctx context.Context) error {
	c := client()
	defer c.CloseIdleConnections()
	type open struct {
		id  string
		end time.Time
	}
	var rides []open
	length := min(rideTime, d.length/2)
	send := func(method, path, body string, refusal string) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, method, d.url+fleetBase+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+d.key)
		r.Header.Set("Content-Type", "application/json")
		answer, _, err := exchange(c, r)
		if err != nil && bytes.Contains([]byte(err.Error()), []byte(refusal)) {
			return nil, nil // in a zone that does not allow it
		}
		return answer, err
	}
	for i := 0; ctx.Err() == nil; i++ {
		if i < len(d.rentable) {
			began := time.Now()
			answer, err := send(http.MethodPost, "/rides", `{"customer_id":"`+d.riders[i]+`","vehicle_id":"`+d.rentable[i].id+`"}`, "ride_start_not_allowed")
			if err != nil {
				return atEnd(ctx, err)
			}
			if answer != nil {
				var ride struct{ ID string }
				if err := json.Unmarshal(answer, &ride); err != nil {
					return err
				}
				d.starts = append(d.starts, time.Since(began))
				rides = append(rides, open{ride.ID, time.Now().Add(length)})
			}
		}
		for len(rides) > 0 && time.Now().After(rides[0].end) {
			began := time.Now()
			answer, err := send(http.MethodPut, "/rides/"+rides[0].id, `{"status":"completed","accept_out_of_zone_fee":true}`, "ride_end_not_allowed")
			if err != nil {
				return atEnd(ctx, err)
			}
			if answer != nil {
				d.ends = append(d.ends, time.Since(began))
				d.ended++
			}
			rides = rides[1:]
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return atEnd(ctx, err)
		}
	}
	return nil
}

// checkClocks reads the vehicles whose trackers have wrong clocks: each must be where and when it
// was last, unless a short run did not last long enough for its clock.
func (d *day) checkClocks(ctx context.Context, short bool) error {
	c := client()
	defer c.CloseIdleConnections()
	for _, t := range d.vehicles {
		if t.ahead == 0 || short && t.ahead < 0 {
			continue
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+fleetBase+"/vehicles/"+t.id, nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+d.key)
		answer, _, err := exchange(c, r)
		if err != nil {
			return err
		}
		var v fleet.Vehicle
		if err := json.Unmarshal(answer, &v); err != nil {
			return err
		}
		off := v.LastReportedAt.Std().Sub(t.last.at)
		if v.Location == nil || geo.Millionths(v.Location.Lat) != t.last.lat || geo.Millionths(v.Location.Lng) != t.last.lng || off.Abs() > clockError || t.failed > 1 {
			return fmt.Errorf("the clock %s ahead of vehicle %s is not corrected: it is at %v at %s, %s off, after %d rejected reports",
				t.ahead, t.id, v.Location, v.LastReportedAt.Std(), off, t.failed)
		}
	}
	return nil
}

// checkTracks compares the tracks with the reports that the trackers sent, and returns their number.
func (d *day) checkTracks(ctx context.Context, b *bench, s *store) (stored int, err error) {
	p, err := b.openOn(ctx, s, false)
	if err != nil {
		return 0, err
	}
	defer func() { err = cmp.Or(err, p.stop()) }()
	err = p.Fleet.DB.Read(ctx, func(tx *db.Tx) error {
		for _, t := range d.vehicles {
			n, err := d.checkTrack(ctx, p, tx, t)
			if err != nil {
				return err
			}
			stored += n
		}
		return nil
	})
	return stored, err
}

// checkTrack compares the track of a vehicle with the reports of its tracker: all of them, at the times
// of its clock if that was right.
func (d *day) checkTrack(ctx context.Context, p *program, tx *db.Tx, t *tracker) (n int, err error) {
	from, until := d.start.Add(-25*time.Hour), d.start.Add(26*time.Hour)
	var reports []track.Report
	err = p.Fleet.EachTrackReport(ctx, tx, p.org, t.id, from, until, func(r *track.Report) error {
		reports = append(reports, *r)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if len(reports) != t.kept {
		return 0, fmt.Errorf("%d reports of vehicle %s were accepted and %d are stored", t.kept, t.id, len(reports))
	}
	if t.ahead != 0 {
		return len(reports), nil
	}
	for round := range reports {
		r := &reports[round]
		lat, lng := t.at(round)
		if gotLat, _ := r.Get(track.Lat); gotLat != lat {
			return 0, fmt.Errorf("report %d of vehicle %s is at latitude %d, want %d", round, t.id, gotLat, lat)
		}
		if gotLng, _ := r.Get(track.Lng); gotLng != lng {
			return 0, fmt.Errorf("report %d of vehicle %s is at longitude %d, want %d", round, t.id, gotLng, lng)
		}
		if round > 0 && r.Time().Sub(reports[round-1].Time()).Round(10*time.Millisecond) != d.every {
			return 0, fmt.Errorf("report %d of vehicle %s is at %s, after %s", round, t.id, r.Time(), reports[round-1].Time())
		}
	}
	return len(reports), nil
}
