//go:build !linux

package sim

import (
	"os/exec"
	"sync/atomic"
)

var repeats atomic.Bool

// output runs a command and returns what it writes. Its runs differ in what the runtime leaves
// to chance.
func output(cmd *exec.Cmd, _ uint64) (string, error) {
	out, err := cmd.CombinedOutput()
	return string(out), err
}
