package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestVoice goes from a voicemail to a reply by SMS, and the customer's response.
func TestVoice(t *testing.T) {
	t.Parallel()
	const secret = "the webhook's secret"
	sent := make(chan string, 10)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			To   []string    `json:"to_numbers"`
			User json.Number `json:"user_id"`
			Text string
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		sent <- fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Authorization"), " ", body.User, " to ", body.To, ": ", body.Text)
		fmt.Fprint(w, `{"id":6011258943602688,"message_status":"pending"}`)
	}))
	t.Cleanup(provider.Close)
	r := &metaRig{flags: []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--voice-api-url=" + provider.URL}}
	command(t, nil, append([]string{"org", "create", "--name=Acme"}, r.flags...)...)
	command(t, nil, append([]string{"channel", "connect", "voice", "--org=acme", "--address=" + demoTelephone, "--secret=" + secret,
		`--credentials={"api_token":"the token","user_id":"5780678246121472"}`, "--setting=missed_calls=ticket"}, r.flags...)...)
	var key struct{ Key string }
	command(t, &key, append([]string{"key", "create", "--org=acme", "--service=helpdesk", "--environment=live", "--name=Test", "--level=admin"}, r.flags...)...)
	r.key = key.Key
	r.server = start(t, r.flags...)
	trigger := func(args ...string) {
		t.Helper()
		command(t, nil, append([]string{"trigger", "voice", "--base-url=" + r.url, "--voice-secret=" + secret}, args...)...)
	}

	trigger("--event=missed")
	id, messages := r.ticket(t, "voice", some)
	if len(messages) != 1 || messages[0].Text != "Nobody answered this call." {
		t.Fatalf("messages %+v, want that a call was missed", messages)
	}
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{"kind": "reply", "text": "We call you back."}, nil); status != http.StatusCreated {
		t.Fatalf("the reply was answered %d %s", status, body)
	}
	select {
	case got := <-sent:
		if want := "POST /api/v2/sms Bearer the token 5780678246121472 to [" + demoCaller + "]: We call you back."; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was sent")
	}
	r.ticket(t, "voice", inState("We call you back.", "sent"))
	trigger("--event=sms-delivered", "--text=6011258943602688")
	r.ticket(t, "voice", inState("We call you back.", "delivered"))
	trigger("--event=sms", "--text=Thanks")
	_, messages = r.ticket(t, "voice", func(list []restMessage) bool { return len(list) >= 3 })
	if got := messages[2]; len(messages) != 3 || got.Text != "Thanks" || got.Direction != "inbound" {
		t.Errorf("messages %+v, want the customer's text in the ticket of the call", messages)
	}

	// A voicemail of another caller, signed; an unsigned one is refused.
	call := voiceCall("transcription", "+17025550122", demoTelephone, "Call me back", time.Now())
	call["voicemail_link"] = nil
	event, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		secret string
		status int
	}{{"another secret", 401}, {secret, 200}} {
		resp, err := http.Post(r.url+"/api/webhooks/voice", "application/jwt", strings.NewReader(string(voice.SignJWT(event, tt.secret))))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("with %s: answered %d, want %d", tt.secret, resp.StatusCode, tt.status)
		}
	}
	var list struct {
		Data []struct{ Subject string }
	}
	for range poll(t, 30*time.Second) {
		r.api(t, http.MethodGet, "/tickets?channel=voice", nil, &list)
		if len(list.Data) == 2 {
			break
		}
	}
	if len(list.Data) != 2 || list.Data[0].Subject != "Voicemail from Ana (+17025550122)" {
		t.Errorf("tickets %+v, want the voicemail's, too", list.Data)
	}
}
