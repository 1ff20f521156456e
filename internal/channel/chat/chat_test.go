package chat_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
)

func sign(r *channel.Request, secret string, at time.Time) {
	signature, timestamp := chat.Sign(r.Body, at, secret)
	r.Header.Set(chat.SignatureHeader, signature)
	r.Header.Set(chat.TimestampHeader, timestamp)
}

func TestConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{Adapter: chat.New(chat.Config{}), Dir: "testdata", Sign: sign, Timed: true})
}

// sum is the signature from the provider's documentation, implemented independently.
func sum(text, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

func TestVerify(t *testing.T) {
	const body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	const at = "1531420618"
	// The provider's published example.
	secret := "8f742231b10e" + "8888abcd99yyyzzz85a5"
	published := "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
	received := time.Unix(1531420618, 900_000_000)
	for _, tt := range []struct {
		name, at, signature string
		want                bool
	}{
		{"published example", at, published, true},
		{"hex in capitals", at, "v0=" + strings.ToUpper(published[3:]), true},
		{"written out", at, sum("v0:"+at+":"+body, secret), true},
		{"another version", at, "v1=" + published[3:], false},
		{"no version", at, published[3:], false},
		{"cut short", at, published[:60], false},
		{"no hex", at, "v0=" + strings.Repeat("z", 64), false},
		{"another time than signed", "1531420619", published, false},
		{"no time", "", published, false},
		{"time with a sign", "+1531420618", sum("v0:+1531420618:"+body, secret), false},
		{"time that overflows", "99999999999999999999", sum("v0:99999999999999999999:"+body, secret), false},
		{"300 seconds old", "1531420318", sum("v0:1531420318:"+body, secret), true},
		{"301 seconds old", "1531420317", sum("v0:1531420317:"+body, secret), false},
		{"300 seconds ahead", "1531420918", sum("v0:1531420918:"+body, secret), true},
		{"302 seconds ahead", "1531420920", sum("v0:1531420920:"+body, secret), false},
	} {
		for _, family := range [][2]string{{"X-Slack-Signature", "X-Slack-Request-Timestamp"}, {"x-chat-signature", "x-chat-request-timestamp"}} {
			r := &channel.Request{Header: http.Header{}, Body: []byte(body), Received: received}
			r.Header.Set(family[0], tt.signature)
			r.Header.Set(family[1], tt.at)
			if got := chat.New(chat.Config{}).Verify(r, secret); got != tt.want {
				t.Errorf("%s, %s: Verify() = %t, want %t", tt.name, family[0], got, tt.want)
			}
		}
	}
}

func TestVerifyNeutralHeaderFirst(t *testing.T) {
	at := time.Unix(1795168800, 0)
	r := &channel.Request{Header: http.Header{}, Body: []byte("{}"), Received: at}
	sign(r, "key", at)
	r.Header.Set("X-Slack-Signature", "v0=00")
	if !chat.New(chat.Config{}).Verify(r, "key") {
		t.Error("the neutral header does not win")
	}
	r.Header.Set("X-Slack-Signature", r.Header.Get(chat.SignatureHeader))
	r.Header.Set(chat.SignatureHeader, "v0=00")
	if chat.New(chat.Config{}).Verify(r, "key") {
		t.Error("a wrong neutral header falls back to the vendor's")
	}
}

func load(t testing.TB, name string) *channel.Request {
	t.Helper()
	return channeltest.Load(t, filepath.Join("testdata", name+".txtar"))
}

func TestChallenge(t *testing.T) {
	a := chat.New(chat.Config{})
	got, ok := a.ChallengeResponse(load(t, "greeting"))
	if want := "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"; got != want || !ok {
		t.Errorf("Challenge() = %q, %t, want %q, true", got, ok, want)
	}
	if got, ok := a.ChallengeResponse(load(t, "message")); ok {
		t.Errorf("Challenge(message) = %q, true, want none", got)
	}
}

func TestContentType(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  error
	}{
		{"application/json", nil},
		{"application/json; charset=utf-8", nil},
		{"", nil},
		{"application/x-www-form-urlencoded", channel.ErrContentType},
	} {
		r := load(t, "message")
		r.Header.Set("Content-Type", tt.value)
		if _, err := chat.New(chat.Config{}).Addresses(r); !errors.Is(err, tt.want) {
			t.Errorf("%q: Addresses() error = %v, want %v", tt.value, err, tt.want)
		}
	}
}

func TestNormalizeAddress(t *testing.T) {
	for _, tt := range []struct {
		raw, want string
		ok        bool
	}{
		{"T012AB3C4", "T012AB3C4", true},
		{" t012ab3c4 ", "T012AB3C4", true},
		{"E0HQ", "E0HQ", true},
		{"C012AB3C4", "", false},
		{"acme.slack.com", "", false},
		{"T", "", false},
		{"T" + strings.Repeat("1", 300), "", false},
	} {
		got, err := chat.New(chat.Config{}).NormalizeAddress(tt.raw)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("FormAddress(%q) = %q, %v, want %q, ok %t", tt.raw, got, err, tt.want, tt.ok)
		}
	}
}

func TestWantsPart(t *testing.T) {
	a := chat.New(chat.Config{})
	for _, tt := range []struct {
		fixture, channels string
		want              bool
	}{
		{"message", "", true},
		{"message", "C9", true},
		{"message", "C1, C9", true},
		{"message", "C1,C2", false},
		{"reaction", "C1", false},
		{"edit", "C1", false},
		{"direct", "C1", true},
		{"uninstalled", "C1", true},
		{"rate-limited", "C1", true},
	} {
		r := load(t, tt.fixture)
		parts, err := a.Split(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.WantsPart(map[string]string{"channels": tt.channels}, r, parts[0]); got != tt.want {
			t.Errorf("%s: Chooses(%q) = %t, want %t", tt.fixture, tt.channels, got, tt.want)
		}
	}
	r := load(t, "message")
	parts, _ := a.Split(r)
	if !a.WantsPart(nil, r, parts[0]) {
		t.Error("without a connection nothing is chosen")
	}
}

// answer is a provider that knows all users.
func answer(c *channel.APIRequest) channel.Response {
	_, what, _ := strings.Cut(c.URL, "/api/")
	body := map[string]string{
		"users.info?user=U7":   `{"ok":true,"user":{"id":"U7","name":"ana","real_name":"Ana Client","profile":{"real_name":"Ana Client","display_name":"ana","email":"ana@client.example"}}}`,
		"users.info?user=UBOT": `{"ok":true,"user":{"id":"UBOT","name":"kickstand","profile":{"real_name":"Help","display_name":""}}}`,
		"users.info?user=W12":  `{"ok":false,"error":"user_not_found"}`,
		"files.info?file=F3":   `{"ok":true,"file":{"id":"F3","name":"c.pdf","mimetype":"application/pdf","url_private_download":"https://files.slack.com/files-pri/T2-F3/download/c.pdf"}}`,
	}[what]
	if body == "" {
		return channel.Response{Status: 404}
	}
	return channel.Response{Status: 200, Body: []byte(body)}
}

// enrich answers every call and returns the calls and responses.
func enrich(a *chat.Adapter, r *channel.Request, p channel.Part, give func(*channel.APIRequest) channel.Response) (asked []string, answers []channel.Response) {
	for {
		c := a.EnrichCall(r, p, answers, channel.ConnectionCredentials(a.API(), map[string]string{"bot_token": "token"}))
		if c == nil {
			return asked, answers
		}
		asked = append(asked, c.Method+" "+c.URL+" "+c.Header.Get("Authorization"))
		answers = append(answers, give(c))
	}
}

func TestAsk(t *testing.T) {
	a := chat.New(chat.Config{})
	for _, tt := range []struct {
		fixture string
		asked   []string
		from    channel.Party
		text    string
	}{
		{"message", []string{"users.info?user=U7", "users.info?user=UBOT"},
			channel.Party{ID: "U7", Name: "Ana Client", Email: "ana@client.example"}, "printer is down @Help"},
		{"markup", []string{"users.info?user=U7", "users.info?user=W12"},
			channel.Party{ID: "U7", Name: "Ana Client", Email: "ana@client.example"},
			"a <b> &amp; @bea @W12 #general #C6 @here @support 20 Nov a@client.example +14155550123 https://client.example/ https://client.example <> <open *bold* :smile:"},
		{"shared-channel", []string{"users.info?user=U99"}, channel.Party{ID: "U99", Name: "Ben Partner"}, "hello from the other side"},
	} {
		r := load(t, tt.fixture)
		asked, answers := enrich(a, r, channel.Part{}, answer)
		var want []string
		for _, q := range tt.asked {
			want = append(want, "GET https://slack.com/api/"+q+" Bearer token")
		}
		if !reflect.DeepEqual(asked, want) {
			t.Errorf("%s: asked %q, want %q", tt.fixture, asked, want)
		}
		e, err := a.ParseEnriched(r, channel.Part{}, answers)
		if err != nil {
			t.Fatal(err)
		}
		if e.Message.From != tt.from || e.Message.Text != tt.text {
			t.Errorf("%s: from %+v: %q, want %+v: %q", tt.fixture, e.Message.From, e.Message.Text, tt.from, tt.text)
		}
	}
}

// TestLocate: an event has only the id of a file in another workspace.
func TestLocate(t *testing.T) {
	a, r := chat.New(chat.Config{}), load(t, "files")
	asked, answers := enrich(a, r, channel.Part{}, answer)
	if len(asked) != 1 {
		t.Errorf("asked %q before there is a text, want the author only", asked)
	}
	e, err := a.ParseEnriched(r, channel.Part{}, answers)
	if err != nil {
		t.Fatal(err)
	}
	want := []channel.Attachment{
		{Name: "a.png", ContentType: "image/png", URL: "https://files.slack.com/files-pri/T1-F1/download/a.png"},
		{Name: "file", Error: "the file was deleted in the chat"},
		{Name: "file", Lookup: "F3"},
		{Name: "file", Error: "the file is beyond what the chat's plan keeps"},
	}
	if !reflect.DeepEqual(e.Message.Attachments, want) {
		t.Errorf("attachments %+v, want %+v", e.Message.Attachments, want)
	}
	if e.Message.Text != "Plan: https://docs.example/d/1" {
		t.Errorf("text %q, want the link to the file that is elsewhere", e.Message.Text)
	}
	call, _ := a.Locate(want[2], channel.ConnectionCredentials(a.API(), map[string]string{"bot_token": "token"}))
	if call == nil || call.URL != "https://slack.com/api/files.info?file=F3" || call.Header.Get("Authorization") != "Bearer token" {
		t.Fatalf("Locate() = %+v, want to ask for F3", call)
	}
	for _, tt := range []struct {
		answer channel.Response
		want   channel.Attachment
	}{
		{answer(call), channel.Attachment{Name: "c.pdf", ContentType: "application/pdf", URL: "https://files.slack.com/files-pri/T2-F3/download/c.pdf", Lookup: "F3"}},
		{channel.Response{}, channel.Attachment{Name: "file", Lookup: "F3", Error: "the chat did not say where the file is: the app may lack the scope files:read"}},
		{channel.Response{Status: 200, Body: []byte(`{"ok":true,"file":{"id":"F3","name":"d","mode":"external","url_private":"https://docs.example/d/2"}}`)},
			channel.Attachment{Name: "d", Lookup: "F3", Error: "it is not in the chat but at https://docs.example/d/2"}},
	} {
		if got := a.Located(want[2], tt.answer); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Located() = %+v, want %+v", got, tt.want)
		}
	}
	if call, why := a.Locate(want[2], channel.Credentials{}); call != nil || why == "" {
		t.Errorf("Locate() without a token = %+v, %q, want a reason", call, why)
	}
}

// TestEnrichWithoutResponses: without responses, the event's own data is used.
func TestEnrichWithoutResponses(t *testing.T) {
	a := chat.New(chat.Config{})
	for _, tt := range []struct {
		name   string
		answer channel.Response
		asked  int
	}{
		{"no answer", channel.Response{}, 2},
		{"missing scope", channel.Response{Status: 200, Body: []byte(`{"ok":false,"error":"missing_scope","needed":"users:read"}`)}, 2},
		{"token revoked", channel.Response{Status: 200, Body: []byte(`{"ok":false,"error":"token_revoked"}`)}, 1},
		{"no JSON", channel.Response{Status: 200, Body: []byte(`<html>`)}, 2},
		{"null", channel.Response{Status: 200, Body: []byte(`null`)}, 2},
	} {
		r := load(t, "message")
		asked, answers := enrich(a, r, channel.Part{}, func(*channel.APIRequest) channel.Response { return tt.answer })
		if len(asked) != tt.asked {
			t.Errorf("%s: asked %d times, want %d", tt.name, len(asked), tt.asked)
		}
		e, err := a.ParseEnriched(r, channel.Part{}, answers)
		if err != nil {
			t.Fatal(err)
		}
		if want := (channel.Party{ID: "U7"}); e.Message.From != want || e.Message.Text != "printer is down @UBOT" {
			t.Errorf("%s: from %+v: %q, want the ids", tt.name, e.Message.From, e.Message.Text)
		}
	}
	if c := a.EnrichCall(load(t, "message"), channel.Part{}, nil, channel.Credentials{}); c != nil {
		t.Errorf("Ask() without a token = %+v, want nil", c)
	}
	if c := a.EnrichCall(load(t, "delete"), channel.Part{}, nil, channel.ConnectionCredentials(a.API(), map[string]string{"bot_token": "t"})); c != nil {
		t.Errorf("Ask(delete) = %+v, want nil", c)
	}
}

// TestTwoEvents: the two events of one text are one message.
func TestTwoEvents(t *testing.T) {
	a := chat.New(chat.Config{})
	message, mention := load(t, "message"), load(t, "mention")
	x, errX := a.Parse(message, channel.Part{})
	y, errY := a.Parse(mention, channel.Part{})
	if errX != nil || errY != nil {
		t.Fatal(errX, errY)
	}
	if x.Message.ExternalID != y.Message.ExternalID || x.Message.ThreadKey != y.Message.ThreadKey || x.Message.ExternalID == "" {
		t.Errorf("ids %q in %q and %q in %q, want the same", x.Message.ExternalID, x.Message.ThreadKey, y.Message.ExternalID, y.Message.ThreadKey)
	}
}

func TestMediaRequest(t *testing.T) {
	a := chat.New(chat.Config{MediaHosts: []string{"proxy.example"}})
	got := a.MediaRequest(channel.Attachment{URL: "https://files.slack.com/a", ContentType: "image/png"}, channel.ConnectionCredentials(a.API(), map[string]string{"bot_token": "t"}))
	if !reflect.DeepEqual(got.Hosts, []string{"files.slack.com", "proxy.example"}) || got.Header.Get("Authorization") != "Bearer t" ||
		got.URL != "https://files.slack.com/a" || !strings.Contains(got.SignIn, "files:read") {
		t.Errorf("MediaRequest() = %+v", got)
	}
	got = a.MediaRequest(channel.Attachment{URL: "https://files.slack.com/a", ContentType: "text/html"}, channel.Credentials{})
	if got.SignIn != "" || got.Header != nil {
		t.Errorf("MediaRequest() of a page = %+v, want one that takes pages", got)
	}
}

// FuzzEvent: any body is at most refused, and the results can be stored and parsed again.
func FuzzEvent(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(channeltest.Load(f, file).Body, []byte(`{"ok":true,"user":{"profile":{"real_name":"Ana"}}}`))
	}
	a := chat.New(chat.Config{})
	f.Fuzz(func(t *testing.T, body, told []byte) {
		r := &channel.Request{Header: http.Header{}, Body: body, Received: channeltest.Received()}
		sign(r, "key", r.Received)
		if !a.Verify(r, "key") || a.Verify(r, "other") {
			t.Error("Verify() is wrong about the secret")
		}
		addresses, addressErr := a.Addresses(r)
		parts, err := a.Split(r)
		if addressErr != nil && err == nil {
			t.Errorf("Split() takes what Addresses() refuses: %v", addressErr)
		}
		texts := addresses
		for _, p := range parts {
			if p.Skip {
				continue
			}
			_, answers := enrich(a, r, p, func(*channel.APIRequest) channel.Response { return channel.Response{Status: 200, Body: told} })
			e, err := a.ParseEnriched(r, p, answers)
			if err != nil {
				t.Fatalf("ParseAnswered() error = %v for a part that is not skipped", err)
			}
			texts = append(texts, p.Key, p.Sender, p.Address, p.Kind)
			switch {
			case e.Message != nil:
				m := e.Message
				if m.ThreadKey == "" || m.ExternalID == "" || m.From.ID == "" {
					t.Errorf("a message without a thread, an id or an author: %+v", m)
				}
				texts = append(texts, m.ExternalID, m.ThreadKey, m.Text, m.From.ID, m.From.Name, m.From.Email)
				for _, at := range m.Attachments {
					texts = append(texts, at.Name, at.ContentType, at.URL)
				}
			case e.Annotation != nil:
				texts = append(texts, e.Annotation.ExternalID, e.Annotation.Text, e.Annotation.By.ID, e.Annotation.By.Name)
			case e.ConnectionEvent != nil:
				texts = append(texts, e.ConnectionEvent.Text)
			default:
				t.Errorf("Parse() = %+v, want a member", e)
			}
		}
		for _, s := range texts {
			if err := channeltest.Storable(s); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}
