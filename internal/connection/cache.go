package connection

import (
	"crypto/sha256"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"
)

// CacheTTL is how long a cached connection may be stale.
const CacheTTL = time.Second

// maxCached bounds each cache.
const maxCached = 10_000

// caches hold recently read connections. Each change of a connection clears them.
type caches struct {
	// byAddress also has addresses without connections. An empty result is used only together
	// with another address that has one, so that a new connection works at once.
	byAddress *cache.Cache[addressKey, []*Connection]
	byID      *cache.Cache[string, *Connection]
	byDomain  *cache.Cache[addressKey, []*Connection]   // by channel and domain; only those with connections
	digests   *cache.Cache[string, [][sha256.Size]byte] // by channels and name of the credential
	channels  *cache.Cache[string, channelList]         // by names of the channels
}

type addressKey struct{ ticketChannel, address string }

func newCaches() caches {
	return caches{
		byAddress: cache.New[addressKey, []*Connection](maxCached, CacheTTL),
		byID:      cache.New[string, *Connection](maxCached, CacheTTL),
		byDomain:  cache.New[addressKey, []*Connection](maxCached, CacheTTL),
		digests:   cache.New[string, [][sha256.Size]byte](maxCached, CacheTTL),
		channels:  cache.New[string, channelList](maxCached, 0),
	}
}

func (c *caches) clear() {
	c.byAddress.Clear()
	c.byID.Clear()
	c.byDomain.Clear()
	c.digests.Clear()
	c.channels.Clear()
}

// at returns the cached connections at the addresses, and the addresses to query.
func (c *caches) at(ticketChannel string, addresses []string) (found []*Connection, missing []string) {
	for _, address := range addresses {
		if at, ok := c.byAddress.Get(addressKey{ticketChannel, address}); ok {
			found = append(found, at...)
		} else {
			missing = append(missing, address)
		}
	}
	if len(found) == 0 {
		missing = addresses
	}
	return found, missing
}

// putAt caches the connections at the addresses, read since start.
func (c *caches) putAt(ticketChannel string, addresses []string, read []*Connection, start cache.Mark) {
	for _, address := range addresses {
		var at []*Connection
		for _, found := range read {
			if found.Address == address {
				at = append(at, found)
			}
		}
		c.byAddress.Put(addressKey{ticketChannel, address}, at, start)
	}
}
