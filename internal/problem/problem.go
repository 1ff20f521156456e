// Package problem has the error type that rules return to the surfaces.
//
// A rule that refuses a request returns an [*Error]: a [Kind] from a closed set, a
// message that is safe to show to the client, optional field issues, and the cause, which
// is for the log only. Each surface (tRPC, REST, HTML, inbound endpoints) maps kinds to
// its statuses in one table. Any other error is a defect of the server: surfaces show it
// as [Internal] with an id and never its text.
package problem

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies an error by the caller's possible reaction. The set is closed: a new
// kind needs a row in every surface's table.
type Kind uint8

const (
	// Internal is a defect of the server. It is the kind of every error that is not an
	// [*Error]; rules do not return it themselves.
	Internal Kind = iota
	// Invalid means the input itself is wrong, in every state of the system. Prefer
	// Conflict or Precondition if another state would have accepted the same input.
	Invalid
	// Unparseable means the input violates the surface's syntax.
	Unparseable
	// Unauthorized means the caller is not authenticated.
	Unauthorized
	// Forbidden means the authenticated caller lacks the permission.
	Forbidden
	// NotFound also covers records of other organizations: their existence is not
	// disclosed.
	NotFound
	// MethodNotAllowed means the resource exists but not for this method.
	MethodNotAllowed
	// Conflict means the state holds something incompatible.
	Conflict
	// Precondition means another action must change the state first.
	Precondition
	// TooLarge means the input exceeds a documented size.
	TooLarge
	// UnsupportedMedia means an unsupported content type.
	UnsupportedMedia
	// RateLimited has the wait in [Error.RetryAfter].
	RateLimited
	// Unavailable means the same request may succeed later: the store cannot be written,
	// or the process is stopping.
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

// Issue is a violation of a rule by one field of the input.
type Issue struct {
	Path    string `json:"path"` // field name; nested ones joined with "."
	Message string `json:"message"`
	// Code is the issue's code of fleet-api.md 5 (too_long, not_found, …), for surfaces
	// that show one.
	Code string `json:"-"`
}

// Error is a refusal with a reason for the client.
type Error struct {
	Kind    Kind
	Message string  // shown to the client; starts a sentence, no secrets
	Issues  []Issue // for Invalid: every wrong field
	// Code refines the kind for clients that can use it: already_exists,
	// invalid_transition. Surfaces that show codes map each to a status (fleet-api.md 5).
	// Empty: the kind suffices.
	Code string
	// Details are sent with a Code: the field that exists already.
	Details    map[string]any
	RetryAfter time.Duration // for RateLimited and Unavailable; 0: unknown
	Cause      error         // for the log; never shown
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Kind.String() + ": " + e.Message + ": " + e.Cause.Error()
	}
	return e.Kind.String() + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// CodeSavedBefore is the code of a Conflict for a form that is sent again.
const CodeSavedBefore = "saved_before"

// New returns an error of a kind. The message is shown to the client.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Because returns a copy of e that carries cause for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// Of returns the kind of the [*Error] in err's chain, else Internal.
func Of(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}
