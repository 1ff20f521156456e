package queue_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// A worker finishes its job in the transaction that records the work.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "queue")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	d, err := db.Open(ctx, "sqlite:"+filepath.Join(dir, "jobs.db"), db.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Migrate(ctx, db.Helpdesk); err != nil {
		log.Fatal(err)
	}

	done := make(chan string)
	q := queue.Open(d, queue.Config{})
	q.Handle(queue.Worker{
		Kind: "greet",
		Run: func(ctx context.Context, j *queue.Job) error {
			greeting := "Hello, " + string(j.Payload)
			return d.Write(ctx, func(tx *db.Tx) error {
				// Store the result of the work here.
				tx.AfterCommit(func() { done <- greeting })
				return j.FinishTx(ctx, tx)
			})
		},
	})
	if err := q.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer q.Stop(ctx)

	err = d.Write(ctx, func(tx *db.Tx) error {
		// The job exists only if this transaction commits.
		return q.EnqueueTx(ctx, tx, queue.New{Kind: "greet", Lane: "ada", Payload: []byte("Ada")})
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-done)
	// Output: Hello, Ada
}
