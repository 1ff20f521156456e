// Package audit is the log of everything that matters: who signed in or was
// refused, and each change to members, channels, webhooks, keys and settings.
//
// An [Entry] is written by [Log.RecordTx] in the transaction of the change it
// describes, so that the one exists exactly when the other does. Actor, address
// and request come from the context, where each surface puts its [Source].
//
// # The chain
//
// The entries of an organization form a chain, and so do those of the deployment
// itself, whose organization id is empty. Entries count from 1 without gaps. The
// hash of an entry is an HMAC-SHA256 over all its members, among them the hash of
// the entry before. A head keeps sequence and hash of the last entry, under an
// HMAC of its own. The first entry of an organization's chain comes with an entry
// in the deployment's chain that names the organization. [Log.Verify] so finds an
// entry that was altered, removed, moved or inserted, a chain that was cut short,
// and one that is gone, by anybody without the deployment's secret key. It does
// not find that the whole database was put back to an earlier state: compare with
// heads that were kept elsewhere.
//
// Each database has a log of its own, named by its ledger: what happens in the
// fleet is recorded by the fleet's transaction.
//
// # Locks
//
// Entries join their chains at the very end of the transaction, sorted by chain:
// the row of the head is locked last, for the time of the commit, and in one
// order. So transactions do not wait for each other in a circle, and other work
// of an organization waits for no more than a commit.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Action names an action, as "noun.past_participle": "member.removed". The part
// before the dot is its group.
type Action = string

// Entry is an action to record, or one that was recorded. No member is ever a
// secret.
type Entry struct {
	OrganizationID string // empty: the deployment's own chain
	Action         Action
	Target         Target
	Changes        map[string]Change // by member of the target
	Details        map[string]any    // whatever else helps to understand the action
	Outcome        Outcome
	// Service and Environment are those of the resource; empty: those of the log.
	Service, Environment string

	// Recorded entries only. RecordTx takes them from the context.
	ID string
	At time.Time
	// Sequence is the entry's place in the chain, from 1; below 1 for entries from
	// before the chain.
	Sequence int64
	Source   Source
	KeyID    string // of the key of Hash; empty before the chain
	Previous []byte
	Hash     []byte // empty before the chain
}

// Outcome is how an action ended.
type Outcome string

// The outcomes.
const (
	Done    Outcome = ""
	Refused Outcome = "refused"
)

// Target is the record that an action is about.
type Target struct {
	Type       string `json:"type"` // "member"
	ID         string `json:"id"`
	Name       string `json:"name"`
	PartialKey string `json:"partial_key,omitempty"` // of API keys
}

// Change is a member before and after.
type Change struct {
	From any `json:"from"`
	To   any `json:"to"`
}

// ActorType is the type of an [Actor].
type ActorType string

// The types of actor.
const (
	User      ActorType = "user"
	Key       ActorType = "key" // an API key
	System    ActorType = "system"
	Operator  ActorType = "operator"  // whoever runs commands on the server
	Anonymous ActorType = "anonymous" // a client that has not signed in
)

// Actor is the person or program that acts.
type Actor struct {
	Type  ActorType `json:"type"`
	ID    string    `json:"id,omitempty"`
	Email string    `json:"email,omitempty"`
}

// The surfaces.
const (
	Web     = "web"     // pages
	RPC     = "rpc"     // procedures
	REST    = "rest"    // the REST APIs
	Inbound = "inbound" // requests of channel providers
	CLI     = "cli"     // commands
)

// Source is the actor and the request that it came with.
type Source struct {
	Actor     Actor
	Address   netip.Addr // zero: no request, or the client is not known
	UserAgent string
	RequestID string
	Surface   string // empty: background work
}

// IP returns the address as text, empty where there is none.
func (s Source) IP() string {
	if !s.Address.IsValid() {
		return ""
	}
	return s.Address.Unmap().WithZone("").String()
}

type sourceKey struct{}

// WithSource returns a context that carries s for [Log.RecordTx] and [Security].
// Each surface calls it once a request.
func WithSource(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

// WithActor replaces the actor of the context's source, once it is known.
func WithActor(ctx context.Context, a Actor) context.Context {
	s := SourceOf(ctx)
	s.Actor = a
	return WithSource(ctx, s)
}

// WithSurface replaces the surface of the context's source.
func WithSurface(ctx context.Context, surface string) context.Context {
	s := SourceOf(ctx)
	s.Surface = surface
	return WithSource(ctx, s)
}

// SourceOf returns the source that ctx carries. Without one it is background work:
// its actor is of type [System].
func SourceOf(ctx context.Context) Source {
	if s, ok := ctx.Value(sourceKey{}).(Source); ok {
		return s
	}
	return Source{Actor: Actor{Type: System}}
}

// Diff returns the members that differ between the JSON of two versions of a
// record, without updated_at and version. Both marshal to objects.
func Diff(before, after any) (map[string]Change, error) {
	old, err := members(before)
	if err != nil {
		return nil, err
	}
	now, err := members(after)
	if err != nil {
		return nil, err
	}
	changes := map[string]Change{}
	for name, value := range now {
		if name != "updated_at" && name != "version" && !bytes.Equal(value, old[name]) {
			changes[name] = Change{From: old[name], To: value}
		}
	}
	return changes, nil
}

func members(record any) (m map[string]json.RawMessage, err error) {
	text, err := json.Marshal(record)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("compare versions of a record: %w", err)
	}
	return m, nil
}

// clean cuts text from outside to max bytes, without characters that cannot be
// stored or that steer a terminal.
func clean(s string, max int) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), max)], ""))
}
