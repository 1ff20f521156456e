package deskapi

import (
	"context"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var slaRecord = &schema.Record{Name: "sla_policy", Doc: "The SLA targets of one priority. They apply to tickets created, or changed to the priority, from then on.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("sla_policy")},
	{Name: "priority", Type: schema.Enum(priorities...)},
	{Name: "first_response_minutes", Type: schema.Int(1, 365*24*60), Access: schema.Writable, Nullable: true, Doc: "Until an agent's first public message; null: no target."},
	{Name: "resolution_minutes", Type: schema.Int(1, 365*24*60), Access: schema.Writable, Nullable: true, Doc: "Until the ticket is resolved or closed; null: no target."},
	{Name: "business_hours", Access: schema.Writable, Nullable: true, Doc: "The hours in which SLA targets run; null: always.", Type: schema.Nested(&schema.Record{Name: "business_hours", Members: []schema.Member{
		{Name: "time_zone", Type: schema.String(1, 100), Access: schema.Required, Doc: "IANA.", Example: "Europe/Berlin"},
		{Name: "weekly", Type: schema.Object(weekMembers()...), Access: schema.Required, Doc: "A day that is left out has no hours."},
		{Name: "holidays", Type: schema.Array(schema.Date(), 1000), Access: schema.Writable, Doc: "Days without any hours."},
	}})},
	{Name: "created_at", Type: schema.Timestamp(), Doc: "When the priority got its first policy."},
	{Name: "updated_at", Type: schema.Timestamp()},
}}

func weekMembers() []schema.Member {
	interval := schema.Nested(&schema.Record{Name: "opening_hours", Members: []schema.Member{
		{Name: "from", Type: schema.String(5, 5), Access: schema.Required, Doc: "Local time.", Example: "09:00"},
		{Name: "to", Type: schema.String(5, 5), Access: schema.Required, Doc: "Up to 24:00.", Example: "17:30"},
	}})
	members := make([]schema.Member, len(businesshours.Days))
	for i, day := range businesshours.Days {
		members[i] = schema.Member{Name: day, Type: schema.Array(interval, 24), Access: schema.Writable}
	}
	return members
}

type wireSLA struct {
	Object               string        `json:"object"`
	Priority             desk.Priority `json:"priority"`
	FirstResponseMinutes *int64        `json:"first_response_minutes"`
	ResolutionMinutes    *int64        `json:"resolution_minutes"`
	BusinessHours        *wireHours    `json:"business_hours"`
	CreatedAt            rfc3339.Time  `json:"created_at"`
	UpdatedAt            rfc3339.Time  `json:"updated_at"`
}

type wireHours struct {
	TimeZone string             `json:"time_zone"`
	Weekly   businesshours.Week `json:"weekly"`
	Holidays []string           `json:"holidays"`
}

func wireOfSLA(p *desk.SLAPolicy) wireSLA {
	w := wireSLA{
		Object: "sla_policy", Priority: p.Priority, FirstResponseMinutes: orNull(p.FirstResponseMinutes),
		ResolutionMinutes: orNull(p.ResolutionMinutes), CreatedAt: rfc3339.Time(p.CreatedAt), UpdatedAt: rfc3339.Time(p.UpdatedAt),
	}
	if h := p.Hours; h != nil {
		w.BusinessHours = &wireHours{TimeZone: h.TimeZone, Weekly: make(businesshours.Week, len(businesshours.Days)), Holidays: append([]string{}, h.Holidays...)}
		for _, day := range businesshours.Days {
			w.BusinessHours.Weekly[day] = append([]businesshours.Interval{}, h.Weekly[day]...)
		}
	}
	return w
}

type slaBody struct {
	FirstResponseMinutes optional.Value[int64]     `json:"first_response_minutes"`
	ResolutionMinutes    optional.Value[int64]     `json:"resolution_minutes"`
	BusinessHours        optional.Value[wireHours] `json:"business_hours"`
}

// apply copies the body into a policy.
func (in *slaBody) apply(p *desk.SLAPolicy) error {
	if in.FirstResponseMinutes.Set {
		p.FirstResponseMinutes = in.FirstResponseMinutes.Value
	}
	if in.ResolutionMinutes.Set {
		p.ResolutionMinutes = in.ResolutionMinutes.Value
	}
	if h := in.BusinessHours; h.Null {
		p.Hours = nil
	} else if h.Set {
		p.Hours = &businesshours.Hours{TimeZone: h.Value.TimeZone, Weekly: h.Value.Weekly, Holidays: h.Value.Holidays}
	}
	if p.FirstResponseMinutes == 0 && p.ResolutionMinutes == 0 {
		var v problem.Validation
		v.AddCode("required", "first_response_minutes", "or resolution_minutes must be given")
		return v.Err()
	}
	return nil
}

func (a *API) slaRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/sla-policies", ID: "listSLAPolicies", Tag: "Settings", Summary: "List SLA policies",
		Doc:   "At most one per priority, from low to urgent.",
		Needs: needs("settings", apikey.Read), Sort: []string{"priority"}, Order: "priority", Export: true,
		Output: slaRecord, List: true, Handle: a.listSLA,
	}, {
		Method: "GET", Path: "/sla-policies/{priority}", ID: "getSLAPolicy", Tag: "Settings", Summary: "Get an SLA policy",
		Needs: needs("settings", apikey.Read), Output: slaRecord, Handle: a.getSLA,
	}, {
		Method: "PUT", Path: "/sla-policies/{priority}", ID: "setSLAPolicy", Tag: "Settings", Summary: "Create or change an SLA policy",
		Doc:   "Running targets keep the policy they started with.",
		Needs: needs("settings", apikey.Update), Input: slaRecord, Output: slaRecord, Handle: a.setSLA,
	}, {
		Method: "DELETE", Path: "/sla-policies/{priority}", ID: "deleteSLAPolicy", Tag: "Settings", Summary: "Delete an SLA policy",
		Doc:   "Running targets continue.",
		Needs: needs("settings", apikey.Update), Handle: a.deleteSLA,
	}}
}

func (a *API) listSLA(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := a.Desk.SLAPolicies(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	// The rank of a priority, as a sortable id.
	place := func(w wireSLA) string { return string(rune('0' + slices.Index(desk.Priorities[:], w.Priority))) }
	return whole(r, wired(list, wireOfSLA), place)
}

func (a *API) getSLA(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := a.Desk.SLAPolicies(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	for i := range list {
		if string(list[i].Priority) == r.Path("priority") {
			return rest.OK(wireOfSLA(&list[i])), nil
		}
	}
	return rest.Response{}, problem.New(problem.NotFound, "there is no such SLA policy")
}

func (a *API) setSLA(ctx context.Context, r *rest.Request) (rest.Response, error) {
	priority := desk.Priority(r.Path("priority"))
	if !slices.Contains(desk.Priorities[:], priority) {
		return rest.Response{}, problem.New(problem.NotFound, "there is no such priority")
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		p, err := a.Desk.FindSLAPolicyTx(ctx, tx, r.Key.OrganizationID, priority)
		var in slaBody
		switch {
		case err == nil:
			err = r.Update(wireOfSLA(&p), &in)
		case problem.Of(err) == problem.NotFound:
			p = desk.SLAPolicy{OrganizationID: r.Key.OrganizationID, Priority: priority}
			none := wireSLA{Object: "sla_policy", Priority: priority}
			err = r.Update(none, &in)
		}
		if err != nil {
			return rest.Response{}, err
		}
		if err := in.apply(&p); err != nil {
			return rest.Response{}, err
		}
		p, err = a.Desk.SetSLAPolicyTx(ctx, tx, p)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireOfSLA(&p)), nil
	})
}

func (a *API) deleteSLA(ctx context.Context, r *rest.Request) (rest.Response, error) {
	priority := desk.Priority(r.Path("priority"))
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		p, err := a.Desk.FindSLAPolicyTx(ctx, tx, r.Key.OrganizationID, priority)
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(wireOfSLA(&p)); err != nil {
			return rest.Response{}, err
		}
		if err := a.Desk.DeleteSLAPolicyTx(ctx, tx, r.Key.OrganizationID, priority); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), nil
	})
}
