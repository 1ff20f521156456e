package tiles

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"
)

// Times and zooms of a tile server. Its usage policy decides the rest: OpenStreetMap's asks
// for a user agent, a cache of at least seven days where the response has no other, few
// connections, and no tiles in advance.
const (
	minFresh     = time.Hour
	defaultFresh = 7 * 24 * time.Hour
	maxFresh     = 30 * 24 * time.Hour
	xyzZoom      = 19
)

// xyz is a tile server.
type xyz struct {
	*origin
	template string
	vector   bool
	cache    *cache.Cache[ID, fetched]
	refusals refusals
}

// Refusals of different tiles pause the server if it has had none to deliver for a while: with a wrong key
// or a block it refuses all. Some servers refuse tiles that they do not have, beside others.
const (
	maxRefused    = 8
	refusedWithin = time.Minute     // since the first of these
	refusedAfter  = 5 * time.Minute // since the last tile that was delivered
)

// refusals counts the tiles that a server has refused since it delivered one.
type refusals struct {
	mu        sync.Mutex
	tiles     map[ID]bool   // at most maxRefused
	since     time.Duration // the first of them, as elapsed
	delivered time.Duration // the last tile, as elapsed; 0: none yet
}

// deliver notes that the server has answered for a tile.
func (r *refusals) deliver(now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tiles, r.delivered = nil, max(now, 1)
}

// refuse notes a refused tile, and reports whether the server refuses all. The count then begins anew.
func (r *refusals) refuse(id ID, now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tiles == nil || now-r.since > refusedWithin {
		r.tiles, r.since = make(map[ID]bool, maxRefused), now
	}
	if len(r.tiles) < maxRefused {
		r.tiles[id] = true
	}
	if len(r.tiles) < maxRefused || r.delivered != 0 && now-r.delivered < refusedAfter {
		return false
	}
	r.tiles = nil
	return true
}

// fetched is a tile of a server.
type fetched struct {
	stored
	etag   string
	until  time.Duration // fresh until, since start
	failed error         // the reason why the server has no usable tile; its other tiles may be
}

func openXYZ(c Config, at *url.URL) (*xyz, about, error) {
	for _, part := range []string{"{z}", "{x}", "{y}"} {
		if !strings.Contains(c.Source, part) {
			return nil, about{}, fmt.Errorf("the address has no %s, and does not end in .pmtiles", part)
		}
	}
	x := &xyz{origin: newOrigin(c), template: c.Source, cache: cache.NewSized[ID](maxCached, 0, func(f fetched) int { return len(f.body) + 200 })}
	a := about{maxZoom: xyzZoom}
	if ext := path.Ext(at.Path); ext == ".mvt" || ext == ".pbf" {
		a.vector, a.maxZoom = true, 14
	}
	x.vector = a.vector
	if host := at.Hostname(); host == "openstreetmap.org" || strings.HasSuffix(host, ".openstreetmap.org") {
		a.attribution = "© OpenStreetMap contributors"
	}
	return x, a, nil
}

// tile returns a cached tile while it is fresh, and a stale one if the server fails. A server that
// is busy or out of reach gets no request for a while; the failure of one tile is that tile's alone.
func (x *xyz) tile(ctx context.Context, id ID) (stored, error) {
	had, ok := x.cache.Get(id)
	now := x.elapsed()
	if ok && now < had.until {
		return had.browser(now), had.failed
	}
	ok = ok && had.failed == nil
	start := x.cache.Start()
	var f fetched
	err := x.inTurn(func() (err error) {
		f, err = x.fetch(ctx, id, had)
		return err
	})
	if err != nil {
		if ok {
			return had.stale(), nil
		}
		return stored{}, err
	}
	if f.failed != nil && ok {
		had.until = f.until
		f = had
	}
	x.cache.Put(id, f, start)
	return f.browser(now), f.failed
}

// browser returns the tile with the rest of its freshness.
func (f fetched) browser(now time.Duration) stored {
	return stored{f.body, min(defaultAge, max(errorAge, f.until-now))}
}

// stale returns the tile for as long as the server fails.
func (f fetched) stale() stored { return stored{f.body, errorAge} }

// fetch gets a tile, or confirms the one that the cache had.
func (x *xyz) fetch(ctx context.Context, id ID, had fetched) (fetched, error) {
	at := strings.NewReplacer("{z}", strconv.Itoa(id.Z), "{x}", strconv.Itoa(id.X), "{y}", strconv.Itoa(id.Y)).Replace(x.template)
	header := make(http.Header)
	if had.etag != "" {
		header.Set("If-None-Match", had.etag)
	}
	resp, err := x.get(ctx, at, header)
	if err != nil {
		return fetched{}, err
	}
	defer resp.Body.Close()
	f := fetched{etag: resp.Header.Get("ETag"), until: x.elapsed() + fresh(resp.Header)}
	odd := func(format string, args ...any) (fetched, error) {
		return fetched{until: x.elapsed() + pause, failed: fmt.Errorf(format, args...)}, nil
	}
	refused := func(answer string) (fetched, error) {
		if x.refusals.refuse(id, x.elapsed()) {
			return fetched{}, fmt.Errorf("the tile server answers %s for each of %d tiles", answer, maxRefused)
		}
		return odd("the tile server answers %s", answer)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		x.refusals.deliver(x.elapsed())
		f.stored, f.etag = had.stored, had.etag
		return f, nil
	case http.StatusNoContent, http.StatusNotFound, http.StatusGone:
		x.refusals.deliver(x.elapsed())
		return f, nil // the server has no tile there
	case http.StatusBadRequest: // beyond the zooms of some servers
		return odd("the tile server answers %s", resp.Status)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fetched{}, fmt.Errorf("the tile server answers %s", resp.Status)
	default: // the failure of one tile, such as 403 without a file or 500 for a damaged one, or of all
		return refused(resp.Status)
	}
	if f.body, err = io.ReadAll(io.LimitReader(resp.Body, maxTile+1)); err != nil {
		return fetched{}, withoutAddress(err)
	}
	if len(f.body) > maxTile {
		return odd("a tile has more than %d bytes", maxTile)
	}
	if len(f.body) > 0 && !x.plausible(f.body) {
		return refused("something else than a tile")
	}
	x.refusals.deliver(x.elapsed())
	return f, nil
}

// plausible reports whether a response may be a tile, and not the text of an error, which would be
// cached like one.
func (x *xyz) plausible(body []byte) bool {
	if x.vector {
		return body[0] != '<' && body[0] != '{' // no vector tile begins so
	}
	return rasterType(body) != ""
}

// fresh is the time for which a response may be used.
func fresh(h http.Header) time.Duration {
	for part := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(part), "max-age="); ok {
			if n, err := strconv.Atoi(value); err == nil {
				return min(maxFresh, max(minFresh, time.Duration(min(n, int(maxFresh/time.Second)))*time.Second))
			}
		}
	}
	return defaultFresh
}
