package mail

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"
)

func TestComposeGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble's time is 2000-01-01
		raw, err := Compose(Message{
			From:      Address{Name: "Kickstand", Address: "desk@rentals.example"},
			To:        []Address{{Name: "Müller, Jürgen", Address: "rider@bücher.example"}},
			Cc:        []Address{{Address: "c@example.com"}},
			ReplyTo:   Address{Address: "replies@rentals.example"},
			Subject:   "Your bike",
			Text:      "Grüße",
			MessageID: "<1@rentals.example>",
			Headers: []Header{
				{"References", "<0123456789012345678901234567890123456789@example.com> <2@example.com>  <3@example.com>"},
				{"Auto-Submitted", "auto-replied"},
				{"X-Note", "für Sie"},
				{"X-Note", "again"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(`References: <0123456789012345678901234567890123456789@example.com>
 <2@example.com> <3@example.com>
Auto-Submitted: auto-replied
X-Note: =?UTF-8?B?ZsO8ciBTaWU=?=
X-Note: again
Date: Sat, 01 Jan 2000 00:00:00 +0000
MIME-Version: 1.0
Message-ID: <1@rentals.example>
Subject: Your bike
From: "Kickstand" <desk@rentals.example>
To: =?utf-8?b?TcO8bGxlciwgSsO8cmdlbg==?= <rider@xn--bcher-kva.example>
Cc: <c@example.com>
Reply-To: <replies@rentals.example>
Content-Transfer-Encoding: quoted-printable
Content-Type: text/plain; charset=UTF-8

Gr=C3=BC=C3=9Fe`, "\n", "\r\n")
		if string(raw) != want {
			t.Errorf("Compose gave\n%s\nwant\n%s", raw, want)
		}
	})
}

func TestComposeStructure(t *testing.T) {
	pdf := Attachment{Name: "a.pdf", ContentType: "application/pdf", Content: []byte("%PDF")}
	tests := []struct {
		name    string
		message Message
		want    []string // content types, depth first
	}{
		{"nothing", Message{}, []string{"text/plain"}},
		{"text", Message{Text: "a"}, []string{"text/plain"}},
		{"html", Message{HTML: "a"}, []string{"text/html"}},
		{"both", Message{Text: "a", HTML: "b"}, []string{"multipart/alternative", "text/plain", "text/html"}},
		{"attachment alone", Message{Attachments: []Attachment{pdf}}, []string{"multipart/mixed", "text/plain", "application/pdf"}},
		{
			"all", Message{Text: "a", HTML: "b", Attachments: []Attachment{pdf, pdf}},
			[]string{"multipart/mixed", "multipart/alternative", "text/plain", "text/html", "application/pdf", "application/pdf"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.message.From = Address{Address: "a@example.com"}
			tt.message.To = []Address{{Address: "b@example.com"}}
			raw, err := Compose(tt.message)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range parse(t, raw).parts {
				got = append(got, p.media)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("parts are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestComposeAttachment(t *testing.T) {
	long := strings.Repeat("ü", 300)
	tests := []struct {
		name, contentType   string
		wantName, wantMedia string
	}{
		{"a.pdf", "application/pdf", "a.pdf", "application/pdf"},
		{"", "", "attachment", "application/octet-stream"},
		{`a "quoted" name.txt`, "text/plain; charset=latin1", `a "quoted" name.txt`, "text/plain"},
		{"../../etc/passwd", "text/plain", "passwd", "text/plain"},
		{`C:\Users\me\a.txt`, "text/plain", "a.txt", "text/plain"},
		{"..", "nonsense", "attachment", "application/octet-stream"},
		{"a.txt", "text/plain; charset=a; charset=b", "a.txt", "application/octet-stream"},
		{"a.txt", "text/plain; name=a b", "a.txt", "text/plain"},
		{"mail.eml", "message/rfc822", "mail.eml", "application/octet-stream"},
		{"a\tb\x7f.txt", "multipart/mixed; boundary=x", "a_b_.txt", "application/octet-stream"},
		{"bad\xff.txt", "text/plain", "bad_.txt", "text/plain"},
		{long + ".pdf", "application/pdf", strings.Repeat("ü", 98) + ".pdf", "application/pdf"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw, err := Compose(Message{
				From:        Address{Address: "a@example.com"},
				To:          []Address{{Address: "b@example.com"}},
				Attachments: []Attachment{{tt.name, tt.contentType, []byte("\x00\r\n.\r\ncontent"), ""}},
			})
			if err != nil {
				t.Fatal(err)
			}
			parts := parse(t, raw).parts
			got := parts[len(parts)-1]
			if got.fileName != tt.wantName || got.media != tt.wantMedia || got.body != "\x00\r\n.\r\ncontent" {
				t.Errorf("attachment is %q, %q, %q; want %q, %q and its content", got.fileName, got.media, got.body, tt.wantName, tt.wantMedia)
			}
			checkLines(t, raw, false)
		})
	}
}

func TestMessageIDIsMadeUnderTheSenderDomain(t *testing.T) {
	m := Message{From: Address{Address: "a@example.com"}, To: []Address{{Address: "b@example.org"}}}
	var ids []string
	for range 2 {
		raw, err := Compose(m)
		if err != nil {
			t.Fatal(err)
		}
		id := parse(t, raw).header.Get("Message-Id")
		if !strings.HasPrefix(id, "<") || !strings.HasSuffix(id, "@example.com>") || len(id) < 30 {
			t.Errorf("message id is %q, want <random@example.com>", id)
		}
		ids = append(ids, id)
	}
	if ids[0] == ids[1] {
		t.Errorf("two messages have the id %s", ids[0])
	}
}

func TestEnvelope(t *testing.T) {
	tests := []struct {
		name    string
		message Message
		want    envelope
	}{
		{
			"each recipient once",
			Message{From: Address{Address: "a@example.com"}, To: []Address{{Address: "b@example.com"}, {Name: "B", Address: "b@example.com"}}, Cc: []Address{{Address: "b@example.com"}}},
			envelope{from: "<a@example.com>", to: []string{"<b@example.com>"}},
		},
		{
			"null sender",
			Message{From: Address{Address: "a@example.com"}, To: []Address{{Address: "b@example.com"}}, EnvelopeFrom: "<>"},
			envelope{from: "<>", to: []string{"<b@example.com>"}},
		},
		{
			"international domain",
			Message{From: Address{Address: "a@example.com"}, To: []Address{{Address: "b@bücher.example"}}},
			envelope{from: "<a@example.com>", to: []string{"<b@xn--bcher-kva.example>"}},
		},
		{
			"international local part",
			Message{From: Address{Address: "a@example.com"}, To: []Address{{Address: "jürgen@example.com"}}},
			envelope{from: "<a@example.com>", to: []string{"<jürgen@example.com>"}, utf8: true},
		},
		{
			"quoted local part",
			Message{From: Address{Address: "a@example.com"}, To: []Address{{Address: "a..b.@example.com"}}},
			envelope{from: "<a@example.com>", to: []string{`<"a..b."@example.com>`}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := compose(tt.message)
			if err != nil {
				t.Fatal(err)
			}
			if got.from != tt.want.from || !slices.Equal(got.to, tt.want.to) || got.utf8 != tt.want.utf8 {
				t.Errorf("envelope is %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestParseAddress(t *testing.T) {
	tests := []struct {
		in   string
		want Address
		err  string
	}{
		{"Kickstand <no-reply@localhost>", Address{Name: "Kickstand", Address: "no-reply@localhost"}, ""},
		{"a@bücher.example", Address{Address: "a@xn--bcher-kva.example"}, ""},
		{"=?utf-8?q?F=C3=BCr?= <a@b.example>", Address{Name: "Für", Address: "a@b.example"}, ""},
		{"=?utf-8?q?A=0D=0ABcc?= <a@b.example>", Address{}, "line break"},
		{"", Address{}, "no address"},
		{"nobody", Address{}, "missing '@'"},
		{"a@b, c@d", Address{}, "expected single address"},
	}
	for _, tt := range tests {
		got, err := ParseAddress(tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("ParseAddress(%q) = %+v, %v; want %+v and an error about %q", tt.in, got, err, tt.want, tt.err)
		}
	}
}

// FuzzCompose: any input is refused, or composed into a message that parses to the same values,
// without another header, recipient or part.
func FuzzCompose(f *testing.F) {
	f.Add("A", "a@example.com", "B", "b@example.com", "Hello", "text", "<p>html</p>", "X-Note", "value", "<1@example.com>", "a.pdf", "application/pdf")
	f.Add("Ä", "ä@bücher.example", "\r\nBcc: x@y", "b@example.com", "a\nb", "", "", "Subject", "a\r\n b", "", "", "")
	f.Add("=?utf-8?q?a?=", "\"a b\"@x", "\"", "b@[1.2.3.4]", "=?utf-8?q?=0D=0A?=", "\r.\n", "\x00", "x", strings.Repeat("long ", 300), "", "\"", "text/plain; a=b")
	f.Add(strings.Repeat("n", 999), "a@b", strings.Repeat("ü ", 99), "a>b@c", strings.Repeat("s", 2000), "a", "b", "Content-ID", "a", "a@b@c", "../a", "message/rfc822")
	f.Add("A", "a@example.com", "*\\ѻB", "b@example.com", "Hello", "text", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, fromName, from, toName, to, subject, text, html, headerName, headerValue, id, fileName, contentType string) {
		m := Message{
			From: Address{Name: fromName, Address: from}, To: []Address{{Name: toName, Address: to}},
			Subject: subject, Text: text, HTML: html, MessageID: id,
		}
		if headerName != "" {
			m.Headers = []Header{{headerName, headerValue}}
		}
		if fileName != "" {
			m.Attachments = []Attachment{{fileName, contentType, []byte(text), ""}}
		}
		env, raw, err := compose(m)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Op != OpCompose || e.Temporary {
				t.Fatalf("refused with %#v", err)
			}
			return
		}
		checkLines(t, raw, env.utf8)
		for _, addr := range append(env.to, env.from) {
			if strings.Count(addr, ">") != 1 || strings.Count(addr, "@") != 1 || strings.ContainsAny(addr, " ,\r\n\x00") {
				t.Errorf("envelope has %q", addr)
			}
		}
		got := parse(t, raw)

		want := []string{"Content-Type", "Date", "From", "Message-Id", "Mime-Version", "To"}
		if len(got.parts) == 1 {
			want = append(want, "Content-Transfer-Encoding")
		}
		if subject != "" {
			want = append(want, "Subject")
		}
		for _, h := range m.Headers {
			// The reader's spelling of the name.
			if found := got.header[textproto.CanonicalMIMEHeaderKey(h.Name)]; len(found) != 1 {
				t.Errorf("header %q was read as %q", h.Name, found)
			}
			want = append(want, textproto.CanonicalMIMEHeaderKey(h.Name))
		}
		var names []string
		for name, values := range got.header {
			names = append(names, name)
			if len(values) != 1 {
				t.Errorf("header %s was read %d times", name, len(values))
			}
		}
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("headers are %q, want %q", names, want)
		}

		if s := decode(t, got.header.Get("Subject")); s != strings.ToValidUTF8(subject, "\uFFFD") {
			t.Errorf("subject was read as %q, want %q", s, subject)
		}
		if list, err := got.header.AddressList("To"); err != nil || len(list) != 1 || bracket(list[0].Address) != env.to[0] {
			t.Errorf("To was read as %v, error %v; want %s", list, err, env.to[0])
		} else if name := truncate(strings.Join(strings.Fields(strings.ToValidUTF8(toName, "\uFFFD")), " "), 200); list[0].Name != name &&
			(isASCII(name) || list[0].Name != strings.ReplaceAll(name, `\`, "/")) {
			t.Errorf("name in To was read as %q, want %q", list[0].Name, name)
		}

		var bodies []string
		if text != "" || html == "" {
			bodies = append(bodies, lines(text))
		}
		if html != "" {
			bodies = append(bodies, lines(html))
		}
		if fileName != "" {
			bodies = append(bodies, text) // attachments keep every byte
		}
		var read []string
		for _, p := range got.parts {
			switch {
			case strings.HasPrefix(p.media, "multipart/"):
			case p.fileName != "":
				read = append(read, p.body)
			default:
				read = append(read, lines(p.body))
			}
		}
		if !slices.Equal(read, bodies) {
			t.Errorf("bodies were read as %q, want %q", read, bodies)
		}
	})
}

type parsed struct {
	header netmail.Header
	parts  []part // depth first
}

type part struct {
	media, fileName, body string
}

// parse parses a message with the standard library alone.
func parse(t *testing.T, raw []byte) parsed {
	t.Helper()
	msg, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("net/mail cannot read the message: %v\n%q", err, raw)
	}
	p := parsed{header: msg.Header}
	var walk func(header func(string) string, body io.Reader)
	walk = func(header func(string) string, body io.Reader) {
		media, params, err := mime.ParseMediaType(header("Content-Type"))
		if err != nil {
			t.Fatalf("content type %q: %v", header("Content-Type"), err)
		}
		if header("Content-Transfer-Encoding") == "quoted-printable" {
			body = quotedprintable.NewReader(body)
		}
		if strings.HasPrefix(media, "multipart/") {
			p.parts = append(p.parts, part{media: media})
			r := multipart.NewReader(body, params["boundary"])
			for {
				next, err := r.NextRawPart()
				if err == io.EOF {
					return
				}
				if err != nil {
					t.Fatalf("read part: %v\n%q", err, raw)
				}
				walk(next.Header.Get, next)
			}
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Fatalf("read %s: %v", media, err)
		}
		found := part{media: media, body: string(content)}
		if header("Content-Transfer-Encoding") == "base64" {
			found.body = decodeBase64(t, content)
		}
		if d := header("Content-Disposition"); d != "" {
			_, params, err := mime.ParseMediaType(d)
			if err != nil {
				t.Fatalf("disposition %q: %v", d, err)
			}
			found.fileName = params["filename"]
		}
		p.parts = append(p.parts, found)
	}
	walk(msg.Header.Get, msg.Body)
	return p
}

func checkLines(t *testing.T, raw []byte, international bool) {
	t.Helper()
	rest := string(raw)
	for rest != "" {
		line, after, _ := strings.Cut(rest, "\r\n")
		rest = after
		if strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("line %q has a bare line break or NUL", line)
		}
		if len(line) > 998 {
			t.Errorf("line of %d bytes: %.100q…", len(line), line)
		}
		if !isASCII(line) && !international {
			t.Errorf("line %q is not ASCII", line)
		}
	}
	if international && !utf8.Valid(raw) {
		t.Errorf("message is not UTF-8: %q", raw)
	}
}

func decode(t *testing.T, header string) string {
	t.Helper()
	s, err := new(mime.WordDecoder).DecodeHeader(header)
	if err != nil {
		t.Fatalf("decode header %q: %v", header, err)
	}
	return s
}

func decodeBase64(t *testing.T, content []byte) string {
	t.Helper()
	b, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(content)))
	if err != nil {
		t.Fatalf("decode %q: %v", content, err)
	}
	return string(b)
}

// lines normalizes line ends.
func lines(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
}
