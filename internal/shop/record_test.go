package shop_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

// permutations returns every order of n things.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

// TestEveryOrder: the events of a customer and an order have the same result in
// every order, with repetitions.
func TestEveryOrder(t *testing.T) {
	order := func(minute int, status, name string) channel.Record {
		return channel.Record{
			ExternalID: "115", Customer: channel.Party{ID: "115", Name: name, Email: "ana@client.example"}, UpdatedAt: noon.Add(time.Duration(minute) * time.Minute),
			Order: &channel.Order{
				ExternalID: "820", Number: "#1001", Status: status, Currency: "USD", Total: "42.00", PlacedAt: noon,
				Items: []channel.OrderItem{{Name: "Lamp", Quantity: int64(minute + 1), Price: "42.00"}},
			},
		}
	}
	customer := func(minute int, name, email string) channel.Record {
		return channel.Record{ExternalID: "115", Customer: channel.Party{ID: "115", Name: name, Email: email}, UpdatedAt: noon.Add(time.Duration(minute) * time.Minute)}
	}
	events := []channel.Record{
		customer(0, "Ana", "ana@client.example"),
		order(1, "pending, not fulfilled", "Ana"),
		order(2, "paid, not fulfilled", "Ana"),
		customer(3, "Ana Müller", "mueller@client.example"),
		order(4, "paid, fulfilled", "Ana Müller"),
	}
	f := open(t)
	for n, p := range permutations(len(events)) {
		o := at(fmt.Sprintf("org-%d", n), fmt.Sprintf("connection-%d", n))
		// Each run has its own customers, since the fixture's desk has one organization.
		mail := func(email string) string { return strconv.Itoa(n) + "." + email }
		var id string
		for _, i := range append(slices.Clone(p), p[0], p[len(p)/2]) {
			r := events[i]
			r.Customer.Email = mail(r.Customer.Email)
			result, m := f.intake(o, r)
			if m != nil {
				t.Fatalf("order %v: a message came of what is none", p)
			}
			id = result.CustomerID
		}
		list, err := f.Orders(t.Context(), f.db, o.OrganizationID, id)
		if err != nil || len(list) != 1 {
			t.Fatalf("order %v: Orders() = %d orders, %v, want 1", p, len(list), err)
		}
		if got := list[0]; got.Status != "paid, fulfilled" || got.Items[0].Quantity != 5 || got.Number != "#1001" || !got.UpdatedAt.Equal(noon.Add(4*time.Minute)) || got.ConnectionID != o.ConnectionID {
			t.Errorf("order %v: the order is %+v, want the newest", p, got)
		}
		c := f.customers[id]
		if c.name != "Ana Müller" || c.email != mail("mueller@client.example") || !slices.Equal(c.others, []string{mail("ana@client.example")}) {
			t.Errorf("order %v: the customer is %+v, want the newest name and address", p, *c)
		}
	}
	if n := f.count("SELECT count(*) FROM shop_customers"); n != 120 {
		t.Errorf("%d customers were linked, want one for each of 120 orders of arrival", n)
	}
}

// TestEditedName: an agent's correction stays.
func TestEditedName(t *testing.T) {
	f := open(t)
	o := at("acme", "shop-1")
	r := channel.Record{ExternalID: "1", Customer: channel.Party{Name: "ana", Email: "ana@client.example"}, UpdatedAt: noon}
	result, _ := f.intake(o, r)
	f.customers[result.CustomerID].name = "Ana (VIP)"
	r.Customer.Name, r.UpdatedAt = "Ana", noon.Add(time.Minute)
	if result, _ := f.intake(o, r); result.Outcome != shop.Recorded {
		t.Errorf("the newer state is %s, want it recorded", result.Outcome)
	}
	if got := f.customers[result.CustomerID].name; got != "Ana (VIP)" {
		t.Errorf("the name is %q, want the agent's", got)
	}
}

// TestParallelCopies: twenty concurrent copies of one event.
func TestParallelCopies(t *testing.T) {
	f := open(t)
	o := at("acme", "shop-1")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			r := channel.Record{
				ExternalID: "7", Customer: channel.Party{Name: "Ana", Email: "ana@client.example"}, UpdatedAt: noon,
				Order: &channel.Order{ExternalID: "8", Number: "#8", Returns: []channel.Return{{ExternalID: "r1", Status: "open"}}},
			}
			if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
				_, _, err := f.IngestRecordTx(t.Context(), tx, o, &r)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for table, want := range map[string]int{"shop_orders": 1, "shop_customers": 1, "shop_returns": 1} {
		if got := f.count("SELECT count(*) FROM " + table); got != want {
			t.Errorf("%s has %d rows, want %d", table, got, want)
		}
	}
	if len(f.customers) != 1 {
		t.Errorf("%d customers were made, want 1", len(f.customers))
	}
}

// TestReturns: a marketplace's events of an order and a return have the same result
// in every order.
func TestReturns(t *testing.T) {
	f := open(t)
	of := func(minute int, o channel.Order, m *channel.Message) channel.Record {
		o.ExternalID, o.Number = "903-1", "903-1" // as the adapter sets it
		return channel.Record{UpdatedAt: noon.Add(time.Duration(minute) * time.Minute), Order: &o, Message: m}
	}
	lamp := []channel.OrderItem{{SKU: "LAMP", Quantity: 1}}
	events := []channel.Record{
		of(0, channel.Order{Status: "Unshipped", Items: lamp}, nil),
		of(1, channel.Order{Returns: []channel.Return{{ExternalID: "R1", Status: "created", Reason: "broken", Items: lamp}}}, &channel.Message{ExternalID: "n1", Text: "A return was asked for."}),
		of(2, channel.Order{Status: "Shipped"}, nil),
		of(3, channel.Order{Returns: []channel.Return{{ExternalID: "R1", Status: "received"}}}, &channel.Message{ExternalID: "n2", Text: "The return has arrived."}),
	}
	for n, p := range permutations(len(events)) {
		o := channel.Source{OrganizationID: "acme", ConnectionID: "market-" + strconv.Itoa(n), TicketChannel: "marketplace", ReceivedAt: noon.Add(time.Hour)}
		messages := 0
		for _, i := range p {
			if _, m := f.intake(o, events[i]); m != nil {
				messages++
				if m.ThreadKey != "order:903-1" || m.From.ID != "order:903-1" {
					t.Errorf("a message goes to the thread %q from %+v, want the order's", m.ThreadKey, m.From)
				}
			}
		}
		got, err := f.Order(t.Context(), f.db, o, "903-1")
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != "Shipped" || len(got.Items) != 1 || got.CustomerID != "" || messages != 2 {
			t.Errorf("order %v: %+v with %d messages, want it shipped, of nobody, with two", p, got, messages)
		}
		if len(got.Returns) != 1 || got.Returns[0].Status != "received" || got.Returns[0].Reason != "broken" || len(got.Returns[0].Items) != 1 {
			t.Errorf("order %v: returns %+v, want one that was received", p, got.Returns)
		}
	}
}

// TestGuests: guests are identified by address, and an order without a customer is
// stored.
func TestGuests(t *testing.T) {
	f := open(t)
	o := at("acme", "")
	guest := func(id, email string) shop.Result {
		result, _ := f.intake(o, channel.Record{Customer: channel.Party{Name: "Gus", Email: email}, UpdatedAt: noon, Order: &channel.Order{ExternalID: id, Number: "#" + id}})
		return result
	}
	a, b, none := guest("1", "gus@client.example"), guest("2", "gus@client.example"), guest("3", "")
	if a.CustomerID == "" || a.CustomerID != b.CustomerID || none.CustomerID != "" {
		t.Errorf("customers %q, %q and %q, want the same twice and none", a.CustomerID, b.CustomerID, none.CustomerID)
	}
	list, err := f.Orders(t.Context(), f.db, "acme", a.CustomerID)
	if err != nil || len(list) != 2 || list[0].ConnectionID != "" {
		t.Errorf("Orders() = %+v, %v, want two, of no connection", list, err)
	}
	if list, err := f.Orders(t.Context(), f.db, "other", a.CustomerID); err != nil || len(list) != 0 {
		t.Errorf("Orders() of another organization = %+v, %v, want none", list, err)
	}
	if _, err := f.Order(t.Context(), f.db, o, "3"); err != nil {
		t.Errorf("Order() of nobody's: %v", err)
	}
}

// TestDeleted: a customer's deletion holds against older events, in any order.
func TestDeleted(t *testing.T) {
	f := open(t)
	events := []channel.Record{
		{ExternalID: "1", Customer: channel.Party{Email: "ana@client.example"}, UpdatedAt: noon},
		{ExternalID: "1", Deleted: true, Customer: channel.Party{ID: "1"}, UpdatedAt: noon.Add(time.Minute)},
	}
	for n, p := range permutations(2) {
		o := at("acme", "shop-"+strconv.Itoa(n))
		for _, i := range append(p, 0) {
			f.intake(o, events[i])
		}
		if got := f.count("SELECT count(*) FROM shop_customers WHERE place = $1 AND deleted", o.ConnectionID); got != 1 {
			t.Errorf("order %v: the customer is not deleted", p)
		}
	}
}

// TestNothingStaysOfAFailure: an error of the desk rolls back the record.
func TestNothingStaysOfAFailure(t *testing.T) {
	f := open(t)
	r := channel.Record{ExternalID: "1", Customer: channel.Party{Email: "a@b.example"}, UpdatedAt: noon, Order: &channel.Order{ExternalID: "2"}}
	err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, _, err := f.IngestRecordTx(t.Context(), tx, at("acme", "shop-1"), &r); err != nil {
			return err
		}
		return context.Canceled
	})
	if n := f.count("SELECT count(*) FROM shop_orders"); err == nil || n != 0 {
		t.Errorf("after %v there are %d orders, want none", err, n)
	}
}

// TestMovedCustomer: records of a merged customer move to the survivor, and return without the
// survivor's own and later ones.
func TestMovedCustomer(t *testing.T) {
	f := open(t)
	o := at("acme", "")
	order := func(id, email string) string {
		r, _ := f.intake(o, channel.Record{Customer: channel.Party{Email: email}, Order: &channel.Order{ExternalID: id, Number: id, Status: "paid"}, UpdatedAt: noon})
		return r.CustomerID
	}
	ana, bo := order("1", "ana@c.example"), order("2", "bo@c.example")
	orders := func(id string) (numbers string) {
		t.Helper()
		list, err := f.Orders(t.Context(), f.db, "acme", id)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			numbers += o.Number
		}
		return numbers
	}
	f.write(func(ctx context.Context, tx *db.Tx) error { return f.MoveCustomerTx(ctx, tx, "acme", ana, bo, nil) })
	if got := orders(bo); len(got) != 2 || orders(ana) != "" {
		t.Errorf("merged: got orders %q and %q", got, orders(ana))
	}
	order("3", "bo@c.example")
	f.write(func(ctx context.Context, tx *db.Tx) error {
		return f.MoveCustomerTx(ctx, tx, "acme", bo, ana, []string{ana})
	})
	if got := orders(bo); len(got) != 2 || orders(ana) != "1" {
		t.Errorf("undone: got orders %q and %q", got, orders(ana))
	}
	if n := f.count("SELECT count(*) FROM shop_orders WHERE home_customer_id IS NOT NULL"); n != 0 {
		t.Errorf("%d orders still have a home", n)
	}
}
