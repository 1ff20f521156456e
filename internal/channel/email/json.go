package email

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
)

// JSON is the channel "email-json" (style C): a provider that posts each mail as JSON, with its
// fields, or raw if so configured.
//
// Nothing is signed: the provider sends the secret itself, as a header, in the URL, or as the
// password of Basic credentials, because it supports nothing else.
type JSON struct{ style }

var (
	_ channel.Adapter           = (*JSON)(nil)
	_ channel.AddressNormalizer = (*JSON)(nil)
	_ channel.Recognizer        = (*JSON)(nil)
	_ channel.MailComposer      = (*JSON)(nil)
	_ channel.DNSVerifier       = (*JSON)(nil)
)

// TokenHeader is the header with style C's token.
const TokenHeader = "X-Mailbox-Token"

// NewJSON returns the channel.
func NewJSON(c Config) *JSON {
	return &JSON{style{Writer: newWriter(c), name: "email-json", parser: NewParser(c), open: openJSON}}
}

// Recognizes implements [channel.Recognizer].
func (*JSON) Recognizes(r *channel.Request) bool {
	if kind, _ := contentType(r); kind != kindJSON {
		return false
	}
	var all dict[json.RawMessage]
	return json.Unmarshal(r.Body, &all) == nil && isStyleC(all)
}

// isStyleC reports whether an object has members, spelled exactly, that only style C has.
func isStyleC(all dict[json.RawMessage]) bool {
	for _, name := range []string{"TextBody", "HtmlBody", "MailboxHash", "RawEmail", "FromFull"} {
		if all[name] != nil {
			return true
		}
	}
	return false
}

// Verify implements [channel.Adapter]. The first place with a token decides.
func (*JSON) Verify(r *channel.Request, secret string) bool {
	if secret == "" {
		return false
	}
	if token := r.Header.Get(TokenHeader); token != "" {
		return same(token, secret)
	}
	if token := r.Query().Get("token"); token != "" {
		return same(token, secret)
	}
	scheme, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Basic") && basicHolds(strings.TrimSpace(credentials), secret)
}

// HeaderProof implements [channel.HeaderProver].
func (*JSON) HeaderProof(r *channel.Request) channel.HeaderProof {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if r.Header.Get(TokenHeader) != "" || r.Query().Get("token") != "" || strings.EqualFold(scheme, "Basic") {
		return channel.HeadersDecide
	}
	return channel.HeadersRefuse
}

// SignJSON returns the value of [TokenHeader] that authenticates the provider.
func SignJSON(secret string) string { return secret }

type jsonParty struct {
	Email text
	Name  text
}

// openJSON reads the members of a mail.
func openJSON(r *channel.Request) (*source, error) {
	if kind, _ := contentType(r); kind != kindJSON {
		return nil, channel.ErrContentType
	}
	var b struct {
		From, FromName, To, Cc       text
		FromFull                     jsonParty
		ToFull, CcFull               list[jsonParty]
		OriginalRecipient            text
		Subject, Date                text
		ReplyTo                      text
		MessageID                    text // the provider's id, not the mail's
		TextBody, HtmlBody, RawEmail text
		StrippedTextReply            text
		Headers                      list[struct{ Name, Value text }]
		Attachments                  list[struct{ Name, ContentType, ContentID, Content text }]
	}
	if !anyJSON(r.Body, &b) {
		return nil, errNotJSON
	}
	s := &source{env: Envelope{Received: r.Received, Reply: string(b.StrippedTextReply)}}
	if b.MessageID != "" {
		s.id = "id:" + string(b.MessageID)
	}
	s.to(string(b.OriginalRecipient))
	if s.raw = []byte(b.RawEmail); len(s.raw) > 0 {
		return s, s.requireBody()
	}
	t := &receivedMessage{plain: body{data: []byte(b.TextBody)}, html: body{data: []byte(b.HtmlBody)}}
	for _, h := range b.Headers {
		t.add(string(h.Name), string(h.Value))
	}
	from := jsonParty{cmp.Or(b.FromFull.Email, b.From), cmp.Or(b.FromFull.Name, b.FromName)}
	t.supply("From", from.String())
	t.supply("To", cmp.Or(parties(b.ToFull), string(b.To)))
	t.supply("Cc", cmp.Or(parties(b.CcFull), string(b.Cc)))
	t.supply("Subject", string(b.Subject))
	t.supply("Date", string(b.Date))
	t.supply("Reply-To", string(b.ReplyTo))
	for _, a := range b.Attachments {
		t.files = append(t.files, file{
			name: string(a.Name), contentType: string(a.ContentType), contentID: strings.TrimPrefix(string(a.ContentID), "cid:"),
			data: mailparse.DecodeBase64([]byte(a.Content)),
		})
	}
	s.taken = t
	return s, s.requireBody()
}

// String returns the party in header form.
func (p jsonParty) String() string {
	if p.Name == "" || strings.ContainsRune(string(p.Email), '<') {
		return string(p.Email)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(p.Name)) + `" <` + string(p.Email) + ">"
}

func parties(list []jsonParty) string {
	var all []string
	for _, p := range list {
		if p.Email != "" {
			all = append(all, p.String())
		}
	}
	return strings.Join(all, ", ")
}
