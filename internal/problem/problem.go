// Package problem is the one error type that crosses from the rules to the
// surfaces.
//
// A rule that refuses something returns an [*Error]: a [Kind] out of a closed
// set, a message that is safe to show to whoever asked, optional field issues,
// and the cause, which is for the log only. Each surface (tRPC, REST, HTML,
// inbound endpoints) maps kinds to its own statuses in one table. Any other
// error is a fault of ours: surfaces show it as [Internal] with an id and never
// its text.
package problem

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what went wrong in terms a caller can act on. The set is closed:
// adding one means adding a row to every surface's table.
type Kind uint8

const (
	// Internal is a fault of ours. It is the kind of every error that is not
	// an [*Error]; rules have no reason to return it themselves.
	Internal Kind = iota
	// Invalid means the input itself is wrong, whatever the state of the
	// system. Prefer Conflict or Precondition when another state would have
	// accepted the same input.
	Invalid
	// Unparseable means the input is not even of the surface's syntax.
	Unparseable
	// Unauthorized means we do not know who asks, or do not believe it.
	Unauthorized
	// Forbidden means we know who asks and they may not.
	Forbidden
	// NotFound also covers records of other organizations: whether those
	// exist is nobody else's business.
	NotFound
	// MethodNotAllowed means the thing exists but not for this method.
	MethodNotAllowed
	// Conflict means that the state already holds something incompatible.
	Conflict
	// Precondition means the state must first be changed by another action.
	Precondition
	// TooLarge means the input exceeds a documented size.
	TooLarge
	// UnsupportedMedia means a content type that is not understood.
	UnsupportedMedia
	// RateLimited carries the wait in [Error.RetryAfter].
	RateLimited
	// Unavailable means the same request may succeed later: the store cannot
	// be written, or the process is going down.
	Unavailable
)

var kindNames = [...]string{
	"internal", "invalid", "unparseable", "unauthorized", "forbidden", "not found",
	"method not allowed", "conflict", "precondition failed", "too large",
	"unsupported media type", "rate limited", "unavailable",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", k)
}

// Issue is one thing wrong with one field of the input.
type Issue struct {
	Path    string `json:"path"` // member name; nested ones joined with "."
	Message string `json:"message"`
	// Code says the same in one word out of the closed set of fleet-api.md 5
	// (too_long, not_found, …), for surfaces that show one.
	Code string `json:"-"`
}

// Error is a refusal with a reason that may be shown.
type Error struct {
	Kind    Kind
	Message string  // shown to the caller; a sentence start, no secrets
	Issues  []Issue // for Invalid: every field that is wrong
	// Code is narrower than the kind where a caller can make use of that:
	// already_exists, invalid_transition. Surfaces that show codes know the
	// statuses of all (fleet-api.md 5). Empty: the kind says enough.
	Code string
	// Details stand beside a Code: the member that exists already.
	Details    map[string]any
	RetryAfter time.Duration // for RateLimited and Unavailable; 0 = not known
	Cause      error         // for the log; never shown
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Kind.String() + ": " + e.Message + ": " + e.Cause.Error()
	}
	return e.Kind.String() + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// New returns an error of the given kind. The message is shown to the caller.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Because returns a copy of e that carries cause for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// Of reports the kind of err: that of the [*Error] in its chain, else Internal.
func Of(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}
