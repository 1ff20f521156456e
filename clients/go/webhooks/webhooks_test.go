package webhooks_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
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

// A receiver's own tests sign deliveries like the server.
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
