package fleet

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// find returns the next candidates in order, at most want.
func (s *search) find(want int) ([]candidate, error) {
	if absent, err := s.absent(); err != nil || absent {
		return nil, err
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

// absent reports whether nothing meets the conditions, as far as that is seen at
// once: for instance because none of those in the whole region meets one of them.
func (s *search) absent() (bool, error) {
	if s.never || !s.spatial {
		return s.never, nil
	}
	list, ok := regions(s.rects, maxRegions)
	if !ok {
		return false, nil
	}
	for i := range s.filters {
		f := &s.filters[i]
		if !slices.Contains(s.inRegion, f.column) {
			continue
		}
		// One by one, because by several at once the engines go through all.
		parts := []filter{*f}
		if f.values != nil {
			parts = make([]filter, len(f.values))
			for i, value := range f.values {
				parts[i] = filter{column: f.column, values: []string{value}}
			}
		}
		if len(parts)*len(list) > maxParts {
			continue
		}
		var st statement
		for i, region := range list {
			for j := range parts {
				if i+j > 0 {
					st.WriteString(" OR ")
				} else {
					st.WriteString("SELECT ")
				}
				st.addf("EXISTS (SELECT 1 FROM %s WHERE organization_id = %s AND %s = %s AND %s)", s.table, st.arg(s.organization), s.region(), st.arg(region), parts[j].text(&st))
			}
		}
		var any bool
		if err := s.q.QueryRow(s.ctx, st.String(), st.args...).Scan(&any); err != nil || !any {
			return !any, err
		}
	}
	return false, nil
}

// maxParts bounds what absent looks up.
const maxParts = 32

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

// pace is what a walk may cost before it is looked for a set, and what sets may
// cost that are read then. After the last step the walk goes on to the end.
type pace [4]struct{ walk, set int }

// defaultPace makes of each step some milliseconds' work, of the first less.
func defaultPace() pace {
	return pace{{300, 1500}, {0, 6000}, {8000, 40_000}, {200_000, 500_000}}
}

// What testing a row costs: 1 from an index alone, less than a microsecond.
const (
	someCost   = 6  // where the index says of some that they are elsewhere
	lookupCost = 12 // from the table
)

// walkCost is the cost of each row of a walk.
func (s *search) walkCost(w *filter) int {
	column := s.key.column
	if w != nil {
		column = w.column
	}
	others := len(s.extra) > 0 || s.null && s.key.nulls != nil || slices.ContainsFunc(s.filters, func(f filter) bool {
		return (w == nil || w.column != f.column) && (f.column != s.key.column || s.null) &&
			!slices.Contains(s.besides(w), f.column)
	})
	along := slices.Contains(s.cellOn, column) || s.spatial && column == s.region()
	switch {
	case !others && (along || !s.spatial):
		return 1
	case s.spatial && along:
		return someCost
	}
	return lookupCost
}

// besides returns what the index of a walk has beside what it is walked by.
func (s *search) besides(w *filter) []string {
	if w != nil && w.column == s.region() && s.key.column == "" {
		return s.alongRegion
	}
	return nil
}

// setCost is the cost of each row of a set.
func (s *search) setCost(set int) int {
	var own, onIndex []string
	cell := false
	switch {
	case set == cellSet:
		onIndex, cell = s.onCells, true
	case set != createdSet:
		own = []string{s.filters[set].column}
		cell = slices.Contains(s.cellOn, own[0])
	}
	has := func(column string) bool { return slices.Contains(own, column) || slices.Contains(onIndex, column) }
	if len(s.extra) > 0 || s.spatial && !cell || s.key.column != "" && !has(s.key.column) ||
		slices.ContainsFunc(s.filters, func(f filter) bool { return !has(f.column) }) {
		return lookupCost
	}
	return 1
}

// findHere is find among those with or without a value.
func (s *search) findHere(want int) ([]candidate, error) {
	if s.inTiles() {
		return s.findTiled(want)
	}
	at, err := s.begin()
	if err != nil {
		return nil, err
	}
	w := s.walker(nil)
	var found []candidate
	passed, spent := 0, 0
	for _, step := range s.pace {
		if !s.tests(w) {
			break
		}
		cost := s.walkCost(w)
		// To find where a walk ends takes as long as the walk, so it goes as far as
		// it is likely to take, and then a few times as far.
		for left, rows := max(1, step.walk/cost), 0; left > 0; left -= rows {
			if rows *= 4; len(found) > 0 {
				rows = max(rows, (want-len(found))*(passed/len(found)+1))
			}
			if rows == 0 || rows > left {
				rows = left
			}
			end, more, err := s.edge(w, at, rows)
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
			at, passed, spent = end, passed+rows, spent+rows*cost
		}
		budget := step.set
		if len(found) > 0 {
			budget = min(2*step.set, (want-len(found))*(spent/len(found)))
		}
		least, small, err := s.count(budget)
		if err != nil {
			return nil, err
		}
		if small {
			some, err := s.set(least, at, want-len(found))
			return append(found, some...), err
		}
		if s.key.column == "" && least != noSet && (w == nil || w.then == nil) {
			if along := s.walker(&least); s.walkCost(along) <= s.walkCost(w) {
				w = along
			}
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
	if s.spatial && slices.Contains(s.onRegion, s.key.column) {
		if list, ok := regions(s.rects, maxRegions); ok {
			w := &filter{column: s.region(), cells: list, where: s.cell + " IS NOT NULL"}
			if f := s.rareOnes(); f != nil && len(list)*len(f.values) <= maxRegions {
				w.then, w.where = f, w.where+" AND "+s.rare.where()
			}
			return w
		}
	}
	return nil
}

// rareOnes returns the filter by which the index of those that are rare is walked; nil
// when it does not have all that is asked for.
func (s *search) rareOnes() (rare *filter) {
	if s.rare.column == "" || s.key.column != "" {
		return nil
	}
	for i := range s.filters {
		f := &s.filters[i]
		switch {
		case f.column == s.rare.column && !slices.ContainsFunc(f.values, func(v string) bool { return slices.Contains(s.rare.common, v) }):
			rare = f
		case !slices.Contains(s.rare.others, f.column):
			return nil
		}
	}
	return rare
}

// region is the expression that indexes of regions have.
func (s *search) region() string { return fmt.Sprintf("(%s >> %d)", s.cell, 2*regionBits) }

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
	value, cell := "NULL", "NULL"
	if !s.plain() {
		value = s.key.column
	}
	if s.inside != nil || s.near != nil {
		cell = s.cell
	}
	return "id, " + value + " AS value, " + cell + " AS cell"
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
			st.addf(" AND (%s, id) %s%s (%s, %s)", s.key.column, bound.compare, bound.with, st.arg(bound.at.value), st.arg(bound.at.id))
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
		for _, c := range w.cells {
			part := *w
			part.cells = []int64{c}
			if w.then == nil {
				parts = append(parts, &part)
				continue
			}
			for _, v := range w.then.values {
				then, part := *w.then, part
				then.values, part.then = []string{v}, &then
				parts = append(parts, &part)
			}
		}
	}
	for i, part := range parts {
		if i > 0 {
			st.WriteString(" UNION ALL ")
		}
		st.addf("SELECT %s FROM %s WHERE organization_id = %s", columns, s.table, st.arg(s.organization))
		if s.only != "" {
			st.WriteString(" AND " + s.only)
		}
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
			s.test(st, w, s.besides(w), s.plain(), s.spatial)
		}
	}
}

// test writes the conditions that looking up w, and ids if they are sought, does not
// see to, that of the area only if it is asked for. Those on columns that the index
// at hand has come first, then that of the area, which it has, too. They are hidden,
// see [statement.hide].
func (s *search) test(st *statement, w *filter, has []string, sought, area bool) {
	if s.null && w == s.key.nulls && w != nil {
		st.hide(s.key.column + " IS NULL")
	}
	if s.first != "" && !sought {
		st.hide(s.ids(st))
	}
	filters := func(had bool) {
		for i := range s.filters {
			f := &s.filters[i]
			seen := w != nil && (w.column == f.column && w != s.key.nulls || w.then != nil && w.then.column == f.column) || f.column == s.key.column && !s.null
			if !seen && slices.Contains(has, f.column) == had {
				st.hide(f.text(st))
			}
		}
	}
	filters(true)
	if area {
		st.hide(s.area(st))
	}
	filters(false)
	for _, condition := range s.extra {
		st.hide(condition(st))
	}
}

// area is the condition of being in one of rects, see [bounds].
func (s *search) area(st *statement) string {
	parts := make([]string, len(s.rects))
	for i, r := range s.rects {
		b := boundsOf(r)
		parts[i] = fmt.Sprintf("%[1]s & %[2]d BETWEEN %[3]s AND %[4]s AND %[1]s & %[5]d BETWEEN %[6]s AND %[7]s",
			s.cell, latBits, st.arg(b.lat.first), st.arg(b.lat.last), lngBits, st.arg(b.lng.first), st.arg(b.lng.last))
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
	st.addf(" ORDER BY %s LIMIT 1 OFFSET %s", s.ordering(), st.arg(rows-1))
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
		st.addf(" LIMIT %s", st.arg(want))
	}
	rows, err := s.q.Query(s.ctx, st.String(), st.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []candidate
	for len(found) < want && rows.Next() {
		var c candidate
		var cell sql.NullInt64
		if err := rows.Scan(&c.id, &c.value, &cell); err != nil {
			return nil, err
		}
		lat, lng := positionOf(cell.Int64)
		if s.inside != nil && !(cell.Valid && s.inside(lat, lng)) {
			continue
		}
		if s.near != nil {
			c.distance = s.near.distance(lat, lng)
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

// maxRegions is how many regions are walked at once.
const maxRegions = 16

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
	if s.spatial && !s.byDistance && len(s.rects) <= maxRanges && s.layers == nil {
		others = append(others, cellSet)
	}
	return append(ordered, others...)
}

// count counts all sets as far as they cost less than a budget and returns the
// cheapest; the first of those that cost more, and small is false, if all do.
func (s *search) count(budget int) (least int, small bool, err error) {
	least = noSet
	price := 0
	for _, set := range s.sets() {
		cost := s.setCost(set)
		bound := max(1, budget/cost)
		if small { // it is of no use unless it is cheaper
			bound = min(bound, price/cost+1)
		}
		name := s.setName(set)
		known, ok := s.counted[set]
		if !ok && name != "" {
			if recent := s.sizes.has(name, lately()); recent != nil {
				known, ok = *recent, true
			}
		}
		if !ok || known.rows >= known.bound && known.bound < bound {
			var st statement
			st.WriteString("SELECT count(*) FROM (SELECT 1 AS one")
			s.from(&st, set, s.rects)
			st.addf(" LIMIT %s) AS c", st.arg(bound))
			known.bound = bound
			if err := s.q.QueryRow(s.ctx, st.String(), st.args...).Scan(&known.rows); err != nil {
				return noSet, false, err
			}
			if name != "" {
				s.sizes.put(name, lately(), &known)
			}
		}
		s.counted[set] = known
		fits := known.rows < min(bound, known.bound)
		if fits && (!small || known.rows*cost < price) || least == noSet {
			least, small, price = set, fits, known.rows*cost
		}
	}
	return least, small, nil
}

// setName names a set whose size other lists may ask for, too; empty: none does. Which
// way is the shortest depends on sizes, what is found does not, so what they were
// some seconds ago is good enough.
func (s *search) setName(set int) string {
	if set >= len(s.filters) || s.first != "" {
		return ""
	}
	f := &s.filters[set]
	if len(f.values) > 8 {
		return ""
	}
	return fmt.Sprintf("%s %s %s %.99q %d %d", s.organization, s.table, f.column, f.values, f.low, f.high)
}

// lately is the stamp of what is remembered for ten seconds at most.
func lately() int64 { return time.Now().Unix() / 10 }

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
		s.table, st.arg(s.organization), s.cell, s.cell)
	if s.only != "" {
		st.WriteString(" AND " + s.only)
	}
}

// set returns those of a set that meet all conditions, after a place; by distance,
// they are in no order.
func (s *search) set(set int, from *mark, want int) ([]candidate, error) {
	var st statement
	columns := s.columns()
	st.addf("SELECT id, value, cell FROM (SELECT %s", columns)
	s.from(&st, set, s.rects)
	switch {
	case set < len(s.filters):
		s.test(&st, &s.filters[set], nil, s.filters[set].ordered(), s.spatial)
	case set == cellSet:
		s.test(&st, nil, s.onCells, false, s.spatial)
	default:
		s.test(&st, nil, nil, true, s.spatial)
	}
	if !s.plain() {
		for _, f := range s.filters {
			if f.column == s.key.column {
				st.hide(f.text(&st))
			}
		}
		if !s.key.always {
			st.hide(s.key.column + " IS NOT NULL")
		}
	} else if s.null {
		st.hide(s.key.column + " IS NULL")
	}
	if _, later := s.directions(); from != nil && s.plain() {
		st.hide("id " + later + " " + st.arg(from.id))
	} else if from != nil {
		st.hide(fmt.Sprintf("(%s, id) %s (%s, %s)", s.key.column, later, st.arg(from.value), st.arg(from.id)))
	}
	st.addf(" LIMIT %d) AS c", everything)
	if !s.byDistance {
		st.addf(" ORDER BY %s", s.ordering())
	}
	return s.read(&st, want)
}
