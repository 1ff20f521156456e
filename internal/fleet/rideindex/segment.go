package rideindex

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/bitpack"

	"github.com/oklog/ulid/v2"
)

// readCount decodes a varint of at most maxCount and returns it with the rest of text.
func readCount(text []byte) (int, []byte, error) {
	n, size := binary.Uvarint(text)
	if size <= 0 || n > maxCount {
		return 0, nil, ErrDamaged
	}
	return int(n), text[size:], nil
}

// maxCount limits counts and lengths in encoded segments and zone maps.
const maxCount = 1 << 16

// packedSegment is an encoded segment in three blobs, each padded for [bitpack.Column]:
//
//	cells  the number of entries, and the column of cells
//	facts  for each of textColumns a dictionary: its length, and texts prefixed with
//	       their lengths; then the columns of dictionary codes, and the intColumns
//	ids    the columns of high halves, low halves and revisions
type packedSegment struct{ cells, facts, ids []byte }

// packSegment encodes entries in the given order.
func packSegment(rides []Entry) packedSegment {
	var t packedSegment
	values := make([]int64, len(rides))
	column := func(text []byte, value func(*Entry) int64) []byte {
		for i := range rides {
			values[i] = value(&rides[i])
		}
		return bitpack.Append(text, values)
	}
	t.cells = binary.AppendUvarint(nil, uint64(len(rides)))
	t.cells = column(t.cells, func(p *Entry) int64 { return p.cell })
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
		t.facts = column(t.facts, func(p *Entry) int64 { return number[c][p.texts[c]] })
	}
	for c := range intColumns {
		t.facts = column(t.facts, func(p *Entry) int64 { return p.values[c] })
	}
	t.ids = column(t.ids, func(p *Entry) int64 { high, _ := idHalves(p.id); return high })
	t.ids = column(t.ids, func(p *Entry) int64 { _, low := idHalves(p.id); return low })
	t.ids = column(t.ids, func(p *Entry) int64 { return p.revision })
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
		return nil, ErrDamaged
	}
	t.cells = place[0]
	facts := p.facts
	for c := range t.dictionaries {
		n, rest, err := readCount(facts)
		if err != nil || n > len(rest) {
			return nil, ErrDamaged
		}
		t.dictionaries[c] = make([]string, n)
		for i := range t.dictionaries[c] {
			var length int
			if length, rest, err = readCount(rest); err != nil || length > len(rest) {
				return nil, ErrDamaged
			}
			t.dictionaries[c][i], rest = string(rest[:length]), rest[length:]
		}
		facts = rest
	}
	var columns [len(textColumns) + len(intColumns)]bitpack.Column
	if err := bitpack.Parse(facts, n, columns[:]); err != nil {
		return nil, ErrDamaged
	}
	copy(t.values[:], columns[copy(t.codes[:], columns[:]):])
	var ids [3]bitpack.Column
	if err := bitpack.Parse(p.ids, n, ids[:]); err != nil {
		return nil, ErrDamaged
	}
	t.highs, t.lows, t.revisions = ids[0], ids[1], ids[2]
	return t, nil
}

// id returns the id of entry i.
func (t *segment) id(i int) ulid.ULID { return joinHalves(t.highs.At(i), t.lows.At(i)) }

// unpack returns the entries of a segment.
func (p *packedSegment) unpack() ([]Entry, error) {
	t, err := p.parse()
	if err != nil {
		return nil, err
	}
	rides := make([]Entry, t.rides)
	for i := range rides {
		p := &rides[i]
		p.cell, p.id, p.revision = t.cells.At(i), t.id(i), t.revisions.At(i)
		for c := range p.texts {
			n := t.codes[c].At(i)
			if n < 0 || n >= int64(len(t.dictionaries[c])) {
				return nil, ErrDamaged
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
func packSegments(rides []Entry, size int) (segments []packedSegment, zoneMaps []zoneMap) {
	slices.SortFunc(rides, func(a, b Entry) int { return cmp.Compare(a.cell, b.cell) })
	for part := range slices.Chunk(rides, size) {
		segments, zoneMaps = append(segments, packSegment(part)), append(zoneMaps, newZoneMap(part))
	}
	return segments, zoneMaps
}
