package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"

	"golang.org/x/sync/errgroup"
)

// basis is the time by which rides are counted. If different rides take it from
// different columns, each column is a source.
type basis struct {
	name    string
	sources []source
}

type source struct{ column, where string }

// startedBasis and endedBasis are the bases of fleet-api.md 7. A reservation that
// never started counts at its creation. Open reservations do not count.
func startedBasis() basis {
	return basis{"started_at", []source{{"started_at", "started_at IS NOT NULL"}, {"reserved_at", "started_at IS NULL"}}}
}

func endedBasis() basis {
	return basis{"ended_at", []source{{"ended_at", "ended_at IS NOT NULL"}}}
}

// of returns the basis time of a ride, zero if it does not count.
func (b *basis) of(r *Ride) time.Time {
	switch {
	case r == nil || r.Status == Reserved:
		return time.Time{}
	case b.name == "ended_at":
		return r.EndedAt.Std()
	case r.StartedAt.Std().IsZero():
		return r.ReservedAt.Std()
	}
	return r.StartedAt.Std()
}

const (
	// packedRides is the minimum number of rides of a chunk; with two sources the
	// maximum is twice that. A change of one ride requires reading all rides of its
	// chunk. Per ride, rollups have that many times fewer rows.
	packedRides = 2048
	// a chunk with more than splitFactor*packedRides rides is split before packing
	splitFactor = 4
	// packDelay is the minimum age of rides to pack. Most have ended by then.
	packDelay = time.Hour
	// packedAtOnce limits the chunks of a call of packPending, packedFleets the
	// organizations it checks for new rides.
	packedAtOnce = 8
	packedFleets = 16
	// packedAtOnceByAll is packedAtOnce for PackRollups, which has no concurrent
	// users.
	packedAtOnceByAll = 32
)

// chunk is an interval of time with a rollup, packed or to be packed: from start
// (inclusive) to end (exclusive), in microseconds.
type chunk struct {
	organization string
	basis        basis
	start, end   int64
	stamp        int64
}

// invalidateRollups invalidates the rollups that a change of a ride affects, before the commit.
// before is nil for a new ride, after for a deleted one. The same transaction must have
// locked or written the ride, so that [db.DB.WaitForWrites] waits for it.
func (s *Service) invalidateRollups(ctx context.Context, tx *db.Tx, organizationID string, before, after *Ride) {
	for _, b := range [...]basis{startedBasis(), endedBasis()} {
		was, is := b.of(before), b.of(after)
		if !was.IsZero() && was.Equal(is) && factOf(before, was) == factOf(after, is) {
			continue
		}
		for i, at := range [...]time.Time{was, is} {
			if at.IsZero() || i == 1 && is.Equal(was) {
				continue
			}
			// In the order of time, to avoid deadlocks.
			tx.BeforeCommit(fmt.Sprintf("fleet rollups %s %s %019d", organizationID, b.name, at.UnixMicro()), func() error {
				_, err := tx.Exec(ctx, `UPDATE ride_facts SET stamp = $4, runs = NULL, rides = NULL, money = NULL, times = NULL
					WHERE organization_id = $1 AND basis = $2 AND end_at > $3 AND start_at = (SELECT start_at FROM ride_facts
						WHERE organization_id = $1 AND basis = $2 AND start_at <= $3 ORDER BY start_at DESC LIMIT 1)`,
					organizationID, b.name, at.UnixMicro(), newStamp())
				if err != nil {
					return fmt.Errorf("invalidate the rollups of a ride: %w", err)
				}
				return nil
			})
		}
	}
}

// deleteRollups deletes an organization's rollups together with its rides.
func (s *Service) deleteRollups(ctx context.Context, tx *db.Tx, organizationID string) error {
	if err := tx.Lock(ctx, rollupLock(organizationID)); err != nil {
		return err
	}
	for _, table := range [...]string{"ride_facts", "ride_fact_names"} {
		if err := tx.Queue(ctx, "DELETE FROM "+table+" WHERE organization_id = $1", organizationID); err != nil {
			return fmt.Errorf("delete rollups: %w", err)
		}
	}
	return nil
}

// rollupLock is the name of the lock for adding chunks and dictionary entries.
func rollupLock(organizationID string) string { return "fleet facts " + organizationID }

// packPending packs some invalidated chunks of any organization, and then some new
// rides of a few organizations in turn. One goroutine per process ([Service.Run])
// calls it; any number of processes may.
func (s *Service) packPending(ctx context.Context) error {
	fleets, err := db.All(ctx, s.db, func(r db.Row) (a orgContext, err error) {
		var offset int64
		err = r.Scan(&a.id, &offset)
		a.offset = time.Duration(offset) * time.Microsecond
		return a, err
	}, "SELECT organization_id, clock_offset FROM settings WHERE organization_id > $1 ORDER BY organization_id LIMIT $2", s.packCursor, packedFleets)
	if err != nil {
		return fmt.Errorf("find rides to pack: %w", err)
	}
	s.packCursor = "" // start over
	if len(fleets) == packedFleets {
		s.packCursor = fleets[len(fleets)-1].id
	}
	var failed error // of some organizations; the rest proceeds
	for _, a := range fleets {
		for _, b := range [...]basis{startedBasis(), endedBasis()} {
			until := s.db.Now().Add(a.offset - packDelay).UnixMicro()
			if err := s.addChunks(ctx, a.id, b, until, false); err != nil {
				failed = errors.Join(failed, fmt.Errorf("find rides of %s to pack: %w", a.id, err))
			}
		}
		if err := s.rideIndex.Maintain(ctx, a.id); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", a.id, err))
		}
	}
	_, err = s.packWhere(ctx, packedAtOnce, "runs IS NULL")
	return errors.Join(failed, err)
}

// PackRollups packs all rides of an organization, including the newest. It serves
// bulk loads.
func (s *Service) PackRollups(ctx context.Context, organizationID string) error {
	for _, b := range [...]basis{startedBasis(), endedBasis()} {
		if err := s.addChunks(ctx, organizationID, b, math.MaxInt64, true); err != nil {
			return err
		}
		for more := true; more; {
			var err error
			if more, err = s.packWhere(ctx, packedAtOnceByAll, "organization_id = $2 AND basis = $3 AND runs IS NULL", organizationID, b.name); err != nil {
				return err
			}
		}
	}
	return s.rideIndex.Maintain(ctx, organizationID)
}

// addChunks adds chunks after the last one while there are enough rides before
// until; with rest, also one for the remaining rides.
func (s *Service) addChunks(ctx context.Context, organizationID string, b basis, until int64, rest bool) error {
	for more := true; more; {
		end, err := lastChunkEnd(ctx, s.db, organizationID, b)
		if err != nil {
			return err
		}
		// Usually there is nothing to add; avoid a write transaction to find out.
		if at, err := nextChunkEnd(ctx, s.db, chunk{organization: organizationID, basis: b, start: end, end: until}, s.packedRides, rest); err != nil || at == 0 {
			return err
		}
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			if err := tx.Lock(ctx, rollupLock(organizationID)); err != nil {
				return err
			}
			start, err := lastChunkEnd(ctx, tx, organizationID, b)
			for n := 0; err == nil; n++ {
				var at int64
				if at, err = nextChunkEnd(ctx, tx, chunk{organization: organizationID, basis: b, start: start, end: until}, s.packedRides, rest); err != nil || at == 0 || n == packedAtOnce {
					more = at != 0
					return err
				}
				err = insertChunk(ctx, tx, chunk{organizationID, b, start, at, newStamp()})
				start = at
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func insertChunk(ctx context.Context, tx *db.Tx, p chunk) error {
	_, err := tx.Exec(ctx, "INSERT INTO ride_facts (organization_id, basis, start_at, end_at, stamp) VALUES ($1, $2, $3, $4, $5)",
		p.organization, p.basis.name, p.start, p.end, p.stamp)
	return err
}

// lastChunkEnd is the end of the last chunk, or the least time.
func lastChunkEnd(ctx context.Context, q db.Querier, organizationID string, b basis) (end int64, err error) {
	err = q.QueryRow(ctx, "SELECT end_at FROM ride_facts WHERE organization_id = $1 AND basis = $2 ORDER BY start_at DESC LIMIT 1",
		organizationID, b.name).Scan(&end)
	if errors.Is(err, db.ErrNoRows) {
		return math.MinInt64, nil
	}
	return end, err
}

// nextChunkEnd returns where a chunk of about n rides ends that starts with within, 0
// if within has fewer. With rest, the chunk then ends after the last ride. It ends at
// a whole millisecond, the precision of times in documents.
func nextChunkEnd(ctx context.Context, q db.Querier, within chunk, n int, rest bool) (int64, error) {
	end, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, src := range within.basis.sources {
		nth := func(order string, skip int) (at int64, err error) {
			err = q.QueryRow(ctx, fmt.Sprintf(`SELECT %[1]s FROM rides WHERE organization_id = $1 AND %[2]s AND %[1]s >= $2 AND %[1]s < $3
				ORDER BY %[1]s %[3]s LIMIT 1 OFFSET $4`, src.column, src.where, order), within.organization, within.start, within.end, skip).Scan(&at)
			return at, err
		}
		at, err := nth("", n)
		if errors.Is(err, db.ErrNoRows) {
			if rest {
				if at, err = nth("DESC", 0); err == nil {
					last = max(last, at)
				}
			}
			if err == nil || errors.Is(err, db.ErrNoRows) {
				continue
			}
		}
		if err != nil {
			return 0, err
		}
		first, err := nth("", 0)
		if err != nil {
			return 0, err
		}
		if at, first = wholeMillis(at), wholeMillis(first); at == first { // all at one time
			at += 1000
		}
		end = min(end, at)
	}
	if end != math.MaxInt64 {
		return end, nil
	}
	if last != math.MinInt64 {
		return wholeMillis(last) + 1000, nil
	}
	return 0, nil
}

// wholeMillis truncates microseconds to milliseconds.
func wholeMillis(micros int64) int64 { return time.UnixMicro(micros).UnixMilli() * 1000 }

// packWhere packs up to n chunks that meet a condition, and reports whether there
// may be more. $1 is reserved.
func (s *Service) packWhere(ctx context.Context, n int, where string, args ...any) (more bool, err error) {
	list, err := db.All(ctx, s.db, func(r db.Row) (p chunk, err error) {
		err = r.Scan(&p.organization, &p.basis.name, &p.start, &p.end, &p.stamp)
		if p.basis.name == "ended_at" {
			p.basis = endedBasis()
		} else {
			p.basis = startedBasis()
		}
		return p, err
	}, "SELECT organization_id, basis, start_at, end_at, stamp FROM ride_facts WHERE "+where+" ORDER BY organization_id, basis, start_at LIMIT $1",
		append([]any{n}, args...)...)
	if err != nil || len(list) == 0 {
		return false, err
	}
	// Transactions that do not see these chunks have ended after this, and are
	// read.
	if err := s.db.WaitForWrites(ctx); err != nil {
		return false, err
	}
	for len(list) > 0 { // the chunks of an organization share a dictionary
		end := 1
		for end < len(list) && list[end].organization == list[0].organization {
			end++
		}
		if failed := s.packChunks(ctx, list[0].organization, list[:end]); failed != nil {
			err = errors.Join(err, fmt.Errorf("pack rides: %w", failed))
		}
		list = list[end:]
	}
	return true, err
}

// packChunks packs or splits chunks of an organization. A chunk that is invalidated
// meanwhile remains invalid.
func (s *Service) packChunks(ctx context.Context, organizationID string, list []chunk) error {
	found := make([][]fact, len(list))
	divide := make([]bool, len(list))
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(packReaders)
	for i, p := range list {
		g.Go(func() error {
			return s.db.Read(reading, func(tx *db.Tx) error {
				at, err := nextChunkEnd(reading, tx, p, splitFactor*s.packedRides, false)
				if err != nil {
					return err
				}
				if divide[i] = at != 0 && at < p.end; !divide[i] {
					found[i], err = readFacts(reading, tx, organizationID, p.basis, p.start, p.end)
				}
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, p := range list {
		if divide[i] {
			if err := s.splitChunk(ctx, p); err != nil {
				return err
			}
		}
	}
	// A dictionary entry for a chunk invalidated meanwhile is harmless.
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, rollupLock(organizationID)); err != nil {
			return err
		}
		names := newDictionary()
		if err := names.add(ctx, tx, organizationID, found...); err != nil {
			return err
		}
		for i, p := range list {
			if divide[i] {
				continue
			}
			packed := packFacts(names.encode(found[i]))
			_, err := tx.Exec(ctx, `UPDATE ride_facts SET runs = $5, rides = $6, money = $7, times = $8
				WHERE organization_id = $1 AND basis = $2 AND start_at = $3 AND stamp = $4`,
				organizationID, p.basis.name, p.start, p.stamp, packed.runs, packed.rides, packed.money, packed.times)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// packReaders is the number of chunks read concurrently.
const packReaders = 2

// splitChunk splits a chunk into several.
func (s *Service) splitChunk(ctx context.Context, p chunk) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, rollupLock(p.organization)); err != nil {
			return err
		}
		at, err := nextChunkEnd(ctx, tx, p, s.packedRides, false)
		if err != nil || at == 0 || at >= p.end {
			return err
		}
		n, err := tx.Exec(ctx, "UPDATE ride_facts SET end_at = $5, stamp = $6 WHERE organization_id = $1 AND basis = $2 AND start_at = $3 AND stamp = $4",
			p.organization, p.basis.name, p.start, p.stamp, at, newStamp())
		if err != nil || n == 0 {
			return err
		}
		for start := at; start < p.end; start = at {
			if at, err = nextChunkEnd(ctx, tx, chunk{organization: p.organization, basis: p.basis, start: start, end: p.end}, s.packedRides, false); err != nil {
				return err
			}
			if at == 0 {
				at = p.end
			}
			if err := insertChunk(ctx, tx, chunk{p.organization, p.basis, start, min(at, p.end), newStamp()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// readFacts returns the facts of rides from start (inclusive) to end (exclusive).
// The result does not reference the documents.
func readFacts(ctx context.Context, q db.Querier, organizationID string, b basis, start, end int64) ([]fact, error) {
	var facts []fact
	groups := make(map[factGroup]factGroup)
	for _, src := range b.sources {
		list, err := db.All(ctx, q, func(r db.Row) (fact, error) {
			var at int64
			var typeID, doc string
			if err := r.Scan(&at, &typeID, &doc); err != nil {
				return fact{}, err
			}
			f, err := readFact(doc, typeID, time.UnixMicro(at))
			f.customer, f.vehicle = strings.Clone(f.customer), strings.Clone(f.vehicle)
			own, ok := groups[f.group]
			if !ok {
				for member := range own {
					own[member] = strings.Clone(f.group[member])
				}
				groups[own] = own
			}
			f.group = own
			return f, err
		}, fmt.Sprintf("SELECT %[1]s, vehicle_type_id, doc FROM rides WHERE organization_id = $1 AND %[2]s AND %[1]s >= $2 AND %[1]s < $3 ORDER BY %[1]s",
			src.column, src.where), organizationID, start, end)
		if err != nil {
			return nil, fmt.Errorf("read rides: %w", err)
		}
		for i := range list {
			if list[i].group[statusMember] != string(Reserved) {
				facts = append(facts, list[i])
			}
		}
	}
	return facts, nil
}

// Kinds of dictionary entries.
const (
	customerName = iota
	vehicleName
	groupName
	nameKinds
)

var nameKind = [nameKinds]string{"customer", "vehicle", "group"}

// dictionary maps names to numbers, by kind.
type dictionary [nameKinds]map[string]int64

func newDictionary() *dictionary {
	var n dictionary
	for kind := range n {
		n[kind] = make(map[string]int64)
	}
	return &n
}

// missing lists the names in facts without a number.
func (n *dictionary) missing(lists ...[]fact) (list [nameKinds][]string) {
	var seen [nameKinds]map[string]bool
	for kind := range seen {
		seen[kind] = make(map[string]bool)
	}
	note := func(kind int, name string) {
		if _, ok := n[kind][name]; !ok && !seen[kind][name] {
			seen[kind][name] = true
			list[kind] = append(list[kind], name)
		}
	}
	groups := make(map[factGroup]bool)
	for _, facts := range lists {
		for i := range facts {
			if facts[i].customer != "" {
				note(customerName, facts[i].customer)
			}
			note(vehicleName, facts[i].vehicle)
			if g := facts[i].group; !groups[g] {
				groups[g] = true
				note(groupName, g.name())
			}
		}
	}
	return list
}

// manyNames is the number of lookups from which on all names are read instead.
const manyNames = 10_000

// load reads the existing numbers of the names in facts.
func (n *dictionary) load(ctx context.Context, q db.Querier, organizationID string, lists ...[]fact) error {
	for kind, list := range n.missing(lists...) {
		if len(list) == 0 {
			continue
		}
		where, args := "", []any{organizationID, nameKind[kind]}
		if len(list) < manyNames {
			where, args = " AND name = ANY($3)", append(args, list)
		}
		rows, err := q.Query(ctx, "SELECT name, n FROM ride_fact_names WHERE organization_id = $1 AND kind = $2"+where, args...)
		if err != nil {
			return err
		}
		for rows.Next() {
			var name string
			var number int64
			if err := rows.Scan(&name, &number); err != nil {
				return errors.Join(err, rows.Close())
			}
			n[kind][name] = number
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// add loads the names in facts and adds missing ones.
func (n *dictionary) add(ctx context.Context, tx *db.Tx, organizationID string, lists ...[]fact) error {
	if err := n.load(ctx, tx, organizationID, lists...); err != nil {
		return err
	}
	for kind, list := range n.missing(lists...) {
		if len(list) == 0 {
			continue
		}
		var last sql.NullInt64
		err := tx.QueryRow(ctx, "SELECT max(n) FROM ride_fact_names WHERE organization_id = $1 AND kind = $2", organizationID, nameKind[kind]).Scan(&last)
		if err != nil {
			return err
		}
		next := int64(0)
		if last.Valid {
			next = last.Int64 + 1
		}
		for i, name := range list {
			number := next + int64(i)
			_, err := tx.Exec(ctx, "INSERT INTO ride_fact_names (organization_id, kind, name, n) VALUES ($1, $2, $3, $4)", organizationID, nameKind[kind], name, number)
			if err != nil {
				return err
			}
			n[kind][name] = number
		}
	}
	return nil
}

// encode replaces names by numbers. All names must be loaded.
func (n *dictionary) encode(facts []fact) []encodedFact {
	groups := make(map[factGroup]int64)
	out := make([]encodedFact, len(facts))
	for i := range facts {
		f := &facts[i]
		group, ok := groups[f.group]
		if !ok {
			group = n[groupName][f.group.name()]
			groups[f.group] = group
		}
		customer := int64(0)
		if f.customer != "" {
			customer = n[customerName][f.customer] + 1
		}
		out[i] = encodedFact{f.at, group, [...]int64{customer, n[vehicleName][f.vehicle], f.duration, f.distance}, f.money}
	}
	return out
}
