package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// TestRideAppears starts a ride by the API and checks that it appears on open pages
// without a reload.
func TestRideAppears(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	if err := p.Fleet.Seed(t.Context(), fleet.Organization{ID: o.ID, Name: o.Name}); err != nil {
		t.Fatal(err)
	}
	_, token, err := p.Keys.Create(audit.WithActor(t.Context(), audit.Actor{Type: audit.User, ID: robin.ID}), apikey.New{
		OrganizationID: o.ID, Service: apikey.Fleet, Environment: apikey.Live, Name: "Partner", Permissions: apikey.Permissions{Level: apikey.Admin},
	})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Authorization": {"Bearer " + token.Reveal()}, "Content-Type": {"application/json"}}
	ask := func(method, path, body string, want int, answer any) {
		t.Helper()
		status, text := p.call(method, path, header, []byte(body))
		if status != want {
			t.Fatalf("%s %s: got %d %s", method, path, status, text)
		}
		if err := json.Unmarshal(text, answer); err != nil {
			t.Fatal(err)
		}
	}
	var vehicles struct {
		Data []struct{ ID, Code string }
	}
	ask("GET", "/v1/vehicles?state=available&limit=1", "", http.StatusOK, &vehicles)
	vehicle := vehicles.Data[0]
	v := p.as(t, robin)
	v.open("/fleet/map")
	v.find("svg .dot, svg .cluster") // vehicles close together are a cluster, which may be all of them
	v.checkLayout()
	list, page := v.tab(), v.tab()
	list.open("/fleet/rides")
	page.open("/fleet/vehicles/" + vehicle.ID)
	page.waitText("Available")
	var ride struct{ ID string }
	ask("POST", "/v1/rides", `{"vehicle_id": "`+vehicle.ID+`", "trip_type": "rebalance"}`, http.StatusCreated, &ride)
	list.find(`a[href="/fleet/rides/` + ride.ID + `"]`)
	page.waitText("On a trip since")
}
