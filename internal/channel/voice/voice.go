// Package voice implements the telephone channel, for a provider with Dialpad's API. The
// provider posts each state change of a call and each text as JSON, plain or as a signed token.
//
// A state change becomes a [channel.PhoneCall]; package call decides its outcome. A text
// becomes a [channel.Message], its delivery status a [channel.Receipt]; outbound texts are
// posted to the provider's API. Both signature forms cover the whole body but no dependable
// time, so the key of a part (the call with state and time, the text with its state) prevents
// replays.
//
// The provider changes names and types of members occasionally, so only the ids are required,
// and no member is refused for its type.
package voice

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/phone"
)

// Part kinds other than call states.
const (
	KindText       = "sms"
	KindTextStatus = "sms-status"
)

// Config holds the settings of a deployment.
type Config struct {
	// MediaHosts are further allowed hosts of recordings, such as a proxy or the host of
	// VOICE_API_URL.
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
	_ channel.MediaSource       = (*Adapter)(nil)
)

// New returns the channel.
func New(c Config) *Adapter {
	return &Adapter{
		mediaHosts: append([]string{
			"dialpad.com", ".dialpad.com",
			"storage.googleapis.com", // redirect target of dialpad.com
		}, c.MediaHosts...),
		apiHosts: append([]string{"dialpad.com", ".dialpad.com"}, c.MediaHosts...),
		apiURL:   cmp.Or(c.APIURL, DefaultAPIURL),
	}
}

// Info implements [channel.Adapter].
func (*Adapter) Info() channel.Info {
	return channel.Info{Name: "voice", TicketChannel: "voice", Path: "/api/webhooks/voice", MaxBody: 1 << 20}
}

// errNoEvent is returned for a body that is neither an object nor a token with one.
var errNoEvent = errors.New("the body is not a JSON object, nor a token that holds one")

// Addresses implements [channel.Adapter]: our number, and the id of the user, department or
// office on our side. A transferred call also names the number that was called.
func (*Adapter) Addresses(r *channel.Request) ([]string, error) {
	o, err := read(r)
	if err != nil {
		return nil, err
	}
	return o.addresses(), nil
}

// addresses returns our addresses, the most specific first.
func (o object) addresses() []string {
	var list []string
	add := func(raw string) {
		if a := address(raw); a != "" && a != "0" {
			list = append(list, a)
		}
	}
	if o.isText() {
		ours := o.ends("to_number")
		if o.outbound() {
			ours = o.ends("from_number")
		}
		for _, number := range ours {
			add(number)
		}
	}
	add(o.text("internal_number"))
	for _, name := range []string{"target", "entry_point_target"} {
		target := o.object(name)
		add(target.text("phone", "phone_number"))
		add(target.text("id"))
	}
	return unique(list)
}

// maxAddresses bounds the recipients of one event.
const maxAddresses = 20

func unique(list []string) []string {
	var out []string
	seen := make(map[string]bool)
	for _, s := range list {
		if !seen[s] && len(out) < maxAddresses {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// Split implements [channel.Adapter]. A call's state change is one part. An outbound text is
// one part for its content and one for its status, so that it is stored once, for any number
// and order of its states.
func (*Adapter) Split(r *channel.Request) ([]channel.Part, error) {
	o, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", channel.ErrUnreadable, err)
	}
	part := channel.Part{}
	if list := o.addresses(); len(list) > 0 {
		part.Address = list[0]
	}
	if o.isText() {
		return o.splitText(part)
	}
	id, state := o.text("call_id"), o.state()
	if kind := strings.ToLower(o.text("event_type")); id == "" && (state == "" || kind != "" && !strings.Contains(kind, "call")) {
		// Contact and agent events, and other subscriptions of the account.
		part.Kind, part.Skip = cmp.Or(channel.IndexKey(kind), "unknown"), true
		return []channel.Part{part}, nil
	}
	if id == "" || state == "" {
		return nil, fmt.Errorf("%w: an event of a call needs call_id and state", channel.ErrUnreadable)
	}
	part.Kind = channel.IndexKey(state)
	part.Key = channel.IndexKey(id + ":" + state + ":" + cmp.Or(o.text("event_timestamp"), o.digest()))
	_, part.Sender = o.contact()
	if part.Sender == "" {
		part.Sender = channel.IndexKey("call " + id)
	}
	return []channel.Part{part}, nil
}

// Parse implements [channel.Adapter].
func (*Adapter) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	o, err := read(r)
	if err != nil {
		return channel.Event{}, fmt.Errorf("%w: %v", channel.ErrUnreadable, err)
	}
	switch {
	case p.Kind == KindTextStatus:
		return o.receipt(p)
	case o.isText():
		return o.message(p)
	}
	return o.call()
}

// party returns a party of a call or a text, and the key of its texts. A withheld number has
// neither.
func party(raw string) (p channel.Party, thread string) {
	raw = strings.TrimSpace(raw)
	if isWithheld(raw) {
		return channel.Party{}, ""
	}
	if e164 := number(raw); e164 != "" {
		return channel.Party{Phone: e164}, e164
	}
	id := channel.IndexKey(raw)
	return channel.Party{ID: id}, id
}

// number returns raw as E.164, or "". A number in that form is accepted even outside known
// numbering plans.
func number(raw string) string {
	if n, ok := phone.Parse(raw, ""); ok {
		return n.E164
	}
	if len(raw) >= 8 && len(raw) <= 16 && raw[0] == '+' && raw[1] != '0' && strings.Trim(raw[1:], "0123456789") == "" {
		return raw
	}
	return ""
}

// isWithheld matches placeholders for withheld numbers: words, and ANONYMOUS, RESTRICTED,
// BLOCKED, UNKNOWN and UNAVAILABLE in keypad digits.
func isWithheld(raw string) bool {
	switch strings.ToLower(raw) {
	case "", "anonymous", "restricted", "blocked", "unknown", "unavailable", "private", "withheld", "none", "null",
		"+266696687", "+7378742833", "+2562533", "+8656696", "+86282452253":
		return true
	}
	return false
}

// address returns one of our addresses in the form of connections: a number, or the provider's
// id.
func address(raw string) string {
	raw = strings.TrimSpace(raw)
	if isWithheld(raw) {
		return ""
	}
	return cmp.Or(number(raw), channel.IndexKey(raw))
}

// NormalizeAddress implements [channel.AddressNormalizer]. Anything but a number is taken as
// the provider's id of a user, a department or an office, and returned unchanged.
func (*Adapter) NormalizeAddress(raw string) (string, error) {
	a := address(raw)
	if a == "" {
		return "", errors.New("must be a number such as +12085550100, or the provider's id of a user, a department or an office")
	}
	return a, nil
}

// MediaRequest implements [channel.MediaSource]. The credential api_token needs the scope
// recordings_export.
func (a *Adapter) MediaRequest(at channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	m := channel.MediaRequest{URL: at.URL, Hosts: a.mediaHosts}
	if token := credentials.Get(credToken); token != "" {
		m.Header, m.HeaderHosts = http.Header{"Authorization": {"Bearer " + token}}, a.apiHosts
	}
	return m
}
