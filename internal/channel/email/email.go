// Package email reads mail that arrives over HTTP.
//
// It has the four styles of the inbound path, each a channel: [Form], [Parsed] and
// [JSON] for providers that take a mail apart, [Raw] for converters that post it as
// the mail server received it. [Parser] is what they all come down to: raw bytes
// and an envelope in, one [channel.Message] out; what was taken apart is put
// together again first, so that there is one way to read a mail. It
// decodes MIME, decides what class the mail is of and by which rule, gathers the
// ids by which it may belong to an earlier one, cuts off quoted text and makes
// HTML harmless. It never fails on a mail, however broken: what cannot be read
// goes along as an attachment, so that no mail is lost.
//
// Nothing here knows what is stored. Which ticket a mail belongs to, and whether
// it is a copy of our own, the desk decides from [channel.Mail].
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
	"github.com/kickstand-dev/kickstand/internal/mailproof"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"golang.org/x/net/html"
)

// Config says what a deployment knows about the mail that it gets.
type Config struct {
	// TrustedAuthServers are the authserv-ids whose Authentication-Results
	// and ARC-Authentication-Results count: the names under which mail servers of
	// ours, which remove those of senders, write them.
	TrustedAuthServers []string

	// OwnDomains are ours: a Reply-To there never is a customer.
	OwnDomains []string

	// VoicemailDomains send voicemail notices; dialpad.com by default.
	VoicemailDomains []string

	// DefaultRegion is that of callers' numbers without a country code
	// (ISO 3166); US by default.
	DefaultRegion string

	// AttachmentHosts are hosts that attachments may be fetched from besides
	// the converter's usual stores.
	AttachmentHosts []string

	// DeliveryAPIURL is where the delivery provider's API is for connections that name
	// no other address; at the provider's by default.
	DeliveryAPIURL string

	// DeploymentAPIURL is where it is for the deployment's own key; the same by
	// default.
	DeploymentAPIURL string
}

// Parser turns raw mail into messages. It is safe for concurrent use.
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

// Envelope is what a mail's transport says about it, apart from the mail itself.
type Envelope struct {
	From    string   // empty for the null sender when HasFrom
	HasFrom bool     // whether the transport named a sender at all
	To      []string // every recipient that it named

	Recipient string    // the address of ours that this copy went to
	Received  time.Time // when it came in

	SPF       string // the receiving server's SPF result: "pass"
	SPFDomain string // the domain that it is about

	// DKIM are the domains whose signatures the receiving server found to hold; nil
	// when it reports nothing of the kind.
	DKIM []string

	Composed bool                // the message was put together again, and no signature covers its bytes
	TXT      map[string][]string // as in [channel.Request]

	Reply string // a hint: the text without quotes, as the provider found it
}

// ParseRaw reads a whole message. The error wraps [channel.ErrUnreadable], and
// only ever means that there is no message at all.
func (p *Parser) ParseRaw(raw []byte, env Envelope) (*channel.Message, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, fmt.Errorf("%w: there is no message", channel.ErrUnreadable)
	}
	var s splitter
	root, ok := s.message(raw)
	h := root.header
	m := &channel.Message{Mail: &channel.Mail{}}

	var c content
	if ok {
		c = p.content(root, s.limited)
	} else {
		// Not a mail at all: show what it says and keep it.
		root.body = raw
		root.header = textproto.MIMEHeader{}
		root.kind, root.children = "text/plain", nil
		h = root.header
		c.text, _ = root.text()
		c.limited = true
	}
	m.Text, m.HTML, m.Attachments = c.text, c.html, c.attachments
	if c.limited {
		m.Attachments = append(m.Attachments, channel.Attachment{Name: "message.eml", ContentType: "message/rfc822", Data: raw})
	}
	inlineImages(m)

	m.Subject = clip(headerText(h.Get("Subject")), 1000)
	m.To, m.Cc = addresses(h, "To"), addresses(h, "Cc")
	m.SentAt = sentAt(h, env.Received)

	p.headers(m, h, raw, env)
	p.classify(m, root, env)
	if m.Mail.Class != channel.ClassBounce {
		m.From = p.customer(h, m.Mail)
	}
	m.Stripped = p.stripped(m, c, env)
	return m, nil
}

// headers fills in what only mail has, except its class.
func (p *Parser) headers(m *channel.Message, h textproto.MIMEHeader, raw []byte, env Envelope) {
	d := m.Mail
	d.MessageID = messageID(h)
	d.InReplyTo = ids(h.Values("In-Reply-To"))
	d.References = ids(h.Values("References"))
	d.TicketTag = ticketTag(m.Subject)
	d.CopyHeader = clip(headerText(h.Get("X-Helpdesk-Message")), maxID)
	d.Recipient = env.Recipient
	d.EnvelopeFrom, d.HasEnvelope = envelopeSender(env.From), env.HasFrom
	if v := strings.TrimSpace(h.Get("Return-Path")); !d.HasEnvelope && v != "" {
		// What the last mail server wrote there is the envelope sender.
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

// sender is the first From address, else the first Sender address, else the
// envelope's.
func sender(h textproto.MIMEHeader, env Envelope) channel.Party {
	for _, name := range []string{"From", "Sender"} {
		if list := addresses(h, name); len(list) > 0 {
			return list[0]
		}
	}
	return channel.Party{Email: plain(env.From)}
}

// misleading reports whether a sender's name reads like another address.
func misleading(p channel.Party) bool {
	return strings.Contains(p.Name, "@") && !strings.EqualFold(strings.Trim(p.Name, `'" `), p.Email)
}

// check prepares the decision whether a whole message proves its sender.
func (p *Parser) check(raw []byte, env Envelope, author string) *mailproof.Check {
	head, body, _ := cutHeader(unixLines(trimMessage(raw)))
	return mailproof.New(mailproof.Mail{
		Head: head, Body: body, Intact: !env.Composed, Author: author, Received: env.Received,
		Trusted: p.trusted, SPF: env.SPF, SPFDomain: env.SPFDomain, DKIM: env.DKIM,
	})
}

// customer is whom an answer goes to: Reply-To, if it is one address and not one
// of ours, else the sender.
func (p *Parser) customer(h textproto.MIMEHeader, d *channel.Mail) channel.Party {
	reply := addresses(h, "Reply-To")
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

// sentAt is the Date header, unless the sender's clock is plainly wrong.
func sentAt(h textproto.MIMEHeader, received time.Time) time.Time {
	at, err := mail.ParseDate(clip(headerText(h.Get("Date")), 200))
	if err != nil || at.Year() < 1990 || !received.IsZero() && at.After(received.Add(10*time.Minute)) {
		return time.Time{}
	}
	return at.UTC()
}

// content is what a mail holds, apart from its header.
type content struct {
	text        string
	html        string // sanitized
	rawHTML     string // as it came
	attachments []channel.Attachment
	limited     bool // something was left out
}

// content walks the tree for the text, the HTML and the files.
func (p *Parser) content(root *node, limited bool) content {
	g := contentCollector{limited: limited}
	text, markup := g.body(root)
	c := content{attachments: g.attachments, limited: g.limited}
	c.rawHTML = markup
	if markup != "" {
		c.html = p.html.Sanitize(markup)
		if len(c.html) > 2*maxText { // escaping may lengthen it
			c.html, c.limited = "", true
		}
	}
	if len(text) > maxText {
		text, c.limited = clip(text, maxText), true
	}
	c.text = strings.TrimLeft(strings.TrimRight(text, " \t\n"), "\n")
	if strings.TrimSpace(c.text) == "" && c.html != "" {
		c.text = safehtml.Text(c.html, maxText)
	}
	return c
}

// contentCollector collects the leaves of a message.
type contentCollector struct {
	attachments []channel.Attachment
	limited     bool
}

// body returns the text and the HTML of a node, and takes its files.
//
// The children of an alternative say the same thing, so one text and one HTML
// are taken; those of any other container follow each other. Where some of these
// are HTML and some are not, the HTML gets the others' text too.
func (g *contentCollector) body(n *node) (text, markup string) {
	if n.children == nil {
		return g.leaf(n)
	}
	if n.kind == "multipart/alternative" {
		for _, c := range n.children {
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
	var texts, markups []string
	anyText, anyMarkup := false, false
	for _, c := range n.children {
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
				t = safehtml.Text(markups[i], maxText)
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
	if len(text) > maxText || len(markup) > maxText {
		g.limited = true
		text, markup = clip(text, maxText), clip(markup, maxText)
	}
	return text, markup
}

func (g *contentCollector) leaf(n *node) (text, markup string) {
	shown := n.kind == "text/plain" || n.kind == "text/html"
	if !shown || n.disposition == "attachment" || n.disposition != "" && n.name != "" {
		g.attach(n)
		return "", ""
	}
	body, whole := n.text()
	g.limited = g.limited || !whole
	if n.kind == "text/html" {
		return "", body
	}
	return body, ""
}

func (g *contentCollector) attach(n *node) {
	if len(g.attachments) == maxAttachments {
		g.limited = true
		return
	}
	data := n.data()
	name := n.name
	if name == "" {
		name = defaultName(n, data)
	}
	g.attachments = append(g.attachments, channel.Attachment{
		Name:        name,
		ContentType: n.kind,
		ContentID:   n.id,
		Inline:      n.disposition == "inline",
		Data:        slices.Clip(data),
	})
}

// defaultName names a file that has no name. The extension is what a person
// needs to open it.
func defaultName(n *node, data []byte) string {
	switch n.kind {
	case "message/rfc822", "message/global":
		head, _, _ := cutHeader(trimMessage(data))
		subject := clip(headerText(readHeader(head).Get("Subject")), 100)
		subject = fileName(strings.NewReplacer("/", "-", `\`, "-", ":", "").Replace(subject))
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
		if strings.HasPrefix(n.kind, e[0]) {
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

// stripped is the text without the earlier mail, or "" when that is all of it.
// The plain text is asked first, of which the provider may know still better what
// is new: but what it drops must look like a mail, since providers also drop lists
// and addresses. Where the text shows no quote, the HTML may have one that only its
// markup tells.
func (p *Parser) stripped(m *channel.Message, c content, env Envelope) string {
	if m.Text == "" || forwards(m.Subject) {
		return ""
	}
	lines := strings.Split(m.Text, "\n")
	cuttable := !slices.ContainsFunc(lines, forwardLine) && !inline(lines)
	s := StripQuoted(m.Text, m.Subject)
	if cuttable {
		if said, rest, ok := cutHint(s, safehtml.Clean(env.Reply)); ok && quotes(rest) {
			return said
		}
	}
	if s != m.Text {
		return s
	}
	if cut, ok := cutHTML(c.rawHTML); ok && cuttable {
		s := StripQuoted(safehtml.Text(p.html.Sanitize(cut), maxText), m.Subject)
		if strings.TrimSpace(s) != "" && len(s) < len(m.Text) {
			return s
		}
	}
	return ""
}

// cutHint cuts text after what hint says, if it begins with that; white space is
// the provider's own.
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
