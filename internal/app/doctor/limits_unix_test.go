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

		"memory/memory.limit_in_bytes":         {Data: []byte("300000000\n")},
		"memory/free/memory.limit_in_bytes":    {Data: []byte("9223372036854771712\n")},
		"memory/small/memory.limit_in_bytes":   {Data: []byte("100000000\n")},
		"memory/small/b/memory.limit_in_bytes": {Data: []byte("9223372036854771712\n")},
	}
	for own, want := range map[string]struct {
		limit int64
		file  string
	}{
		"":                            {},
		"0::/\n":                      {},
		"0::/gone\n":                  {},
		"memory\n":                    {},
		"4:cpu,cpuacct:/x\n":          {},
		"0::/a.slice/b\n":             {200000000, "a.slice/memory.max"},
		"1:cpu:/x\n0::/c.slice/d/e\n": {50000000, "c.slice/memory.max"},
		// Version 1, alone and beside version 2.
		"9:memory:/small/b\n0::/\n":             {100000000, "memory/small/memory.limit_in_bytes"},
		"9:memory:/free\n":                      {300000000, "memory/memory.limit_in_bytes"},
		"9:hugetlb,memory:/outside/container\n": {300000000, "memory/memory.limit_in_bytes"},
		"9:memory:/free\n0::/a.slice\n":         {200000000, "a.slice/memory.max"},
	} {
		if limit, file := memoryLimit(groups, own); limit != want.limit || file != want.file {
			t.Errorf("%q: got %d of %q, want %d of %q", own, limit, file, want.limit, want.file)
		}
	}
}
