// Package loop repeats background work, and waits, until a context ends.
package loop

import (
	"context"
	"log/slog"
	"time"
)

// finishTimeout bounds the work of [Finish].
const finishTimeout = 5 * time.Second

// Every calls do now and again interval after the end of each call, until ctx ends. Errors are
// logged under name, as a [Trouble]; do is called again all the same.
func Every(ctx context.Context, interval time.Duration, log *slog.Logger, name string, do func(context.Context) error) {
	EveryOr(ctx, interval, nil, log, name, do)
}

// EveryOr is [Every], but calls do at once when wake receives a value. If wake is buffered, a
// value sent during a call leads to another one.
func EveryOr(ctx context.Context, interval time.Duration, wake <-chan struct{}, log *slog.Logger, name string, do func(context.Context) error) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	trouble := NewTrouble(log, name)
	for ctx.Err() == nil {
		run(ctx, trouble, do)
		timer.Reset(interval)
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
	}
}

// Finish calls do once after the end of ctx, with five seconds of time. An error is logged.
func Finish(ctx context.Context, log *slog.Logger, name string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	run(ctx, NewTrouble(log, name), do)
}

// run logs no error after the end of ctx, since that is its cause.
func run(ctx context.Context, trouble *Trouble, do func(context.Context) error) {
	if err := do(ctx); err == nil || ctx.Err() == nil {
		trouble.Observe(ctx, err)
	}
}

// Pause waits for d. If ctx ends before, it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
