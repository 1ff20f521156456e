package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// shopDesk implements [shop.Desk] with the desk.
type shopDesk struct{ *desk.Service }

func (shopDesk) ExportCustomer(context.Context, db.Querier, string, string) (*shop.CustomerExport, error) {
	return nil, nil
}

// TestCustomerOfATicket checks that the panel has the customer's records of the desk,
// fleet, shops and calls, and no other customer's.
func TestCustomerOfATicket(t *testing.T) {
	garage := dbtest.NewFleet(t)
	f := fleet.Open(fleet.Config{DB: garage}) // not empty, unlike production
	var calls *call.Service
	var shops *shop.Service
	h := newHarness(t, func(c *inbox.Config) {
		q := queue.Open(c.DB, queue.Config{Poll: time.Hour})
		calls = call.Open(call.Config{DB: c.DB, Queue: q, Settings: func(context.Context, string) (map[string]string, error) { return nil, nil }})
		shops = shop.Open(shop.Config{DB: c.DB, Queue: q, Desk: shopDesk{c.Desk}})
		c.Calls, c.Shop, c.Fleet, c.FleetDB = calls, shops, f, garage
	})
	o := fleet.Organization{ID: h.Organization.ID, Name: h.Organization.Name}
	if err := f.Provision(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	docs, _, err := f.ListCustomers(t.Context(), garage, o.ID, fleet.CustomerQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var riding, idle *fleet.Customer
	for _, d := range docs {
		var c fleet.Customer
		if err := json.Unmarshal(d.JSON, &c); err != nil {
			t.Fatal(err)
		}
		if c.Email == "" || c.Phone == "" {
			continue
		}
		if c.OpenRideID != "" && riding == nil {
			riding = &c
		} else if c.OpenRideID == "" && c.RideCount > 0 && idle == nil {
			idle = &c
		}
	}
	if idle == nil {
		t.Fatal("nobody in the fleet has ridden")
	}
	b := h.SignIn(h.Agent)
	one := h.mail(strings.ToUpper(string(idle.Email)), "m1")
	d := b.Page("/tickets/1")
	if n := len(d.WithAttr("href", "/fleet/riders/"+idle.ID)); n != 1 {
		t.Fatalf("got %d links to the rider by address", n)
	}
	rides := targets(d, "/fleet/rides/")
	slices.Sort(rides)
	if n := len(slices.Compact(rides)); n == 0 || n > 3 {
		t.Errorf("got %d rides", n)
	}
	h.text(string(idle.Phone), "SM1", "Me again")
	if n := len(b.Page("/tickets/2").WithAttr("href", "/fleet/riders/"+idle.ID)); n != 1 {
		t.Errorf("got %d links to the rider by number", n)
	}
	if riding != nil {
		h.mail(string(riding.Email), "m2")
		d := b.Page("/tickets/3")
		if d.Want("Active ride"); len(d.WithAttr("href", "/fleet/rides/"+string(riding.OpenRideID))) == 0 {
			t.Error("no link to the open ride")
		}
	}

	customer := h.ticket(1).Customer.ID
	h.write(func(tx *db.Tx) error {
		_, _, err := shops.IngestRecordTx(t.Context(), tx, channel.Source{OrganizationID: h.Organization.ID, Channel: "storefront", ConnectionID: "s1"}, &channel.Record{
			Customer: channel.Party{Email: string(idle.Email)}, UpdatedAt: time.Now(),
			Order: &channel.Order{
				ExternalID: "1", Number: "#1001 <b>", Status: "paid, not fulfilled", Currency: "EUR", Total: "12.50", URL: "javascript:alert(1)",
				Items: []channel.OrderItem{{Name: "Helmet " + evil, Quantity: 2}}, Returns: []channel.Return{{ExternalID: "r", Status: "requested", Reason: "too small"}},
			},
		})
		return err
	})
	h.write(func(tx *db.Tx) error {
		phones := []string{"+14155550177"}
		_, err := h.desk.UpdateCustomerTx(t.Context(), tx, h.Organization.ID, customer, desk.CustomerUpdate{Phones: &phones})
		return err
	})
	h.write(func(tx *db.Tx) error {
		_, err := calls.IngestCallTx(t.Context(), tx, channel.Source{OrganizationID: h.Organization.ID, Channel: "voice"}, &channel.PhoneCall{
			IDs: []string{"c1"}, State: "hangup", At: time.Now(), Inbound: true, Contact: channel.Party{Phone: "+14155550177"}, Target: channel.Party{Name: "Support"},
			StartedAt: time.Now().Add(-time.Minute), AnsweredAt: time.Now().Add(-50 * time.Second), EndedAt: time.Now(), Duration: 50 * time.Second,
		})
		return err
	})
	d = b.Page("/tickets/1")
	d.Want("#1001 <b>", "12.50 EUR", "2 × Helmet <script>", "Return: requested (too small)", "Answered call, 0:50", "+14155550177")
	for _, a := range d.All("a") {
		if strings.HasPrefix(webtest.Attr(a, "href"), "javascript:") {
			t.Error("a link that runs")
		}
	}
	if _, err := h.desk.Ticket(t.Context(), h.DB, h.Organization.ID, one.TicketID); err != nil {
		t.Error(err)
	}
}

// windowDispatcher is a dispatcher: one customer opted out, another's reply window is open.
type windowDispatcher struct{}

func (windowDispatcher) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	m.From, m.WindowEndsAt = "+14155550100", time.Now().Add(3*time.Hour+time.Minute)
	return connectionID, nil
}

// TestReplyOptions checks that the composer shows recipient and reply window, and the choice
// between several conversations.
func TestReplyOptions(t *testing.T) {
	h := newHarnessWith(t, windowDispatcher{})
	one := h.text("+14155550111", "SM1", "Hello?")
	two := h.text("+14155550122", "SM2", "And me?")
	b := h.SignIn(h.Agent)
	b.Page("/tickets/1").Want("SMS from +14155550100 to +14155550111", "reply window closes in 3 h")
	b.Follow(b.Post("/tickets/2/merge", url.Values{"into": {one.TicketID}}))
	d := b.Page("/tickets/1")
	if choices := d.WithAttr("name", "conversation"); len(choices) != 2 || webtest.Attr(choices[0], "type") != "radio" || !webtest.Has(choices[0], "checked") {
		t.Fatalf("got %d conversations to choose from", len(choices))
	}
	b.Follow(b.Post("/tickets/1/write", reply("reply", "To the other.", "conversation", one.ConversationID)))
	list := h.messages(one.TicketID)
	if last := list[len(list)-1]; last.ConversationID != one.ConversationID {
		t.Errorf("the reply went to %s, want %s rather than %s", last.ConversationID, one.ConversationID, two.ConversationID)
	}
	// The choice is saved with the draft.
	b.Follow(b.Post("/tickets/1/write", reply("reply", "Later.", "conversation", one.ConversationID, "do", "draft")))
	for _, n := range b.Page("/tickets/1").WithAttr("name", "conversation") {
		if webtest.Has(n, "checked") != (webtest.Attr(n, "value") == one.ConversationID) {
			t.Error("the draft has forgotten where it goes")
		}
	}
}

// TestOptedOut checks that nothing is sent to a customer that opted out, and that the
// page says why.
func TestOptedOut(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	h.receive("sms", channel.Message{ExternalID: "SM2", ThreadKey: "+14155550111", From: channel.Party{Phone: "+14155550111"}, Text: "STOP", OptOut: true})
	b := h.SignIn(h.Agent)
	d := b.Page("/tickets/1")
	var said strings.Builder
	for _, n := range d.WithAttr("class", "banner warning") {
		said.WriteString(webtest.Text(n))
	}
	if said.String() == "" {
		t.Fatal("nothing says that nothing can be sent")
	}
	for _, n := range d.WithAttr("name", "kind") {
		if webtest.Has(n, "checked") != (webtest.Attr(n, "value") == "note") {
			t.Error("a reply is offered first")
		}
	}
	d = b.WantRefused(b.Post("/tickets/1/write", reply("reply", "But still")), 422)
	if value(d, "reply") != "But still" || !strings.HasSuffix(d.Alert(), "Nothing was sent.") {
		t.Errorf("got %q with %q", d.Alert(), value(d, "reply"))
	}
	if got := fmt.Sprint(len(h.messages(h.ticket(1).ID))); got != "2" {
		t.Errorf("got %s messages", got)
	}
}
