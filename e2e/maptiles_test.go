package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/tiles/tilestest"
)

// withTown configures a map of a small town in Berlin, where the sandbox has vehicles, as a
// PMTiles file.
func withTown(t testing.TB) func(*app.Config) {
	return func(c *app.Config) {
		c.MapTiles = filepath.Join(t.TempDir(), "town.pmtiles")
		tilestest.WritePMTiles(t, c.MapTiles, tilestest.Town(t, 52.52, 13.405, 10, 14), 20)
	}
}

const townMap = "/sandbox/fleet/map?z=14.5&lat=52.52&lng=13.405"

// TestVectorTiles: streets of a file lie under the map, follow a drag before the server renders
// the view again, and take the colours of the scheme.
func TestVectorTiles(t *testing.T) {
	p := start(t, withTown(t))
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open(townMap)
	v.waitText("Survey of Testburg", "in view")
	// An element that shows a part of another document has the size of what it shows.
	drawn := `[...document.querySelectorAll(".tiles use")].filter((u) => u.getBBox().width > 500).length`
	v.wait("drawn tiles", drawn+` === document.querySelectorAll(".tiles use").length && `+drawn+` > 3`)
	v.wait("drawn names", `[...document.querySelectorAll(".tile-names use")].some((u) => u.getBBox().width > 20)`)
	before := js[int](v, `document.querySelectorAll(".tiles use").length`)
	v.mouse("mousePressed", ".ground", .2, .5, 0)
	v.mouse("mouseMoved", ".ground", .5, .5, 0)
	v.mouse("mouseMoved", ".ground", .9, .5, 0)
	v.wait("tiles while the map is dragged", fmt.Sprint(`document.querySelectorAll(".tiles use").length > `, before))
	v.mouse("mouseReleased", ".ground", .9, .5, 0)
	v.wait("a map further west", `Number(new URL(location.href).searchParams.get("lng")) < 13.4`)
	if js[bool](v, `performance.getEntriesByType("resource").some((r) => new URL(r.name).origin !== location.origin)`) {
		t.Error("the page loads something from elsewhere")
	}
}

// TestRasterTiles: pictures of a tile server lie under the map, fetched by the server alone, and
// the built-in map takes the place of those that it does not have.
func TestRasterTiles(t *testing.T) {
	picture := tilestest.Raster(t)
	var requests, down atomic.Int64
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if down.Load() > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if !strings.HasPrefix(r.UserAgent(), "Kickstand (+http") || r.Header.Get("Cookie") != "" {
			t.Errorf("got a request by %q", r.UserAgent())
		}
		_, _ = w.Write(picture)
	}))
	defer far.Close()
	p := start(t, func(c *app.Config) {
		c.MapTiles, c.MapAttribution = far.URL+"/{z}/{x}/{y}.png", "© A local survey"
	})
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open(townMap)
	v.waitText("© A local survey", "in view")
	loaded := `performance.getEntriesByType("resource").filter((r) => r.name.includes("/map/tiles/") && r.responseStatus === 200).length`
	v.wait("pictures", loaded+` === document.querySelectorAll(".tiles image").length && `+loaded+` > 3`)
	first := requests.Load()
	v.open(townMap)
	v.waitText("in view")
	if n := requests.Load(); first == 0 || n != first {
		t.Errorf("got %d requests, then %d", first, n-first)
	}
	down.Store(1)
	v.open("/sandbox/fleet/map?z=6.5&lat=50&lng=10")
	v.waitText("in view")
	v.wait("the built-in map", `[...document.querySelectorAll(".tiles image")].every((i) => i.getBoundingClientRect().width > 100)`)
}
