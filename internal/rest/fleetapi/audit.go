package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// What the audit log tells of the fleet (fleet-api.md 6.8). It is in the fleet's
// own database, written by the transaction that does it; what is done with API
// keys is where they are.
const (
	settingsUpdated      apikey.AuditAction = "settings.updated"
	subaccountUpdated    apikey.AuditAction = "subaccount.updated"
	pricingUpdated       apikey.AuditAction = "pricing.updated"
	customerBlocked      apikey.AuditAction = "customer.blocked"
	rideEndedByOperator  apikey.AuditAction = "ride.ended_by_operator"
	sandboxReset         apikey.AuditAction = "sandbox.reset"
	sandboxClockAdvanced apikey.AuditAction = "sandbox.clock_advanced"
)

// environment is that of the API's keys.
func (a *API) environment() apikey.Environment {
	if a.Fleet.Live() {
		return apikey.Live
	}
	return apikey.Test
}

// record writes to the audit log what the request does.
func (a *API) record(ctx context.Context, tx *db.Tx, r *rest.Request, action apikey.AuditAction, target apikey.Target, changes map[string]apikey.Change) error {
	return a.Keys.Record(ctx, tx, r.By(), apikey.Entry{
		OrganizationID: r.Key.OrganizationID, Service: apikey.Fleet, Environment: a.environment(), Action: action, Target: target, Changes: changes,
	})
}

// recordChange writes the members that differ between two versions of a record,
// but for those that every version changes; nothing when none does.
func (a *API) recordChange(ctx context.Context, tx *db.Tx, r *rest.Request, action apikey.AuditAction, target apikey.Target, before, after any) error {
	changes, err := apikey.Changes(before, after, "updated_at", "version")
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return nil
	}
	return a.record(ctx, tx, r, action, target, changes)
}

func (a *API) auditRoutes() []rest.Route {
	log := rest.AuditRoute(needs("settings", apikey.Read), "What was done to settings, prices, the sandbox and API keys, or by an operator against a rule. Nothing personal of riders is in it.", a.DB)
	log.WholeScope = true
	return []rest.Route{log}
}
