//go:build linux || darwin

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// What a server needs at least.
const (
	minFiles     = 256     // SQLite has about 100 open, or PostgreSQL's connections are as many
	minSpace     = 2 << 30 // bytes of address space: the runtime and the databases reserve much more than they use
	minMemory    = 64 << 20
	memoryFiles  = "memory.max"
	cgroupFolder = "/sys/fs/cgroup"
)

// Limits returns, in one sentence, why the process cannot serve: it may have too few files
// open, or too little memory. Go has raised the soft limit of files to the hard one already.
func Limits() error {
	var files, space syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < minFiles {
		return fmt.Errorf("the process may have only %d files and connections open, and a server needs %d: raise the limit (ulimit -n, or LimitNOFILE of systemd)",
			files.Cur, minFiles)
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &space); err == nil && space.Cur < minSpace {
		return fmt.Errorf("the process may have only %d MB of address space, and a server needs %d MB: raise the limit (ulimit -v, or LimitAS of systemd)",
			space.Cur>>20, minSpace>>20)
	}
	if limit := MemoryLimit(); limit > 0 && limit < minMemory {
		return fmt.Errorf("the process may have only %d MB of memory, and a server needs %d MB: raise the limit of its container or service", limit>>20, minMemory>>20)
	}
	return nil
}

// MemoryLimit returns how much memory the process's control group may have, in bytes; 0 if
// that is not limited, or not known.
func MemoryLimit() int64 {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	return memoryLimit(os.DirFS(cgroupFolder).(readFileFS), string(own))
}

type readFileFS interface {
	ReadFile(name string) ([]byte, error)
}

// memoryLimit returns the least limit of a process's group and of those above it. own is
// what /proc says of its groups.
func memoryLimit(groups readFileFS, own string) int64 {
	path := ""
	for line := range strings.Lines(own) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = strings.Trim(rest, "/")
		}
	}
	least := int64(0)
	for {
		text, err := groups.ReadFile(filepath.Join(path, memoryFiles))
		if err == nil {
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is none
			if err == nil && (least == 0 || limit < least) {
				least = limit
			}
		}
		if path == "" {
			return least
		}
		if path = filepath.Dir(path); path == "." {
			path = ""
		}
	}
}
