package chart

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// TestChart: figures fit the picture, and axes have round numbers.
func TestChart(t *testing.T) {
	for _, values := range [][]int64{nil, {0}, {0, 0, 0}, {1}, {7, -3, 2}, {math.MaxInt64 / 4, 1}, {999, 1001, 12}} {
		var list []Value
		for _, n := range values {
			list = append(list, Value{"a day", "day", n})
		}
		for _, bars := range []bool{true, false} {
			c := New("Rides", "Rides", bars, list, func(n int64) string { return strconv.FormatInt(n, 10) })
			if len(c.Points) != len(values) || len(c.Grid) < 2 || len(c.Grid) > 8 {
				t.Errorf("%v: got %d points, %d lines", values, len(c.Points), len(c.Grid))
			}
			if strings.Contains(c.Line+c.Area, "NaN") || strings.Contains(c.Line, "-") {
				t.Errorf("%v: got line %s", values, c.Line)
			}
		}
	}
}
