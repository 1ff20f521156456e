package connection

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// OnChange registers fn to be called in the transaction of each change: with the new state of a
// created or updated connection, or the last state of a deleted one. It is not called for
// notices. An error of fn fails the change. Call OnChange before the service is used.
func (s *Service) OnChange(fn func(ctx context.Context, tx *db.Tx, c *Connection, gone bool) error) {
	s.observers = append(s.observers, fn)
}

// notifyObservers calls the functions registered by [Service.OnChange].
func (s *Service) notifyObservers(ctx context.Context, tx *db.Tx, c *Connection, gone bool) error {
	for _, fn := range s.observers {
		if err := fn(ctx, tx, c, gone); err != nil {
			return err
		}
	}
	return nil
}
