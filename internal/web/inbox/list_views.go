package inbox

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const (
	// viewsPath is the path of the saved views. The path of a view follows it.
	viewsPath = "/inbox/views"
	// maxSidebar is the number of saved views in the sidebar; the others are on their page.
	maxSidebar = 8
)

// handleViews registers the pages of saved views. All members may save views of their own; admins
// also change the shared ones.
func (p *pages) handleViews() {
	p.Handle(viewsPath, web.Route{Get: p.savedViews, Post: p.changeView})
	p.Handle(viewsPath+"/new", web.Route{Get: p.showNewView, Post: p.createView})
	p.Handle(viewsPath+"/{id}/edit", web.Route{Get: p.showView, Post: p.updateView})
}

// mayEdit reports whether a member may change a view that they see.
func mayEdit(r *web.Request, v *desk.View) bool { return v.OwnerID != "" || r.Admin() }

// savedView returns the list of a saved view.
func savedView(w *desk.View) view {
	return view{
		name: "views/" + w.ID, label: w.Name, icon: "filter", query: w.Query, sort: w.Sort, columns: w.Columns, saved: w,
		empty: web.Empty{Text: "No tickets match this view.", Path: openPath, Label: "See all open"},
	}
}

// findView returns the view of a path, built in or one of the saved ones; false if there is none.
func findView(name string, saved []desk.View) (view, bool) {
	id, ok := strings.CutPrefix(name, "views/")
	if !ok {
		return viewNamed(name)
	}
	i := slices.IndexFunc(saved, func(w desk.View) bool { return w.ID == id })
	if i < 0 {
		return view{}, false
	}
	return savedView(&saved[i]), true
}

// sidebarViews returns the items of the sidebar: the built-in views, and after the main ones the
// saved ones, with their counts.
func (p *pages) sidebarViews(r *web.Request, tx *db.Tx, present string, saved []desk.View) ([]web.NavItem, error) {
	counts, err := p.Desk.TicketCounts(r.Context(), tx, r.OrganizationID, r.UserID, countsUpTo)
	if err != nil {
		return nil, err
	}
	var own []web.NavItem
	for i := range saved {
		v := savedView(&saved[i])
		if i >= maxSidebar && v.name != present {
			continue
		}
		n, more, err := p.Desk.CountTickets(r.Context(), tx, r.OrganizationID, place{search: v.query}.query(r, &v), countsUpTo)
		if err != nil && desk.SearchFault(err) == "" { // such as an assignee who has left
			return nil, err
		}
		own = append(own, web.NavItem{Path: v.path(), Label: v.label, Icon: v.icon, Count: countText(n, more), Present: v.name == present})
	}
	own = append(own, web.NavItem{Path: viewsPath, Label: "Views", Icon: "more", Present: present == "views"})
	items := entries(views(&counts), present)
	after := slices.IndexFunc(items, func(item web.NavItem) bool { return item.Path == "/inbox/"+viewAll }) + 1
	return slices.Insert(items, after, own...), nil
}

// viewRow is a saved view on their page.
type viewRow struct {
	desk.View
	Path        string
	Order       string // in words
	Editable    bool
	First, Last bool // in its table
}

// viewTable is the own or the shared views.
type viewTable struct {
	Title, None string
	Rows        []viewRow
}

// savedViews lists the views that a member sees.
func (p *pages) savedViews(w http.ResponseWriter, r *web.Request) error {
	own := viewTable{Title: "Own views", None: "You have none. Save one from a search."}
	shared := viewTable{Title: "Shared views", None: "There are none. Admins share views."}
	var items []web.NavItem
	err := p.DB.Read(r.Context(), func(tx *db.Tx) error {
		own.Rows, shared.Rows = nil, nil
		list, err := p.Desk.Views(r.Context(), tx, r.OrganizationID, r.UserID)
		if err != nil {
			return err
		}
		for i := range list {
			v := &list[i]
			table := &shared
			if v.OwnerID != "" {
				table = &own
			}
			last := i == len(list)-1 || list[i+1].OwnerID != v.OwnerID
			table.Rows = append(table.Rows, viewRow{*v, viewsPath + "/" + v.ID, sortWords(v.Sort), mayEdit(r, v), len(table.Rows) == 0, last})
		}
		items, err = p.sidebarViews(r, tx, "views", list)
		return err
	})
	if err != nil {
		return err
	}
	return p.Render(w, r, "views", web.Page{Title: "Views", At: "/inbox", Views: items, Body: []viewTable{own, shared}})
}

// viewFields returns the fields of a view's form.
func viewFields(r *web.Request, v *desk.View) web.Fields {
	columns := make([]string, len(desk.Columns))
	for i, c := range desk.Columns {
		columns[i] = string(c)
	}
	var orders []web.Option
	for _, field := range desk.TicketSorts {
		for _, s := range []keyset.Sort{{Field: field, Descending: true}, {Field: field}} {
			orders = append(orders, web.Option{Value: desk.SortText(s), Label: sortWords(s)})
		}
	}
	fields := web.Fields{
		{Name: "name", Label: "Name", Type: "text", Least: 1, Most: 80, Value: v.Name},
		{Name: "query", Label: "Search", Type: "text", Optional: true, Most: desk.MaxViewQuery, Value: v.Query, Placeholder: "status:open assignee:me tag:lock", Help: "Words, and filters such as status:open, assignee:me, tag:lock, -channel:sms or created:>2026-01-31. Empty: all tickets."},
		{Name: "sort", Label: "Order", Type: "select", Options: orders, Value: desk.SortText(v.Sort)},
		{Name: "columns", Label: "Columns", Type: "text", Optional: true, Most: 200, Value: joinColumns(v.Columns), Help: "In order, separated by commas, of " + strings.Join(columns, ", ") + "."},
	}
	if r.Admin() {
		shared := web.Field{Name: "shared", Label: "Shared with all members", Type: "checkbox", Optional: true, Help: "Only admins change shared views."}
		if v.OwnerID == "" {
			shared.Value = "on"
		}
		fields = append(fields, shared)
	}
	return fields
}

func joinColumns(columns []desk.Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

// parseView reads the fields of a view's form. Error: Forbidden if a member who is no admin shares
// the view.
func parseView(r *web.Request, form url.Values) (desk.NewView, error) {
	n := desk.NewView{Name: form.Get("name"), Query: form.Get("query"), Sort: desk.ParseSort(form.Get("sort")), Columns: []desk.Column{}, OwnerID: r.UserID}
	for _, name := range parseTags(form.Get("columns")) {
		n.Columns = append(n.Columns, desk.Column(strings.ToLower(name)))
	}
	if form.Get("shared") != "" {
		if n.OwnerID = ""; !r.Admin() {
			return n, errShared()
		}
	}
	return n, nil
}

func errShared() error {
	return problem.New(problem.Forbidden, "only admins change shared views")
}

func (p *pages) renderViewForm(w http.ResponseWriter, r *web.Request, title string, fields web.Fields, status int) error {
	return p.Render(w, r, "viewform", web.Page{Title: title, At: "/inbox", Status: status, Fields: fields})
}

// showNewView renders the form that saves a list as a view.
func (p *pages) showNewView(w http.ResponseWriter, r *web.Request) error {
	asked := r.URL.Query()
	v := desk.View{OwnerID: r.UserID, Query: strings.TrimSpace(asked.Get("q")), Sort: desk.ParseSort(asked.Get("sort")), Columns: desk.DefaultColumns}
	if !slices.Contains(desk.TicketSorts, v.Sort.Field) {
		v.Sort = keyset.Sort{Field: desk.ByUpdatedAt, Descending: true}
	}
	fields := viewFields(r, &v)
	fields.Focus()
	return p.renderViewForm(w, r, "New view", fields, 0)
}

// createView saves the view of the form.
func (p *pages) createView(w http.ResponseWriter, r *web.Request) error {
	return p.storeView(w, r, "New view", func(tx *db.Tx, n desk.NewView) (desk.View, error) {
		return p.Desk.CreateViewTx(r.Context(), tx, r.OrganizationID, n)
	})
}

// storeView stores the view of the posted form by change, and shows its list, or the form again.
func (p *pages) storeView(w http.ResponseWriter, r *web.Request, title string, change func(tx *db.Tx, n desk.NewView) (desk.View, error)) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	n, err := parseView(r, form)
	if err != nil {
		return err
	}
	var v desk.View
	err = p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		v, err = change(tx, n)
		return err
	})
	if err == nil {
		return p.Redirect(w, viewsPath+"/"+v.ID, web.Notice{Text: "View saved."})
	}
	fields := viewFields(r, &desk.View{})
	fields.Fill(form)
	if !fields.Refused(err) {
		return err
	}
	return p.renderViewForm(w, r, title, fields, http.StatusUnprocessableEntity)
}

// editableView returns the view in the path. Errors: NotFound; Forbidden.
func (p *pages) editableView(r *web.Request, q db.Querier, id string) (desk.View, error) {
	v, err := p.Desk.View(r.Context(), q, r.OrganizationID, r.UserID, id)
	if err == nil && !mayEdit(r, &v) {
		return v, errShared()
	}
	return v, err
}

// showView renders the form of a view.
func (p *pages) showView(w http.ResponseWriter, r *web.Request) error {
	v, err := p.editableView(r, p.DB, r.PathValue("id"))
	if err != nil {
		return err
	}
	fields := viewFields(r, &v)
	fields.Focus()
	return p.renderViewForm(w, r, "Edit view", fields, 0)
}

// updateView changes a view by its form.
func (p *pages) updateView(w http.ResponseWriter, r *web.Request) error {
	return p.storeView(w, r, "Edit view", func(tx *db.Tx, n desk.NewView) (desk.View, error) {
		v, err := p.editableView(r, tx, r.PathValue("id"))
		if err != nil {
			return v, err
		}
		return p.Desk.UpdateViewTx(r.Context(), tx, r.OrganizationID, r.UserID, v.ID, desk.ViewUpdate{
			OwnerID: &n.OwnerID, Name: &n.Name, Query: &n.Query, Sort: &n.Sort, Columns: &n.Columns,
		})
	})
}

// changeView moves or deletes a view, or restores a deleted one.
func (p *pages) changeView(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	do := form.Get("do")
	if do == "restore" {
		return p.restoreView(w, r, form)
	}
	var n web.Notice
	err := p.DB.Write(r.Context(), func(tx *db.Tx) error {
		n = web.Notice{}
		v, err := p.editableView(r, tx, form.Get("id"))
		if err != nil {
			return err
		}
		switch do {
		case "up":
			_, err = p.Desk.UpdateViewTx(r.Context(), tx, r.OrganizationID, r.UserID, v.ID, desk.ViewUpdate{Position: new(v.Position - 1)})
		case "down":
			_, err = p.Desk.UpdateViewTx(r.Context(), tx, r.OrganizationID, r.UserID, v.ID, desk.ViewUpdate{Position: new(v.Position + 1)})
		case "delete":
			v, err = p.Desk.DeleteViewTx(r.Context(), tx, r.OrganizationID, r.UserID, v.ID)
			n = deletedView(&v)
		default:
			err = problem.New(problem.Invalid, "choose a change")
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, viewsPath, n)
}

// deletedView returns the notice of a deleted view, whose form restores it.
func deletedView(v *desk.View) web.Notice {
	fields := map[string]string{
		"do": "restore", "name": v.Name, "query": v.Query, "sort": desk.SortText(v.Sort), "columns": joinColumns(v.Columns), "position": strconv.Itoa(v.Position),
	}
	if v.OwnerID == "" {
		fields["shared"] = "on"
	}
	return web.Notice{Text: "View deleted.", Undo: viewsPath, Fields: fields}
}

// restoreView saves a deleted view again, with another id.
func (p *pages) restoreView(w http.ResponseWriter, r *web.Request, form url.Values) error {
	n, err := parseView(r, form)
	if err != nil {
		return err
	}
	n.Position, _ = strconv.Atoi(form.Get("position")) // otherwise the last
	if err := p.DB.Write(r.Context(), func(tx *db.Tx) error {
		_, err := p.Desk.CreateViewTx(r.Context(), tx, r.OrganizationID, n)
		return err
	}); err != nil {
		return err
	}
	return p.Redirect(w, viewsPath, web.Notice{Text: "View restored."})
}
