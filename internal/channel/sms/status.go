package sms

import (
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// status turns a delivery callback into a receipt.
func status(p params) (channel.Event, error) {
	state, ok := receiptState(strings.ToLower(p.get("MessageStatus")))
	sid := p.first("MessageSid", "SmsSid", "SmsMessageSid")
	if !ok || sid == "" {
		return channel.Event{}, fmt.Errorf("%w: not a message state", channel.ErrUnreadable)
	}
	to, _ := party(p.get("To"))
	r := &channel.Receipt{
		ExternalIDs: []string{sid},
		State:       state,
		Recipient:   to.Phone + to.ID,
	}
	if state == channel.ReceiptFailed {
		r.Error, r.Permanent = failure(p)
	}
	return channel.Event{Receipt: r}, nil
}

// receiptState maps the provider's state, lower-cased, to ours.
func receiptState(state string) (channel.ReceiptState, bool) {
	switch state {
	case "accepted", "scheduled", "queued", "sending":
		return channel.ReceiptQueued, true
	case "sent":
		return channel.ReceiptSent, true
	case "delivered":
		return channel.ReceiptDelivered, true
	case "read":
		return channel.ReceiptRead, true
	case "undelivered", "failed", "canceled":
		return channel.ReceiptFailed, true
	}
	return "", false
}

// failure says in plain words why a message failed, and whether the number will
// never work. The codes are the provider's.
func failure(p params) (text string, permanent bool) {
	code := p.get("ErrorCode")
	switch code {
	case "21211":
		text, permanent = "the number is not valid", true
	case "21408":
		text = "sending to this country is not enabled"
	case "21610":
		text = "the recipient has opted out"
	case "21614":
		text, permanent = "the number is not a mobile number", true
	case "30003":
		text = "the phone is switched off or out of reach"
	case "30004":
		text = "the recipient or carrier blocks messages from us"
	case "30005":
		text, permanent = "the number does not exist or is out of service", true
	case "30006":
		text, permanent = "the number is a landline or its carrier takes no texts", true
	case "30007":
		text = "the carrier filtered the message as unwanted"
	case "30008":
		text = "the carrier gave no reason"
	case "30034":
		text = "our number is not registered with the carriers"
	default:
		text = p.get("ErrorMessage")
		if text == "" {
			text = "the message was not delivered"
			if strings.EqualFold(p.get("MessageStatus"), "canceled") {
				text = "the message was cancelled before it was sent"
			}
		}
	}
	if code != "" && code != "0" {
		text += " (" + code + ")"
	}
	return text, permanent
}
