package app

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// deskDocs is the path of the reference of the helpdesk's REST API.
const deskDocs = "/api/docs"

// registerPages registers the references of the REST APIs at their paths, and the pages
// about problem types.
func registerPages(mux *http.ServeMux, references map[string]*rest.API) error {
	for path, api := range references {
		docs := api.Reference(path)
		mux.Handle(path, docs)
		mux.Handle(path+"/", docs)
	}
	problems, err := rest.Problems()
	if err != nil {
		return err
	}
	mux.Handle("/problems/", problems)
	return nil
}

// openDeskAPI returns the helpdesk's REST API. Its errors refer keys of the fleet to the
// base URLs live and sandbox.
func (a *App) openDeskAPI(live, sandbox fleetBase) (*rest.API, error) {
	routes := &deskapi.API{
		DB: a.DB, BaseURL: a.BaseURL, Desk: a.Desk, Webhooks: a.Webhooks, Connections: a.Connections,
		Inbound: a.Inbound, Accounts: a.Accounts, Keys: a.Keys, Audit: a.Audit,
	}
	return rest.New(rest.Config{
		Base: deskapi.Base, Origin: a.BaseURL, Service: apikey.Helpdesk, Environment: apikey.Live, Realm: "helpdesk",
		Title: "Kickstand Helpdesk", Version: "1.0",
		Description: "Tickets, messages and customers, and the channels and webhooks around them.",
		Keys:        a.Keys, Audit: a.Audit, Requests: a.Requests, NotFound: a.notFound, KeyLimiter: a.rateLimiter("key"), AddressLimiter: a.rateLimiter("address"), DB: a.DB, Box: a.box,
		TrustedProxies: a.config.TrustedProxies, Log: a.log, Routes: routes.Routes(), Addresses: a.apiAddresses(live, sandbox),
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
