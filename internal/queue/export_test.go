package queue

// RaceDetector makes the longest tests shorter.
const RaceDetector = raceDetector
