package inbound

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// replayPage is the number of events that [Service.ReplayAll] reads per query.
const replayPage = 200

// ReplayAll replays every selected event as [Service.Replay] does, oldest first, and calls each
// with the event, without its request, and its error. With dryRun it only calls each. It
// ignores f.Before and f.Limit. An error of each stops it and is returned.
func (s *Service) ReplayAll(ctx context.Context, f Filter, dryRun bool, each func(e *StoredEvent, err error) error) error {
	if err := s.checkFilter(&f); err != nil {
		return err
	}
	f.Before, f.Limit = "", replayPage
	for {
		events, err := list(ctx, s.db, f, oldestFirst)
		if err != nil {
			return fmt.Errorf("list inbound events: %w", err)
		}
		for _, e := range events {
			var failed error
			if !dryRun {
				_, failed = s.Replay(ctx, e.ID)
			}
			if problem.Of(failed) == problem.Unavailable {
				return failed // all others would fail alike
			}
			if err := each(e, failed); err != nil {
				return err
			}
		}
		if len(events) < replayPage {
			return nil
		}
		f.After = events[replayPage-1].ID
	}
}
