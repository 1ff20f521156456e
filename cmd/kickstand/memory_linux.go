package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// releaseProgram unmaps code and constants of the program from the process: the start runs
// through most of them, and an idle server needs a fifth. The kernel maps a page of them
// again when it is used, from the cache of the file system as a rule.
func releaseProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var permissions string
		if !strings.HasSuffix(line, " "+program+"\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &permissions); err != nil {
			return fmt.Errorf("/proc/self/maps: %w", err)
		}
		if strings.Contains(permissions, "w") {
			continue // variables: the file does not have their values
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}
