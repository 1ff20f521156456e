package inbound

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// byRecipient is the [StoredEvent.VerifiedBy] of mails received for a proven address.
const byRecipient = "recipient"

// Delivery is a mail for a connection.
type Delivery struct {
	Connection *connection.Connection
	Request    *channel.Request
}

// Deliver stores the copies of a mail that this server has received for connections of a channel,
// at most one each, and enqueues them, in one transaction. It returns the number of copies that
// were not stored before. An error means that the sender must repeat the mail: then none or all
// are stored.
func (s *Service) Deliver(ctx context.Context, name string, copies []Delivery) (fresh int, err error) {
	a, ok := s.byName[name]
	if !ok {
		return 0, fmt.Errorf("channel %q is not part of this program", name)
	}
	events, list := make([]*StoredEvent, len(copies)), make([]routed, len(copies))
	wanted := make([]bool, len(copies))
	for i, d := range copies {
		events[i], list[i] = s.newCollected(a, d.Connection, d.Request, byRecipient)
		wanted[i] = true
	}
	fresh, err = s.storeCollected(ctx, a, events, list,
		func(write func(*db.Tx) error) error { return s.db.WriteGrouped(ctx, events[0].ConnectionID, write) },
		func(context.Context, *db.Tx) ([]bool, error) { return wanted, nil })
	if err != nil {
		return 0, err
	}
	tally := s.counts[name]
	for i := range copies {
		if i < fresh {
			tally.add(channel.Accepted)
		} else {
			tally.add(channel.Duplicate)
		}
	}
	return fresh, nil
}

// RefuseDelivery records the refusal of a mail by a client.
func (s *Service) RefuseDelivery(ctx context.Context, name string, client netip.Addr, reason string) {
	s.counts[name].refused.Add(1)
	ctx = audit.WithSource(ctx, audit.Source{Actor: audit.Actor{Type: audit.Anonymous}, Address: client, Surface: audit.Inbound})
	s.audit.Refuse(ctx, audit.Entry{Action: AuditRefused, Target: audit.Target{Type: "channel", ID: name}, Details: map[string]any{"reason": reason}})
}
