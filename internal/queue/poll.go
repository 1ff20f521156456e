package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// sqlPollKinds reads for each of the kinds $1 whether it has ready jobs or leases that expired
// before $2, and when its first scheduled job is due.
const sqlPollKinds = `
SELECT k.value,
	EXISTS (SELECT 1 FROM jobs j WHERE j.kind = k.value AND j.state = 0)
	OR EXISTS (SELECT 1 FROM jobs j WHERE j.kind = k.value AND j.state = 2 AND j.lease_until < $2),
	(SELECT min(j.run_at) FROM jobs j WHERE j.kind = k.value AND j.state = 1)
FROM unnest($1::text[]) AS k(value)`

// pollKinds polls the database until ctx ends: one statement for all kinds finds work that no
// notification announced. So an idle process costs one statement per poll.
func (q *Queue) pollKinds(ctx context.Context) {
	kinds := make([]string, 0, len(q.runners))
	for kind := range q.runners {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		timer.Reset(q.poll + rand.N(q.poll/4+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := q.pollKindsOnce(ctx, kinds); ctx.Err() == nil {
			q.troubles.finding.Observe(ctx, err)
		}
	}
}

func (q *Queue) pollKindsOnce(ctx context.Context, kinds []string) error {
	type found struct {
		kind string
		look bool
		due  time.Time // zero: nothing is scheduled
	}
	var list []found
	err := q.db.Read(ctx, func(tx *db.Tx) error {
		if err := q.disableSeqScan(ctx, tx); err != nil {
			return err
		}
		var err error
		list, err = db.All(ctx, tx, func(row db.Row) (f found, err error) {
			err = row.Scan(&f.kind, &f.look, db.IntoTime(&f.due))
			return f, err
		}, sqlPollKinds, kinds, tx.Now.UnixMicro())
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range list {
		r := q.runners[f.kind]
		if f.look {
			r.requestScan()
		}
		if !f.due.IsZero() {
			r.wakeAt(f.due)
		}
	}
	return nil
}
