package fleetpages

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// What the audit log tells of the fleet (fleet-api.md 6.8), as the REST API does.
const (
	settingsUpdated      apikey.AuditAction = "settings.updated"
	subaccountUpdated    apikey.AuditAction = "subaccount.updated"
	pricingUpdated       apikey.AuditAction = "pricing.updated"
	customerBlocked      apikey.AuditAction = "customer.blocked"
	rideEndedByOperator  apikey.AuditAction = "ride.ended_by_operator"
	sandboxReset         apikey.AuditAction = "sandbox.reset"
	sandboxClockAdvanced apikey.AuditAction = "sandbox.clock_advanced"
)

// record writes to the audit log what somebody does, in the transaction that does
// it.
func (p *pages) record(ctx context.Context, tx *db.Tx, r *web.Request, action apikey.AuditAction, target apikey.Target, changes map[string]apikey.Change) error {
	environment := apikey.Live
	if !p.Fleet.Live() {
		environment = apikey.Test
	}
	return p.Keys.Record(ctx, tx, r.By(), apikey.Entry{
		OrganizationID: r.OrganizationID, Service: apikey.Fleet, Environment: environment, Action: action, Target: target, Changes: changes,
	})
}

// recordChange writes the members that differ between two versions of a record as
// the REST API answers them; nothing when none does.
func (p *pages) recordChange(ctx context.Context, tx *db.Tx, r *web.Request, action apikey.AuditAction, target apikey.Target, before, after any) error {
	changes, err := apikey.Changes(before, after, "updated_at", "version")
	if err != nil || len(changes) == 0 {
		return err
	}
	return p.record(ctx, tx, r, action, target, changes)
}
