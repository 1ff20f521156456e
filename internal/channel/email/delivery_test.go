package email_test

import (
	"encoding/base64"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
)

func signDelivery(r *channel.Request, secret string, at time.Time) {
	signature, timestamp := email.SignDelivery(r.Body, "msg_2b1", at, secret)
	r.Header.Set(email.DeliveryIDHeader, "msg_2b1")
	r.Header.Set(email.DeliveryTimestampHeader, timestamp)
	r.Header.Set(email.DeliverySignatureHeader, signature)
}

func TestDeliveryConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{Adapter: email.NewDelivery(config()), Dir: "testdata/delivery", Timed: true, Sign: signDelivery})
}

func TestDeliveryVerify(t *testing.T) {
	key := []byte("0123456789abcdef01234567")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	body := []byte(`{"type":"email.sent"}`)
	signature, timestamp := email.SignDelivery(body, "msg_1", channeltest.Received(), secret)
	other, _ := email.SignDelivery(body, "msg_1", channeltest.Received(), "whsec_"+base64.StdEncoding.EncodeToString([]byte("another key")))
	neutral := func(signature string) http.Header {
		return http.Header{email.DeliveryIDHeader: {"msg_1"}, email.DeliveryTimestampHeader: {timestamp}, email.DeliverySignatureHeader: {signature}}
	}
	for _, tt := range []struct {
		name   string
		header http.Header
		secret string
		want   bool
	}{
		{"neutral names", neutral(signature), secret, true},
		{"the vendor's names", http.Header{"Svix-Id": {"msg_1"}, "Svix-Timestamp": {timestamp}, "Svix-Signature": {signature}}, secret, true},
		{"second of a list", neutral("v1a,AAAA v1,AAAA " + other + " " + signature), secret, true},
		{"another version", neutral(strings.Replace(signature, "v1,", "v1a,", 1)), secret, false},
		{"no version", neutral(strings.TrimPrefix(signature, "v1,")), secret, false},
		{"none of a list", neutral("v1,AAAA " + other), secret, false},
		{"far down a list", neutral(strings.Repeat("v1,AAAA ", 100) + signature), secret, false},
		{"another id", http.Header{email.DeliveryIDHeader: {"msg_2"}, email.DeliveryTimestampHeader: {timestamp}, email.DeliverySignatureHeader: {signature}}, secret, false},
		{"a secret without its prefix", neutral(signature), strings.TrimPrefix(secret, "whsec_"), true},
		{"a secret that is the key itself", neutral(signature), string(key), true},
		{"a secret that encodes nothing", neutral(signature), "whsec_", false},
	} {
		r := request(tt.header, string(body))
		if got := email.NewDelivery(config()).Verify(r, tt.secret); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
	// The example of Standard Webhooks.
	r := request(http.Header{
		"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}, `{"test": 2432232314}`)
	r.Received = time.Unix(1614265330, 0)
	if !email.NewDelivery(config()).Verify(r, "whsec_"+"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") {
		t.Error("the standard's own example was refused")
	}
}

func TestDeliverySigningSecrets(t *testing.T) {
	credentials := map[string]string{email.CredentialSecret: "whsec_a, whsec_b,"}
	for _, tt := range []struct {
		channel string
		secrets []string
		given   map[string]string
		want    []string
	}{
		{"email-delivery", []string{"own"}, nil, []string{"own"}},
		{"email-delivery", []string{"own"}, credentials, []string{"own", "whsec_a", "whsec_b"}},
		{"email-raw", []string{"own"}, credentials, []string{"whsec_a", "whsec_b"}},
		{"email-raw", []string{"own"}, nil, nil},
	} {
		if got := email.NewDelivery(config()).SigningSecrets(tt.channel, tt.secrets, channel.ConnectionCredentials(email.NewDelivery(config()).API(), tt.given)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Keys(%s, %q, %v) = %q, want %q", tt.channel, tt.secrets, tt.given, got, tt.want)
		}
	}
}

const receivedJSON = `{"object":"email","id":"56761188-7520-42d8-8898-ff6fc54ce618","to":["Support <support+x@acme.example>"],"from":"Ana Lind <ana@client.example>",
"subject":"Lamp","cc":["sales@acme.example"],"bcc":[],"reply_to":["ana@home.example"],"html":"<p>Hi</p><img src=\"cid:p1\">","text":"Hi","message_id":"<c1@client.example>",
"headers":{"in-reply-to":"<m.1@acme.example>","auto-submitted":"no"},RAW
"attachments":[{"id":"2a0c9ce0","filename":"lamp.png","content_type":"image/png","content_disposition":"inline","content_id":"p1"},{"id":"gone","filename":"gone.pdf","content_type":"application/pdf"}]}`

const rawMail = "Message-ID: <c1@client.example>\r\nFrom: Ana Lind <ana@client.example>\r\nTo: support@acme.example\r\nSubject: Lamp\r\n\r\nAs it came.\r\n"

// enrich makes an adapter call a provider that answers by path, and returns the calls and the
// parsed event.
func enrich(t *testing.T, a *email.Delivery, part int, credentials map[string]string, provider map[string]channel.Response) (calls []string, m *channel.Message) {
	t.Helper()
	r := channeltest.Load(t, "testdata/delivery/received.txtar")
	parts, err := a.Split(r)
	if err != nil {
		t.Fatal(err)
	}
	var answers []channel.Response
	for len(answers) < 10 {
		call := a.EnrichCall(r, parts[part], answers, channel.ConnectionCredentials(a.API(), credentials))
		if call == nil {
			break
		}
		authorized := call.Header.Get("Authorization")
		if authorized != "" {
			authorized = " as " + strings.TrimPrefix(authorized, "Bearer ")
		}
		if call.Public() {
			authorized += ", if public"
		}
		calls = append(calls, call.Method+" "+call.URL+authorized)
		answers = append(answers, provider[call.URL])
	}
	e, err := a.ParseEnriched(r, parts[part], answers)
	if err != nil || e.Message == nil {
		t.Fatalf("ParseAnswered() = %+v, %v", e, err)
	}
	return calls, e.Message
}

func TestDeliveryAsk(t *testing.T) {
	const (
		api   = "https://api.resend.com/emails/receiving/56761188-7520-42d8-8898-ff6fc54ce618"
		cdn   = "https://inbound-cdn.resend.com/raw?sig=1"
		files = api + "/attachments?limit=50"
	)
	answer := func(status int, body string) channel.Response {
		return channel.Response{Status: status, Body: []byte(body)}
	}
	withRaw := func(url string) channel.Response {
		return answer(200, strings.Replace(receivedJSON, "RAW", `"raw":{"download_url":"`+url+`"},`, 1))
	}
	fields := answer(200, strings.Replace(receivedJSON, "RAW", "", 1))
	list := answer(200, `{"object":"list","data":[{"id":"2a0c9ce0","download_url":"https://inbound-cdn.resend.com/lamp.png?sig=2"}]}`)
	key := map[string]string{email.CredentialAPIKey: "key"}
	const nothing = "(The text of this mail could not be fetched from the delivery provider.)"
	for _, tt := range []struct {
		name        string
		credentials map[string]string
		provider    map[string]channel.Response
		calls       []string
		text        string
		files       []string // name and URL, or the error
	}{
		{"raw", key, map[string]channel.Response{api: withRaw(cdn), cdn: answer(200, rawMail)}, []string{"GET " + api + " as key", "GET " + cdn + ", if public"}, "As it came.", nil},
		{
			"no raw", key, map[string]channel.Response{api: fields, files: list}, []string{"GET " + api + " as key", "GET " + files + " as key"}, "Hi",
			[]string{"lamp.png https://inbound-cdn.resend.com/lamp.png?sig=2", "gone.pdf the file could not be fetched from the delivery provider"},
		},
		{
			"the raw one is gone", key, map[string]channel.Response{api: withRaw(cdn), cdn: answer(403, "expired"), files: list},
			[]string{"GET " + api + " as key", "GET " + cdn + ", if public", "GET " + files + " as key"}, "Hi",
			[]string{"lamp.png https://inbound-cdn.resend.com/lamp.png?sig=2", "gone.pdf the file could not be fetched from the delivery provider"},
		},
		{
			"the raw one is elsewhere", key, map[string]channel.Response{api: withRaw("https://evil.example/raw"), files: list},
			[]string{"GET " + api + " as key", "GET " + files + " as key"}, "Hi",
			[]string{"lamp.png https://inbound-cdn.resend.com/lamp.png?sig=2", "gone.pdf the file could not be fetched from the delivery provider"},
		},
		{
			"no files", key, map[string]channel.Response{api: fields}, []string{"GET " + api + " as key", "GET " + files + " as key"}, "Hi",
			[]string{"lamp.png the file could not be fetched from the delivery provider", "gone.pdf the file could not be fetched from the delivery provider"},
		},
		{"unknown", key, map[string]channel.Response{api: answer(404, `{"name":"not_found"}`)}, []string{"GET " + api + " as key"}, nothing, []string{"lämp.png the file could not be fetched from the delivery provider"}},
		{"never came", key, nil, []string{"GET " + api + " as key"}, nothing, []string{"lämp.png the file could not be fetched from the delivery provider"}},
		{"another mail", key, map[string]channel.Response{api: answer(200, `{"id":"x","to":["support@acme.example"],"text":"Secret"}`)}, []string{"GET " + api + " as key"}, nothing, []string{"lämp.png the file could not be fetched from the delivery provider"}},
		{"mail of others", key, map[string]channel.Response{api: answer(200, `{"to":["help@other.example"],"text":"Secret"}`)}, []string{"GET " + api + " as key"}, nothing, []string{"lämp.png the file could not be fetched from the delivery provider"}},
		{"no key", nil, nil, nil, nothing, []string{"lämp.png the file could not be fetched from the delivery provider"}},
		{
			"an API of one's own", map[string]string{email.CredentialAPIKey: "key", email.CredentialAPIURL: "https://proxy.example/"}, nil,
			[]string{"GET https://proxy.example/emails/receiving/56761188-7520-42d8-8898-ff6fc54ce618 as key, if public"}, nothing, []string{"lämp.png the file could not be fetched from the delivery provider"},
		},
		{
			"an API of one's own without TLS", map[string]string{email.CredentialAPIKey: "key", email.CredentialAPIURL: "http://127.0.0.1"}, nil,
			nil, nothing, []string{"lämp.png the file could not be fetched from the delivery provider"},
		},
	} {
		calls, m := enrich(t, email.NewDelivery(config()), 0, tt.credentials, tt.provider)
		if !reflect.DeepEqual(calls, tt.calls) {
			t.Errorf("%s: calls %q, want %q", tt.name, calls, tt.calls)
		}
		var got []string
		for _, f := range m.Attachments {
			got = append(got, f.Name+" "+f.URL+f.Error)
		}
		if m.Text != tt.text || !reflect.DeepEqual(got, tt.files) {
			t.Errorf("%s: text %q, files %q; want %q, %q", tt.name, m.Text, got, tt.text, tt.files)
		}
		if m.ExternalID != "c1@client.example" || m.Mail.Sender.Email != "ana@client.example" || m.Mail.Recipient != "support@acme.example" {
			t.Errorf("%s: the mail is %+v, %+v", tt.name, m, m.Mail)
		}
	}

	// The operator's API may have any address, and so may its files.
	c := config()
	c.DeliveryAPIURL = "http://127.0.0.1:8000/resend/"
	const local = "http://127.0.0.1:8000/resend/emails/receiving/56761188-7520-42d8-8898-ff6fc54ce618"
	calls, m := enrich(t, email.NewDelivery(c), 1, key, map[string]channel.Response{
		local: withRaw("http://127.0.0.1:8000/raw"), "http://127.0.0.1:8000/raw": answer(200, rawMail),
	})
	if want := []string{"GET " + local + " as key", "GET http://127.0.0.1:8000/raw"}; !reflect.DeepEqual(calls, want) || m.Text != "As it came." {
		t.Errorf("calls %q, text %q; want %q and the raw mail", calls, m.Text, want)
	}
}

// TestDeliveryFields reads the mail fields of the API.
func TestDeliveryFields(t *testing.T) {
	const api = "https://api.resend.com/emails/receiving/56761188-7520-42d8-8898-ff6fc54ce618"
	_, m := enrich(t, email.NewDelivery(config()), 0, map[string]string{email.CredentialAPIKey: "key"}, map[string]channel.Response{
		api: {Status: 200, Body: []byte(strings.Replace(receivedJSON, "RAW", "", 1))},
	})
	if m.From.Email != "ana@home.example" || m.Subject != "Lamp" || m.HTML != `<p>Hi</p><img src="cid:p1">` ||
		!reflect.DeepEqual(m.Mail.InReplyTo, []string{"m.1@acme.example"}) || m.Mail.Class != channel.ClassInbound ||
		len(m.To) != 1 || len(m.Cc) != 1 || !m.Attachments[0].Inline {
		t.Errorf("the mail is %+v, %+v", m, m.Mail)
	}
}

func FuzzDelivery(f *testing.F) {
	files, err := filepath.Glob("testdata/delivery/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, file := range files {
		f.Add(channeltest.Load(f, file).Body, []byte(receivedJSON), []byte(rawMail))
	}
	a := email.NewDelivery(config())
	credentials := map[string]string{email.CredentialAPIKey: "key"}
	f.Fuzz(func(t *testing.T, body, first, second []byte) {
		r := request(http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"msg_1"}}, string(body))
		addresses, err := a.Addresses(r)
		if err != nil {
			t.Errorf("Addresses(): %v", err)
		}
		for _, s := range addresses {
			if s != email.Canonical(s) || s == "" {
				t.Errorf("address %q is not canonical", s)
			}
		}
		parts, _ := a.Split(r)
		for _, p := range parts {
			if len(p.Key) > 512 || len(p.Sender) > 512 || len(p.Kind) > 512 || channeltest.Storable(p.Key+p.Sender+p.Kind) != nil || p.Key == "" && !p.Skip {
				t.Errorf("part %+v does not fit an index", p)
			}
			if p.Skip {
				continue
			}
			answers := []channel.Response{{Status: 200, Body: first}, {Status: 200, Body: second}, {Status: 200, Body: first}}
			for n := range len(answers) + 1 {
				a.EnrichCall(r, p, answers[:n], channel.ConnectionCredentials(a.API(), credentials))
				e, err := a.ParseEnriched(r, p, answers[:n])
				if err == nil && (e.Message == nil) == (e.Receipt == nil) {
					t.Errorf("ParseAnswered() = %+v, want a message or a receipt", e)
				}
			}
		}
	})
}
