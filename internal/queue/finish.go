package queue

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// maxFinish bounds the jobs that one statement finishes.
const maxFinish = 256

// sqlFinishMany deletes the jobs $1 under their leases; $2 has each job's id and lease.
const sqlFinishMany = `
DELETE FROM jobs WHERE id = ANY($1) AND id || ' ' || lease = ANY($2)`

// errNotAll means that some jobs of a batch have lost their lease.
var errNotAll = errors.New("some jobs were not finished")

// finisher finishes jobs that ended at about the same time in one transaction: while it commits,
// the next jobs gather. It is safe for concurrent use.
type finisher struct {
	db *db.DB

	mu      sync.Mutex
	pending []ending
	running bool // flush
}

// ending is a job that waits for its end.
type ending struct {
	job  *Job
	done chan error
}

// finish deletes a job. If its batch fails, the error is not nil and nothing has changed, as far
// as is known; the caller then finishes the job alone.
func (f *finisher) finish(j *Job) error {
	e := ending{j, make(chan error, 1)}
	f.mu.Lock()
	f.pending = append(f.pending, e)
	if !f.running {
		f.running = true
		go f.flush()
	}
	f.mu.Unlock()
	return <-e.done
}

// flush finishes pending jobs until there are none.
func (f *finisher) flush() {
	for {
		runtime.Gosched() // jobs that were claimed together end together
		f.mu.Lock()
		batch := f.pending[:min(len(f.pending), maxFinish)]
		f.pending = f.pending[len(batch):]
		if len(batch) == 0 {
			f.pending, f.running = nil, false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		err := f.write(batch)
		for _, e := range batch {
			e.done <- err
		}
	}
}

func (f *finisher) write(batch []ending) error {
	ctx := context.Background()
	return f.db.Write(ctx, func(tx *db.Tx) error {
		if len(batch) == 1 {
			return batch[0].job.FinishTx(ctx, tx)
		}
		ids, leases := make([]string, len(batch)), make([]string, len(batch))
		for i, e := range batch {
			e.job.ending.Store(true)
			ids[i], leases[i] = e.job.ID, e.job.ID+" "+e.job.lease
		}
		n, err := tx.ExecPlanned(ctx, sqlFinishMany, ids, leases)
		if err == nil && n != int64(len(batch)) {
			err = errNotAll
		}
		tx.AfterCommit(func() {
			for _, e := range batch {
				e.job.ended = true
			}
		})
		return err
	})
}
