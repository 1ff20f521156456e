package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

// recorder implements all domains but the desk and records events of committed transactions.
type recorder struct {
	mu    sync.Mutex // transactions may end concurrently
	taken []string
	err   error // returned once
}

func (k *recorder) record(tx *db.Tx, what string, o channel.Source) (any, error) {
	k.mu.Lock()
	err := k.err
	k.err = nil
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if o.OrganizationID != "org-1" || o.ConnectionID == "" || o.Channel != "parcels" || o.TicketChannel != "parcels" || o.ReceivedAt.IsZero() {
		what += fmt.Sprintf(" of %+v", o)
	}
	tx.AfterCommit(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.taken = append(k.taken, what)
	})
	return map[string]string{"outcome": "taken"}, nil
}

func (k *recorder) IngestCallTx(_ context.Context, tx *db.Tx, o channel.Source, c *channel.PhoneCall) (any, error) {
	return k.record(tx, "call "+c.State, o)
}

func (k *recorder) IngestRecordTx(_ context.Context, tx *db.Tx, o channel.Source, r *channel.Record) (any, *channel.Message, error) {
	if r.Message != nil {
		r.Message.Text += "!" // doubled if the event is passed again
	}
	result, err := k.record(tx, "record "+r.ExternalID, o)
	return result, r.Message, err
}

func (k *recorder) IngestPrivacyRequestTx(_ context.Context, tx *db.Tx, o channel.Source, p *channel.PrivacyRequest) (any, error) {
	return k.record(tx, "privacy "+string(p.Kind), o)
}

func (k *recorder) IngestConnectionEventTx(_ context.Context, tx *db.Tx, o channel.Source, n *channel.ConnectionEvent) (any, error) {
	return k.record(tx, "news "+string(n.Kind), o)
}

// TestApply: each kind of event is passed to its domain, with its files, in one transaction with
// the resulting message.
func TestApply(t *testing.T) {
	ana := channel.Party{Name: "Ana", Phone: theirs}
	message := &channel.Message{ExternalID: "m1", ThreadKey: "order 1", From: ana, Text: "cancel it", Attachments: promised("1")}
	for _, tt := range []struct {
		name    string
		event   channel.Event
		err     error
		taken   []string
		asked   int
		result  string // prefix
		tickets [][]string
	}{
		{
			name: "call", event: channel.Event{Call: &channel.PhoneCall{IDs: []string{"1"}, State: "ringing", Contact: ana}},
			taken: []string{"call ringing"}, result: `{"outcome":"taken"}`,
		},
		{
			name: "record", event: channel.Event{Record: &channel.Record{ExternalID: "7", Customer: ana}},
			taken: []string{"record 7"}, result: `{"outcome":"taken"}`,
		},
		{
			name: "record with a message", event: channel.Event{Record: &channel.Record{ExternalID: "7", Customer: ana, Message: message}},
			err: errors.New("no ink"), taken: []string{"record 7"}, asked: 1, // after the message was placed
			result: `{"outcome":"ticket_created"`, tickets: [][]string{{"cancel it! [5]"}},
		},
		{
			name: "privacy", event: channel.Event{Privacy: &channel.PrivacyRequest{Kind: channel.PrivacyDataRequest}},
			taken: []string{"privacy customers/data_request"}, result: `{"outcome":"taken"}`,
		},
		{
			name: "news", event: channel.Event{ConnectionEvent: &channel.ConnectionEvent{Kind: channel.Disconnected}},
			taken: []string{"news disconnected"}, result: `{"outcome":"taken"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &recorder{err: tt.err}
				p := &provider{answers: map[string]answerFunc{"https://files.example/1": file("audio")}}
				h := startSQLite(t, withParcels(newParcels("parcels")), func(h *house) {
					h.calls, h.shops, h.news, h.media = k, k, k, p
				})
				h.connect(t, "parcels", "a")
				for range 2 {
					h.do(parcelRequest(parcelPath, eventTo("a", tt.event), secretOf("a")))
				}
				h.run(t)
				h.settled(t)
				e := h.list(t)[0]
				if e.State != inbound.Processed || !strings.HasPrefix(string(e.Result), tt.result) {
					t.Errorf("the event is %s with %s %s, want the result %s", e.State, e.Result, e.Error, tt.result)
				}
				if !slices.Equal(k.taken, tt.taken) || len(p.asked) != tt.asked {
					t.Errorf("taken %q after %d downloads, want %q after %d", k.taken, len(p.asked), tt.taken, tt.asked)
				}
				var tickets [][]string
				for _, id := range ticketIDs(t, h) {
					messages, err := h.desk.Messages(t.Context(), h.db, "org-1", id)
					if err != nil {
						t.Fatal(err)
					}
					var texts []string
					for _, m := range messages {
						for _, a := range m.Attachments {
							m.Text += fmt.Sprintf(" [%d]", a.Size)
						}
						texts = append(texts, m.Text)
					}
					tickets = append(tickets, texts)
				}
				if !slices.EqualFunc(tickets, tt.tickets, slices.Equal) {
					t.Errorf("tickets %q, want %q", tickets, tt.tickets)
				}
			})
		})
	}
}

func ticketIDs(t testing.TB, h *house) []string {
	t.Helper()
	ids, err := db.All(t.Context(), h.db, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT id FROM tickets ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// promised returns attachments at the provider.
func promised(names ...string) (list []channel.Attachment) {
	for _, name := range names {
		list = append(list, channel.Attachment{Name: name, URL: "https://files.example/" + name})
	}
	return list
}

// TestPlace: a message that results from several events is placed, and its files are downloaded
// with the connection's credentials.
func TestPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{answers: map[string]answerFunc{"https://files.example/1": file("audio"), "https://files.example/2": status(500)}}
		h := startSQLite(t, withParcels(newParcels("parcels")), func(h *house) { h.media = p })
		c := h.connect(t, "parcels", "a", func(n *connection.New) { n.Credentials = map[string]string{"token": "T"} })
		o := channel.Source{OrganizationID: "org-1", ConnectionID: c.ID, Channel: "parcels", TicketChannel: "parcels", ReceivedAt: time.Now()}
		m := &channel.Message{ExternalID: "m1", ThreadKey: "call 1", From: channel.Party{Phone: theirs}, Text: "call me", Attachments: promised("1", "2")}
		place := func(o channel.Source) (id string, err error) {
			err = h.db.Write(t.Context(), func(tx *db.Tx) error {
				id, err = h.IngestMessageTx(t.Context(), tx, o, m)
				return err
			})
			return id, err
		}
		id, err := place(o)
		if err != nil || id == "" {
			t.Fatalf("Place() = %q, %v, want a ticket", id, err)
		}
		h.run(t)
		h.settled(t)
		h.wantTickets(t, "org-1", []string{"call me"})
		messages, err := h.desk.Messages(t.Context(), h.db, "org-1", id)
		if err != nil {
			t.Fatal(err)
		}
		if files := messages[0].Attachments; len(files) != 2 || files[0].Size != 5 || files[1].BlobKey != "" || files[1].Error != "the provider answered 500 Internal Server Error" {
			t.Errorf("files %+v, want the first, and why there is no second", files)
		}
		for _, asked := range p.asked {
			if !strings.HasSuffix(asked, " T") {
				t.Errorf("asked %q, want the connection's token", asked)
			}
		}
		o.Channel = "fax"
		if _, err := place(o); err == nil {
			t.Error("Place() for a channel that there is not = nil, want an error")
		}
	})
}
