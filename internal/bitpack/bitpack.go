// Package bitpack stores columns of integers in few bits.
//
// A column is its least value, a varint, the bit width of the differences from it, a byte,
// and these differences, the first one in the lowest bits. A text is columns that follow each
// other, and eight zero bytes, so that any bits can be read as part of a word. How many
// columns and values a text has is known to its reader.
package bitpack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

// wordBits is the number of bits that an unaligned word can hold. Wider columns use
// whole words.
const wordBits = 56

// Append appends a column with values to a text.
func Append(to []byte, values []int64) []byte {
	low, high := int64(0), int64(0)
	if len(values) > 0 {
		low, high = slices.Min(values), slices.Max(values)
	}
	width := bits.Len64(uint64(high) - uint64(low))
	if width > wordBits {
		width = 64
	}
	to = binary.AppendVarint(to, low)
	to = append(to, byte(width))
	var word uint64
	have := 0
	for _, v := range values {
		if width == 64 {
			to = binary.LittleEndian.AppendUint64(to, uint64(v)-uint64(low))
			continue
		}
		word |= (uint64(v) - uint64(low)) << have
		for have += width; have >= 8; have -= 8 {
			to = append(to, byte(word))
			word >>= 8
		}
	}
	if have > 0 {
		to = append(to, byte(word))
	}
	return to
}

// padding is the number of zero bytes at the end of a text.
const padding = 8

// Finish completes a text.
func Finish(text []byte) []byte { return append(text, make([]byte, padding)...) }

// Column is a column of a text, which it refers to.
type Column struct {
	low   int64
	width int
	mask  uint64
	bits  []byte // padded
}

// At returns value i.
func (c *Column) At(i int) int64 {
	bit := i * c.width
	return c.low + int64(binary.LittleEndian.Uint64(c.bits[bit>>3:])>>(bit&7)&c.mask)
}

// Sum adds the values from lo (inclusive) to hi (exclusive).
func (c *Column) Sum(lo, hi int) int64 {
	sum := c.low * int64(hi-lo)
	if c.width == 0 {
		return sum
	}
	bit := lo * c.width
	for range hi - lo {
		sum += int64(binary.LittleEndian.Uint64(c.bits[bit>>3:]) >> (bit & 7) & c.mask)
		bit += c.width
	}
	return sum
}

var errCorrupt = errors.New("packed columns are corrupt")

// Parse decodes a text of len(to) columns with n values each. The columns are valid as
// long as the text is unchanged.
func Parse(text []byte, n int, to []Column) error {
	for i := range to {
		c := &to[i]
		low, size := binary.Varint(text)
		if size <= 0 || len(text) < size+1+8 {
			return errCorrupt
		}
		c.low, c.width = low, int(text[size])
		text = text[size+1:]
		length := (n*c.width + 7) / 8
		if c.width > 64 || length+8 > len(text) {
			return errCorrupt
		}
		c.mask = ^uint64(0) >> (64 - c.width) // 0 for width 0
		c.bits = text[: length+8 : length+8]
		text = text[length:]
	}
	if !bytes.Equal(text, make([]byte, padding)) {
		return errCorrupt
	}
	return nil
}
