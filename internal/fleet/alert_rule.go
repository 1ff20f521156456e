package fleet

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// AlertKind is the condition of an alert rule.
type AlertKind string

// The conditions.
const (
	BatteryLow  AlertKind = "battery_low"   // the level of battery or tank is below a percentage
	Silence     AlertKind = "silence"       // neither a report nor a sighting for some minutes
	LeftZone    AlertKind = "left_zone"     // outside the chosen zones, else outside all service areas
	RideTooLong AlertKind = "ride_too_long" // the open ride started some minutes ago
	IdleTooLong AlertKind = "idle_too_long" // available, and neither rented nor moved for some minutes
)

// AlertKinds lists all conditions.
var AlertKinds = [...]AlertKind{BatteryLow, Silence, LeftZone, RideTooLong, IdleTooLong}

// AlertRecipients are the members who get a notice of an alert.
type AlertRecipients string

// The recipients.
const (
	NotifyNobody AlertRecipients = "nobody"
	NotifyAdmins AlertRecipients = "admins"
	NotifyUsers  AlertRecipients = "users" // the chosen ones
)

// AlertRule raises alerts for vehicles of its subaccount.
type AlertRule struct {
	RecordHeader
	Name             string          `json:"name"`
	Kind             AlertKind       `json:"kind"`
	ThresholdPercent *int64          `json:"threshold_percent"` // of BatteryLow
	ThresholdMinutes *int64          `json:"threshold_minutes"` // of Silence, RideTooLong and IdleTooLong
	VehicleTypeIDs   []string        `json:"vehicle_type_ids"`  // none: all
	ZoneIDs          []string        `json:"zone_ids"`          // of LeftZone the zones to stay in; else those with the vehicles; none: any place
	Enabled          bool            `json:"enabled"`
	Notify           AlertRecipients `json:"notify"`
	NotifyUserIDs    []string        `json:"notify_user_ids"` // of the helpdesk
	CreateTask       bool            `json:"create_task"`
	CreateTicket     bool            `json:"create_ticket"`
	Timestamps

	revision int64
}

// NewAlertRule has the fields of a rule to create.
type NewAlertRule struct {
	SubaccountID     string            `json:"subaccount_id"`
	ExternalID       NullString        `json:"external_id"`
	Name             string            `json:"name"`
	Kind             AlertKind         `json:"kind"`
	ThresholdPercent *int64            `json:"threshold_percent"`
	ThresholdMinutes *int64            `json:"threshold_minutes"`
	VehicleTypeIDs   []string          `json:"vehicle_type_ids"`
	ZoneIDs          []string          `json:"zone_ids"`
	Enabled          *bool             `json:"enabled"` // nil: true
	Notify           AlertRecipients   `json:"notify"`  // empty: nobody
	NotifyUserIDs    []string          `json:"notify_user_ids"`
	CreateTask       bool              `json:"create_task"`
	CreateTicket     bool              `json:"create_ticket"`
	Metadata         map[string]string `json:"metadata"`
}

// AlertRuleChange has the fields that a PUT sets. Absent fields remain.
type AlertRuleChange struct {
	ExternalID       optional.Value[NullString]        `json:"external_id"`
	Name             optional.Value[string]            `json:"name"`
	ThresholdPercent optional.Value[int64]             `json:"threshold_percent"`
	ThresholdMinutes optional.Value[int64]             `json:"threshold_minutes"`
	VehicleTypeIDs   optional.Value[[]string]          `json:"vehicle_type_ids"`
	ZoneIDs          optional.Value[[]string]          `json:"zone_ids"`
	Enabled          optional.Value[bool]              `json:"enabled"`
	Notify           optional.Value[AlertRecipients]   `json:"notify"`
	NotifyUserIDs    optional.Value[[]string]          `json:"notify_user_ids"`
	CreateTask       optional.Value[bool]              `json:"create_task"`
	CreateTicket     optional.Value[bool]              `json:"create_ticket"`
	Metadata         optional.Value[map[string]string] `json:"metadata"` // the merged result
}

const (
	alertRulePrefix = "rule"
	maxAlertRules   = 50 // of a subaccount
	maxAlertUsers   = 50
	maxAlertMinutes = 366 * 24 * 60
	maxAlertPercent = 95
)

// Record returns the rule's stored form.
func (r *AlertRule) Record() (Record, error) {
	text, err := encode(r)
	return Record{ID: r.ID, SubaccountID: r.SubaccountID, Revision: r.revision, JSON: text, Distance: -1}, err
}

// AlertRules returns an organization's rules, the oldest first.
func (s *Service) AlertRules(ctx context.Context, q db.Querier, organizationID string) ([]AlertRule, error) {
	list, err := db.All(ctx, q, scanAlertRule, "SELECT revision, doc FROM alert_rules WHERE organization_id = $1 ORDER BY id", organizationID)
	if err != nil {
		return nil, fmt.Errorf("list alert rules: %w", err)
	}
	return list, nil
}

// AlertRule returns a rule. Error: NotFound.
func (s *Service) AlertRule(ctx context.Context, q db.Querier, organizationID, id string) (AlertRule, error) {
	return readAlertRule(ctx, q, organizationID, id, "")
}

// LockAlertRuleTx is AlertRule with a lock of the organization's rules, for an update in the same
// transaction. The row itself is locked after the vehicles, as by a report that raises an alert.
func (s *Service) LockAlertRuleTx(ctx context.Context, tx *db.Tx, organizationID, id string) (AlertRule, error) {
	if _, _, err := s.LockSettingsTx(ctx, tx, organizationID); err != nil {
		return AlertRule{}, err
	}
	return s.AlertRule(ctx, tx, organizationID, id)
}

// withdrawAlertRule has the vehicles of a rule examined, and waits for transactions that raise an
// alert by it.
func (s *Service) withdrawAlertRule(ctx context.Context, tx *db.Tx, organizationID string, r *AlertRule) error {
	if err := examineVehicles(ctx, tx, organizationID, r.SubaccountID); err != nil {
		return err
	}
	_, err := readAlertRule(ctx, tx, organizationID, r.ID, " FOR UPDATE")
	return err
}

func readAlertRule(ctx context.Context, q db.Querier, organizationID, id, lock string) (AlertRule, error) {
	r, err := db.One(ctx, q, scanAlertRule, "SELECT revision, doc FROM alert_rules WHERE organization_id = $1 AND id = $2"+lock, organizationID, id)
	return r, wrapReadError(err, "alert rule")
}

func scanAlertRule(row db.Row) (r AlertRule, err error) {
	return r, row.Scan(&r.revision, db.IntoJSON(&r))
}

// CreateAlertRuleTx creates a rule in the caller's transaction. Vehicles that meet its condition
// already have their alerts within a second or two. Errors: Invalid; Conflict already_exists with the
// member external_id.
func (s *Service) CreateAlertRuleTx(ctx context.Context, tx *db.Tx, organizationID string, n NewAlertRule) (AlertRule, error) {
	if _, _, err := s.LockSettingsTx(ctx, tx, organizationID); err != nil {
		return AlertRule{}, err
	}
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return AlertRule{}, err
	}
	var v problem.Validation
	sub, err := s.subaccountForNew(ctx, tx, &v, organizationID, n.SubaccountID)
	if err != nil {
		return AlertRule{}, err
	}
	r := AlertRule{
		Name: n.Name, Kind: n.Kind, ThresholdPercent: n.ThresholdPercent, ThresholdMinutes: n.ThresholdMinutes,
		VehicleTypeIDs: n.VehicleTypeIDs, ZoneIDs: n.ZoneIDs, Enabled: n.Enabled == nil || *n.Enabled,
		Notify: n.Notify, NotifyUserIDs: n.NotifyUserIDs, CreateTask: n.CreateTask, CreateTicket: n.CreateTicket, revision: 1,
	}
	if r.Notify == "" {
		r.Notify = NotifyNobody
	}
	r.RecordHeader, r.Timestamps = s.newRecord(alertRulePrefix, "alert_rule", n.SubaccountID, a.now)
	r.ExternalID, r.Metadata = n.ExternalID, metadataOf(n.Metadata)
	if err := s.checkAlertRule(ctx, tx, &v, organizationID, &AlertRule{}, &r, sub); err != nil {
		return AlertRule{}, err
	}
	doc, err := encode(&r)
	if err != nil {
		return AlertRule{}, err
	}
	made, err := tx.Exec(ctx, `INSERT INTO alert_rules (organization_id, id, subaccount_id, revision, external_id, enabled, doc)
		VALUES ($1, $2, $3, 1, $4, $5, $6) ON CONFLICT DO NOTHING`, organizationID, r.ID, r.SubaccountID, idValue(r.ExternalID), r.Enabled, string(doc))
	if err != nil {
		return AlertRule{}, fmt.Errorf("insert an alert rule: %w", err)
	}
	if made == 0 {
		return AlertRule{}, alreadyExistsError("external_id")
	}
	if r.Enabled {
		if err := restampAlertRules(ctx, tx, organizationID); err != nil {
			return AlertRule{}, err
		}
		if err := examineVehicles(ctx, tx, organizationID, r.SubaccountID); err != nil {
			return AlertRule{}, err
		}
	}
	s.notify(tx, organizationID, AlertRecordKind, "")
	return r, s.record(ctx, tx, organizationID, AlertRuleCreated, audit.Target{Type: "alert_rule", ID: r.ID, Name: r.Name}, nil)
}

// UpdateAlertRuleTx updates a rule that the caller's transaction has locked. An update without a
// difference creates no revision. Alerts of a disabled rule are cleared at once, those whose
// condition ends by the change within a second or two. Errors: Invalid; Conflict already_exists with
// the member external_id.
func (s *Service) UpdateAlertRuleTx(ctx context.Context, tx *db.Tx, organizationID string, r AlertRule, c AlertRuleChange) (AlertRule, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return AlertRule{}, err
	}
	sub, _, err := s.subaccount(ctx, tx, organizationID, r.SubaccountID)
	if err != nil {
		return AlertRule{}, err
	}
	former := r
	before, err := encode(&former)
	if err != nil {
		return AlertRule{}, err
	}
	c.ExternalID.Into(&r.ExternalID)
	c.Name.Into(&r.Name)
	c.ThresholdPercent.IntoPointer(&r.ThresholdPercent)
	c.ThresholdMinutes.IntoPointer(&r.ThresholdMinutes)
	c.VehicleTypeIDs.Into(&r.VehicleTypeIDs)
	c.ZoneIDs.Into(&r.ZoneIDs)
	c.Enabled.Into(&r.Enabled)
	c.Notify.Into(&r.Notify)
	c.NotifyUserIDs.Into(&r.NotifyUserIDs)
	c.CreateTask.Into(&r.CreateTask)
	c.CreateTicket.Into(&r.CreateTicket)
	if c.Metadata.Set {
		r.Metadata = metadataOf(c.Metadata.Value)
	}
	var v problem.Validation
	if err := s.checkAlertRule(ctx, tx, &v, organizationID, &former, &r, sub); err != nil {
		return AlertRule{}, err
	}
	doc, err := encode(&r)
	if err != nil || bytes.Equal(doc, before) {
		return former, err
	}
	if r.ExternalID != former.ExternalID {
		err := checkUnique(ctx, tx, "external_id", "alert_rules WHERE organization_id = $1 AND subaccount_id = $2 AND external_id = $3 AND id <> $4",
			organizationID, r.SubaccountID, string(r.ExternalID), r.ID)
		if err != nil {
			return AlertRule{}, err
		}
	}
	r.UpdatedAt = nextUpdatedAt(r.UpdatedAt, a.now)
	r.revision++
	if doc, err = encode(&r); err != nil {
		return AlertRule{}, err
	}
	if former.Enabled {
		if err := s.withdrawAlertRule(ctx, tx, organizationID, &r); err != nil {
			return AlertRule{}, err
		}
	} else if r.Enabled {
		if err := examineVehicles(ctx, tx, organizationID, r.SubaccountID); err != nil {
			return AlertRule{}, err
		}
	}
	_, err = tx.Exec(ctx, "UPDATE alert_rules SET revision = $3, external_id = $4, enabled = $5, doc = $6 WHERE organization_id = $1 AND id = $2",
		organizationID, r.ID, r.revision, idValue(r.ExternalID), r.Enabled, string(doc))
	if db.IsUnique(err) { // by a concurrent transaction
		return AlertRule{}, alreadyExistsError("external_id")
	}
	if err != nil {
		return AlertRule{}, fmt.Errorf("update an alert rule: %w", err)
	}
	if r.Enabled || former.Enabled {
		if err := restampAlertRules(ctx, tx, organizationID); err != nil {
			return AlertRule{}, err
		}
	}
	if !r.Enabled {
		if err := s.clearAlertsOfRule(ctx, tx, a, r.ID); err != nil {
			return AlertRule{}, err
		}
	}
	s.notify(tx, organizationID, AlertRecordKind, "")
	return r, s.recordChange(ctx, tx, organizationID, AlertRuleUpdated, audit.Target{Type: "alert_rule", ID: r.ID, Name: r.Name}, former, r)
}

// DeleteAlertRuleTx deletes a rule in the caller's transaction, and clears its alerts, which stay.
// Error: NotFound.
func (s *Service) DeleteAlertRuleTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return err
	}
	r, err := s.LockAlertRuleTx(ctx, tx, organizationID, id)
	if err != nil {
		return err
	}
	if r.Enabled {
		if err := s.withdrawAlertRule(ctx, tx, organizationID, &r); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM alert_rules WHERE organization_id = $1 AND id = $2", organizationID, id); err != nil {
		return fmt.Errorf("delete an alert rule: %w", err)
	}
	if r.Enabled {
		if err := restampAlertRules(ctx, tx, organizationID); err != nil {
			return err
		}
	}
	if err := s.clearAlertsOfRule(ctx, tx, a, id); err != nil {
		return err
	}
	s.notify(tx, organizationID, AlertRecordKind, "")
	return s.record(ctx, tx, organizationID, AlertRuleDeleted, audit.Target{Type: "alert_rule", ID: id, Name: r.Name}, nil)
}

// checkAlertRule adds issues of a rule, normalizes it, and returns all issues as an error. Zones and
// types that it had before may be gone. sub may be nil, with an issue of its own.
func (s *Service) checkAlertRule(ctx context.Context, tx *db.Tx, v *problem.Validation, organizationID string, before, r *AlertRule, sub *Subaccount) error {
	checkLine(v, "name", r.Name, maxName)
	checkOneOf(v, "kind", r.Kind, AlertKinds[:]...)
	checkCommon(v, r.ExternalID, r.Metadata)
	checkThreshold(v, "threshold_percent", r.ThresholdPercent, r.Kind == BatteryLow, maxAlertPercent)
	checkThreshold(v, "threshold_minutes", r.ThresholdMinutes, r.Kind == Silence || r.Kind == RideTooLong || r.Kind == IdleTooLong, maxAlertMinutes)
	checkOneOf(v, "notify", r.Notify, NotifyNobody, NotifyAdmins, NotifyUsers)
	r.NotifyUserIDs = sortedSet(r.NotifyUserIDs)
	switch {
	case len(r.NotifyUserIDs) > maxAlertUsers:
		v.AddCode("too_long", "notify_user_ids", "must have at most %d values", maxAlertUsers)
	case r.Notify == NotifyUsers && len(r.NotifyUserIDs) == 0:
		v.AddCode("required", "notify_user_ids", "is required to notify users")
	case r.Notify != NotifyUsers && len(r.NotifyUserIDs) > 0:
		v.AddCode("conflict", "notify_user_ids", "must be empty unless notify is users")
	}
	for _, id := range r.NotifyUserIDs {
		v.Line("notify_user_ids", id, 1, maxExternal)
	}
	r.VehicleTypeIDs, r.ZoneIDs = sortedSet(r.VehicleTypeIDs), sortedSet(r.ZoneIDs)
	if sub != nil {
		if !slices.Equal(r.VehicleTypeIDs, before.VehicleTypeIDs) {
			r.VehicleTypeIDs = checkTypes(v, "vehicle_type_ids", r.VehicleTypeIDs, sub)
		}
		if !slices.Equal(r.ZoneIDs, before.ZoneIDs) {
			if err := checkAlertZones(ctx, tx, v, organizationID, r); err != nil {
				return err
			}
		}
		var others int
		err := tx.QueryRow(ctx, "SELECT count(*) FROM alert_rules WHERE organization_id = $1 AND subaccount_id = $2 AND id <> $3", organizationID, r.SubaccountID, r.ID).Scan(&others)
		if err != nil {
			return fmt.Errorf("count alert rules: %w", err)
		}
		if others >= maxAlertRules {
			v.AddCode("conflict", "subaccount_id", "has %d alert rules, the most there can be", maxAlertRules)
		}
	}
	return v.Err()
}

// checkThreshold adds an issue unless a threshold is present exactly if the condition needs it.
func checkThreshold(v *problem.Validation, path string, value *int64, needed bool, high int64) {
	switch {
	case needed && value == nil:
		v.AddCode("required", path, "is required for this kind")
	case !needed && value != nil:
		v.AddCode("conflict", path, "must be null for this kind")
	default:
		checkOptional(v, path, value, 1, high)
	}
}

// checkAlertZones adds an issue unless the rule's zones are in its subaccount.
func checkAlertZones(ctx context.Context, tx *db.Tx, v *problem.Validation, organizationID string, r *AlertRule) error {
	if len(r.ZoneIDs) == 0 {
		return nil
	}
	var known int
	err := tx.QueryRow(ctx, "SELECT count(*) FROM zones WHERE organization_id = $1 AND subaccount_id = $2 AND id = ANY($3)", organizationID, r.SubaccountID, r.ZoneIDs).Scan(&known)
	if err != nil {
		return fmt.Errorf("look up the zones of an alert rule: %w", err)
	}
	if known < len(r.ZoneIDs) {
		v.AddCode("not_found", "zone_ids", "must be zones of the subaccount")
	}
	return nil
}

// sortedSet returns the distinct values, sorted; never nil.
func sortedSet(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return append([]string{}, slices.Compact(list)...)
}

// restampAlertRules makes the changed rules of a transaction that has locked the settings count.
func restampAlertRules(ctx context.Context, tx *db.Tx, organizationID string) error {
	_, err := tx.Exec(ctx, `UPDATE settings SET alert_stamp = CASE WHEN EXISTS (SELECT 1 FROM alert_rules WHERE organization_id = $1 AND enabled)
		THEN CAST($2 AS BIGINT) END WHERE organization_id = $1`, organizationID, newStamp())
	if err != nil {
		return fmt.Errorf("stamp the alert rules: %w", err)
	}
	return nil
}

// examineVehicles has the alerts of all vehicles of a subaccount examined as soon as possible.
// Vehicles are locked in the order of their ids, as in telemetry.
func examineVehicles(ctx context.Context, tx *db.Tx, organizationID, subaccountID string) error {
	_, err := tx.Exec(ctx, `UPDATE vehicles SET alert_at = 0 WHERE organization_id = $1 AND id IN (SELECT id FROM vehicles
		WHERE organization_id = $1 AND subaccount_id = $2 AND state <> 'removed' ORDER BY id FOR UPDATE)`, organizationID, subaccountID)
	if err != nil {
		return fmt.Errorf("have vehicles examined: %w", err)
	}
	return nil
}
