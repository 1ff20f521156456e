package inbox

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/desk/query"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// place is the address of a list: a view with a search, an order and a number of rows.
type place struct {
	view   string // name
	search string
	given  bool   // the search is typed, and not that of a saved view
	sort   string // of the query; empty: the view's
	rows   int    // of the query; 0: rowsOfPage
}

// readPlace reads the address of a list in a view. It ignores values that no link has.
func readPlace(v *view, asked url.Values) place {
	at := place{view: v.name, search: strings.TrimSpace(asked.Get("q"))}
	if len([]rune(at.search)) > maxSearch || strings.ContainsRune(at.search, 0) {
		at.search = ""
	}
	at.given = at.search != ""
	if v.saved != nil {
		if !asked.Has("q") {
			at.search = v.query
		}
		at.given = at.search != v.query
	}
	if s := asked.Get("sort"); s != desk.SortText(v.sort) && slices.Contains(desk.TicketSorts, desk.ParseSort(s).Field) {
		at.sort = s
	}
	if n, err := strconv.Atoi(asked.Get("rows")); err == nil && n > rowsOfPage {
		at.rows = min(n, maxRows)
	}
	return at
}

// values returns the query of the address; with the name of the view for addresses that lack it.
func (at place) values(named bool) url.Values {
	q := url.Values{}
	if named && at.view != viewOpen {
		q.Set("in", at.view)
	}
	if at.given {
		q.Set("q", at.search)
	}
	if at.sort != "" {
		q.Set("sort", at.sort)
	}
	if at.rows != 0 {
		q.Set("rows", strconv.Itoa(at.rows))
	}
	return q
}

// path returns the address of the first page.
func (at place) path() string {
	v := view{name: at.view}
	return web.Address(v.path(), at.values(false))
}

// pathAfter returns the address of the page after a position.
func (at place) pathAfter(after *keyset.Cursor) string {
	at.rows = 0
	v, q := view{name: at.view}, at.values(false)
	q.Set("after", writePosition(after))
	return web.Address(v.path(), q)
}

// in returns the query by which the page of a ticket finds the list.
func (at place) in() string { return web.Address("", at.values(true)) }

// text returns the whole search of the list.
func (at place) text(v *view) string {
	if v.saved != nil {
		return at.search
	}
	return strings.TrimSpace(v.query + " " + at.search)
}

// order returns the order of the list.
func (at place) order(v *view) keyset.Sort {
	if at.sort != "" {
		return desk.ParseSort(at.sort)
	}
	return v.sort
}

// query returns the query of the list for a reader.
func (at place) query(r *web.Request, v *view) desk.TicketQuery {
	return desk.TicketQuery{Text: at.text(v), Sort: at.order(v), Reader: desk.Reader{UserID: r.UserID, Zone: r.Now.Location()}}
}

// describe sets the parts of a list that its address gives.
func (l *list) describe(r *web.Request, v *view) {
	at := l.place
	at.rows = 0
	l.Search = at.search
	for _, f := range desk.ParseSearch(at.search).Filters {
		rest := at
		rest.search = withoutFilter(at.search, f.Text)
		rest.given = rest.search != "" || v.saved != nil
		l.Chips = append(l.Chips, web.NavItem{Label: f.Text, Path: rest.path()})
	}
	order := at.order(v)
	l.Sort = sortWords(order)
	for _, s := range sortChoices(order) {
		other := at
		if other.sort = desk.SortText(s); s == v.sort {
			other.sort = ""
		}
		l.Sorts = append(l.Sorts, web.NavItem{Label: sortWords(s), Path: other.path()})
	}
	switch {
	case at.given || at.sort != "":
		l.Save = web.Address("/inbox/views/new", url.Values{"q": {at.text(v)}, "sort": {desk.SortText(order)}})
	case v.saved != nil && mayEdit(r, v.saved):
		l.Edit = "/inbox/views/" + v.saved.ID + "/edit"
	}
	l.Cells, l.Marks = cellsOf(v.columns)
}

// withoutFilter returns a search without one of its filters.
func withoutFilter(search, filter string) string {
	q := desk.ParseSearch(search)
	i := slices.IndexFunc(q.Filters, func(f query.Filter) bool { return f.Text == filter })
	var parts []string
	if q.Words != "" {
		parts = append(parts, q.Words)
	}
	for _, f := range slices.Delete(q.Filters, i, i+1) {
		parts = append(parts, f.Text)
	}
	return strings.Join(parts, " ")
}

// hasOneStatus reports whether a search selects tickets of one status, which rows need not repeat.
func hasOneStatus(search string) bool {
	return slices.ContainsFunc(desk.ParseSearch(search).Filters, func(f query.Filter) bool {
		return f.Field == "status" && !f.Not && len(f.Values) == 1
	})
}

// orders are the orders of lists: a field with the words of its first and second direction.
var orders = []struct {
	field         string
	descending    bool // the first direction
	label         string
	first, second string
}{
	{desk.ByUpdatedAt, true, "Updated", "newest first", "oldest first"},
	{desk.ByCreatedAt, true, "Created", "newest first", "oldest first"},
	{desk.ByPriority, true, "Priority", "urgent first", "low first"},
	{desk.ByDueAt, false, "SLA due", "soonest first", "latest first"},
	{desk.ByNumber, true, "Number", "highest first", "lowest first"},
}

// sortWords returns an order in words.
func sortWords(s keyset.Sort) string {
	for _, o := range orders {
		if o.field == s.Field && o.descending == s.Descending {
			return o.label + ", " + o.first
		}
		if o.field == s.Field {
			return o.label + ", " + o.second
		}
	}
	return s.Field
}

// sortChoices returns the orders beside the present one: its opposite, and the first direction of
// the other fields.
func sortChoices(present keyset.Sort) []keyset.Sort {
	var list []keyset.Sort
	for _, o := range orders {
		s := keyset.Sort{Field: o.field, Descending: o.descending}
		if o.field == present.Field {
			s.Descending = !present.Descending
		}
		list = append(list, s)
	}
	return list
}

// cellMarks is the cell of a row with all columns that are badges.
const cellMarks = "marks"

// cellsOf returns the cells of rows, and the columns within the cell of badges, which stands where
// the first of them does.
func cellsOf(columns []desk.Column) (cells []string, marks []desk.Column) {
	for _, c := range columns {
		switch c {
		case desk.ColumnStatus, desk.ColumnPriority, desk.ColumnDue, desk.ColumnTags:
			if len(marks) == 0 {
				cells = append(cells, cellMarks)
			}
			marks = append(marks, c)
		default:
			cells = append(cells, string(c))
		}
	}
	if len(marks) == 0 {
		cells = append([]string{cellMarks}, cells...) // of drafts
	}
	return cells, marks
}

// mark is a part of a row's badges. The template "mark" renders it.
type mark struct {
	Badge    *web.Badge // nil: none
	Tags     []string
	MoreTags int
}

// Mark returns a column that is shown as badges.
func (r row) Mark(c desk.Column) mark {
	switch {
	case c == desk.ColumnStatus:
		return mark{Badge: r.Status}
	case c == desk.ColumnPriority:
		return mark{Badge: r.Priority}
	case c == desk.ColumnTags:
		return mark{Tags: r.Tags, MoreTags: r.MoreTags}
	case r.Target == nil || r.Target.Short == "":
		return mark{}
	case r.Target.State == "late":
		return mark{Badge: &web.Badge{Text: r.Target.Short, Tone: web.Bad}}
	default:
		return mark{Badge: &web.Badge{Text: r.Target.Short, Tone: web.Warning}}
	}
}

// allLabel returns the label of the selection of all tickets of a list that has several pages.
func (p *pages) allLabel(r *web.Request, tx *db.Tx, query desk.TicketQuery) (string, error) {
	n, more, err := p.Desk.CountTickets(r.Context(), tx, r.OrganizationID, query, maxChanged)
	switch {
	case err != nil:
		return "", err
	case n == maxChanged && more:
		return "First " + web.Number(maxChanged), nil
	case more:
		return "All, up to " + web.Number(maxChanged), nil
	default:
		return "All " + web.Number(int64(n)), nil
	}
}
