// Package mailparse reads mail as it is, not as the standards have it: the tree of its parts, texts,
// names and addresses.
//
// No input is an error. Malformed headers, encodings and charsets are read as most mail programs read
// them; text that nothing can decode is guessed. Limits bound the work and the memory for one
// message, and the caller learns that content is missing.
package mailparse

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"mime"
	"net/textproto"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/safehtml"

	"github.com/jhillyerd/enmime/v2"
	"github.com/jhillyerd/enmime/v2/mediatype"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding/charmap"
)

// The limits of one message. Content beyond them is not parsed; the original is then attached,
// so nothing is lost.
const (
	maxParts       = 200
	maxDepth       = 20
	MaxAttachments = 50
	MaxText        = 1 << 20
	MaxHeader      = 256 << 10 // bytes of one header block
	maxField       = 4 << 10   // bytes of a header field with parameters
	maxEncoded     = 4 << 20   // bytes of a text part before decoding
)

// Part is one part of a message: a container with children, or a leaf with its undecoded body.
//
// The tree is built here rather than by enmime, which reads every byte of a part once per level
// above it and has no limits. Its tolerant readers of header blocks, media types and charsets
// are used.
type Part struct {
	Header      textproto.MIMEHeader
	Kind        string            // media type in lower case
	Params      map[string]string // of the media type
	Disposition string            // "attachment", "inline" or the sender's value
	Name        string            // decoded file name; may be empty
	ID          string            // Content-ID without brackets
	body        []byte
	Children    []*Part
}

func (n *Part) multipart() bool { return strings.HasPrefix(n.Kind, "multipart/") }

// Walk calls f for every node, parents first.
func (n *Part) Walk(f func(*Part)) {
	f(n)
	for _, c := range n.Children {
		c.Walk(f)
	}
}

// Find returns the first node of one of the kinds, or nil.
func (n *Part) Find(kinds ...string) *Part {
	var found *Part
	n.Walk(func(m *Part) {
		if found == nil && slices.Contains(kinds, m.Kind) {
			found = m
		}
	})
	return found
}

// splitter builds the tree of one message within the limits.
type splitter struct {
	parts   int
	limited bool // truncated
}

// Parse parses a whole message. If raw has no mail header, mail is false and root is a text
// with all of raw. If content beyond the limits is missing, whole is false.
func Parse(raw []byte) (root *Part, mail, whole bool) {
	var s splitter
	root = s.split(unixLines(trimMessage(raw)), 0, "text/plain")
	for _, name := range []string{"From", "To", "Subject", "Date", "Message-Id", "Received", "Return-Path", "Delivered-To", "Reply-To", "Sender", "Content-Type", "Mime-Version"} {
		if root.Header.Get(name) != "" {
			return root, true, !s.limited
		}
	}
	return &Part{Header: textproto.MIMEHeader{}, Kind: "text/plain", body: raw}, false, false
}

// Split splits a message into its header block and its body. Data before the header is
// removed, line ends are not changed unless they are bare CR.
func Split(raw []byte) (head, body []byte) {
	head, body, _ = cutHeader(unixLines(trimMessage(raw)))
	return head, body
}

// Header parses the header of a message.
func Header(raw []byte) textproto.MIMEHeader {
	head, _ := Split(raw)
	return readHeader(head)
}

// trimMessage removes leading data before the header: a byte order mark, blank lines, the
// separator of a mailbox file.
func trimMessage(raw []byte) []byte {
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	raw = bytes.TrimLeft(raw, "\r\n")
	line, rest, ok := bytes.Cut(raw, []byte("\n"))
	if ok && (bytes.HasPrefix(line, []byte("From ")) || bytes.HasPrefix(line, []byte(">From "))) {
		return rest
	}
	return raw
}

// unixLines converts bare CR line ends.
func unixLines(raw []byte) []byte {
	if bytes.Contains(raw, []byte("\n")) {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte("\r"), []byte("\n"))
}

func (s *splitter) split(raw []byte, depth int, fallback string) *Part {
	s.parts++
	head, body, whole := cutHeader(raw)
	s.limited = s.limited || !whole
	n := &Part{Header: readHeader(head), body: body}
	n.Kind, n.Params = MediaType(n.Header.Get("Content-Type"))
	if n.Kind == "" {
		n.Kind = fallback
	}
	disposition, params := MediaType(n.Header.Get("Content-Disposition"))
	n.Disposition = disposition
	for _, v := range []string{params["filename"], n.Params["name"], n.Params["file"]} {
		if v != "" {
			n.Name = FileName(Text(v))
			break
		}
	}
	n.ID = ID(n.Header.Get("Content-Id"))
	if !n.multipart() {
		return n
	}
	if depth == maxDepth {
		s.limited = true
		n.Kind = "application/octet-stream"
		return n
	}
	boundary := n.Params["boundary"]
	if boundary == "" {
		boundary = firstBoundary(body)
	}
	childKind := "text/plain"
	if n.Kind == "multipart/digest" {
		childKind = "message/rfc822"
	}
	for part := range sections(body, boundary) {
		if s.parts == maxParts {
			s.limited = true
			break
		}
		n.Children = append(n.Children, s.split(part, depth+1, childKind))
	}
	switch {
	case n.Children != nil:
		n.body = nil
	case boundary != "" && bytes.Contains(body, []byte("--"+boundary)):
		n.Kind, n.body = "text/plain", nil // an empty container
	default:
		n.Kind = "text/plain" // no boundary: its body is text
	}
	return n
}

// cutHeader splits raw at the first blank line. It returns false if the header exceeds the
// limit and is truncated.
func cutHeader(raw []byte) (head, body []byte, whole bool) {
	switch {
	case bytes.HasPrefix(raw, []byte("\n")):
		return nil, raw[1:], true
	case bytes.HasPrefix(raw, []byte("\r\n")):
		return nil, raw[2:], true
	}
	for i := 0; ; {
		j := bytes.IndexByte(raw[i:], '\n')
		if j < 0 {
			if len(raw) > MaxHeader {
				return raw[:MaxHeader], raw[MaxHeader:], false
			}
			return raw, nil, true
		}
		i += j + 1
		if i > MaxHeader {
			return raw[:MaxHeader], raw[MaxHeader:], false
		}
		switch rest := raw[i:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return raw[:i], rest[1:], true
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return raw[:i], rest[2:], true
		}
	}
}

// readHeader parses a header block. Invalid lines are dropped; values are raw and unfolded.
func readHeader(head []byte) textproto.MIMEHeader {
	h, _ := enmime.ReadHeader(bufio.NewReader(bytes.NewReader(head)), complaints{}) // fields before an error count
	if h == nil {
		h = textproto.MIMEHeader{}
	}
	return h
}

// complaints discards enmime's warnings: every mail has some.
type complaints struct{}

func (complaints) AddError(string, string, ...any)   {}
func (complaints) AddWarning(string, string, ...any) {}

// MediaType parses a Content-Type or Content-Disposition. The type is empty if absent, and
// guessed if malformed.
func MediaType(v string) (string, map[string]string) {
	if len(v) > maxField { // the tolerant parser needs quadratic time
		v = v[:maxField]
	}
	if strings.TrimSpace(v) == "" {
		return "", nil
	}
	kind, params, _, err := mediatype.Parse(v)
	if err != nil {
		first, _, _ := strings.Cut(v, ";")
		kind = strings.ToLower(strings.TrimSpace(first))
		if strings.HasPrefix(kind, "text/html") {
			kind = "text/html"
		} else if strings.HasPrefix(kind, "text/") {
			kind = "text/plain"
		}
	}
	if !ValidToken(kind) {
		kind = "application/octet-stream"
	}
	return kind, params
}

// ValidToken reports whether a media type or charset can be written without quotes.
func ValidToken(kind string) bool {
	return len(kind) < 128 && !strings.ContainsFunc(kind, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),:;<=>?@[\]`, r)
	})
}

// firstBoundary guesses the boundary of a multipart without one.
func firstBoundary(body []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimLeft(body, "\r\n"), []byte("\n"))
	line = bytes.TrimRight(line, " \t\r")
	if b, ok := bytes.CutPrefix(line, []byte("--")); ok && len(b) > 0 && len(b) <= 200 {
		return string(b)
	}
	return ""
}

// sections yields the sections between the delimiter lines of body. It skips the preamble and
// the epilogue and tolerates a missing closing delimiter.
func sections(body []byte, boundary string) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if boundary == "" {
			return
		}
		delimiter := []byte("--" + boundary)
		start := -1 // start of the open section
		for i := 0; ; {
			j := bytes.Index(body[i:], delimiter)
			if j < 0 {
				break
			}
			at := i + j
			i = at + len(delimiter)
			if at > 0 && body[at-1] != '\n' {
				continue
			}
			end := len(body)
			if k := bytes.IndexByte(body[i:], '\n'); k >= 0 {
				end = i + k + 1
			}
			rest := bytes.TrimRight(body[i:end], " \t\r\n")
			closing := bytes.HasPrefix(rest, []byte("--"))
			if len(rest) > 0 && !closing {
				continue // a longer boundary with ours as prefix
			}
			if start >= 0 && !yield(trimNewline(body[start:at])) {
				return
			}
			if closing {
				return
			}
			start, i = end, end
		}
		if start >= 0 && start < len(body) {
			yield(body[start:])
		}
	}
}

// trimNewline removes the line end before a delimiter, which belongs to the delimiter.
func trimNewline(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return bytes.TrimSuffix(b, []byte("\r"))
}

// Data decodes the transfer encoding of a leaf.
func (n *Part) Data() []byte {
	return transferDecode(n.Header.Get("Content-Transfer-Encoding"), n.body)
}

func transferDecode(encoding string, body []byte) []byte {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "base64":
		return DecodeBase64(body)
	case "quoted-printable":
		return decodeQuoted(body)
	}
	return body
}

// DecodeBase64 decodes the base64 characters of b and drops the rest.
func DecodeBase64(b []byte) []byte {
	out := make([]byte, 0, base64.StdEncoding.DecodedLen(len(b)))
	acc, bits := uint32(0), 0
	for _, c := range b {
		var v byte
		switch {
		case c >= 'A' && c <= 'Z':
			v = c - 'A'
		case c >= 'a' && c <= 'z':
			v = c - 'a' + 26
		case c >= '0' && c <= '9':
			v = c - '0' + 52
		case c == '+':
			v = 62
		case c == '/':
			v = 63
		case c == '=': // end of one of several joined encodings
			acc, bits = 0, 0
			continue
		default:
			continue
		}
		acc = acc<<6 | uint32(v)
		bits += 6
		if bits >= 8 {
			bits -= 8
			out = append(out, byte(acc>>bits))
		}
	}
	return out
}

// isBase64 reports whether nearly all of b is base64. Ordinary text has spaces.
func isBase64(b []byte) bool {
	strange := 0
	for _, c := range b {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/', c == '=', c == '\r', c == '\n':
		default:
			strange++
		}
	}
	return strange <= len(b)/20
}

// decodeQuoted decodes quoted-printable; invalid escapes are kept literally.
func decodeQuoted(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for line := range bytes.Lines(b) {
		text := bytes.TrimRight(line, " \t\r\n")
		soft := bytes.HasSuffix(text, []byte("="))
		if soft {
			text = text[:len(text)-1]
		}
		for i := 0; i < len(text); i++ {
			if text[i] == '=' && i+2 < len(text) {
				hi, lo := unhex(text[i+1]), unhex(text[i+2])
				if hi >= 0 && lo >= 0 {
					out = append(out, byte(hi<<4|lo))
					i += 2
					continue
				}
			}
			out = append(out, text[i])
		}
		if !soft && bytes.HasSuffix(line, []byte("\n")) {
			out = append(out, '\n')
		}
	}
	return out
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// Text decodes a text leaf to at most [MaxText] bytes of clean UTF-8 with bare line feeds. It
// returns false if truncated.
func (n *Part) Text() (string, bool) {
	body, whole := n.body, true
	if len(body) > maxEncoded {
		body, whole = body[:maxEncoded], false
	}
	encoding := n.Header.Get("Content-Transfer-Encoding")
	if strings.EqualFold(strings.TrimSpace(encoding), "base64") && !isBase64(body) {
		encoding = "" // some senders label unencoded text so
	}
	data := transferDecode(encoding, body)
	text := safehtml.Clean(DecodeCharset(data, n.Params["charset"], n.Kind))
	if cut := safehtml.Clip(text, MaxText); len(cut) < len(text) {
		text, whole = cut, false
	}
	return text, whole
}

// Blocks parses the groups of header fields of a report.
func (n *Part) Blocks() []textproto.MIMEHeader {
	var list []textproto.MIMEHeader
	rest := bytes.ReplaceAll(n.Data(), []byte("\r\n"), []byte("\n"))
	for len(list) < 50 {
		rest = bytes.TrimLeft(rest, "\n")
		if len(rest) == 0 {
			break
		}
		var head []byte
		head, rest, _ = cutHeader(rest)
		if h := readHeader(head); len(h) > 0 {
			list = append(list, h)
		}
	}
	return list
}

// DecodeCharset decodes data to UTF-8 by its label. Labels may be wrong: valid UTF-8 is taken
// as UTF-8 despite a single-byte label, and invalid UTF-8 is detected.
func DecodeCharset(data []byte, label, kind string) string {
	label = strings.ToLower(strings.Trim(strings.TrimSpace(label), `"'`))
	if label == "" && kind == "text/html" {
		if _, name, certain := charset.DetermineEncoding(data[:min(len(data), 1024)], ""); certain {
			label = name
		}
	}
	stateful := strings.HasPrefix(label, "iso-2022") || strings.HasPrefix(label, "utf-16") || strings.HasPrefix(label, "utf-32") || strings.HasPrefix(label, "utf-7") || strings.HasPrefix(label, "hz-")
	if !stateful && utf8.Valid(data) {
		return string(data)
	}
	switch label {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "unknown-8bit", "x-unknown", "default", "binary":
		label = ""
	case "iso-8859-1", "iso8859-1", "latin1", "l1":
		label = "windows-1252" // the usual meaning of that label
	}
	if decoded, ok := convert(data, label); ok && !strings.ContainsFunc(decoded, unused) {
		return decoded
	}
	if decoded, ok := convert(data, ""); ok && !strings.ContainsFunc(decoded, unused) {
		return decoded
	}
	decoded, _ := charmap.Windows1252.NewDecoder().Bytes(data) // has a meaning for every byte
	return string(decoded)
}

// unused matches control characters, which indicate letters of another charset decoded as
// Latin-1.
func unused(r rune) bool { return r >= 0x80 && r < 0xa0 }

// convert decodes data with enmime from the labelled charset, or from the detected one if label
// is empty.
func convert(data []byte, label string) (string, bool) {
	if label != "" && !ValidToken(label) {
		return "", false
	}
	header := "Content-Type: text/plain\r\nContent-Transfer-Encoding: binary\r\n\r\n"
	if label != "" {
		header = "Content-Type: text/plain; charset=\"" + label + "\"\r\nContent-Transfer-Encoding: binary\r\n\r\n"
	}
	parser := enmime.NewParser(enmime.DisableCharacterDetection(label != ""), enmime.MaxStoredPartErrors(4))
	part, err := parser.ReadParts(bytes.NewReader(slices.Concat([]byte(header), data)))
	if err != nil || !utf8.Valid(part.Content) {
		return "", false
	}
	return string(part.Content), true
}

// Text decodes a header value to one clean line.
func Text(v string) string {
	words := mime.WordDecoder{CharsetReader: charset.NewReaderLabel}
	if decoded, err := words.DecodeHeader(v); err == nil {
		v = decoded
	}
	if !utf8.ValidString(v) {
		if decoded, err := charmap.Windows1252.NewDecoder().String(v); err == nil {
			v = decoded
		}
	}
	v = strings.ToValidUTF8(v, "\uFFFD")
	v = strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, v)
	return strings.TrimSpace(v)
}

// FileName makes a sender's file name safe to display and to save.
func FileName(s string) string {
	if i := strings.LastIndexAny(s, `/\`); i >= 0 {
		s = s[i+1:]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '"' {
			return -1
		}
		return r
	}, s)
	s = strings.Trim(s, " .")
	if len(s) > 200 {
		ext := ""
		if i := strings.LastIndexByte(s, '.'); i >= 0 && len(s)-i <= 20 {
			ext = s[i:]
		}
		s = safehtml.Clip(s, 200-len(ext)) + ext
	}
	return s
}

// ID returns an id without angle brackets, clean enough to store.
func ID(v string) string {
	v = strings.TrimSpace(Text(v))
	v = strings.TrimSuffix(strings.TrimPrefix(v, "<"), ">")
	return safehtml.Clip(v, MaxID)
}
