package inbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// statusLabel returns the label of a status.
func statusLabel(s desk.Status) string {
	switch s {
	case desk.StatusOpen:
		return "Open"
	case desk.StatusPending:
		return "Pending"
	case desk.StatusOnHold:
		return "On hold"
	case desk.StatusResolved:
		return "Resolved"
	case desk.StatusClosed:
		return "Closed"
	}
	return string(s)
}

// statusBadge returns the badge of a status.
func statusBadge(s desk.Status) web.Badge {
	c := web.Badge{Text: statusLabel(s)}
	switch s {
	case desk.StatusOpen:
		c.Tone = web.Accent
	case desk.StatusPending, desk.StatusOnHold:
		c.Icon = "pause"
	case desk.StatusResolved:
		c.Tone, c.Icon = web.Good, "check"
	case desk.StatusClosed:
		c.Icon = "lock"
	}
	return c
}

func priorityLabel(p desk.Priority) string {
	switch p {
	case desk.PriorityLow:
		return "Low"
	case desk.PriorityNormal:
		return "Normal"
	case desk.PriorityHigh:
		return "High"
	case desk.PriorityUrgent:
		return "Urgent"
	}
	return string(p)
}

func priorityBadge(p desk.Priority) web.Badge {
	c := web.Badge{Text: priorityLabel(p)}
	switch p {
	case desk.PriorityHigh:
		c.Tone, c.Icon = web.Warning, "alert"
	case desk.PriorityUrgent:
		c.Tone, c.Icon = web.Bad, "alert"
	}
	return c
}

// channels lists the channels of tickets, in display order.
var channels = []struct{ name, label string }{
	{"email", "E-mail"}, {"sms", "SMS"}, {"business_messaging", "Business messaging"}, {"social_messenger", "Social messenger"},
	{"voice", "Voice"}, {"chat", "Team chat"}, {"storefront", "Storefront"}, {"marketplace", "Marketplace"}, {"payments", "Payments"},
	{desk.ChannelAPI, "API"},
}

// channelLabel returns the label of a channel.
func channelLabel(name string) string {
	for _, c := range channels {
		if c.name == name {
			return c.label
		}
	}
	return name
}

// channelIcon returns the icon of a channel.
func channelIcon(name string) string {
	for _, c := range channels {
		if c.name == name {
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
