package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// releaseProgram unmaps code and constants of the program from the process: the start runs
// through most of them, and an idle server needs a fifth. The kernel maps a page of them
// again when it is used, from the cache of the file system as a rule. Parts that differ from the
// file, such as variables and relocated constants, stay.
func releaseProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var from, to uintptr // of a part of the program that cannot be written; 0: the lines are of another
	for line := range strings.Lines(string(maps)) {
		var a, b uintptr
		var permissions string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &a, &b, &permissions); n == 3 {
			if from, to = 0, 0; strings.HasSuffix(line, " "+program+"\n") && !strings.Contains(permissions, "w") {
				from, to = a, b
			}
			continue
		}
		if from == 0 || strings.Join(strings.Fields(line), " ") != "Anonymous: 0 kB" {
			continue
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}
