package bitpack_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/bitpack"

	"pgregory.net/rapid"
)

// TestColumns: columns survive a round trip, and shortened texts are refused.
func TestColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(7)), rapid.Int64Range(-50, 50), rapid.Int64Range(-1<<55, 1<<55), rapid.Int64())
		n := rapid.IntRange(0, 20).Draw(t, "values")
		want := rapid.SliceOfN(rapid.SliceOfN(number, n, n), 1, 4).Draw(t, "columns")
		var text []byte
		for _, values := range want {
			text = bitpack.Append(text, values)
		}
		text = bitpack.Finish(text)
		got := make([]bitpack.Column, len(want))
		if err := bitpack.Parse(text, n, got); err != nil {
			t.Fatal(err)
		}
		for c, values := range want {
			sum := int64(0)
			for i, v := range values {
				if got := got[c].At(i); got != v {
					t.Fatalf("value %d of column %d: got %d, want %d", i, c, got, v)
				}
				sum += v
			}
			if got := got[c].Sum(0, n); got != sum {
				t.Fatalf("sum of column %d: got %d, want %d", c, got, sum)
			}
		}
		if bitpack.Parse(text[:len(text)-1], n, got) == nil {
			t.Fatal("a shortened text was accepted")
		}
	})
}
