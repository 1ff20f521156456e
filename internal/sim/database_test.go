package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// connectionTo is a node's connection to the shared database. It implements [db.Simulator].
type connectionTo struct{ n *node }

var errGone = errors.New("the node is gone")

func unavailable(reason string) error {
	return problem.New(problem.Unavailable, "the simulated database %s", reason)
}

// Now implements [db.Simulator].
func (c connectionTo) Now() time.Time { return c.n.w.databaseNow() }

// enter parks, and returns an error if the node has died or ctx has ended.
func (n *node) enter(ctx context.Context, name string) error {
	n.w.sched.park(n, name)
	if n.dead {
		return errGone
	}
	n.w.running = n
	return context.Cause(ctx)
}

// delay waits, and parks again so that one goroutine at a time runs.
func (n *node) delay(ctx context.Context, d time.Duration, name string) error {
	ended := loop.Pause(ctx, d)
	if err := n.enter(ctx, name); err != nil {
		return err
	}
	return ended
}

// Read implements [db.Simulator].
func (c connectionTo) Read(ctx context.Context) error {
	n, w := c.n, c.n.w
	if err := n.enter(ctx, "read"); err != nil {
		return err
	}
	switch {
	case w.sched.chance(w.weather.failRead):
		return unavailable("refuses a read")
	case w.sched.chance(w.weather.slow):
		return n.delay(ctx, w.sched.between(time.Millisecond, w.weather.slowest), "read late")
	}
	return nil
}

// Write implements [db.Simulator].
func (c connectionTo) Write(ctx context.Context, run func(end func(tx *db.Tx) error) error, answer func()) error {
	n, w := c.n, c.n.w
	if err := n.enter(ctx, "write"); err != nil {
		return err
	}
	if w.sched.chance(w.weather.slow) {
		if err := n.delay(ctx, w.sched.between(time.Millisecond, w.weather.slowest), "write late"); err != nil {
			return err
		}
	}
	if w.sched.chance(w.weather.failBegin) {
		return unavailable("refuses a transaction")
	}
	fails := w.sched.chance(w.weather.failCommit)
	var rows []row
	err := run(func(tx *db.Tx) (err error) {
		if fails {
			return unavailable("rolls a transaction back")
		}
		rows, err = readChanges(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		w.model.commit(n, rows)
	}
	if w.sched.chance(w.weather.loseAnswer) {
		return unavailable("committed, and its answer was lost")
	}
	if w.sched.chance(w.weather.slow) {
		if err := n.delay(ctx, w.sched.between(time.Millisecond, w.weather.slowest), "answer late"); err != nil {
			return errors.Join(unavailable("committed, and its answer comes too late"), err)
		}
	} else if w.sched.chance(0.1) {
		// A chance for a crash or a pause between commit and answer.
		w.sched.park(n, "answer")
		if n.dead {
			return errGone
		}
		w.running = n
	}
	answer()
	return nil
}

// Notify implements [db.Simulator]. Notifications are lost, late and repeated.
func (c connectionTo) Notify(ctx context.Context, channel string, payloads []string) error {
	n, w := c.n, c.n.w
	if err := n.enter(ctx, "notify"); err != nil {
		return err
	}
	if w.sched.chance(w.weather.failRead) {
		return unavailable("refuses a notification")
	}
	for _, to := range slices.Clone(w.nodes) {
		for _, p := range slices.Sorted(slices.Values(payloads)) {
			if to == n || to.dead || w.sched.chance(w.weather.loseNotice) {
				continue
			}
			for again := true; again; again = w.sched.chance(w.weather.repeatNotice) {
				var late time.Duration
				if w.sched.chance(w.weather.lateNotice) {
					late = w.sched.between(time.Millisecond, 30*time.Second)
				}
				w.sched.in(late, "notice for "+to.name, func() { to.hear(channel, p) })
			}
		}
	}
	return nil
}

// hear passes a notification to the node's listener.
func (n *node) hear(channel, payload string) {
	if l := n.listeners[channel]; l != nil && !n.dead {
		select {
		case l <- payload:
		default: // as many as fit wait for a paused node
		}
	}
}

// Listen implements [db.Simulator].
func (c connectionTo) Listen(ctx context.Context, channel string, hear func(payload string)) {
	n := c.n
	notices := make(chan string, 1000)
	n.listeners[channel] = notices
	if n.enter(ctx, "listen") != nil {
		return
	}
	hear("")
	for {
		select {
		case p := <-notices:
			if n.enter(ctx, "hear") != nil {
				return
			}
			hear(p)
		case <-ctx.Done():
			return
		}
	}
}

// row is a change of a row that the model follows. Triggers write it.
type row struct {
	id    int64
	table string
	op    string
	f     [8]string
}

// changesSQL records the changes that the model follows in the table sim_changes.
var changesSQL = []string{
	`CREATE TABLE sim_changes (id INTEGER PRIMARY KEY AUTOINCREMENT, tab TEXT, op TEXT, a, b, c, d, e, f, g, h)`,
	follow("jobs", "insert", "", "NEW.id, NEW.kind, NEW.lane, NULL, NEW.state, NULL, NEW.lease, NEW.lease_until"),
	follow("jobs", "update", "WHEN OLD.state <> NEW.state OR OLD.lease IS NOT NEW.lease OR OLD.lease_until IS NOT NEW.lease_until OR OLD.kind <> NEW.kind",
		"NEW.id, NEW.kind, NEW.lane, OLD.state, NEW.state, OLD.lease, NEW.lease, NEW.lease_until"),
	follow("jobs", "delete", "", "OLD.id, OLD.kind, OLD.lane, OLD.state, NULL, OLD.lease, NULL, NULL"),
	follow("messages", "insert", "", "NEW.id, NEW.ticket_id, NEW.direction, NEW.channel, NEW.body, NEW.kind, NULL, NULL"),
	follow("messages", "update", "WHEN OLD.delivery_state IS NOT NEW.delivery_state", "NEW.id, NEW.ticket_id, NEW.direction, NEW.channel, NEW.body, NEW.delivery_state, NULL, NULL"),
	follow("tickets", "insert", "", "NEW.id, NEW.organization_id, NEW.number, NULL, NULL, NULL, NULL, NULL"),
	follow("events", "insert", "", "NEW.id, NEW.organization_id, NEW.name, coalesce(NEW.members, ''), NULL, NULL, NULL, NULL"),
	follow("deliveries", "insert", "", "NEW.webhook_id, NEW.id, NEW.event_id, NEW.state, NULL, NULL, NULL, NULL"),
	follow("deliveries", "update", "WHEN OLD.state <> NEW.state", "NEW.webhook_id, NEW.id, NEW.event_id, NEW.state, NULL, NULL, NULL, NULL"),
	follow("webhooks", "update", "WHEN OLD.state <> NEW.state", "NEW.id, NEW.state, NULL, NULL, NULL, NULL, NULL, NULL"),
	follow("inbound_events", "insert", "", "NEW.id, NEW.external_key, NEW.state, NEW.error, NULL, NULL, NULL, NULL"),
	follow("inbound_events", "update", "WHEN OLD.state <> NEW.state", "NEW.id, NEW.external_key, NEW.state, NEW.error, NULL, NULL, NULL, NULL"),
}

func follow(table, op, when, values string) string {
	return fmt.Sprintf("CREATE TRIGGER sim_%[1]s_%[2]s AFTER %[2]s ON %[1]s %[3]s BEGIN INSERT INTO sim_changes (tab, op, a, b, c, d, e, f, g, h) VALUES ('%[1]s', '%[2]s', %[4]s); END",
		table, op, when, values)
}

// readChanges takes the changes of a transaction.
func readChanges(ctx context.Context, tx *db.Tx) ([]row, error) {
	rows, err := db.All(ctx, tx, func(r db.Row) (row, error) {
		var v row
		var f [8]*string
		err := r.Scan(&v.id, &v.table, &v.op, &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7])
		for i, p := range f {
			if p != nil {
				v.f[i] = *p
			}
		}
		return v, err
	}, "DELETE FROM sim_changes RETURNING id, tab, op, a, b, c, d, e, f, g, h")
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	return rows, err
}
