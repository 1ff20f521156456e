// Package track encodes the reports of a vehicle in segments of a few bytes per report, and
// computes distances and simplified lines from them.
//
// A [Segment] holds the reports of one vehicle in one period of [Period], in the order of time.
// Its encoded form has the differences between consecutive reports: a scooter that reports its
// position every five seconds takes about seven bytes a report, a parked one three.
package track

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/kickstand-dev/kickstand/internal/geo"
)

// Period is the duration of a segment. Segments begin at its multiples since 1970.
const Period = 15 * time.Minute

// Field is a measured value of a report.
type Field uint8

// The fields, with their units.
const (
	Lat      Field = iota // millionths of a degree
	Lng                   // millionths of a degree
	Accuracy              // decimeters
	Altitude              // decimeters
	Heading               // tenths of a degree
	Speed                 // tenths of a kilometer per hour
	Battery               // percent
	Fuel                  // percent
	Odometer              // meters
	Locked                // 1 or 0
	Shift                 // milliseconds that the tracker's clock was ahead, already subtracted from At
	fields
)

// Report is a report of a vehicle. Reports that are equal by the tracker's clock are duplicates:
// the correction of the clock may have changed.
type Report struct {
	At     int64         // milliseconds since 1970
	has    uint16        // a bit per field
	values [fields]int64 // 0 unless the field is set
}

// Set sets a field.
func (r *Report) Set(f Field, value int64) {
	r.has |= 1 << f
	r.values[f] = value
}

// Get returns a field; false if it is not set.
func (r *Report) Get(f Field) (int64, bool) { return r.values[f], r.has&(1<<f) != 0 }

// Empty reports whether no field is set.
func (r *Report) Empty() bool { return r.has == 0 }

// Located reports whether the report has a position.
func (r *Report) Located() bool { return r.has&(1<<Lat) != 0 && r.has&(1<<Lng) != 0 }

// Time returns the time of the report.
func (r *Report) Time() time.Time { return time.UnixMilli(r.At).UTC() }

// SentAt returns the time by the tracker's clock, in milliseconds since 1970.
func (r *Report) SentAt() int64 { return r.At + r.values[Shift] }

// Segment is a list of reports in the order of time; reports of the same time are in the order
// of their arrival.
type Segment []Report

// Start returns the start of the segment that a time belongs to, in milliseconds since 1970.
func Start(at int64) int64 {
	const period = int64(Period / time.Millisecond)
	start := at - at%period
	if at%period < 0 {
		start -= period
	}
	return start
}

// MaxReports bounds the reports of a segment, which is read and written as a whole. It allows
// eleven a second. Callers of [Segment.Insert] check it.
const MaxReports = 10_000

// Insert adds a report at its place. It returns false for a duplicate.
func (s *Segment) Insert(r Report) bool {
	place, known := s.find(&r)
	if !known {
		*s = slices.Insert(*s, place, r)
	}
	return !known
}

// Has reports whether a report is in the segment.
func (s Segment) Has(r *Report) bool {
	_, known := s.find(r)
	return known
}

// find returns the place of a report, after the others of the same time, and whether the segment has
// it already. Only a corrected report is compared with reports of other times.
func (s Segment) find(r *Report) (place int, known bool) {
	place = len(s)
	if place > 0 && s[place-1].At > r.At { // else it is the latest, as most are
		place = sort.Search(len(s), func(i int) bool { return s[i].At > r.At })
	}
	for i := place - 1; i >= 0 && s[i].At == r.At; i-- {
		if s[i] == *r {
			return place, true
		}
	}
	if r.values[Shift] != 0 {
		sent := *r
		sent.uncorrect()
		for i := range s {
			if s[i].SentAt() != sent.At {
				continue
			}
			stored := s[i]
			if stored.uncorrect(); stored == sent {
				return place, true
			}
		}
	}
	return place, false
}

// uncorrect sets the time to that by the tracker's clock.
func (r *Report) uncorrect() {
	r.At, r.values[Shift] = r.SentAt(), 0
	r.has &^= 1 << Shift
}

// version is the first byte of an encoded segment.
const version = 1

// Append appends the encoded form of a segment that begins at start.
//
// It is the version and the number of reports, then for each report the milliseconds since the
// previous one, a mask of the fields that differ from it, and for each of these 0 if it is no
// longer set, otherwise 1 more than the difference from its last value in zigzag form. All
// numbers are varints.
func (s Segment) Append(b []byte, start int64) []byte {
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(len(s)))
	at, has := start, uint16(0)
	var last [fields]int64
	for i := range s {
		r := &s[i]
		b = binary.AppendUvarint(b, uint64(r.At-at))
		at = r.At
		differ := has ^ r.has
		for f := range fields {
			if r.has&(1<<f) != 0 && r.values[f] != last[f] {
				differ |= 1 << f
			}
		}
		b = binary.AppendUvarint(b, uint64(differ))
		for f := range fields {
			switch {
			case differ&(1<<f) == 0:
			case r.has&(1<<f) == 0:
				b = append(b, 0)
			default:
				d := r.values[f] - last[f]
				b = binary.AppendUvarint(b, uint64(d<<1^d>>63)+1)
				last[f] = r.values[f]
			}
		}
		has = r.has
	}
	return b
}

var errCorrupt = errors.New("the segment of a track is corrupt")

// Decode appends the reports of an encoded segment that begins at start.
func (s Segment) Decode(b []byte, start int64) (Segment, error) {
	if len(b) == 0 || b[0] != version {
		return s, fmt.Errorf("%w: unknown version", errCorrupt)
	}
	b = b[1:]
	ok := true
	next := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			ok, b = false, nil
			return 0
		}
		b = b[size:]
		return n
	}
	n := next()
	if !ok || n > uint64(len(b)) {
		return s, errCorrupt
	}
	s = slices.Grow(s, int(n)+1)
	r := Report{At: start}
	var last [fields]int64
	for range n {
		r.At += int64(next())
		differ := next()
		if differ >= 1<<fields {
			return s, errCorrupt
		}
		for m := differ; m != 0; m &= m - 1 {
			f := bits.TrailingZeros64(m)
			z := next()
			if z == 0 {
				r.has &^= 1 << f
				r.values[f] = 0
				continue
			}
			z--
			last[f] += int64(z>>1) ^ -int64(z&1)
			r.has |= 1 << f
			r.values[f] = last[f]
		}
		if !ok {
			return s, errCorrupt
		}
		s = append(s, r)
	}
	if len(b) > 0 {
		return s, errCorrupt
	}
	return s, nil
}

// MaxSpeed is the speed of a vehicle without a limit of its own, in meters per second.
const MaxSpeed = 70.0

// Bounds of a plausible movement.
const (
	maxInaccuracy = 1000 // decimeters: positions that are less accurate count for no distance
	// minMove is the least distance of two positions that counts, in meters: a parked vehicle's
	// positions scatter.
	minMove = 10.0
	// maxOuting is the time in milliseconds in which a vehicle does not go away and come back.
	maxOuting = 60_000
)

// Path sums up a distance along positions in the order of time. The zero value is ready.
//
// Positions count if the vehicle can have reached them: those that it cannot are left out, and so is a single one from
// which it is back at once. Of a first position that is out of reach of the next ones, these count.
type Path struct {
	MaxSpeed float64 // of the vehicle, in meters per second; 0: the constant MaxSpeed

	meters float64 // up to last
	count  int     // positions
	last   place
	// next is a place that the next position decides about: it is where the vehicle went from last
	// or, if doubtful, out of reach of a last that is the first.
	next     place
	hasNext  bool
	doubtful bool
}

// place is a position at a time.
type place struct {
	at       int64 // milliseconds
	lat, lng float64
	around   float64 // meters: how far the vehicle was from it at that time
}

func (p *place) distance(o *place) float64 { return geo.Distance(p.lat, p.lng, o.lat, o.lng) }

// Add adds a report, unless its position is absent, inaccurate, or out of reach of the previous
// one. A move shorter than its accuracy, or than ten meters, counts with the next one.
func (p *Path) Add(r *Report) {
	if !r.Located() {
		return
	}
	accuracy, _ := r.Get(Accuracy)
	if accuracy > maxInaccuracy {
		return
	}
	p.AddPosition(r.At, geo.Degrees(r.values[Lat]), geo.Degrees(r.values[Lng]), max(minMove, float64(accuracy)/10))
}

// AddPosition adds a position at a time in milliseconds. Moves of less than least meters are
// joined with the next one.
func (p *Path) AddPosition(at int64, lat, lng, least float64) {
	o := place{at: at, lat: lat, lng: lng}
	if p.count == 0 {
		p.count, p.last = 1, o
		return
	}
	if p.hasNext {
		p.decide(&o, least)
	}
	d := p.last.distance(&o)
	switch {
	case d < least:
		p.count++
		p.last.at, p.last.around = at, d
	case p.reaches(&p.last, &o):
		p.count++
		p.next, p.hasNext, p.doubtful = o, true, false
	case p.count == 1:
		p.next, p.hasNext, p.doubtful = o, true, true
	}
}

// decide counts the next place or drops it, by the position after it.
func (p *Path) decide(o *place, least float64) {
	p.hasNext = false
	switch {
	case p.doubtful:
		if !p.reaches(&p.last, o) && p.reaches(&p.next, o) {
			p.last = p.next
		}
	case o.at-p.last.at <= maxOuting && p.last.distance(o) < max(least, minMove): // it is back
	default:
		p.meters += p.last.distance(&p.next)
		p.last = p.next
	}
}

// reaches reports whether the vehicle can go from one place to another.
func (p *Path) reaches(from, to *place) bool {
	speed := p.MaxSpeed
	if speed == 0 {
		speed = MaxSpeed
	}
	return from.distance(to) <= from.around+speed*(float64(to.at-from.at)/1000+1)
}

// Meters returns the distance; false with fewer than two positions.
func (p *Path) Meters() (int64, bool) {
	meters := p.meters
	if p.hasNext && !p.doubtful {
		meters += p.last.distance(&p.next)
	}
	return int64(math.Round(meters)), p.count > 1
}

// simplifiedAtOnce bounds the reports of a line that are compared with each other: the time grows
// with their square in the worst case.
const simplifiedAtOnce = 1000

// Simplify returns the located reports without those that are within meters of the line through
// the others (Douglas and Peucker). The first and the last one stay, and every thousandth.
func Simplify(list []Report, meters float64) []Report {
	var located []Report
	for i := range list {
		if list[i].Located() {
			located = append(located, list[i])
		}
	}
	if len(located) < 3 || meters <= 0 {
		return located
	}
	stays := make([]bool, len(located))
	stays[len(located)-1] = true
	type span struct{ first, last int }
	var open []span
	for first := 0; first < len(located)-1; first += simplifiedAtOnce {
		stays[first] = true
		open = append(open, span{first, min(first+simplifiedAtOnce, len(located)-1)})
	}
	for len(open) > 0 {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		farthest, at := meters, -1
		for i := s.first + 1; i < s.last; i++ {
			if d := offLine(&located[s.first], &located[s.last], &located[i]); d > farthest {
				farthest, at = d, i
			}
		}
		if at >= 0 {
			stays[at] = true
			open = append(open, span{s.first, at}, span{at, s.last})
		}
	}
	n := 0
	for i := range located {
		if stays[i] {
			located[n] = located[i]
			n++
		}
	}
	return located[:n]
}

// offLine returns the distance of a position from the line between two others, in meters, on a
// plane that touches the earth at the first.
func offLine(from, to, p *Report) float64 {
	const meters = 0.111195 // per millionth of a degree of latitude
	scale := math.Cos(geo.Degrees(from.values[Lat]) * math.Pi / 180)
	plane := func(r *Report) (x, y float64) {
		dx := r.values[Lng] - from.values[Lng]
		if dx > 180e6 {
			dx -= 360e6
		} else if dx < -180e6 {
			dx += 360e6
		}
		return float64(dx) * scale * meters, float64(r.values[Lat]-from.values[Lat]) * meters
	}
	tx, ty := plane(to)
	px, py := plane(p)
	along := 0.0
	if length := tx*tx + ty*ty; length > 0 {
		along = min(1, max(0, (px*tx+py*ty)/length))
	}
	return math.Hypot(px-along*tx, py-along*ty)
}
