package webhooks_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
	"github.com/kickstand-dev/kickstand/clients/go/webhooks"
	"github.com/kickstand-dev/kickstand/clients/go/webhooks/webhookstest"
)

type vector struct {
	Name    string
	Form    *webhooks.Form
	Secrets []struct {
		Text  string
		Whsec string `json:"whsec_base64_of"`
	}
	Now, Tolerance int64
	Headers        map[string]string
	Body           string
	Result         map[string]any
	Error          string
}

var kinds = map[string]error{"unsigned": webhooks.ErrUnsigned, "signature": webhooks.ErrSignature, "timestamp": webhooks.ErrTimestamp}

func TestSignatures(t *testing.T) {
	text, err := os.ReadFile("../../vectors/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			r := webhooks.Verifier{Tolerance: time.Duration(v.Tolerance) * time.Second, Now: func() time.Time { return time.Unix(v.Now, 0) }}
			for _, s := range v.Secrets {
				if s.Text == "" {
					s.Text = "whsec_" + base64.StdEncoding.EncodeToString([]byte(s.Whsec))
				}
				r.Secrets = append(r.Secrets, s.Text)
			}
			h := http.Header{}
			for name, value := range v.Headers {
				h.Set(name, value)
			}
			var e *webhooks.Event
			var err error
			if v.Form == nil {
				e, err = r.Verify([]byte(v.Body), h)
			} else {
				e, err = r.VerifyBody([]byte(v.Body), h, *v.Form)
			}
			if !errors.Is(err, kinds[v.Error]) {
				t.Fatalf("error %v, expected %v", err, v.Error)
			}
			if v.Error == "" {
				check(t, e, v.Result)
			}
		})
	}
}

// check compares an event. Its data has at least the expected members.
func check(t *testing.T, e *webhooks.Event, want map[string]any) {
	t.Helper()
	if e.ID != fmt.Sprint(want["id"]) || string(e.Name) != want["event"] {
		t.Errorf("event %s %s, expected %v", e.ID, e.Name, want)
	}
	at := want["created_at"]
	if at == nil {
		at = want["timestamp"]
	}
	if when, err := time.Parse(time.RFC3339, fmt.Sprint(at)); err != nil || !when.Equal(e.At) {
		t.Errorf("at %v, expected %v", e.At, at)
	}
	var got map[string]any
	if err := json.Unmarshal(e.Raw(), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got["data"], want["data"]) {
		t.Errorf("data %v, expected %v", got["data"], want["data"])
	}
	if e.Data == nil {
		t.Error("no data")
	}
}

// Data has the type of the event in form B, if it fits. It is JSON otherwise.
func TestData(t *testing.T) {
	for _, c := range []struct {
		body  string
		typed bool
	}{
		{`{"id":"evt-1","event":"ticket.created","data":{"ticket":{"id":"tic-7","number":7}}}`, true},
		{`{"id":"evt-1","event":"ticket.created","data":{"ticket":{"id":7}}}`, false},
		{`{"id":"evt-1","event":"ticket.painted","data":{"ticket":{"id":"tic-7"}}}`, false},
		{`{"event":"ticket.created","timestamp":"2026-11-21T09:00:00Z","data":{"ticketId":"tic-7"}}`, false},
	} {
		h := webhookstest.Sign([]byte(c.body), "a secret of sixteen or more", "evt-1", time.Now())
		e, err := webhooks.Verify([]byte(c.body), h, "a secret of sixteen or more")
		if err != nil {
			t.Fatal(err)
		}
		data, typed := e.Data.(*kickstand.EventTicketCreatedData)
		if _, isJSON := e.Data.(json.RawMessage); typed != c.typed || isJSON == c.typed {
			t.Errorf("%s: %T", c.body, e.Data)
		}
		if typed && (data.Ticket.ID != "tic-7" || data.Ticket.Number != 7) {
			t.Errorf("%+v", data)
		}
	}
}

// Every event has the type of its source, with all members. An event that this version does not know is
// JSON.
func TestEvents(t *testing.T) {
	text, err := os.ReadFile("../../vectors/events.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name   string
		Source kickstand.WebhookSource
		Record string
		Body   json.RawMessage
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			r := webhooks.Verifier{Secrets: []string{"a secret of sixteen or more"}, Source: v.Source}
			h := webhookstest.Sign(v.Body, r.Secrets[0], "evt-1", time.Now())
			for _, verify := range []func() (*webhooks.Event, error){
				func() (*webhooks.Event, error) { return r.Verify(v.Body, h) },
				func() (*webhooks.Event, error) { return r.VerifyBody(v.Body, h, webhooks.FormB) },
			} {
				e, err := verify()
				if err != nil {
					t.Fatal(err)
				}
				want := decode(t, v.Body)
				check(t, e, want)
				of := reflect.TypeOf(e.Data)
				if v.Record == "" {
					if of != reflect.TypeFor[json.RawMessage]() {
						t.Errorf("the data is a %v", of)
					}
					continue
				}
				if of.Kind() != reflect.Pointer || !strings.EqualFold(of.Elem().Name(), strings.ReplaceAll(v.Record, "_", "")) {
					t.Fatalf("the data is a %v, expected %s", of, v.Record)
				}
				typed, err := json.Marshal(e.Data)
				if err != nil {
					t.Fatal(err)
				}
				includes(t, "data", decode(t, typed), want["data"])
				raw := e.Data.(interface{ Raw() json.RawMessage }).Raw()
				if !reflect.DeepEqual(decode(t, raw), want["data"]) {
					t.Errorf("raw data %s", raw)
				}
			}
		})
	}
}

func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// includes compares a value with the expected one. Objects may have more members, and lack those that
// no version knows.
func includes(t *testing.T, path string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for name, value := range want {
			if name != "added_later" {
				includes(t, path+"."+name, got[name], value)
			}
		}
		return
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			t.Errorf("%s is %v, expected %v", path, got, want)
			return
		}
		for i := range want {
			includes(t, fmt.Sprint(path, ".", i), got[i], want[i])
		}
		return
	case string:
		at, err := time.Parse(time.RFC3339, want)
		other, _ := got.(string)
		if same, wrong := time.Parse(time.RFC3339, other); err == nil && wrong == nil && same.Equal(at) {
			return
		}
	}
	if got != want {
		t.Errorf("%s is %v, expected %v", path, got, want)
	}
}

// The helpdesk and the fleet both have an event customer.created.
func TestSource(t *testing.T) {
	body := []byte(`{"id":"evt_1","event":"customer.created","created_at":"2026-11-21T09:00:00Z","data":{"livemode":true,"customer":{"id":"cus_1","status":"active"}}}`)
	r := webhooks.Verifier{Secrets: []string{"a secret of sixteen or more"}}
	h := webhookstest.Sign(body, r.Secrets[0], "evt_1", time.Now())
	for source, want := range map[kickstand.WebhookSource]any{
		"":                              new(kickstand.EventCustomerCreatedData),
		kickstand.WebhookSourceHelpdesk: new(kickstand.EventCustomerCreatedData),
		kickstand.WebhookSourceFleet:    new(kickstand.FleetEventCustomerCreatedData),
		kickstand.WebhookSourceSandbox:  new(kickstand.FleetEventCustomerCreatedData),
	} {
		r.Source = source
		e, err := r.Verify(body, h)
		if err != nil || reflect.TypeOf(e.Data) != reflect.TypeOf(want) {
			t.Errorf("source %q: %v, error %v", source, e, err)
			continue
		}
		if data, ok := e.Data.(*kickstand.FleetEventCustomerCreatedData); ok && (!data.Livemode || data.Customer.Status != kickstand.FleetCustomerStatusActive) {
			t.Errorf("%+v", data)
		}
	}
	r.Source = "Fleet"
	if e, err := r.Verify(body, h); err == nil {
		t.Errorf("an unknown source has the event %v", e)
	}
}

// A body can be signed and still be no event.
func TestNoEvent(t *testing.T) {
	for _, body := range []string{"", "null", "[]", "{}", `{"event":5}`} {
		h := webhookstest.Sign([]byte(body), "a secret of sixteen or more", "evt-1", time.Now())
		if e, err := webhooks.Verify([]byte(body), h, "a secret of sixteen or more"); err == nil {
			t.Errorf("%q is the event %v", body, e)
		}
	}
}

// Anybody could sign with a secret that has no key.
func TestEmptySecret(t *testing.T) {
	body := []byte(`{"id":"evt-1","event":"ticket.created","data":{}}`)
	for _, secret := range []string{"", "whsec_", "whsec_=", "whsec_===="} {
		if _, err := webhooks.Verify(body, webhookstest.Sign(body, secret, "evt-1", time.Now()), secret); err == nil {
			t.Errorf("%q is accepted", secret)
		}
	}
}

// A receiver's own tests sign deliveries like the server.
func TestSign(t *testing.T) {
	now := time.Unix(1795251600, 0)
	body := []byte(`{"id":"evt-1","event":"ticket.created","created_at":"2026-11-21T09:00:00.000Z","data":{}}`)
	h := webhookstest.Sign(body, "a secret of sixteen or more", "evt-1", now)
	r := webhooks.Verifier{Secrets: []string{"another secret of that kind", "a secret of sixteen or more"}, Now: func() time.Time { return now }}
	if e, err := r.Verify(body, h); err != nil || e.ID != "evt-1" || e.Name != "ticket.created" {
		t.Errorf("%v, error %v", e, err)
	}
	if _, err := r.VerifyBody(body, h, webhooks.FormB); err != nil {
		t.Error(err)
	}
	if _, err := r.VerifyBody(body, h, webhooks.FormA); !errors.Is(err, webhooks.ErrSignature) {
		t.Errorf("error %v", err)
	}
	if _, err := webhooks.Verify(body, h, ""); err == nil || errors.Is(err, webhooks.ErrSignature) {
		t.Errorf("an empty secret: error %v", err)
	}
}
