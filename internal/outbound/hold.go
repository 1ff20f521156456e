package outbound

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// HoldAfterRestoreTx holds outgoing work in a restored database of the helpdesk, before a server
// runs on it: the backup does not know which of the waiting work was done after it. reason is one
// line for people, such as the time of the backup.
//
// The waiting replies count as submitted with an unknown outcome. After the release each is looked
// up at its provider, or repeated with its idempotency key, or else fails visibly.
func HoldAfterRestoreTx(ctx context.Context, tx *db.Tx, reason string) error {
	if err := queue.HoldOutgoingTx(ctx, tx, queue.Hold{Reason: reason, Restored: true}); err != nil {
		return err
	}
	return desk.MarkRestoredTx(ctx, tx)
}
