//go:build !race

package webhook

// raceDetector leaves out the longest test.
const raceDetector = false
