package deskapi

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// viewSorts are the sorts of a view: each field, ascending and descending.
func viewSorts() []string {
	var list []string
	for _, field := range desk.TicketSorts {
		list = append(list, field, "-"+field)
	}
	return list
}

var viewRecord = &schema.Record{Name: "view", Doc: "A saved list of tickets, shared with all members.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("view")},
	{Name: "name", Type: schema.String(1, 80), Access: schema.Required, Example: "Locks to repair"},
	{Name: "query", Type: schema.String(0, desk.MaxViewQuery), Access: schema.Writable, Doc: "As q of listTickets, and with assignee:me, which is each reader. Empty: all tickets.", Example: "status:open tag:lock -channel:sms"},
	{Name: "sort", Type: schema.Enum(viewSorts()...), Access: schema.Writable, Doc: "Defaults to -updated_at. By due_at a view has only tickets whose SLA targets run."},
	{Name: "columns", Type: schema.Array(schema.Enum(words(desk.Columns)...), int64(len(desk.Columns))), Access: schema.Writable, Doc: "What the dashboard shows beside customer and subject, in order; each at most once. By default all but created."},
	{Name: "position", Type: schema.Int(1, desk.MaxViews), Access: schema.Writable, Doc: "Order in the dashboard, from 1; the others move. By default a view is the last."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp(), Doc: "Of its last own change."},
}}

type wireView struct {
	ID        string        `json:"id"`
	Object    string        `json:"object"`
	Name      string        `json:"name"`
	Query     string        `json:"query"`
	Sort      string        `json:"sort"`
	Columns   []desk.Column `json:"columns"`
	Position  int           `json:"position"`
	CreatedAt rfc3339.Time  `json:"created_at"`
	UpdatedAt rfc3339.Time  `json:"updated_at"`
}

func wireOfView(v *desk.View) wireView {
	return wireView{
		ID: v.ID, Object: "view", Name: v.Name, Query: v.Query, Sort: desk.SortText(v.Sort), Columns: append([]desk.Column{}, v.Columns...),
		Position: v.Position, CreatedAt: rfc3339.Time(v.CreatedAt), UpdatedAt: rfc3339.Time(v.UpdatedAt),
	}
}

type viewBody struct {
	Name     optional.Value[string]        `json:"name"`
	Query    optional.Value[string]        `json:"query"`
	Sort     optional.Value[string]        `json:"sort"`
	Columns  optional.Value[[]desk.Column] `json:"columns"`
	Position optional.Value[int]           `json:"position"`
}

// sort returns the sort of the body; nil if it has none.
func (in *viewBody) sort() *keyset.Sort {
	if !in.Sort.Set {
		return nil
	}
	return new(desk.ParseSort(in.Sort.Value))
}

func (a *API) viewRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/views", ID: "listViews", Tag: "Views", Summary: "List shared views",
		Doc:   "An organization has at most 100. Members’ own views are not in the API.",
		Needs: needs("tickets", apikey.Read), Sort: []string{"position"}, Order: "position", Export: true,
		Output: viewRecord, List: true, Handle: a.listViews,
	}, {
		Method: "POST", Path: "/views", ID: "createView", Tag: "Views", Summary: "Create a shared view",
		Needs: needs("settings", apikey.Update), Input: viewRecord, Output: viewRecord, Codes: []string{"invalid_transition"}, Handle: a.createView,
	}, {
		Method: "GET", Path: "/views/{id}", ID: "getView", Tag: "Views", Summary: "Get a shared view",
		Doc:   "List its tickets with `view` of listTickets.",
		Needs: needs("tickets", apikey.Read), Output: viewRecord, Handle: a.getView,
	}, {
		Method: "PUT", Path: "/views/{id}", ID: "updateView", Tag: "Views", Summary: "Change a shared view",
		Doc:   "Absent fields stay unchanged.",
		Needs: needs("settings", apikey.Update), Input: viewRecord, Output: viewRecord, Handle: a.updateView,
	}, {
		Method: "DELETE", Path: "/views/{id}", ID: "deleteView", Tag: "Views", Summary: "Delete a shared view",
		Doc:   "Its tickets stay.",
		Needs: needs("settings", apikey.Update), Handle: a.deleteView,
	}}
}

func (a *API) listViews(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := a.Desk.Views(ctx, a.DB, r.Key.OrganizationID, "")
	if err != nil {
		return rest.Response{}, err
	}
	return whole(r, wired(list, wireOfView), func(v wireView) string { return fmt.Sprintf("%03d", v.Position) })
}

func (a *API) createView(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in viewBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	n := desk.NewView{Name: in.Name.Value, Query: in.Query.Value, Columns: in.Columns.Value, Position: in.Position.Value}
	if s := in.sort(); s != nil {
		n.Sort = *s
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Desk.CreateViewTx(ctx, tx, r.Key.OrganizationID, n)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.Created("/views/"+v.ID, wireOfView(&v)), nil
	})
}

func (a *API) getView(ctx context.Context, r *rest.Request) (rest.Response, error) {
	v, err := a.Desk.View(ctx, a.DB, r.Key.OrganizationID, "", r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireOfView(&v)), nil
}

func (a *API) updateView(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Desk.LockViewTx(ctx, tx, r.Key.OrganizationID, "", r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		var in viewBody
		if err := r.Update(wireOfView(&v), &in); err != nil {
			return rest.Response{}, err
		}
		v, err = a.Desk.UpdateViewTx(ctx, tx, r.Key.OrganizationID, "", v.ID, desk.ViewUpdate{
			Name: in.Name.Pointer(), Query: in.Query.Pointer(), Sort: in.sort(), Columns: in.Columns.Pointer(), Position: in.Position.Pointer(),
		})
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireOfView(&v)), nil
	})
}

func (a *API) deleteView(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		v, err := a.Desk.LockViewTx(ctx, tx, r.Key.OrganizationID, "", r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(wireOfView(&v)); err != nil {
			return rest.Response{}, err
		}
		_, err = a.Desk.DeleteViewTx(ctx, tx, r.Key.OrganizationID, "", v.ID)
		return rest.NoContent(), err
	})
}
