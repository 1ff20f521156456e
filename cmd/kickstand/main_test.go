package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"

	"github.com/rogpeppe/go-internal/testscript"
)

// asProgram makes the test binary act as the program, for tests that kill it.
const asProgram = "KICKSTAND_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Unsetenv(asProgram)
		main()
		return
	}
	testscript.Main(m, map[string]func(){"kickstand": main})
}

// server is a serving program under test, in process.
type server struct {
	t    *testing.T
	url  string
	stop func()
}

// start runs `kickstand serve` with the given flags until the test ends.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logs := &lineWriter{lines: make(chan []byte, 10000)}
	ended := make(chan error, 1)
	go func() {
		args := append([]string{"serve", "--listen=127.0.0.1:0", "--log-format=json"}, args...)
		ended <- run(ctx, args, noEnvironment, strings.NewReader(""), t.Output(), logs)
		close(logs.lines)
	}()
	s := &server{t: t}
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	for line := range logs.lines {
		var entry struct{ Msg, URL string }
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if entry.Msg == "serving" {
			s.url = entry.URL
			go func() {
				for line := range logs.lines {
					fmt.Fprintf(t.Output(), "%s\n", line)
				}
			}()
			return s
		}
	}
	t.Fatal("the server did not start")
	return nil
}

func noEnvironment(string) (string, bool) { return "", false }

// lineWriter passes on its input line by line.
type lineWriter struct {
	mu      sync.Mutex
	pending []byte
	lines   chan []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, p...)
	for {
		line, rest, ok := bytes.Cut(w.pending, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		w.lines <- bytes.Clone(line)
		w.pending = rest
	}
}

// browser returns a client with cookies that does not follow redirects.
func browser(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{
		Jar:           jar,
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call calls a mutation and decodes its output; a status other than 200 fails the test.
func call(t *testing.T, c *http.Client, base, procedure string, input, output any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"json": input})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Post(base+"/api/trpc/"+procedure, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %s", procedure, resp.StatusCode, answer)
	}
	var envelope struct {
		Result struct {
			Data struct{ JSON json.RawMessage }
		}
	}
	if err := json.Unmarshal(answer, &envelope); err != nil {
		t.Fatalf("%s: %v in %s", procedure, err, answer)
	}
	if output != nil {
		if err := json.Unmarshal(envelope.Result.Data.JSON, output); err != nil {
			t.Fatalf("%s: %v in %s", procedure, err, answer)
		}
	}
}

// mailedLink waits for a mail to the address and returns its link.
func mailedLink(t *testing.T, base, to string) string {
	t.Helper()
	link := regexp.MustCompile(regexp.QuoteMeta(base) + `/\S+token=\S+`)
	for range poll(t, 10*time.Second) {
		resp, err := http.Get(base + "/dev/mailbox.json")
		if err != nil {
			t.Fatal(err)
		}
		var mails []struct {
			To   []string
			Text string
		}
		err = json.NewDecoder(resp.Body).Decode(&mails)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mails {
			if len(m.To) == 1 && m.To[0] == to {
				if found := link.FindString(m.Text); found != "" {
					return found
				}
				t.Fatalf("no link in the mail %q", m.Text)
			}
		}
	}
	t.Fatalf("no mail to %s arrived", to)
	return ""
}

// poll yields until a deadline, for effects of another process or connection.
func poll(t *testing.T, limit time.Duration) func(yield func() bool) { return apptest.Poll(t, limit) }

// smsRequest returns the provider's request for an SMS.
func smsRequest(base, secret, sid, from, to, text string) *http.Request {
	target := base + "/api/webhooks/sms"
	form := url.Values{"MessageSid": {sid}, "From": {from}, "To": {to}, "Body": {text}, "NumMedia": {"0"}}
	req, err := http.NewRequest(http.MethodPost, target, strings.NewReader(form.Encode()))
	if err != nil {
		panic(err) // a constant URL
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Sms-Signature", sms.Sign(target, form, secret))
	return req
}

// mailRequest returns the mail converter's request for a mail.
func mailRequest(base, secret, from, to string, raw []byte) *http.Request {
	req, err := http.NewRequest(http.MethodPost, base+"/api/webhooks/inbound-email?style=raw", bytes.NewReader(raw))
	if err != nil {
		panic(err)
	}
	signature, timestamp := email.SignRaw(raw, time.Now(), secret)
	req.Header.Set("Content-Type", "message/rfc822")
	req.Header.Set("X-Envelope-From", from)
	req.Header.Set("X-Envelope-To", to)
	req.Header.Set("X-Webhook-Timestamp", timestamp)
	req.Header.Set("X-Webhook-Signature", signature)
	return req
}

// send posts a request and returns status and body.
func send(t *testing.T, c *http.Client, req *http.Request) (int, string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestAttackForgedLogLine: external text cannot start a new line of the log, in either
// format.
func TestAttackForgedLogLine(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		e := &env{commands: new(commands), stdio: stdio{err: &out}}
		e.LogFormat, e.LogLevel = format, "info"
		e.logger().Warn("security", "user_agent", "curl\r\ntime=2026-01-01T00:00:00Z level=INFO msg=\"all is well\"\x1b[2J\u2028")
		if text := strings.TrimSuffix(out.String(), "\n"); strings.ContainsAny(text, "\r\n\x1b\u2028") {
			t.Errorf("%s: the log has %q", format, text)
		}
	}
}
