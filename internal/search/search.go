// Package search finds the records of an organization by one text: tickets, messages and customers
// of the helpdesk, orders of its shops, and vehicles and rides of its production fleet.
//
// Words, phrases and filters are those of ticket lists; see package desk. Orders, vehicles and
// rides are found by their whole numbers, codes and ids.
package search

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"

	"github.com/google/uuid"
)

// Type is a kind of record.
type Type string

// The types.
const (
	Ticket   Type = "ticket"
	Customer Type = "customer"
	Message  Type = "message"
	Order    Type = "order"
	Vehicle  Type = "vehicle"
	Ride     Type = "ride"
)

// Types lists all types.
var Types = []Type{Ticket, Customer, Message, Order, Vehicle, Ride}

// Bounds of a search: the characters of its text, and the results of each type.
const (
	MaxText   = 200
	perType   = 10
	inTickets = 10 // tickets whose messages are examined
)

// Service searches. It is safe for concurrent use.
type Service struct {
	DB      *db.DB
	Desk    *desk.Service
	Shop    *shop.Service  // nil: no orders
	Fleet   *fleet.Service // nil: no vehicles and rides
	FleetDB *db.DB
}

// Query is a search.
type Query struct {
	Text   string
	Types  []Type // empty: all
	Reader desk.Reader
	// Hidden are the types whose content the reader may not see, in excerpts of others either.
	Hidden []Type
	// Faults makes the search ignore faulty filters, which are described here; nil: they are an error.
	Faults *[]string
}

// Result is a record that matches.
type Result struct {
	Type    Type
	ID      string
	Title   string
	Excerpt []desk.Span // where it matches; may be empty
	Path    string      // of its page; empty: it has none
	Score   float64     // from 0 to 1: how likely it is the one
}

// The scores of results: an identifier, a name, and words in texts.
const (
	byIdentifier = 1.0
	byName       = 0.8
	byWords      = 0.6
)

// Find returns the best results of each type, the likeliest first. Error: Invalid at q, also for
// faults of filters; Precondition with code range_too_large if the search is too broad.
func (s *Service) Find(ctx context.Context, organizationID string, q Query) ([]Result, error) {
	q.Text = strings.TrimSpace(q.Text)
	var v problem.Validation
	v.Length("q", q.Text, 1, MaxText)
	if err := v.Err(); err != nil {
		return nil, err
	}
	f := finder{Service: s, ctx: ctx, organizationID: organizationID, query: &q, highlighter: desk.NewHighlighter(q.Text)}
	if err := s.DB.Read(ctx, f.helpdesk); err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	if s.Fleet != nil && (f.wants(Vehicle) || f.wants(Ride)) {
		// An organization without a fleet has no vehicles and rides.
		if err := s.FleetDB.Read(ctx, f.fleet); err != nil && problem.Of(err) != problem.NotFound {
			return nil, fmt.Errorf("search the fleet: %w", err)
		}
	}
	slices.SortStableFunc(f.found, func(a, b Result) int { return cmp.Compare(b.Score, a.Score) })
	return f.found, nil
}

// finder is a running search.
type finder struct {
	*Service
	ctx            context.Context
	organizationID string
	query          *Query
	highlighter    *desk.Highlighter
	found          []Result
}

// wants reports whether results of a type are asked for.
func (f *finder) wants(t Type) bool {
	return f.shows(t) && (len(f.query.Types) == 0 || slices.Contains(f.query.Types, t))
}

// shows reports whether the reader may see the content of a type.
func (f *finder) shows(t Type) bool { return !slices.Contains(f.query.Hidden, t) }

// add adds a result. Later ones of equal kind score a little less.
func (f *finder) add(r Result) {
	n := 0
	for i := range f.found {
		if f.found[i].Type == r.Type {
			n++
		}
	}
	if n < perType {
		r.Score -= float64(n) / 100
		f.found = append(f.found, r)
	}
}

// helpdesk adds the records of the helpdesk.
func (f *finder) helpdesk(tx *db.Tx) error {
	f.found = nil // of an attempt before
	tickets, _, err := f.Desk.FindTickets(f.ctx, tx, f.organizationID, desk.TicketQuery{Text: f.query.Text, Reader: f.query.Reader, Limit: inTickets, Faults: f.query.Faults})
	if err != nil {
		return err
	}
	var matching map[string]desk.Message
	if f.shows(Message) && (f.wants(Ticket) || f.wants(Message)) {
		if matching, err = f.Desk.MatchingMessages(f.ctx, tx, tickets, f.highlighter); err != nil {
			return err
		}
	}
	for i := range tickets {
		f.addTicket(&tickets[i], matching[tickets[i].ID])
	}
	if f.wants(Customer) {
		if err := f.customers(tx, tickets); err != nil {
			return err
		}
	}
	if f.wants(Order) && f.Shop != nil {
		return f.orders(tx)
	}
	return nil
}

func (f *finder) addTicket(t *desk.Ticket, m desk.Message) {
	r := Result{
		Type: Ticket, ID: t.ID, Title: "#" + strconv.FormatInt(t.Number, 10) + " " + t.Subject, Path: "/tickets/" + strconv.FormatInt(t.Number, 10),
		Score: byWords, Excerpt: f.highlighter.Excerpt(m.Text),
	}
	if f.query.Text == "#"+strconv.FormatInt(t.Number, 10) {
		r.Score = byIdentifier
	}
	if r.Excerpt == nil {
		r.Excerpt = f.highlighter.Excerpt(t.Subject)
	}
	if r.Excerpt == nil {
		r.Excerpt = f.highlighter.Excerpt(strings.Join(slices.Concat([]string{t.Customer.Name, t.Customer.Email, t.Customer.Phone}, t.Tags), ", ")) // a ticket has them
	}
	if f.wants(Ticket) {
		f.add(r)
	}
	if m.ID != "" && f.wants(Message) {
		f.add(Result{Type: Message, ID: m.ID, Title: cmp.Or(m.Author.Name, t.Customer.Name) + " in " + r.Title, Excerpt: r.Excerpt, Path: r.Path + "#m-" + m.ID, Score: byWords - 0.1})
	}
}

// customers adds those with the address, number or beginning of the name, and those of the tickets
// whose names and addresses match.
func (f *finder) customers(tx *db.Tx, tickets []desk.Ticket) error {
	list, err := f.Desk.CustomersByWords(f.ctx, tx, f.organizationID, f.query.Text, perType)
	if err != nil {
		return err
	}
	queries := []desk.CustomerQuery{{Name: f.query.Text, Sort: keyset.Sort{Field: desk.ByName}, Limit: perType}} // by the index of names
	if strings.Contains(f.query.Text, "@") {
		queries = []desk.CustomerQuery{{Email: []string{f.query.Text}, Limit: perType}}
	} else if strings.HasPrefix(f.query.Text, "+") {
		queries = append(queries, desk.CustomerQuery{Phone: []string{f.query.Text}, Limit: perType})
	}
	for _, q := range queries {
		found, _, err := f.Desk.FindCustomers(f.ctx, tx, f.organizationID, q)
		if err != nil {
			return err
		}
		list = append(list, found...)
	}
	var ids []string
	for i := range tickets {
		ids = append(ids, tickets[i].Customer.ID)
	}
	byID, err := f.Desk.CustomersByID(f.ctx, tx, f.organizationID, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if c, ok := byID[id]; ok && f.highlighter.Excerpt(identity(&c)) != nil {
			list = append(list, c)
		}
	}
	seen := make(map[string]bool)
	for i := range list {
		c := &list[i]
		if seen[c.ID] {
			continue
		}
		seen[c.ID] = true
		r := Result{Type: Customer, ID: c.ID, Title: cmp.Or(c.Name, strings.Join(c.Emails, ", "), strings.Join(c.Phones, ", "), "Unnamed customer"), Path: "/customers/" + c.ID, Score: byName}
		if r.Excerpt = f.highlighter.Excerpt(identity(c)); slices.ContainsFunc(c.Emails, func(e string) bool { return strings.EqualFold(e, f.query.Text) }) {
			r.Score = byIdentifier
		}
		f.add(r)
	}
	return nil
}

// identity returns a customer's name, addresses and numbers.
func identity(c *desk.Customer) string {
	return strings.Join(slices.Concat([]string{c.Name}, c.Emails, c.Phones), ", ")
}

// orders adds the orders with the number, with and without "#".
func (f *finder) orders(tx *db.Tx) error {
	plain := strings.TrimPrefix(f.query.Text, "#")
	list, err := f.Shop.OrdersByNumber(f.ctx, tx, f.organizationID, []string{plain, "#" + plain}, perType)
	if err != nil {
		return err
	}
	for i := range list {
		o := &list[i]
		r := Result{Type: Order, ID: o.ExternalID, Title: "Order " + o.Number, Excerpt: []desk.Span{{Text: o.Status}}, Score: byIdentifier - 0.05}
		if o.CustomerID != "" {
			r.Path = "/customers/" + o.CustomerID
		}
		f.add(r)
	}
	return nil
}

// fleet adds vehicles by their code, device or external id, and rides by their id or external id.
func (f *finder) fleet(tx *db.Tx) error {
	f.found = slices.DeleteFunc(f.found, func(r Result) bool { return r.Type == Vehicle || r.Type == Ride }) // of an attempt before
	values := []string{f.query.Text}
	if f.wants(Vehicle) {
		for _, q := range []fleet.VehicleQuery{{Code: values}, {DeviceID: values}, {ExternalID: values}} {
			q.Limit = perType
			records, _, err := f.Fleet.ListVehicles(f.ctx, tx, f.organizationID, q)
			if err != nil {
				return err
			}
			for _, record := range records {
				var v fleet.Vehicle
				if err := json.Unmarshal(record.JSON, &v); err != nil {
					return fmt.Errorf("read vehicle %s: %w", record.ID, err)
				}
				f.addOnce(Result{
					Type: Vehicle, ID: v.ID, Title: "Vehicle " + string(v.Code), Excerpt: []desk.Span{{Text: words(string(v.State))}}, Path: "/fleet/vehicles/" + v.ID, Score: byIdentifier,
				})
			}
		}
	}
	if !f.wants(Ride) {
		return nil
	}
	if _, err := uuid.Parse(f.query.Text); err == nil {
		ride, err := f.Fleet.Ride(f.ctx, tx, f.organizationID, f.query.Text)
		if err == nil {
			f.addRide(&ride)
		} else if problem.Of(err) != problem.NotFound {
			return err
		}
	}
	records, _, err := f.Fleet.ListRides(f.ctx, tx, f.organizationID, fleet.RideQuery{ExternalID: values, Limit: perType})
	if err != nil {
		return err
	}
	for _, record := range records {
		var ride fleet.Ride
		if err := json.Unmarshal(record.JSON, &ride); err != nil {
			return fmt.Errorf("read ride %s: %w", record.ID, err)
		}
		f.addRide(&ride)
	}
	return nil
}

func (f *finder) addRide(r *fleet.Ride) {
	f.addOnce(Result{Type: Ride, ID: r.ID, Title: "Ride " + cmp.Or(string(r.ExternalID), r.ID), Excerpt: []desk.Span{{Text: words(string(r.Status))}}, Path: "/fleet/rides/" + r.ID, Score: byIdentifier})
}

// addOnce adds a result unless it is there.
func (f *finder) addOnce(r Result) {
	if !slices.ContainsFunc(f.found, func(o Result) bool { return o.Type == r.Type && o.ID == r.ID }) {
		f.add(r)
	}
}

// words returns an identifier such as out_of_service as words.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
