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
	"sync/atomic"
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
	failing  atomic.Int64 // tiles refused in a row
}

// maxFailing refused tiles in a row pause the server: with a wrong key or a block it refuses all.
const maxFailing = 8

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
	if resp.StatusCode < 400 || resp.StatusCode == http.StatusNotFound {
		x.failing.Store(0)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		f.stored, f.etag = had.stored, had.etag
		return f, nil
	case http.StatusNoContent, http.StatusNotFound:
		return f, nil // the server has no tile there
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fetched{}, fmt.Errorf("the tile server answers %s", resp.Status)
	default: // the failure of one tile, such as 403 without a file or 500 for a damaged one, or of all
		beyond := resp.StatusCode == http.StatusBadRequest // the zooms of some servers
		if !beyond && x.failing.Add(1) >= maxFailing {
			return fetched{}, fmt.Errorf("the tile server answers %s, and refused %d tiles in a row", resp.Status, maxFailing)
		}
		return odd("the tile server answers %s", resp.Status)
	}
	if f.body, err = io.ReadAll(io.LimitReader(resp.Body, maxTile+1)); err != nil {
		return fetched{}, withoutAddress(err)
	}
	if len(f.body) > maxTile {
		return odd("a tile has more than %d bytes", maxTile)
	}
	if len(f.body) > 0 && !x.plausible(f.body) {
		return odd("the tile server answers something else than a tile")
	}
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
