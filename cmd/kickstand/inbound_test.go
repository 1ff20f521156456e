package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestInboundCommands runs the commands next to a server: list unrouted events, show one,
// and route it.
func TestInboundCommands(t *testing.T) {
	smsSecret, paymentsSecret := "sms-"+strings.Repeat("k", 20), "pay-"+strings.Repeat("k", 20)
	data, database := "--data="+t.TempDir(), "--database-url="+dbtest.URL(t)
	s := start(t, data, database, "--sms-secret="+smsSecret, "--payments-secret="+paymentsSecret)
	try := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append(args, data, database), noEnvironment, nil, &out, t.Output())
		return out.String(), err
	}
	kickstand := func(args ...string) string {
		t.Helper()
		out, err := try(args...)
		if err != nil {
			t.Fatalf("kickstand %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	type shown struct {
		ID, State, Organization, URL, Body string
		ConnectionID                       string `json:"connection_id"`
		Headers                            map[string][]string
	}
	list := func(args ...string) (events []shown, next string) {
		t.Helper()
		var page struct {
			Events []shown
			Next   string
		}
		if err := json.Unmarshal([]byte(kickstand(append([]string{"inbound", "list", "--json"}, args...)...)), &page); err != nil {
			t.Fatal(err)
		}
		return page.Events, page.Next
	}
	processed := func(id string) shown {
		t.Helper()
		for range poll(t, 20*time.Second) {
			var e shown
			if err := json.Unmarshal([]byte(kickstand("inbound", "show", id, "--json")), &e); err != nil {
				t.Fatal(err)
			}
			if e.State == "processed" {
				return e
			}
		}
		panic("unreachable")
	}
	c := &http.Client{Timeout: 20 * time.Second}
	for _, text := range []string{"one\x1b[2J", "two", "three"} {
		if status, body := send(t, c, smsRequest(s.url, smsSecret, "SM"+text[:3], "+14155550123", "+14155550100", text)); status != 200 {
			t.Fatalf("the text was answered %d %q", status, body)
		}
	}
	unreadable := `{"object":"event","type":"invoice.payment_failed"}`
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/api/webhooks/payments", strings.NewReader(unreadable))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer hush")
	req.Header.Set("Payments-Signature", payments.Sign([]byte(unreadable), time.Now(), paymentsSecret))
	if status, body := send(t, c, req); status != 400 {
		t.Fatalf("the news was answered %d %q", status, body)
	}

	all, _ := list()
	waiting, next := list("--state=unrouted", "--channel=sms", "--limit=2")
	if len(all) != 4 || len(waiting) != 2 || next != waiting[1].ID {
		t.Fatalf("got %d events, and of the unrouted ones %+v before %s, want 4 and two with where there are more", len(all), waiting, next)
	}
	older, _ := list("--state=unrouted", "--before="+next)
	if len(older) != 1 {
		t.Fatalf("got %+v, want the oldest", older)
	}
	one, two, three, rejected := older[0].ID, waiting[1].ID, waiting[0].ID, all[0].ID
	table := kickstand("inbound", "list")
	for _, want := range []string{one + "  ", "  sms       unrouted  message ", "  +14155550123  +14155550100  -  ", "  payments  rejected  unreadable  -  ", "an event needs an id", "kickstand inbound route ID --org SLUG", "kickstand org default SLUG"} {
		if !strings.Contains(table, want) {
			t.Errorf("list lacks %q:\n%s", want, table)
		}
	}
	page := kickstand("inbound", "show", one)
	for _, want := range []string{
		one + ", message of sms, received ", ": unrouted\n", "From         +14155550123\n", "Verified by  deployment, secret 1\n",
		"> POST " + s.url + "/api/webhooks/sms\n", "> Content-Type: application/x-www-form-urlencoded\n", "> X-", "Body=one%1B%5B2J",
		"kickstand inbound route " + one + " --connection CONNECTION`\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("show lacks %q:\n%s", want, page)
		}
	}
	if got := kickstand("inbound", "show", rejected, "--raw"); got != unreadable {
		t.Errorf("the raw body is %q, want %q", got, unreadable)
	}
	if got := kickstand("inbound", "show", rejected); !strings.Contains(got, "Next, after the repair: kickstand inbound replay "+rejected) || strings.Contains(got, "hush") {
		t.Errorf("show said %q", got)
	}

	if _, err := try("inbound", "replay", three); problem.Of(err) != problem.Precondition {
		t.Errorf("replay of what nobody has: %v, want a precondition", err)
	}
	for _, name := range []string{"Acme", "Wheels"} {
		kickstand("org", "create", "--name="+name)
	}
	// To an organization, to a connection, and by replay once the address is connected.
	if got := kickstand("inbound", "route", one, "--org=wheels"); !strings.Contains(got, one+" will be processed by the server.") {
		t.Errorf("route said %q", got)
	}
	if e := processed(one); e.Organization != "wheels" || e.ConnectionID != "" || e.URL != s.url+"/api/webhooks/sms" || !strings.Contains(e.Body, "Body=one") {
		t.Errorf("the routed event is %+v", e)
	}
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(kickstand("channel", "connect", "sms", "--org=acme", "--address=+14155550199", "--json")), &made); err != nil {
		t.Fatal(err)
	}
	kickstand("inbound", "route", two, "--connection="+made.ID)
	if e := processed(two); e.Organization != "acme" || e.ConnectionID != made.ID {
		t.Errorf("the routed event is %+v", e)
	}
	kickstand("channel", "connect", "sms", "--org=acme", "--address=+14155550100")
	out, err := try("inbound", "replay", three, "no-such-event", rejected)
	if !strings.Contains(out, three+" will be processed") || err == nil || !strings.Contains(err.Error(), "no inbound event no-such-event") ||
		!strings.Contains(err.Error(), rejected+": replay event: precondition failed: the request still cannot be read") {
		t.Errorf("replay said %q, %v, want what it did and what it could not", out, err)
	}
	if e := processed(three); e.Organization != "acme" {
		t.Errorf("the replayed event is %+v", e)
	}
	if events, _ := list("--org=acme", "--state=processed"); len(events) != 2 {
		t.Errorf("got %+v, want the two of acme", events)
	}
	// Routed already, or of another channel.
	if _, err := try("inbound", "route", one, "--connection="+made.ID); err == nil || !strings.Contains(err.Error(), "this one is processed") {
		t.Errorf("route of a processed event: %v", err)
	}
	if _, err := try("inbound", "route", rejected, "--connection="+made.ID); err == nil || !strings.Contains(err.Error(), "the event's is payments") {
		t.Errorf("route to another channel's connection: %v", err)
	}
	if _, err := try("inbound", "route", one, "--connection=x"); err == nil || !strings.Contains(err.Error(), "kickstand channel list") {
		t.Errorf("route to no connection: %v", err)
	}
	if _, wrong := errors.AsType[usageError](func() error { _, err := try("inbound", "route", one); return err }()); !wrong {
		t.Error("route to nobody is no wrong use")
	}
}
