package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// AlertState is the state of an alert.
type AlertState string

// The states. A cleared alert never changes again, except that it may be acknowledged.
const (
	AlertRaised  AlertState = "raised"
	AlertCleared AlertState = "cleared"
)

// Reasons why an alert was cleared.
const (
	alertEnded          = "ended" // the condition
	alertVehicleRemoved = "vehicle_removed"
	alertRuleDisabled   = "rule_disabled" // or deleted
)

// VehicleAlert is an alert of a vehicle by an [AlertRule]. A vehicle has at most one raised alert by
// a rule.
type VehicleAlert struct {
	ID             string        `json:"id"`
	Object         string        `json:"object"`
	Live           bool          `json:"livemode"`
	SubaccountID   string        `json:"subaccount_id"`
	RuleID         string        `json:"alert_rule_id"`
	Name           string        `json:"name"` // of the rule, at the time
	Kind           AlertKind     `json:"kind"`
	VehicleID      string        `json:"vehicle_id"`
	VehicleCode    string        `json:"vehicle_code"` // at the time
	RideID         NullString    `json:"ride_id"`      // open at the time
	State          AlertState    `json:"state"`
	Value          *int64        `json:"value"` // percent or minutes when it was raised; nil for LeftZone
	Location       *geo.Position `json:"location"`
	RaisedAt       rfc3339.Time  `json:"raised_at"`
	ClearedAt      rfc3339.Time  `json:"cleared_at"`
	ClearReason    NullString    `json:"clear_reason"`
	AcknowledgedAt rfc3339.Time  `json:"acknowledged_at"`
	AcknowledgedBy *Actor        `json:"acknowledged_by"`
	TaskID         NullString    `json:"task_id"`
	TicketNumber   *int64        `json:"ticket_number"`
	CreatedAt      rfc3339.Time  `json:"created_at"`
	UpdatedAt      rfc3339.Time  `json:"updated_at"`

	revision int64
	rule     *AlertRule // that has just raised it
}

// Record returns the alert's stored form.
func (l *VehicleAlert) Record() (Record, error) {
	text, err := encode(l)
	return Record{ID: l.ID, SubaccountID: l.SubaccountID, Revision: l.revision, JSON: text, Distance: -1}, err
}

func scanAlert(row db.Row) (l VehicleAlert, err error) {
	return l, row.Scan(&l.revision, db.IntoJSON(&l))
}

// VehicleAlert returns an alert. Error: NotFound.
func (s *Service) VehicleAlert(ctx context.Context, q db.Querier, organizationID, id string) (VehicleAlert, error) {
	return readAlert(ctx, q, organizationID, id, "")
}

// LockAlertTx is VehicleAlert with a lock, for an update in the same transaction.
func (s *Service) LockAlertTx(ctx context.Context, tx *db.Tx, organizationID, id string) (VehicleAlert, error) {
	return readAlert(ctx, tx, organizationID, id, " FOR UPDATE")
}

func readAlert(ctx context.Context, q db.Querier, organizationID, id, lock string) (VehicleAlert, error) {
	l, err := db.One(ctx, q, scanAlert, "SELECT revision, doc FROM alerts WHERE organization_id = $1 AND id = $2"+lock, organizationID, id)
	return l, wrapReadError(err, "alert")
}

// RaisedAlerts returns the raised alerts of vehicles, the oldest first.
func (s *Service) RaisedAlerts(ctx context.Context, q db.Querier, organizationID string, vehicleIDs ...string) ([]VehicleAlert, error) {
	return raisedAlerts(ctx, q, organizationID, vehicleIDs)
}

func raisedAlerts(ctx context.Context, q db.Querier, organizationID string, vehicleIDs []string) ([]VehicleAlert, error) {
	list, err := db.All(ctx, q, scanAlert, "SELECT revision, doc FROM alerts WHERE organization_id = $1 AND vehicle_id = ANY($2) AND state = 'raised' ORDER BY id", organizationID, vehicleIDs)
	if err != nil {
		return nil, fmt.Errorf("read raised alerts: %w", err)
	}
	return list, nil
}

// AlertQuery selects alerts; see [RideQuery].
type AlertQuery struct {
	Subaccounts []string // permitted subaccounts; nil: all
	Subaccount  []string // among the permitted
	RuleID      []string
	VehicleID   []string
	State       []AlertState
	Sort        keyset.Sort // by created_at
	After       *keyset.Cursor
	Limit       int // 0: 20; at most 100
}

// Check implements [problem.Checker].
func (q *AlertQuery) Check(v *problem.Validation) {
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, "created_at")
	keyset.CheckValues(v, "subaccount_id", q.Subaccount)
	keyset.CheckValues(v, "alert_rule_id", q.RuleID)
	keyset.CheckValues(v, "vehicle_id", q.VehicleID)
	keyset.CheckValues(v, "state", q.State)
}

// ListAlerts is [Service.ListRides] for alerts.
func (s *Service) ListAlerts(ctx context.Context, q db.Querier, organizationID string, query AlertQuery) ([]Record, *keyset.Cursor, error) {
	if err := problem.Check(&query); err != nil {
		return nil, nil, err
	}
	return s.listPage(ctx, q, query.Limit, func(q db.Querier) (*listQuery, error) { return alertListQuery(ctx, q, organizationID, &query), nil })
}

// EachAlert is [Service.EachRide] for alerts.
func (s *Service) EachAlert(ctx context.Context, organizationID string, query AlertQuery, fn func(*Record) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(&query); err != nil {
		return err
	}
	return s.eachRecord(ctx, func(ctx context.Context, q db.Querier) (*listQuery, error) {
		return alertListQuery(ctx, q, organizationID, &query), nil
	}, fn)
}

func alertListQuery(ctx context.Context, q db.Querier, organizationID string, query *AlertQuery) *listQuery {
	f := &listQuery{
		ctx: ctx, q: q, organization: organizationID, table: "alerts", after: query.After,
		descending: query.Sort.Descending || query.Sort.Field == "",
	}
	f.whereEqual("vehicle_id", query.VehicleID, true, "")
	f.whereEqual("rule_id", query.RuleID, true, "")
	f.whereEqual("state", texts(query.State), true, "")
	f.whereSubaccounts(query.Subaccounts, query.Subaccount)
	return f
}

// AcknowledgeAlertTx notes in the caller's transaction who acknowledged an alert that it has locked.
// The first one remains.
func (s *Service) AcknowledgeAlertTx(ctx context.Context, tx *db.Tx, organizationID string, l VehicleAlert, by Actor) (VehicleAlert, error) {
	if l.AcknowledgedBy != nil {
		return l, nil
	}
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return l, err
	}
	l.AcknowledgedAt, l.AcknowledgedBy = rfc3339.Time(a.now.Truncate(time.Millisecond)), &by
	if err := s.updateAlert(ctx, tx, a, &l); err != nil {
		return l, err
	}
	return l, s.record(ctx, tx, organizationID, AlertAcknowledged, audit.Target{Type: "alert", ID: l.ID, Name: l.Name}, nil)
}

// updateAlert writes a changed alert.
func (s *Service) updateAlert(ctx context.Context, tx *db.Tx, a orgContext, l *VehicleAlert) error {
	l.revision++
	l.UpdatedAt = nextUpdatedAt(l.UpdatedAt, a.now)
	doc, err := encode(l)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE alerts SET revision = $3, state = $4, updated_at = $5, doc = $6, task_id = $7 WHERE organization_id = $1 AND id = $2",
		a.id, l.ID, l.revision, string(l.State), l.UpdatedAt.Std().UnixMicro(), string(doc), idValue(l.TaskID))
	if err != nil {
		return fmt.Errorf("update an alert: %w", err)
	}
	s.notify(tx, a.id, AlertRecordKind, l.ID)
	return nil
}

// raiseAlert raises an alert, unless the rule is not enabled any more. It returns nil then. The lock
// of the rule has a change of it wait, which clears the alert.
func (s *Service) raiseAlert(ctx context.Context, tx *db.Tx, a orgContext, r *AlertRule, v *Vehicle, c condition) (*VehicleAlert, error) {
	var enabled bool
	err := tx.QueryRow(ctx, "SELECT enabled FROM alert_rules WHERE organization_id = $1 AND id = $2 FOR KEY SHARE", a.id, r.ID).Scan(&enabled)
	if err = wrapReadError(err, "alert rule"); err != nil || !enabled {
		return nil, ignoreAbsent(err)
	}
	header, times := s.newRecord(alertPrefix, "alert", v.SubaccountID, a.now)
	l := &VehicleAlert{
		ID: header.ID, Object: header.Object, Live: s.live, SubaccountID: v.SubaccountID, RuleID: r.ID, Name: r.Name, Kind: r.Kind,
		VehicleID: v.ID, VehicleCode: v.Code, RideID: v.CurrentRideID, State: AlertRaised, Value: c.value, Location: v.Location,
		RaisedAt: rfc3339.Time(c.since.Truncate(time.Millisecond)), CreatedAt: times.CreatedAt, UpdatedAt: times.UpdatedAt, revision: 1, rule: r,
	}
	doc, err := encode(l)
	if err != nil {
		return nil, err
	}
	relay, err := s.alertRelay(r)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO alerts (organization_id, id, subaccount_id, revision, rule_id, vehicle_id, state, updated_at, relay, doc)
		VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9)`,
		a.id, l.ID, l.SubaccountID, l.RuleID, l.VehicleID, string(l.State), l.UpdatedAt.Std().UnixMicro(), db.Text(relay), string(doc))
	if err != nil {
		return nil, fmt.Errorf("insert an alert: %w", err)
	}
	s.notify(tx, a.id, AlertRecordKind, l.ID)
	if relay != "" && s.emitted != nil {
		tx.AfterCommit(func() { s.emitted(a.id) })
	}
	return l, nil
}

// clearAlert clears a raised alert and returns it; nil: it is cleared already.
func (s *Service) clearAlert(ctx context.Context, tx *db.Tx, a orgContext, id, reason string, at time.Time) (*VehicleAlert, error) {
	l, err := s.LockAlertTx(ctx, tx, a.id, id)
	if err != nil || l.State == AlertCleared {
		return nil, err
	}
	if raised := l.RaisedAt.Std(); at.Before(raised) {
		at = raised
	}
	l.State, l.ClearedAt, l.ClearReason = AlertCleared, rfc3339.Time(at.Truncate(time.Millisecond)), NullString(reason)
	return &l, s.updateAlert(ctx, tx, a, &l)
}

// clearAlertsOfRule clears the raised alerts of a rule that is disabled or deleted.
func (s *Service) clearAlertsOfRule(ctx context.Context, tx *db.Tx, a orgContext, ruleID string) error {
	return s.clearAlerts(ctx, tx, a, "rule_id", ruleID, alertRuleDisabled)
}

// clearAlerts clears the raised alerts whose column has a value.
func (s *Service) clearAlerts(ctx context.Context, tx *db.Tx, a orgContext, column, value, reason string) error {
	ids, err := db.All(ctx, tx, scanID, "SELECT id FROM alerts WHERE organization_id = $1 AND "+column+" = $2 AND state = 'raised' ORDER BY id", a.id, value)
	if err != nil {
		return fmt.Errorf("look up raised alerts: %w", err)
	}
	var cleared []*VehicleAlert
	for _, id := range ids {
		l, err := s.clearAlert(ctx, tx, a, id, reason, a.now)
		if err != nil {
			return err
		}
		if l != nil {
			cleared = append(cleared, l)
		}
	}
	return s.finishAlerts(ctx, tx, a, cleared)
}

// finishAlerts creates the tasks of alerts that were just raised, and records the events of those
// that were raised or cleared. Their vehicles must be written.
func (s *Service) finishAlerts(ctx context.Context, tx *db.Tx, a orgContext, list []*VehicleAlert) error {
	for _, l := range list {
		if l.rule != nil && l.rule.CreateTask {
			if err := s.taskOfAlert(ctx, tx, a, l); err != nil {
				return err
			}
		}
		if !a.recorded {
			continue
		}
		doc, err := encode(l)
		if err != nil {
			return err
		}
		name, at := event.AlertRaised, l.RaisedAt
		if l.State == AlertCleared {
			name, at = event.AlertCleared, l.ClearedAt
		}
		if err := s.emit(ctx, tx, a, name, l.VehicleID, l.SubaccountID, at.Std(), eventData{Alert: doc}); err != nil {
			return err
		}
	}
	return nil
}

// taskOfAlert assigns a task to a raised alert: the open one that the rule created for the vehicle
// before, else a new one. A vehicle with the maximum of open tasks gets none.
func (s *Service) taskOfAlert(ctx context.Context, tx *db.Tx, a orgContext, l *VehicleAlert) error {
	id, err := db.One(ctx, tx, scanID, `SELECT t.id FROM alerts l JOIN tasks t ON t.organization_id = l.organization_id AND t.id = l.task_id
		WHERE l.organization_id = $1 AND l.vehicle_id = $2 AND l.rule_id = $3 AND t.state IN ('open', 'in_progress') LIMIT 1`, a.id, l.VehicleID, l.RuleID)
	if errors.Is(err, db.ErrNoRows) {
		id, err = s.createTaskOfAlert(ctx, tx, a, l)
	}
	if err != nil {
		return fmt.Errorf("create the task of an alert: %w", err)
	}
	if id == "" {
		return nil
	}
	l.TaskID = NullString(id)
	return s.updateAlert(ctx, tx, a, l)
}

// createTaskOfAlert creates the task of an alert, whose vehicle is locked and written, and returns its
// id; empty: the vehicle has the maximum of open tasks.
func (s *Service) createTaskOfAlert(ctx context.Context, tx *db.Tx, a orgContext, l *VehicleAlert) (string, error) {
	full, err := hasMostTasks(ctx, tx, a, l.VehicleID)
	if err != nil || full {
		return "", err
	}
	v, err := readVehicle(ctx, tx, a.id, l.VehicleID, "")
	if err != nil {
		return "", err
	}
	t := s.newTask(a, &v, NewTask{Kind: l.Kind.work(), Title: l.Name}, systemActor)
	return t.ID, s.insertTask(ctx, tx, a, &t, systemActor)
}

// work returns the kind of work that ends a condition.
func (k AlertKind) work() WorkKind {
	switch k {
	case BatteryLow:
		return BatterySwap
	case LeftZone, IdleTooLong:
		return Relocation
	}
	return Inspection
}

// AlertRelay is a new alert with the notices and the ticket that the helpdesk writes for it.
type AlertRelay struct {
	Alert        VehicleAlert    `json:"-"`
	Notify       AlertRecipients `json:"notify"`
	UserIDs      []string        `json:"user_ids,omitempty"`
	CreateTicket bool            `json:"create_ticket,omitempty"`
}

// alertRelay returns the stored notices and ticket of an alert of a rule; empty: none. Alerts of the sandbox neither notify people nor create tickets.
func (s *Service) alertRelay(r *AlertRule) (string, error) {
	if !s.live || r.Notify == NotifyNobody && !r.CreateTicket {
		return "", nil
	}
	text, err := encode(AlertRelay{Notify: r.Notify, UserIDs: r.NotifyUserIDs, CreateTicket: r.CreateTicket})
	return string(text), err
}

// WaitingAlerts returns the organizations with alerts that the helpdesk has to see.
func (s *Service) WaitingAlerts(ctx context.Context) ([]string, error) {
	list, err := db.All(ctx, s.db, scanID, "SELECT DISTINCT organization_id FROM alerts WHERE relay IS NOT NULL ORDER BY organization_id")
	if err != nil {
		return nil, fmt.Errorf("look for new alerts: %w", err)
	}
	return list, nil
}

// NextAlerts returns the next alerts of an organization that the helpdesk has to see, at most limit,
// the oldest first.
func (s *Service) NextAlerts(ctx context.Context, organizationID string, limit int) ([]AlertRelay, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (r AlertRelay, err error) {
		var doc, relay []byte
		if err := row.Scan(&r.Alert.revision, &doc, &relay); err != nil {
			return r, err
		}
		if err := json.Unmarshal(relay, &r); err != nil {
			return r, err
		}
		return r, json.Unmarshal(doc, &r.Alert)
	}, "SELECT revision, doc, relay FROM alerts WHERE organization_id = $1 AND relay IS NOT NULL ORDER BY id LIMIT $2", organizationID, limit)
	if err != nil {
		return nil, fmt.Errorf("read new alerts: %w", err)
	}
	return list, nil
}

// FormerTicket returns the number of the ticket of the alert that the rule raised for the vehicle
// before; 0: none.
func (s *Service) FormerTicket(ctx context.Context, organizationID string, l *VehicleAlert) (int64, error) {
	former, err := db.One(ctx, s.db, scanAlert, `SELECT revision, doc FROM alerts WHERE organization_id = $1 AND vehicle_id = $2 AND rule_id = $3 AND id < $4
		ORDER BY id DESC LIMIT 1`, organizationID, l.VehicleID, l.RuleID, l.ID)
	if err = wrapReadError(err, "alert"); err != nil || former.TicketNumber == nil {
		return 0, ignoreAbsent(err)
	}
	return *former.TicketNumber, nil
}

// AlertRelayed notes that the helpdesk has seen an alert, and the number of its ticket; 0: none.
func (s *Service) AlertRelayed(ctx context.Context, organizationID, id string, ticket int64) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if ticket != 0 {
			a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
			if err != nil {
				return err
			}
			l, err := s.LockAlertTx(ctx, tx, organizationID, id)
			if err != nil {
				return ignoreAbsent(err)
			}
			l.TicketNumber = &ticket
			if err := s.updateAlert(ctx, tx, a, &l); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "UPDATE alerts SET relay = NULL WHERE organization_id = $1 AND id = $2", organizationID, id); err != nil {
			return fmt.Errorf("note that an alert is relayed: %w", err)
		}
		return nil
	})
}

// Sentence describes the alert.
func (l *VehicleAlert) Sentence() string {
	var value int64
	if l.Value != nil {
		value = *l.Value
	}
	switch l.Kind {
	case BatteryLow:
		return fmt.Sprintf("Vehicle %s was at %d %%.", l.VehicleCode, value)
	case Silence:
		return fmt.Sprintf("Vehicle %s was silent for %s.", l.VehicleCode, minutesText(value))
	case RideTooLong:
		return fmt.Sprintf("The ride of vehicle %s took %s and had not ended.", l.VehicleCode, minutesText(value))
	case IdleTooLong:
		return fmt.Sprintf("Vehicle %s stood unused for %s.", l.VehicleCode, minutesText(value))
	}
	return fmt.Sprintf("Vehicle %s was outside its zones.", l.VehicleCode)
}

// minutesText returns a time in words, rounded down: up to two hours in minutes, up to two days in
// hours, then in days.
func minutesText(n int64) string {
	unit := "minute"
	switch {
	case n >= 2*24*60:
		n, unit = n/(24*60), "day"
	case n >= 2*60:
		n, unit = n/60, "hour"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}
