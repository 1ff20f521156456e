// Package fleetpages has the dashboard pages of the fleet: reports, map, rides,
// vehicles, riders, prices, zones and settings.
//
// The pages exist once per environment: production below /fleet, the sandbox below
// /sandbox/fleet with a banner. Only the switch in the sidebar links the two.
//
// All members see the pages and can help riders: end, cancel or adjust a ride,
// block a rider, change a vehicle's state, create and work on tasks. Other changes require an admin. A change
// calls package fleet in a transaction of the environment's database and is
// recorded in its audit log like a request of the REST API, with the user as actor.
// The actions on rides and vehicles are also below the pages of a ticket and of a helpdesk
// customer.
// Times are by the organization's clock, which in the sandbox can be ahead.
package fleetpages

import (
	"context"
	"embed"
	"fmt"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/web"
)

//go:embed all:templates
var templates embed.FS

// Config configures [Register] for one environment.
type Config struct {
	Fleet *fleet.Service
	DB    *db.DB     // of Fleet
	Log   *audit.Log // of DB

	// Desk finds helpdesk customers by a rider's e-mail address and phone number.
	Desk   *desk.Service
	DeskDB *db.DB

	API  string // URL of the environment's API: "https://api.example.com/v1"
	Feed string // URL of its public feed: "https://help.example.com/gbfs/v3/"
	// Agencies is the URL of the data for agencies: "https://help.example.com/mds/v2".
	Agencies string

	Tiles *tiles.Map // the background of maps

	Quotas *quota.Service // of storage, for photos

	// Once returns a Conflict if a transaction with the same key was committed before. nil: never.
	Once func(ctx context.Context, tx *db.Tx, organizationID, key string) error

	// Members returns the members of an organization, who can be assigned tasks.
	Members func(ctx context.Context, organizationID string) ([]account.User, error)
}

// pages are the pages of one environment.
type pages struct {
	*web.Section
	Config
	base        string // "/fleet"
	other       string // base of the other environment
	environment Environment
}

// Environment is an environment's name in topics of package live.
type Environment string

// Environments.
const (
	Production Environment = "live"
	Sandbox    Environment = "test"
)

// Topic is the topic of changes to a kind of record, or to the record with an id.
func (e Environment) Topic(kind string, id ...string) string {
	return string(e) + "/" + strings.Join(append([]string{kind}, id...), ":")
}

// Register adds the pages of one environment to a site. Call it once per
// environment.
func Register(s *web.Site, c Config) {
	p := &pages{Section: s.Section(templates, "records.css", "map.css"), Config: c, base: "/fleet", other: "/sandbox/fleet", environment: Production}
	if !c.Fleet.Live() {
		p.base, p.other, p.environment = p.other, p.base, Sandbox
	}
	p.handle("", route{get: p.overview})
	p.handle("/analytics", route{get: p.analytics})
	p.handle("/analytics/export", route{get: p.exportAnalytics})
	p.handle("/map", route{get: p.showMap})
	p.handle("/zones", route{get: p.zones})
	p.handle("/zones/new", route{get: p.newZone, post: p.newZone, admin: true})
	p.handle("/zones/{id}", route{get: p.zone})
	p.handle("/zones/{id}/geojson", route{get: p.zoneFile})
	p.handle("/zones/{id}/edit", route{get: p.changeZone, post: p.changeZone, admin: true})
	p.handle("/zones/{id}/delete", route{get: p.deleteZone, post: p.deleteZone, admin: true})
	p.handleRecords()
	if c.Fleet.Live() {
		p.Handle(tilesPath+"{version}/{z}/{x}/{y}", web.Route{Get: p.mapTile})
		p.handleOrigins()
	}
}

// route has the handlers of a path. By default, forms require an admin.
type route struct {
	get, post web.Handler
	admin     bool // the page requires an admin, too
	anyone    bool // any member may send the form
	proof     bool // the form requires recent authentication
}

// handle registers a path below the base.
func (p *pages) handle(path string, rt route) {
	get, post := p.open(rt.get), p.open(rt.post)
	if rt.post != nil && !rt.anyone {
		open := post
		post = func(w http.ResponseWriter, r *web.Request) error {
			if !r.Admin() {
				return problem.New(problem.Forbidden, "Only admins of %s can change this. Ask an admin.", r.Organization.Name)
			}
			return open(w, r)
		}
	}
	p.Handle(p.base+path, web.Route{Get: get, Post: post, Admin: rt.admin, Proof: rt.proof})
}

// open wraps a handler: it provisions the organization's fleet and sets the
// request's time to the fleet's clock.
func (p *pages) open(h web.Handler) web.Handler {
	if h == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *web.Request) error {
		o := fleet.Organization{ID: r.OrganizationID, Name: r.Organization.Name}
		if err := p.Fleet.Provision(r.Context(), o); err != nil {
			return fmt.Errorf("open the fleet: %w", err)
		}
		now, err := p.Fleet.Now(r.Context(), p.DB, r.OrganizationID)
		if err != nil {
			return err
		}
		r.Now = now.In(r.Now.Location())
		return h(w, r)
	}
}

// page returns the frame of a page. path is the view in the navigation, below the
// base: "/zones" for all pages about zones.
func (p *pages) page(r *web.Request, path, title string, body any) web.Page {
	views := []web.NavItem{
		{Label: "Overview", Icon: "chart"},
		{Path: "/map", Label: "Map", Icon: "map"},
		{Path: "/rides", Label: "Rides", Icon: "route"},
		{Path: "/vehicles", Label: "Vehicles", Icon: "bike"},
		{Path: "/alerts", Label: "Alerts", Icon: "alert"},
		{Path: "/tasks", Label: "Tasks", Icon: "check"},
		{Path: "/riders", Label: "Riders", Icon: "users"},
		{Path: "/zones", Label: "Zones", Icon: "zone"},
		{Path: "/pricing", Label: "Pricing", Icon: "tag"},
		{Path: "/subaccounts", Label: "Subaccounts", Icon: "pin"},
		{Path: "/settings", Label: "Settings", Icon: "settings"},
	}
	for i := range views {
		views[i].Present = views[i].Path == path
		views[i].Path = p.base + views[i].Path
	}
	// Ids differ between environments, so the switch links to the list.
	return web.Page{Title: title, At: p.base, Views: views, Body: body, Class: "environmental", Sandbox: !p.Fleet.Live(), Other: p.other + path}
}

// listPage is page for a wide table.
func (p *pages) listPage(r *web.Request, path, title string, body any) web.Page {
	page := p.page(r, path, title, body)
	page.Class += " lists"
	return page
}

// topic is [Environment.Topic], for data-live.
func (p *pages) topic(kind string, id ...string) string { return p.environment.Topic(kind, id...) }

// by is the actor of the request, with the ticket from which the member acts.
func by(r *web.Request) fleet.Actor {
	return fleet.Actor{Type: string(audit.User), ID: fleet.NullString(r.UserID), Ticket: ticketNumber(r)}
}

// write runs a change in a transaction of the environment's database.
func (p *pages) write(r *web.Request, fn func(ctx context.Context, tx *db.Tx) error) error {
	return p.DB.Write(r.Context(), func(tx *db.Tx) error { return fn(r.Context(), tx) })
}
