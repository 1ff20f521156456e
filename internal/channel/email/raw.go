package email

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
)

// Raw is the channel "email-raw": a converter between SMTP and HTTP.
//
// It accepts a raw message as the body, in a form field or in JSON, or parsed fields, which are
// composed into a message again. Some converters hold an SMTP session until our answer and
// bounce the mail if it is an error; a mail is therefore refused only if there is no content at
// all.
type Raw struct {
	style
	hosts []string
}

// rawMaxAge is the maximum difference between the signature's time and ours.
const rawMaxAge = 5 * time.Minute

var (
	_ channel.Adapter           = (*Raw)(nil)
	_ channel.AddressNormalizer = (*Raw)(nil)
	_ channel.Recognizer        = (*Raw)(nil)
	_ channel.MediaSource       = (*Raw)(nil)
	_ channel.MailComposer      = (*Raw)(nil)
	_ channel.DNSVerifier       = (*Raw)(nil)
)

// NewRaw returns the channel.
func NewRaw(c Config) *Raw {
	hosts := []string{".amazonaws.com", "storage.googleapis.com", ".blob.core.windows.net"}
	return &Raw{
		style: style{Writer: newWriter(c), name: "email-raw", parser: NewParser(c), open: openRaw},
		hosts: append(hosts, c.AttachmentHosts...),
	}
}

// Recognizes implements [channel.Recognizer].
func (*Raw) Recognizes(r *channel.Request) bool {
	if f, ok := readForm(r); ok {
		switch {
		case f.has(signedFields...):
			return false // style A signs in the form
		case f.has("message") || f.has("body-mime"):
			return true
		}
		return f.has("email") && !f.has("envelope") // style B has both
	}
	switch kind, _ := contentType(r); kind {
	case "", "message/rfc822", "message/global", "application/octet-stream":
		return true
	case kindJSON:
		var all dict[json.RawMessage]
		if json.Unmarshal(r.Body, &all) != nil || isStyleC(all) {
			return false
		}
		return all["raw"] != nil || all["headers"] != nil && (all["envelope"] != nil || all["plain"] != nil || all["html"] != nil)
	}
	return false
}

// MediaRequest implements [channel.MediaSource]. The converter's URLs need no credentials.
func (a *Raw) MediaRequest(at channel.Attachment, _ channel.Credentials) channel.MediaRequest {
	return channel.MediaRequest{URL: at.URL, Hosts: a.hosts}
}

// Verify implements [channel.Adapter]. A signature, if present, decides; otherwise the secret
// itself must be the bearer token, or the user, the password or both of Basic credentials.
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
		return basicHolds(credentials, secret)
	}
	return false
}

// HeaderProof implements [channel.HeaderProver].
func (*Raw) HeaderProof(r *channel.Request) channel.HeaderProof {
	if presented := r.Header.Values("X-Webhook-Signature"); len(presented) > 0 {
		_, _, ok := rawSignature(r, presented[0])
		return channel.BodyDecidesIf(ok)
	}
	if scheme, _, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && (strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "basic")) {
		return channel.HeadersDecide
	}
	return channel.HeadersRefuse
}

func verifySignature(r *channel.Request, presented, secret string) bool {
	signature, timestamp, ok := rawSignature(r, presented)
	return ok && hmac.Equal(signature, digest(r.Body, timestamp, secret))
}

// rawSignature returns a signature and its fresh time, or empty strings.
func rawSignature(r *channel.Request, presented string) (signature []byte, timestamp string, ok bool) {
	signature, err := hex.DecodeString(strings.TrimSpace(presented))
	if err != nil || len(signature) != sha256.Size {
		return nil, "", false
	}
	if values := r.Header.Values("X-Webhook-Timestamp"); len(values) > 0 {
		timestamp = strings.TrimSpace(values[0])
		return signature, timestamp, fresh(r, timestamp, rawMaxAge)
	}
	return signature, "", true
}

// rawTokenLife is how long a signature without a time is remembered after its first use.
const rawTokenLife = 30 * 24 * time.Hour

// ReplayToken implements [channel.ReplayTokenReader]: a signature does not cover the content
// type. Requests with the secret itself have no token.
func (*Raw) ReplayToken(r *channel.Request) channel.ReplayToken {
	presented := r.Header.Values("X-Webhook-Signature")
	if len(presented) == 0 {
		return channel.ReplayToken{}
	}
	signature, timestamp, ok := rawSignature(r, presented[0])
	if !ok {
		return channel.ReplayToken{}
	}
	until := r.Received.Add(rawTokenLife)
	if timestamp != "" {
		at, _ := unixTime(timestamp)
		until = at.Add(rawMaxAge)
	}
	return channel.ReplayToken{Value: hex.EncodeToString(signature), Until: until, Signed: true}
}

func digest(body []byte, timestamp, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	if timestamp != "" {
		io.WriteString(mac, timestamp+".") // a hash does not fail
	}
	mac.Write(body)
	return mac.Sum(nil)
}

// SignRaw returns the headers X-Webhook-Signature and X-Webhook-Timestamp for body. A zero time
// signs the body alone.
func SignRaw(body []byte, at time.Time, secret string) (signature, timestamp string) {
	if !at.IsZero() {
		timestamp = strconv.FormatInt(at.Unix(), 10)
	}
	return hex.EncodeToString(digest(body, timestamp, secret)), timestamp
}

// openRaw reads the raw message and its envelope from a request.
func openRaw(r *channel.Request) (*source, error) {
	s := &source{env: Envelope{Received: r.Received}}
	if f, ok := readForm(r); ok {
		s.form(f)
	} else {
		switch kind, _ := contentType(r); kind {
		case "", "message/rfc822", "message/global", "application/octet-stream":
			s.raw = r.Body
		case kindJSON:
			if err := s.json(r.Body); err != nil {
				return nil, err
			}
		default:
			return nil, channel.ErrContentType
		}
	}
	if err := s.requireBody(); err != nil {
		return nil, err
	}
	s.outside(r)
	return s, nil
}

// outside reads the envelope from the request's headers, then from its query, if the body has
// none.
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

// form reads message and envelope from form fields under the usual names.
func (s *source) form(f form) {
	for _, x := range f.fields {
		if strings.HasPrefix(x.name, "envelope[recipients]") {
			s.to(string(x.value))
		}
	}
	for _, name := range []string{"message", "email", "body-mime"} {
		if v := f.get(name); len(bytes.TrimSpace(v)) > 0 {
			s.raw = v
			break
		}
	}
	for _, name := range []string{"envelope[from]", "sender"} {
		if f.has(name) && !s.env.HasFrom {
			s.sender(string(f.get(name)))
		}
	}
	for _, name := range []string{"envelope[to]", "recipient"} {
		if len(s.env.To) == 0 || name == "envelope[to]" {
			s.to(string(f.get(name)))
		}
	}
	s.env.SPF, s.env.SPFDomain = string(f.get("envelope[spf][result]")), string(f.get("envelope[spf][domain]"))
	var e jsonEnvelope
	if v := f.get("envelope"); v != nil && json.Unmarshal(v, &e) == nil {
		s.envelope(e)
	}
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
	if anyJSON(data, &b) {
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

// json reads both JSON forms: the raw message in a field, or parsed fields.
func (s *source) json(data []byte) error {
	var b struct {
		Raw         text                 `json:"raw"`
		Encoding    text                 `json:"encoding"`
		Envelope    jsonEnvelope         `json:"envelope"`
		Recipients  texts                `json:"recipients"`
		Headers     dict[texts]          `json:"headers"`
		Plain       text                 `json:"plain"`
		HTML        text                 `json:"html"`
		Reply       text                 `json:"reply_plain"`
		Attachments list[jsonAttachment] `json:"attachments"`
	}
	if !anyJSON(data, &b) {
		return errNotJSON
	}
	s.envelope(b.Envelope)
	s.to(b.Recipients...)
	if b.Raw != "" {
		s.raw = []byte(b.Raw)
		if strings.EqualFold(string(b.Encoding), "base64") {
			s.raw = mailparse.DecodeBase64(s.raw)
		}
		return nil
	}
	if b.Headers == nil || len(b.Headers) == 0 && b.Plain == "" && b.HTML == "" {
		return errNoMessage
	}
	s.env.Reply = string(b.Reply)
	s.taken = &receivedMessage{plain: body{data: []byte(b.Plain)}, html: body{data: []byte(b.HTML)}}
	for _, name := range slices.Sorted(maps.Keys(b.Headers)) { // objects have no order
		for _, v := range b.Headers[name] {
			s.taken.add(strings.ReplaceAll(name, "_", "-"), v)
		}
	}
	for _, a := range b.Attachments {
		s.taken.files = append(s.taken.files, a.file())
	}
	return nil
}

// file returns the attachment. Its content has priority over its URL.
func (a *jsonAttachment) file() file {
	f := file{
		name: string(a.Name), contentType: string(a.ContentType), contentID: string(a.ContentID),
		inline: strings.EqualFold(string(a.Disposition), "inline"), data: mailparse.DecodeBase64([]byte(a.Content)),
	}
	if a.Content == "" {
		f.url = string(a.URL)
	}
	return f
}

func (s *source) envelope(e jsonEnvelope) {
	if e.From != nil {
		s.sender(string(*e.From))
	}
	s.to(e.To...)
	s.to(e.Recipients...)
	s.env.SPF, s.env.SPFDomain = string(e.SPF.Result), string(e.SPF.Domain)
}
