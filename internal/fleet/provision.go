package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Provision creates an organization's fleet if it has none: settings, and one
// subaccount named after the organization (production) or the records of
// [Service.Seed] (sandbox). It is idempotent and safe to call concurrently, on any
// number of processes.
func (s *Service) Provision(ctx context.Context, o Organization) error {
	if _, known := s.provisioned.Load(o.ID); known {
		return nil
	}
	var there bool
	err := s.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM settings WHERE organization_id = $1)", o.ID).Scan(&there)
	if err == nil && !there {
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			first, err := s.createSettings(ctx, tx, o)
			if err != nil || !first {
				return err
			}
			return s.createInitialRecords(ctx, tx, o)
		})
	}
	if err != nil {
		return fmt.Errorf("provision a fleet: %w", err)
	}
	s.provisioned.Store(o.ID, true)
	return nil
}

// createInitialRecords creates the first records of a fleet that has only settings.
func (s *Service) createInitialRecords(ctx context.Context, tx *db.Tx, o Organization) error {
	if !s.live {
		a, err := s.orgContext(ctx, tx, tx.Now, o.ID)
		if err != nil {
			return err
		}
		return s.seed(ctx, tx, a, o)
	}
	_, err := s.createSubaccount(ctx, tx, o.ID, NewSubaccount{Name: nameOf(o), TimeZone: "UTC", Currency: "EUR"})
	return err
}
