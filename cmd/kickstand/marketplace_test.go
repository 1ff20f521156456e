package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestMarketplaceTrigger: a server configured with a test key accepts its signatures,
// another server does not.
func TestMarketplaceTrigger(t *testing.T) {
	t.Parallel()
	key, err := marketplaceTrigger().newSecret()
	if err != nil {
		t.Fatal(err)
	}
	r := &metaRig{flags: []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--marketplace-test-key=" + key}}
	command(t, nil, append([]string{"org", "create", "--name=Acme"}, r.flags...)...)
	command(t, nil, append([]string{"channel", "connect", "marketplace", "--org=acme", "--address=" + demoTopic}, r.flags...)...)
	var apiKey struct{ Key string }
	command(t, &apiKey, append([]string{"key", "create", "--org=acme", "--service=helpdesk", "--environment=live", "--name=Test", "--level=admin"}, r.flags...)...)
	r.key = apiKey.Key
	r.server = start(t, r.flags...)
	for _, event := range []string{"return", "return_status", "status", "cancellation", "unsubscribed"} {
		command(t, nil, "trigger", "marketplace", "--base-url="+r.url, "--marketplace-test-key="+key, "--event="+event, "--from=903-1")
	}
	id, list := r.ticket(t, "marketplace", func(list []restMessage) bool { return len(list) == 3 })
	for i, want := range []string{"The buyer returns something of order 903-1 (return R-903-1).", "The return R-903-1 of order 903-1 is now: Received.", "The buyer asks to cancel order 903-1."} {
		if !strings.HasPrefix(list[i].Text, want) {
			t.Errorf("message %d is %q, want %q", i+1, list[i].Text, want)
		}
	}
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{"kind": "reply", "text": "Sorry."}, nil); status != http.StatusConflict {
		t.Errorf("a reply to the marketplace was answered %d %s, want a refusal", status, body)
	}
	r.stop()

	other := start(t, "--data="+t.TempDir(), "--database-url="+dbtest.URL(t))
	if err := run(t.Context(), []string{"trigger", "marketplace", "--base-url=" + other.url, "--marketplace-test-key=" + key}, noEnvironment, nil, io.Discard, t.Output()); err == nil {
		t.Error("a server that was not told to believes the key")
	}
	other.stop()
}

// TestConnectTrigger: every event of a connected account is accepted.
func TestConnectTrigger(t *testing.T) {
	t.Parallel()
	const secret = "secret of the second endpoint"
	r := &metaRig{flags: []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--payments-connect-secret=" + secret}}
	command(t, nil, append([]string{"org", "create", "--name=Acme"}, r.flags...)...)
	command(t, nil, append([]string{"channel", "connect", "payments-connect", "--org=acme", "--address=" + demoAccount}, r.flags...)...)
	r.server = start(t, r.flags...)
	for _, event := range connectTrigger().events {
		var answers []outcome
		command(t, &answers, "trigger", "payments-connect", "--base-url="+r.url, "--payments-connect-secret="+secret, "--event="+event)
		if len(answers) != 1 || !strings.Contains(answers[0].Body, "accepted") {
			t.Errorf("%s: answered %+v, want it accepted", event, answers)
		}
	}
	d := dbtest.Open(t, strings.TrimPrefix(r.flags[1], "--database-url="))
	states := map[string]int{}
	for range poll(t, 30*time.Second) {
		clear(states)
		rows := []string{"processed", "accepted", "dead", "rejected", "unrouted"}
		for _, state := range rows {
			var n int
			if err := d.QueryRow(t.Context(), "SELECT count(*) FROM inbound_events WHERE state = $1", state).Scan(&n); err != nil {
				t.Fatal(err)
			}
			states[state] = n
		}
		if states["accepted"] == 0 {
			break
		}
	}
	if want := len(connectTrigger().events); states["processed"] != want {
		t.Errorf("events by state %v, want all %d processed", states, want)
	}
	r.stop()
}
