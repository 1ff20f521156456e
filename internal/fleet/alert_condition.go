package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

// Rules are examined in the transaction of each change of a vehicle, and when time may change their
// result ([Vehicle.alertAt]). Organizations without enabled rules pay nothing: the statement that
// reads their settings says so.

// alertRules are the enabled rules of an organization by subaccount, shared and read-only.
type alertRules struct {
	bySubaccount map[string][]AlertRule
	stamp        int64
}

// enabledAlertRules returns the enabled rules of an organization at a stamp.
func (s *Service) enabledAlertRules(ctx context.Context, q db.Querier, organizationID string, stamp int64) (*alertRules, error) {
	return s.alertRules.get(organizationID, stamp, func(into *alertRules) error {
		list, err := db.All(ctx, q, scanAlertRule, "SELECT revision, doc FROM alert_rules WHERE organization_id = $1 AND enabled ORDER BY id", organizationID)
		if err != nil {
			return fmt.Errorf("read the enabled alert rules: %w", err)
		}
		*into = alertRules{make(map[string][]AlertRule), stamp}
		for _, r := range list {
			into.bySubaccount[r.SubaccountID] = append(into.bySubaccount[r.SubaccountID], r)
		}
		return nil
	})
}

// alertStamp is the stamp of the enabled rules; 0: there are none.
func (a *orgContext) alertStamp() int64 {
	if a.alerts == nil {
		return 0
	}
	return a.alerts.stamp
}

// hasAlertRules reports whether a subaccount has enabled rules that a condition meets.
func (a *orgContext) hasAlertRules(subaccountID string, meets func(r *AlertRule) bool) bool {
	if a.alerts == nil {
		return false
	}
	rules := a.alerts.bySubaccount[subaccountID]
	return slices.ContainsFunc(rules, func(r AlertRule) bool { return meets(&r) })
}

func isRideTooLong(r *AlertRule) bool { return r.Kind == RideTooLong }

// needsZones reports whether a rule depends on zones.
func needsZones(r *AlertRule) bool { return r.Kind == LeftZone || len(r.ZoneIDs) > 0 }

const (
	batteryMargin = 5   // percent above the threshold that end a low battery
	idleMeters    = 100 // a vehicle that moves less stays where it is
)

// idleFrom is since when and where a vehicle stands available.
type idleFrom struct {
	At  time.Time `json:"at"`
	Lat float64   `json:"lat"`
	Lng float64   `json:"lng"`
}

// condition is the result of a rule for a vehicle.
type condition struct {
	outcome conditionOutcome
	since   time.Time // when it began to hold
	value   *int64
	due     time.Time // when time may change the result; zero: never
}

type conditionOutcome int

const (
	undecided conditionOutcome = iota // a raised alert stays, none is raised
	holds
	ended
)

// alertFacts are the input of rules beside the vehicles.
type alertFacts struct {
	raised map[string][]VehicleAlert // by vehicle
	starts map[string]time.Time      // of open rides by id; absent: a reservation
	fences map[string]*fences        // by subaccount
}

// alertFacts reads the input of the rules for locked vehicles. It returns nil if no rule is enabled.
func (s *Service) alertFacts(ctx context.Context, tx *db.Tx, a orgContext, vehicles ...*Vehicle) (*alertFacts, error) {
	if a.alerts == nil {
		return nil, nil
	}
	f := &alertFacts{raised: make(map[string][]VehicleAlert), starts: make(map[string]time.Time), fences: make(map[string]*fences)}
	var ids, rides []string
	for _, v := range vehicles {
		if len(a.alerts.bySubaccount[v.SubaccountID]) == 0 {
			continue
		}
		ids = append(ids, v.ID)
		if v.CurrentRideID != "" && a.hasAlertRules(v.SubaccountID, isRideTooLong) {
			rides = append(rides, string(v.CurrentRideID))
		}
		if f.fences[v.SubaccountID] == nil && a.hasAlertRules(v.SubaccountID, needsZones) {
			_, stamp, err := s.subaccount(ctx, tx, a.id, v.SubaccountID)
			if err != nil {
				return nil, err
			}
			if f.fences[v.SubaccountID], err = s.fencesIn(ctx, tx, a.id, v.SubaccountID, stamp); err != nil {
				return nil, err
			}
		}
	}
	if len(ids) > 0 {
		list, err := raisedAlerts(ctx, tx, a.id, ids)
		if err != nil {
			return nil, err
		}
		for _, l := range list {
			f.raised[l.VehicleID] = append(f.raised[l.VehicleID], l)
		}
	}
	if len(rides) > 0 {
		_, err := db.All(ctx, tx, func(row db.Row) (none struct{}, err error) {
			var id string
			var at time.Time
			if err := row.Scan(&id, db.IntoTime(&at)); err != nil {
				return none, err
			}
			f.starts[id] = at
			return none, nil
		}, "SELECT id, started_at FROM rides WHERE organization_id = $1 AND id = ANY($2) AND started_at IS NOT NULL", a.id, rides)
		if err != nil {
			return nil, fmt.Errorf("read the starts of rides: %w", err)
		}
	}
	return f, nil
}

// applyAlertRules raises and clears the alerts of a locked vehicle as of a time, and sets the time
// when they are examined next. The caller writes the vehicle, and emits the events of the alerts
// that changed. A nil f changes nothing.
func (s *Service) applyAlertRules(ctx context.Context, tx *db.Tx, a orgContext, f *alertFacts, v *Vehicle, at time.Time) (changed []*VehicleAlert, err error) {
	if f == nil {
		return nil, nil
	}
	rules := a.alerts.bySubaccount[v.SubaccountID]
	v.updateIdleFrom(at)
	var next time.Time
	for i := range rules {
		r := &rules[i]
		c := r.examine(v, f, at)
		if c.due.After(at) && (next.IsZero() || c.due.Before(next)) {
			next = c.due
		}
		raised := f.raisedBy(r, v)
		if raised != nil && r.Kind == RideTooLong && raised.RideID != v.CurrentRideID {
			c.outcome = ended
		}
		var l *VehicleAlert
		switch {
		case c.outcome == holds && raised == nil:
			if updated := r.UpdatedAt.Std(); c.since.Before(updated) {
				c.since = updated
			}
			l, err = s.raiseAlert(ctx, tx, a, r, v, c)
		case c.outcome == ended && raised != nil:
			reason := alertEnded
			if v.State == Removed {
				reason = alertVehicleRemoved
			}
			l, err = s.clearAlert(ctx, tx, a, raised.ID, reason, at)
		}
		if err != nil {
			return nil, err
		}
		if l != nil {
			changed = append(changed, l)
		}
	}
	v.setAlertAt(next, at)
	return changed, nil
}

// setAlertAt sets when rules are examined next. A time that comes earlier stays, so that reports
// write no new one each: the timer finds the later one then. So does 0: the rules may have changed
// since they were read.
func (v *Vehicle) setAlertAt(next, now time.Time) {
	switch {
	case v.alertAt.Equal(alertSoon):
	case v.alertAt.After(now) && (next.IsZero() || next.After(v.alertAt)):
	default:
		v.alertAt = next
	}
}

// alertSoon is the alertAt of a vehicle whose rules or zones changed.
var alertSoon = time.UnixMicro(0)

// raisedBy returns the raised alert of a vehicle by a rule, or nil.
func (f *alertFacts) raisedBy(r *AlertRule, v *Vehicle) *VehicleAlert {
	list := f.raised[v.ID]
	i := slices.IndexFunc(list, func(l VehicleAlert) bool { return l.RuleID == r.ID })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// updateIdleFrom sets since when and where the vehicle stands available. A silent vehicle stays where
// it was.
func (v *Vehicle) updateIdleFrom(at time.Time) {
	switch {
	case v.State == NonContactable && v.formerState == Available:
	case v.State != Available || v.Location == nil:
		v.idleFrom = nil
	case v.idleFrom == nil:
		v.idleFrom = &idleFrom{v.StateChangedAt.Std(), v.Location.Lat, v.Location.Lng}
	case geo.Distance(v.idleFrom.Lat, v.idleFrom.Lng, v.Location.Lat, v.Location.Lng) >= idleMeters:
		v.idleFrom = &idleFrom{at.Truncate(time.Millisecond), v.Location.Lat, v.Location.Lng}
	}
}

// idleValue is the stored form of idleFrom; nil: NULL.
func (v *Vehicle) idleValue() any {
	if v.idleFrom == nil {
		return nil
	}
	text, _ := json.Marshal(v.idleFrom)
	return string(text)
}

// examine returns the result of the rule for a vehicle at a time.
func (r *AlertRule) examine(v *Vehicle, f *alertFacts, at time.Time) condition {
	zones := f.fences[v.SubaccountID]
	switch {
	case v.State == Removed, len(r.VehicleTypeIDs) > 0 && !slices.Contains(r.VehicleTypeIDs, v.VehicleTypeID):
		return condition{outcome: ended}
	case r.Kind == LeftZone:
		return r.examineZone(v, zones, at)
	case len(r.ZoneIDs) > 0 && !zones.within(r.ZoneIDs, v.Location, at):
		return condition{outcome: ended, due: zones.nextBound(r.ZoneIDs, at)}
	}
	var since time.Time     // of what lasts too long; zero: it does not last
	var notBefore time.Time // when it may raise an alert
	switch r.Kind {
	case BatteryLow:
		return r.examineBattery(v, at)
	case Silence:
		since = v.lastSeen()
	case RideTooLong:
		if v.CurrentRideID != "" {
			since = f.starts[string(v.CurrentRideID)]
			if !v.rideStart.IsZero() {
				since = v.rideStart
			}
			// A ride that an app has created late may have ended long ago.
			if created, err := idTime(string(v.CurrentRideID)); err == nil && since.Before(created) && !since.IsZero() {
				notBefore = created.Add(offlineGrace)
			}
		}
	case IdleTooLong:
		if v.idleFrom != nil && v.State != Available {
			return condition{}
		}
		if v.idleFrom != nil {
			since = v.idleFrom.At
		}
	}
	c := r.examineDuration(since, notBefore, at)
	if len(r.ZoneIDs) > 0 {
		if bound := zones.nextBound(r.ZoneIDs, at); c.due.IsZero() || !bound.IsZero() && bound.Before(c.due) {
			c.due = bound
		}
	}
	return c
}

// examineBattery has a margin, so that a level at the threshold does not raise alerts again and again.
func (r *AlertRule) examineBattery(v *Vehicle, at time.Time) condition {
	level, known := v.level()
	switch {
	case !known:
		return condition{}
	case level < *r.ThresholdPercent:
		return condition{outcome: holds, since: at, value: &level}
	case level >= *r.ThresholdPercent+batteryMargin:
		return condition{outcome: ended}
	}
	return condition{}
}

func (r *AlertRule) examineDuration(since, notBefore, at time.Time) condition {
	if since.IsZero() {
		return condition{outcome: ended}
	}
	due := since.Add(time.Duration(*r.ThresholdMinutes) * time.Minute)
	if due.Before(notBefore) {
		due = notBefore
	}
	if at.Before(due) {
		return condition{outcome: ended, due: due}
	}
	return condition{outcome: holds, since: due, value: new(int64(at.Sub(since) / time.Minute))}
}

// examineZone returns whether a vehicle is outside the chosen zones, or outside all service areas.
func (r *AlertRule) examineZone(v *Vehicle, zones *fences, at time.Time) condition {
	c := condition{due: zones.nextBound(r.ZoneIDs, at)}
	switch {
	case v.Location == nil:
	case !zones.anyInForce(r.ZoneIDs, at), zones.within(r.ZoneIDs, v.Location, at):
		c.outcome = ended
	default:
		c.outcome, c.since = holds, at
	}
	return c
}

// chosen returns the indexes in f.list of zones by id; none: those of all service areas.
func (f *fences) chosen(ids []string) []int {
	if len(ids) == 0 {
		return f.areas
	}
	var list []int
	for i := range f.list {
		if slices.Contains(ids, f.list[i].id) {
			list = append(list, i)
		}
	}
	return list
}

// within reports whether a place is in one of the chosen zones that are in force.
func (f *fences) within(ids []string, place *geo.Position, at time.Time) bool {
	return place != nil && slices.ContainsFunc(f.chosen(ids), func(i int) bool {
		return f.list[i].inForce(at) && f.list[i].area.Contains(place.Lng, place.Lat)
	})
}

// anyInForce reports whether one of the chosen zones is in force.
func (f *fences) anyInForce(ids []string, at time.Time) bool {
	return slices.ContainsFunc(f.chosen(ids), func(i int) bool { return f.list[i].inForce(at) })
}

// nextBound returns when the next one of the chosen zones begins or ends to be in force; zero: never.
func (f *fences) nextBound(ids []string, at time.Time) (next time.Time) {
	for _, i := range f.chosen(ids) {
		for _, bound := range [...]time.Time{f.list[i].starts, f.list[i].ends} {
			if bound.After(at) && (next.IsZero() || bound.Before(next)) {
				next = bound
			}
		}
	}
	return next
}

// applyAlertTimer examines the rules of a vehicle at their due time, and returns the next one.
func (s *Service) applyAlertTimer(ctx context.Context, tx *db.Tx, a orgContext, t timer) (next time.Time, err error) {
	v, err := readVehicle(ctx, tx, a.id, t.id, " FOR UPDATE")
	if err != nil || v.alertAt.IsZero() || v.alertAt.After(t.at) {
		return next, ignoreAbsent(err)
	}
	at := t.at // the due time, unless the vehicle has changed since
	if updated := v.UpdatedAt.Std(); at.Before(updated) {
		at = updated
	}
	if v.alertAt.Equal(alertSoon) {
		at = a.now
	}
	v.alertAt = time.Time{}
	idle := v.idleValue()
	f, err := s.alertFacts(ctx, tx, a, &v)
	if err != nil {
		return next, err
	}
	changed, err := s.applyAlertRules(ctx, tx, a, f, &v, at)
	if err != nil {
		return next, err
	}
	if f == nil {
		v.idleFrom = nil
	}
	// Rules that changed since they were read have set alert_at again, or will.
	n, err := tx.Exec(ctx, `UPDATE vehicles SET alert_at = $3 WHERE organization_id = $1 AND id = $2
		AND coalesce((SELECT s.alert_stamp FROM settings s WHERE s.organization_id = $1), 0) = $4`, a.id, v.ID, db.Time(v.alertAt), a.alertStamp())
	if err != nil {
		return next, fmt.Errorf("schedule the alert rules of a vehicle: %w", err)
	}
	if v.idleValue() != idle {
		if _, err := tx.Exec(ctx, "UPDATE vehicles SET idle_from = $3 WHERE organization_id = $1 AND id = $2", a.id, v.ID, v.idleValue()); err != nil {
			return next, fmt.Errorf("note since when a vehicle is idle: %w", err)
		}
	}
	if n > 0 {
		next = v.alertAt
	}
	return next, s.finishAlerts(ctx, tx, a, changed)
}

// examineZones has the alerts of a subaccount's vehicles examined after a change of its zones.
func (s *Service) examineZones(ctx context.Context, tx *db.Tx, a orgContext, subaccountID string) error {
	if !a.hasAlertRules(subaccountID, needsZones) {
		return nil
	}
	return examineVehicles(ctx, tx, a.id, subaccountID)
}

// clearAlertsOfVehicle clears the raised alerts of a vehicle that is deleted.
func (s *Service) clearAlertsOfVehicle(ctx context.Context, tx *db.Tx, a orgContext, vehicleID string) error {
	return s.clearAlerts(ctx, tx, a, "vehicle_id", vehicleID, alertVehicleRemoved)
}
