package db

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// Bounds of [Steps].
const (
	stepsLimit = 10 * time.Minute
	stepsRest  = time.Second
)

// Steps calls step until it returns false or an error. It splits long work: after each step it
// sleeps as long as the step took, at most a second, so that other writers get the database. It
// returns after ten minutes; the next call continues.
func Steps(ctx context.Context, step func() (more bool, err error)) error {
	for end := time.Now().Add(stepsLimit); time.Now().Before(end); {
		begun := time.Now()
		more, err := step()
		if err != nil || !more {
			return err
		}
		if err := loop.Pause(ctx, min(time.Since(begun), stepsRest)); err != nil {
			return err
		}
	}
	return nil
}
