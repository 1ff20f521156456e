package email

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/safehtml/safehtmltest"
)

// check checks the invariants of every parsed message.
func check(t *testing.T, m *channel.Message) {
	t.Helper()
	if len(m.Text) > mailparse.MaxText {
		t.Errorf("text of %d bytes, want at most %d", len(m.Text), mailparse.MaxText)
	}
	if len(m.Attachments) > mailparse.MaxAttachments+1 {
		t.Errorf("%d attachments, want at most %d and the original", len(m.Attachments), mailparse.MaxAttachments)
	}
	if m.Mail == nil || m.Mail.Class == "" || m.Mail.Rule == "" {
		t.Errorf("no class or rule: %+v", m.Mail)
	}
	if (m.Mail.Class == channel.ClassBounce) != (m.Mail.Receipt != nil) {
		t.Errorf("class %s with receipt %+v", m.Mail.Class, m.Mail.Receipt)
	}
	if m.Stripped != "" && strings.TrimSpace(m.Stripped) == "" {
		t.Errorf("stripped text is blank: %q", m.Stripped)
	}
	storable(t, "message", reflect.ValueOf(*m))
	safehtmltest.Harmless(t, m.HTML)
}

func storable(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			storable(t, path, v.Elem())
		}
	case reflect.Struct:
		for f, value := range v.Fields() {
			if f.IsExported() {
				storable(t, path+"."+f.Name, value)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				storable(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		}
	case reflect.String:
		if err := channeltest.Storable(v.String()); err != nil {
			t.Errorf("%s: %v: %.80q", path, err, v.String())
		}
	}
}

// TestSampleMails parses the sample mails of enmime, most of them malformed.
func TestSampleMails(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/jhillyerd/enmime/v2").Output()
	if err != nil {
		t.Skipf("cannot find the module: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "mail", "*.raw"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the module comes without its samples")
	}
	a := NewRaw(Config{})
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		r := &channel.Request{Header: http.Header{"Content-Type": {"message/rfc822"}, "X-Envelope-To": {"support@acme.example"}}, Body: raw, Received: received()}
		parts, err := a.Split(r)
		if err != nil || len(parts) != 1 || parts[0].Address != "support@acme.example" {
			t.Errorf("%s: Split() = %+v, %v, want one part", name, parts, err)
			continue
		}
		e, err := a.Parse(r, parts[0])
		if err != nil {
			t.Errorf("%s: Parse(): %v", name, err)
			continue
		}
		m := e.Message
		check(t, m)
		if m.Text == "" && len(m.Attachments) == 0 && name != "header-only.raw" {
			t.Errorf("%s: neither text nor files", name)
		}
		if m.Subject == "" && bytes.Contains(raw, []byte("\nSubject: ")) {
			t.Errorf("%s: the subject is lost", name)
		}
	}
}

func TestLimits(t *testing.T) {
	part := func(header, body string) string { return "--b\n" + header + "\n\n" + body + "\n" }
	nested := func(depth int) string {
		var b strings.Builder
		for i := range depth {
			fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n", i, i)
		}
		b.WriteString("Content-Type: text/plain\n\ninnermost\n")
		return b.String()
	}
	const head = "From: ana@client.example\nSubject: x\nContent-Type: multipart/mixed; boundary=b\n\n"
	for _, tt := range []struct {
		name, raw   string
		text        string // prefix
		attachments int
		original    bool // the original is attached
	}{
		{"199 parts", head + strings.Repeat(part("Content-Type: text/plain", "a"), 199), "a\n\na\n\na", 0, false},
		{"200 parts", head + strings.Repeat(part("Content-Type: text/plain", "a"), 200), "a\n\na\n\na", 1, true},
		{"a million parts", head + strings.Repeat("--b\n\na\n", 1_000_000), "a\n\na\n\na", 1, true},
		{"50 files", head + part("", "hi") + strings.Repeat(part("Content-Disposition: attachment", "a"), 50), "hi", 50, false},
		{"51 files", head + part("", "hi") + strings.Repeat(part("Content-Disposition: attachment", "a"), 51), "hi", 51, true},
		{"20 levels", "From: ana@client.example\n" + nested(20), "innermost", 0, false},
		{"21 levels", "From: ana@client.example\n" + nested(21), "", 2, true},
		{"100,000 levels", "From: ana@client.example\n" + nested(100_000), "", 2, true},
		{"1 MB of text", "From: ana@client.example\n\n" + strings.Repeat("a", 1<<20), "aaa", 0, false},
		{"more than 1 MB of text", "From: ana@client.example\n\n" + strings.Repeat("ä", 1<<19) + "b", "äää", 1, true},
		{"texts that are too long together", head + strings.Repeat(part("Content-Type: text/plain", strings.Repeat("a", 600_000)), 2), "aaa", 1, true},
		{"30 MB of text", "From: ana@client.example\n\n" + strings.Repeat("All work and no play.\n", 30<<20/22), "All work", 1, true},
		{"a header without end", "From: ana@client.example\nX-Long: " + strings.Repeat("a", 30<<20), "aaa", 1, true},
		{"a million headers", "From: ana@client.example\n" + strings.Repeat("X: y\n", 1_000_000) + "\nhi", "", 1, true},
		{"a million parameters", "From: ana@client.example\nContent-Type: text/plain" + strings.Repeat("; a=b", 40_000) + "\n\nhi", "hi", 0, false},
		{"a million recipients", "From: ana@client.example\nTo: " + strings.Repeat("a@b.example, ", 18_000) + "\n\nhi", "hi", 0, false},
		{"deep HTML", "From: ana@client.example\nContent-Type: text/html\n\n" + strings.Repeat("<div><blockquote>", 50_000) + "hi", "> > > > > hi", 0, false},
		{"HTML of angle brackets", "From: ana@client.example\nContent-Type: text/html\n\nhi <" + strings.Repeat(">", 500_000), "hi", 0, false},
		{"HTML that is one tag", "From: ana@client.example\nContent-Type: text/html\n\nhi <a " + strings.Repeat("x=y ", 200_000) + ">there", "hi there", 0, false},
		{"10 MB of broken base64", head + part("Content-Transfer-Encoding: base64\nContent-Disposition: attachment", strings.Repeat("*&^ ", 2_500_000)), "", 1, false},
	} {
		m, err := testParser().ParseRaw([]byte(tt.raw), Envelope{Received: received()})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		check(t, m)
		original := false
		for _, a := range m.Attachments {
			original = original || a.Name == "message.eml" && len(a.Data) == len(tt.raw)
		}
		if !strings.HasPrefix(m.Text, tt.text) || tt.text == "" && m.Text != "" && tt.name != "a million headers" || len(m.Attachments) != tt.attachments || original != tt.original {
			t.Errorf("%s: text %.20q, %d attachments, original %t; want %q, %d, %t", tt.name, m.Text, len(m.Attachments), original, tt.text, tt.attachments, tt.original)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"Support@Acme.Example", "support@acme.example"},
		{"support+t.7.abc@acme.example", "support@acme.example"},
		{"<support@acme.example>", "support@acme.example"},
		{"Support <support@acme.example>", "support@acme.example"},
		{"+x@acme.example", "+x@acme.example"},
		{"support", ""},
		{"a b@acme.example", ""},
		{"@acme.example", ""},
		{"", ""},
	} {
		if got := Canonical(tt.in); got != tt.want {
			t.Errorf("Canonical(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzParseRaw(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		r := channeltest.Load(f, file)
		f.Add(r.Body, "ana@client.example")
	}
	f.Add([]byte("From: a@b\nContent-Type: multipart/mixed; boundary=\"\"\n\n--\n\n----\n"), "")
	f.Add([]byte("From: a@b\nContent-Type: text/html\n\n<p>a<blockquote type=cite><a href='javascript:x'><img src=cid:x>"), "")
	f.Add([]byte("From: a@b\nContent-Type: text/html; charset=utf-7\n\n+ADw-script+AD4-"), "")
	p := testParser()
	f.Fuzz(func(t *testing.T, raw []byte, from string) {
		m, err := p.ParseRaw(raw, Envelope{From: from, HasFrom: true, Recipient: "support@acme.example", Received: received(), Reply: from})
		if err != nil {
			if len(bytes.TrimSpace(raw)) > 0 {
				t.Errorf("ParseRaw(): %v", err)
			}
			return
		}
		check(t, m)
	})
}

func FuzzRaw(f *testing.F)    { fuzzStyle(f, NewRaw(Config{}), "testdata/*.txtar") }
func FuzzForm(f *testing.F)   { fuzzStyle(f, NewForm(Config{}), "testdata/form/*.txtar") }
func FuzzParsed(f *testing.F) { fuzzStyle(f, NewParsed(Config{}), "testdata/parse/*.txtar") }
func FuzzJSON(f *testing.F)   { fuzzStyle(f, NewJSON(Config{}), "testdata/json/*.txtar") }

// fuzzStyle parses requests in every wrapping of a style.
func fuzzStyle(f *testing.F, a channel.Adapter, pattern string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, file := range files {
		r := channeltest.Load(f, file)
		f.Add(r.Header.Get("Content-Type"), r.Body)
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		r := &channel.Request{URL: "https://help.example/x?to=support@acme.example", Header: http.Header{"Content-Type": {contentType}}, Body: body, Received: received()}
		a.(channel.Recognizer).Recognizes(r)
		a.Verify(r, "key")
		if tokened, ok := a.(channel.ReplayTokenReader); ok {
			tokened.ReplayToken(r)
		}
		addresses, err := a.Addresses(r)
		for _, s := range addresses {
			if s != Canonical(s) || s == "" {
				t.Errorf("address %q is not canonical", s)
			}
		}
		parts, splitErr := a.Split(r)
		if err != nil && splitErr == nil {
			t.Errorf("Split() takes what Addresses() refuses: %v", err)
		}
		for i, p := range parts {
			if p.Key == "" || len(p.Key) > 512 || len(p.Sender) > 512 || channeltest.Storable(p.Key) != nil || channeltest.Storable(p.Sender) != nil {
				t.Errorf("part %+v does not fit an index", p)
			}
			if i > 0 {
				continue
			}
			e, err := a.Parse(r, p)
			if err != nil {
				t.Errorf("Parse() of a part that Split() made: %v", err)
				continue
			}
			check(t, e.Message)
		}
	})
}

// BenchmarkSplit measures the adapter's share of answering a request with a mail of 1 MB,
// BenchmarkParse the worker's.
func BenchmarkSplit(b *testing.B) {
	a, r := NewRaw(Config{}), bigMail()
	b.SetBytes(int64(len(r.Body)))
	for b.Loop() {
		if _, err := a.Addresses(r); err != nil {
			b.Fatal(err)
		}
		if _, err := a.Split(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	a, r := NewRaw(Config{}), bigMail()
	b.SetBytes(int64(len(r.Body)))
	for b.Loop() {
		if _, err := a.Parse(r, channel.Part{Address: "support@acme.example"}); err != nil {
			b.Fatal(err)
		}
	}
}

func bigMail() *channel.Request {
	file := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("picture "), 90_000))
	body := "Message-ID: <a@b>\nFrom: ana@client.example\nSubject: Lamp\nContent-Type: multipart/mixed; boundary=b\n\n" +
		"--b\nContent-Type: multipart/alternative; boundary=c\n\n" +
		"--c\nContent-Type: text/plain\n\n" + strings.Repeat("The lamp is broken, please help me with it.\n", 100) +
		"--c\nContent-Type: text/html\n\n" + strings.Repeat("<p style='color:red'>The lamp is <b>broken</b>.</p>\n", 100) + "--c--\n" +
		"--b\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\n" + file + "\n--b--\n"
	return &channel.Request{Header: http.Header{"Content-Type": {"message/rfc822"}, "X-Envelope-To": {"support@acme.example"}}, Body: []byte(body), Received: received()}
}
