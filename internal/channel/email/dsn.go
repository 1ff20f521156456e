package email

import (
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// daemon reports whether an address is one that mail servers send reports from.
func daemon(address string) bool {
	switch localPart(address) {
	case "mailer-daemon", "mailerdaemon", "postmaster", "mail-daemon", "mdaemon":
		return true
	}
	return false
}

// Subjects of delivery reports. Anchored, because a customer's forward adds a prefix.
var undeliverable = regexp.MustCompile(`(?i)^\s*(undeliver(able|ed)|undelivered mail|non[- ]?deliver(y|able)|delivery (status notification|failure|failed|has failed|notification|incomplete|delayed|problem|error)|mail (delivery|system) (failed|failure|error|subsystem|system|delayed|problem)|mail delivery|returned (mail|to sender|message)|failure notice|failed delivery|message (undeliverable|could not be delivered|not delivered|delivery failure|delayed)|delayed mail|warning: (message|could not send|mail)|your message could not be delivered|nachricht unzustellbar|unzustellbar|mail nicht zustellbar|zustellung fehlgeschlagen|non remis|échec de (la )?(remise|distribution)|courrier non distribué|no se puede entregar|no entregado|correo devuelto|impossibile recapitare|non recapitabile|mancato recapito|não (foi )?entregue|falha na entrega|onbestelbaar|niet bezorgd|kan inte levereras|olevererbart|ikke leveret|kunne ikke leveres|ei voitu toimittaa|nie można dostarczyć|niedostarczono|nedoručitelná|не доставлено|недоставлено|недоставленное|teslim edilemedi|配信不能|无法送达|投递失败)`)

var (
	delayedSubject = regexp.MustCompile(`(?i)delay|warning|still being retried|verzögert|retard|försenad`)
	statusPattern  = regexp.MustCompile(`\b([245]\.\d{1,3}\.\d{1,3})\b`)
	replyPattern   = regexp.MustCompile(`\b(5\d\d|4\d\d)[ -]`)
	angleAddress   = regexp.MustCompile(`<([^<>\s@]+@[^<>\s@]+)>`)
	returnedID     = regexp.MustCompile(`(?im)^[> \t|]*message-id:\s*<([^<>\s]+)>`)
)

// bounce parses a report about one of our messages and returns the rule that matched, or nil if
// the mail is no report.
//
// Few real reports are the multipart/report of RFC 3462, so the parts count wherever they are,
// and finally their text.
func bounce(m *channel.Message, root *mailparse.Part) (*channel.Receipt, string) {
	if n := root.Find("message/delivery-status", "message/global-delivery-status"); n != nil {
		return deliveryStatus(n), "message/delivery-status"
	}
	if n := root.Find("message/feedback-report"); n != nil {
		return complaintReceipt(n), "message/feedback-report"
	}
	if n := root.Find("message/disposition-notification", "message/global-disposition-notification"); n != nil {
		return disposition(n)
	}
	d, h := m.Mail, root.Header
	if root.Kind == "multipart/report" || strings.HasPrefix(h.Get("Content-Type"), "multipart/report") {
		switch kind := strings.ToLower(root.Params["report-type"]); {
		case kind == "disposition-notification" || kind == "feedback-report":
			return guessReceipt(m, h), "multipart/report; report-type=" + kind
		case kind == "delivery-status" || daemon(d.Sender.Email):
			return guessReceipt(m, h), "multipart/report; report-type=delivery-status"
		}
	}
	null, byDaemon := nullSender(d), daemon(d.Sender.Email)
	failed := h.Get("X-Failed-Recipients") != ""
	subject := undeliverable.MatchString(m.Subject)
	switch {
	case null && byDaemon:
		return guessReceipt(m, h), "empty return-path, from " + localPart(d.Sender.Email)
	case failed && (null || byDaemon):
		return guessReceipt(m, h), "x-failed-recipients"
	case subject && len(d.EmbeddedIDs) > 0:
		return guessReceipt(m, h), "undeliverable subject with the returned message"
	case subject && (null || byDaemon):
		return guessReceipt(m, h), "undeliverable subject, from " + localPart(d.Sender.Email)
	}
	return nil, ""
}

// embeddedIDs returns the ids of messages that the mail contains or returns.
func embeddedIDs(root *mailparse.Part) []string {
	var list []string
	root.Walk(func(n *mailparse.Part) {
		switch n.Kind {
		case "message/rfc822", "message/global", "text/rfc822-headers", "message/rfc822-headers", "message/global-headers":
			if id := mailparse.MessageID(mailparse.Header(n.Data())); id != "" {
				list = merge(list, []string{id})
			}
		case "message/delivery-status", "message/feedback-report", "message/disposition-notification":
			for _, b := range n.Blocks() {
				list = merge(list, mailparse.IDs(b.Values("Original-Message-Id")))
			}
		}
	})
	if undeliverable.MatchString(mailparse.Text(root.Header.Get("Subject"))) {
		if n := root.Find("text/plain"); n != nil { // returned as text
			text, _ := n.Text()
			for _, match := range returnedID.FindAllStringSubmatch(text, 3) {
				list = merge(list, mailparse.IDs([]string{"<" + match[1] + ">"}))
			}
		}
	}
	return list
}

// typed parses a field like "rfc822; ana@client.example".
func typed(v string) string {
	if _, rest, ok := strings.Cut(v, ";"); ok {
		v = rest
	}
	return mailparse.Text(v)
}

// deliveryStatus parses an RFC 3464 report. If a recipient failed, it determines the status of
// the message.
func deliveryStatus(n *mailparse.Part) *channel.Receipt {
	r := &channel.Receipt{State: channel.ReceiptFailed}
	rank := -1
	for _, b := range n.Blocks() {
		r.ExternalIDs = merge(r.ExternalIDs, mailparse.IDs(b.Values("Original-Message-Id")))
		action := strings.ToLower(strings.TrimSpace(b.Get("Action")))
		recipient := mailparse.Address(typed(b.Get("Final-Recipient")))
		if original := mailparse.Address(typed(b.Get("Original-Recipient"))); original != "" {
			recipient = original // the address that we used
		}
		if action == "" && recipient == "" {
			continue // the per-message block
		}
		status := statusPattern.FindString(b.Get("Status"))
		state := channel.ReceiptFailed
		order := []channel.ReceiptState{channel.ReceiptSent, channel.ReceiptDelivered, channel.ReceiptDelayed, channel.ReceiptFailed}
		switch {
		case action == "delayed" || action == "" && strings.HasPrefix(status, "4"):
			state = channel.ReceiptDelayed
		case action == "delivered" || action == "expanded":
			state = channel.ReceiptDelivered
		case action == "relayed":
			state = channel.ReceiptSent
		}
		if slices.Index(order, state) <= rank {
			continue
		}
		rank = slices.Index(order, state)
		r.State, r.Recipient, r.Error, r.Permanent = state, recipient, "", false
		if state == channel.ReceiptFailed {
			diagnostic := typed(b.Get("Diagnostic-Code"))
			if status == "" {
				status = statusPattern.FindString(diagnostic)
			}
			r.Permanent = strings.HasPrefix(status, "5")
			r.Error = reason(status, diagnostic)
		}
	}
	if rank < 0 {
		r.Error = reason("", "")
	}
	return r
}

// reason explains an enhanced status code (RFC 3463) in plain words, with the other server's
// text.
func reason(status, diagnostic string) string {
	text := "the mail could not be delivered"
	_, detail, _ := strings.Cut(status, ".")
	switch detail {
	case "1.1", "1.0", "1.6", "1.3":
		text = "the address does not exist"
	case "1.2", "4.4":
		text = "the domain of the address takes no mail"
	case "1.8", "1.7":
		text = "our own address was refused"
	case "1.10":
		text = "the domain takes no mail at all"
	case "2.1":
		text = "the mailbox is disabled"
	case "2.2":
		text = "the mailbox is full"
	case "2.3", "3.4":
		text = "the mail is too large"
	case "4.1", "4.2", "4.7":
		text = "the other server could not be reached in time"
	case "4.6":
		text = "the mail went round in circles"
	default:
		if strings.HasPrefix(detail, "7.") {
			text = "the other server refused the mail by its rules"
		}
	}
	if diagnostic == "" {
		diagnostic = status
	}
	if diagnostic != "" {
		text += " (" + safehtml.Clip(diagnostic, 300) + ")"
	}
	return text
}

// complaintReceipt parses an abuse report (RFC 5965): the mail was delivered, and the recipient
// opts out.
func complaintReceipt(n *mailparse.Part) *channel.Receipt {
	r := &channel.Receipt{State: channel.ReceiptFailed, Error: "the recipient reported the mail as unwanted", Permanent: true}
	for _, b := range n.Blocks() {
		for _, name := range []string{"Original-Rcpt-To", "Removal-Recipient"} {
			if a := mailparse.Address(b.Get(name)); a != "" && r.Recipient == "" {
				r.Recipient = a
			}
		}
	}
	return r
}

// disposition parses a read receipt (RFC 8098). In each case the mail was delivered.
func disposition(n *mailparse.Part) (*channel.Receipt, string) {
	r := &channel.Receipt{State: channel.ReceiptDelivered}
	what := ""
	for _, b := range n.Blocks() {
		r.ExternalIDs = merge(r.ExternalIDs, mailparse.IDs(b.Values("Original-Message-Id")))
		if a := mailparse.Address(typed(b.Get("Final-Recipient"))); a != "" {
			r.Recipient = a
		}
		if v := b.Get("Disposition"); v != "" {
			what, _, _ = strings.Cut(strings.ToLower(typed(v)), "/")
			what = safehtml.Clip(strings.TrimSpace(what), 40)
		}
	}
	switch what {
	case "displayed":
		r.State = channel.ReceiptRead
	case "failed":
		r.State, r.Error = channel.ReceiptFailed, "the recipient's mail program failed to process the mail"
	}
	return r, "disposition-notification: " + what
}

// guessReceipt parses a report that is plain text.
func guessReceipt(m *channel.Message, h textproto.MIMEHeader) *channel.Receipt {
	text := safehtml.Clip(m.Text, 20000)
	r := &channel.Receipt{State: channel.ReceiptFailed, ExternalIDs: m.Mail.EmbeddedIDs}
	if list := mailparse.AddressList(h.Get("X-Failed-Recipients")); len(list) > 0 {
		r.Recipient = list[0].Address
	} else {
		for _, match := range angleAddress.FindAllStringSubmatch(text, 20) {
			if a := mailparse.Address(match[1]); a != "" && Canonical(a) != Canonical(m.Mail.Recipient) && !daemon(a) {
				r.Recipient = a
				break
			}
		}
	}
	status := statusPattern.FindString(text)
	code := replyPattern.FindString(text)
	if delayedSubject.MatchString(m.Subject) || status == "" && strings.HasPrefix(code, "4") {
		r.State = channel.ReceiptDelayed
		return r
	}
	r.Permanent = strings.HasPrefix(status, "5") || status == "" && strings.HasPrefix(code, "5")
	diagnostic := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if (status != "" && strings.Contains(line, status)) || (status == "" && code != "" && strings.Contains(line, code)) {
			diagnostic = line
			break
		}
	}
	r.Error = reason(status, diagnostic)
	return r
}
