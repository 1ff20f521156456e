package email_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
)

func config() email.Config {
	return email.Config{TrustedAuthServers: []string{"mx.acme.example"}, OwnDomains: []string{"acme.example"}}
}

// signForm adds style A's signature fields to the form.
func signForm(r *channel.Request, token string, at time.Time, secret string) {
	timestamp, signature := email.SignForm(token, at, secret)
	addFields(r, "timestamp", timestamp, "token", token, "signature", signature)
}

// addFields adds fields to the form in r.
func addFields(r *channel.Request, pairs ...string) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		var b strings.Builder
		for i := 0; i < len(pairs); i += 2 {
			b.WriteString("&" + pairs[i] + "=" + url.QueryEscape(pairs[i+1]))
		}
		r.Body = append(bytes.Clone(r.Body), b.String()...)
		return
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "--xYzZY\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", pairs[i], pairs[i+1])
	}
	r.Body = append([]byte(b.String()), r.Body...)
}

func TestFormConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: email.NewForm(config()), Dir: "testdata/form", Timed: true, Window: 15 * time.Minute, BodyUnsigned: true,
		Sign: func(r *channel.Request, secret string, at time.Time) {
			signForm(r, strings.Repeat("4f0c", 12)+"ab", at, secret)
		},
	})
}

func TestParsedConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: email.NewParsed(config()), Dir: "testdata/parse", Timed: true, Key: publicOf,
		Sign: func(r *channel.Request, secret string, at time.Time) {
			signature, timestamp, err := email.SignParse(r.Body, at, privateOf(secret))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(email.ParseSignatureHeader, signature)
			r.Header.Set(email.ParseTimestampHeader, timestamp)
		},
	})
}

func TestJSONConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: email.NewJSON(config()), Dir: "testdata/json", BodyUnsigned: true,
		Sign: func(r *channel.Request, secret string, _ time.Time) {
			r.Header.Set(email.TokenHeader, email.SignJSON(secret))
		},
	})
}

// privateOf returns a key derived from secret.
func privateOf(secret string) *ecdsa.PrivateKey {
	sum := sha256.Sum256([]byte(secret))
	scalar := new(big.Int).SetBytes(sum[:])
	scalar.Mod(scalar, new(big.Int).Sub(elliptic.P256().Params().N, big.NewInt(1)))
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar.FillBytes(make([]byte, 32)))
	if err != nil {
		panic(err)
	}
	return key
}

func publicOf(secret string) string {
	der, err := x509.MarshalPKIXPublicKey(privateOf(secret).Public())
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func form(fields ...string) *channel.Request {
	r := request(http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, "recipient=support%40acme.example&from=ana%40client.example&body-plain=Hi")
	addFields(r, fields...)
	return r
}

func TestFormVerify(t *testing.T) {
	timestamp, signature := email.SignForm("token-1", channeltest.Received(), "key")
	other, _ := email.SignForm("token-1", channeltest.Received().Add(time.Second), "key")
	_, emptyToken := email.SignForm("", channeltest.Received(), "key")
	for _, tt := range []struct {
		name   string
		fields []string
		want   bool
	}{
		{"good", []string{"timestamp", timestamp, "token", "token-1", "signature", signature}, true},
		{"in capitals", []string{"timestamp", timestamp, "token", "token-1", "signature", strings.ToUpper(signature)}, true},
		{"in another order", []string{"signature", signature, "token", "token-1", "timestamp", timestamp}, true},
		{"no signature", []string{"timestamp", timestamp, "token", "token-1"}, false},
		{"no token", []string{"timestamp", timestamp, "signature", signature}, false},
		{"signed without a token", []string{"timestamp", timestamp, "token", "", "signature", emptyToken}, false},
		{"no timestamp", []string{"token", "token-1", "signature", signature}, false},
		{"another token", []string{"timestamp", timestamp, "token", "token-2", "signature", signature}, false},
		{"another time", []string{"timestamp", other, "token", "token-1", "signature", signature}, false},
		{"the border moved", []string{"timestamp", timestamp[:9], "token", timestamp[9:] + "token-1", "signature", signature}, false},
		{"cut short", []string{"timestamp", timestamp, "token", "token-1", "signature", signature[:62]}, false},
		{"not hex", []string{"timestamp", timestamp, "token", "token-1", "signature", strings.Repeat("x", 64)}, false},
		{"a time that is none", []string{"timestamp", "soon", "token", "token-1", "signature", signature}, false},
	} {
		if got := email.NewForm(config()).Verify(form(tt.fields...), "key"); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestFormToken(t *testing.T) {
	r := form()
	signForm(r, "token-1", channeltest.Received(), "key")
	token := email.NewForm(config()).ReplayToken(r)
	if want := (channel.ReplayToken{Value: "token-1", Until: channeltest.Received().Add(15 * time.Minute)}); token.Value != want.Value || !token.Until.Equal(want.Until) || token.Signed {
		t.Errorf("Token() = %+v, want %+v", token, want)
	}
}

// TestFormRepeated: a repeated mail with a new signature is one mail; without a Message-ID it
// is another, since only the token identifies it.
func TestFormRepeated(t *testing.T) {
	for _, tt := range []struct {
		name, headers string
		same          bool
	}{
		{"with a Message-ID", `[["Message-Id","<a@client.example>"]]`, true},
		{"without", `[["Subject","Lamp"]]`, false},
	} {
		var keys []string
		for i, token := range []string{"token-1", "token-2"} {
			r := form("message-headers", tt.headers)
			signForm(r, token, channeltest.Received().Add(time.Duration(i)*time.Minute), "key")
			parts, err := email.NewForm(config()).Split(r)
			if err != nil || len(parts) != 1 {
				t.Fatalf("Split() = %v, %v", parts, err)
			}
			keys = append(keys, parts[0].Key)
		}
		if (keys[0] == keys[1]) != tt.same {
			t.Errorf("%s: the keys are %q, want them the same: %t", tt.name, keys, tt.same)
		}
	}
}

func TestParsedVerify(t *testing.T) {
	body := []byte("--b\r\n\xff\x00 raw bytes\r\n--b--\r\n")
	key := privateOf("key")
	signature, timestamp, err := email.SignParse(body, channeltest.Received(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := base64.StdEncoding.DecodeString(publicOf("key"))
	if err != nil {
		t.Fatal(err)
	}
	armoured := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	wide, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wideDER, err := x509.MarshalPKIXPublicKey(wide.Public())
	if err != nil {
		t.Fatal(err)
	}
	wideSignature, _, err := email.SignParse(body, channeltest.Received(), wide)
	if err != nil {
		t.Fatal(err)
	}
	const vendorSignature, vendorTimestamp = "X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"
	neutral := http.Header{email.ParseSignatureHeader: {signature}, email.ParseTimestampHeader: {timestamp}}
	for _, tt := range []struct {
		name   string
		header http.Header
		secret string
		want   bool
	}{
		{"neutral names", neutral, publicOf("key"), true},
		{"the vendor's names", http.Header{vendorSignature: {signature}, vendorTimestamp: {timestamp}}, publicOf("key"), true},
		{"armoured key", neutral, armoured, true},
		{"armoured key on one line", neutral, strings.ReplaceAll(armoured, "\n", ""), true},
		{"key with white space", neutral, " " + publicOf("key")[:60] + "\n" + publicOf("key")[60:] + "\n", true},
		{"a wrong neutral signature beside the right one", http.Header{email.ParseSignatureHeader: {"AAAA"}, vendorSignature: {signature}, email.ParseTimestampHeader: {timestamp}}, publicOf("key"), false},
		{"another time", http.Header{email.ParseSignatureHeader: {signature}, email.ParseTimestampHeader: {timestamp[:9] + "1"}}, publicOf("key"), false},
		{"another curve", http.Header{email.ParseSignatureHeader: {wideSignature}, email.ParseTimestampHeader: {timestamp}}, base64.StdEncoding.EncodeToString(wideDER), false},
		{"a key that is none", neutral, "MFkw", false},
	} {
		if got := email.NewParsed(config()).Verify(request(tt.header, string(body)), tt.secret); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestParseKey signs with a generated key.
func TestParseKey(t *testing.T) {
	secret, err := email.NewParseKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := email.PrivateParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, timestamp, err := email.SignParse([]byte("mail"), channeltest.Received(), key)
	if err != nil {
		t.Fatal(err)
	}
	r := request(http.Header{email.ParseSignatureHeader: {signature}, email.ParseTimestampHeader: {timestamp}}, "mail")
	if !email.NewParsed(config()).Verify(r, secret) {
		t.Error("what was signed with the key was refused")
	}
	if _, err := email.PrivateParseKey(publicOf("key")); err == nil {
		t.Error("a public key was taken for a private one")
	}
}

// TestSecretForm: a secret that can verify nothing is rejected.
func TestSecretForm(t *testing.T) {
	private, err := email.NewParseKey()
	if err != nil {
		t.Fatal(err)
	}
	const key, whsec = "must be the provider's public key, of the curve P-256: base64 of its DER form, or PEM", "must have the provider's form: whsec_ and base64"
	for _, tt := range []struct {
		name    string
		adapter channel.SecretChecker
		secret  string
		want    string // empty if it is valid
	}{
		{"a public key", email.NewParsed(config()), publicOf("key"), ""},
		{"with line ends", email.NewParsed(config()), publicOf("key")[:40] + "\r\n" + publicOf("key")[40:] + "\n", ""},
		{"PEM", email.NewParsed(config()), "-----BEGIN PUBLIC KEY-----\n" + publicOf("key") + "\n-----END PUBLIC KEY-----\n", ""},
		{"a key pair", email.NewParsed(config()), private, ""},
		{"a word", email.NewParsed(config()), rand.Text(), key},
		{"half of a key", email.NewParsed(config()), publicOf("key")[:60], key},
		{"prefixed", email.NewDelivery(config()), "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", ""},
		{"our own", email.NewDelivery(config()), rand.Text(), ""},
		{"prefix alone", email.NewDelivery(config()), "whsec_", whsec},
		{"prefixed, no base64", email.NewDelivery(config()), "whsec_!!!!!!!!", whsec},
	} {
		got := ""
		if err := tt.adapter.CheckSecret(tt.secret); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestManyItems: unauthenticated clients post lists that would need far more memory than bytes.
// Recipients are read before verification.
func TestManyItems(t *testing.T) {
	const size = 2 << 20
	list := func(before, item, after string) string {
		return before + item + strings.Repeat(","+item, size/(len(item)+1)) + after
	}
	var members strings.Builder
	for i := range size / 12 {
		fmt.Fprintf(&members, `,"%07d":""`, i)
	}
	for _, tt := range []struct {
		name, kind, body string
		adapter          channel.Adapter
	}{
		{"members", "application/json", `{"TextBody":"x"` + members.String() + "}", email.NewJSON(config())},
		{"files", "application/json", list(`{"TextBody":"x","Attachments":[`, "{}", "]}"), email.NewJSON(config())},
		{"headers", "application/json", list(`{"TextBody":"x","Headers":[`, "{}", "]}"), email.NewJSON(config())},
		{"recipients", "application/json", list(`{"TextBody":"x","ToFull":[`, "{}", "]}"), email.NewJSON(config())},
		{"converter's headers", "application/json", `{"plain":"x","headers":{"a":""` + members.String() + "}}", email.NewRaw(config())},
		{"converter's values", "application/json", list(`{"plain":"x","headers":{"a":[`, `""`, "]}}"), email.NewRaw(config())},
		{"converter's files", "application/json", list(`{"plain":"x","headers":{"a":"b"},"attachments":[`, "{}", "]}"), email.NewRaw(config())},
		{"converter's recipients", "application/json", list(`{"raw":"x","recipients":[`, `""`, "]}"), email.NewRaw(config())},
		{"converter's envelope", "application/json", list(`{"raw":"x","envelope":{"to":[`, `""`, "]}}"), email.NewRaw(config())},
		{"form's pairs", "application/x-www-form-urlencoded", list("timestamp=1&token=1&signature=1&body-plain=x&message-headers=[", "[]", "]"), email.NewForm(config())},
		{"form's nested pairs", "application/x-www-form-urlencoded", list(`timestamp=1&token=1&signature=1&body-plain=x&message-headers=[["a",[`, "[]", "]]]"), email.NewForm(config())},
		{"form's ids", "application/x-www-form-urlencoded", `timestamp=1&token=1&signature=1&body-plain=x&content-id-map={"a":""` + members.String() + "}", email.NewForm(config())},
		{"charsets", "application/x-www-form-urlencoded", `envelope={}&text=x&charsets={"a":""` + members.String() + "}", email.NewParsed(config())},
		{"file names", "application/x-www-form-urlencoded", `envelope={}&text=x&attachment-info={"a":""` + members.String() + "}", email.NewParsed(config())},
		{"event's files", "application/json", list(`{"type":"email.received","data":{"attachments":[`, "{}", "]}}"), email.NewDelivery(config())},
		{"event's tags", "application/json", list(`{"type":"email.sent","data":{"email_id":"1","tags":[`, "{}", "]}}"), email.NewDelivery(config())},
	} {
		r := request(http.Header{"Content-Type": {tt.kind}}, tt.body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if a, ok := tt.adapter.(channel.Recognizer); ok && !a.Recognizes(r) {
			t.Errorf("%s: it is not recognized", tt.name)
		}
		if _, err := tt.adapter.Addresses(r); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		if limit := uint64(10 * len(tt.body)); allocated > limit {
			t.Errorf("%s: a body of %d bytes takes %d, want %d at most", tt.name, len(tt.body), allocated, limit)
		}
	}
}

func TestJSONVerify(t *testing.T) {
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	for _, tt := range []struct {
		name   string
		query  string
		header http.Header
		want   bool
	}{
		{"header", "", http.Header{email.TokenHeader: {"key"}}, true},
		{"query", "?style=json&token=key", nil, true},
		{"password", "", http.Header{"Authorization": {basic("hook:key")}}, true},
		{"user", "", http.Header{"Authorization": {basic("key:")}}, true},
		{"nothing", "", nil, false},
		{"empty", "?token=", http.Header{email.TokenHeader: {""}, "Authorization": {basic(":")}}, false},
		{"wrong header beside the right query", "?token=key", http.Header{email.TokenHeader: {"yek"}}, false},
		{"wrong query beside the right password", "?token=yek", http.Header{"Authorization": {basic("hook:key")}}, false},
		{"longer", "?token=keykey", nil, false},
		{"bearer", "", http.Header{"Authorization": {"Bearer key"}}, false},
	} {
		r := request(tt.header, "{}")
		r.URL += tt.query
		if r.Header == nil {
			r.Header = http.Header{}
		}
		if got := email.NewJSON(config()).Verify(r, "key"); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestStylesAreTold: each style recognizes only its own requests.
func TestStylesAreTold(t *testing.T) {
	styles := []struct {
		adapter channel.Adapter
		pattern string
		sign    func(*channel.Request)
	}{
		{email.NewForm(config()), "testdata/form/*.txtar", func(r *channel.Request) { signForm(r, "t", channeltest.Received(), "key") }},
		{email.NewParsed(config()), "testdata/parse/*.txtar", func(*channel.Request) {}},
		{email.NewJSON(config()), "testdata/json/*.txtar", func(*channel.Request) {}},
		{adapter(), "testdata/*.txtar", func(*channel.Request) {}},
	}
	for _, of := range styles {
		files, err := filepath.Glob(of.pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", of.pattern, len(files), err)
		}
		for _, file := range files {
			r := channeltest.Load(t, file)
			of.sign(r)
			for _, s := range styles {
				if got, want := s.adapter.(channel.Recognizer).Recognizes(r), s.adapter == of.adapter; got != want {
					t.Errorf("%s: %s recognises it: %t, want %t", file, s.adapter.Info().Name, got, want)
				}
			}
		}
	}
}

func TestStyleContentTypes(t *testing.T) {
	for _, a := range []channel.Adapter{email.NewForm(config()), email.NewParsed(config()), email.NewJSON(config())} {
		r := request(http.Header{"Content-Type": {"message/rfc822"}}, "From: ana@client.example\n\nHi")
		if _, err := a.Addresses(r); !errors.Is(err, channel.ErrContentType) {
			t.Errorf("%s: Addresses() error = %v, want ErrContentType", a.Info().Name, err)
		}
		if _, err := a.Split(r); !errors.Is(err, channel.ErrUnreadable) {
			t.Errorf("%s: Split() error = %v, want ErrUnreadable", a.Info().Name, err)
		}
	}
}
