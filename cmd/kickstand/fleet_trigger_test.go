package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// Each event of the fleet is caused by its trigger beside a server, and delivered to a webhook of the
// sandbox, signed; a webhook of production gets none.
func TestFleetTrigger(t *testing.T) {
	secret := "hook-" + strings.Repeat("s", 20)
	data, database := "--data="+t.TempDir(), "--database-url="+dbtest.URL(t)
	s := start(t, data, database, "--allow-private-receivers")
	kickstand := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append(args, data, database), noEnvironment, nil, &out, t.Output())
		return out.String(), err
	}
	deliveries := make(chan delivered, 1000)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		deliveries <- delivered{r.Header, body}
	}))
	t.Cleanup(receiver.Close)
	command(t, nil, "org", "create", "--name=Acme", data, database)
	command(t, nil, "user", "create", "--email=robin@example.com", "--password=quite-a-secret", "--org=acme", "--role=admin", data, database)
	c := browser(t)
	call(t, c, s.url, "auth.signInWithPassword", map[string]any{"email": "robin@example.com", "password": "quite-a-secret"}, nil)
	for _, source := range []string{"sandbox", "fleet"} {
		call(t, c, s.url, "webhooks.create", map[string]any{"url": receiver.URL + "/" + source, "source": source, "events": []string{"*"}, "secret": secret}, nil)
	}
	if list, err := kickstand("webhook", "list", "--org=acme"); err != nil || !strings.Contains(list, "  sandbox  enabled  ") {
		t.Errorf("the list is %q, %v", list, err)
	}
	args := []string{"fleet", "trigger", "--org=acme"}
	for _, name := range event.FleetNames {
		args = append(args, string(name))
	}
	out, err := kickstand(args...)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		name := string(event.FleetNames[i])
		kind, _, _ := strings.Cut(name, ".")
		if !strings.HasPrefix(line, name+": "+kind[:3]) {
			t.Errorf("%s printed %q", name, line)
		}
	}
	missing := map[string]bool{}
	for _, name := range event.FleetNames {
		missing[string(name)] = true
	}
	timeout := time.After(2 * time.Minute)
	for len(missing) > 0 {
		select {
		case d := <-deliveries:
			var body struct {
				Event string
				Data  struct{ Livemode bool }
			}
			if err := json.Unmarshal(d.body, &body); err != nil || body.Data.Livemode || body.Event != d.header.Get("X-Service-Event") {
				t.Errorf("got %v %s, %v", d.header, d.body, err)
			}
			if _, err := payload.Verify(d.header, d.body, secret, time.Now()); err != nil {
				t.Error(err)
			}
			delete(missing, body.Event)
		case <-timeout:
			t.Fatalf("not delivered: %v", missing)
		}
	}
	if _, err := kickstand("fleet", "trigger", "ticket.created", "--org=acme"); err == nil {
		t.Error("an unknown event was accepted")
	}
}

// Each trigger causes its event, even if no time passes between its changes, also after the clock of the
// sandbox was advanced.
func TestFleetTriggerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))) // the sandbox has a past
		d := dbtest.NewFleetSQLite(t)
		trigger := fleetTrigger{&app.Fleet{Service: fleet.Open(fleet.Config{DB: d}), DB: d}, "org-1", fleet.Actor{Type: "system"}}
		if err := trigger.Provision(t.Context(), fleet.Organization{ID: trigger.organizationID, Name: "Acme"}); err != nil {
			t.Fatal(err)
		}
		_, last, err := trigger.OpenStream(t.Context(), trigger.organizationID)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Concat(event.FleetNames[:], event.FleetNames[:]) {
			_, err := trigger.make(t.Context(), name)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			list, err := trigger.EventsAfter(t.Context(), d, trigger.organizationID, last, 100)
			if err != nil || !slices.ContainsFunc(list, func(e fleet.Event) bool { return e.Name == name }) {
				t.Errorf("%s caused only %d other events, %v", name, len(list), err)
			}
			if name == event.FleetNames[len(event.FleetNames)-1] {
				_, err = trigger.write(t.Context(), func(tx *db.Tx) (string, error) {
					return "", trigger.AdvanceClockTx(t.Context(), tx, trigger.organizationID, time.Now().Add(10*time.Minute))
				})
			}
			_, last, _ = trigger.OpenStream(t.Context(), trigger.organizationID)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The tasks of triggers leave the vehicles of the sandbox without open tasks.
func TestFleetTriggerTasks(t *testing.T) {
	d := dbtest.NewFleet(t)
	trigger := fleetTrigger{&app.Fleet{Service: fleet.Open(fleet.Config{DB: d}), DB: d}, "org-1", fleet.Actor{Type: "system"}}
	if err := trigger.Provision(t.Context(), fleet.Organization{ID: trigger.organizationID, Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	vehicles, err := trigger.vehicles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, v := range vehicles {
		ids = append(ids, v.ID)
	}
	before, err := trigger.VehiclesWithOpenTasks(t.Context(), d, trigger.organizationID, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []event.Name{event.TaskCreated, event.TaskUpdated, event.TaskOverdue, event.TaskDone} {
		id, err := trigger.make(t.Context(), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		task, err := trigger.Task(t.Context(), d, trigger.organizationID, id)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(ids, task.VehicleID) {
			t.Errorf("%s created a task of the vehicle %s of the sandbox", name, task.VehicleID)
		}
	}
	// Nor do those of archived subaccounts serve as examples.
	first := vehicles[0].SubaccountID
	if _, err := trigger.write(t.Context(), func(tx *db.Tx) (string, error) {
		sub, err := trigger.LockSubaccountTx(t.Context(), tx, trigger.organizationID, first)
		if err == nil {
			_, err = trigger.UpdateSubaccountTx(t.Context(), tx, trigger.organizationID, sub, fleet.SubaccountChange{Status: optional.Of("archived")})
		}
		return "", err
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []event.Name{event.TaskCreated, event.VehicleCreated, event.ZoneCreated, event.AlertRaised} {
		if _, err := trigger.make(t.Context(), name); err != nil {
			t.Errorf("%s beside an archived subaccount: %v", name, err)
		}
	}
	after, err := trigger.VehiclesWithOpenTasks(t.Context(), d, trigger.organizationID, ids)
	if err != nil || !maps.Equal(after, before) {
		t.Errorf("vehicles with open tasks: %v, %v; want %v", after, err, before)
	}
}
