package connection

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// OnChange has fn called, in the transaction, whenever a connection was made or
// changed, with what it is then, or removed, with what it was. An error of fn fails
// the change. It is called before the service is used, and not for what is only
// shown of a connection.
func (s *Service) OnChange(fn func(ctx context.Context, tx *db.Tx, c *Connection, gone bool) error) {
	s.observers = append(s.observers, fn)
}

// notifyObservers tells who watches.
func (s *Service) notifyObservers(ctx context.Context, tx *db.Tx, c *Connection, gone bool) error {
	for _, fn := range s.observers {
		if err := fn(ctx, tx, c, gone); err != nil {
			return err
		}
	}
	return nil
}
