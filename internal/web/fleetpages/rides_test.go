package fleetpages_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/tariff"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"

	"golang.org/x/net/html"
)

// hostile is a text with markup.
const hostile = `<script>alert(1)</script> "&' שלום`

// lot has the records that rides need.
type lot struct {
	environment
	sub      fleet.Subaccount
	scooter  string
	plan     fleet.Plan
	vehicles int
	riders   int
}

// furnish creates a plan and a vehicle type in production.
func furnish(y *yard) *lot {
	y.live.tb.Helper()
	l := &lot{environment: y.live, sub: y.live.sole()}
	l.write(func(ctx context.Context, tx *db.Tx) error {
		p, err := l.CreatePlanTx(ctx, tx, l.organization.ID, fleet.NewPlan{SubaccountID: l.sub.ID, Name: "Standard " + hostile, Tariff: tariff.Tariff{
			UnlockAmount: 100, PerMinute: []tariff.Segment{{Rate: 25, Interval: 1}}, OutOfZoneAmount: new(int64(900)),
		}})
		if err != nil {
			return err
		}
		l.plan = p
		sub, err := l.LockSubaccountTx(ctx, tx, l.organization.ID, l.sub.ID)
		if err != nil {
			return err
		}
		l.sub, err = l.UpdateSubaccountTx(ctx, tx, l.organization.ID, sub, fleet.SubaccountChange{
			DefaultPricingPlanID: optional.Of(fleet.NullString(p.ID)), Currency: optional.Value[string]{},
			VehicleTypes: optional.Of([]fleet.VehicleType{{Name: "Scooter " + hostile, FormFactor: "scooter_standing", PropulsionType: "electric", MaxRangeMeters: new(int64(45_000)), ReservationMinutes: 15}}),
		})
		return err
	})
	l.scooter = l.sub.VehicleTypes[0].ID
	return l
}

func (l *lot) vehicle() (v fleet.Vehicle) {
	l.tb.Helper()
	l.vehicles++
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		v, err = l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{
			SubaccountID: l.sub.ID, Code: "B-" + string(rune('A'+l.vehicles)), VehicleTypeID: l.scooter, State: fleet.Available,
			Location: &geo.Position{Lat: 52.52, Lng: 13.405}, BatteryPercent: new(int64(80)), VIN: hostile,
		}, fleet.Actor{Type: "user", ID: "somebody"})
		return err
	})
	return v
}

func (l *lot) rider() (c fleet.Customer) {
	l.tb.Helper()
	l.riders++
	n := string(rune('0' + l.riders))
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		c, err = l.CreateCustomerTx(ctx, tx, l.organization.ID, fleet.NewCustomer{
			SubaccountID: l.sub.ID, Name: fleet.NullString("Zoë " + n + " <b>" + strings.Repeat("long", 40)), Email: fleet.NullString("Zoe" + n + "@example.com"), Phone: fleet.NullString("+493090182" + n + "0"),
		})
		return err
	})
	return c
}

// ride creates a ride of a new rider and vehicle with a status.
func (l *lot) ride(status fleet.RideStatus) (ride fleet.Ride) {
	l.tb.Helper()
	v, c := l.vehicle(), l.rider()
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		first := fleet.Active
		if status == fleet.Reserved {
			first = status
		}
		ride, err = l.StartRideTx(ctx, tx, l.organization.ID, fleet.NewRide{Status: first, VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID), Metadata: map[string]string{"note": hostile}}, fleet.Actor{Type: "key", ID: "key_1"})
		if err != nil || status == first {
			return err
		}
		ride, err = l.UpdateRideTx(ctx, tx, l.organization.ID, ride, fleet.RideChange{Status: optional.Of(status)}, fleet.Actor{Type: "key", ID: "key_1"})
		return err
	})
	return ride
}

// at reads a ride.
func (l *lot) at(id string) fleet.Ride {
	l.tb.Helper()
	ride, err := l.Ride(l.tb.Context(), l.db, l.organization.ID, id)
	if err != nil {
		l.tb.Fatal(err)
	}
	return ride
}

// links returns the targets of a page's links with a prefix.
func links(d webtest.Document, prefix string) []string {
	var list []string
	for _, a := range d.All("a") {
		if at := webtest.Attr(a, "href"); strings.HasPrefix(at, prefix) && !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	return list
}

// rows returns the table rows of a page.
func rows(d webtest.Document) []*html.Node {
	var list []*html.Node
	for _, tr := range d.All("tr") {
		if tr.Parent.Data == "tbody" {
			list = append(list, tr)
		}
	}
	return list
}

func TestRides(t *testing.T) {
	y := newYard(t)
	d := y.agent.Page("/fleet/rides")
	d.Want("No rides yet", "curl https://api.example.com/v1/rides")

	l := furnish(y)
	done, open := l.ride(fleet.Completed), l.ride(fleet.Active)
	d = y.agent.Page("/fleet/rides")
	d.Want("2 rides, €1.00 in total", "Zoë 1 <b>", "Completed", "Active", "Due", "B-B")
	if got := rows(d); len(got) != 2 || webtest.Attr(got[0], "id") != open.ID || len(d.WithAttr("data-live", "live/ride")) != 1 || !slices.ContainsFunc(d.All("span"), func(n *html.Node) bool { return webtest.Has(n, "data-seconds") }) {
		t.Errorf("got %d rows", len(got))
	}
	for query, want := range map[string]string{
		"status=open": open.ID, "status=completed": done.ID, "status=nonsense": open.ID + done.ID, "payment=due": done.ID, "vehicle=b-b": done.ID, "vehicle=" + open.VehicleID: open.ID,
		"rider=zoe2@example.com": open.ID, "rider=%2B49+30+90182-20": open.ID, "rider=Zo%C3%AB": open.ID + done.ID, "rider=" + string(done.CustomerID): done.ID,
		"least=0.5": done.ID, "least=1.01": "", "most=0,99": "", "from=2000-01-01&to=2100-01-01": open.ID + done.ID, "to=2001-01-01": "", "sort=created_at": done.ID + open.ID,
		"sort=-total_amount": done.ID + open.ID, "after=nonsense": open.ID + done.ID,
	} {
		d := y.agent.Page("/fleet/rides?" + query)
		if got := ids(d); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
		if want == "" {
			d.Want("No rides match these filters", "Show all")
		}
	}
	for query, want := range map[string]string{
		"vehicle=%3Cb%3E": "No vehicle has this code.", "rider=nobody@example.com": "No rider matches.", "rider=" + url.QueryEscape(strings.Repeat("x", 3000)): "No rider matches.",
		"least=much": "Must be an amount such as 1.50.", "from=soon": "Must be a date", "to=0000-13-99": "Must be a date",
	} {
		d := y.agent.Page("/fleet/rides?" + query)
		d.Want(want)
		if len(rows(d)) != 0 {
			t.Errorf("%s: got a list", query)
		}
	}
}

// TestSandboxRides: the sandbox has rides, and its pages show the environment.
func TestSandboxRides(t *testing.T) {
	y := newYard(t)
	d := y.agent.Page("/sandbox/fleet/rides")
	d.Want("The first 40 rides of more", "(sandbox)")
	if len(d.WithAttr("data-live", "test/ride")) != 1 {
		t.Error("nothing is live")
	}
	seen := map[string]bool{}
	for path, pages := "/sandbox/fleet/rides?subaccount=&sort=-total_amount", 0; path != ""; pages++ {
		d := y.agent.Page(path)
		for _, row := range rows(d) {
			id := webtest.Attr(row, "id")
			if seen[id] {
				t.Fatalf("%s is there twice", id)
			}
			seen[id] = true
		}
		path = ""
		if next := d.WithAttr("rel", "next"); len(next) == 1 && pages < 20 {
			path = webtest.Attr(next[0], "href")
		}
	}
	if len(seen) < 500 {
		t.Errorf("got %d rides", len(seen))
	}
	// A page for each status.
	for _, status := range []string{"reserved", "active", "paused", "completed", "cancelled"} {
		list := rows(y.agent.Page("/sandbox/fleet/rides?status=" + status))
		if len(list) == 0 {
			t.Errorf("no ride is %s", status)
			continue
		}
		d := y.agent.Page("/sandbox/fleet/rides/" + webtest.Attr(list[0], "id"))
		if status != "cancelled" && len(d.All("figure")) != 1 {
			t.Errorf("%s: got no map", status)
		}
	}
}

// TestRideMoves: pages offer the actions of the state table to all members.
func TestRideMoves(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	for _, status := range []fleet.RideStatus{fleet.Reserved, fleet.Active, fleet.Paused, fleet.Completed, fleet.Cancelled} {
		ride := l.ride(status)
		d := y.agent.Page("/fleet/rides/" + ride.ID)
		d.Want("Zoë", hostile[:25], ride.ID)
		var offered []fleet.RideStatus
		for _, b := range d.WithAttr("name", "status") {
			offered = append(offered, fleet.RideStatus(webtest.Attr(b, "value")))
		}
		for path, to := range map[string]fleet.RideStatus{"/end": fleet.Completed, "/cancel": fleet.Cancelled} {
			if len(links(d, "/fleet/rides/"+ride.ID+path)) == 1 {
				offered = append(offered, to)
			}
		}
		next := status.Next()
		slices.Sort(offered)
		slices.Sort(next)
		if !slices.Equal(offered, next) {
			t.Errorf("%s: got %v, want %v", status, offered, next)
		}
		for path, to := range map[string]fleet.RideStatus{"/end": fleet.Completed, "/cancel": fleet.Cancelled} {
			path = "/fleet/rides/" + ride.ID + path
			if slices.Contains(next, to) {
				y.agent.Page(path)
				continue
			}
			y.agent.WantRefused(y.agent.Get(path), http.StatusConflict)
			y.agent.WantRefused(y.agent.Post(path, nil), http.StatusConflict)
		}
		if adjust := links(d, "/fleet/rides/"+ride.ID+"/adjust"); (len(adjust) == 1) == status.Open() {
			t.Errorf("%s: got %v", status, adjust)
		}
	}
}

// priceByUnlocking makes rides cost the same however long they last.
func (l *lot) priceByUnlocking() {
	l.tb.Helper()
	l.write(func(ctx context.Context, tx *db.Tx) error {
		plan, err := l.LockPlanTx(ctx, tx, l.organization.ID, l.plan.ID)
		if err == nil {
			_, err = l.UpdatePlanTx(ctx, tx, l.organization.ID, plan, fleet.PlanChange{PerMinute: optional.Of([]tariff.Segment{})})
		}
		return err
	})
}

func TestRideIsMoved(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	l.priceByUnlocking()
	ride := l.ride(fleet.Reserved)
	path := "/fleet/rides/" + ride.ID
	for _, to := range []fleet.RideStatus{fleet.Active, fleet.Paused, fleet.Active} {
		y.agent.Follow(y.agent.Post(path+"/move", url.Values{"status": {string(to)}}))
		if got := l.at(ride.ID).Status; got != to {
			t.Errorf("got %s, want %s", got, to)
		}
	}
	y.agent.WantRefused(y.agent.Post(path+"/move", url.Values{"status": {"completed"}}), http.StatusUnprocessableEntity)
	y.agent.WantRefused(y.agent.Post(path+"/end", url.Values{"end_reason": {"operator"}, "distance_meters": {"far"}, "end_location.lat": {"5"}}), http.StatusUnprocessableEntity).
		Want("must be a whole number", "Longitude is required with a latitude")
	d, notice := y.agent.Follow(y.agent.Post(path+"/end", url.Values{"end_reason": {"operator"}, "distance_meters": {"1,200"}}))
	if notice != "Ride ended." {
		t.Errorf("got %q", notice)
	}
	d.Want("Completed", "1.2 km", "by you", "by support", "Unlocking", "€1.00", "version 2")
	log := audittest.List(t, l.log, y.Organization.ID, audit.Query{TargetID: ride.ID})
	if len(log) != 1 || log[0].Action != "ride.ended_by_operator" || log[0].Source.Actor.ID != y.Agent.ID {
		t.Errorf("got log %+v", log)
	}
	y.admin.Page(path).Want("Ended by support")
	y.agent.WantRefused(y.agent.Post(path+"/move", url.Values{"status": {"active"}}), http.StatusConflict).Want("already completed", "Nothing was changed")

	y.agent.Page(path + "/adjust").Want("The ride costs €1.00")
	y.agent.WantRefused(y.agent.Post(path+"/adjust", url.Values{"payment_status": {"paid"}, "adjustment_amount": {"-1.234"}, "adjustment_reason": {hostile}}), http.StatusUnprocessableEntity).
		Want("Adjustment, in EUR must be an amount such as 1.50")
	d, _ = y.agent.Follow(y.agent.Post(path+"/adjust", url.Values{"payment_status": {"refunded"}, "adjustment_amount": {"−2,50"}, "adjustment_reason": {hostile}}))
	d.Want("Refunded", "Adjustment: <script>alert(1)", "−€2.50", "Raised to the minimum total of 0", "€1.50", "€0.00")
}

// TestRideEndsOutside: ending out of zone shows the fee.
func TestRideEndsOutside(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	l.priceByUnlocking()
	var area geo.Area
	if err := area.UnmarshalJSON([]byte(`{"type":"Polygon","coordinates":[[[13,52],[14,52],[14,53],[13,53],[13,52]]]}`)); err != nil {
		t.Fatal(err)
	}
	l.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := l.CreateZoneTx(ctx, tx, l.organization.ID, fleet.NewZone{SubaccountID: l.sub.ID, Name: hostile, Type: fleet.ServiceArea, Geometry: area})
		return err
	})
	ride := l.ride(fleet.Active)
	path := "/fleet/rides/" + ride.ID
	y.agent.Page(path).Want(hostile[:25], "so far")
	form := url.Values{"end_reason": {"rider"}, "end_location.lat": {"48.1"}, "end_location.lng": {"11.5"}}
	y.agent.WantRefused(y.agent.Post(path+"/end", form), http.StatusUnprocessableEntity).Want("ending there costs €9.00")
	if got := l.at(ride.ID).Status; got != fleet.Active {
		t.Fatalf("got a ride that is %s", got)
	}
	form.Set("accept_out_of_zone_fee", "on")
	d, _ := y.agent.Follow(y.agent.Post(path+"/end", form))
	d.Want("Out-of-zone fee", "€10.00", "on behalf of the rider")

	// After the grace only an operator can cancel; cancelling a reservation is
	// free.
	reserved := l.ride(fleet.Reserved)
	d, _ = y.agent.Follow(y.agent.Post("/fleet/rides/"+reserved.ID+"/cancel", url.Values{"cancel_reason": {"operator"}}))
	d.Want("Cancelled", "free of charge")
	y.agent.WantRefused(y.agent.Post("/fleet/rides/"+l.ride(fleet.Active).ID+"/cancel", url.Values{"cancel_reason": {"nobody"}}), http.StatusUnprocessableEntity).Want("must be one of")
}

// TestRidesOfOthers: another organization's ride is not found.
func TestRidesOfOthers(t *testing.T) {
	y := newYard(t)
	ride := furnish(y).ride(fleet.Active)
	stranger := y.SignIn(y.NewUser(y.NewOrganization("Other"), "eve@example.com", "Eve", "admin"))
	for _, path := range []string{"", "/end", "/cancel", "/adjust"} {
		stranger.WantRefused(stranger.Get("/fleet/rides/"+ride.ID+path), http.StatusNotFound)
		if path != "" {
			stranger.WantRefused(stranger.Post("/fleet/rides/"+ride.ID+path, nil), http.StatusNotFound)
		}
	}
	stranger.WantRefused(stranger.Post("/fleet/rides/"+ride.ID+"/move", url.Values{"status": {"paused"}}), http.StatusNotFound)
	y.admin.WantRefused(y.admin.Get("/sandbox/fleet/rides/"+ride.ID), http.StatusNotFound)
}

// TestRidesOfManyRiders: a filter that more riders match than a page has finds the rides of all, up
// to the most of a filter, and says where it stops.
func TestRidesOfManyRiders(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	open := l.ride(fleet.Active)
	crowd := func(n int) {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			for range n {
				if _, err := l.CreateCustomerTx(ctx, tx, l.organization.ID, fleet.NewCustomer{SubaccountID: l.sub.ID, Name: "Zoë"}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	crowd(60)
	d := y.agent.Page("/fleet/rides?rider=zoe")
	if got := links(d, "/fleet/rides/ride_"); !slices.Contains(got, "/fleet/rides/"+open.ID) {
		t.Errorf("got %v", got)
	}
	if strings.Contains(webtest.Text(d.Root), "Only the newest") {
		t.Error("the riders are said to be incomplete")
	}
	crowd(60)
	y.agent.Page("/fleet/rides?rider=zoe").Want("Only the newest riders that match, 100.")
}
