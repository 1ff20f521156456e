package audit

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Limits of the entries that refusals can add.
const (
	// RefusalWindow is the time in which refusals of one kind after the first are merged
	// into one entry.
	RefusalWindow = 15 * time.Minute
	// maxRefusals is the number of kinds of refusals that a process records separately
	// per window. Further ones are counted by chain and action.
	maxRefusals = 100
	// maxMerged is the number of counts by chain and action. Further refusals share one
	// count.
	maxMerged = 100
)

// refusalKey identifies refusals that are merged.
type refusalKey struct {
	organizationID, action, targetID string
	network                          netip.Prefix
	merged                           bool
}

// refusal is a kind of refusal in its window.
type refusal struct {
	ctx     context.Context
	entry   Entry
	since   time.Time // start of the window
	count   int       // not stored yet
	written bool      // the first entry of the window is stored
}

type refusals struct {
	mu    sync.Mutex
	kinds map[refusalKey]*refusal
	wake  chan struct{} // capacity 1
}

// Refuse records a refusal in the audit log and as a security event in the server's log.
// It neither fails nor blocks: [Log.Run] writes the entry soon. The first refusal of an
// action on a target by a network (an IPv4 address or a /64 of IPv6) is an entry; those
// of the next [RefusalWindow] are merged into one more, with details count. In a flood,
// targets and networks are merged, too. Counts that are not stored yet are lost if the
// process is killed.
func (l *Log) Refuse(ctx context.Context, e Entry) {
	if l == nil {
		return
	}
	e.Outcome = Refused
	now := l.c.DB.Now()
	l.refused.mu.Lock()
	r, first := l.refused.of(context.WithoutCancel(ctx), e, now)
	r.count++
	l.refused.mu.Unlock()
	if !first {
		return
	}
	LogSecurityEvent(ctx, l.log, e.Action, slog.String("organization", e.OrganizationID), slog.String("target", e.Target.ID))
	select {
	case l.refused.wake <- struct{}{}:
	default:
	}
}

// of returns the counter of a refusal's kind, and whether it is new.
func (rs *refusals) of(ctx context.Context, e Entry, now time.Time) (r *refusal, first bool) {
	key := refusalKey{organizationID: e.OrganizationID, action: e.Action, targetID: e.Target.ID, network: network(SourceOf(ctx).Address)}
	for _, bound := range []int{maxRefusals, maxRefusals + maxMerged, maxRefusals + maxMerged + 1} {
		if r := rs.kinds[key]; r != nil {
			return r, false
		}
		if len(rs.kinds) < bound {
			break
		}
		if key.merged { // one counter for all
			key = refusalKey{merged: true}
			ctx, e = context.Background(), Entry{Action: RefusalsMerged, Outcome: Refused}
			continue
		}
		key = refusalKey{organizationID: e.OrganizationID, action: e.Action, merged: true}
		ctx = WithSource(ctx, Source{Actor: Actor{Type: Anonymous}, Surface: SourceOf(ctx).Surface})
		e.Target, e.Details = Target{Type: e.Target.Type}, map[string]any{"merged": true}
	}
	if r := rs.kinds[key]; r != nil {
		return r, false
	}
	r = &refusal{ctx: ctx, entry: e, since: now}
	rs.kinds[key] = r
	return r, true
}

// writeTimeout bounds the shutdown if the database does not respond.
const writeTimeout = 5 * time.Second

// RefusalsMerged is recorded in the deployment's chain for refusals of all kinds, if
// there are too many kinds to count separately.
const RefusalsMerged Action = "refusals.merged"

// network returns the part of an address that one customer of a provider has.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // the zero prefix for no address
	return p
}

// due returns the entries to write: the first of each kind, and the counts of windows
// that are over; all windows if all is set, for the shutdown.
func (rs *refusals) due(at time.Time, all bool) (list []refusal) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for key, r := range rs.kinds {
		over := all || at.Sub(r.since) >= RefusalWindow
		if r.count > 0 && (over || !r.written) {
			now := *r
			if !over { // the first entry; the count waits for the end of the window
				now.count = 1
			}
			list = append(list, now)
			r.count, r.written = r.count-now.count, true
		}
		if over {
			delete(rs.kinds, key)
		}
	}
	slices.SortFunc(list, func(a, b refusal) int { return a.since.Compare(b.since) })
	return list
}

// Run writes the refusals collected by [Log.Refuse] until ctx ends, and then the rest.
// Failures are logged and not retried.
func (l *Log) Run(ctx context.Context) {
	loop.EveryOr(ctx, time.Minute, l.refused.wake, l.log, "write refusals", func(ctx context.Context) error {
		l.writeRefusals(ctx, l.refused.due(l.c.DB.Now(), false))
		return nil
	})
	l.writeRefusals(ctx, l.refused.due(l.c.DB.Now(), true))
}

// writeRefusals writes entries, even after the end of ctx.
func (l *Log) writeRefusals(ctx context.Context, list []refusal) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	for _, r := range list {
		e := r.entry
		if r.written || r.count > 1 {
			e.Details = maps.Clone(e.Details)
			if e.Details == nil {
				e.Details = map[string]any{}
			}
			e.Details["count"], e.Details["since"] = r.count, r.since.UTC().Format(time.RFC3339)
			LogSecurityEvent(r.ctx, l.log, e.Action, slog.String("organization", e.OrganizationID), slog.String("target", e.Target.ID), slog.Int("count", r.count))
		}
		if err := l.Record(WithSource(ctx, SourceOf(r.ctx)), e); err != nil && problem.Of(err) != problem.Unavailable { // which the database logs
			l.log.ErrorContext(ctx, "write refusals to the audit log", "error", err)
		}
	}
}
