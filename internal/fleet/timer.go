package fleet

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	dueEvery  = time.Second
	packEvery = time.Second
	// idlePackEvery is the interval between searches for rides to pack while no
	// transaction commits. Rides become packable packDelay after their end.
	idlePackEvery = time.Minute
	// dueBatch bounds the records of one transaction, and so the time that other
	// transactions wait for it.
	dueBatch = 50
	// dueShare is the time after which the due changes of an organization wait for those of others.
	dueShare = time.Second
)

// Run applies due changes and corrects distances within a second, packs rollups and deletes expired
// tracks and alerts, until ctx ends. Any number of processes may run it.
func (s *Service) Run(ctx context.Context) {
	if err := s.placeVehicles(ctx); err != nil && ctx.Err() == nil {
		s.log.LogAttrs(ctx, slog.LevelError, "place the vehicles failed", slog.Any("error", err))
	}
	var packing sync.WaitGroup
	defer packing.Wait()
	packing.Go(func() { s.runRollups(ctx) })
	packing.Go(func() { loop.Every(ctx, pruneEvery, s.log, "delete expired tracks", s.pruneTracks) })
	packing.Go(func() { loop.Every(ctx, pruneEvery, s.log, "delete expired alerts", s.pruneAlerts) })
	packing.Go(func() { loop.Every(ctx, pruneEvery, s.log, "delete former pricing plans", s.pruneFormerPlans) })
	changes := s.db.Changes()
	var next time.Time // next due time as of the last commit
	loop.Every(ctx, dueEvery, s.log, "apply due changes", func(ctx context.Context) (err error) {
		for more := true; more && err == nil; {
			more = false
			committed := changes.Any(ctx)
			if committed {
				if err := s.correctDistances(ctx); err != nil {
					return err
				}
			}
			if committed || !next.IsZero() && !s.db.Now().Before(next) {
				next, more, err = s.applyAllDue(ctx, dueShare)
			}
		}
		return err
	})
}

// runRollups packs rollups until ctx ends. It is separate so that due changes do
// not wait for it.
func (s *Service) runRollups(ctx context.Context) {
	changes := s.db.Changes()
	var next time.Time
	loop.Every(ctx, packEvery, s.log, "pack rollups", func(ctx context.Context) error {
		if !changes.Any(ctx) && time.Now().Before(next) {
			return nil
		}
		err := s.packPending(ctx)
		if next = time.Now(); err == nil {
			next = next.Add(idlePackEvery)
		}
		return err
	})
}

// applyAllDue applies the due changes of all organizations, of each for a share of time. next is the
// next due time while no transaction commits, zero for none. more reports that some are due already.
func (s *Service) applyAllDue(ctx context.Context, share time.Duration) (next time.Time, more bool, err error) {
	organizations, err := db.All(ctx, s.db, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT s.organization_id FROM settings s WHERE "+
		forTimers("EXISTS (SELECT 1 FROM %[1]s t WHERE t.organization_id = s.organization_id AND t.%[2]s <= $1 + s.clock_offset)", " OR "), s.db.Now().UnixMicro())
	if err != nil {
		return s.db.Now(), false, fmt.Errorf("look up organizations with due changes: %w", err)
	}
	failed := false
	for _, id := range organizations {
		left, err := s.applyDue(ctx, id, share)
		more = more || left
		if err != nil {
			if ctx.Err() != nil {
				return s.db.Now(), false, err
			}
			failed = true
			s.log.LogAttrs(ctx, slog.LevelError, "apply due changes of a fleet failed; retrying", slog.String("organization", id), slog.Any("error", err))
		}
	}
	if failed || len(organizations) > 0 || s.db.Postgres() { // which is polled every second
		return s.db.Now(), more, nil
	}
	err = s.db.QueryRow(ctx, "SELECT min(due) FROM ("+
		forTimers("SELECT (SELECT min(t.%[2]s) FROM %[1]s t WHERE t.organization_id = s.organization_id AND t.%[2]s IS NOT NULL) - s.clock_offset AS due FROM settings s", " UNION ALL ")+
		") AS dues").Scan(db.IntoTime(&next))
	if err != nil {
		return s.db.Now(), false, fmt.Errorf("look up the next due time: %w", err)
	}
	return next, false, nil
}

// applyDue applies the due changes of an organization, and returns true if there were more after a
// share of time. If a batch fails, each record is tried on its own.
func (s *Service) applyDue(ctx context.Context, organizationID string, share time.Duration) (more bool, err error) {
	for start := time.Now(); ; {
		var list timers
		err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
			a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
			if err != nil {
				return err
			}
			var until time.Time
			if list, until, err = dueTimers(ctx, tx, a.id, a.now, dueBatch); err != nil {
				return err
			}
			more = until.Before(a.now)
			return s.applyTimers(ctx, tx, a, list, until, false)
		})
		if err != nil && problem.Of(err) != problem.Unavailable && len(list) > 1 {
			return false, s.applyDueIndividually(ctx, organizationID, list)
		}
		if err != nil || !more || time.Since(start) >= share {
			return more && err == nil, err
		}
	}
}

// applyDueIndividually applies each timer in its own transaction and returns the last
// error.
func (s *Service) applyDueIndividually(ctx context.Context, organizationID string, list timers) (last error) {
	for _, t := range list {
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
			if err != nil {
				return err
			}
			return s.applyTimers(ctx, tx, a, timers{t}, t.at, false)
		})
		if err != nil {
			last = err
		}
	}
	return last
}

// timer is the due time of a ride, a vehicle, a task, or of the alert rules of a vehicle.
type timer struct {
	at   time.Time
	id   string
	kind timerKind
}

// timerKind orders timers of a record that are due at the same time.
type timerKind int

const (
	rideTimer timerKind = iota
	vehicleTimer
	taskTimer
	alertTimer
)

// timerColumns are the tables and columns of due times, by [timerKind].
var timerColumns = [...]struct{ table, column string }{{"rides", "due_at"}, {"vehicles", "due_at"}, {"tasks", "timer_at"}, {"vehicles", "alert_at"}}

// forTimers writes a part of a statement for each kind of timers, of its table and its column.
func forTimers(part, separator string) string {
	var parts []string
	for _, at := range timerColumns {
		parts = append(parts, fmt.Sprintf(part, at.table, at.column))
	}
	return strings.Join(parts, separator)
}

// timers is a heap with the earliest timer first.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].compare(t[j]) < 0 }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

func (t timer) compare(o timer) int {
	return cmp.Or(t.at.Compare(o.at), cmp.Compare(t.id, o.id), cmp.Compare(t.kind, o.kind))
}

// dueTimers returns the timers of an organization due by until, at most limit of
// each kind (0: all). The returned time is the one up to which they are complete.
func dueTimers(ctx context.Context, tx *db.Tx, organizationID string, until time.Time, limit int) (timers, time.Time, error) {
	var all timers
	horizon := until
	for kind, at := range timerColumns {
		query := "SELECT id, " + at.column + " FROM " + at.table + " WHERE organization_id = $1 AND " + at.column + " <= $2 ORDER BY " + at.column + ", id"
		args := []any{organizationID, until.UnixMicro()}
		if limit > 0 {
			query, args = query+" LIMIT $3", append(args, limit)
		}
		list, err := db.All(ctx, tx, func(row db.Row) (timer, error) {
			t := timer{kind: timerKind(kind)}
			err := row.Scan(&t.id, db.IntoTime(&t.at))
			return t, err
		}, query, args...)
		if err != nil {
			return nil, until, fmt.Errorf("read timers: %w", err)
		}
		if last := len(list) - 1; limit > 0 && len(list) == limit && list[last].at.Before(horizon) {
			horizon = list[last].at
		}
		all = append(all, list...)
	}
	return all, horizon, nil
}

// applyTimers applies timers in order, and those that they set in turn, due by until. With
// travelling, a.now moves to each due time.
func (s *Service) applyTimers(ctx context.Context, tx *db.Tx, a orgContext, list timers, until time.Time, travelling bool) error {
	if err := s.lockTimers(ctx, tx, a.id, list); err != nil {
		return err
	}
	queue := append(timers(nil), list...)
	heap.Init(&queue)
	for len(queue) > 0 {
		t := heap.Pop(&queue).(timer)
		if t.at.After(until) {
			return nil
		}
		if travelling && t.at.After(a.now) { // else it was due before the clock moved
			a.now = t.at
		}
		next, err := s.applyTimer(ctx, tx, a, t)
		if err != nil {
			return err
		}
		for _, n := range next {
			if !n.at.IsZero() && !n.at.After(until) {
				heap.Push(&queue, n)
			}
		}
	}
	return nil
}

// lockTimers locks the records of timers, which are applied in another order.
func (s *Service) lockTimers(ctx context.Context, tx *db.Tx, organizationID string, list timers) error {
	if len(list) < 2 || !s.db.Postgres() {
		return nil
	}
	var rides, vehicles, tasks []string
	for _, t := range list {
		switch t.kind {
		case rideTimer:
			rides = append(rides, t.id)
		case taskTimer:
			tasks = append(tasks, t.id)
		default:
			vehicles = append(vehicles, t.id)
		}
	}
	if len(tasks) > 0 { // tasks are locked after their vehicles
		of, err := db.All(ctx, tx, scanID, "SELECT DISTINCT vehicle_id FROM tasks WHERE organization_id = $1 AND id = ANY($2)", organizationID, tasks)
		if err != nil {
			return fmt.Errorf("read the vehicles of tasks: %w", err)
		}
		vehicles = append(vehicles, of...)
	}
	return s.lockRecords(ctx, tx, organizationID, rides, vehicles)
}

// lockRecords locks rides with their vehicles and customers, and more vehicles and customers, before any
// of them changes. Transactions that change several records do so, in this order: rides, vehicles,
// customers, each by id. Rollups and the numbering of events are
// locked before the commit. So transactions wait for each other, and never in a circle.
func (s *Service) lockRecords(ctx context.Context, tx *db.Tx, organizationID string, rides, vehicles []string, customers ...string) error {
	if !s.db.Postgres() { // where transactions exclude each other
		return nil
	}
	type ride struct{ id, vehicleID, customerID string }
	locked, err := db.All(ctx, tx, func(row db.Row) (r ride, err error) {
		err = row.Scan(&r.id, &r.vehicleID, db.IntoText(&r.customerID))
		return r, err
	}, "SELECT id, vehicle_id, customer_id FROM rides WHERE organization_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE", organizationID, rides)
	if err != nil {
		return fmt.Errorf("lock rides: %w", err)
	}
	for _, r := range locked {
		vehicles, customers = append(vehicles, r.vehicleID), append(customers, r.customerID)
	}
	for _, records := range []struct {
		table string
		ids   []string
	}{{"vehicles", vehicles}, {"customers", customers}} {
		_, err := db.All(ctx, tx, func(row db.Row) (id string, err error) {
			err = row.Scan(&id)
			return id, err
		}, "SELECT id FROM "+records.table+" WHERE organization_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE", organizationID, records.ids)
		if err != nil {
			return fmt.Errorf("lock %s: %w", records.table, err)
		}
	}
	return nil
}

// applyTimer applies a due timer and returns the next ones of its vehicle; those at the zero time are
// none.
func (s *Service) applyTimer(ctx context.Context, tx *db.Tx, a orgContext, t timer) ([]timer, error) {
	switch t.kind {
	case rideTimer:
		return s.applyRideTimer(ctx, tx, a, t)
	case vehicleTimer:
		return s.applyVehicleTimer(ctx, tx, a, t)
	case taskTimer:
		return nil, s.applyTaskTimer(ctx, tx, a, t)
	}
	next, err := s.applyAlertTimer(ctx, tx, a, t)
	return []timer{{next, t.id, alertTimer}}, err
}

// applyRideTimer ends a due ride, and returns the timers of its vehicle.
func (s *Service) applyRideTimer(ctx context.Context, tx *db.Tx, a orgContext, t timer) ([]timer, error) {
	r, err := readRide(ctx, tx, a.id, t.id, " FOR UPDATE")
	if err != nil || !r.Status.Open() {
		return nil, ignoreAbsent(err)
	}
	if r, err = s.expireRide(ctx, tx, a, r); err != nil || r.Status.Open() {
		return nil, err // open: its due time has moved
	}
	next, alert := timer{id: r.VehicleID, kind: vehicleTimer}, timer{id: r.VehicleID, kind: alertTimer}
	err = tx.QueryRow(ctx, "SELECT due_at, alert_at FROM vehicles WHERE organization_id = $1 AND id = $2", a.id, r.VehicleID).Scan(db.IntoTime(&next.at), db.IntoTime(&alert.at))
	return []timer{next, alert}, err
}

// applyVehicleTimer applies the due transitions of a vehicle and returns its next timers.
func (s *Service) applyVehicleTimer(ctx context.Context, tx *db.Tx, a orgContext, t timer) ([]timer, error) {
	v, stored, err := lockVehicle(ctx, tx, a, t.id, t.at)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	if len(v.changes) > 0 {
		err := s.saveVehicle(ctx, tx, a, &stored, &v)
		return []timer{{v.dueAt, v.ID, vehicleTimer}, {v.alertAt, v.ID, alertTimer}}, err
	}
	if due := v.due(a.settings); !v.dueAt.After(t.at) && !due.Equal(v.dueAt) {
		_, err := tx.Exec(ctx, "UPDATE vehicles SET due_at = $3 WHERE organization_id = $1 AND id = $2", a.id, v.ID, db.Time(due))
		return []timer{{due, v.ID, vehicleTimer}}, err
	}
	return nil, nil
}

// ignoreAbsent turns NotFound into nil.
func ignoreAbsent(err error) error {
	if problem.Of(err) == problem.NotFound {
		return nil
	}
	return err
}
