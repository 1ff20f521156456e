package fleetpages_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// crowd creates available vehicles.
func (l *lot) crowd(n int) (ids []string) {
	l.tb.Helper()
	l.write(func(ctx context.Context, tx *db.Tx) error {
		for i := range n {
			v, err := l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{
				SubaccountID: l.sub.ID, Code: fmt.Sprintf("C-%04d", i), VehicleTypeID: l.scooter, State: fleet.Available, Location: &geo.Position{Lat: 52.52, Lng: 13.405},
			}, fleet.Actor{})
			if err != nil {
				return err
			}
			ids = append(ids, v.ID)
		}
		return nil
	})
	return ids
}

// inState counts the vehicles in a state.
func (l *lot) inState(state fleet.VehicleState) int64 {
	l.tb.Helper()
	counts, err := l.CountStates(l.tb.Context(), l.db, l.organization.ID)
	if err != nil {
		l.tb.Fatal(err)
	}
	return counts[state]
}

// TestBulk: the selected vehicles change, others are refused with reasons, each change is in the
// audit log, and the change can be undone.
func TestBulk(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	free, ridden, repaired := l.vehicle(), l.ride(fleet.Active), l.vehicle()
	l.put(repaired.ID, fleet.NonOperational)
	y.agent.Page("/fleet/vehicles?battery=90").Want("Set out of service", "All of these filters")
	at := "/fleet/vehicles/bulk?act=out_of_service&vehicle=" + free.ID + "&vehicle=" + ridden.VehicleID + "&vehicle=" + repaired.ID + "&vehicle=veh_gone"
	d := y.agent.Page(at)
	d.Want("Set 3 vehicles out of service", "B-B, B-C, B-D.")
	form := formOf(d)
	form.Set("state", "off_hours")
	confirm := func(admin bool, at, member, value string) *httptest.ResponseRecorder {
		by := y.agent
		if admin {
			by = y.admin
		}
		form := formOf(by.Page(at))
		form.Set(member, value)
		return by.Post(at, form)
	}
	y.agent.WantRefused(y.agent.Post(at, url.Values{"state": {"off_hours"}}), http.StatusUnprocessableEntity).Want("The selection has changed: now it is 3 vehicles")
	y.agent.WantRefused(confirm(false, at, "state", "battery_charged"), http.StatusUnprocessableEntity).Want("Reason must be one of the list")
	d = webtest.Parse(t, y.agent.Post(at, form).Body.String())
	d.Want("1 vehicle set out of service.", "Not changed", "It has an open ride: 1 vehicle", "It is out of service already: 1 vehicle")
	entries := audittest.List(t, l.log, l.organization.ID, audit.Query{TargetID: free.ID})
	if len(entries) != 1 || entries[0].Action != fleet.VehicleUpdated || len(entries[0].Changes) != 1 || l.inState(fleet.NonOperational) != 2 {
		t.Errorf("got %+v, %d out of service", entries, l.inState(fleet.NonOperational))
	}
	undo := formOf(d)
	d = webtest.Parse(t, y.agent.Post("/fleet/vehicles/bulk/undo", undo).Body.String())
	d.Want("1 vehicle restored.")
	if l.inState(fleet.NonOperational) != 1 || len(audittest.List(t, l.log, l.organization.ID, audit.Query{TargetID: free.ID})) != 2 {
		t.Errorf("got %d out of service", l.inState(fleet.NonOperational))
	}
	webtest.Parse(t, y.agent.Post("/fleet/vehicles/bulk/undo", undo).Body.String()).Want("0 vehicles restored.", "It has changed since: 1 vehicle")

	// A removed vehicle that was out of service returns to that state.
	at = "/fleet/vehicles/bulk?act=remove&vehicle=" + repaired.ID
	d = webtest.Parse(t, confirm(false, at, "state", "decommissioned").Body.String())
	webtest.Parse(t, y.agent.Post("/fleet/vehicles/bulk/undo", formOf(d)).Body.String()).Want("1 vehicle restored.")
	if v, err := l.Vehicle(t.Context(), l.db, l.organization.ID, repaired.ID); err != nil || v.State != fleet.NonOperational {
		t.Errorf("got %v, %v", v.State, err)
	}

	// Plans are for admins.
	at = "/fleet/vehicles/bulk?act=plan&vehicle=" + free.ID
	y.agent.WantRefused(y.agent.Get(at), http.StatusForbidden)
	y.agent.WantRefused(y.agent.Post(at, url.Values{"plan": {l.plan.ID}}), http.StatusForbidden)
	y.agent.WantRefused(y.agent.Post("/fleet/vehicles/bulk/undo", url.Values{"act": {"plan"}, "former." + l.plan.ID: {free.ID}}), http.StatusForbidden)
	plan := func() string {
		v, err := l.Vehicle(t.Context(), l.db, l.organization.ID, free.ID)
		if err != nil {
			t.Fatal(err)
		}
		return string(v.PricingPlanID)
	}
	d = webtest.Parse(t, confirm(true, at, "plan", l.plan.ID).Body.String())
	if d.Want("1 vehicle changed to another plan."); plan() != l.plan.ID {
		t.Errorf("got %s", plan())
	}
	webtest.Parse(t, confirm(true, at, "plan", l.plan.ID).Body.String()).Want("It has this plan already: 1 vehicle")
	webtest.Parse(t, y.admin.Post("/fleet/vehicles/bulk/undo", formOf(d)).Body.String()).Want("1 vehicle restored.")
	if plan() != "" {
		t.Errorf("got %s", plan())
	}
	y.agent.WantRefused(y.agent.Get("/fleet/vehicles/bulk?act=explode&all=on"), http.StatusNotFound)
	if _, notice := y.agent.Follow(y.agent.Get("/fleet/vehicles/bulk?act=remove&vehicle=" + strings.Repeat("x", 100))); notice != "Select vehicles first." {
		t.Errorf("got %q", notice)
	}
	// Vehicles of others are not there.
	stranger := y.SignIn(y.NewUser(y.NewOrganization("Other"), "other@example.com", "Other", "admin"))
	if _, notice := stranger.Follow(stranger.Get(at)); notice != "Select vehicles first." {
		t.Errorf("got %q", notice)
	}
}

// TestBulkSince: an action applies to the vehicles that its form has named, and an undo only to those
// with no later change of state.
func TestBulkSince(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	one, other := l.vehicle(), l.vehicle()
	l.put(other.ID, fleet.NonOperational)
	at := "/fleet/vehicles/bulk?act=remove&all=on&state=available"
	form := formOf(y.agent.Page(at))
	l.put(one.ID, fleet.NonOperational)
	l.put(other.ID, fleet.Available)
	y.agent.WantRefused(y.agent.Post(at, form), http.StatusUnprocessableEntity).Want("The selection has changed: now it is 1 vehicle")

	at = "/fleet/vehicles/bulk?act=out_of_service&vehicle=" + other.ID
	form = formOf(webtest.Parse(t, y.agent.Post(at, formOf(y.agent.Page(at))).Body.String()))
	l.put(other.ID, fleet.Available)
	l.put(other.ID, fleet.NonOperational)
	webtest.Parse(t, y.agent.Post("/fleet/vehicles/bulk/undo", form).Body.String()).Want("0 vehicles restored.", "It has changed since: 1 vehicle")

	l.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := l.CreateTaskTx(ctx, tx, l.organization.ID, fleet.NewTask{VehicleID: one.ID, Title: "Check", TakesVehicleOut: true}, fleet.Actor{Type: "system"})
		return err
	})
	at = "/fleet/vehicles/bulk?act=in_service&vehicle=" + one.ID
	webtest.Parse(t, y.agent.Post(at, formOf(y.agent.Page(at))).Body.String()).Want("It has an open task that takes it out of service: 1 vehicle")
}

// TestBulkAll: all vehicles of a filter change, up to the limit.
// TestBulkWithoutItsFilter: a filter that is gone does not widen what an old address selects.
func TestBulkWithoutItsFilter(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	l.vehicle()
	y.agent.Page("/fleet/vehicles/bulk?act=remove&all=on&state=available").Want("Remove 1 vehicle")
	for _, gone := range []string{"zone=zone_x", "type=vt_x", "state=flying", "subaccount=sub_x"} {
		y.agent.WantRefused(y.agent.Get("/fleet/vehicles/bulk?act=remove&all=on&"+gone), http.StatusUnprocessableEntity).Want("does not exist any more")
	}
}

func TestBulkAll(t *testing.T) {
	if testing.Short() {
		t.Skip("changes 1,000 vehicles")
	}
	y := newYard(t)
	l := furnish(y)
	l.crowd(fleet.MaxBulk)
	at := "/fleet/vehicles/bulk?act=remove&all=on&state=available"
	d := y.agent.Page(at)
	d.Want("Remove 1,000 vehicles", "C-0011 and 988 more.")
	form := formOf(d)
	form.Set("state", "rebalance_pick_up")
	w := y.agent.Post(at, form)
	d = webtest.Parse(t, w.Body.String())
	d.Want("1,000 vehicles removed.", "And 940 more.")
	if w.Body.Len() > maxPage+16<<10 || l.inState(fleet.Removed) != 1000 {
		t.Errorf("got %d bytes, %d removed", w.Body.Len(), l.inState(fleet.Removed))
	}
	webtest.Parse(t, y.agent.Post("/fleet/vehicles/bulk/undo", formOf(d)).Body.String()).Want("1,000 vehicles restored.")
	l.vehicle()
	y.agent.WantRefused(y.agent.Get("/fleet/vehicles/bulk?act=remove&all=on"), http.StatusRequestEntityTooLarge).Want("At most 1,000 vehicles can be changed at once")
}
