package fleetapi

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// byDistance sorts a search around a point.
const byDistance = "distance"

// boxParam is the bbox parameter.
func boxParam(doc string) rest.Param {
	return rest.Param{Name: "bbox", Kind: rest.StringParam, Example: "13.36,52.50,13.43,52.54",
		Doc: doc + " minLng,minLat,maxLng,maxLat, edges included; a minLng that is greater than maxLng crosses the antimeridian."}
}

// Bounds of searches (fleet-api.md 4).
const (
	usualRadius   = 1000 // meters
	maximumRadius = 50_000
)

func latParam(doc string) rest.Param {
	return rest.Param{Name: "lat", Kind: rest.NumberParam, Min: -90, Max: 90, Doc: doc, Example: "52.52"}
}

func lngParam() rest.Param {
	return rest.Param{Name: "lng", Kind: rest.NumberParam, Min: -180, Max: 180, Doc: "Together with lat.", Example: "13.405"}
}

func radiusParam() rest.Param {
	return rest.Param{Name: "radius_meters", Kind: rest.NumberParam, Min: 0, Max: maximumRadius, Doc: "Maximum distance, with lat and lng; defaults to 1000."}
}

// box returns the parameter bbox, nil if absent.
func box(r *rest.Request) (*geo.Box, error) {
	if !r.Has("bbox") {
		return nil, nil
	}
	wrong := rest.BadParameter("bbox", "bbox must be four numbers, minLng,minLat,maxLng,maxLat: longitudes from -180 to 180, latitudes from -90 to 90, the smaller latitude first.")
	var at [4]float64
	parts := strings.Split(r.String("bbox"), ",")
	if len(parts) != len(at) {
		return nil, wrong
	}
	for i, part := range parts {
		var ok bool
		if at[i], ok = rest.Decimal(part); !ok || math.Abs(at[i]) > []float64{180, 90}[i%2] {
			return nil, wrong
		}
	}
	if at[1] > at[3] {
		return nil, wrong
	}
	return &geo.Box{MinLng: at[0], MinLat: at[1], MaxLng: at[2], MaxLat: at[3]}, nil
}

// point returns the parameters lat and lng; ok is false if absent.
func point(r *rest.Request) (lat, lng float64, ok bool, err error) {
	lat, hasLat := r.Number("lat")
	lng, hasLng := r.Number("lng")
	switch {
	case hasLat && !hasLng:
		return 0, 0, false, rest.BadParameter("lng", "lat and lng belong together; lng is missing.")
	case hasLng && !hasLat:
		return 0, 0, false, rest.BadParameter("lat", "lat and lng belong together; lat is missing.")
	}
	return lat, lng, hasLat, nil
}

// near returns the search around a point, nil if absent.
func near(r *rest.Request) (*geo.Circle, error) {
	lat, lng, given, err := point(r)
	if err != nil {
		return nil, err
	}
	radius, hasRadius := r.Number("radius_meters")
	switch {
	case !given && hasRadius:
		return nil, rest.BadParameter("radius_meters", "radius_meters needs lat and lng.")
	case !given && r.Sort().Field == byDistance:
		return nil, rest.BadParameter("sort", "An order by distance needs lat and lng.")
	case !given:
		return nil, nil
	}
	if !hasRadius {
		radius = usualRadius
	}
	return &geo.Circle{Lat: lat, Lng: lng, RadiusMeters: radius}, nil
}

// stored returns a record of a list in wire format.
func stored(d *fleet.Record) rest.Document {
	got := rest.Document{JSON: d.JSON, Revision: d.Revision}
	if d.Distance >= 0 {
		got = got.With("distance_meters", strconv.AppendInt(nil, int64(math.Round(d.Distance)), 10))
	}
	return got
}

// listPosition is the cursor position in an unpaged list: sort text, then id.
type listPosition struct{ Text, ID string }

func (p listPosition) compare(q listPosition) int {
	return cmp.Or(cmp.Compare(p.Text, q.Text), cmp.Compare(p.ID, q.ID))
}

// whole answers pages of a short, bounded list that the fleet returns completely.
func whole[T documented](r *rest.Request, records []T, at func(T) listPosition) (rest.Response, error) {
	order := func(p, q listPosition) int {
		if r.Sort().Descending {
			p, q = q, p
		}
		return p.compare(q)
	}
	slices.SortFunc(records, func(x, y T) int { return order(at(x), at(y)) })
	if !r.Exporting() {
		var after listPosition
		more, err := r.Cursor(&after)
		if err != nil {
			return rest.Response{}, err
		}
		if more {
			records = slices.DeleteFunc(records, func(x T) bool { return order(at(x), after) <= 0 })
		}
	}
	documents := make([]rest.Document, len(records))
	for i, x := range records {
		var err error
		if documents[i], err = document(x); err != nil {
			return rest.Response{}, err
		}
	}
	switch {
	case r.Exporting():
		return rest.Export(rest.All(documents)), nil
	case len(documents) <= r.Limit():
		return rest.List(documents, nil), nil
	}
	return rest.List(documents[:r.Limit()], at(records[r.Limit()-1])), nil
}
