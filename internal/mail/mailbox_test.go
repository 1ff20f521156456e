package mail_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	netmail "net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"golang.org/x/net/html"
)

func openMailbox(t *testing.T, dir string) *mail.Mailbox {
	t.Helper()
	b, err := mail.OpenMailbox(dir, "http://127.0.0.1:8080/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func list(t *testing.T, b *mail.Mailbox) []mail.Stored {
	t.Helper()
	l, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMailboxConformance(t *testing.T) {
	mailtest.Run(t, func(t *testing.T) mailtest.Fixture {
		b := openMailbox(t, t.TempDir())
		return mailtest.Fixture{Sender: b, Received: func(t testing.TB) []mailtest.Received {
			stored, err := b.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var received []mailtest.Received
			for _, s := range slices.Backward(stored) {
				from, err := netmail.ParseAddress(s.From)
				if err != nil {
					t.Fatalf("from %q: %v", s.From, err)
				}
				r := mailtest.Received{
					EnvelopeFrom: s.EnvelopeFrom, From: from.Address, To: slices.Concat(s.To, s.Cc),
					Subject: s.Subject, Text: s.Text, HTML: s.HTML,
				}
				for _, h := range s.Headers {
					r.Headers = append(r.Headers, mail.Header(h))
				}
				for _, a := range s.Attachments {
					r.Attachments = append(r.Attachments, a.Name)
				}
				received = append(received, r)
			}
			return received
		}}
	})
}

func TestMailboxKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble's time is 2000-01-01
		b := openMailbox(t, t.TempDir())
		err := b.Send(t.Context(), mail.Message{
			From:        mail.Address{Name: "Kickstand", Address: "no-reply@localhost"},
			To:          []mail.Address{{Name: "Rider", Address: "rider@example.com"}},
			ReplyTo:     mail.Address{Address: "desk@localhost"},
			Subject:     "Sign in",
			Text:        "Follow http://127.0.0.1:8080/cb?token=a-b_c. Or not: https://example.com/x, ok?",
			HTML:        `<a href="http://127.0.0.1:8080/cb?token=a-b_c">Sign in</a><a href="https://example.com/?a=1&amp;b=2">x</a><a href="javascript:alert(1)">y</a>`,
			Attachments: []mail.Attachment{{Name: "a.pdf", ContentType: "application/pdf", Content: make([]byte, 7)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := list(t, b)
		if len(got) != 1 {
			t.Fatalf("%d mails are kept, want 1", len(got))
		}
		got[0].ID = "id"
		data, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		want := `[{"id":"id","from":"Kickstand \u003cno-reply@localhost\u003e","to":["rider@example.com"],"reply_to":"desk@localhost",` +
			`"envelope_from":"no-reply@localhost","subject":"Sign in",` +
			`"text":"Follow http://127.0.0.1:8080/cb?token=a-b_c. Or not: https://example.com/x, ok?",` +
			`"html":"\u003ca href=\"http://127.0.0.1:8080/cb?token=a-b_c\"\u003eSign in\u003c/a\u003e\u003ca href=\"https://example.com/?a=1\u0026amp;b=2\"\u003ex\u003c/a\u003e\u003ca href=\"javascript:alert(1)\"\u003ey\u003c/a\u003e",` +
			`"links":["http://127.0.0.1:8080/cb?token=a-b_c","https://example.com/x","https://example.com/?a=1\u0026b=2"],` +
			`"attachments":[{"name":"a.pdf","content_type":"application/pdf","size":7}],"created_at":"2000-01-01T00:00:00Z"}]`
		if string(data) != want {
			t.Errorf("kept\n%s\nwant\n%s", data, want)
		}
	})
}

func TestMailboxLogsWhereAndWhat(t *testing.T) {
	var logged bytes.Buffer
	b, err := mail.OpenMailbox(t.TempDir(), "http://127.0.0.1:8080/", slog.New(slog.NewJSONHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	var line map[string]string
	if err := json.Unmarshal(logged.Bytes(), &line); err != nil {
		t.Fatalf("log is not one line: %v\n%s", err, &logged)
	}
	delete(line, "time")
	want := map[string]string{
		"level": "INFO", "msg": "mail stored in the mailbox", "to": "a@example.com, b@example.com",
		"subject": "Your bike", "text": "It is ready.", "see": "http://127.0.0.1:8080/dev/mailbox/" + list(t, b)[0].ID,
	}
	if fmt.Sprint(line) != fmt.Sprint(want) {
		t.Errorf("logged %v, want %v", line, want)
	}
}

func TestMailboxKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	boxes := []*mail.Mailbox{openMailbox(t, dir), openMailbox(t, dir)}
	for i := range 503 {
		m := message()
		m.Subject = fmt.Sprint(i)
		if err := boxes[i%2].Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got := list(t, boxes[0])
	if len(got) != 500 || got[0].Subject != "502" || got[499].Subject != "3" {
		t.Errorf("%d mails are kept, from %q to %q; want 500, from 502 to 3", len(got), got[0].Subject, got[len(got)-1].Subject)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 500 {
		t.Errorf("directory holds %d files, error %v; want 500", len(entries), err)
	}
}

// TestMailboxShared: two processes write, prune and list concurrently without partial mails or
// errors.
func TestMailboxShared(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		b := openMailbox(t, dir)
		wg.Go(func() {
			for range 150 {
				if err := b.Send(t.Context(), message()); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
		})
		wg.Go(func() {
			for range 5 {
				l, err := b.List(t.Context())
				if err != nil {
					t.Errorf("List: %v", err)
				}
				for _, s := range l {
					if s.Subject != "Your bike" {
						t.Errorf("listed %+v", s)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := list(t, openMailbox(t, dir)); len(got) != 500 {
		t.Errorf("%d mails are kept of 600, want 500", len(got))
	}
}

func TestMailboxSurvivesStrangeFiles(t *testing.T) {
	dir := t.TempDir()
	b := openMailbox(t, dir)
	if err := b.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", ".new-123", "x.json", "01890a5d-ac96-774b-bcce-b302099a8057.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(t, b); len(got) != 1 {
		t.Errorf("listed %d mails, want 1", len(got))
	}
}

func TestMailboxIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "mailbox")
	b := openMailbox(t, dir)
	if err := b.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, list(t, b)[0].ID+".json"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

func TestMailboxDirectoryTrouble(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mailbox")
	b := openMailbox(t, dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	wantError(t, b.Send(t.Context(), message()), mail.Error{Op: mail.OpStore, Temporary: true}, "no such file")
	if _, err := b.List(t.Context()); err == nil {
		t.Error("List found no fault with a missing directory")
	}
	if got := request(t, b, "GET", "/dev/mailbox").Code; got != http.StatusInternalServerError {
		t.Errorf("page has status %d, want 500", got)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mail.OpenMailbox(file, "", nil); err == nil {
		t.Error("OpenMailbox took a file for a directory")
	}
}

func TestMailboxFind(t *testing.T) {
	b := openMailbox(t, t.TempDir())
	if err := b.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	id := list(t, b)[0].ID
	if got, err := b.Find(t.Context(), id); err != nil || got.ID != id || got.Subject != "Your bike" {
		t.Errorf("Find(%s) = %+v, %v", id, got, err)
	}
	for _, id := range []string{"", "x", "../" + id, strings.ToUpper(id), "{" + id + "}", "01890a5d-ac96-774b-bcce-b302099a8057"} {
		if _, err := b.Find(t.Context(), id); !errors.Is(err, mail.ErrNotFound) {
			t.Errorf("Find(%q) = %v, want ErrNotFound", id, err)
		}
	}
}

func request(t *testing.T, b *mail.Mailbox, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w
}

func TestMailboxJSON(t *testing.T) {
	b := openMailbox(t, t.TempDir())
	w := request(t, b, "GET", "/dev/mailbox.json")
	if w.Code != 200 || w.Body.String() != "[]" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("empty mailbox is %d %q %q", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	for _, subject := range []string{"first", "second"} {
		m := message()
		m.Subject = subject
		if err := b.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var got []struct{ ID, Subject, Text string }
	if err := json.Unmarshal(request(t, b, "GET", "/dev/mailbox.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Subject != "second" || got[1].Subject != "first" || got[1].Text != "It is ready." {
		t.Errorf("got %+v, want the second mail and the first", got)
	}
}

func TestMailboxStatuses(t *testing.T) {
	b := openMailbox(t, t.TempDir())
	tests := []struct {
		method, path string
		want         int
	}{
		{"GET", "/dev/mailbox", 200},
		{"HEAD", "/dev/mailbox", 200},
		{"POST", "/dev/mailbox", 405},
		{"GET", "/dev/mailbox/x", 404},
		{"GET", "/dev/mailbox/01890a5d-ac96-774b-bcce-b302099a8057", 404},
		{"GET", "/dev/mailbox/..%2f..%2fetc%2fpasswd", 404},
		{"GET", "/dev/other", 404},
	}
	for _, tt := range tests {
		if got := request(t, b, tt.method, tt.path).Code; got != tt.want {
			t.Errorf("%s %s has status %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
}

// TestMailboxPagesEscape: no value of a mail escapes its place in the page.
func TestMailboxPagesEscape(t *testing.T) {
	const attack = `"'></pre></title></style></iframe><script>alert(1)</script><img src=x onerror=alert(1)>`
	b := openMailbox(t, t.TempDir())
	err := b.Send(t.Context(), mail.Message{
		From:        mail.Address{Name: attack, Address: "desk@localhost"},
		To:          []mail.Address{{Name: attack, Address: "a'&b@example.com"}},
		Cc:          []mail.Address{{Address: "c'&d@example.com"}},
		ReplyTo:     mail.Address{Address: "e'&f@example.com"},
		Subject:     attack,
		Text:        attack + ` http://example.com/"onclick=alert(1) javascript:alert(1)`,
		HTML:        attack + `<a href="javascript:alert(1)">x</a><a href="https://example.com/&quot;onclick=alert(1)">x</a>`,
		Headers:     []mail.Header{{Name: "X-Note", Value: attack}},
		Attachments: []mail.Attachment{{Name: attack, ContentType: "text/plain"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := list(t, b)[0].ID
	for _, path := range []string{"/dev/mailbox", "/dev/mailbox/" + id} {
		w := request(t, b, "GET", path)
		if w.Code != 200 {
			t.Fatalf("%s has status %d", path, w.Code)
		}
		page, err := html.Parse(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for n := range page.Descendants() {
			if n.Type == html.TextNode {
				text.WriteString(n.Data)
			}
			if n.Type != html.ElementNode {
				continue
			}
			if n.Data == "script" || n.Data == "img" {
				t.Errorf("%s: a value made a <%s>", path, n.Data)
			}
			for _, attr := range n.Attr {
				switch {
				case strings.HasPrefix(attr.Key, "on"):
					t.Errorf("%s: a value made the attribute %s", path, attr.Key)
				case attr.Key == "href" && n.Data != "link" && !strings.HasPrefix(attr.Val, "http") && !strings.HasPrefix(attr.Val, "/dev/mailbox"):
					t.Errorf("%s: a value made the link %q", path, attr.Val)
				case attr.Key == "srcdoc" && !strings.HasPrefix(attr.Val, attack):
					t.Errorf("%s: the HTML part is %q, want it whole", path, attr.Val)
				case attr.Key == "sandbox" && attr.Val != "":
					t.Errorf("%s: the sandbox allows %q", path, attr.Val)
				}
			}
		}
		if !strings.Contains(text.String(), attack) {
			t.Errorf("%s does not show the subject as it is", path)
		}
		if frame := strings.Contains(path, id); frame != hasFrame(page) {
			t.Errorf("%s: frame shown %v, want %v", path, !frame, frame)
		}
	}
}

func hasFrame(page *html.Node) bool {
	for n := range page.Descendants() {
		if n.Data == "iframe" {
			return slices.Contains(n.Attr, html.Attribute{Key: "sandbox"})
		}
	}
	return false
}

func TestMailboxHeaders(t *testing.T) {
	b := openMailbox(t, t.TempDir())
	if err := b.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/mailbox", "/dev/mailbox/" + list(t, b)[0].ID, "/dev/mailbox.json"} {
		h := request(t, b, "GET", path).Header()
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "script-src") {
			t.Errorf("%s has the policy %q", path, policy)
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s has %s %q, want %q", path, name, got, want)
			}
		}
	}
}

// TestMailboxListIsStyled: the list's policy names its style by digest, so the two must agree.
func TestMailboxListIsStyled(t *testing.T) {
	w := request(t, openMailbox(t, t.TempDir()), "GET", "/dev/mailbox")
	_, after, _ := strings.Cut(w.Body.String(), "<style>")
	style, _, _ := strings.Cut(after, "</style>")
	digest := sha256.Sum256([]byte(style))
	want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
	if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, want) || len(style) < 100 {
		t.Errorf("policy is %q, want %s for the style %q", policy, want, style)
	}
}
