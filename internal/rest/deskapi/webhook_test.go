package deskapi_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// admin returns a client with a key for everything.
func (r *rig) admin() *resttest.Client {
	r.Helper()
	return r.As(r.key(r.ours, apikey.Permissions{Level: apikey.Admin}))
}

// receiver is a webhook receiver. It answers with status and counts.
type receiver struct {
	*httptest.Server
	status atomic.Int64
	got    chan string // bodies
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	rc := &receiver{got: make(chan string, 100)}
	rc.status.Store(200)
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the test detects a truncated body
		w.WriteHeader(int(rc.status.Load()))
		io.WriteString(w, "thanks")
		rc.got <- string(body)
	}))
	t.Cleanup(rc.Close)
	return rc
}

// emit emits n events of one of our tickets.
func (r *rig) emit(name event.Name, ticket string, n int) {
	r.Helper()
	data := event.Data{Ticket: &event.Ticket{ID: ticket, Number: 1, Subject: "A puncture", Status: "open", Priority: "normal", Channel: "api", URL: origin}}
	if name == event.SLABreached {
		data.SLA = &event.SLA{Metric: "resolution", DueAt: time.Now()}
	}
	for range n {
		err := r.db.Write(r.Context(), func(tx *db.Tx) error {
			return r.log.EmitTx(r.Context(), tx, event.Event{OrganizationID: r.ours.ID, Name: name, Data: data})
		})
		if err != nil {
			r.Fatal(err)
		}
	}
}

// work runs the queue until the receiver has n posts and they are recorded.
func (r *rig) work(rc *receiver, n int) {
	r.Helper()
	if err := r.queue.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
	for range n {
		<-rc.got
	}
	r.queue.Stop(r.Context())
}

func (f fields) list(name string) []fields {
	items, _ := f[name].([]any)
	out := make([]fields, len(items))
	for i, item := range items {
		out[i], _ = item.(map[string]any)
	}
	return out
}

const (
	ticket1 = "0190c0de-0000-7000-8000-0000000000f1"
	ticket2 = "0190c0de-0000-7000-8000-0000000000f2"
	nobody  = "0190c0de-0000-7000-8000-0000000000ff"
)

func TestWebhooks(t *testing.T) {
	r := newRig(t)
	made := r.post("/webhooks", fields{"url": "https://93.184.215.14/hook", "events": []string{"ticket.created", "*"}, "secret": "a secret of ours", "enabled": false})
	if made["has_secret"] != true || made["state"] != "disabled" || made["enabled"] != false || made["payload_form"] != "b" || made["retry_schedule"] != "two" ||
		made["ordered"] != false || made["drain_rate"] != nil || made["queued_events"] != 0.0 || made["dropped_events"] != 0.0 || made["last_delivery_at"] != nil {
		t.Errorf("made %v", made)
	}
	at := "/webhooks/" + made.text("id")
	if got := r.Get(at); got.Status != 200 || jsonOf(t, r.get(at)) != jsonOf(t, made) {
		t.Errorf("got %s, want %v", got.Body, made)
	}
	// A GET sent back unchanged changes only the time.
	tag := r.Get(at).Header.Get("Etag")
	again := send(t, r.Client, "PUT", at, jsonOf(t, made), 200, "If-Match: "+tag)
	again["updated_at"] = made["updated_at"]
	if jsonOf(t, again) != jsonOf(t, made) {
		t.Errorf("sent back, it became %v, want %v", again, made)
	}
	changed := send(t, r.Client, "PUT", at, `{"payload_form": "a", "retry_schedule": "one", "ordered": true, "secret": null, "events": ["sla.breached"]}`, 200)
	if changed["has_secret"] != false || changed["payload_form"] != "a" || changed["retry_schedule"] != "one" || changed["ordered"] != true || changed["url"] != made["url"] {
		t.Errorf("changed to %v", changed)
	}
	if changed["generated_secret"] != nil {
		t.Errorf("a change generated a secret: %v", changed)
	}
	// Without a secret one is generated and shown once; null leaves deliveries unsigned.
	signed := r.post("/webhooks", fields{"url": "https://93.184.215.14/hook", "events": []string{"*"}, "enabled": false})
	if !strings.HasPrefix(signed.text("generated_secret"), "whsec_") || signed["has_secret"] != true {
		t.Errorf("without a secret: %v", signed)
	}
	if later := r.get("/webhooks/" + signed.text("id")); later["generated_secret"] != nil || later["has_secret"] != true {
		t.Errorf("its secret is shown again: %v", later)
	}
	unsigned := r.post("/webhooks", fields{"url": "https://93.184.215.14/hook", "events": []string{"*"}, "secret": nil, "enabled": false})
	if unsigned["has_secret"] != false || unsigned["generated_secret"] != nil {
		t.Errorf("with null: %v", unsigned)
	}
	for _, w := range []fields{signed, unsigned} {
		r.Do("DELETE", "/webhooks/"+w.text("id"), "")
	}
	for _, method := range []string{"PUT", "DELETE"} {
		body := ""
		if method == "PUT" {
			body = "{}"
		}
		refused(t, method+" of an old revision", r.Do(method, at, body, "If-Match: "+tag), 412, "precondition_failed")
		refused(t, method+" of theirs", r.other().Do(method, at, body), 404, "not_found")
	}
	for _, c := range []struct {
		what, body string
		pointers   []string
	}{
		{"nothing", `{}`, []string{"#/url required", "#/events required"}},
		{"all wrong", `{"url": 1, "events": ["ticket.exploded"], "payload_form": "c", "retry_schedule": "three", "enabled": "yes", "owner": 1}`,
			[]string{"#/url invalid_type", "#/events/0 invalid_value", "#/payload_form invalid_value", "#/retry_schedule invalid_value", "#/enabled invalid_type", "#/owner unknown_field"}},
		{"not a URL, no events", `{"url": "not a url", "events": []}`, []string{"#/url invalid_value", "#/events invalid_value"}},
		{"read-only", `{"url": "https://93.184.215.14/", "events": ["*"], "state": "failed", "drain_rate": 5}`, []string{"#/state read_only", "#/drain_rate read_only"}},
		{"an empty secret", `{"url": "https://93.184.215.14/", "events": ["*"], "secret": ""}`, []string{"#/secret too_short"}},
		{"a short secret", `{"url": "https://93.184.215.14/", "events": ["*"], "secret": "fifteen letters"}`, []string{"#/secret too_short"}},
		{"a secret that is none", `{"url": "https://93.184.215.14/", "events": ["*"], "secret": "whsec_%%%%%%%%%%"}`, []string{"#/secret invalid_value"}},
	} {
		refused(t, c.what, r.Do("POST", "/webhooks", c.body), 422, "validation_failed", c.pointers...)
	}
	refused(t, "a rate without enabled", r.Do("PUT", at, `{"drain_rate": 5, "id": "`+nobody+`"}`), 422, "validation_failed", "#/id read_only")
	refused(t, "a rate without enabled", r.Do("PUT", at, `{"drain_rate": 5}`), 422, "validation_failed", "#/drain_rate invalid_value")

	// A retry creates nothing twice.
	body := `{"url": "https://93.184.215.14/two", "events": ["*"]}`
	one := send(t, r.Client, "POST", "/webhooks", body, 201, "Idempotency-Key: once")
	a := r.Do("POST", "/webhooks", body, "Idempotency-Key: once")
	if a.Status != 201 || a.Header.Get("Idempotent-Replayed") != "true" || a.Header.Get("Location") != "/api/v1/webhooks/"+one.text("id") {
		t.Errorf("the retry got %d, %v", a.Status, a.Header)
	}
	if list := r.get("/webhooks?limit=1").list("data"); len(list) != 1 || list[0]["id"] != one["id"] {
		t.Errorf("the list begins with %v, want %v", list, one["id"])
	}
	if list := r.get("/webhooks?sort=created_at").list("data"); len(list) != 2 || list[0]["id"] != made["id"] {
		t.Errorf("the list is %v, want %v first", list, made["id"])
	}
	if list := send(t, r.other(), "GET", "/webhooks", "", 200).list("data"); len(list) != 0 {
		t.Errorf("they see %v", list)
	}
	if csv := r.Get("/webhooks", "Accept: text/csv"); strings.Count(csv.Body, "\r\n") != 3 || !strings.HasPrefix(csv.Body, "id,object,url,events,") {
		t.Errorf("as CSV: %q", csv.Body)
	}
	if a := r.Do("DELETE", at, "", "If-Match: "+r.Get(at).Header.Get("Etag")); a.Status != 204 {
		t.Errorf("deleting got %d %s", a.Status, a.Body)
	}
	refused(t, "a deleted one", r.Get(at), 404, "not_found")
	refused(t, "not even an id", r.Get("/webhooks/%00"), 404, "route_not_found")
}

func TestWebhookLimit(t *testing.T) {
	r := newRig(t)
	for range webhook.MaxPerOrganization {
		if _, err := r.webhooks.Create(t.Context(), r.ours.ID, webhook.New{URL: "https://93.184.215.14/", Events: []string{"*"}}); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, "one too many", r.Do("POST", "/webhooks", `{"url": "https://93.184.215.14/", "events": ["*"]}`), 409, "invalid_transition")
	seen := map[string]bool{}
	for path := "/webhooks?limit=33"; path != ""; {
		page := r.get(path)
		for _, w := range page.list("data") {
			seen[w.text("id")] = true
		}
		if path = ""; page["has_more"] == true {
			path = "/webhooks" + resttest.Query("limit", "33", "cursor", page.text("next_cursor"))
		}
	}
	if len(seen) != webhook.MaxPerOrganization {
		t.Errorf("pages have %d webhooks, want %d", len(seen), webhook.MaxPerOrganization)
	}
}

// TestDrainRate: the rate stays until a body changes it.
func TestDrainRate(t *testing.T) {
	r := newRig(t)
	at := "/webhooks/" + r.post("/webhooks", fields{"url": "https://93.184.215.14/", "events": []string{"*"}, "enabled": false}).text("id")
	r.emit(event.TicketCreated, ticket1, 3)
	if w := r.get(at); w["queued_events"] != 3.0 {
		t.Fatalf("got %v, want 3 queued", w)
	}
	for _, c := range []struct {
		body string
		want any
	}{
		{`{"enabled": true, "drain_rate": 2}`, 2.0},
		{`{"events": ["sla.breached"]}`, 2.0},
		{`{"enabled": true, "ordered": false}`, 2.0},
		{`{"drain_rate": 7}`, 7.0},
		{`{"drain_rate": null}`, nil},
		{`{"enabled": true, "drain_rate": 4}`, 4.0},
		{`{"enabled": false, "drain_rate": 4}`, nil},
		{`{"enabled": true}`, nil},
	} {
		if w := send(t, r.Client, "PUT", at, c.body, 200); w["drain_rate"] != c.want {
			t.Errorf("%s: got the rate %v, want %v", c.body, w["drain_rate"], c.want)
		}
	}
	if up := r.get(at + "/upcoming"); len(up.list("data")) != 3 || up.list("data")[0]["attempt"] != 1.0 || up.list("data")[0]["event"] != "ticket.created" {
		t.Errorf("coming: %v", up)
	}
	if up := r.get(at + "/upcoming?count=2"); len(up.list("data")) != 2 {
		t.Errorf("coming: %v, want 2", up)
	}
	refused(t, "none", r.Get(at+"/upcoming?count=0"), 400, "invalid_parameter")
	refused(t, "theirs", r.other().Get(at+"/upcoming"), 404, "not_found")
}

func TestDeliveries(t *testing.T) {
	r := newRig(t)
	rc := newReceiver(t)
	secret := rand.Text()
	at := "/webhooks/" + r.post("/webhooks", fields{"url": rc.URL + "/hook", "events": []string{"*"}, "secret": secret}).text("id")
	elsewhere := "/webhooks/" + r.post("/webhooks", fields{"url": rc.URL, "events": []string{"sla.breached"}, "enabled": false}).text("id")
	r.emit(event.TicketCreated, ticket1, 1)
	r.emit(event.TicketUpdated, ticket2, 1)
	r.emit(event.SLABreached, ticket2, 1)
	r.work(rc, 3)
	path := at + "/deliveries"
	all := r.get(path).list("data")
	if len(all) != 3 {
		t.Fatalf("got %v, want 3 deliveries", all)
	}
	if all[0]["state"] != "delivered" || all[0]["event"] != "sla.breached" || all[2]["event"] != "ticket.created" || all[0]["attempt_count"] != 1.0 || all[0]["attempts"] != nil {
		t.Errorf("got %v", all)
	}
	events := r.get("/events?event=ticket.created").list("data")
	for _, c := range []struct {
		query string
		want  int
	}{
		{"?event=ticket.created,ticket.updated", 2}, {"?state=failed,dropped", 0}, {"?state=delivered", 3},
		{"?ticket_id=" + ticket2, 2}, {"?event_id=" + events[0].text("id"), 1}, {"?ticket_id=" + nobody, 0},
		{resttest.Query("created_at[gte]", all[1].text("created_at"), "created_at[lte]", all[1].text("created_at")), -1},
		{resttest.Query("created_at[gt]", all[0].text("created_at")), 0},
		{resttest.Query("created_at[gte]", "2026-01-02T00:00:00Z", "created_at[lt]", "2026-01-01T00:00:00Z"), 0},
		{"?limit=2", 2},
	} {
		got := r.get(path + c.query).list("data")
		if c.want >= 0 && len(got) != c.want || c.want < 0 && len(got) == 0 {
			t.Errorf("%s: got %d deliveries, want %d", c.query, len(got), c.want)
		}
	}
	page := r.get(path + "?limit=2")
	if page["has_more"] != true {
		t.Fatalf("the first page is %v", page)
	}
	last := r.get(path + resttest.Query("limit", "2", "cursor", page.text("next_cursor")))
	if list := last.list("data"); last["has_more"] != false || len(list) != 1 || list[0]["id"] != all[2]["id"] {
		t.Errorf("the last page is %v, want %v", last, all[2]["id"])
	}
	lines := r.Get(path, "Accept: application/x-ndjson")
	if strings.Count(lines.Body, "\n") != 3 || !strings.Contains(strings.Split(lines.Body, "\n")[0], all[0].text("id")) {
		t.Errorf("exported: %q", lines.Body)
	}
	if lines := r.Get(path+resttest.Query("created_at[gte]", "2026-01-02T00:00:00Z", "created_at[lt]", "2026-01-01T00:00:00Z"), "Accept: application/x-ndjson"); lines.Status != 200 || lines.Body != "" {
		t.Errorf("exported %d %q, want nothing", lines.Status, lines.Body)
	}
	refused(t, "an unknown state", r.Get(path+"?state=lost"), 400, "invalid_parameter")
	refused(t, "theirs", r.other().Get(path), 404, "not_found")
	refused(t, "a cursor of another list", r.Get(path+resttest.Query("state", "failed", "cursor", page.text("next_cursor"))), 400, "invalid_cursor")

	one := path + "/" + all[2].text("id")
	d := r.get(one)
	attempts := d.list("attempts")
	if len(attempts) != 1 || attempts[0]["status_code"] != 200.0 || attempts[0]["response"] != "thanks" {
		t.Fatalf("the attempts are %v", attempts)
	}
	sent := fields(attempts[0]["request"].(map[string]any))
	if sent["method"] != "POST" || sent["url"] != rc.URL+"/hook" || !strings.Contains(sent.text("body"), ticket1) || sent["headers"].(map[string]any)["Webhook-Signature"] == "" {
		t.Errorf("the request was %v", sent)
	}
	refused(t, "another webhook's", r.Get(elsewhere+"/deliveries/"+all[2].text("id")), 404, "not_found")
	refused(t, "theirs", r.other().Get(one), 404, "not_found")
	refused(t, "one that is not there", r.Get(path+"/"+nobody), 404, "not_found")

	// Replay one, several, a time range, an event.
	a := r.Do("POST", one+"/replay", "", "Idempotency-Key: again")
	if b := r.Do("POST", one+"/replay", "", "Idempotency-Key: again"); a.Status != 201 || b.Body != a.Body || b.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %s and %d %s", a.Status, a.Body, b.Status, b.Body)
	}
	var made fields
	a.JSON(&made)
	if a.Header.Get("Location") != "/api/v1"+path+"/"+made.text("id") || made["event_id"] != all[2]["event_id"] {
		t.Errorf("made %v at %s", made, a.Header.Get("Location"))
	}
	kept := r.get(path + "/" + made.text("id"))
	delete(kept, "attempts")
	if jsonOf(t, kept) != jsonOf(t, made) || made["state"] != "untried" {
		t.Errorf("kept as %v, want %v", kept, made)
	}
	refused(t, "theirs", r.other().Do("POST", one+"/replay", ""), 404, "not_found")
	refused(t, "by another webhook", r.Do("POST", elsewhere+"/deliveries/"+all[2].text("id")+"/replay", ""), 404, "not_found")

	got := send(t, r.Client, "POST", at+"/replay", jsonOf(t, fields{"delivery_ids": []any{all[0]["id"], all[1]["id"]}}), 200)
	if got["replayed"] != 2.0 {
		t.Errorf("got %v, want 2", got)
	}
	if list := r.get(path + "?state=untried").list("data"); len(list) != 3 {
		t.Errorf("waiting: %v, want 3", list)
	}
	got = send(t, r.Client, "POST", at+"/replay", `{"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00+01:00", "event": "sla.breached"}`, 200, "Idempotency-Key: range")
	again := send(t, r.Client, "POST", at+"/replay", `{"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00+01:00", "event": "sla.breached"}`, 200, "Idempotency-Key: range")
	if got["replayed"] != 1.0 || again["replayed"] != 1.0 || len(r.get(path).list("data")) != 7 {
		t.Errorf("got %v and %v, want 1, once", got, again)
	}
	if got := send(t, r.Client, "POST", at+"/replay", `{"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z", "failed_only": true}`, 200); got["replayed"] != 0.0 {
		t.Errorf("got %v, want 0", got)
	}
	for _, c := range []struct {
		what, body string
		pointers   []string
	}{
		{"nothing", `{}`, []string{"#/delivery_ids required"}},
		{"no end", `{"from": "2020-01-01T00:00:00Z"}`, []string{"#/to required"}},
		{"backwards", `{"from": "2020-01-02T00:00:00Z", "to": "2020-01-01T00:00:00Z"}`, []string{"#/to invalid_value"}},
		{"both", `{"from": "2020-01-02T00:00:00Z", "delivery_ids": ["x"]}`, []string{"#/delivery_ids conflict"}},
		{"none", `{"delivery_ids": []}`, []string{"#/delivery_ids too_short"}},
		{"one that is not there", `{"delivery_ids": ["` + nobody + `"]}`, []string{"#/delivery_ids not_found"}},
		{"one twice", `{"delivery_ids": ["` + all[0].text("id") + `", "` + all[0].text("id") + `"]}`, []string{"#/delivery_ids/1 invalid_value"}},
		{"another webhook's", `{"delivery_ids": ["` + r.get(elsewhere + "/deliveries").list("data")[0].text("id") + `"]}`, []string{"#/delivery_ids not_found"}},
	} {
		refused(t, c.what, r.Do("POST", at+"/replay", c.body), 422, "validation_failed", c.pointers...)
	}
	refused(t, "theirs", r.other().Do("POST", at+"/replay", `{"delivery_ids": ["x"]}`), 404, "not_found")
}

func TestWebhookTest(t *testing.T) {
	r := newRig(t)
	rc := newReceiver(t)
	at := "/webhooks/" + r.post("/webhooks", fields{"url": rc.URL, "events": []string{"sla.breached"}, "enabled": false}).text("id")
	got := send(t, r.Client, "POST", at+"/test", "", 200, "Idempotency-Key: test")
	if again := send(t, r.Client, "POST", at+"/test", "", 200, "Idempotency-Key: test"); got["success"] != true || got["status_code"] != 200.0 || got["error"] != nil || again["delivery_id"] != got["delivery_id"] || len(rc.got) != 1 {
		t.Errorf("got %v and %v, posted %d times", got, again, len(rc.got))
	}
	rc.status.Store(410)
	if got := send(t, r.Client, "POST", at+"/test", "", 200); got["success"] != false || got["status_code"] != 410.0 || got.text("error") == "" {
		t.Errorf("refused, the test is %v", got)
	}
	rc.Close()
	got = send(t, r.Client, "POST", at+"/test", "", 200)
	if got["success"] != false || got["status_code"] != nil || got.text("error") == "" {
		t.Errorf("of nobody, the test is %v", got)
	}
	d := r.get(at + "/deliveries/" + got.text("delivery_id"))
	if d["test"] != true || d["state"] != "failed" {
		t.Errorf("kept as %v", d)
	}
	refused(t, "a test again", r.Do("POST", at+"/deliveries/"+got.text("delivery_id")+"/replay", ""), 409, "invalid_transition")
	refused(t, "theirs", r.other().Do("POST", at+"/test", ""), 404, "not_found")
}

func TestEvents(t *testing.T) {
	r := newRig(t)
	hook := r.post("/webhooks", fields{"url": "https://93.184.215.14/", "events": []string{"ticket.created"}, "enabled": false}).text("id")
	deaf := r.post("/webhooks", fields{"url": "https://93.184.215.14/", "events": []string{"sla.breached"}, "enabled": false}).text("id")
	r.emit(event.TicketCreated, ticket1, 1)
	r.emit(event.TicketUpdated, ticket2, 2)
	all := r.get("/events").list("data")
	if len(all) != 3 || all[2]["event"] != "ticket.created" || all[2]["ticket_id"] != ticket1 {
		t.Fatalf("got %v", all)
	}
	e := r.get("/events/" + all[2].text("id"))
	if jsonOf(t, e) != jsonOf(t, all[2]) || fields(e["data"].(map[string]any)["ticket"].(map[string]any))["subject"] != "A puncture" {
		t.Errorf("got %v, want %v", e, all[2])
	}
	for _, c := range []struct {
		query string
		want  int
	}{
		{"?event=ticket.created,sla.breached", 1}, {"?ticket_id=" + ticket2, 2}, {"?sort=created_at&limit=2", 2},
		{resttest.Query("created_at[gt]", all[0].text("created_at")), 0},
		{resttest.Query("created_at[lt]", all[2].text("created_at")), 0},
		{resttest.Query("created_at[gte]", all[2].text("created_at")), 3},
	} {
		if got := r.get("/events" + c.query).list("data"); len(got) != c.want {
			t.Errorf("%s: got %d events, want %d", c.query, len(got), c.want)
		}
	}
	if first := r.get("/events?sort=created_at").list("data"); first[0]["id"] != all[2]["id"] {
		t.Errorf("the oldest is %v, want %v", first[0], all[2]["id"])
	}
	page := r.get("/events?limit=2")
	if last := r.get("/events" + resttest.Query("limit", "2", "cursor", page.text("next_cursor"))).list("data"); len(last) != 1 || last[0]["id"] != all[2]["id"] {
		t.Errorf("the last page is %v", last)
	}
	if csv := r.Get("/events?event=ticket.created", "Accept: text/csv"); !strings.HasPrefix(csv.Body, "id,object,event,ticket_id,created_at,data\r\n"+all[2].text("id")+",event,") {
		t.Errorf("as CSV: %q", csv.Body)
	}
	refused(t, "an unknown name", r.Get("/events?event=ticket.exploded"), 400, "invalid_parameter")
	refused(t, "theirs", r.other().Get("/events/"+e.text("id")), 404, "not_found")
	refused(t, "none", r.Get("/events/"+nobody), 404, "not_found")
	if list := send(t, r.other(), "GET", "/events", "", 200).list("data"); len(list) != 0 {
		t.Errorf("they see %v", list)
	}

	at := "/events/" + e.text("id") + "/replay"
	for _, c := range []struct{ body, webhook string }{{"", hook}, {`{"webhook_id": "` + deaf + `"}`, deaf}} {
		a := r.Do("POST", at, c.body, "Idempotency-Key: "+c.webhook)
		var got struct {
			IDs []string `json:"delivery_ids"`
		}
		a.JSON(&got)
		if b := r.Do("POST", at, c.body, "Idempotency-Key: "+c.webhook); a.Status != 201 || b.Body != a.Body || len(got.IDs) != 1 {
			t.Fatalf("got %d %s and %s", a.Status, a.Body, b.Body)
		}
		if d := r.get("/webhooks/" + c.webhook + "/deliveries/" + got.IDs[0]); d["event_id"] != e["id"] {
			t.Errorf("sent %v, want the event %v", d, e["id"])
		}
	}
	unheard := send(t, r.Client, "POST", "/events/"+all[0].text("id")+"/replay", "", 201)
	if ids, ok := unheard["delivery_ids"].([]any); !ok || len(ids) != 0 {
		t.Errorf("got %v, want no deliveries", unheard)
	}
	// Events of the fleet are records of its API.
	ofFleet := event.Event{ID: "evt_01KKNTQ6YAEDQRB018TR4SJM6R", OrganizationID: r.ours.ID, Source: event.Fleet, Name: event.RideStarted, Subject: "veh_1", At: time.Now(), Data: event.Data{Fleet: []byte("{}")}}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := event.StoreTx(t.Context(), tx, []event.Event{ofFleet})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	refused(t, "of the fleet", r.Get("/events/"+ofFleet.ID), 404, "not_found")
	if got := send(t, r.Client, "POST", "/events/"+ofFleet.ID+"/replay", "", 201)["delivery_ids"]; len(got.([]any)) != 0 {
		t.Errorf("sent %v to webhooks of the helpdesk", got)
	}
	refused(t, "a webhook that is not there", r.Do("POST", at, `{"webhook_id": "`+nobody+`"}`), 422, "validation_failed", "#/webhook_id not_found")
	refused(t, "theirs", r.other().Do("POST", at, ""), 404, "not_found")
}

// TestAttackFleetByHelpdeskKey: a key without any permission for the fleet has its events sent.
func TestAttackFleetByHelpdeskKey(t *testing.T) {
	r := newRig(t)
	for _, source := range []string{"fleet", "sandbox"} {
		body := fields{"url": "https://93.184.215.14/", "events": []string{"*"}, "source": source}
		refused(t, source, r.Do("POST", "/webhooks", jsonOf(t, body)), 403, "permission_denied")
		made := send(t, r.admin(), "POST", "/webhooks", jsonOf(t, body), 201)
		if made["source"] != source {
			t.Errorf("got %v", made)
		}
		at := "/webhooks/" + made.text("id")
		refused(t, "another address for "+source, r.Do("PUT", at, `{"url": "https://93.184.215.15/"}`), 403, "permission_denied")
		send(t, r.admin(), "PUT", at, `{"url": "https://93.184.215.15/"}`, 200)
	}
}

// TestFleetBodiesAreWithheld: a key that may read webhooks, but not the settings, sees the deliveries of
// a webhook of the fleet without their bodies.
func TestFleetBodiesAreWithheld(t *testing.T) {
	r := newRig(t)
	rc := newReceiver(t)
	admin := r.admin()
	at := "/webhooks/" + send(t, admin, "POST", "/webhooks", jsonOf(t, fields{"url": rc.URL, "events": []string{"*"}, "source": "fleet"}), 201).text("id")
	path := at + "/deliveries/" + send(t, admin, "POST", at+"/test", "", 200).text("delivery_id")
	body := func(c *resttest.Client) any {
		t.Helper()
		attempts := send(t, c, "GET", path, "", 200).list("attempts")
		if len(attempts) != 1 {
			t.Fatalf("got %d attempts", len(attempts))
		}
		return attempts[0]["request"].(map[string]any)["body"]
	}
	if got, _ := body(admin).(string); !strings.Contains(got, `"livemode":true`) {
		t.Errorf("an admin's key got %q", got)
	}
	if got := body(r.Client); got != nil {
		t.Errorf("a key without settings.read got %v", got)
	}
}

// TestAttackReplayToAnotherKey: a key without permission to read the audit log repeats the
// request with which an admin's key subscribed to it, to get the secret.
func TestAttackReplayToAnotherKey(t *testing.T) {
	r := newRig(t)
	k, token := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Permissions: apikey.Permissions{Level: apikey.Admin}})
	const body, once = `{"url": "https://93.184.215.14/audit", "events": ["audit.recorded"]}`, "Idempotency-Key: once"
	made := send(t, r.As(token), "POST", "/webhooks", body, 201, once)
	if made.text("generated_secret") == "" {
		t.Fatalf("no secret in %v", made)
	}
	if a := r.Do("POST", "/webhooks", body); a.Status < 400 || a.Status >= 500 {
		t.Fatalf("a key without the right: got %d %s", a.Status, a.Body)
	}
	named := map[string][]apikey.Action{"webhooks": {apikey.Read, apikey.Create}}
	for name, p := range map[string]apikey.Permissions{
		"read and write":      {Level: apikey.ReadWrite},
		"everything by name":  {Resources: apikey.Grants{All: true}},
		"webhooks":            {Resources: apikey.Grants{Named: named}},
		"admin of webhooks":   {Level: apikey.Admin, Resources: apikey.Grants{Named: named}},
		"admin of everything": {Level: apikey.Admin, Resources: apikey.Grants{All: true}},
	} {
		a := r.As(r.key(r.ours, p)).Do("POST", "/webhooks", body, once)
		refused(t, name, a, 422, "idempotency_key_reused")
		if strings.Contains(a.Body, made.text("generated_secret")) {
			t.Errorf("%s: the answer has the secret", name)
		}
	}
	_, rotated, err := r.keys.Rotate(t.Context(), r.ours.ID, k.ID)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.As(rotated.Reveal()).Do("POST", "/webhooks", body, once); a.Status != 201 || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the key after a rotation: got %d %s", a.Status, a.Body)
	}
}
