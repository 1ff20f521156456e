package rideindex

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// run is the row of an immutable set of segments.
type run struct {
	id    int64
	level int // 0 or 1
	rides int
}

// packedRun is an encoded run.
type packedRun struct {
	run
	segments []packedSegment
	zoneMaps []byte
}

// packRun encodes entries as a new run, with segments of up to size. It sorts rides.
func packRun(rides []Entry, size, level int) *packedRun {
	segments, zoneMaps := packSegments(rides, size)
	return &packedRun{run{rand.Int64(), level, len(rides)}, segments, packZoneMaps(zoneMaps)}
}

func (r *packedRun) insertTx(ctx context.Context, tx *db.Tx, organizationID string) error {
	_, err := tx.Exec(ctx, "INSERT INTO ride_layers (organization_id, id, home, rides, extents) VALUES ($1, $2, $3, $4, $5)",
		organizationID, r.id, r.level, r.rides, r.zoneMaps)
	if err != nil {
		return fmt.Errorf("insert a run of the ride index: %w", err)
	}
	for n, t := range r.segments {
		_, err := tx.Exec(ctx, "INSERT INTO ride_tiles (organization_id, layer_id, n, cells, facts, ids) VALUES ($1, $2, $3, $4, $5, $6)",
			organizationID, r.id, n, t.cells, t.facts, t.ids)
		if err != nil {
			return fmt.Errorf("insert a segment of the ride index: %w", err)
		}
	}
	return nil
}

func deleteRunsTx(ctx context.Context, tx *db.Tx, organizationID string, ids []int64) error {
	for _, statement := range [...]string{
		"DELETE FROM ride_tiles WHERE organization_id = $1 AND layer_id = ANY($2)",
		"DELETE FROM ride_layers WHERE organization_id = $1 AND id = ANY($2)",
	} {
		if err := tx.Queue(ctx, statement, organizationID, ids); err != nil {
			return fmt.Errorf("delete runs of the ride index: %w", err)
		}
	}
	return nil
}

// runsOf returns the runs of an organization.
func runsOf(ctx context.Context, q db.Querier, organizationID string) ([]run, error) {
	return db.All(ctx, q, func(row db.Row) (r run, err error) {
		err = row.Scan(&r.id, &r.level, &r.rides)
		return r, err
	}, "SELECT id, home, rides FROM ride_layers WHERE organization_id = $1", organizationID)
}

func runIDs(runs []run) []int64 {
	ids := make([]int64, len(runs))
	for i := range runs {
		ids[i] = runs[i].id
	}
	return ids
}

// ridesIn returns the number of entries of runs.
func ridesIn(runs []run) int {
	n := 0
	for _, r := range runs {
		n += r.rides
	}
	return n
}

// errRunsChanged reports that another process has replaced or deleted runs.
var errRunsChanged = errors.New("the runs of the ride index have changed")

// zoneMapsOf returns the zone maps of the segments of a run. They are cached and must not
// be modified. Errors: errRunsChanged, ErrDamaged.
func (x *Index) zoneMapsOf(ctx context.Context, q db.Querier, organizationID string, r run) ([]zoneMap, error) {
	list, err := x.zoneMaps.Load(r.id, func() ([]zoneMap, error) {
		var text []byte
		err := q.QueryRow(ctx, "SELECT extents FROM ride_layers WHERE organization_id = $1 AND id = $2", organizationID, r.id).Scan(&text)
		if errors.Is(err, db.ErrNoRows) {
			return nil, errRunsChanged
		}
		if err != nil {
			return nil, err
		}
		list, err := parseZoneMaps(text)
		n := 0
		for i := range list {
			n += list[i].rides
		}
		if err == nil && n != r.rides {
			err = ErrDamaged
		}
		return list, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the zone maps of a run: %w", err)
	}
	return list, nil
}

// readRuns returns the entries of runs, unordered; a ride may have several. Errors:
// errRunsChanged; ErrDamaged if a segment is damaged or missing.
func (x *Index) readRuns(ctx context.Context, organizationID string, runs []run) ([]Entry, error) {
	n := ridesIn(runs)
	var rides []Entry
	err := x.db.Read(ctx, func(tx *db.Tx) error {
		now, err := runsOf(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(runs, func(r run) bool { return !slices.Contains(now, r) }) {
			return errRunsChanged
		}
		rides = make([]Entry, 0, n)
		_, err = db.All(ctx, tx, func(row db.Row) (struct{}, error) {
			var p packedSegment
			if err := row.Scan(&p.cells, &p.facts, &p.ids); err != nil {
				return struct{}{}, err
			}
			some, err := p.unpack()
			rides = append(rides, some...)
			return struct{}{}, err
		}, "SELECT cells, facts, ids FROM ride_tiles WHERE organization_id = $1 AND layer_id = ANY($2)", organizationID, runIDs(runs))
		if err == nil && len(rides) != n {
			err = ErrDamaged
		}
		return err
	})
	return rides, err
}
