package mail

import (
	"errors"
	"time"
)

// The waits between attempts. A server that says "later" means it: two days in
// all (channels.md 1E). One that cannot be reached, or does not let us in, is
// ours, often back in a moment, while people wait for the links in these mails,
// and no fault of the mail's: that goes on for a week.
var (
	refusedWaits     = []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour, 8 * time.Hour, 10 * time.Hour, 12 * time.Hour, 12 * time.Hour}
	unreachableWaits = []time.Duration{5 * time.Second, 15 * time.Second, 45 * time.Second, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute}
)

const (
	unreachableWait     = 30 * time.Minute // after those
	unreachableAttempts = 7 * 48
)

// Retry is how long to wait after the attempt-th failure (from 1) of sending a
// mail, err, or false to give up. The waits grow; a mail that the server refuses
// for good is not tried again, and one that asks for rest gets it.
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

// refusedConnection reports whether the server refused us rather than the mail, which it
// has not seen: a password that was changed must not lose what waits.
func refusedConnection(e *Error) bool {
	if e.API {
		return e.Op == OpLogin
	}
	switch e.Op {
	case OpConnect, OpTLS, OpLogin:
		return e.Code >= 500
	}
	return e.Code == 530 // log in first, or start TLS first (RFC 4954, RFC 3207)
}
