// Package email parses mail that arrives over HTTP.
//
// It has the four styles of the inbound endpoint, each a channel: [Form], [Parsed] and [JSON]
// for providers that parse mail into fields, [Raw] for converters that post the raw message.
// All lead to [Parser], which maps raw bytes and an envelope to one [channel.Message]; parsed
// fields are first composed into a raw message again, so that there is a single way to read
// mail. Parser decodes MIME, classifies the mail, collects the ids that relate it to earlier
// mail, removes quoted text and sanitizes HTML. It never fails on a mail: unreadable content
// becomes an attachment, so that no mail is lost.
//
// The package has no access to stored data. The desk decides from [channel.Mail] which ticket a
// mail belongs to, and whether it is a copy of our own.
package email

import (
	"bytes"
	"fmt"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/mailquote"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"golang.org/x/net/html"
)

// Config holds the settings of a deployment for inbound mail.
type Config struct {
	// TrustedAuthServers are the authserv-ids with trusted Authentication-Results and
	// ARC-Authentication-Results: names of our own mail servers, which remove such headers of
	// senders.
	TrustedAuthServers []string

	// OwnDomains are our domains. A Reply-To there is never a customer.
	OwnDomains []string

	// VoicemailDomains are the senders of voicemail notices. Default: dialpad.com.
	VoicemailDomains []string

	// DefaultRegion is the region (ISO 3166) of callers' numbers without a country code.
	// Default: US.
	DefaultRegion string

	// AttachmentHosts are further hosts to download attachments from, beyond the converter's
	// usual stores.
	AttachmentHosts []string

	// DeliveryAPIURL is the delivery provider's API for connections without their own URL.
	// Default: the provider's.
	DeliveryAPIURL string

	// DeploymentAPIURL is the API for the deployment's own key, with the same default.
	DeploymentAPIURL string
}

// Parser parses raw mail into messages. It is safe for concurrent use.
type Parser struct {
	trusted   []string
	own       []string
	voicemail []string
	region    string
	html      *safehtml.Sanitizer
}

// NewParser returns a parser.
func NewParser(c Config) *Parser {
	p := &Parser{
		trusted:   c.TrustedAuthServers,
		own:       c.OwnDomains,
		voicemail: c.VoicemailDomains,
		region:    c.DefaultRegion,
		html:      safehtml.NewSanitizer(),
	}
	if len(p.voicemail) == 0 {
		p.voicemail = []string{"dialpad.com"}
	}
	if p.region == "" {
		p.region = "US"
	}
	return p
}

// Envelope is the transport data of a mail.
type Envelope struct {
	From    string   // empty for the null sender when HasFrom
	HasFrom bool     // the transport named a sender
	To      []string // all recipients

	Recipient string    // our address that received this copy
	Received  time.Time // time of receipt

	SPF       string // SPF result of the receiving server: "pass"
	SPFDomain string // domain of the SPF result
	SPFBy     string // name of the receiving server in explanations; default: the provider

	// DKIM are the domains with a valid signature according to the receiving server; nil if it
	// does not report them.
	DKIM []string

	// Trusted are the authserv-ids that the connection trusts; nil: those of the deployment.
	Trusted []string

	Composed bool                // the message was composed again, so no signature covers its bytes
	TXT      map[string][]string // as in [channel.Request]

	Reply string // a hint: the provider's text without quotes
}

// ParseRaw parses a whole message. An error wraps [channel.ErrUnreadable] and means that there
// is no message at all.
func (p *Parser) ParseRaw(raw []byte, env Envelope) (*channel.Message, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, fmt.Errorf("%w: there is no message", channel.ErrUnreadable)
	}
	root, ok, whole := mailparse.Parse(raw)
	h := root.Header
	m := &channel.Message{Mail: &channel.Mail{}}

	var c content
	if ok {
		c = p.content(root, !whole)
	} else {
		// Not a mail at all: show its text and attach it.
		c.text, _ = root.Text()
		c.limited = true
	}
	m.Text, m.HTML, m.Attachments = c.text, c.html, c.attachments
	if c.limited {
		m.Attachments = append(m.Attachments, channel.Attachment{Name: "message.eml", ContentType: "message/rfc822", Data: raw})
	}
	inlineImages(m)

	m.Subject = safehtml.Clip(mailparse.Text(h.Get("Subject")), 1000)
	m.To, m.Cc = partiesOf(mailparse.Addresses(h, "To")), partiesOf(mailparse.Addresses(h, "Cc"))
	m.SentAt = sentAt(h, env.Received)

	p.headers(m, h, raw, env)
	p.classify(m, root, env)
	if m.Mail.Class != channel.ClassBounce {
		m.From = p.customer(h, m.Mail)
	}
	m.Stripped = p.stripped(m, c, env)
	return m, nil
}

// headers sets the mail properties except the class.
func (p *Parser) headers(m *channel.Message, h textproto.MIMEHeader, raw []byte, env Envelope) {
	d := m.Mail
	d.MessageID = mailparse.MessageID(h)
	d.InReplyTo = mailparse.IDs(h.Values("In-Reply-To"))
	d.References = mailparse.IDs(h.Values("References"))
	d.TicketTag = ticketTag(m.Subject)
	d.CopyHeader = safehtml.Clip(mailparse.Text(h.Get("X-Helpdesk-Message")), mailparse.MaxID)
	d.Recipient = env.Recipient
	d.EnvelopeFrom, d.HasEnvelope = envelopeSender(env.From), env.HasFrom
	if v := strings.TrimSpace(h.Get("Return-Path")); !d.HasEnvelope && v != "" {
		// The last mail server writes the envelope sender there.
		d.EnvelopeFrom, d.HasEnvelope = envelopeSender(v), true
	}
	m.ExternalID = d.MessageID

	d.Sender = sender(h, Envelope{From: d.EnvelopeFrom})
	if misleading(d.Sender) {
		d.Sender.Name = ""
	}
	m.From = d.Sender
	d.Proof = p.check(raw, env, d.Sender.Email).Verdict(env.TXT)
}

// sender returns the first From address, else the first Sender address, else the envelope's.
func sender(h textproto.MIMEHeader, env Envelope) channel.Party {
	for _, name := range []string{"From", "Sender"} {
		if list := partiesOf(mailparse.Addresses(h, name)); len(list) > 0 {
			return list[0]
		}
	}
	return channel.Party{Email: mailparse.Address(env.From)}
}

// misleading reports whether a sender's name looks like another address.
func misleading(p channel.Party) bool {
	return strings.Contains(p.Name, "@") && !strings.EqualFold(strings.Trim(p.Name, `'" `), p.Email)
}

// check prepares the check whether a whole message proves its sender.
func (p *Parser) check(raw []byte, env Envelope, author string) *mailauth.Check {
	head, body := mailparse.Split(raw)
	trusted := p.trusted
	if env.Trusted != nil {
		trusted = env.Trusted
	}
	return mailauth.New(mailauth.Mail{
		Head: head, Body: body, Intact: !env.Composed, Author: author, Received: env.Received,
		Trusted: trusted, SPF: env.SPF, SPFDomain: env.SPFDomain, SPFBy: env.SPFBy, DKIM: env.DKIM,
	})
}

// customer returns the recipient of replies: Reply-To, if it is one address and not one of
// ours, else the sender.
func (p *Parser) customer(h textproto.MIMEHeader, d *channel.Mail) channel.Party {
	reply := partiesOf(mailparse.Addresses(h, "Reply-To"))
	if len(reply) != 1 {
		return d.Sender
	}
	address := reply[0].Email
	if within(domainOf(address), p.own) || Canonical(address) == Canonical(d.Recipient) {
		return d.Sender
	}
	if reply[0].Name == "" && (strings.EqualFold(address, d.Sender.Email) || d.Sender.Email == "") {
		reply[0].Name = d.Sender.Name
	}
	return reply[0]
}

// sentAt returns the Date header, unless it is implausible.
func sentAt(h textproto.MIMEHeader, received time.Time) time.Time {
	at, err := mail.ParseDate(safehtml.Clip(mailparse.Text(h.Get("Date")), 200))
	if err != nil || at.Year() < 1990 || !received.IsZero() && at.After(received.Add(10*time.Minute)) {
		return time.Time{}
	}
	return at.UTC()
}

// content is the content of a mail without its header.
type content struct {
	text        string
	html        string // sanitized
	rawHTML     string // unsanitized
	attachments []channel.Attachment
	limited     bool // truncated
}

// content collects the text, the HTML and the files of the tree.
func (p *Parser) content(root *mailparse.Part, limited bool) content {
	g := contentCollector{limited: limited}
	text, markup := g.body(root)
	c := content{attachments: g.attachments, limited: g.limited}
	c.rawHTML = markup
	if markup != "" {
		c.html = p.html.Sanitize(markup)
		if len(c.html) > 2*mailparse.MaxText { // escaping may lengthen it
			c.html, c.limited = "", true
		}
	}
	if len(text) > mailparse.MaxText {
		text, c.limited = safehtml.Clip(text, mailparse.MaxText), true
	}
	c.text = strings.TrimLeft(strings.TrimRight(text, " \t\n"), "\n")
	if strings.TrimSpace(c.text) == "" && c.html != "" {
		c.text = safehtml.Text(c.html, mailparse.MaxText)
	}
	return c
}

// contentCollector collects the leaves of a message.
type contentCollector struct {
	attachments []channel.Attachment
	limited     bool
}

// body returns the text and the HTML of a node, and collects its files.
//
// Of a multipart/alternative it takes one text and one HTML; in any other container the
// children follow each other. If only some of them are HTML, the HTML includes the rest as
// text.
func (g *contentCollector) body(n *mailparse.Part) (text, markup string) {
	if n.Children == nil {
		return g.leaf(n)
	}
	if n.Kind == "multipart/alternative" {
		return g.alternative(n)
	}
	var texts, markups []string
	anyText, anyMarkup := false, false
	for _, c := range n.Children {
		t, m := g.body(c)
		if strings.TrimSpace(t) == "" && strings.TrimSpace(m) == "" {
			continue
		}
		anyText = anyText || strings.TrimSpace(t) != ""
		anyMarkup = anyMarkup || m != ""
		texts, markups = append(texts, t), append(markups, m)
	}
	if anyText {
		var parts []string
		for i, t := range texts {
			if strings.TrimSpace(t) == "" && anyMarkup {
				t = safehtml.Text(markups[i], mailparse.MaxText)
			}
			parts = append(parts, strings.TrimRight(t, "\n"))
		}
		text = strings.Join(parts, "\n\n")
	}
	if anyMarkup {
		for i, m := range markups {
			if m == "" {
				m = "<pre>" + html.EscapeString(texts[i]) + "</pre>"
			}
			markup += m + "\n"
		}
	}
	if len(text) > mailparse.MaxText || len(markup) > mailparse.MaxText {
		g.limited = true
		text, markup = safehtml.Clip(text, mailparse.MaxText), safehtml.Clip(markup, mailparse.MaxText)
	}
	return text, markup
}

// alternative returns the first text and the last HTML of the children.
func (g *contentCollector) alternative(n *mailparse.Part) (text, markup string) {
	for _, c := range n.Children {
		t, m := g.body(c)
		if strings.TrimSpace(text) == "" {
			text = t
		}
		if m != "" {
			markup = m
		}
	}
	return text, markup
}

func (g *contentCollector) leaf(n *mailparse.Part) (text, markup string) {
	shown := n.Kind == "text/plain" || n.Kind == "text/html"
	if !shown || n.Disposition == "attachment" || n.Disposition != "" && n.Name != "" {
		g.attach(n)
		return "", ""
	}
	body, whole := n.Text()
	g.limited = g.limited || !whole
	if n.Kind == "text/html" {
		return "", body
	}
	return body, ""
}

func (g *contentCollector) attach(n *mailparse.Part) {
	if len(g.attachments) == mailparse.MaxAttachments {
		g.limited = true
		return
	}
	data := n.Data()
	name := n.Name
	if name == "" {
		name = defaultName(n, data)
	}
	g.attachments = append(g.attachments, channel.Attachment{
		Name:        name,
		ContentType: n.Kind,
		ContentID:   n.ID,
		Inline:      n.Disposition == "inline",
		Data:        slices.Clip(data),
	})
}

// defaultName names a file without a name, with the extension needed to open it.
func defaultName(n *mailparse.Part, data []byte) string {
	switch n.Kind {
	case "message/rfc822", "message/global":
		subject := safehtml.Clip(mailparse.Text(mailparse.Header(data).Get("Subject")), 100)
		subject = mailparse.FileName(strings.NewReplacer("/", "-", `\`, "-", ":", "").Replace(subject))
		if subject != "" {
			return subject + ".eml"
		}
		return "message.eml"
	case "application/pgp-signature":
		return "signature.asc"
	case "application/pkcs7-signature", "application/x-pkcs7-signature":
		return "smime.p7s"
	case "application/pkcs7-mime", "application/x-pkcs7-mime":
		return "smime.p7m"
	case "application/ms-tnef":
		return "winmail.dat"
	case "text/calendar":
		return "invite.ics"
	case "text/x-vcard", "text/vcard":
		return "contact.vcf"
	}
	for _, e := range [][2]string{
		{"image/jpeg", ".jpg"}, {"image/png", ".png"}, {"image/gif", ".gif"}, {"image/webp", ".webp"}, {"image/heic", ".heic"},
		{"application/pdf", ".pdf"}, {"text/", ".txt"}, {"message/", ".txt"}, {"audio/mpeg", ".mp3"}, {"audio/wav", ".wav"},
		{"audio/x-wav", ".wav"}, {"video/mp4", ".mp4"}, {"application/zip", ".zip"}, {"application/json", ".json"},
	} {
		if strings.HasPrefix(n.Kind, e[0]) {
			return "attachment" + e[1]
		}
	}
	return "attachment"
}

// inlineImages marks the files that the HTML shows.
func inlineImages(m *channel.Message) {
	if m.HTML == "" {
		return
	}
	shown := safehtml.Images(m.HTML)
	for i, a := range m.Attachments {
		if a.ContentID != "" && slices.Contains(shown, a.ContentID) {
			m.Attachments[i].Inline = true
		}
	}
}

// stripped returns the text without quoted mail, or "" if that is all of it. It starts with the
// plain text and prefers the provider's hint, but only if the removed part looks like a mail,
// because providers also remove lists and addresses. If the text shows no quote, the HTML
// markup may.
func (p *Parser) stripped(m *channel.Message, c content, env Envelope) string {
	if m.Text == "" {
		return ""
	}
	cuttable := mailquote.Strippable(m.Text, m.Subject)
	s := mailquote.Strip(m.Text, m.Subject)
	if cuttable {
		if said, rest, ok := cutHint(s, safehtml.Clean(env.Reply)); ok && mailquote.HasQuote(rest) {
			return said
		}
	}
	if s != m.Text {
		return s
	}
	if cut, ok := mailquote.CutHTML(c.rawHTML); ok && cuttable {
		s := mailquote.Strip(safehtml.Text(p.html.Sanitize(cut), mailparse.MaxText), m.Subject)
		if strings.TrimSpace(s) != "" && len(s) < len(m.Text) {
			return s
		}
	}
	return ""
}

// cutHint splits text after the hint, if it begins with it. White space may differ.
func cutHint(text, hint string) (said, rest string, ok bool) {
	rest = strings.TrimSpace(text)
	hint = strings.TrimSpace(hint)
	if hint == "" {
		return "", "", false
	}
	whole := rest
	for hint != "" {
		r, n := utf8.DecodeRuneInString(hint)
		if !unicode.IsSpace(r) {
			if !strings.HasPrefix(rest, hint[:n]) {
				return "", "", false
			}
			hint, rest = hint[n:], rest[n:]
			continue
		}
		hint, rest = strings.TrimLeftFunc(hint, unicode.IsSpace), strings.TrimLeftFunc(rest, unicode.IsSpace)
	}
	return strings.TrimRightFunc(whole[:len(whole)-len(rest)], unicode.IsSpace), rest, true
}
