package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
)

// measureEvery is the interval between readings of the databases' clocks.
const measureEvery = 5 * time.Second

// clockLevel grades a clock skew by its consequence.
type clockLevel int

const (
	clockRight clockLevel = iota
	clockWarned
	clockRefused
)

func gradeSkew(skew time.Duration) clockLevel {
	switch {
	case skew.Abs() > db.SkewRefuse:
		return clockRefused
	case skew.Abs() >= db.SkewWarn:
		return clockWarned
	}
	return clockRight
}

// clockSkew returns the largest skew to one of the databases.
func (a *App) clockSkew() (worst time.Duration, known bool) {
	for _, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
		if skew, ok := d.ClockSkew(); ok && (!known || skew.Abs() > worst.Abs()) {
			worst, known = skew, true
		}
	}
	return worst, known
}

// watchClock measures the databases' clocks until ctx ends, and logs when the skew gets another
// consequence.
func (a *App) watchClock(ctx context.Context) {
	var last clockLevel
	loop.Every(ctx, measureEvery, a.log, "measure the clock of the database", func(ctx context.Context) error {
		for _, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
			if err := d.MeasureClock(ctx); err != nil {
				return err
			}
		}
		if skew, known := a.clockSkew(); known {
			last = a.logSkew(ctx, last, skew)
		}
		return nil
	})
}

// logSkew logs a change of the level.
func (a *App) logSkew(ctx context.Context, last clockLevel, skew time.Duration) clockLevel {
	now := gradeSkew(skew)
	ahead := slog.String("ahead", skew.Round(time.Millisecond).String())
	switch {
	case now == last:
	case now == clockRefused:
		a.log.ErrorContext(ctx, "this machine's clock differs from the database's by more than 5 minutes: requests are refused and no jobs are claimed until it is right", ahead)
	case now == clockWarned:
		a.log.WarnContext(ctx, "this machine's clock differs from the database's; synchronize both", ahead)
	default:
		a.log.InfoContext(ctx, "this machine's clock agrees with the database's again", ahead)
	}
	return now
}

// clockReady checks that the process may serve.
func (a *App) clockReady(context.Context) outcome {
	skew, known := a.clockSkew()
	if !known {
		return outcome{Status: partOK}
	}
	o := outcome{Status: partOK}
	text := fmt.Sprintf("this machine's clock differs from the database's by %s", skew.Abs().Round(time.Millisecond))
	switch gradeSkew(skew) {
	case clockRefused:
		o = failed(text, text)
	case clockWarned:
		o = outcome{Status: partWarned, Reason: text}
	}
	o.Skew = new(skew.Seconds())
	return o
}

// refuseWrongClock answers 503 while the process's clock is too wrong; see [db.DB.CheckClock].
func (a *App) refuseWrongClock(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.DB.CheckClock(); err != nil && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			w.Header().Set("Retry-After", "5")
			plain(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}
