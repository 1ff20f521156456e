package voice_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
)

func signHeader(r *channel.Request, secret string, _ time.Time) {
	r.Header.Set("X-Voice-Signature", voice.Sign(r.Body, secret))
}

func signToken(r *channel.Request, secret string, _ time.Time) {
	r.Body = voice.SignJWT(r.Body, secret)
}

func signQuoted(r *channel.Request, secret string, _ time.Time) {
	r.Body = []byte(`"` + string(voice.SignJWT(r.Body, secret)) + "\"\n")
}

// TestConformance: the events are the same in every signature form.
func TestConformance(t *testing.T) {
	for name, sign := range map[string]func(*channel.Request, string, time.Time){
		"plain": signHeader, "token": signToken, "quoted": signQuoted,
	} {
		t.Run(name, func(t *testing.T) {
			channeltest.Run(t, channeltest.Suite{Adapter: voice.New(voice.Config{}), Dir: "testdata", Sign: sign})
		})
	}
}

func post(body string) *channel.Request {
	return &channel.Request{
		Method: "POST", URL: "https://help.example/api/webhooks/voice", Header: http.Header{},
		Body: []byte(body), Received: channeltest.Received(),
	}
}

func TestVerifyHeader(t *testing.T) {
	const body = `{"call_id":"1","state":"ringing"}`
	good := voice.Sign([]byte(body), "key")
	raw, err := hex.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, signature string
		want            bool
	}{
		{"hex", good, true},
		{"hex with a prefix", "sha256=" + good, true},
		{"upper-case hex", strings.ToUpper(good), true},
		{"base64", base64.StdEncoding.EncodeToString(raw), true},
		{"base64 with a prefix", "sha256=" + base64.StdEncoding.EncodeToString(raw), true},
		{"base64 without padding", base64.RawStdEncoding.EncodeToString(raw), true},
		{"base64 for addresses", base64.URLEncoding.EncodeToString(raw), true},
		{"another digest", "sha1=" + good, false},
		{"a part of it", good[:62], false},
		{"twice", good + good, false},
		{"nothing but the prefix", "sha256=", false},
		{"of another body", voice.Sign([]byte(body+" "), "key"), false},
	} {
		r := post(body)
		r.Header.Set("X-Voice-Signature", tt.signature)
		if got := voice.New(voice.Config{}).Verify(r, "key"); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
	// A wrong header is not overridden by a valid body.
	r := post(string(voice.SignJWT([]byte(body), "key")))
	r.Header.Set("X-Voice-Signature", good)
	if voice.New(voice.Config{}).Verify(r, "key") {
		t.Error("a wrong header falls back to the token")
	}
}

// token returns an HS256 token with the given header and payload.
func token(header, payload string) string {
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	sum, _ := hex.DecodeString(voice.Sign([]byte(signed), "key"))
	return signed + "." + base64.RawURLEncoding.EncodeToString(sum)
}

func TestVerifyToken(t *testing.T) {
	const hs256 = `{"alg":"HS256","typ":"JWT"}`
	const event = `{"call_id":"1","state":"ringing"}`
	unsigned, _, _ := strings.Cut(token(hs256, event), ".")
	for _, tt := range []struct {
		name, body string
		want       bool
	}{
		{"as the provider makes it", token(hs256, event), true},
		{"no type", token(`{"alg":"HS256"}`, event), true},
		{"with line ends around it", "\r\n" + token(hs256, event) + "\n", true},
		{"in quotes", `"` + token(hs256, event) + `"`, true},
		{"half in quotes", `"` + token(hs256, event), false},
		{"no algorithm", token(`{"typ":"JWT"}`, event), false},
		{"algorithm none", token(`{"alg":"none"}`, event), false},
		{"algorithm none, without a signature", base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(event)) + ".", false},
		{"another algorithm", token(`{"alg":"HS512"}`, event), false},
		{"an algorithm with keys", token(`{"alg":"RS256"}`, event), false},
		{"another spelling", token(`{"alg":"hs256"}`, event), false},
		{"header is no object", token(`"HS256"`, event), false},
		{"padded", token(hs256, event) + "=", false},
		{"four parts", token(hs256, event) + ".x", false},
		{"two parts", unsigned + ".x", false},
		{"a line end inside", strings.Replace(token(hs256, event), ".", "\n.", 1), false},
		{"not expired", token(hs256, `{"exp":1795168801}`), true}, // expires a second after receipt
		{"expired, within what clocks differ", token(hs256, `{"exp":1795168501}`), true},
		{"expired", token(hs256, `{"exp":1795168500}`), false},            // expired five minutes before
		{"made a day ago", token(hs256, `{"iat":1795082400}`), true},      // retries are hours late
		{"made in the future", token(hs256, `{"iat":1795169101}`), false}, // issued five minutes and a second after receipt
		{"made just now by another clock", token(hs256, `{"iat":1795169100}`), true},
		{"not valid yet", token(hs256, `{"nbf":1795169200}`), false},
		{"fractions", token(hs256, `{"iat":1795168800.25,"exp":1795168801.5}`), true},
		{"no times", token(hs256, `{"iat":null,"exp":null}`), true},
		{"a time that is none", token(hs256, `{"exp":"tomorrow"}`), false},
	} {
		if got := voice.New(voice.Config{}).Verify(post(tt.body), "key"); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
	if got := channeltest.Received().Unix(); got != 1795168800 {
		t.Fatalf("the requests came at %d, which the times above do not fit", got)
	}
}

// TestKeyOfAnotherToken: a token that was signed again is the same event.
func TestKeyOfAnotherToken(t *testing.T) {
	key := func(payload string) string {
		parts, err := voice.New(voice.Config{}).Split(post(token(`{"alg":"HS256"}`, payload)))
		if err != nil || len(parts) != 1 {
			t.Fatalf("Split() = %v, %v", parts, err)
		}
		return parts[0].Key
	}
	first := key(`{"iat":1795168800,"exp":1795169800,"call_id":"1","state":"ringing"}`)
	if again := key(`{"state":"ringing","call_id":"1","iat":1795168900,"jti":"x"}`); again != first {
		t.Errorf("the key was %q, then %q", first, again)
	}
	if other := key(`{"state":"ringing","call_id":"1","duration":1}`); other == first {
		t.Error("another event has the same key")
	}
}

func TestNormalizeAddress(t *testing.T) {
	for _, tt := range []struct{ raw, want string }{
		{"+12085550100", "+12085550100"},
		{" +1 (208) 555-0100 ", "+12085550100"},
		{"11", "11"},
		{"5780678246121472", "5780678246121472"},
		{"blocked", ""},
		{" ", ""},
	} {
		got, err := voice.New(voice.Config{}).NormalizeAddress(tt.raw)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("FormAddress(%q) = %q, %v, want %q", tt.raw, got, err, tt.want)
		}
	}
}

func TestMediaRequest(t *testing.T) {
	a := voice.New(voice.Config{MediaHosts: []string{"proxy.example:8443"}})
	got := a.MediaRequest(channel.Attachment{URL: "https://dialpad.com/blob/1.mp3"}, channel.ConnectionCredentials(a.API(), map[string]string{"api_token": "t"}))
	want := channel.MediaRequest{
		URL: "https://dialpad.com/blob/1.mp3", Header: http.Header{"Authorization": {"Bearer t"}},
		Hosts: []string{"dialpad.com", ".dialpad.com", "storage.googleapis.com", "proxy.example:8443"}, HeaderHosts: []string{"dialpad.com", ".dialpad.com", "proxy.example:8443"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("MediaRequest() = %+v, want %+v", got, want)
	}
	if got := a.MediaRequest(channel.Attachment{}, channel.Credentials{}); got.Header != nil {
		t.Errorf("without a token the header is %v", got.Header)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		body := channeltest.Load(f, file).Body
		f.Add(body)
		f.Add(voice.SignJWT(body, "key"))
	}
	a := voice.New(voice.Config{})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := post(string(body))
		a.Verify(r, "key")
		a.Addresses(r)
		parts, err := a.Split(r)
		if err != nil {
			return
		}
		for _, p := range parts {
			if p.Skip {
				continue
			}
			if p.Key == "" {
				t.Errorf("a part has no key: %+v", p)
			}
			e, err := a.Parse(r, p)
			if err != nil {
				t.Errorf("Split() took what Parse() refuses: %v", err)
				continue
			}
			var texts []string
			switch {
			case e.Call != nil:
				texts = append(e.Call.IDs, e.Call.State, e.Call.Contact.Name, e.Call.Contact.Phone, e.Call.Transcription, e.Call.Target.Name)
			case e.Message != nil:
				texts = []string{e.Message.ExternalID, e.Message.ThreadKey, e.Message.Text, e.Message.From.Name}
				if e.Message.ThreadKey == "" {
					t.Error("a text without a thread")
				}
			case e.Receipt != nil:
				texts = append(e.Receipt.ExternalIDs, e.Receipt.Error)
			default:
				t.Errorf("Parse() = %+v", e)
			}
			for _, s := range texts {
				if err := channeltest.Storable(s); err != nil {
					t.Errorf("%v: %q", err, s)
				}
			}
		}
	})
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte(`{"call_id":"1"}`), "sha256=00")
	f.Add(voice.SignJWT([]byte(`{"call_id":"1"}`), "another key"), "")
	f.Fuzz(func(t *testing.T, body []byte, signature string) {
		r := post(string(body))
		r.Header.Set("X-Voice-Signature", signature)
		if voice.New(voice.Config{}).Verify(r, "a key that nobody signs with") {
			t.Errorf("Verify(%q, %q) = true", body, signature)
		}
	})
}
