package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/doctor"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"

	"golang.org/x/sync/singleflight"
)

const (
	// readyLimit bounds the duration of /readyz.
	readyLimit = 2 * time.Second
	// reportLife is the time for which a report is reused: /readyz is public.
	reportLife = time.Second
	// overdueAfter is the wait of the oldest due job from which the server is not ready.
	overdueAfter = 15 * time.Minute
	// recheckAfter is the wait before an overdue job is checked again: in a long lane
	// each job has waited for those before it.
	recheckAfter = 300 * time.Millisecond
)

// readinessCheck checks one dependency.
type readinessCheck struct {
	name  string
	check func(ctx context.Context) outcome
	busy  atomic.Bool // a run has not ended
}

// outcome is the result of a check.
type outcome struct {
	Status  string `json:"status"`            // ok, warned or failed
	Reason  string `json:"reason,omitempty"`  // public reason of the failure
	Seconds *int64 `json:"seconds,omitempty"` // of queue_age: the age of the oldest due job
	// Skew is of clock: how far this machine's clock is ahead of the database's, in seconds.
	Skew   *float64 `json:"skew_seconds,omitempty"`
	detail string   // private reason, for the log
}

const (
	partOK     = "ok"
	partWarned = "warned" // works, but needs attention
	partFailed = "failed"
)

func failed(reason, detail string) outcome {
	return outcome{Status: partFailed, Reason: reason, detail: detail}
}

// report is the response of /readyz.
type report struct {
	Status string             `json:"status"` // the worst of the checks
	Parts  map[string]outcome `json:"parts"`
}

// readiness serves /readyz. It is safe for concurrent use.
type readiness struct {
	parts []*readinessCheck
	limit time.Duration
	log   *slog.Logger

	group singleflight.Group
	mu    sync.Mutex
	last  report
	at    time.Time // of last
}

// openReadiness returns the readiness checks of the program.
func (a *App) openReadiness() *readiness {
	r := &readiness{limit: readyLimit, log: a.log, parts: []*readinessCheck{
		{name: "database", check: a.databaseReady},
		{name: "blobs", check: func(ctx context.Context) outcome {
			f := doctor.Attachments(ctx, "the store", func() (blob.Store, func(), error) { return a.blobs, func() {}, nil })
			if f.Status == doctor.Fail {
				return failed("files cannot be written, read and deleted", f.Found)
			}
			return outcome{Status: partOK}
		}},
		{name: "clock", check: a.clockReady},
		{name: "queue_age", check: a.queueReady},
	}}
	if a.receiver != nil {
		r.parts = append(r.parts, &readinessCheck{name: "smtp", check: a.mailReady})
	}
	if a.redis != nil {
		r.parts = append(r.parts, &readinessCheck{name: "redis", check: a.redisReady})
	}
	return r
}

// redisReady checks that Redis counts. Without it the process works, and counts alone.
func (a *App) redisReady(ctx context.Context) outcome {
	if err := a.redis.Ping(ctx); err != nil {
		return outcome{Status: partWarned, Reason: "it is unavailable; this process counts requests and sign-ins on its own", detail: err.Error()}
	}
	return outcome{Status: partOK}
}

// databaseReady writes a row to each database.
func (a *App) databaseReady(ctx context.Context) outcome {
	var reasons, details []string
	for i, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
		if err := d.ProbeWrite(ctx); err != nil {
			reasons = append(reasons, databases[i].name+": "+db.FailureReason(err))
			details = append(details, err.Error())
		}
	}
	if len(reasons) > 0 {
		return failed(strings.Join(reasons, "; "), strings.Join(details, "; "))
	}
	return outcome{Status: partOK}
}

// queueReady checks that due jobs are run.
func (a *App) queueReady(ctx context.Context) outcome {
	first, ok, err := a.queue.OldestDue(ctx)
	if err != nil {
		return failed("the queue cannot be read", err.Error())
	}
	since := func(at time.Time) time.Duration { return max(a.DB.Now().Sub(at), 0) }
	age := func(at time.Time) *int64 { return new(int64(since(at) / time.Second)) }
	if !ok {
		return outcome{Status: partOK, Seconds: new(int64(0))}
	}
	if since(first.At) < overdueAfter {
		return outcome{Status: partOK, Seconds: age(first.At)}
	}
	loop.Pause(ctx, recheckAfter) // the end of ctx shows below
	again, ok, err := a.queue.OldestDue(ctx)
	switch {
	case err != nil:
		return failed("the queue cannot be read", err.Error())
	case !ok || again.ID != first.ID:
		return outcome{Status: partOK, Seconds: new(int64(0))}
	}
	o := failed(fmt.Sprintf("a job of the kind %s has been due for %s and nobody runs it", first.Kind, since(first.At).Round(time.Second)), first.ID)
	o.Seconds = age(first.At)
	return o
}

// report runs all checks concurrently, or returns the last report if it is recent.
func (r *readiness) report() report {
	r.mu.Lock()
	last, fresh := r.last, time.Since(r.at) < reportLife && !r.at.IsZero()
	r.mu.Unlock()
	if fresh {
		return last
	}
	got, _, _ := r.group.Do("", func() (any, error) {
		now := r.check()
		r.mu.Lock()
		before := r.last
		r.last, r.at = now, time.Now()
		r.mu.Unlock()
		r.logChange(before, now)
		return now, nil
	})
	return got.(report)
}

func (r *readiness) check() report {
	ctx, cancel := context.WithTimeout(context.Background(), r.limit)
	defer cancel()
	outcomes := make([]outcome, len(r.parts))
	var checking sync.WaitGroup
	for i, p := range r.parts {
		checking.Go(func() { outcomes[i] = p.run(ctx) })
	}
	checking.Wait()
	now := report{Status: partOK, Parts: make(map[string]outcome)}
	for i, p := range r.parts {
		if now.Parts[p.name] = outcomes[i]; outcomes[i].Status == partFailed {
			now.Status = partFailed
		}
	}
	return now
}

// run runs the check until ctx ends. While a run hangs, further ones fail at once.
func (p *readinessCheck) run(ctx context.Context) outcome {
	const late = "it does not answer in time"
	if !p.busy.CompareAndSwap(false, true) {
		return failed(late, "an earlier check has not ended")
	}
	done := make(chan outcome, 1)
	go func() {
		o := p.check(ctx)
		p.busy.Store(false) // before the next check, which may follow the answer at once
		done <- o
	}()
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
		return failed(late, "no answer within the limit")
	}
}

// logChange logs a change of the failing checks.
func (r *readiness) logChange(before, now report) {
	reasons := func(of report) string {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(of.Parts)) {
			if o := of.Parts[name]; o.Status == partFailed {
				list = append(list, name)
			}
		}
		return strings.Join(list, ", ")
	}
	parts := reasons(now)
	switch {
	case parts == reasons(before):
	case parts == "":
		r.log.Info("ready again")
	default:
		attrs := []any{"parts", parts}
		for _, name := range slices.Sorted(maps.Keys(now.Parts)) {
			if o := now.Parts[name]; o.Status == partFailed {
				attrs = append(attrs, name, o.Reason+" ("+o.detail+")")
			}
		}
		r.log.Warn("not ready", attrs...)
	}
}

// ServeHTTP serves /readyz: 200, or 503 if a check fails.
func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	now := r.report()
	body, err := json.Marshal(now)
	status := http.StatusOK
	if err != nil || now.Status != partOK {
		status = http.StatusServiceUnavailable
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}
