package inbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// Limits of the lists in the panel.
const (
	fewOthers = 5
	fewOrders = 3
	fewCalls  = 3
	fewRiders = 3
	fewRides  = 3
	fewTasks  = 5
)

// customerPanel is the panel about a ticket's customer.
type customerPanel struct {
	ID, Name   string
	Avatar     web.Avatar
	Emails     []contactPoint
	Phones     []string
	Identities []pair
	ExternalID string
	Gone       bool // deleted
	Others     []candidate
	More       bool // there are more tickets
	Orders     []orderLine
	Calls      []callLine
	Riders     []rider
	Ride       *rideCard // in question; nil: none
	Tasks      []taskLine

	emails, phones []string
}

type contactPoint struct {
	Email string
	Fails bool // mail to it bounces
}

// taskLine is a task of the fleet that refers to the ticket.
type taskLine struct{ Path, Title, State string }

type orderLine struct {
	Number, ID, Status, Total, URL string
	Items                          []string
	Returns                        []string
	At                             web.Time
}

type callLine struct {
	Words, With string
	At          web.Time
}

// rider is a fleet customer with the same address or number.
type rider struct {
	Path   string
	Name   string
	Status web.Badge
	Says   string // "12 rides"
	Open   *rideLine
	Rides  []rideLine
}

type rideLine struct {
	Path    string
	Words   string
	Price   string
	At      web.Time
	Actions []pair // on the customer's page

	at time.Time
}

// readCustomerPanel reads the customer's tickets, orders, calls and rides.
func (p *pages) readCustomerPanel(r *web.Request, tx *db.Tx, t *desk.Ticket) (customerPanel, error) {
	ctx := r.Context()
	b := customerPanel{ID: t.Customer.ID, Name: cmp.Or(t.Customer.Name, t.Customer.Email, t.Customer.Phone)}
	c, err := p.Desk.Customer(ctx, tx, r.OrganizationID, t.Customer.ID)
	switch {
	case problem.Of(err) == problem.NotFound:
		b.Gone = true
	case err != nil:
		return b, err
	default:
		b.Name, b.Phones, b.ExternalID = cmp.Or(c.Name, b.Name), c.Phones, c.ExternalID
		b.emails, b.phones = c.Emails, c.Phones
		for _, e := range c.Emails {
			b.Emails = append(b.Emails, contactPoint{e, slices.Contains(c.Undeliverable, e)})
		}
		for _, i := range c.Identities {
			b.Identities = append(b.Identities, pair{channelLabel(i.Channel), i.ExternalID})
		}
	}
	b.Avatar = web.NewAvatar(cmp.Or(b.Name, "?"))
	others, next, err := p.Desk.FindTickets(ctx, tx, r.OrganizationID, desk.TicketQuery{CustomerID: []string{t.Customer.ID}, Limit: fewOthers + 1})
	if err != nil {
		return b, err
	}
	for _, o := range others {
		if o.ID != t.ID && len(b.Others) < fewOthers {
			b.Others = append(b.Others, newCandidate(r, &o, ""))
		}
	}
	b.More = next != nil || len(others) > len(b.Others)+1
	if p.Shop != nil {
		orders, err := p.Shop.Orders(ctx, tx, r.OrganizationID, t.Customer.ID)
		if err != nil {
			return b, err
		}
		for i := range orders[:min(len(orders), fewOrders)] {
			b.Orders = append(b.Orders, newOrderLine(r, &orders[i]))
		}
	}
	if p.Calls != nil && len(b.phones) > 0 {
		calls, err := p.Calls.List(ctx, tx, r.OrganizationID, call.Filter{Phone: b.phones[0]})
		if err != nil {
			return b, err
		}
		for _, c := range calls[:min(len(calls), fewCalls)] {
			e := newCallEntry(r, c)
			if e.Duration != "" {
				e.Words += ", " + e.Duration
			}
			b.Calls = append(b.Calls, callLine{e.Words, e.Target, e.At})
		}
	}
	return b, nil
}

// paymentNames are the objects of payments, which have no number, by the prefix of their ids.
var paymentNames = map[string]string{"ch": "Payment", "cs": "Checkout", "in": "Invoice", "pi": "Payment", "sub": "Subscription"}

// orderName returns the number of an order that customers see, or its kind.
func orderName(o *shop.Order) string {
	if kind, _, found := strings.Cut(o.ExternalID, "_"); found && (o.Number == "" || o.Number == o.ExternalID) {
		return cmp.Or(paymentNames[kind], o.ExternalID)
	}
	return cmp.Or(o.Number, o.ExternalID)
}

func newOrderLine(r *web.Request, o *shop.Order) orderLine {
	l := orderLine{Number: orderName(o), ID: o.ExternalID, Status: o.Status, At: r.Time(o.PlacedAt), Total: strings.TrimSpace(o.Total + " " + o.Currency)}
	if strings.HasPrefix(o.URL, "https://") {
		l.URL = o.URL
	}
	for i, item := range o.Items {
		if i == 3 && len(o.Items) > 4 {
			l.Items = append(l.Items, web.Sprintf("%d more", len(o.Items)-i))
			break
		}
		l.Items = append(l.Items, strconv.FormatInt(item.Quantity, 10)+" × "+item.Name)
	}
	for _, back := range o.Returns {
		text := "Return: " + back.Status
		if back.Reason != "" {
			text += " (" + back.Reason + ")"
		}
		l.Returns = append(l.Returns, text)
	}
	return l
}

// readRiders returns the production fleet's customers with one of the addresses or numbers, and
// their views with up to limit rides. base is the path below which actions on the rides are;
// empty: none.
func (p *pages) readRiders(r *web.Request, tx *db.Tx, emails, phones []string, limit int, base string) ([]fleet.Customer, []rider, error) {
	found, err := p.findRiders(r, tx, emails, phones)
	if err != nil {
		return nil, nil, err
	}
	var list []rider
	for i := range found {
		one, err := p.oneRider(r, tx, &found[i], limit, base)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, one)
	}
	return found, list, nil
}

// findRiders returns up to fewRiders customers, those found by e-mail address first.
func (p *pages) findRiders(r *web.Request, tx *db.Tx, emails, phones []string) ([]fleet.Customer, error) {
	var found []fleet.Customer
	for _, q := range []fleet.CustomerQuery{{Email: emails}, {Phone: phones}} {
		if len(q.Email) == 0 && len(q.Phone) == 0 {
			continue // would find all
		}
		q.Limit = fewRiders
		docs, _, err := p.Fleet.ListCustomers(r.Context(), tx, r.OrganizationID, q)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			if len(found) == fewRiders || slices.ContainsFunc(found, func(c fleet.Customer) bool { return c.ID == d.ID }) {
				continue
			}
			var c fleet.Customer
			if err := json.Unmarshal(d.JSON, &c); err != nil {
				return nil, fmt.Errorf("read rider %s: %w", d.ID, err)
			}
			found = append(found, c)
		}
	}
	return found, nil
}

func (p *pages) oneRider(r *web.Request, tx *db.Tx, c *fleet.Customer, limit int, base string) (rider, error) {
	b := rider{Path: "/fleet/riders/" + c.ID, Name: cmp.Or(string(c.Name), string(c.Email), string(c.Phone)), Status: web.Badge{Text: "Active", Tone: web.Good}}
	if c.Status == fleet.CustomerBlocked {
		b.Status = web.Badge{Text: "Blocked", Tone: web.Bad, Icon: "alert"}
	}
	b.Says = web.Count(c.RideCount, "%d ride", "%d rides")
	docs, _, err := p.Fleet.ListRides(r.Context(), tx, r.OrganizationID, fleet.RideQuery{CustomerID: []string{c.ID}, Limit: limit + 1})
	if err != nil {
		return b, err
	}
	for _, d := range docs {
		var ride fleet.Ride
		if err := json.Unmarshal(d.JSON, &ride); err != nil {
			return b, fmt.Errorf("read ride %s: %w", d.ID, err)
		}
		l := newRideLine(r, &ride)
		if base != "" {
			l.Actions = rideActions(&ride, base, "")
		}
		if string(c.OpenRideID) == ride.ID {
			b.Open = &l
		} else if len(b.Rides) < limit {
			b.Rides = append(b.Rides, l)
		}
	}
	return b, nil
}

func newRideLine(r *web.Request, ride *fleet.Ride) rideLine {
	l := rideLine{Path: ridePath(ride.ID), Words: inWords(string(ride.Status)), Price: ridePrice(ride)}
	at := time.Time(ride.StartedAt)
	if at.IsZero() {
		at = time.Time(ride.CreatedAt)
	}
	l.At, l.at = r.Time(at), at
	if ride.DistanceMeters != nil && *ride.DistanceMeters > 0 {
		l.Words += ", " + kilometers(*ride.DistanceMeters)
	}
	return l
}

func ridePath(id string) string { return "/fleet/rides/" + id }

// inWords returns a status as words: "Not due".
func inWords(status string) string {
	words := strings.ReplaceAll(status, "_", " ")
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + words[1:]
}

func kilometers(meters int64) string {
	return strconv.FormatFloat(float64(meters)/1000, 'f', 1, 64) + " km"
}

// ridePrice returns the price of a ride, with its payment status unless it is paid; empty: none.
func ridePrice(ride *fleet.Ride) string {
	if ride.Price == nil {
		return ""
	}
	price := web.Money(ride.Price.TotalAmount, ride.Price.Currency)
	if status := strings.ReplaceAll(ride.PaymentStatus, "_", " "); status != "" && status != "paid" {
		price += ", " + status
	}
	return price
}
