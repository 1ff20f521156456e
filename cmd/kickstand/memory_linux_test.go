package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// mappedProgram returns the resident kilobytes of the program's file in this process that
// cannot have been changed.
func mappedProgram(t *testing.T) int {
	t.Helper()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	total, counts := 0, false
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, program+"\n") {
			counts = !strings.Contains(strings.Fields(line)[1], "w")
		}
		var resident int
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &resident); n == 1 && counts {
			total += resident
			counts = false
		}
	}
	return total
}

func TestProgramIsReleased(t *testing.T) {
	before := mappedProgram(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mappedProgram(t); after > before/2 {
		t.Errorf("%d kB of the program are mapped, and were %d", after, before)
	}
}
