package outbound_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

const inDoubt = "it may have arrived: the connection ended before the server confirmed it. It is not sent again automatically"

// byProvider makes mail leave by a provider's API, in memory.
func byProvider(t *testing.T, p *mailtest.Provider) func(*rig) {
	t.Helper()
	api, err := mail.OpenAPI(p.URL, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	api.HTTP = p
	return func(r *rig) { r.mail = api }
}

// TestDeliveryProvider sends by a delivery provider's API, and processes its
// reports.
func TestDeliveryProvider(t *testing.T) {
	p := mailtest.NewProvider(t, nil)
	r := newRig(t, byProvider(t, p))
	c := r.connect("email-raw", ourMail)
	ticket := r.mails(c, question).TicketID
	r.run()
	for _, tt := range []struct {
		kind string
		data map[string]any // besides the identity of the mail
		want desk.Delivery
	}{
		{"email.delivered", nil, desk.Delivery{State: channel.ReceiptDelivered}},
		{"email.opened", nil, desk.Delivery{State: channel.ReceiptRead}},
		{"email.delivery_delayed", nil, desk.Delivery{State: channel.ReceiptSent}},
		{
			"email.bounced", map[string]any{"bounce": map[string]string{"type": "Permanent", "subType": "NoEmail"}},
			desk.Delivery{State: channel.ReceiptFailed, Error: "the address does not exist"},
		},
	} {
		for _, known := range []string{"its id", "our tag"} {
			m := r.reply(ticket, "Under the mat: "+tt.kind+" by "+known)
			r.until(m, channel.ReceiptSent, "")
			sent := p.Deliveries()
			last := sent[len(sent)-1]
			if last.Tags["message"] != m.ID || last.IdempotencyKey != m.ID || last.Headers["Message-ID"] != "<"+m.ExternalID+">" || last.Headers["X-Helpdesk-Message"] == "" {
				t.Errorf("sent %+v, want what names the message %s", last, m.ID)
			}
			data := map[string]any{"from": ourMail, "to": []string{anasMail}, "email_id": last.ID}
			if known == "our tag" { // the report precedes the response
				data["email_id"], data["tags"] = "11111111-1111-1111-1111-111111111111", map[string]string{"message": m.ID}
			}
			maps.Copy(data, tt.data)
			body, err := json.Marshal(map[string]any{"type": tt.kind, "data": data})
			if err != nil {
				t.Fatal(err)
			}
			e, err := email.NewDelivery(email.Config{}).Parse(&channel.Request{
				Method: "POST", Header: http.Header{"Content-Type": {"application/json"}}, Body: body,
			}, channel.Part{})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.intake(c, "email", e); got.Outcome != desk.ReceiptApplied || got.MessageID != m.ID {
				t.Errorf("%s by %s: %+v, want it applied to %s", tt.kind, known, got, m.ID)
			}
			if got := r.message(m).Delivery; got != tt.want {
				t.Errorf("%s by %s: delivery is %+v, want %+v", tt.kind, known, got, tt.want)
			}
		}
	}
}

// TestDeliveryProviderTrouble: the provider fails in each way, at most three times,
// and counts the accepted mails.
func TestDeliveryProviderTrouble(t *testing.T) {
	dbtest.OnlySQLite(t)
	always := 1 << 30
	for _, tt := range []struct {
		name    string
		trouble mailtest.Trouble
		times   int
		meant   desk.Delivery // during the failure
		want    desk.Delivery
		mails   int
		calls   int // at most, until the end
	}{
		{
			"a lost answer", mailtest.Trouble{Taken: true}, 1,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the delivery provider did not accept the mail: unexpected EOF"},
			desk.Delivery{State: channel.ReceiptSent}, 1, 2,
		},
		{
			"lost answers", mailtest.Trouble{Taken: true}, 3,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the delivery provider did not accept the mail: unexpected EOF"},
			desk.Delivery{State: channel.ReceiptSent}, 1, 4,
		},
		{
			"a lost call", mailtest.Trouble{}, 2,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the delivery provider did not accept the mail: unexpected EOF"},
			desk.Delivery{State: channel.ReceiptSent}, 1, 3,
		},
		{
			"an error after it was taken", mailtest.Trouble{Taken: true, Status: 500, Text: "Oops"}, 1,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the delivery provider did not accept the mail: 500 Oops"},
			desk.Delivery{State: channel.ReceiptSent}, 1, 2,
		},
		{
			"too many", mailtest.Trouble{Status: 429, Name: "rate_limit_exceeded", Text: "Slow down", Header: http.Header{"Retry-After": {"90"}}}, 1,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the delivery provider did not accept the mail: 429 Slow down"},
			desk.Delivery{State: channel.ReceiptSent}, 1, 2,
		},
		{
			"a wrong key", mailtest.Trouble{Status: 403, Name: "invalid_api_key", Text: "API key is invalid"}, 3,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the delivery provider refuses the API key: 403 API key is invalid"},
			desk.Delivery{State: channel.ReceiptSent}, 1, 4,
		},
		{
			"a domain that is not verified", mailtest.Trouble{Status: 403, Name: "validation_error", Text: "The a.example domain is not verified."}, always,
			desk.Delivery{State: channel.ReceiptFailed, Error: "the delivery provider rejects our sender address: 403 The a.example domain is not verified."},
			desk.Delivery{State: channel.ReceiptFailed, Error: "the delivery provider rejects our sender address: 403 The a.example domain is not verified."}, 0, 1,
		},
		{
			"another mail under its id", mailtest.Trouble{Status: 409, Name: "invalid_idempotent_request", Text: "Same key, other payload"}, always,
			desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}, desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}, 0, 1,
		},
		{
			"it never answers", mailtest.Trouble{Taken: true}, always,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the delivery provider did not accept the mail: unexpected EOF"},
			desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}, 1, 60,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mailtest.NewProvider(t, func(n int, _ *http.Request) *mailtest.Trouble {
				if n <= tt.times {
					return &tt.trouble
				}
				return nil
			})
			synctest.Test(t, func(t *testing.T) {
				r := rigOn(t, dbtest.NewSQLite(t), byProvider(t, p))
				c := r.connect("email-raw", ourMail)
				m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
				r.run()
				time.Sleep(time.Second)
				synctest.Wait()
				if got := r.message(m).Delivery; got != tt.meant {
					t.Errorf("delivery is %+v, want %+v", got, tt.meant)
				}
				time.Sleep(25 * time.Hour)
				synctest.Wait()
				if got := r.message(m).Delivery; got != tt.want {
					t.Errorf("in the end delivery is %+v, want %+v", got, tt.want)
				}
			})
			if got := p.Deliveries(); len(got) != tt.mails {
				t.Errorf("the provider took %d mails, want %d", len(got), tt.mails)
			}
			if got := p.Calls(); got > tt.calls {
				t.Errorf("%d calls, want %d at most", got, tt.calls)
			}
		})
	}
}

// TestProviderAfterCrash: a process died during the submission of a mail: it is sent
// again as long as the provider recognizes it.
func TestProviderAfterCrash(t *testing.T) {
	p := mailtest.NewProvider(t, nil)
	at := func(key string) string {
		api, err := mail.OpenAPI(p.URL, key)
		if err != nil {
			t.Fatal(err)
		}
		return "api " + api.IdempotencyScope()
	}
	here, there := at(p.Key), at("re_another")
	for _, tt := range []struct {
		name  string
		after time.Duration // since the first submission
		by    string
		want  desk.Delivery
		calls int
	}{
		{"at once", 0, here, desk.Delivery{State: channel.ReceiptSent}, 1},
		{"the day after", 24 * time.Hour, here, desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}, 0},
		{"after it went to a mail server", 0, "smtp", desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}, 0},
		{"after it went by another key", 0, there, desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}, 0},
		{"after it is not known where it went", 0, "", desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := rigOn(t, dbtest.NewSQLite(t), byProvider(t, p))
			c := r.connect("email-raw", ourMail)
			m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
			before := p.Calls()
			time.Sleep(48 * time.Hour)
			r.crashDuringSubmission(m, tt.by)
			time.Sleep(tt.after)
			r.run()
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := r.message(m).Delivery; got != tt.want || p.Calls()-before != tt.calls {
				t.Errorf("%s: delivery is %+v after %d calls, want %+v after %d", tt.name, got, p.Calls()-before, tt.want, tt.calls)
			}
		})
	}
}

// TestOtherWay changes the route of a connection's mails while one is uncertain:
// the new route knows nothing of it.
func TestOtherWay(t *testing.T) {
	dbtest.OnlySQLite(t)
	first := mailtest.NewProvider(t, func(int, *http.Request) *mailtest.Trouble { return &mailtest.Trouble{Taken: true} })
	second := mailtest.NewProvider(t, nil)
	var by [2]*mail.HTTPSender
	for i, p := range []*mailtest.Provider{first, second} {
		var err error
		if by[i], err = mail.OpenAPI(p.URL, p.Key); err != nil {
			t.Fatal(err)
		}
		by[i].HTTP = p
	}
	synctest.Test(t, func(t *testing.T) {
		var changed atomic.Bool
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) {
			r.open = func(*connection.Connection, channel.Credentials) (mail.TrackedSender, error) {
				if changed.Load() {
					return by[1], nil
				}
				return by[0], nil
			}
		})
		c := r.connect("email-raw", ourMail)
		m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
		r.run()
		time.Sleep(time.Second)
		synctest.Wait()
		changed.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, want := r.message(m).Delivery, (desk.Delivery{State: channel.ReceiptFailed, Error: inDoubt}); got != want {
			t.Errorf("delivery is %+v, want %+v", got, want)
		}
	})
	if one, other := len(first.Deliveries()), len(second.Deliveries()); one != 1 || other != 0 {
		t.Errorf("the first provider took %d mails and the second %d, want 1 and 0", one, other)
	}
}

// TestComplaint: after a spam complaint no more mail goes to the customer.
func TestComplaint(t *testing.T) {
	p := mailtest.NewProvider(t, nil)
	r := newRig(t, byProvider(t, p))
	c := r.connect("email-raw", ourMail)
	ticket := r.mails(c, question).TicketID
	r.run()
	m := r.reply(ticket, "Under the mat.")
	r.until(m, channel.ReceiptSent, "")
	r.intake(c, "email", channel.Event{Receipt: &channel.Receipt{
		ExternalIDs: []string{p.Deliveries()[0].ID}, State: channel.ReceiptDelivered, Recipient: anasMail, Permanent: true, OptedOut: true,
		Note: "The recipient reported the mail as unwanted.",
	}})
	if _, err := r.tryReply(ticket, "Did you find it?"); err == nil {
		t.Error("another mail may be sent after a complaint")
	}
	list, err := r.desk.Messages(t.Context(), r.db, org, ticket)
	if err != nil {
		t.Fatal(err)
	}
	const note = "The message was delivered (ana@c.example).\n\nThe recipient reported the mail as unwanted."
	if !slices.ContainsFunc(list, func(m desk.Message) bool { return m.Kind == desk.KindNote && m.Text == note }) {
		t.Errorf("there is no note %q", note)
	}
}
