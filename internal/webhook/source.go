package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/loop"
)

// Source is a fleet, which records events in its own database, in the transactions of their
// changes.
//
// [Service.RunSources] reads the events of each organization in order, writes their deliveries in the
// helpdesk's database, and then has the source note how far it came. After a crash in between it
// reads the same events again: ids show which ones have deliveries.
type Source interface {
	EventSource() event.Source
	// RecordEvents makes the source record the events of exactly these organizations for webhooks.
	RecordEvents(ctx context.Context, organizationIDs []string) error
	// WaitingEvents returns the organizations with events that are not relayed.
	WaitingEvents(ctx context.Context) (organizationIDs []string, err error)
	// NextEvents returns the next events of an organization that are not relayed, at most limit, and
	// the position after them.
	NextEvents(ctx context.Context, organizationID string, limit int) (events []event.Event, position int64, err error)
	// EventsRelayed notes that the events up to a position are relayed.
	EventsRelayed(ctx context.Context, organizationID string, position int64) error
}

// sources is the state of [Service.RunSources].
type sources struct {
	list []Source
	wake chan struct{} // capacity 1
}

const (
	// sourcePoll is the interval of reads, since other processes create webhooks and record events too.
	sourcePoll  = time.Second
	sourceBatch = 100 // events per transaction
)

// WakeSources makes [Service.RunSources] read new events soon. It does not wait.
func (s *Service) WakeSources() {
	select {
	case s.sources.wake <- struct{}{}:
	default:
	}
}

// RunSources delivers the events of fleets until ctx ends. Several processes may run it on the same
// databases.
func (s *Service) RunSources(ctx context.Context) {
	loop.EveryOr(ctx, sourcePoll, s.sources.wake, s.log, "deliver events of the fleets", s.RelaySources)
}

// RelaySources writes the deliveries of all new events of fleets.
func (s *Service) RelaySources(ctx context.Context) error {
	var failed []error
	for _, source := range s.sources.list {
		if err := s.relaySource(ctx, source); err != nil {
			failed = append(failed, fmt.Errorf("events of the %s: %w", source.EventSource(), err))
		}
	}
	return errors.Join(failed...)
}

func (s *Service) relaySource(ctx context.Context, source Source) error {
	subscribed, err := db.All(ctx, s.db, scanText, "SELECT DISTINCT organization_id FROM webhooks WHERE source = $1 AND source IS NOT NULL", string(source.EventSource()))
	if err != nil {
		return fmt.Errorf("find webhooks: %w", err)
	}
	if err := source.RecordEvents(ctx, subscribed); err != nil {
		return err
	}
	organizations, err := source.WaitingEvents(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for len(organizations) > 0 { // in turns: one with many events delays no other
		var left []string
		for _, id := range organizations {
			more, err := s.relaySome(ctx, source, id)
			switch {
			case err != nil:
				failed = append(failed, fmt.Errorf("organization %s: %w", id, err))
			case more:
				left = append(left, id)
			}
		}
		organizations = left
	}
	return errors.Join(failed...)
}

// relaySome writes the deliveries of the next events of an organization and reports whether there may
// be more.
func (s *Service) relaySome(ctx context.Context, source Source, organizationID string) (more bool, err error) {
	events, position, err := source.NextEvents(ctx, organizationID, sourceBatch)
	if err != nil || len(events) == 0 {
		return false, err
	}
	if err := s.db.Write(ctx, func(tx *db.Tx) error { return s.relayTx(ctx, tx, source.EventSource(), organizationID, events) }); err != nil {
		return false, fmt.Errorf("write deliveries: %w", err)
	}
	return len(events) == sourceBatch, source.EventsRelayed(ctx, organizationID, position)
}

// relayTx stores the events that webhooks subscribe to, with their deliveries. Events that are
// stored have theirs.
func (s *Service) relayTx(ctx context.Context, tx *db.Tx, source event.Source, organizationID string, events []event.Event) error {
	// In the order of the events: two processes may have read them.
	if err := tx.Lock(ctx, "events of the "+string(source)+" "+organizationID); err != nil {
		return err
	}
	subs, err := db.All(ctx, tx, scanSubscription, selectSubscription+" WHERE organization_id = $1 ORDER BY id", organizationID)
	if err != nil {
		return fmt.Errorf("find webhooks: %w", err)
	}
	var wanted []event.Event
	for _, e := range events {
		for _, sub := range subs {
			if matches(sub.events, e.Source, e.Name) {
				wanted = append(wanted, e)
				break
			}
		}
	}
	if wanted, err = event.StoreTx(ctx, tx, wanted); err != nil {
		return err
	}
	return s.deliverTx(ctx, tx, subs, wanted)
}
