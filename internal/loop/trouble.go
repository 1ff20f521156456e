package loop

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// settled is the time without a failure after which a success ends a [Trouble].
const settled = 5 * time.Second

// Trouble logs work that fails again and again with two lines: an error when it begins, and a line
// with the number of failures once the work succeeds again. It is safe for concurrent use.
type Trouble struct {
	log  *slog.Logger
	name string

	active   atomic.Bool // so that a success costs one load
	mu       sync.Mutex
	began    time.Time
	last     time.Time // failure
	failures int
}

// NewTrouble returns the trouble of the named work.
func NewTrouble(log *slog.Logger, name string) *Trouble { return &Trouble{log: log, name: name} }

// Observe calls [Trouble.Failed] or, for a nil error, [Trouble.Succeeded].
func (t *Trouble) Observe(ctx context.Context, err error, attrs ...any) {
	if err == nil {
		t.Succeeded(ctx)
	} else {
		t.Failed(ctx, err, attrs...)
	}
}

// Failed counts a failure, and logs it with attrs if it is the first.
func (t *Trouble) Failed(ctx context.Context, err error, attrs ...any) {
	now := time.Now()
	t.mu.Lock()
	t.failures++
	t.last = now
	first := t.failures == 1
	if first {
		t.began = now
		t.active.Store(true)
	}
	t.mu.Unlock()
	if first {
		t.log.ErrorContext(ctx, t.name, append([]any{"error", err}, attrs...)...)
	}
}

// Succeeded ends the trouble, if there is one, unless the last failure was a moment ago: while
// some calls fail and some succeed, the trouble lasts.
func (t *Trouble) Succeeded(ctx context.Context) {
	if !t.active.Load() {
		return
	}
	t.mu.Lock()
	over := t.failures > 0 && time.Since(t.last) >= settled
	failures, lasted := t.failures, t.last.Sub(t.began)
	if over {
		t.failures = 0
		t.active.Store(false)
	}
	t.mu.Unlock()
	if over {
		t.log.InfoContext(ctx, t.name+": recovered", "failures", failures, "lasted", lasted.Round(time.Millisecond))
	}
}
