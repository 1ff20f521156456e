//go:build linux || darwin

package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
)

const (
	minDisk  = 100 << 20 // bytes: a few minutes of uploads fill less
	lowDisk  = 1 << 30
	lowFiles = 1024
)

// Disk checks the free space of the disk on which a folder is or will be.
func Disk(folder string) Finding {
	var fs syscall.Statfs_t
	err := syscall.Statfs(folder, &fs)
	for errors.Is(err, syscall.ENOENT) && filepath.Dir(folder) != folder {
		folder = filepath.Dir(folder)
		err = syscall.Statfs(folder, &fs)
	}
	if err != nil {
		return warn(fmt.Sprintf("unknown: %s: %v", folder, err), "Look at KICKSTAND_DATA.")
	}
	free := uint64(fs.Bavail) * uint64(fs.Bsize)
	found := fmt.Sprintf("%d MB free at %s", free>>20, folder)
	const remedy = "Free space, or move KICKSTAND_DATA to a larger disk: a full disk refuses every request that writes."
	switch {
	case free < minDisk:
		return fail(found, remedy)
	case free < lowDisk:
		return warn(found, remedy)
	}
	return ok("%s", found)
}

// Descriptors checks the limit of open files and connections.
func Descriptors() Finding {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return warn(fmt.Sprintf("unknown: %v", err), "Look at ulimit -n.")
	}
	if limit.Cur < lowFiles {
		return warn(fmt.Sprintf("at most %d files and connections at once", limit.Cur), fmt.Sprintf("Raise the limit to %d or more (ulimit -n, LimitNOFILE).", 4*lowFiles))
	}
	return ok("%d files and connections at once", limit.Cur)
}
