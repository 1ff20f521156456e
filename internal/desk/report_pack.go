package desk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Reports read the facts of tickets from chunks, which [Service.PackReports] writes in the
// background: one has 2,048 consecutive numbers. Each change of a fact adds a row to report_changes
// in its transaction, by a trigger. A report ignores the packed facts of these tickets and reads
// them from their rows, as it does the tickets after the last chunk. So it is exact at any time,
// however late the packing.

const (
	// reportChunk is the number of ticket numbers of a chunk. Another one needs new chunks.
	reportChunk = 2048
	// packedAtOnce bounds the chunks that one transaction writes.
	packedAtOnce = 2
	// changesAtOnce bounds the changes that one transaction reads.
	changesAtOnce = 4000
)

// PackReports packs new tickets, and changed ones where many changes have gathered. The facts of a
// deleted ticket must not stay: their chunk is packed again at once, so by each call at most once. It
// may run in several processes; one works at a time.
func (s *Service) PackReports(ctx context.Context) error {
	organizations, err := db.All(ctx, s.db, scanText, `SELECT n.organization_id FROM ticket_numbers n
			WHERE n.last >= $1 + coalesce((SELECT max(c.first) + $1 - 1 FROM report_chunks c WHERE c.organization_id = n.organization_id), 0)
		UNION SELECT organization_id FROM report_changes GROUP BY organization_id HAVING count(*) >= $2`, int64(reportChunk), s.limits.changes)
	if err != nil {
		return fmt.Errorf("find reports to pack: %w", err)
	}
	deleted, err := db.All(ctx, s.db, scanText, "SELECT DISTINCT organization_id FROM report_changes WHERE gone ORDER BY organization_id")
	if err != nil {
		return fmt.Errorf("find deleted tickets in reports: %w", err)
	}
	var failed error // of some organizations; the rest proceeds
	for _, of := range []struct {
		organizations []string
		which         string
	}{{deleted, "AND number IN (SELECT number FROM report_changes WHERE organization_id = $1 AND gone)"}, {organizations, ""}} {
		for _, id := range of.organizations {
			for more := true; more; {
				if more, err = s.packReport(ctx, id, of.which); err != nil {
					failed = errors.Join(failed, fmt.Errorf("pack reports of %s: %w", id, err))
					break
				}
			}
		}
	}
	return failed
}

// reportChange is a row of report_changes.
type reportChange struct {
	id     string
	number int64
}

// packReport writes some chunks of an organization, and reports whether there are more to write. which is
// a condition on the changes that it reads.
func (s *Service) packReport(ctx context.Context, organizationID, which string) (more bool, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		more = false
		if ok, err := tx.TryLock(ctx, "reports"); err != nil || !ok {
			return err
		}
		covered, last, err := coveredNumbers(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		// Before the facts: a change that commits in between stays.
		changes, err := db.All(ctx, tx, func(row db.Row) (c reportChange, err error) {
			err = row.Scan(&c.id, &c.number)
			return c, err
		}, "SELECT id, number FROM report_changes WHERE organization_id = $1 "+which+" ORDER BY id LIMIT $2", organizationID, changesAtOnce)
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}
		pending := make(map[int64][]string) // changes by the first number of their chunk
		for _, c := range changes {
			first := c.number - (c.number-1)%reportChunk
			pending[first] = append(pending[first], c.id)
		}
		var packed []int64
		for first := covered + 1; first+reportChunk-1 <= last && len(packed) < packedAtOnce; first += reportChunk {
			packed = append(packed, first)
		}
		covered += int64(len(packed)) * reportChunk
		more = covered+reportChunk <= last || len(changes) == changesAtOnce
		for _, first := range slices.Sorted(maps.Keys(pending)) {
			switch {
			case first > covered || slices.Contains(packed, first):
			case len(packed) == packedAtOnce:
				more = true
			default:
				packed = append(packed, first)
			}
		}
		var done []string
		for _, first := range packed {
			if err := packChunk(ctx, tx, organizationID, first); err != nil {
				return err
			}
			done = append(done, pending[first]...)
		}
		for first, ids := range pending {
			if first > covered { // their chunk is written later, from the tickets as they are then
				done = append(done, ids...)
			}
		}
		if err := tx.Queue(ctx, "DELETE FROM report_changes WHERE organization_id = $1 AND id = ANY($2)", organizationID, done); err != nil {
			return fmt.Errorf("delete changes: %w", err)
		}
		return nil
	})
	return more, err
}

// coveredNumbers returns the last number of the last chunk, and the last number; 0 for none. Numbers
// are committed in order, so that each smaller one is in the same snapshot.
func coveredNumbers(ctx context.Context, q db.Querier, organizationID string) (covered, last int64, err error) {
	err = q.QueryRow(ctx, `SELECT coalesce((SELECT max(first) + $2 - 1 FROM report_chunks WHERE organization_id = $1), 0),
		coalesce((SELECT last FROM ticket_numbers WHERE organization_id = $1), 0)`, organizationID, int64(reportChunk)).Scan(&covered, &last)
	if err != nil {
		return 0, 0, fmt.Errorf("find the last chunk: %w", err)
	}
	return covered, last, nil
}

// packChunk writes the chunk whose numbers begin at first.
func packChunk(ctx context.Context, tx *db.Tx, organizationID string, first int64) error {
	f, err := readReportFacts(ctx, tx, organizationID, "number >= $2 AND number < $3", first, first+reportChunk)
	if err != nil {
		return err
	}
	all, err := f.encode(first)
	if err != nil {
		return err
	}
	unresolved, err := f.unresolved().encode(first)
	if err != nil {
		return err
	}
	firstAt, lastAt := f.span()
	if err := tx.Queue(ctx, `INSERT INTO report_chunks (organization_id, first, first_at, last_at, unresolved, facts) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (organization_id, first) DO UPDATE SET first_at = excluded.first_at, last_at = excluded.last_at,
			unresolved = excluded.unresolved, facts = excluded.facts`, organizationID, first, firstAt, lastAt, unresolved, all); err != nil {
		return fmt.Errorf("write chunk: %w", err)
	}
	return nil
}
