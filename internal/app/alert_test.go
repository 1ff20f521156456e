package app

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// TestAlertRelay: an alert has one ticket and one notice per admin, though the process dies between
// the two databases and several processes relay at once.
func TestAlertRelay(t *testing.T) {
	a := withDefaultOrganization(t)
	ctx := t.Context()
	var organizationID, userID string
	if err := a.DB.QueryRow(ctx, "SELECT organization_id, id FROM users").Scan(&organizationID, &userID); err != nil {
		t.Fatal(err)
	}
	raiseAlert(t, a, organizationID)
	waiting, err := a.Fleet.NextAlerts(ctx, organizationID, 10)
	if err != nil || len(waiting) != 1 {
		t.Fatalf("waiting: %+v, %v", waiting, err)
	}
	// The process dies after the commit in the helpdesk.
	if err := a.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := a.Desk.AlertTx(ctx, tx, organizationID, a.deskAlert(&waiting[0], []string{userID}))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := a.relayAlerts(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var tickets, customers int
	if err := a.DB.QueryRow(ctx, "SELECT (SELECT count(*) FROM tickets), (SELECT count(*) FROM customers)").Scan(&tickets, &customers); err != nil || tickets != 1 || customers != 1 {
		t.Errorf("%d tickets of %d customers, %v; want 1 of 1", tickets, customers, err)
	}
	list, err := a.Desk.Notices(ctx, a.DB, organizationID, userID)
	if err != nil || len(list) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	if n := list[0]; n.Kind != desk.NoticeAlert || n.TicketSubject != "A-1: Battery low" || n.Path != "/fleet/vehicles/"+waiting[0].Alert.VehicleID {
		t.Errorf("got %+v", n)
	}
	l, err := a.Fleet.VehicleAlert(ctx, a.Fleet.DB, organizationID, waiting[0].Alert.ID)
	if err != nil || l.TicketNumber == nil || *l.TicketNumber != 1 {
		t.Errorf("got %+v, %v", l, err)
	}
	if left, err := a.Fleet.WaitingAlerts(ctx); err != nil || len(left) != 0 {
		t.Errorf("waiting: %v, %v", left, err)
	}
	if err := a.DB.Write(ctx, func(tx *db.Tx) error {
		return a.Desk.MarkAlertNoticesSeenTx(ctx, tx, organizationID, userID, l.ID)
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Desk.UnreadNotices(ctx, a.DB, organizationID, userID); err != nil || n != 0 {
		t.Errorf("%d unread, %v", n, err)
	}
}

// TestAlertTicketIsUsedAgain: a vehicle that comes and goes has one ticket until it is resolved.
func TestAlertTicketIsUsedAgain(t *testing.T) {
	a := withDefaultOrganization(t)
	ctx := t.Context()
	var organizationID string
	if err := a.DB.QueryRow(ctx, "SELECT organization_id FROM users").Scan(&organizationID); err != nil {
		t.Fatal(err)
	}
	raiseAlert(t, a, organizationID)
	waiting, err := a.Fleet.NextAlerts(ctx, organizationID, 10)
	if err != nil || len(waiting) != 1 {
		t.Fatalf("waiting: %+v, %v", waiting, err)
	}
	again := func() {
		t.Helper()
		if err := a.Fleet.DB.Write(ctx, func(tx *db.Tx) error {
			for _, level := range []int64{50, 25} {
				v, err := a.Fleet.LockVehicleTx(ctx, tx, organizationID, waiting[0].Alert.VehicleID)
				if err != nil {
					return err
				}
				if _, err := a.Fleet.UpdateVehicleTx(ctx, tx, organizationID, v, fleet.VehicleChange{BatteryPercent: optional.Of(level)}, fleet.Actor{Type: "system"}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	tickets := func() (n int) {
		t.Helper()
		if err := a.relayAlerts(ctx); err != nil {
			t.Fatal(err)
		}
		if err := a.DB.QueryRow(ctx, "SELECT count(*) FROM tickets").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	again()
	again() // three alerts wait
	if n := tickets(); n != 1 {
		t.Errorf("%d tickets of an open matter, want 1", n)
	}
	list, _, err := a.Fleet.ListAlerts(ctx, a.Fleet.DB, organizationID, fleet.AlertQuery{})
	if err != nil || len(list) != 3 {
		t.Fatalf("%d alerts, %v; want 3", len(list), err)
	}
	for _, l := range list {
		if !strings.Contains(string(l.JSON), `"ticket_number":1,`) {
			t.Errorf("an alert has no ticket: %s", l.JSON)
		}
	}
	if err := a.DB.Write(ctx, func(tx *db.Tx) error { // merged into the open ticket of a rider
		into, err := a.Desk.CreateTicketTx(ctx, tx, organizationID, desk.NewTicket{Subject: "Flat tyre", Customer: &desk.Person{Name: "Ada"}})
		if err != nil {
			return err
		}
		var id string
		if err := tx.QueryRow(ctx, "SELECT id FROM tickets WHERE number = 1").Scan(&id); err != nil {
			return err
		}
		_, err = a.Desk.MergeTx(ctx, tx, organizationID, id, into.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	again()
	if n := tickets(); n != 2 {
		t.Errorf("%d tickets after the merge, want 2", n)
	}
	if err := a.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE tickets SET status = 'resolved'")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	again()
	if n := tickets(); n != 3 {
		t.Errorf("%d tickets after all are resolved, want 3", n)
	}
}

// TestOverdueTaskRelay: each due time of a task has one notice to its assignee, else to the admins,
// though the process dies between the two databases and several processes relay at once.
func TestOverdueTaskRelay(t *testing.T) {
	a := withDefaultOrganization(t)
	ctx := t.Context()
	var organizationID, userID string
	if err := a.DB.QueryRow(ctx, "SELECT organization_id, id FROM users").Scan(&organizationID, &userID); err != nil {
		t.Fatal(err)
	}
	raiseAlert(t, a, organizationID)
	alerts, err := a.Fleet.NextAlerts(ctx, organizationID, 10)
	if err != nil || len(alerts) != 1 {
		t.Fatalf("alerts: %+v, %v", alerts, err)
	}
	past := func(hours int) rfc3339.Time {
		return rfc3339.Time(a.DB.Now().Add(time.Duration(-hours) * time.Hour))
	}
	system := fleet.Actor{Type: "system"}
	var task fleet.Task
	if err := a.Fleet.DB.Write(ctx, func(tx *db.Tx) (err error) {
		task, err = a.Fleet.CreateTaskTx(ctx, tx, organizationID, fleet.NewTask{VehicleID: alerts[0].Alert.VehicleID, Title: "Brakes", DueAt: past(2)}, system)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	first, err := a.Fleet.NextOverdueTasks(ctx, organizationID, 10)
	if err != nil || len(first) != 1 {
		t.Fatalf("waiting: %+v, %v", first, err)
	}
	// The process dies after the commit in the helpdesk.
	if err := a.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := a.Desk.AlertTx(ctx, tx, organizationID, a.deskOverdueTask(&first[0], []string{userID}))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	relay := func(notices int) {
		t.Helper()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := a.relayOverdueTasks(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		list, err := a.Desk.Notices(ctx, a.DB, organizationID, userID)
		if err != nil || len(list) != notices {
			t.Fatalf("%d notices, %v; want %d", len(list), err, notices)
		}
		if n := list[0]; n.Kind != desk.NoticeAlert || n.TicketSubject != "A-1: task overdue: Brakes" || n.Path != "/fleet/tasks/"+task.ID {
			t.Errorf("got %+v", n)
		}
		if left, err := a.Fleet.WaitingTasks(ctx); err != nil || len(left) != 0 {
			t.Errorf("waiting: %v, %v", left, err)
		}
	}
	update := func(c fleet.TaskChange) {
		t.Helper()
		if err := a.Fleet.DB.Write(ctx, func(tx *db.Tx) error {
			locked, err := a.Fleet.LockTaskTx(ctx, tx, organizationID, task.ID)
			if err != nil {
				return err
			}
			_, err = a.Fleet.UpdateTaskTx(ctx, tx, organizationID, locked, c, system)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	relay(1)
	update(fleet.TaskChange{DueAt: optional.Of(past(1))})
	// Another process notes the first notice late; the second stays.
	if err := a.Fleet.OverdueTaskRelayed(ctx, organizationID, &first[0]); err != nil {
		t.Fatal(err)
	}
	relay(2)
	// A task that was postponed before its notice was written has one, a cancelled one has none.
	update(fleet.TaskChange{DueAt: optional.Of(past(3))})
	update(fleet.TaskChange{DueAt: optional.Of(past(-24))}) // postponed
	relay(3)
	update(fleet.TaskChange{DueAt: optional.Of(past(0))})
	if waiting, err := a.Fleet.WaitingTasks(ctx); err != nil || len(waiting) != 1 {
		t.Fatalf("waiting: %v, %v", waiting, err)
	}
	update(fleet.TaskChange{State: optional.Of(fleet.TaskCancelled)})
	relay(3)
}

// TestTaskRecipients: the assignee, or the admins if there is none who is a member.
func TestTaskRecipients(t *testing.T) {
	members := []account.User{{ID: "1", Role: account.Admin}, {ID: "2", Role: account.Agent}}
	for assignee, want := range map[fleet.NullString]string{"": "1", "1": "1", "2": "2", "gone": "1"} {
		if got := taskRecipients(&fleet.Task{AssigneeID: assignee}, members); len(got) != 1 || got[0] != want {
			t.Errorf("%q: got %q, want %q", assignee, got, want)
		}
	}
}

// raiseAlert raises an alert in production that notifies the admins and creates a ticket.
func raiseAlert(t *testing.T, a *App, organizationID string) {
	t.Helper()
	if err := a.Fleet.Provision(t.Context(), fleet.Organization{ID: organizationID, Name: "First"}); err != nil {
		t.Fatal(err)
	}
	system := fleet.Actor{Type: "system"}
	err := a.Fleet.DB.Write(t.Context(), func(tx *db.Tx) error {
		ctx := context.WithoutCancel(t.Context())
		subs, err := a.Fleet.Subaccounts(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		sub, err := a.Fleet.UpdateSubaccountTx(ctx, tx, organizationID, subs[0], fleet.SubaccountChange{
			VehicleTypes: optional.Of([]fleet.VehicleType{{Name: "Scooter", FormFactor: "scooter_standing", PropulsionType: "electric", MaxRangeMeters: new(int64(45000))}}),
		})
		if err != nil {
			return err
		}
		if _, err := a.Fleet.CreateAlertRuleTx(ctx, tx, organizationID, fleet.NewAlertRule{
			SubaccountID: sub.ID, Name: "Battery low", Kind: fleet.BatteryLow, ThresholdPercent: new(int64(30)), Notify: fleet.NotifyAdmins, CreateTicket: true,
		}); err != nil {
			return err
		}
		v, err := a.Fleet.CreateVehicleTx(ctx, tx, organizationID, fleet.NewVehicle{
			SubaccountID: sub.ID, Code: "A-1", VehicleTypeID: sub.VehicleTypes[0].ID, State: fleet.Available, Location: &geo.Position{Lat: 52.5, Lng: 13.4}, BatteryPercent: new(int64(50)),
		}, system)
		if err != nil {
			return err
		}
		_, err = a.Fleet.UpdateVehicleTx(ctx, tx, organizationID, v, fleet.VehicleChange{BatteryPercent: optional.Of(int64(25))}, system)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
