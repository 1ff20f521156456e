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
			if field != "was.stored" && again.Get(field) != form.Get(field) {
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
