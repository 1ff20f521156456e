package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

func (y *yard) tryTask(t testing.TB, n fleet.NewTask) (task fleet.Task, err error) {
	err = y.try(t, func(ctx context.Context, tx *db.Tx) error {
		task, err = y.CreateTaskTx(ctx, tx, y.org, n, testActor)
		return err
	})
	return task, err
}

// task creates a repair of a vehicle.
func (y *yard) task(t testing.TB, v fleet.Vehicle, change ...func(*fleet.NewTask)) fleet.Task {
	t.Helper()
	n := fleet.NewTask{VehicleID: v.ID, Kind: fleet.Repair, Title: "Replace the brake"}
	for _, fn := range change {
		fn(&n)
	}
	task, err := y.tryTask(t, n)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (y *yard) tryPutTask(t testing.TB, id string, c fleet.TaskChange) (task fleet.Task, err error) {
	err = y.try(t, func(ctx context.Context, tx *db.Tx) error {
		if task, err = y.LockTaskTx(ctx, tx, y.org, id); err != nil {
			return err
		}
		task, err = y.UpdateTaskTx(ctx, tx, y.org, task, c, testActor)
		return err
	})
	return task, err
}

func (y *yard) putTask(t testing.TB, id string, c fleet.TaskChange) fleet.Task {
	t.Helper()
	task, err := y.tryPutTask(t, id, c)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (y *yard) storedTask(t testing.TB, id string) fleet.Task {
	t.Helper()
	task, err := y.Task(t.Context(), y.db, y.org, id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func takesOut(n *fleet.NewTask) { n.TakesVehicleOut = true }

// is is a change of only the state.
func is(state fleet.TaskState) fleet.TaskChange {
	return fleet.TaskChange{State: optional.Of(state)}
}

// sound checks the invariants of the database.
func (y *yard) sound(t testing.TB) {
	t.Helper()
	for _, i := range fleet.Invariants() {
		broken, err := db.All(t.Context(), y.db, func(row db.Row) (id string, err error) {
			err = row.Scan(&id)
			return id, err
		}, i.Broken)
		if err != nil || len(broken) > 0 {
			t.Errorf("%s: broken for %q, %v", i.Name, broken, err)
		}
	}
}

func TestTaskStates(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	for _, c := range []struct {
		path []fleet.TaskState
		want string
	}{
		{[]fleet.TaskState{fleet.TaskDone}, "none"},
		{[]fleet.TaskState{fleet.TaskInProgress, fleet.TaskOpen, fleet.TaskInProgress, fleet.TaskDone}, "none"},
		{[]fleet.TaskState{fleet.TaskCancelled, fleet.TaskCancelled}, "none"},
		{[]fleet.TaskState{fleet.TaskDone, fleet.TaskOpen}, "invalid_transition"},
		{[]fleet.TaskState{fleet.TaskCancelled, fleet.TaskDone}, "invalid_transition"},
		{[]fleet.TaskState{"lost"}, "state invalid_value"},
	} {
		task := y.task(t, v)
		var err error
		for _, state := range c.path {
			task, err = y.tryPutTask(t, task.ID, is(state))
		}
		wantFaults(t, fmt.Sprint(c.path), err, c.want)
		if closed := !task.State.Open(); err == nil && closed != (task.ClosedBy != nil) {
			t.Errorf("%v: closed by %v", c.path, task.ClosedBy)
		}
	}
	y.sound(t)
}

func TestTaskFields(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	y.task(t, v, func(n *fleet.NewTask) { n.ExternalID = "t-1" })
	for _, c := range []struct {
		name   string
		change func(*fleet.NewTask)
		want   string
	}{
		{"no vehicle", func(n *fleet.NewTask) { n.VehicleID = "" }, "vehicle_id required"},
		{"an unknown vehicle", func(n *fleet.NewTask) { n.VehicleID = "veh_1" }, "vehicle_id not_found"},
		{"no title", func(n *fleet.NewTask) { n.Title = "" }, "title required"},
		{"a title of two lines", func(n *fleet.NewTask) { n.Title = "a\nb" }, "title invalid_format"},
		{"an unknown kind", func(n *fleet.NewTask) { n.Kind = "wash" }, "kind invalid_value"},
		{"an unknown priority", func(n *fleet.NewTask) { n.Priority = "top" }, "priority invalid_value"},
		{"an empty item", func(n *fleet.NewTask) { n.Checklist = []fleet.TaskItem{{Text: "a"}, {}} }, "checklist.1.text required"},
		{"a long checklist", func(n *fleet.NewTask) { n.Checklist = slices.Repeat([]fleet.TaskItem{{Text: "a"}}, 51) }, "checklist too_long"},
		{"an empty recurrence", func(n *fleet.NewTask) { n.Recurrence = &fleet.Recurrence{} }, "recurrence required"},
		{"a negative recurrence", func(n *fleet.NewTask) { n.Recurrence = &fleet.Recurrence{Days: -1} }, "recurrence.days too_small"},
		{"a taken external id", func(n *fleet.NewTask) { n.ExternalID = "t-1" }, "already_exists external_id"},
	} {
		n := fleet.NewTask{VehicleID: v.ID, Title: "Check"}
		c.change(&n)
		_, err := y.tryTask(t, n)
		wantFaults(t, c.name, err, c.want)
	}
}

// A vehicle leaves service with its task, and returns with the last one.
func TestTaskTakesVehicleOut(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	first, second := y.task(t, v, takesOut), y.task(t, v, takesOut)
	other := y.task(t, v)
	if got := y.storedVehicle(t, v.ID); got.State != fleet.NonOperational || got.LastEvent != "maintenance" {
		t.Fatalf("with tasks: %s by %s", got.State, got.LastEvent)
	}
	_, err := y.tryPutVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Available)})
	wantFaults(t, "available with tasks", err, "invalid_transition")
	first = y.putTask(t, first.ID, is(fleet.TaskDone))
	if r := first.VehicleReturn; r == nil || r.Returned || r.Code != "open_tasks" {
		t.Errorf("after the first task: %+v", r)
	}
	second = y.putTask(t, second.ID, is(fleet.TaskCancelled))
	if r := second.VehicleReturn; r == nil || !r.Returned {
		t.Errorf("after the last task: %+v", r)
	}
	if other = y.putTask(t, other.ID, is(fleet.TaskDone)); other.VehicleReturn != nil {
		t.Errorf("after a task that took no vehicle out: %+v", other.VehicleReturn)
	}
	want := []string{"provider_drop_off available", "maintenance non_operational", "maintenance available"}
	if got := y.history(t, v.ID); !slices.Equal(got, want) {
		t.Errorf("history %q, want %q", got, want)
	}
	y.sound(t)
}

// What prevents the return is in the answer, and the vehicle stays.
func TestTaskVehicleStays(t *testing.T) {
	y := newYard(t)
	level := func(percent int64) fleet.VehicleChange {
		return fleet.VehicleChange{BatteryPercent: optional.Of(percent)}
	}
	for _, c := range []struct {
		name  string
		act   func(v fleet.Vehicle)
		code  fleet.NullString
		state fleet.VehicleState
	}{
		{"nothing", func(v fleet.Vehicle) {}, "", fleet.Available},
		{"a low battery", func(v fleet.Vehicle) { y.putVehicle(t, v.ID, level(3)) }, "vehicle_low_battery", fleet.NonOperational},
		{"a pick-up", func(v fleet.Vehicle) {
			y.putVehicle(t, v.ID, fleet.VehicleChange{State: optional.Of(fleet.Removed)})
		}, "invalid_transition", fleet.Removed},
	} {
		v := y.vehicle(t)
		task := y.task(t, v, takesOut)
		c.act(v)
		task = y.putTask(t, task.ID, is(fleet.TaskDone))
		if r := task.VehicleReturn; r == nil || r.Code != c.code || r.Returned != (c.code == "") {
			t.Errorf("%s: %+v, want %q", c.name, r, c.code)
		}
		if got := y.storedVehicle(t, v.ID).State; got != c.state {
			t.Errorf("%s: the vehicle is %s, want %s", c.name, got, c.state)
		}
	}
	y.sound(t)
}

// A charged battery does not end what a task began, and a task does not end what the battery began.
func TestTaskAndBattery(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	level := func(percent int64) { y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(percent)}) }
	level(3)
	task := y.task(t, v, takesOut)
	level(100)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.NonOperational {
		t.Errorf("charged with a task: %s", got)
	}
	level(3)
	y.putTask(t, task.ID, is(fleet.TaskDone))
	if got := y.storedVehicle(t, v.ID).State; got != fleet.NonOperational {
		t.Errorf("repaired with a low battery: %s", got)
	}
	level(100)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.Available {
		t.Errorf("repaired and charged: %s", got)
	}
}

// A task of a vehicle on a ride takes it out of service when the ride ends.
func TestTaskDuringRide(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Active, v)
	task := y.task(t, v, takesOut)
	if got := y.storedVehicle(t, v.ID).State; got != fleet.OnTrip {
		t.Fatalf("during the ride: %s", got)
	}
	y.put(t, r.ID, fleet.RideChange{Status: optional.Of(fleet.Completed)})
	if got := y.storedVehicle(t, v.ID); got.State != fleet.NonOperational || got.LastEvent != "maintenance" {
		t.Fatalf("after the ride: %s by %s", got.State, got.LastEvent)
	}
	if task = y.putTask(t, task.ID, is(fleet.TaskDone)); !task.VehicleReturn.Returned || y.storedVehicle(t, v.ID).State != fleet.Available {
		t.Errorf("after the task: %+v", task.VehicleReturn)
	}
}

// A task prevents the start of a reservation, and takes the vehicle out of service when that ends.
func TestTaskOfReservedVehicle(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	r := y.ride(t, fleet.Reserved, v)
	y.task(t, v, takesOut)
	_, err := y.tryPut(t, r.ID, to(fleet.Active))
	wantFaults(t, "start", err, "vehicle_unavailable")
	y.put(t, r.ID, to(fleet.Cancelled))
	if got := y.storedVehicle(t, v.ID).State; got != fleet.NonOperational {
		t.Errorf("after the reservation: %s", got)
	}
}

func TestTaskRecurs(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t, func(n *fleet.NewVehicle) { n.OdometerMeters = new(int64(700_000)) })
	task := y.task(t, v, takesOut, func(n *fleet.NewTask) {
		n.Recurrence = &fleet.Recurrence{Days: 90, Meters: 500_000}
		n.Checklist = []fleet.TaskItem{{Text: "Brakes", Done: true}}
		n.TicketNumber = new(int64(7))
	})
	done := y.putTask(t, task.ID, is(fleet.TaskDone))
	next := y.storedTask(t, string(done.NextTaskID))
	if due := next.DueAt.Std().Sub(done.ClosedAt.Std()); due != 90*24*time.Hour || next.DueOdometerMeters == nil || *next.DueOdometerMeters != 1_200_000 {
		t.Errorf("next is due after %v and at %v m", due, next.DueOdometerMeters)
	}
	if next.State != fleet.TaskOpen || next.PreviousTaskID != fleet.NullString(done.ID) || next.Checklist[0].Done || next.TicketNumber != nil {
		t.Errorf("next: %+v", next)
	}
	if got := y.storedVehicle(t, v.ID).State; got != fleet.Available {
		t.Errorf("before the next task is started: %s", got)
	}
	y.putTask(t, next.ID, is(fleet.TaskInProgress))
	if got := y.storedVehicle(t, v.ID).State; got != fleet.NonOperational {
		t.Errorf("once the next task is started: %s", got)
	}
	if next = y.putTask(t, next.ID, is(fleet.TaskCancelled)); next.NextTaskID != "" {
		t.Error("a cancelled task recurs")
	}
	y.sound(t)
}

// A task that recurs is due at the same time of day as the former one was done, by the subaccount's clocks.
func TestTaskRecursInTimeZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // from 2000-01-01; the clocks of Berlin are changed on 03-26 and 10-29
		y := furnish(t, newSiteOn(t, dbtest.NewFleetSQLite(t), true))
		y.changeSub(t, fleet.SubaccountChange{TimeZone: optional.Of("Europe/Berlin")})
		v := y.vehicle(t)
		for days, want := range map[int64]time.Duration{
			84:  84 * 24 * time.Hour, // 03-25
			90:  90*24*time.Hour - time.Hour,
			330: 330 * 24 * time.Hour,
		} {
			task := y.task(t, v, func(n *fleet.NewTask) { n.Recurrence = &fleet.Recurrence{Days: days} })
			done := y.putTask(t, task.ID, is(fleet.TaskDone))
			next := y.storedTask(t, string(done.NextTaskID))
			if due := next.DueAt.Std().Sub(done.ClosedAt.Std()); due != want {
				t.Errorf("%d days: due after %v, want %v", days, due, want)
			}
		}
	})
}

// Time and distance make tasks overdue, by reports and by requests alike.
func TestTaskBecomesOverdue(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t, func(n *fleet.NewVehicle) { n.OdometerMeters = new(int64(1000)) })
	now := v.CreatedAt
	inTime := y.task(t, v, func(n *fleet.NewTask) { n.DueAt = rfc3339.Time(now.Std().Add(48 * time.Hour)) })
	near := y.task(t, v, func(n *fleet.NewTask) { n.DueOdometerMeters = new(int64(2000)) })
	far := y.task(t, v, func(n *fleet.NewTask) { n.DueOdometerMeters = new(int64(3000)) })
	overdue := func() (list []string) {
		for _, task := range []fleet.Task{inTime, near, far} {
			if y.storedTask(t, task.ID).Overdue {
				list = append(list, task.ID)
			}
		}
		return list
	}
	want := func(when string, list ...string) {
		t.Helper()
		if got := overdue(); !slices.Equal(got, list) {
			t.Errorf("%s: overdue are %q, want %q", when, got, list)
		}
	}
	want("at first")
	y.after(t, now, 47*time.Hour)
	want("an hour before")
	y.after(t, now, 49*time.Hour)
	want("an hour after", inTime.ID)
	y.putVehicle(t, v.ID, fleet.VehicleChange{OdometerMeters: optional.Of(int64(2000))})
	want("at 2 km", inTime.ID, near.ID)
	at, err := y.Now(t.Context(), y.db, y.org)
	if err != nil {
		t.Fatal(err)
	}
	report := fleet.Report{Vehicle: fleet.VehicleRef{ID: v.ID}, Data: track.Report{At: at.UnixMilli()}}
	report.Data.Set(track.Odometer, 3500)
	y.write(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := y.RecordTelemetryTx(ctx, tx, y.org, []fleet.Report{report}, func(string) bool { return true })
		return err
	})
	want("at 3.5 km", inTime.ID, near.ID, far.ID)
	y.putTask(t, near.ID, fleet.TaskChange{DueOdometerMeters: optional.Of(int64(9000))})
	y.putTask(t, far.ID, is(fleet.TaskDone))
	want("after changes", inTime.ID)
	y.sound(t)
}

// A vehicle that was silent while it was repaired is available as soon as it reports.
func TestSilentInTheWorkshop(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	task := y.task(t, v, func(n *fleet.NewTask) { n.TakesVehicleOut = true })
	y.after(t, v.CreatedAt, 45*time.Minute)
	if v = y.storedVehicle(t, v.ID); v.State != fleet.NonContactable {
		t.Fatalf("it is %s", v.State)
	}
	task = y.putTask(t, task.ID, is(fleet.TaskDone))
	if back := task.VehicleReturn; back == nil || back.Returned || back.Code != "no_contact" {
		t.Errorf("its return: %+v", back)
	}
	if v = y.storedVehicle(t, v.ID); v.State != fleet.NonContactable {
		t.Errorf("without a report it is %s", v.State)
	}
	y.putVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(90))})
	if v = y.storedVehicle(t, v.ID); v.State != fleet.Available || v.LastEvent != "comms_restored" {
		t.Errorf("after a report it is %s by %s", v.State, v.LastEvent)
	}
	// So it is if the task did not begin before the silence.
	y.travel(t, 45*time.Minute)
	task = y.task(t, v, takesOut)
	if back := y.putTask(t, task.ID, is(fleet.TaskDone)).VehicleReturn; back == nil || back.Returned || back.Code != "no_contact" {
		t.Errorf("the return of an available one: %+v", back)
	}
	y.sound(t)

	// With an empty battery it stays, and says so.
	low := y.vehicle(t)
	task = y.task(t, low, func(n *fleet.NewTask) { n.TakesVehicleOut = true })
	y.putVehicle(t, low.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(1))})
	y.after(t, low.CreatedAt, 45*time.Minute)
	if back := y.putTask(t, task.ID, is(fleet.TaskDone)).VehicleReturn; back == nil || back.Returned || back.Code == "no_contact" {
		t.Errorf("the return of an empty one: %+v", back)
	}
	y.sound(t)
}

// The events of a task have its vehicle as their subject.
func TestTaskEvents(t *testing.T) {
	y := newYard(t)
	if err := y.RecordEvents(t.Context(), []string{y.org}); err != nil {
		t.Fatal(err)
	}
	v := y.vehicle(t)
	task := y.task(t, v, func(n *fleet.NewTask) { n.DueAt = rfc3339.Time(v.CreatedAt.Std().Add(time.Hour)) })
	y.after(t, v.CreatedAt, 2*time.Hour)
	y.putTask(t, task.ID, is(fleet.TaskInProgress))
	y.putTask(t, task.ID, is(fleet.TaskDone))
	list, err := y.EventsAfter(t.Context(), y.db, y.org, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		if e.Subject != v.ID {
			t.Errorf("%s has the subject %s", e.Name, e.Subject)
		}
		var data struct{ Changed []string }
		decode(t, e.Data, &data)
		got = append(got, strings.Join(append([]string{string(e.Name)}, data.Changed...), " "))
	}
	want := []string{"vehicle.created", "task.created", "vehicle.state_changed", "vehicle.comms_lost", "task.updated overdue", "task.overdue", "task.updated started_at state", "task.done closed_at closed_by overdue state"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A task sends task.overdue once for each due time and due odometer, though its due time is moved to
// and fro.
func TestTaskOverdueEvents(t *testing.T) {
	y := newYard(t)
	if err := y.RecordEvents(t.Context(), []string{y.org}); err != nil {
		t.Fatal(err)
	}
	v := y.vehicle(t, func(n *fleet.NewVehicle) { n.OdometerMeters = new(int64(1000)) })
	in := func(hours int) rfc3339.Time {
		return rfc3339.Time(v.CreatedAt.Std().Add(time.Duration(hours) * time.Hour))
	}
	want := func(when string, n int) {
		t.Helper()
		list, err := y.EventsAfter(t.Context(), y.db, y.org, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, e := range list {
			if e.Name == event.TaskOverdue {
				got++
			}
		}
		if got != n {
			t.Errorf("%s: %d events, want %d", when, got, n)
		}
	}
	task := y.task(t, v, func(n *fleet.NewTask) { n.DueAt, n.DueOdometerMeters = in(2), new(int64(2000)) })
	y.after(t, v.CreatedAt, time.Hour)
	want("before", 0)
	y.after(t, v.CreatedAt, 3*time.Hour)
	want("by time", 1)
	y.putVehicle(t, v.ID, fleet.VehicleChange{OdometerMeters: optional.Of(int64(2500))})
	y.putTask(t, task.ID, fleet.TaskChange{Title: optional.Of("Replace both brakes")})
	want("by distance too", 1)
	y.putTask(t, task.ID, fleet.TaskChange{DueAt: optional.Of(in(9)), DueOdometerMeters: optional.Value[int64]{Set: true, Null: true}})
	y.putTask(t, task.ID, fleet.TaskChange{DueAt: optional.Of(in(2))})
	want("the former due time again", 1)
	y.putTask(t, task.ID, fleet.TaskChange{DueAt: optional.Of(in(1))})
	want("another due time of the past", 2)
	y.putTask(t, task.ID, fleet.TaskChange{DueAt: optional.Of(in(9))})
	y.after(t, v.CreatedAt, 10*time.Hour)
	want("a later due time", 3)
	y.task(t, v, func(n *fleet.NewTask) { n.DueOdometerMeters = new(int64(2400)) })
	want("a new task past its odometer", 4)
	near := y.task(t, v, func(n *fleet.NewTask) { n.DueOdometerMeters = new(int64(3000)) })
	y.putVehicle(t, v.ID, fleet.VehicleChange{OdometerMeters: optional.Of(int64(3000))})
	want("by distance", 5)
	y.putTask(t, near.ID, is(fleet.TaskDone))
	want("done", 5)
	if waiting, err := y.WaitingTasks(t.Context()); err != nil || len(waiting) != 0 {
		t.Errorf("the sandbox notifies people: %q, %v", waiting, err)
	}
	y.sound(t)
}

func TestTaskChecklist(t *testing.T) {
	y := newYard(t)
	task := y.task(t, y.vehicle(t), func(n *fleet.NewTask) { n.Checklist = []fleet.TaskItem{{Text: "Lights"}, {Text: "Brakes"}} })
	tick := func(done ...bool) fleet.TaskChange {
		list := slices.Clone(task.Checklist)
		for i := range list {
			list[i].Done = done[i]
		}
		return fleet.TaskChange{Checklist: optional.Of(list)}
	}
	first := y.putTask(t, task.ID, tick(true, false))
	y.after(t, task.CreatedAt, time.Hour)
	second := y.putTask(t, task.ID, tick(true, true))
	if second.Checklist[0].DoneAt != first.Checklist[0].DoneAt || second.Checklist[1].DoneAt.Std().Sub(task.CreatedAt.Std()) < time.Hour || *second.Checklist[1].DoneBy != testActor {
		t.Errorf("checklist %+v", second.Checklist)
	}
	if third := y.putTask(t, task.ID, tick(false, true)); third.Checklist[0].DoneBy != nil || !third.Checklist[0].DoneAt.Std().IsZero() {
		t.Errorf("an item no longer done: %+v", third.Checklist[0])
	}
}

func picture(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 4, 3))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTaskPhotos(t *testing.T) {
	y := newYard(t)
	task := y.task(t, y.vehicle(t))
	add := func(file []byte) error {
		return y.try(t, func(ctx context.Context, tx *db.Tx) (err error) {
			if task, err = y.LockTaskTx(ctx, tx, y.org, task.ID); err == nil {
				task, err = y.AddTaskPhotoTx(ctx, tx, y.org, task, file, testActor)
			}
			return err
		})
	}
	wantFaults(t, "a text", add([]byte("<svg onload=alert(1)>")), "photo invalid_format")
	wantFaults(t, "a large file", add(append(picture(t), make([]byte, fleet.MaxPhotoFile)...)), "photo too_large")
	for range 10 {
		wantFaults(t, "a picture", add(picture(t)), "none")
	}
	wantFaults(t, "one too many", add(picture(t)), "photo too_long")
	task = y.storedTask(t, task.ID)
	p, content, err := y.TaskPhoto(t.Context(), y.db, y.org, &task, task.Photos[3].ID)
	if err != nil || p.ContentType != "image/png" || p.Width != 4 || !bytes.Equal(content, picture(t)) {
		t.Errorf("photo %+v, %v", p, err)
	}
	y.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		if task, err = y.LockTaskTx(ctx, tx, y.org, task.ID); err == nil {
			task, err = y.DeleteTaskPhotoTx(ctx, tx, y.org, task, p.ID, testActor)
		}
		return err
	})
	if _, _, err := y.TaskPhoto(t.Context(), y.db, y.org, &task, p.ID); len(task.Photos) != 9 || faults(err) != "not found" {
		t.Errorf("after its deletion: %d photos, %v", len(task.Photos), err)
	}
	if n, err := y.PhotoBytes(t.Context(), y.db, y.org); err != nil || n != 9*p.Size {
		t.Errorf("photos have %d bytes, %v; want %d", n, err, 9*p.Size)
	}
	y.sound(t)
}

func TestListTasks(t *testing.T) {
	y := newYard(t)
	there := elsewhere(t, y)
	there.changeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of([]fleet.VehicleType{scooter()})})
	there.scooter = there.sub.VehicleTypes[0].ID
	there.n = 100
	v, w := y.vehicle(t), there.vehicle(t)
	past := rfc3339.Time(v.CreatedAt.Std().Add(-time.Hour))
	names := map[string]string{}
	add := func(name string, v fleet.Vehicle, change ...func(*fleet.NewTask)) {
		names[y.task(t, v, change...).ID] = name
	}
	add("a", v, func(n *fleet.NewTask) { n.DueAt = past })
	add("b", v, func(n *fleet.NewTask) { n.AssigneeID, n.Kind = "ada", fleet.Cleaning })
	add("c", w, func(n *fleet.NewTask) { n.TicketNumber = new(int64(12)) })
	for _, c := range []struct {
		name  string
		query fleet.TaskQuery
		want  string
	}{
		{"all", fleet.TaskQuery{}, "cba"},
		{"of a vehicle", fleet.TaskQuery{VehicleID: []string{v.ID}}, "ba"},
		{"in a scope", fleet.TaskQuery{Subaccounts: []string{there.sub.ID}}, "c"},
		{"out of scope", fleet.TaskQuery{Subaccounts: []string{there.sub.ID}, Subaccount: []string{y.sub.ID}}, ""},
		{"overdue", fleet.TaskQuery{Overdue: new(true)}, "a"},
		{"not overdue", fleet.TaskQuery{Overdue: new(false)}, "cb"},
		{"of a person", fleet.TaskQuery{AssigneeID: []string{"ada"}}, "b"},
		{"of a kind", fleet.TaskQuery{Kind: []fleet.WorkKind{fleet.Cleaning}}, "b"},
		{"of a ticket", fleet.TaskQuery{TicketNumber: new(int64(12))}, "c"},
		{"closed", fleet.TaskQuery{State: []fleet.TaskState{fleet.TaskDone}}, ""},
	} {
		list, _, err := y.ListTasks(t.Context(), y.db, y.org, c.query)
		var got strings.Builder
		for _, r := range list {
			got.WriteString(names[r.ID])
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %q, want %q; %v", c.name, got.String(), c.want, err)
		}
	}
	if list, _, err := y.ListTasks(t.Context(), y.db, "org-2", fleet.TaskQuery{}); err != nil || len(list) > 0 {
		t.Errorf("another organization sees %d tasks, %v", len(list), err)
	}
	if _, err := y.Task(t.Context(), y.db, "org-2", y.task(t, v).ID); faults(err) != "not found" {
		t.Errorf("another organization reads a task: %v", err)
	}
}

// Tasks of a vehicle that are closed at the same time return it to service once.
func TestTasksAtTheSameTime(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	const tasks = 8
	ids := make(chan string, tasks)
	var all sync.WaitGroup
	for range tasks {
		all.Go(func() {
			task, err := y.tryTask(t, fleet.NewTask{VehicleID: v.ID, Title: "Check", TakesVehicleOut: true})
			if err != nil {
				t.Error(err)
			}
			ids <- task.ID
		})
	}
	all.Wait()
	close(ids)
	for id := range ids {
		all.Go(func() {
			if _, err := y.tryPutTask(t, id, is(fleet.TaskDone)); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := y.tryPutVehicle(t, v.ID, fleet.VehicleChange{BatteryPercent: optional.Of(int64(70))}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want := []string{"provider_drop_off available", "maintenance non_operational", "maintenance available"}
	if got := y.history(t, v.ID); !slices.Equal(got, want) {
		t.Errorf("history %q, want %q", got, want)
	}
	y.sound(t)
}

// The open tasks of a deleted vehicle are cancelled.
func TestTaskOfDeletedVehicle(t *testing.T) {
	y := newYard(t)
	v := y.vehicle(t)
	open, done := y.task(t, v, takesOut), y.task(t, v)
	y.putTask(t, done.ID, is(fleet.TaskDone))
	y.write(t, func(ctx context.Context, tx *db.Tx) error { return y.DeleteVehicleTx(ctx, tx, y.org, v.ID, testActor) })
	if a, b := y.storedTask(t, open.ID), y.storedTask(t, done.ID); a.State != fleet.TaskCancelled || b.State != fleet.TaskDone {
		t.Errorf("tasks are %s and %s", a.State, b.State)
	}
	if task := y.putTask(t, open.ID, fleet.TaskChange{Title: optional.Of("Scrap")}); task.Title != "Scrap" {
		t.Errorf("title %q", task.Title)
	}
	y.sound(t)
}
