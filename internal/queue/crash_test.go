package queue_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// crashVariable makes this test binary the process to be killed; its value is the database URL.
const crashVariable = "KICKSTAND_TEST_CRASH"

// crashConfig recovers the jobs of a killed process quickly.
var crashConfig = queue.Config{Lease: 300 * time.Millisecond, Poll: 50 * time.Millisecond}

// crashWorker records the effect of each job in the transaction that ends it.
// Some jobs fail at first, in every way there is; event is called at moments
// that are worth being killed at.
func crashWorker(d *db.DB, event func()) queue.Worker {
	return queue.Worker{
		Kind: "k", PerLane: 2, Concurrency: 16,
		Retry: func(int, error) (time.Duration, bool) { return time.Millisecond, true },
		Run: func(ctx context.Context, j *queue.Job) error {
			event()
			if j.Attempt == 0 {
				switch j.ID[len(j.ID)-1] {
				case '0', '1':
					return errors.New("not yet")
				case '2', '3':
					return d.Write(ctx, func(tx *db.Tx) error { return j.RetryTx(ctx, tx, tx.Now.Add(time.Millisecond)) })
				case '4':
					panic("not yet")
				}
			}
			defer event()
			return d.Write(ctx, func(tx *db.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO effects (job) VALUES ($1)", j.ID); err != nil {
					return err
				}
				return j.FinishTx(ctx, tx)
			})
		},
	}
}

// TestCrashVictim is the process that [TestKilled] kills, not a test. It enqueues and works
// without end, and reports progress on standard output.
func TestCrashVictim(t *testing.T) {
	rawURL := os.Getenv(crashVariable)
	if rawURL == "" {
		t.Skip("run by TestKilled")
	}
	d := dbtest.Open(t, rawURL)
	event := func() { os.Stdout.WriteString(".\n") }
	q := queue.Open(d, crashConfig)
	start(t, q, crashWorker(d, event))
	var enqueuers sync.WaitGroup
	for range 4 {
		enqueuers.Go(func() {
			for i := 0; ; i++ {
				var jobs []queue.New
				for k := range 1 + i%3 {
					jobs = append(jobs, queue.New{ID: queue.NewID(), Kind: "k", Lane: fmt.Sprint(rand.IntN(10)), RunAt: time.Now().Add(time.Duration(k*i%7) * time.Millisecond)})
				}
				err := d.Write(context.Background(), func(tx *db.Tx) error {
					for _, j := range jobs {
						if _, err := tx.Exec(context.Background(), "INSERT INTO accepted (job) VALUES ($1)", j.ID); err != nil {
							return err
						}
					}
					if err := q.EnqueueTx(context.Background(), tx, jobs...); err != nil {
						return err
					}
					if i%5 == 4 {
						return errRefused
					}
					return nil
				})
				if err != nil && err != errRefused {
					t.Error(err)
					return
				}
				event()
			}
		})
	}
	enqueuers.Wait()
}

var errRefused = errors.New("refused")

// Repeatedly kills a process at random moments. Every committed change takes effect exactly
// once.
func TestKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testKilled(t, dbtest.SQLiteURL(t), 25) })
	t.Run("postgres", func(t *testing.T) {
		needPostgres(t)
		testKilled(t, dbtest.URL(t), 10)
	})
}

func testKilled(t *testing.T, rawURL string, times int) {
	d := dbtest.Open(t, rawURL)
	write(t, d, "CREATE TABLE accepted (job TEXT PRIMARY KEY)")
	write(t, d, "CREATE TABLE effects (job TEXT NOT NULL)")
	for range times {
		victim := exec.Command(os.Args[0], "-test.run=^TestCrashVictim$")
		victim.Env = append(os.Environ(), crashVariable+"="+rawURL)
		out, err := victim.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + rand.IntN(400) {
			if !lines.Scan() || lines.Text() != "." {
				t.Errorf("the process said %q and %v", lines.Text(), lines.Err())
				break
			}
		}
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		victim.Wait() // the error reports the kill
	}

	q := queue.Open(d, crashConfig)
	ended := make(chan struct{}, 1)
	worker := crashWorker(d, func() {})
	run := worker.Run
	worker.Run = func(ctx context.Context, j *queue.Job) error {
		err := run(ctx, j)
		select {
		case ended <- struct{}{}:
		default: // a pending notification suffices
		}
		return err
	}
	start(t, q, worker)
	for count(t, d, "1 = 1") > 0 {
		receive(t, ended)
	}
	q.Stop(t.Context())

	var accepted, effects, of int
	err := d.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM accepted), (SELECT count(*) FROM effects),
		(SELECT count(*) FROM accepted WHERE job IN (SELECT job FROM effects))`).Scan(&accepted, &effects, &of)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("killed %d times, %d jobs", times, accepted)
	if accepted == 0 || effects != accepted || of != accepted {
		t.Errorf("got %d effects, of %d of the %d jobs that were committed; want each once", effects, of, accepted)
	}
}
