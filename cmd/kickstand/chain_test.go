package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// delivered is a webhook delivery as received.
type delivered struct {
	header http.Header
	body   []byte
}

// TestChain covers the main path over HTTP: sign in by the mailed link, sign up, create a
// webhook, receive a signed SMS, deliver its events.
func TestChain(t *testing.T) {
	for _, form := range []string{"a", "b"} {
		t.Run("form "+form, func(t *testing.T) {
			t.Parallel()
			secret := "chain-" + strings.Repeat("s", 20)
			smsSecret := "sms-" + strings.Repeat("k", 20)
			s := start(t, "--data="+t.TempDir(), "--database-url="+dbtest.URL(t),
				"--sms-secret="+smsSecret, "--allow-private-receivers")

			deliveries := make(chan delivered, 100)
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				deliveries <- delivered{r.Header, body}
			}))
			t.Cleanup(receiver.Close)

			c := browser(t)
			call(t, c, s.url, "auth.signInWithEmail", map[string]any{"email": "Robin@Example.com"}, nil)
			resp, err := c.Get(mailedLink(t, s.url, "Robin@Example.com"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusSeeOther {
				t.Fatalf("following the link: status %d, want 303", resp.StatusCode)
			}
			var signup struct {
				User            struct{ Role string }
				Organization    struct{ Slug string }
				RequiresPayment bool
			}
			call(t, c, s.url, "auth.completeSignup", map[string]any{"name": "Robin", "organizationName": "Acme Wheels"}, &signup)
			if signup.User.Role != "admin" || signup.Organization.Slug != "acme-wheels" || signup.RequiresPayment {
				t.Fatalf("completeSignup answered %+v", signup)
			}
			call(t, c, s.url, "webhooks.create", map[string]any{
				"url": receiver.URL + "/hook", "events": []string{"ticket.created"}, "secret": secret, "payloadForm": form,
			}, nil)

			status, body := send(t, c, smsRequest(s.url, smsSecret, "SM1", "+14155550123", "+14155550100", "It does not unlock"))
			if want := `<?xml version="1.0" encoding="UTF-8"?><Response></Response>`; status != 200 || body != want {
				t.Fatalf("the text was answered %d %q, want 200 %q", status, body, want)
			}
			select {
			case d := <-deliveries:
				checkDelivery(t, form, secret, d)
			case <-time.After(20 * time.Second):
				t.Fatal("nothing was delivered")
			}
			s.stop()
		})
	}
}

// checkDelivery verifies a delivery by the contract alone, without the program's code.
func checkDelivery(t *testing.T, form, secret string, d delivered) {
	t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(d.body)
	want := hex.EncodeToString(mac.Sum(nil))
	if form == "b" {
		want = "sha256=" + want
	}
	if got := d.header.Get("X-Service-Signature"); got != want {
		t.Errorf("signature %q, want %q", got, want)
	}
	if got := d.header.Get("X-Service-Event"); got != "ticket.created" {
		t.Errorf("X-Service-Event %q, want ticket.created", got)
	}
	type ticket struct {
		Subject, Status, Priority string
		TicketID, ID, CustomerID  string
		TicketNumber              int
		CustomerEmail             *string
		Customer                  struct{ ID string }
	}
	var payload struct {
		Event, Timestamp, ID string
		CreatedAt            string `json:"created_at"`
		Data                 json.RawMessage
	}
	if err := json.Unmarshal(d.body, &payload); err != nil {
		t.Fatal(err)
	}
	var got ticket
	if form == "a" {
		if err := json.Unmarshal(payload.Data, &got); err != nil {
			t.Fatal(err)
		}
		if got.TicketNumber != 1 || got.TicketID == "" || got.CustomerID == "" || got.CustomerEmail != nil {
			t.Errorf("form A data %s", payload.Data)
		}
		if _, err := time.Parse(time.RFC3339, payload.Timestamp); err != nil {
			t.Error(err)
		}
	} else {
		var data struct{ Ticket ticket }
		if err := json.Unmarshal(payload.Data, &data); err != nil {
			t.Fatal(err)
		}
		got = data.Ticket
		if payload.ID == "" || got.ID == "" || got.Customer.ID == "" || d.header.Get("X-Service-Delivery") == "" {
			t.Errorf("form B body %s", d.body)
		}
		if _, err := time.Parse(time.RFC3339, payload.CreatedAt); err != nil {
			t.Error(err)
		}
	}
	if payload.Event != "ticket.created" || got.Status != "open" || got.Priority != "normal" || got.Subject == "" {
		t.Errorf("body %s", d.body)
	}
}
