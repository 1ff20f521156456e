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

// A tile is some hundred rides that began near one another, packed: all that a list
// of rides in a box is filtered and sorted by, in columns. An index can have rides
// in the order of where they began or in that of what they cost, not in both. A box
// with millions of rides in it has thousands of tiles, but of most it is enough to
// know, without reading them, which values they have at least and at most
// ([extent]).
//
// Tiles never change. What one says of a ride is true as long as the ride has the
// revision that it says; where the truth stands after that, layer.go says.

// placed is what tiles have of a ride.
type placed struct {
	id       ulid.ULID // what follows the prefix
	revision int64
	cell     int64
	words    [len(wordColumns)]string // empty: NULL
	values   [len(valueColumns)]int64
}

// The columns of rides by which lists are filtered, and those by whose ranges they
// are filtered and sorted. Rides that are over have a value in each of the latter.
var (
	wordColumns  = [...]string{"subaccount_id", "status", "trip_type", "pricing_plan_id", "payment_status", "start_zone_id"}
	valueColumns = [...]string{"updated_at", "started_at", "ended_at", "total_amount", "duration_seconds"}
)

// parseRideID returns what tiles have of a ride's id.
func parseRideID(id string) (ulid.ULID, error) {
	text, ok := strings.CutPrefix(id, ridePrefix+"_")
	if !ok {
		return ulid.ULID{}, errors.New("not the id of a ride")
	}
	return ulid.ParseStrict(text)
}

func rideID(id ulid.ULID) string { return ridePrefix + "_" + id.String() }

// halves are an id as two numbers, the first ones of which are in the order of ids.
func halves(id ulid.ULID) (high, low int64) {
	return int64(binary.BigEndian.Uint64(id[:8]) ^ signBit), int64(binary.BigEndian.Uint64(id[8:]))
}

const signBit = 1 << 63

func joined64(high, low int64) (id ulid.ULID) {
	binary.BigEndian.PutUint64(id[:8], uint64(high)^signBit)
	binary.BigEndian.PutUint64(id[8:], uint64(low))
	return id
}

// reach is from the least value to the greatest.
type reach struct{ least, greatest int64 }

func (r reach) with(v int64) reach { return reach{min(r.least, v), max(r.greatest, v)} }

// nowhere has no values yet.
var nowhere = reach{math.MaxInt64, math.MinInt64}

// rank is where a ride is in the order of some value, but for the second half of
// its id.
type rank struct{ value, id int64 }

func (r rank) compare(other rank) int {
	return cmp.Or(cmp.Compare(r.value, other.value), cmp.Compare(r.id, other.id))
}

// ranks are from the first rank to the last: many rides have the same value, and then
// it is their ids that tell which of two tiles comes first.
type ranks struct{ first, last rank }

// extent is what is known of a tile without reading it.
type extent struct {
	rides  int
	part   geo.Rect
	cells  reach
	ids    reach // of their first halves
	values [len(valueColumns)]ranks
	words  [len(wordColumns)]uint64 // wordBit of each
}

// wordBit is one of 64 bits that a word has in common with few others.
func wordBit(word string) uint64 { return 1 << (crc32.ChecksumIEEE([]byte(word)) % 64) }

func extentOf(rides []placed) extent {
	x := extent{rides: len(rides), part: geo.Rect{MinLat: math.MaxInt64, MinLng: math.MaxInt64, MaxLat: math.MinInt64, MaxLng: math.MinInt64}, cells: nowhere, ids: nowhere}
	for i := range rides {
		p := &rides[i]
		lat, lng := geo.CellPosition(p.cell)
		x.part = geo.Rect{MinLat: min(x.part.MinLat, lat), MinLng: min(x.part.MinLng, lng), MaxLat: max(x.part.MaxLat, lat), MaxLng: max(x.part.MaxLng, lng)}
		high, _ := halves(p.id)
		x.cells, x.ids = x.cells.with(p.cell), x.ids.with(high)
		for c, v := range p.values {
			s, at := &x.values[c], rank{v, high}
			if i == 0 || at.compare(s.first) < 0 {
				s.first = at
			}
			if i == 0 || at.compare(s.last) > 0 {
				s.last = at
			}
		}
		for c, word := range p.words {
			x.words[c] |= wordBit(word)
		}
	}
	return x
}

// extentColumns is how many numbers an extent has.
const extentColumns = 1 + 4 + 2 + 2 + 4*len(valueColumns) + len(wordColumns)

// packExtents packs extents: their number, and columns, see [bitpack.Append].
func packExtents(list []extent) []byte {
	text := binary.AppendUvarint(nil, uint64(len(list)))
	rows := make([][extentColumns]int64, len(list))
	for i := range list {
		x := &list[i]
		row := append(rows[i][:0], int64(x.rides), x.part.MinLat, x.part.MinLng, x.part.MaxLat, x.part.MaxLng,
			x.cells.least, x.cells.greatest, x.ids.least, x.ids.greatest)
		for _, s := range x.values {
			row = append(row, s.first.value, s.first.id, s.last.value, s.last.id)
		}
		for _, bits := range x.words {
			row = append(row, int64(bits))
		}
	}
	column := make([]int64, len(list))
	for c := range extentColumns {
		for i := range rows {
			column[i] = rows[i][c]
		}
		text = bitpack.Append(text, column)
	}
	return append(text, make([]byte, 8)...)
}

func parseExtents(text []byte) ([]extent, error) {
	n, text, err := cutCount(text)
	if err != nil {
		return nil, err
	}
	var columns [extentColumns]bitpack.Column
	if err := bitpack.Parse(text, n, columns[:]); err != nil {
		return nil, errTile
	}
	list := make([]extent, n)
	for i := range list {
		rest := columns[:]
		next := func() int64 {
			v := rest[0].At(i)
			rest = rest[1:]
			return v
		}
		x := &list[i]
		x.rides = int(next())
		x.part = geo.Rect{MinLat: next(), MinLng: next(), MaxLat: next(), MaxLng: next()}
		x.cells = reach{next(), next()}
		x.ids = reach{next(), next()}
		for c := range x.values {
			x.values[c] = ranks{rank{next(), next()}, rank{next(), next()}}
		}
		for c := range x.words {
			x.words[c] = uint64(next())
		}
	}
	return list, nil
}

// cutCount reads how many of something follow: at most maxPacked.
func cutCount(text []byte) (int, []byte, error) {
	n, size := binary.Uvarint(text)
	if size <= 0 || n > maxPacked {
		return 0, nil, errTile
	}
	return int(n), text[size:], nil
}

// maxPacked bounds what is packed together.
const maxPacked = 1 << 16

var errTile = errors.New("a tile of rides is damaged")

// packedTile is some rides, packed, in three texts. They end with padding, see
// [bitpack.Column]:
//
//	cells  how many they are, and a column of cells
//	facts  of each of wordColumns how many words there are, and these, each after its
//	       length; columns of which word it is, and valueColumns
//	ids    columns of the halves of ids, and of revisions
type packedTile struct{ cells, facts, ids []byte }

// packTile packs rides, in their order.
func packTile(rides []placed) packedTile {
	var t packedTile
	values := make([]int64, len(rides))
	column := func(text []byte, value func(*placed) int64) []byte {
		for i := range rides {
			values[i] = value(&rides[i])
		}
		return bitpack.Append(text, values)
	}
	t.cells = binary.AppendUvarint(nil, uint64(len(rides)))
	t.cells = column(t.cells, func(p *placed) int64 { return p.cell })
	var number [len(wordColumns)]map[string]int64
	for c := range wordColumns {
		number[c] = make(map[string]int64)
		var list []string
		for i := range rides {
			word := rides[i].words[c]
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
	for c := range wordColumns {
		t.facts = column(t.facts, func(p *placed) int64 { return number[c][p.words[c]] })
	}
	for c := range valueColumns {
		t.facts = column(t.facts, func(p *placed) int64 { return p.values[c] })
	}
	t.ids = column(t.ids, func(p *placed) int64 { high, _ := halves(p.id); return high })
	t.ids = column(t.ids, func(p *placed) int64 { _, low := halves(p.id); return low })
	t.ids = column(t.ids, func(p *placed) int64 { return p.revision })
	for _, text := range []*[]byte{&t.cells, &t.facts, &t.ids} {
		*text = append(*text, make([]byte, 8)...)
	}
	return t
}

// tile is a packedTile that can be read.
type tile struct {
	rides                  int
	cells                  bitpack.Column
	words                  [len(wordColumns)][]string
	wordAt                 [len(wordColumns)]bitpack.Column
	values                 [len(valueColumns)]bitpack.Column
	highs, lows, revisions bitpack.Column
}

func (p *packedTile) parse() (*tile, error) {
	n, cells, err := cutCount(p.cells)
	if err != nil {
		return nil, err
	}
	t := &tile{rides: n}
	var place [1]bitpack.Column
	if err := bitpack.Parse(cells, n, place[:]); err != nil {
		return nil, errTile
	}
	t.cells = place[0]
	facts := p.facts
	for c := range t.words {
		n, rest, err := cutCount(facts)
		if err != nil || n > len(rest) {
			return nil, errTile
		}
		t.words[c] = make([]string, n)
		for i := range t.words[c] {
			var length int
			if length, rest, err = cutCount(rest); err != nil || length > len(rest) {
				return nil, errTile
			}
			t.words[c][i], rest = string(rest[:length]), rest[length:]
		}
		facts = rest
	}
	var columns [len(wordColumns) + len(valueColumns)]bitpack.Column
	if err := bitpack.Parse(facts, n, columns[:]); err != nil {
		return nil, errTile
	}
	copy(t.values[:], columns[copy(t.wordAt[:], columns[:]):])
	var ids [3]bitpack.Column
	if err := bitpack.Parse(p.ids, n, ids[:]); err != nil {
		return nil, errTile
	}
	t.highs, t.lows, t.revisions = ids[0], ids[1], ids[2]
	return t, nil
}

// id returns the id of a ride.
func (t *tile) id(i int) ulid.ULID { return joined64(t.highs.At(i), t.lows.At(i)) }

// unpack returns the rides of a tile.
func (p *packedTile) unpack() ([]placed, error) {
	t, err := p.parse()
	if err != nil {
		return nil, err
	}
	rides := make([]placed, t.rides)
	for i := range rides {
		p := &rides[i]
		p.cell, p.id, p.revision = t.cells.At(i), t.id(i), t.revisions.At(i)
		for c := range p.words {
			n := t.wordAt[c].At(i)
			if n < 0 || n >= int64(len(t.words[c])) {
				return nil, errTile
			}
			p.words[c] = t.words[c][n]
		}
		for c := range p.values {
			p.values[c] = t.values[c].At(i)
		}
	}
	return rides, nil
}

// packTiles packs rides in tiles of at most size, each of such as began near one
// another, and changes their order.
func packTiles(rides []placed, size int) (tiles []packedTile, extents []extent) {
	slices.SortFunc(rides, func(a, b placed) int { return cmp.Compare(a.cell, b.cell) })
	for part := range slices.Chunk(rides, size) {
		tiles, extents = append(tiles, packTile(part)), append(extents, extentOf(part))
	}
	return tiles, extents
}
