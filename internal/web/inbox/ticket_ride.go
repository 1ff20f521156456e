package inbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// Limits of the search for vehicles and rides in a ticket's texts.
const (
	maxSearchedTexts = 5     // of the customer, newest first
	maxSearchedText  = 4_000 // bytes of each
	maxReferences    = 20
	maxFleetLinks    = 100 // in a text
)

// reference is a word that may be a vehicle's code, or a ride's id or external id.
type reference struct {
	word string
	at   time.Time // of its message
}

var word = regexp.MustCompile(`[\pL\pN_-]+`)

// referenceWord returns a word without hyphens around it; ok if it may be a reference: 3 to 64
// ASCII characters with a digit.
func referenceWord(w string) (string, bool) {
	w = strings.Trim(w, "-_")
	ascii := !strings.ContainsFunc(w, func(c rune) bool { return c >= 0x80 })
	return w, ascii && len(w) >= 3 && len(w) <= 64 && strings.ContainsAny(w, "0123456789")
}

// references returns the references in the newest messages of the customer on the page, then
// those in the subject. If there are too many, numbers go last.
func references(t *desk.Ticket, th *thread) []reference {
	var codes, numbers []reference
	add := func(text string, at time.Time) {
		for _, w := range word.FindAllString(safehtml.Clip(text, maxSearchedText), -1) {
			w, ok := referenceWord(w)
			list := &codes
			if strings.Trim(w, "0123456789-") == "" {
				list = &numbers
			}
			if ok && len(*list) < maxReferences && !slices.ContainsFunc(*list, func(r reference) bool { return r.word == w }) {
				*list = append(*list, reference{w, at})
			}
		}
	}
	searched := 0
	for _, e := range slices.Backward(th.Entries) {
		if e.Message == nil || e.Message.Class != desk.AuthorCustomer || searched == maxSearchedTexts {
			continue
		}
		searched++
		var text strings.Builder
		for _, part := range e.Message.Text {
			text.WriteString(part.Text)
		}
		add(text.String(), e.Message.accepted)
	}
	add(t.Subject, t.CreatedAt)
	all := append(codes, numbers...)
	return all[:min(len(all), maxReferences)]
}

// fleetRecords are the vehicles, by code in lower case, and the rides, by id and external id,
// that references name.
type fleetRecords struct {
	vehicles map[string]*fleet.Vehicle
	rides    map[string]*fleet.Ride
}

// findFleetRecords looks the references up: in one query per kind of name, and in none if there
// are no references.
func (p *pages) findFleetRecords(r *web.Request, tx *db.Tx, refs []reference) (fleetRecords, error) {
	found := fleetRecords{map[string]*fleet.Vehicle{}, map[string]*fleet.Ride{}}
	if len(refs) == 0 {
		return found, nil
	}
	var words, ids []string
	for _, ref := range refs {
		words = append(words, ref.word)
		if strings.HasPrefix(ref.word, "ride_") {
			ids = append(ids, ref.word)
		}
	}
	docs, _, err := p.Fleet.ListVehicles(r.Context(), tx, r.OrganizationID, fleet.VehicleQuery{Code: words, Limit: maxReferences})
	if err != nil {
		return found, err
	}
	vehicles, err := decodeRecords[fleet.Vehicle](docs)
	if err != nil {
		return found, err
	}
	for i := range vehicles {
		found.vehicles[strings.ToLower(vehicles[i].Code)] = &vehicles[i]
	}
	docs, _, err = p.Fleet.ListRides(r.Context(), tx, r.OrganizationID, fleet.RideQuery{ExternalID: words, Limit: maxReferences})
	if problem.Of(err) == problem.NotFound { // the organization has no fleet
		return found, nil
	}
	if err != nil {
		return found, err
	}
	named, err := p.Fleet.RidesByID(r.Context(), tx, r.OrganizationID, ids)
	if err != nil {
		return found, err
	}
	rides, err := decodeRecords[fleet.Ride](append(docs, named...))
	if err != nil {
		return found, err
	}
	for i := range rides {
		found.rides[rides[i].ID] = &rides[i]
		if id := string(rides[i].ExternalID); id != "" {
			found.rides[id] = &rides[i]
		}
	}
	return found, nil
}

func decodeRecords[T any](docs []fleet.Record) ([]T, error) {
	list := make([]T, len(docs))
	for i := range docs {
		if err := json.Unmarshal(docs[i].JSON, &list[i]); err != nil {
			return nil, fmt.Errorf("read record %s: %w", docs[i].ID, err)
		}
	}
	return list, nil
}

// path returns the path of the record that a word names; empty: none.
func (f *fleetRecords) path(word string) string {
	if ride := f.rides[word]; ride != nil {
		return ridePath(ride.ID)
	}
	if v := f.vehicles[strings.ToLower(word)]; v != nil {
		return "/fleet/vehicles/" + v.ID
	}
	return ""
}

// addLinks links the words of the page's messages that name records.
func (f *fleetRecords) addLinks(th *thread) {
	if len(f.vehicles) == 0 && len(f.rides) == 0 {
		return
	}
	for _, e := range th.Entries {
		if e.Message != nil {
			e.Message.Text, e.Message.Quoted = f.link(e.Message.Text), f.link(e.Message.Quoted)
		}
	}
}

// link splits spans at the words that name records.
func (f *fleetRecords) link(spans []span) []span {
	var out []span
	for _, s := range spans {
		if s.Link != "" {
			out = append(out, s)
			continue
		}
		at := 0
		for _, m := range word.FindAllStringIndex(s.Text, -1) {
			w, ok := referenceWord(s.Text[m[0]:m[1]])
			if !ok || len(out) > 2*maxFleetLinks {
				continue
			}
			path := f.path(w)
			if path == "" {
				continue
			}
			start := m[0] + strings.Index(s.Text[m[0]:m[1]], w)
			if start > at {
				out = append(out, span{Text: s.Text[at:start]})
			}
			at = start + len(w)
			out = append(out, span{Text: w, Link: path})
		}
		if at < len(s.Text) {
			out = append(out, span{Text: s.Text[at:]})
		}
	}
	return out
}

// rideCard is the ride in question, or the vehicle in question without a ride.
type rideCard struct {
	Title       string
	Path        string // of the ride; empty: none
	State       string
	Vehicle     string // code
	VehiclePath string
	Service     string // vehicle's state
	Stranger    bool   // the ride has a rider who is not known to be the customer
	From, To    web.Time
	Facts       string // "12 min, 3.2 km"
	Price       string
	Parts       []pair // explanations and amounts of its lines
	Actions     []pair // labels and paths
	Nearest     string // link to the available vehicles nearest to the end of the ride, or to the vehicle; empty: unknown

	ride *fleet.Ride // nil: none
}

// macroValues returns the values of the variables of macros; none for a ride whose rider is not
// known to be the customer, who would read them.
func (c *rideCard) macroValues() map[string]string {
	if c == nil || c.ride == nil || c.Stranger {
		return nil
	}
	values := map[string]string{"ride.number": cmp.Or(string(c.ride.ExternalID), c.ride.ID), "ride.vehicle": c.Vehicle}
	if !c.From.IsZero() {
		values["ride.start"] = c.From.When()
	}
	if !c.To.IsZero() {
		values["ride.end"] = c.To.When()
	}
	if price := c.ride.Price; price != nil {
		values["ride.price"] = web.Money(price.TotalAmount, price.Currency)
	}
	return values
}

// macroRide returns the values of the variables of the ride that the ticket's panel shows, if a
// macro in reach of the reader uses them. It reads the ticket as its page does.
func (p *pages) macroRide(r *web.Request, t *desk.Ticket, macroID string) (map[string]string, error) {
	if macroID == "" || p.Fleet == nil {
		return nil, nil
	}
	m, err := p.Desk.Macro(r.Context(), p.DB, r.OrganizationID, r.UserID, macroID)
	if problem.Of(err) == problem.NotFound || err == nil && !m.UsesRide() {
		return nil, nil // whoever applies the macro reports that it is gone
	}
	if err != nil {
		return nil, err
	}
	b := ticketPage{Ticket: *t, Path: ticketPath(t.Number)}
	if err := p.DB.Read(r.Context(), func(tx *db.Tx) error {
		if b.Thread, err = p.readThread(r, tx, t, nil, nil); err != nil {
			return err
		}
		b.Panel, err = p.readCustomerPanel(r, tx, t)
		return err
	}); err != nil {
		return nil, err
	}
	if err := p.readFleet(r, &b); err != nil {
		return nil, err
	}
	return b.Panel.Ride.macroValues(), nil
}

// findRide returns the ride in question: of the first reference that names a record, else the
// customer's open or newest ride; nil if there is none. base is the path below which actions
// are, query that of their addresses.
func (p *pages) findRide(r *web.Request, tx *db.Tx, refs []reference, found *fleetRecords, riders []fleet.Customer, base, query string) (*rideCard, error) {
	own := make([]string, len(riders))
	for i := range riders {
		own[i] = riders[i].ID
	}
	for _, ref := range refs {
		if ride := found.rides[ref.word]; ride != nil {
			return p.newRideCard(r, tx, "Ride in question", ride.ID, nil, own, base, query)
		}
		if v := found.vehicles[strings.ToLower(ref.word)]; v != nil {
			id, err := p.rideOn(r, tx, v, own, ref.at)
			if err != nil {
				return nil, err
			}
			title := "Ride in question"
			if id == "" {
				title = "Vehicle in question"
			}
			return p.newRideCard(r, tx, title, id, v, own, base, query)
		}
	}
	for i := range riders {
		if id := string(riders[i].OpenRideID); id != "" {
			return p.newRideCard(r, tx, "Open ride", id, nil, own, base, query)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	id, err := p.newestRide(r, tx, fleet.RideQuery{CustomerID: own})
	if id == "" || err != nil {
		return nil, err
	}
	return p.newRideCard(r, tx, "Latest ride", id, nil, own, base, query)
}

// rideOn returns the id of the customer's ride on a vehicle that a message names: the
// customer's newest, else the open one, else the newest before the message; empty: none.
func (p *pages) rideOn(r *web.Request, tx *db.Tx, v *fleet.Vehicle, own []string, at time.Time) (string, error) {
	before := period.Range{High: &at}
	if len(own) > 0 {
		if id, err := p.newestRide(r, tx, fleet.RideQuery{VehicleID: []string{v.ID}, CustomerID: own, CreatedAt: before}); id != "" || err != nil {
			return id, err
		}
	}
	if v.CurrentRideID != "" {
		return string(v.CurrentRideID), nil
	}
	return p.newestRide(r, tx, fleet.RideQuery{VehicleID: []string{v.ID}, CreatedAt: before})
}

// newestRide returns the id of the newest ride of a query; empty: none.
func (p *pages) newestRide(r *web.Request, tx *db.Tx, q fleet.RideQuery) (string, error) {
	q.Limit = 1
	docs, _, err := p.Fleet.ListRides(r.Context(), tx, r.OrganizationID, q)
	if len(docs) == 0 || err != nil {
		return "", err
	}
	return docs[0].ID, nil
}

// newRideCard reads a ride and its vehicle, unless v is known.
func (p *pages) newRideCard(r *web.Request, tx *db.Tx, title, id string, v *fleet.Vehicle, own []string, base, query string) (*rideCard, error) {
	c := &rideCard{Title: title}
	var ride fleet.Ride
	vehicleID := ""
	if id != "" {
		var err error
		if ride, err = p.Fleet.Ride(r.Context(), tx, r.OrganizationID, id); err != nil {
			return nil, err
		}
		c.setRide(r, &ride, own)
		c.ride = &ride
		if ride.Price != nil {
			explained, err := p.Fleet.ExplainRide(r.Context(), tx, r.OrganizationID, &ride)
			if err != nil {
				return nil, err
			}
			for _, l := range explained.Lines {
				c.Parts = append(c.Parts, pair{l.Explanation, web.Money(l.Amount, explained.Currency)})
			}
		}
		vehicleID = ride.VehicleID
	}
	if v == nil {
		read, err := p.Fleet.Vehicle(r.Context(), tx, r.OrganizationID, vehicleID)
		switch {
		case problem.Of(err) == problem.NotFound:
			if c.Vehicle, _, err = p.Fleet.DeletedVehicle(r.Context(), tx, r.OrganizationID, vehicleID); err != nil && problem.Of(err) != problem.NotFound {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			v = &read
		}
	}
	c.Actions = rideActions(&ride, base, query)
	place := ride.EndLocation
	if place == nil && v != nil {
		place = v.Location
	}
	if place != nil {
		c.Nearest = fmt.Sprintf("/fleet/map?near=%.5f,%.5f", place.Lat, place.Lng)
	}
	if v != nil {
		c.Vehicle, c.VehiclePath, c.Service = v.Code, "/fleet/vehicles/"+v.ID, inWords(string(v.State))
		if v.State == fleet.NonOperational {
			c.Service = "Out of service"
		}
		if v.CurrentRideID == "" && len(v.State.Next()) > 0 {
			label := "Change vehicle state"
			if v.State == fleet.Available {
				label = "Take out of service"
			}
			c.Actions = append(c.Actions, pair{label, base + "/vehicles/" + v.ID + "/state" + query})
		}
	}
	return c, nil
}

// rideActions returns the labels and paths of the actions on a ride, as the fleet's pages offer
// them.
func rideActions(ride *fleet.Ride, base, query string) []pair {
	var list []pair
	add := func(label, action string) {
		list = append(list, pair{label, base + "/rides/" + ride.ID + action + query})
	}
	next := ride.Status.Next()
	if slices.Contains(next, fleet.Completed) {
		add("End ride", "/end")
	}
	if slices.Contains(next, fleet.Cancelled) {
		add("Cancel ride", "/cancel")
	}
	if ride.Price != nil {
		add("Adjust price", "/adjust")
	}
	return list
}

// setRide sets the ride of a card.
func (c *rideCard) setRide(r *web.Request, ride *fleet.Ride, own []string) {
	c.Path, c.State = ridePath(ride.ID), inWords(string(ride.Status))
	c.Stranger = ride.CustomerID != "" && !slices.Contains(own, string(ride.CustomerID))
	from, until := ride.StartedAt.Std(), ride.EndedAt.Std()
	if from.IsZero() {
		from = ride.CreatedAt.Std()
	}
	c.From, c.To = r.Time(from), r.Time(until)
	seconds := ride.DurationSeconds
	if ride.Status == fleet.Active || ride.Status == fleet.Paused {
		seconds = int64(r.Now.Sub(from).Seconds())
	}
	var facts []string
	if seconds >= 60 {
		facts = append(facts, web.Count(seconds/60, "%d min", "%d min"))
	}
	if m := ride.DistanceMeters; m != nil && *m > 0 {
		facts = append(facts, kilometers(*m))
	}
	c.Facts = strings.Join(facts, ", ")
	price := ride.Price
	if price == nil {
		return
	}
	c.Price = web.Money(price.TotalAmount, price.Currency) + ", " + strings.ToLower(inWords(ride.PaymentStatus))
}

// readFleet reads the customer's riders and the ride in question, and links the vehicles and
// rides in the ticket's texts.
func (p *pages) readFleet(r *web.Request, b *ticketPage) error {
	refs := references(&b.Ticket, &b.Thread)
	if p.Fleet == nil || len(refs) == 0 && len(b.Panel.emails) == 0 && len(b.Panel.phones) == 0 {
		return nil
	}
	var found fleetRecords
	err := p.FleetDB.Read(r.Context(), func(tx *db.Tx) (err error) {
		var riders []fleet.Customer
		if riders, b.Panel.Riders, err = p.readRiders(r, tx, b.Panel.emails, b.Panel.phones, fewRides, ""); err != nil {
			return err
		}
		if found, err = p.findFleetRecords(r, tx, refs); err != nil {
			return err
		}
		b.Panel.Ride, err = p.findRide(r, tx, refs, &found, riders, b.Path, b.In)
		return err
	})
	if err != nil {
		return err
	}
	if b.Survivor != "" && b.Panel.Ride != nil {
		b.Panel.Ride.Actions = nil // the survivor has them
	}
	found.addLinks(&b.Thread)
	return nil
}
