package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"

	"github.com/google/uuid"
)

const inboundMail = "/api/webhooks/inbound-email"

// Defaults of the mail triggers. The mailbox of the demo's raw connection accepts raw
// mail only, so the other styles have their own.
const (
	demoMailText = "Hello,\r\nthe scooter at the station does not unlock.\r\n\r\nAna"
	demoSubject  = "The scooter does not unlock"
	demoSender   = "ana@client.example"
	demoFormBox  = "form@demo.example"
	demoParseBox = "parse@demo.example"
	demoJSONBox  = "json@demo.example"
)

func emailFormTrigger() trigger {
	return trigger{
		name: "email-form", secret: "email-form-secret", events: []string{"message", "mime"}, file: true,
		request: (*triggerCmd).emailForm,
	}
}

// emailForm builds a post of style A; mime is its raw variant, always used with a file.
func (t *triggerCmd) emailForm(s triggerRequest) (*http.Request, error) {
	from, to := firstNonEmpty(t.From, senderOf(s.file), demoSender), firstNonEmpty(t.To, demoFormBox)
	token := randomHex(25)
	timestamp, signature := email.SignForm(token, time.Now(), s.secret)
	form := url.Values{
		"timestamp": {timestamp}, "token": {token}, "signature": {signature},
		"recipient": {to}, "sender": {from}, "from": {"Ana Client <" + from + ">"}, "subject": {demoSubject},
	}
	path := inboundMail
	if s.file != nil || s.event == "mime" {
		path += "?format=mime"
		_, _, raw := t.message(s)
		form.Set("body-mime", string(raw))
	} else {
		said := firstNonEmpty(t.Text, demoMailText)
		headers, err := json.Marshal([][2]string{
			{"Message-Id", "<" + randomHex(12) + "@client.example>"}, {"Date", time.Now().Format(time.RFC1123Z)},
			{"From", "Ana Client <" + from + ">"}, {"To", to}, {"Subject", demoSubject},
		})
		if err != nil {
			return nil, err
		}
		form.Set("body-plain", said)
		form.Set("stripped-text", said)
		form.Set("message-headers", string(headers))
		form.Set("attachment-count", "0")
	}
	return s.post(path, "application/x-www-form-urlencoded", []byte(form.Encode()))
}

func emailParseTrigger() trigger {
	return trigger{
		name: "email-parse", secret: "email-parse-public-key", newSecret: email.NewParseKey, events: []string{"message", "raw"}, file: true,
		request: (*triggerCmd).emailParse,
	}
}

// emailParse builds a post of style B, signed with a test key in place of the provider's.
// raw has the message as received, always used with a file.
func (t *triggerCmd) emailParse(s triggerRequest) (*http.Request, error) {
	key, err := email.PrivateParseKey(s.secret)
	if err != nil {
		return nil, usageError{fmt.Errorf("--email-parse-public-key: it %w", err)}
	}
	from, to := firstNonEmpty(t.From, senderOf(s.file), demoSender), firstNonEmpty(t.To, demoParseBox)
	envelope, err := json.Marshal(map[string]any{"to": []string{to}, "from": from})
	if err != nil {
		return nil, err
	}
	fields := [][2]string{
		{"from", "Ana Client <" + from + ">"}, {"to", to}, {"subject", demoSubject}, {"envelope", string(envelope)}, {"SPF", "none"}, {"dkim", "none"},
	}
	if s.file != nil || s.event == "raw" {
		_, _, raw := t.message(s)
		fields = append(fields, [2]string{"email", string(raw)})
	} else {
		fields = append(fields, [][2]string{
			{"headers", "Message-ID: <" + randomHex(12) + "@client.example>\nFrom: Ana Client <" + from + ">\nTo: " + to + "\nSubject: " + demoSubject + "\n"},
			{"text", firstNonEmpty(t.Text, demoMailText)}, {"charsets", `{"text":"UTF-8"}`}, {"attachments", "0"},
		}...)
	}
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, f := range fields {
		w.WriteField(f[0], f[1]) // a buffer never fails
	}
	w.Close()
	req, err := s.post(inboundMail, w.FormDataContentType(), body.Bytes())
	if err != nil {
		return nil, err
	}
	signature, timestamp, err := email.SignParse(body.Bytes(), time.Now(), key)
	req.Header.Set(email.ParseSignatureHeader, signature)
	req.Header.Set(email.ParseTimestampHeader, timestamp)
	return req, err
}

func emailJSONTrigger() trigger {
	return trigger{
		name: "email-json", secret: "email-json-token", events: []string{"message", "raw"}, file: true,
		request: (*triggerCmd).emailJSON,
	}
}

// emailJSON builds a post of style C; raw has the message as received, always used with a
// file.
func (t *triggerCmd) emailJSON(s triggerRequest) (*http.Request, error) {
	from, to := firstNonEmpty(t.From, senderOf(s.file), demoSender), firstNonEmpty(t.To, demoJSONBox)
	mail := map[string]any{
		"From": from, "FromName": "Ana Client", "To": to, "OriginalRecipient": to, "Subject": demoSubject, "MessageID": uuid.NewString(),
		"TextBody": firstNonEmpty(t.Text, demoMailText), "HtmlBody": "", "StrippedTextReply": "", "ReplyTo": "", "MailboxHash": "",
		"Date":    time.Now().Format(time.RFC1123Z),
		"Headers": []map[string]string{{"Name": "Message-ID", "Value": "<" + randomHex(12) + "@client.example>"}}, "Attachments": []any{},
	}
	if s.file != nil || s.event == "raw" {
		_, _, raw := t.message(s)
		mail["RawEmail"] = string(raw)
	}
	body, err := json.Marshal(mail)
	if err != nil {
		return nil, err
	}
	req, err := s.post(inboundMail, "application/json", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(email.TokenHeader, email.SignJSON(s.secret))
	return req, nil
}

func emailDeliveryTrigger() trigger {
	return trigger{
		name: "email-delivery", secret: "email-delivery-secret",
		events: []string{
			"email.delivered", "email.sent", "email.delivery_delayed", "email.bounced", "email.complained", "email.failed", "email.suppressed",
			"email.opened", "email.clicked", "email.received",
		},
		request: (*triggerCmd).emailDelivery,
	}
}

// emailDelivery builds an event about an outbound mail to --to with the message id
// --text, or about an inbound mail for --to.
func (t *triggerCmd) emailDelivery(s triggerRequest) (*http.Request, error) {
	ours, theirs := firstNonEmpty(t.From, demoMailbox), firstNonEmpty(t.To, demoSender)
	now := time.Now().UTC().Format(time.RFC3339Nano)
	data := map[string]any{"email_id": uuid.NewString(), "created_at": now, "from": ours, "to": []string{theirs}, "subject": "Re: " + demoSubject}
	switch s.event {
	case "email.bounced":
		data["bounce"] = map[string]string{"type": "Permanent", "subType": "General", "message": "550 5.1.1 no such user"}
	case "email.failed":
		data["failed"] = map[string]string{"reason": "reached_daily_quota"}
	case "email.suppressed":
		data["suppressed"] = map[string]string{"type": "OnAccountSuppressionList", "message": "the address bounced before"}
	case "email.received":
		data["from"], data["to"] = firstNonEmpty(t.From, demoSender), []string{firstNonEmpty(t.To, demoMailbox)}
		data["subject"], data["message_id"] = demoSubject, "<"+randomHex(12)+"@client.example>"
	}
	if t.Text != "" && s.event != "email.received" {
		data["tags"] = map[string]string{"message": t.Text}
	}
	body, err := json.Marshal(map[string]any{"type": s.event, "created_at": now, "data": data})
	if err != nil {
		return nil, err
	}
	req, err := s.post("/api/webhooks/email-delivery", "application/json", body)
	if err != nil {
		return nil, err
	}
	id := "msg_" + randomHex(12)
	signature, timestamp := email.SignDelivery(body, id, time.Now(), s.secret)
	req.Header.Set(email.DeliveryIDHeader, id)
	req.Header.Set(email.DeliveryTimestampHeader, timestamp)
	req.Header.Set(email.DeliverySignatureHeader, signature)
	return req, nil
}
