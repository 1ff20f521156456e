package email

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// Writer sends the mail of every mail channel: it implements [channel.MailComposer]. Mail
// leaves by SMTP or by a delivery provider's API, independently of how mail arrives.
type Writer struct{ api channel.API }

// The credentials of a connection of any mail channel.
const (
	CredentialServer = "smtp_url"         // SMTP server for outbound mail
	CredentialAPIKey = "delivery_api_key" // sends and fetches mail
	CredentialAPIURL = "delivery_api_url" // API address, if not the default
	CredentialSecret = "delivery_secret"  // verifies events; several separated by commas
)

func newWriter(c Config) Writer {
	return Writer{channel.API{URL: strings.TrimRight(cmp.Or(c.DeliveryAPIURL, mail.DefaultAPIURL), "/"), Credentials: declared}}
}

var declared = []channel.Credential{
	{Name: CredentialServer, Kind: channel.KindServer}, {Name: CredentialAPIKey, Kind: channel.KindAPIKey},
	{Name: CredentialAPIURL, Kind: channel.KindAPIURL}, {Name: CredentialSecret, Kind: channel.KindSigning},
}

// API implements [channel.APIUser]. It is the delivery provider's API.
func (w Writer) API() channel.API { return w.api }

// Check implements [channel.Sender].
func (Writer) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if credentials.Get(CredentialServer) == "" && credentials.Get(CredentialAPIURL) != "" && credentials.Get(CredentialAPIKey) == "" {
		return problem.New(problem.Precondition, "the connection of %s cannot send: its credential %s needs %s", m.From, CredentialAPIURL, CredentialAPIKey)
	}
	if m.To.Email == "" {
		return problem.New(problem.Precondition, "the customer's mail address is not known")
	}
	// The size after base64 with its line ends, quoted-printable of non-ASCII letters, and
	// headers.
	size := 16<<10 + int64(len(m.Text)+len(m.HTML))*13/4
	for _, f := range m.Files {
		size += (f.Size+2)/3*4*78/76 + 1<<10
	}
	if size > mail.MaxSize {
		return problem.New(problem.TooLarge, "the message is larger than the %d MB that mail servers take; encoding makes files a third larger", mail.MaxSize>>20)
	}
	return nil
}

// maxReferences is the number of ids in References.
const maxReferences = 20

// Compose implements [channel.MailComposer]. It quotes nothing below the text: the customer's
// mail program shows the thread, and tickets show only new text.
func (Writer) Compose(m *channel.Outgoing) mail.Message {
	to := mail.Address{Name: headerLine(m.To.Name), Address: m.To.Email}
	from := mail.Address{Name: headerLine(m.FromName), Address: m.From}
	out := mail.Message{
		ID: m.ID, From: from, To: []mail.Address{to}, ReplyTo: mail.Address{Address: m.From},
		Subject: ticketSubject(m.Subject, m.TicketNumber), Text: m.Text, HTML: remoteImages(m.HTML), MessageID: m.MessageID,
	}
	for _, p := range m.Cc {
		out.Cc = append(out.Cc, mail.Address{Name: headerLine(p.Name), Address: p.Email})
	}
	for _, p := range m.Bcc {
		out.Bcc = append(out.Bcc, mail.Address{Address: p.Email})
	}
	add := func(name, value string) {
		if value != "" {
			out.Headers = append(out.Headers, mail.Header{Name: name, Value: value})
		}
	}
	add("In-Reply-To", bracketed(m.InReplyTo))
	add("References", references(m))
	add("X-Helpdesk-Message", m.CopyHeader)
	if m.Automatic {
		add("Auto-Submitted", "auto-replied")
		add("X-Auto-Response-Suppress", "All")
		add("Precedence", "bulk")
		out.EnvelopeFrom = "<>"
	}
	for _, f := range m.Files {
		out.Attachments = append(out.Attachments, mail.Attachment{Name: headerLine(f.Name), ContentType: headerLine(f.ContentType), ContentID: f.ContentID, Content: f.Data})
	}
	return out
}

// headerLine makes text fit for a header.
func headerLine(s string) string { return strings.Join(strings.Fields(safehtml.Clean(s)), " ") }

func bracketed(ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		// Skip unusable ids.
		if id == "" || len(id) > mailparse.MaxID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("<" + id + ">")
	}
	return b.String()
}

// references returns those of the mail that is answered, its id, and the id of m: a server may
// replace m's Message-ID, and a reply to m repeats its references. If there are too many, the
// first and the last remain.
func references(m *channel.Outgoing) string {
	var ids []string
	for _, id := range slices.Concat(m.References, []string{m.InReplyTo, m.MessageID}) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > maxReferences {
		ids = slices.Delete(ids, 1, 1+len(ids)-maxReferences)
	}
	return bracketed(ids...)
}

// remoteImages reverts the rewriting of images by [Parser.Sanitize], so that the recipient sees
// the original images.
func remoteImages(markup string) string {
	return strings.ReplaceAll(markup, " data-remote-src=\"", " src=\"")
}

// answerPrefix is the prefix of reply subjects.
var answerPrefix = regexp.MustCompile(`(?i)^\s*(re|aw|antw|sv|vs|ref|rif|res|odp|ynt|svar|回复|回覆|答复)(\[\d+\]|\(\d+\))?\s*[:：]\s*`)

var anyTicketTag = regexp.MustCompile(`(?i)\s*\[ticket #\d+\]`)

// ticketSubject returns the subject of a ticket's mail: the customer's with the ticket tag, and
// one "Re:" before it for a reply.
func ticketSubject(subject string, number int64) string {
	subject = headerLine(anyTicketTag.ReplaceAllString(subject, " "))
	re := ""
	for {
		cut := answerPrefix.FindString(subject)
		if cut == "" {
			break
		}
		re, subject = "Re: ", subject[len(cut):]
	}
	return headerLine(fmt.Sprintf("%s%s [Ticket #%d]", re, safehtml.Clip(subject, 500), number))
}
