package fleetpages

import (
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// formatDuration formats a duration with its two largest units: "42 s", "3 min", "1
// h 20 min", "2 d 4 h".
func formatDuration(seconds int64) string {
	two := func(n int64, unit string, rest int64, smaller string) string {
		text := web.Number(n) + " " + unit
		if rest > 0 {
			text += " " + strconv.FormatInt(rest, 10) + " " + smaller
		}
		return text
	}
	switch {
	case seconds < 60:
		return strconv.FormatInt(seconds, 10) + " s"
	case seconds < 3600:
		return two(seconds/60, "min", seconds%60, "s")
	case seconds < 86400:
		return two(seconds/3600, "h", seconds/60%60, "min")
	}
	return two(seconds/86400, "d", seconds/3600%24, "h")
}

// distance formats meters: "850 m", "3.2 km".
func distance(meters int64) string {
	if meters < 1000 {
		return strconv.FormatInt(meters, 10) + " m"
	}
	if meters < 100_000 {
		return strconv.FormatFloat(float64(meters)/1000, 'f', 1, 64) + " km"
	}
	return web.Number((meters+500)/1000) + " km"
}

// stateBadges are the badges of vehicles.
var stateBadges = map[fleet.VehicleState]web.Badge{
	fleet.Available:       {Text: "Available", Tone: web.Good, Icon: "check"},
	fleet.VehicleReserved: {Text: "Reserved", Tone: web.Accent, Icon: "clock"},
	fleet.OnTrip:          {Text: "On a trip", Tone: web.Accent, Icon: "route"},
	fleet.NonOperational:  {Text: "Out of service", Tone: web.Warning, Icon: "pause"},
	fleet.NonContactable:  {Text: "Out of contact", Tone: web.Warning, Icon: "plug"},
	fleet.Missing:         {Text: "Missing", Tone: web.Bad, Icon: "alert"},
	fleet.Removed:         {Text: "Removed"},
}

// rideBadges are the badges of rides.
var rideBadges = map[fleet.RideStatus]web.Badge{
	fleet.Reserved:  {Text: "Reserved", Tone: web.Accent, Icon: "clock"},
	fleet.Active:    {Text: "Active", Tone: web.Good, Icon: "play"},
	fleet.Paused:    {Text: "Paused", Tone: web.Warning, Icon: "pause"},
	fleet.Completed: {Text: "Completed", Icon: "check"},
	fleet.Cancelled: {Text: "Cancelled", Icon: "x"},
}
