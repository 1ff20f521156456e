package fleetpages

import (
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

// placeSearch is the search for a place on a map. Its template is "place-search".
type placeSearch struct {
	Text   string            // as entered
	Others []namedLink       // further places of that name
	None   bool              // no place has that name
	Kept   map[string]string // parameters of the page
}

// maxPlaces is the maximum number of places of a search.
const maxPlaces = 6

// Zooms of a place and of a position.
const placeZoom, positionZoom = 12.0, 16.0

// findPlace returns the search of a request with the view of the best match; false for none.
func findPlace(r *web.Request, kept url.Values) (placeSearch, mapview.View, bool) {
	s := placeSearch{Text: strings.TrimSpace(r.URL.Query().Get("place")), Kept: make(map[string]string)}
	for name := range kept {
		s.Kept[name] = kept.Get(name)
	}
	if s.Text == "" {
		return s, mapview.View{}, false
	}
	if lat, lng, ok := readPosition(s.Text); ok {
		return s, viewAt(lat, lng, positionZoom), true
	}
	found := tiles.FindPlaces(s.Text, maxPlaces)
	if len(found) == 0 {
		s.None = true
		return s, mapview.View{}, false
	}
	for _, place := range found[1:] {
		q := url.Values{}
		for name := range kept {
			q.Set(name, kept.Get(name))
		}
		viewAt(place.Lat, place.Lng, placeZoom).WriteQuery(q)
		s.Others = append(s.Others, namedLink{"?" + q.Encode(), place.Name + ", " + place.Country})
	}
	s.Text = found[0].Name + ", " + found[0].Country
	return s, viewAt(found[0].Lat, found[0].Lng, placeZoom), true
}

func viewAt(lat, lng, zoom float64) mapview.View {
	v := mapview.View{Zoom: zoom, Width: mapWidth, Height: mapHeight}
	v.X, v.Y = mapview.Project(lat, lng)
	return v
}

// readPosition parses a position such as "52.51, 13.39".
func readPosition(text string) (lat, lng float64, ok bool) {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
	if len(parts) != 2 {
		return 0, 0, false
	}
	lat, errLat := strconv.ParseFloat(parts[0], 64)
	lng, errLng := strconv.ParseFloat(parts[1], 64)
	return lat, lng, errLat == nil && errLng == nil && math.Abs(lat) <= 90 && math.Abs(lng) <= 180
}
