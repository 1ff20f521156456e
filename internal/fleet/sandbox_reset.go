package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Reset puts the sandbox of an organization back to where it began, in the
// caller's transaction: its records go and those of a [Service.Seed] come, with
// the ids that they had; settings and clock are as at first. What was answered to
// idempotency keys and what was audited stays. There is no such thing in
// production: NotFound.
func (s *Service) Reset(ctx context.Context, tx *db.Tx, o Organization) error {
	if s.live {
		return notFoundError("sandbox")
	}
	_, revision, err := s.LockSettings(ctx, tx, o.ID)
	if err != nil {
		return err
	}
	doc, err := encode(defaultSettings(o, tx.Now))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE settings SET revision = $2, stamp = $3, clock_offset = 0, doc = $4 WHERE organization_id = $1",
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

// deleteAll deletes the records of an organization. Whoever is changing some of
// them is waited for, or waits and then finds none.
func (s *Service) deleteAll(ctx context.Context, tx *db.Tx, organizationID string) error {
	if err := s.deleteRollups(ctx, tx, organizationID); err != nil {
		return err
	}
	if err := tx.Lock(ctx, tileLock(organizationID)); err != nil {
		return err
	}
	// Rides are locked before vehicles and customers; but only those who hold
	// these can add one, so rides go once more when nobody does. So it is with
	// zones and their subaccounts.
	for _, table := range []string{
		"rides", "vehicles", "customers", "rides", "vehicle_events", "deleted_vehicles", "zones", "plan_versions", "plans", "subaccounts", "zones",
		"untiled_rides", "ride_layers", "ride_tiles",
	} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE organization_id = $1", organizationID); err != nil {
			return fmt.Errorf("delete all %s: %w", table, err)
		}
	}
	return nil
}
