// Package sms is the SMS channel: a provider that speaks Twilio's dialect posts
// each text and each change of a delivery's state as a form.
//
// A text becomes a [channel.Message], a state a [channel.Receipt]; what is sent
// is posted to the provider's API. The
// signature covers the URL as the provider called it and every parameter, but
// no time, so the key of a part (MessageSid, with the state for callbacks) is
// what stops a replay. A telephone number is the thread: whatever one number
// sends to one of ours is one conversation.
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

// maxMedia bounds the attachments of one message; the provider sends ten at most.
const maxMedia = 20

// Kinds of parts.
const (
	KindMessage = "message"
	KindStatus  = "status"
)

// Config holds what a deployment may change.
type Config struct {
	// MediaHosts are hosts that attachments may be fetched from besides the
	// provider's own: a proxy, or the address of SMS_API_URL.
	MediaHosts []string
	// APIURL is where the provider's API is; empty: [DefaultAPIURL]. It has no
	// slash at its end.
	APIURL string
}

// Adapter is the channel.
type Adapter struct {
	mediaHosts []string
	apiHosts   []string // those of mediaHosts that ask for credentials
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
		"s3-external-1.amazonaws.com", // where media.twiliocdn.com redirects to
	}
	return &Adapter{mediaHosts: append(hosts, c.MediaHosts...), apiHosts: append([]string{apiHost}, c.MediaHosts...), apiURL: cmp.Or(c.APIURL, DefaultAPIURL)}
}

// Info implements [channel.Adapter].
func (*Adapter) Info() channel.Info {
	return channel.Info{Name: "sms", Medium: "sms", Path: "/api/webhooks/sms", MaxBody: 1 << 20}
}

// Addresses implements [channel.Adapter]. Our number is To for a text and From
// for the state of one that we sent; a messaging service may stand for either.
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
		// Another product's callback (a call, a conversation) at our address.
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

// isStatus reports whether p tells of a message that we sent. A text that came
// in has a Body, if only an empty one.
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

// consent reports whether the text tells us to stop, or to go on after that. The
// provider's own verdict counts, where it gives one; otherwise the words that
// carriers agree on, alone in the message.
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

// party reads an end of a message, and gives the key that its messages share.
// What the provider writes in the form of E.164 is taken at its word, even where
// no numbering plan has it: only the marks of a withheld number, short codes and
// names are not numbers. This runs before a request is answered, and looking a
// number up in its plan costs more than all the rest.
func party(raw string) (p channel.Party, thread string) {
	raw = strings.TrimSpace(raw)
	number := raw
	// Other networks behind the same provider: "whatsapp:+14155550123".
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

// isWithheld matches what stands for a number that its owner hides: ANONYMOUS,
// RESTRICTED, BLOCKED, UNKNOWN and UNAVAILABLE on a telephone's keys.
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

// isLegacyForm reports whether number may be in a form that Mexico or Brazil gave
// up and messaging networks still use, where [phone.Parse] knows the present one.
func isLegacyForm(number string) bool {
	return strings.HasPrefix(number, "+521") || strings.HasPrefix(number, "+55")
}

// address is one of our own ends, in the form in which connections store it.
// The network's prefix stays: a number is another connection there.
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

// NormalizeAddress implements [channel.AddressNormalizer]. What is no number stays as it
// is: a short code, a name, or the id of a messaging service.
func (*Adapter) NormalizeAddress(raw string) (string, error) {
	a := address(raw)
	if a == "" {
		return "", errors.New("must be a number such as +14155550100, a short code or a messaging service's id")
	}
	return a, nil
}

// Acknowledgement implements [channel.Acknowledger]: the reply as the provider's markup, and
// an empty document when there is none or the request is a repetition.
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

// MediaRequest implements [channel.MediaSource]. The credentials are
// api_key and api_secret, or account_sid and auth_token.
func (a *Adapter) MediaRequest(at channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	m := channel.MediaRequest{URL: at.URL, Hosts: a.mediaHosts}
	if token := basic(credentials); token != "" {
		m.Header, m.HeaderHosts = http.Header{"Authorization": {token}}, a.apiHosts
	}
	return m
}
