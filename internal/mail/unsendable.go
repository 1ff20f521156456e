package mail

import (
	"context"
	"errors"
)

// Unsendable is a [Carrier] for a deployment that cannot send mail: every message
// fails for good, with Reason.
type Unsendable struct{ Reason string }

// Send implements [Sender].
func (u Unsendable) Send(context.Context, Message) error {
	return &Error{Op: OpConnect, Err: errors.New(u.Reason)}
}

// Carry implements [Carrier].
func (u Unsendable) Carry(ctx context.Context, m Message, _ func() error) (string, error) {
	return "", u.Send(ctx, m)
}
