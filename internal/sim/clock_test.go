package sim

import (
	"time"
	_ "unsafe" // for linkname

	_ "github.com/google/uuid"
)

// The times in UUIDs are those of the node's own clock, which is wrong: nothing that matters may
// depend on their order. The package has one clock for the process.

//go:linkname uuidNow github.com/google/uuid.timeNow
var uuidNow func() time.Time

//go:linkname lastUUID github.com/google/uuid.lastV7time
var lastUUID int64

// useNodeClocks gives each node UUIDs by its own clock.
func useNodeClocks(w *world) {
	var last *node
	lastUUID = 0
	uuidNow = func() time.Time {
		n := w.running
		if n == nil {
			return time.Now()
		}
		if last != n {
			if last != nil {
				last.lastID = lastUUID
			}
			last, lastUUID = n, n.lastID
		}
		return time.Now().Add(n.skew)
	}
}
