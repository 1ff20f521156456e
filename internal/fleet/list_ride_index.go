package fleet

import (
	"context"
	"errors"
	"math/bits"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/rideindex"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// Pages and exports of rides by area use the ride index; other lists use B-tree indexes.
// The index has the closed rides. Open ones are few, and have partial indexes by place and
// by each sort key. If the sort index is likely to reach a page of rides within a few
// thousand rows, it is scanned first; the cost does not depend on the position of the page
// in the list.

// Limits of lists that use the ride index.
type rideListLimits struct {
	open   int // open rides in a box from which a page scans their sort index instead of reading all
	export int // estimated rides in the box up to which an export collects all ids first
}

func defaultRideListLimits() rideListLimits { return rideListLimits{open: 1000, export: 200_000} }

// indexEntry returns the entry of a ride with these columns in the ride index; nil if it has
// none, because it is open or has no start position.
func indexEntry(row []column) (*rideindex.Entry, error) {
	value := func(name string) any {
		return row[slices.IndexFunc(row, func(c column) bool { return c.name == name })].value
	}
	if value("start_cell") == nil || RideStatus(value("status").(string)).Open() {
		return nil, nil
	}
	e, err := rideindex.NewEntry(value)
	return &e, err
}

// indexRide updates the ride index in the transaction of a change. before is nil for a new
// ride.
func (s *Service) indexRide(ctx context.Context, tx *db.Tx, organizationID string, before, after []column) error {
	var was *rideindex.Entry
	if before != nil {
		var err error
		if was, err = indexEntry(before); err != nil {
			return err
		}
	}
	is, err := indexEntry(after)
	if err != nil {
		return err
	}
	return s.rideIndex.UpdateTx(ctx, tx, organizationID, was, is)
}

// usesRideIndex reports whether the query uses the ride index: rides in an area, with
// filters on indexed columns only.
func (s *listQuery) usesRideIndex() bool {
	return s.rideIndex != nil && s.spatial && !slices.ContainsFunc(s.filters, func(f filter) bool { return !rideindex.HasColumn(f.column) })
}

// searchRideIndex starts a search of the rides after a position.
func (s *listQuery) searchRideIndex(at *scanPosition) (*rideindex.Search, error) {
	spec := &rideindex.ListSpec{OrganizationID: s.organization, Area: s.rects, FirstID: s.first, LastID: s.last, SortBy: s.key.column, Descending: s.descending}
	for _, f := range s.filters {
		spec.Filters = append(spec.Filters, rideindex.Filter{Column: f.column, Values: f.values, Low: f.low, High: f.high})
	}
	if at != nil {
		value, _ := at.value.(int64)
		spec.After = &rideindex.Hit{ID: at.id, Value: value}
	}
	return s.rideIndex.Search(s.ctx, s.q, spec)
}

// findInRideIndex is findInPartition by the ride index.
func (s *listQuery) findInRideIndex(want int) ([]candidate, error) {
	at, err := s.startPosition()
	if err != nil {
		return nil, err
	}
	if s.nullPartition { // a closed ride has all sort values
		return s.readOpen(at, want)
	}
	search, err := s.searchRideIndex(at)
	if err != nil {
		return nil, err
	}
	if s.canProbe(want) {
		if rows := probeRows(search, want); rows > 0 {
			found, err := s.probeSortIndex(at, rows, want)
			if err != nil || len(found) == want {
				return found, err
			}
		}
	}
	return s.readSearch(search, at, want)
}

// readSearch returns up to want rides of a search that starts at a position.
func (s *listQuery) readSearch(search *rideindex.Search, at *scanPosition, want int) ([]candidate, error) {
	var found []candidate
	for limit := want; ; limit *= 2 { // hits may be stale
		open, err := s.openHits(at, limit)
		if err != nil {
			return nil, err
		}
		hits, err := search.Next(s.ctx, limit, open)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(hits, maxPage+1) {
			current, err := s.dropStale(part, want)
			if err != nil {
				return nil, err
			}
			for _, h := range current {
				if found = append(found, candidate{id: h.ID, value: s.sortValue(h)}); len(found) == want {
					return found, nil
				}
			}
		}
		if len(hits) < limit {
			return found, nil
		}
		last := hits[len(hits)-1]
		at = &scanPosition{s.sortValue(last), last.ID}
	}
}

// sortValue returns the value of a hit as of a candidate.
func (s *listQuery) sortValue(h rideindex.Hit) any {
	if s.orderedByID() {
		return nil
	}
	return h.Value
}

// A probe scans up to maxProbeRows rows of the sort index, and probeFactor times as many
// as are expected to suffice.
const (
	maxProbeRows = 4096
	probeFactor  = 3
)

// canProbe reports whether the sort index covers all filters.
func (s *listQuery) canProbe(want int) bool {
	return s.scanCost(nil) <= 1 && s.first == "" && !s.orderedByID() && want < noLimit
}

// probeRows returns the number of rows to probe; 0 if a probe is unlikely to suffice.
func probeRows(search *rideindex.Search, want int) int {
	all, inArea := search.Estimate()
	rows := probeFactor * float64(want) * all / max(inArea, 1)
	if all == 0 || rows > maxProbeRows {
		return 0
	}
	return 1 << bits.Len(uint(rows)) // powers of two, so that few statements differ
}

// probeSortIndex scans rows rows of the sort index and returns the matches among them.
func (s *listQuery) probeSortIndex(at *scanPosition, rows, want int) ([]candidate, error) {
	var st keyset.Statement
	st.WriteString("SELECT id, value, NULL AS cell, number FROM (")
	s.writeIndexScan(&st, nil, "id, "+s.key.column+" AS value, "+s.cell+", "+s.rowNumber()+" AS number", at, nil, false)
	st.Addf(" ORDER BY %s LIMIT %d) AS r WHERE %s ORDER BY %s", s.ordering(), rows, s.area(&st, false), s.ordering())
	return s.read(&st, want)
}

// mayMatchOpen reports whether open rides can match. They have payment status not_due
// and no final amount, duration or end.
func (s *listQuery) mayMatchOpen() bool {
	for _, f := range s.filters {
		switch f.column {
		case "status":
			if !slices.Contains(f.values, string(Active)) && !slices.Contains(f.values, string(Paused)) {
				return false
			}
		case "payment_status":
			if !slices.Contains(f.values, "not_due") {
				return false
			}
		case "ended_at", "total_amount", "duration_seconds":
			return false
		}
	}
	return s.orderedByID() || s.key.column == "started_at" || s.key.column == "updated_at"
}

// openHits returns the first limit matching open rides after a position.
func (s *listQuery) openHits(at *scanPosition, limit int) ([]rideindex.Hit, error) {
	open, err := s.readOpen(at, limit)
	if err != nil {
		return nil, err
	}
	hits := make([]rideindex.Hit, len(open))
	for i, c := range open {
		value, _ := c.value.(int64)
		hits[i] = rideindex.Hit{ID: c.id, Value: value, Revision: rideindex.Current}
	}
	return hits, nil
}

// readOpen returns the first limit matching open rides after a position.
func (s *listQuery) readOpen(at *scanPosition, limit int) ([]candidate, error) {
	if !s.mayMatchOpen() {
		return nil, nil
	}
	open := *s
	open.indexCondition = "status IN ('active', 'paused') AND start_cell IS NOT NULL"
	if limit >= noLimit || s.key.column == "updated_at" { // without a partial index
		return open.readSet(cellSet, at, limit)
	}
	var st keyset.Statement
	st.WriteString("SELECT 1 AS one")
	open.writeSet(&st, cellSet, s.rects)
	st.Addf(" LIMIT 1 OFFSET %s", st.Arg(s.limits.open-1))
	one := 0
	switch err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&one); {
	case errors.Is(err, db.ErrNoRows):
		return open.readSet(cellSet, at, limit)
	case err != nil:
		return nil, err
	}
	return open.scanIndex(nil, at, nil, limit)
}

// dropStale returns the hits with the current revision of their ride. For a page it also
// reads the documents into s.docs.
func (s *listQuery) dropStale(hits []rideindex.Hit, want int) ([]rideindex.Hit, error) {
	var ids []string
	for _, h := range hits {
		if h.Revision != rideindex.Current {
			ids = append(ids, h.ID)
		}
	}
	if len(ids) == 0 {
		return hits, nil
	}
	var err error
	now := make(map[string]int64, len(ids))
	if want <= maxPage+1 {
		err = s.readRecords(ids)
		for id, d := range s.docs {
			now[id] = d.Revision
		}
	} else {
		err = s.readRevisions(ids, now)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(hits), func(h rideindex.Hit) bool { return h.Revision != rideindex.Current && h.Revision != now[h.ID] }), nil
}

// readRevisions adds the current revisions of rides to now.
func (s *listQuery) readRevisions(ids []string, now map[string]int64) error {
	_, err := db.All(s.ctx, s.q, func(row db.Row) (struct{}, error) {
		var id string
		var revision int64
		err := row.Scan(&id, &revision)
		now[id] = revision
		return struct{}{}, err
	}, "SELECT id, revision FROM rides WHERE organization_id = $1 AND id = ANY($2)", s.organization, ids)
	return err
}
