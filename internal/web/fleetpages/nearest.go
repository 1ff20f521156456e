package fleetpages

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

// Limits of the nearest vehicles.
const (
	nearestVehicles = 8
	nearestRadius   = 50_000 // meters
)

// nearestList are the available vehicles nearest to a place on the map.
type nearestList struct {
	Place string // "52.52000,13.40500"
	X, Y  string
	Rows  []nearestRow
	Close string
}

// nearestRow is a vehicle of the list.
type nearestRow struct {
	Rank     int
	Code     string
	Link     string // selects it on the map
	Path     string
	Distance string
	Level    level
	Reports  web.Time
	X, Y     string

	at *geo.Position
}

// nearPlace returns the place of the parameter "near"; nil for none.
func nearPlace(query url.Values) *geo.Position {
	lat, lng, ok := readPosition(query.Get("near"))
	if !ok {
		return nil
	}
	return &geo.Position{Lat: lat, Lng: lng}
}

// placeText is a place for the parameter "near".
func placeText(lat, lng float64) string {
	format := func(degrees float64) string { return strconv.FormatFloat(degrees, 'f', 5, 64) }
	return format(lat) + "," + format(lng)
}

// nearestPath links to the available vehicles nearest to a place; empty for an unknown one.
func (p *pages) nearestPath(at *geo.Position) string {
	if at == nil {
		return ""
	}
	return web.Address(p.base+"/map", url.Values{"near": {placeText(at.Lat, at.Lng)}})
}

// findNearest returns the available vehicles of a filter nearest to a place.
func (p *pages) findNearest(ctx context.Context, r *web.Request, at *geo.Position, only fleet.VehicleFilter) (*nearestList, error) {
	settings, _, err := p.Fleet.Settings(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return nil, err
	}
	docs, _, err := p.Fleet.ListVehicles(ctx, p.DB, r.OrganizationID, fleet.VehicleQuery{
		Subaccount: only.Subaccount, VehicleTypeID: only.VehicleTypeID, State: []fleet.VehicleState{fleet.Available},
		Near: &geo.Circle{Lat: at.Lat, Lng: at.Lng, RadiusMeters: nearestRadius}, Limit: nearestVehicles,
	})
	if err != nil {
		return nil, err
	}
	vehicles, err := decode[fleet.Vehicle](docs)
	if err != nil {
		return nil, err
	}
	list := &nearestList{Place: placeText(at.Lat, at.Lng)}
	for i := range vehicles {
		v := &vehicles[i]
		list.Rows = append(list.Rows, nearestRow{
			Rank: i + 1, Code: v.Code, Path: p.base + "/vehicles/" + v.ID, Distance: distance(int64(docs[i].Distance + .5)), Level: levelOf(v, &settings),
			Reports: r.Time(v.LastReportedAt.Std()), at: v.Location, Link: v.ID,
		})
	}
	return list, nil
}

// view is the nearest view of the place and its vehicles.
func (l *nearestList) view(at *geo.Position) mapview.View {
	point := func(at *geo.Position) geo.Box {
		return geo.Box{MinLng: at.Lng, MinLat: at.Lat, MaxLng: at.Lng, MaxLat: at.Lat}
	}
	boxes := []geo.Box{point(at)}
	for i := range l.Rows {
		boxes = append(boxes, point(l.Rows[i].at))
	}
	return mapview.Fit(mapWidth, mapHeight, boxes)
}

// draw sets the positions on a view, and the links that select a vehicle on it.
func (l *nearestList) draw(at *geo.Position, v mapview.View, link func(v mapview.View, chosen string) string) {
	position := func(at *geo.Position) (string, string) {
		x, y := v.At(at.Lat, at.Lng)
		return mapview.Coordinate(x), mapview.Coordinate(y)
	}
	l.X, l.Y = position(at)
	for i := range l.Rows {
		row := &l.Rows[i]
		row.X, row.Y = position(row.at)
		row.Link = link(v, row.Link)
	}
}

// allowPosition lets the page ask for the reader's position.
func allowPosition(w http.ResponseWriter) {
	w.Header().Set("Permissions-Policy", "camera=(), geolocation=(self), microphone=(), payment=(), usb=()")
}
