package email

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// Form is the channel "email-form" (style A): a provider that posts each mail as a form, with
// its fields, or raw if the URL asks for that.
//
// The signature is a field of the form and covers a time and a random token but not the mail.
// The core therefore accepts a token with one body only.
type Form struct{ style }

var (
	_ channel.Adapter           = (*Form)(nil)
	_ channel.AddressNormalizer = (*Form)(nil)
	_ channel.Recognizer        = (*Form)(nil)
	_ channel.ReplayTokenReader = (*Form)(nil)
	_ channel.MailComposer      = (*Form)(nil)
	_ channel.DNSVerifier       = (*Form)(nil)
)

// formMaxAge is the maximum difference between the signature's time and ours. Whether retries
// have a new time is undocumented.
const formMaxAge = 15 * time.Minute

// NewForm returns the channel.
func NewForm(c Config) *Form {
	return &Form{style{Writer: newWriter(c), name: "email-form", parser: NewParser(c), open: openForm}}
}

// signedFields are the fields of the signature.
var signedFields = []string{"timestamp", "token", "signature"}

// Recognizes implements [channel.Recognizer].
func (*Form) Recognizes(r *channel.Request) bool {
	f, ok := readForm(r)
	return ok && f.has(signedFields...)
}

// Verify implements [channel.Adapter].
func (*Form) Verify(r *channel.Request, secret string) bool {
	f, ok := readForm(r)
	if !ok || secret == "" {
		return false
	}
	timestamp, token := string(f.get("timestamp")), string(f.get("token"))
	signature, err := hex.DecodeString(string(f.get("signature")))
	return err == nil && token != "" && fresh(r, timestamp, formMaxAge) && hmac.Equal(signature, formMAC(timestamp, token, secret))
}

// HeaderProof implements [channel.HeaderProver]: the signature is in the form.
func (*Form) HeaderProof(r *channel.Request) channel.HeaderProof {
	kind, _ := contentType(r)
	return channel.BodyDecidesIf(kind == kindURLEncoded || kind == kindMultipart)
}

func formMAC(timestamp, token, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp + token))
	return mac.Sum(nil)
}

// SignForm returns the fields timestamp and signature for a token.
func SignForm(token string, at time.Time, secret string) (timestamp, signature string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	return timestamp, hex.EncodeToString(formMAC(timestamp, token, secret))
}

// ReplayToken implements [channel.ReplayTokenReader].
func (*Form) ReplayToken(r *channel.Request) channel.ReplayToken {
	f, _ := readForm(r)
	at, ok := unixTime(string(f.get("timestamp")))
	if !ok {
		return channel.ReplayToken{}
	}
	return channel.ReplayToken{Value: string(f.get("token")), Until: at.Add(formMaxAge)}
}

// openForm reads the fields of a mail.
func openForm(r *channel.Request) (*source, error) {
	f, ok := readForm(r)
	switch {
	case !ok:
		return nil, channel.ErrContentType
	case !f.whole:
		return nil, errBrokenOff
	}
	s := &source{env: Envelope{Received: r.Received}}
	if token := string(f.get("token")); token != "" {
		s.id = "token:" + token
	}
	s.to(string(f.get("recipient")))
	if f.has("sender") {
		s.sender(string(f.get("sender")))
	}
	if s.raw = f.get("body-mime"); len(s.raw) > 0 {
		return s, s.requireBody()
	}
	s.env.Reply = strippedHint(string(f.get("stripped-text")), string(f.get("stripped-signature")))
	t := &receivedMessage{plain: body{data: f.get("body-plain")}, html: body{data: f.get("body-html")}}
	if len(t.plain.data) == 0 && len(t.html.data) == 0 {
		// Fall back to the provider's stripped text.
		t.plain.data, t.html.data = []byte(s.env.Reply), f.get("stripped-html")
	}
	t.fields = headerPairs(f.get("message-headers"))
	if t.fields == nil {
		// Each header is also a field; a capital letter distinguishes it from the provider's
		// fields.
		for _, x := range f.fields {
			if x.name != "" && x.name[0] >= 'A' && x.name[0] <= 'Z' {
				t.add(x.name, string(x.value))
			}
		}
	}
	for _, name := range []string{"From", "To", "Cc", "Subject", "Date", "Message-Id", "In-Reply-To", "References", "Reply-To"} {
		t.supply(name, string(f.get(name)))
	}
	t.supply("From", string(f.get("from")))
	t.supply("Subject", string(f.get("subject")))
	t.files = f.files("attachment-", contentIDs(f.get("content-id-map")))
	s.taken = t
	return s, s.requireBody()
}

// strippedHint returns the provider's text without quotes, followed by the part it takes for a
// signature, which may be a list or an address.
func strippedHint(text, signature string) string {
	if strings.TrimSpace(text) == "" || strings.TrimSpace(signature) == "" {
		return text
	}
	return strings.TrimRight(text, "\r\n") + "\n" + signature
}

// headerPairs parses an array of names and values. A value may be an array of strings, of which
// the first counts.
func headerPairs(data []byte) []headerField {
	var pairs list[list[json.RawMessage]]
	if !anyJSON(data, &pairs) {
		return nil
	}
	var fields []headerField
	for _, p := range pairs {
		var name text
		if len(p) < 2 || json.Unmarshal(p[0], &name) != nil || name == "" {
			continue
		}
		fields = append(fields, headerField{string(name), firstString(p[1])})
	}
	return fields
}

// firstString returns the first string in a value, descending into arrays.
func firstString(data json.RawMessage) string {
	for range 20 {
		var s string
		if json.Unmarshal(data, &s) == nil {
			return s
		}
		var inner list[json.RawMessage]
		if json.Unmarshal(data, &inner) != nil || len(inner) == 0 {
			return ""
		}
		data = inner[0]
	}
	return ""
}

// contentIDs parses an object from content ids to field names and returns the ids by field.
func contentIDs(data []byte) map[string]string {
	var fields dict[text]
	anyJSON(data, &fields)
	ids := make(map[string]string, len(fields))
	for id, field := range fields {
		if old := ids[string(field)]; old == "" || id < old { // objects have no order
			ids[string(field)] = id
		}
	}
	return ids
}

// files returns the files of the form: file fields, and fields named prefix and a number.
func (f *form) files(prefix string, ids map[string]string) []file {
	var list []file
	for _, x := range f.fields {
		number, numbered := strings.CutPrefix(x.name, prefix)
		if !x.isFile && (!numbered || number == "" || strings.Trim(number, "0123456789") != "") {
			continue
		}
		id := ids[x.name]
		if id == "" {
			id = x.contentID
		}
		list = append(list, file{field: x.name, name: x.fileName, contentType: x.contentType, contentID: id, data: x.value})
	}
	return list
}
