package fleetapi

import (
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

func (a *API) auditRoutes() []rest.Route {
	log := rest.AuditRoute(needs("settings", apikey.Read), "What was done to settings, prices, zones, the sandbox and API keys, or by an operator against a rule. Nothing personal of riders is in it.", a.Logs...)
	log.WholeScope = true
	return []rest.Route{log}
}
