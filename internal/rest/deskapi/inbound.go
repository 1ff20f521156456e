package deskapi

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var inboundStates = words([]inbound.State{inbound.Accepted, inbound.Processed, inbound.Unrouted, inbound.Rejected, inbound.Dead})

var inboundRecord = &schema.Record{Name: "inbound_event", Doc: "A verified request of a channel's provider and its result. Stored for 30 days, unless the operator has set another retention.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("inbound_event")},
	{Name: "state", Type: schema.Enum(inboundStates...), Doc: "accepted: waits for processing. rejected: could not be parsed. dead: processing failed for the last time. Rejected and dead events can be replayed."},
	{Name: "channel", Type: schema.Text(), Example: "sms"},
	{Name: "channel_id", Type: schema.Text(), Nullable: true, Doc: "The channel connection; null if the address is not connected."},
	{Name: "kind", Type: schema.Text(), Doc: "The kind of event, in the channel's terms.", Example: "message"},
	{Name: "key", Type: schema.Text(), Doc: "The provider's id of the event: a repeated id has no effect.", Example: "SM2b7f0c9e4d1a48c6b3a5"},
	{Name: "sender", Type: schema.Text(), Nullable: true},
	{Name: "address", Type: schema.Text(), Nullable: true, Doc: "The recipient's address."},
	{Name: "verified_by", Type: schema.Text(), Doc: "The owner and number of the secret that verified its signature: 1 is the newest.", Example: "deployment, secret 1"},
	{Name: "result", Type: schema.JSON(), Doc: "The result of processing; null before."},
	{Name: "error", Type: schema.Text(), Nullable: true, Doc: "Why it is rejected or dead."},
	{Name: "size", Type: schema.Integer(), Doc: "Size of the body in bytes."},
	{Name: "received_at", Type: schema.Timestamp()},
	{Name: "processed_at", Type: schema.Timestamp(), Nullable: true},
}}

type wireInbound struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	State       inbound.State   `json:"state"`
	Channel     string          `json:"channel"`
	ChannelID   *string         `json:"channel_id"`
	Kind        string          `json:"kind"`
	Key         string          `json:"key"`
	Sender      *string         `json:"sender"`
	Address     *string         `json:"address"`
	VerifiedBy  string          `json:"verified_by"`
	Result      json.RawMessage `json:"result"`
	Error       *string         `json:"error"`
	Size        int64           `json:"size"`
	ReceivedAt  rfc3339.Time    `json:"received_at"`
	ProcessedAt rfc3339.Time    `json:"processed_at"`
}

func wireOfInbound(e *inbound.StoredEvent) wireInbound {
	return wireInbound{
		ID: e.ID, Object: "inbound_event", State: e.State, Channel: e.Channel, ChannelID: orNull(e.ConnectionID), Kind: e.Kind, Key: e.Key,
		Sender: orNull(e.Sender), Address: orNull(e.Address), VerifiedBy: e.VerifiedBy, Result: e.Result, Error: orNull(e.Error), Size: e.Size,
		ReceivedAt: rfc3339.Time(e.ReceivedAt), ProcessedAt: rfc3339.Time(e.ProcessedAt),
	}
}

var rawInboundRecord = &schema.Record{Name: "inbound_event.raw", Doc: "The request as received.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("inbound_event.raw")},
	{Name: "url", Type: schema.Text(), Doc: "The values of credentials are left out, here and in the headers.", Example: "https://help.example.com/hooks/sms"},
	{Name: "headers", Type: schema.Map(schema.Array(schema.Text(), 1000))},
	{Name: "body", Type: schema.Formatted("byte", 1<<30), Doc: "The bytes, in base64.", Example: "RnJvbT0lMkI0OTE1MTEyMzQ1Njc4"},
}}

type wireRawInbound struct {
	ID      string              `json:"id"`
	Object  string              `json:"object"`
	URL     string              `json:"url"`
	Headers map[string][]string `json:"headers"`
	Body    []byte              `json:"body"`
}

func (a *API) inboundRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/inbound-events", ID: "listInboundEvents", Tag: "Inbound events", Summary: "List inbound events",
		Doc: "Newest first. Only events of the organization's channels: events for unconnected addresses are visible to the operator only.",
		Query: []rest.Param{
			{Name: "state", Kind: rest.EnumsParam, Values: inboundStates},
			{Name: "channel", Kind: rest.StringParam, Example: "sms"},
			{Name: "channel_id", Kind: rest.StringParam},
		},
		Needs: needs("channels", apikey.Read), Export: true, Output: inboundRecord, List: true, Handle: a.listInbound,
	}, {
		Method: "GET", Path: "/inbound-events/{id}", ID: "getInboundEvent", Tag: "Inbound events", Summary: "Get an inbound event",
		Needs: needs("channels", apikey.Read), Output: inboundRecord, Handle: a.getInbound,
	}, {
		Method: "GET", Path: "/inbound-events/{id}/raw", ID: "getRawInboundEvent", Tag: "Inbound events", Summary: "Get the request as received",
		Needs: needs("channels", apikey.Read), Output: rawInboundRecord, Handle: a.getRawInbound,
	}, {
		Method: "POST", Path: "/inbound-events/{id}/replay", ID: "replayInboundEvent", Tag: "Inbound events", Summary: "Process an inbound event again",
		Doc:   "Effects of an earlier run are not repeated. An event that waits for processing, or still cannot be parsed, is 409.",
		Needs: needs("channels", apikey.Update), Output: inboundRecord, Status: 200, Claim: true, Codes: []string{"invalid_transition"}, Handle: a.replayInbound,
	}}
}

func (a *API) listInbound(ctx context.Context, r *rest.Request) (rest.Response, error) {
	f := inbound.Filter{OrganizationID: r.Key.OrganizationID, Channel: channel.AdapterName(r.String("channel")), ConnectionID: r.String("channel_id")}
	if names := a.Inbound.Channels(); f.Channel != "" && !slices.Contains(names, f.Channel) {
		return rest.Response{}, rest.BadParameter("channel", "channel must be one of %s.", strings.Join(names, ", "))
	}
	for _, state := range r.Strings("state") {
		f.States = append(f.States, inbound.State(state))
	}
	if r.Exporting() {
		return rest.Export(exported(func(fn func(*inbound.StoredEvent) error) error {
			return a.Inbound.Each(ctx, f, fn)
		}, plain(wireOfInbound))), nil
	}
	var err error
	if f.Before, err = after(r); err != nil {
		return rest.Response{}, err
	}
	f.Limit = r.Limit() + 1
	list, err := a.Inbound.List(ctx, f)
	if err != nil {
		return rest.Response{}, err
	}
	next := ""
	if len(list) > r.Limit() {
		list = list[:r.Limit()]
		next = list[len(list)-1].ID
	}
	return rest.List(wired(list, func(e **inbound.StoredEvent) wireInbound { return wireOfInbound(*e) }), position(next)), nil
}

func (a *API) getInbound(ctx context.Context, r *rest.Request) (rest.Response, error) {
	e, err := a.Inbound.FindOf(ctx, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireOfInbound(e)), nil
}

func (a *API) getRawInbound(ctx context.Context, r *rest.Request) (rest.Response, error) {
	e, err := a.Inbound.FindOf(ctx, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := a.Inbound.RecordView(ctx, e); err != nil {
		return rest.Response{}, err
	}
	w := wireRawInbound{ID: e.ID, Object: "inbound_event.raw", URL: e.URL, Headers: e.Header, Body: e.Body}
	if w.Body == nil {
		w.Body = []byte{}
	}
	return rest.OK(w), nil
}

func (a *API) replayInbound(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if _, err := a.Inbound.FindOf(ctx, r.Key.OrganizationID, r.Path("id")); err != nil {
		return rest.Response{}, err
	}
	e, err := a.Inbound.Replay(ctx, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireOfInbound(e)), nil
}
