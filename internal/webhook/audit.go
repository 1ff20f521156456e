package webhook

import (
	"context"
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// Audit actions of webhooks.
const (
	AuditCreated   audit.Action = "webhook.created"
	AuditUpdated   audit.Action = "webhook.updated"
	AuditDeleted   audit.Action = "webhook.deleted"
	AuditFailed    audit.Action = "webhook.failed"
	AuditReplayed  audit.Action = "webhook.replayed"
	AuditTested    audit.Action = "webhook.tested"
	AuditDiscarded audit.Action = "webhook.discarded" // waiting deliveries, by the operator
)

// host returns the host of a webhook's URL, for the audit log. The rest of the URL may hold a
// secret of the receiver.
func host(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

func (s *Service) recordTx(ctx context.Context, tx *db.Tx, a audit.Action, organizationID, id, rawURL string, changes map[string]audit.Change, details map[string]any) error {
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: organizationID, Action: a, Target: audit.Target{Type: "webhook", ID: id, Name: host(rawURL)}, Changes: changes, Details: details,
	})
}

// settings are the settings of a webhook as shown in the audit log.
type settings struct {
	URL           string       `json:"-"`
	Events        string       `json:"events"`
	State         State        `json:"state"`
	PayloadForm   payload.Form `json:"payload_form"`
	RetrySchedule Schedule     `json:"retry_schedule"`
	Ordered       bool         `json:"ordered"`
}

// with returns the settings after a change.
func (o settings) with(c Change) settings {
	if c.URL != nil {
		o.URL = *c.URL
	}
	if c.Events != nil {
		source, _ := splitEvents(o.Events)
		o.Events = joinEvents(source, *c.Events)
	}
	if c.PayloadForm != nil {
		o.PayloadForm = *c.PayloadForm
	}
	if c.RetrySchedule != nil {
		o.RetrySchedule = *c.RetrySchedule
	}
	if c.Ordered != nil {
		o.Ordered = *c.Ordered
	}
	switch {
	case c.Enabled != nil && *c.Enabled:
		o.State = Enabled
	case c.Enabled != nil && o.State == Enabled:
		o.State = Disabled
	}
	return o
}

// recordUpdateTx records the changed settings of a webhook, if any.
func (s *Service) recordUpdateTx(ctx context.Context, tx *db.Tx, organizationID, id string, before settings, c Change) error {
	after := before.with(c)
	changes, err := audit.Diff(before, after)
	if err != nil {
		return err
	}
	if before.URL != after.URL {
		changes["url"] = audit.Change{From: host(before.URL), To: host(after.URL)}
	}
	var details map[string]any
	if c.Secret != nil {
		details = map[string]any{"secret_replaced": true}
	}
	if len(changes) == 0 && details == nil {
		return nil
	}
	return s.recordTx(ctx, tx, AuditUpdated, organizationID, id, after.URL, changes, details)
}

// OwnerOf returns the organization and type of a record; both are empty for an unknown id.
func (s *Service) OwnerOf(ctx context.Context, id string) (organizationID, kind string, err error) {
	return audit.OwnerOf(ctx, s.db, "SELECT organization_id, 'webhook' FROM webhooks WHERE id = $1", id)
}
