package shop

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Actions in the audit log. Targets are requests, never people.
const (
	AuditPrivacyReceived  audit.Action = "privacy_request.received"
	AuditPrivacyCompleted audit.Action = "privacy_request.completed"
	AuditArchiveFetched   audit.Action = "privacy_request.archive_fetched"
)

func (s *Service) recordTx(ctx context.Context, tx *db.Tx, a audit.Action, organizationID, requestID string, details map[string]any) error {
	return s.audit.RecordTx(ctx, tx, privacyEntry(a, organizationID, requestID, details))
}

func privacyEntry(a audit.Action, organizationID, requestID string, details map[string]any) audit.Entry {
	return audit.Entry{OrganizationID: organizationID, Action: a, Target: audit.Target{Type: "privacy_request", ID: requestID}, Details: details}
}
