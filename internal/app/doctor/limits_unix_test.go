//go:build linux || darwin

package doctor

import (
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	groups := fstest.MapFS{
		"memory.max":            {Data: []byte("max\n")},
		"a.slice/memory.max":    {Data: []byte("200000000\n")},
		"a.slice/b/memory.max":  {Data: []byte("max\n")},
		"c.slice/memory.max":    {Data: []byte("50000000\n")},
		"c.slice/d/memory.max":  {Data: []byte("70000000\n")},
		"c.slice/d/e/something": {Data: []byte("1\n")},
	}
	for own, want := range map[string]int64{
		"": 0, "0::/\n": 0, "0::/a.slice/b\n": 200000000, "1:cpu:/x\n0::/c.slice/d/e\n": 50000000, "0::/gone\n": 0,
	} {
		if got := memoryLimit(groups, own); got != want {
			t.Errorf("%q: got %d, want %d", own, got, want)
		}
	}
}
