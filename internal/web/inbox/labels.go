package inbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web"
)

var statusBadges = map[desk.Status]web.Badge{
	desk.StatusOpen:     {Text: "Open", Tone: web.Accent},
	desk.StatusPending:  {Text: "Pending", Icon: "pause"},
	desk.StatusOnHold:   {Text: "On hold", Icon: "pause"},
	desk.StatusResolved: {Text: "Resolved", Tone: web.Good, Icon: "check"},
	desk.StatusClosed:   {Text: "Closed", Icon: "lock"},
}

func statusBadge(s desk.Status) web.Badge { return web.BadgeFor(statusBadges, s) }

func statusLabel(s desk.Status) string { return statusBadge(s).Text }

var priorityBadges = map[desk.Priority]web.Badge{
	desk.PriorityLow:    {Text: "Low"},
	desk.PriorityNormal: {Text: "Normal"},
	desk.PriorityHigh:   {Text: "High", Tone: web.Warning, Icon: "alert"},
	desk.PriorityUrgent: {Text: "Urgent", Tone: web.Bad, Icon: "alert"},
}

func priorityBadge(p desk.Priority) web.Badge { return web.BadgeFor(priorityBadges, p) }

func priorityLabel(p desk.Priority) string { return priorityBadge(p).Text }

// channels lists the channels of tickets, in display order.
var channels = web.Channels[:]

func channelLabel(name string) string { return web.ChannelLabel(name) }

// channelIcon returns the icon of a channel.
func channelIcon(name string) string {
	for _, c := range channels {
		if c.Value == name {
			return "channel-" + strings.ReplaceAll(name, "_", "-")
		}
	}
	return "channel-" + desk.ChannelAPI
}

// targetBar is the next SLA target of a ticket as a progress bar.
type targetBar struct {
	Filled int    // percent
	State  string // "", "soon" or "late"
	Words  string // "First response due in 25 min"
	Short  string // "Due in 25 min"; empty while there is time
}

// nextTarget returns the SLA target that is due first; nil for none.
func nextTarget(r *web.Request, t *desk.Ticket) *targetBar {
	if t.DueAt.IsZero() {
		return nil
	}
	for _, s := range t.SLA {
		if !s.DueAt.Equal(t.DueAt) || !s.MetAt.IsZero() {
			continue
		}
		p := new(targetBar)
		what := "First response"
		if s.Metric == desk.Resolution {
			what = "Resolution"
		}
		left, target := s.DueAt.Sub(r.Now), time.Duration(s.TargetMinutes)*time.Minute
		switch {
		case left <= 0:
			p.Filled, p.State, p.Short = 100, "late", "Overdue "+approximate(-left)
			p.Words = what + " is overdue by " + approximate(-left)
			return p
		case !s.WarnedAt.IsZero() || 5*left <= target:
			p.State, p.Short = "soon", "Due in "+approximate(left)
		}
		p.Filled = 4 // so that the bar is visible
		if left < target {
			p.Filled = max(p.Filled, int(100*(target-left)/target))
		}
		p.Words = what + " is due in " + approximate(left)
		return p
	}
	return nil
}

// since formats a past duration: "20 s ago".
func since(d time.Duration) string {
	if d < time.Minute {
		return strconv.Itoa(max(1, int(d/time.Second))) + " s ago"
	}
	return approximate(d) + " ago"
}

// approximate formats a duration in one unit, at least a minute.
func approximate(d time.Duration) string {
	switch {
	case d < time.Hour:
		return strconv.Itoa(max(1, int(d/time.Minute))) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + " d"
}
