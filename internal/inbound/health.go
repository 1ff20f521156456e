package inbound

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/connection"
)

// Health returns the health of a connection: its recorded times and errors, and its newest inbound events.
func (s *Service) Health(ctx context.Context, c *connection.Connection) (connection.Health, error) {
	h, err := s.connections.Health(ctx, s.db, c)
	if err != nil {
		return h, err
	}
	last, err := s.List(ctx, Filter{OrganizationID: c.OrganizationID, ConnectionID: c.ID, Limit: 1})
	if err != nil {
		return h, err
	}
	if len(last) > 0 && last[0].ReceivedAt.After(h.ReceivedAt) {
		h.ReceivedAt = last[0].ReceivedAt
	}
	failed, err := s.List(ctx, Filter{OrganizationID: c.OrganizationID, ConnectionID: c.ID, States: []State{Rejected, Dead}, Limit: 1})
	if err != nil {
		return h, err
	}
	if len(failed) > 0 && failed[0].ReceivedAt.After(h.ErrorAt) {
		h.Error, h.ErrorAt = failed[0].Error, failed[0].ReceivedAt
	}
	return h, nil
}
