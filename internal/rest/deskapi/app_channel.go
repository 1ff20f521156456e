package deskapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

const appIDDoc = "1 to 100 visible ASCII characters without a slash, the first a letter, a digit or _."

// userMembers describe a user of an app.
var userMembers = []schema.Member{
	{Name: "name", Type: schema.String(0, 255), Access: schema.Writable, Example: "Ana Client"},
	{Name: "email", Type: schema.String(0, 254), Access: schema.Writable, Doc: "Only a verified address: it makes the user the customer who has it.", Example: "ana@client.example"},
	{Name: "phone", Type: schema.String(0, 32), Access: schema.Writable, Doc: "With country code; verified, likewise.", Example: "+14155550123"},
}

var appMessageInput = &schema.Record{Name: "channel.message_request", Members: []schema.Member{
	{Name: "external_id", Type: schema.String(1, 100), Access: schema.Required, Doc: "The app's id of the message, unique among the user's. A repeated id changes nothing. " + appIDDoc, Example: "m-1"},
	{Name: "conversation", Type: schema.String(1, 100), Access: schema.Required, Doc: "The app's id of the conversation, unique among the user's. A new one starts a ticket. " + appIDDoc, Example: "order-1001"},
	{Name: "user", Access: schema.Required, Type: schema.Object(append([]schema.Member{
		{Name: "id", Type: schema.String(1, 100), Access: schema.Required, Doc: "The app's id of the user. " + appIDDoc, Example: "u-7"},
	}, userMembers...)...)},
	{Name: "subject", Type: schema.String(0, 255), Access: schema.Writable, Doc: "Of a new ticket; defaults to the first line of the text.", Example: "My order"},
	{Name: "text", Type: schema.String(0, api.MaxText), Access: schema.Writable, Doc: "Required unless there are files.", Example: "Where is it?"},
	{Name: "files", Access: schema.Writable, Type: schema.Array(schema.Object(
		schema.Member{Name: "name", Type: schema.String(1, 255), Access: schema.Required, Example: "photo.jpg"},
		schema.Member{Name: "content_type", Type: schema.String(0, 255), Access: schema.Writable, Example: "image/jpeg"},
		schema.Member{Name: "content", Type: schema.Formatted("byte", maxMessage), Access: schema.Writable, Doc: "Base64. All files together may have 25 MiB."},
		schema.Member{Name: "url", Type: schema.String(0, 2048), Access: schema.Writable, Doc: "In place of content: a public https URL, fetched after the message, with at most 25 MiB."},
	), api.MaxFiles)},
	{Name: "metadata", Type: schema.Map(schema.String(0, 500)), Access: schema.Writable, Doc: "Shown to agents beside the message."},
	{Name: "sent_at", Type: schema.Timestamp(), Access: schema.Writable, Doc: "By the user's clock."},
}}

var appMessageRecord = &schema.Record{Name: "channel.message", Doc: "A message of an app's user, as stored.", Members: []schema.Member{
	{Name: "id", Type: schema.ID(), Doc: "Id of the message in the ticket."},
	{Name: "object", Type: schema.Enum("channel.message")},
	{Name: "external_id", Type: schema.Text(), Doc: "The app's id.", Example: "m-1"},
	{Name: "conversation", Type: schema.Text(), Example: "order-1001"},
	{Name: "user_id", Type: schema.Text(), Example: "u-7"},
	{Name: "ticket_id", Type: schema.ID()},
	{Name: "conversation_id", Type: schema.ID()},
	{Name: "duplicate", Type: schema.Bool(), Doc: "The message was stored by an earlier request with the same id."},
}}

type appMessage struct {
	ID             string `json:"id"`
	Object         string `json:"object"`
	ExternalID     string `json:"external_id"`
	Conversation   string `json:"conversation"`
	UserID         string `json:"user_id"`
	TicketID       string `json:"ticket_id"`
	ConversationID string `json:"conversation_id"`
	Duplicate      bool   `json:"duplicate"`
}

var appReceiptInput = &schema.Record{Name: "channel.receipt_request", Members: []schema.Member{
	{Name: "message_id", Type: schema.ID(), Access: schema.Writable, Doc: "The reply, by the id in message.created of the app's webhook."},
	{Name: "user_id", Type: schema.String(1, 100), Access: schema.Writable, Doc: "With conversation, in place of message_id: all replies so far.", Example: "u-7"},
	{Name: "conversation", Type: schema.String(1, 100), Access: schema.Writable, Example: "order-1001"},
	{Name: "state", Type: schema.Enum(string(channel.ReceiptDelivered), string(channel.ReceiptRead), string(channel.ReceiptFailed)), Access: schema.Required},
	{Name: "error", Type: schema.String(0, 500), Access: schema.Writable, Doc: "Why it failed, for agents."},
}}

var appReceiptRecord = &schema.Record{Name: "channel.receipt", Doc: "The effect of a receipt. A state only moves forward: sent, delivered, read.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("channel.receipt")},
	{Name: "applied", Type: schema.Bool(), Doc: "Whether a reply was found."},
	{Name: "ticket_id", Type: schema.ID(), Nullable: true},
	{Name: "reason", Type: schema.Text(), Nullable: true, Doc: "Why it has no effect."},
}}

type appReceipt struct {
	Object   string  `json:"object"`
	Applied  bool    `json:"applied"`
	TicketID *string `json:"ticket_id"`
	Reason   *string `json:"reason"`
}

var appTypingInput = &schema.Record{Name: "channel.typing_request", Members: []schema.Member{
	{Name: "user_id", Type: schema.String(1, 100), Access: schema.Required, Example: "u-7"},
	{Name: "conversation", Type: schema.String(1, 100), Access: schema.Required, Example: "order-1001"},
}}

type appTyping struct {
	User         string `json:"user_id"`
	Conversation string `json:"conversation"`
}

// Check implements [problem.Checker].
func (t *appTyping) Check(v *problem.Validation) {
	api.CheckID(v, "user_id", t.User)
	api.CheckID(v, "conversation", t.Conversation)
}

var appIdentityInput = &schema.Record{Name: "channel.identity_request", Members: append([]schema.Member{
	{Name: "user_id", Type: schema.String(1, 100), Access: schema.Required, Doc: "The app's id of the user. " + appIDDoc, Example: "u-7"},
	{Name: "metadata", Type: schema.Metadata(), Access: schema.Writable, Doc: "Attributes of the customer; null removes a key, absent keys stay."},
}, userMembers...)}

var appIdentityRecord = &schema.Record{Name: "channel.identity", Doc: "A user of an app, with the customer that it is.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("channel.identity")},
	{Name: "user_id", Type: schema.Text(), Example: "u-7"},
	{Name: "customer_id", Type: schema.ID()},
	{Name: "name", Type: schema.Text(), Nullable: true},
	{Name: "emails", Type: schema.Array(schema.Text(), 20)},
	{Name: "phones", Type: schema.Array(schema.Text(), 20)},
	{Name: "metadata", Type: schema.Map(schema.Text())},
}}

type appIdentity struct {
	Object     string            `json:"object"`
	UserID     string            `json:"user_id"`
	CustomerID string            `json:"customer_id"`
	Name       *string           `json:"name"`
	Emails     []string          `json:"emails"`
	Phones     []string          `json:"phones"`
	Metadata   map[string]string `json:"metadata"`
}

func wireOfAppIdentity(user string, c *desk.Customer) appIdentity {
	w := appIdentity{
		Object: "channel.identity", UserID: user, CustomerID: c.ID, Name: orNull(c.Name),
		Emails: append([]string{}, c.Emails...), Phones: append([]string{}, c.Phones...), Metadata: c.Metadata,
	}
	if w.Metadata == nil {
		w.Metadata = map[string]string{}
	}
	return w
}

type appIdentityBody struct {
	User     string              `json:"user_id"`
	Name     string              `json:"name"`
	Email    string              `json:"email"`
	Phone    string              `json:"phone"`
	Metadata desk.MetadataUpdate `json:"metadata"`
}

func (a *API) appChannelRoutes() []rest.Route {
	return []rest.Route{{
		Method: "POST", Path: "/channels/{id}/messages", ID: "createChannelMessage", Tag: "Apps", Summary: "Send a user's message",
		Doc: "Starts or continues a conversation of a user of an app, on a channel of the kind api. The message is stored before the answer, and once: " +
			"a repeated id answers with the stored message. A message in a conversation whose ticket is resolved or closed reopens it.",
		Needs: needs("messages", apikey.Create), Input: appMessageInput, Output: appMessageRecord, MaxBody: maxMessage,
		Codes: []string{"invalid_transition", "body_too_large"}, Handle: a.createAppMessage,
	}, {
		Method: "POST", Path: "/channels/{id}/receipts", ID: "reportChannelReceipt", Tag: "Apps", Summary: "Report the delivery of a reply",
		Doc:   "Sets the delivery state that agents see beside a reply. A failure also adds a note.",
		Needs: needs("messages", apikey.Create), Input: appReceiptInput, Output: appReceiptRecord, Status: 200,
		Codes: []string{"invalid_transition"}, Handle: a.createAppReceipt,
	}, {
		Method: "POST", Path: "/channels/{id}/typing", ID: "reportChannelTyping", Tag: "Apps", Summary: "Report that a user types",
		Doc:   "Shown to agents who have the ticket open, for ten seconds. Nothing is stored. Send it at most every three seconds.",
		Needs: needs("messages", apikey.Create), Input: appTypingInput,
		Codes: []string{"invalid_transition", "not_found"}, Claim: true, Handle: a.reportAppTyping,
	}, {
		Method: "POST", Path: "/channels/{id}/identities", ID: "identifyChannelUser", Tag: "Apps", Summary: "Identify a user",
		Doc: "Creates or changes the customer of an app's user. Absent and empty fields stay as they are. An unknown user with the address or number of a customer becomes that customer; " +
			"an address or number that another customer has stays there.",
		Needs: needs("customers", apikey.Update), Input: appIdentityInput, Output: appIdentityRecord, Status: 200,
		Codes: []string{"invalid_transition"}, Handle: a.identifyAppUser,
	}, {
		Method: "GET", Path: "/channels/{id}/identities/{user_id}", ID: "getChannelIdentity", Tag: "Apps", Summary: "Get a user's customer",
		Needs: needs("customers", apikey.Read), Output: appIdentityRecord, Handle: a.getAppIdentity,
	}}
}

// appChannel returns the channel of the path, which is of the kind api and enabled.
func (a *API) appChannel(ctx context.Context, q db.Querier, r *rest.Request) (connection.Connection, channel.Source, error) {
	c, err := a.Connections.FindOf(ctx, q, r.Key.OrganizationID, r.Path("id"))
	switch {
	case err != nil:
		return c, channel.Source{}, err
	case c.Channel != api.Name:
		return c, channel.Source{}, problem.New(problem.Precondition, "the channel is of the kind %s; only channels of the kind api have users of an app", c.Channel)
	case !c.Enabled:
		return c, channel.Source{}, problem.New(problem.Precondition, "the channel is disabled")
	}
	return c, channel.Source{OrganizationID: c.OrganizationID, ConnectionID: c.ID, Channel: api.Name, TicketChannel: api.Name}, nil
}

func (a *API) createAppMessage(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if _, _, err := a.appChannel(ctx, a.DB, r); err != nil { // before anything is stored
		return rest.Response{}, err
	}
	var in api.Message
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	m, err := in.Channel()
	if err != nil {
		return rest.Response{}, err
	}
	files, err := a.Desk.StoreFiles(ctx, m)
	if err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, source, err := a.appChannel(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		done, err := a.Inbound.AcceptTx(ctx, tx, source, channel.Event{Message: new(*m)}, files)
		if err != nil {
			return rest.Response{}, err
		}
		if a.Live != nil {
			tx.AfterCommit(func() {
				a.Live.StopTyping(c.OrganizationID, done.TicketID)
				a.Live.Publish(c.OrganizationID, "visitor:"+c.ID+"/"+in.User.ID)
			})
		}
		return rest.Created("/tickets/"+done.TicketID+"/messages/"+done.MessageID, appMessage{
			done.MessageID, "channel.message", in.ID, in.Conversation, in.User.ID, done.TicketID, done.ConversationID, done.Outcome == desk.Duplicate,
		}), nil
	})
}

func (a *API) createAppReceipt(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		_, source, err := a.appChannel(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		var in api.Receipt
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		receipt, err := in.Channel()
		if err != nil {
			return rest.Response{}, err
		}
		done, err := a.Inbound.AcceptTx(ctx, tx, source, channel.Event{Receipt: receipt}, nil)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(appReceipt{"channel.receipt", done.Outcome == desk.ReceiptApplied, orNull(done.TicketID), orNull(done.Reason)}), nil
	})
}

func (a *API) reportAppTyping(ctx context.Context, r *rest.Request) (rest.Response, error) {
	c, _, err := a.appChannel(ctx, a.DB, r)
	if err != nil {
		return rest.Response{}, err
	}
	var in appTyping
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	if err := problem.Check(&in); err != nil {
		return rest.Response{}, err
	}
	t, err := a.Desk.AppThread(ctx, a.DB, c.ID, api.ThreadKey(in.User, in.Conversation))
	if err != nil {
		return rest.Response{}, err
	}
	if a.Live != nil {
		a.Live.ReportTyping(c.OrganizationID, t.TicketID)
	}
	return rest.NoContent(), nil
}

func (a *API) identifyAppUser(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		_, source, err := a.appChannel(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		var in appIdentityBody
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		var v problem.Validation
		api.CheckID(&v, "user_id", in.User)
		if err := v.Err(); err != nil {
			return rest.Response{}, err
		}
		c, _, err := a.Desk.IdentifyTx(ctx, tx, source, channel.Party{ID: in.User, Name: in.Name, Email: in.Email, Phone: in.Phone}, in.Metadata)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireOfAppIdentity(in.User, &c)), nil
	})
}

func (a *API) getAppIdentity(ctx context.Context, r *rest.Request) (rest.Response, error) {
	conn, _, err := a.appChannel(ctx, a.DB, r)
	if err != nil {
		return rest.Response{}, err
	}
	c, err := a.Desk.AppCustomer(ctx, a.DB, r.Key.OrganizationID, conn.ID, r.Path("user_id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireOfAppIdentity(r.Path("user_id"), &c)), nil
}
