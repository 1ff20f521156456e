// Package audit is the audit log: sign-ins, refusals, and every change of members,
// channels, webhooks, keys and settings.
//
// [Log.RecordTx] writes an [Entry] in the transaction of the change it describes, so that
// either both are stored or neither. Actor, address and request come from the context,
// where each surface puts its [Source].
//
// # The chain
//
// The entries of an organization form a chain; so do those of the deployment, with an
// empty organization id. Sequences start at 1 and have no gaps. The hash of an entry is
// an HMAC-SHA256 over all its fields, among them the hash of the previous entry. A head
// stores sequence and hash of the last entry, under an HMAC of its own. The start of an
// organization's chain is an entry in the deployment's chain. So [Log.Verify] detects
// altered, removed, moved and inserted entries, truncated chains and missing ones, as
// long as the attacker lacks the deployment's secret key. It does not detect that the
// whole database was restored to an earlier state: compare with heads stored elsewhere.
//
// Each database has its own log, named by its ledger: changes of the fleet are recorded
// in the fleet's transaction.
//
// # Locks
//
// Entries are appended to their chains at the end of the transaction, sorted by chain:
// the head rows are locked last, only for the commit, and in one order. So transactions
// do not deadlock, and other work of an organization waits for a commit at most.
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

// Entry is an action to record, or a recorded one. No field is ever a secret.
type Entry struct {
	OrganizationID string // empty: the deployment's own chain
	Action         Action
	Target         Target
	Changes        map[string]Change // by field of the target
	Details        map[string]any    // other context of the action
	Outcome        Outcome
	// Service and Environment of the resource; empty: the log's.
	Service, Environment string

	// Recorded entries only. RecordTx sets them from the context.
	ID string
	At time.Time
	// Sequence is the position in the chain, from 1; below 1 for entries older than the
	// chain.
	Sequence int64
	Source   Source
	KeyID    string // of the key of Hash; empty for entries older than the chain
	Previous []byte
	Hash     []byte // empty for entries older than the chain
}

// Outcome is the outcome of an action.
type Outcome string

// The outcomes.
const (
	Done    Outcome = ""
	Refused Outcome = "refused"
)

// Target is the record that an action concerns.
type Target struct {
	Type       string `json:"type"` // "member"
	ID         string `json:"id"`
	Name       string `json:"name"`
	PartialKey string `json:"partial_key,omitempty"` // of an API key
}

// Change is a field's value before and after.
type Change struct {
	From any `json:"from"`
	To   any `json:"to"`
}

// ActorType is the type of an [Actor].
type ActorType string

// The types of actor.
const (
	User      ActorType = "user"
	Key       ActorType = "key" // API key
	System    ActorType = "system"
	Operator  ActorType = "operator"  // commands on the server
	Anonymous ActorType = "anonymous" // not signed in
)

// Actor is the user, key or system behind an action.
type Actor struct {
	Type  ActorType `json:"type"`
	ID    string    `json:"id,omitempty"`
	Email string    `json:"email,omitempty"`
}

// The surfaces.
const (
	Web     = "web"     // pages
	RPC     = "rpc"     // tRPC procedures
	REST    = "rest"    // the REST APIs
	MCP     = "mcp"     // tools of MCP clients
	Inbound = "inbound" // requests of providers
	CLI     = "cli"     // commands
)

// Source is an actor and the request.
type Source struct {
	Actor     Actor
	Address   netip.Addr // zero: no request, or unknown
	UserAgent string
	RequestID string
	Surface   string // empty: background work
}

// IP returns the address as text; empty if there is none.
func (s Source) IP() string {
	if !s.Address.IsValid() {
		return ""
	}
	return s.Address.Unmap().WithZone("").String()
}

type sourceKey struct{}

// WithSource returns a context with s for [Log.RecordTx] and [LogSecurityEvent]. Each surface
// calls it once per request.
func WithSource(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

// WithActor replaces the actor of the context's source after authentication.
func WithActor(ctx context.Context, a Actor) context.Context {
	s := SourceOf(ctx)
	s.Actor = a
	return WithSource(ctx, s)
}

// SourceOf returns the source of ctx. Without one its actor is of type [System].
func SourceOf(ctx context.Context) Source {
	if s, ok := ctx.Value(sourceKey{}).(Source); ok {
		return s
	}
	return Source{Actor: Actor{Type: System}}
}

// Diff returns the fields that differ between the JSON objects of two versions of a
// record, except updated_at and version.
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

// clean truncates external text to max bytes and drops characters that cannot be stored
// or that control a terminal.
func clean(s string, max int) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), max)], ""))
}
