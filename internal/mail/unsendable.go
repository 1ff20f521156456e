package mail

import (
	"context"
	"errors"
)

// Unsendable is a [TrackedSender] for a deployment that cannot send mail: every message fails
// permanently with Reason.
type Unsendable struct{ Reason string }

// Send implements [Sender].
func (u Unsendable) Send(context.Context, Message) error {
	return &Error{Op: OpConnect, Err: errors.New(u.Reason)}
}

// SendTracked implements [TrackedSender].
func (u Unsendable) SendTracked(ctx context.Context, m Message, _ func() error) (string, error) {
	return "", u.Send(ctx, m)
}
