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

// Minimum limits of a server.
const (
	minFiles     = 256     // SQLite opens about 100; PostgreSQL's connections are as many
	minSpace     = 2 << 30 // bytes of address space: the runtime and the databases reserve much more than they use
	minMemory    = 64 << 20
	memoryFiles  = "memory.max"
	cgroupFolder = "/sys/fs/cgroup"
)

// Limits returns, in one sentence, why the process cannot serve: its limit of open files
// or of memory is too low. Go has raised the soft limit of files to the hard one already.
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

// MemoryLimit returns the memory limit of the process's control group in bytes; 0:
// unlimited or unknown.
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

// memoryLimit returns the lowest limit of a process's group and its ancestors. own is the
// content of /proc/self/cgroup.
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
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no limit
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
