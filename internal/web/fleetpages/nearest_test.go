package fleetpages_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestNearest: the list has the available vehicles by distance from a place, and rides lead there.
func TestNearest(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	place := func(code string, lat float64, state fleet.VehicleState) {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{
				SubaccountID: l.sub.ID, Code: code, VehicleTypeID: l.scooter, State: state, Location: &geo.Position{Lat: lat, Lng: 13.4}, BatteryPercent: new(int64(70)),
			}, fleet.Actor{})
			return err
		})
	}
	place("FAR", 52.55, fleet.Available)
	place("NEXT", 52.502, fleet.Available)
	place("ELSEWHERE", 48.1, fleet.Available)
	place("GONE", 52.5001, fleet.Removed)
	place("MIDDLE", 52.52, fleet.Available)
	near := func(d webtest.Document) (codes []string) {
		for _, list := range d.WithAttr("class", "near-list") {
			for n := range list.Descendants() {
				if n.Data == "bdi" {
					codes = append(codes, webtest.Text(n))
				}
			}
		}
		return codes
	}
	d := y.agent.Page("/fleet/map?near=52.5,13.4")
	d.Want("Nearest available", "222 m", "5.6 km", "70%", "From 52.50000,13.40000")
	if got := near(d); !slices.Equal(got, []string{"NEXT", "MIDDLE", "FAR"}) {
		t.Errorf("got %v", got)
	}
	// Moving the map and filters do not lose the place.
	d = y.agent.Page("/fleet/map" + webtest.Attr(d.WithAttr("aria-label", "Zoom in")[0], "href"))
	if got := near(d); len(got) != 3 || webtest.Attr(d.Field("near"), "value") != "52.50000,13.40000" {
		t.Errorf("got %v", got)
	}
	d = y.agent.Page("/fleet/map?near=0,0")
	d.Want("No available vehicle within 50 km.")
	for _, a := range d.All("a") {
		if webtest.Text(a) == "Close" && strings.Contains(webtest.Attr(a, "href"), "near=") {
			t.Error("the place does not close")
		}
	}
	for _, odd := range []string{"", "x", "91,0", "NaN,NaN", "1", "1,2,3"} {
		d := y.agent.Page("/fleet/map?near=" + url.QueryEscape(odd))
		if len(d.WithAttr("id", "nearest")) != 0 {
			t.Errorf("%q is a place", odd)
		}
		d.Want("Nearest to the center")
	}
	// Those of the center, by a link.
	d = y.agent.Page("/fleet/map?z=14&lat=52.55&lng=13.4")
	for _, a := range d.All("a") {
		if webtest.Text(a) == "Nearest to the center" {
			if got := near(y.agent.Page("/fleet/map" + webtest.Attr(a, "href"))); len(got) == 0 || got[0] != "FAR" {
				t.Errorf("got %v", got)
			}
		}
	}
	open := l.ride(fleet.Active)
	link := fmt.Sprintf("/fleet/map?near=%s", url.QueryEscape("52.52000,13.40500"))
	if got := links(y.agent.Page("/fleet/rides/"+open.ID), "/fleet/map"); len(got) == 0 || !slices.Contains(got, link) {
		t.Errorf("got %v", got)
	}
}
