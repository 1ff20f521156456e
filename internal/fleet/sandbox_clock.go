package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// maxAhead is the maximum advance of a clock in years, less than the range of
// [time.Duration].
const maxAhead = 200

// AdvanceClockTx advances the clock of a sandbox in the caller's transaction. All
// changes due until then apply in order, each as of its due time. The clock then
// runs on from to. Errors: NotFound in production; clock_backwards; Invalid.
func (s *Service) AdvanceClockTx(ctx context.Context, tx *db.Tx, organizationID string, to time.Time) error {
	if s.live {
		return notFoundError("clock")
	}
	var offset int64
	err := tx.QueryRow(ctx, "SELECT clock_offset FROM settings WHERE organization_id = $1 FOR UPDATE", organizationID).Scan(&offset)
	if err != nil {
		return wrapReadError(err, "fleet")
	}
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return err
	}
	to = to.UTC().Truncate(time.Microsecond)
	switch {
	case to.Before(a.now):
		e := conflict("clock_backwards", "the clock cannot go back")
		e.Details = map[string]any{"now": rfc3339.Time(a.now)}
		return e
	case to.After(a.now.AddDate(1, 0, 0)):
		var v problem.Validation
		v.AddCode("too_large", "now", "must be at most a year ahead")
		return v.Err()
	case to.After(tx.Now.AddDate(maxAhead, 0, 0)):
		var v problem.Validation
		v.AddCode("too_large", "now", "must be at most %d years ahead of the real time; a reset sets the clock back", maxAhead)
		return v.Err()
	}
	list, _, err := dueTimers(ctx, tx, a.id, to, 0)
	if err != nil {
		return err
	}
	if err := s.applyTimers(ctx, tx, a, list, to, true); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE settings SET clock_offset = $2 WHERE organization_id = $1", organizationID, to.Sub(tx.Now).Microseconds())
	if err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	s.notify(tx, a.id, "", "")
	return s.record(ctx, tx, organizationID, SandboxClockAdvanced, audit.Target{Type: "sandbox"},
		map[string]audit.Change{"now": {From: rfc3339.Time(a.now), To: rfc3339.Time(to)}})
}
