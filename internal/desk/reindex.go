package desk

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// DerivedTables are not copied: the search index, which differs between the engines and which
// [ReindexTx] has made anew, SQLite's last number of a message, which follows the copied ones, and
// the packed tickets of reports, which [Service.PackReports] makes anew.
var DerivedTables = []string{"search_docs", "customer_docs", "search_pending", "facts_pending", "message_numbers", "report_chunks", "report_changes"}

// ReindexTx enqueues all tickets and customers for indexing, after they were copied into a database.
// Until a worker has indexed one, searches do not find it.
func ReindexTx(ctx context.Context, tx *db.Tx) error {
	for _, table := range []string{"search_pending", "facts_pending"} {
		if err := tx.Queue(ctx, "DELETE FROM "+table); err != nil {
			return fmt.Errorf("enqueue indexing: %w", err)
		}
	}
	if err := tx.Queue(ctx, "INSERT INTO search_pending (id, ticket_id, organization_id, number) SELECT id, id, organization_id, number FROM tickets"); err != nil {
		return fmt.Errorf("enqueue indexing: %w", err)
	}
	if err := tx.Queue(ctx, "INSERT INTO facts_pending (id, organization_id, customer_id, last) SELECT id, organization_id, id, -1 FROM customers WHERE deleted_at IS NULL"); err != nil {
		return fmt.Errorf("enqueue indexing: %w", err)
	}
	return nil
}
