package fleetpages

import (
	"math"
	"strconv"
	"strings"
)

// chart shows figures over time as a picture or a table. Its template is "chart".
type chart struct {
	Title  string
	What   string // unit of the figures: "rides"
	Bars   bool   // else a line
	Table  bool   // show the table instead of the picture
	Points []point
	Line   string
	Area   string
	Grid   []gridLine
	Ticks  []tick

	Width, Height, Left, Bottom int
}

// point is the figure of a period.
type point struct {
	Label string // period
	Text  string // figure
	X, W  string // column of the picture
	BarX  string // bar in the column
	BarW  string
	BarY  string
	BarH  string
}

type gridLine struct{ Y, TextY, Text string }
type tick struct{ X, Text string }

// value is the input of a point.
type value struct {
	Label string // period, long form
	Short string // period below the axis
	N     int64
}

// Size of a chart, and the space of its labels.
const (
	chartWidth, chartHeight = 640, 220
	chartLeft, chartRight   = 64, 8
	chartTop, chartBottom   = 12, 24
)

// newChart draws values, in order of time. format formats one.
func newChart(title, what string, bars bool, values []value, format func(n int64) string) chart {
	c := chart{Title: title, What: what, Bars: bars, Width: chartWidth, Height: chartHeight, Left: chartLeft, Bottom: chartHeight - chartBottom}
	low, high := int64(0), int64(0)
	for _, v := range values {
		low, high = min(low, v.N), max(high, v.N)
	}
	step := niceStep(low, high)
	bottom, top := int64(math.Floor(float64(low)/float64(step)))*step, int64(math.Ceil(float64(high)/float64(step)))*step
	if top == bottom {
		top = bottom + step
	}
	const height = chartHeight - chartTop - chartBottom
	y := func(n int64) float64 {
		return chartTop + height*(1-float64(n-bottom)/float64(top-bottom))
	}
	for n := bottom; n <= top; n += step {
		c.Grid = append(c.Grid, gridLine{tenth(y(n)), tenth(y(n) + 4), format(n)})
	}
	if len(values) == 0 {
		return c
	}
	width := float64(chartWidth-chartLeft-chartRight) / float64(len(values))
	every := (len(values) + 6) / 7
	var line strings.Builder
	for i, v := range values {
		x := chartLeft + width*float64(i)
		at := y(v.N)
		bar := min(width*0.72, 40)
		c.Points = append(c.Points, point{
			Label: v.Label, Text: format(v.N), X: tenth(x), W: tenth(width),
			BarX: tenth(x + (width-bar)/2), BarW: tenth(bar), BarY: tenth(min(at, y(0))), BarH: tenth(math.Abs(y(0) - at)),
		})
		line.WriteByte("ML"[min(i, 1)])
		line.WriteString(tenth(x+width/2) + " " + tenth(at))
		if i%every == 0 {
			c.Ticks = append(c.Ticks, tick{tenth(x + width/2), v.Short})
		}
	}
	if !bars {
		c.Line = line.String()
		c.Area = c.Line + "L" + tenth(chartLeft+width*(float64(len(values))-0.5)) + " " + tenth(y(0)) + "L" + tenth(chartLeft+width/2) + " " + tenth(y(0)) + "Z"
	}
	return c
}

// niceStep is a round number of which three to six steps reach from low to high.
func niceStep(low, high int64) int64 {
	for step := int64(1); ; step *= 10 {
		for _, round := range []int64{1, 2, 5} {
			if n := step * round; (high-low)/n < 5 || n > math.MaxInt64/20 {
				return n
			}
		}
	}
}

// change compares a figure with the previous period.
type change struct {
	Text  string
	Class string // "up", "down" or empty
}

func changeOf(now, before int64) change {
	switch {
	case before == 0 && now == 0:
		return change{Text: "no change"}
	case before == 0:
		return change{"from zero", "up"}
	}
	percent := int64(math.Round(float64(now-before) / math.Abs(float64(before)) * 100))
	switch {
	case percent > 0:
		return change{"↑ " + number(percent) + "%", "up"}
	case percent < 0:
		return change{"↓ " + strconv.FormatInt(-percent, 10) + "%", "down"}
	}
	return change{Text: "no change"}
}
