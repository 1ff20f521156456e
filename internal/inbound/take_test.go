package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

// taker takes everything that the desk does not, and keeps what it was told in
// transactions that were committed.
type taker struct {
	have  []string // URLs of recordings that are here
	taken []string
	err   error // what comes back instead, once
}

func (k *taker) tell(tx *db.Tx, what string, o channel.Origin) (any, error) {
	if k.err != nil {
		err := k.err
		k.err = nil
		return nil, err
	}
	if o.OrganizationID != "org-1" || o.ConnectionID == "" || o.Medium != "parcels" || o.ReceivedAt.IsZero() {
		what += fmt.Sprintf(" of %+v", o)
	}
	tx.AfterCommit(func() { k.taken = append(k.taken, what) })
	return map[string]string{"outcome": "taken"}, nil
}

func (k *taker) Missing(_ context.Context, _ db.Querier, _ channel.Origin, c *channel.PhoneCall) ([]channel.Attachment, error) {
	return slices.DeleteFunc(c.Recordings, func(a channel.Attachment) bool { return slices.Contains(k.have, a.URL) }), nil
}

func (k *taker) IntakeCall(_ context.Context, tx *db.Tx, o channel.Origin, c *channel.PhoneCall, files []blob.Ref) (any, *channel.Message, []blob.Ref, error) {
	what := "call " + c.State
	for i, r := range c.Recordings {
		what += fmt.Sprintf(" %s:%d:%s", r.URL, files[i].Size, r.Error)
	}
	result, err := k.tell(tx, what, o)
	if err != nil || c.State != "transcription" {
		return result, nil, nil, err
	}
	return result, &channel.Message{
		ExternalID: "m" + c.IDs[0], ThreadKey: c.IDs[0], From: c.Contact, Text: c.Transcription, Attachments: c.Recordings,
	}, files, nil
}

func (k *taker) PlacedCall(_ context.Context, tx *db.Tx, o channel.Origin, c *channel.PhoneCall, m *channel.Message, ticketID, messageID string) error {
	if ticketID == "" || messageID == "" {
		return errors.New("nowhere")
	}
	_, err := k.tell(tx, "placed "+m.ThreadKey, o)
	return err
}

func (k *taker) IntakeRecord(_ context.Context, tx *db.Tx, o channel.Origin, r *channel.Record) (any, *channel.Message, error) {
	if r.Message != nil {
		r.Message.Text += "!" // twice, if it were given the same again
	}
	result, err := k.tell(tx, "record "+r.ExternalID, o)
	return result, r.Message, err
}

func (k *taker) IntakePrivacy(_ context.Context, tx *db.Tx, o channel.Origin, p *channel.Privacy) (any, error) {
	return k.tell(tx, "privacy "+string(p.Kind), o)
}

func (k *taker) IntakeNews(_ context.Context, tx *db.Tx, o channel.Origin, n *channel.News) (any, error) {
	return k.tell(tx, "news "+string(n.Kind), o)
}

// TestTake: what an event means goes to whoever takes that, with its files, in one
// transaction with what comes of it.
func TestTake(t *testing.T) {
	recordings := func(urls ...string) (list []channel.Attachment) {
		for _, url := range urls {
			list = append(list, channel.Attachment{Name: "voicemail.mp3", URL: "https://files.example/" + url})
		}
		return list
	}
	ana := channel.Party{Name: "Ana", Phone: theirs}
	message := &channel.Message{ExternalID: "m1", ThreadKey: "order 1", From: ana, Text: "cancel it", Attachments: recordings("here")}
	for _, tt := range []struct {
		name    string
		event   channel.Event
		have    string // recording that is here
		err     error
		taken   []string
		asked   int
		result  string // begins with
		tickets [][]string
	}{
		{
			name: "call", event: channel.Event{Call: &channel.PhoneCall{IDs: []string{"1"}, State: "ringing", Contact: ana}},
			taken: []string{"call ringing"}, result: `{"outcome":"taken"}`,
		},
		{
			name:  "call with a recording",
			event: channel.Event{Call: &channel.PhoneCall{IDs: []string{"1"}, State: "recording", Contact: ana, Recordings: recordings("here", "gone")}},
			taken: []string{"call recording https://files.example/here:5: https://files.example/gone:0:the provider answered 404 Not Found"},
			asked: 2, result: `{"outcome":"taken"}`,
		},
		{
			name:  "call with a recording that is here",
			event: channel.Event{Call: &channel.PhoneCall{IDs: []string{"1"}, State: "recording", Contact: ana, Recordings: recordings("here")}},
			have:  "https://files.example/here", taken: []string{"call recording"}, result: `{"outcome":"taken"}`,
		},
		{
			name: "voicemail",
			event: channel.Event{Call: &channel.PhoneCall{
				IDs: []string{"1"}, State: "transcription", Contact: ana, Transcription: "call me", Recordings: recordings("here"),
			}},
			taken: []string{"call transcription https://files.example/here:5:", "placed 1"}, asked: 1,
			result: `{"outcome":"ticket_created"`, tickets: [][]string{{"call me [5]"}},
		},
		{
			name:  "voicemail, after a failure",
			event: channel.Event{Call: &channel.PhoneCall{IDs: []string{"1"}, State: "transcription", Contact: ana, Transcription: "call me"}},
			err:   errors.New("no ink"),
			taken: []string{"call transcription", "placed 1"}, result: `{"outcome":"ticket_created"`, tickets: [][]string{{"call me"}},
		},
		{
			name: "record", event: channel.Event{Record: &channel.Record{ExternalID: "7", Customer: ana}},
			taken: []string{"record 7"}, result: `{"outcome":"taken"}`,
		},
		{
			name: "record with a message", event: channel.Event{Record: &channel.Record{ExternalID: "7", Customer: ana, Message: message}},
			err: errors.New("no ink"), taken: []string{"record 7"}, asked: 2, // once for each attempt
			result: `{"outcome":"ticket_created"`, tickets: [][]string{{"cancel it! [5]"}},
		},
		{
			name: "privacy", event: channel.Event{Privacy: &channel.Privacy{Kind: channel.PrivacyRequest}},
			taken: []string{"privacy customers/data_request"}, result: `{"outcome":"taken"}`,
		},
		{
			name: "news", event: channel.Event{News: &channel.News{Kind: channel.Disconnected}},
			taken: []string{"news disconnected"}, result: `{"outcome":"taken"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &taker{have: []string{tt.have}, err: tt.err}
				p := &provider{answers: map[string]answerFunc{"https://files.example/here": file("audio"), "https://files.example/gone": status(404)}}
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

// TestNobodyTakes: what no part of the program takes is set aside, and says so.
func TestNobodyTakes(t *testing.T) {
	for _, e := range []channel.Event{
		{Payment: &channel.Payment{}}, {Call: &channel.PhoneCall{Recordings: []channel.Attachment{{Data: []byte("x")}}}}, {Record: &channel.Record{}},
		{Privacy: &channel.Privacy{}}, {News: &channel.News{}}, {},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := startSQLite(t, withParcels(newParcels("parcels")))
			h.connect(t, "parcels", "a")
			h.wantAnswer(t, parcelRequest(parcelPath, eventTo("a", e), secretOf("a")), 200, accepted)
			h.run(t)
			h.settled(t)
			if e := h.list(t)[0]; e.State != inbound.Dead || e.Error == "" || strings.Contains(e.Error, "panic") {
				t.Errorf("the event is %s: %q, want it dead with a reason", e.State, e.Error)
			}
		})
	}
}
