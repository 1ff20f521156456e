package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// TestOutgoingHold: outgoing jobs wait for the release, also those enqueued during the hold and
// those of a process that starts later; other jobs run.
func TestOutgoingHold(t *testing.T) {
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	ctx := context.Background()
	ran := make(chan string, 10)
	process := func() *queue.Queue {
		q := queue.Open(dbtest.Open(t, url), queue.Config{Poll: 20 * time.Millisecond})
		run := func(_ context.Context, j *queue.Job) error {
			ran <- j.Kind + " " + string(j.Payload)
			return nil
		}
		start(t, q, queue.Worker{Kind: "out", Outgoing: true, Ordered: true, Run: run}, queue.Worker{Kind: "in", Run: run})
		t.Cleanup(func() { stop(q) })
		return q
	}
	want := func(jobs ...string) {
		t.Helper()
		var got []string
		for range jobs {
			select {
			case job := <-ran:
				got = append(got, job)
			case <-time.After(20 * time.Second):
				t.Fatalf("ran %q, want %q", got, jobs)
			}
		}
		if !slices.Equal(got, jobs) {
			t.Fatalf("ran %q, want %q", got, jobs)
		}
	}
	hold := func(h queue.Hold) {
		t.Helper()
		if err := d.Write(ctx, func(tx *db.Tx) error { return queue.HoldOutgoingTx(ctx, tx, h) }); err != nil {
			t.Fatal(err)
		}
	}

	before := process()
	enqueue(t, d, before, queue.New{Kind: "out", Lane: "l", Payload: []byte("0")})
	want("out 0")
	before.Stop(ctx) // once the end of the job is recorded
	a := process()
	hold(queue.Hold{Reason: "tested"})
	hold(queue.Hold{Reason: "again", Restored: true})
	h, held, err := queue.OutgoingHold(ctx, d)
	if err != nil || !held || h.Reason != "tested" || !h.Restored || h.Since.IsZero() {
		t.Fatalf("hold is %+v, %v, %v", h, held, err)
	}
	b := process()
	for _, text := range []string{"1", "2", "3"} {
		enqueue(t, d, a, queue.New{Kind: "out", Lane: "l", Payload: []byte(text)})
	}
	// A job that runs after them in both processes' walks shows that they were passed over.
	for range 2 {
		enqueue(t, d, b, queue.New{Kind: "in", Lane: "l", Payload: []byte("4")})
		want("in 4")
	}
	if due, found, err := a.OldestDue(ctx); err != nil || found {
		t.Errorf("due: %+v, %v, %v; want none while held", due, found, err)
	}
	waiting, err := b.OutgoingJobs(ctx)
	if err != nil || len(waiting) != 1 || waiting[0].Kind != "out" || waiting[0].Jobs != 3 || waiting[0].Oldest.IsZero() {
		t.Errorf("waiting: %+v, %v", waiting, err)
	}
	// By a process that runs nothing, such as a command.
	idle := queue.Open(d, queue.Config{})
	if err := d.Write(ctx, func(tx *db.Tx) error { return idle.ReleaseOutgoingTx(ctx, tx) }); err != nil {
		t.Fatal(err)
	}
	want("out 1", "out 2", "out 3")
	if _, held, err := queue.OutgoingHold(ctx, d); err != nil || held {
		t.Errorf("held: %v, %v after the release", held, err)
	}
}
