package fleetpages_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// receive creates a ticket of a customer with an e-mail address.
func (y *yard) receive(t *testing.T, email string) (res desk.Result) {
	t.Helper()
	err := y.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		res, err = y.desk.IngestTx(t.Context(), tx, desk.InboundEvent{OrganizationID: y.Organization.ID, Channel: "email", Event: channel.Event{Message: &channel.Message{
			ExternalID: email, ThreadKey: email, From: channel.Party{Email: email}, Text: "It does not end",
		}}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// notes returns the texts of a ticket's notes, newest first.
func (y *yard) notes(t *testing.T, ticketID string) []string {
	t.Helper()
	list, _, err := y.desk.FindMessages(t.Context(), y.DB, y.Organization.ID, ticketID, desk.MessageQuery{Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range list {
		if m.Kind == desk.KindNote {
			if m.Author.ID != y.Agent.ID {
				t.Errorf("got a note by %+v", m.Author)
			}
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// TestActionsFromATicket checks that any member can end, cancel and adjust a ride and change
// its vehicle's state from a ticket, that the audit log and a note have it, and that the
// browser returns to the ticket.
func TestActionsFromATicket(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	ride, other := l.ride(fleet.Active), l.ride(fleet.Active)
	res := y.receive(t, "zoe1@example.com")
	if err := y.DB.Write(t.Context(), func(tx *db.Tx) error {
		return y.desk.SaveDraftTx(t.Context(), tx, y.Organization.ID, desk.SavedDraft{TicketID: res.TicketID, UserID: y.Agent.ID, Kind: desk.KindNote, Text: "My own note"})
	}); err != nil {
		t.Fatal(err)
	}

	audited := func(id, action, change string) {
		t.Helper()
		log := audittest.List(t, l.log, y.Organization.ID, audit.Query{TargetID: id})
		if len(log) == 0 || log[0].Action != action || fmt.Sprint(log[0].Details["ticket"]) != "1" || log[0].Source.Actor.ID != y.Agent.ID {
			t.Fatalf("got %+v, want %s from ticket 1", log, action)
		}
		if _, ok := log[0].Changes[change]; !ok {
			t.Errorf("got changes %v, want %s", log[0].Changes, change)
		}
	}
	noted := func(want string) {
		t.Helper()
		if got := y.notes(t, res.TicketID); len(got) == 0 || !strings.HasPrefix(got[0], want) {
			t.Errorf("got notes %q, want %q", got, want)
		}
	}
	post := func(path string, form url.Values) {
		t.Helper()
		w := y.agent.Post("/tickets/1"+path, form)
		if at := w.Header().Get("Location"); w.Code != http.StatusSeeOther || at != "/tickets/1?in=mine" {
			t.Fatalf("got %d, %s", w.Code, at)
		}
	}

	path := "/tickets/1/rides/" + ride.ID
	d := y.agent.Page(path + "/end?in=mine")
	if len(links(d, "/tickets/1?in=mine")) != 1 {
		t.Error("no way back to the ticket")
	}
	y.agent.WantRefused(y.agent.Post(path+"/end", url.Values{"end_reason": {"operator"}, "distance_meters": {"far"}}), http.StatusUnprocessableEntity)
	if got := y.notes(t, res.TicketID); len(got) != 0 {
		t.Errorf("got %q after a refusal", got)
	}
	post("/rides/"+ride.ID+"/end?in=mine&x=1", url.Values{"end_reason": {"operator"}})
	if l.at(ride.ID).Status != fleet.Completed {
		t.Error("the ride is not ended")
	}
	audited(ride.ID, "ride.ended_by_operator", "status")
	noted("Ended ride " + ride.ID + ". Price: €")

	y.agent.Page(path + "/adjust")
	y.agent.WantRefused(y.agent.Post(path+"/adjust", url.Values{"payment_status": {"refunded"}, "adjustment_amount": {"much"}}), http.StatusUnprocessableEntity)
	post("/rides/"+ride.ID+"/adjust?in=mine", url.Values{"payment_status": {"refunded"}, "adjustment_amount": {"-0.50"}, "adjustment_reason": {"secret of Zoë"}})
	if now := l.at(ride.ID); now.AdjustmentAmount != -50 || now.PaymentStatus != "refunded" {
		t.Errorf("got %d, %s", now.AdjustmentAmount, now.PaymentStatus)
	}
	audited(ride.ID, "ride.updated", "adjustment_amount")
	if log := audittest.List(t, l.log, y.Organization.ID, audit.Query{TargetID: ride.ID}); strings.Contains(fmt.Sprintf("%+v", log), "secret") {
		t.Error("the audit log has the reason")
	}
	noted("Adjusted ride " + ride.ID + ". Price: €")

	post("/vehicles/"+ride.VehicleID+"/state?in=mine", url.Values{"move": {"non_operational/maintenance"}})
	audited(ride.VehicleID, "vehicle.updated", "state")
	noted("Set vehicle B-B to out of service: ")
	if got := len(y.notes(t, res.TicketID)); got != 3 {
		t.Errorf("got %d notes", got)
	}
	drafts, err := y.desk.SavedDrafts(t.Context(), y.DB, y.Organization.ID, y.Agent.ID, res.TicketID)
	if err != nil || len(drafts) != 1 {
		t.Errorf("the member's draft: got %v, %v", drafts, err)
	}

	// From the page of a customer there is no ticket to record.
	customer := y.ticket(t, res.TicketID).Customer.ID
	w := y.agent.Post("/customers/"+customer+"/rides/"+other.ID+"/cancel", url.Values{"cancel_reason": {"operator"}})
	if at := w.Header().Get("Location"); w.Code != http.StatusSeeOther || at != "/customers/"+customer {
		t.Fatalf("got %d, %s", w.Code, at)
	}
	if log := audittest.List(t, l.log, y.Organization.ID, audit.Query{TargetID: other.ID}); len(log) != 1 || log[0].Details["ticket"] != nil {
		t.Errorf("got %+v", log)
	}
}

// TestActionsFromElsewhere checks that an action needs a ticket or customer, and a record, of
// the organization.
func TestActionsFromElsewhere(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	ride := l.ride(fleet.Active)
	res := y.receive(t, "zoe1@example.com")
	form := url.Values{"end_reason": {"operator"}}
	for _, path := range []string{"/tickets/2", "/tickets/01", "/tickets/x", "/customers/cus_other"} {
		y.agent.WantRefused(y.agent.Get(path+"/rides/"+ride.ID+"/end"), http.StatusNotFound)
		y.agent.WantRefused(y.agent.Post(path+"/rides/"+ride.ID+"/end", form), http.StatusNotFound)
	}
	o := y.NewOrganization("Others")
	stranger := y.SignIn(y.NewUser(o, "stranger@example.com", "Stranger", "agent"))
	stranger.WantRefused(stranger.Post("/tickets/1/rides/"+ride.ID+"/end", form), http.StatusNotFound)
	if l.at(ride.ID).Status != fleet.Active || len(y.notes(t, res.TicketID)) != 0 {
		t.Error("the ride was ended from elsewhere")
	}
}

func (y *yard) ticket(t *testing.T, id string) desk.Ticket {
	t.Helper()
	found, err := y.desk.Ticket(t.Context(), y.DB, y.Organization.ID, id)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
