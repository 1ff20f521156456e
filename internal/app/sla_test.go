package app

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// slaReceiver is an in-memory receiver that records requests and their times.
type slaReceiver struct {
	bodies chan string
}

func (r slaReceiver) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	r.bodies <- request.Header.Get("X-Service-Event") + " at " + time.Now().UTC().Format(time.TimeOnly) + " " + string(body)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: request}, nil
}

// TestSLAWebhooks follows an SLA target to its receiver, in both payload forms: an SMS
// creates a ticket without a reply, and both events are sent on the second.
func TestSLAWebhooks(t *testing.T) {
	const org, connection = "0190c0de-0000-7000-8000-00000000000a", "0190c0de-0000-7000-8000-0000000000a1"
	for _, c := range []struct {
		form payload.Form
		want []string // parts of the body
	}{
		{payload.Flat, []string{`"dueAt":"2000-01-01T00:10:00.000Z"`, `"metric":"first_response"`, `"ticketNumber":1`}},
		{payload.Nested, []string{`"sla":{"metric":"first_response","due_at":"2000-01-01T00:10:00.000Z"}`, `"ticket":{"id":"`, `"number":1`, `"status":"open"`}},
	} {
		t.Run(string(c.form), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := dbtest.NewSQLite(t)
				files, err := blob.Open("file:"+t.TempDir(), blob.Credentials{})
				if err != nil {
					t.Fatal(err)
				}
				q, events := queue.Open(d, queue.Config{}), new(event.Log)
				tickets := desk.Open(desk.Config{DB: d, Queue: q, Events: events, Blob: files, BaseURL: "https://help.example.com"})
				receiver := slaReceiver{make(chan string, 10)}
				webhooks := webhook.Open(webhook.Config{DB: d, Queue: q, Events: events, Box: seal.New(seal.NewKey()), Transport: receiver})
				if _, err := webhooks.Create(t.Context(), org, webhook.New{
					URL: "https://receiver.example.com/", Events: []string{"sla.warning", "sla.breached"}, PayloadForm: c.form,
				}); err != nil {
					t.Fatal(err)
				}
				if _, err := tickets.SetSLAPolicy(t.Context(), desk.SLAPolicy{
					OrganizationID: org, Priority: desk.PriorityNormal, FirstResponseMinutes: 10,
				}); err != nil {
					t.Fatal(err)
				}
				if err := q.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer q.Stop(context.Background())
				if err := d.Write(t.Context(), func(tx *db.Tx) error {
					_, err := tickets.IngestTx(t.Context(), tx, desk.InboundEvent{
						OrganizationID: org, ConnectionID: connection, Channel: "sms",
						Event: channel.Event{Message: &channel.Message{
							ExternalID: "SM1", ThreadKey: "+4915112345678", From: channel.Party{Phone: "+4915112345678"}, Text: "hello",
						}},
					})
					return err
				}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				for _, want := range []string{"sla.warning at 00:08:00", "sla.breached at 00:10:00"} {
					var got string
					select {
					case got = <-receiver.bodies:
					default:
						t.Fatalf("nothing came, want %s", want)
					}
					head, body, _ := strings.Cut(got, " {")
					if body = "{" + body; head != want || !json.Valid([]byte(body)) {
						t.Errorf("got %s %s, want %s", head, body, want)
					}
					for _, part := range c.want {
						if !strings.Contains(body, part) {
							t.Errorf("%s\n got %s\nwant %s in it", want, body, part)
						}
					}
				}
				if len(receiver.bodies) != 0 {
					t.Errorf("got more: %s", <-receiver.bodies)
				}
			})
		})
	}
}
