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
)

// KindMessage is the kind of every part that is a mail.
const KindMessage = "message"

const (
	inboundPath = "/api/webhooks/inbound-email"
	maxBody     = 35 << 20
	medium      = "email"

	// maxRecipients bounds the parts that one request may become.
	maxRecipients = 100
	// maxFields bounds the fields of a form: one style has a field for every
	// header.
	maxFields = 1000
)

// style is what the styles of the inbound path have in common. How a request is
// opened, and what proves that it is genuine, is all that differs.
type style struct {
	Writer
	name   string
	parser *Parser
	open   func(*channel.Request) (*source, error)
}

// Info implements [channel.Adapter].
func (a *style) Info() channel.Info {
	return channel.Info{Name: a.name, Medium: medium, Path: inboundPath, MaxBody: maxBody}
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

// Addresses implements [channel.Adapter]. What cannot be read names nobody here,
// and is judged once the sender is verified.
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

// Split implements [channel.Adapter]: one part for each recipient.
func (a *style) Split(r *channel.Request) ([]channel.Part, error) {
	s, err := a.open(r)
	if err != nil {
		return nil, unreadable(err)
	}
	h := s.header()
	// The Message-ID alone would not do: senders repeat theirs, and the second
	// mail must not be taken for the first. One mail that comes in other bytes
	// again (by another way, with other trace headers) is for the desk to see.
	id := messageID(h)
	switch {
	case id != "":
		id += " sha256:" + s.digest()
	case s.id != "":
		id = s.id
	default:
		id = "sha256:" + s.digest()
	}
	sender := s.env.From
	if from := addresses(h, "From"); len(from) > 0 {
		sender = from[0].Email
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
		return nil // for Parse to say
	}
	return a.parser.names(s)
}

// names are the DNS names that decide whether a mail proves its sender.
func (p *Parser) names(s *source) []string {
	raw, env := s.raw, s.env
	if env.Composed = s.taken != nil; env.Composed {
		raw = s.taken.head()
	}
	return p.check(raw, env, sender(s.header(), env).Email).Names()
}

// parse reads an opened request whose recipient is decided.
func (p *Parser) parse(s *source) (*channel.Message, error) {
	s.env.Composed = s.taken != nil
	m, err := p.ParseRaw(s.message(), s.env)
	if err != nil {
		return nil, err
	}
	for _, at := range s.remote() {
		if len(m.Attachments) < maxAttachments {
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

// source is a request taken out of its wrapping: a message as the mail server
// received it, or what the provider took out of one.
type source struct {
	raw   []byte
	taken *receivedMessage
	env   Envelope
	id    string // names the mail where it names not itself; empty: nothing does
}

var (
	errNoMessage = fmt.Errorf("%w: there is no message", channel.ErrUnreadable)
	errBrokenOff = fmt.Errorf("%w: the form breaks off", channel.ErrUnreadable)
	errNotJSON   = fmt.Errorf("%w: not JSON", channel.ErrUnreadable)
)

// requireBody returns an error unless there is a message.
func (s *source) requireBody() error {
	if s.taken != nil && !s.taken.empty() || len(bytes.TrimSpace(s.raw)) > 0 {
		return nil
	}
	return errNoMessage
}

// message is the whole message, put together again if it was taken apart.
func (s *source) message() []byte {
	if s.taken != nil {
		return s.taken.compose()
	}
	return s.raw
}

// digest tells messages apart.
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

// remote are the files that are still at the provider's.
func (s *source) remote() []channel.Attachment {
	if s.taken == nil {
		return nil
	}
	return s.taken.remote()
}

// header is the header of the message, without the rest of it being read.
func (s *source) header() textproto.MIMEHeader {
	raw := s.raw
	if s.taken != nil {
		raw = s.taken.head()
	}
	head, _, _ := cutHeader(unixLines(trimMessage(raw)))
	return readHeader(head)
}

func (s *source) sender(address string) {
	s.env.From, s.env.HasFrom = envelopeSender(address), true
}

// to adds recipients, each value one address or several with commas.
func (s *source) to(values ...string) {
	for _, v := range values {
		for one := range splitAddresses(v) {
			if a := plain(one); a != "" && len(s.env.To) < maxRecipients {
				s.env.To = append(s.env.To, a)
			}
		}
	}
}

// recipients lists where the mail was delivered to, in the form of connections.
// Without an envelope they are guessed: from the mark of the last delivery, else
// from whom the sender wrote to.
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
		for _, p := range addresses(h, name) {
			add(p.Email)
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

// formField is one field of a form. Of a file it has what the part says of it.
type formField struct {
	name        string
	value       []byte
	isFile      bool
	fileName    string
	contentType string
	contentID   string
}

// form is a form that was read.
type form struct {
	fields []formField
	whole  bool // it ends where it says that it does
}

// readForm reads a form as far as it goes. ok is false when the request is none.
func readForm(r *channel.Request) (f form, ok bool) {
	kind, params := contentType(r)
	switch kind {
	case kindURLEncoded:
		// A signed mail, form or JSON is not read as pairs, which its sender can write.
		if bytes.ContainsAny(r.Body, "\r\n") || bytes.HasPrefix(r.Body, []byte("{")) || bytes.HasPrefix(r.Body, []byte("[")) {
			return f, true
		}
		values, err := url.ParseQuery(string(r.Body)) // the pairs that are well formed
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

// beginsWith reports whether the first line of a multipart body is the boundary. A
// signed body has one boundary then: no request can name a line inside of a mail.
func beginsWith(body []byte, boundary string) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(body, "\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("--"+boundary))
	return ok && boundary != "" && len(bytes.Trim(rest, " \t\r")) == 0
}

// get returns the value of the first field of a name.
func (f *form) get(name string) []byte {
	for _, x := range f.fields {
		if x.name == name {
			return x.value
		}
	}
	return nil
}

// has reports whether there are fields of all the names.
func (f *form) has(names ...string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(f.fields, func(x formField) bool { return x.name == name }) {
			return false
		}
	}
	return true
}

// anyJSON reads JSON into v as far as it is of v's form: what is of another kind
// than expected counts as absent. It reports false when the bytes are not JSON.
func anyJSON(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	if err == nil {
		return true
	}
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}

// maxItems bounds the items of a list in JSON, and the members of an object that may
// have any, of which more is read than that they are JSON. An item may take a hundred
// times the memory of the bytes it is written in, and anybody may send some.
const maxItems = 1000

// items yields the first items of a JSON array that is valid, or the members of an
// object, with their names.
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
				json.Unmarshal(data[start:i], &name) // it is a string
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

// list is the first items of a JSON array; any other value counts as none.
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

// dict is the first members of a JSON object; null is one without, and any other
// value counts as none.
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

// text is a JSON string; any other value counts as none.
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

// same compares in a time that tells nothing of either.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// basicHolds reports whether the credentials of HTTP's Basic scheme, still
// encoded, hold secret: as the password, the user or both.
func basicHolds(credentials, secret string) bool {
	pair, err := base64.StdEncoding.DecodeString(credentials)
	if err != nil {
		return false
	}
	user, password, _ := strings.Cut(string(pair), ":")
	whole := same(string(pair), secret)
	return same(password, secret) || whole || password == "" && same(user, secret)
}

// fresh reports whether a time in a signature, in Unix seconds, is at most window
// from when the request came.
func fresh(r *channel.Request, timestamp string, window time.Duration) bool {
	at, ok := unixTime(timestamp)
	age := r.Received.Sub(at)
	return ok && age <= window && age >= -window
}

// unixTime reads a time in Unix seconds.
func unixTime(text string) (time.Time, bool) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err == nil
}
