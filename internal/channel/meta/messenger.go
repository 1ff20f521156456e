package meta

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// Messenger is the social messenger channel.
//
// A customer is identified by the user id that the provider assigns per page. The page's own
// messages return as echoes: our own carry our id and are receipts, the rest were sent by an
// agent elsewhere. An echo is never a customer's message.
type Messenger struct{ platform }

var (
	_ channel.Adapter           = (*Messenger)(nil)
	_ channel.AddressNormalizer = (*Messenger)(nil)
	_ channel.Handshaker        = (*Messenger)(nil)
	_ channel.SecretResolver    = (*Messenger)(nil)
	_ channel.Enricher          = (*Messenger)(nil)
	_ channel.MediaSource       = (*Messenger)(nil)
)

// NewMessenger returns the channel.
func NewMessenger(c Config) *Messenger { return &Messenger{platform{newGraph(c)}} }

// Info implements [channel.Adapter].
func (*Messenger) Info() channel.Info {
	return channel.Info{Name: "social-messenger", TicketChannel: "social_messenger", Path: "/api/webhooks/social-messenger", MaxBody: maxBody}
}

// The handled objects, all of one shape.
const (
	pageObject  = "page"
	photoObject = "instagram"
)

// Addresses implements [channel.Adapter]: the ids of our pages.
func (*Messenger) Addresses(r *channel.Request) ([]string, error) {
	if err := checkType(r); err != nil {
		return nil, err
	}
	var pages ids
	for _, raw := range notification(r).list("entry") {
		pages.add(parse(raw).text("id"))
	}
	return pages.list, nil
}

// messengerItem is the body of a part.
type messengerItem struct {
	Object string          `json:"object"`
	Page   string          `json:"page"`
	Event  json.RawMessage `json:"event"`
}

// Split implements [channel.Adapter].
func (*Messenger) Split(r *channel.Request) ([]channel.Part, error) {
	n := notification(r)
	if n == nil {
		return nil, errNotification
	}
	var ps parts
	of := n.text("object")
	if of != pageObject && of != photoObject {
		ps.skip(cmp.Or(of, "unknown"))
		return ps.done()
	}
	for _, raw := range n.list("entry") {
		entry := parse(raw)
		if entry == nil {
			ps.bad("", "", raw)
			continue
		}
		page := entry.text("id")
		for _, raw := range entry.list("messaging") {
			ps.messenger(of, page, raw)
		}
		for range entry.list("standby") {
			ps.skip("standby") // another app owns the conversation
		}
		for _, change := range entry.objects("changes") {
			ps.skip(cmp.Or(change.text("field"), "change"))
		}
	}
	return ps.done()
}

// messenger adds one event of a page.
func (ps *parts) messenger(of, page string, raw json.RawMessage) {
	e := parse(raw)
	if e == nil {
		ps.bad(key(page), "", raw)
		return
	}
	kind := messengerKind(e, page)
	p := channel.Part{Address: key(page), Kind: kind}
	message := e.object("message")
	who := key(customer(e, page))
	switch kind {
	case "message", "echo":
		if p.Key = key(message.text("mid")); p.Key == "" {
			ps.bad(key(page), "", raw)
			return
		}
		if message.flag("is_deleted") {
			p.Key = key("deleted:" + p.Key)
		}
		p.Sender = who
	case "postback":
		if p.Key = key(e.object("postback").text("mid")); p.Key == "" {
			p.Key = digestKey(kind, page, who, e.text("timestamp"), e.object("postback").first("payload", "title"))
		}
		p.Sender = who
	case "read", "delivery":
		o := e.object(kind)
		watermark := o.text("watermark")
		if watermark == "" {
			watermark = o.text("mid")
		}
		if watermark == "" || who == "" {
			ps.bad(key(page), "", raw)
			return
		}
		p.Key = key(kind + ":" + who + ":" + watermark)
	default:
		ps.skip(kind)
		return
	}
	ps.add(p, messengerItem{of, page, raw})
}

// messengerKind returns the type of an event from its members.
func messengerKind(e object, page string) string {
	for _, kind := range []string{"message", "postback", "read", "delivery"} {
		if e.object(kind) == nil {
			continue
		}
		if kind == "message" && ours(e, page) {
			return "echo"
		}
		return kind
	}
	for _, kind := range []string{
		"reaction", "message_edit", "optin", "referral", "account_linking", "policy_enforcement", "app_roles",
		"pass_thread_control", "take_thread_control", "request_thread_control",
	} {
		if e[kind] != nil {
			return kind
		}
	}
	return "unknown"
}

// ours reports whether the page sent a message: an echo, or any other sign of it. Our own text
// must never count as a customer's.
func ours(e object, page string) bool {
	return e.object("message").flag("is_echo") || page != "" && e.object("sender").text("id") == page
}

// customer returns the customer of an event. Sender and recipient are swapped in our own
// messages.
func customer(e object, page string) string {
	if ours(e, page) {
		return e.object("recipient").text("id")
	}
	return e.object("sender").text("id")
}

// Parse implements [channel.Adapter].
func (a *Messenger) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	return a.ParseEnriched(r, p, nil)
}

// ParseEnriched implements [channel.Enricher].
func (a *Messenger) ParseEnriched(r *channel.Request, p channel.Part, answers []channel.Response) (channel.Event, error) {
	it, err := item(r, p)
	if err != nil {
		return channel.Event{}, err
	}
	e, page := it.object("event"), it.text("page")
	kind := messengerKind(e, page)
	who := key(customer(e, page))
	if who == "" {
		return channel.Event{}, fmt.Errorf("%w: an event without a sender", channel.ErrUnreadable)
	}
	party := channel.Party{ID: who, Name: profileName(answers)}
	switch kind {
	case "message", "echo":
		return a.message(e, page, party)
	case "postback":
		o := e.object(kind)
		m := &channel.Message{
			ExternalID: p.Key, ThreadKey: who, StaleAfter: staleAfter, From: party, SentAt: e.time("timestamp"),
			Text: cmp.Or(strings.TrimSpace(o.text("title")), strings.TrimSpace(o.text("payload")), "[A button was pressed]"),
		}
		var n metadata
		n.add(MetaPayload, o.text("payload"))
		n.add(MetaReferral, referral(o.object("referral")))
		m.Metadata = n
		return channel.Event{Message: m}, nil
	case "read", "delivery":
		o := e.object(kind)
		receipt := &channel.Receipt{ThreadKey: who, Until: o.time("watermark"), State: channel.ReceiptRead, Recipient: who}
		if kind == "delivery" {
			receipt.State = channel.ReceiptDelivered
		}
		for _, raw := range o.list("mids") {
			if id := (object{"": raw}).text(""); id != "" {
				receipt.ExternalIDs = append(receipt.ExternalIDs, key(id))
			}
		}
		if id := o.text("mid"); id != "" {
			receipt.ExternalIDs = append(receipt.ExternalIDs, key(id))
		}
		if receipt.Until.IsZero() {
			receipt.ThreadKey = ""
		}
		if receipt.ThreadKey == "" && receipt.ExternalIDs == nil {
			return channel.Event{}, fmt.Errorf("%w: a receipt of nothing", channel.ErrUnreadable)
		}
		return channel.Event{Receipt: receipt}, nil
	}
	return channel.Event{}, fmt.Errorf("%w: the kind %q means nothing here", channel.ErrUnreadable, word(kind))
}

// ownMark prefixes our message id in the metadata that returns with the echo.
const ownMark = "kickstand:"

func (a *Messenger) message(e object, page string, who channel.Party) (channel.Event, error) {
	o := e.object("message")
	mid := key(o.text("mid"))
	outbound := ours(e, page)
	if ours, ok := strings.CutPrefix(o.text("metadata"), ownMark); ok && outbound {
		// The response to the call may have been lost.
		return channel.Event{Receipt: &channel.Receipt{ExternalIDs: []string{key(ours), mid}, State: channel.ReceiptSent}}, nil
	}
	if o.flag("is_deleted") {
		return channel.Event{Annotation: &channel.Annotation{ExternalID: mid, Kind: channel.Deleted, By: who, At: e.time("timestamp")}}, nil
	}
	m := &channel.Message{ExternalID: mid, ThreadKey: who.ID, StaleAfter: staleAfter, SentAt: e.time("timestamp"), Outbound: outbound}
	if outbound {
		m.To = []channel.Party{who}
	} else {
		m.From = who
	}
	text := []string{strings.ReplaceAll(o.text("text"), "\r\n", "\n")}
	var n metadata
	files := o.objects("attachments")
	for _, at := range files[:min(len(files), maxFiles)] {
		file, words := a.attachment(at)
		if file != nil {
			m.Attachments = append(m.Attachments, *file)
		}
		for line := range strings.SplitSeq(words, "\n") {
			if !strings.Contains(text[0], line) {
				text = append(text, line)
			}
		}
		n.add(MetaSticker, at.object("payload").text("sticker_id"))
	}
	m.Text = lines(text...)
	if m.Text == "" && len(m.Attachments) == 0 {
		m.Text = "[A message that the provider does not hand over]"
	}
	n.add(MetaSticker, o.text("sticker_id"))
	n.add(MetaPayload, o.object("quick_reply").text("payload"))
	n.add(MetaReplyTo, o.object("reply_to").text("mid"))
	n.add(MetaReferral, referral(o.object("referral")))
	if outbound {
		n.add(MetaApp, o.text("app_id"))
	}
	m.Metadata = n
	return channel.Event{Message: m}, nil
}

func referral(o object) string { return o.first("source_url", "referer_uri", "ref") }

// maxFiles bounds the attachments read from one message.
const maxFiles = 50

// attachment reads one attachment: a file, text, or both.
func (a *Messenger) attachment(o object) (file *channel.Attachment, words string) {
	payload := o.object("payload")
	title, link := cmp.Or(o.text("title"), payload.text("title")), cmp.Or(payload.text("url"), o.text("url"))
	kind := o.text("type")
	switch kind {
	case "image", "audio", "video", "file":
		if link == "" {
			return &channel.Attachment{Error: "the provider does not say where the file is"}, ""
		}
		return &channel.Attachment{URL: link}, ""
	case "location":
		at := payload.object("coordinates")
		return nil, lines(title, mapLink(at.text("lat"), at.text("long")))
	case "template":
		for _, e := range payload.objects("elements") {
			title = lines(title, e.text("title"), e.text("subtitle"))
		}
		return nil, cmp.Or(lines(title, payload.text("text"), link), "[A message made of parts that cannot be shown here]")
	}
	// A shared page, or a video or picture of the platform.
	if a.holds(link) {
		return &channel.Attachment{URL: link}, title
	}
	return nil, cmp.Or(lines(title, link), fmt.Sprintf("[A message of the kind “%s”, which cannot be shown here]", word(kind)))
}

// holds reports whether an address is a file at the provider.
func (a *Messenger) holds(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return false
	}
	for _, h := range a.graph.mediaHosts() {
		if host := strings.ToLower(u.Host); host == h || strings.HasPrefix(h, ".") && strings.HasSuffix(host, h) {
			return true
		}
	}
	return false
}

// profileName returns a user's name from the responses, or "".
func profileName(answers []channel.Response) string {
	if len(answers) == 0 || answers[0].Status != http.StatusOK {
		return ""
	}
	o := parse(answers[0].Body)
	name := strings.TrimSpace(o.text("first_name") + " " + o.text("last_name"))
	return strings.Join(strings.Fields(cmp.Or(name, o.first("name", "username"))), " ")
}

// EnrichCall implements [channel.Enricher]: it looks up the customer's name.
func (a *Messenger) EnrichCall(r *channel.Request, p channel.Part, answers []channel.Response, credentials channel.Credentials) *channel.APIRequest {
	it, err := item(r, p)
	if err != nil || len(answers) > 0 || credentials.Get(credToken) == "" {
		return nil
	}
	e, page := it.object("event"), it.text("page")
	switch messengerKind(e, page) {
	case "message", "postback":
	default:
		return nil
	}
	who := customer(e, page)
	if !isID(who) {
		return nil
	}
	fields := "first_name,last_name"
	if it.text("object") == photoObject {
		fields = "name,username"
	}
	call := a.graph.call(http.MethodGet, credentials, url.Values{"fields": {fields}}, who)
	call.Optional = true
	return &call
}

// MediaRequest implements [channel.MediaSource]. The URLs expire and need no credentials.
func (a *Messenger) MediaRequest(at channel.Attachment, _ channel.Credentials) channel.MediaRequest {
	return channel.MediaRequest{URL: at.URL, Hosts: a.graph.mediaHosts()}
}
