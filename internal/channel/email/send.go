package email

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// Writer is how every mail channel sends: it implements [channel.MailComposer].
// Mail leaves by SMTP or by a delivery provider's API, whichever way it came in.
type Writer struct{ api channel.API }

// The credentials of a connection of any mail channel.
const (
	CredentialServer = "smtp_url"         // mail leaves by this server
	CredentialAPIKey = "delivery_api_key" // mail leaves, and is fetched, with it
	CredentialAPIURL = "delivery_api_url" // where the API is, if not at the usual place
	CredentialSecret = "delivery_secret"  // signs events; several with commas
)

func newWriter(c Config) Writer {
	return Writer{channel.API{URL: strings.TrimRight(cmp.Or(c.DeliveryAPIURL, mail.DefaultAPIURL), "/"), Credentials: declared}}
}

var declared = []channel.Credential{
	{Name: CredentialServer, Kind: channel.KindServer}, {Name: CredentialAPIKey, Kind: channel.KindAPIKey},
	{Name: CredentialAPIURL, Kind: channel.KindAPIURL}, {Name: CredentialSecret, Kind: channel.KindSigning},
}

// API implements [channel.APIUser]. It is the delivery provider's.
func (w Writer) API() channel.API { return w.api }

// Check implements [channel.Sender].
func (Writer) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if credentials.Get(CredentialServer) == "" && credentials.Get(CredentialAPIURL) != "" && credentials.Get(CredentialAPIKey) == "" {
		return problem.New(problem.Precondition, "the connection of %s cannot send: its credential %s needs %s", m.From, CredentialAPIURL, CredentialAPIKey)
	}
	if m.To.Email == "" {
		return problem.New(problem.Precondition, "the customer's mail address is not known")
	}
	// What base64 and its lines make of files, what quoted-printable makes of
	// letters beyond ASCII, and something for headers.
	size := 16<<10 + int64(len(m.Text)+len(m.HTML))*13/4
	for _, f := range m.Files {
		size += (f.Size+2)/3*4*78/76 + 1<<10
	}
	if size > mail.MaxSize {
		return problem.New(problem.TooLarge, "the message is larger than the %d MB that mail servers take; files grow by a third on their way", mail.MaxSize>>20)
	}
	return nil
}

// maxReferences is how many ids a mail refers to.
const maxReferences = 20

// Compose implements [channel.MailComposer]. Nothing is quoted below the text:
// the customer's mail program shows the thread, and tickets show what is new.
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
		out.Attachments = append(out.Attachments, mail.Attachment{Name: headerLine(f.Name), ContentType: headerLine(f.ContentType), Content: f.Data})
	}
	return out
}

// headerLine is text fit for a header.
func headerLine(s string) string { return strings.Join(strings.Fields(safehtml.Clean(s)), " ") }

func bracketed(ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		// An id that cannot be written is of no use to anybody.
		if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("<" + id + ">")
	}
	return b.String()
}

// references are those of the mail that is answered, its id, and that of m
// itself: a server on the way may give m another Message-ID, and what answers m
// repeats its references. Of too many, the first and the last stay.
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

// remoteImages undoes what [Parser.Sanitize] did to images for showing them: who
// gets the mail shall see what was written.
func remoteImages(markup string) string {
	return strings.ReplaceAll(markup, " data-remote-src=\"", " src=\"")
}

// answerPrefix is what mail programs put before the subject of an answer.
var answerPrefix = regexp.MustCompile(`(?i)^\s*(re|aw|antw|sv|vs|ref|rif|res|odp|ynt|svar|回复|回覆|答复)(\[\d+\]|\(\d+\))?\s*[:：]\s*`)

var anyTicketTag = regexp.MustCompile(`(?i)\s*\[ticket #\d+\]`)

// ticketSubject is the subject of a mail in a ticket: the customer's, with the
// ticket's tag, and with one Re: before it if it is an answer.
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
	return headerLine(fmt.Sprintf("%s%s [Ticket #%d]", re, clip(subject, 500), number))
}
