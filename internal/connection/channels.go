package connection

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// channelsShare is the share of time that goes into reading [Service.ListByChannels] anew
// at most, as a divisor: strangers cause these reads.
const channelsShare = 10

// ofChannels are the connections of some channels as they were read.
type ofChannels struct {
	list  []*Connection
	all   bool
	start time.Time // of the read
	end   time.Time
}

// ListByChannels returns the connections of some channels, enabled or not, read after a
// moment; with the zero time they may be [CacheTTL] old. all is false when there are more
// than the list holds. The connections must not be changed.
//
// Reads take at most a tenth of the time, one at a time; other callers wait.
func (s *Service) ListByChannels(ctx context.Context, channels []string, after time.Time) (list []*Connection, all bool, err error) {
	channels = slices.Sorted(slices.Values(channels))
	key := strings.Join(channels, " ")
	if after.IsZero() {
		after = time.Now().Add(-CacheTTL)
	}
	if r, ok, _ := s.memory.recallChannels(key); ok && r.start.After(after) {
		return r.list, r.all, nil
	}
	select {
	case s.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { <-s.listing }()
	last, ok, _ := s.memory.recallChannels(key)
	if ok && last.start.After(after) {
		return last.list, last.all, nil
	}
	if ok {
		pause := time.NewTimer(time.Until(last.end.Add(min(channelsShare*last.end.Sub(last.start), CacheTTL))))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	_, _, since := s.memory.recallChannels(key)
	rows, err := db.All(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE channel = ANY($1) ORDER BY id DESC LIMIT $2", channels, maxHolders+1)
	if err != nil {
		return nil, false, err
	}
	for i := range rows {
		list = append(list, &rows[i])
	}
	all = len(list) <= maxHolders
	s.memory.keepChannels(key, ofChannels{list, all, since.time, time.Now()}, since)
	return list, all, nil
}

func (m *memory) recallChannels(key string) (ofChannels, bool, moment) {
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.channels[key]
	return r, ok, moment{now, m.changes}
}

func (m *memory) keepChannels(key string, r ofChannels, since moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != since.changes {
		return
	}
	if m.channels == nil {
		m.channels = make(map[string]ofChannels)
	}
	m.channels[key] = r
}
