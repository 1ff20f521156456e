package shop

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/queue"
)

// CarryOut runs one attempt at a request.
func (s *Service) CarryOut(ctx context.Context, id string) error {
	return s.runRequest(ctx, &queue.Job{Payload: []byte(id)})
}

// MaxMailed is the maximum size of an attached archive.
const MaxMailed = maxMailed

// LinkLife is the life of a link to an archive.
const LinkLife = linkLife

// Recheck is the interval of subscription checks.
const Recheck = recheck
