package app

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/fleetapi"
	"github.com/kickstand-dev/kickstand/internal/rest/osmand"
	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/web/fleetpages"
)

// Fleet is the fleet service of one environment with its own database.
type Fleet struct {
	*fleet.Service
	DB    *db.DB
	Audit *audit.Log
}

// database describes one of the program's databases.
type database struct {
	name   string // for display; on PostgreSQL the schema, except for the first
	schema db.Schema
	file   string // next to the first, on SQLite
}

// databases are the helpdesk's, the fleet's and the sandbox's. No query joins them.
var databases = [3]database{
	{"helpdesk", db.Helpdesk, ""},
	{"fleet_live", db.Fleet, "fleet-live.db"},
	{"fleet_sandbox", db.Fleet, "fleet-test.db"},
}

// PostgreSQL connections of a process.
const (
	// DefaultDatabaseConnections lets three processes share a server with PostgreSQL's default
	// of 100, with some left for commands and for the operator.
	DefaultDatabaseConnections = 30
	// LeastDatabaseConnections is the smallest number that works: exports and listening hold
	// connections of the helpdesk for long.
	LeastDatabaseConnections = 15
)

// at returns the URL and options of a database.
func (d database) at(c *Config) (string, db.Options) {
	helpdesk := c.databaseURL()
	if path, ok := strings.CutPrefix(helpdesk, "sqlite:"); ok {
		if d.file == "" {
			return helpdesk, db.Options{}
		}
		return "sqlite:" + filepath.Join(filepath.Dir(path), d.file), db.Options{}
	}
	total := cmp.Or(c.DatabaseConnections, DefaultDatabaseConnections)
	fleet := total / 5 // per environment
	o := db.Options{DirectURL: c.DatabaseDirectURL, MaxConns: total - 2*fleet}
	if d.file != "" {
		o.Namespace, o.MaxConns = d.name, fleet
	}
	return helpdesk, o
}

// Paths of the reference documentation of the fleet's API.
const (
	fleetDocs   = "/docs/fleet"
	sandboxDocs = "/docs/sandbox"
)

// fleetBase is the base URL of an environment's API.
type fleetBase struct {
	host   string // the only accepted host; empty: any
	origin string // "https://api.example.com"
	path   string // "/v1"
}

// String returns the URL.
func (b fleetBase) String() string { return b.origin + b.path }

// within reports whether b is at or below other.
func (b fleetBase) within(other fleetBase) bool {
	return strings.EqualFold(b.origin, other.origin) && strings.HasPrefix(b.path+"/", other.path+"/")
}

// fleetBases returns the base URLs of production and sandbox.
func (c *Config) fleetBases() (live, sandbox fleetBase, err error) {
	if live, err = c.fleetBase(c.FleetBaseURL, "/v1"); err != nil {
		return live, sandbox, fmt.Errorf("fleet-base-url: %w", err)
	}
	if sandbox, err = c.fleetBase(c.SandboxBaseURL, "/sandbox/v1"); err != nil {
		return live, sandbox, fmt.Errorf("sandbox-base-url: %w", err)
	}
	if live.within(sandbox) || sandbox.within(live) {
		return live, sandbox, fmt.Errorf("sandbox-base-url: %s and the fleet's %s must not be below one another", sandbox, live)
	}
	return live, sandbox, nil
}

// CheckBases checks the base URLs of the fleet's API.
func (c *Config) CheckBases() error {
	_, _, err := c.fleetBases()
	return err
}

// fleetBase parses one of the two URLs; usual is the default path.
func (c *Config) fleetBase(address, usual string) (fleetBase, error) {
	if address == "" {
		return fleetBase{origin: c.BaseURL, path: usual}, nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fleetBase{}, fmt.Errorf("%q is not an address such as https://api.example.com/v1", address)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fleetBase{}, fmt.Errorf("%q must have scheme, host and path only", address)
	case !strings.HasSuffix(u.Path, "/v1") || u.Path != u.EscapedPath() || strings.ContainsAny(u.Path, "{}") || u.Path != "/"+strings.Join(strings.FieldsFunc(u.Path, func(c rune) bool { return c == '/' }), "/"):
		return fleetBase{}, fmt.Errorf("%q must end in /v1, without a trailing slash", address)
	}
	b := fleetBase{host: u.Host, origin: u.Scheme + "://" + u.Host, path: u.Path}
	if strings.EqualFold(b.origin, c.BaseURL) {
		b.host = ""
		if strings.HasPrefix(b.path+"/", "/api/") {
			return fleetBase{}, fmt.Errorf("%q is the helpdesk's API", address)
		}
	}
	return b, nil
}

// openFleetAPI returns the API of one environment.
func (a *App) openFleetAPI(f Fleet, live, sandbox fleetBase) (*rest.API, error) {
	base, name := live, "fleet"
	if !f.Live() {
		base, name = sandbox, "sandbox"
	}
	c, err := describeFleet(&fleetapi.API{Fleet: f.Service, DB: f.DB, Keys: a.Keys, Logs: []*audit.Log{a.Audit, f.Audit}, TrackerURL: a.TrackerURL(&f, ""), Account: a.fleetAccount, Live: a.live, Quotas: a.Quotas}, base)
	if err != nil {
		return nil, err
	}
	c.Keys, c.Audit, c.Requests, c.DB, c.Box = a.Keys, f.Audit, a.Requests, f.DB, a.box
	c.KeyLimiter, c.AddressLimiter = a.rateLimiter(name+"-key"), a.rateLimiter(name+"-address")
	c.TrustedProxies, c.Log, c.Addresses = a.config.TrustedProxies, a.log, a.apiAddresses(live, sandbox)
	return rest.New(c)
}

// TrackerURL returns the address to which a tracker with a secret reports.
func (a *App) TrackerURL(f *Fleet, secret string) string {
	if f.Live() {
		return a.BaseURL + osmand.Path + secret
	}
	return a.BaseURL + osmand.SandboxPath + secret
}

// describeFleet returns the description of the API of one environment, without what serves it.
func describeFleet(routes *fleetapi.API, base fleetBase) (rest.Config, error) {
	webhooks, err := fleetapi.Deliveries(routes.Fleet.Live())
	c := rest.Config{
		Base: base.path, Host: base.host, Origin: base.origin, Service: apikey.Fleet, Environment: apikey.Live, Realm: "fleet",
		Title: "Kickstand Fleet", Version: apiVersion, Docs: fleetDocs, Tags: fleetapi.Tags, ExampleID: fleetapi.ExampleID,
		Description: "Rides, vehicles, customers, prices, zones and analytics of a fleet of rentable vehicles.",
		Routes:      routes.Routes(), Webhooks: webhooks, Subaccounts: routes.Subaccounts,
	}
	if !routes.Fleet.Live() {
		c.Environment, c.Title, c.Docs = apikey.Test, "Kickstand Fleet (sandbox)", sandboxDocs
	}
	return c, err
}

// fleetAccount returns an organization as the fleet API shows it.
func (a *App) fleetAccount(ctx context.Context, organizationID string) (fleetapi.Account, error) {
	o, err := a.Accounts.Organization(ctx, organizationID)
	if err != nil {
		return fleetapi.Account{}, err
	}
	plan := billing.KeyPlan(o.Plan)
	return fleetapi.Account{Name: o.Name, Plan: plan, RateLimit: plan.Limit(o.FleetRateLimit)}, nil
}

// openMap opens the background of maps. Its source is the operator's and may be private.
func (a *App) openMap(transport http.RoundTripper) (err error) {
	a.mapTiles, err = tiles.Open(tiles.Config{
		Source: a.config.MapTiles, Attribution: a.config.MapAttribution, Client: "Kickstand (+" + a.BaseURL + ")", Transport: transport, Logger: a.log,
	})
	if err == nil {
		a.closers = append(a.closers, a.mapTiles.Close)
	}
	return err
}

// fleetNotifier returns a function that notifies open pages about a changed record of a
// fleet.
func (a *App) fleetNotifier(e fleetpages.Environment) func(organizationID, kind, id string) {
	return func(organizationID, kind, id string) {
		if kind == "" {
			a.live.Publish(organizationID, live.Everything)
			return
		}
		a.live.PublishCoalesced(organizationID, e.Topic(kind, id))
	}
}

// eventsRelayed notifies streams of events of a fleet. On SQLite nothing else notifies them of another
// process's events; PostgreSQL does.
func (a *App) eventsRelayed(organizationID string) {
	if !a.DB.Postgres() {
		a.live.PublishCoalesced(organizationID, fleetapi.EventsTopic)
	}
}

// eventEmitted starts the delivery of a new event of a fleet to webhooks and streams, and the relay
// of a new alert.
func (a *App) eventEmitted(organizationID string) {
	a.Webhooks.WakeSources()
	select {
	case a.alertRaised <- struct{}{}:
	default:
	}
	a.live.PublishCoalesced(organizationID, fleetapi.EventsTopic)
}
