package app

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/audit"

	"github.com/google/uuid"
)

// auditForeign is the action of a request for a record of another organization.
const auditForeign audit.Action = "tenant.refused"

// notFound records a request for an id of another organization. The entry is in the
// deployment's chain: in the caller's it would reveal that the record exists. Ids of
// fleets are not looked up, because they are unique within an organization only.
func (a *App) notFound(ctx context.Context, organizationID, id string) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return
	}
	owner, kind := "", ""
	// All are queried in every case, so that the time reveals little.
	for _, of := range []func(context.Context, string) (string, string, error){
		a.Desk.OwnerOf, a.Webhooks.OwnerOf, a.Connections.OwnerOf, a.Keys.OwnerOf, a.Inbound.OwnerOf,
	} {
		o, k, err := of(ctx, id)
		if err != nil {
			return // the response does not depend on the entry
		}
		if k != "" {
			owner, kind = o, k
		}
	}
	if kind == "" || owner == organizationID {
		return
	}
	a.Audit.Refuse(ctx, audit.Entry{
		Action: auditForeign, Target: audit.Target{Type: kind, ID: id}, Details: map[string]any{"by_organization": organizationID},
	})
}
