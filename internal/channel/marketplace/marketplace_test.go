package marketplace_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
)

const (
	topic   = "arn:aws:sns:us-east-1:123456789012:orders"
	certURL = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0000000000000000000000.pem"
)

// keys are the service's, a stranger's, and one that is too small.
var keys = sync.OnceValue(func() (k struct{ theirs, stranger, small *rsa.PrivateKey }) {
	for _, m := range []struct {
		key  **rsa.PrivateKey
		bits int
	}{{&k.theirs, 2048}, {&k.stranger, 2048}, {&k.small, 1024}} {
		key, err := rsa.GenerateKey(rand.Reader, m.bits)
		if err != nil {
			panic(err)
		}
		*m.key = key
	}
	return k
})

// certificate returns a self-signed certificate, valid around the fixtures' time.
func certificate(t testing.TB, key *rsa.PrivateKey, from, to time.Time) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func valid(t testing.TB, key *rsa.PrivateKey) *x509.Certificate {
	return certificate(t, key, channeltest.Received().AddDate(0, 0, -1), channeltest.Received().AddDate(0, 0, 1))
}

// shelf has certificates by URL, of any form.
type shelf map[string]*x509.Certificate

func (s shelf) Fetch(context.Context, string) error { return nil }
func (s shelf) Check(context.Context, string) error { return nil }

func (s shelf) At(address string) *x509.Certificate { return s[address] }

// everywhere has one certificate for all URLs.
type everywhere struct{ *x509.Certificate }

func (everywhere) Fetch(context.Context, string) error { return nil }
func (everywhere) Check(context.Context, string) error { return nil }

func (e everywhere) At(string) *x509.Certificate { return e.Certificate }

// signer signs as the service if the secret is right, else as a stranger.
func signer(right string) func(*channel.Request, string, time.Time) {
	return func(r *channel.Request, secret string, _ time.Time) {
		key := keys().stranger
		if secret == right {
			key = keys().theirs
		}
		address := certURL
		var e struct{ SigningCertURL string }
		if json.Unmarshal(r.Body, &e) == nil && e.SigningCertURL != "" {
			address = e.SigningCertURL
		}
		r.Body = marketplace.Sign(r.Body, key, address)
	}
}

const ownSecret = "secret of this connection" // as the suite calls it

func TestConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: marketplace.New(everywhere{valid(t, keys().theirs)}), Dir: "testdata", Sign: signer(ownSecret), Timed: true, Window: time.Hour,
		Key: func(secret string) string {
			if secret == ownSecret {
				return marketplace.AnyTopic
			}
			return "arn:aws:sns:us-east-1:123456789012:another"
		},
	})
}

func load(t testing.TB, name string) *channel.Request {
	t.Helper()
	return channeltest.Load(t, filepath.Join("testdata", name+".txtar"))
}

// edit changes members of a message; nil removes one.
func edit(t testing.TB, body []byte, change map[string]any) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	for name, v := range change {
		if m[name] = v; v == nil {
			delete(m, name)
		}
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCanonical compares the signed text with the service's documentation.
func TestCanonical(t *testing.T) {
	k := keys().theirs
	a := marketplace.New(everywhere{valid(t, k)})
	for _, tt := range []struct {
		name, body, text string
	}{
		{"a notification",
			`{"Type":"Notification","MessageId":"m1","TopicArn":"` + topic + `","Subject":"My \"Subject\"","Message":"line\nüber\u0000","Timestamp":"2026-11-20T10:00:00.000Z"}`,
			"Message\nline\nüber\x00\nMessageId\nm1\nSubject\nMy \"Subject\"\nTimestamp\n2026-11-20T10:00:00.000Z\nTopicArn\n" + topic + "\nType\nNotification\n"},
		{"without a subject",
			`{"Type":"Notification","MessageId":"m1","TopicArn":"` + topic + `","Subject":null,"Message":"x","Timestamp":"2026-11-20T10:00:00.000Z","Token":"not signed"}`,
			"Message\nx\nMessageId\nm1\nTimestamp\n2026-11-20T10:00:00.000Z\nTopicArn\n" + topic + "\nType\nNotification\n"},
		{"with an empty subject",
			`{"Type":"Notification","MessageId":"m1","TopicArn":"` + topic + `","Subject":"","Message":"x","Timestamp":"2026-11-20T10:00:00.000Z"}`,
			"Message\nx\nMessageId\nm1\nSubject\n\nTimestamp\n2026-11-20T10:00:00.000Z\nTopicArn\n" + topic + "\nType\nNotification\n"},
		{"a confirmation",
			`{"Type":"SubscriptionConfirmation","MessageId":"m1","Token":"t","TopicArn":"` + topic + `","Message":"x","SubscribeURL":"https://s","Subject":"not signed","Timestamp":"2026-11-20T10:00:00.000Z"}`,
			"Message\nx\nMessageId\nm1\nSubscribeURL\nhttps://s\nTimestamp\n2026-11-20T10:00:00.000Z\nToken\nt\nTopicArn\n" + topic + "\nType\nSubscriptionConfirmation\n"},
	} {
		for _, version := range []string{"1", "2"} {
			body := edit(t, []byte(tt.body), map[string]any{
				"SignatureVersion": version, "SigningCertURL": certURL, "Signature": signText(t, k, version, tt.text),
			})
			r := &channel.Request{Header: http.Header{}, Body: body, Received: channeltest.Received()}
			if !a.Verify(r, topic) {
				t.Errorf("%s, version %s: not verified", tt.name, version)
			}
			if signed := marketplace.Sign(edit(t, body, map[string]any{"Signature": ""}), k, certURL); !bytes.Equal(signed, body) {
				t.Errorf("%s, version %s: Sign() = %s, want %s", tt.name, version, signed, body)
			}
		}
	}
}

// TestVerify alters a valid message in every way that must fail, signed again where a stranger
// could.
func TestVerify(t *testing.T) {
	k := keys()
	cert := valid(t, k.theirs)
	at := channeltest.Received()
	good := marketplace.Sign(load(t, "cancel").Body, k.theirs, certURL)
	again := func(change map[string]any) []byte {
		body := edit(t, good, change)
		address, _ := change["SigningCertURL"].(string)
		if address == "" {
			address = certURL
		}
		return marketplace.Sign(body, k.theirs, address)
	}
	for _, tt := range []struct {
		name string
		body []byte
		want bool
	}{
		{"as it came", good, true},
		{"signed anew", again(map[string]any{"Message": "{}"}), true},
		{"a member that nobody signs", edit(t, good, map[string]any{"UnsubscribeURL": "https://x", "Extra": 1}), true},
		{"another message", edit(t, good, map[string]any{"Message": "{}"}), false},
		{"another topic", edit(t, good, map[string]any{"TopicArn": topic + "2"}), false},
		{"another subject", edit(t, good, map[string]any{"Subject": "x"}), false},
		{"no subject", edit(t, good, map[string]any{"Subject": nil}), false},
		{"another id", edit(t, good, map[string]any{"MessageId": "x"}), false},
		{"no id", again(map[string]any{"MessageId": nil}), false},
		{"another version", edit(t, good, map[string]any{"SignatureVersion": "2"}), false},
		{"version 3", again(map[string]any{"SignatureVersion": "3"}), false},
		{"a version that is a number", edit(t, good, map[string]any{"SignatureVersion": 1}), false},
		{"another type", again(map[string]any{"Type": "Other"}), false},
		{"an hour old", again(map[string]any{"Timestamp": "2026-11-20T09:00:00.000Z"}), true},
		{"older", again(map[string]any{"Timestamp": "2026-11-20T08:59:59.000Z"}), false},
		{"from the future", again(map[string]any{"Timestamp": "2026-11-20T11:00:01.000Z"}), false},
		{"no time", again(map[string]any{"Timestamp": nil}), false},
		{"no signature", edit(t, good, map[string]any{"Signature": ""}), false},
		{"half a signature", edit(t, good, map[string]any{"Signature": "AAAA"}), false},
		{"signed by a stranger", marketplace.Sign(good, k.stranger, certURL), false},
		{"no topic", again(map[string]any{"TopicArn": nil}), false},
		{"no topic's name", again(map[string]any{"TopicArn": "orders"}), false},
		{"a topic of another service", again(map[string]any{"TopicArn": "arn:aws:sqs:us-east-1:123456789012:orders"}), false},
		{"another region than the certificate's", again(map[string]any{"TopicArn": "arn:aws:sns:eu-west-1:123456789012:orders"}), false},
		{"a message that is no text", again(map[string]any{"Message": map[string]any{}}), false},
		{"two objects", append(bytes.Clone(good), good...), false},
	} {
		r := &channel.Request{Header: http.Header{}, Body: tt.body, Received: at}
		if got := marketplace.New(shelf{certURL: cert}).Verify(r, marketplace.AnyTopic); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name string
		cert *x509.Certificate
		want bool
	}{
		{"in date", cert, true},
		{"none at hand", nil, false},
		{"not valid yet", certificate(t, k.theirs, at.Add(time.Second), at.AddDate(0, 0, 1)), false},
		{"not valid any more", certificate(t, k.theirs, at.AddDate(0, 0, -1), at.Add(-time.Second)), false},
	} {
		r := &channel.Request{Header: http.Header{}, Body: good, Received: at}
		if got := marketplace.New(shelf{certURL: tt.cert}).Verify(r, topic); got != tt.want {
			t.Errorf("certificate %s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
	r := &channel.Request{Header: http.Header{}, Body: marketplace.Sign(good, k.small, certURL), Received: at}
	if marketplace.New(shelf{certURL: valid(t, k.small)}).Verify(r, topic) {
		t.Error("a key of 1024 bits is believed")
	}
	r = &channel.Request{Header: http.Header{"X-Amz-Sns-Rawdelivery": {"true"}}, Body: good, Received: at}
	if marketplace.New(shelf{certURL: cert}).Verify(r, topic) {
		t.Error("raw delivery is taken")
	}
}

// lookalikes are certificate URLs outside the notification service in us-east-1 that some
// parsers would accept.
var lookalikes = []string{
	"https://sns.s3-us-west-2.amazonaws.com/SimpleNotificationService-1.pem", // anyone's storage
	"https://sns.s3.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.s3.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns-us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://evil.sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com.evil.example/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com.cn.evil.example/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.evilamazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.co/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.org/SimpleNotificationService-1.pem",
	"https://snsXus-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1Xamazonaws.com/SimpleNotificationService-1.pem",
	"https://s3.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://amazonaws.com/SimpleNotificationService-1.pem",
	// Another region, or none.
	"https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-2.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-gov-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns..amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1-1.amazonaws.com/SimpleNotificationService-1.pem",
	// Another scheme or port, or user information.
	"http://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"ftp://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"//sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https:sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https:///sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https:\\\\sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"HTTPS://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com:8443/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com:80/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com:/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com:0443/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com:443@evil.example/SimpleNotificationService-1.pem",
	"https://user@sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://user:password@sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com@evil.example/SimpleNotificationService-1.pem",
	"https://evil.example#@sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://evil.example\\@sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://evil.example?@sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	// IP addresses in place of the name.
	"https://127.0.0.1/SimpleNotificationService-1.pem",
	"https://2130706433/SimpleNotificationService-1.pem",
	"https://0177.0.0.1/SimpleNotificationService-1.pem",
	"https://0x7f.1/SimpleNotificationService-1.pem",
	"https://[::1]/SimpleNotificationService-1.pem",
	"https://[::ffff:169.254.169.254]/SimpleNotificationService-1.pem",
	"https://169.254.169.254/SimpleNotificationService-1.pem",
	"https://localhost/SimpleNotificationService-1.pem",
	// Other spellings of the name.
	"https://sns.us-east-1.amazonaws.com./SimpleNotificationService-1.pem",
	"https://SNS.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws。com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.аmazonaws.com/SimpleNotificationService-1.pem", // a Cyrillic letter
	"https://sns.us-east-１.amazonaws.com/SimpleNotificationService-1.pem",
	"https://ſns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com%2eevil.example/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com%00.evil.example/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com\x00.evil.example/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com\n/SimpleNotificationService-1.pem",
	" https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
	// Other paths.
	"https://sns.us-east-1.amazonaws.com/",
	"https://sns.us-east-1.amazonaws.com/other.pem",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem.txt",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-.pem",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-a_b.pem",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.PEM",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem\n",
	"https://sns.us-east-1.amazonaws.com//SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com/x/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com/x/../SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com/../SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com/%53impleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem?x=1",
	"https://sns.us-east-1.amazonaws.com/?Action=GetFile&x=/SimpleNotificationService-1.pem",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem#x",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem;x",
	"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-" + strings.Repeat("1", 300) + ".pem",
	"",
}

// TestCertificateAddress verifies a message signed with the right key and a certificate at the
// wrong URL.
func TestCertificateAddress(t *testing.T) {
	k := keys().theirs
	a := marketplace.New(everywhere{valid(t, k)})
	body := load(t, "cancel").Body
	for _, address := range lookalikes {
		r := &channel.Request{Header: http.Header{}, Body: marketplace.Sign(body, k, address), Received: channeltest.Received()}
		if a.Verify(r, topic) {
			t.Errorf("%q is believed", address)
		}
		asked := new(asked)
		if err := marketplace.New(asked).Prepare(t.Context(), r); err != nil || len(*asked) > 0 {
			t.Errorf("%q is asked for: %v, %v", address, *asked, err)
		}
	}
	for _, tt := range []struct{ region, address string }{
		{"us-east-1", certURL},
		{"us-east-1", "https://sns.us-east-1.amazonaws.com/SimpleNotificationService.pem"},
		{"us-east-1", "https://sns.us-east-1.amazonaws.com:443/SimpleNotificationService-1aB.pem"},
		{"us-gov-west-1", "https://sns.us-gov-west-1.amazonaws.com/SimpleNotificationService-1.pem"},
		{"cn-north-1", "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-1.pem"},
		{"ap-southeast-12", "https://sns.ap-southeast-12.amazonaws.com/SimpleNotificationService-1.pem"},
	} {
		arn := "arn:aws:sns:" + tt.region + ":123456789012:orders"
		r := &channel.Request{
			Header: http.Header{}, Received: channeltest.Received(),
			Body: marketplace.Sign(edit(t, body, map[string]any{"TopicArn": arn}), k, tt.address),
		}
		if !a.Verify(r, arn) {
			t.Errorf("%q is not believed for %s", tt.address, arn)
		}
		asked := new(asked)
		if err := marketplace.New(asked).Prepare(t.Context(), r); err != nil || !slices.Equal(*asked, []string{tt.address}) {
			t.Errorf("%q: asked for %v, %v", tt.address, *asked, err)
		}
	}
}

// asked is a store that records requested URLs.
type asked []string

func (a *asked) Check(context.Context, string) error { return nil }

func (a *asked) Fetch(_ context.Context, address string) error {
	*a = append(*a, address)
	return nil
}

func (*asked) At(string) *x509.Certificate { return nil }

// TestPrepareLittle: nothing is fetched for a message that cannot be valid.
func TestPrepareLittle(t *testing.T) {
	good := marketplace.Sign(load(t, "cancel").Body, keys().stranger, certURL)
	for _, tt := range []struct {
		name   string
		change map[string]any
	}{
		{"too old", map[string]any{"Timestamp": "2026-11-20T08:00:00Z"}},
		{"no signature", map[string]any{"Signature": nil}},
		{"no version", map[string]any{"SignatureVersion": nil}},
		{"no type", map[string]any{"Type": nil}},
	} {
		asked := new(asked)
		r := &channel.Request{Header: http.Header{}, Body: edit(t, good, tt.change), Received: channeltest.Received()}
		if err := marketplace.New(asked).Prepare(t.Context(), r); err != nil || len(*asked) > 0 {
			t.Errorf("%s: asked for %v, %v", tt.name, *asked, err)
		}
	}
}

// TestSubscribeAddress: only genuine confirmation URLs are confirmed.
func TestSubscribeAddress(t *testing.T) {
	const good = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + topic + "&Token=1"
	a := marketplace.New(shelf{})
	body := load(t, "subscription").Body
	for _, tt := range []struct {
		address string
		want    bool
	}{
		{good, true},
		{"https://sns.us-east-1.amazonaws.com:443/?Token=1&TopicArn=arn%3Aaws%3Asns%3Aus-east-1%3A123456789012%3Aorders&Action=ConfirmSubscription", true},
		{strings.Replace(good, "https", "http", 1), false},
		{strings.Replace(good, "us-east-1.amazonaws", "eu-west-1.amazonaws", 1), false},
		{strings.Replace(good, "sns.us-east-1", "sns.s3-us-west-2", 1), false},
		{strings.Replace(good, "amazonaws.com", "amazonaws.com.evil.example", 1), false},
		{strings.Replace(good, "https://", "https://evil.example@", 1), false},
		{strings.Replace(good, "amazonaws.com/", "amazonaws.com@evil.example/", 1), false},
		{strings.Replace(good, ".com/", ".com:8443/", 1), false},
		{strings.Replace(good, ".com/", ".com/x", 1), false},
		{strings.Replace(good, "ConfirmSubscription", "DeleteTopic", 1), false},
		{good + "&Action=DeleteTopic", false},
		{good + "&TopicArn=" + topic + "2", false},
		{good + "2", true}, // of the token
		{strings.Replace(good, ":orders", ":other", 1), false},
		{strings.Replace(good, "Action=", "action=", 1), false},
		{good + "\n", false},
		{good + "&x=%zz", false},
		{"", false},
	} {
		r := load(t, "subscription")
		r.Body = edit(t, body, map[string]any{"SubscribeURL": tt.address})
		e, err := a.Parse(r, channel.Part{})
		if (err == nil) != tt.want || err != nil && !errors.Is(err, channel.ErrUnreadable) {
			t.Errorf("%q: Parse() = %+v, %v, want a visit: %t", tt.address, e, err, tt.want)
		}
		if err == nil && (e.URLConfirmation == nil || e.URLConfirmation.URL != tt.address || !slices.Equal(e.URLConfirmation.Hosts, []string{"sns.us-east-1.amazonaws.com"})) {
			t.Errorf("%q: Parse() = %+v, want a visit there", tt.address, e.URLConfirmation)
		}
	}
}

func TestNormalizeAddress(t *testing.T) {
	for _, tt := range []struct {
		raw string
		ok  bool
	}{
		{topic, true},
		{" " + topic + "\n", true},
		{"arn:aws-cn:sns:cn-north-1:123456789012:a_b-C.fifo", true},
		{"arn:aws:sns:us-east-1:123456789012:orders:6b0e71bd-7e97-4d97-80ce-4a0994e55286", false}, // a subscription
		{"arn:aws:sqs:us-east-1:123456789012:orders", false},
		{"arn:aws:sns:us-east-1:12345:orders", false},
		{"orders", false},
	} {
		if _, err := marketplace.New(nil).NormalizeAddress(tt.raw); (err == nil) != tt.ok {
			t.Errorf("FormAddress(%q) error = %v, want ok: %t", tt.raw, err, tt.ok)
		}
	}
}

// far is the service from the view of the certificate store.
type far struct {
	mu     sync.Mutex
	asked  []string
	answer func(*http.Request) (*http.Response, error)
}

func (f *far) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.String())
	answer := f.answer
	f.mu.Unlock()
	return answer(r)
}

func (f *far) answers(status int, body []byte, header ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: h, Body: io.NopCloser(bytes.NewReader(body))}, nil
	}
}

func (f *far) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// TestFetch fetches each certificate once; a missing or unavailable one is none.
func TestFetch(t *testing.T) {
	cert := valid(t, keys().theirs)
	text := encode(cert)
	for _, tt := range []struct {
		name   string
		status int
		body   []byte
		header []string
		have   bool
		fails  bool
	}{
		{name: "a certificate", status: 200, body: text, have: true},
		{name: "with more behind it", status: 200, body: append(bytes.Clone(text), text...), have: true},
		{name: "no certificate", status: 200, body: []byte("<html>")},
		{name: "a broken one", status: 200, body: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw[:100]})},
		{name: "a key", status: 200, body: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: cert.RawSubjectPublicKeyInfo})},
		{name: "64 KB", status: 200, body: append(bytes.Clone(text), make([]byte, 64<<10-len(text))...), have: true},
		{name: "more than 64 KB", status: 200, body: append(bytes.Clone(text), make([]byte, 64<<10-len(text)+1)...)},
		{name: "nothing there", status: 404},
		{name: "not for us", status: 403, body: text},
		{name: "elsewhere", status: 302, body: text, header: []string{"Location", "https://evil.example/x.pem"}},
		{name: "elsewhere for good", status: 308, body: text, header: []string{"Location", certURL + "2"}},
		{name: "trouble", status: 500, body: text, fails: true},
		{name: "too often", status: 429, fails: true},
	} {
		f := new(far)
		f.answers(tt.status, tt.body, tt.header...)
		c := marketplace.OpenCertificates(f, nil)
		for range 3 {
			if err := c.Fetch(t.Context(), certURL); (err != nil) != tt.fails {
				t.Errorf("%s: Fetch() = %v, want an error: %t", tt.name, err, tt.fails)
			}
		}
		if got := c.At(certURL); (got != nil) != tt.have || tt.have && !got.Equal(cert) {
			t.Errorf("%s: At() = %v, want one: %t", tt.name, got, tt.have)
		}
		want := 1
		if tt.fails {
			want = 3
		}
		if got := f.times(); got != want {
			t.Errorf("%s: fetched %d times, want %d", tt.name, got, want)
		}
		if slices.ContainsFunc(f.asked, func(s string) bool { return s != certURL }) {
			t.Errorf("%s: asked for %q", tt.name, f.asked)
		}
	}
}

func TestFetchMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		f.answers(404, nil)
		c := marketplace.OpenCertificates(f, nil)
		c.Fetch(t.Context(), certURL)
		f.answers(200, encode(valid(t, keys().theirs)))
		c.Fetch(t.Context(), certURL)
		if c.At(certURL) != nil || f.times() != 1 {
			t.Errorf("what was missing is asked for again at once")
		}
		time.Sleep(time.Minute + time.Second)
		c.Fetch(t.Context(), certURL)
		if c.At(certURL) == nil || f.times() != 2 {
			t.Errorf("what was missing is not asked for again")
		}
	})
}

// TestFetchSlow: with an unresponsive service nobody waits longer than five seconds, concurrent
// callers share a download, and the number of downloads is bounded.
func TestFetchSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		c := marketplace.OpenCertificates(f, nil)
		began := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := c.Fetch(t.Context(), certURL); err == nil {
					t.Error("Fetch() = nil, want an error")
				}
			})
		}
		// A cancelled caller does not affect other callers.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wg.Go(func() { c.Fetch(ctx, certURL) })
		wg.Wait()
		if took := time.Since(began); took != 5*time.Second || f.times() != 1 {
			t.Errorf("it took %s and %d requests, want 5s and 1", took, f.times())
		}
		for i := range 20 {
			wg.Go(func() {
				c.Fetch(t.Context(), fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%d.pem", i))
			})
		}
		wg.Wait()
		if n := f.times(); n != 1+8 {
			t.Errorf("%d requests, want 8 more at once", n-1)
		}
	})
}

// TestManyMissing: missing certificates neither evict valid ones nor fill the memory.
func TestManyMissing(t *testing.T) {
	f := new(far)
	f.answers(200, encode(valid(t, keys().theirs)))
	c := marketplace.OpenCertificates(f, nil)
	c.Fetch(t.Context(), certURL)
	f.answers(404, nil)
	for i := range 1000 {
		c.Fetch(t.Context(), fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%d.pem", i))
	}
	if c.At(certURL) == nil {
		t.Error("the certificate was forgotten")
	}
}

// TestTestKey: a test key is trusted only where configured, and for nothing else.
func TestTestKey(t *testing.T) {
	text, err := marketplace.NewTestKey()
	if err != nil {
		t.Fatal(err)
	}
	k, err := marketplace.ParseTestKey(text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	another, err := marketplace.NewTestKey()
	if err != nil {
		t.Fatal(err)
	}
	other, err := marketplace.ParseTestKey(another)
	if err != nil {
		t.Fatal(err)
	}
	f := new(far)
	f.answers(404, nil)
	r := load(t, "cancel")
	unsigned := r.Body
	r.Body = k.Sign(unsigned)
	for _, tt := range []struct {
		name string
		test *marketplace.TestKey
		want bool
	}{{"believed", k, true}, {"none", nil, false}, {"another", other, false}} {
		a := marketplace.New(marketplace.OpenCertificates(f, tt.test))
		if err := a.Prepare(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := a.Verify(r, topic); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
	r.Body = edit(t, r.Body, map[string]any{"SigningCertURL": certURL})
	if marketplace.New(marketplace.OpenCertificates(f, k)).Verify(r, topic) {
		t.Error("the test key is taken for one of the service's own")
	}
	for _, text := range []string{"", "x", "AAAA", text[:100], text[4:]} {
		if _, err := marketplace.ParseTestKey(text); err == nil || strings.Contains(err.Error(), text) && text != "" && text != "x" {
			t.Errorf("ParseTestKey(%.10q…) error = %v, want one that does not repeat it", text, err)
		}
	}
}

// FuzzMessage: any body is at most refused, and the results can be stored and parsed again.
func FuzzMessage(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		r := channeltest.Load(f, file)
		var e struct{ Message, SubscribeURL string }
		if err := json.Unmarshal(r.Body, &e); err != nil {
			f.Fatal(err)
		}
		f.Add(r.Body, e.Message, e.SubscribeURL)
	}
	// Without certificates, because generating keys dominates the time.
	a := marketplace.New(shelf{})
	f.Fuzz(func(t *testing.T, body []byte, message, subscribeURL string) {
		text := func(s string) string { b, _ := json.Marshal(s); return string(b) }
		wrapped := `{"Type":"Notification","MessageId":"m","TopicArn":"` + topic + `","Timestamp":"2026-11-20T10:00:00Z","Message":` + text(message) + `}`
		confirm := `{"Type":"SubscriptionConfirmation","MessageId":"m","TopicArn":"` + topic + `","Timestamp":"2026-11-20T10:00:00Z","SubscribeURL":` + text(subscribeURL) + `}`
		for _, body := range [][]byte{body, []byte(wrapped), []byte(confirm)} {
			r := &channel.Request{Header: http.Header{}, Body: body, Received: channeltest.Received()}
			if a.Verify(r, topic) {
				t.Errorf("verified without a certificate: %s", body)
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
				texts = append(texts, p.Key, p.Sender, p.Address, p.Kind)
				e, err := a.Parse(r, p)
				switch {
				case err != nil:
					if !errors.Is(err, channel.ErrUnreadable) {
						t.Errorf("Parse() error = %v, want ErrUnreadable", err)
					}
				case e.URLConfirmation != nil:
					u, err := http.NewRequest(http.MethodGet, e.URLConfirmation.URL, nil)
					if err != nil || u.URL.Hostname() != "sns.us-east-1.amazonaws.com" || u.URL.Scheme != "https" {
						t.Errorf("a visit of %q: %v", e.URLConfirmation.URL, err)
					}
				case e.ConnectionEvent != nil:
					texts = append(texts, e.ConnectionEvent.Text)
				case e.Record != nil:
					rec := e.Record
					if rec.ExternalID == "" || rec.Order == nil || rec.Order.ExternalID == "" {
						t.Errorf("a record of no order: %+v", rec)
					}
					texts = append(texts, rec.ExternalID, rec.Customer.ID, rec.Customer.Name, rec.Order.ExternalID, rec.Order.Status)
					for _, i := range rec.Order.Items {
						texts = append(texts, i.ExternalID, i.Name, i.SKU)
					}
					for _, r := range rec.Order.Returns {
						texts = append(texts, r.ExternalID, r.Status, r.Reason)
					}
					if m := rec.Message; m != nil {
						texts = append(texts, m.ExternalID, m.ThreadKey, m.Subject, m.Text)
					}
				default:
					t.Errorf("Parse() = %+v, want a member", e)
				}
			}
			for _, s := range texts {
				if err := channeltest.Storable(s); err != nil {
					t.Errorf("%q: %v", s, err)
				}
			}
		}
	})
}

// TestReadChallenge: only a message published on a topic proves it, not the service's own
// messages to subscribers.
func TestReadChallenge(t *testing.T) {
	a := marketplace.New(everywhere{valid(t, keys().theirs)})
	token := channel.ProofTokenPrefix + strings.Repeat("a", 26)
	for kind, want := range map[string]string{"Notification": token, "SubscriptionConfirmation": "", "UnsubscribeConfirmation": "", "": ""} {
		body, err := json.Marshal(map[string]string{"Type": kind, "TopicArn": "arn:aws:sns:us-east-1:123456789012:ours", "Message": "Prove " + token + "."})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.ReadChallenge(&channel.Request{Body: body}, channel.Part{}); got != want {
			t.Errorf("%q: got %q, want %q", kind, got, want)
		}
	}
}
