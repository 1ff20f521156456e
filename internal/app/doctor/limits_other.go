//go:build !linux && !darwin

package doctor

// Limits returns the reason why the process cannot serve; not checked on this system.
func Limits() error { return nil }

// MemoryLimit returns the memory limit of the process in bytes; 0: unknown.
func MemoryLimit() int64 { return 0 }
