package desk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// alert creates the ticket of an alert, and returns its number and its customer.
func (f *fixture) alert(org, id string) (number int64, customerID string) {
	f.Helper()
	number, err := write(f, func(tx *db.Tx) (int64, error) {
		return f.desk.AlertTx(f.Context(), tx, org, desk.Alert{ID: id, Title: "A-1: Battery low", Text: "Vehicle A-1 was at 20 %.", Path: "/fleet/vehicles/1", CreateTicket: true})
	})
	if err != nil {
		f.Fatal(err)
	}
	if err := f.db.QueryRow(f.Context(), "SELECT customer_id FROM tickets WHERE organization_id = $1 AND number = $2", org, number).Scan(&customerID); err != nil {
		f.Fatal(err)
	}
	return number, customerID
}

// TestAlertCustomer: tickets of alerts have one customer, though it is merged or deleted meanwhile.
func TestAlertCustomer(t *testing.T) {
	f := newFixture(t)
	first, customer := f.alert(orgA, "alert-1")
	if again, same := f.alert(orgA, "alert-1"); again != first || same != customer {
		t.Errorf("repeated: ticket %d of %s, want %d of %s", again, same, first, customer)
	}
	if _, other := f.alert(orgB, "alert-1"); other == customer {
		t.Error("two organizations share the customer")
	}
	survivor, err := f.createCustomer(orgA, desk.NewCustomer{Name: "Fleet", ExternalID: "fleet"})
	if err != nil {
		t.Fatal(err)
	}
	f.mustMergeCustomers(customer, survivor.ID)
	for _, id := range []string{"alert-2", "alert-3"} {
		if _, got := f.alert(orgA, id); got != survivor.ID {
			t.Errorf("%s is of customer %s, want the survivor %s", id, got, survivor.ID)
		}
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.DeleteCustomerTx(t.Context(), tx, orgA, survivor.ID) }); err != nil {
		t.Fatal(err)
	}
	_, anew := f.alert(orgA, "alert-4")
	if _, same := f.alert(orgA, "alert-5"); anew == survivor.ID || same != anew {
		t.Errorf("after the deletion: customers %s and %s", anew, same)
	}
}

// TestAlertNoticesAreBounded: many alerts push out the oldest ones, and no notice about a ticket.
func TestAlertNoticesAreBounded(t *testing.T) {
	f := newFixture(t, noticing(&team{}, new(mailRecorder), new(mailRoute)))
	f.assign(f.intake(mail("ana@c.example", "m1@c.example")).TicketID, graceID, linusID)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 210 {
			a := desk.Alert{ID: fmt.Sprint("alert-", i), Title: "A-1: Battery low", Path: "/fleet/vehicles/1", UserIDs: []string{linusID}}
			if _, err := f.desk.AlertTx(t.Context(), tx, orgA, a); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	list := f.notices(linusID)
	if n := strings.Count(list, "alert*"); n != 200 || !strings.HasPrefix(list, "1 assigned*") {
		t.Errorf("%d notices of alerts, want 200, after %.20q", n, list)
	}
}
