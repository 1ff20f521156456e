package desk

import (
	"context"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Actions in the audit log. All other changes of a ticket are in the ticket's
// timeline.
const (
	AuditSLASet           audit.Action = "sla_policy.updated"
	AuditSLADeleted       audit.Action = "sla_policy.deleted"
	AuditMacroCreated     audit.Action = "macro.created" // shared macros only
	AuditMacroUpdated     audit.Action = "macro.updated"
	AuditMacroDeleted     audit.Action = "macro.deleted"
	AuditTicketMerged     audit.Action = "ticket.merged"
	AuditTicketUnmerged   audit.Action = "ticket.unmerged"
	AuditTicketSplit      audit.Action = "ticket.split"
	AuditTicketDeleted    audit.Action = "ticket.deleted"
	AuditCustomerDeleted  audit.Action = "customer.deleted"
	AuditCustomerMerged   audit.Action = "customer.merged"
	AuditCustomerRedacted audit.Action = "customer.redacted"
	AuditCustomerUnmerged audit.Action = "customer.unmerged"
	AuditViewCreated      audit.Action = "view.created"
	AuditViewUpdated      audit.Action = "view.updated"
	AuditViewDeleted      audit.Action = "view.deleted"
)

// ticketTarget names a ticket by number. The subject is the customer's text, which
// deletion and redaction must remove.
func ticketTarget(t *Ticket) audit.Target {
	return audit.Target{Type: "ticket", ID: t.ID, Name: "#" + strconv.FormatInt(t.Number, 10)}
}

func (s *Service) recordTicketTx(ctx context.Context, tx *db.Tx, a audit.Action, t *Ticket, details map[string]any) error {
	return s.audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: t.OrganizationID, Action: a, Target: ticketTarget(t), Details: details})
}

// policySettings are the fields of an SLA policy that the audit log compares.
type policySettings struct {
	FirstResponse int64                `json:"first_response_minutes"`
	Resolution    int64                `json:"resolution_minutes"`
	Hours         *businesshours.Hours `json:"business_hours"`
}

// recordPolicyTx records the change of an SLA policy; the zero policy stands for
// none. It records nothing if the settings are equal.
func (s *Service) recordPolicyTx(ctx context.Context, tx *db.Tx, a audit.Action, organizationID string, priority Priority, before, after SLAPolicy) error {
	e := audit.Entry{OrganizationID: organizationID, Action: a, Target: audit.Target{Type: "sla_policy", ID: string(priority), Name: string(priority)}}
	of := func(p SLAPolicy) policySettings {
		return policySettings{p.FirstResponseMinutes, p.ResolutionMinutes, p.Hours}
	}
	return s.audit.RecordChangeTx(ctx, tx, e, of(before), of(after))
}

// OwnerOf returns the organization and the type, ticket, customer or macro, of an id;
// empty strings if it is unknown.
func (s *Service) OwnerOf(ctx context.Context, id string) (organizationID, kind string, err error) {
	return audit.OwnerOf(ctx, s.db, `SELECT organization_id, 'ticket' FROM tickets WHERE id = $1
		UNION ALL SELECT organization_id, 'customer' FROM customers WHERE id = $1
		UNION ALL SELECT organization_id, 'macro' FROM macros WHERE id = $1`, id)
}
