package fleetpages_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// upload is a request body that calls meanwhile at its first read.
type upload struct {
	io.Reader
	once      sync.Once
	meanwhile func()
}

func (u *upload) Read(p []byte) (int, error) {
	u.once.Do(u.meanwhile)
	return u.Reader.Read(p)
}

// postDuring posts a form, and calls meanwhile while the server reads it.
func (y *yard) postDuring(path string, form url.Values, meanwhile func()) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, &upload{Reader: strings.NewReader(form.Encode()), meanwhile: meanwhile})
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return y.admin.Do(r)
}

// TestChangedDuringUpload: a field of the form that was not edited is compared with the stored record, not
// with the one of the beginning of the upload.
func TestChangedDuringUpload(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	system := fleet.Actor{Type: "system"}
	var v fleet.Vehicle
	var work fleet.Task
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		v, err = l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{SubaccountID: l.sub.ID, Code: "M-1", VehicleTypeID: l.scooter, Metadata: map[string]string{"depot": "north"}}, system)
		if err == nil {
			work, err = l.CreateTaskTx(ctx, tx, l.organization.ID, fleet.NewTask{VehicleID: v.ID, Title: "Check", DueAt: rfc3339.Time(time.Date(2026, 12, 28, 10, 42, 30, 0, time.UTC))}, system)
		}
		return err
	})
	south := map[string]string{"depot": "south"}
	path := "/fleet/vehicles/" + v.ID + "/edit"
	d := y.admin.WantRefused(y.postDuring(path, with(formOf(y.admin.Page(path)), "vin", "1"), func() {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			now, err := l.LockVehicleTx(ctx, tx, l.organization.ID, v.ID)
			if err == nil {
				_, err = l.UpdateVehicleTx(ctx, tx, l.organization.ID, now, fleet.VehicleChange{Metadata: optional.Of(south)}, system)
			}
			return err
		})
	}), http.StatusUnprocessableEntity)
	d.Want("Save again to replace what is stored in: VIN; Metadata.")
	if got, err := l.Vehicle(t.Context(), l.db, l.organization.ID, v.ID); err != nil || got.VIN != "" || !maps.Equal(got.Metadata, south) {
		t.Errorf("got %q, %v, %v", got.VIN, got.Metadata, err)
	}
	path = "/fleet/tasks/" + work.ID + "/edit"
	d = y.admin.WantRefused(y.postDuring(path, with(formOf(y.admin.Page(path)), "title", "Mine"), func() {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			now, err := l.LockTaskTx(ctx, tx, l.organization.ID, work.ID)
			if err == nil {
				_, err = l.UpdateTaskTx(ctx, tx, l.organization.ID, now, fleet.TaskChange{DueAt: optional.Of(rfc3339.Time(time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)))}, system)
			}
			return err
		})
	}), http.StatusUnprocessableEntity)
	d.Want("Save again to replace what is stored in: Title; Due.")
	y.admin.WantRefused(y.admin.Post(path, with(formOf(d), "assignee_id", "usr_stranger")), http.StatusUnprocessableEntity).Want("Assignee must be a member of")
}

// TestAgencyRenamedMeanwhile: an agency that others have renamed is not stored a second time.
func TestAgencyRenamedMeanwhile(t *testing.T) {
	y := newYard(t)
	l := &lot{environment: y.sandbox, sub: y.sandbox.sole()} // whose form is read by the page alone
	key := agencyKey(t)
	name := func(id string) {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			now, err := l.LockSubaccountTx(ctx, tx, l.organization.ID, l.sub.ID)
			if err != nil {
				return err
			}
			m := now.MDS
			m.Agencies = fleet.MDSAgencies{{ID: id, Name: "City", PublicKey: key}}
			_, err = l.UpdateSubaccountTx(ctx, tx, l.organization.ID, now, fleet.SubaccountChange{MDS: optional.Of(m)})
			return err
		})
	}
	name("berlin")
	path := "/sandbox/fleet/subaccounts/" + l.sub.ID + "/agencies/berlin"
	form := with(formOf(y.admin.Page(path)), "id", "be")
	form.Set("public_key", l.subaccount().MDS.Agencies[0].PublicKey)
	y.admin.WantRefused(y.postDuring(path, form, func() { name("bln") }), http.StatusUnprocessableEntity).Want("Others have deleted this, or changed its id, since the form was opened.")
	if list := l.subaccount().MDS.Agencies; len(list) != 1 || list[0].ID != "bln" {
		t.Errorf("got %+v", list)
	}
}

// TestAlertRuleChangedByOthers: recipients, types and zones of a rule that others have changed are neither
// replaced nor widened unseen.
func TestAlertRuleChangedByOthers(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	var rule fleet.AlertRule
	y.admin.Follow(y.admin.Post("/fleet/subaccounts/"+l.sub.ID+"/types/new", url.Values{"name": {"Bike"}, "form_factor": {"bicycle"}, "propulsion_type": {"human"}, "reservation_minutes": {"0"}, "min_age": {"0"}}))
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		rule, err = l.CreateAlertRuleTx(ctx, tx, l.organization.ID, fleet.NewAlertRule{
			SubaccountID: l.sub.ID, Name: "Silent", Kind: fleet.Silence, ThresholdMinutes: new(int64(60)), Notify: fleet.NotifyUsers, NotifyUserIDs: []string{"usr_1"},
		})
		return err
	})
	path := "/fleet/alert-rules/" + rule.ID
	others := func(c fleet.AlertRuleChange) {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			now, err := l.LockAlertRuleTx(ctx, tx, l.organization.ID, rule.ID)
			if err == nil {
				_, err = l.UpdateAlertRuleTx(ctx, tx, l.organization.ID, now, c)
			}
			return err
		})
	}
	stored := func() fleet.AlertRule {
		got, err := l.AlertRule(t.Context(), l.db, l.organization.ID, rule.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	types := []string{l.scooter, l.subaccount().VehicleTypes[1].ID}
	for _, tt := range []struct {
		others                fleet.AlertRuleChange
		field, mine, replaced string
	}{
		{fleet.AlertRuleChange{NotifyUserIDs: optional.Of([]string{"usr_2"})}, "notify", "me", "Notify"},
		{fleet.AlertRuleChange{Notify: optional.Of(fleet.NotifyNobody), NotifyUserIDs: optional.Of([]string(nil))}, "name", "Quiet", "Name; Notify"},
		{fleet.AlertRuleChange{Notify: optional.Of(fleet.NotifyAdmins), NotifyUserIDs: optional.Of([]string(nil))}, "notify", "me", "Notify"},
		{fleet.AlertRuleChange{VehicleTypeIDs: optional.Of(types)}, "name", "Mute", "Name; Vehicle type"},
		{fleet.AlertRuleChange{VehicleTypeIDs: optional.Of(types[:1])}, "type", "", "Vehicle type"},
		{fleet.AlertRuleChange{VehicleTypeIDs: optional.Of(types)}, "type", types[1], "Vehicle type"},
	} {
		form := formOf(y.admin.Page(path))
		others(tt.others)
		theirs := stored()
		form.Set(tt.field, tt.mine)
		d := y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity)
		d.Want("Save again to replace what is stored in: " + tt.replaced + ".")
		if got := stored(); got.Name != theirs.Name || got.Notify != theirs.Notify || !slices.Equal(got.NotifyUserIDs, theirs.NotifyUserIDs) || !slices.Equal(got.VehicleTypeIDs, theirs.VehicleTypeIDs) {
			t.Errorf("got %+v, want %+v", got, theirs)
		}
		again := formOf(d)
		for field := range form {
			if !strings.HasPrefix(field, "was.") && again.Get(field) != form.Get(field) {
				t.Errorf("%s is shown again as %q, want %q", field, again.Get(field), form.Get(field))
			}
		}
		y.admin.Follow(y.admin.Post(path, again))
	}
}

// TestDefaultRuleRows: errors of default rules are at their rows, and rows that others have added are
// named by their numbers.
func TestDefaultRuleRows(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	path := "/fleet/subaccounts/" + l.sub.ID + "/rules"
	form := formOf(y.admin.Page(path))
	form.Set("global_rules.0.vehicle_type_ids", l.scooter)
	y.admin.Follow(y.admin.Post(path, form))
	form = formOf(y.admin.Page(path))
	form.Set("global_rules.0.vehicle_type_ids", "")
	form.Set("global_rules.1.vehicle_type_ids", "*")
	form.Set("global_rules.1.maximum_speed_kph", "99999")
	d := y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity)
	if wrong := d.DescribedBy("global_rules.1.maximum_speed_kph"); len(wrong) != 1 || len(d.DescribedBy("global_rules.0.maximum_speed_kph")) != 0 {
		t.Errorf("the error is at %q", wrong)
	}
	mine, theirs := formOf(y.admin.Page(path)), formOf(y.admin.Page(path))
	for form, speed := range map[*url.Values]string{&mine: "10", &theirs: "20"} {
		form.Set("global_rules.1.vehicle_type_ids", "*")
		form.Set("global_rules.1.maximum_speed_kph", speed)
	}
	y.admin.Follow(y.admin.Post(path, theirs))
	d = y.admin.WantRefused(y.admin.Post(path, mine), http.StatusUnprocessableEntity)
	d.Want("Save again to replace what is stored in: Maximum speed (km/h) (no. 2).", "Rule 2", "New rule")
	// Mine becomes the third one.
	again := formOf(d)
	for name := range mine {
		if member, ok := strings.CutPrefix(name, "global_rules.1."); ok {
			again.Set("global_rules.2."+member, mine.Get(name))
			again.Set(name, theirs.Get(name))
		}
	}
	y.admin.Follow(y.admin.Post(path, again))
	if rules := l.subaccount().GlobalRules; len(rules) != 3 || *rules[1].MaximumSpeed != 20 || *rules[2].MaximumSpeed != 10 {
		t.Errorf("got %+v", rules)
	}
	if got := webtest.Attr(y.admin.Page(path).Field("global_rules.2.maximum_speed_kph"), "value"); got != "10" {
		t.Errorf("got %q", got)
	}
}

// TestRulesAddedByOthers: saving again stores the rows of the form and none that others have added.
func TestRulesAddedByOthers(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	path := "/fleet/subaccounts/" + l.sub.ID + "/rules"
	set := func(form url.Values, row, speed string) {
		form.Set("global_rules."+row+".vehicle_type_ids", "*")
		form.Set("global_rules."+row+".maximum_speed_kph", speed)
	}
	save := func(row, speed string) {
		form := formOf(y.admin.Page(path))
		set(form, row, speed)
		y.admin.Follow(y.admin.Post(path, form))
	}
	save("0", "11")
	mine := formOf(y.admin.Page(path))
	save("1", "12")
	save("2", "13")
	set(mine, "0", "21")
	d := y.admin.WantRefused(y.admin.Post(path, mine), http.StatusUnprocessableEntity)
	d.Want("Maximum speed (km/h) (no. 1)", "Maximum speed (km/h) (no. 2)", "Maximum speed (km/h) (no. 3)")
	y.admin.Follow(y.admin.Post(path, formOf(d)))
	if rules := l.subaccount().GlobalRules; len(rules) != 1 || *rules[0].MaximumSpeed != 21 {
		t.Errorf("got %+v", rules)
	}
}

// TestSegmentsAddedByOthers: saving a plan again, also after more rows were asked for, stores the rows of the
// form and none that others have added.
func TestSegmentsAddedByOthers(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	path := "/fleet/pricing/" + l.plan.ID + "/edit"
	set := func(form url.Values, row, rate, start string) url.Values {
		form = with(form, "per_min_pricing."+row+".rate_amount", rate)
		form.Set("per_min_pricing."+row+".start", start)
		return form
	}
	reset := set(formOf(y.admin.Page(path)), "0", "0.20", "")
	y.admin.Follow(y.admin.Post(path, reset))
	for _, more := range []bool{false, true} {
		mine := formOf(y.admin.Page(path))
		theirs := set(set(set(mine, "1", "0.10", "10"), "2", "0.20", "60"), "3", "0.30", "90")
		theirs.Set("per_km_pricing.0.rate_amount", "1.50")
		y.admin.Follow(y.admin.Post(path, theirs))
		mine.Set("per_min_pricing.0.rate_amount", "0.25")
		if more {
			mine = formOf(y.admin.WantRefused(y.admin.Post(path, with(mine, "more", "1")), http.StatusOK))
		}
		d := y.admin.WantRefused(y.admin.Post(path, mine), http.StatusUnprocessableEntity)
		d.Want("Costs (price by time, no. 3)", "Costs (price by distance, no. 1)")
		y.admin.Follow(y.admin.Post(path, formOf(d)))
		plan, err := l.Plan(t.Context(), l.db, l.organization.ID, l.plan.ID)
		if err != nil || len(plan.PerMinute) != 1 || plan.PerMinute[0].Rate != 25 || len(plan.PerKilometer) != 0 {
			t.Errorf("more rows %t: got %+v, %+v, %v", more, plan.PerMinute, plan.PerKilometer, err)
		}
	}
}

// TestTypeAddedToPlanDuringUpload: a vehicle type that others add to a plan during the upload of its form
// does not lose the plan unseen.
func TestTypeAddedToPlanDuringUpload(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	path := "/fleet/pricing/" + l.plan.ID + "/edit"
	y.admin.WantRefused(y.postDuring(path, with(formOf(y.admin.Page(path)), "name", "Mine"), func() {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			sub, err := l.LockSubaccountTx(ctx, tx, l.organization.ID, l.sub.ID)
			if err != nil {
				return err
			}
			sub, err = l.UpdateSubaccountTx(ctx, tx, l.organization.ID, sub, fleet.SubaccountChange{
				VehicleTypes: optional.Of(append(slices.Clone(sub.VehicleTypes), fleet.VehicleType{Name: "Bike", FormFactor: "bicycle", PropulsionType: "human"})),
			})
			if err != nil {
				return err
			}
			plan, err := l.LockPlanTx(ctx, tx, l.organization.ID, l.plan.ID)
			if err == nil {
				_, err = l.UpdatePlanTx(ctx, tx, l.organization.ID, plan, fleet.PlanChange{VehicleTypeIDs: optional.Of([]string{sub.VehicleTypes[1].ID})})
			}
			return err
		})
	}), http.StatusUnprocessableEntity).Want("Save again to replace what is stored in: Name; For Bike.")
}

// TestAdjustmentByOthers: a refund by others is not taken back unseen, nor is their reason to block a rider.
func TestAdjustmentByOthers(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	l.priceByUnlocking()
	ride := l.ride(fleet.Active)
	path := "/fleet/rides/" + ride.ID
	y.agent.Follow(y.agent.Post(path+"/end", url.Values{"end_reason": {"operator"}}))
	mine := formOf(y.agent.Page(path + "/adjust"))
	theirs := with(with(with(mine, "payment_status", "refunded"), "adjustment_amount", "-0.50"), "adjustment_reason", "goodwill")
	y.admin.Follow(y.admin.Post(path+"/adjust", theirs))
	d := y.agent.WantRefused(y.agent.Post(path+"/adjust", with(mine, "payment_status", "paid")), http.StatusUnprocessableEntity)
	d.Want("Save again to replace what is stored in: Payment; Adjustment, in EUR; Reason.")
	if got := l.at(ride.ID); got.AdjustmentAmount != -50 || got.PaymentStatus != "refunded" {
		t.Errorf("got %d, %s", got.AdjustmentAmount, got.PaymentStatus)
	}
	y.agent.Follow(y.agent.Post(path+"/adjust", formOf(d)))
	if got := l.at(ride.ID); got.AdjustmentAmount != 0 || got.PaymentStatus != "paid" {
		t.Errorf("saved again: got %d, %s", got.AdjustmentAmount, got.PaymentStatus)
	}

	// A late report corrects the price that the form shows.
	mine = formOf(y.agent.Page(path + "/adjust"))
	l.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE rides SET doc = replace(doc, '"subtotal_amount":100', '"subtotal_amount":140') WHERE id = $1`, ride.ID)
		return err
	})
	d = y.agent.WantRefused(y.agent.Post(path+"/adjust", with(with(mine, "adjustment_amount", "-1.00"), "adjustment_reason", "refund")), http.StatusUnprocessableEntity)
	d.Want("This was changed since the form was opened.")

	block := "/fleet/riders/" + string(ride.CustomerID) + "/block"
	mine = formOf(y.admin.Page(block))
	y.admin.Follow(y.admin.Post(block, with(mine, "block_reason", "stole a scooter")))
	d = y.admin.WantRefused(y.admin.Post(block, with(mine, "block_reason", "rude")), http.StatusUnprocessableEntity)
	d.Want("Save again to replace what is stored in: Reason.")
	y.admin.Follow(y.admin.Post(block, formOf(d)))
	y.admin.Page("/fleet/riders/" + string(ride.CustomerID)).Want("rude")
}

// TestElementDeletedByOthers: the form of an element that others have deleted is shown again with its values.
func TestElementDeletedByOthers(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	at := "/fleet/subaccounts/" + l.sub.ID
	y.admin.Follow(y.admin.Post(at+"/types/new", url.Values{"name": {"Bike"}, "form_factor": {"bicycle"}, "propulsion_type": {"human"}}))
	y.admin.Follow(y.admin.Post(at+"/alerts/new", url.Values{"type": {"other"}, "summary": {"Rain"}}))
	y.admin.Follow(y.admin.Post(at+"/agencies/new", url.Values{"name": {"City"}, "id": {"berlin"}, "public_key": {agencyKey(t)}}))
	for _, path := range []string{
		at + "/types/" + l.subaccount().VehicleTypes[1].ID, at + "/alerts/" + l.subaccount().Alerts[0].ID, at + "/agencies/berlin",
	} {
		form := formOf(y.admin.Page(path))
		field := "name"
		if !form.Has(field) {
			field = "summary"
		}
		form.Set(field, "Typed")
		y.admin.Follow(y.admin.Post(path+"/delete", nil))
		y.admin.WantRefused(y.admin.Get(path), http.StatusNotFound)
		d := y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity)
		d.Want("Others have deleted this, or changed its id, since the form was opened.")
		if again := formOf(d); again.Get(field) != "Typed" {
			t.Errorf("%s: %s is shown again as %q", path, field, again.Get(field))
		}
	}
}

// TestLines: lines of metadata that were not edited remain as they are stored, and errors name the line.
func TestLines(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	var v fleet.Vehicle
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		v, err = l.CreateVehicleTx(ctx, tx, l.organization.ID, fleet.NewVehicle{
			SubaccountID: l.sub.ID, Code: "M-1", VehicleTypeID: l.scooter, Metadata: map[string]string{"a:b": "v", "depot": "north", "note": "Ring twice\ncode: 1234"},
		}, fleet.Actor{Type: "system"})
		return err
	})
	path := "/fleet/vehicles/" + v.ID + "/edit"
	form := formOf(y.admin.Page(path))
	y.admin.Follow(y.admin.Post(path, with(form, "metadata", "a:b: v\r\ndepot: south\r\nnote: Ring twice⏎code: 1234")))
	if got, err := l.Vehicle(t.Context(), l.db, l.organization.ID, v.ID); err != nil || !maps.Equal(got.Metadata, map[string]string{"a:b": "v", "depot": "south", "note": "Ring twice\ncode: 1234"}) {
		t.Errorf("got %v, %v", got.Metadata, err)
	}
	y.admin.Follow(y.admin.Post(path, with(formOf(y.admin.Page(path)), "metadata", "a:b: w\ndepot: south\nnote: Ring⏎code: 1")))
	if got, err := l.Vehicle(t.Context(), l.db, l.organization.ID, v.ID); err != nil || got.Metadata["a:b"] != "w" || got.Metadata["note"] != "Ring\ncode: 1" {
		t.Errorf("an edited value: got %v, %v", got.Metadata, err)
	}
	form = formOf(y.admin.Page(path))
	for text, want := range map[string]string{
		"depot: " + strings.Repeat("x", 501): "in “depot”.",
		"depot: north\ndepot: south":         "Metadata has two lines of “depot”.",
		"a:b: v\nroof":                       "Metadata must be lines such as depot: north.",
	} {
		y.admin.WantRefused(y.admin.Post(path, with(form, "metadata", text)), http.StatusUnprocessableEntity).Want(want)
	}
	y.admin.WantRefused(y.admin.Post("/fleet/tasks/new", url.Values{
		"vehicle_id": {"M-1"}, "title": {"Check"}, "kind": {"repair"}, "priority": {"normal"}, "checklist": {"Brake\n \n" + strings.Repeat("x", 300)},
	}), http.StatusUnprocessableEntity).Want("in line 3.")
	y.admin.WantRefused(y.admin.Post("/fleet/tasks/new", url.Values{
		"vehicle_id": {"M-1"}, "title": {"Check"}, "kind": {"repair"}, "priority": {"normal"}, "assignee_id": {"usr_stranger"},
	}), http.StatusUnprocessableEntity).Want("Assignee must be a member of")
}

// TestFormSentTwice: a form that is sent again, since its answer was lost, is saved once. One that was edited
// is another.
func TestFormSentTwice(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	v := l.vehicle()
	square := "52.50, 13.30\n52.50, 13.40\n52.55, 13.40\n52.55, 13.30"
	at := "/fleet/subaccounts/" + l.sub.ID
	for _, tt := range []struct {
		path, field string
		values      map[string]string
		table       string // empty: lists of the subaccount
	}{
		{at + "/types/new", "name", map[string]string{"form_factor": "bicycle", "propulsion_type": "human"}, ""},
		{at + "/alerts/new", "summary", nil, ""},
		{"/fleet/tasks/new?vehicle=" + v.ID, "title", map[string]string{"vehicle_id": v.Code}, "tasks"},
		{"/fleet/riders/new", "name", nil, "customers"},
		{"/fleet/pricing/new", "name", map[string]string{"unlock_amount": "1"}, "plans"},
		{"/fleet/zones/new", "name", map[string]string{"geometry": square}, "zones"},
		{"/fleet/alert-rules/new?kind=silence", "name", map[string]string{"threshold": "60"}, "alert_rules"},
	} {
		count := func() (n int) {
			if tt.table == "" {
				return len(l.subaccount().VehicleTypes) + len(l.subaccount().Alerts)
			}
			if err := l.db.QueryRow(t.Context(), "SELECT count(*) FROM "+tt.table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := count()
		form := formOf(y.admin.Page(tt.path))
		for name, value := range tt.values {
			form.Set(name, value)
		}
		form.Set(tt.field, "First")
		y.admin.Follow(y.admin.Post(tt.path, form))
		y.admin.WantRefused(y.admin.Post(tt.path, form), http.StatusConflict).Want("This form was saved before. It was not saved again.")
		if got := count() - before; got != 1 {
			t.Errorf("%s: %d rows were added, want 1", tt.path, got)
		}
		y.admin.Follow(y.admin.Post(tt.path, with(form, tt.field, "Second")))
	}
}
