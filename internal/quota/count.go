package quota

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Mode is what happens to a change that exceeds a limit.
type Mode bool

// The modes.
const (
	Counted  Mode = false // it is only counted
	Enforced Mode = true  // its transaction fails
)

// change is an addition of a transaction.
type change struct {
	use
	mode Mode
}

// AddStorageTx adds to an organization's stored bytes, in the caller's transaction. The caller
// stores in the row of each file that it is counted, and subtracts its size when it is deleted. If
// the change exceeds the limit and is enforced, the transaction fails as it ends, with
// [CodeExceeded].
func (s *Service) AddStorageTx(ctx context.Context, tx *db.Tx, organizationID string, bytes int64, m Mode) {
	if s != nil && bytes != 0 {
		s.add(ctx, tx, organizationID, change{use{storage: bytes}, m})
	}
}

// AddMessageTx counts a message of an organization, in the caller's transaction, if there is a
// limit. If the message exceeds it and is enforced, the transaction fails as it ends, with
// [CodeDailyExceeded].
func (s *Service) AddMessageTx(ctx context.Context, tx *db.Tx, organizationID string, m Mode) error {
	counts, err := s.Counts(ctx, tx, organizationID, Messages)
	if err == nil && counts {
		s.add(ctx, tx, organizationID, change{use{messages: 1}, m})
	}
	return err
}

func (s *Service) add(ctx context.Context, tx *db.Tx, organizationID string, c change) {
	tx.Gather(lockOrder(organizationID), c, func(changes []any) error { return s.apply(ctx, tx, organizationID, changes) })
}

// apply writes the changes of a transaction.
func (s *Service) apply(ctx context.Context, tx *db.Tx, organizationID string, changes []any) error {
	var sum use
	mode := Counted
	for _, c := range changes {
		c := c.(change)
		sum.storage += c.storage
		sum.messages += c.messages
		mode = mode || c.mode
	}
	if sum == (use{}) {
		return nil
	}
	today := day(tx.Now)
	var now use
	// A transaction that began before midnight and ends after it counts for the new day.
	if err := tx.QueryRow(ctx, `INSERT INTO quotas (organization_id, storage, day, messages) VALUES ($1, $2, $3, $4)
		ON CONFLICT (organization_id) DO UPDATE SET storage = quotas.storage + excluded.storage,
			messages = CASE WHEN quotas.day < excluded.day THEN 0 ELSE quotas.messages END + excluded.messages,
			day = CASE WHEN quotas.day < excluded.day THEN excluded.day ELSE quotas.day END
		RETURNING storage, messages`, organizationID, sum.storage, today, sum.messages).Scan(&now.storage, &now.messages); err != nil {
		return fmt.Errorf("count use: %w", err)
	}
	limits, err := s.limitsOf(ctx, tx, organizationID)
	if err != nil {
		return err
	}
	if sum.storage > 0 && limits[Storage].Max != Unlimited {
		err := s.addElsewhere(ctx, organizationID, nil, &now)
		switch {
		case err == nil:
		case mode == Enforced:
			return err
		default: // received all the same
			s.log.LogAttrs(ctx, slog.LevelError, "files elsewhere are not counted for the notice of a quota", slog.String("organization", organizationID), slog.Any("error", err))
		}
	}
	if mode == Enforced {
		if err := s.enforce(ctx, tx, organizationID, now, sum, tx.Now); err != nil {
			return err
		}
	}
	if limits, err = s.limitsOf(ctx, tx, organizationID); err != nil { // read again if they seemed exceeded
		return err
	}
	for _, n := range []notice{
		{Quota: Storage, Limit: limits[Storage].Max, Share: share(now.storage-sum.storage, now.storage, limits[Storage].Max)},
		{Quota: Messages, Limit: limits[Messages].Max, Share: share(now.messages-sum.messages, now.messages, limits[Messages].Max), Day: today},
	} {
		if err := s.enqueueNotice(ctx, tx, organizationID, n); err != nil {
			return err
		}
	}
	return nil
}

// shares are the percentages of a quota at which admins are notified.
var shares = [...]int64{100, 80}

// share returns the highest of the shares of a limit that a change from before to now has reached;
// 0: none.
func share(before, now, limit int64) int64 {
	if limit == Unlimited {
		return 0
	}
	for _, percent := range shares {
		if at := part(limit, percent); before < at && now >= at {
			return percent
		}
	}
	return 0
}

// part returns a percentage of a limit, rounded up.
func part(limit, percent int64) int64 { return limit/100*percent + (limit%100*percent+99)/100 }

// enqueueNotice enqueues a notice, unless no share is reached.
func (s *Service) enqueueNotice(ctx context.Context, tx *db.Tx, organizationID string, n notice) error {
	if n.Share == 0 {
		return nil
	}
	n.OrganizationID = organizationID
	payload, err := json.Marshal(n)
	if err != nil {
		return err
	}
	tx.AfterCommit(func() {
		if n.Share == 100 {
			s.c.Observe(n.Quota, "reached")
			s.log.WarnContext(ctx, "an organization has used up a quota", "organization", organizationID, "quota", string(n.Quota), "limit", n.Limit)
		}
	})
	return s.c.Queue.EnqueueTx(ctx, tx, queue.New{Kind: noticeKind, Lane: organizationID, Tenant: organizationID, Payload: payload})
}
