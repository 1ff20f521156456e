// Package doctor checks whether a deployment is fit for production: its settings and its
// dependencies.
//
// A check is a function that returns a [Finding]: a status, the observation, and the
// remedy. The command `doctor`, the server at its start and /readyz share the checks. No
// check creates a database, changes a record or shows a secret. A check that writes
// removes its data.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Status is the result of a check.
type Status string

// The statuses: in order; works, but should be changed; broken or unsafe.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is the result of a check. The texts are single lines without secrets.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // empty: nothing to do
}

// Check is a named check.
type Check struct {
	Name string
	// Run returns the finding, without its name. It should end with ctx.
	Run func(ctx context.Context) Finding
}

// Timeout bounds each check.
const Timeout = 5 * time.Second

// Run runs all checks concurrently and returns their findings in order, after [Timeout]
// at most. A check that times out or panics fails.
func Run(ctx context.Context, checks []Check) []Finding {
	findings := make([]Finding, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() { findings[i] = run(ctx, c) })
	}
	running.Wait()
	return findings
}

func run(ctx context.Context, c Check) Finding {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	done := make(chan Finding, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fail(fmt.Sprintf("the check panicked: %v", p), "Report this as a bug of Kickstand.")
			}
		}()
		done <- c.Run(ctx)
	}()
	var f Finding
	select {
	case f = <-done:
	case <-ctx.Done():
		f = fail(fmt.Sprintf("no answer within %s", Timeout), "Look at the network between this machine and what is checked, and at firewalls.")
	}
	f.Check = c.Name
	return f
}

// Worst returns the worst status of findings, [OK] for none.
func Worst(findings []Finding) Status {
	worst := OK
	for _, f := range findings {
		order := []Status{OK, Warn, Fail}
		if slices.Index(order, f.Status) > slices.Index(order, worst) {
			worst = f.Status
		}
	}
	return worst
}

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, Found: fmt.Sprintf(format, args...)}
}

func warn(found, remedy string) Finding { return Finding{Status: Warn, Found: found, Remedy: remedy} }

func fail(found, remedy string) Finding { return Finding{Status: Fail, Found: found, Remedy: remedy} }
