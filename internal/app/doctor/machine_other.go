//go:build !linux && !darwin

package doctor

// Disk checks the free space of a folder's disk.
func Disk(string) Finding { return ok("not checked on this system") }

// Descriptors checks the limit of open files and connections.
func Descriptors() Finding { return ok("not checked on this system") }
