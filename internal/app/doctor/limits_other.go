//go:build !linux && !darwin

package doctor

// Limits returns the reason why the process cannot serve; not checked on this system.
func Limits() error { return nil }

// MemoryLimit returns the memory limit of the process in bytes, and the file that has it; 0:
// unknown.
func MemoryLimit() (limit int64, file string) { return 0, "" }
