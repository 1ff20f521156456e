package fleet

import (
	"bytes"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// recordColumns are the columns of a record.
func (s *listQuery) recordColumns() string {
	if s.rides {
		return "id, subaccount_id, revision, doc, status, started_at, paused_at"
	}
	return "id, subaccount_id, revision, doc, NULL AS status, NULL AS started_at, NULL AS paused_at"
}

// loadRecords returns the records of candidates, in order.
func (s *listQuery) loadRecords(found []candidate) ([]Record, error) {
	if len(found) == 0 {
		return nil, nil
	}
	var ids []string
	numbers := make([]int64, 0, len(found))
	for _, c := range found {
		if _, ok := s.docs[c.id]; ok {
			continue
		}
		if c.row != 0 {
			numbers = append(numbers, c.row)
		} else {
			ids = append(ids, c.id)
		}
	}
	if err := s.readRecordsByNumber(numbers); err != nil {
		return nil, err
	}
	if err := s.readRecords(ids); err != nil {
		return nil, err
	}
	docs := make([]Record, len(found))
	for i, c := range found {
		d, ok := s.docs[c.id]
		if !ok {
			return nil, errors.New("records found in a snapshot are missing from it")
		}
		d.Distance = -1
		if s.near != nil {
			d.Distance = c.distance
		}
		docs[i] = d
	}
	clear(s.docs)
	return docs, nil
}

// readRecords reads records into s.docs.
func (s *listQuery) readRecords(ids []string) error {
	return s.readRecordsWhere(len(ids), "organization_id = $1 AND id = ANY($2)", s.organization, ids)
}

// readRecordsByNumber is [listQuery.readRecords] by row numbers, which were read in the same
// snapshot. It searches one tree for each record instead of two.
func (s *listQuery) readRecordsByNumber(numbers []int64) error {
	return s.readRecordsWhere(len(numbers), "rowid = ANY($1)", numbers)
}

func (s *listQuery) readRecordsWhere(n int, condition string, args ...any) error {
	if n == 0 {
		return nil
	}
	rows, err := s.q.Query(s.ctx, "SELECT "+s.recordColumns()+" FROM "+s.table+" WHERE "+condition, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if s.docs == nil {
		s.docs = make(map[string]Record, n)
	}
	var texts []byte // all documents, concatenated
	var d Record
	var text, state sql.RawBytes
	var started, paused sql.NullInt64
	for rows.Next() {
		if err := rows.Scan(&d.ID, &d.SubaccountID, &d.Revision, &text, &state, &started, &paused); err != nil {
			return err
		}
		if len(text) > cap(texts)-len(texts) {
			texts = make([]byte, 0, max(len(text), min(n*(len(text)+len(text)/4), 1<<18)))
		}
		texts = append(texts, text...)
		d.JSON = texts[len(texts)-len(text) : len(texts) : len(texts)]
		if err := s.updateDurations(&d, RideStatus(state), started, paused); err != nil {
			return err
		}
		s.docs[d.ID] = d
	}
	return rows.Err()
}

// updateDurations is [Ride.asOf] for the document of a ride. Lists have many open
// rides, so it edits two numbers instead of decoding.
func (s *listQuery) updateDurations(d *Record, status RideStatus, started, paused sql.NullInt64) (err error) {
	if status != Active && status != Paused {
		return nil
	}
	since := rfc3339.Time(time.UnixMicro(wholeMillis(started.Int64))) // in the precision of the document
	if d.JSON, err = setNumber(d.JSON, "duration_seconds", func(int64) int64 { return seconds(since, s.now) }); err == nil && status == Paused {
		since = rfc3339.Time(time.UnixMicro(paused.Int64))
		d.JSON, err = setNumber(d.JSON, "paused_seconds", func(stored int64) int64 { return stored + seconds(since, s.now) })
	}
	return err
}

// setNumber replaces a number in a document. The field must precede all nested
// objects.
func setNumber(doc []byte, member string, value func(int64) int64) ([]byte, error) {
	_, after, ok := bytes.Cut(doc, []byte(`,"`+member+`":`))
	digits := bytes.IndexByte(after, ',')
	if !ok || digits < 0 {
		return nil, errNotEncoded
	}
	stored, err := strconv.ParseInt(string(after[:digits]), 10, 64)
	if err != nil {
		return nil, errNotEncoded
	}
	text := append(make([]byte, 0, len(doc)+20), doc[:len(doc)-len(after)]...)
	text = strconv.AppendInt(text, value(stored), 10)
	return append(text, after[digits:]...), nil
}

// each calls fn with all records of the list in order. fn must not retain them.
func (s *listQuery) each(fn func(*Record) error) error {
	if absent, err := s.knownEmpty(); err != nil || absent {
		return err
	}
	if s.byDistance {
		found, err := s.nearest(noLimit)
		if err != nil {
			return err
		}
		return s.eachCandidate(found, fn)
	}
	s.counted = make(map[int]rowCount)
	for _, null := range []bool{false, true} {
		if !s.enterPartition(null) {
			continue
		}
		if err := s.eachInPartition(fn); err != nil {
			return err
		}
	}
	return nil
}

// emit calls fn with a record if it is accepted.
func (s *listQuery) emit(d *Record, fn func(*Record) error) error {
	if s.accept != nil {
		if ok, err := s.accept(d); err != nil || !ok {
			return err
		}
	}
	return fn(d)
}

// eachInPartition is each for one partition: by the ride index or a small filter set if
// possible, else by a single index scan.
func (s *listQuery) eachInPartition(fn func(*Record) error) error {
	if s.usesRideIndex() {
		search, err := s.searchRideIndex(nil)
		if err != nil {
			return err
		}
		if _, inArea := search.Estimate(); inArea <= float64(s.limits.export) {
			found, err := s.findInRideIndex(noLimit)
			if err != nil {
				return err
			}
			return s.eachCandidate(found, fn)
		}
	}
	w := s.accessPath(nil)
	if s.filtersRows(w) {
		least, small, err := s.cheapestSet(s.budget[2].set)
		if err != nil {
			return err
		}
		if small {
			found, err := s.readSet(least, nil, noLimit)
			if err != nil {
				return err
			}
			return s.eachCandidate(found, fn)
		}
		if s.key.column == "" && least != noSet {
			w = s.accessPath(&least)
		}
	}
	return s.eachRow(w, fn)
}

// eachRow calls fn with the records of the partition by a single index scan.
func (s *listQuery) eachRow(w *filter, fn func(*Record) error) error {
	var st keyset.Statement
	value, cell := "NULL", "NULL"
	if !s.orderedByID() {
		value = s.key.column
	}
	if s.inside != nil {
		cell = s.cell
	}
	s.writeIndexScan(&st, w, s.recordColumns()+", "+value+" AS value, "+cell+" AS cell", nil, nil, true)
	st.Addf(" ORDER BY %s", s.ordering())
	rows, err := s.q.Query(s.ctx, st.String(), st.Args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var d Record
	var doc, state, unused sql.RawBytes
	var started, paused, at sql.NullInt64
	for rows.Next() {
		if err := rows.Scan(&d.ID, &d.SubaccountID, &d.Revision, &doc, &state, &started, &paused, &unused, &at); err != nil {
			return err
		}
		lat, lng := geo.CellPosition(at.Int64)
		if s.inside != nil && !(at.Valid && s.inside(lat, lng)) {
			continue
		}
		d.JSON, d.Distance = doc, -1
		if s.near != nil {
			d.Distance = s.near.Distance(lat, lng)
		}
		if err := s.updateDurations(&d, RideStatus(state), started, paused); err != nil {
			return err
		}
		if err := s.emit(&d, fn); err != nil {
			return err
		}
	}
	return rows.Err()
}

// eachCandidate calls fn with the records of candidates.
func (s *listQuery) eachCandidate(found []candidate, fn func(*Record) error) error {
	for some := range slices.Chunk(found, 200) {
		docs, err := s.loadRecords(some)
		if err != nil {
			return err
		}
		for i := range docs {
			if err := s.emit(&docs[i], fn); err != nil {
				return err
			}
		}
	}
	return nil
}
