package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

// answers is a receiver without a network.
type answers struct{ status int }

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.status == 0 {
		return nil, errors.New("connection refused")
	}
	io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// webhookFixture is the webhook procedures as they are served to whoever caller
// is.
type webhookFixture struct {
	t        *testing.T
	router   *rpc.Router
	caller   *account.Identity
	receiver *answers
}

func newWebhookFixture(t *testing.T) *webhookFixture {
	t.Helper()
	d := dbtest.New(t)
	f := &webhookFixture{
		t:        t,
		caller:   &account.Identity{UserID: "u", OrganizationID: "11111111-1111-7111-8111-111111111111", Role: account.Admin},
		receiver: &answers{status: http.StatusOK},
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	webhooks := webhook.Open(webhook.Config{
		DB: d, Queue: queue.Open(d, queue.Config{}), Events: new(event.Log), Box: seal.New(seal.NewKey()),
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
	if input != "" {
		body = strings.NewReader(`{"json":` + input + `}`)
	}
	r := httptest.NewRequest(method, rpc.Prefix+procedure, body)
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
	first := `{"id":"ID","url":"https://receiver.example.com/","events":["ticket.created"],"enabled":true,"state":"enabled","hasSecret":true,` +
		`"payloadForm":"b","retrySchedule":"two","queuedEvents":0,"droppedEvents":0,"lastDeliveryAt":null,"lastError":null,"created_at":"TIME","updated_at":"TIME"}`
	status, created := f.call("POST", "webhooks.create", `{"url":"https://receiver.example.com/","events":["ticket.created"],"secret":"hush"}`)
	if got := anonymous(created); status != 200 || got != result(first) {
		t.Fatalf("got %d %s, want %s", status, got, result(first))
	}
	id := anyID.FindString(created)
	second := `{"id":"ID","url":"https://other.example.com/","events":["*"],"enabled":false,"state":"disabled","hasSecret":false,` +
		`"payloadForm":"a","retrySchedule":"one","queuedEvents":0,"droppedEvents":0,"lastDeliveryAt":null,"lastError":null,"created_at":"TIME","updated_at":"TIME"}`
	f.want("POST", "webhooks.create", `{"url":"https://other.example.com/","events":["*"],"enabled":false,"payloadForm":"a","retrySchedule":"one"}`, 200, result(second))
	f.want("GET", "webhooks.list", "", 200, result("["+first+","+second+"]"))

	f.want("POST", "webhooks.update", `{"id":"`+id+`","events":["sla.warning","sla.breached"],"enabled":false}`, 200,
		result(strings.NewReplacer(`["ticket.created"]`, `["sla.warning","sla.breached"]`, `"enabled":true,"state":"enabled"`, `"enabled":false,"state":"disabled"`).Replace(first)))
	f.want("POST", "webhooks.update", `{"id":"`+id+`","url":"https://new.example.com/","secret":"","enabled":true,"events":null}`, 200,
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

	// Another organization's id is nobody's.
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

	names := map[string]string{"webhooks.list": "GET", "webhooks.create": "POST", "webhooks.update": "POST", "webhooks.delete": "POST", "webhooks.test": "POST"}
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
