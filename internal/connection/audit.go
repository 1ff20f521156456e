package connection

import (
	"context"
	"maps"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Actions in the audit log.
const (
	AuditConnected     audit.Action = "channel.connected"
	AuditUpdated       audit.Action = "channel.updated"
	AuditSecretRotated audit.Action = "channel.secret_rotated"
	AuditDisconnected  audit.Action = "channel.disconnected"
	AuditProofStarted  audit.Action = "channel.proof_started"
	AuditProven        audit.Action = "channel.proven"
	AuditProofLost     audit.Action = "channel.proof_lost"
)

// recordTx records an action on a connection. It omits the values of settings and credentials,
// which may be secret.
func (s *Service) recordTx(ctx context.Context, tx *db.Tx, a audit.Action, c *Connection, changes map[string]audit.Change, details map[string]any) error {
	if details == nil {
		details = map[string]any{}
	}
	details["channel"] = c.Channel
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: c.OrganizationID, Action: a, Target: audit.Target{Type: "channel", ID: c.ID, Name: c.Address}, Changes: changes, Details: details,
	})
}

// recordUpdateTx records the changes of an update, if any.
func (s *Service) recordUpdateTx(ctx context.Context, tx *db.Tx, before, after *Connection, change Change) error {
	changes, details := map[string]audit.Change{}, map[string]any{}
	if before.Name != after.Name {
		changes["name"] = audit.Change{From: before.Name, To: after.Name}
	}
	if before.Enabled != after.Enabled {
		changes["enabled"] = audit.Change{From: before.Enabled, To: after.Enabled}
	}
	if change.Secrets != nil {
		details["secrets_replaced"] = true
	}
	if names := changedNames(before.credentials, after.credentials); len(names) > 0 {
		details["credentials_changed"] = names
	}
	if names := changedNames(before.Settings, after.Settings); len(names) > 0 {
		details["settings_changed"] = names
	}
	if len(changes) == 0 && len(details) == 0 {
		return nil
	}
	return s.recordTx(ctx, tx, AuditUpdated, after, changes, details)
}

// changedNames returns the names with different values in a and b, sorted.
func changedNames(a, b map[string]string) []string {
	names := map[string]bool{}
	for _, m := range []map[string]string{a, b} {
		for name := range m {
			before, had := a[name]
			after, has := b[name]
			if had != has || before != after {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// OwnerOf returns the organization and type of a record, or empty strings if there is none.
func (s *Service) OwnerOf(ctx context.Context, id string) (organizationID, kind string, err error) {
	return audit.OwnerOf(ctx, s.db, "SELECT organization_id, 'channel' FROM connections WHERE id = $1", id)
}
