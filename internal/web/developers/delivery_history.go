package developers

import (
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// deliveryHistory is a bar chart of a webhook's attempts in the last 24 hours: delivered
// in green, failed with a retry to follow in amber, failed for good in red.
type deliveryHistory struct {
	Width, Height int
	// SVG paths, one thick line per bar.
	Delivered, Retried, Failed string
	Words                      string       // a summary
	Bars                       []historyBar // bars with attempts, with tooltips; nil in a list
	Begin, End                 web.Time
}

// historyBar is the tooltip area of a bar.
type historyBar struct {
	X, Width int
	Words    string
}

const (
	historyHours  = 24
	historyHeight = 32
	barWidth      = 5 // pixels, one of which is the gap
)

// newDeliveryHistory draws counts. In a list, two bars are drawn as one, which halves its
// size.
func newDeliveryHistory(r *web.Request, counts []webhook.Count, listed bool) deliveryHistory {
	span := webhook.CountInterval
	if listed {
		span *= 2
	}
	n := int(historyHours * time.Hour / span)
	end := r.Now.UTC().Truncate(span).Add(span)
	begin := end.Add(-time.Duration(n) * span)
	bars := make([]webhook.Count, n)
	var sum webhook.Count
	for _, c := range counts {
		i := int(c.At.Sub(begin) / span)
		if c.At.Before(begin) || i >= n {
			continue
		}
		for _, to := range []*webhook.Count{&bars[i], &sum} {
			to.Delivered, to.Retried, to.Failed = to.Delivered+c.Delivered, to.Retried+c.Retried, to.Failed+c.Failed
		}
	}
	most := int64(1)
	for _, b := range bars {
		most = max(most, b.Delivered+b.Retried+b.Failed)
	}
	s := deliveryHistory{Width: n * barWidth, Height: historyHeight, Words: countText(sum), Begin: r.Time(begin), End: r.Time(end)}
	var paths [3]strings.Builder
	for i, b := range bars {
		y := historyHeight
		for part, count := range []int64{b.Delivered, b.Retried, b.Failed} {
			if count == 0 {
				continue
			}
			// At least 2 pixels, to be visible.
			h := max(int(count*(historyHeight-4)/most), 2)
			fmt.Fprintf(&paths[part], "M%d.5 %dv-%d", i*barWidth+2, y, h)
			y -= h
		}
		if !listed && y < historyHeight {
			at := r.Time(begin.Add(time.Duration(i) * span))
			s.Bars = append(s.Bars, historyBar{i * barWidth, barWidth, at.Clock() + ": " + countText(b)})
		}
	}
	s.Delivered, s.Retried, s.Failed = paths[0].String(), paths[1].String(), paths[2].String()
	return s
}

func countText(c webhook.Count) string {
	var words []string
	for _, part := range []struct {
		n    int64
		what string
	}{{c.Delivered, "delivered"}, {c.Retried, "to retry"}, {c.Failed, "failed"}} {
		if part.n > 0 {
			words = append(words, web.Number(part.n)+" "+part.what)
		}
	}
	if words == nil {
		return "no attempts"
	}
	return strings.Join(words, ", ")
}
