package email

import (
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/phone"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// ruleSubject prefixes the rule of an automatic reply that only its subject indicates.
const ruleSubject = "subject: "

// classify sets the class and the rule that decided it: the first match of bounce, voicemail,
// automatic reply. The desk decides before that whether the mail is a copy of our own.
func (p *Parser) classify(m *channel.Message, root *mailparse.Part, env Envelope) {
	d, h := m.Mail, root.Header
	d.EmbeddedIDs = embeddedIDs(root)
	if b, rule := bounce(m, root); b != nil {
		d.Class, d.Rule = channel.ClassBounce, rule
		d.EmbeddedIDs = merge(d.EmbeddedIDs, b.ExternalIDs)
		b.ExternalIDs = merge(d.EmbeddedIDs, d.InReplyTo, d.References)
		if b.Note == "" {
			b.Note = safehtml.Clip(m.Text, 4000)
		}
		d.Receipt = b
	} else if rule := p.voicemailRule(m, root); rule != "" {
		d.Class, d.Rule = channel.ClassVoicemail, rule
		d.Caller = p.caller(m)
	} else if rule, generated := autoReply(m, h); rule != "" {
		d.Class, d.Rule, d.Generated = channel.ClassAutoReply, rule, generated
		d.Doubtful = strings.HasPrefix(rule, ruleSubject)
	} else {
		d.Class, d.Rule = channel.ClassInbound, "no other rule"
	}
	d.NoAutoAnswer = d.Class != channel.ClassInbound || neverAnswer(d, h)
}

// maxRelated is the maximum number of ids of a mail.
const maxRelated = 200

// merge joins lists of ids in order, without duplicates.
func merge(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		for _, id := range list {
			if !slices.Contains(all, id) && len(all) < maxRelated {
				all = append(all, id)
			}
		}
	}
	return all
}

// nullSender reports whether the envelope has the null sender, so that no reply is possible.
func nullSender(d *channel.Mail) bool { return d.HasEnvelope && d.EnvelopeFrom == "" }

func localPart(address string) string {
	local, _, _ := mailparse.CutAddress(strings.ToLower(address))
	return local
}

// voicemailRule recognizes the voice provider's notices: proven to be from its domain, and
// about a voicemail.
func (p *Parser) voicemailRule(m *channel.Message, root *mailparse.Part) string {
	domain := domainOf(m.Mail.Sender.Email)
	if !within(domain, p.voicemail) || !m.Mail.Proof.Proven() {
		return ""
	}
	subject := strings.ToLower(m.Subject)
	if strings.Contains(subject, "voicemail") || strings.Contains(subject, "voice mail") {
		return "voicemail: subject, from " + domain
	}
	audio := false
	root.Walk(func(n *mailparse.Part) { audio = audio || strings.HasPrefix(n.Kind, "audio/") })
	if audio {
		return "voicemail: audio, from " + domain
	}
	return ""
}

var numberPattern = regexp.MustCompile(`\+?\(?\d[\d ().\-\x{00a0}]{5,20}\d`)

// caller returns the first phone number in the subject or the text.
func (p *Parser) caller(m *channel.Message) string {
	for _, text := range []string{m.Subject, safehtml.Clip(m.Text, 10000)} {
		for _, candidate := range numberPattern.FindAllString(text, 50) {
			if n, ok := phone.Parse(candidate, p.region); ok {
				return n.E164
			}
		}
	}
	return ""
}

// Subjects of automatic replies in many languages.
var autoSubject = regexp.MustCompile(`(?i)^\s*(automatic reply|auto[- ]?reply|auto[- ]?response|automatische antwort|automatisch antwoord|abwesenheitsnotiz|abwesenheitsnachricht|out of (the )?office|away from (my )?(the )?(mail|office)|vacation (reply|response)|autosvar|automatiskt svar|automatisk svar|réponse automatique|absence du bureau|respuesta automática|fuera de (la )?oficina|risposta automatica|fuori sede|resposta automática|ausência|afwezig|automaattinen vastaus|poissa|poza biurem|odpowiedź automatyczna|automatická odpověď|автоответ|автоматический ответ|otomatik yanıt|自动回复|自動回覆|自動応答|자동 응답)\b`)

// autoReply returns the rule by which a program wrote the mail, or "", and whether it did so on
// its own rather than in reply.
//
// X-Auto-Response-Suppress and mailing list headers are no evidence: ordinary mail carries
// both.
func autoReply(m *channel.Message, h textproto.MIMEHeader) (rule string, generated bool) {
	value := func(name string) string { return strings.ToLower(safehtml.Clip(mailparse.Text(h.Get(name)), 100)) }
	present := func(name string) bool {
		v := value(name)
		return v != "" && v != "no" && v != "false"
	}
	words := strings.FieldsFunc(value("Auto-Submitted"), func(r rune) bool { return strings.ContainsRune("; (", r) })
	if len(words) > 0 && words[0] != "no" {
		return "auto-submitted: " + words[0], words[0] == "auto-generated" || words[0] == "auto-notified"
	}
	for _, name := range []string{"X-Autoreply", "X-Autorespond", "X-Autoresponse"} {
		if present(name) {
			return strings.ToLower(name), false
		}
	}
	if value("X-Auto-Reply-From") != "" {
		return "x-auto-reply-from", false
	}
	for _, name := range []string{"Precedence", "X-Precedence"} {
		if v := value(name); v == "auto_reply" || v == "auto-reply" {
			return strings.ToLower(name) + ": auto_reply", false
		}
	}
	for _, v := range h.Values("Delivered-To") {
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(v)), "autoresponder") {
			return "delivered-to: autoresponder", false
		}
	}
	if h.Get("X-Ms-Exchange-Inbox-Rules-Loop") != "" {
		return "x-ms-exchange-inbox-rules-loop", false
	}
	answers := len(m.Mail.InReplyTo) > 0 || len(m.Mail.References) > 0 || m.Mail.TicketTag > 0
	if nullSender(m.Mail) {
		return "empty return-path", !answers
	}
	if s := autoSubject.FindString(m.Subject); s != "" && answers {
		return ruleSubject + strings.ToLower(strings.TrimSpace(s)), false
	}
	return "", false
}

// maxHops is the number of Received headers from which a mail counts as looping.
const maxHops = 50

// neverAnswer reports whether an automatic reply could reach a list, a program or no mailbox.
func neverAnswer(d *channel.Mail, h textproto.MIMEHeader) bool {
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "list-") {
			return true
		}
	}
	switch strings.ToLower(strings.TrimSpace(h.Get("Precedence"))) {
	case "bulk", "list", "junk":
		return true
	}
	for _, v := range h.Values("X-Auto-Response-Suppress") {
		for word := range strings.FieldsFuncSeq(strings.ToLower(v), func(r rune) bool { return r == ',' || r == ' ' || r == ';' }) {
			if word == "all" || word == "autoreply" || word == "oof" {
				return true
			}
		}
	}
	return nullSender(d) || channel.IsUnattended(d.Sender.Email) || d.CopyHeader != "" || len(h.Values("Received")) > maxHops
}
