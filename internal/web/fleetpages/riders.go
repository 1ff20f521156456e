package fleetpages

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// riderRow is a rider in a list.
type riderRow struct {
	ID     string
	Path   string
	Name   string
	Email  string
	Phone  string
	Status web.Badge
	Rides  string
	Last   web.Time
	Open   string // link to the open ride
}

// riderBadges are the badges of riders.
var riderBadges = map[fleet.CustomerStatus]web.Badge{
	fleet.CustomerActive:     {Text: "Active", Tone: web.Good, Icon: "check"},
	fleet.CustomerBlocked:    {Text: "Blocked", Tone: web.Bad, Icon: "lock"},
	fleet.CustomerAnonymised: {Text: "Anonymised", Icon: "eye"},
}

// riderList is the body of the list of riders.
type riderList struct {
	Filters filters
	Topic   string
	Count   string
	Rows    []riderRow
	Empty   web.Empty
	Pager   web.Pager
	New     string
}

var riderStatuses = []web.Option{{Label: "All"}, {Value: "active", Label: "Active"}, {Value: "blocked", Label: "Blocked"}, {Value: "anonymised", Label: "Anonymised"}}

// riders lists riders.
func (p *pages) riders(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	_, choice, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	f := filters{Fields: append(web.Fields{
		{Name: "search", Label: "Search", Type: "search", Placeholder: "Name, e-mail, phone", Help: "Any part of a name, address, number or external id."},
		{Name: "status", Label: "Status", Type: "select", Options: riderStatuses},
		{Name: "sort", Label: "Sort by", Type: "select", Options: []web.Option{{Label: "Newest first"}, {Value: "name", Label: "Name"}, {Value: "-updated_at", Label: "Recently updated"}}},
	}, choice...)}
	f.parse(r)
	q := fleet.CustomerQuery{Subaccount: f.list("subaccount"), Sort: f.sort(), After: after(r), Limit: perPage}
	if status := f.get("status"); status != "" {
		q.Status = []fleet.CustomerStatus{fleet.CustomerStatus(status)}
	}
	var riders []fleet.Customer
	var next *keyset.Cursor
	if text := f.get("search"); text != "" {
		riders, next, err = p.searchRiders(ctx, r, text, q)
	} else {
		var docs []fleet.Record
		if docs, next, err = p.Fleet.ListCustomers(ctx, p.DB, r.OrganizationID, q); err == nil {
			riders, err = decode[fleet.Customer](docs)
		}
	}
	if err != nil {
		return err
	}
	list := riderList{Filters: f, Topic: p.topic("customer"), Count: resultCount(len(riders), q.After == nil, next, "%d rider", "%d riders")}
	for i := range riders {
		c := &riders[i]
		row := riderRow{
			ID: c.ID, Path: p.base + "/riders/" + c.ID, Name: riderName(c), Email: string(c.Email), Phone: string(c.Phone), Status: web.BadgeFor(riderBadges, c.Status),
			Rides: web.Number(c.RideCount), Last: r.Time(c.LastRideAt.Std()),
		}
		if c.OpenRideID != "" {
			row.Open = p.base + "/rides/" + string(c.OpenRideID)
		}
		list.Rows = append(list.Rows, row)
	}
	if list.Pager, err = pager(r, next); err != nil {
		return err
	}
	if r.Admin() {
		list.New = p.base + "/riders/new"
	}
	list.Empty = web.Empty{Text: "No riders match these filters.", Path: p.base + "/riders", Label: "All riders"}
	if len(riders) == 0 && next != nil { // of a search that goes on
		list.Empty.Text = "None of the newest riders match. Older ones are on the next page."
	}
	if f.All == "" {
		list.Empty = web.Empty{Text: "No riders yet. Your app creates them; you can also import them or create one here.", Path: list.New, Label: "New rider",
			Command: "kickstand fleet import --org " + r.Organization.Slug + " --environment " + string(p.environment) + " riders.json"}
	}
	return p.Render(w, r, "riders", p.listPage(r, "/riders", "Riders", list))
}

// riderPage is the body of the page of a rider.
type riderPage struct {
	*fleet.Customer
	Topic      string
	Path       string
	Chip       web.Badge
	Subaccount namedLink
	License    string
	Since      web.Time
	Last       web.Time
	Open       string
	Nearest    string // link to the vehicles nearest to the end of the last ride; empty: unknown
	Spent      string // total of recent rides
	Of         string // number of these rides
	Rides      rideTable
	All        string
	Known      []contact
	Audit      []auditRow
	Gone       bool // anonymised
}

// contact is a helpdesk customer with the same address or number.
type contact struct {
	Path, Name string
	Tickets    []ticketLink
}

// ticketLink links to a ticket.
type ticketLink struct {
	Path, Subject string
	At            web.Time
}

// spendOf is the number of recent rides to total.
const spendOf = 100

// licenses are the labels of license statuses.
var licenses = []web.Option{
	{Value: "none", Label: "None"}, {Value: "pending", Label: "Pending"}, {Value: "verified", Label: "Verified"},
	{Value: "rejected", Label: "Rejected"}, {Value: "expired", Label: "Expired"},
}

// rider shows a rider.
func (p *pages) rider(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	c, err := p.Fleet.Customer(ctx, p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	b := riderPage{
		Customer: &c, Topic: p.topic("customer", c.ID) + " " + p.topic("ride"), Path: p.base + "/riders/" + c.ID, Chip: web.BadgeFor(riderBadges, c.Status), Since: r.Time(c.CreatedAt.Std()), Last: r.Time(c.LastRideAt.Std()),
		All: p.base + "/rides?rider=" + c.ID, Gone: c.Status == fleet.CustomerAnonymised,
	}
	if c.OpenRideID != "" {
		b.Open = p.base + "/rides/" + string(c.OpenRideID)
	}
	if i := slices.IndexFunc(licenses, func(o web.Option) bool { return o.Value == c.LicenseStatus }); i >= 0 {
		b.License = licenses[i].Label
	}
	if b.Subaccount, err = p.subaccountLink(ctx, r, c.SubaccountID); err != nil {
		return err
	}
	docs, more, err := p.Fleet.ListRides(ctx, p.DB, r.OrganizationID, fleet.RideQuery{CustomerID: []string{c.ID}, Limit: spendOf})
	if err != nil {
		return err
	}
	rides, err := decode[fleet.Ride](docs)
	if err != nil {
		return err
	}
	if len(rides) > 0 && c.OpenRideID == "" {
		b.Nearest = p.nearestPath(rides[0].EndLocation)
	}
	b.Spent, b.Of = totalCost(rides), web.Count(len(rides), "%d ride", "%d rides")
	if more != nil {
		b.Of = "the last " + b.Of
	}
	if b.Rides, err = p.rideTable(ctx, r, rides[:min(10, len(rides))]); err != nil {
		return err
	}
	b.Rides.Riders = false
	if b.Known, err = p.contacts(ctx, r, &c); err != nil {
		return err
	}
	if b.Audit, err = p.audit(ctx, r, c.ID); err != nil {
		return err
	}
	page := p.page(r, "/riders", riderName(&c), b)
	page.Scripts = []string{"ticking.js"}
	return p.Render(w, r, "rider", page)
}

// contacts returns the helpdesk customers with the rider's address or number.
func (p *pages) contacts(ctx context.Context, r *web.Request, c *fleet.Customer) ([]contact, error) {
	var found []desk.Customer
	find := func(q desk.CustomerQuery) error {
		q.Limit = 5
		list, _, err := p.Desk.FindCustomers(ctx, p.DeskDB, r.OrganizationID, q)
		if problem.Of(err) == problem.Invalid {
			return nil
		}
		for _, d := range list {
			if !slices.ContainsFunc(found, func(other desk.Customer) bool { return other.ID == d.ID }) {
				found = append(found, d)
			}
		}
		return err
	}
	if c.Email != "" {
		if err := find(desk.CustomerQuery{Email: []string{string(c.Email)}}); err != nil {
			return nil, err
		}
	}
	if c.Phone != "" {
		if err := find(desk.CustomerQuery{Phone: []string{string(c.Phone)}}); err != nil {
			return nil, err
		}
	}
	var list []contact
	for _, d := range found {
		tickets, _, err := p.Desk.FindTickets(ctx, p.DeskDB, r.OrganizationID, desk.TicketQuery{CustomerID: []string{d.ID}, Limit: 5})
		if err != nil {
			return nil, err
		}
		one := contact{Path: "/customers/" + d.ID, Name: d.Name}
		if one.Name == "" {
			one.Name = "Customer without a name"
		}
		for _, t := range tickets {
			one.Tickets = append(one.Tickets, ticketLink{"/tickets/" + strconv.FormatInt(t.Number, 10), "#" + strconv.FormatInt(t.Number, 10) + " " + t.Subject, r.Time(t.CreatedAt)})
		}
		list = append(list, one)
	}
	return list, nil
}

// riderFields are the editable fields of a rider. c is nil for a new one.
func riderFields(c *fleet.Customer, subs []fleet.Subaccount) web.Fields {
	var fields web.Fields
	if c == nil {
		c = &fleet.Customer{LicenseStatus: "none"}
		fields = web.Fields{{Name: "subaccount_id", Label: "Subaccount", Type: "select", Options: options(subs, "", func(s fleet.Subaccount) web.Option { return web.Option{Value: s.ID, Label: s.Name} })}}
	}
	fields = append(fields,
		web.Field{Name: "name", Label: "Name", Type: "text", Optional: true, Most: 256, Value: string(c.Name)},
		web.Field{Name: "email", Label: "E-mail", Type: "email", Optional: true, Most: 254, Value: string(c.Email)},
		web.Field{Name: "phone", Label: "Phone", Type: "tel", Optional: true, Most: 50, Value: string(c.Phone), Help: "With its country code: +49 30 901820."},
		web.Field{Name: "language", Label: "Language", Type: "text", Optional: true, Most: 35, Value: string(c.Language), Help: "Such as de or pt-BR."},
		web.Field{Name: "birth_date", Label: "Date of birth", Type: "date", Optional: true, Value: string(c.BirthDate), Help: "For vehicles with a minimum age."},
		web.Field{Name: "driver_license_status", Label: "Driver's license", Type: "select", Value: c.LicenseStatus, Options: licenses},
		web.Field{Name: "marketing_consent", Label: "Marketing consent", Type: "checkbox", Optional: true, Value: checked(c.MarketingConsent)},
		externalField(c.ExternalID), metadataField(c.Metadata))
	return fields
}

// newRider creates a rider.
func (p *pages) newRider(w http.ResponseWriter, r *web.Request) error {
	subs, err := p.Fleet.Subaccounts(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	fields := riderFields(nil, subs)
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		t := &formInput{Values: values}
		n := fleet.NewCustomer{
			SubaccountID: t.text("subaccount_id"), Name: fleet.NullString(t.text("name")), Email: fleet.NullString(t.text("email")), Phone: fleet.NullString(t.text("phone")), Language: fleet.NullString(t.text("language")),
			BirthDate: fleet.NullString(t.text("birth_date")), LicenseStatus: t.text("driver_license_status"), MarketingConsent: t.on("marketing_consent"), ExternalID: fleet.NullString(t.text("external_id")),
			Metadata: t.metadata(nil),
		}
		var c fleet.Customer
		made, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) (err error) {
			c, err = p.Fleet.CreateCustomerTx(ctx, tx, r.OrganizationID, n)
			return err
		})
		if err != nil {
			return err
		}
		if made {
			return p.Redirect(w, p.base+"/riders/"+c.ID, web.Notice{Text: "Rider created."})
		}
	}
	return p.showForm(w, r, p.page(r, "/riders", "New rider", nil), fields, form{Label: "Create rider", Cancel: p.base + "/riders"})
}

// readRider returns the rider of the URL for a page that updates it.
func (p *pages) readRider(r *web.Request) (fleet.Customer, error) {
	c, err := p.Fleet.Customer(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err == nil && c.Status == fleet.CustomerAnonymised {
		err = problem.New(problem.Conflict, "This rider is anonymised and can't be changed.")
	}
	return c, err
}

// editRider updates a rider's fields.
func (p *pages) editRider(w http.ResponseWriter, r *web.Request) error {
	c, err := p.readRider(r)
	if err != nil {
		return err
	}
	back := p.base + "/riders/" + c.ID
	fields, t := riderFields(&c, nil), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		text := func(name string) optional.Value[fleet.NullString] { return optional.Of(fleet.NullString(t.text(name))) }
		change := fleet.CustomerChange{
			Name: text("name"), Email: text("email"), Phone: text("phone"), Language: text("language"), BirthDate: text("birth_date"), ExternalID: text("external_id"),
			LicenseStatus: optional.Of(t.text("driver_license_status")), MarketingConsent: optional.Of(t.on("marketing_consent")),
		}
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			now, err := p.Fleet.LockCustomerTx(ctx, tx, r.OrganizationID, c.ID)
			if err != nil {
				return err
			}
			if change.Metadata, err = t.changedMetadata(now.Metadata); err != nil {
				return err
			}
			after, err := p.Fleet.UpdateCustomerTx(ctx, tx, r.OrganizationID, now, change)
			if err != nil {
				return err
			}
			return t.checkStored(riderFields(&now, nil), riderFields(&after, nil))
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Rider saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/riders", "Edit "+riderName(&c), nil), fields, form{Was: t.openedWith(fields), Label: "Save", Cancel: back})
}

// blockRider blocks or unblocks a rider.
func (p *pages) blockRider(w http.ResponseWriter, r *web.Request) error {
	c, err := p.readRider(r)
	if err != nil {
		return err
	}
	back := p.base + "/riders/" + c.ID
	fields, t := blockFields(&c), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		change, text := fleet.CustomerChange{Status: optional.Of(fleet.CustomerBlocked), BlockReason: optional.Of(fleet.NullString(t.Get("block_reason")))}, "Rider blocked."
		if t.Get("status") == string(fleet.CustomerActive) {
			change, text = fleet.CustomerChange{Status: optional.Of(fleet.CustomerActive)}, "Rider unblocked."
		}
		saved, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) error {
			before, err := p.Fleet.LockCustomerTx(ctx, tx, r.OrganizationID, c.ID)
			if err != nil {
				return err
			}
			after, err := p.Fleet.UpdateCustomerTx(ctx, tx, r.OrganizationID, before, change)
			if err != nil {
				return err
			}
			return t.checkStored(blockFields(&before), blockFields(&after))
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: text})
		}
	}
	return p.showForm(w, r, p.page(r, "/riders", "Block "+riderName(&c), nil), fields, form{
		Intro: "Blocked riders can't start rides. An open ride continues.", Was: t.openedWith(fields), Label: "Block rider", Danger: true, Cancel: back,
	})
}

func blockFields(c *fleet.Customer) web.Fields {
	return web.Fields{{Name: "block_reason", Label: "Reason", Type: "textarea", Rows: 2, Optional: true, Most: 500, Value: string(c.BlockReason), Help: "Visible to your team and in the API. Cleared when the rider is unblocked."}}
}

// anonymiseRider permanently clears a rider's personal data.
func (p *pages) anonymiseRider(w http.ResponseWriter, r *web.Request) error {
	c, err := p.readRider(r)
	if err != nil {
		return err
	}
	yes, err := p.confirmed(w, r, p.page(r, "/riders", "Anonymise "+riderName(&c), nil), web.Confirm{
		Text: "This permanently deletes name, contact details, date of birth, external id and metadata. Rides remain without a name.",
		Type: "anonymise", Label: "Anonymise", Cancel: p.base + "/riders/" + c.ID,
	})
	if err != nil || !yes {
		return err
	}
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		_, err := p.Fleet.AnonymiseCustomerTx(ctx, tx, r.OrganizationID, c.ID)
		return err
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, p.base+"/riders/"+c.ID, web.Notice{Text: "Rider anonymised."})
}
