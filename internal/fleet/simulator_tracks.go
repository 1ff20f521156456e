package fleet

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

const (
	// simulatedTrackDays is the age up to which simulated rides have tracks.
	simulatedTrackDays = 3
	// simulatedReportInterval is the time between the reports of such a ride.
	simulatedReportInterval = 10 * time.Second
)

// turns are the corners of a simulated ride, as parts of its way eastward and northward: as
// through blocks of streets.
var turns = [][2]float64{{0, 0}, {.25, 0}, {.25, .35}, {.6, .35}, {.6, .7}, {1, .7}, {1, 1}}

// simulatedTracks are the tracks of simulated rides: segments by vehicle and start.
type simulatedTracks map[string]map[int64]*track.Segment

// add adds the track of a completed ride that ended after a time.
func (t simulatedTracks) add(r *Ride, after time.Time) {
	if r.Status != Completed || r.StartLocation == nil || r.EndLocation == nil || r.EndedAt.Std().Before(after) {
		return
	}
	segments := t[r.VehicleID]
	if segments == nil {
		segments = make(map[int64]*track.Segment)
		t[r.VehicleID] = segments
	}
	for _, report := range simulatedTrack(r) {
		start := track.Start(report.At)
		if segments[start] == nil {
			segments[start] = new(track.Segment)
		}
		segments[start].Insert(report)
	}
}

// simulatedTrack returns the reports of a ride, which stands still for its pause half-way.
func simulatedTrack(r *Ride) []track.Report {
	begin, end := r.StartedAt.Std(), r.EndedAt.Std()
	paused := time.Duration(r.PausedSeconds) * time.Second
	riding := max(time.Second, end.Sub(begin)-paused)
	var lengths []float64 // up to each corner
	sum := 0.0
	for i := range turns {
		if i > 0 {
			a, b := between(r, turns[i-1]), between(r, turns[i])
			sum += geo.Distance(a.Lat, a.Lng, b.Lat, b.Lng)
		}
		lengths = append(lengths, sum)
	}
	speed := int64(math.Round(sum / riding.Seconds() * 36)) // tenths of a kilometer per hour
	var list []track.Report
	for at := begin; ; at = at.Add(simulatedReportInterval) {
		if at.After(end) {
			at = end
		}
		ridden := at.Sub(begin)
		stands := ridden > riding/2 && ridden < riding/2+paused
		switch {
		case stands:
			ridden = riding / 2
		case ridden > riding/2:
			ridden -= paused
		}
		where := between(r, along(lengths, sum*ridden.Seconds()/riding.Seconds()))
		report := track.Report{At: at.UnixMilli()}
		report.Set(track.Lat, geo.Millionths(where.Lat))
		report.Set(track.Lng, geo.Millionths(where.Lng))
		report.Set(track.Speed, speed)
		if stands || at.Equal(end) {
			report.Set(track.Speed, 0)
		}
		list = append(list, report)
		if at.Equal(end) {
			return list
		}
	}
}

// along returns the part of the way at a length, given the lengths up to the corners.
func along(lengths []float64, length float64) [2]float64 {
	for i := 1; i < len(turns); i++ {
		if leg := lengths[i] - lengths[i-1]; length <= lengths[i] && leg > 0 {
			f := (length - lengths[i-1]) / leg
			from, to := turns[i-1], turns[i]
			return [2]float64{from[0] + f*(to[0]-from[0]), from[1] + f*(to[1]-from[1])}
		}
	}
	return turns[len(turns)-1]
}

// between returns the position at a part of the way of a ride.
func between(r *Ride, part [2]float64) geo.Position {
	from, to := r.StartLocation, r.EndLocation
	return geo.Position{Lat: from.Lat + part[1]*(to.Lat-from.Lat), Lng: from.Lng + part[0]*(to.Lng-from.Lng)}
}

// insert writes the tracks.
func (t simulatedTracks) insert(ctx context.Context, tx *db.Tx, organizationID string) error {
	for vehicleID, segments := range t {
		for start, list := range segments {
			err := insertOne(ctx, tx, "tracks", organizationID, []column{{"vehicle_id", vehicleID}, {"start_at", start * 1000}, {"reports", list.Append(nil, start)}})
			if err != nil {
				return fmt.Errorf("insert a track: %w", err)
			}
		}
	}
	return nil
}
