package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

// column is a column beside the document, with its stored value: nil, a string or
// an int64.
type column struct {
	name  string
	value any
}

// insertRow inserts a row of an organization. It returns false if a unique key
// exists.
func insertRow(ctx context.Context, tx *db.Tx, table, organizationID string, columns []column) (bool, error) {
	var names, places strings.Builder
	args := append(make([]any, 0, len(columns)+1), organizationID)
	for _, c := range columns {
		args = append(args, c.value)
		names.WriteString(", ")
		names.WriteString(c.name)
		places.WriteString(", $")
		places.WriteString(strconv.Itoa(len(args)))
	}
	n, err := tx.Exec(ctx, "INSERT INTO "+table+" (organization_id"+names.String()+") VALUES ($1"+places.String()+") ON CONFLICT DO NOTHING", args...)
	if err != nil {
		return false, fmt.Errorf("insert into %s: %w", table, err)
	}
	return n == 1, nil
}

// updateRow writes the changed columns of a locked row. Unchanged columns are
// omitted, since setting a column rewrites its indexes. Both lists have the same
// columns.
func updateRow(ctx context.Context, tx *db.Tx, table, organizationID, id string, before, after []column) error {
	statement, args := updateStatement(table, organizationID, id, before, after)
	if statement == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, statement, args...); err != nil {
		return fmt.Errorf("update %s: %w", table, err)
	}
	return nil
}

// queueUpdate is [updateRow] without waiting for the result. No unique column may change.
func queueUpdate(ctx context.Context, tx *db.Tx, table, organizationID, id string, before, after []column) error {
	statement, args := updateStatement(table, organizationID, id, before, after)
	if statement == "" {
		return nil
	}
	if err := tx.Queue(ctx, statement, args...); err != nil {
		return fmt.Errorf("update %s: %w", table, err)
	}
	return nil
}

// updateStatement returns the statement of updateRow, empty if no column changed.
func updateStatement(table, organizationID, id string, before, after []column) (string, []any) {
	var set strings.Builder
	args := append(make([]any, 0, len(after)+2), organizationID, id)
	for i, c := range after {
		if before[i].value == c.value {
			continue
		}
		args = append(args, c.value)
		if len(args) > 3 {
			set.WriteString(", ")
		}
		set.WriteString(c.name)
		set.WriteString(" = $")
		set.WriteString(strconv.Itoa(len(args)))
	}
	if len(args) == 2 {
		return "", nil
	}
	return "UPDATE " + table + " SET " + set.String() + " WHERE organization_id = $1 AND id = $2", args
}

// claimUnique returns a Conflict error if another row has the value. It locks the
// value, so of two concurrent updates the second one fails; against concurrent
// inserts, check [db.IsUnique] after the write. The value is unique in the
// subaccount, or in the organization if subaccountID is empty.
func claimUnique(ctx context.Context, tx *db.Tx, table, organizationID, subaccountID, id, member string, value NullString) error {
	if value == "" {
		return nil
	}
	if err := tx.Lock(ctx, "fleet "+table+" "+member+" "+organizationID+" "+string(value)); err != nil {
		return err
	}
	from, args := table+" WHERE organization_id = $1 AND "+member+" = $2 AND id <> $3", []any{organizationID, string(value), id}
	if subaccountID != "" {
		from, args = from+" AND subaccount_id = $4", append(args, subaccountID)
	}
	return checkUnique(ctx, tx, member, from, args...)
}

// idValue is the stored form of an id; NULL if empty.
func idValue(t NullString) any { return db.Text(string(t)) }

// FindVehicleID returns id if it is not empty, else the id of the vehicle with an
// external id in a subaccount; empty if there is none.
func (s *Service) FindVehicleID(ctx context.Context, q db.Querier, organizationID, id, subaccountID, externalID string) (string, error) {
	return findID(ctx, q, "vehicles", organizationID, id, subaccountID, externalID)
}

// FindZoneID is [Service.FindVehicleID] for zones.
func (s *Service) FindZoneID(ctx context.Context, q db.Querier, organizationID, id, subaccountID, externalID string) (string, error) {
	return findID(ctx, q, "zones", organizationID, id, subaccountID, externalID)
}

func findID(ctx context.Context, q db.Querier, table, organizationID, id, subaccountID, externalID string) (string, error) {
	if id != "" {
		return id, nil
	}
	err := q.QueryRow(ctx, "SELECT id FROM "+table+" WHERE organization_id = $1 AND external_id = $2 AND subaccount_id = $3", organizationID, externalID, subaccountID).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up a record by external id: %w", err)
	}
	return id, nil
}

// integerValue is the stored form of an integer; NULL if nil.
func integerValue(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

// cellValue is the stored form of a position; NULL if nil.
func cellValue(p *geo.Position) any {
	if p == nil {
		return nil
	}
	return geo.CellAt(geo.Millionths(p.Lat), geo.Millionths(p.Lng))
}
