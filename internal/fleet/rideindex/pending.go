package rideindex

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

var pendingColumns = slices.Concat([]string{"start_cell", "id", "revision"}, textColumns[:], intColumns[:])

// upsertPending is the statement that writes a pending row.
var upsertPending = func() string {
	places, set := make([]string, len(pendingColumns)), make([]string, len(pendingColumns))
	for i, name := range pendingColumns {
		places[i], set[i] = "$"+strconv.Itoa(i+2), name+" = excluded."+name
	}
	return "INSERT INTO untiled_rides (organization_id, " + strings.Join(pendingColumns, ", ") + ") VALUES ($1, " + strings.Join(places, ", ") +
		") ON CONFLICT (organization_id, start_cell, id) DO UPDATE SET " + strings.Join(set[2:], ", ")
}()

// UpdateTx records a change of a ride, in the transaction of the change. before and after
// are its entries; nil: it is open, without a start position, or new.
func (x *Index) UpdateTx(ctx context.Context, tx *db.Tx, organizationID string, before, after *Entry) error {
	if before != nil && (after == nil || before.cell != after.cell) {
		_, err := tx.Exec(ctx, "DELETE FROM untiled_rides WHERE organization_id = $1 AND start_cell = $2 AND id = $3",
			organizationID, before.cell, formatID(before.id))
		if err != nil {
			return fmt.Errorf("delete a pending row of the ride index: %w", err)
		}
	}
	if after == nil {
		return nil
	}
	args := append(make([]any, 0, 1+len(pendingColumns)), organizationID, after.cell, formatID(after.id), after.revision)
	for _, text := range after.texts {
		args = append(args, db.Text(text))
	}
	for _, value := range after.values {
		args = append(args, value)
	}
	if err := tx.Queue(ctx, upsertPending, args...); err != nil {
		return fmt.Errorf("write a pending row of the ride index: %w", err)
	}
	return nil
}

// scanEntry scans a row of pendingColumns.
func scanEntry(row db.Row) (e Entry, err error) {
	var id string
	into := []any{&e.cell, &id, &e.revision}
	for c := range e.texts {
		into = append(into, db.IntoText(&e.texts[c]))
	}
	for c := range e.values {
		into = append(into, &e.values[c])
	}
	if err := row.Scan(into...); err != nil {
		return e, err
	}
	e.id, err = parseID(id)
	return e, err
}

// flush moves pending rows to runs of level 0, one per transaction, while there are at
// least Sizes.Flush of them. It stops after Sizes.Round rides; then more is true.
func (x *Index) flush(ctx context.Context, organizationID string) (more bool, err error) {
	for moved := 0; moved < x.sizes.Round; {
		n := 0
		err := x.db.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 AS one FROM untiled_rides WHERE organization_id = $1 LIMIT $2) AS r",
			organizationID, x.sizes.Flush).Scan(&n)
		if err != nil || n < x.sizes.Flush {
			return false, err
		}
		err = x.db.Write(ctx, func(tx *db.Tx) (err error) {
			n, err = x.flushRun(ctx, tx, organizationID)
			return err
		})
		if err != nil {
			return false, err
		}
		moved += max(n, 1)
	}
	return true, nil
}

// flushRows limits the rides of flushRun, unless Sizes.Flush is greater.
const flushRows = 2 << 10

// flushRun moves pending rows to a new run of level 0 and returns their number.
func (x *Index) flushRun(ctx context.Context, tx *db.Tx, organizationID string) (int, error) {
	if err := x.LockTx(ctx, tx, organizationID); err != nil {
		return 0, err
	}
	cell, id := int64(math.MaxInt64), "" // the first row to stay
	err := tx.QueryRow(ctx, "SELECT start_cell, id FROM untiled_rides WHERE organization_id = $1 ORDER BY start_cell, id LIMIT 1 OFFSET $2",
		organizationID, max(flushRows, x.sizes.Flush)).Scan(&cell, &id)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return 0, err
	}
	rides, err := db.All(ctx, tx, scanEntry, "DELETE FROM untiled_rides WHERE organization_id = $1 AND (start_cell, id) < ($2, $3) RETURNING "+strings.Join(pendingColumns, ", "), organizationID, cell, id)
	if err != nil || len(rides) == 0 {
		return 0, err
	}
	return len(rides), packRun(rides, x.sizes.Segment, 0).insertTx(ctx, tx, organizationID)
}

// pendingRanges is the number of cell ranges of a statement.
const pendingRanges = 16

// pendingHits returns the first limit matching pending rows, in list order.
func (s *Search) pendingHits(ctx context.Context, limit int) ([]hit, error) {
	var st keyset.Statement
	value := "0"
	if s.key >= 0 {
		value = intColumns[s.key]
	}
	st.Addf("SELECT id, value FROM (SELECT id, %s AS value FROM (VALUES ", value)
	for i, r := range geo.FixedCover(s.rects, pendingRanges) {
		if i > 0 {
			st.WriteString(", ")
		}
		st.Addf("(CAST(%s AS BIGINT), CAST(%s AS BIGINT))", st.Arg(r.First), st.Arg(r.Last))
	}
	st.Addf(") AS r CROSS JOIN untiled_rides WHERE organization_id = %s AND start_cell BETWEEN r.column1 AND r.column2", st.Arg(s.organization))
	s.writeConditions(&st)
	order := "ASC"
	if s.descending {
		order = "DESC"
	}
	// The limits keep the engine from flattening the subquery.
	st.Addf(" LIMIT %d) AS c ORDER BY value %s, id %s LIMIT %s", noLimit, order, order, st.Arg(limit))
	return db.All(ctx, s.q, func(row db.Row) (h hit, err error) {
		var id string
		if err := row.Scan(&id, &h.value); err != nil {
			return h, err
		}
		h.revision = Current
		h.id, err = parseID(id)
		return h, err
	}, st.String(), st.Args...)
}

// noLimit is a LIMIT without effect.
const noLimit = 1_000_000_000

// writeConditions writes the conditions of a pending row beside its cell range, each in
// CASE, so that the planner uses no other index for it.
func (s *Search) writeConditions(st *keyset.Statement) {
	and := func(format string, args ...any) {
		st.Addf(" AND CASE WHEN "+format+" THEN TRUE ELSE FALSE END", args...)
	}
	areas := make([]string, len(s.areas))
	for i, a := range s.areas {
		areas[i] = fmt.Sprintf("start_cell & %d BETWEEN %s AND %s AND start_cell & %d BETWEEN %s AND %s",
			geo.LatBits, st.Arg(a.Lat.First), st.Arg(a.Lat.Last), geo.LngBits, st.Arg(a.Lng.First), st.Arg(a.Lng.Last))
	}
	and("%s", strings.Join(areas, " OR "))
	if s.spec.FirstID != "" {
		and("id >= %s", st.Arg(s.spec.FirstID))
	}
	if s.spec.LastID != "" {
		and("id < %s", st.Arg(s.spec.LastID))
	}
	for _, f := range s.spec.Filters {
		if f.Values == nil {
			and("%s BETWEEN %s AND %s", f.Column, st.Arg(f.Low), st.Arg(f.High))
		} else {
			and("%s IN (%s)", f.Column, keyset.Placeholders(st, f.Values))
		}
	}
	later := ">"
	if s.descending {
		later = "<"
	}
	switch {
	case s.after == nil:
	case s.key < 0:
		and("id %s %s", later, st.Arg(formatID(s.after.id)))
	default:
		and("(%s, id) %s (%s, %s)", intColumns[s.key], later, st.Arg(s.after.value), st.Arg(formatID(s.after.id)))
	}
}
