package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// redactImports removes a customer from the reports of the organization's imports, and the records of
// imports that name it. Reports quote names, addresses, subjects and ids of tickets.
func (s *Service) redactImports(ctx context.Context, organizationID, customerID string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		ids, err := mergedDown(ctx, tx, "customers", organizationID, customerID)
		if err != nil {
			return err
		}
		if err := tx.Queue(ctx, "DELETE FROM import_records WHERE organization_id = $1 AND kind = $2 AND record_id = ANY($3)", organizationID, importedCustomer, ids); err != nil {
			return fmt.Errorf("delete imported records: %w", err)
		}
		type report struct {
			id, reason string
			problems   []json.RawMessage
		}
		reports, err := db.All(ctx, tx, func(row db.Row) (r report, err error) {
			err = row.Scan(&r.id, db.IntoText(&r.reason), db.IntoJSON(&r.problems))
			return r, err
		}, "SELECT id, error, problems FROM imports WHERE organization_id = $1 AND (problems <> '[]' OR error IS NOT NULL) ORDER BY id FOR UPDATE", organizationID)
		if err != nil || len(reports) == 0 {
			return err
		}
		names, err := namesOf(ctx, tx, ids)
		if err != nil {
			return err
		}
		named := func(text string) bool {
			text = strings.ToLower(text)
			return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) })
		}
		for _, r := range reports {
			rest := slices.DeleteFunc(slices.Clone(r.problems), func(p json.RawMessage) bool { return named(textOf(p)) })
			if len(rest) == len(r.problems) && !named(r.reason) {
				continue
			}
			if named(r.reason) {
				r.reason = redactedSubject
			}
			if err := tx.Queue(ctx, "UPDATE imports SET problems = $2, error = $3 WHERE id = $1", r.id, db.JSON(rest), db.Text(r.reason)); err != nil {
				return fmt.Errorf("change import: %w", err)
			}
		}
		return nil
	})
}

// textOf returns the texts of a problem of an import.
func textOf(p json.RawMessage) string {
	var texts struct{ Where, Reason string }
	if json.Unmarshal(p, &texts) != nil {
		return ""
	}
	return texts.Where + "\n" + texts.Reason
}

// namesOf returns in lower case by what the report of an import may name customers: names, addresses,
// numbers, and the subjects and external ids of their tickets.
func namesOf(ctx context.Context, q db.Querier, customerIDs []string) ([]string, error) {
	list, err := db.All(ctx, q, scanText, `SELECT name FROM customers WHERE id = ANY($1)
		UNION SELECT external_id FROM customers WHERE id = ANY($1) AND external_id IS NOT NULL
		UNION SELECT value FROM contact_points WHERE customer_id = ANY($1)
		UNION SELECT subject FROM tickets WHERE customer_id = ANY($1)
		UNION SELECT external_id FROM tickets WHERE customer_id = ANY($1) AND external_id IS NOT NULL`, customerIDs)
	if err != nil {
		return nil, fmt.Errorf("find names of customer: %w", err)
	}
	var names []string
	for _, name := range list {
		// The report has the beginning of a long text.
		if name = strings.ToLower(strings.TrimSpace(name[:min(len(name), 40)])); len(name) > 2 && name != redactedSubject {
			names = append(names, strings.ToValidUTF8(name, ""))
		}
	}
	return names, nil
}
