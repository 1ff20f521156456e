package payments_test

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
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
)

func TestConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: payments.New(), Dir: "testdata", Timed: true,
		Sign: func(r *channel.Request, secret string, at time.Time) {
			r.Header.Set(payments.SignatureHeader, payments.Sign(r.Body, at, secret))
		},
	})
}

// sum is the signature from the provider's documentation, implemented independently.
func sum(text, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func TestVerify(t *testing.T) {
	const body, secret = `{"id":"evt_1"}`, "whsec_c2VjcmV0"
	received := time.Unix(1795168800, 900_000_000)
	good := sum("1795168800."+body, secret)
	for _, tt := range []struct {
		name, header string
		want         bool
	}{
		{"as documented", "t=1795168800,v1=" + good, true},
		{"hex in capitals", "t=1795168800,v1=" + strings.ToUpper(good), true},
		{"while a secret is rolled", "t=1795168800,v1=" + sum("1795168800."+body, "old") + ",v1=" + good, true},
		{"the other order", "t=1795168800,v1=" + good + ",v1=" + sum("1795168800."+body, "old"), true},
		{"unknown schemes are passed over", "t=1795168800,v0=00,v2=zz,,v1=" + good + ",v0=" + good, true},
		{"the time at the end", "v1=" + good + ",t=1795168800", true},
		{"spaces after commas", "t=1795168800, v1=" + good, true},
		{"only the test scheme", "t=1795168800,v0=" + good, false},
		{"no time", "v1=" + good, false},
		{"no signature", "t=1795168800", false},
		{"another time than signed", "t=1795168801,v1=" + good, false},
		{"the key is the whole secret", "t=1795168800,v1=" + sum("1795168800."+body, "c2VjcmV0"), false},
		{"cut short", "t=1795168800,v1=" + good[:62], false},
		{"no hex", "t=1795168800,v1=" + strings.Repeat("z", 64), false},
		{"300 seconds old", "t=1795168500,v1=" + sum("1795168500."+body, secret), true},
		{"301 seconds old", "t=1795168499,v1=" + sum("1795168499."+body, secret), false},
		{"300 seconds ahead", "t=1795169100,v1=" + sum("1795169100."+body, secret), true},
		{"302 seconds ahead", "t=1795169102,v1=" + sum("1795169102."+body, secret), false},
		{"a time before all", "t=-1795168800,v1=" + sum("-1795168800."+body, secret), false},
		{"a time that overflows", "t=9223372036854775807,v1=" + sum("9223372036854775807."+body, secret), false},
	} {
		r := &channel.Request{Header: http.Header{"Stripe-Signature": {tt.header}}, Body: []byte(body), Received: received}
		if got := payments.New().Verify(r, secret); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestVerifyNeutralHeaderFirst(t *testing.T) {
	at := time.Unix(1795168800, 0)
	r := &channel.Request{Header: http.Header{}, Body: []byte("{}"), Received: at}
	r.Header.Set("Stripe-Signature", payments.Sign(r.Body, at, "key"))
	if !payments.New().Verify(r, "key") {
		t.Error("the vendor's header alone is not taken")
	}
	r.Header.Set("payments-signature", "t=1795168800,v1=00")
	if payments.New().Verify(r, "key") {
		t.Error("a wrong neutral header falls back to the vendor's")
	}
	r.Header = http.Header{}
	r.Header.Set("payments-signature", payments.Sign(r.Body, at, "key"))
	if !payments.New().Verify(r, "key") {
		t.Error("the neutral header is not taken")
	}
}

func TestContentType(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  error
	}{
		{"application/json", nil},
		{"Application/JSON; charset=utf-8", nil},
		{"", nil},
		{"text/plain", channel.ErrContentType},
		{"application/x-www-form-urlencoded", channel.ErrContentType},
	} {
		_, err := payments.New().Addresses(&channel.Request{Header: http.Header{"Content-Type": {tt.value}}})
		if !errors.Is(err, tt.want) {
			t.Errorf("%q: Addresses() error = %v, want %v", tt.value, err, tt.want)
		}
	}
}

// FuzzEvent: any body is at most refused, and the results can be stored.
func FuzzEvent(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		f.Add(string(channeltest.Load(f, file).Body))
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := &channel.Request{Header: http.Header{}, Body: []byte(body), Received: channeltest.Received()}
		parts, err := payments.New().Split(r)
		if err != nil {
			if !errors.Is(err, channel.ErrUnreadable) {
				t.Errorf("Split() error = %v, want ErrUnreadable", err)
			}
			return
		}
		if len(parts) != 1 {
			t.Fatalf("Split() = %d parts, want 1", len(parts))
		}
		p := parts[0]
		if len(p.Kind) > 255 || len(p.Key) > 255 || len(p.Sender) > 255 {
			t.Errorf("a part does not fit an index: %+v", p)
		}
		if p.Skip {
			return
		}
		e, err := payments.New().Parse(r, p)
		if err != nil {
			t.Fatalf("a body that was split cannot be parsed: %v", err)
		}
		for name, v := range reflect.ValueOf(*e.Payment).Fields() {
			if v.Kind() != reflect.String {
				continue
			}
			if err := channeltest.Storable(v.String()); err != nil {
				t.Errorf("%s: %v: %q", name.Name, err, v.String())
			}
		}
	})
}
