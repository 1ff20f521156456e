// Package tiles has the tiles of the background of maps: raster tiles of an XYZ server or a
// file, vector tiles drawn as SVG, and a map of the world for whatever these lack.
//
// A source is an address with {z}, {x} and {y}, an MBTiles file or a PMTiles file, chosen by
// the operator. Readers never contact it: tiles are fetched, checked, drawn and cached here.
// The built-in map has the coastlines, borders and populated places of Natural Earth. It is
// drawn where the source has no tile or is out of reach, and everywhere without a source.
//
// Colours of drawn tiles are custom properties of the page that shows them by <use>, with a
// light scheme as the default: --map-land, --map-water, --map-green, --map-building,
// --map-road, --map-edge, --map-main, --map-path, --map-border, --map-text, --map-halo.
package tiles

import (
	"bytes"
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

// Config configures [Open].
type Config struct {
	Source      string // address with {z}, {x} and {y}, or path of a file; empty: the built-in map alone
	Attribution string // credit as text; empty: that of the source
	Client      string // name of this server in requests: "Kickstand (+https://help.example.com)"
	Transport   http.RoundTripper
	Logger      *slog.Logger
}

// Map is the background of maps. It is safe for concurrent use.
type Map struct {
	source  source // nil: the built-in map alone
	about   about
	version string
	cache   *cache.Cache[ID, Tile]
	flights singleflight.Group
	loads   *semaphore.Weighted
	log     *slog.Logger
}

// Open opens a map. The caller closes it.
func Open(c Config) (*Map, error) {
	m := &Map{cache: cache.NewSized[ID](maxCached, func(t Tile) int { return len(t.Body) + 200 }), loads: semaphore.NewWeighted(maxLoads), log: c.Logger}
	var err error
	switch {
	case c.Source == "":
		m.about = about{vector: true, maxZoom: maxZoom}
	case strings.Contains(c.Source, "://"):
		m.source, m.about, err = openXYZ(c)
	case strings.EqualFold(filepath.Ext(c.Source), ".pmtiles"):
		m.source, m.about, err = openPMTiles(c.Source)
	default:
		m.source, m.about, err = openMBTiles(c.Source)
	}
	if err != nil {
		return nil, fmt.Errorf("map tiles: %w", err)
	}
	if c.Attribution != "" {
		m.about.attribution = c.Attribution
	}
	digest := sha256.Sum256([]byte(c.Source + "\x00" + dataVersion))
	m.version = hex.EncodeToString(digest[:4])
	return m, nil
}

// Close closes the source.
func (m *Map) Close() error {
	if m.source == nil {
		return nil
	}
	return m.source.close()
}

// Raster reports whether the tiles are pictures in colours of their own, [RasterSize] wide.
// Other tiles are drawn in colours of the page, [Size] wide.
func (m *Map) Raster() bool { return !m.about.vector }

// BuiltIn reports whether the map has no source.
func (m *Map) BuiltIn() bool { return m.source == nil }

// MaxZoom is the highest zoom of tiles.
func (m *Map) MaxZoom() int {
	if m.about.vector {
		return maxZoom // drawn larger
	}
	return m.about.maxZoom
}

// Version changes with the source, for addresses of tiles that browsers cache.
func (m *Map) Version() string { return m.version }

// Credit is a copyright notice, with the address of its terms; empty: none.
type Credit struct{ Text, URL string }

// Credits returns the notices that every display of the map shows: that of the source, which
// its terms require, and that of the built-in map.
func (m *Map) Credits() []Credit {
	var list []Credit
	if text := plain(m.about.attribution); text != "" {
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

// Tile returns a tile. If the source fails, it is that of the built-in map. Error: [ErrNoTile].
func (m *Map) Tile(ctx context.Context, id ID) (Tile, error) {
	if !id.valid() {
		return Tile{}, ErrNoTile
	}
	if t, ok := m.cache.Get(id); ok {
		return t, nil
	}
	if err := m.loads.Acquire(ctx, 1); err != nil {
		return Tile{}, err
	}
	// A reader that leaves does not end the request of another one.
	result := m.flights.DoChan(fmt.Sprint(id), func() (any, error) {
		return m.load(context.WithoutCancel(ctx), id), nil
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
func (m *Map) load(ctx context.Context, id ID) Tile {
	start := m.cache.Start()
	t, err := m.read(ctx, id)
	if err != nil {
		if !errors.Is(err, errPaused) {
			m.log.InfoContext(ctx, "map tile not available", "zoom", id.Z, "x", id.X, "y", id.Y, "error", err)
		}
		return Tile{svgType, drawWorld(id), errorAge}
	}
	if t.ContentType == "" {
		t = Tile{svgType, drawWorld(id), defaultAge}
	}
	if _, remote := m.source.(*xyz); !remote { // a server's tiles have an age and a cache of their own
		m.cache.Put(id, t, start)
	}
	return t
}

// read returns the tile of the source; without a content type if the source has none.
func (m *Map) read(ctx context.Context, id ID) (Tile, error) {
	if m.source == nil {
		return Tile{}, nil
	}
	from := id
	if over := id.Z - m.about.maxZoom; over > 0 {
		if !m.about.vector {
			return Tile{}, nil
		}
		from = ID{id.Z - over, id.X >> over, id.Y >> over}
	}
	s, err := m.source.tile(ctx, from)
	if err != nil || len(s.body) == 0 {
		return Tile{}, err
	}
	age := s.maxAge
	if age == 0 {
		age = defaultAge
	}
	if m.about.vector {
		body, err := drawVector(s.body, from, id)
		return Tile{svgType, body, age}, err
	}
	kind := rasterType(s.body)
	if kind == "" {
		return Tile{}, fmt.Errorf("tile %d/%d/%d is not a PNG, JPEG or WebP picture", id.Z, id.X, id.Y)
	}
	return Tile{kind, s.body, age}, nil
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
