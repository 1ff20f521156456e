// Package tiles has the tiles of the background of maps: raster tiles of an XYZ server or a
// file, vector tiles drawn as SVG, and a map of the world for whatever these lack.
//
// A source is an address with {z}, {x} and {y}, an MBTiles file, or a PMTiles file of this machine
// or of a server, chosen by the operator. Readers never contact it: tiles are fetched, checked,
// drawn and cached here. The built-in map has the coastlines, borders and populated places of
// Natural Earth. It is drawn where the source has no tile or is out of reach, and everywhere
// without a source.
//
// Colours of drawn tiles are custom properties of the page that shows them by <use>, with a
// light scheme as the default: --map-land, --map-water, --map-green, --map-building,
// --map-road, --map-edge, --map-main, --map-path, --map-border, --map-text, --map-halo.
package tiles

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

// Limits of a map.
const (
	maxZoom     = 22
	maxCached   = 64 << 20 // bytes of tiles in memory
	maxTile     = 2 << 20  // bytes of a tile as stored or fetched
	maxUnpacked = 8 << 20  // bytes of a vector tile
	maxLoads    = 16       // tiles fetched or drawn at a time
)

// Size is the width and height of a drawn tile in units, RasterSize that of a raster tile.
const (
	Size       = 512
	RasterSize = 256
)

// ID is the address of a tile: column X from the west and row Y from the north of a grid of
// 2^Z by 2^Z squares.
type ID struct{ Z, X, Y int }

// valid reports whether the tile exists.
func (id ID) valid() bool {
	return id.Z >= 0 && id.Z <= maxZoom && id.X >= 0 && id.Y >= 0 && id.X < 1<<id.Z && id.Y < 1<<id.Z
}

// ErrNoTile is the error for an id of no tile.
var ErrNoTile = errors.New("tiles: there is no such tile")

// Tile is a picture of a square of the earth.
type Tile struct {
	ContentType string // image/png, image/jpeg, image/webp or image/svg+xml
	Body        []byte
	MaxAge      time.Duration // for caches of browsers
}

// source is an origin of tiles.
type source interface {
	// tile returns a stored tile; an empty one if the source has none.
	tile(ctx context.Context, id ID) (stored, error)
	close() error
}

// stored is a tile of a source.
type stored struct {
	body   []byte
	maxAge time.Duration // 0: forever
}

// about describes a source.
type about struct {
	vector      bool
	maxZoom     int
	attribution string // HTML or text
}

// errDecode is the error for data of a source that is not that of tiles: reading it again does not help.
var errDecode = errors.New("the tiles cannot be decoded")

// Config configures [Open].
type Config struct {
	Source      string // address with {z}, {x} and {y}, address of a PMTiles file, or path of a file; empty: the built-in map alone
	Attribution string // credit as text; empty: that of the source
	Client      string // name of this server in requests: "Kickstand (+https://help.example.com)"
	Transport   http.RoundTripper
	Logger      *slog.Logger
}

// Map is the background of maps. It is safe for concurrent use.
type Map struct {
	builtIn *Tileset
	current atomic.Pointer[Tileset]
	remote  *remote // nil unless the source is a PMTiles file of a server
	cache   *cache.Cache[cacheKey, Tile]
	flights singleflight.Group
	loads   *semaphore.Weighted
	closing context.Context // done on Close
	cancel  context.CancelFunc
	log     *slog.Logger
}

// cacheKey is a tile of a tileset.
type cacheKey struct {
	version string
	ID
}

// Open opens a map. The caller closes it. Addresses are checked, but not contacted: a server that is
// out of reach is no error.
func Open(c Config) (*Map, error) {
	m := &Map{
		builtIn: c.tileset(nil, about{vector: true, maxZoom: maxZoom}, ""),
		cache:   cache.NewSized[cacheKey](maxCached, defaultAge, func(t Tile) int { return len(t.Body) + 200 }),
		loads:   semaphore.NewWeighted(maxLoads), log: c.Logger,
	}
	first, err := m.builtIn, error(nil)
	switch {
	case c.Source == "":
	case strings.Contains(c.Source, "://"):
		first, err = m.openAddress(c)
	default:
		first, err = openFile(c)
	}
	if err != nil {
		return nil, fmt.Errorf("map tiles: %w", err)
	}
	m.current.Store(first)
	m.closing, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// openAddress opens a tile server, or prepares to open a PMTiles file.
func (m *Map) openAddress(c Config) (*Tileset, error) {
	at, err := parseAddress(c.Source)
	if err != nil {
		return nil, err
	}
	if isPMTiles(at.Path) && !strings.Contains(c.Source, "{z}") {
		m.remote = newRemote(c)
		return m.builtIn, nil
	}
	x, a, err := openXYZ(c, at)
	return c.tileset(x, a, ""), err
}

func openFile(c Config) (*Tileset, error) {
	if isPMTiles(c.Source) {
		p, a, err := openPMTiles(c.Source)
		return c.tileset(p, a, ""), err
	}
	p, a, err := openMBTiles(c.Source)
	return c.tileset(p, a, ""), err
}

func isPMTiles(path string) bool { return strings.EqualFold(filepath.Ext(path), ".pmtiles") }

// Close closes the source, and waits for the ends of its requests. No tiles may be requested after it.
func (m *Map) Close() error {
	if m.closing.Err() != nil {
		return nil // closed before
	}
	m.cancel()
	if err := m.loads.Acquire(context.Background(), maxLoads); err != nil {
		return err
	}
	if m.remote != nil {
		return errors.Join(m.remote.turn.Acquire(context.Background(), 1), m.remote.close())
	}
	if source := m.current.Load().source; source != nil {
		return source.close()
	}
	return nil
}

// Tileset is the tiles that a map has at a time. It does not change.
type Tileset struct {
	source  source // nil: the built-in map alone
	about   about
	version string
}

// tileset returns the tiles of a source, in a state of it; nil: those of the built-in map.
func (c Config) tileset(s source, a about, state string) *Tileset {
	a.attribution = plain(cmp.Or(c.Attribution, a.attribution))
	var name string
	if s != nil {
		name = c.Source
	}
	digest := sha256.Sum256([]byte(name + "\x00" + dataVersion + "\x00" + state))
	return &Tileset{s, a, hex.EncodeToString(digest[:4])}
}

// Tileset returns the present tiles. They are those of the built-in map until the source, if it is a
// file of a server, has been opened in the background, which this starts.
func (m *Map) Tileset() *Tileset {
	s := m.current.Load()
	if m.remote != nil && s == m.builtIn {
		m.openRemote()
	}
	return s
}

// Raster reports whether the tiles are pictures in colours of their own, [RasterSize] wide.
// Other tiles are drawn in colours of the page, [Size] wide.
func (s *Tileset) Raster() bool { return !s.about.vector }

// BuiltIn reports whether the tiles are those of the built-in map.
func (s *Tileset) BuiltIn() bool { return s.source == nil }

// MaxZoom is the highest zoom of tiles.
func (s *Tileset) MaxZoom() int {
	if s.about.vector {
		return maxZoom // drawn larger
	}
	return s.about.maxZoom
}

// Version differs between tilesets, for addresses of tiles that browsers cache.
func (s *Tileset) Version() string { return s.version }

// Credit is a copyright notice, with the address of its terms; empty: none.
type Credit struct{ Text, URL string }

// Credits returns the notices that every display of the map shows: that of the source, which
// its terms require, and that of the built-in map.
func (s *Tileset) Credits() []Credit {
	var list []Credit
	if text := s.about.attribution; text != "" {
		c := Credit{Text: text}
		if strings.Contains(text, "OpenStreetMap") {
			c.URL = "https://www.openstreetmap.org/copyright"
		}
		list = append(list, c)
	}
	return append(list, Credit{"Natural Earth", "https://www.naturalearthdata.com"})
}

var tags = regexp.MustCompile(`<[^>]*>`)

// plain returns an attribution as text.
func plain(attribution string) string {
	text := []rune(strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(attribution, ""))), " "))
	return string(text[:min(len(text), 200)])
}

// errorAge is the time for which browsers keep a tile that took the place of another one.
const errorAge = time.Minute

// defaultAge is the time for which browsers keep a tile.
const defaultAge = 24 * time.Hour

// Tile returns a tile of the present tileset. If the source fails, or has another version, it is
// that of the built-in map. Error: [ErrNoTile].
func (m *Map) Tile(ctx context.Context, version string, id ID) (Tile, error) {
	if !id.valid() {
		return Tile{}, ErrNoTile
	}
	s := m.Tileset()
	if version == s.version {
		return m.cached(ctx, s, id)
	}
	// The page is older than the tileset, or another process made it. It has the tiles of neither.
	t, err := m.cached(ctx, m.builtIn, id)
	if version != m.builtIn.version {
		t.MaxAge = errorAge
	}
	return t, err
}

// cached returns a tile of a tileset.
func (m *Map) cached(ctx context.Context, s *Tileset, id ID) (Tile, error) {
	if t, ok := m.cache.Get(cacheKey{s.version, id}); ok {
		return t, nil
	}
	if err := m.loads.Acquire(ctx, 1); err != nil {
		return Tile{}, err
	}
	// A reader that leaves does not end the request of another one.
	result := m.flights.DoChan(fmt.Sprint(s.version, id), func() (any, error) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(m.closing, cancel)()
		return m.load(ctx, s, id), nil
	})
	select {
	case <-ctx.Done():
		go func() {
			<-result
			m.loads.Release(1)
		}()
		return Tile{}, ctx.Err()
	case r := <-result:
		m.loads.Release(1)
		return r.Val.(Tile), nil
	}
}

// load reads or draws a tile.
func (m *Map) load(ctx context.Context, s *Tileset, id ID) Tile {
	start := m.cache.Start()
	t, err := s.read(ctx, id)
	if err != nil {
		t = Tile{svgType, drawWorld(id), errorAge}
		if errors.Is(err, errChanged) {
			m.changed(s)
			return t
		}
		if !errors.Is(err, errPaused) {
			m.log.InfoContext(ctx, "map tile not available", "zoom", id.Z, "x", id.X, "y", id.Y, "error", err)
		}
		if !errors.Is(err, errDecode) {
			return t
		}
	}
	if t.ContentType == "" {
		t = Tile{svgType, drawWorld(id), defaultAge}
	}
	if _, server := s.source.(*xyz); !server { // a tile server's tiles have an age and a cache of their own
		m.cache.Put(cacheKey{s.version, id}, t, start)
	}
	return t
}

// read returns the tile of the source; without a content type if the source has none.
func (s *Tileset) read(ctx context.Context, id ID) (Tile, error) {
	if s.source == nil {
		return Tile{}, nil
	}
	from := id
	if over := id.Z - s.about.maxZoom; over > 0 {
		if !s.about.vector {
			return Tile{}, nil
		}
		from = ID{id.Z - over, id.X >> over, id.Y >> over}
	}
	got, err := s.source.tile(ctx, from)
	if err != nil || len(got.body) == 0 {
		return Tile{}, err
	}
	age := got.maxAge
	if age == 0 {
		age = defaultAge
	}
	if s.about.vector {
		body, err := drawVector(got.body, from, id)
		return Tile{svgType, body, age}, err
	}
	kind := rasterType(got.body)
	if kind == "" {
		return Tile{}, fmt.Errorf("%w: tile %d/%d/%d is not a PNG, JPEG or WebP picture", errDecode, id.Z, id.X, id.Y)
	}
	return Tile{kind, got.body, age}, nil
}

const svgType = "image/svg+xml"

// rasterType returns the content type of a picture by its first bytes; empty for others.
func rasterType(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(body, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case len(body) > 12 && string(body[:4]) == "RIFF" && string(body[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}
