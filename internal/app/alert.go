package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/loop"
)

const (
	alertPoll  = time.Second // other processes raise alerts too
	alertBatch = 100
)

// runAlerts relays alerts until ctx ends. Several processes may run it.
func (a *App) runAlerts(ctx context.Context) {
	loop.EveryOr(ctx, alertPoll, a.alertRaised, a.log, "relay alerts of the fleet", func(ctx context.Context) error {
		return errors.Join(a.relayAlerts(ctx), a.relayOverdueTasks(ctx))
	})
}

// relayAlerts writes the notices of new alerts of production and creates their tickets. Both name
// their alert, so a repetition after a crash writes nothing twice; then the fleet notes that the alert
// is relayed.
func (a *App) relayAlerts(ctx context.Context) error {
	return relayEach(ctx, a.Fleet.WaitingAlerts, a.relayAlertsOf)
}

// relayEach calls fn for the waiting organizations. The failure of one does not affect the others.
func relayEach(ctx context.Context, waiting func(context.Context) ([]string, error), fn func(ctx context.Context, organizationID string) error) error {
	organizations, err := waiting(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range organizations {
		if err := fn(ctx, id); err != nil {
			failed = append(failed, fmt.Errorf("organization %s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

func (a *App) relayAlertsOf(ctx context.Context, organizationID string) error {
	list, err := a.Fleet.NextAlerts(ctx, organizationID, alertBatch)
	if err != nil || len(list) == 0 {
		return err
	}
	members, err := a.Accounts.Members(ctx, organizationID)
	if err != nil {
		return err
	}
	for i := range list {
		l := &list[i]
		alert := a.deskAlert(l, alertRecipients(l, members))
		if alert.CreateTicket {
			if alert.FormerTicket, err = a.Fleet.FormerTicket(ctx, organizationID, &l.Alert); err != nil {
				return err
			}
		}
		var ticket int64
		if err := a.DB.Write(ctx, func(tx *db.Tx) (err error) {
			ticket, err = a.Desk.AlertTx(ctx, tx, organizationID, alert)
			return err
		}); err != nil {
			return fmt.Errorf("alert %s: %w", l.Alert.ID, err)
		}
		if err := a.Fleet.AlertRelayed(ctx, organizationID, l.Alert.ID, ticket); err != nil {
			return err
		}
	}
	return nil
}

// alertRecipients returns the ids of the users to notify of an alert: those of its rule, or the admins
// if none of them is a member any more.
func alertRecipients(l *fleet.AlertRelay, members []account.User) []string {
	switch l.Notify {
	case fleet.NotifyUsers:
		return membersOrAdmins(l.UserIDs, members)
	case fleet.NotifyAdmins:
		return adminIDs(members)
	}
	return nil
}

// membersOrAdmins returns those of ids that are members, or the ids of the admins if none is.
func membersOrAdmins(ids []string, members []account.User) []string {
	found := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return !slices.ContainsFunc(members, func(m account.User) bool { return m.ID == id })
	})
	if len(found) == 0 {
		return adminIDs(members)
	}
	return found
}

// relayOverdueTasks writes the notices of overdue tasks of production, as relayAlerts does: each
// names its task and due time, so a repetition after a crash writes nothing twice.
func (a *App) relayOverdueTasks(ctx context.Context) error {
	return relayEach(ctx, a.Fleet.WaitingTasks, a.relayOverdueTasksOf)
}

func (a *App) relayOverdueTasksOf(ctx context.Context, organizationID string) error {
	list, err := a.Fleet.NextOverdueTasks(ctx, organizationID, alertBatch)
	if err != nil || len(list) == 0 {
		return err
	}
	members, err := a.Accounts.Members(ctx, organizationID)
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].Task.State.Open() { // a postponed one, too: the same due time may return, and is not sent again
			notice := a.deskOverdueTask(&list[i], taskRecipients(&list[i].Task, members))
			if err := a.DB.Write(ctx, func(tx *db.Tx) error {
				_, err := a.Desk.AlertTx(ctx, tx, organizationID, notice)
				return err
			}); err != nil {
				return fmt.Errorf("task %s: %w", list[i].Task.ID, err)
			}
		}
		if err := a.Fleet.OverdueTaskRelayed(ctx, organizationID, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

// taskRecipients returns the ids of the users to notify of an overdue task: its assignee, or the
// admins if it has none or a former member.
func taskRecipients(t *fleet.Task, members []account.User) []string {
	return membersOrAdmins([]string{string(t.AssigneeID)}, members)
}

// adminIDs returns the ids of the admins.
func adminIDs(members []account.User) (ids []string) {
	for _, m := range members {
		if m.Role == account.Admin {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// deskOverdueTask returns the notice of an overdue task in the words of the helpdesk.
func (a *App) deskOverdueTask(o *fleet.OverdueTask, userIDs []string) desk.Alert {
	title := "Task overdue: " + o.Task.Title
	if o.VehicleCode != "" {
		title = o.VehicleCode + ": task overdue: " + o.Task.Title
	}
	path := "/fleet/tasks/" + o.Task.ID
	return desk.Alert{ID: o.Key, Title: title, Text: title + "\n\nTask: " + a.BaseURL + path, Path: path, UserIDs: userIDs}
}

// deskAlert returns an alert in the words of the helpdesk.
func (a *App) deskAlert(l *fleet.AlertRelay, userIDs []string) desk.Alert {
	path := "/fleet/vehicles/" + l.Alert.VehicleID
	text := fmt.Sprintf("%s %s\n\nVehicle: %s", l.Alert.Name+":", l.Alert.Sentence(), a.BaseURL+path)
	if l.Alert.RideID != "" {
		text += fmt.Sprintf("\nRide: %s/fleet/rides/%s", a.BaseURL, l.Alert.RideID)
	}
	return desk.Alert{
		ID: l.Alert.ID, Title: l.Alert.VehicleCode + ": " + l.Alert.Name, Text: text, Path: path, UserIDs: userIDs, CreateTicket: l.CreateTicket,
		Metadata: desk.MetadataUpdate{"alert_id": &l.Alert.ID, "vehicle_id": &l.Alert.VehicleID, "vehicle_code": &l.Alert.VehicleCode},
	}
}
