package tiles

import (
	"cmp"
	"context"
	"errors"
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

// Limits of requests to a tile server. Its usage policy decides the rest: OpenStreetMap's asks
// for a user agent, a cache of at least seven days where the response has no other, few
// connections, and no tiles in advance.
const (
	fetchTimeout = 10 * time.Second
	fetches      = 4
	minFresh     = time.Hour
	defaultFresh = 7 * 24 * time.Hour
	maxFresh     = 30 * 24 * time.Hour
	pause        = 30 * time.Second // after a failure, of all tiles or of one
	xyzZoom      = 19
)

// xyz is a tile server.
type xyz struct {
	template string
	vector   bool
	client   *http.Client
	name     string
	cache    *cache.Cache[ID, fetched]
	slots    chan struct{}
	paused   atomic.Int64 // until, by the monotonic clock since start
	start    time.Time
}

// fetched is a tile of a server.
type fetched struct {
	stored
	etag   string
	until  time.Duration // fresh until, since start
	failed error         // the reason why the server has no usable tile; its other tiles may be
}

// errPaused is the error while a server that has failed is not asked.
var errPaused = errors.New("the tile server has failed a moment ago")

func openXYZ(c Config) (*xyz, about, error) {
	at, err := url.Parse(strings.NewReplacer("{z}", "0", "{x}", "0", "{y}", "0").Replace(c.Source))
	switch {
	case err != nil:
		return nil, about{}, fmt.Errorf("the address cannot be read: %w", errors.Unwrap(err))
	case at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return nil, about{}, errors.New("the address must begin with http:// or https://")
	}
	for _, part := range []string{"{z}", "{x}", "{y}"} {
		if !strings.Contains(c.Source, part) {
			return nil, about{}, fmt.Errorf("the address has no %s", part)
		}
	}
	x := &xyz{
		template: c.Source, name: cmp.Or(c.Client, "Kickstand"), slots: make(chan struct{}, fetches), start: time.Now(),
		cache: cache.NewSized[ID](maxCached, func(f fetched) int { return len(f.body) + 200 }),
		client: &http.Client{Transport: c.Transport, Timeout: fetchTimeout, CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > 2 || next.URL.Host != via[0].URL.Host {
				return errors.New("the tile server redirects to another host")
			}
			return nil
		}},
	}
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

func (x *xyz) close() error {
	x.client.CloseIdleConnections()
	return nil
}

// tile returns a cached tile while it is fresh, and a stale one if the server fails.
func (x *xyz) tile(ctx context.Context, id ID) (stored, error) {
	had, ok := x.cache.Get(id)
	now := time.Since(x.start)
	if ok && now < had.until {
		return had.browser(now), had.failed
	}
	ok = ok && had.failed == nil
	start := x.cache.Start()
	f, err := x.inTurn(ctx, id, had)
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

// inTurn is fetch within the limit of requests, unless the server has failed, also during the wait.
func (x *xyz) inTurn(ctx context.Context, id ID, had fetched) (fetched, error) {
	if x.pauses() {
		return fetched{}, errPaused
	}
	x.slots <- struct{}{}
	defer func() { <-x.slots }()
	if x.pauses() {
		return fetched{}, errPaused
	}
	f, err := x.fetch(ctx, id, had)
	if err != nil {
		x.paused.Store(int64(time.Since(x.start) + pause))
	}
	return f, err
}

// pauses reports whether the server has failed a moment ago.
func (x *xyz) pauses() bool { return time.Since(x.start) < time.Duration(x.paused.Load()) }

// browser returns the tile with the rest of its freshness.
func (f fetched) browser(now time.Duration) stored {
	return stored{f.body, min(defaultAge, max(errorAge, f.until-now))}
}

// stale returns the tile for as long as the server fails.
func (f fetched) stale() stored { return stored{f.body, errorAge} }

// fetch gets a tile, or confirms the one that the cache had.
func (x *xyz) fetch(ctx context.Context, id ID, had fetched) (fetched, error) {
	at := strings.NewReplacer("{z}", strconv.Itoa(id.Z), "{x}", strconv.Itoa(id.X), "{y}", strconv.Itoa(id.Y)).Replace(x.template)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fetched{}, err
	}
	req.Header.Set("User-Agent", x.name)
	if had.etag != "" {
		req.Header.Set("If-None-Match", had.etag)
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return fetched{}, withoutAddress(err)
	}
	defer resp.Body.Close()
	f := fetched{etag: resp.Header.Get("ETag"), until: time.Since(x.start) + fresh(resp.Header)}
	odd := func(format string, args ...any) (fetched, error) {
		return fetched{until: time.Since(x.start) + pause, failed: fmt.Errorf(format, args...)}, nil
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		f.stored, f.etag = had.stored, had.etag
		return f, nil
	case http.StatusNoContent, http.StatusNotFound:
		return f, nil // the server has no tile there
	case http.StatusBadRequest:
		return odd("the tile server answers %s", resp.Status) // as some do beyond their zooms
	default:
		return fetched{}, fmt.Errorf("the tile server answers %s", resp.Status)
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

// withoutAddress returns the cause of a failed request without its URL, which may have a key.
func withoutAddress(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
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
