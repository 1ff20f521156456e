package fleet

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/rideindex"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// A list is found without statistics, in growing steps. Each step scans some rows
// along the index of the sort key and tests the filters. If few rows match, it
// counts the rows of the other usable indexes (filter sets), and reads the cheapest
// set if that costs less than the rest of the scan. So a frequent value costs a
// short scan and a rare value a small set, wherever the matches are in the order.
// Only keys and cells are read until the page is known, then its documents.

// Integers is a range of integers with inclusive bounds; nil means unbounded.
type Integers struct{ Low, High *int64 }

const (
	defaultPage = 20
	maxPage     = 100
)

// sortKey is a sort key of a list.
type sortKey struct {
	column string // NULL sorts last; empty: id
	text   bool
	always bool // NOT NULL
	// nulls is a filter with an ordered index that matches all rows where column is
	// NULL; nil: the column's own index has them.
	nulls *filter
}

// filter is a predicate on one column.
type filter struct {
	column     string
	values     []string // any of these; nil: from low to high
	low        int64
	high       int64
	index      bool    // has an index on (organization_id, column, id, ...)
	where      string  // further predicate of that partial index; empty: none
	cells      []int64 // any of these; only in a scan by region
	nextColumn *filter // the next column of that index; nil: the sort key
}

// text returns the SQL predicate.
func (f *filter) text(st *keyset.Statement) string {
	if len(f.cells) == 1 {
		text := f.column + " = " + st.Arg(f.cells[0])
		if f.nextColumn != nil {
			text += " AND " + f.nextColumn.text(st)
		}
		return text
	}
	if f.values == nil {
		return fmt.Sprintf("%s BETWEEN %s AND %s", f.column, st.Arg(f.low), st.Arg(f.high))
	}
	if len(f.values) == 1 {
		return f.column + " = " + st.Arg(f.values[0])
	}
	return f.column + " IN (" + keyset.Placeholders(st, f.values) + ")"
}

// indexedText is text with the predicate of the partial index.
func (f *filter) indexedText(st *keyset.Statement) string {
	if f.where == "" {
		return f.text(st)
	}
	return f.text(st) + " AND " + f.where
}

// ordered reports whether the index yields matches in the order of ids.
func (f *filter) ordered() bool { return f.index && f.values != nil && len(f.values) <= 16 }

// listQuery is the query of a list or of one page of it.
type listQuery struct {
	ctx              context.Context
	q                db.Querier
	budget           scanBudget
	organization     string
	table            string
	cell             string   // cell column; empty: none
	cellColumns      []string // further columns of its index, beside id
	columnsWithCell  []string // columns with an index that includes the cell
	columnsWithPlace []string // columns with an index that includes the place
	regionSortKeys   []string // sort columns with an index by region; empty: id
	regionColumns    []string // further columns of the index by region and id
	regionFilters    []string // columns with an index by region and the column
	partialIndex     partialIndex
	rowCounts        stampedCache[rowCount] // recent sizes of filter sets
	hasRowIDs        bool                   // the engine is SQLite: each index entry ends with the number of its row
	rides            bool
	rideIndex        *rideindex.Index // only for rides
	limits           rideListLimits   // only for rides
	indexCondition   string           // predicate of a partial index that all records of the list meet
	now              time.Time        // by the organization's clock

	filters     []filter
	unindexed   []func(st *keyset.Statement) string // predicates without an index
	first, last string                              // ids from first (inclusive) to last (exclusive); empty: unbounded
	empty       bool                                // no record can match
	spatial     bool                                // limited to rects
	rects       []geo.Rect
	inside      func(lat, lng int64) bool // exact test of positions in rects; nil: none
	near        *geo.Circle
	key         sortKey
	descending  bool
	byDistance  bool
	allNull     bool // all matches have NULL as the sort key
	after       *keyset.Cursor
	accept      func(d *Record) (bool, error) // test of documents; nil: none

	docs          map[string]Record // read while finding candidates
	nullPartition bool              // the current partition: records whose sort key is NULL
	counted       map[int]rowCount  // by filter set
}

// partialIndex is an index by region, column and id that excludes the rows with the
// most common values.
type partialIndex struct {
	column  string // empty: there is none
	common  []string
	columns []string // its further columns, beside the cell
}

// where is the predicate of the partial index, as in its definition.
func (r *partialIndex) where() string {
	return r.column + " NOT IN ('" + strings.Join(r.common, "', '") + "')"
}

// rowCount is the counted size of a filter set.
type rowCount struct {
	rows  int
	bound int // rows is exact if less than bound
}

// candidate is a record that may be in the list.
type candidate struct {
	id       string
	value    any   // int64 or string; nil for NULL
	row      int64 // row number; 0: unknown
	distance float64
}

// andUnindexed adds a predicate wrapped in CASE, so that the planner neither uses
// another index for it nor evaluates it before the index scan.
func andUnindexed(st *keyset.Statement, condition string) {
	st.Addf(" AND CASE WHEN %s THEN TRUE ELSE FALSE END", condition)
}

// whereEqual adds a filter for any of values, none if there are no values.
func (s *listQuery) whereEqual(column string, values []string, index bool, where string) {
	if len(values) > 0 {
		values = slices.Clone(values)
		slices.Sort(values)
		s.filters = append(s.filters, filter{column: column, values: slices.Compact(values), index: index, where: where})
	}
}

// whereTime adds a filter for a time.
func (s *listQuery) whereTime(column string, r period.Range, where string) {
	if !r.Whole() {
		first, last := r.Micros()
		s.filters = append(s.filters, filter{column: column, low: first, high: last, index: true, where: where})
		s.empty = s.empty || first > last
	}
}

// whereInteger adds a filter for an integer.
func (s *listQuery) whereInteger(column string, r Integers, where string) {
	if r.Low != nil || r.High != nil {
		f := filter{column: column, low: math.MinInt64, high: math.MaxInt64, index: true, where: where}
		if r.Low != nil {
			f.low = *r.Low
		}
		if r.High != nil {
			f.high = *r.High
		}
		s.filters = append(s.filters, f)
		s.empty = s.empty || f.low > f.high
	}
}

// whereCreated limits ids to a range of created_at.
func (s *listQuery) whereCreated(prefix string, r period.Range) {
	if r.Whole() {
		return
	}
	first, last := r.Micros()
	s.empty = s.empty || first > last
	s.first, s.last = prefix+"_", ""
	if first > math.MinInt64 {
		s.first = idsFrom(prefix, time.UnixMicro(first))
	}
	if last < math.MaxInt64 {
		s.last = idsFrom(prefix, time.UnixMicro(last+1))
	}
}

// whereSubaccounts limits the list to the permitted subaccounts (nil: all), and
// among these to the requested ones (empty: all).
func (s *listQuery) whereSubaccounts(may, asked []string) {
	list := asked
	if may != nil {
		list = may
		if len(asked) > 0 {
			list = slices.DeleteFunc(slices.Clone(may), func(id string) bool { return !slices.Contains(asked, id) })
		}
		s.empty = s.empty || len(list) == 0
	}
	s.whereEqual("subaccount_id", list, true, "")
}

// whereWithin limits the list to positions in rects, in addition to previous
// limits.
func (s *listQuery) whereWithin(rects []geo.Rect) {
	if s.spatial {
		var both []geo.Rect
		for _, a := range s.rects {
			for _, b := range rects {
				if c, ok := a.Intersect(b); ok {
					both = append(both, c)
				}
			}
		}
		rects = both
	}
	s.spatial, s.rects = true, nil
	for _, r := range rects {
		// A small box may contain no position, since positions are whole
		// millionths.
		if r, ok := r.Intersect(geo.World); ok {
			s.rects = append(s.rects, r)
		}
	}
	s.empty = s.empty || len(s.rects) == 0
}

// wherePosition adds a test of positions.
func (s *listQuery) wherePosition(inside func(lat, lng int64) bool) {
	before := s.inside
	s.inside = func(lat, lng int64) bool { return (before == nil || before(lat, lng)) && inside(lat, lng) }
}

// whereNear limits the list to a circle.
func (s *listQuery) whereNear(n *geo.Circle) {
	s.near = n
	s.whereWithin(n.Ring(0, n.RadiusMeters))
	s.wherePosition(func(lat, lng int64) bool { return n.Distance(lat, lng) <= n.RadiusMeters })
}

// checkBox adds an issue unless b is nil or a valid box.
func checkBox(v *problem.Validation, b *geo.Box) {
	if b == nil {
		return
	}
	if !(b.MinLat >= -90 && b.MaxLat <= 90 && b.MinLat <= b.MaxLat && math.Abs(b.MinLng) <= 180 && math.Abs(b.MaxLng) <= 180) {
		v.AddCode("invalid_value", "bbox", "must be minLng,minLat,maxLng,maxLat: longitudes from -180 to 180, latitudes from -90 to 90, the southern one first")
	}
}

func checkNear(v *problem.Validation, n *geo.Circle) {
	if n == nil {
		return
	}
	checkPoint(v, n.Lat, n.Lng)
	if !(n.RadiusMeters >= 0 && n.RadiusMeters <= maxRadius) {
		v.AddCode("invalid_value", "radius_meters", "must be from 0 to %d", maxRadius)
	}
}

// maxRadius bounds [geo.Circle] (fleet-api.md 4).
const maxRadius = 50_000

// checkPoint adds issues of a point given by parameters.
func checkPoint(v *problem.Validation, lat, lng float64) {
	if !(math.Abs(lat) <= 90) {
		v.AddCode("invalid_value", "lat", "must be from -90 to 90")
	}
	if !(math.Abs(lng) <= 180) {
		v.AddCode("invalid_value", "lng", "must be from -180 to 180")
	}
}

// texts converts a list to strings.
func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// snapshot runs fn in the snapshot of q, or in a new one if q is a [db.DB].
func (s *Service) snapshot(ctx context.Context, q db.Querier, fn func(q db.Querier) error) error {
	return keyset.Snapshot(ctx, s.db, q, keyset.ByValues, fn)
}

// configure sets the fields of a query that depend on the service.
func (s *Service) configure(f *listQuery) {
	f.budget, f.rowCounts, f.hasRowIDs = s.budget, s.rowCounts, !s.db.Postgres()
}

// listPage runs a page of a query that begin prepares in the snapshot.
func (s *Service) listPage(ctx context.Context, q db.Querier, limit int, begin func(q db.Querier) (*listQuery, error)) ([]Record, *keyset.Cursor, error) {
	var docs []Record
	var next *keyset.Cursor
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		f, err := begin(q)
		if err != nil {
			return err
		}
		s.configure(f)
		docs, next, err = f.page(cmp.Or(limit, defaultPage))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find records: %w", err)
	}
	return docs, next, nil
}

// eachRecord calls fn with the records of a query that begin prepares, in a
// snapshot of up to [keyset.MaxExport].
func (s *Service) eachRecord(ctx context.Context, begin func(ctx context.Context, q db.Querier) (*listQuery, error), fn func(*Record) error) error {
	return keyset.Export(ctx, s.db, func(ctx context.Context, tx *db.Tx) error {
		return s.snapshot(ctx, tx, func(q db.Querier) error {
			f, err := begin(ctx, q)
			if err != nil {
				return err
			}
			s.configure(f)
			return f.each(fn)
		})
	})
}

// page returns the next records and the cursor of the page after them, nil at the
// end.
func (s *listQuery) page(limit int) ([]Record, *keyset.Cursor, error) {
	if s.accept != nil {
		return s.acceptedPage(limit)
	}
	found, err := s.findCandidates(limit + 1)
	if err != nil {
		return nil, nil, err
	}
	found, next := keyset.TrimPage(found, limit, s.cursor)
	docs, err := s.loadRecords(found)
	return docs, next, err
}

// acceptedPage is page for a query that also tests documents. It reads until one
// more record than the page matches, so a cursor is returned only if a next page
// exists.
func (s *listQuery) acceptedPage(limit int) ([]Record, *keyset.Cursor, error) {
	var page []Record
	var next *keyset.Cursor // after the last record of page
	for {
		found, err := s.findCandidates(limit + 1)
		if err != nil {
			return nil, nil, err
		}
		docs, err := s.loadRecords(found)
		if err != nil {
			return nil, nil, err
		}
		for i := range docs {
			switch ok, err := s.accept(&docs[i]); {
			case err != nil:
				return nil, nil, err
			case !ok:
				continue
			case len(page) == limit:
				return page, next, nil
			}
			page, next = append(page, docs[i]), s.cursor(&found[i])
		}
		if len(found) <= limit {
			return page, nil, nil
		}
		s.after = s.cursor(&found[limit])
	}
}

// cursor returns the position after c.
func (s *listQuery) cursor(c *candidate) *keyset.Cursor {
	if s.byDistance {
		return &keyset.Cursor{Value: strconv.FormatFloat(c.distance, 'g', -1, 64), ID: c.id}
	}
	switch v := c.value.(type) {
	case int64:
		return &keyset.Cursor{Value: strconv.FormatInt(v, 10), ID: c.id}
	case string:
		return &keyset.Cursor{Value: v, ID: c.id}
	}
	return &keyset.Cursor{Null: s.key.column != "", ID: c.id}
}

// value returns the cursor's value in the type of the column.
func (s *listQuery) value(c *keyset.Cursor) (any, error) {
	if s.key.text {
		return c.Value, nil
	}
	return c.Integer()
}
