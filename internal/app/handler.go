package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/gbfs"
	"github.com/kickstand-dev/kickstand/internal/mcp"
	"github.com/kickstand-dev/kickstand/internal/mds"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
	"github.com/kickstand-dev/kickstand/internal/rest/osmand"
	"github.com/kickstand-dev/kickstand/internal/rest/visitorapi"
	"github.com/kickstand-dev/kickstand/internal/rpc"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// openHandler constructs the HTTP handler of the program. It takes as much time and
// memory as everything else, which commands save.
func (a *App) openHandler() error {
	h, err := a.newHandler()
	if err != nil {
		return err
	}
	a.handler = &telemetry.Edge{
		Metrics: a.metrics, Tracer: a.tracer, Access: a.accessLog(), TrustedProxies: a.config.TrustedProxies, Next: h,
	}
	return nil
}

func (a *App) newHandler() (http.Handler, error) {
	mux := http.NewServeMux()
	a.ready = a.openReadiness()
	mux.Handle("GET /healthz", telemetry.Routed("health", http.HandlerFunc(a.healthz)))
	mux.Handle("GET /readyz", telemetry.Routed("health", a.ready))
	if !a.config.Web {
		return a.config.withHeaders(mux), nil
	}
	gate := &browser.SessionAuth{Accounts: a.Accounts, Secure: a.base.Scheme == "https", TrustedProxies: a.config.TrustedProxies}
	a.Inbound.Register(mux)
	procedures := a.newProcedures(gate)
	a.procedures = procedures
	sameOrigin, err := a.newCrossOriginProtection(procedures)
	if err != nil {
		return nil, err
	}
	mux.Handle(rpc.Prefix, telemetry.Routed("rpc", gate.Source(audit.RPC, sameOrigin.Handler(procedures))))
	live, sandbox, err := a.config.fleetBases()
	if err != nil {
		return nil, err
	}
	deskAPI, err := a.openDeskAPI(live, sandbox)
	if err != nil {
		return nil, fmt.Errorf("REST API: %w", err)
	}
	fleetAPI, err := a.openFleetAPI(a.Fleet, live, sandbox)
	if err != nil {
		return nil, fmt.Errorf("REST API of the fleet: %w", err)
	}
	sandboxAPI, err := a.openFleetAPI(a.Sandbox, live, sandbox)
	if err != nil {
		return nil, fmt.Errorf("REST API of the sandbox: %w", err)
	}
	err = a.registerReferences(mux, deskAPI, fleetAPI, sandboxAPI, live, sandbox)
	if err != nil {
		return nil, fmt.Errorf("pages of the REST APIs: %w", err)
	}
	feed := telemetry.Routed("gbfs", gbfs.New(a.Fleet.Service, a.BaseURL, gbfs.Path, a.log))
	mux.Handle(gbfs.Path, feed)
	mux.Handle(gbfs.Path23, feed)
	sandboxFeed := telemetry.Routed("gbfs", gbfs.New(a.Sandbox.Service, a.BaseURL, gbfs.SandboxPath, a.log))
	mux.Handle(gbfs.SandboxPath, sandboxFeed)
	mux.Handle(gbfs.SandboxPath23, sandboxFeed)
	mux.Handle(mds.Path, telemetry.Routed("mds", mds.New(a.Fleet.Service, a.BaseURL, mds.Path, a.log)))
	mux.Handle(mds.SandboxPath, telemetry.Routed("mds", mds.New(a.Sandbox.Service, a.BaseURL, mds.SandboxPath, a.log)))
	for path, f := range map[string]Fleet{osmand.Path: a.Fleet, osmand.SandboxPath: a.Sandbox} {
		mux.Handle(path, osmand.New(osmand.Config{Fleet: f.Service, DB: f.DB, Limiter: a.rateLimiter("osmand"), TrustedProxies: a.config.TrustedProxies, Logger: a.log}))
	}
	tools := a.openTools(deskAPI, fleetAPI, sandboxAPI)
	mux.Handle(mcp.Path, telemetry.Routed("mcp", sameOrigin.Handler(tools)))
	mux.Handle(visitorapi.Base+"/", visitorapi.New(visitorapi.Config{
		DB: a.DB, Connections: a.Connections, Desk: a.Desk, Inbound: a.Inbound, Live: a.live, BaseURL: a.BaseURL,
		Limiter: a.rateLimiter("visitor"), TrustedProxies: a.config.TrustedProxies, Logger: a.log,
	}))
	endpoints := a.endpoints(live, sandbox)
	if a.mailbox != nil {
		h := a.mailbox.Handler()
		mux.Handle("GET "+mailboxPath, h)
		mux.Handle("GET "+mailboxPath+"/", h)
		mux.Handle("GET "+mailboxPath+".json", h)
		endpoints = append(endpoints, web.Endpoint{Path: mailboxPath, Link: true, Description: "stored mails, since no mail server is configured"})
	}
	pages := telemetry.Routed("web", gate.Source(audit.Web, sameOrigin.Handler(a.newPages(gate, endpoints, live, sandbox))))
	mux.Handle("/", pages)
	mux.Handle(desk.AttachmentPath+"{id}", attachments(pages, deskAPI))
	// An API with a host of its own precedes APIs for any host.
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
	known, err := a.config.hosts()
	if err != nil {
		return nil, err
	}
	f := &proxyMonitor{trusted: a.config.TrustedProxies, path: a.config.forwardedPath(), log: a.log}
	packing, err := compressed(known.guard(handler, gate, a.Audit))
	if err != nil {
		return nil, err
	}
	return f.watch(limitUnreadBody(a.config.withHeaders(a.refuseWrongClock(packing)))), nil
}

// newProcedures returns the handler of the tRPC procedures.
func (a *App) newProcedures(gate *browser.SessionAuth) *rpc.Router {
	return rpc.New(rpc.Config{
		Procedures: slices.Concat(
			rpc.AccountProcedures(a.Accounts, gate),
			rpc.FactorProcedures(a.Factors, gate),
			rpc.MemberProcedures(a.Accounts, gate),
			rpc.BillingProcedures(a.Billing),
			rpc.WebhookProcedures(a.Webhooks),
			rpc.SLAProcedures(a.Desk),
		),
		Authenticate: gate.AuthenticateRestricted, Authorize: rpc.Authorize, RequireProof: rpc.RequireProof(a.Factors), Logger: a.log,
		NotFound: func(ctx context.Context, id string) {
			if by, ok := account.FromContext(ctx); ok {
				a.notFound(ctx, by.OrganizationID, id)
			}
		},
	})
}

// newCrossOriginProtection returns the check that refuses requests of other sites.
// Only requests with cookies need it: providers send none.
func (a *App) newCrossOriginProtection(procedures *rpc.Router) (*http.CrossOriginProtection, error) {
	sameOrigin := http.NewCrossOriginProtection()
	if err := sameOrigin.AddTrustedOrigin(a.base.Scheme + "://" + a.base.Host); err != nil {
		return nil, fmt.Errorf("base-url: %w", err)
	}
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const why = "this request comes from another site"
		if strings.HasPrefix(r.URL.Path, rpc.Prefix) {
			procedures.Refuse(w, r, problem.New(problem.Forbidden, why))
		} else {
			audit.LogSecurityEvent(r.Context(), a.log, "request.refused", slog.String("reason", why))
			plain(w, http.StatusForbidden, why+"\n")
		}
	}))
	return sameOrigin, nil
}

// endpoints returns the endpoints that the dashboard lists.
func (a *App) endpoints(live, sandbox fleetBase) []web.Endpoint {
	endpoints := []web.Endpoint{
		{Path: deskapi.Base, Description: "REST API of the helpdesk, for API keys"},
		{Path: deskDocs, Link: true, Description: "reference of the helpdesk's REST API"},
		{Path: live.String(), Description: "REST API of the fleet, for API keys"},
		{Path: fleetDocs, Link: true, Description: "reference of the fleet's REST API"},
		{Path: sandbox.String(), Description: "REST API of the fleet's sandbox, for API keys"},
		{Path: sandboxDocs, Link: true, Description: "reference of the sandbox's REST API"},
		{Path: visitorapi.Base, Description: "API of visitors, for tokens that an app signs"},
		{Path: mcp.Path, Description: "tools for assistants (MCP), for API keys"},
		{Path: gbfs.Path + "manifest.json", Link: true, Description: "the fleet's public feed (GBFS 3.0, which names 2.3)"},
		{Path: gbfs.SandboxPath + "manifest.json", Link: true, Description: "the sandbox's"},
		{Path: osmand.Path, Description: "reports of trackers (OsmAnd protocol)"},
		{Path: osmand.SandboxPath, Description: "the sandbox's"},
		{Path: mds.Path, Description: "the fleet's data for agencies (MDS 2.0), for tokens that agencies sign"},
		{Path: mds.SandboxPath, Description: "the sandbox's"},
		{Path: rpc.Prefix, Description: "procedures for sign-in and webhooks (tRPC)"},
		{Path: "/healthz", Link: true, Description: "liveness of the process"},
		{Path: "/readyz", Link: true, Description: "readiness of the server"},
	}
	for _, ad := range a.adapters {
		info := ad.Info()
		if info.Collected {
			continue
		}
		endpoints = append(endpoints, web.Endpoint{Path: info.Path, Description: "where the provider of the channel " + info.Name + " posts"})
	}
	return endpoints
}

// attachments serves file URLs of payloads: with an API key like the REST API, else as a
// page.
func attachments(pages, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			pages.ServeHTTP(w, r)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path = deskapi.Base + r.URL.Path
		api.ServeHTTP(w, r)
	})
}

// healthz reports that the process responds.
func (a *App) healthz(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") }

func plain(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write([]byte(text))
}
