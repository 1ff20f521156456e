package inbound

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// maxAttention bounds what [Service.CountAttention] counts of a state.
const maxAttention = 10_000

// CountAttention returns how many stored events wait for a decision of a person, by state:
// unrouted, rejected and dead, each counted up to 10,000.
func (s *Service) CountAttention(ctx context.Context) (map[State]int, error) {
	counts := make(map[State]int)
	err := s.db.Read(ctx, func(tx *db.Tx) error {
		clear(counts)
		for _, state := range []State{Unrouted, Rejected, Dead} {
			var n int
			// The state is part of the statement, so that the partial index applies.
			err := tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM inbound_events WHERE state = '%s' LIMIT $1) AS found", state), maxAttention).Scan(&n)
			if err != nil {
				return err
			}
			counts[state] = n
		}
		return nil
	})
	return counts, err
}
