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

// stateBadge is the badge of a vehicle's state.
func stateBadge(s fleet.VehicleState) web.Badge {
	switch s {
	case fleet.Available:
		return web.Badge{Text: "Available", Tone: web.Good, Icon: "check"}
	case fleet.VehicleReserved:
		return web.Badge{Text: "Reserved", Tone: web.Accent, Icon: "clock"}
	case fleet.OnTrip:
		return web.Badge{Text: "On a trip", Tone: web.Accent, Icon: "route"}
	case fleet.NonOperational:
		return web.Badge{Text: "Out of service", Tone: web.Warning, Icon: "pause"}
	case fleet.NonContactable:
		return web.Badge{Text: "Out of contact", Tone: web.Warning, Icon: "plug"}
	case fleet.Missing:
		return web.Badge{Text: "Missing", Tone: web.Bad, Icon: "alert"}
	case fleet.Removed:
		return web.Badge{Text: "Removed"}
	}
	return web.Badge{Text: string(s)}
}

// rideBadge is the badge of a ride's status.
func rideBadge(s fleet.RideStatus) web.Badge {
	switch s {
	case fleet.Reserved:
		return web.Badge{Text: "Reserved", Tone: web.Accent, Icon: "clock"}
	case fleet.Active:
		return web.Badge{Text: "Active", Tone: web.Good, Icon: "play"}
	case fleet.Paused:
		return web.Badge{Text: "Paused", Tone: web.Warning, Icon: "pause"}
	case fleet.Completed:
		return web.Badge{Text: "Completed", Icon: "check"}
	case fleet.Cancelled:
		return web.Badge{Text: "Cancelled", Icon: "x"}
	}
	return web.Badge{Text: string(s)}
}
