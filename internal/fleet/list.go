package fleet

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Lists are found without knowing how many records have which value, in steps
// that grow: some rows along the index of what the list is sorted by, testing each;
// when those were mostly others, the smallest set that a filter's index has, if
// that is small enough to be sorted; and so on with more of both. So a filter that
// is met often costs a short walk, one that is met seldom a small set, wherever in
// the order those records are. Only keys and positions are read until the page is
// known, then its documents.

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

// key is what a list can be sorted by.
type key struct {
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
	index  bool   // (organization_id, column, id) is an index
	where  string // what else must be said for that index to be taken; empty: nothing
}

// text returns the condition.
func (f *filter) text(st *statement) string {
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

// raw is text with what makes an index usable.
func (f *filter) raw(st *statement) string {
	if f.where == "" {
		return f.text(st)
	}
	return f.text(st) + " AND " + f.where
}

// ordered reports whether its index has those that meet it in the order of ids.
func (f *filter) ordered() bool { return f.index && f.values != nil && len(f.values) <= 16 }

// search is one list, or a page of it.
type search struct {
	ctx          context.Context
	q            db.Querier
	pace         pace
	organization string
	table        string
	where        [3]string // columns of latitude, longitude and cell; empty: there are none
	rides        bool
	now          time.Time // of the organization's clock

	filters     []filter
	extra       []func(st *statement) string // conditions that no index has
	first, last string                       // ids are from first on and before last; empty: any
	never       bool                         // nothing meets the filters
	spatial     bool                         // only what is in rects
	rects       []rect
	inside      func(lat, lng int64) bool // exactly, beyond rects; nil: all are
	near        *Near
	key         key
	descending  bool
	byDistance  bool
	allNull     bool // nothing that meets the filters has a value
	after       *Cursor
	accept      func(d *Doc) (bool, error) // what only documents say; nil: all are

	null    bool         // those without a value are looked for now
	counted map[int]size // by set
}

// size is how many rows a set has, as far as it was counted.
type size struct {
	rows  int
	bound int // rows is exact if it is less
}

// candidate is a record that may belong on a page.
type candidate struct {
	id       string
	value    any // int64 or string, nil when there is none
	lat, lng int64
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

// equal adds a filter of equality; no values: none.
func (s *search) equal(column string, values []string, index bool, where string) {
	if len(values) > 0 {
		values = slices.Clone(values)
		slices.Sort(values)
		s.filters = append(s.filters, filter{column: column, values: slices.Compact(values), index: index, where: where})
	}
}

// during adds a filter of a time.
func (s *search) during(column string, r period.Range, where string) {
	if !r.Whole() {
		first, last := r.Micros()
		s.filters = append(s.filters, filter{column: column, low: first, high: last, index: true, where: where})
		s.never = s.never || first > last
	}
}

// among adds a filter of a number.
func (s *search) among(column string, r Integers, where string) {
	if r.Low != nil || r.High != nil {
		f := filter{column: column, low: math.MinInt64, high: math.MaxInt64, index: true, where: where}
		if r.Low != nil {
			f.low = *r.Low
		}
		if r.High != nil {
			f.high = *r.High
		}
		s.filters = append(s.filters, f)
		s.never = s.never || f.low > f.high
	}
}

// created limits the ids to those of some time.
func (s *search) created(prefix string, r period.Range) {
	if r.Whole() {
		return
	}
	first, last := r.Micros()
	s.never = s.never || first > last
	s.first, s.last = prefix+"_", ""
	if first > math.MinInt64 {
		s.first = idsFrom(prefix, time.UnixMicro(first))
	}
	if last < math.MaxInt64 {
		s.last = idsFrom(prefix, time.UnixMicro(last+1))
	}
}

// of limits a list to subaccounts: those that may be seen, nil for all, and of
// these the ones that were asked for, none for all.
func (s *search) of(may, asked []string) {
	list := asked
	if may != nil {
		list = may
		if len(asked) > 0 {
			list = slices.DeleteFunc(slices.Clone(may), func(id string) bool { return !slices.Contains(asked, id) })
		}
		s.never = s.never || len(list) == 0
	}
	s.equal("subaccount_id", list, true, "")
}

// within limits a list to rects, beside what it was limited to before.
func (s *search) within(rects []rect) {
	if s.spatial {
		var both []rect
		for _, a := range s.rects {
			for _, b := range rects {
				if c, ok := a.cut(b); ok {
					both = append(both, c)
				}
			}
		}
		rects = both
	}
	s.spatial, s.rects = true, rects
	s.never = s.never || len(rects) == 0
}

// also adds a test of positions.
func (s *search) also(inside func(lat, lng int64) bool) {
	before := s.inside
	s.inside = func(lat, lng int64) bool { return (before == nil || before(lat, lng)) && inside(lat, lng) }
}

// around limits a list to what is near a point.
func (s *search) around(n *Near) {
	s.near = n
	s.within(n.rects(n.RadiusMeters))
	s.also(func(lat, lng int64) bool { return n.distance(lat, lng) <= n.RadiusMeters })
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

// find runs one page of a search, which begin prepares over the snapshot.
func (s *Service) find(ctx context.Context, q db.Querier, limit int, begin func(q db.Querier) (*search, error)) ([]Doc, *Cursor, error) {
	var docs []Doc
	var next *Cursor
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		f, err := begin(q)
		if err != nil {
			return err
		}
		f.pace = s.pace
		docs, next, err = f.page(cmp.Or(limit, defaultPage))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find records: %w", err)
	}
	return docs, next, nil
}

// each calls fn with the documents of a search, which begin prepares over a snapshot
// that may last as long as an export.
func (s *Service) each(ctx context.Context, begin func(ctx context.Context, q db.Querier) (*search, error), fn func(*Doc) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxExport)
	defer cancel()
	return s.db.ReadSlowly(ctx, func(tx *db.Tx) error {
		return s.snapshot(ctx, tx, func(q db.Querier) error {
			f, err := begin(ctx, q)
			if err != nil {
				return err
			}
			f.pace = s.pace
			return f.each(fn)
		})
	})
}

// page returns some records, and where the next ones begin; nil after the last.
func (s *search) page(limit int) ([]Doc, *Cursor, error) {
	if s.accept != nil {
		return s.acceptedPage(limit)
	}
	found, err := s.find(limit + 1)
	if err != nil {
		return nil, nil, err
	}
	var next *Cursor
	if len(found) > limit {
		found = found[:limit]
		next = s.cursor(&found[limit-1])
	}
	docs, err := s.load(found)
	return docs, next, err
}

// acceptedPage is page where documents are tested, too. It ends when one more is
// accepted than the page has, so that there is a next one only if it has something.
func (s *search) acceptedPage(limit int) ([]Doc, *Cursor, error) {
	var page []Doc
	var next *Cursor // after the last of page
	for {
		found, err := s.find(limit + 1)
		if err != nil {
			return nil, nil, err
		}
		docs, err := s.load(found)
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
func (s *search) cursor(c *candidate) *Cursor {
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
func (s *search) value(c *Cursor) (any, error) {
	if s.key.text {
		return c.Value, nil
	}
	n, err := strconv.ParseInt(c.Value, 10, 64)
	if err != nil {
		return nil, errCursor
	}
	return n, nil
}

// find returns the next candidates in order, at most want.
func (s *search) find(want int) ([]candidate, error) {
	if s.never {
		return nil, nil
	}
	if s.byDistance {
		return s.nearest(want)
	}
	s.counted = make(map[int]size)
	var found []candidate
	for _, null := range []bool{false, true} {
		if !s.enter(null) || len(found) >= want {
			continue
		}
		more, err := s.findHere(want - len(found))
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// enter begins with those that have a value, or those that have none. It reports
// false when there is nothing to look for.
func (s *search) enter(null bool) bool {
	s.null = null
	if s.key.column == "" || s.key.always {
		return !null
	}
	if !null {
		return !s.allNull && (s.after == nil || !s.after.Null)
	}
	if s.key.nulls != nil && len(s.key.nulls.values) == 0 {
		return false
	}
	// What is limited has a value.
	return !slices.ContainsFunc(s.filters, func(f filter) bool { return f.column == s.key.column })
}

// pace is how far a walk goes before it is looked for a set, and of what size sets
// are read then. After the last step the walk goes on to the end.
type pace [3]struct{ walk, set int }

// defaultPace makes of each step some milliseconds' work.
func defaultPace() pace { return pace{{150, 4000}, {5000, 20_000}, {50_000, 200_000}} }

// findHere is find among those with or without a value.
func (s *search) findHere(want int) ([]candidate, error) {
	at, err := s.begin()
	if err != nil {
		return nil, err
	}
	w := s.walker(nil)
	var found []candidate
	for _, step := range s.pace {
		if !s.tests(w) {
			break
		}
		end, more, err := s.edge(w, at, step.walk)
		if err != nil {
			return nil, err
		}
		some, err := s.walk(w, at, end, want-len(found))
		if err != nil {
			return nil, err
		}
		if found = append(found, some...); len(found) >= want || !more {
			return found, nil
		}
		at = end
		least, err := s.count(step.set)
		if err != nil {
			return nil, err
		}
		if least != noSet && s.counted[least].rows < step.set {
			some, err := s.set(least, at, want-len(found))
			return append(found, some...), err
		}
		if s.key.column == "" && least != noSet {
			w = s.walker(&least)
		}
	}
	some, err := s.walk(w, at, nil, want-len(found))
	return append(found, some...), err
}

// mark is where a walk is: after a value and an id.
type mark struct {
	value any
	id    string
}

// begin is where the page begins; nil: at the beginning.
func (s *search) begin() (*mark, error) {
	if s.after == nil || s.null != s.after.Null && s.key.column != "" {
		return nil, nil
	}
	if s.null || s.key.column == "" {
		return &mark{id: s.after.ID}, nil
	}
	value, err := s.value(s.after)
	if err != nil {
		return nil, err
	}
	return &mark{value, s.after.ID}, nil
}

// walker is the filter along whose ordered index it is walked; nil: along that of
// the sort.
func (s *search) walker(set *int) *filter {
	if s.null && s.key.nulls != nil {
		return s.key.nulls
	}
	if set != nil && *set < len(s.filters) && s.filters[*set].ordered() {
		return &s.filters[*set]
	}
	return nil
}

// tests reports whether a walk passes rows over.
func (s *search) tests(w *filter) bool {
	if s.spatial || len(s.extra) > 0 || s.inside != nil || s.key.column != "" && s.first != "" || s.null && s.key.nulls != nil {
		return true
	}
	return slices.ContainsFunc(s.filters, func(f filter) bool {
		return (w == nil || w.column != f.column) && f.column != s.key.column
	})
}

// directions returns the order in SQL, and what is true of whatever comes later.
func (s *search) directions() (order, later string) {
	if s.descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// plain reports whether the order here is that of ids alone.
func (s *search) plain() bool { return s.key.column == "" || s.null }

// columns are what a candidate is read from.
func (s *search) columns() string {
	value, lat, lng := "NULL", "NULL", "NULL"
	if !s.plain() {
		value = s.key.column
	}
	if s.inside != nil || s.near != nil {
		lat, lng = s.where[0], s.where[1]
	}
	return "id, " + value + " AS value, " + lat + " AS lat, " + lng + " AS lng"
}

// between limits a statement to what comes after one place and not after another.
func (s *search) between(st *statement, from, to *mark) {
	_, later := s.directions()
	earlier := map[string]string{"<": ">", ">": "<"}[later]
	for _, bound := range []struct {
		at      *mark
		compare string
		with    string
	}{{from, later, ""}, {to, earlier, "="}} {
		switch {
		case bound.at == nil:
		case s.plain():
			st.addf(" AND id %s%s %s", bound.compare, bound.with, st.arg(bound.at.id))
		default:
			// The first says nothing new, but is what engines look up.
			st.addf(" AND %s %s= %s AND (%s, id) %s%s (%s, %s)", s.key.column, bound.compare, st.arg(bound.at.value),
				s.key.column, bound.compare, bound.with, st.arg(bound.at.value), st.arg(bound.at.id))
		}
	}
}

// ids limits a statement by created_at.
func (s *search) ids(st *statement) string {
	var text string
	if s.first != "" {
		text = "id >= " + st.arg(s.first)
	}
	if s.last != "" {
		text += " AND id < " + st.arg(s.last)
	}
	return text
}

// along writes a walk: parts of columns, which together are in order. Where full,
// rows are tested.
func (s *search) along(st *statement, w *filter, columns string, from, to *mark, full bool) {
	parts := []*filter{nil}
	if w != nil {
		parts = nil
		for _, v := range w.values {
			part := *w
			part.values = []string{v}
			parts = append(parts, &part)
		}
	}
	for i, part := range parts {
		if i > 0 {
			st.WriteString(" UNION ALL ")
		}
		st.addf("SELECT %s FROM %s WHERE organization_id = %s", columns, s.table, st.arg(s.organization))
		if part != nil {
			st.WriteString(" AND " + part.raw(st))
		}
		if s.first != "" && s.plain() {
			st.WriteString(" AND " + s.ids(st))
		}
		switch {
		case s.plain():
		case s.key.always:
		default:
			st.WriteString(" AND " + s.key.column + " IS NOT NULL")
		}
		if s.null && w == nil {
			st.WriteString(" AND " + s.key.column + " IS NULL")
		}
		for _, f := range s.filters {
			if f.column == s.key.column && !s.null {
				st.WriteString(" AND " + f.text(st))
			}
		}
		s.between(st, from, to)
		if full {
			s.test(st, w, s.plain(), 4)
		}
	}
}

// test writes the conditions that looking up w, and ids if they are sought, does not
// see to. They are hidden from the engines, which would look them up too.
func (s *search) test(st *statement, w *filter, sought bool, ranges int) {
	hide := func(condition string) { st.addf(" AND coalesce(%s, FALSE)", condition) }
	if s.null && w == s.key.nulls && w != nil {
		hide(s.key.column + " IS NULL")
	}
	if s.first != "" && !sought {
		hide(s.ids(st))
	}
	for _, f := range s.filters {
		if w != nil && w.column == f.column && w != s.key.nulls || f.column == s.key.column && !s.null {
			continue
		}
		hide(f.text(st))
	}
	for _, condition := range s.extra {
		hide(condition(st))
	}
	if s.spatial {
		if ranges > 0 {
			s.cells(st, hide, ranges)
		}
		hide(s.area(st, s.rects))
	}
}

// cells tests the cell first, which some indexes have.
func (s *search) cells(st *statement, hide func(string), ranges int) {
	var parts []string
	for _, c := range cover(s.rects, ranges) {
		parts = append(parts, fmt.Sprintf("%s BETWEEN %s AND %s", s.where[2], st.arg(c.first), st.arg(c.last)))
	}
	hide(strings.Join(parts, " OR "))
}

// area is the condition of being in one of rects.
func (s *search) area(st *statement, rects []rect) string {
	parts := make([]string, len(rects))
	for i, r := range rects {
		parts[i] = fmt.Sprintf("%s BETWEEN %s AND %s AND %s BETWEEN %s AND %s",
			s.where[0], st.arg(r.minLat), st.arg(r.maxLat), s.where[1], st.arg(r.minLng), st.arg(r.maxLng))
	}
	return strings.Join(parts, " OR ")
}

// edge returns where a walk of so many rows ends; more is false when there are not
// so many.
func (s *search) edge(w *filter, from *mark, rows int) (end *mark, more bool, err error) {
	var st statement
	columns := "id, NULL AS value"
	if !s.plain() {
		columns = "id, " + s.key.column + " AS value"
	}
	s.along(&st, w, columns, from, nil, false)
	st.addf(" ORDER BY %s LIMIT 1 OFFSET %d", s.ordering(), rows-1)
	end = &mark{}
	switch err := s.q.QueryRow(s.ctx, st.String(), st.args...).Scan(&end.id, &end.value); {
	case errors.Is(err, db.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return end, true, nil
}

// ordering is the order in SQL, of the columns that are read.
func (s *search) ordering() string {
	order, _ := s.directions()
	if s.plain() {
		return "id " + order
	}
	return "value " + order + ", id " + order
}

// walk returns those that meet all conditions between two places.
func (s *search) walk(w *filter, from, to *mark, want int) ([]candidate, error) {
	var st statement
	s.along(&st, w, s.columns(), from, to, true)
	st.addf(" ORDER BY %s", s.ordering())
	return s.read(&st, want)
}

// read runs a statement of candidates.
func (s *search) read(st *statement, want int) ([]candidate, error) {
	if s.inside == nil && want < math.MaxInt {
		st.addf(" LIMIT %d", want)
	}
	rows, err := s.q.Query(s.ctx, st.String(), st.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []candidate
	for len(found) < want && rows.Next() {
		var c candidate
		var lat, lng sql.NullInt64
		if err := rows.Scan(&c.id, &c.value, &lat, &lng); err != nil {
			return nil, err
		}
		c.lat, c.lng = lat.Int64, lng.Int64
		if s.inside != nil && !(lat.Valid && lng.Valid && s.inside(c.lat, c.lng)) {
			continue
		}
		if s.near != nil {
			c.distance = s.near.distance(c.lat, c.lng)
		}
		found = append(found, c)
	}
	return found, rows.Err()
}

// Sets are the rows that an index has for one of the filters: by its number, or one
// of these.
const (
	createdSet = 1000 + iota // what was created in some time
	cellSet                  // what lies in a few ranges of cells
	noSet      = -1
)

// maxRanges is how many ranges of cells are looked up.
const maxRanges = 16

// ringRanges is how many when there is a hole in what is covered.
const ringRanges = 64

// everything is a limit that means none. A query with a limit is run as it is
// written, not made part of the one around it.
const everything = 1_000_000_000

// sets are all there are, those in the order of ids first.
func (s *search) sets() []int {
	var ordered, others []int
	for i, f := range s.filters {
		switch {
		case f.ordered():
			ordered = append(ordered, i)
		case f.index && (f.column != s.key.column || s.byDistance):
			others = append(others, i)
		}
	}
	if s.first != "" && (s.key.column != "" || s.byDistance) {
		others = append(others, createdSet)
	}
	if s.spatial && !s.byDistance && len(s.rects) <= maxRanges {
		others = append(others, cellSet)
	}
	return append(ordered, others...)
}

// count counts all sets up to bound and returns the smallest; the first of those
// that are too large, if all are.
func (s *search) count(bound int) (int, error) {
	least := noSet
	for _, set := range s.sets() {
		known, ok := s.counted[set]
		if !ok || known.rows >= known.bound {
			var st statement
			st.WriteString("SELECT count(*) FROM (SELECT 1 AS one")
			s.from(&st, set, s.rects)
			st.addf(" LIMIT %d) AS c", bound)
			known.bound = bound
			if err := s.q.QueryRow(s.ctx, st.String(), st.args...).Scan(&known.rows); err != nil {
				return noSet, err
			}
			s.counted[set] = known
		}
		if least == noSet || known.rows < s.counted[least].rows {
			least = set
		}
	}
	return least, nil
}

// from writes what has the rows of a set.
func (s *search) from(st *statement, set int, rects []rect) {
	if set != cellSet {
		st.addf(" FROM %s WHERE organization_id = %s", s.table, st.arg(s.organization))
		if set != createdSet {
			st.WriteString(" AND " + s.filters[set].raw(st))
		}
		if s.first != "" && (set == createdSet || s.filters[set].ordered()) {
			st.WriteString(" AND " + s.ids(st))
		}
		return
	}
	st.WriteString(" FROM (VALUES ")
	// Always as many, so that the statement is the same.
	most := maxRanges
	if len(rects) > 3 {
		most = ringRanges
	}
	ranges := cover(rects, most)
	for i := range most {
		if i > 0 {
			st.WriteString(", ")
		}
		c := cells{1, 0} // nothing
		if i < len(ranges) {
			c = ranges[i]
		}
		st.addf("(CAST(%s AS BIGINT), CAST(%s AS BIGINT))", st.arg(c.first), st.arg(c.last))
	}
	st.addf(") AS r CROSS JOIN %s WHERE organization_id = %s AND %s IS NOT NULL AND %s BETWEEN r.column1 AND r.column2",
		s.table, st.arg(s.organization), s.where[2], s.where[2])
}

// set returns those of a set that meet all conditions, after a place.
func (s *search) set(set int, from *mark, want int) ([]candidate, error) {
	var st statement
	columns := s.columns()
	st.addf("SELECT id, value, lat, lng FROM (SELECT %s", columns)
	s.from(&st, set, s.rects)
	if set < len(s.filters) {
		s.test(&st, &s.filters[set], s.filters[set].ordered(), 0)
	} else {
		s.test(&st, nil, set == createdSet, 0)
	}
	if !s.plain() {
		for _, f := range s.filters {
			if f.column == s.key.column {
				st.addf(" AND coalesce(%s, FALSE)", f.text(&st))
			}
		}
		if !s.key.always {
			st.addf(" AND coalesce(%s IS NOT NULL, FALSE)", s.key.column)
		}
	} else if s.null {
		st.addf(" AND coalesce(%s IS NULL, FALSE)", s.key.column)
	}
	if _, later := s.directions(); from != nil && s.plain() {
		st.addf(" AND coalesce(id %s %s, FALSE)", later, st.arg(from.id))
	} else if from != nil {
		st.addf(" AND coalesce((%s, id) %s (%s, %s), FALSE)", s.key.column, later, st.arg(from.value), st.arg(from.id))
	}
	st.addf(" LIMIT %d) AS c ORDER BY %s", everything, s.ordering())
	return s.read(&st, want)
}

// The sizes of the rings that [search.nearest] reads.
const (
	ringRows  = 1000
	ringsRows = 5000 // in all, before a filter's set is read instead
	maxRings  = 8    // likewise; and after as many more the rest is read at once
)

// nearest is find in the order of distance: ring by ring of the circle, each as
// wide as it takes to have some rows in it. Where few meet a filter, it is those
// that are measured.
func (s *search) nearest(want int) ([]candidate, error) {
	inner, outer := 0.0, s.near.RadiusMeters
	after := candidate{distance: -1}
	if s.descending {
		after.distance = math.Inf(1)
	}
	if s.after != nil {
		d, err := strconv.ParseFloat(s.after.Value, 64)
		if err != nil || !(d >= 0 && d <= 2*maxRadius) {
			return nil, errCursor
		}
		after = candidate{id: s.after.ID, distance: d}
		if s.descending {
			outer = min(outer, d)
		} else {
			inner = d
		}
	}
	s.counted = make(map[int]size)
	compare := func(a, b candidate) int {
		order := cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.id, b.id))
		if s.descending {
			return -order
		}
		return order
	}
	var found []candidate
	passed, rings := 0, 0
	for bound := s.pace[0].set; ; bound = s.pace[1].set {
		least, err := s.count(bound)
		if err != nil {
			return nil, err
		}
		if least != noSet && s.counted[least].rows < bound {
			if found, err = s.set(least, nil, math.MaxInt); err != nil {
				return nil, err
			}
			found = slices.DeleteFunc(found, func(c candidate) bool { return compare(c, after) <= 0 })
			break
		}
		for inner <= outer && len(found) < want && (bound == s.pace[1].set || passed < ringsRows && rings < maxRings) {
			low, high := inner, outer
			if rings++; rings <= 2*maxRings {
				if low, high, err = s.ring(inner, outer, rings-1); err != nil {
					return nil, err
				}
			}
			rows, some, err := s.inRing(low, high)
			if err != nil {
				return nil, err
			}
			passed += rows
			for _, c := range some {
				if c.distance >= low && c.distance <= high && compare(c, after) > 0 {
					found = append(found, c)
				}
			}
			// What is on the edge was found.
			if s.descending {
				outer = math.Nextafter(low, -1)
			} else {
				inner = math.Nextafter(high, math.Inf(1))
			}
		}
		if inner > outer || len(found) >= want || bound == s.pace[1].set {
			break
		}
	}
	slices.SortFunc(found, compare)
	return found[:min(want, len(found))], nil
}

// ring returns the part of the ring between two distances to be read next, the nth
// from 0 on: about as wide as it takes for it to have ringRows rows.
func (s *search) ring(inner, outer float64, nth int) (low, high float64, err error) {
	count := func(low, high float64) (int, error) {
		var st statement
		st.WriteString("SELECT count(*) FROM (SELECT 1 AS one")
		s.from(&st, cellSet, s.near.between(low, high))
		st.addf(" LIMIT %d) AS c", ringRows+1)
		var n int
		err := s.q.QueryRow(s.ctx, st.String(), st.args...).Scan(&n)
		return n, err
	}
	if n, err := count(inner, outer); n <= ringRows || err != nil {
		return inner, outer, err
	}
	// By area, because that is what rows go by.
	all := outer*outer - inner*inner
	least, most := 0.0, all
	for range 6 {
		area := (least + most) / 2
		if least == 0 {
			area = most / 8
		}
		low, high = inner, math.Sqrt(inner*inner+area)
		if s.descending {
			low, high = math.Sqrt(max(inner*inner, outer*outer-area)), outer
		}
		n, err := count(low, high)
		switch {
		case err != nil:
			return 0, 0, err
		case n <= ringRows && n >= ringRows/8:
			return low, high, nil
		case n <= ringRows:
			least = area
		default:
			most = area
		}
	}
	if least == 0 {
		// Many are in one place, or the ring is too thin to be covered by a few
		// ranges: rather some that is wide, and more each time.
		least = min(all, all/32*float64(int(1)<<nth))
	}
	if s.descending {
		return math.Sqrt(max(inner*inner, outer*outer-least)), outer, nil
	}
	return inner, math.Sqrt(inner*inner + least), nil
}

// inRing returns how many rows there are about a ring, and those that meet the
// conditions, in no order; some are nearer or farther.
func (s *search) inRing(low, high float64) (rows int, found []candidate, err error) {
	rects := s.near.between(low, high)
	var st statement
	st.addf("SELECT id, NULL, %s, %s", s.where[0], s.where[1])
	s.from(&st, cellSet, rects)
	if condition := s.near.roughly(&st, low, high, s.where); condition != "" {
		st.addf(" AND coalesce(%s, FALSE)", condition)
	}
	s.test(&st, nil, false, 0)
	inside := s.inside
	s.inside = func(lat, lng int64) bool { rows++; return inside(lat, lng) }
	defer func() { s.inside = inside }()
	found, err = s.read(&st, math.MaxInt)
	return rows, found, err
}

// between are rects that hold every position whose distance is between two.
func (n *Near) between(low, high float64) []rect {
	rects := n.rects(high)
	// What is surely nearer is left out: a box whose corners are. Away from the
	// poles they are what is farthest of it.
	lat := low / earthRadius * 180 / math.Pi * 0.7
	lng := lat / math.Cos((math.Abs(n.Lat)+lat)*math.Pi/180)
	if lat < 1e-5 || math.Abs(n.Lat)+lat > 80 ||
		max(distance(n.Lat, 0, n.Lat-lat, lng), distance(n.Lat, 0, n.Lat+lat, lng)) >= low*(1-1e-9) {
		return rects
	}
	const rounding = 2e-6
	lat, lng = lat-rounding, lng-rounding
	for _, hole := range (Box{wrapped(n.Lng - lng), n.Lat - lat, wrapped(n.Lng + lng), n.Lat + lat}).rects() {
		var left []rect
		for _, r := range rects {
			left = append(left, r.without(hole)...)
		}
		rects = left
	}
	return rects
}

// roughly is a condition that all positions meet whose distance is between two, and
// few others: as if the earth were flat. It is empty where that is far from true.
func (n *Near) roughly(st *statement, low, high float64, where [3]string) string {
	const micro = math.Pi / 180 / 1e6 * earthRadius // meters of latitude
	rad := n.Lat * math.Pi / 180
	if rects := n.rects(high); math.Abs(n.Lat) > 80 || len(rects) != 1 {
		return ""
	}
	// Off by what a degree of longitude is shorter at the other latitude.
	off := 1.2*math.Tan(math.Abs(rad))*high/earthRadius + 1e-4
	least, most := low/micro, high/micro+2
	least, most = max(0, least-2)*(1-off), most*(1+off)
	lat, lng, narrow := st.arg(millionths(n.Lat)), st.arg(millionths(n.Lng)), st.arg(math.Cos(rad)*math.Cos(rad))
	square := fmt.Sprintf("(%[1]s - %[3]s) * (%[1]s - %[3]s) + (%[2]s - %[4]s) * (%[2]s - %[4]s) * CAST(%[5]s AS DOUBLE PRECISION)", where[0], where[1], lat, lng, narrow)
	return fmt.Sprintf("%s BETWEEN %s AND %s", square, st.arg(least*least), st.arg(most*most))
}

// docColumns are what a document is read from.
func (s *search) docColumns() string {
	if s.rides {
		return "id, subaccount_id, revision, doc, status, paused_at"
	}
	return "id, subaccount_id, revision, doc, NULL AS status, NULL AS paused_at"
}

// load reads the documents of what was found.
func (s *search) load(found []candidate) ([]Doc, error) {
	if len(found) == 0 {
		return nil, nil
	}
	ids := make([]string, len(found))
	place := make(map[string]int, len(found))
	for i, c := range found {
		ids[i], place[c.id] = c.id, i
	}
	rows, err := s.q.Query(s.ctx, "SELECT "+s.docColumns()+" FROM "+s.table+" WHERE organization_id = $1 AND id = ANY($2)", s.organization, ids)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	docs := make([]Doc, len(found))
	read := 0
	for rows.Next() {
		d := Doc{Distance: -1}
		var state sql.RawBytes
		var paused sql.NullInt64
		if err := rows.Scan(&d.ID, &d.SubaccountID, &d.Revision, &d.JSON, &state, &paused); err != nil {
			return nil, err
		}
		if err := s.fresh(&d, RideStatus(state), paused); err != nil {
			return nil, err
		}
		i := place[d.ID]
		if s.near != nil {
			d.Distance = found[i].distance
		}
		docs[i] = d
		read++
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if read != len(found) {
		return nil, errors.New("records are gone that were found in the same snapshot")
	}
	return docs, nil
}

// fresh brings the document of an open ride up to the present.
func (s *search) fresh(d *Doc, status RideStatus, paused sql.NullInt64) error {
	if !status.Open() {
		return nil
	}
	var r Ride
	if err := json.Unmarshal(d.JSON, &r); err != nil {
		return fmt.Errorf("decode a ride: %w", err)
	}
	if paused.Valid {
		r.pausedAt = rfc3339.Time(time.UnixMicro(paused.Int64).UTC())
	}
	text, err := encode(r.asOf(s.now))
	d.JSON = text
	return err
}

// each calls fn with all documents of a list, in order. fn must not keep them.
func (s *search) each(fn func(*Doc) error) error {
	if s.never {
		return nil
	}
	if s.byDistance {
		found, err := s.nearest(everything)
		if err != nil {
			return err
		}
		return s.eachOf(found, fn)
	}
	s.counted = make(map[int]size)
	for _, null := range []bool{false, true} {
		if !s.enter(null) {
			continue
		}
		if err := s.eachHere(fn); err != nil {
			return err
		}
	}
	return nil
}

// give calls fn with a document that is accepted.
func (s *search) give(d *Doc, fn func(*Doc) error) error {
	if s.accept != nil {
		if ok, err := s.accept(d); err != nil || !ok {
			return err
		}
	}
	return fn(d)
}

// eachHere is each among those with or without a value: of a small set if a filter
// has one, else along an index in one go.
func (s *search) eachHere(fn func(*Doc) error) error {
	w := s.walker(nil)
	if s.tests(w) {
		least, err := s.count(s.pace[1].set)
		if err != nil {
			return err
		}
		if least != noSet && s.counted[least].rows < s.pace[1].set {
			found, err := s.set(least, nil, everything)
			if err != nil {
				return err
			}
			return s.eachOf(found, fn)
		}
		if s.key.column == "" && least != noSet {
			w = s.walker(&least)
		}
	}
	var st statement
	columns := s.docColumns()
	value, lat, lng := "NULL", "NULL", "NULL"
	if !s.plain() {
		value = s.key.column
	}
	if s.inside != nil {
		lat, lng = s.where[0], s.where[1]
	}
	s.along(&st, w, columns+", "+value+" AS value, "+lat+" AS lat, "+lng+" AS lng", nil, nil, true)
	st.addf(" ORDER BY %s", s.ordering())
	rows, err := s.q.Query(s.ctx, st.String(), st.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var d Doc
	var doc, state, unused sql.RawBytes
	var paused, atLat, atLng sql.NullInt64
	for rows.Next() {
		if err := rows.Scan(&d.ID, &d.SubaccountID, &d.Revision, &doc, &state, &paused, &unused, &atLat, &atLng); err != nil {
			return err
		}
		if s.inside != nil && !(atLat.Valid && atLng.Valid && s.inside(atLat.Int64, atLng.Int64)) {
			continue
		}
		d.JSON, d.Distance = doc, -1
		if s.near != nil {
			d.Distance = s.near.distance(atLat.Int64, atLng.Int64)
		}
		if err := s.fresh(&d, RideStatus(state), paused); err != nil {
			return err
		}
		if err := s.give(&d, fn); err != nil {
			return err
		}
	}
	return rows.Err()
}

// eachOf calls fn with the documents of what was found.
func (s *search) eachOf(found []candidate, fn func(*Doc) error) error {
	for some := range slices.Chunk(found, 200) {
		docs, err := s.load(some)
		if err != nil {
			return err
		}
		for i := range docs {
			if err := s.give(&docs[i], fn); err != nil {
				return err
			}
		}
	}
	return nil
}
