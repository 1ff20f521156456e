package fleetpages

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// rideRow is a ride in a list.
type rideRow struct {
	ID       string
	Path     string
	Status   web.Badge
	Trip     string // empty for a rider trip
	At       web.Time
	Rider    namedLink
	Vehicle  namedLink
	Lasted   rideDuration
	Distance string
	Total    string
	Payment  web.Badge
}

// rideTable is a table of rides. Its template is "ride-table".
type rideTable struct {
	Rows             []rideRow
	Riders, Vehicles bool // has these columns
}

// rideDuration is a final or running duration. Its template is "lasted".
type rideDuration struct {
	Seconds int64
	Goes    bool // running: ticking.js updates it
	Text    string
}

func durationOf(r *fleet.Ride) rideDuration {
	if r.Status == fleet.Reserved || r.StartedAt.Std().IsZero() {
		return rideDuration{}
	}
	return rideDuration{r.DurationSeconds, r.Status.Open(), formatDuration(r.DurationSeconds)}
}

// paymentBadges are the badges of payments.
var paymentBadges = map[string]web.Badge{
	"not_due":  {Text: "Not due"},
	"due":      {Text: "Due", Tone: web.Warning, Icon: "clock"},
	"paid":     {Text: "Paid", Tone: web.Good, Icon: "check"},
	"refunded": {Text: "Refunded", Icon: "undo"},
	"waived":   {Text: "Waived", Icon: "x"},
}

// rideList is the body of the list of rides.
type rideList struct {
	Filters filters
	Topic   string
	Count   string
	Sum     string // total of the page
	Table   rideTable
	Empty   web.Empty
	Pager   web.Pager
}

// rideOrders are the sort options.
var rideOrders = []web.Option{
	{Value: "", Label: "Newest first"},
	{Value: "-started_at", Label: "Recently started"},
	{Value: "-ended_at", Label: "Recently ended"},
	{Value: "-total_amount", Label: "Highest price"},
	{Value: "total_amount", Label: "Lowest price"},
	{Value: "-duration_seconds", Label: "Longest"},
	{Value: "created_at", Label: "Oldest first"},
}

// openRides is the filter for all open statuses.
const openRides = "open"

var rideStatuses = []web.Option{
	{Label: "All"}, {Value: openRides, Label: "Open"}, {Value: "reserved", Label: "Reserved"}, {Value: "active", Label: "Active"},
	{Value: "paused", Label: "Paused"}, {Value: "completed", Label: "Completed"}, {Value: "cancelled", Label: "Cancelled"},
}

var paymentStatuses = []web.Option{
	{Value: "not_due", Label: "Not due"}, {Value: "due", Label: "Due"}, {Value: "paid", Label: "Paid"},
	{Value: "refunded", Label: "Refunded"}, {Value: "waived", Label: "Waived"},
}

// rides lists rides.
func (p *pages) rides(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	subs, choice, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	f := filters{Fields: append(web.Fields{
		{Name: "status", Label: "Status", Type: "select", Options: rideStatuses},
		{Name: "payment", Label: "Payment", Type: "select", Options: append([]web.Option{{Label: "All"}}, paymentStatuses...)},
		{Name: "vehicle", Label: "Vehicle", Type: "search", Placeholder: "Code"},
		{Name: "rider", Label: "Rider", Type: "search", Placeholder: "Name, e-mail, phone"},
		{Name: "from", Label: "From", Type: "date"},
		{Name: "to", Label: "To", Type: "date"},
		{Name: "least", Label: "Minimum price", Type: "text", Mode: "decimal"},
		{Name: "most", Label: "Maximum price", Type: "text", Mode: "decimal"},
		{Name: "sort", Label: "Sort by", Type: "select", Options: rideOrders},
	}, choice...)}
	f.parse(r)
	list := rideList{Topic: p.topic("ride")}
	query, none, err := p.rideQuery(ctx, r, &f, subs)
	if err != nil {
		return err
	}
	var docs []fleet.Record
	var next *keyset.Cursor
	if f.ok() && !none {
		query.After, query.Limit = after(r), perPage
		if docs, next, err = p.Fleet.ListRides(ctx, p.DB, r.OrganizationID, query); err != nil {
			return err
		}
	}
	rides, err := decode[fleet.Ride](docs)
	if err != nil {
		return err
	}
	if list.Table, err = p.rideTable(ctx, r, rides); err != nil {
		return err
	}
	list.Count, list.Sum = resultCount(len(rides), query.After == nil, next, "%d ride", "%d rides"), totalCost(rides)
	if list.Pager, err = pager(r, next); err != nil {
		return err
	}
	list.Empty = web.Empty{Text: "No rides match these filters.", Path: p.base + "/rides", Label: "All rides"}
	if f.All == "" {
		list.Empty = web.Empty{Text: "No rides yet. Your app starts rides with an API key:", Command: p.command("POST", "/rides", `{"vehicle_code": "B-0417", "customer_id": "cus_…"}`)}
	}
	list.Filters = f
	page := p.listPage(r, "/rides", "Rides", list)
	page.Scripts = []string{"ticking.js"}
	return p.Render(w, r, "rides", page)
}

// rideQuery returns the query of the filters. none is true if nothing can match.
func (p *pages) rideQuery(ctx context.Context, r *web.Request, f *filters, subs []fleet.Subaccount) (q fleet.RideQuery, none bool, err error) {
	q = fleet.RideQuery{PaymentStatus: f.list("payment"), Subaccount: f.list("subaccount"), CreatedAt: f.days("from", "to", r.Now.Location()), Sort: f.sort()}
	switch status := f.get("status"); status {
	case "":
	case openRides:
		q.Status = []fleet.RideStatus{fleet.Reserved, fleet.Active, fleet.Paused}
	default:
		q.Status = []fleet.RideStatus{fleet.RideStatus(status)}
	}
	q.TotalAmount.Low, q.TotalAmount.High = amountFilter(f, "least", subs), amountFilter(f, "most", subs)
	if code := f.get("vehicle"); strings.HasPrefix(code, "veh_") {
		q.VehicleID = []string{code} // the vehicle may be deleted
	} else if code != "" {
		id, err := p.vehicleByCode(ctx, r, code)
		if err != nil {
			return q, false, err
		}
		if id == "" {
			f.fail("vehicle", "No vehicle has this code.")
			return q, true, nil
		}
		q.VehicleID = []string{id}
	}
	if text := f.get("rider"); text != "" {
		riders, all, err := p.ridersOf(ctx, r, text)
		if err != nil {
			return q, false, err
		}
		for _, c := range riders {
			q.CustomerID = append(q.CustomerID, c.ID)
		}
		switch {
		case len(riders) == 0 && all:
			f.fail("rider", "No rider matches.")
			return q, true, nil
		case len(riders) == 0:
			f.fail("rider", "None of the newest riders match. Older ones are on the page Riders.")
			return q, true, nil
		case !all:
			f.Fields.Field("rider").Help = "Only the newest riders that match, " + strconv.Itoa(len(riders)) + "."
		}
	}
	return q, false, nil
}

// amountFilter parses an amount in the currency of the selected subaccount, or in
// the only currency.
func amountFilter(f *filters, name string, subs []fleet.Subaccount) *int64 {
	text := f.get(name)
	if text == "" {
		return nil
	}
	currency, several := "", false
	for _, s := range subs {
		if id := f.get("subaccount"); id == "" || id == s.ID {
			several = several || currency != "" && currency != s.Currency
			currency = s.Currency
		}
	}
	if several {
		f.fail(name, "Select a subaccount, too: amounts are in its currency.")
		return nil
	}
	amount, ok := parseAmount(text, currency)
	if !ok {
		f.fail(name, "Must be an amount such as "+plain(150, currency)+".")
		return nil
	}
	return &amount
}

// rideTable returns rides with the names of riders and vehicles.
func (p *pages) rideTable(ctx context.Context, r *web.Request, rides []fleet.Ride) (rideTable, error) {
	riders, vehicles, err := p.rideLinks(ctx, r, rides)
	if err != nil {
		return rideTable{}, err
	}
	rows := make([]rideRow, len(rides))
	for i := range rides {
		ride := &rides[i]
		row := rideRow{
			ID: ride.ID, Path: p.base + "/rides/" + ride.ID, Status: web.BadgeFor(rideBadges, ride.Status), At: r.Time(ride.CreatedAt.Std()),
			Rider: riders[string(ride.CustomerID)], Vehicle: vehicles[ride.VehicleID], Lasted: durationOf(ride), Payment: web.BadgeFor(paymentBadges, ride.PaymentStatus),
		}
		if ride.TripType != fleet.RiderTrip {
			row.Trip = tripTypeLabel(ride.TripType)
		}
		if ride.DistanceMeters != nil {
			row.Distance = distance(*ride.DistanceMeters)
		}
		if ride.Price != nil {
			row.Total = web.Money(ride.Price.TotalAmount, ride.Price.Currency)
		}
		rows[i] = row
	}
	return rideTable{rows, true, true}, nil
}

// tripTypeLabel is the label of a trip type.
func tripTypeLabel(t fleet.TripType) string {
	switch t {
	case fleet.RebalanceTrip:
		return "Rebalancing"
	case fleet.MaintenanceTrip:
		return "Maintenance"
	}
	return "Rider's trip"
}

// rideLinks returns links to the riders and vehicles of rides, by id.
func (p *pages) rideLinks(ctx context.Context, r *web.Request, rides []fleet.Ride) (riders, vehicles map[string]namedLink, err error) {
	riders, vehicles = map[string]namedLink{}, map[string]namedLink{}
	var customerIDs, vehicleIDs []string
	for _, ride := range rides {
		if id := string(ride.CustomerID); id != "" && riders[id].Name == "" {
			riders[id] = namedLink{Name: id}
			customerIDs = append(customerIDs, id)
		}
		if id := ride.VehicleID; vehicles[id].Name == "" {
			vehicles[id] = namedLink{Name: id}
			vehicleIDs = append(vehicleIDs, id)
		}
	}
	if len(customerIDs) > 0 {
		docs, err := p.Fleet.CustomersByID(ctx, p.DB, r.OrganizationID, customerIDs)
		if err != nil {
			return nil, nil, err
		}
		list, err := decode[fleet.Customer](docs)
		if err != nil {
			return nil, nil, err
		}
		for i := range list {
			riders[list[i].ID] = namedLink{p.base + "/riders/" + list[i].ID, riderName(&list[i])}
		}
	}
	codes, err := p.codesOf(ctx, r, vehicleIDs)
	if err != nil {
		return nil, nil, err
	}
	for id, code := range codes {
		vehicles[id] = namedLink{p.base + "/vehicles/" + id, code}
	}
	for _, id := range vehicleIDs {
		if vehicles[id].Path != "" {
			continue
		}
		code, _, err := p.Fleet.DeletedVehicle(ctx, p.DB, r.OrganizationID, id)
		if err == nil {
			vehicles[id] = namedLink{Name: code + " (deleted)"}
		} else if problem.Of(err) != problem.NotFound {
			return nil, nil, err
		}
	}
	return riders, vehicles, nil
}

// riderName is a rider's name, or a substitute.
func riderName(c *fleet.Customer) string {
	switch {
	case c.Status == fleet.CustomerAnonymised:
		return "Anonymised rider"
	case c.Name != "":
		return string(c.Name)
	case c.Email != "":
		return string(c.Email)
	case c.Phone != "":
		return string(c.Phone)
	}
	return "Rider without a name"
}

// totalCost formats the total of rides per currency; empty if they cost nothing.
func totalCost(rides []fleet.Ride) string {
	var currencies []string
	sums := map[string]int64{}
	for _, ride := range rides {
		if ride.Price == nil {
			continue
		}
		if _, ok := sums[ride.Price.Currency]; !ok {
			currencies = append(currencies, ride.Price.Currency)
		}
		sums[ride.Price.Currency] += ride.Price.TotalAmount
	}
	var parts []string
	for _, c := range currencies {
		if sums[c] > 0 {
			parts = append(parts, web.Money(sums[c], c))
		}
	}
	return strings.Join(parts, " and ")
}

// searchRiders finds riders by id, or by parts of the name, the e-mail address, the phone number or
// the external id.
func (p *pages) searchRiders(ctx context.Context, r *web.Request, text string, q fleet.CustomerQuery) ([]fleet.Customer, *keyset.Cursor, error) {
	if strings.HasPrefix(text, "cus_") {
		c, err := p.Fleet.Customer(ctx, p.DB, r.OrganizationID, text)
		if problem.Of(err) == problem.NotFound {
			return nil, nil, nil
		}
		return []fleet.Customer{c}, nil, err
	}
	q.Text, q.Sort = text, keyset.Sort{}
	docs, next, err := p.Fleet.ListCustomers(ctx, p.DB, r.OrganizationID, q)
	if problem.Of(err) == problem.Invalid { // no rider has such a text
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	list, err := decode[fleet.Customer](docs)
	return list, next, err
}

// riderPages bounds the pages of a search for the riders of a filter.
const riderPages = 10

// ridersOf returns the riders that a text of a filter finds, the newest first, at most as many as a
// filter has values; all is false if there may be more.
func (p *pages) ridersOf(ctx context.Context, r *web.Request, text string) (list []fleet.Customer, all bool, err error) {
	q := fleet.CustomerQuery{}
	for range riderPages {
		q.Limit = keyset.MaxValues - len(list)
		riders, next, err := p.searchRiders(ctx, r, text, q)
		if err != nil {
			return nil, false, err
		}
		list = append(list, riders...)
		if next == nil {
			return list, true, nil
		}
		if len(list) == keyset.MaxValues {
			break
		}
		q.After = next
	}
	return list, false, nil
}

// codesOf returns the codes of vehicles, by id. Deleted ones have none.
func (p *pages) codesOf(ctx context.Context, r *web.Request, vehicleIDs []string) (map[string]string, error) {
	codes := make(map[string]string)
	if len(vehicleIDs) == 0 {
		return codes, nil
	}
	docs, err := p.Fleet.VehiclesByID(ctx, p.DB, r.OrganizationID, vehicleIDs)
	if err != nil {
		return nil, err
	}
	list, err := decode[struct{ ID, Code string }](docs)
	for _, v := range list {
		codes[v.ID] = v.Code
	}
	return codes, err
}

// command is a curl command for the environment's API.
func (p *pages) command(method, path, body string, headers ...string) string {
	var b strings.Builder
	b.WriteString("curl ")
	if method != http.MethodGet && body == "" {
		b.WriteString("-X " + method + " ")
	}
	b.WriteString(p.API + path + ` -H "Authorization: Bearer $KEY"`)
	for _, h := range headers {
		b.WriteString(` -H "` + h + `"`)
	}
	if body != "" {
		b.WriteString(` -H "Content-Type: application/json" -d '` + body + `'`)
	}
	return b.String()
}
