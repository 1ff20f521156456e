package shop

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/queue"
)

// CarryOut is one attempt at a request.
func (s *Service) CarryOut(ctx context.Context, id string) error {
	return s.runRequest(ctx, &queue.Job{Payload: []byte(id)})
}

// MaxMailed is the size of an archive that goes along with a mail.
const MaxMailed = maxMailed

// LinkLife is for how long a link leads to an archive.
const LinkLife = linkLife

// Recheck is after how long subscriptions are looked at again.
const Recheck = recheck
