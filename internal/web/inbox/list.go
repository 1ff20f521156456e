package inbox

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const (
	rowsOfPage = 25
	// maxRows is the most rows of a list that has been scrolled; then "Older" leads on.
	maxRows = 500
	// countsUpTo is the highest count of a view: "1,000+".
	countsUpTo = 1000
	// maxSearch is the longest search, in characters.
	maxSearch = desk.MaxViewQuery
)

// handleLists registers the lists of tickets.
func (p *pages) handleLists() {
	p.Handle("/inbox", web.Route{Get: p.home, Post: p.bulkChange})
	p.Handle(openPath, web.Route{Get: p.list})
	p.Handle("/inbox/{view}", web.Route{Get: p.list})
	p.Handle("/inbox/{view}/{of}", web.Route{Get: p.list})
}

// openPath is the path of all open tickets, whatever view /inbox opens.
const openPath = "/inbox/open"

// home opens the member's default view, or all open tickets. An address with a query is
// that of a search of these.
func (p *pages) home(w http.ResponseWriter, r *web.Request) error {
	name, ok := strings.CutPrefix(r.Preferences.DefaultView, "/inbox/")
	if !ok || r.URL.RawQuery != "" {
		return p.list(w, r)
	}
	var saved []desk.View
	if strings.HasPrefix(name, "views/") {
		var err error
		if saved, err = p.Desk.Views(r.Context(), p.DB, r.OrganizationID, r.UserID); err != nil {
			return err
		}
	}
	if _, ok := findView(name, saved); !ok { // deleted
		return p.list(w, r)
	}
	return p.Redirect(w, r.Preferences.DefaultView, web.Notice{})
}

// view is a list of tickets with an address.
type view struct {
	name    string // its path after "/inbox/"; empty for the first
	label   string
	icon    string
	query   string // in the language of searches
	sort    keyset.Sort
	columns []desk.Column
	saved   *desk.View // nil: built in
	count   int        // of its tickets, up to a limit
	least   bool       // there may be more
	empty   web.Empty
}

func (v *view) path() string {
	if v.name == viewOpen {
		return openPath
	}
	return "/inbox/" + v.name
}

// The views that are not of one status, priority or channel.
const (
	viewOpen       = ""
	viewMine       = "mine"
	viewUnassigned = "unassigned"
	viewDue        = "due"
	viewAll        = "all"
)

// viewNamed returns the built-in view of a path; false if there is none.
func viewNamed(name string) (view, bool) {
	v := view{name: name, query: "status:open", sort: keyset.Sort{Field: desk.ByUpdatedAt, Descending: true}, columns: desk.DefaultColumns}
	kind, of, _ := strings.Cut(name, "/")
	switch kind {
	case viewOpen:
		v.label, v.icon = "All open", "inbox"
		v.empty = web.Empty{Text: "No open tickets. New messages from customers appear here.", Path: "/tickets/new", Label: "New ticket"}
	case viewMine:
		v.label, v.icon, v.query = "Mine", "user", "status:open assignee:me"
		v.empty = web.Empty{Text: "No open tickets are assigned to you.", Path: "/inbox/" + viewUnassigned, Label: "See unassigned"}
	case viewUnassigned:
		v.label, v.icon, v.query = "Unassigned", "users", "status:open assignee:none"
		v.empty = web.Empty{Text: "All open tickets are assigned.", Path: openPath, Label: "See all open"}
	case viewDue:
		v.label, v.icon, v.query, v.sort = "SLA due", "clock", "", keyset.Sort{Field: desk.ByDueAt}
		v.empty = web.Empty{Text: "No SLA targets are due.", Path: "/settings/sla", Label: "See SLA targets"}
	case viewAll:
		v.label, v.icon, v.query = "All tickets", "search", ""
		v.empty = web.Empty{Text: "No tickets yet. Connect a channel to receive messages.", Path: "/settings/channels", Label: "Connect a channel"}
	case "status":
		s := desk.Status(strings.ReplaceAll(of, "-", "_"))
		if !slices.Contains(desk.Statuses[1:], s) {
			return view{}, false
		}
		v.label, v.query = statusLabel(s), "status:"+string(s)
		v.icon = cmp.Or(statusBadge(s).Icon, "clock")
		v.empty = web.Empty{Text: "No tickets are " + strings.ToLower(v.label) + ".", Path: openPath, Label: "See all open"}
		return v, true
	case "priority":
		if !slices.Contains(desk.Priorities[:], desk.Priority(of)) {
			return view{}, false
		}
		v.label, v.icon, v.query = priorityLabel(desk.Priority(of))+" priority", "alert", "status:open priority:"+of
		v.empty = web.Empty{Text: "No open tickets with this priority.", Path: openPath, Label: "See all open"}
		return v, true
	case "channel":
		i := slices.IndexFunc(channels, func(c web.Option) bool { return c.Value == strings.ReplaceAll(of, "-", "_") })
		if i < 0 {
			return view{}, false
		}
		c := channels[i]
		v.label, v.icon, v.query = c.Label, channelIcon(c.Value), "status:open channel:"+c.Value
		v.empty = web.Empty{Text: "No open tickets from this channel.", Path: "/settings/channels", Label: "See channels"}
		return v, true
	default:
		return view{}, false
	}
	return v, of == ""
}

// views returns all views of the sidebar, with their counts.
func views(t *desk.TicketCounts) []view {
	var list []view
	add := func(name string, count int, least bool) {
		v, ok := viewNamed(name)
		if !ok {
			panic("inbox: no view " + name)
		}
		v.count, v.least = count, least
		list = append(list, v)
	}
	add(viewOpen, t.Status[desk.StatusOpen], false)
	add(viewMine, t.Mine, t.More)
	add(viewUnassigned, t.Unassigned, t.More)
	add(viewDue, t.Due, false)
	add(viewAll, 0, false)
	for _, s := range desk.Statuses[1:] {
		add("status/"+strings.ReplaceAll(string(s), "_", "-"), t.Status[s], false)
	}
	for _, p := range slices.Backward(desk.Priorities[:]) {
		add("priority/"+string(p), t.Priority[p], t.More)
	}
	for _, c := range channels {
		add("channel/"+strings.ReplaceAll(c.Value, "_", "-"), t.Channel[c.Value], t.More)
	}
	return list
}

// entries returns the sidebar items of views. It omits priorities and channels without
// open tickets, and the normal priority, unless present.
func entries(list []view, present string) []web.NavItem {
	var out []web.NavItem
	for _, v := range list {
		kind, _, _ := strings.Cut(v.name, "/")
		if v.name != present && (v.count == 0 && (kind == "priority" || kind == "channel") || v.name == "priority/normal") {
			continue
		}
		out = append(out, web.NavItem{Path: v.path(), Label: v.label, Icon: v.icon, Count: countText(v.count, v.least), Present: v.name == present})
	}
	return out
}

// countText formats a count; empty for none.
func countText(n int, least bool) string {
	if n == 0 {
		return ""
	}
	n, least = min(n, countsUpTo), least || n >= countsUpTo
	text := web.Number(int64(n))
	if least {
		text += "+"
	}
	return text
}

// list is a page of a view; the template "list" renders it.
type list struct {
	Title   string
	Path    string // of the view
	Back    string // return path of the form
	Alone   bool   // no ticket beside it
	Search  string // typed, or that of a saved view
	Wrong   string // why the list cannot be shown
	Ignored string // the faulty filters of the search
	Rows    []row
	Found   []desk.Customer // customers that match the search
	Pager   web.Pager
	Empty   *web.Empty
	Members []web.Option // possible assignees
	Views   []web.NavItem

	place place
	Chips []web.NavItem // the filters of the search, each with the list without it
	Sort  string        // words of the order
	Sorts []web.NavItem // other orders
	Save  string        // path of the form that saves the list as a view; empty: it is a view
	Edit  string        // path of the form of a saved view; empty: none
	Steps []step        // of the first day; nil: none
	All   string        // label of the selection of all tickets; empty: the page has all
	Cells []string      // parts of a row after the subject, in order
	Marks []desk.Column // parts of the cell "marks", in order
}

// Here returns the address of the list.
func (l *list) Here() string { return l.place.path() }

// Order returns the order in the address; empty: that of the view.
func (l *list) Order() string { return l.place.sort }

// SearchPath returns the path of the search's form: of all tickets, unless a search is refined.
func (l *list) SearchPath() string {
	if l.place.given || strings.HasPrefix(l.place.view, "views/") {
		return l.Path
	}
	return "/inbox/" + viewAll
}

// Fields returns the hidden fields that name the list, for the selection of all its tickets.
func (l *list) Fields() url.Values { return l.place.values(true) }

// row is a ticket in a list.
type row struct {
	Path     string
	Number   int64
	Present  bool // the ticket beside the list
	Unread   bool
	Draft    bool
	Customer string
	Subject  string
	By       string // author of Preview: "Grace", "Note"; empty for the customer
	Preview  string
	Created  web.Time
	Updated  web.Time
	Channel  string // label
	Icon     string
	Status   *web.Badge // nil if the view implies it
	Priority *web.Badge // nil if normal
	Tags     []string   // the first maxRowTags
	MoreTags int
	Assignee *web.Avatar
	Target   *targetBar
}

// maxRowTags is the number of tags that a row shows.
const maxRowTags = 2

// list renders a view.
func (p *pages) list(w http.ResponseWriter, r *web.Request) error {
	name := r.PathValue("view")
	if of := r.PathValue("of"); of != "" {
		name += "/" + of
	}
	l, err := p.newList(r, name, 0)
	if err != nil {
		return err
	}
	title := l.Title
	if l.place.given && l.Search != "" {
		title = "Search: " + l.Search
	}
	return p.Render(w, r, "list", web.Page{Title: title, At: "/inbox", Views: l.Views, Class: "panes", Scripts: []string{"inbox.js"}, Sheets: []string{"inbox.css", "lists.css"}, Body: l})
}

// listBeside returns the list from which a ticket was opened, by the query of its
// address.
func (p *pages) listBeside(r *web.Request, number int64) (*list, error) {
	l, err := p.newList(r, r.FormValue("in"), number)
	if problem.Of(err) == problem.NotFound {
		return p.newList(r, viewOpen, number)
	}
	return l, err
}

// newList returns a page of a view. number is that of the ticket beside it; 0: none. Error:
// NotFound if there is no such view.
func (p *pages) newList(r *web.Request, name string, number int64) (*list, error) {
	asked := r.URL.Query()
	after := readPosition(asked.Get("after"))
	members, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, err
	}
	var l *list
	read := func() error {
		return p.DB.Read(r.Context(), func(tx *db.Tx) (err error) {
			l, err = p.readList(r, tx, name, after, members, number)
			return err
		})
	}
	if err = read(); problem.Of(err) == problem.Invalid && after != nil { // a forged cursor
		after = nil
		err = read()
	}
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		l.Members = append(l.Members, web.Option{Value: m.ID, Label: cmp.Or(m.Name, m.Email)})
	}
	if after != nil {
		l.Pager.Newer = l.place.path()
	}
	if len(l.Rows) > 0 {
		return l, nil
	}
	switch {
	case l.Wrong != "" && !l.place.given && l.place.sort == "":
		l.Empty = &web.Empty{Text: l.Wrong, Path: openPath, Label: "See all open"}
	case l.Wrong != "":
		l.Empty = &web.Empty{Text: l.Wrong, Path: l.Path, Label: "Clear search"}
	case l.place.given && l.Search != "":
		l.Empty = &web.Empty{Text: "No tickets found. Search matches whole words, and the beginning of the last one, in messages, subjects, tags, file names and customers; phone numbers by their last digits; #6 by its number; and filters such as status:open, assignee:me, -tag:lock or created:>2026-01-31.", Path: l.Path, Label: "Clear search"}
	}
	return l, nil
}

// ignoredFilters describes the faulty filters that a search ignored; empty for none.
func ignoredFilters(faults []string) string {
	if len(faults) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("Ignored in this search:")
	for _, fault := range faults {
		text.WriteString(" " + sentence(fault))
	}
	return text.String()
}

// sentence ends a fault of a search.
func sentence(fault string) string {
	if strings.HasSuffix(fault, "?") {
		return fault
	}
	return fault + "."
}

// refusedSearch returns why a list was refused because of its search; empty for other errors.
func refusedSearch(err error) string {
	if fault := desk.SearchFault(err); fault != "" {
		return sentence(fault)
	}
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Code == "range_too_large" {
		return "This list cannot be shown: " + p.Message + "."
	}
	return ""
}

// readList reads a page of a view from one snapshot.
func (p *pages) readList(r *web.Request, tx *db.Tx, name string, after *keyset.Cursor, members []account.User, number int64) (*list, error) {
	ctx := r.Context()
	saved, err := p.Desk.Views(ctx, tx, r.OrganizationID, r.UserID)
	if err != nil {
		return nil, err
	}
	v, ok := findView(name, saved)
	if !ok {
		return nil, problem.New(problem.NotFound, "there is no such view")
	}
	l := &list{Title: v.label, Path: v.path(), Back: r.URL.RequestURI(), Alone: number == 0, Empty: &v.empty, place: readPlace(&v, r.URL.Query())}
	l.describe(r, &v)
	if l.Views, err = p.sidebarViews(r, tx, name, saved); err != nil {
		return nil, err
	}
	if l.place.given {
		if l.Found, err = p.matchingCustomers(ctx, tx, r.OrganizationID, l.Search); err != nil {
			return nil, err
		}
	}
	query := l.place.query(r, &v)
	query.After = after
	var faults []string
	if l.place.given { // the view's own search must not lose a filter
		query.Faults = &faults
	}
	tickets, next, err := p.findRows(r, tx, query, cmp.Or(l.place.rows, rowsOfPage))
	if l.Wrong = refusedSearch(err); l.Wrong == "" && err != nil {
		return nil, err
	}
	l.Ignored = ignoredFilters(faults)
	if next != nil {
		l.Pager.Older = l.place.pathAfter(next)
	}
	if l.Wrong == "" && l.Ignored == "" && (next != nil || after != nil) {
		if l.All, err = p.allLabel(r, tx, query); err != nil {
			return nil, err
		}
	}
	previews, err := p.Desk.Previews(ctx, tx, tickets)
	if err != nil {
		return nil, err
	}
	unread, err := p.Desk.Unread(ctx, tx, r.UserID, tickets)
	if err != nil {
		return nil, err
	}
	drafted, err := p.Desk.TicketsWithDrafts(ctx, tx, r.UserID, tickets)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(members))
	for _, m := range members {
		names[m.ID] = cmp.Or(m.Name, m.Email)
	}
	in, oneStatus := l.place.in(), hasOneStatus(query.Text)
	for i := range tickets {
		t := &tickets[i]
		row := newRow(r, t, previews[t.ID], names)
		row.Path += in
		row.Present, row.Draft = t.Number == number, drafted[t.ID]
		row.Unread = unread[t.ID] && t.Status != desk.StatusClosed && !row.Present
		if !oneStatus && t.Status != desk.StatusOpen {
			row.Status = new(statusBadge(t.Status))
		}
		l.Rows = append(l.Rows, row)
	}
	if len(l.Rows) > 0 {
		l.Empty = nil
	}
	if l.Search == "" {
		if l.Steps, err = p.checklist(r, tx, &v, len(l.Rows), len(members)); err != nil {
			return nil, err
		}
	}
	if l.Steps != nil {
		l.Empty = nil
	}
	return l, nil
}

// findRows returns up to n tickets of a list.
func (p *pages) findRows(r *web.Request, tx *db.Tx, query desk.TicketQuery, n int) (tickets []desk.Ticket, next *keyset.Cursor, err error) {
	for {
		query.Limit = min(n-len(tickets), maxFound)
		var page []desk.Ticket
		if page, next, err = p.Desk.FindTickets(r.Context(), tx, r.OrganizationID, query); err != nil {
			return nil, nil, err
		}
		tickets = append(tickets, page...)
		if next == nil || len(tickets) >= n {
			return tickets, next, nil
		}
		query.After = next
	}
}

// maxFound is the maximum of tickets that package desk finds, or changes, at once.
const maxFound = 200

// newRow returns the row of a ticket.
func newRow(r *web.Request, t *desk.Ticket, said desk.Preview, names map[string]string) row {
	row := row{
		Path: "/tickets/" + strconv.FormatInt(t.Number, 10), Number: t.Number, Subject: t.Subject, Customer: requesterName(t), Created: r.Time(t.CreatedAt), Updated: r.Time(t.UpdatedAt),
		Channel: channelLabel(t.Channel), Icon: channelIcon(t.Channel), Tags: t.Tags, Target: nextTarget(r, t), Preview: said.Text,
	}
	if t.Priority != desk.PriorityNormal {
		row.Priority = new(priorityBadge(t.Priority))
	}
	if len(t.Tags) > maxRowTags {
		row.Tags, row.MoreTags = t.Tags[:maxRowTags], len(t.Tags)-maxRowTags
	}
	if t.AssigneeID != "" {
		row.Assignee = new(web.NewAvatar(cmp.Or(names[t.AssigneeID], "Former member")))
	}
	switch {
	case said.Kind == desk.KindNote && said.Author.Type == desk.AuthorSystem:
	case said.Kind == desk.KindNote:
		row.By = "Note"
	case said.Direction == desk.DirectionOutbound:
		row.By = cmp.Or(said.Author.Name, "We")
		if said.Author.ID == r.UserID {
			row.By = "You"
		}
	}
	// The subject of an SMS is the beginning of its text; don't repeat it.
	if rest, ok := strings.CutPrefix(row.Preview, row.Subject); ok && row.By == "" {
		row.Preview = strings.TrimSpace(rest)
	}
	switch {
	case t.MergedIntoID != "":
		row.By, row.Preview = "", "Merged into another ticket"
	case said.MessageID == "":
	case said.Deleted:
		row.Preview = "Deleted message"
	case said.Redacted:
		row.Preview = "Redacted message"
	case said.Files == 1:
		row.Preview = "File: " + said.FileName
	case said.Files > 1:
		row.Preview = web.Sprintf("%d files: %s, …", said.Files, said.FileName)
	}
	return row
}

// requesterName returns the display name of a ticket's customer.
func requesterName(t *desk.Ticket) string {
	return cmp.Or(t.Customer.Name, t.Customer.Email, t.Customer.Phone, "Unknown")
}

// listPath returns the address of a list's page after a position.
func listPath(path, search string, after *keyset.Cursor) string {
	q := url.Values{}
	if search != "" {
		q.Set("q", search)
	}
	if after != nil {
		q.Set("after", writePosition(after))
	}
	return web.Address(path, q)
}

// writePosition encodes a cursor.
func writePosition(p *keyset.Cursor) string { return p.Value + "~" + p.ID }

func readPosition(text string) *keyset.Cursor {
	if text == "" || len(text) > 300 {
		return nil
	}
	value, id, _ := strings.Cut(text, "~")
	return &keyset.Cursor{Value: value, ID: id}
}

// matchingCustomers returns the customers with the searched address or number.
func (p *pages) matchingCustomers(ctx context.Context, q db.Querier, organizationID, search string) ([]desk.Customer, error) {
	query := desk.CustomerQuery{Limit: 3}
	switch {
	case strings.Contains(search, "@") && !strings.ContainsAny(search, " \t"):
		query.Email = []string{search}
	case strings.HasPrefix(search, "+") && len(search) > 6:
		query.Phone = []string{search}
	default:
		return nil, nil
	}
	list, _, err := p.Desk.FindCustomers(ctx, q, organizationID, query)
	return list, err
}

// selectable returns the options of a bulk change. The first one changes nothing.
func selectable[T ~string](what string, values []T, label func(T) string) []web.Option {
	out := []web.Option{{Label: what}}
	for _, v := range values {
		out = append(out, web.Option{Value: string(v), Label: label(v)})
	}
	return out
}

// StatusOptions is for the template.
func (*list) StatusOptions() []web.Option {
	return selectable("Status", desk.Statuses[:], statusLabel)
}

// PriorityOptions is for the template.
func (*list) PriorityOptions() []web.Option {
	return selectable("Priority", desk.Priorities[:], priorityLabel)
}
