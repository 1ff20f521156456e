package mail

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Enqueuer enqueues mails in the transaction of the change that they report.
type Enqueuer interface {
	// EnqueueMailTx enqueues m, which is sent if tx commits. A zero From means the configured
	// sender.
	EnqueueMailTx(ctx context.Context, tx *db.Tx, m Message) error
}

// Admins finds the recipients of notices to an organization.
type Admins interface {
	// AdminAddresses returns the addresses of the organization's admins.
	AdminAddresses(ctx context.Context, q db.Querier, organizationID string) ([]Address, error)
}
