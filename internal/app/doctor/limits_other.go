//go:build !linux && !darwin

package doctor

// Limits returns why the process cannot serve; this system is not looked at.
func Limits() error { return nil }

// MemoryLimit returns how much memory the process may have, in bytes; 0: not known.
func MemoryLimit() int64 { return 0 }
