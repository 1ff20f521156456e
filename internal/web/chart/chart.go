// Package chart draws figures over time as SVG.
//
// A chart has the coordinates and texts of its elements; a template writes them. The scale
// of the figures starts or ends at zero, or contains it, and its lines are at round numbers.
package chart

import (
	"math"
	"strconv"
	"strings"
)

// Chart shows figures over time as a picture or a table.
type Chart struct {
	Title  string
	Unit   string // of the figures: "Rides"
	Bars   bool   // else a line
	Table  bool   // show the table instead of the picture
	Detail bool   // offer the table below the picture
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

// Value is the input of a point.
type Value struct {
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

// New draws values, in order of time. format formats one.
func New(title, unit string, bars bool, values []Value, format func(n int64) string) Chart {
	return draw(title, unit, bars, values, format, niceStep)
}

// NewDurations draws durations in seconds as a line, in order of time. format formats one.
func NewDurations(title, unit string, values []Value, format func(seconds int64) string) Chart {
	return draw(title, unit, false, values, format, niceDuration)
}

// draw draws values with lines at multiples of a step.
func draw(title, unit string, bars bool, values []Value, format func(n int64) string, nice func(low, high int64) int64) Chart {
	c := Chart{Title: title, Unit: unit, Bars: bars, Width: chartWidth, Height: chartHeight, Left: chartLeft, Bottom: chartHeight - chartBottom}
	low, high := int64(0), int64(0)
	for _, v := range values {
		low, high = min(low, v.N), max(high, v.N)
	}
	step := nice(low, high)
	bottom, top := int64(math.Floor(float64(low)/float64(step)))*step, int64(math.Ceil(float64(high)/float64(step)))*step
	if top == bottom {
		top = bottom + step
	}
	const height = chartHeight - chartTop - chartBottom
	y := func(n int64) float64 {
		return chartTop + height*(1-float64(n-bottom)/float64(top-bottom))
	}
	for n := bottom; n <= top; n += step {
		c.Grid = append(c.Grid, gridLine{coordinate(y(n)), coordinate(y(n) + 4), format(n)})
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
			Label: v.Label, Text: format(v.N), X: coordinate(x), W: coordinate(width),
			BarX: coordinate(x + (width-bar)/2), BarW: coordinate(bar), BarY: coordinate(min(at, y(0))), BarH: coordinate(math.Abs(y(0) - at)),
		})
		line.WriteByte("ML"[min(i, 1)])
		line.WriteString(coordinate(x+width/2) + " " + coordinate(at))
		if i%every == 0 {
			c.Ticks = append(c.Ticks, tick{coordinate(x + width/2), v.Short})
		}
	}
	if !bars {
		c.Line = line.String()
		c.Area = c.Line + "L" + coordinate(chartLeft+width*(float64(len(values))-0.5)) + " " + coordinate(y(0)) + "L" + coordinate(chartLeft+width/2) + " " + coordinate(y(0)) + "Z"
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

// durations are the steps below a day, in seconds.
var durations = []int64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200}

// niceDuration is a round duration in seconds of which at most five steps reach from low to high.
func niceDuration(low, high int64) int64 {
	const day = 86400
	for _, step := range durations {
		if (high-low)/step < 5 {
			return step
		}
	}
	return niceStep(low/day, high/day) * day
}

// coordinate formats a coordinate with one decimal.
func coordinate(x float64) string {
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}
