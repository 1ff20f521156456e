package fleetpages

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

// Limits of the heat map.
const (
	heatDays   = 30
	heatSquare = 24.0 // width of a square in units
	heatLevels = 5
)

// heatOptions are the values of the field "heat".
var heatOptions = []web.Option{{Label: "Off"}, {Value: "starts", Label: "Ride starts"}, {Value: "ends", Label: "Ride ends"}}

// heatLevel is the squares of a heat map with about the same number of rides.
type heatLevel struct {
	Level int // from 1
	Path  string
}

// heat returns the heat map of a view and its description; none for an unknown kind.
func (p *pages) heat(ctx context.Context, r *web.Request, v mapview.View, kind string, subaccounts []string) ([]heatLevel, string, error) {
	if kind == "" {
		return nil, "", nil
	}
	box := v.Box()
	if kind == "ends" {
		// Rides are found by their start, up to half a picture beyond the edge.
		wider := v
		wider.Width, wider.Height = 2*v.Width, 2*v.Height
		box = wider.Box()
	}
	since := r.Now.Add(-heatDays * 24 * time.Hour)
	rides, more, err := p.Fleet.RideSample(ctx, p.DB, r.OrganizationID, fleet.RideQuery{
		Subaccount: subaccounts, Box: &box, StartedAt: period.Range{Low: &since}, Sort: keyset.Sort{Field: "started_at", Descending: true},
	})
	if err != nil {
		return nil, "", err
	}
	squares := make(map[[2]int]int)
	for i := range rides {
		var ride struct {
			Start *geo.Position `json:"start_location"`
			End   *geo.Position `json:"end_location"`
		}
		if err := json.Unmarshal(rides[i].JSON, &ride); err != nil {
			return nil, "", fmt.Errorf("read the positions of a ride: %w", err)
		}
		at := ride.Start
		if kind == "ends" {
			at = ride.End
		}
		if at == nil {
			continue
		}
		x, y := v.At(at.Lat, at.Lng)
		if x >= 0 && y >= 0 && x < v.Width && y < v.Height {
			squares[[2]int{int(x / heatSquare), int(y / heatSquare)}]++
		}
	}
	n := 0
	for _, count := range squares {
		n += count
	}
	what := map[string]string{"starts": "start", "ends": "end"}[kind]
	text := web.Count(int64(n), "%d ride "+what, "%d ride "+what+"s") + web.Sprintf(" of the last %d days", heatDays)
	if more {
		text = "The latest " + text
	}
	return heatPaths(squares, int(math.Ceil(v.Width/heatSquare)), int(math.Ceil(v.Height/heatSquare))), text, nil
}

// heatPaths returns the squares of a grid by level: the highest count has the highest one.
func heatPaths(squares map[[2]int]int, columns, rows int) []heatLevel {
	most := 0
	for _, n := range squares {
		most = max(most, n)
	}
	level := func(column, row int) int {
		// Many squares have few rides: the root keeps them visible.
		return int(math.Ceil(math.Sqrt(float64(squares[[2]int{column, row}])/float64(max(1, most))) * heatLevels))
	}
	var list []heatLevel
	for l := 1; l <= heatLevels; l++ {
		var path strings.Builder
		for row := range rows {
			for column := 0; column < columns; {
				run := 0
				for column+run < columns && level(column+run, row) == l {
					run++
				}
				if run > 0 {
					fmt.Fprintf(&path, "M%v %vh%vv%vh-%[3]vz", float64(column)*heatSquare, float64(row)*heatSquare, float64(run)*heatSquare, heatSquare)
				}
				column += max(1, run)
			}
		}
		if path.Len() > 0 {
			list = append(list, heatLevel{l, path.String()})
		}
	}
	return list
}
