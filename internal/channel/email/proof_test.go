package email_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/mailauth/mailauthtest"
)

const signable = "From: Ana <ana@client.example>\nTo: support@acme.example\nSubject: Lamp\nDate: Fri, 20 Nov 2026 10:00:00 +0000\nMessage-ID: <a1@client.example>\n\nIt is broken: caf\xe9.\n"

// posts returns a raw mail in all wrappings, by name. JSON text cannot hold 8-bit bytes.
func posts(raw string) map[string]struct {
	adapter channel.Adapter
	req     *channel.Request
} {
	kind := func(v string) http.Header { return http.Header{"Content-Type": {v}} }
	asJSON := func(v any) string { data, _ := json.Marshal(v); return string(data) }
	field := func(name string) *channel.Request {
		r := request(kind("multipart/form-data; boundary=xYzZY"), "--xYzZY--\r\n")
		addFields(r, name, raw)
		return r
	}
	withEnvelope := field("email")
	addFields(withEnvelope, "envelope", `{"to":["support@acme.example"],"from":"bounce@evil.example"}`)
	return map[string]struct {
		adapter channel.Adapter
		req     *channel.Request
	}{
		"raw, the body":      {email.NewRaw(config()), request(kind("message/rfc822"), raw)},
		"raw, a field":       {email.NewRaw(config()), field("message")},
		"raw, JSON base64":   {email.NewRaw(config()), request(kind("application/json"), asJSON(map[string]string{"raw": base64.StdEncoding.EncodeToString([]byte(raw)), "encoding": "base64"}))},
		"raw, JSON text":     {email.NewRaw(config()), request(kind("application/json"), asJSON(map[string]string{"raw": raw}))},
		"form, multipart":    {email.NewForm(config()), field("body-mime")},
		"form, url-encoded":  {email.NewForm(config()), request(kind("application/x-www-form-urlencoded"), "recipient=support%40acme.example&body-mime="+url.QueryEscape(raw))},
		"parse":              {email.NewParsed(config()), withEnvelope},
		"JSON":               {email.NewJSON(config()), request(kind("application/json"), asJSON(map[string]string{"OriginalRecipient": "support@acme.example", "RawEmail": raw}))},
		"a mailbox file":     {email.NewRaw(config()), request(kind("message/rfc822"), "From ana@client.example Fri Nov 20 10:00:00 2026\r\n"+raw)},
		"a byte order mark":  {email.NewRaw(config()), request(kind("message/rfc822"), "\ufeff"+raw)},
		"line breaks of Mac": {email.NewRaw(config()), request(kind("message/rfc822"), strings.ReplaceAll(raw, "\r\n", "\r"))},
	}
}

// proofOf parses a request with the records of a zone, as the worker does.
func proofOf(t *testing.T, a channel.Adapter, r *channel.Request, z mailauthtest.Zone) mailauth.Result {
	t.Helper()
	p := channel.Part{Address: "support@acme.example", Kind: email.KindMessage}
	names := a.(channel.DNSVerifier).TXTNames(r, p, nil)
	r.TXT = z.Answers(names)
	e, err := a.Parse(r, p)
	if err != nil {
		t.Fatal(err)
	}
	return e.Message.Mail.Proof
}

// TestRawMailProvesItsSender: the signature of a raw mail counts in every wrapping.
func TestRawMailProvesItsSender(t *testing.T) {
	z := mailauthtest.Zone{}
	z.Publish("client.example")
	signed := mailauthtest.Sign(t, signable, mailauthtest.Signature{Domain: "client.example"})
	for name, tt := range posts(signed) {
		want := mailauth.Proven
		if strings.Contains(name, "JSON") && !strings.Contains(name, "base64") {
			want = mailauth.Unproven
		}
		if got := proofOf(t, tt.adapter, tt.req, z); got.Verdict != want || got.Domain != "client.example" {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
	ascii := mailauthtest.Sign(t, strings.ReplaceAll(signable, "\xe9", "e"), mailauthtest.Signature{Domain: "client.example"})
	for name, tt := range posts(ascii) {
		if got := proofOf(t, tt.adapter, tt.req, z); got.Verdict != mailauth.Proven || got.Reason != "DKIM signature of client.example matches the From address" {
			t.Errorf("ASCII, %s: %+v", name, got)
		}
	}
	for name, tt := range posts(strings.Replace(ascii, "broken", "fixed", 1)) {
		if got := proofOf(t, tt.adapter, tt.req, z); got.Verdict != mailauth.Unproven {
			t.Errorf("altered, %s: %+v", name, got)
		}
	}
}

// TestFetchedMailProvesItsSender: a mail stored at the delivery provider is proven over its
// bytes.
func TestFetchedMailProvesItsSender(t *testing.T) {
	z := mailauthtest.Zone{}
	z.Publish("client.example")
	a := email.NewDelivery(config())
	r := request(http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"msg_1"}},
		`{"type":"email.received","data":{"email_id":"e1","from":"ana@client.example","to":["support@acme.example"]}}`)
	p := channel.Part{Address: "support@acme.example", Kind: "email.received"}
	fetched := func(raw string) []channel.Response {
		return []channel.Response{
			{Status: 200, Body: []byte(`{"id":"e1","from":"ana@client.example","to":["support@acme.example"],"text":"Hi","raw":{"download_url":"https://inbound-cdn.resend.com/raw"}}`)},
			{Status: 200, Body: []byte(raw)},
		}
	}
	for name, tt := range map[string]struct {
		answers []channel.Response
		want    mailauth.Verdict
	}{
		"signed": {fetched(mailauthtest.Sign(t, signable, mailauthtest.Signature{Domain: "client.example"})), mailauth.Proven},
		"not":    {fetched(signable), mailauth.Unproven},
		"parts":  {fetched("")[:1], mailauth.Unproven},
	} {
		r.TXT = z.Answers(a.TXTNames(r, p, tt.answers))
		e, err := a.ParseEnriched(r, p, tt.answers)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Message.Mail.Proof; got.Verdict != tt.want {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
}

// TestHeadersOfStrangersProveNothing: header fields in the names of providers prove nothing
// unless a signature covers them.
func TestHeadersOfStrangersProveNothing(t *testing.T) {
	claims := "X-Mailgun-Spf: Pass\nX-Mailgun-Dkim-Check-Result: Pass\nReceived-SPF: Pass\nAuthentication-Results: mx.evil.example; dmarc=pass\n"
	for name, tt := range posts(mailauthtest.CRLF(claims + strings.ReplaceAll(signable, "\xe9", "e"))) {
		if got := proofOf(t, tt.adapter, tt.req, nil); got.Verdict != mailauth.Unproven {
			t.Errorf("%s: %+v", name, got)
		}
	}
	taken := form("from", "ana@client.example", "X-Mailgun-Spf", "Pass", "message-headers", `[["From","ana@client.example"],["X-Mailgun-Spf","Pass"],["X-Mailgun-Dkim-Check-Result","Pass"]]`)
	if got := proofOf(t, email.NewForm(config()), taken, nil); got.Verdict != mailauth.Unproven {
		t.Errorf("taken apart: %+v", got)
	}
}

// TestMisleadingName: a name that looks like another address is not shown as the sender's name.
func TestMisleadingName(t *testing.T) {
	for from, want := range map[string]string{
		"Ana <eve@evil.example>":                                         "Ana",
		`"boss@acme.example" <eve@evil.example>`:                         "",
		"=?utf-8?q?boss=40acme=2Eexample?= <eve@evil.example>":           "",
		`"Eve@evil.example" <eve@evil.example>`:                          "Eve@evil.example",
		`"'eve@evil.example'" <eve@evil.example>`:                        "'eve@evil.example'",
		`"Boss (boss@acme.example)" <eve@evil.example>`:                  "",
		`"Ana, who writes at work" <eve@evil.example>, bob@evil.example`: "Ana, who writes at work",
	} {
		r := request(http.Header{"Content-Type": {"message/rfc822"}}, "From: "+from+"\r\nSubject: x\r\n\r\nHi\r\n")
		e, err := email.NewRaw(config()).Parse(r, channel.Part{})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Message.Mail.Sender; got.Name != want || e.Message.From.Name != want {
			t.Errorf("%s: %+v", from, got)
		}
	}
}
