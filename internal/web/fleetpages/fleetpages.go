// Package fleetpages is the part of the dashboard where people look after vehicles:
// what they do and earn, where they are, and the rides, riders, prices and zones.
//
// The pages are there twice, over the fleet of each environment: production below
// /fleet and the sandbox below /sandbox/fleet, where every page says so. Nothing
// leads from the one to the other but the switch in the rail.
//
// Whoever belongs to the organization sees the pages. All of them do what helps a
// rider now: end, cancel or adjust a ride, block somebody, put a vehicle into
// another state. Only admins change anything else.
// A change is the fleet's own, in a transaction of the environment's database,
// and what the REST API writes to the audit log of it is written here too, by the
// person who did it. What time it is on these pages is what it is for the fleet:
// the sandbox has its own clock.
package fleetpages

import (
	"context"
	"embed"
	"fmt"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

//go:embed all:templates
var templates embed.FS

// Config is what [Register] needs: one environment.
type Config struct {
	Fleet *fleet.Service
	DB    *db.DB     // of that fleet
	Log   *audit.Log // of DB

	// Riders are shown with what the helpdesk knows of them by e-mail address and
	// telephone number.
	Desk   *desk.Service
	DeskDB *db.DB

	API  string // where the API of the environment answers: "https://api.example.com/v1"
	Feed string // and its public feed: "https://help.example.com/gbfs/v3/"
}

// pages are those of one environment.
type pages struct {
	*web.Section
	Config
	base        string // "/fleet"
	other       string // the same of the other environment
	environment Environment
}

// Environment is one of the two, as topics of package live name it.
type Environment string

// The environments.
const (
	Production Environment = "live"
	Sandbox    Environment = "test"
)

// Topic is what is told when a record of some kind changes, or, with an id, when
// that one does.
func (e Environment) Topic(kind string, id ...string) string {
	return string(e) + "/" + strings.Join(append([]string{kind}, id...), ":")
}

// Register adds the pages of one environment to a site. It is called for each.
func Register(s *web.Site, c Config) {
	p := &pages{Section: s.Section(templates, "records.css", "map.css"), Config: c, base: "/fleet", other: "/sandbox/fleet", environment: Production}
	if !c.Fleet.Live() {
		p.base, p.other, p.environment = p.other, p.base, Sandbox
	}
	p.handle("", route{get: p.overview})
	p.handle("/map", route{get: p.showMap})
	p.handle("/zones", route{get: p.zones})
	p.handle("/zones/new", route{get: p.newZone, post: p.newZone, admin: true})
	p.handle("/zones/{id}", route{get: p.zone})
	p.handle("/zones/{id}/edit", route{get: p.changeZone, post: p.changeZone, admin: true})
	p.handle("/zones/{id}/delete", route{get: p.deleteZone, post: p.deleteZone, admin: true})
	p.handleRecords()
}

// route is what an address does. Forms are for admins.
type route struct {
	get, post web.Handler
	admin     bool // the page too, because there is nothing on it but a form
	anyone    bool // the form is for whoever helps riders
	proof     bool // the form needs a fresh proof of identity
}

// handle has an address below the base answered.
func (p *pages) handle(path string, rt route) {
	get, post := p.open(rt.get), p.open(rt.post)
	if rt.post != nil && !rt.anyone {
		open := post
		post = func(w http.ResponseWriter, r *web.Request) error {
			if !r.Admin() {
				return problem.New(problem.Forbidden, "Only admins of %s may change the fleet. Ask one of them.", r.Organization.Name)
			}
			return open(w, r)
		}
	}
	p.Handle(p.base+path, web.Route{Get: get, Post: post, Admin: rt.admin, Proof: rt.proof})
}

// open has a handler find the fleet of the organization, from its first request
// on, and the fleet's time on the clock.
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

// page is the frame of a page. path is that of the view it belongs to, below the
// base: "/zones" for the list of zones and all that is about one.
func (p *pages) page(r *web.Request, path, title string, body any) web.Page {
	views := []web.NavItem{
		{Label: "Overview", Icon: "chart"},
		{Path: "/map", Label: "Map", Icon: "map"},
		{Path: "/rides", Label: "Rides", Icon: "route"},
		{Path: "/vehicles", Label: "Vehicles", Icon: "bike"},
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
	// Records have other ids there, so the switch leads to the list.
	return web.Page{Title: title, At: p.base, Views: views, Body: body, Class: "environmental", Sandbox: !p.Fleet.Live(), Other: p.other + path}
}

// topic is [Environment.Topic], for data-live.
func (p *pages) topic(kind string, id ...string) string { return p.environment.Topic(kind, id...) }

// by says to the fleet who asks.
func by(r *web.Request) fleet.Actor {
	return fleet.Actor{Type: string(audit.User), ID: fleet.NullString(r.UserID)}
}

// write runs a change in a transaction of the environment's database.
func (p *pages) write(r *web.Request, fn func(ctx context.Context, tx *db.Tx) error) error {
	return p.DB.Write(r.Context(), func(tx *db.Tx) error { return fn(r.Context(), tx) })
}
