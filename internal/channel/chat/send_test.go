package chat_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

var token = map[string]string{"bot_token": "token"}

func outgoing(change func(*channel.Outgoing)) *channel.Outgoing {
	m := &channel.Outgoing{ID: "0192-ours", From: "T1", To: channel.Party{ID: "U7"}, ThreadKey: "C9:1795168700.000200", Text: "Try <again> & tell us"}
	if change != nil {
		change(m)
	}
	return m
}

func TestCheck(t *testing.T) {
	a := chat.New(chat.Config{})
	for _, tt := range []struct {
		name        string
		credentials map[string]string
		change      func(*channel.Outgoing)
		want        problem.Kind
	}{
		{"as it should be", token, nil, 0},
		{"no token", nil, nil, problem.Precondition},
		{"somebody who never wrote", token, func(m *channel.Outgoing) { m.ThreadKey = "" }, problem.Precondition},
		{"no thread", token, func(m *channel.Outgoing) { m.ThreadKey = "C9:" }, problem.Precondition},
		{"as long as can be", token, func(m *channel.Outgoing) { m.Text = strings.Repeat("é", chat.MaxText) }, 0},
		{"too long", token, func(m *channel.Outgoing) { m.Text = strings.Repeat("é", chat.MaxText+1) }, problem.Invalid},
		{"too long once escaped", token, func(m *channel.Outgoing) { m.Text = strings.Repeat("<", chat.MaxText/4+1) }, problem.Invalid},
		{"a file", token, func(m *channel.Outgoing) { m.Files = []channel.OutgoingFile{{Name: "a.pdf"}} }, 0},
	} {
		err := a.Check(outgoing(tt.change), channel.ConnectionCredentials(a.API(), tt.credentials))
		p, _ := errors.AsType[*problem.Error](err)
		switch {
		case tt.want == 0 && err != nil:
			t.Errorf("%s: Check() = %v, want nil", tt.name, err)
		case tt.want != 0 && (p == nil || p.Kind != tt.want):
			t.Errorf("%s: Check() = %v, want the kind %v", tt.name, err, tt.want)
		}
	}
}

func TestCall(t *testing.T) {
	m := outgoing(func(m *channel.Outgoing) {
		m.Files = []channel.OutgoingFile{{Name: "a|b>\n.pdf", URL: "https://help.example/f?a=1&b=2"}}
	})
	c := chat.New(chat.Config{APIURL: "https://chat.example"}).SendCall(m, channel.ConnectionCredentials(channel.API{URL: "https://chat.example", Credentials: chat.New(chat.Config{}).API().Credentials}, token))
	if c.Method != "POST" || c.URL != "https://chat.example/api/chat.postMessage" ||
		c.Header.Get("Authorization") != "Bearer token" || c.Header.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Errorf("Call() = %s %s %v", c.Method, c.URL, c.Header)
	}
	var got map[string]any
	if err := json.Unmarshal(c.Body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"channel": "C9", "thread_ts": "1795168700.000200",
		"text":     "Try &lt;again&gt; &amp; tell us\n<https://help.example/f?a=1&amp;b=2|a/b&gt; .pdf>",
		"metadata": map[string]any{"event_type": "kickstand_message", "event_payload": map[string]any{"id": "0192-ours"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Call() posts\n%v, want\n%v", got, want)
	}
}

func TestReadSendResponse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   channel.SendResult
	}{
		{"taken", 200, `{"ok":true,"channel":"C9","ts":"1795168801.000900","message":{}}`,
			channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{"C9:1795168801.000900"}}},
		{"gone from the channel", 200, `{"ok":false,"error":"not_in_channel"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the app is not in the channel any more: invite it again (not_in_channel)"}},
		{"no channel", 200, `{"ok":false,"error":"channel_not_found"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the channel does not exist any more, or the app may not see it (channel_not_found)"}},
		{"archived", 200, `{"ok":false,"error":"is_archived"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the channel is archived (is_archived)"}},
		{"bad token", 200, `{"ok":false,"error":"invalid_auth"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider refuses the connection's bot_token (invalid_auth)"}},
		{"token revoked", 200, `{"ok":false,"error":"token_revoked"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the connection's bot_token is not valid any more: install the app again (token_revoked)"}},
		{"account inactive", 200, `{"ok":false,"error":"account_inactive"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the connection's bot_token is not valid any more: install the app again (account_inactive)"}},
		{"too long", 200, `{"ok":false,"error":"msg_too_long"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the text is too long (msg_too_long)"}},
		{"scope", 200, `{"ok":false,"error":"missing_scope","needed":"chat:write:bot","provided":"identify"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the app lacks the scope chat:write:bot (missing_scope)"}},
		{"unknown words", 200, `{"ok":false,"error":"full_moon"}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider refused the message (full_moon)"}},
		{"rate in the body", 200, `{"ok":false,"error":"ratelimited"}`,
			channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider takes no more messages at the moment (ratelimited)", RetryAfter: 30 * time.Second}},
		{"rate", 429, ``, channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider's rate limit was exceeded (429)", RetryAfter: 30 * time.Second}},
		{"trouble in the body", 200, `{"ok":false,"error":"fatal_error"}`,
			channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider failed (fatal_error)", RetryAfter: 30 * time.Second}},
		{"trouble", 503, `<html>`, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider failed (503)", RetryAfter: 30 * time.Second}},
		{"no JSON", 200, `<html>`, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}},
		{"neither", 200, `{}`, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}},
		{"ok without a name", 200, `{"ok":true}`, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}},
		{"elsewhere", 302, ``, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider refused the message (302)"}},
	} {
		h := http.Header{}
		if tt.want.RetryAfter > 0 {
			h.Set("Retry-After", "30")
		}
		got := chat.New(chat.Config{}).ReadSendResponse(outgoing(nil), channel.Response{Status: tt.status, Header: h, Body: []byte(tt.body)})
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: ReadCall() = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestSearch(t *testing.T) {
	a, m, since := chat.New(chat.Config{}), outgoing(nil), time.Unix(1795168800, 0)
	c := a.SearchCall(m, channel.ConnectionCredentials(a.API(), token), since)
	want := "https://slack.com/api/conversations.replies?channel=C9&include_all_metadata=true&limit=100&oldest=1795168500.000000&ts=1795168700.000200"
	if c.Method != "GET" || c.URL != want || c.Header.Get("Authorization") != "Bearer token" {
		t.Errorf("SearchCall() = %s %s %v, want GET %s", c.Method, c.URL, c.Header, want)
	}
	first := `{"ok":true,"messages":[{"ts":"1795168700.000200","text":"printer is down"},
		{"ts":"1795168801.000100","metadata":{"event_type":"kickstand_message","event_payload":{"id":"another"}}},
		{"ts":"1795168801.000200","metadata":{"event_type":"theirs","event_payload":{"id":"0192-ours"}}},
		{"ts":"1795168801.000300","metadata":{"event_type":"theirs","event_payload":{"id":7}}}],
		"has_more":true,"response_metadata":{"next_cursor":"bmV4dA=="}}`
	ids, more, err := a.ReadSearchResponse(m, channel.ConnectionCredentials(a.API(), token), since, channel.Response{Status: 200, Body: []byte(first)})
	if len(ids) != 0 || more == nil || err != nil || !strings.Contains(more.URL, "cursor=bmV4dA%3D%3D") || !strings.Contains(more.URL, "oldest=1795168500") {
		t.Fatalf("ReadSearch() = %q, %+v, %v, want the call for the rest", ids, more, err)
	}
	second := `{"ok":true,"messages":[{"ts":"1795168802.000100","metadata":{"event_type":"kickstand_message","event_payload":{"id":"0192-ours"}}}],"has_more":false}`
	ids, more, err = a.ReadSearchResponse(m, channel.ConnectionCredentials(a.API(), token), since, channel.Response{Status: 200, Body: []byte(second)})
	if !reflect.DeepEqual(ids, []string{"C9:1795168802.000100"}) || more != nil || err != nil {
		t.Errorf("ReadSearch() = %q, %+v, %v, want the message", ids, more, err)
	}
	for _, tt := range []struct {
		name   string
		answer channel.Response
		never  bool
	}{
		{"not allowed to read", channel.Response{Status: 200, Body: []byte(`{"ok":false,"error":"missing_scope","needed":"channels:history"}`)}, true},
		{"token gone", channel.Response{Status: 200, Body: []byte(`{"ok":false,"error":"token_revoked"}`)}, true},
		{"not at the moment", channel.Response{Status: 200, Body: []byte(`{"ok":false,"error":"internal_error"}`)}, false},
		{"too often", channel.Response{Status: 429}, false},
		{"no JSON", channel.Response{Status: 200, Body: []byte(`<html>`)}, false},
	} {
		_, more, err := a.ReadSearchResponse(m, channel.ConnectionCredentials(a.API(), token), since, tt.answer)
		if err == nil || more != nil || errors.Is(err, channel.ErrUnsearchable) != tt.never {
			t.Errorf("%s: ReadSearch() = %+v, %v, want an error, for good: %t", tt.name, more, err, tt.never)
		}
	}
}
