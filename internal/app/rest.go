package app

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/mcp"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
	"github.com/kickstand-dev/kickstand/internal/rest/reference"
	"github.com/kickstand-dev/kickstand/internal/search"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// deskDocs is the path of the reference of the helpdesk's REST API.
const deskDocs = "/api/docs"

// newSandboxKey is the path of the form that creates a key of the fleet's sandbox.
const newSandboxKey = "/settings/keys/new?of=sandbox"

// registerReferences registers the references of the REST APIs, and the pages about problem
// types.
func (a *App) registerReferences(mux *http.ServeMux, deskAPI, fleetAPI, sandboxAPI *rest.API, live, sandbox fleetBase) error {
	for _, c := range []reference.Config{
		{Path: deskDocs, Name: "helpdesk", Base: deskapi.Base, Key: "sk_live_…", Document: deskAPI.OpenAPI},
		{Path: fleetDocs, Name: "fleet", Base: live.path, Key: "sk_live_…", Document: fleetAPI.OpenAPI},
		{Path: sandboxDocs, Name: "fleet", Base: sandbox.path, Key: "sk_test_…", Document: sandboxAPI.OpenAPI, Runs: runnableReference(a.BaseURL, sandbox) != "", NewKey: newSandboxKey},
	} {
		c.Logger = a.log
		h := telemetry.Routed("docs", reference.New(c))
		mux.Handle(c.Path, h)
		mux.Handle(c.Path+"/", h)
	}
	problems, err := reference.Problems()
	if err != nil {
		return err
	}
	mux.Handle("/problems/", telemetry.Routed("docs", problems))
	return nil
}

// runnableReference returns the path of the reference in which requests to the sandbox can be
// run, or "" if the sandbox is at another origin than the pages.
func runnableReference(baseURL string, sandbox fleetBase) string {
	if sandbox.origin != baseURL {
		return ""
	}
	return sandboxDocs
}

// openDeskAPI returns the helpdesk's REST API. Its errors refer keys of the fleet to the
// base URLs live and sandbox.
func (a *App) openDeskAPI(live, sandbox fleetBase) (*rest.API, error) {
	c, err := describeDesk(&deskapi.API{
		DB: a.DB, BaseURL: a.BaseURL, Desk: a.Desk, Webhooks: a.Webhooks, Connections: a.Connections,
		Inbound: a.Inbound, Accounts: a.Accounts, Keys: a.Keys, Search: a.search(), Audit: a.Audit, Live: a.live,
	})
	if err != nil {
		return nil, err
	}
	c.Keys, c.Audit, c.Requests, c.NotFound, c.DB, c.Box = a.Keys, a.Audit, a.Requests, a.notFound, a.DB, a.box
	c.KeyLimiter, c.AddressLimiter = a.rateLimiter("key"), a.rateLimiter("address")
	c.TrustedProxies, c.Log, c.Addresses = a.config.TrustedProxies, a.log, a.apiAddresses(live, sandbox)
	return rest.New(c)
}

// search returns the search over all records, those of the production fleet included.
func (a *App) search() *search.Service {
	return &search.Service{DB: a.DB, Desk: a.Desk, Shop: a.Shop, Fleet: a.Fleet.Service, FleetDB: a.Fleet.DB}
}

// describeDesk returns the description of the helpdesk's REST API, without what serves it.
func describeDesk(routes *deskapi.API) (rest.Config, error) {
	webhooks, err := deskapi.Deliveries(routes.BaseURL)
	return rest.Config{
		Base: deskapi.Base, Origin: routes.BaseURL, Service: apikey.Helpdesk, Environment: apikey.Live, Realm: "helpdesk",
		Title: "Kickstand Helpdesk", Version: apiVersion, Docs: deskDocs, Tags: deskapi.Tags,
		Description: "Tickets, messages and customers, and the channels and webhooks around them.",
		Routes:      routes.Routes(), Webhooks: webhooks,
	}, err
}

// openTools returns the endpoint of the APIs' tools.
func (a *App) openTools(desk, fleet, sandbox *rest.API) *mcp.Handler {
	helpdesk := apikey.API{Service: apikey.Helpdesk, Environment: apikey.Live}
	return mcp.New(mcp.Config{
		Keys: a.Keys, Default: helpdesk, Log: a.log,
		APIs: map[apikey.API]*rest.API{
			helpdesk: desk,
			{Service: apikey.Fleet, Environment: apikey.Live}: fleet,
			{Service: apikey.Fleet, Environment: apikey.Test}: sandbox,
		},
	})
}

// apiAddresses returns the base URL of each API.
func (a *App) apiAddresses(live, sandbox fleetBase) map[apikey.API]string {
	return map[apikey.API]string{
		{Service: apikey.Helpdesk, Environment: apikey.Live}: a.BaseURL + deskapi.Base,
		{Service: apikey.Fleet, Environment: apikey.Live}:    live.String(),
		{Service: apikey.Fleet, Environment: apikey.Test}:    sandbox.String(),
	}
}
