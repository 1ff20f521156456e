package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// fleetReceiver stores the deliveries of a fleet's events, by vehicle, and refuses some at random.
type fleetReceiver struct {
	mu     sync.Mutex
	first  map[string][]string // ids of events in the order of their first acceptance, by vehicle
	seen   map[string]bool     // by id of the event
	counts map[string]int      // by name
	twice  int
}

func (f *fleetReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID, Event string
		Data      struct {
			Ride struct {
				VehicleID string `json:"vehicle_id"`
			}
			Vehicle struct{ ID string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return
	}
	if rand.IntN(50) == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[body.ID] {
		f.twice++
		return
	}
	f.seen[body.ID] = true
	f.counts[body.Event]++
	vehicle := body.Data.Ride.VehicleID
	if vehicle == "" {
		vehicle = body.Data.Vehicle.ID
	}
	f.first[vehicle] = append(f.first[vehicle], body.ID)
}

// count returns the number of events with a name.
func (f *fleetReceiver) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

// TestFleetEventsCrash kills the server at random times while rides of several vehicles start and
// end. Each event must reach the webhook at least once, and those of a vehicle in their order.
// KICKSTAND_TEST_KILLS sets the number of kills.
func TestFleetEventsCrash(t *testing.T) {
	standard := 3
	if testing.Short() {
		standard = 1
	}
	kills := testNumber(t, "KICKSTAND_TEST_KILLS", standard)
	p := newPatient(t)
	got := &fleetReceiver{first: map[string][]string{}, seen: map[string]bool{}, counts: map[string]int{}}
	receiver := httptest.NewServer(got)
	t.Cleanup(receiver.Close)
	p.start()
	p.command("org", "create", "--name=Crash", "--plan=business", "--fleet-rate-limit=1000000")
	p.command("user", "create", "--email=admin@example.com", "--password=crash-test-password", "--org=crash", "--role=admin")
	p.command("fleet", "seed", "--org=crash", "--environment=live")
	c := browser(t)
	call(t, c, p.url, "auth.signInWithPassword", map[string]any{"email": "admin@example.com", "password": "crash-test-password"}, nil)
	call(t, c, p.url, "webhooks.create", map[string]any{"url": receiver.URL, "source": "fleet", "events": []string{"*"}, "secret": p.secret}, nil)
	riders := p.riders(6)

	load, stopLoad := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for _, r := range riders {
		writers.Go(func() { r.ride(load) })
	}
	for range kills {
		select { // deliberately random
		case <-time.After(time.Duration(rand.Int64N(int64(400 * time.Millisecond)))):
		case <-t.Context().Done():
		}
		p.kill()
		p.start()
	}
	for range poll(t, time.Minute) { // the kills may all come before the end of the first ride
		if got.count("ride.completed") > 0 {
			break
		}
	}
	stopLoad()
	writers.Wait()
	fleetDB := p.fleetDatabase()
	for range poll(t, 3*time.Minute) {
		var waiting, left int64 // in this order: events have their jobs before they count as relayed
		if err := fleetDB.QueryRow(t.Context(), "SELECT count(*) FROM event_logs WHERE sequence > relayed").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if err := p.watch.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE kind = 'webhook-fleet'").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 && waiting == 0 {
			break
		}
	}
	p.kill()
	want := map[string][]string{}
	total := 0
	rows, err := db.All(t.Context(), fleetDB, func(row db.Row) (pair [2]string, err error) {
		err = row.Scan(&pair[0], &pair[1])
		return pair, err
	}, "SELECT subject, id FROM events ORDER BY sequence")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		want[r[0]] = append(want[r[0]], r[1])
		total++
	}
	for vehicle, ids := range want {
		came := got.first[vehicle]
		same := 0
		for same < min(len(came), len(ids)) && came[same] == ids[same] {
			same++
		}
		if same < len(ids) || len(came) > len(ids) {
			t.Errorf("vehicle %s: %d of %d events came, the first %d in order", vehicle, len(came), len(ids), same)
		}
	}
	if total == 0 || got.counts["ride.started"] == 0 || got.counts["ride.completed"] == 0 {
		t.Errorf("%d events: %v", total, got.counts)
	}
	t.Logf("%d kills, %d events of %d vehicles, %d came twice: %v", kills, total, len(want), got.twice, got.counts)
	p.command("verify")
}

// fleetDatabase opens the database of production beside the server.
func (p *patient) fleetDatabase() *db.DB {
	p.t.Helper()
	url, o := p.databaseURL, db.Options{Namespace: "fleet_live"}
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		url, o = "sqlite:"+filepath.Join(filepath.Dir(path), "fleet-live.db"), db.Options{}
	}
	d, err := db.Open(p.t.Context(), url, o)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { d.Close() })
	return d
}

// crashRider rides one vehicle again and again.
type crashRider struct {
	p                        *patient
	key, vehicleID, customer string
}

// riders returns riders of different vehicles, each with a customer.
func (p *patient) riders(n int) []*crashRider {
	p.t.Helper()
	var made struct{ Key string }
	command(p.t, &made, append([]string{"key", "create", "--org=crash", "--service=fleet", "--environment=live", "--name=Crash", "--level=admin"}, p.args...)...)
	list := func(path string) (ids []string) {
		p.t.Helper()
		var page struct {
			Data []struct {
				ID     string
				OpenID string `json:"open_ride_id"`
				Form   string `json:"form_factor"`
				Sub    string `json:"subaccount_id"`
			}
		}
		r := crashRider{p: p, key: made.Key}
		if status := r.call(p.t.Context(), "GET", path, nil, &page); status != 200 {
			p.t.Fatalf("%s was answered %d", path, status)
		}
		for _, d := range page.Data {
			if d.OpenID == "" && d.Form != "car" {
				ids = append(ids, d.Sub+" "+d.ID)
			}
		}
		return ids
	}
	vehicles, customers := list("/vehicles?state=available&limit=100"), list("/customers?status=active&limit=100")
	var out []*crashRider
	for _, v := range vehicles {
		sub, id, _ := strings.Cut(v, " ")
		i := slices.IndexFunc(customers, func(c string) bool { return strings.HasPrefix(c, sub+" ") })
		if i < 0 || len(out) == n {
			continue
		}
		_, customer, _ := strings.Cut(customers[i], " ")
		customers = slices.Delete(customers, i, i+1)
		out = append(out, &crashRider{p, made.Key, id, customer})
	}
	if len(out) < 2 {
		p.t.Fatalf("only %d riders", len(out))
	}
	return out
}

// call sends a request and returns the status; 0 without an answer.
func (r *crashRider) call(ctx context.Context, method, path string, body, into any) int {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			r.p.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.p.url+"/v1"+path, bytes.NewReader(text))
	if err != nil {
		r.p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := (&http.Client{Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if into != nil && res.StatusCode < 300 {
		if json.NewDecoder(res.Body).Decode(into) != nil {
			return 0
		}
		return res.StatusCode
	}
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// ride starts, pauses, resumes and ends rides until ctx ends. A lost answer is followed by the next
// step that the vehicle's state permits.
func (r *crashRider) ride(ctx context.Context) {
	for ctx.Err() == nil {
		var v struct {
			RideID string `json:"current_ride_id"`
		}
		if r.call(ctx, "GET", "/vehicles/"+r.vehicleID, nil, &v) != 200 {
			r.pause(ctx)
			continue
		}
		if v.RideID == "" {
			r.call(ctx, "POST", "/rides", map[string]string{"vehicle_id": r.vehicleID, "customer_id": r.customer}, nil)
			continue
		}
		r.pause(ctx)
		status := []string{"paused", "active", "completed"}[rand.IntN(3)]
		change := map[string]string{"status": status}
		if status == "completed" {
			change["end_reason"] = "operator"
		}
		if r.call(ctx, "PUT", fmt.Sprintf("/rides/%s", v.RideID), change, nil) == 429 {
			r.pause(ctx)
		}
	}
}

func (r *crashRider) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}
