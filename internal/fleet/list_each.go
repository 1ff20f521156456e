package fleet

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

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
		least, small, err := s.count(s.pace[1].set)
		if err != nil {
			return err
		}
		if small {
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
	value, cell := "NULL", "NULL"
	if !s.plain() {
		value = s.key.column
	}
	if s.inside != nil {
		cell = s.cell
	}
	s.along(&st, w, columns+", "+value+" AS value, "+cell+" AS cell", nil, nil, true)
	st.addf(" ORDER BY %s", s.ordering())
	rows, err := s.q.Query(s.ctx, st.String(), st.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var d Doc
	var doc, state, unused sql.RawBytes
	var paused, at sql.NullInt64
	for rows.Next() {
		if err := rows.Scan(&d.ID, &d.SubaccountID, &d.Revision, &doc, &state, &paused, &unused, &at); err != nil {
			return err
		}
		lat, lng := positionOf(at.Int64)
		if s.inside != nil && !(at.Valid && s.inside(lat, lng)) {
			continue
		}
		d.JSON, d.Distance = doc, -1
		if s.near != nil {
			d.Distance = s.near.distance(lat, lng)
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
