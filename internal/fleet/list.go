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
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Lists are found without knowing how many records have which value, in steps
// that grow: some rows along the index of what the list is sorted by, testing each;
// when those were mostly others, the set of a filter's index that is cheapest to
// read, if it is cheaper than the rest of the walk is likely to be; and so on with
// more of both. So a filter that is met often costs a short walk, one that is met
// seldom a small set, wherever in the order those records are. Only keys and cells
// are read until the page is known, then its documents.

// Sort is the order of a list. The zero value is the newest first, or the nearest
// where a list is near a point. Ties are ordered by id, in the same direction.
// Records without a value come last in both.
type Sort struct {
	Member     string // one of the list's; empty: as said, and then Descending does not count
	Descending bool
}

// Cursor is a place in a list of some sort: after the record that had these
// values. It is of use with the same list only, and for ever: that record may have
// changed or gone since.
type Cursor struct {
	Value string `json:"value,omitempty"`
	Null  bool   `json:"null,omitempty"` // it had no value
	ID    string `json:"id"`
}

var errCursor = &problem.Error{Kind: problem.Invalid, Code: "invalid_cursor", Message: "the cursor is not one of this list"}

// Integers is a part of the integers. A bound that is nil does not restrict it;
// one that is not is in it.
type Integers struct{ Low, High *int64 }

const (
	defaultPage = 20
	maxPage     = 100
	// maxExport is how long an export may take.
	maxExport = time.Hour
)

// sortKey is what a list can be sorted by.
type sortKey struct {
	column string // NULL comes last; empty: id
	text   bool
	always bool // it is never NULL
	// nulls is a filter with an ordered index that all have where column is
	// NULL; nil: column's own index has those too.
	nulls *filter
}

// filter is a condition on one column.
type filter struct {
	column string
	values []string // any of them; nil: between low and high
	low    int64
	high   int64
	index  bool    // (organization_id, column, id) is an index, or begins one
	where  string  // what else must be said for that index to be taken; empty: nothing
	cells  []int64 // of a walk along regions: any of them
	then   *filter // of such a walk: what its index has next; nil: what it is in the order of
}

// text returns the condition.
func (f *filter) text(st *statement) string {
	if len(f.cells) == 1 {
		text := f.column + " = " + st.arg(f.cells[0])
		if f.then != nil {
			text += " AND " + f.then.text(st)
		}
		return text
	}
	if f.values == nil {
		return fmt.Sprintf("%s BETWEEN %s AND %s", f.column, st.arg(f.low), st.arg(f.high))
	}
	if len(f.values) == 1 {
		return f.column + " = " + st.arg(f.values[0])
	}
	places := make([]string, len(f.values))
	for i, v := range f.values {
		places[i] = st.arg(v)
	}
	return f.column + " IN (" + strings.Join(places, ", ") + ")"
}

// indexedText is text with what makes an index usable.
func (f *filter) indexedText(st *statement) string {
	if f.where == "" {
		return f.text(st)
	}
	return f.text(st) + " AND " + f.where
}

// ordered reports whether its index has those that meet it in the order of ids.
func (f *filter) ordered() bool { return f.index && f.values != nil && len(f.values) <= 16 }

// listQuery is one list, or a page of it.
type listQuery struct {
	ctx            context.Context
	q              db.Querier
	budget         scanBudget
	organization   string
	table          string
	cell           string   // its column; empty: there is none
	onCells        []string // what else its index has, beside ids
	cellOn         []string // by which columns there are indexes that end with it
	onRegion       []string // what is in order in an index of regions; empty: ids
	alongRegion    []string // what else that of ids has
	inRegion       []string // by which columns there are indexes of regions
	rare           partialIndex
	rowCounts      *cache[rowCount] // what sets had lately
	rides          bool
	layers         *layerCache // of rides; nil: there are none
	tiling         tiling      // likewise
	indexCondition string      // what else is true of those that are looked for, so that an index of theirs is taken
	now            time.Time   // of the organization's clock

	filters     []filter
	extra       []func(st *statement) string // conditions that no index has
	first, last string                       // ids are from first on and before last; empty: any
	empty       bool                         // nothing meets the filters
	spatial     bool                         // only what is in rects
	rects       []rect
	inside      func(lat, lng int64) bool // exactly, beyond rects; nil: all are
	near        *Near
	key         sortKey
	descending  bool
	byDistance  bool
	allNull     bool // nothing that meets the filters has a value
	after       *Cursor
	accept      func(d *Record) (bool, error) // what only documents say; nil: all are

	docs    map[string]Record // that were read when their records were found
	null    bool              // those without a value are looked for now
	counted map[int]rowCount  // by set
}

// partialIndex is an index of regions by a column, in the order of ids then, of the rows
// where it has none of the values that most have.
type partialIndex struct {
	column string // empty: there is none
	common []string
	others []string // what else it has, beside the cell
}

// where is the condition of the index, as it was made.
func (r *partialIndex) where() string {
	return r.column + " NOT IN ('" + strings.Join(r.common, "', '") + "')"
}

// rowCount is how many rows a set has, as far as it was counted.
type rowCount struct {
	rows  int
	bound int // rows is exact if it is less
}

// candidate is a record that may belong on a page.
type candidate struct {
	id       string
	value    any // int64 or string, nil when there is none
	distance float64
}

// statement is a query that is put together from parts.
type statement struct {
	strings.Builder
	args []any
}

// arg adds an argument and returns its placeholder.
func (st *statement) arg(v any) string {
	st.args = append(st.args, v)
	return "$" + strconv.Itoa(len(st.args))
}

func (st *statement) addf(format string, args ...any) { fmt.Fprintf(st, format, args...) }

// andUnindexed adds a condition for what an index at hand finds: one that the engines do not
// look up in another, and of which they work out no more than they need.
func (st *statement) andUnindexed(condition string) {
	st.addf(" AND CASE WHEN %s THEN TRUE ELSE FALSE END", condition)
}

// whereEqual adds a filter of equality; no values: none.
func (s *listQuery) whereEqual(column string, values []string, index bool, where string) {
	if len(values) > 0 {
		values = slices.Clone(values)
		slices.Sort(values)
		s.filters = append(s.filters, filter{column: column, values: slices.Compact(values), index: index, where: where})
	}
}

// whereTime adds a filter of a time.
func (s *listQuery) whereTime(column string, r period.Range, where string) {
	if !r.Whole() {
		first, last := r.Micros()
		s.filters = append(s.filters, filter{column: column, low: first, high: last, index: true, where: where})
		s.empty = s.empty || first > last
	}
}

// whereInteger adds a filter of a number.
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

// whereCreated limits the ids to those of some time.
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

// whereSubaccounts limits a list to subaccounts: those that may be seen, nil for all, and of
// these the ones that were asked for, none for all.
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

// whereWithin limits a list to rects, beside what it was limited to before.
func (s *listQuery) whereWithin(rects []rect) {
	if s.spatial {
		var both []rect
		for _, a := range s.rects {
			for _, b := range rects {
				if c, ok := a.intersect(b); ok {
					both = append(both, c)
				}
			}
		}
		rects = both
	}
	s.spatial, s.rects = true, nil
	for _, r := range rects {
		// A small box can be between two positions: they are whole millionths of a degree.
		if r, ok := r.intersect(world); ok {
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

// whereNear limits a list to what is near a point.
func (s *listQuery) whereNear(n *Near) {
	s.near = n
	s.whereWithin(n.rects(n.RadiusMeters))
	s.wherePosition(func(lat, lng int64) bool { return n.distance(lat, lng) <= n.RadiusMeters })
}

func (n *Near) distance(lat, lng int64) float64 {
	return distance(n.Lat, n.Lng, degrees(lat), degrees(lng))
}

// checkBox, checkNear and checkPage record what is wrong with a query.
func checkBox(v *problem.Validation, b *Box) {
	if b == nil {
		return
	}
	if !(b.MinLat >= -90 && b.MaxLat <= 90 && b.MinLat <= b.MaxLat && math.Abs(b.MinLng) <= 180 && math.Abs(b.MaxLng) <= 180) {
		v.AddCode("invalid_value", "bbox", "must be minLng,minLat,maxLng,maxLat: longitudes from -180 to 180, latitudes from -90 to 90, the southern one first")
	}
}

func checkNear(v *problem.Validation, n *Near) {
	if n == nil {
		return
	}
	(&Position{Lat: n.Lat, Lng: n.Lng}).checkAt(v)
	if !(n.RadiusMeters >= 0 && n.RadiusMeters <= maxRadius) {
		v.AddCode("invalid_value", "radius_meters", "must be from 0 to %d", maxRadius)
	}
}

// maxRadius bounds [Near] (fleet-api.md 4).
const maxRadius = 50_000

// checkAt records what is wrong with a point that parameters give.
func (p *Position) checkAt(v *problem.Validation) {
	if !(math.Abs(p.Lat) <= 90) {
		v.AddCode("invalid_value", "lat", "must be from -90 to 90")
	}
	if !(math.Abs(p.Lng) <= 180) {
		v.AddCode("invalid_value", "lng", "must be from -180 to 180")
	}
}

// maxValues bounds the values of one filter.
const maxValues = 100

func checkPage(v *problem.Validation, limit int, o Sort, after *Cursor, members ...string) {
	if after != nil {
		v.Text("cursor", after.Value)
		v.Text("cursor", after.ID)
	}
	if limit < 0 || limit > maxPage {
		v.AddCode("invalid_value", "limit", "must be from 1 to %d", maxPage)
	}
	if o.Member != "" && !slices.Contains(members, o.Member) {
		v.AddCode("invalid_value", "sort", "must be one of %s", strings.Join(members, ", "))
	}
}

func checkValues[T ~string](v *problem.Validation, path string, values []T) {
	if len(values) > maxValues {
		v.AddCode("too_long", path, "must be at most %d", maxValues)
	}
	for _, value := range values {
		v.Text(path, string(value))
	}
}

// texts is a list of some kind of string as one of strings.
func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// snapshot runs fn over one moment's state: q's, or, where q has none, a new one.
// PostgreSQL is told to plan for the values at hand, to go by indexes, as tables
// may be new to it, and not to compile what is dear by its guess.
func (s *Service) snapshot(ctx context.Context, q db.Querier, fn func(q db.Querier) error) error {
	if d, ok := q.(*db.DB); ok {
		return d.Read(ctx, func(tx *db.Tx) error { return s.snapshot(ctx, tx, fn) })
	}
	if s.db.Postgres() {
		var set string
		if err := q.QueryRow(ctx, `SELECT set_config('enable_seqscan', 'off', true) || set_config('jit', 'off', true)
			|| set_config('plan_cache_mode', 'force_custom_plan', true)`).Scan(&set); err != nil {
			return err
		}
	}
	return fn(q)
}

// listPage runs one page of a search, which begin prepares over the snapshot.
func (s *Service) listPage(ctx context.Context, q db.Querier, limit int, begin func(q db.Querier) (*listQuery, error)) ([]Record, *Cursor, error) {
	var docs []Record
	var next *Cursor
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		f, err := begin(q)
		if err != nil {
			return err
		}
		f.budget, f.rowCounts = s.budget, &s.rowCounts
		docs, next, err = f.page(cmp.Or(limit, defaultPage))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find records: %w", err)
	}
	return docs, next, nil
}

// eachRecord calls fn with the documents of a search, which begin prepares over a snapshot
// that may last as long as an export.
func (s *Service) eachRecord(ctx context.Context, begin func(ctx context.Context, q db.Querier) (*listQuery, error), fn func(*Record) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxExport)
	defer cancel()
	return s.db.ReadBulk(ctx, func(tx *db.Tx) error {
		return s.snapshot(ctx, tx, func(q db.Querier) error {
			f, err := begin(ctx, q)
			if err != nil {
				return err
			}
			f.budget, f.rowCounts = s.budget, &s.rowCounts
			return f.each(fn)
		})
	})
}

// page returns some records, and where the next ones begin; nil after the last.
func (s *listQuery) page(limit int) ([]Record, *Cursor, error) {
	if s.accept != nil {
		return s.acceptedPage(limit)
	}
	found, err := s.findCandidates(limit + 1)
	if err != nil {
		return nil, nil, err
	}
	var next *Cursor
	if len(found) > limit {
		found = found[:limit]
		next = s.cursor(&found[limit-1])
	}
	docs, err := s.loadRecords(found)
	return docs, next, err
}

// acceptedPage is page where documents are tested, too. It ends when one more is
// accepted than the page has, so that there is a next one only if it has something.
func (s *listQuery) acceptedPage(limit int) ([]Record, *Cursor, error) {
	var page []Record
	var next *Cursor // after the last of page
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

// cursor is the one after c.
func (s *listQuery) cursor(c *candidate) *Cursor {
	if s.byDistance {
		return &Cursor{Value: strconv.FormatFloat(c.distance, 'g', -1, 64), ID: c.id}
	}
	switch v := c.value.(type) {
	case int64:
		return &Cursor{Value: strconv.FormatInt(v, 10), ID: c.id}
	case string:
		return &Cursor{Value: v, ID: c.id}
	}
	return &Cursor{Null: s.key.column != "", ID: c.id}
}

// value returns what a cursor says as what the column has.
func (s *listQuery) value(c *Cursor) (any, error) {
	if s.key.text {
		return c.Value, nil
	}
	n, err := strconv.ParseInt(c.Value, 10, 64)
	if err != nil {
		return nil, errCursor
	}
	return n, nil
}
