package tiles_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/tiles/tilestest"
)

// remoteSource is a file of a server. The key must not show.
const remoteSource = "https://maps.example/a/town.pmtiles?key=secret"

// answerFile answers like a server of files. An empty tag or a zero time is omitted.
func answerFile(tag string, modified time.Time, file []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if tag != "" {
			w.Header().Set("ETag", tag)
		}
		http.ServeContent(w, r, "", modified, bytes.NewReader(file))
	}
}

// openedTileset returns the tileset of a map after an attempt to open its source.
func openedTileset(m *tiles.Map) *tiles.Tileset {
	m.Tileset()
	synctest.Wait()
	return m.Tileset()
}

// isBuiltIn reports whether a tile is one of the built-in map.
func isBuiltIn(tile tiles.Tile) bool {
	text := string(tile.Body)
	return tile.ContentType == "image/svg+xml" && !strings.Contains(text, "var(--map-road")
}

// TestRemoteFile: a file of a server is opened in the background and read in parts, each directory
// and tile once in a day, at most four at a time.
func TestRemoteFile(t *testing.T) {
	town, picture := tilestest.Town(t, lat, lng, 12, 14), tilestest.Raster(t)
	pictures := make(map[tiles.ID][]byte)
	for id := range town {
		pictures[id] = picture
	}
	for name, c := range map[string]struct {
		list    map[tiles.ID][]byte
		perLeaf int
		raster  bool
	}{"vector": {list: town}, "raster": {list: pictures, raster: true}, "leaves": {list: town, perLeaf: 3}} {
		t.Run(name, func(t *testing.T) {
			file := tilestest.PMTiles(t, c.list, c.perLeaf)
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				answer := answerFile(`"1"`, time.Time{}, file)
				var running, parts atomic.Int64
				s.set(func(w http.ResponseWriter, r *http.Request) {
					if n := running.Add(1); n > 4 {
						t.Errorf("%d requests at a time", n)
					}
					defer running.Add(-1)
					if first := parts.Add(1) == 1; r.URL.String() != remoteSource || r.UserAgent() != "Test (+https://help.example)" || r.Header.Get("Range") == "" || first != (r.Header.Get("If-Match") == "") {
						t.Errorf("got %s by %q: %v", r.URL, r.UserAgent(), r.Header)
					}
					time.Sleep(time.Millisecond)
					answer(w, r)
				})
				m := open(t, tiles.Config{Source: remoteSource, Client: "Test (+https://help.example)", Transport: s})
				if n := s.requests.Load(); n != 0 {
					t.Errorf("%d requests without a page", n)
				}
				before := m.Tileset()
				if !before.BuiltIn() || before.Raster() || before.MaxZoom() < 20 || len(before.Credits()) != 1 {
					t.Errorf("before it is opened: %+v", before)
				}
				time.Sleep(time.Second)
				set := m.Tileset()
				if set.BuiltIn() || set.Raster() != c.raster || c.raster && set.MaxZoom() != 14 || set.Credits()[0].Text != "Survey of Testburg" || set.Version() == before.Version() {
					t.Errorf("once it is opened: %+v, %v", set, set.Credits())
				}
				read := func() {
					var all sync.WaitGroup
					for id := range c.list {
						all.Go(func() {
							if tile, err := m.Tile(t.Context(), set.Version(), id); err != nil || isBuiltIn(tile) || (tile.ContentType == "image/png") != c.raster || tile.MaxAge != 24*time.Hour {
								t.Errorf("%v: got %s, %v", id, tile.ContentType, err)
							}
						})
					}
					all.Wait()
				}
				read()
				want := 3 + len(c.list)
				if c.perLeaf > 0 {
					want += (len(c.list) + c.perLeaf - 1) / c.perLeaf
				}
				if n := s.requests.Load(); n != int64(want) {
					t.Errorf("got %d requests, want %d", n, want)
				}
				time.Sleep(23 * time.Hour)
				read()
				if n := s.requests.Load(); n != int64(want) {
					t.Errorf("got %d requests within a day, want %d", n, want)
				}
				time.Sleep(2 * time.Hour)
				read()
				if n := s.requests.Load(); n != int64(want+len(c.list)) {
					t.Errorf("got %d requests after a day, want %d", n, want+len(c.list))
				}
				if tile, err := m.Tile(t.Context(), before.Version(), middle); err != nil || !isBuiltIn(tile) || tile.MaxAge != 24*time.Hour {
					t.Errorf("a page from before it was opened gets %s for %v, %v", tile.ContentType, tile.MaxAge, err)
				}
				if tile := get(t, m, tiles.ID{Z: 5, X: 17, Y: 10}); !isBuiltIn(tile) {
					t.Errorf("where the file has no tile: %s", tile.ContentType)
				}
			})
		})
	}
}

// notices receives a value for each line of a log.
type notices chan struct{}

func (n notices) Write(line []byte) (int, error) {
	n <- struct{}{}
	return len(line), nil
}

// TestRemoteFileOverNetwork: the same over connections. A large answer does not delay their closing.
func TestRemoteFileOverNetwork(t *testing.T) {
	town := tilestest.Town(t, lat, lng, 14, 14)
	s := &server{}
	s.set(answerFile(`"1"`, time.Time{}, tilestest.PMTiles(t, town, 3)))
	far := httptest.NewServer(s)
	defer far.Close()
	lines := make(notices, 100)
	m := open(t, tiles.Config{Source: far.URL + "/town.PMTILES", Logger: slog.New(slog.NewTextHandler(lines, nil))})
	m.Tileset()
	<-lines
	for id := range town {
		if isBuiltIn(get(t, m, id)) {
			t.Errorf("%v has no street", id)
		}
	}
	s.set(func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	m = open(t, tiles.Config{Source: far.URL + "/town.pmtiles", Logger: slog.New(slog.NewTextHandler(lines, nil))})
	m.Tileset()
	<-lines
	if set := m.Tileset(); !set.BuiltIn() {
		t.Errorf("got %+v", set)
	}
}

// answers are those of servers that do not serve a PMTiles file in parts.
func answers(file []byte) map[string]http.HandlerFunc {
	good := answerFile(`"1"`, time.Time{}, file)
	return map[string]http.HandlerFunc{
		"nothing": http.NotFound,
		"failure": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"refusal": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPreconditionFailed) },
		"whole": func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			good(w, r)
		},
		"another part": func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Range", "bytes=0-9999")
			good(w, r)
		},
		"unknown part": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(file[:127])
		},
		"odd size": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-126/0")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(file[:127])
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-126/%d", len(file)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(file[:50])
		},
		"short file":   answerFile("", time.Time{}, file[:50]),
		"another file": answerFile(`"1"`, time.Time{}, []byte(strings.Repeat("<h1>Be back soon</h1>", 100))),
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/a.pmtiles?key=secret", http.StatusFound)
		},
		"slowness": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	}
}

// TestRemoteFileOutOfReach: a server that does not serve the file delays nothing, and is asked again
// after a pause. The built-in map is drawn meanwhile.
func TestRemoteFileOutOfReach(t *testing.T) {
	file := tilestest.PMTiles(t, tilestest.Town(t, lat, lng, 14, 14), 0)
	for name, answer := range answers(file) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.set(answer)
				var log bytes.Buffer
				start := time.Now()
				m := open(t, tiles.Config{Source: remoteSource, Transport: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				for range 3 {
					if set := m.Tileset(); !set.BuiltIn() {
						t.Errorf("got %+v", set)
					}
					if tile := get(t, m, middle); !isBuiltIn(tile) {
						t.Errorf("got %s: %s", tile.ContentType, tile.Body)
					}
					synctest.Wait()
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("pages waited for %v", took)
				}
				if n := s.requests.Load(); n != 1 {
					t.Errorf("got %d requests", n)
				}
				time.Sleep(45 * time.Second)
				s.set(answerFile(`"1"`, time.Time{}, file))
				if n := s.requests.Load(); n != 1 {
					t.Errorf("got %d requests without a page", n)
				}
				if set := openedTileset(m); set.BuiltIn() || set.Raster() {
					t.Errorf("once it is in reach: %+v", set)
				}
				if tile := get(t, m, middle); isBuiltIn(tile) {
					t.Error("the built-in map is drawn once it is in reach")
				}
				text := log.String()
				if strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "recovered") {
					t.Errorf("the log has %s", text)
				}
				for _, part := range []string{"secret", "maps.example", "town.pmtiles"} {
					if strings.Contains(text, part) {
						t.Errorf("the log has the address: %s", text)
					}
				}
			})
		})
	}
}

// unreadBody is a body that nobody may read.
type unreadBody struct{ t *testing.T }

func (b unreadBody) Read([]byte) (int, error) {
	b.t.Error("the body is read")
	return 0, io.EOF
}

func (b unreadBody) Close() error { return nil }

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWholeFileIsNotRead: a server that does not know parts would send gigabytes.
func TestWholeFileIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, tiles.Config{Source: remoteSource, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Header: make(http.Header), Body: unreadBody{t}, ContentLength: 100 << 30, Request: r}, nil
		})})
		if set := openedTileset(m); !set.BuiltIn() {
			t.Errorf("got %+v", set)
		}
	})
}

// TestRemoteFileFails: while the server fails, cached tiles are used, and the others are those of the
// built-in map. No failure is cached.
func TestRemoteFileFails(t *testing.T) {
	file := tilestest.PMTiles(t, tilestest.Town(t, lat, lng, 14, 14), 3)
	other := tiles.ID{Z: 14, X: middle.X, Y: middle.Y + 1}
	for name, answer := range answers(file) {
		switch name {
		case "refusal", "odd size", "short file", "another file":
			continue // so answers the server of a file that has changed
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				good := answerFile(`"1"`, time.Time{}, file)
				s.set(good)
				m := open(t, tiles.Config{Source: remoteSource, Transport: s})
				set := openedTileset(m)
				get(t, m, middle)
				s.set(answer)
				before := s.requests.Load()
				for range 3 {
					if tile := get(t, m, other); !isBuiltIn(tile) || tile.MaxAge != time.Minute {
						t.Errorf("got %s for %v", tile.ContentType, tile.MaxAge)
					}
					if tile := get(t, m, middle); isBuiltIn(tile) {
						t.Error("a cached tile is not used")
					}
				}
				if n := s.requests.Load() - before; n != 1 {
					t.Errorf("got %d requests", n)
				}
				s.set(good)
				time.Sleep(31 * time.Second)
				if tile := get(t, m, other); isBuiltIn(tile) || m.Tileset() != set {
					t.Error("the built-in map is drawn after the failure")
				}
			})
		})
	}
}

// TestRemoteFileChanges: a file that is another one is opened again. No tile of the former one is
// drawn for pages of the new one, and pages of the former one have the built-in map.
func TestRemoteFileChanges(t *testing.T) {
	town, picture := tilestest.Town(t, lat, lng, 14, 14), tilestest.Raster(t)
	vector, raster := tilestest.PMTiles(t, town, 3), tilestest.PMTiles(t, map[tiles.ID][]byte{middle: picture}, 0)
	padded := append(bytes.Clone(raster), make([]byte, len(vector)-len(raster))...)
	may, june := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		before, after http.HandlerFunc
		match         string // If-Match of tiles
	}{
		"strong tag": {answerFile(`"1"`, may, vector), answerFile(`"2"`, may, padded), `"1"`},
		"weak tag":   {answerFile(`W/"1"`, may, vector), answerFile(`W/"2"`, may, padded), ""},
		"time":       {answerFile("", may, vector), answerFile("", june, padded), ""},
		"size":       {answerFile("", time.Time{}, vector), answerFile("", time.Time{}, append(bytes.Clone(raster), make([]byte, len(vector))...)), ""},
		"shorter":    {answerFile("", time.Time{}, vector), answerFile("", time.Time{}, raster), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.set(c.before)
				m := open(t, tiles.Config{Source: remoteSource, Transport: s})
				former := openedTileset(m)
				get(t, m, middle)
				time.Sleep(time.Hour)
				s.set(func(w http.ResponseWriter, r *http.Request) {
					if got := r.Header.Get("If-Match"); s.requests.Load() == 6 && got != c.match {
						t.Errorf("got If-Match %s", got)
					}
					c.after(w, r)
				})
				other := tiles.ID{Z: 14, X: middle.X, Y: middle.Y + 1}
				if n := s.requests.Load(); n != 5 {
					t.Fatalf("got %d requests", n)
				}
				if tile := get(t, m, other); !isBuiltIn(tile) || tile.MaxAge != time.Minute {
					t.Errorf("when it has changed: got %s for %v", tile.ContentType, tile.MaxAge)
				}
				synctest.Wait()
				set := m.Tileset()
				if !set.Raster() || set.Version() == former.Version() {
					t.Errorf("once it is opened again: %+v", set)
				}
				if tile := get(t, m, middle); tile.ContentType != "image/png" || !bytes.Equal(tile.Body, picture) {
					t.Errorf("the tile of the new file is %s", tile.ContentType)
				}
				if tile, err := m.Tile(t.Context(), former.Version(), middle); err != nil || !isBuiltIn(tile) || tile.MaxAge != time.Minute {
					t.Errorf("a page of the former file gets %s for %v, %v", tile.ContentType, tile.MaxAge, err)
				}
			})
		})
	}
}

// TestRemoteFileChangesOften: servers behind one address that disagree about the tag of the file get
// few requests.
func TestRemoteFileChangesOften(t *testing.T) {
	file := tilestest.PMTiles(t, tilestest.Town(t, lat, lng, 14, 14), 3)
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.set(func(w http.ResponseWriter, r *http.Request) {
			answerFile(fmt.Sprintf(`"%d"`, max(0, s.requests.Load()%8-2)), time.Time{}, file)(w, r)
		})
		m := open(t, tiles.Config{Source: remoteSource, Transport: s})
		for range 600 {
			openedTileset(m)
			get(t, m, middle)
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.requests.Load(); n < 4 || n > 3*4 {
			t.Errorf("got %d requests in a minute", n)
		}
	})
}

// TestDamagedTiles: a tile that cannot be decoded does not stop others, and is not read again.
func TestDamagedTiles(t *testing.T) {
	town := tilestest.Town(t, lat, lng, 14, 14)
	other := tiles.ID{Z: 14, X: middle.X, Y: middle.Y + 1}
	town[other] = bytes.Repeat([]byte{0xff}, 500)
	file := tilestest.PMTiles(t, town, 0)
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.set(answerFile(`"1"`, time.Time{}, file[:len(file)-1])) // so is the last tile
		m := open(t, tiles.Config{Source: remoteSource, Transport: s})
		openedTileset(m)
		built := 0
		for range 3 {
			for id := range town {
				if isBuiltIn(get(t, m, id)) {
					built++
				}
			}
		}
		if n, want := s.requests.Load(), int64(3+len(town)-1); built != 3*2 || n != want {
			t.Errorf("%d tiles are built-in, after %d requests, want %d", built, n, want)
		}
	})
}

// TestDeepZooms: all tiles below one of the file are drawn from one request.
func TestDeepZooms(t *testing.T) {
	file := tilestest.PMTiles(t, tilestest.Town(t, lat, lng, 14, 14), 0)
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		answer := answerFile("", time.Time{}, file)
		s.set(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Millisecond)
			answer(w, r)
		})
		m := open(t, tiles.Config{Source: remoteSource, Transport: s})
		m.Tileset()
		time.Sleep(time.Second)
		version, opened := m.Tileset().Version(), s.requests.Load()
		var all sync.WaitGroup
		for x := range 4 {
			for y := range 4 {
				all.Go(func() {
					id := tiles.ID{Z: middle.Z + 2, X: 4*middle.X + x, Y: 4*middle.Y + y}
					if tile, err := m.Tile(t.Context(), version, id); err != nil || tile.ContentType != "image/svg+xml" {
						t.Errorf("%v: got %s, %v", id, tile.ContentType, err)
					}
				})
			}
		}
		all.Wait()
		if n := s.requests.Load() - opened; n != 1 {
			t.Errorf("got %d requests for the tiles below one, want 1", n)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

// TestUnknownSize: the server does not report the size of the file. A part beyond its end is damage
// of one tile, and no change of the file.
func TestUnknownSize(t *testing.T) {
	file := tilestest.PMTiles(t, tilestest.Town(t, lat, lng, 14, 14), 0)
	for name, c := range map[string]struct {
		total string
		opens bool
	}{"unknown": {"*", true}, "negative": {"-5", false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.set(func(w http.ResponseWriter, r *http.Request) {
					var first, last int
					fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
					if s.requests.Load() > 3 {
						w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
						return
					}
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%s", first, last, c.total))
					w.WriteHeader(http.StatusPartialContent)
					w.Write(file[first : last+1])
				})
				m := open(t, tiles.Config{Source: remoteSource, Transport: s})
				set := openedTileset(m)
				if set.BuiltIn() == c.opens {
					t.Fatalf("built in: %v", set.BuiltIn())
				}
				if c.opens {
					if tile, err := m.Tile(t.Context(), set.Version(), middle); err != nil || !isBuiltIn(tile) {
						t.Errorf("beyond the end: %s, %v", tile.ContentType, err)
					}
					if m.Tileset().BuiltIn() {
						t.Error("the file counts as changed")
					}
				}
			})
		})
	}
}

// TestCloseEndsRequests: no request outlives the map.
func TestCloseEndsRequests(t *testing.T) {
	file := tilestest.PMTiles(t, tilestest.Town(t, lat, lng, 14, 14), 3)
	for name, opened := range map[string]bool{"of an attempt": false, "of a tile": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.set(answerFile(`"1"`, time.Time{}, file))
				m, err := tiles.Open(tiles.Config{Source: remoteSource, Transport: s, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				if opened {
					openedTileset(m)
				}
				var running atomic.Int64
				s.set(func(_ http.ResponseWriter, r *http.Request) {
					running.Add(1)
					<-r.Context().Done()
					running.Add(-1)
				})
				var all sync.WaitGroup
				all.Go(func() {
					if tile, err := m.Tile(t.Context(), m.Tileset().Version(), middle); err != nil || !isBuiltIn(tile) {
						t.Errorf("got %s, %v", tile.ContentType, err)
					}
				})
				synctest.Wait()
				if running.Load() != 1 {
					t.Errorf("%d requests run", running.Load())
				}
				start := time.Now()
				if err := m.Close(); err != nil {
					t.Error(err)
				}
				if n, took := running.Load(), time.Since(start); n != 0 || took != 0 {
					t.Errorf("%d requests run after %v", n, took)
				}
				all.Wait()
			})
		})
	}
}

// TestRemoteFileConcurrently: readers see tiles of one file or of the built-in map while the file
// changes and its server fails.
func TestRemoteFileConcurrently(t *testing.T) {
	town := tilestest.Town(t, lat, lng, 14, 14)
	pictures := make(map[tiles.ID][]byte)
	for id := range town {
		pictures[id] = tilestest.Raster(t)
	}
	vector, raster := answerFile(`"v"`, time.Time{}, tilestest.PMTiles(t, town, 2)), answerFile(`"r"`, time.Time{}, tilestest.PMTiles(t, pictures, 2))
	synctest.Test(t, func(t *testing.T) {
		s, start := &server{}, time.Now()
		s.set(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(20 * time.Millisecond)
			switch time.Since(start) / (30 * time.Hour) % 5 {
			case 0, 1:
				vector(w, r)
			case 2, 3:
				raster(w, r)
			default:
				http.NotFound(w, r)
			}
		})
		m := open(t, tiles.Config{Source: remoteSource, Transport: s})
		var drawn, shown atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for i := 0; time.Since(start) < 8*24*time.Hour; i++ {
					time.Sleep([]time.Duration{7 * time.Hour, 31 * time.Second}[i%2]) // the age of cached tiles, and the pause
					set := m.Tileset()
					for id := range town {
						tile, err := m.Tile(t.Context(), set.Version(), id)
						switch {
						case err != nil:
							t.Error(err)
						case tile.ContentType == "image/png" && !set.Raster(), !isBuiltIn(tile) && tile.ContentType != "image/png" && set.Raster():
							t.Errorf("a page with raster tiles, %v, gets %s", set.Raster(), tile.ContentType)
						case tile.ContentType == "image/png":
							shown.Add(1)
						case !isBuiltIn(tile):
							drawn.Add(1)
						}
					}
				}
			})
		}
		all.Wait()
		if drawn.Load() == 0 || shown.Load() == 0 {
			t.Errorf("%d tiles were drawn and %d shown", drawn.Load(), shown.Load())
		}
	})
}
