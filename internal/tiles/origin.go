package tiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Limits of requests to the server of a source.
const (
	fetchTimeout = 10 * time.Second
	fetches      = 4                // requests at a time
	pause        = 30 * time.Second // without requests of a server or of a tile, after its failure
)

// origin is the server of a source. It is safe for concurrent use.
type origin struct {
	client *http.Client
	name   string // of this server
	slots  chan struct{}
	paused atomic.Int64 // until, as elapsed
	start  time.Time
}

// errPaused is the error while a server that has failed is not asked.
var errPaused = errors.New("the tile server has failed a moment ago")

// errChanged is the error of a read of a file that is another one since it was opened.
var errChanged = errors.New("the file has changed on the server")

// parseAddress parses the address of a source. Errors do not have it.
func parseAddress(source string) (*url.URL, error) {
	at, err := url.Parse(strings.NewReplacer("{z}", "0", "{x}", "0", "{y}", "0").Replace(source))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the address cannot be read: %w", withoutAddress(err))
	case at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return nil, errors.New("the address must begin with http:// or https://")
	}
	return at, nil
}

func newOrigin(c Config) *origin {
	return &origin{
		name: cmp.Or(c.Client, "Kickstand"), slots: make(chan struct{}, fetches), start: time.Now(),
		client: &http.Client{Transport: c.Transport, Timeout: fetchTimeout, CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > 2 || next.URL.Host != via[0].URL.Host {
				return errors.New("the tile server redirects to another host")
			}
			return nil
		}},
	}
}

func (o *origin) close() error {
	o.client.CloseIdleConnections()
	return nil
}

// elapsed is the time since the start, by the monotonic clock.
func (o *origin) elapsed() time.Duration { return time.Since(o.start) }

// pauses reports whether the server has failed a moment ago.
func (o *origin) pauses() bool { return o.elapsed() < time.Duration(o.paused.Load()) }

// inTurn runs a request within the limit of requests, unless the server has failed, also during the
// wait. Errors other than [errChanged] are failures of the server.
func (o *origin) inTurn(request func() error) error {
	if o.pauses() {
		return errPaused
	}
	o.slots <- struct{}{}
	defer func() { <-o.slots }()
	if o.pauses() {
		return errPaused
	}
	err := request()
	if err != nil && !errors.Is(err, errChanged) {
		o.paused.Store(int64(o.elapsed() + pause))
	}
	return err
}

// get sends a request. The caller closes the body.
func (o *origin) get(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, withoutAddress(err)
	}
	req.Header = header
	req.Header.Set("User-Agent", o.name)
	resp, err := o.client.Do(req)
	return resp, withoutAddress(err)
}

// withoutAddress returns the cause of a failed request without its URL, which may have a key.
func withoutAddress(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
