package inbox

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// historyPage is the number of entries of a customer's history on a page.
const historyPage = 30

// historyKinds are the kinds of entries in the filter of a history, with their labels.
var historyKinds = [][2]string{{"", "All"}, {"tickets", "Tickets"}, {"messages", "Messages"}, {"rides", "Rides"}, {"orders", "Orders"}, {"calls", "Calls"}}

// historyEntry is a ticket, message, ride, order or call; the others are nil.
type historyEntry struct {
	Ticket  *row
	Message *historyMessage
	Ride    *rideLine
	Order   *order
	Call    *callRow

	at time.Time
}

// historyMessage is a message in a history.
type historyMessage struct {
	Who, Text  string
	Icon, Name string // of the channel
	Path       string
	At         web.Time
}

// history is a page of a customer's history, newest first: what was before a time, of one kind or of all.
type history struct {
	r       *web.Request
	kind    string    // empty: all
	before  time.Time // zero: now
	entries []historyEntry
}

// newHistory reads the filter and the position of the request.
func newHistory(r *web.Request) *history {
	h := &history{r: r}
	asked := r.URL.Query()
	for _, k := range historyKinds {
		if k[0] == asked.Get("kind") {
			h.kind = k[0]
		}
	}
	if at, err := strconv.ParseInt(asked.Get("before"), 10, 64); err == nil && at > 0 {
		h.before = time.UnixMicro(at)
	}
	return h
}

// wants reports whether entries of a kind are on the page.
func (h *history) wants(kind string) bool { return h.kind == "" || h.kind == kind }

// earlier returns the range of the page's times.
func (h *history) earlier() period.Range {
	if h.before.IsZero() {
		return period.Range{}
	}
	return period.Range{High: &h.before, HighOpen: true}
}

// add adds an entry unless it is on a later page.
func (h *history) add(e historyEntry) {
	if h.before.IsZero() || e.at.Before(h.before) {
		h.entries = append(h.entries, e)
	}
}

// path returns the path of the customer's page with a kind and a position.
func (h *history) path(customerID, kind string, before time.Time) string {
	q := url.Values{}
	if kind != "" {
		q.Set("kind", kind)
	}
	if !before.IsZero() {
		q.Set("before", strconv.FormatInt(before.UnixMicro(), 10))
	}
	if len(q) == 0 {
		return "/customers/" + customerID
	}
	return "/customers/" + customerID + "?" + q.Encode()
}

// page sets the history of a customer's page, the links of its filter and its pager. Entries of the same
// time are on one page.
func (h *history) page(body *customerPage) {
	slices.SortStableFunc(h.entries, func(a, b historyEntry) int { return b.at.Compare(a.at) })
	n := min(len(h.entries), historyPage)
	for n > 0 && n < len(h.entries) && h.entries[n].at.Equal(h.entries[n-1].at) {
		n++
	}
	body.History = h.entries[:n]
	if n < len(h.entries) {
		body.Pager.Older = h.path(body.ID, h.kind, h.entries[n-1].at)
	}
	if !h.before.IsZero() {
		body.Pager.Newer = h.path(body.ID, h.kind, time.Time{})
	}
	for _, k := range historyKinds {
		body.Kinds = append(body.Kinds, filterLink{k[1], h.path(body.ID, k[0], time.Time{}), k[0] == h.kind})
	}
}

// readDesk adds tickets by their creation, and messages of all channels.
func (h *history) readDesk(p *pages, tx *db.Tx, customerID string, names map[string]string) error {
	r := h.r
	if h.wants("tickets") {
		tickets, _, err := p.Desk.FindTickets(r.Context(), tx, r.OrganizationID, desk.TicketQuery{
			CustomerID: []string{customerID}, CreatedAt: h.earlier(), Sort: keyset.Sort{Field: desk.ByCreatedAt, Descending: true}, Limit: historyPage + 1,
		})
		if err != nil {
			return err
		}
		previews, err := p.Desk.Previews(r.Context(), tx, tickets)
		if err != nil {
			return err
		}
		for i := range tickets {
			line := newRow(r, &tickets[i], previews[tickets[i].ID], names)
			line.Status = new(statusBadge(tickets[i].Status))
			h.add(historyEntry{Ticket: &line, at: tickets[i].CreatedAt})
		}
	}
	if !h.wants("messages") {
		return nil
	}
	messages, err := p.Desk.CustomerMessages(r.Context(), tx, r.OrganizationID, customerID, h.before, historyPage+1)
	if err != nil {
		return err
	}
	for i := range messages {
		m := &messages[i]
		who := m.Author.Name
		switch {
		case who != "":
		case m.Author.Type == desk.AuthorCustomer:
			who = "Customer"
		case m.Author.Type == desk.AuthorAgent:
			who = "Agent"
		default:
			who = "Automatic"
		}
		h.add(historyEntry{Message: &historyMessage{
			who, safehtml.Clip(strings.Join(strings.Fields(m.Text), " "), 160), channelIcon(m.Channel), channelLabel(m.Channel),
			ticketPath(m.TicketNumber) + "#m-" + m.ID, r.Time(m.At),
		}, at: m.At})
	}
	return nil
}

// readOrders adds the customer's orders, of the newest 200.
func (h *history) readOrders(p *pages, tx *db.Tx, customerID string) error {
	if p.Shop == nil || !h.wants("orders") {
		return nil
	}
	orders, err := p.Shop.Orders(h.r.Context(), tx, h.r.OrganizationID, customerID)
	if err != nil {
		return err
	}
	for _, o := range orders {
		shown := order{Order: o, Name: orderName(&o), Placed: h.r.Time(o.PlacedAt), Amount: strings.TrimSpace(o.Total + " " + o.Currency)}
		if u, err := url.Parse(o.URL); err == nil && u.Scheme == "https" && u.Host != "" {
			shown.Shop = o.URL
		}
		h.add(historyEntry{Order: &shown, at: o.PlacedAt})
	}
	return nil
}

// readCalls adds the calls from and to the customer's numbers.
func (h *history) readCalls(p *pages, tx *db.Tx, phones []string) error {
	if p.Calls == nil || !h.wants("calls") {
		return nil
	}
	r := h.r
	var calls []*call.Call
	for _, phone := range phones {
		list, err := p.Calls.List(r.Context(), tx, r.OrganizationID, call.Filter{Phone: phone})
		if err != nil {
			return err
		}
		for _, c := range list {
			if h.before.IsZero() || startTime(c).Before(h.before) {
				calls = append(calls, c)
			}
		}
	}
	slices.SortFunc(calls, func(a, b *call.Call) int { return startTime(b).Compare(startTime(a)) })
	for _, c := range calls[:min(len(calls), historyPage+1)] {
		line := newCallRow(r, c)
		if c.TicketID != "" {
			t, err := p.Desk.Ticket(r.Context(), tx, r.OrganizationID, c.TicketID)
			if err == nil {
				line.Path = ticketPath(t.Number)
			} else if problem.Of(err) != problem.NotFound { // deleted since
				return err
			}
		}
		h.add(historyEntry{Call: &line, at: startTime(c)})
	}
	return nil
}

// readRides adds rides of riders by their creation.
func (h *history) readRides(p *pages, tx *db.Tx, riders []fleet.Customer, base string) error {
	if len(riders) == 0 || !h.wants("rides") {
		return nil
	}
	ids := make([]string, len(riders))
	for i := range riders {
		ids[i] = riders[i].ID
	}
	docs, _, err := p.Fleet.ListRides(h.r.Context(), tx, h.r.OrganizationID, fleet.RideQuery{
		CustomerID: ids, CreatedAt: h.earlier(), Sort: keyset.Sort{Field: "created_at", Descending: true}, Limit: historyPage + 1,
	})
	if err != nil {
		return err
	}
	for _, d := range docs {
		var ride fleet.Ride
		if err := json.Unmarshal(d.JSON, &ride); err != nil {
			return fmt.Errorf("read ride %s: %w", d.ID, err)
		}
		line := newRideLine(h.r, &ride)
		line.at = time.Time(ride.CreatedAt)
		line.At, line.Actions = h.r.Time(line.at), rideActions(&ride, base, "")
		h.add(historyEntry{Ride: &line, at: line.at})
	}
	return nil
}
