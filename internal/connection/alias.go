package connection

import (
	"context"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// saveAliases stores the further addresses of a connection in place of the former ones.
func (s *Service) saveAliases(ctx context.Context, tx *db.Tx, c *Connection) error {
	reader, ok := s.adapters[c.Channel].(channel.AliasReader)
	if !ok {
		return nil
	}
	if _, err := tx.Exec(ctx, "DELETE FROM connection_aliases WHERE connection_id = $1", c.ID); err != nil {
		return fmt.Errorf("delete aliases: %w", err)
	}
	aliases := reader.Aliases(c.Settings)
	slices.Sort(aliases)
	for _, address := range slices.Compact(aliases) {
		_, err := tx.Exec(ctx, "INSERT INTO connection_aliases (connection_id, address, organization_id, medium) VALUES ($1, $2, $3, $4)",
			c.ID, address, c.OrganizationID, s.adapters[c.Channel].Info().TicketChannel)
		if err != nil {
			return fmt.Errorf("save alias: %w", err)
		}
	}
	return nil
}
