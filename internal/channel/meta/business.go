package meta

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// Business is the business messaging channel.
//
// A customer is identified by the user id that the provider assigns per operator, and by their
// phone number if they show it: the id is the thread key, the number a further key. A number is
// never derived from an id, nor an id shown as one.
type Business struct{ platform }

var (
	_ channel.Adapter           = (*Business)(nil)
	_ channel.AddressNormalizer = (*Business)(nil)
	_ channel.Handshaker        = (*Business)(nil)
	_ channel.SecretResolver    = (*Business)(nil)
	_ channel.MediaLocator      = (*Business)(nil)
	_ channel.RetryDecider      = (*Business)(nil)
	_ channel.MediaSource       = (*Business)(nil)
)

// NewBusiness returns the channel.
func NewBusiness(c Config) *Business { return &Business{platform{newGraph(c)}} }

// Info implements [channel.Adapter].
func (*Business) Info() channel.Info {
	return channel.Info{Name: "business-messaging", TicketChannel: "business_messaging", Path: "/api/webhooks/business-messaging", MaxBody: maxBody}
}

// The handled notification fields.
const (
	businessObject = "whatsapp_business_account"
	businessField  = "messages"
)

// Addresses implements [channel.Adapter]: the ids of our numbers, then of their accounts.
func (*Business) Addresses(r *channel.Request) ([]string, error) {
	if err := checkType(r); err != nil {
		return nil, err
	}
	var numbers, accounts ids
	for _, raw := range notification(r).list("entry") {
		entry := parse(raw)
		accounts.add(entry.text("id"))
		for _, raw := range entry.list("changes") {
			numbers.add(parse(raw).object("value").object("metadata").text("phone_number_id"))
		}
	}
	return append(numbers.list, accounts.list...), nil
}

// businessItem is the body of a part: one item with its context.
type businessItem struct {
	Account  string          `json:"account,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Contact  object          `json:"contact,omitempty"`
	Message  json.RawMessage `json:"message,omitempty"`
	Status   json.RawMessage `json:"status,omitempty"`
	Errors   json.RawMessage `json:"errors,omitempty"`
}

// Split implements [channel.Adapter].
func (*Business) Split(r *channel.Request) ([]channel.Part, error) {
	n := notification(r)
	if n == nil {
		return nil, errNotification
	}
	var ps parts
	if kind := n.text("object"); kind != businessObject {
		ps.skip(cmp.Or(kind, "unknown"))
		return ps.done()
	}
	for _, raw := range n.list("entry") {
		entry := parse(raw)
		if entry == nil {
			ps.bad("", "", raw)
			continue
		}
		account := key(entry.text("id"))
		for _, raw := range entry.list("changes") {
			change := parse(raw)
			value := change.object("value")
			switch {
			case change.text("field") != businessField && change != nil:
				ps.skip(cmp.Or(change.text("field"), "unknown"))
			case value == nil:
				ps.bad("", account, raw)
			default:
				ps.business(account, value)
			}
		}
	}
	return ps.done()
}

// business adds the items of a change.
func (ps *parts) business(account string, value object) {
	number := key(value.object("metadata").text("phone_number_id"))
	contacts := readContacts(value.objects("contacts"))
	part := channel.Part{Address: number, Account: account}
	around := businessItem{Account: account, Metadata: value["metadata"]}
	messages, statuses := value.list("messages"), value.list("statuses")
	for _, raw := range messages {
		m := parse(raw)
		id := m.text("id")
		if id == "" {
			ps.bad(number, account, raw)
			continue
		}
		p, it := part, around
		it.Message, it.Contact = raw, contacts.of(m.text("from_user_id"), m.text("from"), len(messages) == 1)
		w := messageSender(m, it.Contact)
		p.Kind, p.Key, p.Sender = KindMessage, key(id), w.thread()
		ps.add(p, it)
	}
	for _, raw := range statuses {
		s := parse(raw)
		id, state := s.text("id"), strings.ToLower(s.text("status"))
		if id == "" {
			ps.bad(number, account, raw)
			continue
		}
		if _, known := businessState(state); !known {
			ps.skip(KindReceipt)
			continue
		}
		p, it := part, around
		it.Status, it.Contact = raw, contacts.of(s.text("recipient_user_id"), s.text("recipient_id"), len(statuses) == 1)
		p.Kind, p.Key = KindReceipt, key(id+":"+state)
		ps.add(p, it)
	}
	if len(value.list("errors")) > 0 {
		p, it := part, around
		it.Errors = value["errors"]
		p.Kind, p.Key = KindErrors, digestKey(KindErrors, account, number, string(it.Errors))
		ps.add(p, it)
	}
}

// contacts are the senders of a batch, by each of their ids and numbers.
type contacts struct {
	by   map[string]object
	sole object // set if there is exactly one
}

func readContacts(list []object) contacts {
	c := contacts{by: make(map[string]object)}
	for _, o := range list {
		for _, id := range []string{o.text("user_id"), o.text("wa_id")} {
			if c.by[id] == nil && id != "" {
				c.by[id] = o
			}
		}
	}
	if len(list) == 1 {
		c.sole = list[0]
	}
	return c
}

// of returns the contact with an id or number, or nil. A message's number may differ from the
// contact's, so the only contact of the only item always matches.
func (c contacts) of(userID, number string, soleItem bool) object {
	for _, id := range []string{userID, number} {
		if o := c.by[id]; o != nil {
			return o
		}
	}
	if c.sole != nil && soleItem && (userID == "" || c.sole.text("user_id") == "") {
		return c.sole
	}
	return nil
}

// person is a customer as the provider describes them.
type person struct {
	id       string // user id for this operator, or of their group
	phone    string // E.164; empty if hidden
	name     string
	username string
}

// messageSender returns the sender of a message.
func messageSender(m, contact object) person {
	w := person{name: strings.TrimSpace(contact.object("profile").text("name"))}
	w.username = cmp.Or(contact.object("profile").text("username"), contact.text("username"))
	w.add(m.text("from_user_id"), contact.text("user_id"), m.text("from"), contact.text("wa_id"),
		m.text("from_parent_user_id"), contact.text("parent_user_id"))
	return w
}

// add sets number and id from the first of each among values. The provider may send an id where
// it used to send a number.
func (w *person) add(values ...string) {
	for _, v := range values {
		v = strings.TrimSpace(v)
		switch {
		case v == "":
		case isNumber(v):
			w.phone = cmp.Or(w.phone, "+"+v)
		default:
			w.id = cmp.Or(w.id, key(v))
		}
	}
}

// isNumber reports whether v is a phone number in the provider's form: E.164 without the plus.
func isNumber(v string) bool {
	return len(v) >= 7 && len(v) <= 15 && v[0] != '0' && strings.Trim(v, "0123456789") == ""
}

func (w person) keys() []string {
	var keys []string
	for _, k := range []string{w.id, w.phone} {
		if k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

func (w person) thread() string { return cmp.Or(w.id, w.phone) }

func (w person) party() channel.Party {
	p := channel.Party{Name: w.name, Phone: w.phone, ID: w.id}
	if p.Name == "" && w.username != "" {
		p.Name = "@" + strings.TrimPrefix(w.username, "@")
	}
	return p
}

// Parse implements [channel.Adapter].
func (*Business) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	it, err := item(r, p)
	if err != nil {
		return channel.Event{}, err
	}
	switch {
	case it["message"] != nil:
		return businessMessage(it.object("message"), it.object("contact"))
	case it["status"] != nil:
		return businessReceipt(it.object("status"), it.object("contact"))
	case it["errors"] != nil:
		return businessErrors(it)
	}
	return channel.Event{}, fmt.Errorf("%w: neither a message nor a state", channel.ErrUnreadable)
}

func businessMessage(m, contact object) (channel.Event, error) {
	w := messageSender(m, contact)
	at := m.time("timestamp")
	kind := m.text("type")
	if kind == "system" {
		if r := identityChange(w, m); r != nil {
			return channel.Event{IdentityChange: r}, nil
		}
	}
	if w.thread() == "" {
		return channel.Event{}, fmt.Errorf("%w: a message without a sender", channel.ErrUnreadable)
	}
	if a := annotation(m, kind); a != nil {
		a.By, a.At = w.party(), at
		return channel.Event{Annotation: a}, nil
	}
	c := businessContent(m, kind)
	if c.file.Lookup != "" {
		c.attachments = []channel.Attachment{c.file}
	}
	c.notes.add(MetaReplyTo, m.object("context").text("id"))
	c.notes.add(MetaProduct, m.object("context").object("referred_product").text("product_retailer_id"))
	c.notes.add(MetaReferral, m.object("referral").text("source_url"))
	c.notes.add(MetaUsername, w.username)
	return channel.Event{Message: &channel.Message{
		ExternalID: key(m.text("id")), ThreadKey: w.thread(), OtherKeys: w.keys()[1:], StaleAfter: staleAfter,
		From: w.party(), Text: c.text, Attachments: c.attachments, SentAt: at, Metadata: c.notes,
	}}, nil
}

// identityChange reads a change of a customer's number or id, or returns nil. The message is
// from the old identity, but may already have the new id.
func identityChange(before person, m object) *channel.IdentityChange {
	s := m.object("system")
	switch s.text("type") {
	case "user_changed_number", "user_changed_user_id", "customer_changed_number":
	default:
		return nil
	}
	var old, now person
	old.add(s.text("previous_user_id"), m.text("from"), s.text("previous_wa_id"))
	now.add(s.first("user_id", "new_user_id"), s.first("new_wa_id", "wa_id"))
	if now.id == "" && before.id != old.id {
		now.id = before.id
	}
	if old.id == "" && before.id != now.id {
		old.id = before.id
	}
	if now.phone == old.phone {
		now.phone = "" // unchanged
	}
	if now.id == old.id {
		now.id = ""
	}
	if old.thread() == "" || now.thread() == "" {
		return nil
	}
	r := &channel.IdentityChange{From: old.party(), To: now.party(), FromKey: old.thread(), ToKeys: now.keys()}
	// An unchanged identifier remains a key. A new id comes with each new number, but not each
	// new number with an id.
	if now.id == "" && old.id != "" {
		r.ToKeys = append([]string{old.id}, r.ToKeys...)
	}
	if now.phone == "" && old.phone != "" {
		r.ToKeys = append(r.ToKeys, old.phone)
	}
	return r
}

// annotation reads a change of another message, or returns nil if m is a message itself.
func annotation(m object, kind string) *channel.Annotation {
	what := m.object(kind)
	target := key(what.first("original_message_id", "message_id"))
	if target == "" {
		return nil
	}
	a := &channel.Annotation{ExternalID: target}
	switch kind {
	case "reaction":
		a.Kind, a.Text = channel.Reacted, what.text("emoji")
		if a.Text == "" {
			a.Kind = channel.Unreacted
		}
	case "edit", "edited":
		edited := what.object("message")
		a.Kind, a.Text = channel.Edited, businessContent(edited, edited.text("type")).text
	case "revoke", "revoked", "delete", "deleted":
		a.Kind = channel.Deleted
	default:
		return nil
	}
	return a
}

// businessState maps the provider's message status to ours.
func businessState(state string) (channel.ReceiptState, bool) {
	switch state {
	case "sent":
		return channel.ReceiptSent, true
	case "delivered":
		return channel.ReceiptDelivered, true
	case "read", "played":
		return channel.ReceiptRead, true
	case "failed":
		return channel.ReceiptFailed, true
	}
	return "", false
}

func businessReceipt(s, contact object) (channel.Event, error) {
	state, ok := businessState(strings.ToLower(s.text("status")))
	if !ok {
		return channel.Event{}, fmt.Errorf("%w: not a message state", channel.ErrUnreadable)
	}
	r := &channel.Receipt{ExternalIDs: []string{key(s.text("id"))}, State: state}
	// The status may arrive before the response with the message's id.
	if ours := key(s.text("biz_opaque_callback_data")); ours != "" {
		r.ExternalIDs = append(r.ExternalIDs, ours)
	}
	var to person
	to.add(s.text("recipient_id"), s.text("recipient_user_id"), contact.text("wa_id"), contact.text("user_id"))
	r.Recipient = cmp.Or(to.phone, to.id)
	if state == channel.ReceiptFailed {
		r.Error = "the message was not delivered, and the provider does not say why"
		for _, e := range s.objects("errors") {
			f := readFailure(e)
			m := explainBusiness(f)
			r.Error, r.Permanent = f.tagged(m.text), m.unreachable
			break
		}
	}
	return channel.Event{Receipt: r}, nil
}

// businessErrors reads an error that belongs to no message.
func businessErrors(it object) (channel.Event, error) {
	var list []string
	for _, e := range it.objects("errors") {
		f := readFailure(e)
		list = append(list, f.tagged(explainBusiness(f).text))
	}
	if len(list) == 0 {
		return channel.Event{}, fmt.Errorf("%w: errors that say nothing", channel.ErrUnreadable)
	}
	return channel.Event{ConnectionEvent: &channel.ConnectionEvent{Kind: channel.Noticed, Text: "the provider reports an error: " + strings.Join(slices.Compact(list), "; ")}}, nil
}

// Locate implements [channel.MediaLocator].
func (b *Business) Locate(a channel.Attachment, credentials channel.Credentials) (*channel.APIRequest, string) {
	switch {
	case credentials.Get(credToken) == "":
		return nil, "the provider could not be asked for the file: the connection has no access token"
	case !isID(a.Lookup):
		return nil, "the provider could not be asked for the file: its id is malformed"
	}
	call := b.graph.call(http.MethodGet, credentials, url.Values{}, a.Lookup)
	return &call, ""
}

// Located implements [channel.MediaLocator].
func (*Business) Located(a channel.Attachment, answer channel.Response) channel.Attachment {
	if answer.Status != http.StatusOK {
		a.Error = "the file could not be had: " + unanswered(answer)
		return a
	}
	o := parse(answer.Body)
	if a.URL = o.text("url"); a.URL == "" {
		a.Error = "the file could not be had: the provider does not say where it is"
	}
	a.ContentType = cmp.Or(a.ContentType, o.text("mime_type"))
	a.SHA256 = cmp.Or(sha256Hex(o.text("sha256")), a.SHA256)
	return a
}

// ShouldRetry implements [channel.RetryDecider]: rate limits have the status of a client error.
// A file is worth the wait.
func (*Business) ShouldRetry(a channel.Response) bool {
	f := readFailure(parse(a.Body).object("error"))
	return a.Status/100 != 2 && f.code != 0 && (f.transient || explainBusiness(f).fate == channel.VerdictRetry)
}

// MediaRequest implements [channel.MediaSource]. A download needs both the URL, valid for
// minutes, and the token.
func (b *Business) MediaRequest(a channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	r := channel.MediaRequest{URL: a.URL, Hosts: b.graph.mediaHosts()}
	if token := credentials.Get(credToken); token != "" {
		r.Header, r.HeaderHosts = http.Header{"Authorization": {"Bearer " + token}}, b.graph.tokenHosts()
	}
	return r
}
