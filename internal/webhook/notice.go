package webhook

import (
	"net/url"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/mail"
)

// failedMail tells an admin that a webhook was disabled. It names the
// receiver's host only: the rest of the URL may hold a secret.
func failedMail(to mail.Address, id, rawURL, baseURL, reason string) mail.Message {
	host := "its receiver"
	if u, err := url.Parse(rawURL); err == nil && u.Host != "" {
		host = u.Host
	}
	var b strings.Builder
	b.WriteString("Hello,\n\nKickstand could not deliver an event to the webhook at " + host + ":\n")
	b.WriteString("every attempt of its retry schedule failed. The webhook is now disabled.\n\n")
	b.WriteString("Last error: " + reason + "\n")
	b.WriteString("Webhook id: " + id + "\n\n")
	b.WriteString("New events wait in its queue, at most 10,000 of them. When the receiver works\n")
	b.WriteString("again, enable the webhook, and they are sent in order.\n")
	if baseURL != "" {
		b.WriteString("\n" + baseURL + "/\n")
	}
	return mail.Message{
		To:      []mail.Address{to},
		Subject: "Webhook to " + host + " disabled",
		Text:    b.String(),
		Headers: []mail.Header{{Name: "Auto-Submitted", Value: "auto-generated"}},
	}
}
