package connection

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
)

// channelsShare bounds the share of time spent on rereading [Service.ListByChannels], as a
// divisor, because strangers can cause these reads.
const channelsShare = 10

// channelList is a cached list of the connections of some channels.
type channelList struct {
	list  []*Connection
	all   bool
	start time.Time // start of the read, by the database's clock
	began time.Time // the same by the process's
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
		after = s.db.Now().Add(-CacheTTL)
	}
	if r, ok := s.cache.channels.Get(key); ok && r.start.After(after) {
		return r.list, r.all, nil
	}
	select {
	case s.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { <-s.listing }()
	last, ok := s.cache.channels.Get(key)
	if ok && last.start.After(after) {
		return last.list, last.all, nil
	}
	if ok {
		if err := loop.Pause(ctx, time.Until(last.end.Add(min(channelsShare*last.end.Sub(last.began), CacheTTL)))); err != nil {
			return nil, false, err
		}
	}
	mark, start, began := s.cache.channels.Start(), s.db.Now(), time.Now()
	rows, err := db.All(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE channel = ANY($1) ORDER BY id DESC LIMIT $2", channels, maxListed+1)
	if err != nil {
		return nil, false, err
	}
	for i := range rows {
		list = append(list, &rows[i])
	}
	all = len(list) <= maxListed
	s.cache.channels.Put(key, channelList{list, all, start, began, time.Now()}, mark)
	return list, all, nil
}
