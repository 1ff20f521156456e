package email

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

// The limits of one message. What lies beyond them is not parsed; the original
// then goes along as an attachment, so nothing is lost.
const (
	maxParts       = 200
	maxDepth       = 20
	maxAttachments = 50
	maxText        = 1 << 20
	maxHeader      = 256 << 10 // bytes of one header block
	maxField       = 4 << 10   // bytes of a header field with parameters
	maxEncoded     = 4 << 20   // bytes of a text part before it is decoded
)

// node is one part of a message: a container with children, or a leaf with its
// body, not yet decoded.
//
// The tree is built here rather than by enmime, which reads every byte of a part
// once for each level above it and has no limits. Its tolerant readers of header
// blocks, media types and charsets do the rest.
type node struct {
	header      textproto.MIMEHeader
	kind        string            // media type in lower case
	params      map[string]string // of the media type
	disposition string            // "attachment", "inline" or what the sender wrote
	name        string            // file name, decoded; empty when there is none
	id          string            // Content-ID without brackets
	body        []byte
	children    []*node
}

func (n *node) multipart() bool { return strings.HasPrefix(n.kind, "multipart/") }

// walk calls f for every node, parents first.
func (n *node) walk(f func(*node)) {
	f(n)
	for _, c := range n.children {
		c.walk(f)
	}
}

// find returns the first node of one of the kinds, or nil.
func (n *node) find(kinds ...string) *node {
	var found *node
	n.walk(func(m *node) {
		if found == nil && slices.Contains(kinds, m.kind) {
			found = m
		}
	})
	return found
}

// splitter builds the tree of one message within the limits.
type splitter struct {
	parts   int
	limited bool // something was left out
}

// message splits raw, a whole message. It reports false when raw has no header
// that a mail would have.
func (s *splitter) message(raw []byte) (*node, bool) {
	n := s.split(unixLines(trimMessage(raw)), 0, "text/plain")
	for _, name := range []string{"From", "To", "Subject", "Date", "Message-Id", "Received", "Return-Path", "Delivered-To", "Reply-To", "Sender", "Content-Type", "Mime-Version"} {
		if n.header.Get(name) != "" {
			return n, true
		}
	}
	return n, false
}

// trimMessage drops what may stand before the first header: a byte order mark,
// blank lines, the separator of a mailbox file.
func trimMessage(raw []byte) []byte {
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	raw = bytes.TrimLeft(raw, "\r\n")
	line, rest, ok := bytes.Cut(raw, []byte("\n"))
	if ok && (bytes.HasPrefix(line, []byte("From ")) || bytes.HasPrefix(line, []byte(">From "))) {
		return rest
	}
	return raw
}

// unixLines mends a message whose lines end with nothing but CR.
func unixLines(raw []byte) []byte {
	if bytes.Contains(raw, []byte("\n")) {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte("\r"), []byte("\n"))
}

func (s *splitter) split(raw []byte, depth int, fallback string) *node {
	s.parts++
	head, body, whole := cutHeader(raw)
	s.limited = s.limited || !whole
	n := &node{header: readHeader(head), body: body}
	n.kind, n.params = mediaType(n.header.Get("Content-Type"))
	if n.kind == "" {
		n.kind = fallback
	}
	disposition, params := mediaType(n.header.Get("Content-Disposition"))
	n.disposition = disposition
	for _, v := range []string{params["filename"], n.params["name"], n.params["file"]} {
		if v != "" {
			n.name = fileName(headerText(v))
			break
		}
	}
	n.id = bracketless(n.header.Get("Content-Id"))
	if !n.multipart() {
		return n
	}
	if depth == maxDepth {
		s.limited = true
		n.kind = "application/octet-stream"
		return n
	}
	boundary := n.params["boundary"]
	if boundary == "" {
		boundary = firstBoundary(body)
	}
	childKind := "text/plain"
	if n.kind == "multipart/digest" {
		childKind = "message/rfc822"
	}
	for part := range sections(body, boundary) {
		if s.parts == maxParts {
			s.limited = true
			break
		}
		n.children = append(n.children, s.split(part, depth+1, childKind))
	}
	switch {
	case n.children != nil:
		n.body = nil
	case boundary != "" && bytes.Contains(body, []byte("--"+boundary)):
		n.kind, n.body = "text/plain", nil // an empty container
	default:
		n.kind = "text/plain" // none at all: its body is text
	}
	return n
}

// cutHeader cuts raw at the first blank line. It reports false when the header
// is longer than the limit and was cut there instead.
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
			if len(raw) > maxHeader {
				return raw[:maxHeader], raw[maxHeader:], false
			}
			return raw, nil, true
		}
		i += j + 1
		if i > maxHeader {
			return raw[:maxHeader], raw[maxHeader:], false
		}
		switch rest := raw[i:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return raw[:i], rest[1:], true
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return raw[:i], rest[2:], true
		}
	}
}

// readHeader reads a header block. Lines that are none are dropped; values are
// as they came, unfolded.
func readHeader(head []byte) textproto.MIMEHeader {
	h, _ := enmime.ReadHeader(bufio.NewReader(bytes.NewReader(head)), complaints{}) // what was read before an error counts
	if h == nil {
		h = textproto.MIMEHeader{}
	}
	return h
}

// complaints takes enmime's remarks on a header: every mail has some.
type complaints struct{}

func (complaints) AddError(string, string, ...any)   {}
func (complaints) AddWarning(string, string, ...any) {}

// mediaType reads a Content-Type or Content-Disposition. The type is empty when
// there is none, and a guess when it cannot be read.
func mediaType(v string) (string, map[string]string) {
	if len(v) > maxField { // the tolerant parser takes quadratic time
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
	if !cleanToken(kind) {
		kind = "application/octet-stream"
	}
	return kind, params
}

func cleanToken(kind string) bool {
	return len(kind) < 128 && !strings.ContainsFunc(kind, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),:;<=>?@[\]`, r)
	})
}

// firstBoundary guesses the boundary of a multipart that names none.
func firstBoundary(body []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimLeft(body, "\r\n"), []byte("\n"))
	line = bytes.TrimRight(line, " \t\r")
	if b, ok := bytes.CutPrefix(line, []byte("--")); ok && len(b) > 0 && len(b) <= 200 {
		return string(b)
	}
	return ""
}

// sections yields what stands between the delimiter lines of body. Text before
// the first and after the closing one is not part of the message; a missing
// closing one is forgiven.
func sections(body []byte, boundary string) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if boundary == "" {
			return
		}
		delimiter := []byte("--" + boundary)
		start := -1 // of the open section
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
				continue // a longer boundary that begins with ours
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

// trimNewline drops the line end before a delimiter, which belongs to it.
func trimNewline(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return bytes.TrimSuffix(b, []byte("\r"))
}

// data decodes the transfer encoding of a leaf.
func (n *node) data() []byte {
	return transferDecode(n.header.Get("Content-Transfer-Encoding"), n.body)
}

func transferDecode(encoding string, body []byte) []byte {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "base64":
		return decodeBase64(body)
	case "quoted-printable":
		return decodeQuoted(body)
	}
	return body
}

// decodeBase64 decodes what is base64 in b and drops everything else.
func decodeBase64(b []byte) []byte {
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
		case c == '=': // the end of one of several joined encodings
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

// isBase64 reports whether hardly anything in b is not base64. Words have blanks
// between them.
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

// decodeQuoted decodes quoted-printable; what is not an escape stands for itself.
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

// text decodes a text leaf to at most maxText bytes of clean UTF-8 with bare line
// feeds. It reports false when it had to cut.
func (n *node) text() (string, bool) {
	body, whole := n.body, true
	if len(body) > maxEncoded {
		body, whole = body[:maxEncoded], false
	}
	encoding := n.header.Get("Content-Transfer-Encoding")
	if strings.EqualFold(strings.TrimSpace(encoding), "base64") && !isBase64(body) {
		encoding = "" // some label text so and then do not encode it
	}
	data := transferDecode(encoding, body)
	text := safehtml.Clean(decodeCharset(data, n.params["charset"], n.kind))
	if cut := clip(text, maxText); len(cut) < len(text) {
		text, whole = cut, false
	}
	return text, whole
}

// clip cuts text to at most n bytes, between runes.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// decodeCharset turns data into UTF-8 as far as its label allows. Labels lie: a
// text that is valid UTF-8 is UTF-8 whatever single-byte set it names, and one
// that is not is something else, to be guessed.
func decodeCharset(data []byte, label, kind string) string {
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
		label = "windows-1252" // which is what everybody means
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

// unused matches the control characters that appear where letters of another set
// were decoded as Latin-1.
func unused(r rune) bool { return r >= 0x80 && r < 0xa0 }

// convert lets enmime decode data from the labelled charset, or from the one it
// detects when label is empty.
func convert(data []byte, label string) (string, bool) {
	if label != "" && !cleanToken(label) {
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

// headerText decodes a header value to one clean line.
func headerText(v string) string {
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

// fileName makes a sender's file name safe to show and to offer for saving.
func fileName(s string) string {
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
		s = clip(s, 200-len(ext)) + ext
	}
	return s
}

// bracketless returns an id without its angle brackets, clean enough to store.
func bracketless(v string) string {
	v = strings.TrimSpace(headerText(v))
	v = strings.TrimSuffix(strings.TrimPrefix(v, "<"), ">")
	return clip(v, maxID)
}
