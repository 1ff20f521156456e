package api_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

func TestConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: api.New(), Dir: "testdata", Timed: true,
		Sign: func(r *channel.Request, secret string, at time.Time) { api.Sign(r.Header, "msg_1", at, r.Body, secret) },
	})
}

func TestNormalizeAddress(t *testing.T) {
	for raw, want := range map[string]string{" Contact-Form ": "contact-form", "app.v2": "app.v2", "": "", "a b": "", "-a": "", "a/b": "", strings.Repeat("a", 64): ""} {
		got, err := api.New().NormalizeAddress(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("NormalizeAddress(%q) = %q, %v, want %q", raw, got, err, want)
		}
	}
}

// TestCheckConnection refuses values that could never work.
func TestCheckConnection(t *testing.T) {
	for _, tt := range []struct {
		name, url, origins string
		ok                 bool
	}{
		{"nothing", "", "", true},
		{"both", "https://app.example.com/kickstand", "https://www.example.com, http://localhost:8081", true},
		{"a loopback URL", "http://127.0.0.1:9/", "", true},
		{"http", "http://app.example.com/", "", false},
		{"a password", "https://u:p@app.example.com/", "", false},
		{"an origin with a path", "", "https://www.example.com/", false},
		{"a wildcard", "", "*", false},
		{"the null origin", "", "null", false},
		{"an origin by http", "", "http://www.example.com", false},
		{"a default port", "", "https://www.example.com:443", false},
		{"another port", "", "https://www.example.com:8443", true},
		{"a wildcard of hosts", "", "https://*.example.com", false},
		{"a host that browsers send in ASCII", "", "https://b\u00fccher.example", false},
		{"the same in ASCII", "", "https://xn--bcher-kva.example", true},
		{"one bad of two", "", "https://www.example.com,example.com", false},
	} {
		var v problem.Validation
		api.New().CheckConnection(&v, "", map[string]string{"webhook_url": tt.url}, map[string]string{"origins": tt.origins})
		if err := v.Err(); (err == nil) != tt.ok {
			t.Errorf("%s: CheckConnection() = %v, want ok %t", tt.name, err, tt.ok)
		}
	}
	got := api.Origins(map[string]string{"origins": "https://*.example.com, https://WWW.example.com"})
	if len(got) != 1 || got[0] != "https://www.example.com" {
		t.Errorf("Origins() = %q, want those that are valid", got)
	}
}

// TestKeysOfUsersAreApart: ids that could make the key of another user's conversation are refused.
func TestKeysOfUsersAreApart(t *testing.T) {
	for _, id := range []string{"", "a/b", "/a", "+14155550100", "a b", "é", "a\n", "-a", strings.Repeat("a", 101)} {
		for _, m := range []api.Message{
			{ID: id, Conversation: "c", User: api.User{ID: "u"}, Text: "x"},
			{ID: "m", Conversation: id, User: api.User{ID: "u"}, Text: "x"},
			{ID: "m", Conversation: "c", User: api.User{ID: id}, Text: "x"},
		} {
			if _, err := m.Channel(); problem.Of(err) != problem.Invalid {
				t.Errorf("Channel() of %+v = %v, want Invalid", m, err)
			}
		}
	}
	for _, id := range []string{"a", "7", "auth0|66", "ana+x@client.example", "_", "a.b-c~d"} {
		m := api.Message{ID: id, Conversation: id, User: api.User{ID: id}, Text: "x"}
		got, err := m.Channel()
		if err != nil || got.ThreadKey != id+"/"+id || got.ExternalID != id+"/"+id {
			t.Errorf("Channel() of %q = %+v, %v", id, got, err)
		}
	}
}

// TestFiles: a file has either content or a public URL.
func TestFiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		file api.File
		want problem.Kind // 0: none
	}{
		{"content", api.File{Name: "a", Content: "aGVsbG8="}, 0},
		{"a URL", api.File{Name: "a", URL: "https://files.example.com/a"}, 0},
		{"both", api.File{Name: "a", Content: "aGVsbG8=", URL: "https://files.example.com/a"}, problem.Invalid},
		{"neither", api.File{Name: "a"}, problem.Invalid},
		{"no base64", api.File{Name: "a", Content: "%"}, problem.Invalid},
		{"a private URL", api.File{Name: "a", URL: "https://127.0.0.1/a"}, problem.Invalid},
		{"http", api.File{Name: "a", URL: "http://files.example.com/a"}, problem.Invalid},
		{"no name", api.File{Content: "aGVsbG8="}, problem.Invalid},
		{"too large", api.File{Name: "a", Data: make([]byte, api.MaxFileBytes+1)}, problem.TooLarge},
	} {
		m := api.Message{ID: "m", Conversation: "c", User: api.User{ID: "u"}, Files: []api.File{tt.file}}
		if _, err := m.Channel(); (err != nil || tt.want != 0) && problem.Of(err) != tt.want {
			t.Errorf("%s: Channel() = %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestSend(t *testing.T) {
	adapter := api.New()
	credentials := channel.ConnectionCredentials(adapter.API(), map[string]string{"webhook_url": "https://app.example.com/kickstand"})
	m := &channel.Outgoing{
		ID: "m1", TicketID: "t1", TicketNumber: 42, ThreadKey: "u-7/order-1001", FromName: "Demo Wheels", Text: "It is on its way.",
		Now: channeltest.Received(), Files: []channel.OutgoingFile{{Name: "a.pdf", ContentType: "application/pdf", Size: 7, URL: "https://help.example/a"}},
	}
	if err := adapter.Check(m, credentials); err != nil || adapter.Pulls(credentials) {
		t.Fatalf("Check() = %v, Pulls() = %t", err, adapter.Pulls(credentials))
	}
	call := adapter.SendCall(m, credentials)
	adapter.SignCall(&call, []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "an older secret of the connection"}, m.Now)
	req, err := call.HTTPRequest(t.Context())
	if err != nil || req.URL.String() != "https://app.example.com/kickstand" || !call.Public() {
		t.Fatalf("HTTPRequest() = %v, %v, public %t", req, err, call.Public())
	}
	for _, secret := range []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "an older secret of the connection"} {
		if err := payload.VerifyStandard(req.Header, call.Body, secret, m.Now); err != nil {
			t.Errorf("VerifyStandard() = %v", err)
		}
	}
	if err := payload.VerifyStandard(req.Header, call.Body, "another secret of the connection", m.Now); !errors.Is(err, payload.ErrSignature) {
		t.Errorf("VerifyStandard() of another secret = %v", err)
	}
	if req.Header.Get("Webhook-Id") != "m1" {
		t.Errorf("webhook-id = %q, want that of the message", req.Header.Get("Webhook-Id"))
	}
	var body map[string]any
	if err := json.Unmarshal(call.Body, &body); err != nil || body["user_id"] != "u-7" || body["conversation"] != "order-1001" || body["type"] != "message.created" {
		t.Errorf("body %s, %v", call.Body, err)
	}
	for status, want := range map[int]channel.SendOutcome{
		200: channel.VerdictSent, 204: channel.VerdictSent, 301: channel.VerdictRefused, 400: channel.VerdictRefused,
		410: channel.VerdictRefused, 408: channel.VerdictRetry, 429: channel.VerdictRetry, 500: channel.VerdictRetry, 503: channel.VerdictRetry,
	} {
		got := adapter.ReadSendResponse(m, channel.Response{Status: status, Header: http.Header{"Retry-After": {"30"}}})
		if got.Verdict != want || (got.Reason == "") != (want == channel.VerdictSent) || (got.RetryAfter == 30*time.Second) != (want == channel.VerdictRetry) {
			t.Errorf("status %d: %+v, want %s", status, got, want)
		}
	}
	if none := channel.ConnectionCredentials(adapter.API(), nil); !adapter.Pulls(none) || adapter.Check(m, none) != nil {
		t.Error("without a URL, replies are not fetched")
	}
	bad := channel.ConnectionCredentials(adapter.API(), map[string]string{"webhook_url": "http://app.example.com"})
	if adapter.Check(m, bad) == nil || adapter.Pulls(bad) {
		t.Error("a malformed URL is not refused")
	}
}
