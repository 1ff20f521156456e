package app

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/audit"

	"github.com/google/uuid"
)

// auditForeign is the action of a request for a record of another organization.
const auditForeign audit.Action = "tenant.refused"

// notFound records when an id that was not found is of another organization. The
// entry is in the deployment's chain: in that of whoever asked it would tell them that
// the record exists. Ids of fleets are looked up nowhere, because they are unique
// within an organization only.
func (a *App) notFound(ctx context.Context, organizationID, id string) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return
	}
	owner, kind := "", ""
	// All are asked, whichever has it, so that the time shows little.
	for _, of := range []func(context.Context, string) (string, string, error){
		a.Desk.OwnerOf, a.Webhooks.OwnerOf, a.Connections.OwnerOf, a.Keys.OwnerOf, a.Inbound.OwnerOf,
	} {
		o, k, err := of(ctx, id)
		if err != nil {
			return // the answer stands without it
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
