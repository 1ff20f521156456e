package period

import (
	"math"
	"time"
)

// Range is a part of the time line. A nil bound does not restrict it.
type Range struct {
	Low, High *time.Time
	// LowOpen and HighOpen exclude the bound itself.
	LowOpen, HighOpen bool
}

// Whole reports whether r has no bounds.
func (r Range) Whole() bool { return r.Low == nil && r.High == nil }

// Contains reports whether t is in r.
func (r Range) Contains(t time.Time) bool {
	if r.Low != nil && (t.Before(*r.Low) || r.LowOpen && t.Equal(*r.Low)) {
		return false
	}
	return r.High == nil || t.Before(*r.High) || !r.HighOpen && t.Equal(*r.High)
}

// Micros returns r's first and last microsecond since 1970. An empty range has its last
// before its first.
func (r Range) Micros() (first, last int64) {
	first, last = math.MinInt64, math.MaxInt64
	if r.Low != nil {
		first = r.Low.UnixMicro()
		if r.LowOpen || r.Low.Nanosecond()%1000 != 0 {
			first++
		}
	}
	if r.High != nil {
		last = r.High.UnixMicro()
		if r.HighOpen && r.High.Nanosecond()%1000 == 0 {
			last--
		}
	}
	return first, last
}
