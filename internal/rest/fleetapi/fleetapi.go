// Package fleetapi is the fleet's REST API, `/v1` and `/sandbox/v1` (fleet-api.md 1 to 7): its
// routes and the wire format of its records. Package rest implements the conventions.
//
// An [API] serves one environment, with the fleet and database of that environment only. A
// handler decodes, calls the fleet, and answers with the stored record. Errors have an order:
// first the record's organization (404), then the subaccount (403), then the body.
package fleetapi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// API serves the routes of one environment. It must not be copied.
type API struct {
	Fleet *fleet.Service
	DB    *db.DB // of the fleet
	Keys  *apikey.Service
	Logs  []*audit.Log // of the fleet and of Keys
	// Account returns the name and plan of an organization, and the plan's requests per minute.
	Account func(ctx context.Context, organizationID string) (Account, error)

	known sync.Map // organizations with an existing fleet, by id
}

// Account describes an organization apart from its fleet.
type Account struct {
	Name      string
	Plan      apikey.Plan
	RateLimit int64 // requests per minute
}

// Routes returns all routes; the routes of the sandbox clock and reset only for the sandbox.
func (a *API) Routes() []rest.Route {
	routes := slices.Concat(
		a.rideRoutes(), a.vehicleRoutes(), a.customerRoutes(), a.pricingRoutes(), a.zoneRoutes(),
		a.analyticsRoutes(), a.settingsRoutes(), a.subaccountRoutes(), a.auditRoutes(),
	)
	if !a.Fleet.Live() {
		routes = append(routes, a.sandboxRoutes()...)
	}
	for i := range routes {
		handle := routes[i].Handle
		routes[i].Handle = func(ctx context.Context, r *rest.Request) (rest.Response, error) {
			if err := a.ensure(ctx, r.Key.OrganizationID); err != nil {
				return rest.Response{}, err
			}
			return handle(ctx, r)
		}
	}
	return routes
}

// Subaccounts returns the ids of an organization's subaccounts, for [rest.Config].
func (a *API) Subaccounts(ctx context.Context, organizationID string) ([]string, error) {
	if err := a.ensure(ctx, organizationID); err != nil {
		return nil, err
	}
	return a.Fleet.SubaccountIDs(ctx, a.DB, organizationID)
}

// ensure provisions an organization's fleet before its first request.
func (a *API) ensure(ctx context.Context, organizationID string) error {
	if _, ok := a.known.Load(organizationID); ok {
		return nil
	}
	o, err := a.organization(ctx, organizationID)
	if err != nil {
		return err
	}
	if err := a.Fleet.Provision(ctx, o); err != nil {
		return fmt.Errorf("open the fleet: %w", err)
	}
	a.known.Store(organizationID, true)
	return nil
}

func (a *API) organization(ctx context.Context, id string) (fleet.Organization, error) {
	o, err := a.Account(ctx, id)
	if err != nil {
		return fleet.Organization{}, fmt.Errorf("look up the organization: %w", err)
	}
	return fleet.Organization{ID: id, Name: o.Name}, nil
}

// needs returns a permission.
func needs(resource string, action apikey.Action) rest.Permission {
	return rest.Permission{Resource: resource, Action: action}
}

// actorOf returns the actor of a request.
func actorOf(r *rest.Request) fleet.Actor {
	return fleet.Actor{Type: string(audit.Key), ID: fleet.NullString(r.Key.ID)}
}

// documented is a record of the fleet in stored wire format.
type documented interface {
	Record() (fleet.Record, error)
}

// document returns a record in wire format.
func document(record documented) (rest.Document, error) {
	d, err := record.Record()
	return rest.Document{JSON: d.JSON, Revision: d.Revision}, err
}

// reached returns a record in wire format, if the request reaches its subaccount.
func reached(r *rest.Request, subaccountID string, record documented) (rest.Document, error) {
	if err := r.Within(subaccountID); err != nil {
		return rest.Document{}, err
	}
	return document(record)
}

// ok answers with a record.
func ok(record documented) (rest.Response, error) {
	d, err := document(record)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(d), nil
}

// created answers a POST with the new record, at a path below the base.
func created(path, id, subaccountID string, record documented) (rest.Response, error) {
	d, err := document(record)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.Created(path+id, d).In(subaccountID), nil
}

// changed answers a PUT with the changed record.
func changed(subaccountID string, record documented) (rest.Response, error) {
	got, err := ok(record)
	return got.In(subaccountID), err
}
