package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// Retention is how long each kind of history is stored; 0: forever.
type Retention struct {
	Events   time.Duration // of the API and webhooks
	Attempts time.Duration // webhook deliveries with their attempts
	Inbound  time.Duration // raw requests of providers
	Requests time.Duration // log of API requests
}

// DefaultRetention applies to kinds that are not configured.
var DefaultRetention = Retention{Events: 90 * day, Attempts: 30 * day, Inbound: 30 * day, Requests: 7 * day}

const (
	day          = 24 * time.Hour
	minRetention = time.Hour
	maxRetention = 3650 * day
)

// ParseRetention parses durations by kind, such as
// "events=90d,inbound=12h,attempts=never". Kinds that are not named have the value of
// [DefaultRetention].
func ParseRetention(list []string) (Retention, error) {
	r := DefaultRetention
	kinds := []struct {
		name string
		of   *time.Duration
	}{{"events", &r.Events}, {"attempts", &r.Attempts}, {"inbound", &r.Inbound}, {"requests", &r.Requests}}
	var seen []string
	for _, item := range list {
		name, text, found := strings.Cut(strings.TrimSpace(item), "=")
		if !found {
			return r, fmt.Errorf("%q is not KIND=TIME, such as events=90d", item)
		}
		if slices.Contains(seen, name) {
			return r, fmt.Errorf("%s is there twice", name)
		}
		seen = append(seen, name)
		if name == "audit" {
			if text != "never" {
				return r, errors.New("audit must be never: entries of the audit log are not deleted")
			}
			continue
		}
		i := slices.IndexFunc(kinds, func(k struct {
			name string
			of   *time.Duration
		}) bool {
			return k.name == name
		})
		if i < 0 {
			return r, fmt.Errorf("%q is not one of events, attempts, inbound, requests, audit", name)
		}
		kept, err := parseRetention(text)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		*kinds[i].of = kept
	}
	return r, nil
}

// parseRetention parses a duration in days, in the form of [time.ParseDuration], or
// "never".
func parseRetention(text string) (time.Duration, error) {
	if text == "never" {
		return 0, nil
	}
	kept, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, derr := strconv.Atoi(days)
		kept, err = time.Duration(min(max(n, -1), 100_000))*day, derr
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a time such as 90d or 12h, nor never", text)
	}
	if kept < minRetention || kept > maxRetention {
		return 0, fmt.Errorf("%s is not from 1h to 3650d; never keeps it without end", text)
	}
	return kept, nil
}

// cutoff returns the time before which rows are deleted; ok is false if none are.
func cutoff(now time.Time, kept time.Duration) (before time.Time, ok bool) {
	return now.Add(-kept), kept > 0
}

// runMaintenance calls maintain every hour until ctx ends.
func (a *App) runMaintenance(ctx context.Context) {
	if loop.Pause(ctx, time.Hour) == nil {
		loop.Every(ctx, time.Hour, a.log, "maintenance", func(ctx context.Context) error { return a.maintain(ctx, a.DB.Now()) })
	}
}

// maintain deletes expired rows, each kind by its package in small steps, and sends
// notices. A failure does not stop the rest.
func (a *App) maintain(ctx context.Context, now time.Time) error {
	var failures []error
	for _, work := range []struct {
		what string
		do   func() error
	}{
		{"deleting old answers of the REST APIs", func() error {
			var errs []error
			for _, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
				errs = append(errs, rest.Purge(ctx, d))
			}
			return errors.Join(errs...)
		}},
		{"notices of unrouted events", func() error { return a.Inbound.NotifyOperator(ctx) }},
		{"notices of dead events", func() error { return a.Inbound.NotifyDead(ctx) }},
		{"deleting old inbound events", func() error {
			before, ok := cutoff(now, a.current.Load().Retention.Inbound)
			if !ok {
				return a.Inbound.PurgeTokens(ctx)
			}
			_, err := a.Inbound.Purge(ctx, before)
			return err
		}},
		{"deleting mails of removed mailboxes", func() error { return a.Mailboxes.Purge(ctx) }},
		{"deleting old challenges", func() error { return a.Connections.PurgeProofs(ctx) }},
		{"deleting old deliveries", func() error {
			_, err := a.Webhooks.Purge(ctx, a.current.Load().Retention.Attempts)
			return err
		}},
		{"deleting old requests of API keys", func() error {
			before, ok := cutoff(now, a.current.Load().Retention.Requests)
			if !ok {
				return nil
			}
			return a.Requests.Purge(ctx, before)
		}},
		{"indexing customers", func() error { return a.Desk.ReconcileCustomers(ctx) }},
		{"deleting old uploads", func() error { return a.Imports.PurgeUploads(ctx) }},
		{"deleting old events", func() error { return a.purgeEvents(ctx, now) }}, // after the deliveries that refer to them
		{"deleting old events of the fleets", func() error {
			return errors.Join(a.Fleet.PurgeEvents(ctx), a.Sandbox.PurgeEvents(ctx))
		}},
	} {
		if err := work.do(); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", work.what, err))
		}
	}
	return errors.Join(failures...)
}

// purgeEvents deletes the events past their retention.
func (a *App) purgeEvents(ctx context.Context, now time.Time) error {
	before, ok := cutoff(now, a.current.Load().Retention.Events)
	if !ok {
		return nil
	}
	_, err := event.Purge(ctx, a.DB, before)
	return err
}
