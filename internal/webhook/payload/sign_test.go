package payload

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

func TestSignatures(t *testing.T) {
	body := []byte(`{"event":"ticket.created"}`)
	s := NewSigner("a secret")
	if got, want := s.form(Flat, body), "fc1e5198aac983a27ba0aaa78cb8e2f862ed578b27d067a36f6904634ce7e74d"; got != want {
		t.Errorf("form a: got %s, want %s", got, want)
	}
	if got, want := s.form(Nested, body), "sha256=fc1e5198aac983a27ba0aaa78cb8e2f862ed578b27d067a36f6904634ce7e74d"; got != want {
		t.Errorf("form b: got %s, want %s", got, want)
	}
	if got, want := s.version1("evt_1", "1700000000", body), "v1,GlOXKpi4I53em8DVPkLow6UzdSS186w0MFZgjlqI7ko="; got != want {
		t.Errorf("standard: got %s, want %s", got, want)
	}
}

// The example that the libraries of Standard Webhooks test themselves with.
func TestStandardExample(t *testing.T) {
	s := NewSigner("whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	got := s.version1("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestKeys(t *testing.T) {
	tests := []struct{ secret, form, standard string }{
		{"plain", "plain", "plain"},
		{"whsec_" + "cGxhaW4=", "whsec_" + "cGxhaW4=", "plain"},
		{"whsec_" + "cGxhaW4", "whsec_" + "cGxhaW4", "plain"},
		{"whsec_" + "not base64", "whsec_" + "not base64", "whsec_" + "not base64"},
	}
	for _, test := range tests {
		if s := NewSigner(test.secret); string(s.key) != test.form || string(s.standard) != test.standard {
			t.Errorf("%s: got keys %q and %q, want %q and %q", test.secret, s.key, s.standard, test.form, test.standard)
		}
	}
}

func TestVerify(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	body := []byte(`{"event":"ticket.created"}`)
	signed := func(f Form, secret, old string, change func(http.Header)) http.Header {
		h := http.Header{headerStandardID: {"evt_1"}}
		var before *Signer
		if old != "" {
			before = NewSigner(old)
		}
		Sign(h, NewSigner(secret), before, f, now, body)
		if change != nil {
			change(h)
		}
		return h
	}
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	tests := []struct {
		name   string
		header http.Header
		body   string
		secret string
		at     time.Time
		form   Form
		err    error
	}{
		{"form a", signed(Flat, "new", "", nil), string(body), "new", now, Flat, nil},
		{"form b", signed(Nested, "new", "", nil), string(body), "new", now, Nested, nil},
		{"new of two", signed(Nested, "new", "old", nil), string(body), "new", now, Nested, nil},
		{"old of two", signed(Nested, "new", "old", nil), string(body), "old", now, Nested, nil},
		{"neither of two", signed(Nested, "new", "old", nil), string(body), "older", now, "", ErrSignature},
		{"five minutes late", signed(Nested, "new", "", nil), string(body), "new", now.Add(5 * time.Minute), Nested, nil},
		{"later", signed(Nested, "new", "", nil), string(body), "new", now.Add(5*time.Minute + time.Second), "", ErrTimestamp},
		{"five minutes early", signed(Nested, "new", "", nil), string(body), "new", now.Add(-5 * time.Minute), Nested, nil},
		{"earlier", signed(Nested, "new", "", nil), string(body), "new", now.Add(-5*time.Minute - time.Second), "", ErrTimestamp},
		{"body", signed(Nested, "new", "", nil), string(body) + " ", "new", now, "", ErrSignature},
		{"timestamp", signed(Nested, "new", "", set(headerStandardTimestamp, "1700000001")), string(body), "new", now, "", ErrSignature},
		{"timestamp no number", signed(Nested, "new", "", set(headerStandardTimestamp, "now")), string(body), "new", now, "", ErrSignature},
		{"id", signed(Nested, "new", "", set(headerStandardID, "evt_2")), string(body), "new", now, "", ErrSignature},
		{"form's signature", signed(Nested, "new", "", set(headerSignature, "sha256=00")), string(body), "new", now, "", ErrSignature},
		{"form's signature empty", signed(Nested, "new", "", set(headerSignature, "sha256=")), string(body), "new", now, "", ErrSignature},
		{"other version", signed(Nested, "new", "", set(headerStandardSignature, "v1a,AAAA")), string(body), "new", now, "", ErrSignature},
		{"no standard signature", signed(Nested, "new", "", func(h http.Header) { h.Del(headerStandardSignature) }), string(body), "new", now, "", ErrUnsigned},
		{"no form signature", signed(Nested, "new", "", func(h http.Header) { h.Del(headerSignature) }), string(body), "new", now, "", ErrUnsigned},
		{"nothing", http.Header{}, string(body), "new", now, "", ErrUnsigned},
	}
	for _, test := range tests {
		form, err := Verify(test.header, []byte(test.body), test.secret, test.at)
		if form != test.form || !errors.Is(err, test.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", test.name, form, err, test.form, test.err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("sha256=00", "evt_1", "1700000000", "v1,AAAA v1,BBBB", []byte("{}"))
	f.Add("00", "", "-9223372036854775808", "", []byte(nil))
	f.Fuzz(func(t *testing.T, signature, id, timestamp, standard string, body []byte) {
		h := http.Header{
			headerSignature: {signature}, headerStandardID: {id},
			headerStandardTimestamp: {timestamp}, headerStandardSignature: {standard},
		}
		if form, err := Verify(h, body, "a secret nobody guesses", time.Unix(1_700_000_000, 0)); err == nil {
			t.Errorf("accepted as form %s", form)
		}
	})
}
