// Package voice is the telephone channel: a provider that speaks Dialpad's dialect
// posts each step of a call and each text as JSON, plain or as a signed token.
//
// A step becomes a [channel.PhoneCall], whatever its state: what a call comes to is
// decided where calls are kept. A text becomes a [channel.Message], or a
// [channel.Receipt] where it tells what became of one; what is sent is posted to
// the provider's API. Both forms of the signature cover the whole body but no
// dependable time, so the key of a part (the call with its state and the time of
// the step, the text with its state) is what stops a replay.
//
// The provider changes the names and kinds of its members now and then, so nothing
// but the ids is required, and no member is refused for its kind.
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

// Kinds of parts that are not a call's state.
const (
	KindText       = "sms"
	KindTextStatus = "sms-status"
)

// Config holds what a deployment may change.
type Config struct {
	// MediaHosts are hosts that recordings may be fetched from besides the
	// provider's own: a proxy, or the address of VOICE_API_URL.
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
	_ channel.MediaSource       = (*Adapter)(nil)
)

// New returns the channel.
func New(c Config) *Adapter {
	return &Adapter{
		mediaHosts: append([]string{
			"dialpad.com", ".dialpad.com",
			"storage.googleapis.com", // where dialpad.com redirects to
		}, c.MediaHosts...),
		apiHosts: append([]string{"dialpad.com", ".dialpad.com"}, c.MediaHosts...),
		apiURL:   cmp.Or(c.APIURL, DefaultAPIURL),
	}
}

// Info implements [channel.Adapter].
func (*Adapter) Info() channel.Info {
	return channel.Info{Name: "voice", Medium: "voice", Path: "/api/webhooks/voice", MaxBody: 1 << 20}
}

// errNoEvent is a body that is neither an object nor a token that holds one.
var errNoEvent = errors.New("the body is not a JSON object, nor a token that holds one")

// Addresses implements [channel.Adapter]: our number, and the id of whoever or
// whatever of ours the event is for. A call that was passed on names the one where
// it came in, too.
func (*Adapter) Addresses(r *channel.Request) ([]string, error) {
	o, err := read(r)
	if err != nil {
		return nil, err
	}
	return o.addresses(), nil
}

// addresses are the most telling first.
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

// maxAddresses bounds what one event can be for.
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

// Split implements [channel.Adapter]. A step of a call is one part. A text that
// left is one part for what it says and one for what became of it, so that it is
// kept once however many of its states come, and in whichever order.
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
		// News of contacts and agents, and whatever else the account subscribes to.
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

// party reads an end of a call or a text, and gives the key that its texts share.
// Whoever hides their number has neither.
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

// number is raw as E.164, or empty. What the provider writes in that form is taken
// at its word, even where no numbering plan has it.
func number(raw string) string {
	if n, ok := phone.Parse(raw, ""); ok {
		return n.E164
	}
	if len(raw) >= 8 && len(raw) <= 16 && raw[0] == '+' && raw[1] != '0' && strings.Trim(raw[1:], "0123456789") == "" {
		return raw
	}
	return ""
}

// isWithheld matches what stands for a number that its owner hides: words, and
// ANONYMOUS, RESTRICTED, BLOCKED, UNKNOWN and UNAVAILABLE on a telephone's keys.
func isWithheld(raw string) bool {
	switch strings.ToLower(raw) {
	case "", "anonymous", "restricted", "blocked", "unknown", "unavailable", "private", "withheld", "none", "null",
		"+266696687", "+7378742833", "+2562533", "+8656696", "+86282452253":
		return true
	}
	return false
}

// address is one of our own ends, in the form in which connections store it: a
// number, or the provider's id.
func address(raw string) string {
	raw = strings.TrimSpace(raw)
	if isWithheld(raw) {
		return ""
	}
	return cmp.Or(number(raw), channel.IndexKey(raw))
}

// NormalizeAddress implements [channel.AddressNormalizer]. What is no number is taken for
// the provider's id of a user, a department or an office, and stays as it is.
func (*Adapter) NormalizeAddress(raw string) (string, error) {
	a := address(raw)
	if a == "" {
		return "", errors.New("must be a number such as +12085550100, or the provider's id of what calls are for")
	}
	return a, nil
}

// MediaRequest implements [channel.MediaSource]. The credential is api_token, whose
// scopes must include recordings_export.
func (a *Adapter) MediaRequest(at channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	m := channel.MediaRequest{URL: at.URL, Hosts: a.mediaHosts}
	if token := credentials.Get(credToken); token != "" {
		m.Header, m.HeaderHosts = http.Header{"Authorization": {"Bearer " + token}}, a.apiHosts
	}
	return m
}
