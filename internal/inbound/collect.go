package inbound

import (
	"context"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// byCollector is the [StoredEvent.VerifiedBy] of requests that a reader has collected.
const byCollector = "login"

// Collect stores requests that a reader has collected at the provider of a connection, such as
// the mails of a mailbox, and enqueues them. All is one transaction that begins with record, which
// records what is collected and returns for each request whether to store it. It may run more
// than once, and its error rolls all back.
//
// A request that cannot be read is stored as rejected, so that none is lost.
func (s *Service) Collect(ctx context.Context, c *connection.Connection, requests []*channel.Request, record func(ctx context.Context, tx *db.Tx) (wanted []bool, err error)) error {
	a, ok := s.byName[c.Channel]
	if !ok {
		return fmt.Errorf("channel %q is not part of this program", c.Channel)
	}
	events, list := make([]*StoredEvent, len(requests)), make([]routed, len(requests))
	for i, req := range requests {
		events[i], list[i] = s.newCollected(a, c, req, byCollector)
	}
	_, err := s.storeCollected(ctx, a, events, list, func(write func(*db.Tx) error) error { return s.db.Write(ctx, write) }, record)
	return err
}

// storeCollected stores collected requests by write, and returns the number of new ones.
func (s *Service) storeCollected(ctx context.Context, a channel.Adapter, events []*StoredEvent, list []routed, write func(func(*db.Tx) error) error, record func(ctx context.Context, tx *db.Tx) (wanted []bool, err error)) (fresh int, err error) {
	shelved, err := s.storeBodies(ctx, list, events)
	if err != nil {
		s.deleteBodies(ctx, shelved)
		return 0, err
	}
	var stored map[string]bool // bodies in the blob store, that new events refer to
	err = write(func(tx *db.Tx) error {
		stored, fresh = make(map[string]bool), 0
		wanted, err := record(ctx, tx)
		if err != nil {
			return err
		}
		for i, e := range events {
			if !wanted[i] {
				continue
			}
			part, err := s.storePart(ctx, tx, a, e, &list[i])
			if err != nil {
				return err
			}
			if part.fresh {
				stored[e.bodyKey] = true
				fresh++
			}
		}
		return nil
	})
	if err != nil {
		// The commit may have happened all the same, so the bodies stay.
		return 0, fmt.Errorf("store collected requests: %w", err)
	}
	s.deleteBodies(ctx, slices.DeleteFunc(shelved, func(key string) bool { return stored[key] }))
	return fresh, nil
}

// newCollected returns the event of a collected request, which has one part.
func (s *Service) newCollected(a channel.Adapter, c *connection.Connection, req *channel.Request, by string) (*StoredEvent, routed) {
	var r routed
	parts, err := a.Split(req)
	if err == nil {
		one := readChallenges(a, req, parts[:1])[0]
		r.Part, r.challenge = one.Part, one.challenge
	} else {
		r.Part = channel.Part{Key: kindUnreadable + ":" + req.URL, Kind: kindUnreadable}
	}
	r.Body, r.route = req.Body, route{to: c, by: by}
	if r.Body == nil {
		r.Body = []byte{}
	}
	e := s.newEvent(a, req, r)
	if err != nil {
		e.State, e.Error = Rejected, reason(err)
	}
	return e, r
}
