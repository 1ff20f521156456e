// Package meta implements the two channels of Meta's platform: business messaging, with the
// WhatsApp Cloud API, and the social messenger, with Facebook Messenger's.
//
// Both post notifications of one form: an object with entries, one per account of the operator,
// each with items. The body is signed with the app secret, and a GET handshake verifies the
// endpoint. Outbound messages and lookups use the Graph API.
//
// A notification is a batch. Each message, receipt and so on becomes a part, with the item and
// its context as the body, so that it can be parsed by itself. An unreadable item is stored as
// an unreadable part and never affects the rest.
//
// Neither API lists sent messages or supports idempotency keys. Both return data that was sent
// with the message in their receipts, so each message carries our id: a receipt finds its
// message even if the response to the call was lost.
package meta

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// maxBody is the largest accepted notification in bytes. The provider's batches have up to 3
// MB.
const maxBody = 3 << 20

// Bounds of a notification, before it is verified; the provider's have at most a thousand
// items.
const (
	maxAddresses = 1000
	maxItems     = 10_000
	maxMembers   = 1000 // of an object
)

// SignatureHeader is the name of the header with the signature.
const SignatureHeader = "X-Hub-Signature-256"

// Part kinds.
const (
	KindMessage = "message"
	KindReceipt = "status"
	KindErrors  = "errors"
)

// staleAfter is how long a closed ticket still receives its customer's messages.
const staleAfter = 7 * 24 * time.Hour

// Config holds the settings of a deployment.
type Config struct {
	// APIURL is the Graph API. Default: [DefaultAPIURL]. A version at its end ("/v25.0")
	// selects the API version.
	APIURL string
}

// platform is the common part of both channels.
type platform struct{ graph graph }

// SigningSecrets implements [channel.SecretResolver]. Notifications are signed with the app
// secret, which is either the connection's secret or, where calls need it too, one of its
// credentials.
func (platform) SigningSecrets(_ string, secrets []string, credentials channel.Credentials) []string {
	if s := credentials.Get(credAppSecret); s != "" {
		return append(secrets[:len(secrets):len(secrets)], s)
	}
	return secrets
}

// Verify implements [channel.Adapter]. The signature covers the raw body, in which the provider
// escapes non-ASCII characters.
func (platform) Verify(r *channel.Request, secret string) bool {
	presented, ok := signature(r)
	return ok && secret != "" && hmac.Equal(presented, digest(r.Body, secret))
}

// HeaderProof implements [channel.HeaderProver].
func (platform) HeaderProof(r *channel.Request) channel.HeaderProof {
	_, ok := signature(r)
	return channel.BodyDecidesIf(ok)
}

// signature returns the signature in the header.
func signature(r *channel.Request) ([]byte, bool) {
	digits, ok := strings.CutPrefix(r.Header.Get(SignatureHeader), "sha256=")
	if !ok || len(digits) != hex.EncodedLen(sha256.Size) {
		return nil, false
	}
	presented, err := hex.DecodeString(digits)
	return presented, err == nil
}

func digest(body []byte, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign returns the header [SignatureHeader] for body.
func Sign(body []byte, secret string) string {
	return "sha256=" + hex.EncodeToString(digest(body, secret))
}

// Handshake implements [channel.Handshaker].
func (platform) Handshake(r *channel.Request) (token, challenge string, ok bool) {
	q := r.Query()
	if q.Get("hub.mode") != "subscribe" {
		return "", "", false
	}
	return q.Get("hub.verify_token"), q.Get("hub.challenge"), true
}

// NormalizeAddress implements [channel.AddressNormalizer].
func (platform) NormalizeAddress(raw string) (string, error) {
	raw = strings.TrimSpace(raw)
	if !isID(raw) {
		return "", errors.New("must be the provider's id: digits only, not a name or a phone number with a +")
	}
	return raw, nil
}

// isID reports whether s is an id of the platform's accounts.
func isID(s string) bool {
	return s != "" && len(s) <= 40 && strings.Trim(s, "0123456789") == ""
}

// notification parses a request's body; nil if it is no JSON object.
func notification(r *channel.Request) object { return parse(r.Body) }

// checkType refuses a declared content type other than JSON.
func checkType(r *channel.Request) error {
	switch r.MediaType() {
	case "application/json", "":
		return nil
	}
	return channel.ErrContentType
}

var errNotification = fmt.Errorf("%w: the body is not a JSON object", channel.ErrUnreadable)

var errTooMany = fmt.Errorf("%w: the body has more than %d items", channel.ErrUnreadable, maxItems)

// ids collects ids without duplicates.
type ids struct {
	list []string
	seen map[string]bool
}

func (ids *ids) add(id string) {
	if id = key(id); id == "" || ids.seen[id] || len(ids.list) >= maxAddresses {
		return
	}
	if ids.seen == nil {
		ids.seen = make(map[string]bool)
	}
	ids.seen[id] = true
	ids.list = append(ids.list, id)
}

// parts collects the parts of a notification.
type parts struct {
	list []channel.Part
	keys map[string]bool
	over bool // more than [maxItems]
}

// done returns the parts.
func (ps *parts) done() ([]channel.Part, error) {
	if ps.over {
		return nil, errTooMany
	}
	return ps.list, nil
}

// full reports whether the limit is reached.
func (ps *parts) full() bool {
	ps.over = ps.over || len(ps.list) >= maxItems
	return ps.over
}

// add appends a part with item as its body. Duplicates in a batch count once.
func (ps *parts) add(p channel.Part, item any) {
	if ps.keys[p.Key] || ps.full() {
		return
	}
	if ps.keys == nil {
		ps.keys = make(map[string]bool)
	}
	ps.keys[p.Key] = true
	p.Body, _ = json.Marshal(item) // item was decoded from JSON
	ps.list = append(ps.list, p)
}

func (ps *parts) skip(kind string) {
	if ps.full() {
		return
	}
	ps.list = append(ps.list, channel.Part{Kind: key(kind), Skip: true})
}

// unreadable is the item of an unreadable part.
type unreadable struct {
	Unreadable json.RawMessage `json:"unreadable"`
}

// bad adds an unreadable item, for the operator.
func (ps *parts) bad(address, account string, raw json.RawMessage) {
	ps.add(channel.Part{Key: digestKey(string(raw)), Address: address, Account: account, Kind: "unreadable"}, unreadable{raw})
}

// item decodes the body of a part.
func item(r *channel.Request, p channel.Part) (object, error) {
	body := p.Body
	if body == nil {
		body = r.Body
	}
	o := parse(body)
	switch {
	case o == nil:
		return nil, errNotification
	case o["unreadable"] != nil:
		return nil, fmt.Errorf("%w: it is no object, or has no id", channel.ErrUnreadable)
	}
	return o, nil
}

// object is a JSON object with typed access to members. An absent member, or one of another
// type, reads as zero, so that a format change of other members does no harm. The nil object
// has no members.
type object map[string]json.RawMessage

// parse returns nil unless raw is an object with a plausible number of members: an unverified
// body must not take many times its size in memory.
func parse(raw json.RawMessage) object {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	o := make(object)
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || len(o) > maxMembers || d.Decode(&value) != nil {
			return nil
		}
		o[name.(string)] = value
	}
	if _, err := d.Token(); err != nil {
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		return nil
	}
	return o
}

func (o object) object(name string) object { return parse(o[name]) }

// list returns the elements of a list, up to a limit.
func (o object) list(name string) []json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(o[name]))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil
	}
	var list []json.RawMessage
	for d.More() && len(list) <= maxItems {
		var element json.RawMessage
		if d.Decode(&element) != nil {
			return nil
		}
		list = append(list, element)
	}
	return list
}

// objects returns the elements of a list that are objects.
func (o object) objects(name string) []object {
	var list []object
	for _, raw := range o.list(name) {
		if e := parse(raw); e != nil {
			list = append(list, e)
		}
	}
	return list
}

// text returns a string, or a number as written.
func (o object) text(name string) string {
	raw := o[name]
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return channel.CleanText(s)
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// first returns the first nonempty text among the members.
func (o object) first(names ...string) string {
	for _, n := range names {
		if s := o.text(n); s != "" {
			return s
		}
	}
	return ""
}

func (o object) flag(name string) bool {
	var b bool
	return json.Unmarshal(o[name], &b) == nil && b
}

// time returns a time in Unix seconds or milliseconds (the ranges do not overlap), or zero.
func (o object) time(name string) time.Time {
	n, err := strconv.ParseInt(o.text(name), 10, 64)
	switch {
	case err != nil || n <= 0 || n > 253402300799_000: // end of the year 9999
		return time.Time{}
	case n >= 100_000_000_000: // as seconds the year 5138, as milliseconds 1973
		return time.UnixMilli(n).UTC()
	}
	return time.Unix(n, 0).UTC()
}

// key makes a value of a notification fit for an index; long or unclean values are replaced by
// their digest.
func key(s string) string {
	if len(s) <= 200 && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return s
	}
	return digestKey(s)
}

// digestKey returns a key for a part without its own.
func digestKey(list ...string) string {
	h := sha256.New()
	for _, s := range list {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// maxWord is the maximum length in bytes of a provider's term shown to agents.
const maxWord = 60

// word makes an unknown term of the provider fit for display.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
	if len(s) > maxWord {
		s = strings.ToValidUTF8(s[:maxWord], "") + "…"
	}
	return s
}

// lines joins nonempty texts with line feeds.
func lines(list ...string) string {
	var b strings.Builder
	for _, s := range list {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s)
	}
	return b.String()
}

// Names in [channel.Message.Metadata].
const (
	MetaPayload  = "payload"  // the payload of a button
	MetaReplyTo  = "reply_to" // the provider's id of the quoted message
	MetaReferral = "referral" // the advertisement or link of origin
	MetaUsername = "username"
	MetaSticker  = "sticker_id"
	MetaProduct  = "product"
	MetaCatalog  = "catalog_id"
	MetaForm     = "form"
	MetaApp      = "app_id" // the app that sent a message outside Kickstand
)

// maxMetadata bounds one value, in bytes.
const maxMetadata = 2000

// metadata collects [channel.Message.Metadata].
type metadata map[string]string

func (n *metadata) add(name, value string) {
	if value == "" {
		return
	}
	if *n == nil {
		*n = make(metadata)
	}
	if len(value) > maxMetadata {
		value = strings.ToValidUTF8(value[:maxMetadata], "")
	}
	(*n)[name] = value
}

// mapLink returns a map URL for a place.
func mapLink(latitude, longitude string) string {
	for _, s := range []string{latitude, longitude} {
		if _, err := strconv.ParseFloat(s, 64); err != nil || len(s) > 30 {
			return ""
		}
	}
	return "https://www.google.com/maps?q=" + latitude + "," + longitude
}
