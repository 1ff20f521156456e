package mail

import (
	"context"
	"sync/atomic"
)

// Switch is a [TrackedSender] whose way of sending and sender address can change while the program
// runs. It is safe for concurrent use.
type Switch struct{ way atomic.Pointer[way] }

type way struct {
	sender TrackedSender
	from   Address
}

// NewSwitch returns a switch that sends by sender, and from the address from if a message has none.
func NewSwitch(sender TrackedSender, from Address) *Switch {
	s := new(Switch)
	s.Set(sender, from)
	return s
}

// Set changes sender and address. Messages that are being sent are not affected.
func (s *Switch) Set(sender TrackedSender, from Address) { s.way.Store(&way{sender, from}) }

// From returns the sender address of messages without one.
func (s *Switch) From() Address { return s.way.Load().from }

// Send implements [Sender].
func (s *Switch) Send(ctx context.Context, m Message) error {
	w := s.way.Load()
	return w.sender.Send(ctx, w.complete(m))
}

// SendTracked implements [TrackedSender].
func (s *Switch) SendTracked(ctx context.Context, m Message, submitting func() error) (id string, err error) {
	w := s.way.Load()
	return w.sender.SendTracked(ctx, w.complete(m), submitting)
}

func (w *way) complete(m Message) Message {
	if m.From == (Address{}) {
		m.From = w.from
	}
	return m
}

// Current returns the sender that a [Switch] has now, and any other sender unchanged.
func Current(s TrackedSender) TrackedSender {
	if s, ok := s.(*Switch); ok {
		return s.way.Load().sender
	}
	return s
}
