package fleetapi

import (
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// entry is a line of the audit log about what the request does.
func entry(r *rest.Request, action apikey.AuditAction, target apikey.Target, changes map[string]apikey.Change) apikey.Entry {
	return apikey.Entry{OrganizationID: r.Key.OrganizationID, Service: r.Key.Service, Environment: r.Key.Environment, Action: action, Target: target, Changes: changes}
}

func (a *API) auditRoutes() []rest.Route {
	log := rest.AuditRoute(needs("settings", apikey.Read), "What was done to settings, prices, the sandbox and API keys, or by an operator against a rule. Nothing personal of riders is in it.", a.DB)
	log.WholeScope = true
	return []rest.Route{log}
}
