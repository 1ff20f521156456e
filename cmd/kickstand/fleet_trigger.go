package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

type fleetTriggerCmd struct {
	Events []string `arg:"" placeholder:"EVENT" help:"Events above."`
	Org    string   `required:"" placeholder:"SLUG" help:"Organization."`
}

func (*fleetTriggerCmd) Help() string {
	names := make([]string, len(event.FleetNames))
	for i, name := range event.FleetNames {
		names[i] = "  " + string(name)
	}
	return `Makes changes in the sandbox that cause the events, beside a running server.
Webhooks of the sandbox and streams of its events get them, with those of the steps
before: a completed ride is started first. Production is not touched.

  kickstand fleet trigger ride.completed --org demo-wheels

Events:

` + strings.Join(names, "\n")
}

// triggeredEvent is the printed form of an event with its record.
type triggeredEvent struct {
	Event string `json:"event"`
	ID    string `json:"id"`
}

// Run makes the changes and prints the ids of the changed records.
func (c *fleetTriggerCmd) Run(ctx context.Context, e *env) error {
	for _, name := range c.Events {
		if !slices.Contains(event.FleetNames[:], event.Name(name)) {
			return usageError{fmt.Errorf("there is no event %q of the fleet; `kickstand fleet trigger --help` lists them", name)}
		}
	}
	of := fleetOf{Org: c.Org, Environment: "test"}
	return of.with(ctx, e, func(f *app.Fleet, o fleet.Organization) error {
		if err := f.Provision(ctx, o); err != nil {
			return err
		}
		t := fleetTrigger{f, o.ID, fleet.Actor{Type: "system"}}
		var made []triggeredEvent
		for _, name := range c.Events {
			id, err := t.make(ctx, event.Name(name))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			made = append(made, triggeredEvent{name, id})
		}
		return e.print(made, func(w io.Writer) {
			for _, m := range made {
				fmt.Fprintf(w, "%s: %s\n", m.Event, m.ID)
			}
		})
	})
}

// fleetTrigger causes events in a sandbox.
type fleetTrigger struct {
	*app.Fleet
	organizationID string
	by             fleet.Actor
}

// write runs fn in a transaction and returns the id that it returns.
func (t *fleetTrigger) write(ctx context.Context, fn func(tx *db.Tx) (string, error)) (id string, err error) {
	err = t.DB.Write(ctx, func(tx *db.Tx) (err error) {
		id, err = fn(tx)
		return err
	})
	return id, err
}

// make causes an event and returns the id of its record.
func (t *fleetTrigger) make(ctx context.Context, name event.Name) (string, error) {
	kind, _, _ := strings.Cut(string(name), ".")
	switch kind {
	case "ride":
		return t.ride(ctx, name)
	case "vehicle":
		return t.vehicle(ctx, name)
	case "zone":
		return t.zone(ctx, name)
	case "alert":
		return t.alert(ctx, name)
	case "task":
		return t.task(ctx, name)
	}
	return t.customer(ctx, name)
}

// activeSubaccounts returns the ids of the subaccounts that are not archived.
func (t *fleetTrigger) activeSubaccounts(ctx context.Context) ([]string, error) {
	list, err := t.Subaccounts(ctx, t.DB, t.organizationID)
	ids := []string{}
	for _, sub := range list {
		if sub.Status == "active" {
			ids = append(ids, sub.ID)
		}
	}
	return ids, err
}

// vehicles returns the first available vehicles, without those of archived subaccounts.
func (t *fleetTrigger) vehicles(ctx context.Context) ([]fleet.Vehicle, error) {
	of, err := t.activeSubaccounts(ctx)
	if err != nil {
		return nil, err
	}
	records, _, err := t.ListVehicles(ctx, t.DB, t.organizationID, fleet.VehicleQuery{
		Subaccounts: of, State: []fleet.VehicleState{fleet.Available}, Sort: keyset.Sort{Field: "created_at"}, Limit: 50,
	})
	if err != nil {
		return nil, err
	}
	list := make([]fleet.Vehicle, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r.JSON, &list[i]); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, problem.New(problem.Precondition, "the sandbox has no available vehicle; POST /sandbox/v1/sandbox/reset resets it")
	}
	return list, nil
}

// ride starts a ride of a new customer on the first vehicle that permits it, and changes it until the
// event has happened.
func (t *fleetTrigger) ride(ctx context.Context, name event.Name) (string, error) {
	status := fleet.Active
	if name == event.RideReserved {
		status = fleet.Reserved
	}
	vehicles, err := t.vehicles(ctx)
	if err != nil {
		return "", err
	}
	var id string
	for _, v := range vehicles {
		id, err = t.write(ctx, func(tx *db.Tx) (string, error) {
			c, err := t.CreateCustomerTx(ctx, tx, t.organizationID, fleet.NewCustomer{SubaccountID: v.SubaccountID, Name: "Test Rider", LicenseStatus: "verified", BirthDate: "1990-01-01"})
			if err != nil {
				return "", err
			}
			r, err := t.StartRideTx(ctx, tx, t.organizationID, fleet.NewRide{Status: status, VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID)}, t.by)
			return r.ID, err
		})
		if k := problem.Of(err); k != problem.Precondition && k != problem.Invalid {
			break
		}
	}
	if err != nil {
		return "", err
	}
	to := func(status fleet.RideStatus) fleet.RideChange { return fleet.RideChange{Status: optional.Of(status)} }
	end := to(fleet.Completed)
	end.EndReason = optional.Of(fleet.NullString("operator"))
	cancel := to(fleet.Cancelled)
	cancel.CancelReason = optional.Of(fleet.NullString("operator"))
	steps := map[event.Name][]fleet.RideChange{
		event.RidePaused:    {to(fleet.Paused)},
		event.RideResumed:   {to(fleet.Paused), to(fleet.Active)},
		event.RideCompleted: {end},
		event.RideCancelled: {cancel},
		event.RideUpdated:   {end, {Metadata: optional.Of(map[string]string{"trigger": string(name)})}},

		event.RidePriceAdjusted:  {end, {AdjustmentAmount: optional.Of(int64(100)), AdjustmentReason: optional.Of(fleet.NullString("Test"))}},
		event.RidePaymentUpdated: {end, {PaymentStatus: optional.Of("waived")}},
	}
	for _, change := range steps[name] {
		if _, err := t.write(ctx, func(tx *db.Tx) (string, error) {
			r, err := t.LockRideTx(ctx, tx, t.organizationID, id)
			if err == nil {
				r, err = t.UpdateRideTx(ctx, tx, t.organizationID, r, change, t.by)
			}
			return r.ID, err
		}); err != nil {
			return "", err
		}
	}
	return id, nil
}

// vehicleLike creates an available vehicle like another one.
func (t *fleetTrigger) vehicleLike(ctx context.Context, tx *db.Tx, like *fleet.Vehicle) (fleet.Vehicle, error) {
	return t.CreateVehicleTx(ctx, tx, t.organizationID, fleet.NewVehicle{
		SubaccountID: like.SubaccountID, Code: "TEST-" + randomHex(4), VehicleTypeID: like.VehicleTypeID,
		State: fleet.Available, Location: like.Location, BatteryPercent: new(int64(100)),
	}, t.by)
}

// vehicle creates a vehicle like another one, and changes it until the event has happened.
func (t *fleetTrigger) vehicle(ctx context.Context, name event.Name) (string, error) {
	vehicles, err := t.vehicles(ctx)
	if err != nil {
		return "", err
	}
	like := &vehicles[0]
	id, err := t.write(ctx, func(tx *db.Tx) (string, error) {
		v, err := t.vehicleLike(ctx, tx, like)
		if err != nil {
			return "", err
		}
		var change fleet.VehicleChange
		switch name {
		case event.VehicleCreated:
			return v.ID, nil
		case event.VehicleDeleted:
			return v.ID, t.DeleteVehicleTx(ctx, tx, t.organizationID, v.ID, t.by)
		case event.VehicleCommsLost, event.VehicleCommsRestored:
			return v.ID, t.LoseContactTx(ctx, tx, t.organizationID, v.ID)
		case event.VehicleUpdated:
			change.LicensePlate = optional.Of(fleet.NullString("TEST"))
		default:
			change.State = optional.Of(fleet.NonOperational)
		}
		_, err = t.UpdateVehicleTx(ctx, tx, t.organizationID, v, change, t.by)
		return v.ID, err
	})
	if err != nil || name != event.VehicleCommsRestored {
		return id, err
	}
	return t.write(ctx, func(tx *db.Tx) (string, error) {
		v, err := t.LockVehicleTx(ctx, tx, t.organizationID, id)
		if err != nil {
			return "", err
		}
		now, err := t.Now(ctx, tx, t.organizationID)
		if err != nil {
			return "", err
		}
		// Only a report later than the last one restores contact, and times are whole milliseconds.
		report := fleet.VehicleChange{Location: optional.Of(*like.Location), LastReportedAt: optional.Of(rfc3339.Time(now.Add(time.Millisecond)))}
		_, err = t.UpdateVehicleTx(ctx, tx, t.organizationID, v, report, t.by)
		return id, err
	})
}

// task creates a task of a vehicle like another one, and changes it until the event has happened.
func (t *fleetTrigger) task(ctx context.Context, name event.Name) (string, error) {
	vehicles, err := t.vehicles(ctx)
	if err != nil {
		return "", err
	}
	id, err := t.write(ctx, func(tx *db.Tx) (string, error) {
		v, err := t.vehicleLike(ctx, tx, &vehicles[0])
		if err != nil {
			return "", err
		}
		task, err := t.CreateTaskTx(ctx, tx, t.organizationID, fleet.NewTask{VehicleID: v.ID, Kind: fleet.Inspection, Title: "Test"}, t.by)
		return task.ID, err
	})
	if err != nil || name == event.TaskCreated {
		return id, err
	}
	change := fleet.TaskChange{State: optional.Of(fleet.TaskInProgress)}
	if name == event.TaskDone {
		change.State.Value = fleet.TaskDone
	}
	return t.write(ctx, func(tx *db.Tx) (string, error) {
		task, err := t.LockTaskTx(ctx, tx, t.organizationID, id)
		if err == nil {
			if name == event.TaskOverdue {
				change = fleet.TaskChange{DueAt: optional.Of(task.CreatedAt)}
			}
			task, err = t.UpdateTaskTx(ctx, tx, t.organizationID, task, change, t.by)
		}
		return task.ID, err
	})
}

// zone creates a zone with the geometry of another one, which parking rules do not close, and changes
// it until the event has happened.
func (t *fleetTrigger) zone(ctx context.Context, name event.Name) (string, error) {
	of, err := t.activeSubaccounts(ctx)
	if err != nil {
		return "", err
	}
	records, _, err := t.ListZones(ctx, t.DB, t.organizationID, fleet.ZoneQuery{Subaccounts: of, Sort: keyset.Sort{Field: "created_at"}, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(records) == 0 {
		return "", problem.New(problem.Precondition, "the sandbox has no zone; POST /sandbox/v1/sandbox/reset resets it")
	}
	var like fleet.Zone
	if err := json.Unmarshal(records[0].JSON, &like); err != nil {
		return "", err
	}
	return t.write(ctx, func(tx *db.Tx) (string, error) {
		z, err := t.CreateZoneTx(ctx, tx, t.organizationID, fleet.NewZone{
			SubaccountID: like.SubaccountID, Name: "Test", Type: fleet.ServiceArea, Geometry: like.Geometry, Priority: new(int64(1000)),
		})
		switch {
		case err != nil || name == event.ZoneCreated:
		case name == event.ZoneUpdated:
			z, err = t.UpdateZoneTx(ctx, tx, t.organizationID, z, fleet.ZoneChange{Name: optional.Of("Changed test")})
		default:
			err = t.DeleteZoneTx(ctx, tx, t.organizationID, z.ID)
		}
		return z.ID, err
	})
}

// triggerRule is the external id of the rule of triggered alerts.
const triggerRule = "kickstand-trigger"

// alert raises an alert for a vehicle like another one, and has it end if the event is that.
func (t *fleetTrigger) alert(ctx context.Context, name event.Name) (string, error) {
	vehicles, err := t.vehicles(ctx)
	if err != nil {
		return "", err
	}
	like := &vehicles[0]
	rules, err := t.AlertRules(ctx, t.DB, t.organizationID)
	if err != nil {
		return "", err
	}
	known := slices.ContainsFunc(rules, func(r fleet.AlertRule) bool {
		return r.ExternalID == triggerRule && r.SubaccountID == like.SubaccountID && r.Enabled
	})
	return t.write(ctx, func(tx *db.Tx) (string, error) {
		if !known {
			if _, err := t.CreateAlertRuleTx(ctx, tx, t.organizationID, fleet.NewAlertRule{
				SubaccountID: like.SubaccountID, ExternalID: triggerRule, Name: "Test: battery empty", Kind: fleet.BatteryLow, ThresholdPercent: new(int64(1)),
			}); err != nil {
				return "", err
			}
		}
		v, err := t.vehicleLike(ctx, tx, like)
		if err != nil {
			return "", err
		}
		if v, err = t.UpdateVehicleTx(ctx, tx, t.organizationID, v, fleet.VehicleChange{BatteryPercent: optional.Of(int64(0))}, t.by); err != nil {
			return "", err
		}
		alerts, err := t.RaisedAlerts(ctx, tx, t.organizationID, v.ID)
		if err != nil {
			return "", err
		}
		if len(alerts) == 0 {
			return "", problem.New(problem.Precondition, "the rule of the sandbox with external id %s raises no alert; delete it", triggerRule)
		}
		if name == event.AlertCleared {
			_, err = t.UpdateVehicleTx(ctx, tx, t.organizationID, v, fleet.VehicleChange{BatteryPercent: optional.Of(int64(50))}, t.by)
		}
		return alerts[0].ID, err
	})
}

// customer creates a customer, and changes it until the event has happened.
func (t *fleetTrigger) customer(ctx context.Context, name event.Name) (string, error) {
	vehicles, err := t.vehicles(ctx)
	if err != nil {
		return "", err
	}
	steps := map[event.Name][]fleet.CustomerChange{
		event.CustomerUpdated:   {{MarketingConsent: optional.Of(true)}},
		event.CustomerBlocked:   {{Status: optional.Of(fleet.CustomerBlocked)}},
		event.CustomerUnblocked: {{Status: optional.Of(fleet.CustomerBlocked)}, {Status: optional.Of(fleet.CustomerActive)}},
	}
	return t.write(ctx, func(tx *db.Tx) (string, error) {
		c, err := t.CreateCustomerTx(ctx, tx, t.organizationID, fleet.NewCustomer{SubaccountID: vehicles[0].SubaccountID, Name: "Test Rider"})
		if err != nil {
			return "", err
		}
		for _, change := range steps[name] {
			if c, err = t.UpdateCustomerTx(ctx, tx, t.organizationID, c, change); err != nil {
				return "", err
			}
		}
		if name == event.CustomerAnonymised {
			_, err = t.AnonymiseCustomerTx(ctx, tx, t.organizationID, c.ID)
		}
		return c.ID, err
	})
}
