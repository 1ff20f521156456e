package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// pruneAlerts deletes the cleared alerts that are older than their organizations keep them, in small
// steps. Alerts that the helpdesk has not seen stay, and those with an open task, which the next
// alert of the rule shares.
func (s *Service) pruneAlerts(ctx context.Context) error {
	return s.eachFleet(ctx, func(a orgContext) error {
		before := a.now.AddDate(0, 0, -int(a.settings.AlertRetentionDays)).UnixMicro()
		err := s.deleteInSteps(ctx, alertPruneStep, `DELETE FROM alerts WHERE organization_id = $1 AND state = 'cleared' AND updated_at < $2 AND id IN
			(SELECT l.id FROM alerts l WHERE l.organization_id = $1 AND l.state = 'cleared' AND l.updated_at < $2 AND l.relay IS NULL
			AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.organization_id = l.organization_id AND t.id = l.task_id AND t.state IN ('open', 'in_progress'))
			ORDER BY l.updated_at, l.id LIMIT $3)`, a.id, before)
		if err != nil {
			return fmt.Errorf("delete expired alerts: %w", err)
		}
		return nil
	})
}

// alertPruneStep bounds the alerts that one transaction of pruneAlerts deletes.
const alertPruneStep = 500

// deleteInSteps runs a DELETE of the rows of an organization $1 from before a time $2, at most limit $3, until
// there are fewer, each in a transaction of its own.
func (s *Service) deleteInSteps(ctx context.Context, limit int64, query, organizationID string, before int64) error {
	return db.Steps(ctx, func() (more bool, err error) {
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			n, err := tx.Exec(ctx, query, organizationID, before, limit)
			more = n == limit
			return err
		})
		return more, err
	})
}
