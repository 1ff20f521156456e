package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var clockRecord = &schema.Record{Name: "sandbox_clock", Doc: "The sandbox clock.", Members: []schema.Member{
	{Name: "now", Type: schema.Timestamp(), Access: schema.Required, Example: "2026-03-14T09:26:53.250Z"},
}}

type clock struct {
	Now rfc3339.Time `json:"now"`
}

func (a *API) sandboxRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/sandbox/clock", ID: "getSandboxClock", Tag: "Sandbox", Summary: "Read the sandbox's clock",
		Needs: needs("zones", apikey.Read), Output: clockRecord, Handle: a.getClock,
	}, {
		Method: "PUT", Path: "/sandbox/clock", ID: "updateSandboxClock", Tag: "Sandbox", Summary: "Put the sandbox's clock forward",
		Doc:   "Advances the clock by at most a year; it runs on from there. All timed changes of rides and vehicles up to the new time have been applied, in order, when the request returns.",
		Needs: needs("zones", apikey.Update), Input: clockRecord, Output: clockRecord, Codes: []string{"clock_backwards"}, Handle: a.setClock,
	}, {
		Method: "POST", Path: "/sandbox/reset", ID: "resetSandbox", Tag: "Sandbox", Summary: "Reset the sandbox",
		Doc:   "Deletes all data and resets the clock, then creates the data of a new sandbox.",
		Needs: needs("zones", apikey.Update), Handle: a.reset,
	}}
}

func (a *API) getClock(ctx context.Context, r *rest.Request) (rest.Response, error) {
	now, err := a.Fleet.Now(ctx, a.DB, r.Key.OrganizationID)
	return rest.OK(clock{rfc3339.Time(now)}), err
}

func (a *API) setClock(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		before, err := a.Fleet.Now(ctx, tx, r.Key.OrganizationID)
		if err != nil {
			return rest.Response{}, err
		}
		var in clock
		if err := r.Update(clock{rfc3339.Time(before)}, &in); err != nil {
			return rest.Response{}, err
		}
		if in.Now.Std().IsZero() { // a PUT may omit fields, but this is the only one
			var v problem.Validation
			v.AddCode("required", "now", "is required")
			return rest.Response{}, v.Err()
		}
		if err := a.Fleet.AdvanceClockTx(ctx, tx, r.Key.OrganizationID, in.Now.Std()); err != nil {
			return rest.Response{}, err
		}
		return rest.OK(in), nil
	})
}

func (a *API) reset(ctx context.Context, r *rest.Request) (rest.Response, error) {
	o, err := a.organization(ctx, r.Key.OrganizationID) // in another database
	if err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		return rest.NoContent(), a.Fleet.ResetTx(ctx, tx, o)
	})
}
