package desk

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// FirstTickets is the number of tickets after which an organization is no longer new.
const FirstTickets = 10

// Started returns how many tickets an organization has, at most [FirstTickets] and one more, and
// whether one of the first has a reply.
func (s *Service) Started(ctx context.Context, q db.Querier, organizationID string) (tickets int, replied bool, err error) {
	answered := 0
	err = q.QueryRow(ctx, `SELECT count(*), count(first_responded_at) FROM (
		SELECT first_responded_at FROM tickets WHERE organization_id = $1 ORDER BY number LIMIT $2) AS first`, organizationID, FirstTickets+1).Scan(&tickets, &answered)
	if err != nil {
		return 0, false, fmt.Errorf("count the first tickets: %w", err)
	}
	return tickets, answered > 0, nil
}
