package event_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
)

func TestForget(t *testing.T) {
	d := dbtest.New(t)
	log := new(event.Log)
	customer := func(id string) *event.Customer {
		return &event.Customer{ID: id, Name: "Ana", Email: "ana@client.example"}
	}
	ticket := func(id, customerID string) *event.Ticket {
		return &event.Ticket{ID: id, Subject: "My car", Customer: customer(customerID)}
	}
	said := func(author string) *event.Message {
		return &event.Message{Author: event.Author{Type: "customer", ID: author, Name: "Ana"}, Text: "hello", Attachments: []event.Attachment{{Name: "a"}}}
	}
	const gone = `{"id":"c1","name":"","email":"","phone":""}`
	ticketGone := `{"id":"t1","number":0,"subject":"(redacted)","status":"","priority":"","channel":"","assignee":null,"customer":` + gone + `,"url":""}`
	messageGone := `{"id":"","ticket_id":"","conversation_id":"","direction":"","author":{"type":"customer","id":"c1","name":""},"channel":"","kind":"","text":"","html":"","attachments":[],"external_id":"","created_at":"0001-01-01T00:00:00Z"}`
	for _, tt := range []struct {
		name string
		org  string
		data event.Data
		want string // empty: unchanged
	}{
		{"the customer", "a", event.Data{Customer: customer("c1"), Changes: map[string]event.Change{"name": {From: "An", To: "Ana"}}}, `{"customer":` + gone + `,"changes":{"name":{"from":null,"to":null}}}`},
		{"another customer", "a", event.Data{Customer: customer("c2")}, ""},
		{"another organization", "b", event.Data{Customer: customer("c1")}, ""},
		{"their ticket", "a", event.Data{Ticket: ticket("t1", "c1"), Changes: map[string]event.Change{"subject": {From: "a", To: "b"}, "status": {From: "open", To: "closed"}}},
			`{"ticket":` + ticketGone + `,"changes":{"status":{"from":"open","to":"closed"},"subject":{"from":null,"to":null}}}`},
		{"a message of theirs", "a", event.Data{Ticket: ticket("t1", "c1"), Message: said("c1")}, `{"ticket":` + ticketGone + `,"message":` + messageGone + `}`},
		{"another ticket", "a", event.Data{Ticket: ticket("t3", "c1")}, ""},
		{"another's ticket", "a", event.Data{Ticket: ticket("t2", "c2")}, ""},
		{"what is so already", "a", event.Data{Customer: &event.Customer{ID: "c1"}, Changes: map[string]event.Change{"name": {To: ""}}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := []event.Event{{OrganizationID: tt.org, Name: event.TicketUpdated, Data: tt.data}}
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return log.EmitTx(t.Context(), tx, list...) }); err != nil {
				t.Fatal(err)
			}
			id, before := list[0].ID, asJSON(t, tt.data)
			for _, want := range []bool{tt.want != "", false} {
				var changed []string
				err := event.Redact(t.Context(), d, "a", "c1", []string{"t1", "t2"}, func(_ context.Context, _ *db.Tx, ids []string) error {
					changed = append(changed, ids...)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := slices.Contains(changed, id); got != want {
					t.Errorf("changed: got %v, want %v", got, want)
				}
			}
			e, err := event.Find(t.Context(), d, id)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want == "" {
				want = before
			}
			if got := asJSON(t, e.Data); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
