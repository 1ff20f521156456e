package db

import (
	"context"
	"time"
)

// Bounds of [Steps].
const (
	stepsLimit = 10 * time.Minute
	stepsRest  = time.Second
)

// Steps calls step until it reports that there is nothing more to do, for work that would
// hold up others if it were done at once: after each step, the database has as long for
// them as the step took. After ten minutes the rest is left for the next call.
func Steps(ctx context.Context, step func() (more bool, err error)) error {
	for end := time.Now().Add(stepsLimit); time.Now().Before(end); {
		begun := time.Now()
		more, err := step()
		if err != nil || !more {
			return err
		}
		rest := time.NewTimer(min(time.Since(begun), stepsRest))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return ctx.Err()
		}
	}
	return nil
}
