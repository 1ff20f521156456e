// Package api implements the channel of an organization's own app or form.
//
// The app's server names its users and their conversations by ids of its own. It sends messages and
// receipts by the REST API, or as signed requests to the channel's endpoint, and gets agents'
// replies as signed requests to its own URL. Both sign by Standard Webhooks, with the connection's
// secret. With tokens that the app's server signs ([ParseToken]), its users' browsers and devices
// can use the visitors' API directly.
//
// A conversation belongs to one user, and its thread key ([ThreadKey]) names both. So a request for
// one user can reach no conversation or message of another, whatever ids it contains.
package api

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// Name is the name of the adapter and of its tickets' channel.
const Name = "api"

// Bounds of a message.
const (
	MaxText      = 100_000 // characters
	MaxFiles     = 50
	MaxFileBytes = 25 << 20 // of all files of a message together
	maxMetadata  = 50       // keys
)

// Adapter implements the channel.
type Adapter struct{}

var (
	_ channel.Adapter           = Adapter{}
	_ channel.AddressNormalizer = Adapter{}
	_ channel.SecretChecker     = Adapter{}
	_ channel.ConnectionChecker = Adapter{}
	_ channel.HeaderProver      = Adapter{}
	_ channel.MediaSource       = Adapter{}
)

// New returns the channel.
func New() Adapter { return Adapter{} }

// Info implements [channel.Adapter].
func (Adapter) Info() channel.Info {
	return channel.Info{Name: Name, TicketChannel: Name, Path: "/api/webhooks/api", MaxBody: 1 << 20, OwnName: true}
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// NormalizeAddress implements [channel.AddressNormalizer]. An address is a name of the app.
func (Adapter) NormalizeAddress(raw string) (string, error) {
	if raw = strings.ToLower(strings.TrimSpace(raw)); !nameForm.MatchString(raw) {
		return "", errors.New("must be a name of letters, digits, dots and hyphens, such as contact-form")
	}
	return raw, nil
}

// minSecret is the least length of a secret in bytes, because tokens allow guesses without requests.
const minSecret = 24

// CheckSecret implements [channel.SecretChecker].
func (Adapter) CheckSecret(secret string) error {
	if len(secret) < minSecret || !payload.ValidSecret(secret) {
		return fmt.Errorf("must have at least %d characters, and after a prefix whsec_ valid base64", minSecret)
	}
	return nil
}

// CheckConnection implements [channel.ConnectionChecker].
func (Adapter) CheckConnection(v *problem.Validation, _ string, credentials, settings map[string]string) {
	if raw := credentials[credURL]; raw != "" {
		if _, err := netguard.ParseAPIURL(raw, "https://app.example.com/kickstand"); err != nil {
			v.AddCode("invalid_format", "credentials."+credURL, "is not valid: %v", err)
		}
	}
	if _, bad := parseOrigins(settings[settingOrigins]); bad != "" {
		v.AddCode("invalid_format", "settings."+settingOrigins, "must list origins such as https://www.example.com, without a path: %q is not one", bad)
	}
}

// settingOrigins lists the origins whose pages may use the visitors' API.
const settingOrigins = "origins"

// Origins returns the allowed origins in a connection's settings.
func Origins(settings map[string]string) []string {
	list, _ := parseOrigins(settings[settingOrigins])
	return list
}

// parseOrigins splits a list of origins, without malformed ones, and returns the first of those.
func parseOrigins(raw string) (list []string, bad string) {
	for _, o := range strings.FieldsFunc(raw, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' }) {
		if isOrigin(o) {
			list = append(list, strings.ToLower(o))
		} else {
			bad = cmp.Or(bad, o)
		}
	}
	return list, bad
}

// isOrigin reports whether browsers may send o as the origin of a page. They leave out the default port,
// and send a host name in ASCII.
func isOrigin(o string) bool {
	u, err := url.Parse(o)
	if err != nil || u.Host == "" || u.User != nil || o != u.Scheme+"://"+u.Host {
		return false
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !netguard.Loopback(u)) || u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80" {
		return false
	}
	return !strings.HasSuffix(u.Host, ":") && !strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' || r == '*' })
}

// Addresses implements [channel.Adapter]. The URL names the connection.
func (Adapter) Addresses(*channel.Request) ([]string, error) { return nil, nil }

// HeaderProof implements [channel.HeaderProver].
func (Adapter) HeaderProof(r *channel.Request) channel.HeaderProof {
	return channel.BodyDecidesIf(payload.HasStandard(r.Header, r.Received))
}

// Verify implements [channel.Adapter].
func (Adapter) Verify(r *channel.Request, secret string) bool {
	return secret != "" && payload.VerifyStandard(r.Header, r.Body, secret, r.Received) == nil
}

// The types of a [Event].
const (
	TypeMessage = "message"
	TypeReceipt = "receipt"
	// TypeTest is a self-test, which has no effect.
	TypeTest = "test"
)

// Event is the body of a signed request. One member of the two is set, by Type.
type Event struct {
	Type    string   `json:"type"`
	Message *Message `json:"message,omitempty"`
	Receipt *Receipt `json:"receipt,omitempty"`
}

// Message is a message of a user.
type Message struct {
	ID           string            `json:"external_id"`  // the app's, unique among the user's messages
	Conversation string            `json:"conversation"` // the app's, unique among the user's conversations
	User         User              `json:"user"`
	Subject      string            `json:"subject,omitempty"`
	Text         string            `json:"text,omitempty"`
	Files        []File            `json:"files,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	SentAt       time.Time         `json:"sent_at,omitzero"`
}

// User is a user of the app.
type User struct {
	ID    string `json:"id"` // the app's
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
	Phone string `json:"phone,omitempty"` // E.164
}

// Party returns the user as the sender of a message.
func (u *User) Party() channel.Party {
	return channel.Party{ID: u.ID, Name: u.Name, Email: u.Email, Phone: u.Phone}
}

// File is a file of a message: its content, or the public URL of it.
type File struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type,omitempty"`
	Content     string `json:"content,omitempty"` // base64
	URL         string `json:"url,omitempty"`
	Data        []byte `json:"-"` // replaces Content
}

// Receipt is the delivery status of a reply, or of all replies in a conversation so far.
type Receipt struct {
	MessageID    string `json:"message_id,omitempty"` // ours
	User         string `json:"user_id,omitempty"`    // with Conversation, in place of MessageID
	Conversation string `json:"conversation,omitempty"`
	State        string `json:"state"` // delivered, read or failed
	Error        string `json:"error,omitempty"`
}

// idForm matches ids of the app: no spaces, and no slash, which separates them in keys.
var idForm = regexp.MustCompile(`^[A-Za-z0-9_][!-.0-~]{0,99}$`)

// CheckID adds an issue unless id is a valid id of the app.
func CheckID(v *problem.Validation, path, id string) {
	switch {
	case id == "":
		v.AddCode("required", path, "must be given")
	case !idForm.MatchString(id):
		v.AddCode("invalid_format", path, "must have 1 to 100 visible ASCII characters without a slash, and begin with a letter, a digit or _")
	}
}

// ThreadKey returns the key of a user's conversation.
func ThreadKey(user, conversation string) string { return user + "/" + conversation }

// SplitThreadKey is the reverse of [ThreadKey].
func SplitThreadKey(key string) (user, conversation string) {
	user, conversation, _ = strings.Cut(key, "/")
	return user, conversation
}

// Check implements [problem.Checker].
func (m *Message) Check(v *problem.Validation) {
	CheckID(v, "external_id", m.ID)
	CheckID(v, "conversation", m.Conversation)
	m.User.check(v, "user.")
	v.Line("subject", m.Subject, 0, 255)
	v.Length("text", m.Text, 0, MaxText)
	if strings.TrimSpace(m.Text) == "" && len(m.Files) == 0 {
		v.AddCode("required", "text", "must be given, or a file")
	}
	if len(m.Files) > MaxFiles {
		v.AddCode("too_long", "files", "must have at most %d files", MaxFiles)
	}
	for i := range m.Files {
		m.Files[i].check(v, "files."+strconv.Itoa(i)+".")
	}
	if len(m.Metadata) > maxMetadata {
		v.AddCode("too_long", "metadata", "must have at most %d keys", maxMetadata)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Metadata)) {
		v.Length("metadata."+key, m.Metadata[key], 0, 500)
	}
}

func (u *User) check(v *problem.Validation, prefix string) {
	CheckID(v, prefix+"id", u.ID)
	v.Line(prefix+"name", u.Name, 0, 255)
	v.Line(prefix+"email", u.Email, 0, 254)
	v.Line(prefix+"phone", u.Phone, 0, 32)
}

func (f *File) check(v *problem.Validation, prefix string) {
	v.Line(prefix+"name", f.Name, 1, 255)
	v.Line(prefix+"content_type", f.ContentType, 0, 255)
	if (f.URL != "") == (f.Content != "" || f.Data != nil) {
		v.AddCode("required", prefix+"content", "or url must be given, not both")
		return
	}
	if f.URL != "" {
		if _, err := netguard.CheckURL(f.URL, false); err != nil {
			v.AddCode("invalid_format", prefix+"url", "%v", err)
		}
		return
	}
	if f.Data == nil {
		data, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			v.AddCode("invalid_format", prefix+"content", "must be base64")
		}
		f.Data = data
	}
}

// Channel returns the message in terms of all channels. Errors: Invalid; TooLarge.
func (m *Message) Channel() (*channel.Message, error) {
	if err := problem.Check(m); err != nil {
		return nil, err
	}
	out := &channel.Message{
		ExternalID: ThreadKey(m.User.ID, m.ID), ThreadKey: ThreadKey(m.User.ID, m.Conversation), From: m.User.Party(),
		Subject: m.Subject, Text: m.Text, SentAt: m.SentAt, Metadata: m.Metadata,
	}
	size := 0
	for _, f := range m.Files {
		size += len(f.Data)
		out.Attachments = append(out.Attachments, channel.Attachment{Name: f.Name, ContentType: f.ContentType, Data: f.Data, URL: f.URL})
	}
	if size > MaxFileBytes {
		return nil, problem.New(problem.TooLarge, "the files have more than %d MiB together", MaxFileBytes>>20)
	}
	return out, nil
}

// receiptStates are the states that an app reports.
var receiptStates = []channel.ReceiptState{channel.ReceiptDelivered, channel.ReceiptRead, channel.ReceiptFailed}

// Check implements [problem.Checker].
func (r *Receipt) Check(v *problem.Validation) {
	switch {
	case r.MessageID != "" && (r.Conversation != "" || r.User != ""):
		v.AddCode("conflict", "message_id", "must not be combined with a conversation")
	case r.MessageID == "":
		CheckID(v, "user_id", r.User)
		CheckID(v, "conversation", r.Conversation)
	default:
		v.Line("message_id", r.MessageID, 1, 100)
	}
	if !slices.Contains(receiptStates, channel.ReceiptState(r.State)) {
		v.Add("state", "must be one of delivered, read, failed")
	}
	v.Line("error", r.Error, 0, 500)
	if r.Error != "" && r.State != string(channel.ReceiptFailed) {
		v.AddCode("conflict", "error", "is for the state failed")
	}
}

// Channel returns the receipt in terms of all channels. Error: Invalid.
func (r *Receipt) Channel() (*channel.Receipt, error) {
	if err := problem.Check(r); err != nil {
		return nil, err
	}
	out := &channel.Receipt{State: channel.ReceiptState(r.State), Error: r.Error}
	if r.MessageID != "" {
		out.ExternalIDs = []string{channel.ReplyID(r.MessageID)}
	} else {
		out.ThreadKey = ThreadKey(r.User, r.Conversation)
	}
	if out.State == channel.ReceiptFailed && out.Error == "" {
		out.Error = "the app could not deliver it"
	}
	return out, nil
}

// read decodes and checks a request.
func read(body []byte) (*Event, error) {
	var e Event
	if err := json.Unmarshal(body, &e); err != nil || !utf8.Valid(body) {
		return nil, fmt.Errorf("%w: the body is not a JSON object of an event", channel.ErrUnreadable)
	}
	switch {
	case e.Type == TypeMessage && e.Message != nil, e.Type == TypeReceipt && e.Receipt != nil, e.Type == TypeTest:
		return &e, nil
	}
	return nil, fmt.Errorf("%w: the type must be message or receipt, with a field of that name", channel.ErrUnreadable)
}

// unreadable converts a problem of the content.
func unreadable(err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok && len(p.Issues) > 0 {
		return fmt.Errorf("%w: %s %s", channel.ErrUnreadable, p.Issues[0].Path, p.Issues[0].Message)
	}
	return fmt.Errorf("%w: %w", channel.ErrUnreadable, err)
}

// Split implements [channel.Adapter].
func (Adapter) Split(r *channel.Request) ([]channel.Part, error) {
	e, err := read(r.Body)
	if err != nil {
		return nil, err
	}
	switch e.Type {
	case TypeMessage:
		m, err := e.Message.Channel()
		if err != nil {
			return nil, unreadable(err)
		}
		return []channel.Part{{Key: "m:" + m.ExternalID, Sender: m.ThreadKey, Kind: e.Type}}, nil
	case TypeReceipt:
		if _, err := e.Receipt.Channel(); err != nil {
			return nil, unreadable(err)
		}
		return []channel.Part{{Key: "r:" + r.Header.Get("Webhook-Id"), Kind: e.Type}}, nil
	}
	return []channel.Part{{Kind: e.Type, Skip: true}}, nil
}

// Parse implements [channel.Adapter].
func (Adapter) Parse(r *channel.Request, _ channel.Part) (channel.Event, error) {
	e, err := read(r.Body)
	if err != nil {
		return channel.Event{}, err
	}
	if e.Type == TypeMessage {
		m, err := e.Message.Channel()
		if err != nil {
			return channel.Event{}, unreadable(err)
		}
		return channel.Event{Message: m}, nil
	}
	if e.Type == TypeReceipt {
		receipt, err := e.Receipt.Channel()
		if err != nil {
			return channel.Event{}, unreadable(err)
		}
		return channel.Event{Receipt: receipt}, nil
	}
	return channel.Event{}, fmt.Errorf("%w: the event has no effect", channel.ErrUnreadable)
}

// MediaRequest implements [channel.MediaSource]: files come from the host of their URL.
func (Adapter) MediaRequest(a channel.Attachment, _ channel.Credentials) channel.MediaRequest {
	m := channel.MediaRequest{URL: a.URL}
	if u, err := url.Parse(a.URL); err == nil {
		m.Hosts = []string{strings.TrimSuffix(strings.ToLower(u.Host), ":443")}
	}
	return m
}

// Sign signs a request to the endpoint like an app.
func Sign(h http.Header, id string, at time.Time, body []byte, secret string) {
	payload.SignStandard(h, id, at, body, []string{secret})
}
