package fleet

import (
	"context"
	"log/slog"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	// MaxBulk bounds the vehicles of [Service.UpdateVehicles].
	MaxBulk = 1000
	// bulkBatch is the number of vehicles that one of its transactions updates.
	bulkBatch = 50
)

// VehicleOutcome is the result of an update of one of many vehicles.
type VehicleOutcome struct {
	ID     string
	Before Vehicle // as locked; zero if there is none
	After  Vehicle // as updated; zero with an error
	Err    error   // why it was not updated; nil: it was
}

// UpdateVehicles updates up to [MaxBulk] vehicles, in the order of their ids and in transactions of
// some of them. If the database fails half-way, the remaining vehicles have its error as their outcome;
// if it fails before, UpdateVehicles does. change returns the changes of a vehicle, which are
// applied one after the other, or the reason to leave it as it is. A vehicle that cannot be updated
// does not affect the others. The audit log has an entry for each updated one.
func (s *Service) UpdateVehicles(ctx context.Context, organizationID string, ids []string, by Actor, change func(v *Vehicle) ([]VehicleChange, error)) ([]VehicleOutcome, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > MaxBulk {
		return nil, problem.New(problem.TooLarge, "At most %d vehicles can be changed at once.", MaxBulk)
	}
	by.Vehicles = len(ids)
	var all []VehicleOutcome
	for len(all) < len(ids) {
		batch := ids[len(all):min(len(all)+bulkBatch, len(ids))]
		var done []VehicleOutcome
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			done = done[:0] // of an attempt before
			for _, id := range batch {
				o := VehicleOutcome{ID: id}
				o.Before, o.After, o.Err = s.updateOneOfMany(ctx, tx, organizationID, id, by, change)
				if o.Err != nil && !isRefusal(o.Err) {
					return o.Err
				}
				done = append(done, o)
			}
			return nil
		})
		if err != nil && len(all) == 0 {
			return nil, err
		}
		if err != nil {
			s.log.LogAttrs(ctx, slog.LevelError, "update many vehicles failed half-way", slog.Int("updated", len(all)), slog.Any("error", err))
			for _, id := range ids[len(all):] {
				all = append(all, VehicleOutcome{ID: id, Err: err})
			}
			return all, nil
		}
		all = append(all, done...)
	}
	return all, nil
}

func (s *Service) updateOneOfMany(ctx context.Context, tx *db.Tx, organizationID, id string, by Actor, change func(v *Vehicle) ([]VehicleChange, error)) (before, after Vehicle, err error) {
	before, err = s.LockVehicleTx(ctx, tx, organizationID, id)
	if err != nil {
		return before, Vehicle{}, err
	}
	changes, err := change(&before)
	after = before
	for i := 0; i < len(changes) && err == nil; i++ {
		after, err = s.UpdateVehicleTx(ctx, tx, organizationID, after, changes[i], by)
	}
	if err != nil {
		return before, Vehicle{}, err
	}
	return before, after, nil
}

// isRefusal reports whether an error is about the record, not about the database.
func isRefusal(err error) bool {
	switch problem.Of(err) {
	case problem.Invalid, problem.Conflict, problem.Precondition, problem.NotFound:
		return true
	}
	return false
}
