package fleet

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// findCandidates returns up to want candidates in order, records with a sort key
// first.
func (s *listQuery) findCandidates(want int) ([]candidate, error) {
	if absent, err := s.knownEmpty(); err != nil || absent {
		return nil, err
	}
	if s.byDistance {
		return s.nearest(want)
	}
	s.counted = make(map[int]rowCount)
	var found []candidate
	for _, null := range []bool{false, true} {
		if !s.enterPartition(null) || len(found) >= want {
			continue
		}
		more, err := s.findInPartition(want - len(found))
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// knownEmpty reports whether the list is known to be empty without a scan, for
// instance because no row in the whole region matches a filter.
func (s *listQuery) knownEmpty() (bool, error) {
	if s.empty || !s.spatial {
		return s.empty, nil
	}
	list, ok := geo.Regions(s.rects, maxRegions)
	if !ok {
		return false, nil
	}
	for i := range s.filters {
		f := &s.filters[i]
		if !slices.Contains(s.regionFilters, f.column) {
			continue
		}
		// One query per value: with several at once, the engines scan all rows.
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
		var st keyset.Statement
		for i, region := range list {
			for j := range parts {
				if i+j > 0 {
					st.WriteString(" OR ")
				} else {
					st.WriteString("SELECT ")
				}
				st.Addf("EXISTS (SELECT 1 FROM %s WHERE organization_id = %s AND region = %s AND %s)", s.table, st.Arg(s.organization), st.Arg(region), parts[j].text(&st))
			}
		}
		var any bool
		if err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&any); err != nil || !any {
			return !any, err
		}
	}
	return false, nil
}

// maxParts is the maximum number of lookups of knownEmpty.
const maxParts = 32

// enterPartition selects the records with or without a NULL sort key. It returns
// false if none can match.
func (s *listQuery) enterPartition(null bool) bool {
	s.nullPartition = null
	if s.key.column == "" || s.key.always {
		return !null
	}
	if !null {
		return !s.allNull && (s.after == nil || !s.after.Null)
	}
	if s.key.nulls != nil && len(s.key.nulls.values) == 0 {
		return false
	}
	// A filter on the sort key excludes NULL.
	return !slices.ContainsFunc(s.filters, func(f filter) bool { return f.column == s.key.column })
}

// scanBudget limits the cost of the index scan and then of a filter set, by step.
// After the last step the scan continues to the end.
type scanBudget [4]struct{ walk, set int }

// defaultScanBudget makes each step take some milliseconds, the first one less.
func defaultScanBudget() scanBudget {
	return scanBudget{{300, 1500}, {0, 6000}, {8000, 40_000}, {200_000, 500_000}}
}

// Costs of testing a row; 1 if the index suffices, less than a microsecond.
const (
	someCost   = 6  // the index excludes some rows by position
	lookupCost = 12 // the table must be read
)

// scanCost is the cost per row of an index scan.
func (s *listQuery) scanCost(w *filter) int {
	column := s.key.column
	if w != nil {
		column = w.column
	}
	others := len(s.unindexed) > 0 || s.nullPartition && s.key.nulls != nil || slices.ContainsFunc(s.filters, func(f filter) bool {
		return (w == nil || w.column != f.column) && (f.column != s.key.column || s.nullPartition) &&
			!slices.Contains(s.coveredColumns(w), f.column)
	})
	along := slices.Contains(s.columnsWithCell, column)
	if s.hasPlace(column) {
		along = true
		others = others || s.inside != nil // which needs the cell
	}
	switch {
	case !others && (along || !s.spatial):
		return 1
	case s.spatial && along:
		return someCost
	}
	return lookupCost
}

// coveredColumns returns the further columns of the index that a scan uses.
func (s *listQuery) coveredColumns(w *filter) []string {
	if w != nil && w.column == region && s.key.column == "" {
		return s.regionColumns
	}
	return nil
}

// setCost is the cost per row of a filter set.
func (s *listQuery) setCost(set int) int {
	var own, onIndex []string
	cell := false
	switch {
	case set == cellSet:
		onIndex, cell = s.cellColumns, true
	case set != createdSet:
		own = []string{s.filters[set].column}
		cell = slices.Contains(s.columnsWithCell, own[0]) || s.hasPlace(own[0]) && s.inside == nil
	}
	has := func(column string) bool { return slices.Contains(own, column) || slices.Contains(onIndex, column) }
	if len(s.unindexed) > 0 || s.spatial && !cell || s.key.column != "" && !has(s.key.column) ||
		slices.ContainsFunc(s.filters, func(f filter) bool { return !has(f.column) }) {
		return lookupCost
	}
	return 1
}

// findInPartition is findCandidates for one partition, by index scan with
// increasing budgets, or by a filter set.
func (s *listQuery) findInPartition(want int) ([]candidate, error) {
	if s.usesRideIndex() {
		return s.findInRideIndex(want)
	}
	at, err := s.startPosition()
	if err != nil {
		return nil, err
	}
	scan := &indexScan{listQuery: s, path: s.accessPath(nil), at: at, want: want}
	for _, step := range s.budget {
		if !s.filtersRows(scan.path) {
			break
		}
		done, err := scan.walk(step.walk)
		if done || err != nil {
			return scan.found, err
		}
		least, small, err := s.cheapestSet(scan.setBudget(step.set))
		if err != nil {
			return nil, err
		}
		if small {
			some, err := s.readSet(least, scan.at, want-len(scan.found))
			return append(scan.found, some...), err
		}
		scan.reconsiderPath(least)
	}
	some, err := s.scanIndex(scan.path, scan.at, nil, want-len(scan.found))
	return append(scan.found, some...), err
}

// indexScan is the state of findInPartition.
type indexScan struct {
	*listQuery
	path  *filter       // access path
	at    *scanPosition // the end of the scanned rows
	want  int
	found []candidate
	rows  int // scanned
	cost  int // of these
}

// walk continues the scan by rows that cost at most budget. It returns done with all
// results, or at the end of the index.
func (s *indexScan) walk(budget int) (done bool, err error) {
	cost := s.scanCost(s.path)
	// To find the end of a scan takes as long as the scan. So it first covers
	// the likely number of rows, then a few times as many.
	for left, rows := max(1, budget/cost), 0; left > 0; left -= rows {
		if rows *= 4; len(s.found) > 0 {
			rows = max(rows, (s.want-len(s.found))*(s.rows/len(s.found)+1))
		}
		if rows == 0 || rows > left {
			rows = left
		}
		end, more, err := s.scanEnd(s.path, s.at, rows)
		if err != nil {
			return false, err
		}
		some, err := s.scanIndex(s.path, s.at, end, s.want-len(s.found))
		if err != nil {
			return false, err
		}
		if s.found = append(s.found, some...); len(s.found) >= s.want || !more {
			return true, nil
		}
		s.at, s.rows, s.cost = end, s.rows+rows, s.cost+rows*cost
	}
	return false, nil
}

// setBudget returns the budget of a filter set in a step that allows budget: if there are
// results, at most the likely cost of the rest of the scan.
func (s *indexScan) setBudget(budget int) int {
	if len(s.found) == 0 {
		return budget
	}
	return min(2*budget, (s.want-len(s.found))*(s.cost/len(s.found)))
}

// reconsiderPath changes to the access path of a filter set if that is not more expensive.
func (s *indexScan) reconsiderPath(set int) {
	if s.key.column != "" || set == noSet || s.path != nil && s.path.nextColumn != nil {
		return
	}
	if path := s.accessPath(&set); s.scanCost(path) <= s.scanCost(s.path) {
		s.path = path
	}
}

// scanPosition is a position in an index scan: after a value and an id.
type scanPosition struct {
	value any
	id    string
}

// startPosition is the start of the page; nil: the start of the list.
func (s *listQuery) startPosition() (*scanPosition, error) {
	if s.after == nil || s.nullPartition != s.after.Null && s.key.column != "" {
		return nil, nil
	}
	if s.nullPartition || s.key.column == "" {
		return &scanPosition{id: s.after.ID}, nil
	}
	value, err := s.value(s.after)
	if err != nil {
		return nil, err
	}
	return &scanPosition{value, s.after.ID}, nil
}

// accessPath returns the filter whose ordered index the scan uses; nil: the index
// of the sort key.
func (s *listQuery) accessPath(set *int) *filter {
	if s.nullPartition && s.key.nulls != nil {
		return s.key.nulls
	}
	if set != nil && *set < len(s.filters) && s.filters[*set].ordered() {
		return &s.filters[*set]
	}
	if s.spatial && slices.Contains(s.regionSortKeys, s.key.column) {
		if list, ok := geo.Regions(s.rects, maxRegions); ok {
			w := &filter{column: region, cells: list, where: region + " IS NOT NULL"}
			if f := s.partialIndexFilter(); f != nil && len(list)*len(f.values) <= maxRegions {
				w.nextColumn, w.where = f, w.where+" AND "+s.partialIndex.where()
			}
			return w
		}
	}
	return nil
}

// partialIndexFilter returns the filter that the partial index serves; nil if the
// query needs rows or columns that the index excludes.
func (s *listQuery) partialIndexFilter() (rare *filter) {
	if s.partialIndex.column == "" || s.key.column != "" {
		return nil
	}
	for i := range s.filters {
		f := &s.filters[i]
		switch {
		case f.column == s.partialIndex.column && !slices.ContainsFunc(f.values, func(v string) bool { return slices.Contains(s.partialIndex.common, v) }):
			rare = f
		case !slices.Contains(s.partialIndex.columns, f.column):
			return nil
		}
	}
	return rare
}

// Columns of vehicles that are prefixes of the cell. They change seldom, and so do the indexes
// that have them.
const (
	region = "region" // [geo.RegionBits]
	place  = "place"  // [geo.PlaceBits]
)

// sameVehicle is the vehicle of an index entry, for columns that the index does not have. A plain
// column would let SQLite choose another index.
const sameVehicle = "vehicles AS same WHERE same.organization_id = vehicles.organization_id AND same.id = vehicles.id"

// hasPlace reports whether the index of a column has the place and not the cell.
func (s *listQuery) hasPlace(column string) bool {
	return slices.Contains(s.columnsWithPlace, column)
}

// byPlace is hasPlace for the index of an access path.
func (s *listQuery) byPlace(w *filter) bool {
	if w == nil {
		return s.hasPlace(s.key.column)
	}
	return s.hasPlace(w.column)
}

// filtersRows reports whether a scan may read rows that do not match.
func (s *listQuery) filtersRows(w *filter) bool {
	if s.spatial || len(s.unindexed) > 0 || s.inside != nil || s.key.column != "" && s.first != "" || s.nullPartition && s.key.nulls != nil {
		return true
	}
	return slices.ContainsFunc(s.filters, func(f filter) bool {
		return (w == nil || w.column != f.column) && f.column != s.key.column
	})
}

// directions returns the SQL sort direction and the comparison with later rows.
func (s *listQuery) directions() (order, later string) {
	if s.descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// orderedByID reports whether the current partition is ordered by id alone.
func (s *listQuery) orderedByID() bool { return s.key.column == "" || s.nullPartition }

// columns are the columns of a candidate in an index, which has the place with byPlace.
func (s *listQuery) columns(byPlace bool) string {
	value, cell := "NULL", "NULL"
	if !s.orderedByID() {
		value = s.key.column
	}
	switch {
	case s.inside == nil && s.near == nil:
	case byPlace:
		cell = "(SELECT same.cell FROM " + sameVehicle + ")"
	default:
		cell = s.cell
	}
	return "id, " + value + " AS value, " + cell + " AS cell, " + s.rowNumber() + " AS number"
}

// rowNumber is the column of row numbers; NULL where the engine has none.
func (s *listQuery) rowNumber() string {
	if s.hasRowIDs {
		return s.table + ".rowid"
	}
	return "NULL"
}

// writeBounds limits a statement to rows after from (exclusive) up to to
// (inclusive), and to the range of the sort key. Of two bounds on one side it writes
// the tighter one, because SQLite seeks to one of them, not to the tighter.
func (s *listQuery) writeBounds(st *keyset.Statement, from, to *scanPosition) {
	low, high, above, below := from, to, ">", "<="
	if s.descending {
		low, high, above, below = to, from, ">=", "<"
	}
	if s.orderedByID() {
		switch {
		case low != nil && low.id >= s.first:
			st.Addf(" AND id %s %s", above, st.Arg(low.id))
		case s.first != "":
			st.Addf(" AND id >= %s", st.Arg(s.first))
		}
		switch {
		case high != nil && (s.last == "" || high.id < s.last):
			st.Addf(" AND id %s %s", below, st.Arg(high.id))
		case s.last != "":
			st.Addf(" AND id < %s", st.Arg(s.last))
		}
		return
	}
	var f *filter
	if i := slices.IndexFunc(s.filters, func(f filter) bool { return f.column == s.key.column && f.values == nil }); i >= 0 {
		f = &s.filters[i]
	}
	number := func(at *scanPosition) int64 { n, _ := at.value.(int64); return n } // ranges are of integers
	switch {
	case low != nil && (f == nil || number(low) >= f.low):
		st.Addf(" AND (%s, id) %s (%s, %s)", s.key.column, above, st.Arg(low.value), st.Arg(low.id))
	case f != nil:
		st.Addf(" AND %s >= %s", s.key.column, st.Arg(f.low))
	}
	switch {
	case high != nil && (f == nil || number(high) <= f.high):
		st.Addf(" AND (%s, id) %s (%s, %s)", s.key.column, below, st.Arg(high.value), st.Arg(high.id))
	case f != nil:
		st.Addf(" AND %s <= %s", s.key.column, st.Arg(f.high))
	}
}

// idRange is the predicate of created_at.
func (s *listQuery) idRange(st *keyset.Statement) string {
	var text string
	if s.first != "" {
		text = "id >= " + st.Arg(s.first)
	}
	if s.last != "" {
		text += " AND id < " + st.Arg(s.last)
	}
	return text
}

// writeIndexScan writes an index scan as a union of ordered parts. With full, it
// also writes the residual predicates.
func (s *listQuery) writeIndexScan(st *keyset.Statement, w *filter, columns string, from, to *scanPosition, full bool) {
	parts := []*filter{nil}
	if w != nil {
		parts = w.orderedParts()
	}
	area := ""
	if full { // once: with more than 31 arguments, SQLite may prepare the statement for each execution
		area = s.area(st, s.byPlace(w))
	}
	for i, part := range parts {
		if i > 0 {
			st.WriteString(" UNION ALL ")
		}
		st.Addf("SELECT %s FROM %s WHERE organization_id = %s", columns, s.table, st.Arg(s.organization))
		if s.indexCondition != "" {
			st.WriteString(" AND " + s.indexCondition)
		}
		if part != nil {
			st.WriteString(" AND " + part.indexedText(st))
		}
		s.writeKeyConditions(st, w)
		s.writeBounds(st, from, to)
		if full {
			s.writeResidual(st, w, s.coveredColumns(w), s.orderedByID(), area)
		}
	}
}

// orderedParts divides a filter into filters for one value, or one cell and one value of
// the next column. The index has the matches of each in the order of the sort key.
func (f *filter) orderedParts() []*filter {
	var parts []*filter
	for _, v := range f.values {
		part := *f
		part.values = []string{v}
		parts = append(parts, &part)
	}
	for _, c := range f.cells {
		part := *f
		part.cells = []int64{c}
		if f.nextColumn == nil {
			parts = append(parts, &part)
			continue
		}
		for _, next := range f.nextColumn.orderedParts() {
			part := part
			part.nextColumn = next
			parts = append(parts, &part)
		}
	}
	return parts
}

// writeKeyConditions writes the conditions on the sort key: NULL or not, by partition, and
// its filters by value.
func (s *listQuery) writeKeyConditions(st *keyset.Statement, w *filter) {
	if !s.orderedByID() && !s.key.always {
		st.WriteString(" AND " + s.key.column + " IS NOT NULL")
	}
	if s.nullPartition && w == nil {
		st.WriteString(" AND " + s.key.column + " IS NULL")
	}
	for _, f := range s.filters {
		if f.column == s.key.column && f.values != nil && !s.nullPartition {
			st.WriteString(" AND " + f.text(st))
		}
	}
}

// writeResidual writes the predicates that the access path w does not imply: of ids
// unless sought, and area, unless empty. Covered columns come first, then the area, by
// andUnindexed.
func (s *listQuery) writeResidual(st *keyset.Statement, w *filter, has []string, sought bool, area string) {
	if s.nullPartition && w == s.key.nulls && w != nil {
		andUnindexed(st, s.key.column+" IS NULL")
	}
	if s.first != "" && !sought {
		andUnindexed(st, s.idRange(st))
	}
	filters := func(had bool) {
		for i := range s.filters {
			f := &s.filters[i]
			seen := w != nil && (w.column == f.column && w != s.key.nulls || w.nextColumn != nil && w.nextColumn.column == f.column) || f.column == s.key.column && !s.nullPartition
			if !seen && slices.Contains(has, f.column) == had {
				andUnindexed(st, f.text(st))
			}
		}
	}
	filters(true)
	if area != "" {
		andUnindexed(st, area)
	}
	filters(false)
	for _, condition := range s.unindexed {
		andUnindexed(st, condition(st))
	}
}

// area is the predicate of being in one of rects, see [geo.CellRect]; empty if the list is not
// limited to them. With byPlace, the cell is read for places across the edges only.
func (s *listQuery) area(st *keyset.Statement, byPlace bool) string {
	parts := make([]string, len(s.rects))
	for i, r := range s.rects {
		b := geo.CellRectOf(r)
		if !byPlace {
			parts[i] = bounds{st, b}.contain(s.cell)
			continue
		}
		p := b.Places()
		lat, lng := place+" & "+strconv.Itoa(geo.LatBits), place+" & "+strconv.Itoa(geo.LngBits)
		south, north, west, east := st.Arg(p.Lat.First), st.Arg(p.Lat.Last), st.Arg(p.Lng.First), st.Arg(p.Lng.Last)
		parts[i] = fmt.Sprintf("%[1]s BETWEEN %[3]s AND %[4]s AND %[2]s BETWEEN %[5]s AND %[6]s AND (%[1]s > %[3]s AND %[1]s < %[4]s AND %[2]s > %[5]s AND %[2]s < %[6]s OR EXISTS (SELECT 1 FROM %[7]s AND %[8]s))",
			lat, lng, south, north, west, east, sameVehicle, bounds{st, b}.contain("same.cell"))
	}
	return strings.Join(parts, " OR ")
}

// bounds is a rectangle in a statement.
type bounds struct {
	st *keyset.Statement
	geo.CellRect
}

// contain is the predicate of cells in a column.
func (b bounds) contain(column string) string {
	return fmt.Sprintf("%[1]s & %[2]d BETWEEN %[3]s AND %[4]s AND %[1]s & %[5]d BETWEEN %[6]s AND %[7]s",
		column, geo.LatBits, b.st.Arg(b.Lat.First), b.st.Arg(b.Lat.Last), geo.LngBits, b.st.Arg(b.Lng.First), b.st.Arg(b.Lng.Last))
}

// scanEnd returns the position after rows rows; more is false if there are fewer.
func (s *listQuery) scanEnd(w *filter, from *scanPosition, rows int) (end *scanPosition, more bool, err error) {
	var st keyset.Statement
	columns := "id, NULL AS value"
	if !s.orderedByID() {
		columns = "id, " + s.key.column + " AS value"
	}
	s.writeIndexScan(&st, w, columns, from, nil, false)
	st.Addf(" ORDER BY %s LIMIT 1 OFFSET %s", s.ordering(), st.Arg(rows-1))
	end = &scanPosition{}
	switch err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&end.id, &end.value); {
	case errors.Is(err, db.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return end, true, nil
}

// ordering is the ORDER BY of the current partition.
func (s *listQuery) ordering() string {
	order, _ := s.directions()
	if s.orderedByID() {
		return "id " + order
	}
	return "value " + order + ", id " + order
}

// scanIndex returns up to want matches between two positions.
func (s *listQuery) scanIndex(w *filter, from, to *scanPosition, want int) ([]candidate, error) {
	var st keyset.Statement
	s.writeIndexScan(&st, w, s.columns(s.byPlace(w)), from, to, true)
	st.Addf(" ORDER BY %s", s.ordering())
	return s.read(&st, want)
}

// read runs a statement that selects candidates, and returns up to want of those in the area of the
// list.
func (s *listQuery) read(st *keyset.Statement, want int) ([]candidate, error) {
	if s.inside == nil {
		if want < math.MaxInt {
			st.Addf(" LIMIT %s", st.Arg(want))
		}
		found, _, err := s.readInside(st, want, nil)
		return found, err
	}
	found, _, err := s.readInside(st, want, func(lat, lng int64, _ float64) bool { return s.inside(lat, lng) })
	return found, err
}

// readInside runs a statement that selects candidates, and returns the first want that inside accepts
// by their position and distance; nil accepts all. It also returns the number of rows it has read.
func (s *listQuery) readInside(st *keyset.Statement, want int, inside func(lat, lng int64, distance float64) bool) (found []candidate, read int, err error) {
	rows, err := s.q.Query(s.ctx, st.String(), st.Args...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	found = make([]candidate, 0, min(want, maxPage+1))
	var c candidate
	var id sql.RawBytes
	var cell, number sql.NullInt64
	for len(found) < want && rows.Next() {
		read++
		if err := rows.Scan(&id, &c.value, &cell, &number); err != nil {
			return nil, 0, err
		}
		lat, lng := geo.CellPosition(cell.Int64)
		if s.near != nil {
			c.distance = s.near.Distance(lat, lng)
		}
		if inside != nil && !(cell.Valid && inside(lat, lng, c.distance)) {
			continue
		}
		c.id, c.row = string(id), number.Int64
		found = append(found, c)
	}
	return found, read, rows.Err()
}

// A filter set is the result of one index scan, by the number of its filter or one
// of these.
const (
	createdSet = 1000 + iota // rows by created_at
	cellSet                  // rows in ranges of cells
	noSet      = -1
)

// maxRanges is the maximum number of cell ranges of a query.
const maxRanges = 16

// maxRegions is the maximum number of regions of an index scan.
const maxRegions = 16

// ringRanges is the maximum number of cell ranges of a ring.
const ringRanges = 64

// noLimit is a LIMIT without effect. It keeps the engine from flattening the
// subquery.
const noLimit = 1_000_000_000

// filterSets returns the usable filter sets, those in the order of ids first.
func (s *listQuery) filterSets() []int {
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
	if s.spatial && !s.byDistance && len(s.rects) <= maxRanges && s.rideIndex == nil {
		others = append(others, cellSet)
	}
	return append(ordered, others...)
}

// cheapestSet counts the filter sets within a budget and returns the cheapest.
// small is false if all exceed it; then least is the first set.
func (s *listQuery) cheapestSet(budget int) (least int, small bool, err error) {
	least = noSet
	price := 0
	for _, set := range s.filterSets() {
		cost := s.setCost(set)
		bound := max(1, budget/cost)
		if small { // only a cheaper set is of use
			bound = min(bound, price/cost+1)
		}
		name := s.setKey(set)
		known, ok := s.counted[set]
		if !ok && name != "" {
			if recent := s.rowCounts.lookup(name, recentStamp()); recent != nil {
				known, ok = *recent, true
			}
		}
		if !ok || known.rows >= known.bound && known.bound < bound {
			var st keyset.Statement
			st.WriteString("SELECT count(*) FROM (SELECT 1 AS one")
			s.writeSet(&st, set, s.rects)
			st.Addf(" LIMIT %s) AS c", st.Arg(bound))
			known.bound = bound
			if err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&known.rows); err != nil {
				return noSet, false, err
			}
			if name != "" {
				s.rowCounts.put(name, recentStamp(), &known)
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

// setKey is the cache key of a filter set's count; empty if not shareable. A count
// some seconds old suffices, since it affects the access path but not the result.
func (s *listQuery) setKey(set int) string {
	if set >= len(s.filters) || s.first != "" {
		return ""
	}
	f := &s.filters[set]
	if len(f.values) > 8 {
		return ""
	}
	return fmt.Sprintf("%s %s %s %.99q %d %d", s.organization, s.table, f.column, f.values, f.low, f.high)
}

// recentStamp is a cache stamp that changes every ten seconds.
func recentStamp() int64 { return time.Now().Unix() / 10 }

// writeSet writes the FROM and WHERE of a filter set.
func (s *listQuery) writeSet(st *keyset.Statement, set int, rects []geo.Rect) {
	if set != cellSet {
		st.Addf(" FROM %s WHERE organization_id = %s", s.table, st.Arg(s.organization))
		if set != createdSet {
			st.WriteString(" AND " + s.filters[set].indexedText(st))
		}
		if s.first != "" && (set == createdSet || s.filters[set].ordered()) {
			st.WriteString(" AND " + s.idRange(st))
		}
		return
	}
	st.WriteString(" FROM (VALUES ")
	n := maxRanges
	if len(rects) > 3 {
		n = ringRanges
	}
	for i, c := range geo.FixedCover(rects, n) {
		if i > 0 {
			st.WriteString(", ")
		}
		st.Addf("(CAST(%s AS BIGINT), CAST(%s AS BIGINT))", st.Arg(c.First), st.Arg(c.Last))
	}
	st.Addf(") AS r CROSS JOIN %s WHERE organization_id = %s AND %s IS NOT NULL AND %s BETWEEN r.column1 AND r.column2",
		s.table, st.Arg(s.organization), s.cell, s.cell)
	if s.indexCondition != "" {
		st.WriteString(" AND " + s.indexCondition)
	}
}

// readSet returns up to want matches of a filter set after a position; unordered if
// s.byDistance.
func (s *listQuery) readSet(set int, from *scanPosition, want int) ([]candidate, error) {
	var st keyset.Statement
	byPlace := set < len(s.filters) && s.hasPlace(s.filters[set].column)
	st.Addf("SELECT id, value, cell, number FROM (SELECT %s", s.columns(byPlace))
	s.writeSet(&st, set, s.rects)
	switch {
	case set < len(s.filters):
		s.writeResidual(&st, &s.filters[set], nil, s.filters[set].ordered(), s.area(&st, byPlace))
	case set == cellSet:
		s.writeResidual(&st, nil, s.cellColumns, false, s.area(&st, false))
	default:
		s.writeResidual(&st, nil, nil, true, s.area(&st, false))
	}
	if !s.orderedByID() {
		for _, f := range s.filters {
			if f.column == s.key.column {
				andUnindexed(&st, f.text(&st))
			}
		}
		if !s.key.always {
			andUnindexed(&st, s.key.column+" IS NOT NULL")
		}
	} else if s.nullPartition {
		andUnindexed(&st, s.key.column+" IS NULL")
	}
	if _, later := s.directions(); from != nil && s.orderedByID() {
		andUnindexed(&st, "id "+later+" "+st.Arg(from.id))
	} else if from != nil {
		andUnindexed(&st, fmt.Sprintf("(%s, id) %s (%s, %s)", s.key.column, later, st.Arg(from.value), st.Arg(from.id)))
	}
	st.Addf(" LIMIT %d) AS c", noLimit)
	if !s.byDistance {
		st.Addf(" ORDER BY %s", s.ordering())
	}
	return s.read(&st, want)
}
