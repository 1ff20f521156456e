package fleet

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/bitpack"
	"github.com/kickstand-dev/kickstand/internal/geo"

	"github.com/oklog/ulid/v2"
)

// The ride index serves lists of rides in a box, filtered and sorted by any indexed
// column. It is an LSM tree (ADR 0017; measured against B-trees in ADR 0033):
//
//   - Pending rows (untiled_rides) are its write buffer: a transaction that ends a ride
//     or changes a closed one writes one.
//   - A segment (ride_tiles) has up to 512 rides with starts close to each other, as
//     bit-packed columns. Segments are immutable.
//   - A run (ride_layers) is a set of segments written together. Level 0 has recent
//     runs, which overlap; the runs of level 1 partition the ride ids.
//   - Flushing moves pending rows to level 0; compaction moves level 0 to level 1.
//   - A zone map has the number of rides of a segment and the range of each column. A
//     query skips segments by zone map without reading them.
//   - An entry is valid only if it has the current revision of its ride. Stale entries
//     remain until compaction; queries drop them.
//
// Pages and exports of rides by area use it ([listQuery.usesSegments]); other lists use
// B-tree indexes. The index can be rebuilt from the table rides.

// rideEntry is the row of a ride in the index.
type rideEntry struct {
	id       ulid.ULID // without the prefix
	revision int64
	cell     int64
	texts    [len(textColumns)]string // empty for NULL
	values   [len(intColumns)]int64
}

// textColumns are the columns for filters by equality, intColumns those for range
// filters and sort keys. The intColumns of a closed ride are not NULL.
var (
	textColumns = [...]string{"subaccount_id", "status", "trip_type", "pricing_plan_id", "payment_status", "start_zone_id"}
	intColumns  = [...]string{"updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"}
)

// parseRideID returns the ULID of a ride id.
func parseRideID(id string) (ulid.ULID, error) {
	text, ok := strings.CutPrefix(id, ridePrefix+"_")
	if !ok {
		return ulid.ULID{}, errors.New("not the id of a ride")
	}
	return ulid.ParseStrict(text)
}

func rideID(id ulid.ULID) string { return ridePrefix + "_" + id.String() }

// idHalves splits an id into two 64-bit numbers. The high halves sort as the ids do.
func idHalves(id ulid.ULID) (high, low int64) {
	return int64(binary.BigEndian.Uint64(id[:8]) ^ signBit), int64(binary.BigEndian.Uint64(id[8:]))
}

const signBit = 1 << 63

func joinHalves(high, low int64) (id ulid.ULID) {
	binary.BigEndian.PutUint64(id[:8], uint64(high)^signBit)
	binary.BigEndian.PutUint64(id[8:], uint64(low))
	return id
}

// interval is a closed interval of integers.
type interval struct{ min, max int64 }

func (r interval) with(v int64) interval { return interval{min(r.min, v), max(r.max, v)} }

// emptyInterval contains no value. It is the start of a union by with.
var emptyInterval = interval{math.MaxInt64, math.MinInt64}

// keyPrefix is the sort key of an entry without the low half of the id. Different
// entries can share it.
type keyPrefix struct{ value, id int64 }

func (r keyPrefix) compare(other keyPrefix) int {
	return cmp.Or(cmp.Compare(r.value, other.value), cmp.Compare(r.id, other.id))
}

// keyRange is a closed range of sort keys. It includes ids because many rides can share
// a value.
type keyRange struct{ first, last keyPrefix }

// zoneMap summarizes a segment. Each range covers all its entries.
type zoneMap struct {
	rides  int
	rect   geo.Rect
	cells  interval
	ids    interval // high halves
	values [len(intColumns)]keyRange
	blooms [len(textColumns)]uint64 // union of bloomBit
}

// bloomBit returns the bit of a text in a Bloom filter of 64 bits with one hash.
func bloomBit(word string) uint64 { return 1 << (crc32.ChecksumIEEE([]byte(word)) % 64) }

func newZoneMap(rides []rideEntry) zoneMap {
	x := zoneMap{rides: len(rides), rect: geo.Rect{MinLat: math.MaxInt64, MinLng: math.MaxInt64, MaxLat: math.MinInt64, MaxLng: math.MinInt64}, cells: emptyInterval, ids: emptyInterval}
	for i := range rides {
		p := &rides[i]
		lat, lng := geo.CellPosition(p.cell)
		x.rect = geo.Rect{MinLat: min(x.rect.MinLat, lat), MinLng: min(x.rect.MinLng, lng), MaxLat: max(x.rect.MaxLat, lat), MaxLng: max(x.rect.MaxLng, lng)}
		high, _ := idHalves(p.id)
		x.cells, x.ids = x.cells.with(p.cell), x.ids.with(high)
		for c, v := range p.values {
			s, at := &x.values[c], keyPrefix{v, high}
			if i == 0 || at.compare(s.first) < 0 {
				s.first = at
			}
			if i == 0 || at.compare(s.last) > 0 {
				s.last = at
			}
		}
		for c, word := range p.texts {
			x.blooms[c] |= bloomBit(word)
		}
	}
	return x
}

// zoneMapColumns is the number of integers of a packed zone map.
const zoneMapColumns = 1 + 4 + 2 + 2 + 4*len(intColumns) + len(textColumns)

// packZoneMaps encodes zone maps: their number, then columns as of [bitpack.Append].
func packZoneMaps(list []zoneMap) []byte {
	text := binary.AppendUvarint(nil, uint64(len(list)))
	rows := make([][zoneMapColumns]int64, len(list))
	for i := range list {
		x := &list[i]
		row := append(rows[i][:0], int64(x.rides), x.rect.MinLat, x.rect.MinLng, x.rect.MaxLat, x.rect.MaxLng,
			x.cells.min, x.cells.max, x.ids.min, x.ids.max)
		for _, s := range x.values {
			row = append(row, s.first.value, s.first.id, s.last.value, s.last.id)
		}
		for _, bits := range x.blooms {
			row = append(row, int64(bits))
		}
	}
	column := make([]int64, len(list))
	for c := range zoneMapColumns {
		for i := range rows {
			column[i] = rows[i][c]
		}
		text = bitpack.Append(text, column)
	}
	return append(text, make([]byte, 8)...)
}

func parseZoneMaps(text []byte) ([]zoneMap, error) {
	n, text, err := readCount(text)
	if err != nil {
		return nil, err
	}
	var columns [zoneMapColumns]bitpack.Column
	if err := bitpack.Parse(text, n, columns[:]); err != nil {
		return nil, errSegment
	}
	list := make([]zoneMap, n)
	for i := range list {
		rest := columns[:]
		next := func() int64 {
			v := rest[0].At(i)
			rest = rest[1:]
			return v
		}
		x := &list[i]
		x.rides = int(next())
		x.rect = geo.Rect{MinLat: next(), MinLng: next(), MaxLat: next(), MaxLng: next()}
		x.cells = interval{next(), next()}
		x.ids = interval{next(), next()}
		for c := range x.values {
			x.values[c] = keyRange{keyPrefix{next(), next()}, keyPrefix{next(), next()}}
		}
		for c := range x.blooms {
			x.blooms[c] = uint64(next())
		}
	}
	return list, nil
}

// readCount decodes a varint of at most maxCount and returns it with the rest of text.
func readCount(text []byte) (int, []byte, error) {
	n, size := binary.Uvarint(text)
	if size <= 0 || n > maxCount {
		return 0, nil, errSegment
	}
	return int(n), text[size:], nil
}

// maxCount limits counts and lengths in encoded segments and zone maps.
const maxCount = 1 << 16

var errSegment = errors.New("a segment of the ride index is damaged")

// packedSegment is an encoded segment in three blobs, each padded for [bitpack.Column]:
//
//	cells  the number of entries, and the column of cells
//	facts  for each of textColumns a dictionary: its length, and texts prefixed with
//	       their lengths; then the columns of dictionary codes, and the intColumns
//	ids    the columns of high halves, low halves and revisions
type packedSegment struct{ cells, facts, ids []byte }

// packSegment encodes entries in the given order.
func packSegment(rides []rideEntry) packedSegment {
	var t packedSegment
	values := make([]int64, len(rides))
	column := func(text []byte, value func(*rideEntry) int64) []byte {
		for i := range rides {
			values[i] = value(&rides[i])
		}
		return bitpack.Append(text, values)
	}
	t.cells = binary.AppendUvarint(nil, uint64(len(rides)))
	t.cells = column(t.cells, func(p *rideEntry) int64 { return p.cell })
	var number [len(textColumns)]map[string]int64
	for c := range textColumns {
		number[c] = make(map[string]int64)
		var list []string
		for i := range rides {
			word := rides[i].texts[c]
			if _, ok := number[c][word]; !ok {
				number[c][word] = int64(len(list))
				list = append(list, word)
			}
		}
		t.facts = binary.AppendUvarint(t.facts, uint64(len(list)))
		for _, word := range list {
			t.facts = append(binary.AppendUvarint(t.facts, uint64(len(word))), word...)
		}
	}
	for c := range textColumns {
		t.facts = column(t.facts, func(p *rideEntry) int64 { return number[c][p.texts[c]] })
	}
	for c := range intColumns {
		t.facts = column(t.facts, func(p *rideEntry) int64 { return p.values[c] })
	}
	t.ids = column(t.ids, func(p *rideEntry) int64 { high, _ := idHalves(p.id); return high })
	t.ids = column(t.ids, func(p *rideEntry) int64 { _, low := idHalves(p.id); return low })
	t.ids = column(t.ids, func(p *rideEntry) int64 { return p.revision })
	for _, text := range []*[]byte{&t.cells, &t.facts, &t.ids} {
		*text = append(*text, make([]byte, 8)...)
	}
	return t
}

// segment is a decoded packedSegment. Columns are decoded on access. It is immutable and
// safe for concurrent use.
type segment struct {
	rides                  int
	cells                  bitpack.Column
	dictionaries           [len(textColumns)][]string
	codes                  [len(textColumns)]bitpack.Column
	values                 [len(intColumns)]bitpack.Column
	highs, lows, revisions bitpack.Column
}

func (p *packedSegment) parse() (*segment, error) {
	n, cells, err := readCount(p.cells)
	if err != nil {
		return nil, err
	}
	t := &segment{rides: n}
	var place [1]bitpack.Column
	if err := bitpack.Parse(cells, n, place[:]); err != nil {
		return nil, errSegment
	}
	t.cells = place[0]
	facts := p.facts
	for c := range t.dictionaries {
		n, rest, err := readCount(facts)
		if err != nil || n > len(rest) {
			return nil, errSegment
		}
		t.dictionaries[c] = make([]string, n)
		for i := range t.dictionaries[c] {
			var length int
			if length, rest, err = readCount(rest); err != nil || length > len(rest) {
				return nil, errSegment
			}
			t.dictionaries[c][i], rest = string(rest[:length]), rest[length:]
		}
		facts = rest
	}
	var columns [len(textColumns) + len(intColumns)]bitpack.Column
	if err := bitpack.Parse(facts, n, columns[:]); err != nil {
		return nil, errSegment
	}
	copy(t.values[:], columns[copy(t.codes[:], columns[:]):])
	var ids [3]bitpack.Column
	if err := bitpack.Parse(p.ids, n, ids[:]); err != nil {
		return nil, errSegment
	}
	t.highs, t.lows, t.revisions = ids[0], ids[1], ids[2]
	return t, nil
}

// id returns the id of entry i.
func (t *segment) id(i int) ulid.ULID { return joinHalves(t.highs.At(i), t.lows.At(i)) }

// unpack returns the entries of a segment.
func (p *packedSegment) unpack() ([]rideEntry, error) {
	t, err := p.parse()
	if err != nil {
		return nil, err
	}
	rides := make([]rideEntry, t.rides)
	for i := range rides {
		p := &rides[i]
		p.cell, p.id, p.revision = t.cells.At(i), t.id(i), t.revisions.At(i)
		for c := range p.texts {
			n := t.codes[c].At(i)
			if n < 0 || n >= int64(len(t.dictionaries[c])) {
				return nil, errSegment
			}
			p.texts[c] = t.dictionaries[c][n]
		}
		for c := range p.values {
			p.values[c] = t.values[c].At(i)
		}
	}
	return rides, nil
}

// packSegments sorts entries by cell and packs them into segments of up to size, with
// their zone maps.
func packSegments(rides []rideEntry, size int) (segments []packedSegment, zoneMaps []zoneMap) {
	slices.SortFunc(rides, func(a, b rideEntry) int { return cmp.Compare(a.cell, b.cell) })
	for part := range slices.Chunk(rides, size) {
		segments, zoneMaps = append(segments, packSegment(part)), append(zoneMaps, newZoneMap(part))
	}
	return segments, zoneMaps
}
