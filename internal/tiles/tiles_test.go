package tiles_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/tiles/tilestest"
)

// The tile at the middle of the town, at zoom 14.
const lat, lng = 52.52, 13.405

var middle = tiles.ID{Z: 14, X: 8802, Y: 5373}

func open(t *testing.T, c tiles.Config) *tiles.Map {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := tiles.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func get(t *testing.T, m *tiles.Map, id tiles.ID) tiles.Tile {
	t.Helper()
	tile, err := m.Tile(t.Context(), m.Tileset().Version(), id)
	if err != nil {
		t.Fatalf("%v: %v", id, err)
	}
	if tile.ContentType == "image/svg+xml" {
		for d := xml.NewDecoder(bytes.NewReader(tile.Body)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v is not XML: %v\n%s", id, err, tile.Body)
			}
		}
	}
	return tile
}

// TestFiles: both formats of files have the streets of the town, deeper zooms are parts of the
// deepest, and the built-in map is beyond the edge.
func TestFiles(t *testing.T) {
	town := tilestest.Town(t, lat, lng, 12, 14)
	for name, write := range map[string]func(path string){
		"town.mbtiles": func(path string) { tilestest.WriteMBTiles(t, path, "pbf", town) },
		"town.pmtiles": func(path string) { tilestest.WritePMTiles(t, path, town, 0) },
		"deep.pmtiles": func(path string) { tilestest.WritePMTiles(t, path, town, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			write(path)
			m := open(t, tiles.Config{Source: path})
			set := m.Tileset()
			if set.Raster() || set.BuiltIn() || set.MaxZoom() < 20 {
				t.Errorf("got raster %v, built-in %v, zoom %d", set.Raster(), set.BuiltIn(), set.MaxZoom())
			}
			if c := set.Credits(); c[0].Text != "Survey of Testburg" {
				t.Errorf("got credits %v", c)
			}
			for id := range town {
				if text := string(get(t, m, id).Body); !strings.Contains(text, "var(--map-road") {
					t.Errorf("%v has no street: %s", id, text)
				}
			}
			text := string(get(t, m, middle).Body)
			for _, want := range []string{"Testburg", "var(--map-water", "var(--map-building", "var(--map-main", "Market Row"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s is missing: %s", want, text)
				}
			}
			deep := tiles.ID{Z: 17, X: middle.X<<3 + 3, Y: middle.Y<<3 + 3}
			if text := string(get(t, m, deep).Body); !strings.Contains(text, "var(--map-road") || len(text) > 20_000 {
				t.Errorf("zoom 17 has %d bytes: %s", len(text), text)
			}
			if text := string(get(t, m, tiles.ID{Z: 5, X: 17, Y: 10}).Body); !strings.Contains(text, "var(--map-land") {
				t.Errorf("the built-in map is missing: %s", text)
			}
		})
	}
}

// TestRasterFile: pictures come as they are.
func TestRasterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raster.mbtiles")
	picture := tilestest.Raster(t)
	tilestest.WriteMBTiles(t, path, "png", map[tiles.ID][]byte{middle: picture, {Z: 14}: []byte("<svg onload='alert(1)'/>")})
	m := open(t, tiles.Config{Source: path, Attribution: "© Somebody"})
	if tile := get(t, m, middle); tile.ContentType != "image/png" || !bytes.Equal(tile.Body, picture) {
		t.Errorf("got %s with %d bytes", tile.ContentType, len(tile.Body))
	}
	if tile := get(t, m, tiles.ID{Z: 14}); strings.Contains(string(tile.Body), "onload") {
		t.Errorf("markup is passed on: %s", tile.Body)
	}
	if set := m.Tileset(); !set.Raster() || set.MaxZoom() != 14 || set.Credits()[0].Text != "© Somebody" {
		t.Errorf("got raster %v, zoom %d, credits %v", set.Raster(), set.MaxZoom(), set.Credits())
	}
}

// server is a tile server that counts requests.
type server struct {
	requests atomic.Int64
	answer   atomic.Pointer[http.HandlerFunc]
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	(*s.answer.Load())(w, r)
}

func (s *server) set(h http.HandlerFunc) { s.answer.Store(&h) }

// RoundTrip answers without a network, so that time can be virtual.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestServer: tiles of a server are cached for the time that it allows, confirmed by their tag
// later, and used beyond it while the server fails.
func TestServer(t *testing.T) {
	picture := tilestest.Raster(t)
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var confirmed atomic.Int64
		s.set(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.String() != "https://tiles.example/a/14/8802/5373.png?key=secret" || r.UserAgent() != "Test (+https://help.example)" {
				t.Errorf("got %s by %q", r.URL, r.UserAgent())
			}
			if r.Header.Get("If-None-Match") == `"1"` {
				confirmed.Add(1)
				w.WriteHeader(http.StatusNotModified)
				return
			}
			w.Header().Set("Etag", `"1"`)
			w.Header().Set("Cache-Control", "public, max-age=7200")
			_, _ = w.Write(picture)
		})
		m := open(t, tiles.Config{Source: "https://tiles.example/a/{z}/{x}/{y}.png?key=secret", Client: "Test (+https://help.example)", Transport: s})
		is := func(what string, contentType string, requests int64) {
			t.Helper()
			if tile := get(t, m, middle); tile.ContentType != contentType || tile.MaxAge <= 0 || tile.MaxAge > 24*time.Hour {
				t.Errorf("%s: got %s for %v", what, tile.ContentType, tile.MaxAge)
			}
			if n := s.requests.Load(); n != requests {
				t.Errorf("%s: got %d requests, want %d", what, n, requests)
			}
		}
		is("first", "image/png", 1)
		time.Sleep(time.Hour)
		is("fresh", "image/png", 1)
		time.Sleep(2 * time.Hour)
		is("confirmed", "image/png", 2)
		if confirmed.Load() != 1 {
			t.Errorf("confirmed %d times", confirmed.Load())
		}
		s.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		time.Sleep(8 * 24 * time.Hour)
		is("failing", "image/png", 3)
		is("paused", "image/png", 3)
		time.Sleep(time.Minute)
		is("failing again", "image/png", 4)
	})
}

// TestServerFails: what is no tile is not cached as one and does not affect other tiles, and a server
// that fails gets none of the requests that waited for others.
func TestServerFails(t *testing.T) {
	town, picture := tilestest.Town(t, lat, lng, 14, 14), tilestest.Raster(t)
	for source, tile := range map[string][]byte{"https://tiles.example/{z}/{x}/{y}.png": picture, "https://tiles.example/{z}/{x}/{y}.mvt": town[middle]} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			s.set(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<h1>Be back soon</h1>")) })
			m := open(t, tiles.Config{Source: source, Transport: s})
			is := func(id tiles.ID, theirs bool, requests int64) {
				t.Helper()
				got := get(t, m, id)
				if drawn := got.ContentType == "image/png" || strings.Contains(string(got.Body), "var(--map-road"); drawn != theirs || s.requests.Load() != requests {
					t.Errorf("%s: %v is of the server: %t, after %d requests", source, id, drawn, s.requests.Load())
				}
			}
			is(middle, false, 1)
			s.set(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tile) })
			is(middle, false, 1)
			is(tiles.ID{Z: 14, X: middle.X + 1, Y: middle.Y}, true, 2)
			time.Sleep(time.Minute)
			is(middle, true, 3)
			s.set(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(5 * time.Second)
				w.WriteHeader(http.StatusGatewayTimeout)
			})
			var all sync.WaitGroup
			start := time.Now()
			for x := range 12 {
				all.Go(func() {
					if _, err := m.Tile(t.Context(), m.Tileset().Version(), tiles.ID{Z: 4, X: x, Y: 5}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if n, took := s.requests.Load(), time.Since(start); n != 3+4 || took != 5*time.Second {
				t.Errorf("%s: %d requests, after %v", source, n, took)
			}
		})
	}
}

// TestOneTileFails: the failure of one tile stops no other, and the server is asked for it again after
// a pause. One that is busy is asked for none.
func TestOneTileFails(t *testing.T) {
	picture := tilestest.Raster(t)
	other := tiles.ID{Z: 14, X: middle.X + 1, Y: middle.Y}
	for status, all := range map[int]bool{
		http.StatusBadRequest: false, http.StatusForbidden: false, http.StatusInternalServerError: false,
		http.StatusTooManyRequests: true, http.StatusBadGateway: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			var works atomic.Bool
			s.set(func(w http.ResponseWriter, r *http.Request) {
				if !works.Load() && strings.HasSuffix(r.URL.Path, "/8802/5373.png") {
					w.WriteHeader(status)
					return
				}
				_, _ = w.Write(picture)
			})
			m := open(t, tiles.Config{Source: "https://tiles.example/{z}/{x}/{y}.png", Transport: s})
			is := func(what string, id tiles.ID, theirs bool, requests int64) {
				t.Helper()
				if got := get(t, m, id); (got.ContentType == "image/png") != theirs || s.requests.Load() != requests {
					t.Errorf("%d, %s: got %s after %d requests", status, what, got.ContentType, s.requests.Load())
				}
			}
			is("first", middle, false, 1)
			is("again", middle, false, 1)
			if all {
				is("another tile", other, false, 1)
			} else {
				is("another tile", other, true, 2)
			}
			time.Sleep(31 * time.Second)
			works.Store(true)
			before := s.requests.Load()
			is("after the pause", middle, true, before+1)
		})
	}
}

// TestServerRefuses: a server that refuses all tiles, as for a wrong key, is not asked for each.
func TestServerRefuses(t *testing.T) {
	picture := tilestest.Raster(t)
	deliver := func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(picture) }
	for _, first := range []bool{false, true} { // whether it delivers before
		for _, status := range []int{http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusTeapot, http.StatusInternalServerError, 521} {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				m := open(t, tiles.Config{Source: "https://tiles.example/{z}/{x}/{y}.png", Transport: s})
				if first {
					s.set(deliver)
					get(t, m, tiles.ID{Z: 10, X: 1, Y: 1})
					time.Sleep(6 * time.Minute)
				}
				s.set(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, "This key is not known.")
				})
				look := func(row int) {
					before := s.requests.Load()
					for x := range 100 {
						get(t, m, tiles.ID{Z: 14, X: middle.X + x, Y: middle.Y + row})
					}
					if n := s.requests.Load() - before; n != 8 {
						t.Errorf("%d: %d requests, want 8", status, n)
					}
				}
				look(0)
				time.Sleep(31 * time.Second)
				look(1)
				s.set(deliver)
				time.Sleep(31 * time.Second)
				if got := get(t, m, middle); got.ContentType != "image/png" {
					t.Errorf("%d: got %s of a server that works again", status, got.ContentType)
				}
			})
		}
	}
}

// TestServerRefusesSome: tiles that a server refuses, because it does not have them, take no others away.
func TestServerRefusesSome(t *testing.T) {
	picture := tilestest.Raster(t)
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.set(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/17/") || strings.HasSuffix(r.URL.Path, "/8802/5373.png") {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			_, _ = w.Write(picture)
		})
		m := open(t, tiles.Config{Source: "https://tiles.example/{z}/{x}/{y}.png", Transport: s})
		delivers := func(id tiles.ID) {
			t.Helper()
			if got := get(t, m, id); got.ContentType != "image/png" {
				t.Errorf("got %s of %v", got.ContentType, id)
			}
		}
		for range 20 { // one tile alone, again and again
			get(t, m, middle)
			time.Sleep(61 * time.Second)
		}
		for view := range 10 { // one reader beyond the server's zooms, and one within
			for i := range 12 {
				get(t, m, tiles.ID{Z: 17, X: middle.X*8 + i, Y: middle.Y*8 + view})
			}
			for i := range 3 {
				if view > 0 || i > 0 { // the first one ends the pause
					delivers(tiles.ID{Z: 14, X: middle.X + 1 + view, Y: middle.Y + i})
				}
				time.Sleep(31 * time.Second)
			}
		}
	})
}

// TestReadersLeave: tiles that nobody waits for any more are not fetched, except for a few.
func TestReadersLeave(t *testing.T) {
	picture := tilestest.Raster(t)
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.set(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = w.Write(picture)
		})
		m := open(t, tiles.Config{Source: "https://tiles.example/{z}/{x}/{y}.png", Transport: s})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		for x := range 300 {
			all.Go(func() {
				if _, err := m.Tile(ctx, m.Tileset().Version(), tiles.ID{Z: 10, X: x, Y: 5}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d: got %v", x, err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Hour)
		if n := s.requests.Load(); n > 16 {
			t.Errorf("got %d requests", n)
		}
		get(t, m, middle)
	})
}

// TestServerWithoutTiles: wrong, large and missing tiles are those of the built-in map.
func TestServerWithoutTiles(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"nothing":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"refusal":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"markup":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<script>alert(1)</script>")) },
		"too much": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 3<<20)) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://metadata.example/secret", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			s.set(answer)
			m := open(t, tiles.Config{Source: "https://tiles.example/{z}/{x}/{y}.png", Transport: s})
			tile := get(t, m, tiles.ID{Z: 4, X: 8, Y: 5})
			if tile.ContentType != "image/svg+xml" || !strings.Contains(string(tile.Body), "var(--map-land") || strings.Contains(string(tile.Body), "alert") {
				t.Errorf("got %s: %s", tile.ContentType, tile.Body)
			}
			if s.requests.Load() != 1 {
				t.Errorf("got %d requests", s.requests.Load())
			}
		})
	}
}

// TestOpen: sources that cannot work are refused with the reason.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	tilestest.WriteMBTiles(t, filepath.Join(dir, "odd.mbtiles"), "tiff", nil)
	for source, want := range map[string]string{
		"https://tiles.example/{z}/{x}.png":      "{y}",
		"ftp://tiles.example/{z}/{x}/{y}":        "http",
		filepath.Join(dir, "missing.mbtiles"):    "missing.mbtiles",
		filepath.Join(dir, "missing.pmtiles"):    "missing.pmtiles",
		filepath.Join(dir, "odd.mbtiles"):        "tiff",
		"https://user:pass@host:bad/{z}/{x}{y}":  "address",
		"https://user:pass@host:bad/a.pmtiles":   "address",
		"s3://user:pass@bucket/a.pmtiles":        "http",
		"https:///a.pmtiles":                     "http",
		"https://tiles.example/pass@/map":        ".pmtiles",
		"https://tiles.example/?a=pass@.pmtiles": "{z}",
	} {
		_, err := tiles.Open(tiles.Config{Source: source, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: got %v", source, err)
		}
	}
	m := open(t, tiles.Config{})
	for _, id := range []tiles.ID{{Z: -1}, {Z: 23}, {Z: 2, X: 4}, {Z: 2, Y: -1}} {
		if _, err := m.Tile(t.Context(), m.Tileset().Version(), id); !errors.Is(err, tiles.ErrNoTile) {
			t.Errorf("%v: got %v", id, err)
		}
	}
}

// TestWorld: the built-in map has land, borders and cities, and its tiles are small.
func TestWorld(t *testing.T) {
	m := open(t, tiles.Config{})
	for _, id := range []tiles.ID{{}, {Z: 1, X: 1}, {Z: 4, X: 8, Y: 5}, {Z: 6, X: 34, Y: 20}, {Z: 10, X: 550, Y: 335}} {
		tile := get(t, m, id)
		if len(tile.Body) > 60_000 || !strings.Contains(string(tile.Body), "var(--map-land") {
			t.Errorf("%v has %d bytes", id, len(tile.Body))
		}
		t.Logf("%v: %d bytes", id, len(tile.Body))
	}
	if text := string(get(t, m, tiles.ID{Z: 6, X: 34, Y: 20}).Body); !strings.Contains(text, "Berlin") || !strings.Contains(text, "var(--map-border") {
		t.Errorf("Berlin or a border is missing: %s", text)
	}
	if text := string(get(t, m, tiles.ID{Z: 4, X: 4, Y: 6}).Body); strings.Count(text, "<path") != 1 && !strings.Contains(text, "var(--map-water") {
		t.Errorf("the ocean has %s", text)
	}
}

func TestFindPlaces(t *testing.T) {
	for text, want := range map[string]string{
		"berlin": "Berlin, DE", "munich": "Munich, DE", "sao paulo": "São Paulo, BR",
		"SAN FRANCISCO": "San Francisco, US", "san francisco, ar": "San Francisco, AR", "lodz": "Łódź, PL", "köln": "Cologne, DE", "pristina": "Pristina, XK", "Paris, France": "Paris, FR", "san francisco, California": "San Francisco, US", "": "", "zzzz": "",
	} {
		got := ""
		if list := tiles.FindPlaces(text, 5); len(list) > 0 {
			got = list[0].Name + ", " + list[0].Country
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if n := len(tiles.FindPlaces("a", 7)); n != 7 {
		t.Errorf("got %d places", n)
	}
}
