package app

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
)

// repeated is a body that repeats a text, infinitely unless limited.
type repeated struct {
	text string
	at   int
	read int64
}

func (b *repeated) Read(p []byte) (int, error) {
	n := copy(p, b.text[b.at:])
	b.at = (b.at + n) % len(b.text)
	b.read += int64(n)
	return n, nil
}

// attack posts a body and returns the status.
func attack(a *App, path string, header map[string]string, body io.Reader, length int64) int {
	r := httptest.NewRequest("POST", path, body)
	r.Host, r.ContentLength = "localhost:8080", length
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w.Code
}

// TestAttackEndlessChunks: an endless chunked body is read up to the path's limit only.
func TestAttackEndlessChunks(t *testing.T) {
	s := openStrict(t)
	in := s.signIn(s.ada)
	session := browser.AccessCookie + "=" + in.Tokens.Access
	a := deployment(t, "http://localhost:8080", quiet, func(c *Config) {
		c.Secrets = map[string][]string{"email-raw": {earlySecret}, "voice": {earlySecret}}
	})
	for _, tt := range []struct {
		name   string
		app    *App
		path   string
		header map[string]string
		most   int64
		status int
	}{
		{"mail", a, "/api/webhooks/inbound-email", map[string]string{"Content-Type": "message/rfc822", "X-Webhook-Signature": strings.Repeat("0", 64)}, 35 << 20, 413},
		{"call", a, "/api/webhooks/voice", map[string]string{"Content-Type": "application/json"}, 1 << 20, 413},
		{"procedure", s.App, "/api/trpc/auth.signInWithPassword", map[string]string{"Content-Type": "application/json"}, 1 << 20, 413},
		{"form of a stranger", s.App, "/sign-in", map[string]string{"Content-Type": formType}, 64 << 10, 413},
		{"form of a member", s.App, "/settings/profile", map[string]string{"Content-Type": formType, "Cookie": session}, 512 << 10, 413},
	} {
		body := &repeated{text: "a line of nothing\r\n"}
		if got := attack(tt.app, tt.path, tt.header, body, -1); got != tt.status {
			t.Errorf("%s: answered %d, want %d", tt.name, got, tt.status)
		}
		if body.read > tt.most+64<<10 {
			t.Errorf("%s: %d bytes were read, want %d at most", tt.name, body.read, tt.most)
		}
	}
}

// TestAttackDeepNesting: deeply nested JSON exhausts neither stack nor time of any
// surface.
func TestAttackDeepNesting(t *testing.T) {
	a := deployment(t, "http://localhost:8080", quiet, func(c *Config) {
		c.Secrets = map[string][]string{"email-json": {earlySecret}, "chat": {earlySecret}, "voice": {earlySecret}, "business-messaging": {earlySecret}}
	})
	for _, open := range []string{"[", `{"a":`, `{"json":{"email":[`} {
		body := []byte(strings.Repeat(open, (1<<20-1)/len(open)))
		signature, at := chat.Sign(body, time.Now(), earlySecret)
		for path, header := range map[string]map[string]string{
			"/api/trpc/auth.signInWithPassword":      nil,
			"/api/webhooks/inbound-email?style=json": {email.TokenHeader: earlySecret},
			"/api/webhooks/chat":                     {chat.SignatureHeader: signature, chat.TimestampHeader: at},
			"/api/webhooks/voice":                    {"X-Voice-Signature": voice.Sign(body, earlySecret)},
			"/api/webhooks/business-messaging":       {meta.SignatureHeader: meta.Sign(body, earlySecret)},
			"/api/marketplace/webhook":               nil,
		} {
			h := map[string]string{"Content-Type": "application/json"}
			maps.Copy(h, header)
			began := time.Now()
			status := attack(a, path, h, bytes.NewReader(body), int64(len(body)))
			if status >= 500 || time.Since(began) > 20*time.Second {
				t.Errorf("%s with %s…: answered %d after %v", path, open, status, time.Since(began))
			}
		}
	}
}

// TestAttackDecompressionBomb: a compressed body is not decompressed; it is refused or
// read as raw bytes.
func TestAttackDecompressionBomb(t *testing.T) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	io.CopyN(zip, &repeated{text: strings.Repeat("\x00", 4096)}, 64<<20)
	zip.Close()
	s := openStrict(t)
	a := deployment(t, "http://localhost:8080", quiet, func(c *Config) { c.Secrets = map[string][]string{"email-json": {earlySecret}} })
	for _, tt := range []struct {
		app    *App
		path   string
		header map[string]string
	}{
		{a, "/api/webhooks/inbound-email?style=json", map[string]string{"Content-Type": "application/json", email.TokenHeader: earlySecret}},
		{s.App, "/api/trpc/auth.signInWithPassword", map[string]string{"Content-Type": "application/json"}},
		{s.App, "/sign-in", map[string]string{"Content-Type": formType}},
	} {
		tt.header["Content-Encoding"] = "gzip"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		status := attack(tt.app, tt.path, tt.header, bytes.NewReader(packed.Bytes()), int64(packed.Len()))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; status < 400 || status >= 500 || took > 32<<20 {
			t.Errorf("%s: answered %d, with %d bytes of memory", tt.path, status, took)
		}
	}
}

// TestAttackManyFields: a form, query or multipart body of very many small fields takes
// memory in proportion to its size.
func TestAttackManyFields(t *testing.T) {
	a := deployment(t, "http://localhost:8080", quiet, func(c *Config) {
		c.Secrets = map[string][]string{"email-form": {earlySecret}, "sms": {earlySecret}}
	})
	const size = 8 << 20
	var keys strings.Builder
	for i := 0; keys.Len() < size; i++ {
		fmt.Fprintf(&keys, "%x&", i)
	}
	for name, tt := range map[string]struct{ contentType, body string }{
		"one name":   {formType, strings.Repeat("a&", size/2)},
		"many names": {formType, keys.String()},
		"parts":      {"multipart/form-data; boundary=b", strings.Repeat("--b\r\n\r\n\r\n", size/9)},
		"headers":    {"multipart/form-data; boundary=b", "--b\r\n" + strings.Repeat("A:b\r\n", size/5)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		status := attack(a, "/api/webhooks/inbound-email", map[string]string{"Content-Type": tt.contentType}, strings.NewReader(tt.body), int64(len(tt.body)))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; status != http.StatusUnauthorized || took > 40*size || time.Since(began) > 20*time.Second {
			t.Errorf("%s: answered %d after %v, with %d bytes of memory", name, status, time.Since(began), took)
		}
	}
}

// TestAttackForgedForwardedFor: a client that is not a trusted proxy cannot evade its
// limits by a forged address in any header.
func TestAttackForgedForwardedFor(t *testing.T) {
	s := openStrict(t)
	last := 0
	for i := range 130 {
		r := httptest.NewRequest("POST", "/api/trpc/auth.signInWithEmail", strings.NewReader(fmt.Sprintf(`{"json":{"email":"nobody%d@example.com"}}`, i)))
		r.Host, r.RemoteAddr = "localhost:8080", "192.0.2.7:1"
		r.Header.Set("Content-Type", "application/json")
		address := fmt.Sprintf("198.51.100.%d", i)
		for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip"} {
			r.Header.Set(name, address)
		}
		r.Header.Set("Forwarded", "for="+address)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if last = w.Code; last == http.StatusTooManyRequests {
			break
		}
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the last of 130 requests for a mail was answered %d", last)
	}
}
