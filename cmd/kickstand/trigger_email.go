package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/mail"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
)

func emailRawTrigger() trigger {
	return trigger{
		name: "email-raw", alias: "email", secret: "email-raw-secret", events: []string{"message"}, file: true,
		request: (*triggerCmd).emailRaw,
	}
}

func (t *triggerCmd) emailRaw(s triggerRequest) (*http.Request, error) {
	from, to, raw := t.message(s)
	req, err := s.post("/api/webhooks/inbound-email?style=raw", "message/rfc822", raw)
	if err != nil {
		return nil, err
	}
	signature, timestamp := email.SignRaw(raw, time.Now(), s.secret)
	req.Header.Set("X-Envelope-From", from)
	req.Header.Set("X-Envelope-To", to)
	req.Header.Set("X-Webhook-Timestamp", timestamp)
	req.Header.Set("X-Webhook-Signature", signature)
	return req, nil
}

// message returns a mail and its envelope: from --file, or a generated one.
func (t *triggerCmd) message(s triggerRequest) (from, to string, raw []byte) {
	raw = s.file
	from, to = firstNonEmpty(t.From, senderOf(raw), "ana@client.example"), firstNonEmpty(t.To, demoMailbox)
	if raw == nil {
		raw = t.compose(from, to)
	}
	return from, to, raw
}

// compose returns a plain text mail.
func (t *triggerCmd) compose(from, to string) []byte {
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", (&mail.Address{Name: "Ana Client", Address: from}).String())
	header("To", (&mail.Address{Address: to}).String())
	header("Subject", "The scooter does not unlock")
	header("Date", time.Now().Format(time.RFC1123Z))
	header("Message-ID", "<"+randomHex(12)+"@client.example>")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	b.WriteString("\r\n" + firstNonEmpty(t.Text, "Hello,\r\nthe scooter at the station does not unlock.\r\n\r\nAna") + "\r\n")
	return b.Bytes()
}

// senderOf returns the address in a message's From header, if valid.
func senderOf(raw []byte) string {
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return ""
	}
	a, err := mail.ParseAddress(m.Header.Get("From"))
	if err != nil {
		return ""
	}
	return a.Address
}
