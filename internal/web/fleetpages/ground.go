package fleetpages

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

// tilesPath is the path of tiles. Maps of both environments have the same.
const tilesPath = "/map/tiles/"

// background is the tiles of a map. Its template is "tiles", with "tile-names" above it.
type background struct {
	Raster  bool
	Path    string // of all tiles of this source: "/map/tiles/0123abcd/"
	Deepest int    // zoom of the deepest tiles
	Tiles   []placedTile
	Credits []tiles.Credit
}

// placedTile is a tile on the picture.
type placedTile struct {
	ID    string // unique on the map, for the script
	Path  string
	X, Y  string
	Size  string // of a raster tile, in units
	Scale string // of a drawn tile
}

// background returns the tiles of a view.
func (p *pages) background(v mapview.View) background {
	set := p.Tiles.Tileset()
	b := background{Raster: set.Raster(), Path: tilesPath + set.Version() + "/", Deepest: set.MaxZoom(), Credits: set.Credits()}
	size := tiles.Size
	if b.Raster {
		size = tiles.RasterSize
	}
	for _, t := range v.Tiles(size, b.Deepest) {
		z, x, y := strconv.Itoa(t.Zoom), strconv.Itoa(t.Column), strconv.Itoa(t.Row)
		// A line in the grid between tiles, by rounding, is worse than half a unit of overlap.
		b.Tiles = append(b.Tiles, placedTile{
			ID: z + "-" + strconv.Itoa(t.Column+t.Turn<<t.Zoom) + "-" + y, Path: b.Path + z + "/" + x + "/" + y, X: mapview.Coordinate(t.X), Y: mapview.Coordinate(t.Y),
			Size: mapview.Coordinate(t.Size + 0.3), Scale: strconv.FormatFloat(math.Round(t.Size/float64(size)*1e4)/1e4, 'f', -1, 64),
		})
	}
	return b
}

// mapTile serves a tile.
func (p *pages) mapTile(w http.ResponseWriter, r *web.Request) error {
	z, errZ := strconv.Atoi(r.PathValue("z"))
	x, errX := strconv.Atoi(r.PathValue("x"))
	y, errY := strconv.Atoi(r.PathValue("y"))
	if cmp.Or(errZ, errX, errY) != nil {
		return problem.New(problem.NotFound, "there is no such tile")
	}
	t, err := p.Tiles.Tile(r.Context(), r.PathValue("version"), tiles.ID{Z: z, X: x, Y: y})
	if errors.Is(err, tiles.ErrNoTile) {
		return problem.New(problem.NotFound, "there is no such tile")
	}
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", t.ContentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("Cache-Control", "private, max-age="+strconv.Itoa(int(t.MaxAge.Seconds())))
	_, _ = w.Write(t.Body)
	return nil
}
