package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/web/chart"
)

// Charts have their own background and follow the reader's color scheme, so that they are
// readable on any page.
const chartStyle = `<style>
text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:14px}.muted{fill:#59636e}.end{text-anchor:end}.mid{text-anchor:middle}
.back{fill:#fff}.grid{stroke:#d1d9e0}.bar{fill:#4655d4}.line{stroke:#4655d4;fill:none;stroke-width:2}.area{fill:#4655d4;opacity:.14}.aim{stroke:#b35900;stroke-width:2}.track{fill:#eef0f3}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.muted{fill:#9198a1}.back{fill:#0d1117}.grid{stroke:#3d444d}.bar{fill:#8b96f5}.line{stroke:#8b96f5}.area{fill:#8b96f5}.aim{stroke:#f0a04b}.track{fill:#1c2128}}
</style>
`

// canvas is an SVG picture that is being drawn.
type canvas struct {
	strings.Builder
	height int
}

const canvasWidth = 680

// text writes a text with its classes.
func (c *canvas) text(x, y float64, class, text string) {
	fmt.Fprintf(c, `<text x="%s" y="%s" class="%s">%s</text>`+"\n", short(x), short(y), class, html.EscapeString(text))
}

// short formats a coordinate with one decimal at most.
func short(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

// svg returns the picture with its title.
func (c *canvas) svg(title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img"><title>%s</title>`+"\n", canvasWidth, c.height, canvasWidth, html.EscapeString(title)) +
		chartStyle + fmt.Sprintf(`<rect class="back" width="%d" height="%d"/>`+"\n", canvasWidth, c.height) + c.String() + "</svg>\n"
}

// draw returns the figure as SVG.
func (f figure) draw() string {
	c := new(canvas)
	c.text(20, 28, "title", f.Title)
	c.height = 40
	if f.Note != "" {
		c.text(20, 48, "muted", f.Note)
		c.height = 60
	}
	if len(f.Sizes) > 0 {
		f.drawLogarithmic(c)
	} else {
		for _, p := range f.Panels {
			p.draw(c)
		}
	}
	return c.svg(f.Title)
}

// draw adds the panel below the others.
func (p panel) draw(c *canvas) {
	values := make([]chart.Value, len(p.Points))
	for i, q := range p.Points {
		values[i] = chart.Value{Label: q.Label, Short: q.Label, N: int64(math.Round(q.Value))}
	}
	drawn := chart.New(p.Title, p.Unit, !p.Line, values, func(n int64) string { return grouped(n) + p.Unit })
	c.text(20, float64(c.height)+16, "", p.Title)
	c.height += 24
	fmt.Fprintf(c, `<g transform="translate(20 %d)">`+"\n", c.height)
	for _, g := range drawn.Grid {
		fmt.Fprintf(c, `<path class="grid" d="M%d %sH%d"/><text class="muted end" x="%d" y="%s">%s</text>`+"\n", drawn.Left, g.Y, drawn.Width, drawn.Left-8, g.TextY, g.Text)
	}
	notes := false
	if p.Line {
		fmt.Fprintf(c, `<path class="area" d="%s"/><path class="line" d="%s"/>`+"\n", drawn.Area, drawn.Line)
		for _, t := range drawn.Ticks {
			fmt.Fprintf(c, `<text class="muted mid" x="%s" y="%d">%s</text>`+"\n", t.X, drawn.Height-4, html.EscapeString(t.Text))
		}
	} else {
		width := float64(drawn.Width-drawn.Left) / float64(max(len(p.Points), 1))
		for i, b := range drawn.Points {
			at := float64(drawn.Left) + width*(float64(i)+0.5)
			fmt.Fprintf(c, `<rect class="bar" x="%s" y="%s" width="%s" height="%s" rx="1"/>`+"\n", b.BarX, b.BarY, b.BarW, b.BarH)
			fmt.Fprintf(c, `<text x="%s" y="%s" dy="-5" class="mid">%s</text>`+"\n", short(at), b.BarY, b.Text)
			c.text(at, float64(drawn.Height)-4, "mid", p.Points[i].Label)
			if p.Points[i].Note != "" {
				notes = true
				c.text(at, float64(drawn.Height)+12, "muted mid", p.Points[i].Note)
			}
		}
	}
	c.WriteString("</g>\n")
	c.height += drawn.Height + 16
	if notes {
		c.height += 16
	}
}

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// drawLogarithmic adds a line per panel over the sizes, both scales logarithmic.
func (f figure) drawLogarithmic(c *canvas) {
	const left, right, height = 76, 440, 320
	top := float64(c.height)
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range f.Panels {
		for _, q := range p.Points {
			low, high = min(low, math.Log10(q.Value)), max(high, math.Log10(q.Value))
		}
	}
	low, high = math.Floor(low), max(math.Ceil(high), math.Floor(low)+1)
	y := func(v float64) float64 { return top + 16 + height*(high-math.Log10(v))/(high-low) }
	from, to := math.Log10(float64(f.Sizes[0])), math.Log10(float64(f.Sizes[len(f.Sizes)-1]))
	x := func(size int) float64 { return left + (right-left)*(math.Log10(float64(size))-from)/max(to-from, 1) }
	for e := low; e <= high; e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(c, `<path class="grid" d="M%d %sH%d"/>`+"\n", left, short(y(v)), right)
		c.text(left-8, y(v)+4, "muted end", strconv.FormatFloat(v, 'f', -1, 64)+" "+f.Panels[0].Unit)
	}
	for _, size := range f.Sizes {
		c.text(x(size), top+height+36, "muted mid", grouped(int64(size)))
	}
	// Names stand at the ends of their lines, one below the other at least.
	type named struct {
		y    float64
		text string
	}
	var names []named
	for _, p := range f.Panels {
		var line strings.Builder
		var costs []float64
		for i, q := range p.Points {
			line.WriteByte("ML"[min(i, 1)])
			line.WriteString(short(x(f.Sizes[i])) + " " + short(y(q.Value)))
			costs = append(costs, q.Value)
		}
		fmt.Fprintf(c, `<path class="line" d="%s"/>`+"\n", line.String())
		names = append(names, named{y(costs[len(costs)-1]), fmt.Sprintf("%s: n^%.2f", p.Title, exponent(f.Sizes, costs))})
	}
	slices.SortFunc(names, func(a, b named) int { return cmp.Compare(a.y, b.y) })
	last := math.Inf(-1)
	for _, n := range names {
		last = max(n.y, last+15)
		c.text(right+8, last+4, "", n.text)
	}
	c.height += height + 52
}

// ratioBar is a ratio to a ceiling, and its aim; 0: none.
type ratioBar struct {
	what       string
	ratio, aim float64
}

// ratios returns the ratios of rates.
func (r *report) ratios() []ratioBar {
	var list []ratioBar
	for _, m := range r.Benchmarks {
		for _, one := range m.Rows {
			got, ok := ratioOf(one)
			if !ok || !strings.HasSuffix(one.Got, "/s") || sectionOf(m.Name) == curves {
				continue
			}
			aim := 0.0
			for part := range strings.SplitSeq(one.Aim, ", ") {
				if v, ok := strings.CutPrefix(part, "≥ "); ok && !strings.Contains(v, "/s") {
					aim, _ = strconv.ParseFloat(v, 64) // no number is no aim
				}
			}
			list = append(list, ratioBar{one.What, got, aim})
		}
	}
	return list
}

// drawRatios returns a chart with a bar per ratio and a mark at its aim.
func drawRatios(list []ratioBar) string {
	const title = "Ratio to the ceiling of the same run"
	const left, right = 20, 600
	c := new(canvas)
	c.text(left, 28, "title", title)
	c.text(left, 48, "muted", "A full bar is the ceiling or more; a mark is the aim.")
	for i, r := range list {
		at := 70 + 36*float64(i)
		c.text(left, at, "", r.what)
		fmt.Fprintf(c, `<rect class="track" x="%d" y="%s" width="%d" height="10" rx="2"/><rect class="bar" x="%d" y="%s" width="%s" height="10" rx="2"/>`+"\n",
			left, short(at+6), right-left, left, short(at+6), short((right-left)*min(r.ratio, 1)))
		if r.aim > 0 {
			fmt.Fprintf(c, `<path class="aim" d="M%s %sv16"/>`+"\n", short(left+(right-left)*min(r.aim, 1)), short(at+3))
		}
		c.text(right+12, at+15, "", fmt.Sprintf("%.2f", r.ratio))
	}
	c.height = 70 + 36*len(list)
	return c.svg(title)
}
