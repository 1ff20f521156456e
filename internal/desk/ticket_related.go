package desk

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// maxRelated bounds the tickets of one relation in [Service.Related].
const maxRelated = 50

// Related returns the tickets linked to t, by number: the ticket it was merged into
// or continues, and the tickets merged into it or continuing it, the newest of
// many.
func (s *Service) Related(ctx context.Context, q db.Querier, organizationID string, t *Ticket) ([]Ticket, error) {
	// The conditions are not bare columns, so that no engine walks all tickets in the order of their numbers.
	list, err := db.All(ctx, q, scanTicket, fmt.Sprintf("SELECT "+ticketColumns+` FROM (
			SELECT id FROM tickets WHERE id IN ($3, $4)
			UNION SELECT id FROM (SELECT id FROM tickets WHERE merged_into_id = $2 ORDER BY number DESC LIMIT %d) AS m
			UNION SELECT id FROM (SELECT id FROM tickets WHERE linked_ticket_id = $2 ORDER BY number DESC LIMIT %[1]d) AS l) AS r
		CROSS JOIN tickets t JOIN customers u ON u.id = t.customer_id
		WHERE t.id = r.id AND coalesce(t.organization_id = $1, FALSE) AND t.id <> $2 ORDER BY coalesce(t.number, 0)`, maxRelated),
		organizationID, t.ID, t.LinkedTicketID, t.MergedIntoID)
	if err != nil {
		return nil, fmt.Errorf("load related tickets: %w", err)
	}
	return list, nil
}
