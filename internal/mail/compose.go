package mail

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	netmail "net/mail"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
	"golang.org/x/net/idna"
)

const (
	// MaxSize is the maximum size in bytes of a composed message. Common servers accept 25 MiB,
	// and base64 makes attachments a third larger.
	MaxSize = 25 << 20
	// MaxRecipients is the number of recipients that every SMTP server must
	// take in one transaction (RFC 5321 section 4.5.3.1.8).
	MaxRecipients = 100
)

// envelope holds the SMTP envelope. Both addresses are in angle brackets.
type envelope struct {
	from string
	to   []string
	utf8 bool // an address needs the SMTPUTF8 extension (RFC 6531)
}

// Compose returns m as an RFC 5322 message with CRLF line ends and no line
// over 998 bytes. The error is an [*Error] with OpCompose that names the field
// and the reason.
func Compose(m Message) ([]byte, error) {
	_, raw, err := compose(m)
	return raw, err
}

// ParseAddress parses "Name <user@host>" or "user@host" with the rules of sending, so that an
// invalid configured sender fails at start.
func ParseAddress(s string) (Address, error) {
	a, err := netmail.ParseAddress(s)
	if err != nil {
		return Address{}, fmt.Errorf("address %q: %w", s, err)
	}
	return checkAddress(*a)
}

// EnvelopeAddress returns an address in the form of SMTP commands and [Error.Recipient]: in
// angle brackets, with an international domain in ASCII.
func EnvelopeAddress(address string) (string, error) {
	a, err := checkAddress(Address{Address: address})
	return bracket(a.Address), err
}

func compose(m Message) (envelope, []byte, error) {
	env, raw, err := build(m)
	if err != nil {
		return envelope{}, nil, &Error{Op: OpCompose, Err: err}
	}
	return env, raw, nil
}

// Raw returns a mail in the form that servers get.
func Raw(m Message) ([]byte, error) {
	_, raw, err := compose(m)
	return raw, err
}

func build(m Message) (envelope, []byte, error) {
	from, err := checkAddress(m.From)
	if err != nil {
		return envelope{}, nil, fmt.Errorf("from: %w", err)
	}
	to, err := checkAddresses(m.To)
	if err != nil {
		return envelope{}, nil, fmt.Errorf("to: %w", err)
	}
	cc, err := checkAddresses(m.Cc)
	if err != nil {
		return envelope{}, nil, fmt.Errorf("cc: %w", err)
	}
	bcc, err := checkAddresses(m.Bcc)
	if err != nil {
		return envelope{}, nil, fmt.Errorf("bcc: %w", err)
	}
	env, err := makeEnvelope(m.EnvelopeFrom, from, slices.Concat(to, cc, bcc))
	if err != nil {
		return envelope{}, nil, err
	}
	if err := checkSize(m); err != nil {
		return envelope{}, nil, err
	}

	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&from)
	if len(to) > 0 {
		msg.ToMailAddress(to...)
	}
	if len(cc) > 0 {
		msg.CcMailAddress(cc...)
	}
	if m.ReplyTo != (Address{}) {
		replyTo, err := checkAddress(m.ReplyTo)
		if err != nil {
			return envelope{}, nil, fmt.Errorf("reply-to: %w", err)
		}
		msg.ReplyToMailAddress(&replyTo)
		env.utf8 = env.utf8 || !isASCII(replyTo.Address)
	}
	if err := checkLine(m.Subject); err != nil {
		return envelope{}, nil, fmt.Errorf("subject: %w", err)
	}
	if m.Subject != "" {
		msg.Subject(encodeText(m.Subject))
	}
	id, err := messageID(m.MessageID, from.Address)
	if err != nil {
		return envelope{}, nil, err
	}
	msg.SetMessageIDWithValue(id)

	if err := setBody(msg, m); err != nil {
		return envelope{}, nil, err
	}

	raw, err := render(msg, m.Headers)
	return env, raw, err
}

// setBody sets the texts and the files.
func setBody(msg *gomail.Msg, m Message) error {
	if m.Text != "" || m.HTML == "" {
		msg.SetBodyString(gomail.TypeTextPlain, strings.ToValidUTF8(m.Text, "\uFFFD"))
		if m.HTML != "" {
			msg.AddAlternativeString(gomail.TypeTextHTML, strings.ToValidUTF8(m.HTML, "\uFFFD"))
		}
	} else {
		msg.SetBodyString(gomail.TypeTextHTML, strings.ToValidUTF8(m.HTML, "\uFFFD"))
	}
	for i, a := range m.Attachments {
		if err := attach(msg, a); err != nil {
			return fmt.Errorf("attachment %d: %w", i+1, err)
		}
	}
	return nil
}

// render returns the message with further headers. The library stores these in a map and sorts
// them, so they go in front of its output: the headers of a message may have any order, but equal
// names keep theirs.
func render(msg *gomail.Msg, headers []Header) ([]byte, error) {
	var raw bytes.Buffer
	for _, h := range headers {
		if err := writeHeader(&raw, h); err != nil {
			return nil, fmt.Errorf("header %q: %w", h.Name, err)
		}
	}
	if _, err := msg.WriteTo(&raw); err != nil {
		return nil, err
	}
	if raw.Len() > MaxSize {
		return nil, tooLarge(raw.Len())
	}
	return raw.Bytes(), nil
}

func makeEnvelope(bounce string, from Address, rcpts []*Address) (envelope, error) {
	env := envelope{utf8: !isASCII(from.Address)}
	switch bounce {
	case "":
		env.from = bracket(from.Address)
	case "<>":
		env.from = "<>"
	default:
		a, err := checkAddress(Address{Address: bounce})
		if err != nil {
			return envelope{}, fmt.Errorf("envelope sender: %w", err)
		}
		env.from = bracket(a.Address)
		env.utf8 = env.utf8 || !isASCII(a.Address)
	}
	for _, a := range rcpts {
		if b := bracket(a.Address); !slices.Contains(env.to, b) {
			env.to = append(env.to, b)
		}
		env.utf8 = env.utf8 || !isASCII(a.Address)
		if len(env.to) > MaxRecipients {
			return envelope{}, fmt.Errorf("more than %d recipients", MaxRecipients)
		}
	}
	if len(env.to) == 0 {
		return envelope{}, errors.New("no recipient")
	}
	return env, nil
}

// checkSize refuses a message that is too large before memory is spent on composing it.
func checkSize(m Message) error {
	size := len(m.Text) + len(m.HTML)
	for _, a := range m.Attachments {
		size += base64.StdEncoding.EncodedLen(len(a.Content))
	}
	if size > MaxSize {
		return tooLarge(size)
	}
	return nil
}

func tooLarge(size int) error {
	return fmt.Errorf("message of %d bytes is over the limit of %d", size, MaxSize)
}

// checkLine refuses characters that end a header line or a C string.
func checkLine(s string) error {
	switch i := strings.IndexAny(s, "\r\n\x00"); {
	case i < 0:
		return nil
	case s[i] == 0:
		return errors.New("contains a NUL character")
	default:
		return errors.New("contains a line break")
	}
}

func checkAddresses(list []Address) ([]*Address, error) {
	checked := make([]*Address, 0, len(list))
	for _, a := range list {
		c, err := checkAddress(a)
		if err != nil {
			return nil, err
		}
		checked = append(checked, &c)
	}
	return checked, nil
}

// checkAddress returns a in header form: white space in the name collapsed, an international
// domain in ASCII (RFC 5891).
func checkAddress(a Address) (Address, error) {
	if err := checkLine(a.Name); err != nil {
		return Address{}, fmt.Errorf("name %q %w", a.Name, err)
	}
	if err := checkLine(a.Address); err != nil {
		return Address{}, fmt.Errorf("address %q %w", a.Address, err)
	}
	// RFC 5321 section 4.5.3.1 allows 64 octets before and 255 after the @; the name must fit a
	// header line once encoded.
	if len(a.Address) > 320 {
		return Address{}, fmt.Errorf("address %.40q… is %d bytes long, at most 320", a.Address, len(a.Address))
	}
	at := strings.LastIndexByte(a.Address, '@')
	if at < 1 || at == len(a.Address)-1 || strings.ContainsFunc(a.Address, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		return Address{}, fmt.Errorf("address %q is not of the form user@host", a.Address)
	}
	local, domain := a.Address[:at], a.Address[at+1:]
	// RFC 5321 allows these in quotes. Real addresses do not have them, and software that
	// mishandles quotes would see another address.
	if strings.ContainsAny(local, `()<>[]:;,@\"`) {
		return Address{}, fmt.Errorf("address %q has a special character before its host", a.Address)
	}
	if !isASCII(domain) {
		ascii, err := idna.Lookup.ToASCII(domain)
		if err != nil {
			return Address{}, fmt.Errorf("address %q: %w", a.Address, err)
		}
		domain = ascii
	}
	checked := Address{
		Name:    strings.Join(strings.Fields(strings.ToValidUTF8(a.Name, "\uFFFD")), " "),
		Address: local + "@" + domain,
	}
	checked.Name = truncate(checked.Name, 200)
	if !isASCII(checked.Name) {
		// Package net/mail would leave it unescaped in an encoded word, where readers do not
		// expect it (RFC 2047, section 5.3).
		checked.Name = strings.ReplaceAll(checked.Name, `\`, "/")
	}
	parsed, err := netmail.ParseAddress(bracket(checked.Address))
	if err != nil || parsed.Address != checked.Address {
		return Address{}, fmt.Errorf("address %q is not a valid address", a.Address)
	}
	return checked, nil
}

// bracket formats addr for an SMTP command, quoting its local part if necessary.
func bracket(addr string) string {
	a := Address{Address: addr}
	return a.String()
}

func messageID(id, from string) (string, error) {
	if id == "" {
		return rand.Text() + from[strings.LastIndexByte(from, '@'):], nil
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">")
	local, domain, ok := strings.Cut(bare, "@")
	if !ok || local == "" || domain == "" || len(bare) > 250 ||
		strings.ContainsFunc(bare, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }) {
		return "", fmt.Errorf("message id %.260q is not of the form <left@right> in ASCII", id)
	}
	return bare, nil
}

// ownHeaders are written by Message's fields, the library or a server. A second one would
// contradict the first.
var ownHeaders = []string{
	"From", "To", "Cc", "Bcc", "Reply-To", "Subject", "Date", "Message-Id",
	"Mime-Version", "Return-Path", "Received",
}

func writeHeader(b *bytes.Buffer, h Header) error {
	if h.Name == "" || len(h.Name) > 70 || strings.ContainsFunc(h.Name, func(r rune) bool {
		return r != '-' && !(r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)))
	}) {
		return errors.New("name must be 1 to 70 letters, digits and hyphens")
	}
	own := func(name string) bool { return strings.EqualFold(name, h.Name) }
	if slices.ContainsFunc(ownHeaders, own) || strings.HasPrefix(strings.ToLower(h.Name), "content-") {
		return errors.New("is reserved and cannot be set here")
	}
	if err := checkLine(h.Value); err != nil {
		return err
	}
	value := h.Value
	if strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) {
		value = encodeText(value)
	}
	words := strings.Fields(value)
	if len(words) == 0 {
		return errors.New("is empty")
	}
	b.WriteString(h.Name)
	b.WriteByte(':')
	used := len(h.Name) + 1
	for i, w := range words {
		if len(w) > 900 {
			return fmt.Errorf("has a word of %d bytes, and a line holds 998", len(w))
		}
		// The first word stays beside the name: some readers treat a line without a value as an
		// empty header.
		if i > 0 && used+1+len(w) > 76 {
			b.WriteString("\r\n")
			used = 0
		}
		b.WriteByte(' ')
		b.WriteString(w)
		used += 1 + len(w)
	}
	b.WriteString("\r\n")
	return nil
}

// encodeText returns s unchanged if it is unambiguous and can be folded at its spaces, and else
// encoded words (RFC 2047). That covers non-ASCII text, text that looks like an encoded word,
// runs of spaces that folding would lose, and words too long for a line.
func encodeText(s string) string {
	plain := !strings.Contains(s, "=?")
	for word := range strings.SplitSeq(s, " ") {
		plain = plain && word != "" && len(word) <= 60
	}
	if plain && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	var words []string
	for s != "" {
		// 36 bytes become 60 characters, which leaves room for the header's name on the first
		// line of at most 76.
		chunk := truncate(s, 36)
		words = append(words, "=?UTF-8?B?"+base64.StdEncoding.EncodeToString([]byte(chunk))+"?=")
		s = s[len(chunk):]
	}
	return strings.Join(words, " ")
}

// truncate returns at most n bytes of s at a rune boundary.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func attach(msg *gomail.Msg, a Attachment) error {
	if err := checkLine(a.Name); err != nil {
		return fmt.Errorf("name %q %w", a.Name, err)
	}
	if err := checkLine(a.ContentType); err != nil {
		return fmt.Errorf("content type %q %w", a.ContentType, err)
	}
	// The library would put a non-ASCII name into an encoded word inside quotes, which RFC 2047
	// forbids; FormatMediaType uses RFC 2231.
	kind, add := "attachment", msg.AttachReader
	if a.ContentID != "" {
		if strings.ContainsFunc(a.ContentID, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }) {
			return fmt.Errorf("content id %q is invalid", a.ContentID)
		}
		kind, add = "inline", msg.EmbedReader
	}
	disposition := mime.FormatMediaType(kind, map[string]string{"filename": fileName(a.Name)})
	if disposition == "" {
		return fmt.Errorf("name %q cannot be encoded", a.Name)
	}
	return add(kind, bytes.NewReader(a.Content), func(f *gomail.File) {
		f.Header.Set("Content-Disposition", disposition)
		f.Header.Set("Content-Type", contentType(a.ContentType))
		if a.ContentID != "" {
			f.Header.Set("Content-ID", "<"+a.ContentID+">")
		}
	})
}

// fileName removes folders, which a careless receiver would follow, and control characters.
func fileName(name string) string {
	name = strings.ToValidUTF8(name, "_")
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '_'
		}
		return r
	}, name)
	if strings.Trim(name, "./ ") == "" {
		return "attachment"
	}
	// A name is written on one line with three characters per byte.
	if len(name) > 200 {
		ext := truncate(path.Ext(name), 20)
		name = truncate(name, 200-len(ext)) + ext
	}
	return name
}

// contentType returns ct if it can describe base64 content. RFC 2045 section 6.4 forbids base64
// for composite types.
func contentType(ct string) string {
	const unknown = "application/octet-stream"
	media, params, err := mime.ParseMediaType(ct)
	if errors.Is(err, mime.ErrInvalidMediaParameter) {
		params, err = nil, nil
	}
	if err != nil || !strings.Contains(media, "/") || strings.HasPrefix(media, "multipart/") || strings.HasPrefix(media, "message/") {
		return unknown
	}
	ct = mime.FormatMediaType(media, params)
	if ct == "" || len(ct) > 500 {
		return unknown
	}
	return ct
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}
