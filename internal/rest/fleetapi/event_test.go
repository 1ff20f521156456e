package fleetapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest/fleetapi"
)

// streamed is a server-sent event.
type streamed struct{ id, name, data string }

// eventStream is an open stream of a test.
type eventStream struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
	id     string // last id
	check  func(name string, body []byte)
}

// openStream opens a stream and reads its start, after which all events are in it.
func openStream(t *testing.T, server *httptest.Server, path, token, after string) *eventStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	req, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s was answered %s, %s", path, res.Status, res.Header.Get("Content-Type"))
	}
	s := &eventStream{t: t, lines: bufio.NewScanner(res.Body), cancel: cancel}
	s.skip()
	return s
}

// skip reads until the next blank line.
func (s *eventStream) skip() {
	for s.lines.Scan() && s.lines.Text() != "" {
		if id, ok := strings.CutPrefix(s.lines.Text(), "id: "); ok {
			s.id = id
		}
	}
}

// next returns the next event.
func (s *eventStream) next() (e streamed) {
	s.t.Helper()
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch {
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		case name == "" && e.name != "":
			if s.check != nil {
				s.check(e.name, []byte(e.data))
			}
			return e
		}
	}
	s.t.Fatalf("the stream ended: %v", s.lines.Err())
	return e
}

func (s *eventStream) names(n int) (names []string) {
	s.t.Helper()
	for range n {
		names = append(names, s.next().name)
	}
	return names
}

// A stream has the events that its key may read, in order, and resumes after the last one that the
// client got.
func TestEventStream(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	server := httptest.NewServer(r.live.api.Wrap(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	admin := apikey.Permissions{Level: apikey.Admin}
	token := r.live.key(ours, admin)

	all := openStream(t, server, "/v1/events", token, "")
	all.check = p.CheckWebhook
	rides := openStream(t, server, "/v1/events?event=ride.started&event=zone.created", r.live.key(ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"rides": {read}}}}), "")
	elsewhere := openStream(t, server, "/v1/events", r.live.key(ours, admin, p.other.ID), "")
	foreign := openStream(t, server, "/v1/events", r.live.key(theirs, admin), "")

	ride := p.ride()
	p.zone("parking", 13.4, 52.5)
	first := all.next()
	names := append([]string{first.name}, all.names(4)...)
	if want := []string{"customer.created", "vehicle.created", "vehicle.state_changed", "ride.started", "zone.created"}; !slices.Equal(sorted(names), sorted(want)) {
		t.Errorf("got %v, want %v", names, want)
	}
	started := rides.next()
	var body struct {
		ID, Event string
		Data      struct {
			Livemode bool
			Ride     struct{ ID string }
		}
	}
	if err := json.Unmarshal([]byte(started.data), &body); err != nil || body.Event != "ride.started" || started.name != "ride.started" ||
		!body.Data.Livemode || body.Data.Ride.ID != ride.text("id") || !strings.HasPrefix(body.ID, "evt_") {
		t.Errorf("got %+v, %v", started, err)
	}

	// Resumed: everything after the first.
	all.cancel()
	again := openStream(t, server, "/v1/events", token, first.id)
	if got := again.names(4); !slices.Equal(got, names[1:]) {
		t.Errorf("resumed: got %v, want %v", got, names[1:])
	}

	// What others' streams get comes last, so they got nothing before.
	p.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := p.fleet.CreateCustomerTx(ctx, tx, ours, fleet.NewCustomer{SubaccountID: p.other.ID, Name: "Kenji"})
		return err
	})
	if e := elsewhere.next(); e.name != "customer.created" || !strings.Contains(e.data, p.other.ID) {
		t.Errorf("a key of the other subaccount got %+v", e)
	}
	them := r.live.tenant(t, theirs)
	them.customer()
	if e := foreign.next(); e.name != "customer.created" || e.id != "1" {
		t.Errorf("another organization got %+v", e)
	}

	// Events that are no longer stored are a gap.
	p.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM events WHERE organization_id = $1 AND sequence <= 3", ours)
		return err
	})
	if e := openStream(t, server, "/v1/events", token, "1").next(); e.name != "gap" || e.id != "3" {
		t.Errorf("after a gap: %+v", e)
	}

	for path, want := range map[string]int{"/v1/events?event=ticket.created": 400, "/v1/events?nonsense=1": 400} {
		if a := p.Get(path); a.Status != want {
			t.Errorf("%s: got %d, want %d", path, a.Status, want)
		}
	}
	refused(t, "a key that reads vehicles only", r.live.As(r.live.key(ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"vehicles": {read}}}})).Get("/events"), 403, "permission_denied")
	refused(t, "a bad id", p.Get("/events", "Last-Event-ID: x"), 400, "invalid_parameter")
}

// A client that got no event, or none that it asked for, resumes where its stream ended.
func TestEventStreamWithoutEvents(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	server := httptest.NewServer(r.live.api.Wrap(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	token := r.live.key(ours, apikey.Permissions{Level: apikey.Admin})
	const path = "/v1/events?event=zone.created"

	s := openStream(t, server, path, token, "")
	if s.id != "0" {
		t.Fatalf("the stream begins with the id %q, want 0", s.id)
	}
	p.customer()
	if s.skip(); s.id != "1" {
		t.Errorf("the id after an event that was not asked for is %q, want 1", s.id)
	}
	s.cancel()
	p.zone("parking", 13.4, 52.5)
	if e := openStream(t, server, path, token, s.id).next(); e.name != "zone.created" || e.id != "2" {
		t.Errorf("got %+v", e)
	}
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// A stream ends with the first event after its key was revoked, and without it.
func TestEventStreamRevoked(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	server := httptest.NewServer(r.live.api.Wrap(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	key, token := r.live.makeKey(apikey.New{OrganizationID: ours, Permissions: apikey.Permissions{Level: apikey.Admin}})
	s := openStream(t, server, "/v1/events", token, "")
	v := p.vehicle()
	if e := s.next(); e.name != "vehicle.created" {
		t.Fatalf("got %v", e)
	}
	if _, err := r.keys.Revoke(t.Context(), ours, key.ID); err != nil {
		t.Fatal(err)
	}
	send(t, p.Client, "PUT", "/vehicles/"+v.text("id"), `{"license_plate":"B-X 1"}`, 200)
	for s.lines.Scan() {
		if strings.HasPrefix(s.lines.Text(), "data:") {
			t.Fatalf("after the revocation: %s", s.lines.Text())
		}
	}
	if err := s.lines.Err(); err != nil {
		t.Errorf("the stream did not end: %v", err)
	}
}

// TestDeliveries: the document describes every event, as it is sent and as a test delivery has it.
func TestDeliveries(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	described, err := fleetapi.Deliveries(true)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, w := range described {
		missing[w.Name] = true
		p.CheckWebhook(w.Name, w.Example)
		test := strings.Replace(string(w.Example), `"data":{`, `"data":{"test":true,`, 1)
		p.CheckWebhook(w.Name, []byte(test))
	}
	// Caused in the dashboard, or in time; their data are those of customer.updated and vehicle.state_changed.
	for _, name := range []string{"customer.anonymised", "vehicle.comms_lost", "vehicle.comms_restored"} {
		delete(missing, name)
	}

	server := httptest.NewServer(r.live.api.Wrap(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	s := openStream(t, server, "/v1/events", r.live.key(ours, apikey.Permissions{Level: apikey.Admin}), "")
	s.check = p.CheckWebhook
	put := func(path, body string) { send(t, p.Client, "PUT", path, body, 200) }
	ride := p.ride(fields{"status": "reserved"})
	at := "/rides/" + ride.text("id")
	for _, body := range []string{
		`{"status":"active"}`, `{"status":"paused"}`, `{"status":"active"}`, `{"status":"completed","distance_meters":5}`, `{"adjustment_amount":-5,"metadata":{"k":"v"}}`, `{"payment_status":"waived"}`,
	} {
		put(at, body)
	}
	put("/rides/"+p.ride().text("id"), `{"status":"cancelled"}`)
	task := "/tasks/" + send(t, p.Client, "POST", "/tasks", fmt.Sprintf(`{"vehicle_id":%q,"title":"Brake"}`, ride.text("vehicle_id")), 201).text("id")
	put(task, `{"due_at":"2020-01-01T00:00:00Z"}`)
	for _, state := range []string{"in_progress", "done"} {
		put(task, fmt.Sprintf(`{"state":%q}`, state))
	}
	send(t, p.Client, "POST", "/alert_rules", fmt.Sprintf(`{"subaccount_id":%q,"name":"Low","kind":"battery_low","threshold_percent":20}`, ride.text("subaccount_id")), 201)
	vehicle := "/vehicles/" + ride.text("vehicle_id")
	for _, battery := range []int{9, 80} {
		put(vehicle, fmt.Sprintf(`{"battery_percent":%d}`, battery))
	}
	put(vehicle, `{"license_plate":"B-X 1"}`)
	send(t, p.Client, "DELETE", vehicle, "", 204)
	zone := "/zones/" + p.zone("parking", 13.4, 52.5).text("id")
	put(zone, `{"name":"Other","description":"Here"}`)
	send(t, p.Client, "DELETE", zone, "", 204)
	for _, body := range []string{`{"name":"Other"}`, `{"status":"blocked"}`, `{"status":"active"}`} {
		put("/customers/"+ride.text("customer_id"), body)
	}
	for len(missing) > 0 {
		delete(missing, s.next().name)
	}
}
