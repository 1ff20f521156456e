// Package sms implements the SMS channel, for a provider with Twilio's API. The provider posts
// each text and each delivery status as a form.
//
// A text becomes a [channel.Message], a status a [channel.Receipt]; outbound texts are posted
// to the provider's API. The signature covers the URL as the provider called it and every
// parameter, but no time, so the key of a part (MessageSid, with the status for callbacks)
// prevents replays. The customer's phone number is the thread key: all texts between two
// numbers are one thread.
package sms

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/phone"
)

// maxMedia bounds the attachments of a message; the provider sends at most ten.
const maxMedia = 20

// Part kinds.
const (
	KindMessage = "message"
	KindStatus  = "status"
)

// Config holds the settings of a deployment.
type Config struct {
	// MediaHosts are further allowed hosts of attachments, such as a proxy or the host of
	// SMS_API_URL.
	MediaHosts []string
	// APIURL is the base URL of the provider's API without a trailing slash. Default:
	// [DefaultAPIURL].
	APIURL string
}

// Adapter implements the channel.
type Adapter struct {
	mediaHosts []string
	apiHosts   []string // those of mediaHosts that require credentials
	apiURL     string
}

var (
	_ channel.Adapter           = (*Adapter)(nil)
	_ channel.AddressNormalizer = (*Adapter)(nil)
	_ channel.Acknowledger      = (*Adapter)(nil)
	_ channel.MediaSource       = (*Adapter)(nil)
)

const apiHost = "api.twilio.com"

// New returns the channel.
func New(c Config) *Adapter {
	hosts := []string{
		apiHost, "mms.twiliocdn.com", "media.twiliocdn.com",
		"s3-external-1.amazonaws.com", // redirect target of media.twiliocdn.com
	}
	return &Adapter{mediaHosts: append(hosts, c.MediaHosts...), apiHosts: append([]string{apiHost}, c.MediaHosts...), apiURL: cmp.Or(c.APIURL, DefaultAPIURL)}
}

// Info implements [channel.Adapter].
func (*Adapter) Info() channel.Info {
	return channel.Info{Name: "sms", TicketChannel: "sms", Path: "/api/webhooks/sms", MaxBody: 1 << 20}
}

// Addresses implements [channel.Adapter]. Our number is To of an inbound text and From of a
// status; a messaging service may replace it.
func (*Adapter) Addresses(r *channel.Request) ([]string, error) {
	p, err := parseParams(r)
	if err != nil {
		return nil, err
	}
	var addresses []string
	ours := "To"
	if isStatus(p) {
		ours = "From"
	}
	if a := p.get(ours); a != "" {
		addresses = append(addresses, address(a))
	}
	if a := p.get("MessagingServiceSid"); a != "" {
		addresses = append(addresses, channel.IndexKey(a))
	}
	return addresses, nil
}

// Split implements [channel.Adapter]. A request holds one part.
func (*Adapter) Split(r *channel.Request) ([]channel.Part, error) {
	p, err := parseParams(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", channel.ErrUnreadable, err)
	}
	sid := p.first("MessageSid", "SmsSid", "SmsMessageSid")
	if isStatus(p) {
		state := strings.ToLower(p.get("MessageStatus"))
		_, known := receiptState(state)
		if sid == "" {
			return nil, fmt.Errorf("%w: a message state without MessageSid", channel.ErrUnreadable)
		}
		return []channel.Part{{
			Key:     channel.IndexKey(sid + ":" + state),
			Address: address(p.get("From")),
			Kind:    KindStatus,
			Skip:    !known,
		}}, nil
	}
	if sid == "" && !p.has("Body") {
		// A callback of another product, such as a call.
		return []channel.Part{{Kind: "unknown", Skip: true}}, nil
	}
	from := p.get("From")
	if sid == "" || from == "" {
		return nil, fmt.Errorf("%w: a message needs MessageSid and From", channel.ErrUnreadable)
	}
	_, sender := party(from)
	return []channel.Part{{
		Key:     channel.IndexKey(sid),
		Sender:  sender,
		Address: address(p.get("To")),
		Kind:    KindMessage,
	}}, nil
}

// Parse implements [channel.Adapter].
func (*Adapter) Parse(r *channel.Request, _ channel.Part) (channel.Event, error) {
	p, err := parseParams(r)
	if err != nil {
		return channel.Event{}, fmt.Errorf("%w: %v", channel.ErrUnreadable, err)
	}
	p = p.text(r.Header.Get("Content-Type"))
	if isStatus(p) {
		return status(r, p)
	}
	from, thread := party(p.get("From"))
	if thread == "" {
		return channel.Event{}, fmt.Errorf("%w: a message needs From", channel.ErrUnreadable)
	}
	from.Name = p.get("ProfileName")
	out, again := consent(p)
	m := &channel.Message{
		ExternalID:  p.first("MessageSid", "SmsSid", "SmsMessageSid"),
		ThreadKey:   thread,
		From:        from,
		Text:        strings.ReplaceAll(p.get("Body"), "\r\n", "\n"),
		Attachments: media(p),
		OptOut:      out,
		OptIn:       again,
	}
	if to, id := party(p.get("To")); id != "" {
		m.To = []channel.Party{to}
	}
	return channel.Event{Message: m}, nil
}

// isStatus reports whether p is a delivery status. Inbound texts always have a Body.
func isStatus(p params) bool { return p.get("MessageStatus") != "" && !p.has("Body") }

func media(p params) []channel.Attachment {
	var list []channel.Attachment
	for i := range maxMedia {
		u := p.get(fmt.Sprintf("MediaUrl%d", i))
		if u == "" {
			break
		}
		list = append(list, channel.Attachment{
			ContentType: p.get(fmt.Sprintf("MediaContentType%d", i)),
			URL:         u,
		})
	}
	return list
}

// consent reports whether the text opts out or in again: by the provider's OptOutType, or else
// if it consists of one of the carriers' keywords.
func consent(p params) (out, again bool) {
	word := strings.Trim(p.get("Body"), " \t\r\n.!")
	if t := p.get("OptOutType"); t != "" {
		word = t
	}
	switch strings.ToUpper(word) {
	case "STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT":
		return true, false
	case "START", "UNSTOP", "YES":
		return false, true
	}
	return false, false
}

// party returns a party of a message, and its thread key. A number in E.164 form is accepted
// even outside known numbering plans; only withheld numbers, short codes and names are not
// numbers. It runs before the answer, and parsing a number with its plan would cost more than
// all the rest.
func party(raw string) (p channel.Party, thread string) {
	raw = strings.TrimSpace(raw)
	number := raw
	// Other networks of the same provider: "whatsapp:+14155550123".
	if _, rest, ok := strings.Cut(raw, ":"); ok && strings.HasPrefix(rest, "+") {
		number = rest
	}
	switch {
	case isWithheld(number):
	case e164(number) && !isLegacyForm(number):
		return channel.Party{Phone: number}, number
	default:
		if n, ok := phone.Parse(number, ""); ok {
			return channel.Party{Phone: n.E164}, n.E164
		}
		if e164(number) {
			return channel.Party{Phone: number}, number
		}
	}
	id := channel.IndexKey(raw)
	return channel.Party{ID: id}, id
}

// isWithheld matches placeholders for withheld numbers: ANONYMOUS, RESTRICTED, BLOCKED, UNKNOWN
// and UNAVAILABLE in keypad digits.
func isWithheld(number string) bool {
	switch number {
	case "+266696687", "+7378742833", "+2562533", "+8656696", "+86282452253":
		return true
	}
	return false
}

func e164(s string) bool {
	return len(s) >= 8 && len(s) <= 16 && s[0] == '+' && s[1] != '0' && strings.Trim(s[1:], "0123456789") == ""
}

// isLegacyForm reports whether number may have a form that Mexico or Brazil abolished and
// messaging networks still use. [phone.Parse] converts it.
func isLegacyForm(number string) bool {
	return strings.HasPrefix(number, "+521") || strings.HasPrefix(number, "+55")
}

// address returns one of our addresses in the form of connections. It keeps the network prefix:
// there, the number is another connection.
func address(raw string) string {
	raw = strings.TrimSpace(raw)
	network := ""
	if before, rest, ok := strings.Cut(raw, ":"); ok && strings.HasPrefix(rest, "+") {
		network, raw = strings.ToLower(before)+":", rest
	}
	if !e164(raw) {
		if n, ok := phone.Parse(raw, ""); ok {
			raw = n.E164
		}
	}
	return channel.IndexKey(network + raw)
}

// NormalizeAddress implements [channel.AddressNormalizer]. Anything but a number is returned
// unchanged: a short code, a name, or the id of a messaging service.
func (*Adapter) NormalizeAddress(raw string) (string, error) {
	a := address(raw)
	if a == "" {
		return "", errors.New("must be a number such as +14155550100, a short code or a messaging service's id")
	}
	return a, nil
}

// Acknowledgement implements [channel.Acknowledger]: the reply in the provider's markup, or an
// empty document.
func (*Adapter) Acknowledgement(o channel.Outcome, reply string) (contentType string, body []byte) {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><Response>`)
	if o == channel.Accepted && reply != "" {
		b.WriteString("<Message>")
		xml.EscapeText(&b, []byte(reply)) // a strings.Builder does not fail
		b.WriteString("</Message>")
	}
	b.WriteString("</Response>")
	return "text/xml", []byte(b.String())
}

// MediaRequest implements [channel.MediaSource]. The credentials are api_key and api_secret, or
// account_sid and auth_token.
func (a *Adapter) MediaRequest(at channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	m := channel.MediaRequest{URL: at.URL, Hosts: a.mediaHosts}
	if token := basic(credentials); token != "" {
		m.Header, m.HeaderHosts = http.Header{"Authorization": {token}}, a.apiHosts
	}
	return m
}
