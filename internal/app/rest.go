package app

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// deskDocs is where people read about the helpdesk's REST API.
const deskDocs = "/api/docs"

// registerPages puts what people read about the REST APIs into mux.
func registerPages(mux *http.ServeMux, api *rest.API) error {
	docs, err := api.Reference(deskDocs)
	if err != nil {
		return err
	}
	problems, err := rest.Problems()
	if err != nil {
		return err
	}
	mux.Handle(deskDocs, docs)
	mux.Handle(deskDocs+"/", docs)
	mux.Handle("/problems/", problems)
	return nil
}

// openDeskAPI returns the helpdesk's REST API.
func (a *App) openDeskAPI() (*rest.API, error) {
	routes := &deskapi.API{
		DB: a.DB, BaseURL: a.BaseURL, Desk: a.Desk, Webhooks: a.Webhooks, Connections: a.Connections,
		Inbound: a.Inbound, Accounts: a.Accounts, Keys: a.Keys,
	}
	return rest.New(rest.Config{
		Base: deskapi.Base, Origin: a.BaseURL, Service: apikey.Helpdesk, Environment: apikey.Live, Realm: "helpdesk",
		Title: "Kickstand Helpdesk", Version: "1.0",
		Description: "Tickets, messages and customers, and the channels and webhooks around them.",
		Keys:        a.Keys, KeyWindows: a.keyWindows, AddressWindows: a.addressWindows, DB: a.DB, Box: a.box,
		TrustedProxies: a.config.TrustedProxies, Log: a.log, Routes: routes.Routes(),
	})
}
