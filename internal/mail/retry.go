package mail

import (
	"errors"
	"time"
)

// The waits between attempts. A temporary refusal is retried for two days (channels.md 1E). An
// unreachable server, or one that refuses our login, is the operator's problem rather than the
// mail's and often fixed soon, while people wait for links in these mails: it is retried
// quickly at first, and for a week.
var (
	refusedWaits     = []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour, 8 * time.Hour, 10 * time.Hour, 12 * time.Hour, 12 * time.Hour}
	unreachableWaits = []time.Duration{5 * time.Second, 15 * time.Second, 45 * time.Second, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute}
)

const (
	unreachableWait     = 30 * time.Minute // after unreachableWaits
	unreachableAttempts = 7 * 48
)

// Retry returns how long to wait after the attempt-th failure (from 1) of sending a mail, or
// false to give up. Waits grow; a permanently refused mail is not retried, and a Retry-After is
// respected.
func Retry(attempt int, err error) (time.Duration, bool) {
	wait, again := schedule(attempt, err)
	if e, ok := errors.AsType[*Error](err); ok && again {
		wait = max(wait, e.RetryAfter)
	}
	return wait, again
}

func schedule(attempt int, err error) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	unreachable := ok && (e.Temporary && (e.Code == 0 || e.API) || refusedConnection(e))
	switch {
	case unreachable && attempt <= len(unreachableWaits):
		return unreachableWaits[attempt-1], true
	case unreachable:
		return unreachableWait, attempt <= unreachableAttempts
	case !Temporary(err):
		return 0, false
	case attempt <= len(refusedWaits):
		return refusedWaits[attempt-1], true
	}
	return 0, false
}

// refusedConnection reports whether the server refused the connection rather than the mail,
// which it has not seen: mail must survive a changed password.
func refusedConnection(e *Error) bool {
	if e.API {
		return e.Op == OpLogin
	}
	switch e.Op {
	case OpConnect, OpTLS, OpLogin:
		return e.Code >= 500
	}
	return e.Code == 530 // login or TLS required (RFC 4954, RFC 3207)
}
