// Package fleetapi is the fleet's REST API, `/v1` and `/sandbox/v1`
// (fleet-api.md 1 to 7): its routes and the wire form of its records, as data for
// package rest, which has the conventions.
//
// An [API] is one environment, over the fleet of that environment and its
// database; nothing in it leads to the other. A handler decodes, calls the
// fleet, and answers the record as it is stored. Whose record it is comes first
// (404), then whether the request reaches its subaccount (403), then what is
// wrong with the body.
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

// API is what the routes of one environment call. It must not be copied.
type API struct {
	Fleet *fleet.Service
	DB    *db.DB // of that fleet
	Keys  *apikey.Service
	Logs  []*audit.Log // of that fleet and of Keys
	// Account returns what an organization is called, its plan and the requests a
	// minute that the plan gives.
	Account func(ctx context.Context, organizationID string) (Account, error)

	known sync.Map // organizations whose fleet exists, by id
}

// Account is what is told of an organization beside its fleet.
type Account struct {
	Name      string
	Plan      apikey.Plan
	RateLimit int64 // requests a minute
}

// Routes returns all of them; those about the sandbox itself only there.
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

// Subaccounts returns the ids of an organization's subaccounts, for
// [rest.Config].
func (a *API) Subaccounts(ctx context.Context, organizationID string) ([]string, error) {
	if err := a.ensure(ctx, organizationID); err != nil {
		return nil, err
	}
	return a.Fleet.SubaccountIDs(ctx, a.DB, organizationID)
}

// ensure sees to it that an organization has a fleet, from its first request on.
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

// needs is a permission.
func needs(resource string, action apikey.Action) rest.Permission {
	return rest.Permission{Resource: resource, Action: action}
}

// by says to the fleet who asks.
func by(r *rest.Request) fleet.Actor {
	return fleet.Actor{Type: string(audit.Key), ID: fleet.NullString(r.Key.ID)}
}

// documented is a record of the fleet, which answers as it is stored.
type documented interface {
	Record() (fleet.Record, error)
}

// document is a record as it is answered.
func document(record documented) (rest.Document, error) {
	d, err := record.Record()
	return rest.Document{JSON: d.JSON, Revision: d.Revision}, err
}

// ok answers with a record.
func ok(record documented) (rest.Response, error) {
	d, err := document(record)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(d), nil
}

// created answers with a record that a POST has made, at a path below the base.
func created(path, id, subaccountID string, record documented) (rest.Response, error) {
	d, err := document(record)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.Created(path+id, d).In(subaccountID), nil
}

// changed answers with a record that a PUT has changed.
func changed(subaccountID string, record documented) (rest.Response, error) {
	got, err := ok(record)
	return got.In(subaccountID), err
}
