package fleetpages

import (
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// entry is a line of the audit log about what somebody does.
func (p *pages) entry(r *web.Request, action apikey.AuditAction, target apikey.Target, changes map[string]apikey.Change) apikey.Entry {
	e := apikey.Entry{OrganizationID: r.OrganizationID, Service: apikey.Fleet, Environment: apikey.Test, Action: action, Target: target, Changes: changes}
	if p.Fleet.Live() {
		e.Environment = apikey.Live
	}
	return e
}
