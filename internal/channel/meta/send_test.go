package meta_test

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const day = 24 * time.Hour

var (
	token = map[string]string{"access_token": "t"}
	agent = map[string]string{"access_token": "t", "human_agent": "true"}
)

func file(contentType string, size int64) channel.OutgoingFile {
	return channel.OutgoingFile{Name: "it", ContentType: contentType, Size: size, URL: "https://help.example/f/1"}
}

// outgoing returns a message to a customer with a last message some time ago.
func outgoing(text string, ago time.Duration, files ...channel.OutgoingFile) *channel.Outgoing {
	now := time.Now()
	return &channel.Outgoing{
		ID: "0192", From: "1065", To: channel.Party{Phone: "+16505551234", ID: "9001"}, Text: text, Files: files,
		Now: now, LastInboundAt: now.Add(-ago), LastInboundID: "wamid.AAA",
	}
}

// why returns the text of a refusal with its field.
func why(err error) string {
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case err == nil:
		return ""
	case !ok:
		return "not a problem: " + err.Error()
	case len(p.Issues) > 0:
		return p.Issues[0].Path + " " + p.Issues[0].Message
	}
	return p.Message
}

func TestBusinessCheck(t *testing.T) {
	const mb = 1 << 20
	synctest.Test(t, func(t *testing.T) { // midnight of 1 January 2000
		nobody := outgoing("Hi", 0)
		nobody.To = channel.Party{Name: "Ana"}
		unheard := outgoing("Hi", 0)
		unheard.LastInboundAt = time.Time{}
		hidden := outgoing("Hi", 0)
		hidden.To = channel.Party{ID: "US.777"}
		const wait = "Until the customer writes again, only templates that the provider has approved may be sent: reach them another way, or wait for them to write"
		for _, tt := range []struct {
			name        string
			m           *channel.Outgoing
			credentials map[string]string
			want        string
			tooLate     bool
		}{
			{"a text", outgoing("Hi", time.Hour), token, "", false},
			{"somebody without a number", hidden, token, "", false},
			{"no token", outgoing("Hi", 0), nil, "the connection of 1065 cannot send: its credentials need access_token", false},
			{"a version that is none", outgoing("Hi", 0), map[string]string{"access_token": "t", "api_version": "25"},
				"the connection of 1065 cannot send: its credential api_version must look like v25.0", false},
			{"nobody", nobody, token, "neither the customer's number nor their id is known", false},
			{"just in time", outgoing("Hi", day-time.Second), token, "", false},
			{"too late", outgoing("Hi", day), token, "the 24 hours in which the customer could be answered here ended on 1 January 2000 at 00:00 UTC. " + wait, true},
			{"a person too", outgoing("Hi", day), agent, "the 24 hours in which the customer could be answered here ended on 1 January 2000 at 00:00 UTC. " + wait, true},
			{"not heard of yet", unheard, token, "the customer has not written on this channel yet, and only what they write opens it for 24 hours. " + wait, true},
			{"a long text", outgoing(strings.Repeat("ü", 4096), 0), token, "", false},
			{"a text that is too long", outgoing(strings.Repeat("ü", 4097), 0), token, "text must have at most 4096 characters on this channel", false},
			{"a long text beside a file", outgoing(strings.Repeat("ü", 1025), 0, file("image/png", 1)), token, "text must have at most 1024 characters beside a file on this channel", false},
			{"a picture", outgoing("Hi", 0, file("image/jpeg", 5*mb)), token, "", false},
			{"a large picture", outgoing("Hi", 0, file("image/jpeg", 5*mb+1)), token, "attachments.0 must have at most 5 MB on this channel", false},
			{"a film", outgoing("", 0, file("video/mp4", 16*mb)), token, "", false},
			{"sound", outgoing("", 0, file("audio/ogg; codecs=opus", 1)), token, "", false},
			{"sound with text", outgoing("Hi", 0, file("audio/mpeg", 1)), token, "attachments.0 must be sent without text: on this channel audio has no caption", false},
			{"a document", outgoing("Hi", 0, file("text/plain; charset=utf-8", 1)), token, "", false},
			{"what is not taken", outgoing("Hi", 0, file("image/gif", 1)), token,
				"attachments.0 cannot be sent on this channel: it takes JPEG and PNG images, MP4 and 3GPP videos, AAC, AMR, MP3, M4A and OGG sound, PDF, plain text and Office documents", false},
			{"two files", outgoing("", 0, file("image/png", 1), file("image/png", 1)), token,
				"attachments.1 must be sent separately: on this channel a message has at most one file", false},
		} {
			err := meta.NewBusiness(meta.Config{}).Check(tt.m, channel.ConnectionCredentials(meta.NewBusiness(meta.Config{}).API(), tt.credentials))
			if got := why(err); got != tt.want || errors.Is(err, channel.ErrTooLate) != tt.tooLate {
				t.Errorf("%s: Check() = %q, too late: %t; want %q, too late: %t", tt.name, got, errors.Is(err, channel.ErrTooLate), tt.want, tt.tooLate)
			}
		}
	})
}

func TestMessengerCheck(t *testing.T) {
	const mb = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		nobody := outgoing("Hi", 0)
		nobody.To = channel.Party{Phone: "+16505551234"}
		unheard := outgoing("Hi", 0)
		unheard.LastInboundAt = time.Time{}
		automatic := outgoing("Hi", day)
		automatic.Automatic = true
		const wait = "Until the customer writes again, nothing may be sent here: reach them another way, or wait for them to write"
		const permission = ". An app with the provider's permission Human Agent has seven days: see the connection's credential human_agent"
		for _, tt := range []struct {
			name        string
			m           *channel.Outgoing
			credentials map[string]string
			want        string
			tooLate     bool
		}{
			{"a text", outgoing("Hi", time.Hour), token, "", false},
			{"no token", outgoing("Hi", 0), nil, "the connection of 1065 cannot send: its credentials need access_token", false},
			{"nobody", nobody, token, "the customer's id with this page is not known", false},
			{"just in time", outgoing("Hi", day-time.Second), token, "", false},
			{"too late", outgoing("Hi", day), token, "the time in which the customer could be answered here ended on 1 January 2000 at 00:00 UTC. " + wait + permission, true},
			{"a person", outgoing("Hi", 7*day-time.Second), agent, "", false},
			{"a program is no person", automatic, agent, "the time in which the customer could be answered here ended on 1 January 2000 at 00:00 UTC. " + wait + permission, true},
			{"a person too late", outgoing("Hi", 7*day), agent, "the time in which the customer could be answered here ended on 1 January 2000 at 00:00 UTC. " + wait, true},
			{"not heard of yet", unheard, agent, "the customer has not written on this channel yet, and only what they write opens it. " + wait, true},
			{"a text that is too long", outgoing(strings.Repeat("ü", 2001), 0), token, "text must have at most 2000 characters on this channel", false},
			{"a file", outgoing("", 0, file("application/zip", 25*mb)), token, "", false},
			{"a large file", outgoing("", 0, file("application/zip", 25*mb+1)), token, "attachments.0 must have at most 25 MB on this channel", false},
			{"a large picture", outgoing("", 0, file("image/png", 8*mb+1)), token, "attachments.0 must have at most 8 MB on this channel", false},
			{"a file with text", outgoing("Hi", 0, file("image/png", 1)), token, "attachments.0 must be sent without text: on this channel a message is a file or a text", false},
			{"two files", outgoing("", 0, file("image/png", 1), file("image/png", 1)), token,
				"attachments.1 must be sent separately: on this channel a message has at most one file", false},
		} {
			err := meta.NewMessenger(meta.Config{}).Check(tt.m, channel.ConnectionCredentials(meta.NewMessenger(meta.Config{}).API(), tt.credentials))
			if got := why(err); got != tt.want || errors.Is(err, channel.ErrTooLate) != tt.tooLate {
				t.Errorf("%s: Check() = %q, too late: %t; want %q, too late: %t", tt.name, got, errors.Is(err, channel.ErrTooLate), tt.want, tt.tooLate)
			}
		}
	})
}

func TestCall(t *testing.T) {
	business, messenger := meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{APIURL: "https://graph.example/v31.0/"})
	to := func(m *channel.Outgoing, p channel.Party) *channel.Outgoing { m.To = p; return m }
	page := func(m *channel.Outgoing) *channel.Outgoing { m.From = "1234"; return m }
	const businessURL, messengerURL = "https://graph.facebook.com/v25.0/1065/messages", "https://graph.example/v31.0/1234/messages"
	for _, tt := range []struct {
		name        string
		caller      channel.APISender
		m           *channel.Outgoing
		credentials map[string]string
		url, body   string
	}{
		{"a text", business, outgoing("Hi <Ana> & co", 0), token, businessURL,
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"16505551234","type":"text","biz_opaque_callback_data":"0192","text":{"body":"Hi <Ana> & co"}}`},
		{"to an id", business, to(outgoing("Hi", 0), channel.Party{ID: "US.777"}), token, businessURL,
			`{"messaging_product":"whatsapp","recipient_type":"individual","recipient":"US.777","type":"text","biz_opaque_callback_data":"0192","text":{"body":"Hi"}}`},
		{"from a number of the account's", business, outgoing("Hi", 0), map[string]string{"access_token": "t", "phone_number_id": "777", "api_version": "v24.0"},
			"https://graph.facebook.com/v24.0/777/messages",
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"16505551234","type":"text","biz_opaque_callback_data":"0192","text":{"body":"Hi"}}`},
		{"a picture", business, outgoing("Look", 0, file("image/png", 1)), token, businessURL,
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"16505551234","type":"image","biz_opaque_callback_data":"0192","image":{"link":"https://help.example/f/1","caption":"Look"}}`},
		{"a film", business, outgoing("", 0, file("video/mp4", 1)), token, businessURL,
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"16505551234","type":"video","biz_opaque_callback_data":"0192","video":{"link":"https://help.example/f/1"}}`},
		{"sound", business, outgoing("", 0, file("audio/ogg", 1)), token, businessURL,
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"16505551234","type":"audio","biz_opaque_callback_data":"0192","audio":{"link":"https://help.example/f/1"}}`},
		{"a document", business, outgoing("Read", 0, file("application/pdf", 1)), token, businessURL,
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"16505551234","type":"document","biz_opaque_callback_data":"0192","document":{"link":"https://help.example/f/1","caption":"Read","filename":"it"}}`},
		{"to the messenger", messenger, page(outgoing("Hi", 0)), token, messengerURL,
			`{"recipient":{"id":"9001"},"messaging_type":"RESPONSE","message":{"text":"Hi","metadata":"kickstand:0192"}}`},
		{"with proof", messenger, page(outgoing("Hi", 0)), map[string]string{"access_token": "t", "app_secret": "s"},
			messengerURL + "?appsecret_proof=" + hmacSHA256("t", "s"),
			`{"recipient":{"id":"9001"},"messaging_type":"RESPONSE","message":{"text":"Hi","metadata":"kickstand:0192"}}`},
		{"by a person, on the first day", messenger, page(outgoing("Hi", time.Hour)), agent, messengerURL,
			`{"recipient":{"id":"9001"},"messaging_type":"RESPONSE","message":{"text":"Hi","metadata":"kickstand:0192"}}`},
		{"by a person, later", messenger, page(outgoing("Hi", day)), agent, messengerURL,
			`{"recipient":{"id":"9001"},"messaging_type":"MESSAGE_TAG","tag":"HUMAN_AGENT","message":{"text":"Hi","metadata":"kickstand:0192"}}`},
		{"a picture to the messenger", messenger, page(outgoing("", 0, file("image/png", 1))), token, messengerURL,
			`{"recipient":{"id":"9001"},"messaging_type":"RESPONSE","message":{"attachment":{"type":"image","payload":{"url":"https://help.example/f/1"}},"metadata":"kickstand:0192"}}`},
		{"what is no picture there", messenger, page(outgoing("", 0, file("image/svg+xml", 1))), token, messengerURL,
			`{"recipient":{"id":"9001"},"messaging_type":"RESPONSE","message":{"attachment":{"type":"file","payload":{"url":"https://help.example/f/1"}},"metadata":"kickstand:0192"}}`},
		{"a film to the messenger", messenger, page(outgoing("", 0, file("video/mp4", 1))), token, messengerURL,
			`{"recipient":{"id":"9001"},"messaging_type":"RESPONSE","message":{"attachment":{"type":"video","payload":{"url":"https://help.example/f/1"}},"metadata":"kickstand:0192"}}`},
	} {
		got := tt.caller.SendCall(tt.m, channel.ConnectionCredentials(channel.APIOf(tt.caller.(channel.Adapter)), tt.credentials))
		header := bearer("t")
		header.Set("Content-Type", "application/json")
		if got.Method != "POST" || got.URL != tt.url || !reflect.DeepEqual(got.Header, header) {
			t.Errorf("%s: Call() is %s %s with %v, want POST %s with %v", tt.name, got.Method, got.URL, got.Header, tt.url, header)
		}
		if !jsonEqual(t, got.Body, tt.body) {
			t.Errorf("%s: Call() sends %s, want %s", tt.name, got.Body, tt.body)
		}
	}
}

func TestReadSendResponse(t *testing.T) {
	business, messenger := meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{})
	failed := func(code string) string {
		return `{"error":{"message":"(#0) Words","type":"OAuthException","code":` + code + `}}`
	}
	for _, tt := range []struct {
		name   string
		caller channel.APISender
		status int
		body   string
		want   channel.SendResult
	}{
		{"taken", business, 200, `{"messaging_product":"whatsapp","contacts":[{"input":"1","wa_id":"1"}],"messages":[{"id":"wamid.O","message_status":"accepted"}]}`,
			channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{"wamid.O"}}},
		{"taken, it seems", business, 200, `{}`, channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}},
		{"too late", business, 400, failed("131047"), channel.SendResult{Verdict: channel.VerdictRefused,
			Reason: "more than 24 hours have passed since the customer last wrote, so only approved templates may be sent. Write again after they have, or reach them another way (131047)"}},
		{"undeliverable", business, 400, failed("131026"), channel.SendResult{Verdict: channel.VerdictRefused, Recipient: "+16505551234", Unreachable: true,
			Reason: "the message cannot be delivered: the customer may not use the messenger, or an app that is too old (131026)"}},
		{"too many to one", business, 400, failed("131056"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "too many messages went to this customer in a short time (131056)"}},
		{"too many", business, 429, failed("130429"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "too many messages went out from our number in a short time (130429)"}},
		{"token", business, 401, failed(`190,"error_subcode":463`), channel.SendResult{Verdict: channel.VerdictRefused,
			Reason: "the provider refuses the connection's access token: it has expired or was withdrawn. An administrator must give the connection a new one (190/463)"}},
		{"permission", business, 403, failed("10"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the connection's access token lacks the permission to send from here (10)"}},
		{"another permission", business, 403, failed("200"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the connection's access token lacks the permission to send from here (200)"}},
		{"restricted", business, 403, failed("368"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider has restricted the account for breaking its rules (368)"}},
		{"locked", business, 403, failed("131031"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider has locked or restricted the account (131031)"}},
		{"spam", business, 400, failed("131048"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider limits our number, since too many of its messages were blocked or reported (131048)"}},
		{"type", business, 400, failed("131051"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider does not take messages of this type (131051)"}},
		{"file", business, 400, failed("131053"), channel.SendResult{Verdict: channel.VerdictRefused,
			Reason: "the provider could not load the file: it takes neither this type or size, or cannot reach its address (131053)"}},
		{"template", business, 400, failed("132001"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider rejected the template: (#0) Words (132001)"}},
		{"template to an id", business, 400, failed("131062"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "this template cannot be sent to a customer who hides their number (131062)"}},
		{"parameter", business, 400, `{"error":{"code":100,"message":"(#100) Invalid parameter","error_data":{"details":"Param to must be a phone\n number"}}}`,
			channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider rejected the message: Param to must be a phone number (100)"}},
		{"unknown", business, 400, failed("139999"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "(#0) Words (139999)"}},
		{"unknown, passing", business, 400, failed(`139999,"is_transient":true`), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "(#0) Words (139999)"}},
		{"unknown trouble", business, 500, failed("139999"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "(#0) Words (139999)"}},
		{"trouble", business, 500, failed("131000"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "the provider failed, or is at work on the account (131000)"}},
		{"undeliverable, as trouble", business, 500, failed("131026"), channel.SendResult{Verdict: channel.VerdictRefused, Recipient: "+16505551234", Unreachable: true,
			Reason: "the message cannot be delivered: the customer may not use the messenger, or an app that is too old (131026)"}},
		{"turned away", business, 503, `<html>`, channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "the provider takes no more messages at the moment (503)"}},
		{"a gateway that gave up", business, 504, `<html>`, channel.SendResult{Verdict: channel.VerdictUnclear, RetryAfter: 7 * time.Second, Reason: "the provider failed (504)"}},
		{"not found", business, 404, `<html>`, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider refused the message (404)"}},

		{"taken by the messenger", messenger, 200, `{"recipient_id":"9001","message_id":"m_o"}`, channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{"m_o"}}},
		{"too late there", messenger, 403, failed(`10,"error_subcode":2018278`), channel.SendResult{Verdict: channel.VerdictRefused,
			Reason: "too much time has passed since the customer last wrote. Write again after they have, or reach them another way (10/2018278)"}},
		{"permission there", messenger, 403, failed("10"), channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the connection's access token lacks the permission to send from here (10)"}},
		{"away", messenger, 400, failed(`551,"error_subcode":1545041`), channel.SendResult{Verdict: channel.VerdictRefused,
			Reason: "the customer cannot be reached at the moment: they may have blocked the page, or left the messenger (551/1545041)"}},
		{"nobody", messenger, 400, failed(`100,"error_subcode":2018001`), channel.SendResult{Verdict: channel.VerdictRefused, Recipient: "9001", Unreachable: true,
			Reason: "the provider knows nobody with the customer's id on this page (100/2018001)"}},
		{"rate", messenger, 400, failed("613"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "the provider takes no more messages at the moment (613)"}},
		{"rate of the app", messenger, 400, failed("4"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "the provider takes no more messages at the moment (4)"}},
		{"rate of the page", messenger, 400, failed("32"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "the provider takes no more messages at the moment (32)"}},
		{"passing trouble", messenger, 500, failed("1200"), channel.SendResult{Verdict: channel.VerdictRetry, RetryAfter: 7 * time.Second, Reason: "the provider failed (1200)"}},
		{"a file there", messenger, 400, failed(`100,"error_subcode":2018008`), channel.SendResult{Verdict: channel.VerdictRefused,
			Reason: "the provider could not load the file: it takes neither this type or size, or cannot reach its address (100/2018008)"}},
	} {
		got := tt.caller.ReadSendResponse(outgoing("Hi", 0), channel.Response{Status: tt.status, Header: http.Header{"Retry-After": {"7"}}, Body: []byte(tt.body)})
		if tt.want.Verdict == channel.VerdictUnclear && tt.status == 200 {
			tt.want.RetryAfter = 7 * time.Second
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: ReadCall() = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
