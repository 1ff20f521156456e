package deskapi

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var channelRecord = &schema.Record{Name: "channel", Doc: "A channel connection: an address at which customers reach the organization.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("channel")},
	{Name: "channel", Type: schema.String(1, 64), Access: schema.CreateRequired, Example: "sms"},
	{Name: "address", Type: schema.String(1, 320), Access: schema.CreateRequired, Doc: "Unique among the organization's channels.", Example: "+15550001111"},
	{Name: "name", Type: schema.String(0, 255), Access: schema.Writable, Nullable: true, Doc: "Defaults to the address."},
	{Name: "settings", Type: schema.Map(schema.String(0, 4096)), Access: schema.Writable, Doc: "Replaced as a whole."},
	{Name: "enabled", Type: schema.Bool(), Access: schema.Writable, Doc: "Defaults to true. While false, requests for the address are refused."},
	{Name: "secrets", Type: schema.Array(schema.String(8, 1024), 10), Access: schema.Writable, WriteOnly: true, Doc: "The provider's signing secrets, newest first. Replaced secrets stay valid for 24 hours. Without any, one is generated. Never returned."},
	{Name: "credentials", Type: schema.Map(schema.String(0, 4096)), Access: schema.Writable, WriteOnly: true, Doc: "Credentials for the provider's API. Replaced as a whole, never returned."},
	{Name: "credential_names", Type: schema.Array(schema.Text(), 50), Doc: "The names of the stored credentials."},
	{Name: "webhook_url", Type: schema.Formatted("uri", 2048), Doc: "The URL where the provider posts events. Until the address is proven, it contains the channel's id; that URL stays valid."},
	{Name: "proof", Type: schema.Nested(&schema.Record{Name: "channel.proof_summary", Members: proofMembers}), Doc: "Whether the address is proven to belong to the organization."},
	{Name: "notice", Nullable: true, Doc: "A problem reported by the provider; enabling the channel clears it.", Type: schema.Object(
		schema.Member{Name: "kind", Type: schema.Enum(string(channel.Disconnected), string(channel.Noticed)), Doc: "disconnected: the provider ended the connection, and the channel is disabled."},
		schema.Member{Name: "text", Type: schema.Text()},
		schema.Member{Name: "at", Type: schema.Timestamp()},
	)},
	{Name: "generated_secret", Type: schema.Text(), Nullable: true, Doc: "A generated secret, only in the answer to the request that generated it; null in all others."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
}}

type wireChannel struct {
	ID              string            `json:"id"`
	Object          string            `json:"object"`
	Channel         string            `json:"channel"`
	Address         string            `json:"address"`
	Name            string            `json:"name"`
	Settings        map[string]string `json:"settings"`
	Enabled         bool              `json:"enabled"`
	CredentialNames []string          `json:"credential_names"`
	WebhookURL      string            `json:"webhook_url"`
	Proof           wireProof         `json:"proof"`
	Notice          *notice           `json:"notice"`
	GeneratedSecret *string           `json:"generated_secret"`
	CreatedAt       rfc3339.Time      `json:"created_at"`
	UpdatedAt       rfc3339.Time      `json:"updated_at"`
}

type notice struct {
	Kind channel.ConnectionEventKind `json:"kind"`
	Text string                      `json:"text"`
	At   rfc3339.Time                `json:"at"`
}

func (a *API) wireOfChannel(c *connection.Connection) wireChannel {
	w := wireChannel{
		ID: c.ID, Object: "channel", Channel: c.Channel, Address: c.Address, Name: c.Name, Settings: c.Settings, Enabled: c.Enabled,
		CredentialNames: slices.Sorted(maps.Keys(c.CredentialValues())), WebhookURL: a.BaseURL + a.Connections.Endpoint(c),
		Proof:     wireOfProof(a.Connections.ProofStatus(c)),
		CreatedAt: rfc3339.Time(c.CreatedAt), UpdatedAt: rfc3339.Time(c.UpdatedAt),
	}
	if n := c.Notice; n != nil {
		w.Notice = &notice{n.Kind, n.Text, rfc3339.Time(n.At)}
	}
	if w.Settings == nil {
		w.Settings = map[string]string{}
	}
	if w.CredentialNames == nil {
		w.CredentialNames = []string{}
	}
	return w
}

// asShown returns the record in the form of the request's ETag: the answer that showed a
// generated secret has a different ETag from later ones.
func (a *API) asShown(r *rest.Request, tx *db.Tx, c *connection.Connection) wireChannel {
	w := a.wireOfChannel(c)
	if r.Match(w) == nil {
		return w
	}
	for _, secret := range c.Secrets(tx.Now) {
		with := w
		with.GeneratedSecret = &secret
		if r.Match(with) == nil {
			return with
		}
	}
	return w
}

type channelBody struct {
	Channel     optional.Value[string]            `json:"channel"`
	Address     optional.Value[string]            `json:"address"`
	Name        optional.Value[string]            `json:"name"`
	Settings    optional.Value[map[string]string] `json:"settings"`
	Enabled     optional.Value[bool]              `json:"enabled"`
	Secrets     optional.Value[[]string]          `json:"secrets"`
	Credentials optional.Value[map[string]string] `json:"credentials"`
}

// maxOverlap bounds the validity of a replaced secret.
const maxOverlap = 30 * 24 * time.Hour

var rotateInput = &schema.Record{Name: "channel.rotate_request", Members: []schema.Member{
	{Name: "secret", Type: schema.String(8, 1024), Access: schema.Writable, WriteOnly: true, Doc: "The new secret; generated if absent."},
	{Name: "overlap_seconds", Type: schema.Int(0, int64(maxOverlap/time.Second)), Access: schema.Writable, Doc: "How long replaced secrets stay valid; defaults to 24 hours."},
}}

type rotateBody struct {
	Secret  optional.Value[string] `json:"secret"`
	Overlap optional.Value[int64]  `json:"overlap_seconds"`
}

func (a *API) channelRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/channels", ID: "listChannels", Tag: "Channels", Summary: "List channels",
		Needs: needs("channels", apikey.Read), Sort: []string{"created_at"}, Export: true,
		Output: channelRecord, List: true, Handle: a.listChannels,
	}, {
		Method: "POST", Path: "/channels", ID: "createChannel", Tag: "Channels", Summary: "Connect a channel",
		Doc:   "Only this answer contains a generated secret.",
		Needs: needs("channels", apikey.Create), Input: channelRecord, Output: channelRecord,
		Codes: []string{"already_exists"}, Handle: a.createChannel,
	}, {
		Method: "GET", Path: "/channels/{id}", ID: "getChannel", Tag: "Channels", Summary: "Get a channel",
		Needs: needs("channels", apikey.Read), Output: channelRecord, Handle: a.getChannel,
	}, {
		Method: "GET", Path: "/channels/{id}/health", ID: "getChannelHealth", Tag: "Channels", Summary: "Get a channel's health",
		Doc:   "When the channel last received and sent, its last error, and when a replaced secret ends.",
		Needs: needs("channels", apikey.Read), Output: healthRecord, Handle: a.getChannelHealth,
	}, {
		Method: "PUT", Path: "/channels/{id}", ID: "updateChannel", Tag: "Channels", Summary: "Change a channel",
		Needs: needs("channels", apikey.Update), Input: channelRecord, Output: channelRecord, Handle: a.updateChannel,
	}, {
		Method: "DELETE", Path: "/channels/{id}", ID: "deleteChannel", Tag: "Channels", Summary: "Disconnect a channel",
		Doc:   "Its address is free again. Its tickets stay, but cannot be answered by this channel.",
		Needs: needs("channels", apikey.Delete), Handle: a.deleteChannel,
	}, {
		Method: "POST", Path: "/channels/{id}/rotate", ID: "rotateChannelSecret", Tag: "Channels", Summary: "Replace a channel's secret",
		Doc:   "Replaced secrets stay valid for a while, so that the provider can be switched without a gap. Only this answer contains a generated secret.",
		Needs: needs("channels", apikey.Update), Input: rotateInput, Output: channelRecord, Status: 200, Handle: a.rotateChannel,
	}, {
		Method: "GET", Path: "/channels/{id}/proof", ID: "getChannelProof", Tag: "Channels", Summary: "Get a channel's proof",
		Needs: needs("channels", apikey.Read), Output: proofRecord, Handle: a.getProof,
	}, {
		Method: "POST", Path: "/channels/{id}/proof", ID: "proveChannel", Tag: "Channels", Summary: "Prove a channel's address",
		Doc: "With way, it sends a challenge (mail, text), chooses what to publish (topic), or checks at once (dns, provider). With code, it answers " +
			"a challenge that was sent: a challenge takes five wrong codes.",
		Needs: needs("channels", apikey.Update), Input: proveInput, Output: proofRecord, Status: 200,
		Codes: []string{"invalid_transition", "unavailable"}, Claim: true, Handle: a.proveChannel,
	}}
}

func (a *API) listChannels(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := a.Connections.List(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	return whole(r, wired(list, a.wireOfChannel), func(c wireChannel) string { return c.ID })
}

func (a *API) createChannel(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in channelBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, secrets, err := a.Connections.ConnectTx(ctx, tx, connection.New{
			OrganizationID: r.Key.OrganizationID, Channel: in.Channel.Value, Address: in.Address.Value, Name: in.Name.Value,
			Secrets: in.Secrets.Value, Credentials: in.Credentials.Value, Settings: in.Settings.Value,
		})
		if err == nil && !in.Enabled.Or(true) {
			c, err = a.Connections.UpdateTx(ctx, tx, r.Key.OrganizationID, c.ID, connection.Change{Enabled: new(false)})
		}
		if err != nil {
			return rest.Response{}, err
		}
		w := a.wireOfChannel(&c)
		if len(in.Secrets.Value) == 0 {
			w.GeneratedSecret = &secrets[0]
		}
		return rest.Created("/channels/"+c.ID, w), nil
	})
}

func (a *API) getChannel(ctx context.Context, r *rest.Request) (rest.Response, error) {
	c, err := a.Connections.FindOf(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(a.wireOfChannel(&c)), nil
}

var healthRecord = &schema.Record{Name: "channel.health", Doc: "Whether a channel works, by what it did. Times are exact to some seconds.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("channel.health")},
	{Name: "channel_id", Type: schema.ID()},
	{Name: "last_received_at", Type: schema.Timestamp(), Nullable: true, Doc: "Within the retention of inbound events."},
	{Name: "last_sent_at", Type: schema.Timestamp(), Nullable: true},
	{Name: "last_error", Type: schema.Text(), Nullable: true, Doc: "Of a reply that failed, or of a request that could not be processed."},
	{Name: "last_error_at", Type: schema.Timestamp(), Nullable: true},
	{Name: "failing", Type: schema.Bool(), Doc: "The last error is newer than the last success."},
	{Name: "secret_ends_at", Type: schema.Timestamp(), Nullable: true, Doc: "When the next replaced secret ends. Until then the provider must use the new one."},
	{Name: "consent_ends_at", Type: schema.Timestamp(), Nullable: true, Doc: "When the consent for a mailbox at Google or Microsoft ends, if the provider says so. Sign in there again before, on the page of the channel."},
}}

type channelHealth struct {
	Object     string       `json:"object"`
	ChannelID  string       `json:"channel_id"`
	ReceivedAt rfc3339.Time `json:"last_received_at"`
	SentAt     rfc3339.Time `json:"last_sent_at"`
	Error      *string      `json:"last_error"`
	ErrorAt    rfc3339.Time `json:"last_error_at"`
	Failing    bool         `json:"failing"`
	SecretEnds rfc3339.Time `json:"secret_ends_at"`
	// ConsentEnds is unknown for most providers.
	ConsentEnds rfc3339.Time `json:"consent_ends_at"`
}

func (a *API) getChannelHealth(ctx context.Context, r *rest.Request) (rest.Response, error) {
	c, err := a.Connections.FindOf(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	h, err := a.Inbound.Health(ctx, &c)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(channelHealth{
		"channel.health", c.ID, rfc3339.Time(h.ReceivedAt), rfc3339.Time(h.SentAt), orNull(h.Error), rfc3339.Time(h.ErrorAt), h.Failing(), rfc3339.Time(h.SecretEndsAt), rfc3339.Time(h.ConsentEndsAt),
	}), nil
}

func (a *API) updateChannel(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, err := a.Connections.FindTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		var in channelBody
		if err := r.Update(a.asShown(r, tx, &c), &in); err != nil {
			return rest.Response{}, err
		}
		change := connection.Change{
			Name: in.Name.Pointer(), Enabled: in.Enabled.Pointer(), Secrets: in.Secrets.Value,
			Credentials: in.Credentials.Value, Settings: in.Settings.Value,
		}
		c, err = a.Connections.UpdateTx(ctx, tx, r.Key.OrganizationID, c.ID, change)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(a.wireOfChannel(&c)), nil
	})
}

func (a *API) deleteChannel(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, err := a.Connections.FindTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(a.asShown(r, tx, &c)); err != nil {
			return rest.Response{}, err
		}
		if err := a.Connections.DeleteTx(ctx, tx, r.Key.OrganizationID, c.ID); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), nil
	})
}

func (a *API) rotateChannel(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if _, err := a.Connections.FindTx(ctx, tx, r.Key.OrganizationID, r.Path("id")); err != nil {
			return rest.Response{}, err
		}
		var in rotateBody
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		overlap := connection.Overlap
		if in.Overlap.Set {
			overlap = time.Duration(in.Overlap.Value) * time.Second
		}
		secret, err := a.Connections.RotateTx(ctx, tx, r.Key.OrganizationID, r.Path("id"), in.Secret.Value, overlap)
		if err != nil {
			return rest.Response{}, err
		}
		c, err := a.Connections.FindTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		w := a.wireOfChannel(&c)
		if in.Secret.Value == "" {
			w.GeneratedSecret = &secret
		}
		return rest.OK(w), nil
	})
}
