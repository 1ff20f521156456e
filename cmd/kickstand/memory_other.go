//go:build !linux

package main

// releaseProgram does nothing on this system.
func releaseProgram() error { return nil }
