package rideindex

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/kickstand-dev/kickstand/internal/bitpack"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

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

func newZoneMap(rides []Entry) zoneMap {
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
		return nil, ErrDamaged
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
