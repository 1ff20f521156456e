package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// rule creates an alert rule; percent and minutes are thresholds, 0: none.
func (y *yard) rule(t testing.TB, kind fleet.AlertKind, percent, minutes int64, change ...func(*fleet.NewAlertRule)) (r fleet.AlertRule) {
	t.Helper()
	n := fleet.NewAlertRule{SubaccountID: y.sub.ID, Name: "Rule " + string(kind), Kind: kind}
	if percent > 0 {
		n.ThresholdPercent = &percent
	}
	if minutes > 0 {
		n.ThresholdMinutes = &minutes
	}
	for _, fn := range change {
		fn(&n)
	}
	y.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		r, err = y.CreateAlertRuleTx(ctx, tx, y.org, n)
		return err
	})
	return r
}

// changeRule updates an alert rule.
func (y *yard) changeRule(t testing.TB, id string, c fleet.AlertRuleChange) {
	t.Helper()
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		r, err := y.LockAlertRuleTx(ctx, tx, y.org, id)
		if err == nil {
			_, err = y.UpdateAlertRuleTx(ctx, tx, y.org, r, c)
		}
		return err
	})
}

// alerts lists all alerts, the oldest first, as "kind state" and the reason of a cleared one.
func (y *yard) alerts(t testing.TB) (list []fleet.VehicleAlert, words []string) {
	t.Helper()
	err := y.EachAlert(t.Context(), y.org, fleet.AlertQuery{}, func(d *fleet.Record) error {
		var l fleet.VehicleAlert
		if err := json.Unmarshal(d.JSON, &l); err != nil {
			return err
		}
		list = append(list, l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(list)
	for _, l := range list {
		words = append(words, strings.TrimSpace(fmt.Sprint(l.Kind, " ", l.State, " ", l.ClearReason)))
	}
	return list, words
}

func (y *yard) wantAlerts(t testing.TB, what string, want ...string) []fleet.VehicleAlert {
	t.Helper()
	list, words := y.alerts(t)
	if !slices.Equal(words, want) {
		t.Fatalf("%s: got %q, want %q", what, words, want)
	}
	return list
}

func battery(percent int64) fleet.VehicleChange {
	return fleet.VehicleChange{BatteryPercent: optional.Of(percent)}
}

// TestBatteryAlert: an alert by a request and by telemetry, with a margin.
func TestBatteryAlert(t *testing.T) {
	y := newYard(t)
	y.listen(t)
	v := y.vehicle(t)
	rule := y.rule(t, fleet.BatteryLow, 30, 0)
	y.putVehicle(t, v.ID, battery(30))
	y.wantAlerts(t, "at the threshold")
	y.putVehicle(t, v.ID, battery(29))
	l := y.wantAlerts(t, "below", "battery_low raised")[0]
	if l.RuleID != rule.ID || l.VehicleID != v.ID || l.VehicleCode != v.Code || *l.Value != 29 || l.Live || l.SubaccountID != y.sub.ID || l.Location == nil {
		t.Errorf("got %+v", l)
	}
	for _, level := range []int64{28, 31, 34, 29} {
		y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: level}))
	}
	y.wantAlerts(t, "around the threshold", "battery_low raised")
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 35}))
	y.wantAlerts(t, "charged", "battery_low cleared ended")
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 10}))
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 9}))
	y.wantAlerts(t, "low again", "battery_low cleared ended", "battery_low raised")
	var names []string
	for _, e := range y.emitted(t) {
		if strings.HasPrefix(string(e.Name), "alert.") {
			names = append(names, string(e.Name))
			if e.Subject != v.ID || !strings.Contains(string(e.Data), `"alert":{"id":"alert_`) {
				t.Errorf("%s is of %s: %s", e.Name, e.Subject, e.Data)
			}
		}
	}
	if !slices.Equal(names, []string{"alert.raised", "alert.cleared", "alert.raised"}) {
		t.Errorf("got the events %q", names)
	}
}

// TestAlertsOfExistingVehicles: a new or changed rule and a new vehicle are examined by the timer.
func TestAlertsOfExistingVehicles(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t, func(n *fleet.NewVehicle) { n.BatteryPercent = new(int64(40)) })
	rule := y.rule(t, fleet.BatteryLow, 30, 0)
	y.travel(t, time.Second)
	y.wantAlerts(t, "above")
	y.changeRule(t, rule.ID, fleet.AlertRuleChange{ThresholdPercent: optional.Of(int64(50))})
	y.travel(t, time.Second)
	y.wantAlerts(t, "a higher threshold", "battery_low raised")
	y.vehicle(t, func(n *fleet.NewVehicle) { n.BatteryPercent = new(int64(45)) })
	y.travel(t, time.Second)
	y.wantAlerts(t, "a new vehicle", "battery_low raised", "battery_low raised")
	y.changeRule(t, rule.ID, fleet.AlertRuleChange{ThresholdPercent: optional.Of(int64(36))})
	y.travel(t, time.Second)
	y.wantAlerts(t, "a lower threshold", "battery_low raised", "battery_low cleared ended")
	y.changeRule(t, rule.ID, fleet.AlertRuleChange{Enabled: optional.Of(false)})
	y.wantAlerts(t, "disabled", "battery_low cleared rule_disabled", "battery_low cleared ended")
	y.putVehicle(t, v.ID, battery(25))
	y.travel(t, time.Second)
	y.wantAlerts(t, "still disabled", "battery_low cleared rule_disabled", "battery_low cleared ended")
	y.changeRule(t, rule.ID, fleet.AlertRuleChange{Enabled: optional.Of(true)})
	y.travel(t, time.Second)
	y.write(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteVehicleTx(ctx, tx, y.org, v.ID, testActor) })
	y.wantAlerts(t, "deleted vehicle", "battery_low cleared rule_disabled", "battery_low cleared ended", "battery_low cleared vehicle_removed")
	w := y.vehicle(t)
	y.putVehicle(t, w.ID, battery(25))
	y.write(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteAlertRuleTx(ctx, tx, y.org, rule.ID) })
	if _, words := y.alerts(t); words[3] != "battery_low cleared rule_disabled" {
		t.Errorf("deleted rule: got %q", words)
	}
}

// TestAlertsOfTimeTravel: an advance of the clock raises exactly what is due, as of its due time.
func TestAlertsOfTimeTravel(t *testing.T) {
	y := newYard(t)
	y.rule(t, fleet.Silence, 0, 20)
	y.rule(t, fleet.RideTooLong, 0, 60)
	y.rule(t, fleet.IdleTooLong, 0, 6*60)
	ridden := y.vehicle(t)
	r := y.ride(t, fleet.Active, ridden)
	y.travel(t, 19*time.Minute)
	y.wantAlerts(t, "before any is due")
	y.travel(t, 2*time.Minute)
	l := y.wantAlerts(t, "silence", "silence raised")[0]
	if got := l.RaisedAt.Std().Sub(y.storedVehicle(t, ridden.ID).LastReportedAt.Std()); got != 20*time.Minute || *l.Value != 20 || l.RideID != fleet.NullString(r.ID) {
		t.Errorf("raised %v after the last report: %+v", got, l)
	}
	y.record(t, report(&ridden, y.clock(t), nil))
	y.wantAlerts(t, "a report", "silence cleared ended")
	y.travel(t, 10*time.Hour) // the ride is too long, and silent again
	list := y.wantAlerts(t, "ten hours later", "silence cleared ended", "silence raised", "ride_too_long raised")
	if got := list[2].RaisedAt.Std().Sub(r.StartedAt.Std()); got != time.Hour || *list[2].Value != 60 {
		t.Errorf("raised %v after the start: %+v", got, list[2])
	}
	y.put(t, r.ID, fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of(fleet.NullString("operator"))})
	y.wantAlerts(t, "the end", "silence cleared ended", "silence raised", "ride_too_long cleared ended")
	v := y.vehicle(t)
	for range 7 {
		y.record(t, report(&v, y.clock(t), nil))
		y.travel(t, 55*time.Minute)
		y.record(t, report(&v, y.clock(t), nil))
	}
	found := false
	for _, l := range first(y.alerts(t)) {
		if l.Kind == fleet.IdleTooLong && l.VehicleID == v.ID {
			found = true
			if got := l.RaisedAt.Std().Sub(v.StateChangedAt.Std()); got != 6*time.Hour || l.State != fleet.AlertRaised {
				t.Errorf("raised %v after it was put out: %+v", got, l)
			}
		}
	}
	if !found {
		t.Error("no alert of the idle vehicle")
	}
	y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(geo.Position{Lat: 52.502, Lng: 13.4})})
	for _, l := range first(y.alerts(t)) {
		if l.Kind == fleet.IdleTooLong && l.VehicleID == v.ID && l.State != fleet.AlertCleared {
			t.Errorf("moved by 200 m: %+v", l)
		}
	}
}

func first[T, U any](a T, _ U) T { return a }

// TestZoneAlert: outside the service area, outside chosen zones, and after a change of zones.
func TestZoneAlert(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.LeftZone, 0, 0)
	at := func(p *geo.Position) fleet.VehicleChange {
		return fleet.VehicleChange{Location: optional.Of(*p)}
	}
	y.putVehicle(t, v.ID, at(&geo.Position{Lat: 52.9, Lng: 13.9}))
	y.wantAlerts(t, "inside")
	y.putVehicle(t, v.ID, at(outside()))
	if l := y.wantAlerts(t, "outside", "left_zone raised")[0]; l.Value != nil {
		t.Errorf("got %+v", l)
	}
	y.putVehicle(t, v.ID, at(inside()))
	y.wantAlerts(t, "back", "left_zone cleared ended")
	chosen := y.rule(t, fleet.LeftZone, 0, 0, func(n *fleet.NewAlertRule) { n.ZoneIDs = []string{y.zone.ID} })
	y.putVehicle(t, v.ID, at(outside()))
	y.wantAlerts(t, "outside of the chosen one, too", "left_zone cleared ended", "left_zone raised", "left_zone raised")
	y.write(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteZoneTx(ctx, tx, y.org, y.zone.ID) })
	y.travel(t, time.Second)
	y.wantAlerts(t, "without zones", "left_zone cleared ended", "left_zone cleared ended", "left_zone cleared ended")
	tryChange := func(c fleet.AlertRuleChange) error {
		return y.try(t, func(ctx context.Context, tx *db.Tx) error {
			r, err := y.LockAlertRuleTx(ctx, tx, y.org, chosen.ID)
			if err == nil {
				_, err = y.UpdateAlertRuleTx(ctx, tx, y.org, r, c)
			}
			return err
		})
	}
	wantFaults(t, "a zone that is gone, as before", tryChange(fleet.AlertRuleChange{Enabled: optional.Of(false), ZoneIDs: optional.Of([]string{y.zone.ID})}), "none")
	wantFaults(t, "a zone that is gone, with another", tryChange(fleet.AlertRuleChange{ZoneIDs: optional.Of([]string{y.zone.ID, "zone_x"})}), "zone_ids not_found")
}

// TestDueChangesTakeTurns: an organization with many vehicles to examine does not delay those of others.
func TestDueChangesTakeTurns(t *testing.T) {
	y := newYard(t)
	for range 120 {
		y.vehicle(t)
	}
	y.rule(t, fleet.BatteryLow, 90, 0)
	due := func() (n int) {
		t.Helper()
		if err := y.db.QueryRow(t.Context(), "SELECT count(*) FROM vehicles WHERE alert_at = 0 AND organization_id = $1", y.org).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, left := range []int{70, 20, 0} {
		more, err := y.ApplyRound(t.Context())
		if n := due(); err != nil || n != left || more != (left > 0) {
			t.Fatalf("%d vehicles are due after the round, want %d; more: %v, %v", n, left, more, err)
		}
	}
	if list, _ := y.alerts(t); len(list) != 120 {
		t.Errorf("%d alerts, want 120", len(list))
	}
}

// TestAlertScope: rules count for their subaccount, types of vehicles and zones only.
func TestAlertScope(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.BatteryLow, 50, 0, func(n *fleet.NewAlertRule) { n.ZoneIDs = []string{y.zone.ID} })
	other := elsewhere(t, y)
	other.rule(t, fleet.BatteryLow, 90, 0)
	y.putVehicle(t, v.ID, battery(60))
	y.travel(t, time.Second)
	y.wantAlerts(t, "a rule of another subaccount")
	y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(*outside()), BatteryPercent: optional.Of(int64(40))})
	y.wantAlerts(t, "outside the zone of the rule")
	y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(*inside())})
	y.wantAlerts(t, "in its zone", "battery_low raised")
	list, _, err := y.ListAlerts(t.Context(), y.db, y.org, fleet.AlertQuery{Subaccounts: []string{other.sub.ID}})
	if err != nil || len(list) != 0 {
		t.Errorf("the other subaccount sees %d alerts, %v", len(list), err)
	}
	if _, err := y.VehicleAlert(t.Context(), y.db, "org-2", first(y.alerts(t))[0].ID); err == nil {
		t.Error("another organization sees the alert")
	}
}

// TestAlertRuleChecks: bad rules are refused.
func TestAlertRuleChecks(t *testing.T) {
	y := newYard(t)
	for want, n := range map[string]fleet.NewAlertRule{
		"threshold_percent required":                             {Kind: fleet.BatteryLow},
		"threshold_percent too_large":                            {Kind: fleet.BatteryLow, ThresholdPercent: new(int64(96))},
		"threshold_minutes required, threshold_percent conflict": {Kind: fleet.Silence, ThresholdPercent: new(int64(9))},
		"threshold_minutes conflict":                             {Kind: fleet.LeftZone, ThresholdMinutes: new(int64(9))},
		"notify_user_ids required":                               {Kind: fleet.LeftZone, Notify: fleet.NotifyUsers},
		"notify_user_ids conflict":                               {Kind: fleet.LeftZone, NotifyUserIDs: []string{"u"}},
		"zone_ids not_found":                                     {Kind: fleet.LeftZone, ZoneIDs: []string{"zone_x"}},
		"vehicle_type_ids.0 not_found":                           {Kind: fleet.LeftZone, VehicleTypeIDs: []string{"vt_x"}},
		"kind invalid_value":                                     {Kind: "rain"},
	} {
		n.SubaccountID, n.Name = y.sub.ID, "Rule"
		wantFaults(t, want, y.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := y.CreateAlertRuleTx(ctx, tx, y.org, n)
			return err
		}), want)
	}
}

// TestAlertTask: an alert creates a task, and no second one while that is open.
func TestAlertTask(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.BatteryLow, 30, 0, func(n *fleet.NewAlertRule) { n.CreateTask = true })
	for _, level := range []int64{10, 90, 11} {
		y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: level}))
	}
	list := y.wantAlerts(t, "twice low", "battery_low cleared ended", "battery_low raised")
	task, err := y.Task(t.Context(), y.db, y.org, string(list[0].TaskID))
	if err != nil || task.Kind != fleet.BatterySwap || task.VehicleID != v.ID || list[1].TaskID != list[0].TaskID {
		t.Errorf("got %+v, %v; alerts %+v", task, err, list)
	}
}

// TestAlertTaskOfBusyVehicle: a vehicle with the most open tasks there can be gets none by its alert,
// and its reports count.
func TestAlertTaskOfBusyVehicle(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.BatteryLow, 30, 0, func(n *fleet.NewAlertRule) { n.CreateTask = true })
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		for range 100 {
			if _, err := y.CreateTaskTx(ctx, tx, y.org, fleet.NewTask{VehicleID: v.ID, Title: "Check"}, testActor); err != nil {
				return err
			}
		}
		return nil
	})
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 10}))
	if l := y.wantAlerts(t, "low", "battery_low raised")[0]; l.TaskID != "" {
		t.Errorf("the alert has the task %s", l.TaskID)
	}
}

// TestAlertTaskOfTimeTravel: a task of an alert is created when the alert is raised, by the clock of
// the sandbox.
func TestAlertTaskOfTimeTravel(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.Silence, 0, 20, func(n *fleet.NewAlertRule) { n.CreateTask = true })
	y.travel(t, 10*time.Hour)
	l := y.wantAlerts(t, "silence", "silence raised")[0]
	task := y.storedTask(t, string(l.TaskID))
	if !task.CreatedAt.Std().Equal(l.CreatedAt.Std()) || task.VehicleID != v.ID {
		t.Errorf("the alert is of %v, its task of %v", l.CreatedAt, task.CreatedAt)
	}
	y.sound(t)
}

// TestAcknowledgedAlert: the first member who acknowledges an alert remains.
func TestAcknowledgedAlert(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.BatteryLow, 30, 0)
	y.putVehicle(t, v.ID, battery(20))
	for _, user := range []fleet.NullString{"user-1", "user-2"} {
		y.write(t, func(ctx context.Context, tx *db.Tx) error {
			l, err := y.LockAlertTx(ctx, tx, y.org, first(y.alerts(t))[0].ID)
			if err == nil {
				_, err = y.AcknowledgeAlertTx(ctx, tx, y.org, l, fleet.Actor{Type: "user", ID: user})
			}
			return err
		})
	}
	if l := y.wantAlerts(t, "acknowledged", "battery_low raised")[0]; l.AcknowledgedBy == nil || l.AcknowledgedBy.ID != "user-1" || l.AcknowledgedAt.Std().IsZero() {
		t.Errorf("got %+v", l)
	}
}

// TestRelayedAlerts: alerts of production wait for the helpdesk, those of the sandbox do not.
func TestRelayedAlerts(t *testing.T) {
	for _, live := range []bool{true, false} {
		y := furnish(t, newSiteOn(t, dbtest.NewFleet(t), live))
		v := y.vehicle(t)
		y.rule(t, fleet.BatteryLow, 30, 0, func(n *fleet.NewAlertRule) { n.CreateTicket, n.Notify = true, fleet.NotifyAdmins })
		y.rule(t, fleet.BatteryLow, 40, 0)
		y.putVehicle(t, v.ID, battery(20))
		list, err := y.NextAlerts(t.Context(), y.org, 10)
		if err != nil {
			t.Fatal(err)
		}
		if !live {
			if len(list) != 0 {
				t.Errorf("the sandbox relays %+v", list)
			}
			continue
		}
		if len(list) != 1 || !list[0].CreateTicket || list[0].Notify != fleet.NotifyAdmins || list[0].Alert.VehicleID != v.ID {
			t.Fatalf("got %+v", list)
		}
		if err := y.AlertRelayed(t.Context(), y.org, list[0].Alert.ID, 17); err != nil {
			t.Fatal(err)
		}
		if waiting, err := y.WaitingAlerts(t.Context()); err != nil || len(waiting) != 0 {
			t.Errorf("waiting: %v, %v", waiting, err)
		}
		l, err := y.VehicleAlert(t.Context(), y.db, y.org, list[0].Alert.ID)
		if err != nil || *l.TicketNumber != 17 {
			t.Errorf("got %+v, %v", l, err)
		}
	}
}

// TestConcurrentAlerts: of many changes at once, with rules that come and go, no vehicle has two
// raised alerts by a rule, and none by a disabled one.
func TestConcurrentAlerts(t *testing.T) {
	y := newYard(t)
	var vehicles []fleet.Vehicle
	for range 3 {
		vehicles = append(vehicles, y.vehicle(t))
	}
	rule := y.rule(t, fleet.BatteryLow, 50, 0)
	errs := make(chan error, 200)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for n := range 8 {
				v := vehicles[(i+n)%len(vehicles)]
				errs <- y.db.Write(t.Context(), func(tx *db.Tx) error {
					locked, err := y.LockVehicleTx(t.Context(), tx, y.org, v.ID)
					if err == nil {
						_, err = y.UpdateVehicleTx(t.Context(), tx, y.org, locked, battery(int64(30+30*(n%2))), testActor)
					}
					return err
				})
			}
		})
	}
	wg.Go(func() {
		for n := range 9 {
			errs <- y.db.Write(t.Context(), func(tx *db.Tx) error {
				r, err := y.LockAlertRuleTx(t.Context(), tx, y.org, rule.ID)
				if err == nil {
					_, err = y.UpdateAlertRuleTx(t.Context(), tx, y.org, r, fleet.AlertRuleChange{Enabled: optional.Of(n%2 == 1)})
				}
				return err
			})
		}
	})
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	list, _ := y.alerts(t)
	for _, l := range list {
		if l.State == fleet.AlertRaised {
			t.Errorf("the rule is disabled, and there is %+v", l)
		}
	}
	y.changeRule(t, rule.ID, fleet.AlertRuleChange{Enabled: optional.Of(true), ThresholdPercent: optional.Of(int64(90))})
	y.travel(t, time.Second)
	raised, err := y.RaisedAlerts(t.Context(), y.db, y.org, vehicles[0].ID, vehicles[1].ID, vehicles[2].ID)
	if err != nil || len(raised) != 3 {
		t.Errorf("got %d raised alerts, %v; want 3", len(raised), err)
	}
	for _, rule := range fleet.Invariants() {
		if broken, err := db.All(t.Context(), y.db, func(row db.Row) (id string, err error) { return id, row.Scan(&id) }, rule.Broken); err != nil || len(broken) > 0 {
			t.Errorf("%s: %v, %v", rule.Name, broken, err)
		}
	}
}

// TestAlertsNeedRules: without enabled rules a vehicle has nothing to examine.
func TestAlertsNeedRules(t *testing.T) {
	y := newYard(t)
	y.rule(t, fleet.BatteryLow, 50, 0, func(n *fleet.NewAlertRule) { n.Enabled = new(false) })
	v := y.vehicle(t)
	y.putVehicle(t, v.ID, battery(20))
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 18}))
	var n int
	if err := y.db.QueryRow(t.Context(), "SELECT count(*) FROM vehicles WHERE alert_at IS NOT NULL OR idle_from IS NOT NULL").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d vehicles are to be examined, %v", n, err)
	}
	y.wantAlerts(t, "no enabled rule")
}

// TestNoStatementsWithoutRules: without enabled rules nothing reads or writes rules and alerts, since
// there are no tables for them.
func TestNoStatementsWithoutRules(t *testing.T) {
	y := newYard(t)
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		for _, table := range []string{"alerts", "alert_rules"} {
			if _, err := tx.Exec(ctx, "DROP TABLE "+table); err != nil {
				return err
			}
		}
		return nil
	})
	v := y.vehicle(t)
	y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(*outside()), BatteryPercent: optional.Of(int64(70))})
	y.record(t, report(&v, y.clock(t), map[track.Field]int64{track.Battery: 60}))
	y.putVehicle(t, v.ID, fleet.VehicleChange{Location: optional.Of(*inside())})
	r := y.ride(t, fleet.Active, v)
	y.put(t, r.ID, to(fleet.Completed))
	y.travel(t, 100*time.Hour)
	y.write(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteZoneTx(ctx, tx, y.org, y.zone.ID) })
}

// TestAlertSentence: times are in the unit that people read at a glance.
func TestAlertSentence(t *testing.T) {
	for minutes, want := range map[int64]string{1: "1 minute", 119: "119 minutes", 120: "2 hours", 2879: "47 hours", 2880: "2 days", 26_167: "18 days"} {
		l := fleet.VehicleAlert{Kind: fleet.IdleTooLong, VehicleCode: "F-0110", Value: &minutes}
		if got := l.Sentence(); got != "Vehicle F-0110 stood unused for "+want+"." {
			t.Errorf("%d minutes: got %q, want %s", minutes, got, want)
		}
	}
}

// Cleared alerts expire, those that are raised or have an open task do not.
func TestAlertsExpire(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.rule(t, fleet.BatteryLow, 30, 0)
	withTask := y.rule(t, fleet.BatteryLow, 20, 0, func(n *fleet.NewAlertRule) { n.CreateTask = true })
	y.putVehicle(t, v.ID, battery(10))
	y.putVehicle(t, v.ID, battery(60))
	y.putVehicle(t, v.ID, battery(25))
	list := y.wantAlerts(t, "at first", "battery_low cleared ended", "battery_low cleared ended", "battery_low raised")
	prune := func(what string, want ...string) {
		t.Helper()
		if err := fleet.PruneAlerts(t.Context(), y.Service); err != nil {
			t.Fatal(err)
		}
		y.wantAlerts(t, what, want...)
	}
	keep := func(days int64) {
		t.Helper()
		y.write(t, func(ctx context.Context, tx *db.Tx) error {
			_, _, err := y.UpdateSettingsTx(ctx, tx, y.org, fleet.SettingsChange{AlertRetentionDays: optional.Of(days)})
			return err
		})
	}
	keep(100)
	y.after(t, list[0].CreatedAt, 99*24*time.Hour)
	prune("before the end", "battery_low cleared ended", "battery_low cleared ended", "battery_low raised")
	y.after(t, list[0].CreatedAt, 101*24*time.Hour)
	prune("one without a task", "battery_low cleared ended", "battery_low raised")
	for _, l := range list {
		if l.RuleID == withTask.ID && l.TaskID != "" {
			y.putTask(t, string(l.TaskID), is(fleet.TaskDone))
		}
	}
	prune("its task is closed", "battery_low raised")
	y.putVehicle(t, v.ID, battery(60))
	prune("cleared today", "battery_low cleared ended")
	keep(1)
	y.after(t, list[0].CreatedAt, 103*24*time.Hour)
	prune("a shorter retention")
}

// TestAlertOfOfflineRide: a ride that was created late raises no alert while its app can still end it.
func TestAlertOfOfflineRide(t *testing.T) {
	y := newYard(t)
	y.changeSettings(t, fleet.SettingsChange{ContactLostMinutes: optional.Of(int64(1000))})
	v := y.vehicle(t)
	y.rule(t, fleet.RideTooLong, 0, 60, func(n *fleet.NewAlertRule) { n.CreateTask = true })
	y.travel(t, 8*time.Hour)
	ride := func(ago time.Duration) fleet.Ride {
		r, err := y.tryRide(t, fleet.NewRide{
			VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(y.customer(t).ID), StartedAt: optional.Of(rfc3339.Time(y.clock(t).Add(-ago))),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := ride(4 * time.Hour)
	y.travel(t, 14*time.Minute)
	end := to(fleet.Completed)
	end.EndedAt, end.EndLocation = optional.Of(rfc3339.Time(r.StartedAt.Std().Add(20*time.Minute))), optional.Of(*inside())
	y.put(t, r.ID, end)
	y.wantAlerts(t, "ended")
	ride(3 * time.Hour)
	y.travel(t, 15*time.Minute)
	y.wantAlerts(t, "not ended", "ride_too_long raised")
}
