package deskapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var proofWays = []string{
	string(channel.ProveByMail), string(channel.ProveByText), string(channel.ProveByDNS), string(channel.ProveByProvider), string(channel.ProveByTopic),
}

var proofMembers = []schema.Member{
	{Name: "state", Type: schema.Enum(string(connection.Pending), string(connection.Proven))},
	{Name: "method", Nullable: true, Doc: "The method of the proof; null until it is proven.", Type: schema.Enum(
		string(connection.ByOperator), string(connection.ByAllowList), string(connection.ByDNS), string(connection.ByMail),
		string(connection.ByText), string(connection.ByProvider), string(connection.ByTopic), string(connection.BeforeProofs))},
	{Name: "proven_at", Type: schema.Timestamp(), Nullable: true},
	{Name: "needed_for", Type: schema.Array(schema.Enum(string(connection.ToReceive), string(connection.ToSend)), 2),
		Doc: "Functions unavailable before the proof: receiving events authenticated by the server's own accounts, and sending with these accounts."},
	{Name: "ways", Type: schema.Array(schema.Enum(proofWays...), 5), Doc: "The available methods of proof. If empty, the operator decides."},
	{Name: "dns_record", Nullable: true, Doc: "The TXT record that proves every mail address of the domain.", Type: schema.Nested(dnsRecord)},
}

var dnsRecord = &schema.Record{Name: "channel.dns_record", Members: []schema.Member{
	{Name: "name", Type: schema.Text()},
	{Name: "value", Type: schema.Text()},
}}

var proofRecord = &schema.Record{Name: "channel.proof", Doc: "The proof that an address is the organization's own.", Members: append([]schema.Member{
	{Name: "object", Type: schema.Enum("channel.proof")},
	{Name: "channel_id", Type: schema.ID()},
	{Name: "challenge", Nullable: true, Doc: "The open challenge.", Type: schema.Object(
		schema.Member{Name: "way", Type: schema.Enum(proofWays...)},
		schema.Member{Name: "sent_at", Type: schema.Timestamp()},
		schema.Member{Name: "expires_at", Type: schema.Timestamp()},
		schema.Member{Name: "tries_left", Type: schema.Integer(), Nullable: true, Doc: "Remaining attempts to enter the code; null without a code."},
		schema.Member{Name: "publish", Type: schema.Text(), Nullable: true, Doc: "The text to publish on the topic; null for other ways."},
	)},
}, proofMembers...)}

var proveInput = &schema.Record{Name: "channel.prove_request", Members: []schema.Member{
	{Name: "way", Type: schema.Enum(proofWays...), Access: schema.Writable, Doc: "Starts a proof by this method."},
	{Name: "code", Type: schema.String(1, 32), Access: schema.Writable, WriteOnly: true, Doc: "The code of the challenge."},
}}

type wireProof struct {
	State     connection.State        `json:"state"`
	Method    *connection.Method      `json:"method"`
	ProvenAt  *rfc3339.Time           `json:"proven_at"`
	NeededFor []connection.Capability `json:"needed_for"`
	Ways      []channel.ProofWay      `json:"ways"`
	DNSRecord *wireDNSRecord          `json:"dns_record"`
}

type wireDNSRecord struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type wireFullProof struct {
	Object    string         `json:"object"`
	ChannelID string         `json:"channel_id"`
	Challenge *wireChallenge `json:"challenge"`
	wireProof
}

type wireChallenge struct {
	Way       channel.ProofWay `json:"way"`
	SentAt    rfc3339.Time     `json:"sent_at"`
	ExpiresAt rfc3339.Time     `json:"expires_at"`
	TriesLeft *int             `json:"tries_left"`
	Publish   *string          `json:"publish"`
}

func wireOfProof(s connection.Status) wireProof {
	w := wireProof{State: s.State, Method: orNull(s.Method), NeededFor: s.Needed, Ways: s.Ways}
	if !s.At.IsZero() {
		w.ProvenAt = new(rfc3339.Time(s.At))
	}
	if w.NeededFor == nil {
		w.NeededFor = []connection.Capability{}
	}
	if w.Ways == nil {
		w.Ways = []channel.ProofWay{}
	}
	if s.Record != nil {
		w.DNSRecord = &wireDNSRecord{s.Record.Name, s.Record.Value}
	}
	return w
}

func (a *API) fullProof(ctx context.Context, c *connection.Connection) (rest.Response, error) {
	s, err := a.Connections.FullProofStatus(ctx, a.DB, c)
	if err != nil {
		return rest.Response{}, err
	}
	w := wireFullProof{Object: "channel.proof", ChannelID: c.ID, wireProof: wireOfProof(s)}
	if ch := s.Challenge; ch != nil {
		w.Challenge = &wireChallenge{ch.Way, rfc3339.Time(ch.SentAt), rfc3339.Time(ch.ExpiresAt), orNull(ch.TriesLeft), orNull(ch.Publish)}
	}
	return rest.OK(w), nil
}

func (a *API) getProof(ctx context.Context, r *rest.Request) (rest.Response, error) {
	c, err := a.Connections.FindOf(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return a.fullProof(ctx, &c)
}

// proveChannel starts a proof or answers a challenge. A wrong code is counted although the
// request fails, so this is not one transaction.
func (a *API) proveChannel(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if _, err := a.Connections.FindOf(ctx, a.DB, r.Key.OrganizationID, r.Path("id")); err != nil {
		return rest.Response{}, err
	}
	var in struct {
		Way  optional.Value[channel.ProofWay] `json:"way"`
		Code optional.Value[string]           `json:"code"`
	}
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	if in.Way.Set == in.Code.Set {
		var v problem.Validation
		v.AddCode("required", "way", "must be there, or code: one of the two")
		return rest.Response{}, v.Err()
	}
	var c connection.Connection
	var err error
	if in.Code.Set {
		c, err = a.Connections.AnswerChallenge(ctx, r.Key.OrganizationID, r.Path("id"), in.Code.Value)
	} else {
		c, err = a.Connections.Prove(ctx, r.Key.OrganizationID, r.Path("id"), in.Way.Value)
	}
	if err != nil {
		return rest.Response{}, err
	}
	return a.fullProof(ctx, &c)
}
