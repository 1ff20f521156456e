package webhook

import (
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/mail"
)

// failedMail returns the mail that notifies an admin of a failed webhook. It shows only the
// receiver's host: the rest of the URL may hold a secret.
func failedMail(to mail.Address, id, rawURL, baseURL, reason string) (mail.Message, error) {
	host := "its receiver"
	if u, err := url.Parse(rawURL); err == nil && u.Host != "" {
		host = u.Host
	}
	l := mail.Notification{
		Subject: "Webhook to " + host + " disabled",
		Before: []string{
			"Hello,",
			"Kickstand could not deliver an event to the webhook at " + host + ": every attempt of its retry schedule failed. The webhook is now disabled.",
			"Last error: " + reason,
			"New events wait in its queue, at most 10,000 of them.",
			"When the receiver works again, enable the webhook. Everything that it has not delivered is then sent at once, oldest first, with a new retry schedule: events that wait, events that would be retried later, and events that ran out of attempts. Newer events follow.",
		},
		After: []string{"Webhook id: " + id},
	}
	if baseURL != "" {
		l.Action = mail.Action{Label: "Look at the webhook", URL: baseURL + "/settings/webhooks/" + id}
	}
	return l.Message(mail.Address{}, to)
}
