// Package chat implements the team chat channel, for a provider with Slack's API. The provider
// posts the events of the channels that our app was invited to, one event per request.
//
// A text becomes a [channel.Message], a later edit, deletion or reaction a
// [channel.Annotation]. A thread is a ticket: its key, and that of all its events, is the
// channel id with the timestamp of the thread's first message, by which the provider identifies
// messages. The signature covers the body and a time. The provider's event id is the key of a
// part. One text can cause two events, so the message has an id, too, which identifies the
// second one as a duplicate.
//
// Texts refer to users by id. Their names, and the author's, are fetched before a part is
// parsed; if that fails, the ids remain.
package chat

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// tolerance is the maximum difference between the signature's time and ours, either way.
const tolerance = 5 * time.Minute

// The neutral header names.
const (
	SignatureHeader = "X-Chat-Signature"
	TimestampHeader = "X-Chat-Request-Timestamp"
)

// DefaultAPIURL is the provider's API.
const DefaultAPIURL = "https://slack.com"

// CredBotToken is the credential for the provider's API.
const CredBotToken = "bot_token"

// API implements [channel.APIUser].
func (a *Adapter) API() channel.API { return channel.API{URL: a.apiURL, Credentials: declared} }

var declared = []channel.Credential{{Name: CredBotToken, Kind: channel.KindAPIKey}}

// SettingChannels is the connection setting with the ids of the chat channels to receive; empty
// for all that the app was invited to. Direct messages are always received.
const SettingChannels = "channels"

// Config holds the settings of a deployment.
type Config struct {
	// APIURL is the base URL of the provider's API without a trailing slash. Default:
	// [DefaultAPIURL].
	APIURL string
	// MediaHosts are further allowed hosts of files.
	MediaHosts []string
}

// Adapter implements the channel.
type Adapter struct {
	apiURL     string
	mediaHosts []string
}

var (
	_ channel.Adapter            = (*Adapter)(nil)
	_ channel.AddressNormalizer  = (*Adapter)(nil)
	_ channel.Enricher           = (*Adapter)(nil)
	_ channel.PartFilter         = (*Adapter)(nil)
	_ channel.ChallengeResponder = (*Adapter)(nil)
	_ channel.HeaderProver       = (*Adapter)(nil)
	_ channel.MediaSource        = (*Adapter)(nil)
	_ channel.MediaLocator       = (*Adapter)(nil)
)

// New returns the channel.
func New(c Config) *Adapter {
	return &Adapter{
		apiURL:     cmp.Or(c.APIURL, DefaultAPIURL),
		mediaHosts: append([]string{"files.slack.com"}, c.MediaHosts...),
	}
}

// Info implements [channel.Adapter].
func (*Adapter) Info() channel.Info {
	return channel.Info{Name: "chat", TicketChannel: "chat", Path: "/api/webhooks/chat", MaxBody: 1 << 20}
}

// NormalizeAddress implements [channel.AddressNormalizer]. An address is the id of a workspace,
// or of an enterprise with several.
func (*Adapter) NormalizeAddress(raw string) (string, error) {
	id := strings.ToUpper(strings.TrimSpace(raw))
	if len(id) < 2 || len(id) > maxID || id[0] != 'T' && id[0] != 'E' || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
		return "", errors.New("must be the id of a workspace, such as T012AB3C4")
	}
	return id, nil
}

// Addresses implements [channel.Adapter]. In a channel shared by two workspaces, it is the one
// with our app, not the author's.
func (*Adapter) Addresses(r *channel.Request) ([]string, error) {
	switch r.MediaType() {
	case "application/json", "":
	default:
		return nil, channel.ErrContentType
	}
	e, err := read(r.Body)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, id := range []string{e.workspace(), e.enterprise()} {
		if id != "" && !slices.Contains(addresses, id) {
			addresses = append(addresses, id)
		}
	}
	return addresses, nil
}

// Verify implements [channel.Adapter].
func (*Adapter) Verify(r *channel.Request, secret string) bool {
	presented, at, ok := signature(r)
	return ok && secret != "" && hmac.Equal(presented, digest(r.Body, at, secret))
}

// HeaderProof implements [channel.HeaderProver].
func (*Adapter) HeaderProof(r *channel.Request) channel.HeaderProof {
	_, _, ok := signature(r)
	return channel.BodyDecidesIf(ok)
}

// signature returns the signature in the headers and its fresh time, or nil.
func signature(r *channel.Request) (presented []byte, at string, ok bool) {
	at = r.First(TimestampHeader, "X-Slack-Request-Timestamp")
	seconds, err := strconv.ParseUint(at, 10, 40)
	if err != nil {
		return nil, "", false
	}
	if age := r.Received.Sub(time.Unix(int64(seconds), 0)); age.Truncate(time.Second).Abs() > tolerance {
		return nil, "", false
	}
	value, ok := strings.CutPrefix(r.First(SignatureHeader, "X-Slack-Signature"), "v0=")
	if !ok {
		return nil, "", false
	}
	presented, err = hex.DecodeString(value)
	return presented, at, err == nil && len(presented) == sha256.Size
}

func digest(body []byte, at, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + at + ":"))
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign returns the headers [SignatureHeader] and [TimestampHeader] for body.
func Sign(body []byte, at time.Time, secret string) (signature, timestamp string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	return "v0=" + hex.EncodeToString(digest(body, timestamp, secret)), timestamp
}

// ChallengeResponse implements [channel.ChallengeResponder].
func (*Adapter) ChallengeResponse(r *channel.Request) (string, bool) {
	e, err := read(r.Body)
	if err != nil || e.Type != typeGreeting || e.Challenge == "" {
		return "", false
	}
	return e.Challenge, true
}

// The request types.
const (
	typeGreeting  = "url_verification"
	typeEvent     = "event_callback"
	typeRateLimit = "app_rate_limited"
)

// envelope is the body of a request.
type envelope struct {
	Type           string `json:"type"`
	Challenge      string `json:"challenge"`
	TeamID         string `json:"team_id"`
	EnterpriseID   string `json:"enterprise_id"`
	AppID          string `json:"api_app_id"`
	EventID        string `json:"event_id"`
	EventTime      int64  `json:"event_time"`          // Unix seconds
	LimitedMinute  int64  `json:"minute_rate_limited"` // likewise
	Event          event  `json:"event"`
	Authorizations []struct {
		TeamID       string `json:"team_id"`
		EnterpriseID string `json:"enterprise_id"`
		UserID       string `json:"user_id"`
		IsBot        bool   `json:"is_bot"`
	} `json:"authorizations"`
}

// event is the event in a body. Its members depend on its type.
type event struct {
	Type string `json:"type"`
	message
	Channel     string   `json:"channel"`
	ChannelType string   `json:"channel_type"`
	EventTS     string   `json:"event_ts"`
	DeletedTS   string   `json:"deleted_ts"`
	Changed     *message `json:"message"`
	Previous    *message `json:"previous_message"`
	Reaction    string   `json:"reaction"`
	Item        struct {
		Type    string `json:"type"`
		Channel string `json:"channel"`
		TS      string `json:"ts"`
	} `json:"item"`
	Tokens struct {
		Bot []string `json:"bot"`
	} `json:"tokens"`
}

// message is a text in an event.
type message struct {
	Subtype    string `json:"subtype"`
	User       string `json:"user"`
	BotID      string `json:"bot_id"`
	AppID      string `json:"app_id"`
	Text       string `json:"text"`
	TS         string `json:"ts"`
	ThreadTS   string `json:"thread_ts"`
	Files      []file `json:"files"`
	BotProfile struct {
		AppID string `json:"app_id"`
	} `json:"bot_profile"`
	Profile struct {
		RealName    string `json:"real_name"`
		DisplayName string `json:"display_name"`
	} `json:"user_profile"`
	Edited struct {
		User string `json:"user"`
		TS   string `json:"ts"`
	} `json:"edited"`
	// Attachments are forwarded messages and link previews.
	Attachments []struct {
		Text     string `json:"text"`
		Fallback string `json:"fallback"`
	} `json:"attachments"`
}

// read decodes a body. Members of unexpected types count as absent: in many unhandled events,
// channel is an object.
func read(body []byte) (*envelope, error) {
	var e *envelope
	err := json.Unmarshal(body, &e)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !other || e == nil {
		return nil, fmt.Errorf("%w: not a JSON object", channel.ErrUnreadable)
	}
	return e, nil
}

// workspace returns the id of the request's workspace.
func (e *envelope) workspace() string {
	if len(e.Authorizations) > 0 && e.Authorizations[0].TeamID != "" {
		return key(e.Authorizations[0].TeamID)
	}
	return key(e.TeamID)
}

// enterprise returns the id of the workspace's enterprise.
func (e *envelope) enterprise() string {
	if len(e.Authorizations) > 0 {
		return key(e.Authorizations[0].EnterpriseID)
	}
	return key(e.EnterpriseID)
}

// program reports whether a program wrote m, ours included: programs that answer each other
// would never stop.
func (e *envelope) program(m *message) bool {
	switch {
	case m.BotID != "", m.Subtype == "bot_message", m.User == "", m.User == "USLACKBOT":
		return true
	case e.AppID != "" && (m.AppID == e.AppID || m.BotProfile.AppID == e.AppID):
		return true
	}
	return e.ours(m.User)
}

// ours reports whether a user is our app.
func (e *envelope) ours(user string) bool {
	for _, a := range e.Authorizations {
		if a.IsBot && a.UserID == user {
			return true
		}
	}
	return false
}

// Part kinds.
const (
	KindMessage     = "message"
	KindEdit        = "message_changed"
	KindDelete      = "message_deleted"
	KindReact       = "reaction_added"
	KindUnreact     = "reaction_removed"
	KindUninstalled = "app_uninstalled"
	KindRevoked     = "tokens_revoked"
	KindRateLimit   = typeRateLimit
)

// kind returns the part kind of a request, or "" if it is not handled.
func (e *envelope) kind() string {
	if e.Type == typeRateLimit {
		return KindRateLimit
	}
	v := &e.Event
	if e.Type != typeEvent {
		return ""
	}
	switch v.Type {
	case "message", "app_mention":
		return e.messageKind()
	case KindReact, KindUnreact:
		if v.Item.Type == "message" && v.Item.Channel != "" && v.Item.TS != "" && v.Reaction != "" && v.User != "" && !e.ours(v.User) {
			return v.Type
		}
	case KindUninstalled, KindRevoked:
		return v.Type
	}
	return ""
}

func (e *envelope) messageKind() string {
	v := &e.Event
	if v.Channel == "" {
		return ""
	}
	switch v.Subtype {
	case "", "file_share", "thread_broadcast", "me_message":
		if v.TS != "" && !e.program(&v.message) && (v.says() != "" || len(v.Files) > 0) {
			return KindMessage
		}
	case "message_changed":
		m := v.Changed
		switch {
		case m == nil || m.TS == "":
		case m.Subtype == "tombstone": // a deleted first message leaves a tombstone
			if v.Previous != nil && !e.program(v.Previous) {
				return KindDelete
			}
		case v.Previous != nil && v.Previous.Text == m.Text:
			// The addition of a link preview, or of a reply count, is ignored.
		case !e.program(m):
			return KindEdit
		}
	case "message_deleted":
		if v.DeletedTS != "" && (v.Previous == nil || !e.program(v.Previous)) {
			return KindDelete
		}
	}
	return ""
}

// target returns the message that an event is about, and the first of its thread.
func (v *event) target(kind string) (place, ts, root string) {
	place = v.Channel
	switch kind {
	case KindMessage:
		ts, root = v.TS, v.ThreadTS
	case KindEdit:
		ts, root = v.Changed.TS, v.Changed.ThreadTS
	case KindDelete:
		ts = v.DeletedTS
		if v.Changed != nil {
			ts = v.Changed.TS
		}
		if v.Previous != nil {
			root = v.Previous.ThreadTS
		}
	case KindReact, KindUnreact:
		place, ts = v.Item.Channel, v.Item.TS
	}
	return place, ts, cmp.Or(root, ts)
}

// messageID returns the id of a message or of the thread that it starts.
func messageID(place, ts string) string { return key(place + ":" + ts) }

// Split implements [channel.Adapter]. A request holds one event. Events of one thread are
// processed in order; the provider does not name the thread of a reaction.
func (*Adapter) Split(r *channel.Request) ([]channel.Part, error) {
	e, err := read(r.Body)
	if err != nil {
		return nil, err
	}
	p := channel.Part{Kind: e.kind(), Address: e.workspace(), Account: e.enterprise()}
	switch p.Kind {
	case "":
		kind := key(strings.Trim(e.Type+"/"+e.Event.Type+"/"+e.Event.Subtype, "/"))
		return []channel.Part{{Kind: kind, Skip: true}}, nil
	case KindRateLimit:
		p.Key = key(fmt.Sprintf("%s:%s:%d", KindRateLimit, e.workspace(), e.LimitedMinute))
		return []channel.Part{p}, nil
	}
	if e.EventID == "" {
		return nil, fmt.Errorf("%w: an event needs event_id", channel.ErrUnreadable)
	}
	p.Key = key(e.EventID)
	if place, _, root := e.Event.target(p.Kind); root != "" {
		p.Sender = messageID(place, root)
	}
	return []channel.Part{p}, nil
}

// WantsPart implements [channel.PartFilter]. It drops channels not in the connection's
// settings.
func (*Adapter) WantsPart(settings map[string]string, r *channel.Request, p channel.Part) bool {
	wanted := strings.FieldsFunc(settings[SettingChannels], func(c rune) bool { return c == ',' || c == ' ' })
	if len(wanted) == 0 {
		return true
	}
	e, err := read(r.Body)
	if err != nil {
		return true
	}
	place, _, _ := e.Event.target(p.Kind)
	return place == "" || place[0] == 'D' || slices.Contains(wanted, place)
}

// Parse implements [channel.Adapter].
func (a *Adapter) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	return a.ParseEnriched(r, p, nil)
}

// ParseEnriched implements [channel.Enricher].
func (*Adapter) ParseEnriched(r *channel.Request, _ channel.Part, answers []channel.Response) (channel.Event, error) {
	e, err := read(r.Body)
	if err != nil {
		return channel.Event{}, err
	}
	v, kind := &e.Event, e.kind()
	known := newUserDirectory(e.users(), answers)
	place, ts, root := v.target(kind)
	switch kind {
	case KindMessage:
		return channel.Event{Message: e.message(known, messageID(place, ts), messageID(place, root))}, nil
	case KindEdit:
		return annotation(channel.Edited, messageID(place, ts), known.party(cmp.Or(v.Changed.Edited.User, v.Changed.User)),
			known.text(v.Changed.says()), moment(cmp.Or(v.Changed.Edited.TS, v.EventTS, v.TS))), nil
	case KindDelete:
		var by channel.Party // the provider does not name the editor
		return annotation(channel.Deleted, messageID(place, ts), by, "", moment(cmp.Or(v.EventTS, v.TS))), nil
	case KindReact:
		return annotation(channel.Reacted, messageID(place, ts), known.party(v.User), reaction(v.Reaction), moment(v.EventTS)), nil
	case KindUnreact:
		return annotation(channel.Unreacted, messageID(place, ts), known.party(v.User), reaction(v.Reaction), moment(v.EventTS)), nil
	case KindUninstalled:
		return news(channel.Disconnected, "the app was removed from the workspace"), nil
	case KindRevoked:
		if len(v.Tokens.Bot) == 0 {
			return news(channel.Noticed, "somebody of the workspace took back what they had allowed the app to do in their name"), nil
		}
		return news(channel.Disconnected, "the workspace revoked the app's token"), nil
	case KindRateLimit:
		return news(channel.Noticed, "more happened in the workspace than the provider sends in an hour: messages from "+
			unix(e.LimitedMinute).Format("2006-01-02 15:04")+" UTC on are missing"), nil
	}
	return channel.Event{}, fmt.Errorf("%w: the event %q means nothing here", channel.ErrUnreadable, key(v.Type))
}

func annotation(kind channel.AnnotationKind, id string, by channel.Party, text string, at time.Time) channel.Event {
	return channel.Event{Annotation: &channel.Annotation{ExternalID: id, Kind: kind, By: by, Text: text, At: at}}
}

func news(kind channel.ConnectionEventKind, text string) channel.Event {
	return channel.Event{ConnectionEvent: &channel.ConnectionEvent{Kind: kind, Text: text}}
}

// reaction returns the written form of a reaction.
func reaction(name string) string { return ":" + channel.CleanText(name) + ":" }

func (e *envelope) message(known userDirectory, id, thread string) *channel.Message {
	v := &e.Event
	m := &channel.Message{
		ExternalID: id, ThreadKey: thread, From: known.party(v.User), Text: known.text(v.says()), SentAt: moment(v.TS),
	}
	if m.From.Name == "" {
		m.From.Name = channel.CleanText(cmp.Or(v.Profile.RealName, v.Profile.DisplayName))
	}
	for _, f := range v.Files {
		if f.Mode == "external" && link(f.URL) {
			m.Text = strings.TrimLeft(m.Text+"\n"+channel.CleanText(f.name()+": "+f.URL), "\n")
			continue
		}
		if len(m.Attachments) < maxFiles {
			m.Attachments = append(m.Attachments, f.attachment())
		}
	}
	return m
}

// says returns the text of a message, or of the message forwarded in it.
func (m *message) says() string {
	if m.Text != "" {
		return m.Text
	}
	var lines []string
	for _, a := range m.Attachments {
		if text := cmp.Or(a.Text, a.Fallback); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// maxFiles bounds the files of a message; the provider sends at most ten.
const maxFiles = 20

// unlocated is the error of a file without a URL.
const unlocated = "the chat did not say where the file is: the app may lack the scope files:read"

// accessAsk marks a file of another workspace, which an event gives only by id.
const accessAsk = "check_file_info"

// file is a shared file.
type file struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Title       string `json:"title"`
	Type        string `json:"mimetype"`
	Mode        string `json:"mode"`
	Access      string `json:"file_access"`
	URL         string `json:"url_private"`
	DownloadURL string `json:"url_private_download"`
}

func (f *file) name() string { return cmp.Or(f.Name, f.Title, "file") }

func (f *file) attachment() channel.Attachment {
	a := channel.Attachment{Name: channel.CleanText(f.name()), ContentType: channel.CleanText(f.Type)}
	switch u := cmp.Or(f.DownloadURL, f.URL); {
	case f.Mode == "tombstone":
		a.Error = "the file was deleted in the chat"
	case f.Mode == "hidden_by_limit":
		a.Error = "the file is beyond what the chat's plan keeps"
	case f.Access == "access_denied":
		a.Error = "the app may not see the file"
	case f.Access == accessAsk && f.ID != "":
		a.Lookup = f.ID
	case u == "":
		a.Error = unlocated
	default:
		a.URL = channel.CleanText(u)
	}
	return a
}

// MediaRequest implements [channel.MediaSource]. The credential is bot_token.
func (a *Adapter) MediaRequest(at channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	m := channel.MediaRequest{URL: at.URL, Hosts: a.mediaHosts}
	if token := credentials.Get(CredBotToken); token != "" {
		m.Header, m.HeaderHosts = http.Header{"Authorization": {"Bearer " + token}}, a.mediaHosts
	}
	if !strings.HasPrefix(at.ContentType, "text/html") {
		m.SignIn = "the chat asks to sign in before it shows the file: the app needs the scope files:read, and the connection its bot_token"
	}
	return m
}

// maxID is the longest id, in bytes, that is stored unchanged.
const maxID = 200

// key makes an id fit for an index.
func key(s string) string { return channel.BoundedID(channel.CleanText(s), maxID) }

// moment returns the time in a message timestamp, "1764000000.000100", or zero.
func moment(ts string) time.Time {
	whole, fraction, _ := strings.Cut(ts, ".")
	seconds, err := strconv.ParseUint(whole, 10, 35)
	if err != nil || seconds == 0 {
		return time.Time{}
	}
	micros, err := strconv.ParseUint(fraction, 10, 20)
	if err != nil || len(fraction) != 6 {
		micros = 0
	}
	return time.Unix(int64(seconds), int64(micros)*1000).UTC()
}

// unix returns a time in whole seconds.
func unix(seconds int64) time.Time {
	return time.Unix(max(0, min(seconds, 1<<35)), 0).UTC()
}

// link reports whether an address may be shown as a link.
func link(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
}
