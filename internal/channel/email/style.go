package email

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
)

// KindMessage is the kind of every part that is a mail.
const KindMessage = "message"

const (
	inboundPath   = "/api/webhooks/inbound-email"
	maxBody       = 35 << 20
	ticketChannel = "email"

	// maxRecipients bounds the parts of one request.
	maxRecipients = 100
	// maxFields bounds the fields of a form: one style has a field per header.
	maxFields = 1000
)

// style is the common part of the inbound styles. They differ only in how a request is opened
// and verified.
type style struct {
	Writer
	name   string
	parser *Parser
	open   func(*channel.Request) (*source, error)
}

// Info implements [channel.Adapter].
func (a *style) Info() channel.Info {
	return channel.Info{Name: a.name, TicketChannel: ticketChannel, Path: inboundPath, MaxBody: maxBody}
}

// NormalizeAddress implements [channel.AddressNormalizer].
func (*style) NormalizeAddress(raw string) (string, error) { return formAddress(raw) }

func formAddress(raw string) (string, error) {
	a := Canonical(raw)
	if a == "" {
		return "", errors.New("must be a mail address such as support@example.com")
	}
	return a, nil
}

// Addresses implements [channel.Adapter]. An unreadable request names no recipient and is
// rejected once it is verified.
func (a *style) Addresses(r *channel.Request) ([]string, error) {
	s, err := a.open(r)
	if errors.Is(err, channel.ErrContentType) {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	list, _ := s.recipients()
	return list, nil
}

// Split implements [channel.Adapter]: one part per recipient.
func (a *style) Split(r *channel.Request) ([]channel.Part, error) {
	s, err := a.open(r)
	if err != nil {
		return nil, unreadable(err)
	}
	h := s.header()
	id := s.identity()
	sender := s.env.From
	if from := mailparse.Addresses(h, "From"); len(from) > 0 {
		sender = from[0].Address
	}
	recipients, guessed := s.recipients()
	if recipients == nil {
		recipients = []string{""}
	}
	var parts []channel.Part
	for _, address := range recipients {
		parts = append(parts, channel.Part{
			Key:     key(strings.TrimSpace(id + " " + address)),
			Sender:  key(strings.ToLower(sender)),
			Address: address,
			Guessed: guessed,
			Kind:    KindMessage,
		})
	}
	return parts, nil
}

// Parse implements [channel.Adapter].
func (a *style) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	s, err := a.open(r)
	if err != nil {
		return channel.Event{}, unreadable(err)
	}
	s.env.Recipient, s.env.TXT = p.Address, r.TXT
	m, err := a.parser.parse(s)
	if err != nil {
		return channel.Event{}, err
	}
	return channel.Event{Message: m}, nil
}

// TXTNames implements [channel.DNSVerifier].
func (a *style) TXTNames(r *channel.Request, _ channel.Part, _ []channel.Response) []string {
	s, err := a.open(r)
	if err != nil {
		return nil // Parse reports it
	}
	return a.parser.names(s)
}

// names returns the DNS names that decide whether a mail proves its sender.
func (p *Parser) names(s *source) []string {
	raw, env := s.raw, s.env
	if env.Composed = s.taken != nil; env.Composed {
		raw = s.taken.head()
	}
	return p.check(raw, env, sender(s.header(), env).Email).Names()
}

// parse parses an opened request for a known recipient.
func (p *Parser) parse(s *source) (*channel.Message, error) {
	s.env.Composed = s.taken != nil
	m, err := p.ParseRaw(s.message(), s.env)
	if err != nil {
		return nil, err
	}
	for _, at := range s.remote() {
		if len(m.Attachments) < mailparse.MaxAttachments {
			m.Attachments = append(m.Attachments, at)
		}
	}
	inlineImages(m)
	return m, nil
}

func unreadable(err error) error {
	if errors.Is(err, channel.ErrUnreadable) {
		return err
	}
	return fmt.Errorf("%w: %v", channel.ErrUnreadable, err)
}

// source is an unwrapped request: a raw message, or parsed fields.
type source struct {
	raw   []byte
	taken *receivedMessage
	env   Envelope
	id    string // id of the mail if it has no Message-ID
}

var (
	errNoMessage = fmt.Errorf("%w: there is no message", channel.ErrUnreadable)
	errBrokenOff = fmt.Errorf("%w: the form breaks off", channel.ErrUnreadable)
	errNotJSON   = fmt.Errorf("%w: not JSON", channel.ErrUnreadable)
)

// requireBody returns an error if there is no message.
func (s *source) requireBody() error {
	if s.taken != nil && !s.taken.empty() || len(bytes.TrimSpace(s.raw)) > 0 {
		return nil
	}
	return errNoMessage
}

// message returns the raw message, composed if necessary.
func (s *source) message() []byte {
	if s.taken != nil {
		return s.taken.compose()
	}
	return s.raw
}

// identity identifies a mail, so that a repeated one is a duplicate. Senders reuse Message-IDs, and
// a second mail must not be a duplicate of the first, so it includes a digest. The desk recognizes
// the same mail with other bytes, such as other trace headers.
func (s *source) identity() string {
	id := mailparse.MessageID(s.header())
	switch {
	case id != "":
		return id + " sha256:" + s.digest()
	case s.id != "":
		return s.id
	}
	return "sha256:" + s.digest()
}

// digest identifies a message.
func (s *source) digest() string {
	var sum []byte
	if s.taken != nil {
		sum = s.taken.digest()
	} else {
		whole := sha256.Sum256(s.raw)
		sum = whole[:]
	}
	return hex.EncodeToString(sum[:16])
}

// remote returns the files stored at the provider.
func (s *source) remote() []channel.Attachment {
	if s.taken == nil {
		return nil
	}
	return s.taken.remote()
}

// header parses only the header of the message.
func (s *source) header() textproto.MIMEHeader {
	raw := s.raw
	if s.taken != nil {
		raw = s.taken.head()
	}
	return mailparse.Header(raw)
}

func (s *source) sender(address string) {
	s.env.From, s.env.HasFrom = envelopeSender(address), true
}

// to adds recipients, each value one address or several separated by commas.
func (s *source) to(values ...string) {
	for _, v := range values {
		for one := range mailparse.SplitAddresses(v) {
			if a := mailparse.Address(one); a != "" && len(s.env.To) < maxRecipients {
				s.env.To = append(s.env.To, a)
			}
		}
	}
}

// recipients returns the delivery addresses in the form of connections. Without an envelope
// they are guessed: from the last delivery header, else from the header recipients.
func (s *source) recipients() (list []string, guessed bool) {
	add := func(address string) {
		if a := Canonical(address); a != "" && !slices.Contains(list, a) && len(list) < maxRecipients {
			list = append(list, a)
		}
	}
	for _, a := range s.env.To {
		add(a)
	}
	if list != nil {
		return list, false
	}
	h := s.header()
	for _, name := range []string{"Delivered-To", "X-Original-To", "Envelope-To"} {
		if add(h.Get(name)); list != nil {
			return list, true
		}
	}
	for _, name := range []string{"To", "Cc"} {
		for _, p := range mailparse.Addresses(h, name) {
			add(p.Address)
		}
	}
	return list, true
}

func contentType(r *channel.Request) (string, map[string]string) {
	v := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(v)
	if err != nil {
		kind, _, _ = strings.Cut(v, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	if strings.HasSuffix(kind, "+json") {
		kind = "application/json"
	}
	return kind, params
}

const (
	kindMultipart  = "multipart/form-data"
	kindURLEncoded = "application/x-www-form-urlencoded"
	kindJSON       = "application/json"
)

// formField is one field of a form, for a file with its part headers.
type formField struct {
	name        string
	value       []byte
	isFile      bool
	fileName    string
	contentType string
	contentID   string
}

// form is a parsed form.
type form struct {
	fields []formField
	whole  bool // its closing boundary is present
}

// readForm parses as much of a form as possible. ok is false if the request is not a form.
func readForm(r *channel.Request) (f form, ok bool) {
	kind, params := contentType(r)
	switch kind {
	case kindURLEncoded:
		// A signed mail, form or JSON is not parsed as pairs, which its sender could forge.
		if bytes.ContainsAny(r.Body, "\r\n") || bytes.HasPrefix(r.Body, []byte("{")) || bytes.HasPrefix(r.Body, []byte("[")) {
			return f, true
		}
		values, err := url.ParseQuery(string(r.Body)) // the well-formed pairs
		for name, v := range values {
			f.fields = append(f.fields, formField{name: name, value: []byte(v[0])})
		}
		slices.SortFunc(f.fields, func(a, b formField) int { return strings.Compare(a.name, b.name) })
		f.whole = err == nil
		return f, true
	case kindMultipart:
	default:
		return f, false
	}
	if !beginsWith(r.Body, params["boundary"]) {
		return f, true
	}
	reader := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
	for range maxFields {
		part, err := reader.NextPart()
		if err != nil {
			f.whole = errors.Is(err, io.EOF)
			return f, true
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return f, true
		}
		// A file with an empty name is a file, too.
		_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		_, isFile := disposition["filename"]
		f.fields = append(f.fields, formField{
			name: part.FormName(), value: value, isFile: isFile, fileName: disposition["filename"],
			contentType: part.Header.Get("Content-Type"), contentID: part.Header.Get("Content-Id"),
		})
	}
	return f, true
}

// beginsWith reports whether the first line of a multipart body is the boundary. A signed body
// then has one boundary: no request can name a line inside a mail.
func beginsWith(body []byte, boundary string) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(body, "\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("--"+boundary))
	return ok && boundary != "" && len(bytes.Trim(rest, " \t\r")) == 0
}

// get returns the first field of a name.
func (f *form) get(name string) []byte {
	for _, x := range f.fields {
		if x.name == name {
			return x.value
		}
	}
	return nil
}

// has reports whether all the names exist.
func (f *form) has(names ...string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(f.fields, func(x formField) bool { return x.name == name }) {
			return false
		}
	}
	return true
}

// anyJSON decodes JSON into v. Values of unexpected types count as absent. It returns false if
// the bytes are not JSON.
func anyJSON(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	if err == nil {
		return true
	}
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}

// maxItems bounds the decoded items of a JSON list or object; further ones are only validated.
// An item may take a hundred times the memory of its encoding, and unauthenticated clients can
// send them.
const maxItems = 1000

// items yields the first items of a valid JSON array, or the members of an object with their
// names.
func items(data []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		data = bytes.TrimSpace(data)
		if len(data) == 0 || data[0] != '[' && data[0] != '{' {
			return
		}
		name, start, depth, quoted, n := "", 1, 0, false, 0
		for i := 1; i < len(data); i++ {
			switch c := data[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case quoted:
			case depth == 0 && c == ':':
				name = ""
				json.Unmarshal(data[start:i], &name) // a valid string
				start = i + 1
			case depth == 0 && (c == ',' || c == ']' || c == '}'):
				value := bytes.TrimSpace(data[start:i])
				n++
				if len(value) == 0 || n > maxItems || !yield(name, value) || c != ',' {
					return
				}
				start = i + 1
			case c == '[' || c == '{':
				depth++
			case c == ']' || c == '}':
				depth--
			}
		}
	}
}

// list is the first items of a JSON array; any other value counts as an empty one.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(data []byte) error {
	*l = nil
	if data[0] != '[' {
		return nil
	}
	for _, item := range items(data) {
		var v T
		anyJSON(item, &v)
		*l = append(*l, v)
	}
	return nil
}

// dict is the first members of a JSON object; any other value counts as an empty one.
type dict[T any] map[string]T

func (d *dict[T]) UnmarshalJSON(data []byte) error {
	*d = nil
	if data[0] != '{' && data[0] != 'n' {
		return nil
	}
	*d = make(dict[T])
	for name, member := range items(data) {
		var v T
		anyJSON(member, &v)
		(*d)[name] = v
	}
	return nil
}

// text is a JSON string; any other value counts as "".
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(s)
	}
	return nil
}

// texts is a JSON string or an array of strings.
type texts []string

func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = texts{one}
		return nil
	}
	var many list[text]
	anyJSON(data, &many)
	for _, s := range many {
		*t = append(*t, string(s))
	}
	return nil
}

// same compares in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// basicHolds reports whether encoded HTTP Basic credentials contain the secret: as the
// password, the user or both.
func basicHolds(credentials, secret string) bool {
	pair, err := base64.StdEncoding.DecodeString(credentials)
	if err != nil {
		return false
	}
	user, password, _ := strings.Cut(string(pair), ":")
	whole := same(string(pair), secret)
	return same(password, secret) || whole || password == "" && same(user, secret)
}

// fresh reports whether a signature's time, in Unix seconds, is within window of the request.
func fresh(r *channel.Request, timestamp string, window time.Duration) bool {
	at, ok := unixTime(timestamp)
	age := r.Received.Sub(at)
	return ok && age <= window && age >= -window
}

// unixTime parses a time in Unix seconds.
func unixTime(text string) (time.Time, bool) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err == nil
}
