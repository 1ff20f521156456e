package inbound

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// Count is what became of the requests of a channel since the process started.
// Requests that were not verified leave no other trace.
type Count struct {
	Channel   string `json:"channel"`
	Accepted  int64  `json:"accepted"`
	Duplicate int64  `json:"duplicate"`
	Ignored   int64  `json:"ignored"`
	Rejected  int64  `json:"rejected"` // verified, but unreadable
	Refused   int64  `json:"refused"`  // not verified
}

// Counts returns the counts of all channels.
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

// tally counts the requests of a channel.
type tally struct {
	accepted, duplicate, ignored, rejected, refused atomic.Int64
	told                                            atomic.Int64 // when refusals were last logged, in microseconds
}

func (t *tally) add(o channel.Outcome) {
	switch o {
	case channel.Accepted:
		t.accepted.Add(1)
	case channel.Duplicate:
		t.duplicate.Add(1)
	default:
		t.ignored.Add(1)
	}
}

// refuse counts a refusal, and reports whether to log it: once a second, so
// that a flood of forgeries does not become one of lines.
func (t *tally) refuse(now time.Time) (refused int64, tell bool) {
	last := t.told.Load()
	tell = now.UnixMicro()-last >= time.Second.Microseconds() && t.told.CompareAndSwap(last, now.UnixMicro())
	return t.refused.Add(1), tell
}
