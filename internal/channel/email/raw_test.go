package email_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
)

func adapter() *email.Raw {
	return email.NewRaw(email.Config{TrustedAuthServers: []string{"mx.acme.example"}, OwnDomains: []string{"acme.example"}})
}

func TestConformanceSigned(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: adapter(), Dir: "testdata", Timed: true,
		Sign: func(r *channel.Request, secret string, at time.Time) {
			signature, timestamp := email.SignRaw(r.Body, at, secret)
			r.Header.Set("X-Webhook-Signature", signature)
			r.Header.Set("X-Webhook-Timestamp", timestamp)
		},
	})
}

func TestConformanceBearer(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: adapter(), Dir: "testdata", BodyUnsigned: true,
		Sign: func(r *channel.Request, secret string, _ time.Time) {
			r.Header.Set("Authorization", "Bearer "+secret)
		},
	})
}

func request(header http.Header, body string) *channel.Request {
	return &channel.Request{Method: "POST", URL: "https://help.example/api/webhooks/inbound-email", Header: header, Body: []byte(body), Received: channeltest.Received()}
}

func TestVerifyForms(t *testing.T) {
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	plain, none := email.SignRaw([]byte("mail"), time.Time{}, "key")
	if none != "" {
		t.Errorf("SignRaw() without a time gives the timestamp %q", none)
	}
	other := strings.Repeat("ab", 32)
	timed, timestamp := email.SignRaw([]byte("mail"), channeltest.Received(), "key")
	for _, tt := range []struct {
		name   string
		header http.Header
		want   bool
	}{
		{"bearer", http.Header{"Authorization": {"Bearer key"}}, true},
		{"bearer, small letters", http.Header{"Authorization": {"bearer key"}}, true},
		{"bearer, longer", http.Header{"Authorization": {"Bearer keykey"}}, false},
		{"bearer, empty", http.Header{"Authorization": {"Bearer "}}, false},
		{"basic, password", http.Header{"Authorization": {basic("hook:key")}}, true},
		{"basic, user", http.Header{"Authorization": {basic("key:")}}, true},
		{"basic, user beside a password", http.Header{"Authorization": {basic("key:x")}}, false},
		{"basic, wrong", http.Header{"Authorization": {basic("hook:other")}}, false},
		{"basic, empty", http.Header{"Authorization": {basic(":")}}, false},
		{"basic, not base64", http.Header{"Authorization": {"Basic key"}}, false},
		{"digest", http.Header{"Authorization": {"Digest key"}}, false},
		{"signature", http.Header{"X-Webhook-Signature": {plain}}, true},
		{"signature in capitals", http.Header{"X-Webhook-Signature": {strings.ToUpper(plain)}}, true},
		{"signature of another body", http.Header{"X-Webhook-Signature": {other}}, false},
		{"signature with a time", http.Header{"X-Webhook-Signature": {timed}, "X-Webhook-Timestamp": {timestamp}}, true},
		{"signature with its time taken away", http.Header{"X-Webhook-Signature": {timed}}, false},
		{"signature with a time added", http.Header{"X-Webhook-Signature": {plain}, "X-Webhook-Timestamp": {timestamp}}, false},
		{"wrong signature beside the right token", http.Header{"X-Webhook-Signature": {other}, "Authorization": {"Bearer key"}}, false},
		{"empty signature beside the right token", http.Header{"X-Webhook-Signature": {""}, "Authorization": {"Bearer key"}}, false},
	} {
		if got := adapter().Verify(request(tt.header, "mail"), "key"); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
	if !adapter().Verify(request(http.Header{"Authorization": {basic("user:word")}}, "mail"), "user:word") {
		t.Error("Basic credentials that are the whole secret were refused")
	}
}

func TestRecognizes(t *testing.T) {
	form := func(names ...string) string {
		var b strings.Builder
		for _, n := range names {
			b.WriteString("--b\r\nContent-Disposition: form-data; name=\"" + n + "\"\r\n\r\nx\r\n")
		}
		return b.String() + "--b--\r\n"
	}
	for _, tt := range []struct {
		name, contentType, body string
		want                    bool
	}{
		{"raw", "message/rfc822", "From: a@b\n\nHi", true},
		{"bytes", "application/octet-stream", "x", true},
		{"no type", "", "x", true},
		{"style A", "multipart/form-data; boundary=b", form("signature", "token", "timestamp", "body-mime"), false},
		{"style A without files", "application/x-www-form-urlencoded", "signature=1&token=2&timestamp=3&body-plain=x", false},
		{"style B", "multipart/form-data; boundary=b", form("envelope", "text"), false},
		{"style B, raw", "multipart/form-data; boundary=b", form("envelope", "email"), false},
		{"raw form", "multipart/form-data; boundary=b", form("envelope[to]", "message"), true},
		{"raw form, other name", "multipart/form-data; boundary=b", form("email"), true},
		{"any form", "multipart/form-data; boundary=b", form("x"), false},
		{"style C", "application/json", `{"From":"a@b","TextBody":"x","headers":{},"html":""}`, false},
		{"raw JSON", "application/json", `{"raw":"x"}`, true},
		{"parts", "application/json", `{"headers":{},"envelope":{},"plain":"x"}`, true},
		{"any JSON", "application/json", `{"x":1}`, false},
		{"broken JSON", "application/json", `{"raw":`, false},
		{"text", "text/plain", "x", false},
	} {
		r := request(http.Header{"Content-Type": {tt.contentType}}, tt.body)
		if got := adapter().Recognizes(r); got != tt.want {
			t.Errorf("%s: Recognizes() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestContentType(t *testing.T) {
	r := request(http.Header{"Content-Type": {"text/html"}}, "x")
	if _, err := adapter().Addresses(r); !errors.Is(err, channel.ErrContentType) {
		t.Errorf("Addresses() error = %v, want ErrContentType", err)
	}
}

func TestMediaRequest(t *testing.T) {
	got := email.NewRaw(email.Config{AttachmentHosts: []string{"store.example"}}).MediaRequest(channel.Attachment{URL: "https://store.example/x"}, channel.ConnectionCredentials(channel.API{Credentials: []channel.Credential{{Name: "token", Kind: channel.KindAPIKey}}}, map[string]string{"token": "t"}))
	if got.URL != "https://store.example/x" || len(got.Header) != 0 || got.Hosts[len(got.Hosts)-1] != "store.example" {
		t.Errorf("MediaRequest() = %+v, want the URL, no header, and the configured host", got)
	}
}
