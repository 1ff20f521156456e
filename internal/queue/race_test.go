//go:build race

package queue

// raceDetector makes the longest tests shorter.
const raceDetector = true
