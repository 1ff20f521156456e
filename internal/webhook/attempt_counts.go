package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// CountInterval is the length of the interval over which attempts are counted.
const CountInterval = 30 * time.Minute

// Count is the number of attempts, by result, that began within [CountInterval] from At.
type Count struct {
	At        time.Time
	Delivered int64
	Retried   int64 // failed; another attempt follows
	Failed    int64 // failed for the last time
}

// Counts returns the attempt counts of an organization's webhooks, by webhook id, oldest first,
// starting with the interval that contains since. Intervals without attempts are left out.
// Counts are retained as long as the attempts.
func (s *Service) Counts(ctx context.Context, organizationID string, since time.Time) (map[string][]Count, error) {
	type of struct {
		webhookID string
		Count
	}
	list, err := db.All(ctx, s.db, func(row db.Row) (c of, err error) {
		err = row.Scan(&c.webhookID, db.IntoTime(&c.At), &c.Delivered, &c.Retried, &c.Failed)
		return c, err
	}, `SELECT c.webhook_id, c.at, c.delivered, c.retried, c.failed FROM webhooks w JOIN attempt_counts c ON c.webhook_id = w.id
		WHERE w.organization_id = $1 AND c.at >= $2 ORDER BY c.webhook_id, c.at`, organizationID, since.Truncate(CountInterval).UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("count attempts: %w", err)
	}
	counts := make(map[string][]Count)
	for _, c := range list {
		counts[c.webhookID] = append(counts[c.webhookID], c.Count)
	}
	return counts, nil
}

// countDelta is an increment of a webhook's count.
type countDelta struct {
	webhookID string
	Count
}

// countDeltas returns the increments for a batch of results sorted by webhook, in the order in
// which rows are locked.
func countDeltas(batch []*result) []countDelta {
	var out []countDelta
	for _, r := range batch {
		if r.err != nil || r.state == Pending {
			continue
		}
		at := r.attempt.at.UTC().Truncate(CountInterval)
		i := len(out) - 1
		for i >= 0 && out[i].webhookID == r.job.Lane && !out[i].At.Equal(at) {
			i--
		}
		if i < 0 || out[i].webhookID != r.job.Lane {
			out = append(out, countDelta{r.job.Lane, Count{At: at}})
			i = len(out) - 1
		}
		out[i].add(r.state)
	}
	slices.SortFunc(out, func(a, b countDelta) int {
		return cmp.Or(cmp.Compare(a.webhookID, b.webhookID), a.At.Compare(b.At))
	})
	return out
}

func (c *Count) add(state DeliveryState) {
	switch state {
	case Delivered:
		c.Delivered++
	case Retrying:
		c.Retried++
	default:
		c.Failed++
	}
}

// addCounts holds statements by number of rows.
var addCounts = func() (statements [insertRows + 1]string) {
	var rows []string
	for n := 1; n <= insertRows; n++ {
		rows = append(rows, fmt.Sprintf("($%d, $%d, $%d, $%d, $%d)", 5*n-4, 5*n-3, 5*n-2, 5*n-1, 5*n))
		statements[n] = "INSERT INTO attempt_counts (webhook_id, at, delivered, retried, failed) VALUES " + strings.Join(rows, ", ") +
			` ON CONFLICT (webhook_id, at) DO UPDATE SET delivered = attempt_counts.delivered + excluded.delivered,
			retried = attempt_counts.retried + excluded.retried, failed = attempt_counts.failed + excluded.failed`
	}
	return statements
}()

// addToCounts applies increments.
func addToCounts(ctx context.Context, tx *db.Tx, all []countDelta) error {
	for some := range slices.Chunk(all, insertRows) {
		args := make([]any, 0, 5*len(some))
		for _, t := range some {
			args = append(args, t.webhookID, t.At.UnixMicro(), t.Delivered, t.Retried, t.Failed)
		}
		if err := tx.Queue(ctx, addCounts[len(some)], args...); err != nil {
			return fmt.Errorf("count attempts: %w", err)
		}
	}
	return nil
}

// purgeCounts deletes counts that began before a time, and counts of deleted webhooks.
func (s *Service) purgeCounts(ctx context.Context, before time.Time) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM attempt_counts WHERE at < $1
			OR NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.id = attempt_counts.webhook_id)`, before.UnixMicro())
		return err
	})
}
