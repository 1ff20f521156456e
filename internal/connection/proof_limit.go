package connection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// limit is a rate limit.
type limit struct {
	name   string
	most   int64
	window time.Duration
}

const day = 24 * time.Hour

// challengeLimits protects people from unsolicited challenges: per organization and address,
// per address, per organization, and for the deployment, which pays for them.
func challengeLimits(c *Connection, ticketChannel string, way channel.ProofWay) []limit {
	own := c.OrganizationID + "/" + ticketChannel + "/" + c.Address
	if way == channel.ProveByTopic {
		return []limit{{"topic/" + own, 20, day}} // sends no message
	}
	all := limit{"all/" + string(way), 2000, day}
	if way == channel.ProveByText {
		all.most = 200
	}
	return []limit{
		{"minute/" + own, 1, time.Minute},
		{"own/" + own, 5, day},
		{"address/" + ticketChannel + "/" + c.Address, 10, day},
		{"organization/" + c.OrganizationID, 30, day},
		all,
	}
}

// lookupLimits bounds an organization's lookups of records and providers.
func lookupLimits(c *Connection) []limit {
	return []limit{{"questions/" + c.OrganizationID, 60, time.Hour}}
}

// countAttempt counts an attempt under each limit, in the transaction. Over a limit it returns
// RateLimited, and the transaction must fail.
func (s *Service) countAttempt(ctx context.Context, tx *db.Tx, limits []limit) error {
	slices.SortFunc(limits, func(a, b limit) int { return cmp.Compare(a.name, b.name) }) // lock order
	for _, l := range limits {
		ends := tx.Now.Truncate(l.window).Add(l.window)
		var count int64
		err := tx.QueryRow(ctx, `INSERT INTO proof_limits (name, ends_at, count) VALUES ($1, $2, 1)
			ON CONFLICT (name, ends_at) DO UPDATE SET count = proof_limits.count + 1 RETURNING count`, l.name, ends.UnixMicro()).Scan(&count)
		if err != nil {
			return fmt.Errorf("count an attempt to prove an address: %w", err)
		}
		if count > l.most {
			return &problem.Error{
				Kind: problem.RateLimited, Message: "there were too many attempts to prove this address; try again later",
				RetryAfter: (ends.Sub(tx.Now) + time.Second - 1).Truncate(time.Second), // at least a second
			}
		}
	}
	return nil
}
