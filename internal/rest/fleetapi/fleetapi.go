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
	"strings"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// Tags describes the groups of routes.
var Tags = map[string]string{
	"Rides":     "Trips and reservations: start, pause, complete and cancel them, and adjust their prices.",
	"Vehicles":  "Vehicles with their states, positions and telemetry.",
	"Telemetry": "Reports of many vehicles at once, tracks, and histories of states.",
	"Tasks":     "Maintenance, repairs and other work on vehicles. Keys need the permissions of vehicles.",
	"Customers": "Riders. They sign up in the operator's app.",
	"Pricing":   "Pricing plans. They are created and retired in the dashboard.",
	"Zones":     "Areas in which rules hold.",
	"Alerts":    "Rules that watch vehicles, and the alerts that they raise. Permissions are those of vehicles.",
	"Analytics": "Figures of rides and revenue by period and group.",
	"Events":    "Changes of rides, vehicles, zones, alerts, customers and tasks as they happen.",
	"Settings":  "Settings of the account and its subaccounts, and the audit log.",
	"Sandbox":   "The clock of the sandbox, and its reset.",
	"API key":   "The key that is used, and its last requests.",
}

// ExampleID returns the id of a record in examples: of is its kind, or the name of a member that
// refers to it, such as current_ride.
func ExampleID(of string) string {
	for suffix, prefix := range map[string]string{
		"ride": "ride", "vehicle": "veh", "vehicle_type": "vt", "customer": "cus", "zone": "zone", "pricing_plan": "plan", "subaccount": "sub", "alert": "alert", "alert_rule": "rule", "task": "task", "photo": "photo",
	} {
		if of == suffix || strings.HasSuffix(of, "_"+suffix) {
			return prefix + "_01KKNTQ6YAEDQRB018TR4SJM6R"
		}
	}
	return "019aa0f2-8c1e-7d33-9a52-6f4f0c1b2d3e"
}

// API serves the routes of one environment. It must not be copied.
type API struct {
	Fleet *fleet.Service
	DB    *db.DB // of the fleet
	Keys  *apikey.Service
	Logs  []*audit.Log // of the fleet and of Keys
	// TrackerURL is the address to which trackers report, before the secret of one.
	TrackerURL string
	// Account returns the name and plan of an organization, and the plan's requests per minute.
	Account func(ctx context.Context, organizationID string) (Account, error)
	Live    *live.Hub // gets [EventsTopic]
	Quotas  *quota.Service

	streams openStreams
	known   sync.Map // organizations with an existing fleet, by id
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
		a.rideRoutes(), a.vehicleRoutes(), a.telemetryRoutes(), a.trackRoutes(), a.trackerRoutes(), a.taskRoutes(), a.customerRoutes(), a.pricingRoutes(), a.quoteRoutes(), a.zoneRoutes(),
		a.alertRoutes(), a.analyticsRoutes(), a.settingsRoutes(), a.subaccountRoutes(), a.auditRoutes(), a.eventRoutes(),
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
