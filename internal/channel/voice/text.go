package voice

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// splitText splits a text event into parts.
func (o object) splitText(part channel.Part) ([]channel.Part, error) {
	id := o.textID()
	if id == "" || o.text("from_number") == "" {
		return nil, fmt.Errorf("%w: a text needs from_number", channel.ErrUnreadable)
	}
	part.Kind = KindText
	if !o.outbound() {
		part.Key = channel.IndexKey("sms:" + id)
		_, part.Sender = o.sender(id)
		return []channel.Part{part}, nil
	}
	var parts []channel.Part
	to := o.recipients()
	if len(to) == 0 {
		return nil, fmt.Errorf("%w: a text that left needs to_number", channel.ErrUnreadable)
	}
	if o.speaks() {
		for _, recipient := range to {
			p := part
			p.Sender, p.Key = recipient, channel.IndexKey("sms:"+o.copyID(recipient))
			parts = append(parts, p)
		}
	}
	if _, known := textState(o.status()); known {
		for _, recipient := range to {
			p := part
			p.Kind, p.Sender = KindTextStatus, recipient
			p.Key = channel.IndexKey("sms:" + o.copyID(recipient) + ":state:" + o.status())
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		part.Skip = true
		parts = append(parts, part)
	}
	return parts, nil
}

// textID identifies a text: the provider's id, or, in the form without one, a digest of content
// and time.
func (o object) textID() string {
	if id := o.text("id", "message_id", "sms_id"); id != "" {
		return channel.IndexKey(id)
	}
	if o.text("from_number") == "" {
		return "" // not even a sender
	}
	h := sha256.New()
	for _, s := range slices.Concat(
		[]string{o.text("from_number")}, o.ends("to_number"),
		[]string{"", o.text("timestamp", "created_date", "event_timestamp"), o.text("text")},
	) {
		fmt.Fprintf(h, "%d:%s\n", len(s), s)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// sender returns the sender of a text and its thread. Texts from withheld numbers have no
// sender and each its own thread.
func (o object) sender(id string) (channel.Party, string) {
	p, thread := party(o.text("from_number"))
	return p, cmp.Or(thread, channel.IndexKey("sms "+id))
}

// copyID identifies a recipient's copy of a text: each is a message in its own thread.
func (o object) copyID(recipient string) string {
	if len(o.recipients()) > 1 {
		return channel.IndexKey(o.textID() + ":" + recipient)
	}
	return o.textID()
}

func (o object) status() string { return channel.IndexKey(strings.ToLower(o.text("message_status"))) }

// speaks reports whether the event has the text's content.
func (o object) speaks() bool { return o.text("text") != "" || o.text("mms_url") != "" }

// recipients returns the keys of a text's recipients.
func (o object) recipients() []string {
	var list []string
	for _, raw := range o.ends("to_number") {
		if _, thread := party(raw); thread != "" && len(list) < maxAddresses && !slices.Contains(list, thread) {
			list = append(list, thread)
		}
	}
	return list
}

// unread replaces the content of a text that the provider withholds.
const unread = "(The provider did not hand over what this message says: the API key of the webhook needs the scope message_content_export.)"

// message returns the message of a text: the customer's, or one that an agent sent with the
// provider's app.
func (o object) message(part channel.Part) (channel.Event, error) {
	id := o.textID()
	if id == "" {
		return channel.Event{}, fmt.Errorf("%w: a text needs from_number", channel.ErrUnreadable)
	}
	m := &channel.Message{
		ExternalID: id,
		Text:       strings.ReplaceAll(o.text("text"), "\r\n", "\n"),
		SentAt:     o.time("created_date", "timestamp", "event_timestamp"),
	}
	if file, ok := file("attachment", o.text("mms_url")); ok {
		// Any file type; the core detects it.
		m.Attachments = []channel.Attachment{{URL: file.URL}}
	}
	if m.Text == "" && m.Attachments == nil {
		m.Text = unread
	}
	if o.outbound() {
		to := ""
		for _, raw := range o.ends("to_number") {
			p, thread := party(raw)
			if thread == "" || to != "" && thread != part.Sender {
				continue
			}
			m.To, to = []channel.Party{p}, thread
		}
		if to == "" {
			return channel.Event{}, fmt.Errorf("%w: a text that left needs to_number", channel.ErrUnreadable)
		}
		m.Outbound, m.ThreadKey, m.ExternalID = true, to, o.copyID(to)
		m.From, _ = party(o.text("from_number"))
		m.From.Name = o.object("target").text("name")
		if len(o.recipients()) == 1 {
			m.To[0].Name = o.object("contact").text("name")
		}
		return channel.Event{Message: m}, nil
	}
	m.From, m.ThreadKey = o.sender(id)
	if p, _ := o.contact(); p.Phone == "" || p.Phone == m.From.Phone {
		m.From.Name = p.Name
	}
	for _, raw := range o.ends("to_number") {
		if p, thread := party(raw); thread != "" {
			m.To = append(m.To, p)
		}
	}
	m.OptOut, m.OptIn = consent(m.Text)
	return channel.Event{Message: m}, nil
}

// consent reports whether a text opts out or in again: it consists of one of the carriers'
// keywords.
func consent(text string) (out, again bool) {
	switch strings.ToUpper(strings.Trim(text, " \t\r\n.!")) {
	case "STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT":
		return true, false
	case "START", "UNSTOP", "YES":
		return false, true
	}
	return false, false
}

// receipt returns the delivery status of an outbound text.
func (o object) receipt(part channel.Part) (channel.Event, error) {
	state, known := textState(o.status())
	id := o.textID()
	if !known || id == "" {
		return channel.Event{}, fmt.Errorf("%w: not the state of a text", channel.ErrUnreadable)
	}
	r := &channel.Receipt{ExternalIDs: []string{o.copyID(part.Sender)}, State: state, Recipient: part.Sender}
	if state == channel.ReceiptFailed {
		r.Error, r.Permanent, r.OptedOut = explain(cmp.Or(o.text("message_delivery_result", "error_code"), o.status()))
	}
	return channel.Event{Receipt: r}, nil
}

// textState maps the provider's state of a text to ours.
func textState(state string) (channel.ReceiptState, bool) {
	switch state {
	case "pending", "queued", "accepted", "sending":
		return channel.ReceiptQueued, true
	case "sent":
		return channel.ReceiptSent, true
	case "success", "delivered":
		return channel.ReceiptDelivered, true
	case "failed", "undelivered", "rejected", "canceled":
		return channel.ReceiptFailed, true
	}
	return "", false
}

// explain explains in plain words why a text failed, whether the number is permanently invalid,
// and whether the recipient opted out. result is the provider's code.
func explain(result string) (text string, permanent, optedOut bool) {
	switch strings.ToLower(result) {
	case "invalid_destination":
		return "the number cannot receive texts (invalid_destination)", true, false
	case "invalid_source":
		return "our number cannot send texts (invalid_source)", false, false
	case "no_route":
		return "no carrier reaches the number (no_route)", false, false
	case "not_supported":
		return "the number's carrier accepts no texts from us (not_supported)", false, false
	case "rejected":
		return "the carrier refused the text (rejected)", false, false
	case "rejected_spam":
		return "the carrier classified the text as spam (rejected_spam)", false, false
	case "time_out":
		return "the carrier did not answer (time_out)", false, false
	case "internal_error":
		return "the provider failed (internal_error)", false, false
	case "opted_out", "blocked_by_recipient":
		return "the recipient has opted out (" + strings.ToLower(result) + ")", false, true
	case "", "failed", "undelivered", "canceled":
		return "the text was not delivered", false, false
	}
	return "the text was not delivered (" + channel.IndexKey(result) + ")", false, false
}
