package fleetpages

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

const (
	// replayReports bounds the reports of a ride that are read: five hours with one a second.
	replayReports = 20_000
	// replayPoints bounds the points of a replay, and replayRows those of its table.
	replayPoints = 360
	replayRows   = 30
)

// replay is the track of a ride. Its template is "replay".
type replay struct {
	Points  string // for the script: seconds, x, y and km/h of each, separated by spaces
	Seconds int64  // of the last point
	Length  string // "12 min 3 s"
	Rows    []replayRow
	Count   string // of the reports
	Partial bool   // the ride has more reports

	line []geo.Position
	at   []trackPoint
}

// replayRow is a row of the table.
type replayRow struct {
	At       web.Time
	Place    string
	Speed    string
	Distance string // since the first point
}

// trackPoint is a point of a track.
type trackPoint struct {
	at       time.Time
	place    geo.Position
	speed    float64 // km/h, as reported or else from the point before; negative: unknown
	distance float64 // meters since the first point
}

// replay returns the track of a ride; nil if it has fewer than two positions.
func (p *pages) replay(ctx context.Context, r *web.Request, ride *fleet.Ride) (*replay, error) {
	from, to := ride.StartedAt.Std(), ride.EndedAt.Std()
	if from.IsZero() {
		return nil, nil
	}
	if to.IsZero() {
		to = r.Now
	}
	// Reports have milliseconds: that of the end is included.
	reports, more, err := p.Fleet.Track(ctx, p.DB, r.OrganizationID, ride.VehicleID, from, to.Add(time.Millisecond), replayReports)
	if err != nil {
		return nil, fmt.Errorf("read the track of a ride: %w", err)
	}
	if len(reports) < 2 {
		return nil, nil
	}
	v := &replay{at: trackPoints(reports), Count: web.Count(len(reports), "%d position", "%d positions"), Partial: !more.IsZero()}
	first, last := v.at[0], v.at[len(v.at)-1]
	v.Seconds = int64(last.at.Sub(first.at) / time.Second)
	v.Length = formatDuration(v.Seconds)
	v.at = thin(v.at, replayPoints)
	for _, point := range v.at {
		v.line = append(v.line, point.place)
	}
	for _, point := range thin(v.at, replayRows) {
		row := replayRow{At: r.Time(point.at), Place: fmt.Sprintf("%.5f, %.5f", point.place.Lat, point.place.Lng), Distance: distance(int64(point.distance + .5)), Speed: "unknown"}
		if point.speed >= 0 {
			row.Speed = strconv.FormatFloat(math.Round(point.speed), 'f', -1, 64) + " km/h"
		}
		v.Rows = append(v.Rows, row)
	}
	return v, nil
}

// trackPoints returns the points of reports with a position, in the order of time.
func trackPoints(reports []track.Report) []trackPoint {
	list := make([]trackPoint, len(reports))
	for i := range reports {
		lat, _ := reports[i].Get(track.Lat)
		lng, _ := reports[i].Get(track.Lng)
		t := trackPoint{at: reports[i].Time(), place: geo.Position{Lat: geo.Degrees(lat), Lng: geo.Degrees(lng)}, speed: -1}
		if i > 0 {
			before := list[i-1]
			meters := geo.Distance(before.place.Lat, before.place.Lng, t.place.Lat, t.place.Lng)
			t.distance = before.distance + meters
			if seconds := t.at.Sub(before.at).Seconds(); seconds >= 1 {
				t.speed = meters / seconds * 3.6
			}
		}
		if speed, ok := reports[i].Get(track.Speed); ok {
			t.speed = float64(speed) / 10
		}
		list[i] = t
	}
	return list
}

// thin returns at most n of the points, evenly, with the first and the last one.
func thin(list []trackPoint, n int) []trackPoint {
	if len(list) <= n {
		return list
	}
	some := make([]trackPoint, n)
	for i := range some {
		some[i] = list[i*(len(list)-1)/(n-1)]
	}
	return some
}

// draw sets the points on a view.
func (v *replay) draw(on mapview.View) {
	var points []string
	for _, t := range v.at {
		x, y := on.At(t.place.Lat, t.place.Lng)
		speed := ""
		if t.speed >= 0 {
			speed = strconv.FormatFloat(math.Round(t.speed), 'f', -1, 64)
		}
		seconds := strconv.FormatFloat(t.at.Sub(v.at[0].at).Seconds(), 'f', 0, 64)
		points = append(points, strings.Join([]string{seconds, mapview.Coordinate(x), mapview.Coordinate(y), speed}, ","))
	}
	if points = slices.Compact(points); len(points) == 1 {
		points = append(points, points[0]) // the mark goes from one to the next
	}
	v.Points = strings.Join(points, " ")
}
