//go:build linux || darwin

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Minimum limits of a server.
const (
	minFiles     = 256     // SQLite opens about 100; PostgreSQL's connections are as many
	minSpace     = 2 << 30 // bytes of address space: the runtime and the databases reserve much more than they use
	minMemory    = 64 << 20
	cgroupFolder = "/sys/fs/cgroup"
	noLimit      = 1 << 60 // bytes; version 1 of control groups writes about 2^63 for unlimited
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
	if limit, _ := MemoryLimit(); limit > 0 && limit < minMemory {
		return fmt.Errorf("the process may have only %d MB of memory, and a server needs %d MB: raise the limit of its container or service", limit>>20, minMemory>>20)
	}
	return nil
}

// MemoryLimit returns the memory limit of the process's control group in bytes, of version 1
// or 2, and the file that has it; 0: unlimited or unknown.
func MemoryLimit() (limit int64, file string) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, ""
	}
	if limit, file = memoryLimit(os.DirFS(cgroupFolder).(readFileFS), string(own)); limit > 0 {
		file = filepath.Join(cgroupFolder, file)
	}
	return limit, file
}

type readFileFS interface {
	ReadFile(name string) ([]byte, error)
}

// memoryLimit returns the lowest limit of a process's groups and their ancestors, and the file
// that has it. own is the content of /proc/self/cgroup: lines of the form ID:CONTROLLERS:PATH,
// where version 2 has no controllers.
func memoryLimit(groups readFileFS, own string) (limit int64, file string) {
	for line := range strings.Lines(own) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		root, name := "", "memory.max"
		switch {
		case !ok:
			continue
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			root, name = "memory", "memory.limit_in_bytes"
		case controllers != "":
			continue
		}
		// A container may see the path of its group outside, and its group at the root.
		for path = strings.Trim(path, "/"); ; path = strings.TrimPrefix(filepath.Dir(path), ".") {
			at := filepath.Join(root, path, name)
			text, err := groups.ReadFile(at)
			if err == nil {
				n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no limit
				if err == nil && n < noLimit && (limit == 0 || n < limit) {
					limit, file = n, at
				}
			}
			if path == "" {
				break
			}
		}
	}
	return limit, file
}
