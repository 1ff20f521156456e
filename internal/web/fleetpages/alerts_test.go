package fleetpages_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestAlerts creates a rule by its form, and acknowledges the alert that it raises.
func TestAlerts(t *testing.T) {
	y := newYard(t)
	sub := y.live.sole()
	y.agent.Page("/fleet/alerts").Want("No alerts")
	if d := y.agent.Page("/fleet/alert-rules"); len(d.WithAttr("href", "/fleet/alert-rules/new?kind=battery_low")) != 0 {
		t.Error("an agent is offered to create a rule")
	}
	y.admin.Page("/fleet/alert-rules").Want("No rules yet", "When the battery falls below 15 %")
	const path = "/fleet/alert-rules/new?kind=battery_low"
	y.admin.Page(path).Want("When the battery falls below 15 % (all vehicles, anywhere), raise an alert and notify all admins.")
	form := url.Values{"name": {hostile}, "threshold": {"96"}, "type": {""}, "zone": {""}, "notify": {"me"}, "create_task": {"on"}, "enabled": {"on"}}
	y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity).Want("must be at most 95")
	form.Set("threshold", "30")
	d, notice := y.admin.Follow(y.admin.Post(path, form))
	if notice != "Rule saved. Vehicles are examined within seconds." {
		t.Errorf("got notice %q", notice)
	}
	d.Want(hostile, "When the battery falls below 30 % (all vehicles, anywhere), raise an alert and notify chosen members, create a task.", "On")
	rules, err := y.live.AlertRules(t.Context(), y.live.db, y.live.organization.ID)
	if err != nil || len(rules) != 1 || rules[0].SubaccountID != sub.ID || rules[0].NotifyUserIDs[0] != y.Admin.ID || !rules[0].CreateTask {
		t.Fatalf("got %+v, %v", rules, err)
	}

	v := y.live.lowVehicle(sub.ID)
	y.agent.Page("/fleet").Want(v.Code+": "+hostile, "Vehicle "+v.Code+" was at 20 %.")
	y.agent.Page("/fleet/vehicles/"+v.ID).Want("Vehicle "+v.Code+" was at 20 %.", "Acknowledge")
	y.agent.Page("/fleet/alerts").Want("1 alert.", "Raised")
	raised, err := y.live.RaisedAlerts(t.Context(), y.live.db, y.live.organization.ID, v.ID)
	if err != nil || len(raised) != 1 {
		t.Fatal(raised, err)
	}
	// The form returns to its page, and to no page elsewhere.
	acknowledge := "/fleet/alerts/" + raised[0].ID + "/acknowledge"
	for _, path := range []string{"/fleet?days=7", "/fleet/vehicles/" + v.ID, "/fleet/alerts?state=raised"} {
		if got := webtest.Attr(y.agent.Page(path).Field("back"), "value"); got != path {
			t.Errorf("the form of %s has %q", path, got)
		}
	}
	for back, want := range map[string]string{
		"/fleet?days=7": "/fleet?days=7", "/fleet": "/fleet", "/fleet/vehicles/" + v.ID: "/fleet/vehicles/" + v.ID, "": "/fleet/alerts", "/sign-out": "/fleet/alerts",
		"https://example.com/fleet": "/fleet/alerts", "//example.com/fleet": "/fleet/alerts", "/fleeting": "/fleet/alerts", "/fleet/../sign-out": "/fleet/alerts", "/fleet/%2e%2e/sign-out": "/fleet/alerts", "/fleet/%0d%0aX:y": "/fleet/%0d%0aX:y", "\x7f": "/fleet/alerts",
	} {
		if got := y.agent.Post(acknowledge, url.Values{"back": {back}}).Header().Get("Location"); got != want {
			t.Errorf("from %q: got %q, want %q", back, got, want)
		}
	}
	d, notice = y.agent.Follow(y.agent.Post(acknowledge, url.Values{}))
	if notice != "Alert acknowledged." {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Acknowledged by you")

	edit := "/fleet/alert-rules/" + rules[0].ID
	chosen := y.admin.Page(edit)
	chosen.Want("chosen members")
	form.Set("notify", formOf(chosen).Get("notify"))
	form.Del("enabled")
	d, _ = y.admin.Follow(y.admin.Post(edit, form))
	d.Want("Off")
	if r, err := y.live.AlertRule(t.Context(), y.live.db, y.live.organization.ID, rules[0].ID); err != nil || r.Enabled || len(r.NotifyUserIDs) != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	y.agent.Page("/fleet/alerts?state=cleared").Want("Cleared")
	if _, notice := y.admin.Follow(y.admin.Post(edit+"/delete", url.Values{})); notice != "Rule deleted." {
		t.Errorf("got notice %q", notice)
	}
	y.agent.WantRefused(y.agent.Post(path, form), http.StatusForbidden)
}

// TestAlertSentences: a sentence names the types and zones of its rule, and the form leaves them.
func TestAlertSentences(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	corners := url.Values{"type": {"parking"}, "geometry": {"52.5, 13.3\n52.5, 13.4\n52.6, 13.4"}}
	zones := make([]string, 5)
	for i := range zones {
		_, after, _ := strings.Cut(y.admin.Post("/fleet/zones/new", with(corners, "name", "Zone "+strconv.Itoa(i)+hostile)).Header().Get("Location"), "/zones/")
		zones[i] = after
	}
	for i := range 100 { // sorted before these
		y.admin.Post("/fleet/zones/new", with(corners, "name", "A"+strconv.Itoa(i)))
	}
	for _, tt := range []struct {
		rule  fleet.NewAlertRule
		types []string
		zones []string
		want  string
	}{
		{fleet.NewAlertRule{Kind: fleet.BatteryLow, ThresholdPercent: new(int64(20))}, []string{l.scooter}, nil, "When the battery falls below 20 % (Scooter " + hostile + ", anywhere), raise"},
		{fleet.NewAlertRule{Kind: fleet.Silence, ThresholdMinutes: new(int64(1))}, nil, zones[:1], "When a vehicle has not reported for 1 minute (all vehicles, Zone 0" + hostile + "), raise"},
		{fleet.NewAlertRule{Kind: fleet.LeftZone}, nil, nil, "When a vehicle is outside all service areas (all vehicles), raise"},
		{fleet.NewAlertRule{Kind: fleet.LeftZone}, nil, zones[1:2], "When a vehicle is outside Zone 1" + hostile + " (all vehicles), raise"},
		{fleet.NewAlertRule{Kind: fleet.IdleTooLong, ThresholdMinutes: new(int64(120))}, nil, zones, " and 2 more), raise"},
	} {
		n := tt.rule
		n.SubaccountID, n.Name, n.VehicleTypeIDs, n.ZoneIDs, n.Notify = l.sub.ID, "R", tt.types, tt.zones, fleet.NotifyNobody
		var rule fleet.AlertRule
		l.write(func(ctx context.Context, tx *db.Tx) (err error) {
			rule, err = l.CreateAlertRuleTx(ctx, tx, y.Organization.ID, n)
			return err
		})
		y.agent.Page("/fleet/alert-rules").Want(tt.want)
		path := "/fleet/alert-rules/" + rule.ID
		d := y.admin.Page(path)
		d.Want(tt.want)
		y.admin.Follow(y.admin.Post(path, with(formOf(d), "name", "Renamed")))
		if after, err := l.AlertRule(t.Context(), l.db, y.Organization.ID, rule.ID); err != nil || after.Name != "Renamed" || !slices.Equal(after.ZoneIDs, rule.ZoneIDs) || !slices.Equal(after.VehicleTypeIDs, rule.VehicleTypeIDs) {
			t.Errorf("%s: got %+v, %v", tt.want, after, err)
		}
	}
	y.live.write(func(ctx context.Context, tx *db.Tx) error {
		return l.DeleteZoneTx(ctx, tx, y.Organization.ID, zones[0])
	})
	y.admin.Page("/fleet/alert-rules").Want("(all vehicles, a deleted zone)")
}

// lowVehicle creates an available vehicle and has its battery fall to 20 percent.
func (e *environment) lowVehicle(subaccountID string) (v fleet.Vehicle) {
	e.tb.Helper()
	actor := fleet.Actor{Type: "system"}
	e.write(func(ctx context.Context, tx *db.Tx) error {
		sub, err := e.LockSubaccountTx(ctx, tx, e.organization.ID, subaccountID)
		if err != nil {
			return err
		}
		sub, err = e.UpdateSubaccountTx(ctx, tx, e.organization.ID, sub, fleet.SubaccountChange{
			VehicleTypes: optional.Of([]fleet.VehicleType{{Name: "Scooter", FormFactor: "scooter_standing", PropulsionType: "electric", MaxRangeMeters: new(int64(45000))}}),
		})
		if err != nil {
			return err
		}
		if v, err = e.CreateVehicleTx(ctx, tx, e.organization.ID, fleet.NewVehicle{SubaccountID: sub.ID, Code: "A-1", VehicleTypeID: sub.VehicleTypes[0].ID, BatteryPercent: new(int64(80))}, actor); err != nil {
			return err
		}
		return nil
	})
	e.write(func(ctx context.Context, tx *db.Tx) error {
		locked, err := e.LockVehicleTx(ctx, tx, e.organization.ID, v.ID)
		if err == nil {
			_, err = e.UpdateVehicleTx(ctx, tx, e.organization.ID, locked, fleet.VehicleChange{
				State: optional.Of(fleet.Available), Location: optional.Of(geo.Position{Lat: 52.52, Lng: 13.405}), BatteryPercent: optional.Of(int64(20)),
			}, actor)
		}
		return err
	})
	return v
}

// TestAlertNoticesAreRead: a member who opens the vehicle of an alert has read the notice.
func TestAlertNoticesAreRead(t *testing.T) {
	y := newYard(t)
	v := y.live.lowVehicle(y.live.sole().ID)
	unread := func(userID string) int {
		t.Helper()
		n, err := y.desk.UnreadNotices(t.Context(), y.DB, y.live.organization.ID, userID)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := y.DB.Write(t.Context(), func(tx *db.Tx) error {
		for _, vehicle := range []string{v.ID, "other"} {
			a := desk.Alert{ID: "alert_" + vehicle, Title: "A-1: Battery low", Path: "/fleet/vehicles/" + vehicle, UserIDs: []string{y.Admin.ID, y.Agent.ID}}
			if _, err := y.desk.AlertTx(t.Context(), tx, y.live.organization.ID, a); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	y.agent.Page("/fleet/vehicles/" + v.ID)
	if mine, others := unread(y.Agent.ID), unread(y.Admin.ID); mine != 1 || others != 2 {
		t.Errorf("%d unread, and %d of another member; want 1 and 2", mine, others)
	}
}

// TestAlertRuleOfMinutes: the form, which has hours, leaves a threshold in minutes as it is.
func TestAlertRuleOfMinutes(t *testing.T) {
	y := newYard(t)
	sub := y.live.sole()
	var rule fleet.AlertRule
	y.live.write(func(ctx context.Context, tx *db.Tx) (err error) {
		rule, err = y.live.CreateAlertRuleTx(ctx, tx, y.live.organization.ID, fleet.NewAlertRule{
			SubaccountID: sub.ID, Name: "Idle", Kind: fleet.IdleTooLong, ThresholdMinutes: new(int64(90)), Notify: fleet.NotifyAdmins,
		})
		return err
	})
	y.admin.Page("/fleet/alert-rules").Want("neither rented nor moved for 90 minutes (")
	threshold := func(hours string) int64 {
		t.Helper()
		form := url.Values{"name": {"Idle"}, "threshold": {hours}, "type": {""}, "zone": {""}, "notify": {"admins"}, "enabled": {"on"}}
		y.admin.Follow(y.admin.Post("/fleet/alert-rules/"+rule.ID, form))
		r, err := y.live.AlertRule(t.Context(), y.live.db, y.live.organization.ID, rule.ID)
		if err != nil {
			t.Fatal(err)
		}
		return *r.ThresholdMinutes
	}
	if same, changed := threshold("1"), threshold("2"); same != 90 || changed != 120 {
		t.Errorf("got %d minutes, then %d; want 90 and 120", same, changed)
	}
}
