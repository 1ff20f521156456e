package fleet

import (
	"cmp"
	"context"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Actions of the audit log (fleet-api.md 6.8). Regular changes of vehicles and
// rides are recorded as state changes instead, unless made from a ticket.
const (
	SettingsUpdated      audit.Action = "settings.updated"
	SubaccountCreated    audit.Action = "subaccount.created"
	SubaccountUpdated    audit.Action = "subaccount.updated"
	PricingCreated       audit.Action = "pricing.created"
	PricingUpdated       audit.Action = "pricing.updated"
	ZoneCreated          audit.Action = "zone.created"
	ZoneUpdated          audit.Action = "zone.updated"
	ZoneDeleted          audit.Action = "zone.deleted"
	VehicleDeleted       audit.Action = "vehicle.deleted"
	CustomerWasBlocked   audit.Action = "customer.blocked"
	CustomerUnblocked    audit.Action = "customer.unblocked"
	CustomerAnonymized   audit.Action = "customer.anonymized"
	RideEndedByOperator  audit.Action = "ride.ended_by_operator"
	RideUpdated          audit.Action = "ride.updated"    // from a ticket
	VehicleUpdated       audit.Action = "vehicle.updated" // from a ticket
	TrackerCreated       audit.Action = "tracker.created"
	TrackerDeleted       audit.Action = "tracker.deleted"
	TaskCreated          audit.Action = "task.created"
	TaskUpdated          audit.Action = "task.updated"
	FleetImported        audit.Action = "fleet.imported"
	FleetExported        audit.Action = "fleet.exported"
	FleetSeeded          audit.Action = "fleet.seeded"
	AlertRuleCreated     audit.Action = "alert_rule.created"
	AlertRuleUpdated     audit.Action = "alert_rule.updated"
	AlertRuleDeleted     audit.Action = "alert_rule.deleted"
	AlertAcknowledged    audit.Action = "alert.acknowledged"
	SandboxReset         audit.Action = "sandbox.reset"
	SandboxClockAdvanced audit.Action = "sandbox.clock_advanced"
)

func (s *Service) record(ctx context.Context, tx *db.Tx, organizationID string, a audit.Action, t audit.Target, changes map[string]audit.Change) error {
	return s.audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: organizationID, Action: a, Target: t, Changes: changes})
}

// recordCustomer records a change of status by id only, since audit entries outlive
// personal data.
func (s *Service) recordCustomer(ctx context.Context, tx *db.Tx, organizationID, id string, from, to CustomerStatus) error {
	var action audit.Action
	switch {
	case from == to:
		return nil
	case to == CustomerBlocked:
		action = CustomerWasBlocked
	case to == CustomerAnonymised:
		action = CustomerAnonymized
	default:
		action = CustomerUnblocked
	}
	return s.record(ctx, tx, organizationID, action, audit.Target{Type: "customer", ID: id}, map[string]audit.Change{"status": {From: from, To: to}})
}

// recordRide records that an operator ended the ride, and each change from a ticket. The
// reason of an adjustment is not recorded, since audit entries outlive personal data.
func (s *Service) recordRide(ctx context.Context, tx *db.Tx, organizationID string, before, after *Ride, by Actor) error {
	action := RideUpdated
	if before.Status.Open() && !after.Status.Open() && cmp.Or(after.EndReason, after.CancelReason) == "operator" {
		action = RideEndedByOperator
	} else if by.Ticket == 0 {
		return nil
	}
	changes := make(map[string]audit.Change)
	addChange(changes, "status", before.Status, after.Status)
	if by.Ticket != 0 {
		addChange(changes, "adjustment_amount", before.AdjustmentAmount, after.AdjustmentAmount)
		addChange(changes, "payment_status", before.PaymentStatus, after.PaymentStatus)
	}
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: organizationID, Action: action, Target: audit.Target{Type: "ride", ID: after.ID}, Changes: changes, Details: by.details(),
	})
}

// recordVehicle records a change of state from a ticket.
func (s *Service) recordVehicle(ctx context.Context, tx *db.Tx, organizationID string, before, after *Vehicle, by Actor) error {
	if by.Ticket == 0 {
		return nil
	}
	changes := make(map[string]audit.Change)
	addChange(changes, "state", before.State, after.State)
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: organizationID, Action: VehicleUpdated, Target: audit.Target{Type: "vehicle", ID: after.ID, Name: after.Code}, Changes: changes, Details: by.details(),
	})
}

// recordTask records a change of a task without its texts, since audit entries outlive personal
// data.
func (s *Service) recordTask(ctx context.Context, tx *db.Tx, organizationID string, action audit.Action, before, after *Task, by Actor) error {
	changes := make(map[string]audit.Change)
	addChange(changes, "state", before.State, after.State)
	addChange(changes, "kind", before.Kind, after.Kind)
	addChange(changes, "priority", before.Priority, after.Priority)
	addChange(changes, "assignee_id", before.AssigneeID, after.AssigneeID)
	addChange(changes, "takes_vehicle_out", before.TakesVehicleOut, after.TakesVehicleOut)
	addChange(changes, "photos", len(before.Photos), len(after.Photos))
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: organizationID, Action: action, Target: audit.Target{Type: "task", ID: after.ID}, Changes: changes, Details: by.details(),
	})
}

// details returns the details of the audit entry of a change by a.
func (a Actor) details() map[string]any {
	if a.Ticket == 0 {
		return nil
	}
	return map[string]any{"ticket": a.Ticket}
}

// addChange adds the change of a field, if it differs.
func addChange[T comparable](changes map[string]audit.Change, field string, from, to T) {
	if from != to {
		changes[field] = audit.Change{From: from, To: to}
	}
}

// recordChange records the difference of two versions of a record.
func (s *Service) recordChange(ctx context.Context, tx *db.Tx, organizationID string, a audit.Action, t audit.Target, before, after any) error {
	return s.audit.RecordChangeTx(ctx, tx, audit.Entry{OrganizationID: organizationID, Action: a, Target: t}, before, after)
}
