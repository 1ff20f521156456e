package app

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/gbfs"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
	"github.com/kickstand-dev/kickstand/internal/rpc"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// newHandler is every path the program answers.
func (a *App) newHandler() (http.Handler, error) {
	base, err := url.Parse(a.BaseURL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("base-url %q is not an address such as https://help.example.com", a.BaseURL)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	if !a.config.Web {
		return mux, nil
	}
	gate := &browser.Gate{Accounts: a.Accounts, Secure: base.Scheme == "https", TrustedProxies: a.config.TrustedProxies}
	a.Inbound.Register(mux)
	procedures := rpc.New(rpc.Config{
		Procedures: slices.Concat(
			rpc.AccountProcedures(a.Accounts, gate),
			rpc.PeopleProcedures(a.Accounts, gate),
			rpc.BillingProcedures(a.Billing),
			rpc.WebhookProcedures(a.Webhooks),
			rpc.SLAProcedures(a.Desk),
		),
		Authenticate: gate.Authenticate, Authorize: rpc.Authorize, Logger: a.log,
	})
	// Only what carries cookies needs it: providers send none.
	sameOrigin := http.NewCrossOriginProtection()
	if err := sameOrigin.AddTrustedOrigin(base.Scheme + "://" + base.Host); err != nil {
		return nil, fmt.Errorf("base-url: %w", err)
	}
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const why = "this request comes from another site"
		if strings.HasPrefix(r.URL.Path, rpc.Prefix) {
			procedures.Refuse(w, r, problem.New(problem.Forbidden, why))
		} else {
			plain(w, http.StatusForbidden, why+"\n")
		}
	}))
	mux.Handle(rpc.Prefix, sameOrigin.Handler(procedures))
	deskAPI, err := a.openDeskAPI()
	if err != nil {
		return nil, fmt.Errorf("REST API: %w", err)
	}
	live, sandbox, err := a.config.fleetBases()
	if err != nil {
		return nil, err
	}
	fleetAPI, err := a.openFleetAPI(a.Fleet, live)
	if err != nil {
		return nil, fmt.Errorf("REST API of the fleet: %w", err)
	}
	sandboxAPI, err := a.openFleetAPI(a.Sandbox, sandbox)
	if err != nil {
		return nil, fmt.Errorf("REST API of the sandbox: %w", err)
	}
	err = registerPages(mux, map[string]*rest.API{deskDocs: deskAPI, fleetDocs: fleetAPI, sandboxDocs: sandboxAPI})
	if err != nil {
		return nil, fmt.Errorf("pages of the REST APIs: %w", err)
	}
	mux.Handle(gbfs.Path, gbfs.New(a.Fleet.Service, a.BaseURL, gbfs.Path, a.log))
	mux.Handle(gbfs.SandboxPath, gbfs.New(a.Sandbox.Service, a.BaseURL, gbfs.SandboxPath, a.log))
	places := []web.Place{
		{Path: deskapi.Base, What: "REST API of the helpdesk, for API keys"},
		{Path: deskDocs, Link: true, What: "what the REST API of the helpdesk has, to read"},
		{Path: live.String(), What: "REST API of the fleet, for API keys"},
		{Path: fleetDocs, Link: true, What: "what the REST API of the fleet has, to read"},
		{Path: sandbox.String(), What: "the same for the fleet's sandbox"},
		{Path: sandboxDocs, Link: true, What: "what that has"},
		{Path: gbfs.Path + "manifest.json", Link: true, What: "the fleet's public feed (GBFS 3.0)"},
		{Path: gbfs.SandboxPath + "manifest.json", Link: true, What: "the sandbox's"},
		{Path: rpc.Prefix, What: "procedures for sign-in and webhooks (tRPC)"},
		{Path: "/healthz", Link: true, What: "is the process alive"},
		{Path: "/readyz", Link: true, What: "can it do its work"},
	}
	for _, ad := range a.adapters {
		info := ad.Info()
		places = append(places, web.Place{Path: info.Path, What: "where the provider of the channel " + info.Name + " posts"})
	}
	if a.mailbox != nil {
		h := a.mailbox.Handler()
		mux.Handle("GET "+mailboxPath, h)
		mux.Handle("GET "+mailboxPath+"/", h)
		mux.Handle("GET "+mailboxPath+".json", h)
		places = append(places, web.Place{Path: mailboxPath, Link: true, What: "mails, kept here because no mail server is configured"})
	}
	mux.Handle("/", sameOrigin.Handler(a.newPages(gate, places, live, sandbox)))
	// An API with a host of its own comes before one that answers at any.
	handler := deskAPI.Wrap(mux)
	for _, own := range []bool{false, true} {
		for _, f := range []struct {
			api *rest.API
			at  fleetBase
		}{{fleetAPI, live}, {sandboxAPI, sandbox}} {
			if (f.at.host != "") == own {
				handler = f.api.Wrap(handler)
			}
		}
	}
	return handler, nil
}

// healthz says that the process answers.
func (a *App) healthz(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") }

// readyz says whether the program can do its work: write to its databases.
func (a *App) readyz(w http.ResponseWriter, r *http.Request) {
	for _, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
		if err := d.Ping(r.Context()); err != nil {
			a.log.WarnContext(r.Context(), "not ready", "error", err)
			plain(w, http.StatusServiceUnavailable, "the database cannot be written\n")
			return
		}
	}
	plain(w, http.StatusOK, "ok\n")
}

func plain(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write([]byte(text))
}
