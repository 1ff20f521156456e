package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// A tracker that can only be set to an address reports for one vehicle, which a secret in the
// address names. The database has its digest only.

// CreateTrackerTx creates the secret of a vehicle's tracker, in the caller's transaction, and
// returns it. The former one becomes invalid. Error: NotFound.
func (s *Service) CreateTrackerTx(ctx context.Context, tx *db.Tx, organizationID, vehicleID string) (secret string, err error) {
	v, err := readVehicle(ctx, tx, organizationID, vehicleID, " FOR UPDATE")
	if err != nil {
		return "", err
	}
	if err := deleteTracker(ctx, tx, organizationID, vehicleID); err != nil {
		return "", err
	}
	secret = strings.ToLower(rand.Text())
	digest := sha256.Sum256([]byte(secret))
	_, err = tx.Exec(ctx, "INSERT INTO trackers (digest, organization_id, vehicle_id, created_at) VALUES ($1, $2, $3, $4)", digest[:], organizationID, vehicleID, tx.Now.UnixMicro())
	if err != nil {
		return "", fmt.Errorf("insert a tracker: %w", err)
	}
	return secret, s.record(ctx, tx, organizationID, TrackerCreated, audit.Target{Type: "vehicle", ID: v.ID, Name: v.Code}, nil)
}

// DeleteTrackerTx makes the secret of a vehicle's tracker invalid, in the caller's transaction.
// Error: NotFound of the vehicle; a vehicle without a tracker is none.
func (s *Service) DeleteTrackerTx(ctx context.Context, tx *db.Tx, organizationID, vehicleID string) error {
	v, err := readVehicle(ctx, tx, organizationID, vehicleID, " FOR UPDATE")
	if err != nil {
		return err
	}
	if err := deleteTracker(ctx, tx, organizationID, vehicleID); err != nil {
		return err
	}
	return s.record(ctx, tx, organizationID, TrackerDeleted, audit.Target{Type: "vehicle", ID: v.ID, Name: v.Code}, nil)
}

func deleteTracker(ctx context.Context, tx *db.Tx, organizationID, vehicleID string) error {
	if err := tx.Queue(ctx, "DELETE FROM trackers WHERE organization_id = $1 AND vehicle_id = $2", organizationID, vehicleID); err != nil {
		return fmt.Errorf("delete a tracker: %w", err)
	}
	return nil
}

// TrackerVehicle returns the vehicle of a tracker's secret. Error: NotFound.
func (s *Service) TrackerVehicle(ctx context.Context, q db.Querier, secret string) (organizationID, vehicleID string, err error) {
	digest := sha256.Sum256([]byte(secret))
	err = q.QueryRow(ctx, "SELECT organization_id, vehicle_id FROM trackers WHERE digest = $1", digest[:]).Scan(&organizationID, &vehicleID)
	return organizationID, vehicleID, wrapReadError(err, "tracker")
}
