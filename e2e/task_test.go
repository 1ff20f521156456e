package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// TestDamagedBrake follows a damaged brake without typing an id: a rider writes, the ticket shows
// the ride, the vehicle leaves service, a task is worked on and closed, and the vehicle is back.
func TestDamagedBrake(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	const rider = "+14155550199"
	v := p.ridden(o.ID, o.Name, rider)
	p.receiveText("SM1", rider, "The brake does not work.")
	p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })

	b := p.as(t, robin)
	b.open("/tickets/1")
	b.waitText("Latest ride", v.Code, "Available")
	b.press("Take out of service")
	b.click("dialog .fleet-form .actions button")
	b.waitText(v.Code+" is out of service.", "Change vehicle state")
	b.press("Create task")
	b.find("dialog #field-title")
	if got := b.value("dialog #field-vehicle_id"); got != v.Code {
		t.Errorf("the form has vehicle %q", got)
	}
	b.fill("dialog #field-title", "Replace the brake")
	b.fill("dialog #field-checklist", "Brake pads")
	b.click("dialog .fleet-form .actions button")
	b.waitText("Task created.", "Replace the brake")
	b.press("Replace the brake")
	b.at("/fleet/tasks/*")
	b.waitText("#1", v.Code, "Out of service")
	b.checkLayout()
	b.checkAccess()
	b.press("Assign to me")
	b.waitText("Task assigned to")
	b.press("Start")
	b.waitText("Task started.")
	b.click("input[name=done]")
	b.press("Save checklist")
	b.waitText("Checklist saved.")
	b.press("Mark as done")
	b.waitText("The vehicle is back in service.")
	b.press(v.Code)
	b.at("/fleet/vehicles/" + v.ID)
	b.waitText("Available since", "Replace the brake")
	b.open("/tickets/1")
	b.waitText("Replace the brake", "Done")
}

// TestDialogOnce: the second click of a double click on a dialog's button sends nothing, although the first
// one is answered and the next page on its way.
func TestDialogOnce(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	v := p.ridden(o.ID, o.Name, "+14155550199")
	b := p.as(t, robin)
	b.open("/fleet/vehicles/" + v.ID)
	b.press("New task")
	b.fill("dialog #field-title", "Replace the brake")
	js[bool](b, `(({fetch}) => {
		const form = document.querySelector("dialog form");
		sessionStorage.sent = 0;
		window.fetch = async (...request) => {
			if (request[1]?.method === "POST") sessionStorage.sent++;
			const response = await fetch(...request);
			setTimeout(() => form.requestSubmit());
			return response;
		};
		return true;
	})(window)`)
	b.click("dialog .fleet-form .actions button")
	b.waitText("Task created.")
	if sent := js[string](b, "sessionStorage.sent"); sent != "1" {
		t.Errorf("the form was sent %s times", sent)
	}
}

// ridden returns an available vehicle after a completed ride of a new rider.
func (p *program) ridden(organizationID, name, phone string) (v fleet.Vehicle) {
	p.t.Helper()
	ctx := p.t.Context()
	if err := p.Fleet.Seed(ctx, fleet.Organization{ID: organizationID, Name: name}); err != nil {
		p.t.Fatal(err)
	}
	list, _, err := p.Fleet.ListVehicles(ctx, p.Fleet.DB, organizationID, fleet.VehicleQuery{State: []fleet.VehicleState{fleet.Available}, Limit: 100})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, d := range list {
		if err := json.Unmarshal(d.JSON, &v); err != nil {
			p.t.Fatal(err)
		}
		err = p.Fleet.DB.Write(ctx, func(tx *db.Tx) error { return p.rideOnce(ctx, tx, organizationID, phone, &v) })
		if err == nil {
			return v
		}
	}
	p.t.Fatal("no vehicle can be ridden: ", err)
	return v
}

func (p *program) rideOnce(ctx context.Context, tx *db.Tx, organizationID, phone string, v *fleet.Vehicle) error {
	by := fleet.Actor{Type: "system"}
	c, err := p.Fleet.CreateCustomerTx(ctx, tx, organizationID, fleet.NewCustomer{
		SubaccountID: v.SubaccountID, Name: "Ada Rider", Phone: fleet.NullString(phone), LicenseStatus: "verified", BirthDate: "1990-01-01",
	})
	if err != nil {
		return err
	}
	r, err := p.Fleet.StartRideTx(ctx, tx, organizationID, fleet.NewRide{Status: fleet.Active, VehicleID: fleet.NullString(v.ID), CustomerID: fleet.NullString(c.ID)}, by)
	if err != nil {
		return err
	}
	_, err = p.Fleet.UpdateRideTx(ctx, tx, organizationID, r, fleet.RideChange{Status: optional.Of(fleet.Completed), EndReason: optional.Of[fleet.NullString]("operator")}, by)
	return err
}

// task formats a path with the id of a task in the sandbox.
func (w *world) task(format string) string {
	list, _, err := w.Sandbox.ListTasks(context.Background(), w.Sandbox.DB, w.acme.ID, fleet.TaskQuery{Kind: []fleet.WorkKind{fleet.Repair}, Limit: 1})
	if err != nil || len(list) == 0 {
		w.t.Fatalf("got %d tasks, %v", len(list), err)
	}
	return fmt.Sprintf(format, list[0].ID)
}
