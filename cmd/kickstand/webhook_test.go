package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestWebhookCommands runs the commands next to a server: list, show and replay
// deliveries.
func TestWebhookCommands(t *testing.T) {
	smsSecret, secret := "sms-"+strings.Repeat("k", 20), "hook-"+strings.Repeat("s", 20)
	data, database := "--data="+t.TempDir(), "--database-url="+dbtest.URL(t)
	s := start(t, data, database, "--sms-secret="+smsSecret, "--allow-private-receivers")
	kickstand := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), append(args, data, database), noEnvironment, nil, &out, t.Output()); err != nil {
			t.Fatalf("kickstand %s: %v", strings.Join(args, " "), err)
		}
		return out.String()
	}
	deliveries := make(chan delivered, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		deliveries <- delivered{r.Header, body}
		io.WriteString(w, "thank you\x1b[2J")
	}))
	t.Cleanup(receiver.Close)
	wait := func() delivered {
		t.Helper()
		select {
		case d := <-deliveries:
			return d
		case <-time.After(20 * time.Second):
			t.Fatal("nothing was delivered")
			panic("unreachable")
		}
	}

	kickstand("org", "create", "--name=Acme")
	kickstand("user", "create", "--email=robin@example.com", "--password=quite-a-secret", "--org=acme", "--role=admin")
	c := browser(t)
	call(t, c, s.url, "auth.signInWithPassword", map[string]any{"email": "robin@example.com", "password": "quite-a-secret"}, nil)
	var hook struct{ ID string }
	call(t, c, s.url, "webhooks.create", map[string]any{"url": receiver.URL + "/hook", "events": []string{"ticket.created"}, "secret": secret}, &hook)

	if got := kickstand("webhook", "disable", "--org=acme", hook.ID); !strings.Contains(got, "is disabled. Events queue, at most 10000; 0 are queued now.") {
		t.Errorf("disable said %q", got)
	}
	if status, body := send(t, c, smsRequest(s.url, smsSecret, "SM1", "+14155550123", "+14155550100", "It does not unlock")); status != 200 {
		t.Fatalf("the text was answered %d %q", status, body)
	}
	var list []shownWebhook
	for range poll(t, 20*time.Second) {
		if err := json.Unmarshal([]byte(kickstand("webhook", "list", "--org=acme", "--json")), &list); err != nil || len(list) != 1 {
			t.Fatalf("got %+v, %v, want the webhook", list, err)
		}
		if list[0].QueuedEvents == 1 {
			break
		}
	}
	if got := kickstand("webhook", "list", "--org=acme"); !strings.Contains(got, hook.ID+"  helpdesk  disabled  1 ") {
		t.Errorf("list said %q", got)
	}
	if got := kickstand("webhook", "deliveries", "--org=acme", "--ticket=1"); !strings.Contains(got, "ticket.created  untried  0 ") {
		t.Errorf("deliveries said %q", got)
	}
	if got := kickstand("webhook", "enable", "--org=acme", hook.ID, "--rate=5"); !strings.Contains(got, "is enabled. A running server delivers the 1 queued events, 5 a second.") {
		t.Errorf("enable said %q", got)
	}
	first := wait()
	id := first.header.Get("X-Service-Delivery")
	for range poll(t, 20*time.Second) {
		if got := kickstand("webhook", "deliveries", "--org=acme", "--state=delivered", "--since=1h"); strings.Contains(got, id) {
			break
		}
	}
	shown := kickstand("webhook", "show", "--org=acme", id)
	for _, want := range []string{
		"ticket.created of event " + first.header.Get("Webhook-Id") + " to webhook " + hook.ID + ": delivered",
		"Attempt 1, ", " ms: 200\n", "> POST /hook HTTP/1.1\n", "> Host: " + strings.TrimPrefix(receiver.URL, "http://") + "\n",
		"> X-Service-Signature: " + first.header.Get("X-Service-Signature") + "\n", "> Webhook-Signature: " + first.header.Get("Webhook-Signature") + "\n",
		"> " + string(first.body) + "\n", "< thank you\uFFFD[2J\n",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("show lacks %q:\n%s", want, shown)
		}
	}
	var record struct {
		State    string
		Attempts []struct {
			Request struct {
				Body    string
				Headers map[string]string
			}
		}
	}
	shown += kickstand("webhook", "show", "--org=acme", id, "--json")
	if err := json.Unmarshal([]byte(shown[strings.Index(shown, "\n{\n"):]), &record); err != nil || record.State != "delivered" || len(record.Attempts) != 1 ||
		record.Attempts[0].Request.Body != string(first.body) || record.Attempts[0].Request.Headers["Webhook-Id"] != first.header.Get("Webhook-Id") {
		t.Errorf("got %+v, %v", record, err)
	}
	if strings.Contains(shown, secret) {
		t.Error("show tells the secret")
	}

	for _, args := range [][]string{
		{id}, {"--event-id=" + first.header.Get("Webhook-Id")}, {"--event-id=" + first.header.Get("Webhook-Id"), "--webhook=" + hook.ID},
		{"--webhook=" + hook.ID, "--since=1h"},
	} {
		if got := kickstand(append([]string{"webhook", "replay", "--org=acme"}, args...)...); !strings.Contains(got, "Replayed: 1.") {
			t.Errorf("replay %v said %q", args, got)
		}
		again := wait()
		if again.header.Get("Webhook-Id") != first.header.Get("Webhook-Id") || again.header.Get("X-Service-Delivery") == id || !bytes.Equal(again.body, first.body) {
			t.Errorf("replay %v sent %v", args, again)
		}
	}
	if got := kickstand("webhook", "replay", "--org=acme", "--webhook="+hook.ID, "--since=1h", "--failed", "--json"); !strings.Contains(got, `"replayed": 0`) {
		t.Errorf("replay of what failed said %q", got)
	}
	// Pages.
	page := kickstand("webhook", "deliveries", "--org=acme", "--limit=3")
	_, before, more := strings.Cut(page, "--before ")
	if !more || strings.Count(page, "ticket.created") != 3 {
		t.Fatalf("got %q, want three deliveries and where there are more", page)
	}
	if rest := kickstand("webhook", "deliveries", "--org=acme", "--limit=3", "--before="+strings.TrimSpace(before)); strings.Count(rest, "ticket.created") != 2 || strings.Contains(rest, "--before") {
		t.Errorf("got %q, want the other two", rest)
	}
	// Unknown ids, and the command that lists valid ones.
	nothing := "--webhook=019aa0f2-8c1d-7b44-b1c8-90a0b7f5e2c1"
	for command, want := range map[string]string{
		"deliveries " + nothing:        "there is no such webhook\nrun `kickstand webhook list --org acme` to list them",
		"deliveries --ticket=99":       "there is no ticket #99",
		"replay --since=1h " + nothing: "there is no such webhook\nrun `kickstand webhook list --org acme` to list them",
		"replay --event-id=" + first.header.Get("Webhook-Id") + " " + nothing: "there is no such webhook\nrun `kickstand webhook list --org acme` to list them",
		"replay 019aa0f2-8c1d-7b44-b1c8-90a0b7f5e2c1":                         "there is no delivery \"019aa0f2-8c1d-7b44-b1c8-90a0b7f5e2c1\"\nrun `kickstand webhook deliveries --org acme` to list them",
	} {
		args := append([]string{"webhook"}, strings.Fields(command)...)
		if err := run(t.Context(), append(args, "--org=acme", data, database), noEnvironment, nil, io.Discard, t.Output()); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", command, err, want)
		}
	}
}
