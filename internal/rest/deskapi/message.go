package deskapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// maxFiles bounds the bytes of all files of a message; maxMessage bounds its body, with the
// files in base64.
const (
	maxFiles   = 25 << 20
	maxMessage = maxFiles/3*4 + 2<<20
)

var messageRecord = &schema.Record{Name: "message", Doc: "A message of a ticket.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("message")},
	{Name: "ticket_id", Type: schema.ID()},
	{Name: "conversation_id", Type: schema.ID(), Access: schema.CreateOnly, Nullable: true, Doc: "The conversation of a reply; defaults to the one in which the customer wrote last. null for a note on the ticket."},
	{Name: "direction", Type: schema.Enum(desk.DirectionInbound, desk.DirectionOutbound)},
	{Name: "author", Type: schema.Object(
		schema.Member{Name: "type", Type: schema.Enum(desk.AuthorCustomer, desk.AuthorAgent, desk.AuthorSystem)},
		schema.Member{Name: "id", Type: schema.ID(), Nullable: true, Doc: "Id of the customer, the member, or the API key."},
		schema.Member{Name: "name", Type: schema.Text(), Nullable: true},
	)},
	{Name: "channel", Type: schema.Text(), Example: "email"},
	{Name: "kind", Type: schema.Enum(desk.KindReply, desk.KindNote, desk.KindForward), Access: schema.CreateRequired, Doc: "A reply is sent to the customer; a note never is. A forward is a mail between the organization and somebody to whom a member forwarded messages; it cannot be created here."},
	{Name: "text", Type: schema.String(0, 100_000), Access: schema.CreateRequired, Nullable: true, Example: "It is on its way.", Doc: "A reply by mail without html is Markdown: the mail has the text and its HTML, and ![name](attachment:map.png) shows the picture of that name among its attachments. HTML in it is shown as text. Other channels send it as it is."},
	{Name: "stripped_text", Type: schema.Text(), Nullable: true, Doc: "The text without quoted mail, if that differs."},
	{Name: "html", Type: schema.String(0, 500_000), Access: schema.CreateOnly, Nullable: true, Doc: "Sanitized. If text is empty, it is derived from the HTML. Of a reply by mail without it, the rendered text."},
	{Name: "attachments", Access: schema.CreateOnly, Type: schema.Array(schema.Object(
		schema.Member{Name: "id", Type: schema.ID()},
		schema.Member{Name: "name", Type: schema.String(1, 255), Access: schema.Required, Example: "receipt.pdf"},
		schema.Member{Name: "content_type", Type: schema.String(0, 255), Access: schema.Writable, Example: "application/pdf"},
		schema.Member{Name: "size", Type: schema.Integer(), Nullable: true, Doc: "Bytes; null until the file is stored."},
		schema.Member{Name: "url", Type: schema.Text(), Nullable: true, Doc: "URL of the file, for the same API keys; null until the file is stored."},
		schema.Member{Name: "state", Type: schema.Enum(fileStored, filePending, fileFailed), Doc: "pending: the provider has the file, which is still being fetched. failed: it could not be fetched."},
		schema.Member{Name: "content", Type: schema.Formatted("byte", maxMessage), Access: schema.Required, WriteOnly: true, Doc: "Base64. All files together may have 25 MiB."},
	), 50)},
	{Name: "external_id", Type: schema.Text(), Nullable: true, Doc: "The channel's id of the message: a Message-ID, a MessageSid."},
	{Name: "delivery", Nullable: true, Doc: "Delivery of an outbound message; null for messages that are not sent.", Type: schema.Object(
		schema.Member{Name: "state", Type: schema.Text(), Doc: "scheduled, held, queued, sent, delivered, read or failed. A scheduled reply leaves at send_at; a held one waits until its author can no longer undo it."},
		schema.Member{Name: "error", Type: schema.Text(), Nullable: true},
	)},
	{Name: "placed_by", Type: schema.Text(), Doc: "How the ticket was matched: new_ticket, thread_key, in_reply_to, references, ticket_tag, message_id, receipt or written.", Example: "written"},
	{Name: "authentication", Nullable: true, Doc: "Whether an inbound mail proves its sender; null for other messages.", Type: schema.Object(
		schema.Member{Name: "verdict", Type: schema.Enum(string(mailauth.Proven), string(mailauth.Unproven), string(mailauth.Failed)), Doc: "proven: DKIM or SPF vouches for the domain of the From address. failed: that domain disowns the mail. unproven: neither."},
		schema.Member{Name: "reason", Type: schema.Text(), Doc: "In plain words.", Example: "DKIM signature of client.example matches the From address"},
		schema.Member{Name: "domain", Type: schema.Text(), Nullable: true, Doc: "Domain of the From address."},
	)},
	{Name: "recipient_changed", Nullable: true, Doc: "The mail requests replies at an address that it does not prove. Replies still go to from, unless a reply names the new address in to.", Type: schema.Object(
		schema.Member{Name: "from", Type: schema.Text(), Nullable: true, Example: "ana@client.example"},
		schema.Member{Name: "to", Type: schema.Text(), Example: "ana@private.example"},
		schema.Member{Name: "reason", Type: schema.Text(), Doc: "In plain words."},
	)},
	{Name: "to", Type: schema.String(0, 254), Access: schema.CreateOnly, Nullable: true, Doc: "Recipient of a reply by mail. Set it to accept the address requested by recipient_changed of an earlier message, for all later replies."},
	{Name: "cc", Type: schema.Array(schema.String(1, 254), 20), Access: schema.CreateOnly, Doc: "Copies of a reply by mail. Set it to add addresses to those that get copies already; they get copies of all later replies. At most 20 altogether."},
	{Name: "bcc", Type: schema.Array(schema.String(1, 254), 20), Access: schema.CreateOnly, Doc: "Blind copies of this reply by mail. No header names them, and they get no copies of later replies."},
	{Name: "seen_message_id", Type: schema.ID(), Access: schema.CreateOnly, Nullable: true, WriteOnly: true, Doc: "For a reply: the newest message of the ticket that its author has seen. If a member or another API key has replied since, the reply is refused with crossed_reply."},
	{Name: "force", Type: schema.Bool(), Access: schema.CreateOnly, WriteOnly: true, Doc: "For a reply with seen_message_id: send it despite newer replies."},
	{Name: "send_at", Type: schema.Timestamp(), Access: schema.CreateOnly, Nullable: true, Doc: "When a reply leaves, at most a year ahead. Until then its delivery is scheduled, it has no event, and deleting it undoes it. If a member or another API key replies before, it is not sent and its delivery is failed, unless it has no seen_message_id or force is set."},
	{Name: "metadata", Type: schema.Map(schema.Text()), Doc: "Data of the channel besides the text, such as the payload of a button."},
	{Name: "annotations", Doc: "Later edits, reactions and receipts on the channel, in order.", Type: schema.Array(schema.Object(
		schema.Member{Name: "kind", Type: schema.Enum(string(channel.Reacted), string(channel.Unreacted), string(channel.Edited), string(channel.Deleted))},
		schema.Member{Name: "by", Type: schema.Text(), Nullable: true},
		schema.Member{Name: "text", Type: schema.Text(), Nullable: true, Doc: "The reaction, or the text after the edit."},
		schema.Member{Name: "at", Type: schema.Timestamp()},
	), 200)},
	{Name: "original_text", Type: schema.Text(), Nullable: true, Doc: "The text before the first edit."},
	{Name: "deleted", Type: schema.Bool(), Doc: "The author deleted it; its content is removed."},
	{Name: "redacted", Type: schema.Bool(), Doc: "The customer was deleted, and with it the content."},
	{Name: "sent_at", Type: schema.Timestamp(), Nullable: true, Doc: "By the sender's clock; for an outbound message, when the provider accepted it."},
	{Name: "created_at", Type: schema.Timestamp()},
}}

type message struct {
	ID             string             `json:"id"`
	Object         string             `json:"object"`
	TicketID       string             `json:"ticket_id"`
	ConversationID *string            `json:"conversation_id"`
	Direction      string             `json:"direction"`
	Author         author             `json:"author"`
	Channel        string             `json:"channel"`
	Kind           string             `json:"kind"`
	Text           *string            `json:"text"`
	StrippedText   *string            `json:"stripped_text"`
	HTML           *string            `json:"html"`
	Attachments    []attachment       `json:"attachments"`
	ExternalID     *string            `json:"external_id"`
	Delivery       *delivery          `json:"delivery"`
	PlacedBy       desk.ThreadingRule `json:"placed_by"`

	Authentication   *authentication   `json:"authentication"`
	RecipientChanged *recipientChanged `json:"recipient_changed"`
	To               *string           `json:"to"`
	Cc               []string          `json:"cc"`
	Bcc              []string          `json:"bcc"`

	Metadata     map[string]string `json:"metadata"`
	Annotations  []annotation      `json:"annotations"`
	OriginalText *string           `json:"original_text"`
	Deleted      bool              `json:"deleted"`
	Redacted     bool              `json:"redacted"`

	SendAt    rfc3339.Time `json:"send_at"`
	SentAt    rfc3339.Time `json:"sent_at"`
	CreatedAt rfc3339.Time `json:"created_at"`
	Ticket    *ticket      `json:"ticket,omitempty"` // expanded
}

type author struct {
	Type string  `json:"type"`
	ID   *string `json:"id"`
	Name *string `json:"name"`
}

type attachment struct {
	ID          string  `json:"id"`
	Name        string  `json:"name"`
	ContentType string  `json:"content_type"`
	Size        *int64  `json:"size"`
	URL         *string `json:"url"`
	State       string  `json:"state"`
}

// Attachment states.
const (
	fileStored  = "stored"
	filePending = "pending"
	fileFailed  = "failed"
)

// crossedReply is the field message of a problem with code crossed_reply.
type crossedReply struct {
	ID        string       `json:"id"`
	Author    author       `json:"author"`
	CreatedAt rfc3339.Time `json:"created_at"`
}

type annotation struct {
	Kind channel.AnnotationKind `json:"kind"`
	By   *string                `json:"by"`
	Text *string                `json:"text"`
	At   rfc3339.Time           `json:"at"`
}

type authentication struct {
	Verdict mailauth.Verdict `json:"verdict"`
	Reason  string           `json:"reason"`
	Domain  *string          `json:"domain"`
}

type recipientChanged struct {
	From   *string `json:"from"`
	To     string  `json:"to"`
	Reason string  `json:"reason"`
}

type delivery struct {
	State channel.ReceiptState `json:"state"`
	Error *string              `json:"error"`
}

type messageBody struct {
	Kind           string                       `json:"kind"`
	Text           string                       `json:"text"`
	HTML           optional.Value[string]       `json:"html"`
	ConversationID optional.Value[string]       `json:"conversation_id"`
	To             optional.Value[string]       `json:"to"`
	Cc             []string                     `json:"cc"`
	Bcc            []string                     `json:"bcc"`
	SeenMessageID  optional.Value[string]       `json:"seen_message_id"`
	Force          bool                         `json:"force"`
	SendAt         optional.Value[rfc3339.Time] `json:"send_at"`
	Attachments    []fileBody                   `json:"attachments"`
}

// fileBody is a file in a body.
type fileBody struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type"`
	Content     string `json:"content"` // base64
}

// decodeFiles returns files with their bytes, and records issues below attachments.
func decodeFiles(v *problem.Validation, files []fileBody) (list []channel.Attachment) {
	for i, f := range files {
		data, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			v.AddCode("invalid_format", "attachments."+strconv.Itoa(i)+".content", "must be base64")
		}
		list = append(list, channel.Attachment{Name: f.Name, ContentType: f.ContentType, Data: data})
	}
	return list
}

var conversationRecord = &schema.Record{Name: "conversation", Doc: "A thread with one customer on one channel inside a ticket.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("conversation")},
	{Name: "ticket_id", Type: schema.ID()},
	{Name: "channel", Type: schema.Text(), Example: "sms"},
	{Name: "channel_id", Type: schema.ID(), Nullable: true, Doc: "The organization's channel, if it is connected."},
	{Name: "customer_id", Type: schema.ID()},
	{Name: "thread_key", Type: schema.Text(), Nullable: true, Doc: "The channel's id of the thread."},
	{Name: "forwarded", Type: schema.Bool(), Doc: "It is with somebody to whom messages of the ticket were forwarded, not with the customer. A reply must name it in conversation_id."},
	{Name: "opted_out_at", Type: schema.Timestamp(), Nullable: true, Doc: "When the customer opted out of messages here."},
	{Name: "created_at", Type: schema.Timestamp()},
}}

type conversation struct {
	ID         string       `json:"id"`
	Object     string       `json:"object"`
	TicketID   string       `json:"ticket_id"`
	Channel    string       `json:"channel"`
	ChannelID  *string      `json:"channel_id"`
	CustomerID string       `json:"customer_id"`
	ThreadKey  *string      `json:"thread_key"`
	Forwarded  bool         `json:"forwarded"`
	OptedOutAt rfc3339.Time `json:"opted_out_at"`
	CreatedAt  rfc3339.Time `json:"created_at"`
}

func (a *API) messageRoutes() []rest.Route {
	withTicket := []rest.Expansion{{Name: "ticket", Needs: needs("tickets", apikey.Read), Record: ticketRecord}}
	return []rest.Route{{
		Method: "GET", Path: "/tickets/{id}/messages", ID: "listMessages", Tag: "Messages", Summary: "List a ticket's messages",
		Needs: needs("messages", apikey.Read),
		Query: []rest.Param{
			{Name: "kind", Kind: rest.EnumsParam, Values: []string{desk.KindReply, desk.KindNote, desk.KindForward}},
			{Name: "direction", Kind: rest.EnumsParam, Values: []string{desk.DirectionInbound, desk.DirectionOutbound}},
			{Name: "created_at", Kind: rest.TimeRange},
		},
		Sort: []string{desk.ByCreatedAt}, Order: desk.ByCreatedAt,
		Expand: withTicket, Export: true, Output: messageRecord, List: true, Handle: a.listMessages,
	}, {
		Method: "POST", Path: "/tickets/{id}/messages", ID: "createMessage", Tag: "Messages", Summary: "Reply, or write a note",
		Doc: "A reply is sent by the channel of its conversation. The answer does not wait for that; read the message again to see its delivery.\n\n" +
			"In a merged ticket it is written in the ticket that survived.",
		Needs: needs("messages", apikey.Create), Input: messageRecord, Output: messageRecord, MaxBody: maxMessage,
		Codes: []string{"invalid_transition", desk.CodeCrossedReply, quota.CodeExceeded, quota.CodeDailyExceeded}, Handle: a.createMessage,
	}, {
		Method: "GET", Path: "/tickets/{id}/messages/{message_id}", ID: "getMessage", Tag: "Messages", Summary: "Read a message",
		Needs: needs("messages", apikey.Read), Expand: withTicket, Output: messageRecord, Handle: a.getMessage,
	}, {
		Method: "GET", Path: "/tickets/{id}/pending-messages", ID: "listPendingMessages", Tag: "Messages", Summary: "List a ticket's pending replies",
		Doc:   "Replies that are scheduled or held, and those that could not be sent at their time. They become messages of the ticket, with the same ids, when they leave.",
		Needs: needs("messages", apikey.Read), Sort: []string{desk.ByCreatedAt}, Order: desk.ByCreatedAt, Output: messageRecord, List: true, Handle: a.listPending,
	}, {
		Method: "GET", Path: "/messages/{id}", ID: "getReply", Tag: "Messages", Summary: "Read a reply",
		Doc:   "An outbound message, pending or not, without the id of its ticket, which merges change.",
		Needs: needs("messages", apikey.Read), Expand: withTicket, Output: messageRecord, Handle: a.getReply,
	}, {
		Method: "DELETE", Path: "/messages/{id}", ID: "deleteMessage", Tag: "Messages", Summary: "Undo a pending reply",
		Doc:   "Deletes a reply whose delivery is scheduled, held, or failed at its time. Nothing is sent. A message that has left is refused with invalid_transition.",
		Needs: needs("messages", apikey.Create), Codes: []string{"invalid_transition"}, Handle: a.deletePending,
	}, {
		Method: "GET", Path: "/tickets/{id}/conversations", ID: "listConversations", Tag: "Messages", Summary: "List a ticket's conversations",
		Needs: needs("messages", apikey.Read), Sort: []string{desk.ByCreatedAt}, Order: desk.ByCreatedAt,
		Export: true, Output: conversationRecord, List: true, Handle: a.listConversations,
	}, {
		Method: "GET", Path: "/attachments/{id}", ID: "getAttachment", Tag: "Messages", Summary: "Get an attachment",
		Doc:   "Of a message, or of a macro. Content, name and type are set by the sender. Types that a browser would execute are returned as application/octet-stream.",
		Needs: needs("messages", apikey.Read), File: true, Handle: a.getAttachment,
	}}
}

// wireMessage returns a message in wire format.
func (a *API) wireMessage(m *desk.Message) *message {
	w := &message{
		ID: m.ID, Object: "message", TicketID: m.TicketID, ConversationID: orNull(m.ConversationID), Direction: m.Direction,
		Author:  author{m.Author.Type, orNull(m.Author.ID), orNull(m.Author.Name)},
		Channel: m.Channel, Kind: m.Kind, Text: orNull(m.Text), StrippedText: orNull(m.Stripped), HTML: orNull(m.HTML),
		Attachments: make([]attachment, len(m.Attachments)), ExternalID: orNull(m.ExternalID),
		Metadata: m.Details.Metadata, Annotations: make([]annotation, len(m.Details.Annotations)), OriginalText: orNull(m.Details.OriginalText),
		Deleted: m.Details.Deleted, Redacted: m.Details.Redacted,
		PlacedBy: m.PlacedBy, SendAt: rfc3339.Time(m.SendAt), SentAt: rfc3339.Time(m.SentAt), CreatedAt: rfc3339.Time(m.CreatedAt),
	}
	if m.Delivery.State != "" {
		w.Delivery = &delivery{m.Delivery.State, orNull(m.Delivery.Error)}
	}
	if p := m.Authentication(); p != nil {
		w.Authentication = &authentication{p.Verdict, p.Reason, orNull(p.Domain)}
	}
	if c := m.Details.RecipientChanged; c != nil {
		w.RecipientChanged = &recipientChanged{orNull(c.From), c.To, c.Reason}
	}
	w.Cc, w.Bcc = []string{}, []string{}
	if m.Direction == desk.DirectionOutbound {
		for _, to := range m.Details.To {
			w.To = orNull(to.Email)
		}
		for _, a := range m.Details.Cc {
			w.Cc = append(w.Cc, a.Email)
		}
		for _, a := range m.Details.Bcc {
			w.Bcc = append(w.Bcc, a.Email)
		}
	}
	if w.Metadata == nil {
		w.Metadata = map[string]string{}
	}
	for i, n := range m.Details.Annotations {
		w.Annotations[i] = annotation{n.Kind, orNull(n.By), orNull(n.Text), rfc3339.Time(n.At)}
	}
	files := a.BaseURL + Base + "/attachments/"
	for i, f := range m.Attachments {
		w.Attachments[i] = attachment{ID: f.ID, Name: f.Name, ContentType: f.ContentType, State: fileFailed}
		switch {
		case f.BlobKey != "":
			w.Attachments[i].Size, w.Attachments[i].URL, w.Attachments[i].State = &f.Size, new(files+f.ID), fileStored
		case f.Pending:
			w.Attachments[i].State = filePending
		}
	}
	if w.HTML != nil && len(m.Attachments) > 0 {
		// Inline images are among the files above.
		w.HTML = new(strings.ReplaceAll(m.HTML, `="/attachments/`, `="`+files))
	}
	return w
}

// wireMessages is [API.wireMessage] for messages of one ticket, with the ticket if the request
// expands it.
func (a *API) wireMessages(ctx context.Context, r *rest.Request, messages []desk.Message) ([]*message, error) {
	var of *ticket
	if r.Expanded("ticket") && len(messages) > 0 {
		t, err := a.Desk.Ticket(ctx, a.DB, r.Key.OrganizationID, messages[0].TicketID)
		if err != nil {
			return nil, err
		}
		if of, err = a.oneTicket(ctx, a.DB, &t); err != nil {
			return nil, err
		}
	}
	list := make([]*message, len(messages))
	for i := range messages {
		list[i] = a.wireMessage(&messages[i])
		list[i].Ticket = of
	}
	return list, nil
}

func (a *API) listMessages(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := desk.MessageQuery{
		Kind: r.Strings("kind"), Direction: r.Strings("direction"), CreatedAt: r.Range("created_at"), Sort: r.Sort(),
	}
	if r.Exporting() {
		return rest.Export(inChunks(func(fn func(*desk.Message) error) error {
			return a.Desk.EachMessage(ctx, r.Key.OrganizationID, r.Path("id"), q, fn)
		}, func(messages []desk.Message) ([]*message, error) { return a.wireMessages(ctx, r, messages) })), nil
	}
	q.Limit = r.Limit()
	var err error
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	messages, next, err := a.Desk.FindMessages(ctx, a.DB, r.Key.OrganizationID, r.Path("id"), q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	list, err := a.wireMessages(ctx, r, messages)
	if err != nil {
		return rest.Response{}, err
	}
	return paged(list, next), nil
}

// listPending lists the replies of a ticket that have not left.
func (a *API) listPending(ctx context.Context, r *rest.Request) (rest.Response, error) {
	t, err := a.Desk.Ticket(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	messages, err := a.Desk.PendingReplies(ctx, a.DB, r.Key.OrganizationID, t.ID)
	if err != nil {
		return rest.Response{}, err
	}
	list, err := a.wireMessages(ctx, r, messages)
	if err != nil {
		return rest.Response{}, err
	}
	return whole(r, list, func(m *message) string { return m.ID })
}

func (a *API) getReply(ctx context.Context, r *rest.Request) (rest.Response, error) {
	m, err := a.Desk.OutboundMessage(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	list, err := a.wireMessages(ctx, r, []desk.Message{m})
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(list[0]), nil
}

// deletePending deletes a reply that has not left.
func (a *API) deletePending(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		m, err := a.Desk.CancelReplyTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), r.Match(a.wireMessage(&m.Message))
	})
}

func (a *API) getMessage(ctx context.Context, r *rest.Request) (rest.Response, error) {
	m, err := a.Desk.Message(ctx, a.DB, r.Key.OrganizationID, r.Path("id"), r.Path("message_id"))
	if problem.Of(err) == problem.NotFound {
		reply, otherwise := a.Desk.OutboundMessage(ctx, a.DB, r.Key.OrganizationID, r.Path("message_id"))
		switch {
		case otherwise == nil && reply.TicketID == r.Path("id"):
			m, err = reply, nil
		case otherwise != nil:
			err = otherwise
		}
	}
	if err != nil {
		return rest.Response{}, err
	}
	list, err := a.wireMessages(ctx, r, []desk.Message{m})
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(list[0]), nil
}

// draft returns the draft of a body, with decoded files.
func (b *messageBody) draft() (desk.Draft, error) {
	d := desk.Draft{Text: b.Text, HTML: b.HTML.Value}
	var v problem.Validation
	if b.Kind == desk.KindForward {
		v.AddCode("invalid_value", "kind", "must be reply or note")
	}
	if b.Kind == desk.KindNote && b.ConversationID.Value != "" {
		v.AddCode("conflict", "conversation_id", "must not be given with a note")
	}
	if b.Kind == desk.KindNote && b.To.Value != "" {
		v.AddCode("conflict", "to", "must not be given with a note")
	}
	if b.Kind == desk.KindNote && len(b.Cc) > 0 {
		v.AddCode("conflict", "cc", "must not be given with a note")
	}
	if b.Kind == desk.KindNote && len(b.Bcc) > 0 {
		v.AddCode("conflict", "bcc", "must not be given with a note")
	}
	if b.Kind == desk.KindNote && b.SeenMessageID.Value != "" {
		v.AddCode("conflict", "seen_message_id", "must not be given with a note")
	}
	if b.Kind == desk.KindNote && !b.SendAt.Value.Std().IsZero() {
		v.AddCode("conflict", "send_at", "must not be given with a note")
	}
	if b.Kind == desk.KindNote && b.Force {
		v.AddCode("conflict", "force", "must not be given with a note")
	}
	total := 0
	d.Attachments = decodeFiles(&v, b.Attachments)
	for _, f := range d.Attachments {
		total += len(f.Data)
	}
	if err := v.Err(); err != nil {
		return desk.Draft{}, err
	}
	if total > maxFiles {
		return desk.Draft{}, problem.New(problem.TooLarge, "the files have more than %d MiB together", maxFiles>>20)
	}
	return d, nil
}

// seen returns the newest message that the author has seen; nil: no check.
func (b *messageBody) seen() *string {
	if b.Force || b.SeenMessageID.Value == "" {
		return nil
	}
	return &b.SeenMessageID.Value
}

// wireCrossing adds the field message, with the details of the newer reply, to the refusal of a
// crossing reply. Other errors are unchanged.
func wireCrossing(err error) error {
	c, ok := desk.AsCrossedReply(err)
	if !ok {
		return err
	}
	p := *problem.New(problem.Conflict, "%s", cmp.Or(c.Author.Name, "a colleague")+" has replied since the message in seen_message_id").Because(err)
	p.Code = desk.CodeCrossedReply
	p.Details = map[string]any{"message": crossedReply{c.ID, author{c.Author.Type, orNull(c.Author.ID), orNull(c.Author.Name)}, rfc3339.Time(c.CreatedAt)}}
	return &p
}

func (a *API) createMessage(ctx context.Context, r *rest.Request) (rest.Response, error) {
	// Before anything is stored.
	if _, err := a.Desk.Ticket(ctx, a.DB, r.Key.OrganizationID, r.Path("id")); err != nil {
		return rest.Response{}, err
	}
	var in messageBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	d, err := in.draft()
	if err != nil {
		return rest.Response{}, err
	}
	d.Note = in.Kind == desk.KindNote
	says, err := a.Desk.Compose(ctx, r.Key.OrganizationID, d)
	if err != nil {
		return rest.Response{}, err
	}
	by := desk.Actor{ID: r.Key.ID, Name: r.Key.Name}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		var m desk.Message
		var err error
		if in.Kind == desk.KindNote {
			m, err = a.Desk.AddNoteTx(ctx, tx, r.Key.OrganizationID, r.Path("id"), by, says)
		} else {
			m, err = a.Desk.ReplyTx(ctx, tx, r.Key.OrganizationID, r.Path("id"), desk.Reply{
				By: by, Content: says, ConversationID: in.ConversationID.Value, To: in.To.Value, Cc: in.Cc, Bcc: in.Bcc, Seen: in.seen(), SendAt: in.SendAt.Value.Std(),
			})
		}
		if err != nil {
			return rest.Response{}, wireCrossing(err)
		}
		return rest.Created("/tickets/"+m.TicketID+"/messages/"+m.ID, a.wireMessage(&m)), nil
	})
}

func (a *API) listConversations(ctx context.Context, r *rest.Request) (rest.Response, error) {
	conversations, err := a.Desk.Conversations(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	list := make([]conversation, len(conversations))
	for i, c := range conversations {
		list[i] = conversation{
			ID: c.ID, Object: "conversation", TicketID: c.TicketID, Channel: c.Channel, ChannelID: orNull(c.ConnectionID),
			CustomerID: c.CustomerID, ThreadKey: orNull(c.ThreadKey), Forwarded: c.Forwarded, OptedOutAt: rfc3339.Time(c.OptedOutAt), CreatedAt: rfc3339.Time(c.CreatedAt),
		}
	}
	return whole(r, list, func(c conversation) string { return c.ID })
}

func (a *API) getAttachment(ctx context.Context, r *rest.Request) (rest.Response, error) {
	f, content, err := a.Desk.OpenAttachment(ctx, r.Key.OrganizationID, r.Path("id"))
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.NotFound && p.RetryAfter == 0 {
		if file, opened, otherwise := a.Desk.OpenMacroFile(ctx, r.Key.OrganizationID, noMember, r.Path("id")); problem.Of(otherwise) != problem.NotFound {
			f, content, err = file, opened, otherwise
		}
	}
	if err != nil {
		return rest.Response{}, err
	}
	return rest.File(f.Name, f.SafeType(), f.Size, content), nil
}
