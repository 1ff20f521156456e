package account

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ChangePreferences replaces a user's preferences by those that change returns, for members
// beside [Preferences]. The user is locked meanwhile, so no other change is lost. Error: TooLarge.
func (s *Service) ChangePreferences(ctx context.Context, userID string, change func(object json.RawMessage) (json.RawMessage, error)) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := lockUser(ctx, tx, userID)
		if err != nil {
			return err
		}
		object, err := change(u.Preferences)
		if err != nil {
			return err
		}
		if len(object) > maxPreferences {
			return problem.New(problem.TooLarge, "the preferences of other clients leave no room for these")
		}
		if err := tx.Queue(ctx, "UPDATE users SET preferences = $2, updated_at = $3 WHERE id = $1", u.ID, string(object), tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("update preferences: %w", err)
		}
		return nil
	})
}
