package inbox_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// garage is a site whose fleet has sample data.
type garage struct {
	*harness
	fleet *fleet.Service
	db    *db.DB
}

func newGarage(t *testing.T) *garage {
	t.Helper()
	g := &garage{db: dbtest.NewFleet(t)}
	g.fleet = fleet.Open(fleet.Config{DB: g.db}) // not empty, unlike production
	g.harness = newHarness(t, func(c *inbox.Config) { c.Fleet, c.FleetDB = g.fleet, g.db })
	if err := g.fleet.Provision(t.Context(), fleet.Organization{ID: g.Organization.ID, Name: g.Organization.Name}); err != nil {
		t.Fatal(err)
	}
	return g
}

// rides returns the newest rides with a status, by a customer with an e-mail address.
func (g *garage) rides(status fleet.RideStatus) (rides []fleet.Ride, customers []fleet.Customer) {
	g.t.Helper()
	docs, _, err := g.fleet.ListRides(g.t.Context(), g.db, g.Organization.ID, fleet.RideQuery{Status: []fleet.RideStatus{status}, Limit: 100})
	if err != nil {
		g.t.Fatal(err)
	}
	for _, d := range docs {
		var ride fleet.Ride
		if err := json.Unmarshal(d.JSON, &ride); err != nil {
			g.t.Fatal(err)
		}
		if ride.CustomerID == "" {
			continue
		}
		c, err := g.fleet.Customer(g.t.Context(), g.db, g.Organization.ID, string(ride.CustomerID))
		if err != nil {
			g.t.Fatal(err)
		}
		if c.Email != "" {
			rides, customers = append(rides, ride), append(customers, c)
		}
	}
	if len(rides) == 0 {
		g.t.Fatalf("no ride is %s", status)
	}
	return rides, customers
}

func (g *garage) vehicle(id string) fleet.Vehicle {
	g.t.Helper()
	v, err := g.fleet.Vehicle(g.t.Context(), g.db, g.Organization.ID, id)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

// says receives a mail that opens a ticket.
func (g *garage) says(from, subject, text string) {
	g.t.Helper()
	g.receive("email", channel.Message{ExternalID: subject + text, ThreadKey: subject + text, From: channel.Party{Email: from}, Subject: subject, Text: text})
}

// targets returns the targets of the page's links with a prefix, in order.
func targets(d webtest.Document, prefix string) []string {
	var list []string
	for _, a := range d.All("a") {
		if at := webtest.Attr(a, "href"); strings.HasPrefix(at, prefix) {
			list = append(list, at)
		}
	}
	return list
}

// TestReferences checks which words of a ticket name a vehicle.
func TestReferences(t *testing.T) {
	g := newGarage(t)
	rides, _ := g.rides(fleet.Completed)
	v := g.vehicle(rides[0].VehicleID)
	b := g.SignIn(g.Agent)
	path := "/fleet/vehicles/" + v.ID
	for i, tt := range []struct {
		subject, text string
		want          int // links in the text
		panel         bool
	}{
		{"Hello", "It is " + v.Code, 1, true},
		{"Hello", "(" + strings.ToLower(v.Code) + "), and again #" + v.Code + "! -" + v.Code + "-", 3, true},
		{"Broken: " + v.Code + ".", "See the subject", 0, true},
		{"Hello", "x" + v.Code + " " + v.Code + "0 é" + v.Code + " " + v.Code + "-1", 0, false},
		{"Hello", "https://ride.example/" + v.Code, 0, true}, // the address is the link
		{"Hello", "A " + evil + " " + v.Code, 1, true},
		{"Hello", strings.Repeat("A1B2 ", 5000) + v.Code, 0, false}, // past the searched part
		{"Hello", "No code here", 0, false},
	} {
		g.says(fmt.Sprintf("stranger%d@example.com", i), tt.subject, tt.text)
		d := b.Page(fmt.Sprintf("/tickets/%d", i+1))
		inText, inPanel := 0, 0
		for _, a := range d.WithAttr("href", path) {
			if webtest.Attr(a.Parent, "class") == "text" {
				if inText++; webtest.Has(a, "target") || !strings.EqualFold(webtest.Text(a), v.Code) {
					t.Errorf("%q: a link %q", tt.text, webtest.Text(a))
				}
			} else {
				inPanel++
			}
		}
		if inText != tt.want || inPanel > 0 != tt.panel {
			t.Errorf("%s, %.60q: got %d links in the text and %d beside it", tt.subject, tt.text, inText, inPanel)
		}
	}

	// Another organization's vehicles are unknown, also to one without a fleet.
	o := g.NewOrganization("Others")
	stranger := g.SignIn(g.NewUser(o, "stranger@example.org", "Stranger", "agent"))
	h, hh := *g.harness, *g.Harness
	hh.Organization, h.Harness = o, &hh
	h.receive("email", channel.Message{ExternalID: "f1", ThreadKey: "f1", From: channel.Party{Email: "a@example.com"}, Text: "It is " + v.Code + ", ride " + rides[0].ID})
	if got := targets(stranger.Page("/tickets/1"), "/fleet/"); slices.ContainsFunc(got, func(at string) bool { return strings.Contains(at, "_") }) {
		t.Errorf("another organization sees %v", got)
	}
}

// TestRideInQuestion checks the ride that the panel shows, with its price and actions.
func TestRideInQuestion(t *testing.T) {
	g := newGarage(t)
	b := g.SignIn(g.Agent)
	n := 0
	page := func(from, text string) webtest.Document {
		t.Helper()
		n++
		g.says(from, "Question", text)
		return b.Page(fmt.Sprintf("/tickets/%d?in=mine", n))
	}
	shown := func(d webtest.Document, title, ride string) {
		t.Helper()
		for _, h := range d.All("h3") {
			if webtest.Text(h) != title {
				continue
			}
			for li := range h.Parent.Descendants() {
				if li.Data == "a" && webtest.Attr(li, "href") == "/fleet/rides/"+ride {
					return
				}
			}
		}
		t.Errorf("no %s %s in %q", title, ride, webtest.Text(d.Root))
	}
	rides, customers := g.rides(fleet.Completed)

	// The customer's ride on the vehicle, though others rode it later.
	at := slices.IndexFunc(rides, func(r fleet.Ride) bool {
		first := slices.IndexFunc(rides, func(o fleet.Ride) bool { return o.VehicleID == r.VehicleID })
		return rides[first].CustomerID != r.CustomerID && g.vehicle(r.VehicleID).State == fleet.Available
	})
	if at < 0 {
		t.Fatal("no vehicle has two riders")
	}
	ride, v := rides[at], g.vehicle(rides[at].VehicleID)
	newest := slices.IndexFunc(rides, func(r fleet.Ride) bool { return r.VehicleID == ride.VehicleID && r.CustomerID == ride.CustomerID })
	ride = rides[newest]
	d := page(string(customers[at].Email), "I rode "+v.Code)
	shown(d, "Ride in question", ride.ID)
	if strings.Contains(webtest.Text(d.Root), "Other rider") {
		t.Error("the customer's ride is said to be another's")
	}
	want := []string{"/tickets/1/rides/" + ride.ID + "/adjust?in=mine", "/tickets/1/vehicles/" + v.ID + "/state?in=mine", "/tickets/1/vehicles/" + v.ID + "/task?in=mine"}
	if got := append(targets(d, "/tickets/1/rides/"), targets(d, "/tickets/1/vehicles/")...); !slices.Equal(got, want) {
		t.Errorf("got actions %v, want %v", got, want)
	}
	d.Want(v.Code, "Take out of service", "Adjust price", strings.ReplaceAll(ride.PaymentStatus, "_", " "))
	explained, err := g.fleet.ExplainRide(t.Context(), g.db, g.Organization.ID, &ride)
	if err != nil || len(explained.Lines) == 0 {
		t.Fatalf("%d lines, %v", len(explained.Lines), err)
	}
	for _, l := range explained.Lines {
		d.Want(l.Explanation, web.Money(l.Amount, explained.Currency))
	}

	// A stranger names the vehicle: the newest ride is another's.
	d = page("nobody@example.com", v.Code)
	d.Want("Other rider")
	if rides[slices.IndexFunc(rides, func(r fleet.Ride) bool { return r.VehicleID == v.ID })].ID == ride.ID {
		t.Fatal("the ride is the vehicle's newest")
	}

	// A ride by its id and by its external id.
	shown(page("nobody@example.com", "About "+rides[1].ID+"."), "Ride in question", rides[1].ID)
	if err := g.db.Write(t.Context(), func(tx *db.Tx) error {
		r, err := g.fleet.LockRideTx(t.Context(), tx, g.Organization.ID, rides[2].ID)
		if err == nil {
			_, err = g.fleet.UpdateRideTx(t.Context(), tx, g.Organization.ID, r, fleet.RideChange{ExternalID: optional.Of(fleet.NullString("T-2026-77"))}, fleet.Actor{Type: "user"})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	shown(page("nobody@example.com", "Trip T-2026-77"), "Ride in question", rides[2].ID)

	// Without a name: the open ride, else the newest.
	open, riders := g.rides(fleet.Active)
	d = page(string(riders[0].Email), "It does not end")
	shown(d, "Open ride", open[0].ID)
	end := fmt.Sprintf("/tickets/%d/rides/%s/end?in=mine", n, open[0].ID)
	if !slices.Contains(targets(d, "/tickets/"), end) || slices.ContainsFunc(targets(d, fmt.Sprintf("/tickets/%d/vehicles/", n)), func(at string) bool { return strings.Contains(at, "/state") }) {
		t.Errorf("got actions %v", targets(d, fmt.Sprintf("/tickets/%d/", n)))
	}
	idle := slices.IndexFunc(customers, func(c fleet.Customer) bool { return c.OpenRideID == "" })
	d = page(string(customers[idle].Email), "You charged me too much")
	d.Want("Latest ride", "Adjust price")

	// Neither a customer without a ride nor a merged ticket has actions.
	if got := targets(page("nobody@example.com", "Nothing"), fmt.Sprintf("/tickets/%d/rides/", n)); len(got) != 0 {
		t.Errorf("got %v without a ride", got)
	}
	b.Follow(b.Post("/tickets/1/merge", url.Values{"into": {g.ticket(int64(n)).ID}}))
	d = b.Page("/tickets/1")
	if got := targets(d, "/tickets/1/rides/"); len(got) != 0 {
		t.Errorf("a merged ticket has %v", got)
	}
}

// TestRidesOfACustomer checks that a customer's page has rides among tickets, messages, orders and calls,
// newest first, with their actions.
func TestRidesOfACustomer(t *testing.T) {
	g := newGarage(t)
	b := g.SignIn(g.Agent)
	open, riders := g.rides(fleet.Active)
	at := slices.IndexFunc(riders, func(c fleet.Customer) bool { return c.RideCount > 0 })
	if at < 0 {
		t.Fatal("nobody with an open ride has ridden before")
	}
	g.says(string(riders[at].Email), "Question", "Hello")
	customer := g.ticket(1).Customer.ID
	d := b.Page("/customers/" + customer)
	var list []string
	for _, n := range d.WithAttr("class", "card lines") {
		for a := range n.Descendants() {
			if href := webtest.Attr(a, "href"); a.Data == "a" && !strings.HasPrefix(href, "/customers/") {
				list = append(list, href)
			}
		}
	}
	if len(list) < 4 || list[0] != "/tickets/1" || !strings.HasPrefix(list[1], "/tickets/1#m-") || list[2] != "/fleet/rides/"+open[at].ID || len(list) > 30 {
		t.Errorf("got history %v", list)
	}
	base := "/customers/" + customer
	if got := targets(d, base+"/rides/"); !slices.Contains(got, base+"/rides/"+open[at].ID+"/end") || !slices.Contains(got, base+strings.TrimPrefix(list[3], "/fleet")+"/adjust") {
		t.Errorf("got actions %v", got)
	}
	d.Want("Open ride", "Active", g.vehicle(open[at].VehicleID).Code)

	// Another organization's customer with the same address has no rides.
	o := g.NewOrganization("Others")
	h, hh := *g.harness, *g.Harness
	hh.Organization, h.Harness = o, &hh
	c := h.person(desk.NewCustomer{Emails: []string{string(riders[at].Email)}})
	stranger := g.SignIn(g.NewUser(o, "stranger@example.org", "Stranger", "agent"))
	if got := targets(stranger.Page("/customers/"+c.ID), "/fleet/rides/"); len(got) != 0 {
		t.Errorf("another organization sees %v", got)
	}
}

// TestRideInMacro: the variables of a macro have the values of the ride that the panel shows.
func TestRideInMacro(t *testing.T) {
	g := newGarage(t)
	rides, customers := g.rides(fleet.Completed)
	i := slices.IndexFunc(rides, func(r fleet.Ride) bool { return r.Price != nil })
	ride, customer := rides[i], customers[i]
	g.says(string(customer.Email), "My ride", "About "+ride.ID+", please.")
	m := g.macro(desk.Macro{
		Name: "Ride", Text: "{{ride.number}} with {{ride.vehicle}}: {{ride.start}} to {{ride.end}} for {{ride.price}}. {{ticket.number}}", Note: "Ride {{ride.number}}",
	})
	b := g.SignIn(g.Agent)
	g.Prefer(g.Agent, `{"undo_send_seconds":0,"time_zone":"UTC","date_form":"2006-01-02"}`)
	form := "2006-01-02, 15:04"
	want := fmt.Sprintf("%s with %s: %s to %s for %s. 1", cmp.Or(string(ride.ExternalID), ride.ID), g.vehicle(ride.VehicleID).Code,
		ride.StartedAt.Std().UTC().Format(form), ride.EndedAt.Std().UTC().Format(form), web.Money(ride.Price.TotalAmount, ride.Price.Currency))
	if got := strings.TrimSpace(value(b.Page("/tickets/1?macro="+m.ID), "reply")); got != want {
		t.Errorf("the reply is %q, want %q", got, want)
	}
	if w := b.Get("/tickets/1/macros/" + m.ID + "?kind=reply"); !strings.Contains(html.UnescapeString(w.Body.String()), want) {
		t.Errorf("the script gets %s, want %q", w.Body, want)
	}
	if _, notice := b.Follow(b.Post("/tickets/1/write", url.Values{"kind": {"reply"}, "reply": {"Here it is."}, "macro": {m.ID}, "do": {"send"}})); !strings.HasPrefix(notice, "Reply sent.") {
		t.Errorf("got notice %q", notice)
	}
	messages := g.messages(g.ticket(1).ID)
	if last := messages[len(messages)-1]; last.Text != "Ride "+cmp.Or(string(ride.ExternalID), ride.ID) {
		t.Errorf("the note is %q", last.Text)
	}

	// A ride of somebody else is not inserted, and without a ride nothing is.
	g.says("stranger@c.example", "Not mine", "About "+ride.ID+", please.")
	g.says("nobody@c.example", "Hello", "Nothing.")
	for _, path := range []string{"/tickets/2", "/tickets/3"} {
		d := b.Page(path + "?macro=" + m.ID)
		if got := value(d, "reply"); strings.Contains(got, ride.ID) || !strings.Contains(got, "{{ride.number}}") {
			t.Errorf("%s: the reply is %q", path, got)
		}
		d.Want("No value for {{ride.number}}, {{ride.vehicle}}, {{ride.start}}, {{ride.end}}, {{ride.price}}.")
	}
}
