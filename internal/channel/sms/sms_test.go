package sms_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
)

func sign(r *channel.Request, secret string, _ time.Time) {
	if r.Header.Get("Content-Type") == "application/json" {
		sum := sha256.Sum256(r.Body)
		r.URL += "&bodySHA256=" + hex.EncodeToString(sum[:])
		r.Header.Set("X-Sms-Signature", sms.Sign(r.URL, nil, secret))
		return
	}
	form, _ := url.ParseQuery(string(r.Body)) // a malformed body is signed as far as it parses
	r.Header.Set("X-Sms-Signature", sms.Sign(r.URL, form, secret))
}

func TestConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{Adapter: sms.New(sms.Config{}), Dir: "testdata", Sign: sign})
}

func post(u, body string) *channel.Request {
	return &channel.Request{
		Method: "POST",
		URL:    u,
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		Body:   []byte(body),
	}
}

// hmacSHA1 is the signature from the provider's documentation, implemented independently.
func hmacSHA1(text, secret string) string {
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestVerifyForms(t *testing.T) {
	const body = "To=%2B18005551212&CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309"
	const params = "CallSidCA1234567890ABCDECaller+14158675309Digits1234From+14158675309To+18005551212"
	const repeated = "b=2&a=x&b=1&b=2"
	for _, tt := range []struct {
		name, url, body, signature string
		want                       bool
	}{
		{"published example", "https://mycompany.com/myapp.php?foo=1&bar=2", body, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", true},
		{"another path", "https://mycompany.com/myapp.php?foo=1&bar=3", body, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", false},
		{"signed with the port, called without", "https://a.example/s", body, hmacSHA1("https://a.example:443/s"+params, "12345"), true},
		{"signed without the port, called with", "https://a.example:443/s", body, hmacSHA1("https://a.example/s"+params, "12345"), true},
		{"http has another default", "http://a.example/s", body, hmacSHA1("http://a.example:80/s"+params, "12345"), true},
		{"no port but the default", "https://a.example/s", body, hmacSHA1("https://a.example:8443/s"+params, "12345"), false},
		{"own port", "https://a.example:8443/s", body, hmacSHA1("https://a.example:8443/s"+params, "12345"), true},
		{"IPv6", "https://[::1]/s", body, hmacSHA1("https://[::1]:443/s"+params, "12345"), true},
		{"no path", "https://a.example", body, hmacSHA1("https://a.example:443"+params, "12345"), true},
		{"slash counts", "https://a.example/s", body, hmacSHA1("https://a.example/s/"+params, "12345"), false},
		{"escapes are kept", "https://a.example/%7Es", body, hmacSHA1("https://a.example/%7Es"+params, "12345"), true},
		{"repeated names, each value once", "https://a.example/s", repeated, hmacSHA1("https://a.example/saxb1b2", "12345"), true},
		{"repeated names, first value", "https://a.example/s", repeated, hmacSHA1("https://a.example/saxb2", "12345"), true},
		{"repeated names, all values", "https://a.example/s", repeated, hmacSHA1("https://a.example/saxb1b2b2", "12345"), false},
		{"spaces are kept", "https://a.example/s", "a=+x+&b=%20", hmacSHA1("https://a.example/sa x b ", "12345"), true},
		{"bytes are kept", "https://a.example/s", "a=%FF%00", hmacSHA1("https://a.example/sa\xff\x00", "12345"), true},
		{"not base64", "https://a.example/s", body, "????", false},
		{"too short", "https://a.example/s", body, "AAAA", false},
	} {
		r := post(tt.url, tt.body)
		r.Header.Set("X-Twilio-Signature", tt.signature)
		if got := sms.New(sms.Config{}).Verify(r, "12345"); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestVerifyNeutralHeaderFirst(t *testing.T) {
	r := post("https://a.example/s", "a=1")
	good := sms.Sign(r.URL, url.Values{"a": {"1"}}, "key")
	r.Header.Set("X-Twilio-Signature", good)
	if !sms.New(sms.Config{}).Verify(r, "key") {
		t.Error("the vendor's header alone is not taken")
	}
	r.Header.Set("X-Sms-Signature", "d3Jvbmc=")
	if sms.New(sms.Config{}).Verify(r, "key") {
		t.Error("a wrong neutral header falls back to the vendor's")
	}
}

func TestVerifyJSONNeedsDigest(t *testing.T) {
	r := post("https://a.example/s", `{"MessageSid":"SM1"}`)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Sms-Signature", sms.Sign(r.URL, nil, "key"))
	if sms.New(sms.Config{}).Verify(r, "key") {
		t.Error("a JSON body that nothing signs was accepted")
	}
	// A signature of a URL does not verify a form.
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if sms.New(sms.Config{}).Verify(r, "key") {
		t.Error("a form was accepted with the signature of its URL")
	}
}

func TestUnsupported(t *testing.T) {
	a := sms.New(sms.Config{})
	r := post("https://a.example/s", "MessageSid=SM1")
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	if _, err := a.Addresses(r); !errors.Is(err, channel.ErrContentType) {
		t.Errorf("Addresses() error = %v, want ErrContentType", err)
	}
	r = post("https://a.example/s", strings.Repeat("a=1&", 1001))
	if _, err := a.Addresses(r); err == nil {
		t.Error("a form of 1001 parameters was accepted")
	}
}

func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		outcome     channel.Outcome
		reply, want string
	}{
		{channel.Accepted, "", `<?xml version="1.0" encoding="UTF-8"?><Response></Response>`},
		{channel.Accepted, "Thanks <you> & yours", `<?xml version="1.0" encoding="UTF-8"?><Response><Message>Thanks &lt;you&gt; &amp; yours</Message></Response>`},
		{channel.Duplicate, "Thanks", `<?xml version="1.0" encoding="UTF-8"?><Response></Response>`},
		{channel.Ignored, "Thanks", `<?xml version="1.0" encoding="UTF-8"?><Response></Response>`},
	} {
		kind, body := sms.New(sms.Config{}).Acknowledgement(tt.outcome, tt.reply)
		if kind != "text/xml" || string(body) != tt.want {
			t.Errorf("Answer(%s, %q) = %s %s, want text/xml %s", tt.outcome, tt.reply, kind, body, tt.want)
		}
	}
}

func TestMediaRequest(t *testing.T) {
	a := sms.New(sms.Config{MediaHosts: []string{"proxy.example"}})
	at := channel.Attachment{URL: "https://api.twilio.com/ME1"}
	hosts := []string{"api.twilio.com", "mms.twiliocdn.com", "media.twiliocdn.com", "s3-external-1.amazonaws.com", "proxy.example"}
	for _, tt := range []struct {
		credentials map[string]string
		want        http.Header
	}{
		{nil, nil},
		{map[string]string{"account_sid": "AC1"}, nil},
		{map[string]string{"account_sid": "AC1", "auth_token": "t"}, http.Header{"Authorization": {"Basic QUMxOnQ="}}},
		{map[string]string{"account_sid": "AC1", "auth_token": "t", "api_key": "SK1", "api_secret": "s"}, http.Header{"Authorization": {"Basic U0sxOnM="}}},
	} {
		want := channel.MediaRequest{URL: "https://api.twilio.com/ME1", Header: tt.want, Hosts: hosts}
		if tt.want != nil {
			want.HeaderHosts = []string{"api.twilio.com", "proxy.example"}
		}
		if got := a.MediaRequest(at, channel.ConnectionCredentials(a.API(), tt.credentials)); !reflect.DeepEqual(got, want) {
			t.Errorf("MediaRequest(%v) = %+v, want %+v", tt.credentials, got, want)
		}
	}
}

// FuzzForm: any body is at most refused, and the results can be stored and parsed again.
func FuzzForm(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		r := channeltest.Load(f, file)
		f.Add(r.Header.Get("Content-Type"), r.Body)
	}
	a := sms.New(sms.Config{})
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		r := &channel.Request{Method: "POST", URL: "https://a.example/s?x=1", Header: http.Header{"Content-Type": {contentType}}, Body: body}
		sign(r, "key", time.Time{})
		form, err := url.ParseQuery(string(body))
		isForm := contentType == "application/x-www-form-urlencoded" && err == nil && strings.Count(string(body), "&") < 1000
		if a.Verify(r, "other") {
			t.Error("verified with another secret")
		}
		if isForm && !a.Verify(r, "key") {
			t.Errorf("a signed form was refused: %v", form)
		}
		addresses, err := a.Addresses(r)
		for _, s := range addresses {
			if err := channeltest.Storable(s); err != nil {
				t.Errorf("address %q: %v", s, err)
			}
		}
		parts, splitErr := a.Split(r)
		if err != nil && splitErr == nil {
			t.Errorf("Split() takes what Addresses() refuses: %v", err)
		}
		for _, p := range parts {
			if p.Skip {
				continue
			}
			e, err := a.Parse(r, p)
			if err != nil {
				if !errors.Is(err, channel.ErrUnreadable) {
					t.Errorf("Parse() error = %v, want ErrUnreadable", err)
				}
				continue
			}
			texts := []string{p.Key, p.Sender, p.Address}
			if m := e.Message; m != nil {
				if m.ThreadKey == "" {
					t.Error("a text without a thread")
				}
				texts = append(texts, m.ExternalID, m.ThreadKey, m.From.Name, m.From.Phone, m.From.ID, m.Text)
				for _, at := range m.Attachments {
					texts = append(texts, at.URL, at.ContentType)
				}
			} else {
				texts = append(texts, e.Receipt.Error, e.Receipt.Recipient)
				texts = append(texts, e.Receipt.ExternalIDs...)
			}
			for _, s := range texts {
				if err := channeltest.Storable(s); err != nil {
					t.Errorf("%q: %v", s, err)
				}
			}
		}
	})
}

// BenchmarkAccept measures the adapter's share of answering a request.
func BenchmarkAccept(b *testing.B) {
	r := channeltest.Load(b, "testdata/text.txtar")
	sign(r, "key", time.Time{})
	a := sms.New(sms.Config{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Addresses(r); err != nil {
			b.Fatal(err)
		}
		if !a.Verify(r, "key") {
			b.Fatal("not verified")
		}
		if _, err := a.Split(r); err != nil {
			b.Fatal(err)
		}
	}
}
