package email

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// KindMessage is the kind of every part.
const KindMessage = "message"

// maxAge is how far the time in a signature may be from ours.
const maxAge = 5 * time.Minute

// maxRecipients bounds the parts that one request may become.
const maxRecipients = 100

// Raw is the channel "email-raw": a converter between SMTP and HTTP.
//
// It takes a raw message as the body, in a form field or in JSON, or a message
// that the converter took apart, which is put together again. Behind some of
// these a mail server is waiting for our answer, and bounces the mail if it is
// a refusal; so a mail is refused only when nothing of it is there.
type Raw struct {
	Writer
	parser *Parser
	hosts  []string
}

var (
	_ channel.Adapter       = (*Raw)(nil)
	_ channel.AddressFormer = (*Raw)(nil)
	_ channel.Recognizer    = (*Raw)(nil)
	_ channel.MediaSource   = (*Raw)(nil)
	_ channel.Correspondent = (*Raw)(nil)
)

// NewRaw returns the channel.
func NewRaw(c Config) *Raw {
	hosts := []string{".amazonaws.com", "storage.googleapis.com", ".blob.core.windows.net"}
	return &Raw{parser: NewParser(c), hosts: append(hosts, c.AttachmentHosts...)}
}

// Info implements [channel.Adapter].
func (*Raw) Info() channel.Info {
	return channel.Info{Name: "email-raw", Medium: "email", Path: "/api/webhooks/inbound-email", MaxBody: 35 << 20}
}

// FormAddress implements [channel.AddressFormer].
func (*Raw) FormAddress(raw string) (string, error) {
	a := Canonical(raw)
	if a == "" {
		return "", errors.New("must be a mail address such as support@example.com")
	}
	return a, nil
}

// Recognizes implements [channel.Recognizer].
func (*Raw) Recognizes(r *channel.Request) bool {
	kind, params := contentType(r)
	switch kind {
	case "", "message/rfc822", "message/global", "application/octet-stream":
		return true
	case "multipart/form-data", "application/x-www-form-urlencoded":
		names := map[string]bool{}
		for f := range formFields(r, kind, params) {
			names[f.name] = true
		}
		switch {
		case names["signature"] && names["token"] && names["timestamp"]:
			return false // style A signs inside the form
		case names["message"] || names["body-mime"]:
			return true
		}
		return names["email"] && !names["envelope"] // style B has both
	case "application/json":
		var b struct {
			Raw, Headers, Envelope, Plain, HTML json.RawMessage
			TextBody, HtmlBody, MailboxHash     json.RawMessage
		}
		if !exactJSON(r.Body, map[string]*json.RawMessage{
			"raw": &b.Raw, "headers": &b.Headers, "envelope": &b.Envelope, "plain": &b.Plain, "html": &b.HTML,
			"TextBody": &b.TextBody, "HtmlBody": &b.HtmlBody, "MailboxHash": &b.MailboxHash,
		}) {
			return false
		}
		if b.TextBody != nil || b.HtmlBody != nil || b.MailboxHash != nil {
			return false // style C
		}
		return b.Raw != nil || b.Headers != nil && (b.Envelope != nil || b.Plain != nil || b.HTML != nil)
	}
	return false
}

// exactJSON reads the members of an object whose names match exactly.
func exactJSON(body []byte, members map[string]*json.RawMessage) bool {
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		return false
	}
	for name, m := range members {
		*m = all[name]
	}
	return true
}

// Addresses implements [channel.Adapter]. What cannot be read names nobody here,
// and is judged once the sender is verified.
func (*Raw) Addresses(r *channel.Request) ([]string, error) {
	s, err := open(r)
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
func (*Raw) Split(r *channel.Request) ([]channel.Part, error) {
	s, err := open(r)
	if err != nil {
		return nil, unreadable(err)
	}
	h := s.header()
	// The Message-ID alone would not do: senders repeat theirs, and the second
	// mail must not be taken for the first. One mail that comes in other bytes
	// again (by another way, with other trace headers) is for the desk to see.
	sum := sha256.Sum256(s.raw)
	id := strings.TrimSpace(messageID(h) + " sha256:" + hex.EncodeToString(sum[:16]))
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
func (a *Raw) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	s, err := open(r)
	if err != nil {
		return channel.Event{}, unreadable(err)
	}
	s.env.Recipient = p.Address
	m, err := a.parser.ParseRaw(s.raw, s.env)
	if err != nil {
		return channel.Event{}, err
	}
	for _, at := range s.remote {
		if len(m.Attachments) < maxAttachments {
			m.Attachments = append(m.Attachments, at)
		}
	}
	inlineImages(m)
	return channel.Event{Message: m}, nil
}

func unreadable(err error) error {
	if errors.Is(err, channel.ErrUnreadable) {
		return err
	}
	return fmt.Errorf("%w: %v", channel.ErrUnreadable, err)
}

// MediaRequest implements [channel.MediaSource]. The address that the converter
// gives for a stored attachment needs no credentials.
func (a *Raw) MediaRequest(at channel.Attachment, _ map[string]string) channel.MediaRequest {
	return channel.MediaRequest{URL: at.URL, Hosts: a.hosts}
}

// Verify implements [channel.Adapter]. A signature, where there is one, decides;
// otherwise the secret itself must be presented as a bearer token or as the
// password, the user or both of Basic credentials.
func (*Raw) Verify(r *channel.Request, secret string) bool {
	if secret == "" {
		return false
	}
	if presented := r.Header.Values("X-Webhook-Signature"); len(presented) > 0 {
		return verifySignature(r, presented[0], secret)
	}
	scheme, credentials, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	credentials = strings.TrimSpace(credentials)
	if !ok || credentials == "" {
		return false
	}
	switch strings.ToLower(scheme) {
	case "bearer":
		return same(credentials, secret)
	case "basic":
		pair, err := base64.StdEncoding.DecodeString(credentials)
		if err != nil {
			return false
		}
		user, password, _ := strings.Cut(string(pair), ":")
		whole := same(string(pair), secret)
		return same(password, secret) || whole || password == "" && same(user, secret)
	}
	return false
}

// same compares in a time that tells nothing but, through neither, the secret.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func verifySignature(r *channel.Request, presented, secret string) bool {
	signature, err := hex.DecodeString(strings.TrimSpace(presented))
	if err != nil || len(signature) != sha256.Size {
		return false
	}
	timestamp := ""
	if values := r.Header.Values("X-Webhook-Timestamp"); len(values) > 0 {
		timestamp = strings.TrimSpace(values[0])
		seconds, err := strconv.ParseInt(timestamp, 10, 64)
		if err != nil {
			return false
		}
		age := r.Received.Sub(time.Unix(seconds, 0))
		if age > maxAge || age < -maxAge {
			return false
		}
	}
	return hmac.Equal(signature, digest(r.Body, timestamp, secret))
}

func digest(body []byte, timestamp, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	if timestamp != "" {
		io.WriteString(mac, timestamp+".") // a hash does not fail
	}
	mac.Write(body)
	return mac.Sum(nil)
}

// SignRaw returns what a converter sends with body: the values of the headers
// X-Webhook-Signature and X-Webhook-Timestamp. A zero time signs the body alone.
func SignRaw(body []byte, at time.Time, secret string) (signature, timestamp string) {
	if !at.IsZero() {
		timestamp = strconv.FormatInt(at.Unix(), 10)
	}
	return hex.EncodeToString(digest(body, timestamp, secret)), timestamp
}

// source is a request taken out of its wrapping.
type source struct {
	raw    []byte
	env    Envelope
	remote []channel.Attachment // still at the converter's
}

var errNoMessage = fmt.Errorf("%w: there is no message", channel.ErrUnreadable)

// open finds the raw message and its envelope in a request.
func open(r *channel.Request) (*source, error) {
	s := &source{env: Envelope{Received: r.Received}}
	var err error
	switch kind, params := contentType(r); kind {
	case "", "message/rfc822", "message/global", "application/octet-stream":
		s.raw = r.Body
	case "multipart/form-data", "application/x-www-form-urlencoded":
		s.form(r, kind, params)
	case "application/json":
		err = s.json(r.Body)
	default:
		return nil, channel.ErrContentType
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(s.raw)) == 0 {
		return nil, errNoMessage
	}
	s.outside(r)
	return s, nil
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

// outside takes the envelope from the request's headers, then from its query,
// where the body has none.
func (s *source) outside(r *channel.Request) {
	query := r.Query()
	if !s.env.HasFrom {
		if values, ok := r.Header["X-Envelope-From"]; ok {
			s.sender(values[0])
		} else if query.Has("from") {
			s.sender(query.Get("from"))
		}
	}
	if len(s.env.To) == 0 {
		s.to(r.Header.Values("X-Envelope-To")...)
	}
	if len(s.env.To) == 0 {
		s.to(query["to"]...)
	}
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

// header is the header of the message, without the rest of it being read.
func (s *source) header() textproto.MIMEHeader {
	head, _, _ := cutHeader(trimMessage(s.raw))
	return readHeader(head)
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

type formField struct {
	name  string
	value []byte
}

// formFields yields the fields of a form as far as they can be read whole.
func formFields(r *channel.Request, kind string, params map[string]string) func(yield func(formField) bool) {
	return func(yield func(formField) bool) {
		if kind == "application/x-www-form-urlencoded" {
			form, _ := url.ParseQuery(string(r.Body)) // the pairs that are well formed
			for name, values := range form {
				if !yield(formField{name, []byte(values[0])}) {
					return
				}
			}
			return
		}
		reader := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
		for range maxParts {
			part, err := reader.NextPart()
			if err != nil {
				return
			}
			value, err := io.ReadAll(part)
			if err != nil || !yield(formField{part.FormName(), value}) {
				return
			}
		}
	}
}

// form reads the message and the envelope from form fields, under the names that
// converters use.
func (s *source) form(r *channel.Request, kind string, params map[string]string) {
	fields := map[string][]byte{}
	for f := range formFields(r, kind, params) {
		if _, ok := fields[f.name]; !ok {
			fields[f.name] = f.value
		}
		if strings.HasPrefix(f.name, "envelope[recipients]") {
			s.to(string(f.value))
		}
	}
	for _, name := range []string{"message", "email", "body-mime"} {
		if v := fields[name]; len(bytes.TrimSpace(v)) > 0 {
			s.raw = v
			break
		}
	}
	for _, name := range []string{"envelope[from]", "sender"} {
		if v, ok := fields[name]; ok && !s.env.HasFrom {
			s.sender(string(v))
		}
	}
	for _, name := range []string{"envelope[to]", "recipient"} {
		if len(s.env.To) == 0 || name == "envelope[to]" {
			s.to(string(fields[name]))
		}
	}
	s.env.SPF, s.env.SPFDomain = string(fields["envelope[spf][result]"]), string(fields["envelope[spf][domain]"])
	if v := fields["envelope"]; v != nil {
		var e jsonEnvelope
		if json.Unmarshal(v, &e) == nil {
			s.envelope(e)
		}
	}
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
	var many []text
	if json.Unmarshal(data, &many) == nil {
		for _, s := range many {
			*t = append(*t, string(s))
		}
	}
	return nil
}

type jsonEnvelope struct {
	From       *text `json:"from"`
	To         texts `json:"to"`
	Recipients texts `json:"recipients"`
	SPF        struct {
		Result text `json:"result"`
		Domain text `json:"domain"`
	} `json:"spf"`
}

func (e *jsonEnvelope) UnmarshalJSON(data []byte) error {
	type bare jsonEnvelope // without this method
	var b bare
	if json.Unmarshal(data, &b) == nil {
		*e = jsonEnvelope(b)
	}
	return nil
}

type jsonAttachment struct {
	Name        text `json:"file_name"`
	ContentType text `json:"content_type"`
	ContentID   text `json:"content_id"`
	Disposition text `json:"disposition"`
	Content     text `json:"content"`
	URL         text `json:"url"`
}

// json reads both JSON wrappings: the raw message beside whatever else, or the
// parts of a message.
func (s *source) json(body []byte) error {
	var b struct {
		Raw         text             `json:"raw"`
		Encoding    text             `json:"encoding"`
		Envelope    jsonEnvelope     `json:"envelope"`
		Recipients  texts            `json:"recipients"`
		Headers     json.RawMessage  `json:"headers"`
		Plain       text             `json:"plain"`
		HTML        text             `json:"html"`
		Reply       text             `json:"reply_plain"`
		Attachments []jsonAttachment `json:"attachments"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			return fmt.Errorf("%w: not JSON", channel.ErrUnreadable)
		}
	}
	s.envelope(b.Envelope)
	s.to(b.Recipients...)
	if b.Raw != "" {
		s.raw = []byte(b.Raw)
		if strings.EqualFold(string(b.Encoding), "base64") {
			s.raw = decodeBase64(s.raw)
		}
		return nil
	}
	headers := map[string]texts{}
	if json.Unmarshal(b.Headers, &headers) != nil || len(headers) == 0 && b.Plain == "" && b.HTML == "" {
		return errNoMessage
	}
	s.env.Reply = string(b.Reply)
	s.compose(headers, string(b.Plain), string(b.HTML), b.Attachments)
	return nil
}

func (s *source) envelope(e jsonEnvelope) {
	if e.From != nil {
		s.sender(string(*e.From))
	}
	s.to(e.To...)
	s.to(e.Recipients...)
	s.env.SPF, s.env.SPFDomain = string(e.SPF.Result), string(e.SPF.Domain)
}
