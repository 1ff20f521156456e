package inbound

import (
	"context"
	"maps"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Actions in the audit log.
const (
	AuditViewed   audit.Action = "inbound_event.viewed" // headers and body were displayed or downloaded
	AuditReplayed audit.Action = "inbound_event.replayed"
	AuditRouted   audit.Action = "inbound_event.routed"
	AuditRefused  audit.Action = "inbound.refused" // no valid signature
)

// source returns ctx with the request's client as the audit source. The client is not
// authenticated yet.
func (s *Service) source(r *http.Request) context.Context {
	return audit.WithSource(r.Context(), audit.Source{
		Actor: audit.Actor{Type: audit.Anonymous}, Address: browser.ClientIP(r, s.trustedProxies),
		UserAgent: r.UserAgent(), RequestID: browser.RequestID(r), Surface: audit.Inbound,
	})
}

// RecordView records that a user views the raw request of an event. Call it before showing the
// request: if it fails, the view must not happen.
func (s *Service) RecordView(ctx context.Context, e *StoredEvent) error {
	return s.audit.Record(ctx, e.auditEntry(AuditViewed, nil))
}

func (s *Service) recordTx(ctx context.Context, tx *db.Tx, a audit.Action, e *StoredEvent, details map[string]any) error {
	return s.audit.RecordTx(ctx, tx, e.auditEntry(a, details))
}

func (e *StoredEvent) auditEntry(a audit.Action, details map[string]any) audit.Entry {
	all := map[string]any{"channel": e.Channel, "state": string(e.State)}
	maps.Copy(all, details)
	return audit.Entry{OrganizationID: e.OrganizationID, Action: a, Target: audit.Target{Type: "inbound_event", ID: e.ID}, Details: all}
}

// OwnerOf returns the organization and type of a record, or empty strings if there is none.
func (s *Service) OwnerOf(ctx context.Context, id string) (organizationID, kind string, err error) {
	return audit.OwnerOf(ctx, s.db, "SELECT organization_id, 'inbound_event' FROM inbound_events WHERE id = $1", id)
}
