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

// TestDurations: lines are at round durations.
func TestDurations(t *testing.T) {
	for high, want := range map[int64]int64{0: 1, 9: 2, 50: 15, 280: 60, 7200: 1800, 50_000: 10_800, 200_000: 43_200, 1_000_000: 5 * 86400, math.MaxInt64 / 1_000_000: 0} {
		step := niceDuration(0, high)
		if want != 0 && step != want {
			t.Errorf("up to %d s lines are %d s apart, want %d", high, step, want)
		}
		if n := len(NewDurations("Time", "Time", []Value{{"a day", "day", high}}, func(int64) string { return "" }).Grid); n < 2 || n > 8 {
			t.Errorf("up to %d s: %d lines", high, n)
		}
	}
}
