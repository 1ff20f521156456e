package voice_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

var user = map[string]string{"api_token": "token", "user_id": "5780678246121472"}

func outgoing() *channel.Outgoing {
	return &channel.Outgoing{ID: "m-1", From: "+12085550100", To: channel.Party{Phone: "+17025550111"}, Text: "On our way"}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name        string
		credentials map[string]string
		change      func(*channel.Outgoing)
		want        string // in the error; empty for none
	}{
		{"a user", user, nil, ""},
		{"a group", map[string]string{"api_token": "t", "sender_group_id": "11", "sender_group_type": "department"}, nil, ""},
		{"a group of no type", map[string]string{"api_token": "t", "sender_group_id": "11"}, nil, "cannot send"},
		{"nobody", map[string]string{"api_token": "t"}, nil, "cannot send"},
		{"no token", map[string]string{"user_id": "5"}, nil, "cannot send"},
		{"nothing", nil, nil, "cannot send"},
		{"a withheld number", user, func(m *channel.Outgoing) { m.To = channel.Party{Name: "Ana"} }, "number is not known"},
		{"a short code", user, func(m *channel.Outgoing) { m.To = channel.Party{ID: "74422"} }, "number is not known"},
		{"as long as can be", user, func(m *channel.Outgoing) { m.Text = strings.Repeat("ä", 1600) }, ""},
		{"too long", user, func(m *channel.Outgoing) { m.Text = strings.Repeat("ä", 1601) }, "at most 1600"},
		{"a file", user, func(m *channel.Outgoing) { m.Files = []channel.OutgoingFile{{Name: "a.png"}} }, "cannot be sent"},
	} {
		m := outgoing()
		if tt.change != nil {
			tt.change(m)
		}
		err := voice.New(voice.Config{}).Check(m, channel.ConnectionCredentials(voice.New(voice.Config{}).API(), tt.credentials))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: Check() = %v, want %q", tt.name, err, tt.want)
		}
		if _, ok := errors.AsType[*problem.Error](err); err != nil && !ok {
			t.Errorf("%s: Check() = %T, want what a person can read", tt.name, err)
		}
	}
}

func TestCall(t *testing.T) {
	for _, tt := range []struct {
		name        string
		credentials map[string]string
		want        map[string]any
	}{
		{"a user", user, map[string]any{
			"to_numbers": []any{"+17025550111"}, "text": "On our way", "user_id": json.Number("5780678246121472"),
		}},
		{"a group, by a user of it", map[string]string{"api_token": "token", "user_id": "u-1", "sender_group_id": "11", "sender_group_type": "department"}, map[string]any{
			"to_numbers": []any{"+17025550111"}, "text": "On our way", "user_id": "u-1", "sender_group_id": json.Number("11"), "sender_group_type": "department",
		}},
	} {
		a := voice.New(voice.Config{APIURL: "https://api.example"})
		c := a.SendCall(outgoing(), channel.ConnectionCredentials(a.API(), tt.credentials))
		if c.Method != "POST" || c.URL != "https://api.example/api/v2/sms" || c.Header.Get("Authorization") != "Bearer token" || c.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: Call() = %s %s %v", tt.name, c.Method, c.URL, c.Header)
		}
		d := json.NewDecoder(strings.NewReader(string(c.Body)))
		d.UseNumber()
		var got map[string]any
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: body %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := voice.New(voice.Config{}).SendCall(outgoing(), channel.ConnectionCredentials(voice.New(voice.Config{}).API(), user)).URL; got != "https://dialpad.com/api/v2/sms" {
		t.Errorf("without a setting the address is %q", got)
	}
}

func TestReadSendResponse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		header http.Header
		body   string
		want   channel.SendResult
	}{
		{"taken", 200, nil, `{"id":6011258943602688,"message_status":"pending"}`, channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{"6011258943602688"}}},
		{"taken, as text", 201, nil, `{"id":"x1"}`, channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{"x1"}}},
		{"failed at once", 200, nil, `{"id":1,"message_status":"failed","message_delivery_result":"invalid_destination"}`, channel.SendResult{
			Verdict: channel.VerdictRefused, ExternalIDs: []string{"1"}, Reason: "the number cannot receive texts (invalid_destination)", Recipient: "+17025550111", Unreachable: true,
		}},
		{"opted out", 200, nil, `{"id":1,"message_status":"failed","message_delivery_result":"opted_out"}`, channel.SendResult{
			Verdict: channel.VerdictRefused, ExternalIDs: []string{"1"}, Reason: "the recipient has opted out (opted_out)", Recipient: "+17025550111", OptedOut: true,
		}},
		{"no id", 200, nil, `{}`, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}},
		{"no JSON", 200, nil, `<html>`, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}},
		{"too many", 429, http.Header{"Retry-After": {"7"}}, ``, channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider's rate limit was exceeded (429)", RetryAfter: 7 * time.Second}},
		{"too many, for it does not say how long", 429, nil, ``, channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider's rate limit was exceeded (429)", RetryAfter: time.Minute}},
		{"trouble", 502, nil, ``, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider failed (502)"}},
		{"timed out there", 408, nil, ``, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider failed (408)"}},
		{"token", 401, nil, `{}`, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider rejected the connection's api_token (401)"}},
		{"scope", 403, nil, `{}`, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the api_token may not send texts for this user or group (403)"}},
		{"user", 404, nil, `{}`, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider does not know the connection's user or group (404)"}},
		{"words", 400, nil, `{"error":{"code":400,"message":"to_numbers is malformed"}}`, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider refused the text (400): to_numbers is malformed"}},
		{"no words", 422, nil, ``, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider refused the text (422)"}},
	} {
		got := voice.New(voice.Config{}).ReadSendResponse(outgoing(), channel.Response{Status: tt.status, Header: tt.header, Body: []byte(tt.body)})
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: ReadCall() = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestNeverTwice: a text without a response is never sent again, so the adapter must be neither
// a Searcher nor an IdempotentSender.
func TestNeverTwice(t *testing.T) {
	var a any = voice.New(voice.Config{})
	if _, ok := a.(channel.Searcher); ok {
		t.Error("the adapter claims that it can search")
	}
	if _, ok := a.(channel.IdempotentSender); ok {
		t.Error("the adapter claims that calls can be repeated")
	}
}
