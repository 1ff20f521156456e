package connection

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// channelsShare bounds the share of time spent on rereading [Service.ListByChannels], as a
// divisor, because strangers can cause these reads.
const channelsShare = 10

// channelList is a cached list of the connections of some channels.
type channelList struct {
	list  []*Connection
	all   bool
	start time.Time // start of the read
	end   time.Time
}

// ListByChannels returns the connections of the channels, enabled or not, read after a time;
// for the zero time they may be up to [CacheTTL] old. all is false if the list is
// truncated. The connections must not be modified.
//
// Reads run one at a time and use at most a tenth of the time; other callers wait.
func (s *Service) ListByChannels(ctx context.Context, channels []string, after time.Time) (list []*Connection, all bool, err error) {
	channels = slices.Sorted(slices.Values(channels))
	key := strings.Join(channels, " ")
	if after.IsZero() {
		after = time.Now().Add(-CacheTTL)
	}
	if r, ok, _ := s.cache.getChannels(key); ok && r.start.After(after) {
		return r.list, r.all, nil
	}
	select {
	case s.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { <-s.listing }()
	last, ok, _ := s.cache.getChannels(key)
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
	_, _, since := s.cache.getChannels(key)
	rows, err := db.All(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE channel = ANY($1) ORDER BY id DESC LIMIT $2", channels, maxListed+1)
	if err != nil {
		return nil, false, err
	}
	for i := range rows {
		list = append(list, &rows[i])
	}
	all = len(list) <= maxListed
	s.cache.putChannels(key, channelList{list, all, since.time, time.Now()}, since)
	return list, all, nil
}

func (m *cache) getChannels(key string) (channelList, bool, cacheVersion) {
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.channels[key]
	return r, ok, cacheVersion{now, m.changes}
}

func (m *cache) putChannels(key string, r channelList, since cacheVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != since.changes {
		return
	}
	if m.channels == nil {
		m.channels = make(map[string]channelList)
	}
	m.channels[key] = r
}
