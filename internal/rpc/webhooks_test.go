package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/rpc"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

type noAdmins struct{}

func (noAdmins) AdminAddresses(context.Context, db.Querier, string) ([]mail.Address, error) {
	return nil, nil
}

var anyDuration = regexp.MustCompile(`"durationMs":\d+`)

// receiverPool is an in-memory receiver.
type receiverPool struct {
	status int
	got    chan struct{} // signals every request
}

func (a *receiverPool) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.status == 0 {
		return nil, errors.New("connection refused")
	}
	io.Copy(io.Discard, r.Body)
	select {
	case a.got <- struct{}{}:
	default:
	}
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// webhookFixture serves the webhook procedures to the fixture's caller.
type webhookFixture struct {
	t        *testing.T
	db       *db.DB
	events   *event.Log
	queue    *queue.Queue
	router   *rpc.Router
	caller   *account.Identity
	receiver *receiverPool
}

func newWebhookFixture(t *testing.T) *webhookFixture {
	t.Helper()
	d := dbtest.New(t)
	f := &webhookFixture{
		t:        t,
		db:       d,
		events:   new(event.Log),
		queue:    queue.Open(d, queue.Config{}),
		caller:   &account.Identity{UserID: "u", OrganizationID: "11111111-1111-7111-8111-111111111111", Role: account.Admin},
		receiver: &receiverPool{status: http.StatusOK, got: make(chan struct{}, 1)},
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	webhooks := webhook.Open(webhook.Config{
		DB: d, Queue: f.queue, Events: f.events, Box: seal.New(seal.NewKey()),
		Admins: noAdmins{}, Mailer: new(postbox), Transport: f.receiver, Logger: log,
	})
	f.router = rpc.New(rpc.Config{
		Procedures: rpc.WebhookProcedures(webhooks),
		Authenticate: func(_ http.ResponseWriter, r *http.Request) (context.Context, error) {
			if f.caller == nil {
				return r.Context(), nil
			}
			return account.NewContext(r.Context(), *f.caller), nil
		},
		Authorize: rpc.Authorize,
		Logger:    log,
	})
	return f
}

func (f *webhookFixture) call(method, procedure, input string) (int, string) {
	f.t.Helper()
	var body io.Reader
	target := rpc.Prefix + procedure
	switch {
	case input == "":
	case method == http.MethodGet:
		target += "?input=" + url.QueryEscape(`{"json":`+input+`}`)
	default:
		body = strings.NewReader(`{"json":` + input + `}`)
	}
	r := httptest.NewRequest(method, target, body)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.router.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (f *webhookFixture) want(method, procedure, input string, status int, body string) {
	f.t.Helper()
	gotStatus, got := f.call(method, procedure, input)
	if got = anonymous(got); gotStatus != status || got != body {
		f.t.Errorf("%s %s %s:\n got %d %s\nwant %d %s", method, procedure, input, gotStatus, got, status, body)
	}
}

func result(json string) string { return `{"result":{"data":{"json":` + json + `}}}` }

func TestWebhookProcedures(t *testing.T) {
	f := newWebhookFixture(t)
	f.want("GET", "webhooks.list", "", 200, result(`[]`))
	first := `{"id":"ID","url":"https://receiver.example.com/","source":"helpdesk","events":["ticket.created"],"enabled":true,"state":"enabled","hasSecret":true,` +
		`"payloadForm":"b","retrySchedule":"two","ordered":false,"drainRate":null,"queuedEvents":0,"droppedEvents":0,"lastDeliveryAt":null,"lastError":null,"created_at":"TIME","updated_at":"TIME"}`
	status, created := f.call("POST", "webhooks.create", `{"url":"https://receiver.example.com/","events":["ticket.created"],"secret":"hush, this is one"}`)
	if got := anonymous(created); status != 200 || got != result(first) {
		t.Fatalf("got %d %s, want %s", status, got, result(first))
	}
	id := anyID.FindString(created)
	second := `{"id":"ID","url":"https://other.example.com/","source":"helpdesk","events":["*"],"enabled":false,"state":"disabled","hasSecret":false,` +
		`"payloadForm":"a","retrySchedule":"one","ordered":false,"drainRate":null,"queuedEvents":0,"droppedEvents":0,"lastDeliveryAt":null,"lastError":null,"created_at":"TIME","updated_at":"TIME"}`
	f.want("POST", "webhooks.create", `{"url":"https://other.example.com/","events":["*"],"enabled":false,"payloadForm":"a","retrySchedule":"one"}`, 200, result(second))
	f.want("GET", "webhooks.list", "", 200, result("["+first+","+second+"]"))

	f.want("POST", "webhooks.update", `{"id":"`+id+`","events":["sla.warning","sla.breached"],"enabled":false}`, 200,
		result(strings.NewReplacer(`["ticket.created"]`, `["sla.warning","sla.breached"]`, `"enabled":true,"state":"enabled"`, `"enabled":false,"state":"disabled"`).Replace(first)))
	f.want("POST", "webhooks.update", `{"id":"`+id+`","url":"https://new.example.com/","unsigned":true,"enabled":true,"events":null}`, 200,
		result(strings.NewReplacer(`["ticket.created"]`, `["sla.warning","sla.breached"]`, `"hasSecret":true`, `"hasSecret":false`, "receiver.", "new.").Replace(first)))

	testResult := func(want string) {
		t.Helper()
		status, got := f.call("POST", "webhooks.test", `{"id":"`+id+`"}`)
		if got = anyDuration.ReplaceAllString(anonymous(got), `"durationMs":0`); status != 200 || got != result(want) {
			t.Errorf("got %d %s, want %s", status, got, result(want))
		}
	}
	testResult(`{"success":true,"deliveryId":"ID","statusCode":200,"durationMs":0,"error":null}`)
	f.receiver.status = 500
	testResult(`{"success":false,"deliveryId":"ID","statusCode":500,"durationMs":0,"error":"the receiver answered 500 Internal Server Error"}`)
	f.receiver.status = 0
	testResult(`{"success":false,"deliveryId":"ID","statusCode":null,"durationMs":0,"error":"connection refused"}`)
	if _, list := f.call("GET", "webhooks.list", ""); !strings.Contains(anonymous(list), `"lastDeliveryAt":"TIME","lastError":"connection refused"`) {
		t.Errorf("got %s, want the newest attempt in it", list)
	}

	f.want("POST", "webhooks.delete", `{"id":"`+id+`"}`, 200, result(`{"success":true}`))
	missing := func(name string) string {
		return `{"error":{"json":{"message":"there is no such webhook","code":-32004,"data":{"code":"NOT_FOUND","httpStatus":404,"path":"` + name + `"}}}}`
	}
	for _, name := range []string{"webhooks.delete", "webhooks.update", "webhooks.test"} {
		f.want("POST", name, `{"id":"`+id+`"}`, 404, missing(name))
	}
	f.want("GET", "webhooks.list", "", 200, result("["+second+"]"))

	// Another organization's id is not found.
	_, list := f.call("GET", "webhooks.list", "")
	id = anyID.FindString(list)
	f.caller.OrganizationID = "22222222-2222-7222-8222-222222222222"
	for _, name := range []string{"webhooks.delete", "webhooks.update", "webhooks.test"} {
		f.want("POST", name, `{"id":"`+id+`"}`, 404, missing(name))
	}
	f.want("GET", "webhooks.list", "", 200, result(`[]`))
}

func TestWebhookProceduresRefuse(t *testing.T) {
	f := newWebhookFixture(t)
	invalid := func(name, message, issues string) string {
		return `{"error":{"json":{"message":"` + message + `","code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"` + name + `","issues":[` + issues + `]}}}}`
	}
	f.want("POST", "webhooks.create", `{}`, 400, invalid("webhooks.create", "url is required (and 1 more)",
		`{"path":"url","message":"is required"},{"path":"events","message":"is required"}`))
	f.want("POST", "webhooks.create", `{"url":"http://receiver.example.com/","events":["a"],"payloadForm":"x","retrySchedule":"y"}`, 400, invalid("webhooks.create",
		"url must use https (and 3 more)", `{"path":"url","message":"must use https"},{"path":"events.0","message":"is not the name of an event"},`+
			`{"path":"payloadForm","message":"must be \"a\" or \"b\""},{"path":"retrySchedule","message":"must be \"one\" or \"two\""}`))
	f.want("POST", "webhooks.update", `{"events":[]}`, 400, invalid("webhooks.update", "id is required", `{"path":"id","message":"is required"}`))
	f.want("POST", "webhooks.update", `{"id":"1","enabled":"yes"}`, 400, invalid("webhooks.update", "enabled must be a boolean (and 1 more)",
		`{"path":"enabled","message":"must be a boolean"},{"path":"id","message":"must be a UUID"}`))
	f.want("POST", "webhooks.test", `{"id":"{00000000-0000-7000-8000-000000000000}"}`, 400, invalid("webhooks.test", "id must be a UUID", `{"path":"id","message":"must be a UUID"}`))

	f.want("POST", "webhooks.update", `{"id":"11111111-1111-7111-8111-111111111111","drainRate":1001}`, 400,
		invalid("webhooks.update", "drainRate must be from 1 to 1000, or 0 for no limit", `{"path":"drainRate","message":"must be from 1 to 1000, or 0 for no limit"}`))
	f.want("POST", "webhooks.update", `{"id":"11111111-1111-7111-8111-111111111111","drainRate":5}`, 400,
		invalid("webhooks.update", "drainRate needs enabled to be true", `{"path":"drainRate","message":"needs enabled to be true"}`))
	f.want("POST", "webhooks.create", `{"url":"https://receiver.example.com/","events":["*"],"ordered":"yes"}`, 400,
		invalid("webhooks.create", "ordered must be a boolean", `{"path":"ordered","message":"must be a boolean"}`))
	f.want("GET", "webhooks.deliveries", `{"webhookId":"x","eventId":"x","ticketId":"x","ticketNumber":0,"limit":0,"states":["lost"],"from":"yesterday"}`, 400,
		invalid("webhooks.deliveries", "from must be an ISO 8601 timestamp (and 6 more)", `{"path":"from","message":"must be an ISO 8601 timestamp"},`+
			`{"path":"webhookId","message":"must be a UUID"},{"path":"eventId","message":"must be a UUID"},{"path":"ticketId","message":"must be a UUID"},`+
			`{"path":"ticketNumber","message":"must be positive"},{"path":"limit","message":"must be from 1 to 500"},`+
			`{"path":"states.0","message":"must be untried, retrying, delivered, failed or dropped"}`))
	f.want("GET", "webhooks.deliveries", `{"event":"no","limit":501,"before":"x"}`, 400,
		invalid("webhooks.deliveries", "event is not the name of an event (and 2 more)", `{"path":"event","message":"is not the name of an event"},`+
			`{"path":"before","message":"is not the end of a page"},{"path":"limit","message":"must be from 1 to 500"}`))
	f.want("GET", "webhooks.delivery", `{}`, 400, invalid("webhooks.delivery", "id is required", `{"path":"id","message":"is required"}`))
	f.want("GET", "webhooks.upcoming", `{"limit":1}`, 400, invalid("webhooks.upcoming", "webhookId is required", `{"path":"webhookId","message":"is required"}`))
	f.want("GET", "webhooks.upcoming", `{"webhookId":"11111111-1111-7111-8111-111111111111","limit":0}`, 400,
		invalid("webhooks.upcoming", "limit must be from 1 to 500", `{"path":"limit","message":"must be from 1 to 500"}`))
	for input, want := range map[string]struct{ path, message string }{
		`{}`:                       {"", "must name deliveryIds, or an eventId, or a webhookId with from and to"},
		`{"failedOnly":true}`:      {"", "must name deliveryIds, or an eventId, or a webhookId with from and to"},
		`{"deliveryIds":[]}`:       {"deliveryIds", "must name from 1 to 1000 deliveries"},
		`{"deliveryIds":"all"}`:    {"deliveryIds", "must be an array"},
		`{"eventId":"everything"}`: {"eventId", "must be a UUID"},
		`{"eventId":"evt_1"}`:      {"eventId", "must be a UUID"},
		`{"deliveryIds":["x"],"event":"ticket.created"}`:                                                                                         {"deliveryIds", "must be the only member"},
		`{"eventId":"11111111-1111-7111-8111-111111111111","from":"2026-01-01T00:00:00Z"}`:                                                       {"eventId", "must not be given beside from, to, failedOnly or event"},
		`{"webhookId":"11111111-1111-7111-8111-111111111111","from":"2026-01-01T00:00:00Z"}`:                                                     {"to", "is required"},
		`{"webhookId":"11111111-1111-7111-8111-111111111111","to":"2026-01-01T00:00:00Z"}`:                                                       {"from", "is required"},
		`{"webhookId":"11111111-1111-7111-8111-111111111111","from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}`:                         {"to", "must be after from"},
		`{"webhookId":"11111111-1111-7111-8111-111111111111","from":"2026-01-01T00:00:00Z","to":"2026-02-01T00:00:00Z","event":"ticket.danced"}`: {"event", "is not the name of an event"},
	} {
		f.want("POST", "webhooks.replay", input, 400,
			invalid("webhooks.replay", strings.TrimSpace(want.path+" "+want.message), `{"path":"`+want.path+`","message":"`+want.message+`"}`))
	}

	names := map[string]string{
		"webhooks.list": "GET", "webhooks.create": "POST", "webhooks.update": "POST", "webhooks.delete": "POST", "webhooks.test": "POST",
		"webhooks.deliveries": "GET", "webhooks.delivery": "GET", "webhooks.upcoming": "GET", "webhooks.replay": "POST",
	}
	f.caller.Role = account.Agent
	for name, method := range names {
		if status, body := f.call(method, name, ""); status != 403 || !strings.Contains(body, `"FORBIDDEN"`) {
			t.Errorf("%s by an agent: got %d %s, want 403", name, status, body)
		}
	}
	f.caller = nil
	for name, method := range names {
		if status, body := f.call(method, name, ""); status != 401 || !strings.Contains(body, `"UNAUTHORIZED"`) {
			t.Errorf("%s by nobody: got %d %s, want 401", name, status, body)
		}
	}
}

// TestWebhookHistoryProcedures covers the procedures on deliveries.
func TestWebhookHistoryProcedures(t *testing.T) {
	f := newWebhookFixture(t)
	_, created := f.call("POST", "webhooks.create", `{"url":"https://receiver.example.com/hook","events":["ticket.created"],"secret":"planted-secret-of-ours","ordered":true}`)
	if !strings.Contains(created, `"ordered":true`) {
		t.Errorf("got %s, want it ordered", created)
	}
	hook := anyID.FindString(created)
	f.want("GET", "webhooks.deliveries", "", 200, result(`{"deliveries":[],"next":null}`))
	f.want("GET", "webhooks.upcoming", `{"webhookId":"`+hook+`"}`, 200, result(`[]`))

	// An event waits; then it is delivered.
	if _, err := f.update(hook, `"enabled":false`); err != nil {
		t.Fatal(err)
	}
	emitted := []event.Event{{OrganizationID: f.caller.OrganizationID, Name: event.TicketCreated, Data: event.Data{Ticket: &event.Ticket{ID: "t", Number: 7}}}}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.events.EmitTx(t.Context(), tx, emitted...) }); err != nil {
		t.Fatal(err)
	}
	f.want("GET", "webhooks.upcoming", `{"webhookId":"`+hook+`","limit":1}`, 200, result(`[{"id":"ID","eventId":"ID","event":"ticket.created","attempt":1,`+
		`"waitsFor":"enabled","dueAt":"TIME","further":["TIME","TIME","TIME","TIME","TIME"],"created_at":"TIME"}]`))
	f.want("GET", "webhooks.deliveries", `{"states":["untried"]}`, 200, result(`{"deliveries":[{"id":"ID","webhookId":"ID","eventId":"ID","event":"ticket.created",`+
		`"state":"untried","test":false,"attempts":0,"lastAttempt":null,"nextAttemptAt":null,"created_at":"TIME"}],"next":null}`))
	got, err := f.update(hook, `"enabled":true,"drainRate":3`)
	if err != nil || !strings.Contains(got, `"drainRate":3`) {
		t.Errorf("got %s, %v, want the rate in it", got, err)
	}
	f.deliver()
	const attempt = `"number":1,"at":"TIME","statusCode":200,"durationMs":0,"error":null,"response":null`
	const listed = `"id":"ID","webhookId":"ID","eventId":"ID","event":"ticket.created","state":"delivered","test":false,`
	const rest = `"lastAttempt":{` + attempt + `},"nextAttemptAt":null,"created_at":"TIME"`
	const first = `{` + listed + `"attempts":1,` + rest + `}`
	f.wantTimeless("GET", "webhooks.deliveries", `{"webhookId":"`+hook+`","event":"ticket.created","states":["delivered","failed"],"limit":1}`, 200,
		result(`{"deliveries":[`+first+`],"next":null}`))
	for _, filter := range []string{
		`"eventId":"` + emitted[0].ID + `"`, `"from":"2020-01-01T00:00:00Z"`, `"to":"2999-01-01T00:00:00Z"`,
		`"before":"ffffffff-ffff-7fff-bfff-ffffffffffff"`,
	} {
		f.wantTimeless("GET", "webhooks.deliveries", `{`+filter+`}`, 200, result(`{"deliveries":[`+first+`],"next":null}`))
	}
	for _, filter := range []string{
		`"eventId":"` + hook + `"`, `"to":"2020-01-01T00:00:00Z"`, `"states":["dropped"]`, `"event":"sla.warning"`, `"ticketId":"` + hook + `"`,
		`"before":"00000000-0000-7000-8000-000000000000"`,
	} {
		f.want("GET", "webhooks.deliveries", `{`+filter+`}`, 200, result(`{"deliveries":[],"next":null}`))
	}
	_, list := f.call("GET", "webhooks.deliveries", "")
	delivery := anyID.FindString(list)
	f.wantTimeless("GET", "webhooks.delivery", `{"id":"`+delivery+`"}`, 200, result(`{`+listed+rest+`,"attempts":[{`+attempt+`,"request":{`+
		`"method":"POST","url":"https://receiver.example.com/hook","headers":{"Accept-Encoding":"identity","Content-Length":"N","Content-Type":"application/json",`+
		`"Host":"receiver.example.com","User-Agent":"Kickstand-Webhooks","Webhook-Id":"ID","Webhook-Signature":"v1,MAC","Webhook-Timestamp":"N",`+
		`"X-Service-Delivery":"ID","X-Service-Event":"ticket.created","X-Service-Signature":"sha256=MAC"},`+
		`"body":"{\"id\":\"ID\",\"event\":\"ticket.created\",\"created_at\":\"TIME\",\"data\":{\"ticket\":{\"id\":\"t\",\"number\":7,\"subject\":\"\",\"status\":\"\",`+
		`\"priority\":\"\",\"channel\":null,\"customer\":null,\"assignee\":null,\"url\":null}}}"}}]}`))

	// Replays.
	f.want("POST", "webhooks.replay", `{"deliveryIds":["`+delivery+`"]}`, 200, result(`{"replayed":1,"deliveryIds":["ID"]}`))
	f.want("POST", "webhooks.replay", `{"eventId":"`+emitted[0].ID+`"}`, 200, result(`{"replayed":1,"deliveryIds":["ID"]}`))
	f.want("POST", "webhooks.replay", `{"eventId":"`+emitted[0].ID+`","webhookId":"`+hook+`"}`, 200, result(`{"replayed":1,"deliveryIds":["ID"]}`))
	span := `"webhookId":"` + hook + `","from":"2020-01-01T00:00:00Z","to":"2999-01-01T00:00:00Z"`
	f.want("POST", "webhooks.replay", `{`+span+`}`, 200, result(`{"replayed":1}`))
	f.want("POST", "webhooks.replay", `{`+span+`,"failedOnly":true}`, 200, result(`{"replayed":0}`))
	f.want("POST", "webhooks.replay", `{`+span+`,"event":"sla.warning"}`, 200, result(`{"replayed":0}`))
	_, test := f.call("POST", "webhooks.test", `{"id":"`+hook+`"}`)
	tested := anyID.FindString(test)
	f.want("POST", "webhooks.replay", `{"deliveryIds":["`+tested+`"]}`, 400, `{"error":{"json":{"message":"deliveryIds.0 is a test delivery, which cannot be replayed; send another test",`+
		`"code":-32600,"data":{"code":"BAD_REQUEST","httpStatus":400,"path":"webhooks.replay","issues":[{"path":"deliveryIds.0","message":"is a test delivery, which cannot be replayed; send another test"}]}}}}`)

	// A page, and the next.
	_, page := f.call("GET", "webhooks.deliveries", `{"limit":2}`)
	next := regexp.MustCompile(`"next":"([^"]+)"`).FindStringSubmatch(page)
	if next == nil {
		t.Fatalf("got %s, want a next page", page)
	}
	if _, second := f.call("GET", "webhooks.deliveries", `{"before":"`+next[1]+`"}`); strings.Count(second, `"webhookId"`) != 4 || strings.Count(page, `"webhookId"`) != 2 {
		t.Errorf("got %s\nand then %s, want 2 and 4 deliveries", page, second)
	}

	// No response contains a secret.
	for _, answer := range []string{created, list, page} {
		if strings.Contains(answer, "planted-secret") {
			t.Errorf("the secret is in %s", answer)
		}
	}

	// Ids that do not exist or belong to another organization.
	missing := func(name, message string) string {
		return `{"error":{"json":{"message":"` + message + `","code":-32004,"data":{"code":"NOT_FOUND","httpStatus":404,"path":"` + name + `"}}}}`
	}
	f.want("GET", "webhooks.deliveries", `{"ticketNumber":7}`, 404, missing("webhooks.deliveries", "there is no ticket #7"))
	f.want("GET", "webhooks.delivery", `{"id":"`+hook+`"}`, 404, missing("webhooks.delivery", "there is no such delivery"))
	f.caller.OrganizationID = "22222222-2222-7222-8222-222222222222"
	f.want("GET", "webhooks.deliveries", "", 200, result(`{"deliveries":[],"next":null}`))
	f.want("GET", "webhooks.deliveries", `{"eventId":"`+emitted[0].ID+`"}`, 200, result(`{"deliveries":[],"next":null}`))
	f.want("GET", "webhooks.deliveries", `{"webhookId":"`+hook+`"}`, 404, missing("webhooks.deliveries", "there is no such webhook"))
	f.want("GET", "webhooks.delivery", `{"id":"`+delivery+`"}`, 404, missing("webhooks.delivery", "there is no such delivery"))
	f.want("GET", "webhooks.upcoming", `{"webhookId":"`+hook+`"}`, 404, missing("webhooks.upcoming", "there is no such webhook"))
	f.want("POST", "webhooks.replay", `{"deliveryIds":["`+delivery+`"]}`, 404, missing("webhooks.replay", `there is no delivery \"ID\"`))
	f.want("POST", "webhooks.replay", `{"eventId":"`+emitted[0].ID+`"}`, 404, missing("webhooks.replay", "the event does not exist or has been purged"))
	const ofFleet = `{"eventId":"evt_01KKNTQ6YAEDQRB018TR4SJM6R"}`
	f.want("GET", "webhooks.deliveries", ofFleet, 200, result(`{"deliveries":[],"next":null}`))
	f.want("POST", "webhooks.replay", ofFleet, 404, missing("webhooks.replay", "the event does not exist or has been purged"))
	f.want("POST", "webhooks.replay", `{`+span+`}`, 404, missing("webhooks.replay", "there is no such webhook"))
}

var (
	anyMAC    = regexp.MustCompile(`sha256=[0-9a-f]{64}|v1,[A-Za-z0-9+/]{43}=`)
	anyNumber = regexp.MustCompile(`("Content-Length"|"Webhook-Timestamp"):"\d+"`)
)

// wantTimeless is want without durations and signatures.
func (f *webhookFixture) wantTimeless(method, procedure, input string, status int, body string) {
	f.t.Helper()
	gotStatus, got := f.call(method, procedure, input)
	got = anyNumber.ReplaceAllString(anyDuration.ReplaceAllString(anonymous(got), `"durationMs":0`), `$1:"N"`)
	got = anyMAC.ReplaceAllStringFunc(got, func(mac string) string {
		prefix, _, _ := strings.Cut(strings.Replace(mac, "v1,", "v1,=", 1), "=")
		if prefix == "sha256" {
			prefix += "="
		}
		return prefix + "MAC"
	})
	if gotStatus != status || got != body {
		f.t.Errorf("%s %s %s:\n got %d %s\nwant %d %s", method, procedure, input, gotStatus, got, status, body)
	}
}

func (f *webhookFixture) update(id, change string) (string, error) {
	status, got := f.call("POST", "webhooks.update", `{"id":"`+id+`",`+change+`}`)
	if status != 200 {
		return got, errors.New(got)
	}
	return got, nil
}

// deliver runs the queue until it is idle.
func (f *webhookFixture) deliver() {
	f.t.Helper()
	if err := f.queue.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	<-f.receiver.got
	f.queue.Stop(context.Background())
}
