package inbox

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// handleCustomers registers the pages of customers, and that of a new ticket.
func (p *pages) handleCustomers() {
	p.Handle(newTicketPath, web.Route{Get: p.showNewTicket, Post: p.submitNewTicket})
	p.Handle("/customers", web.Route{Get: p.customers})
	p.Handle("/customers/new", web.Route{Get: p.showNewCustomer, Post: p.createCustomer})
	p.Handle("/customers/{id}", web.Route{Get: p.customer})
	p.Handle("/customers/{id}/edit", web.Route{Get: p.editCustomer, Post: p.updateCustomer})
	p.Handle("/customers/{id}/merge", web.Route{Get: p.showMergeCustomer, Post: p.mergeCustomer})
	p.Handle("/customers/{id}/unmerge", web.Route{Post: p.unmergeCustomer})
	// Like keys of the API, which only admins can permit to delete.
	p.Handle("/customers/{id}/delete", web.Route{Get: p.confirmDeleteCustomer, Post: p.deleteCustomer, Admin: true, Proof: true})
}

// customerList is the body of the customers' list.
type customerList struct {
	Search string
	Rows   []customerRow
	Pager  web.Pager
	Empty  *web.Empty
}

type customerRow struct {
	desk.Customer
	Avatar  web.Avatar
	Called  string
	Changed web.Time
}

// displayName returns a customer's name, address, number or account.
func displayName(c *desk.Customer) string {
	if c.Name != "" {
		return c.Name
	}
	for _, list := range [][]string{c.Emails, c.Phones} {
		if len(list) > 0 {
			return list[0]
		}
	}
	for _, i := range c.Identities {
		return channelLabel(i.Channel) + " " + i.ExternalID
	}
	return "Unknown"
}

// maxByWords is the number of customers that a search by parts of words adds to a list.
const maxByWords = 50

// customers lists the organization's customers.
func (p *pages) customers(w http.ResponseWriter, r *web.Request) error {
	asked := r.URL.Query()
	l := customerList{Search: strings.TrimSpace(asked.Get("q"))}
	query := customerQuery(l.Search)
	query.After = readPosition(asked.Get("after"))
	list, next, err := p.Desk.FindCustomers(r.Context(), p.DB, r.OrganizationID, query)
	if problem.Of(err) == problem.Invalid { // a forged cursor, or a search that no customer can match
		list, next, err = nil, nil, nil
	}
	if err != nil {
		return err
	}
	if l.Search != "" && query.After == nil && next == nil {
		if list, err = p.addByWords(r, p.DB, list, l.Search); err != nil {
			return err
		}
	}
	for i := range list {
		c := &list[i]
		l.Rows = append(l.Rows, customerRow{*c, web.NewAvatar(displayName(c)), displayName(c), r.Time(c.UpdatedAt)})
	}
	if next != nil {
		l.Pager.Older = listPath("/customers", l.Search, next)
	}
	if query.After != nil {
		l.Pager.Newer = listPath("/customers", l.Search, nil)
	}
	switch {
	case len(l.Rows) > 0:
	case l.Search != "":
		l.Empty = &web.Empty{Text: "No customers found. Search by any part of a name, an address, a number or an external id.", Path: "/customers", Label: "See all"}
	default:
		l.Empty = &web.Empty{Text: "No customers yet. Senders of inbound messages become customers.", Path: "/customers/new", Label: "New customer"}
	}
	return p.Render(w, r, "customers", web.Page{Title: "Customers", At: "/customers", Class: "lists", Body: l})
}

// addByWords adds the customers whose names, addresses and numbers have the words of a search as
// parts.
func (p *pages) addByWords(r *web.Request, q db.Querier, list []desk.Customer, search string) ([]desk.Customer, error) {
	found, err := p.Desk.CustomersByWords(r.Context(), q, r.OrganizationID, search, maxByWords)
	for i := range found {
		if !slices.ContainsFunc(list, func(c desk.Customer) bool { return c.ID == found[i].ID }) {
			list = append(list, found[i])
		}
	}
	return list, err
}

// customerQuery returns the query for a search: a whole address, a whole number, or the
// beginning of a name.
func customerQuery(search string) desk.CustomerQuery {
	q := desk.CustomerQuery{Limit: 50, Sort: keyset.Sort{Field: desk.ByUpdatedAt, Descending: true}}
	switch {
	case search == "":
	case strings.Contains(search, "@"):
		q.Email = []string{search}
	case strings.HasPrefix(search, "+") || strings.Trim(search, "0123456789 ()-/") == "":
		q.Phone = []string{search}
	default:
		q.Name = search
	}
	return q
}

// customerPage is the body of a customer's page.
type customerPage struct {
	desk.Customer
	Called string
	Avatar web.Avatar
	// Accounts are the identities, with the labels of their channels.
	Accounts []pair
	Since    web.Time
	Changed  web.Time
	Riders   []rider
	Ride     *rideCard      // open or latest; nil: none
	History  []historyEntry // newest first
	Kinds    []filterLink   // of the history
	Pager    web.Pager
	Merged   []mergedLine
	Admin    bool
}

// mergedLine is a customer merged into the page's customer.
type mergedLine struct {
	Called string
	At     web.Time
	Undo   string // path of the form
}

// order is an order of a shop.
type order struct {
	shop.Order
	Name   string // its number, or what it is
	Placed web.Time
	Amount string // with its currency
	Shop   string // URL; empty: none
}

// callRow is a phone call.
type callRow struct {
	*call.Call
	Started  web.Time
	State    string
	Duration string
	Path     string // of its ticket; empty: none
}

// customer shows a customer with the history of tickets, messages, rides, orders and calls.
func (p *pages) customer(w http.ResponseWriter, r *web.Request) error {
	body := customerPage{Admin: r.Admin()}
	members, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	names := make(map[string]string, len(members))
	for _, m := range members {
		names[m.ID] = cmp.Or(m.Name, m.Email)
	}
	past := newHistory(r)
	err = p.DB.Read(r.Context(), func(tx *db.Tx) (err error) {
		if body.Customer, err = p.Desk.Customer(r.Context(), tx, r.OrganizationID, r.PathValue("id")); err != nil {
			return err
		}
		merged, err := p.Desk.MergedCustomers(r.Context(), tx, r.OrganizationID, body.ID)
		if err != nil {
			return err
		}
		body.Merged = nil
		for _, m := range merged {
			body.Merged = append(body.Merged, mergedLine{cmp.Or(m.Name, m.Email, m.Phone, "Unnamed customer"), r.Time(m.At), "/customers/" + m.ID + "/unmerge"})
		}
		past.entries = nil
		if err := past.readDesk(p, tx, body.ID, names); err != nil {
			return err
		}
		if err := past.readOrders(p, tx, body.ID); err != nil {
			return err
		}
		return past.readCalls(p, tx, body.Phones)
	})
	if err != nil {
		return err
	}
	if body.ID != r.PathValue("id") { // merged
		return p.Redirect(w, "/customers/"+body.ID, web.Notice{})
	}
	if err := p.readRides(r, &body, past); err != nil {
		return err
	}
	past.page(&body)
	body.Called, body.Avatar = displayName(&body.Customer), web.NewAvatar(displayName(&body.Customer))
	for _, i := range body.Identities {
		body.Accounts = append(body.Accounts, pair{channelLabel(i.Channel), i.ExternalID})
	}
	body.Since, body.Changed = r.Time(body.CreatedAt), r.Time(body.UpdatedAt)
	return p.Render(w, r, "customer", web.Page{Title: body.Called, At: "/customers", Body: body})
}

// readRides adds the customer's riders, the open or latest ride, and the rides of the history.
func (p *pages) readRides(r *web.Request, body *customerPage, past *history) error {
	if p.Fleet == nil || len(body.Emails) == 0 && len(body.Phones) == 0 {
		return nil
	}
	base, entries := "/customers/"+body.ID, past.entries
	return p.FleetDB.Read(r.Context(), func(tx *db.Tx) (err error) {
		past.entries = slices.Clip(entries)
		var riders []fleet.Customer
		if riders, body.Riders, err = p.readRiders(r, tx, body.Emails, body.Phones, 0, base); err != nil {
			return err
		}
		if body.Ride, err = p.findRide(r, tx, nil, &fleetRecords{}, riders, base, ""); err != nil {
			return err
		}
		return past.readRides(p, tx, riders, base)
	})
}

func newCallRow(r *web.Request, c *call.Call) callRow {
	line := callRow{Call: c, Started: r.Time(c.StartedAt)}
	if c.StartedAt.IsZero() {
		line.Started = r.Time(c.CreatedAt)
	}
	switch {
	case c.Missed:
		line.State = "Missed"
	case !c.LeftAt.IsZero():
		line.State = "Voicemail"
	case c.Inbound:
		line.State = "From the customer"
	default:
		line.State = "To the customer"
	}
	if c.Duration > 0 {
		line.Duration = c.Duration.String()
	}
	return line
}

// customerFields returns the fields of a customer's form.
func customerFields(c *desk.Customer) web.Fields {
	return web.Fields{
		{Name: "name", Label: "Name", Type: "text", Optional: true, Most: 255, Value: c.Name},
		{Name: "emails", Label: "E-mail addresses", Type: "textarea", Rows: 2, Optional: true, Value: strings.Join(c.Emails, "\n"), Help: "One per line; messages go to the first."},
		{Name: "phones", Label: "Phone numbers", Type: "textarea", Rows: 2, Optional: true, Value: strings.Join(c.Phones, "\n"), Help: "One per line, with country code."},
		{Name: "external_id", Label: "External id", Type: "text", Optional: true, Most: 255, Value: c.ExternalID, Help: "The customer’s id in your other systems."},
	}
}

// customerForm renders a customer's form.
func (p *pages) customerForm(w http.ResponseWriter, r *web.Request, title, cancel, was string, fields web.Fields, status int) error {
	fields.Focus()
	body := struct{ Cancel, Was string }{cancel, was}
	return p.Render(w, r, "customerform", web.Page{Title: title, At: "/customers", Status: status, Fields: fields, Body: body})
}

// revision returns a hash of a customer's editable fields. It detects changes by
// colleagues and inbound messages since the form was rendered.
func revision(c *desk.Customer) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %q", c.Name, c.Emails, c.Phones, c.ExternalID)
	return strconv.FormatUint(h.Sum64(), 36)
}

func (p *pages) showNewCustomer(w http.ResponseWriter, r *web.Request) error {
	return p.customerForm(w, r, "New customer", "/customers", "", customerFields(&desk.Customer{}), 0)
}

func (p *pages) createCustomer(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	var c desk.Customer
	err := p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		c, err = p.Desk.CreateCustomerTx(r.Context(), tx, r.OrganizationID, desk.NewCustomer{
			Name: strings.TrimSpace(form.Get("name")), Emails: web.Lines(form.Get("emails")), Phones: web.Lines(form.Get("phones")), ExternalID: strings.TrimSpace(form.Get("external_id")),
		})
		return err
	})
	if err != nil {
		fields := customerFields(&desk.Customer{})
		fields.Fill(form)
		if refused(fields, err) {
			return p.customerForm(w, r, "New customer", "/customers", "", fields, http.StatusUnprocessableEntity)
		}
		return err
	}
	return p.Redirect(w, "/customers/"+c.ID, web.Notice{Text: "Customer created."})
}

func (p *pages) editCustomer(w http.ResponseWriter, r *web.Request) error {
	c, err := p.Desk.Customer(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return p.customerForm(w, r, "Edit "+displayName(&c), "/customers/"+c.ID, revision(&c), customerFields(&c), 0)
}

func (p *pages) updateCustomer(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	id := r.PathValue("id")
	emails, phones := web.Lines(form.Get("emails")), web.Lines(form.Get("phones"))
	var now desk.Customer
	err := p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		if now, err = p.Desk.Customer(r.Context(), tx, r.OrganizationID, id); err != nil {
			return err
		}
		if form.Has("was") && form.Get("was") != revision(&now) {
			return problem.New(problem.Conflict, "The customer has changed since: it now has %s. Save again to overwrite.", customerSummary(&now))
		}
		_, err = p.Desk.UpdateCustomerTx(r.Context(), tx, r.OrganizationID, id, desk.CustomerUpdate{
			Name: new(strings.TrimSpace(form.Get("name"))), Emails: &emails, Phones: &phones, ExternalID: new(strings.TrimSpace(form.Get("external_id"))),
		})
		return err
	})
	if err != nil {
		fields := customerFields(&desk.Customer{})
		fields.Fill(form)
		if problem.Of(err) != problem.NotFound && refused(fields, err) {
			return p.customerForm(w, r, "Edit customer", "/customers/"+id, revision(&now), fields, http.StatusUnprocessableEntity)
		}
		return err
	}
	return p.Redirect(w, "/customers/"+id, web.Notice{Text: "Customer updated."})
}

// customerSummary returns a customer's editable fields as text.
func customerSummary(c *desk.Customer) string {
	said := []string{"the name “" + c.Name + "”"}
	said = append(append(said, c.Emails...), c.Phones...)
	if c.ExternalID != "" {
		said = append(said, "the id "+c.ExternalID)
	}
	return strings.Join(said, ", ")
}

// customerDeletion returns the confirmation page of a deletion.
func (p *pages) customerDeletion(r *web.Request) (web.Confirm, error) {
	c, err := p.Desk.Customer(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	return web.Confirm{
		Text: "This permanently deletes the name, addresses and numbers of " + displayName(&c) + ". Tickets and their messages stay until they are deleted. A new message from the same address creates a new customer.",
		Type: displayName(&c), Label: "Delete customer", Cancel: "/customers/" + c.ID,
	}, err
}

func (p *pages) confirmDeleteCustomer(w http.ResponseWriter, r *web.Request) error {
	c, err := p.customerDeletion(r)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Delete this customer?", web.Page{At: "/customers"}, c)
}

func (p *pages) deleteCustomer(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	c, err := p.customerDeletion(r)
	if err != nil {
		return err
	}
	if !p.Confirmed(form, c) {
		return p.Confirm(w, r, "Delete this customer?", web.Page{At: "/customers"}, c)
	}
	if err := p.DB.Write(r.Context(), func(tx *db.Tx) error {
		return p.Desk.DeleteCustomerTx(r.Context(), tx, r.OrganizationID, r.PathValue("id"))
	}); err != nil {
		return err
	}
	return p.Redirect(w, "/customers", web.Notice{Text: "Customer deleted."})
}
