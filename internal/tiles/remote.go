package tiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// remote is a PMTiles file of a server. It is opened in the background, and again after it has
// changed.
type remote struct {
	*origin
	config  Config
	trouble *loop.Trouble
	turn    *semaphore.Weighted // of one attempt to open the file at a time
	next    time.Duration       // of the next attempt, as elapsed; for the holder of the turn
}

func newRemote(c Config) *remote {
	return &remote{origin: newOrigin(c), config: c, trouble: loop.NewTrouble(c.Logger, "map tiles of a server"), turn: semaphore.NewWeighted(1)}
}

// openRemote starts an attempt to open the file, unless one runs, or one has ended or the server has
// failed within the pause.
func (m *Map) openRemote() {
	r := m.remote
	if !r.turn.TryAcquire(1) {
		return
	}
	if r.elapsed() < r.next || r.pauses() {
		r.turn.Release(1)
		return
	}
	go func() {
		defer r.turn.Release(1)
		s, err := r.open(m.closing)
		r.next = r.elapsed() + pause
		if m.closing.Err() != nil {
			return
		}
		if r.trouble.Observe(m.closing, err); err == nil {
			m.current.Store(s)
			m.log.InfoContext(m.closing, "map tiles of a server opened", "raster", s.Raster(), "zoom", s.about.maxZoom)
		}
	}()
}

func (r *remote) open(ctx context.Context) (*Tileset, error) {
	f := &remoteFile{origin: r.origin, address: r.config.Source}
	p, a, err := readPMTiles(ctx, f)
	return r.config.tileset(p, a, f.tag+" "+strconv.FormatInt(f.size, 10)), err
}

// changed drops the tiles of a file that has changed, and starts to open it again.
func (m *Map) changed(s *Tileset) {
	if m.current.CompareAndSwap(s, m.builtIn) {
		m.cache.Clear()
		m.openRemote()
	}
}

// remoteFile is a file of a server in the state in which its first part was read.
type remoteFile struct {
	*origin
	address string
	tag     string // ETag, or time of the last change; empty: the server has neither
	size    int64  // 0: no part was read; -1: the server does not report it
}

// readAt requests a part of the file. The error is [errChanged] if it has changed.
func (f *remoteFile) readAt(ctx context.Context, p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	if f.size > 0 && offset+int64(len(p)) > f.size {
		return fmt.Errorf("%w: a part is beyond the end of the file", errDecode)
	}
	return f.inTurn(func() error { return f.fetch(ctx, p, offset) })
}

func (f *remoteFile) fetch(ctx context.Context, p []byte, offset int64) error {
	last := offset + int64(len(p)) - 1
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", offset, last)}, "Accept-Encoding": {"identity"}}
	if strings.HasPrefix(f.tag, `"`) { // a weak one matches nothing
		header.Set("If-Match", f.tag)
	}
	resp, err := f.get(ctx, f.address, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPartialContent:
	case http.StatusOK:
		return errors.New("the tile server answers with the whole file in place of a part")
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		switch {
		case f.size > 0 || f.size != 0 && resp.StatusCode == http.StatusPreconditionFailed:
			return errChanged
		case f.size < 0: // its end was not known
			return fmt.Errorf("%w: a part is beyond the end of the file", errDecode)
		}
		fallthrough
	default:
		return fmt.Errorf("the tile server answers %s", resp.Status)
	}
	part, total, _ := strings.Cut(resp.Header.Get("Content-Range"), "/")
	size, err := int64(-1), error(nil)
	if total != "*" {
		size, err = strconv.ParseInt(total, 10, 64)
	}
	tag := cmp.Or(resp.Header.Get("ETag"), resp.Header.Get("Last-Modified"))
	if tag != "" && f.tag != "" && tag != f.tag || size > 0 && f.size > 0 && size != f.size {
		return errChanged
	}
	if err != nil || total != "*" && size <= last || part != fmt.Sprintf("bytes %d-%d", offset, last) {
		return errors.New("the tile server answers with another part of the file than the requested one")
	}
	if _, err := io.ReadFull(resp.Body, p); err != nil {
		return fmt.Errorf("read a part of the file: %w", err)
	}
	if f.size == 0 {
		f.tag, f.size = tag, size
	}
	return nil
}
