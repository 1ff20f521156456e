package fleetapi

import (
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

func (a *API) auditRoutes() []rest.Route {
	log := rest.AuditRoute(needs("settings", apikey.Read), "Changes of settings, prices, zones, the sandbox and API keys, and overrides of rules by operators. It holds no personal data of riders.", a.Logs...)
	log.WholeScope = true
	return []rest.Route{log}
}
