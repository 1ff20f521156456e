package sms

import (
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// status converts a delivery callback to a receipt.
func status(r *channel.Request, p params) (channel.Event, error) {
	state, ok := receiptState(strings.ToLower(p.get("MessageStatus")))
	sid := p.first("MessageSid", "SmsSid", "SmsMessageSid")
	if !ok || sid == "" {
		return channel.Event{}, fmt.Errorf("%w: not a message state", channel.ErrUnreadable)
	}
	to, _ := party(p.get("To"))
	receipt := &channel.Receipt{
		ExternalIDs: []string{sid},
		State:       state,
		Recipient:   to.Phone + to.ID,
	}
	// The status may arrive before the response with the message's sid.
	if ours := channel.IndexKey(r.Query().Get(QueryMessage)); ours != "" {
		receipt.ExternalIDs = append(receipt.ExternalIDs, ours)
	}
	if state == channel.ReceiptFailed {
		code := p.get("ErrorCode")
		receipt.Error, receipt.Permanent = explain(code, p.get("ErrorMessage"), p.get("MessageStatus"))
		receipt.OptedOut = code == codeOptedOut
	}
	return channel.Event{Receipt: receipt}, nil
}

// receiptState maps the provider's lower-case status to ours.
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

// QueryMessage is the parameter of [channel.Outgoing.ReceiptURL] with the message's id.
const QueryMessage = "message"

// codeOptedOut is the provider's error code for a recipient that opted out.
const codeOptedOut = "21610"

// explain explains in plain words why a message failed, and whether the number is permanently
// invalid. code, words and state are the provider's.
func explain(code, words, state string) (text string, permanent bool) {
	switch code {
	case "20003":
		text = "the provider refuses the connection's credentials"
	case "20404":
		text = "the provider does not know the connection's account"
	case "21211":
		text, permanent = "the number is not valid", true
	case "21212", "21606", "21659", "21660":
		text = "our number is not one of the account's that can send texts"
	case "21408":
		text = "sending to this country is not enabled"
	case codeOptedOut:
		text = "the recipient has opted out"
	case "21614":
		text, permanent = "the number is not a mobile number", true
	case "21617":
		text = "the text is too long"
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
	case "12300", "30019":
		text = "a file is of a type or size that the carrier does not take"
	case "11200", "11751":
		text = "the provider could not fetch a file from here"
	case "30034":
		text = "our number is not registered with the carriers"
	default:
		text = words
		if text == "" {
			text = "the message was not delivered"
			if strings.EqualFold(state, "canceled") {
				text = "the message was cancelled before it was sent"
			}
		}
	}
	if code != "" && code != "0" {
		text += " (" + code + ")"
	}
	return text, permanent
}
