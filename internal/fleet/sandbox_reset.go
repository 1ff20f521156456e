package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// ResetTx restores the initial state of an organization's sandbox, in the caller's
// transaction: it deletes all records, resets settings and clock, and creates the
// records of [Service.Seed] with the same ids. Idempotency keys and audit entries
// remain. Error: NotFound in production.
func (s *Service) ResetTx(ctx context.Context, tx *db.Tx, o Organization) error {
	if s.live {
		return notFoundError("sandbox")
	}
	_, revision, err := s.LockSettingsTx(ctx, tx, o.ID)
	if err != nil {
		return err
	}
	doc, err := encode(defaultSettings(o, tx.Now))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE settings SET revision = $2, stamp = $3, clock_offset = 0, alert_stamp = NULL, tracks_deleted_before = 0, doc = $4 WHERE organization_id = $1",
		o.ID, revision+1, newStamp(), string(doc))
	if err != nil {
		return fmt.Errorf("reset the settings: %w", err)
	}
	if err := s.deleteAll(ctx, tx, o.ID); err != nil {
		return err
	}
	a, err := s.orgContext(ctx, tx, tx.Now, o.ID)
	if err != nil {
		return err
	}
	s.notify(tx, o.ID, "", "")
	if err := s.seed(ctx, tx, a, o); err != nil {
		return err
	}
	return s.record(ctx, tx, o.ID, SandboxReset, audit.Target{Type: "sandbox"}, nil)
}

// deleteAll deletes an organization's records. It waits for concurrent changes;
// later ones find no records.
func (s *Service) deleteAll(ctx context.Context, tx *db.Tx, organizationID string) error {
	if err := s.deleteRollups(ctx, tx, organizationID); err != nil {
		return err
	}
	if err := s.rideIndex.LockTx(ctx, tx, organizationID); err != nil {
		return err
	}
	// The lock order is rides, vehicles, customers. But a ride can be added until
	// its vehicle and customer are locked, so rides are deleted again. The same
	// holds for zones and subaccounts.
	for _, table := range []string{
		"rides", "vehicles", "customers", "rides", "tasks", "task_photos", "vehicle_events", "tracks", "tracker_clocks", "late_distances", "trackers", "deleted_vehicles", "alert_rules", "alerts", "zones", "former_plans", "plan_versions", "plans", "subaccounts", "zones",
	} {
		if err := tx.Queue(ctx, "DELETE FROM "+table+" WHERE organization_id = $1", organizationID); err != nil {
			return fmt.Errorf("delete all %s: %w", table, err)
		}
	}
	return s.rideIndex.DeleteTx(ctx, tx, organizationID)
}
