package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// receivedMessage is a message that the provider parsed into fields. It is composed into a raw
// message again, so that all mail is parsed the same way. Equal fields give equal bytes.
type receivedMessage struct {
	fields []headerField // in the order of the message
	plain  body
	html   body
	files  []file
}

// headerField is a header field with its raw value.
type headerField struct{ name, value string }

// body is the text of a message with its declared charset.
type body struct {
	data    []byte
	charset string // empty: UTF-8
}

// file is an attachment, with its data or its URL.
type file struct {
	field       string // name of its form field
	name        string
	contentType string
	contentID   string
	inline      bool
	data        []byte
	url         string // of the content, if data is empty
	missing     string // reason why there is no content
}

func (t *receivedMessage) empty() bool {
	return len(t.fields) == 0 && len(t.plain.data) == 0 && len(t.html.data) == 0 && len(t.files) == 0
}

// add adds a header field unless the value is empty.
func (t *receivedMessage) add(name, value string) {
	if strings.TrimSpace(value) != "" {
		t.fields = append(t.fields, headerField{name, value})
	}
}

// supply adds a header field unless the name exists.
func (t *receivedMessage) supply(name, value string) {
	if !t.has(name) {
		t.add(name, value)
	}
}

func (t *receivedMessage) has(name string) bool {
	for _, f := range t.fields {
		if strings.EqualFold(f.name, name) && strings.TrimSpace(f.value) != "" {
			return true
		}
	}
	return false
}

// head returns the header without the fields that describe the body's encoding.
func (t *receivedMessage) head() []byte {
	var b bytes.Buffer
	for _, f := range t.fields {
		switch strings.ToLower(f.name) {
		case "content-type", "content-transfer-encoding", "content-disposition", "mime-version":
			continue
		}
		if f.name == "" || len(f.name) > 100 || strings.ContainsFunc(f.name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, strings.NewReplacer("\r", "", "\n", " ").Replace(f.value))
	}
	return b.Bytes()
}

// kind returns the media type of the message, to preserve the report-type of a report.
func (t *receivedMessage) kind() string {
	for _, f := range t.fields {
		if !strings.EqualFold(f.name, "Content-Type") {
			continue
		}
		if kind, params := mailparse.MediaType(f.value); kind == "multipart/report" && mailparse.ValidToken(params["report-type"]) {
			return "multipart/report; report-type=" + params["report-type"]
		}
	}
	return "multipart/mixed"
}

// digest returns a digest of the whole message.
func (t *receivedMessage) digest() []byte {
	sum := sha256.New()
	add := func(data []byte) {
		fmt.Fprintf(sum, "%d ", len(data)) // a hash does not fail
		sum.Write(data)
	}
	for _, v := range [][]byte{[]byte(t.kind()), t.head(), t.plain.data, []byte(t.plain.charset), t.html.data, []byte(t.html.charset)} {
		add(v)
	}
	for _, f := range t.files {
		for _, v := range []string{f.name, f.contentType, f.contentID, f.url} {
			add([]byte(v))
		}
		add(f.data)
	}
	return sum.Sum(nil)
}

// compose returns the message without remote and missing files.
func (t *receivedMessage) compose() []byte {
	var b bytes.Buffer
	digest := hex.EncodeToString(t.digest())
	outer, inner := "outer-"+digest, "inner-"+digest // the digest occurs in no part
	b.Write(t.head())
	fmt.Fprintf(&b, "MIME-Version: 1.0\r\nContent-Type: %s; boundary=%s\r\n\r\n", t.kind(), outer)
	if len(t.plain.data) > 0 || len(t.html.data) > 0 {
		fmt.Fprintf(&b, "--%s\r\nContent-Type: multipart/alternative; boundary=%s\r\n\r\n", outer, inner)
		t.plain.compose(&b, inner, "text/plain")
		t.html.compose(&b, inner, "text/html")
		fmt.Fprintf(&b, "--%s--\r\n", inner)
	}
	for _, f := range t.files {
		if f.url == "" && f.missing == "" {
			f.compose(&b, outer)
		}
	}
	fmt.Fprintf(&b, "--%s--\r\n", outer)
	return b.Bytes()
}

func (t body) compose(b *bytes.Buffer, boundary, kind string) {
	if len(t.data) == 0 {
		return
	}
	charset := "utf-8"
	if t.charset != "" && mailparse.ValidToken(t.charset) {
		charset = t.charset
	}
	fmt.Fprintf(b, "--%s\r\nContent-Type: %s; charset=%s\r\nContent-Transfer-Encoding: 8bit\r\n\r\n", boundary, kind, charset)
	b.Write(t.data)
	b.WriteString("\r\n")
}

func (f *file) compose(b *bytes.Buffer, boundary string) {
	fmt.Fprintf(b, "--%s\r\nContent-Type: %s\r\nContent-Transfer-Encoding: base64\r\n", boundary, f.kind())
	disposition := "attachment"
	if f.inline {
		disposition = "inline"
	}
	if name := f.shown(); name != "" {
		disposition = mime.FormatMediaType(disposition, map[string]string{"filename": name})
	}
	fmt.Fprintf(b, "Content-Disposition: %s\r\n", disposition)
	if id := mailparse.ID(f.contentID); id != "" {
		fmt.Fprintf(b, "Content-ID: <%s>\r\n", id)
	}
	b.WriteString("\r\n")
	b.WriteString(base64.StdEncoding.EncodeToString(f.data))
	b.WriteString("\r\n")
}

// shown returns the file name, safe for display.
func (f *file) shown() string { return mailparse.FileName(mailparse.Text(f.name)) }

func (f *file) kind() string {
	kind, _ := mailparse.MediaType(f.contentType)
	if kind == "" || strings.HasPrefix(kind, "multipart/") {
		return "application/octet-stream"
	}
	return kind
}

// remote returns the files without content.
func (t *receivedMessage) remote() []channel.Attachment {
	var list []channel.Attachment
	for _, f := range t.files {
		if f.url != "" || f.missing != "" {
			list = append(list, channel.Attachment{
				Name: f.shown(), ContentType: f.kind(), ContentID: mailparse.ID(f.contentID), Inline: f.inline, URL: safehtml.Clean(f.url), Error: f.missing,
			})
		}
	}
	return list
}
