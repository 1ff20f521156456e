package inbound

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// Count holds the number of a channel's requests by outcome since the process started.
// Unverified requests leave no other trace.
type Count struct {
	Channel   string `json:"channel"`
	Accepted  int64  `json:"accepted"`
	Duplicate int64  `json:"duplicate"`
	Ignored   int64  `json:"ignored"`
	Rejected  int64  `json:"rejected"` // verified, but unreadable
	Refused   int64  `json:"refused"`  // not verified
}

// Counts returns the counts of all channels, sorted by name.
func (s *Service) Counts() []Count {
	var list []Count
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		t := s.counts[name]
		list = append(list, Count{
			Channel: name, Accepted: t.accepted.Load(), Duplicate: t.duplicate.Load(), Ignored: t.ignored.Load(),
			Rejected: t.rejected.Load(), Refused: t.refused.Load(),
		})
	}
	return list
}

// channelCounts counts the requests of a channel.
type channelCounts struct {
	accepted, duplicate, ignored, rejected, refused atomic.Int64
}

func (t *channelCounts) add(o channel.Outcome) {
	switch o {
	case channel.Accepted:
		t.accepted.Add(1)
	case channel.Duplicate:
		t.duplicate.Add(1)
	default:
		t.ignored.Add(1)
	}
}
