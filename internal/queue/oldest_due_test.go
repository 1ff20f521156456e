package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// TestOldest finds jobs that are due and not running, and skips jobs that wait for a reason.
func TestOldest(t *testing.T) {
	d := dbtest.New(t)
	q := queue.Open(d, queue.Config{})
	never := func(context.Context, *queue.Job) error { return nil }
	q.Handle(queue.Worker{Kind: "k", Run: never})
	q.Handle(queue.Worker{Kind: "ordered", Ordered: true, Run: never})
	want := func(when, id string) {
		t.Helper()
		got, ok, err := q.OldestDue(t.Context())
		if err != nil || ok != (id != "") || got.ID != id {
			t.Errorf("%s: got %+v, %v, %v, want %q", when, got, ok, err, id)
		}
	}
	add := func(n queue.New) string {
		t.Helper()
		n.ID = queue.NewID()
		enqueue(t, d, q, n)
		return n.ID
	}
	hour := time.Now().Add(time.Hour)
	want("nothing", "")
	add(queue.New{Kind: "k", Lane: "later", RunAt: hour})
	head := add(queue.New{Kind: "ordered", Lane: "l", RunAt: hour})
	behind := add(queue.New{Kind: "ordered", Lane: "l"})
	held := add(queue.New{Kind: "k", Lane: "held"})
	write(t, d, "INSERT INTO held_lanes (kind, lane) VALUES ('k', 'held')")
	full := add(queue.New{Kind: "k", Lane: "full"})
	write(t, d, "UPDATE jobs SET state = 2 WHERE id = $1", full)
	add(queue.New{Kind: "k", Lane: "full"})
	add(queue.New{Kind: "unknown", Lane: "l"})
	want("what rightly waits", "")
	ready := add(queue.New{Kind: "k", Lane: "ready"})
	want("a ready job", ready)
	write(t, d, "UPDATE jobs SET run_at = 1000, created_at = 1000 WHERE id = $1", head)
	want("one whose time is over", head)
	write(t, d, "DELETE FROM jobs WHERE id = $1", head)
	write(t, d, "UPDATE jobs SET created_at = 1000 WHERE id = $1", behind)
	want("the one behind it", behind)
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return q.ReleaseLaneTx(t.Context(), tx, "k", "held") }); err != nil {
		t.Fatal(err)
	}
	write(t, d, "UPDATE jobs SET created_at = 500 WHERE id = $1", held)
	want("one whose lane is released", held)
}
