package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

var (
	seed  = flag.Uint64("seed", 0, "simulate this seed only, and log each step")
	from  = flag.Uint64("from", 1, "the first seed")
	seeds = flag.Int("seeds", 0, "how many seeds; 0: as many as -days take, or 4 with -short")
	days  = flag.Int64("days", 500, "how many days of a node are simulated at least, without -seeds")
)

// childVariable is set in a child process, which simulates -seed.
const childVariable = "KICKSTAND_SIM_CHILD"

// threadsVariable is the number of threads with which a child simulates. A child that the runtime
// started with another number exits with the status anotherStart: each thread has a source of
// random numbers of its own, and seeds repeat themselves only if the same thread runs everything.
const (
	threadsVariable = "KICKSTAND_SIM_THREADS"
	anotherStart    = 3
)

// threads is the number of threads of a child, the least of some starts: whether the runtime
// starts one more depends on chance.
var threads = sync.OnceValue(func() int {
	least := 0
	for range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
		cmd.Env = childEnviron("0")
		out, _ := output(cmd, 1)
		var n int
		if _, err := fmt.Sscanf(out, "threads=%d", &n); err == nil && (least == 0 || n < least) {
			least = n
		}
	}
	return least
})

func childEnviron(threads string) []string {
	return []string{childVariable + "=1", threadsVariable + "=" + threads, "TMPDIR=.", "GOMAXPROCS=1",
		"GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMEMLIMIT=1GiB"}
}

// templateName is the database with all tables in the folder of a child process.
const templateName = "template.db"

// Samples of the heap take numbers from the source of the order of timers.
var _ = func() bool {
	if os.Getenv(childVariable) != "" {
		runtime.MemProfileRate = 0
	}
	return true
}()

// TestSim simulates seeds, each in a process of its own.
func TestSim(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		t.Skip("a child")
	}
	template := newTemplate(t)
	if *seed != 0 {
		r := child(t, template, *seed, os.Stdout)
		if r.failed {
			t.Errorf("seed %d failed: %s", *seed, r.output)
		}
		return
	}
	count := *seeds
	if count == 0 && testing.Short() {
		count = 4
	}
	begun := time.Now()
	var begunSeeds, simulated atomic.Int64 // simulated days in thousandths
	var failed atomic.Bool
	more := func() bool {
		return !failed.Load() && (count == 0 && simulated.Load() < *days*1000 || begunSeeds.Load() < int64(count))
	}
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for more() {
				seed := *from + uint64(begunSeeds.Add(1)) - 1
				r := child(t, template, seed, nil)
				simulated.Add(int64(r.days * 1000))
				if r.failed {
					t.Errorf("seed %d failed; replay it with: go test ./internal/sim -run TestSim -seed %[1]d\n%s", seed, r.output)
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	took := time.Since(begun)
	total := float64(simulated.Load()) / 1000
	t.Logf("%d seeds, %.0f node-days in %.1f s: %.1f node-days/s", begunSeeds.Load(), total, took.Seconds(), total/took.Seconds())
}

// TestReplay simulates a seed twice, and compares all steps. Both runs take the same ones where the
// kernel allows ptrace.
func TestReplay(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("seeds repeat themselves on Linux only")
	}
	if testing.Short() {
		t.Skip("part sim of CI runs it")
	}
	template := newTemplate(t)
	for _, seed := range []uint64{1, 2} {
		first, second := child(t, template, seed, nil), child(t, template, seed, nil)
		if first.steps == 0 || first.steps != second.steps || first.trace != second.trace {
			if !repeats.Load() {
				t.Skip("ptrace or personality is not allowed here, so seeds do not repeat themselves exactly")
			}
			t.Errorf("seed %d took %d steps with trace %x, then %d with %x", seed, first.steps, first.trace, second.steps, second.trace)
		}
	}
}

// newTemplate makes a database with all tables, and triggers that record changes.
func newTemplate(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), templateName)
	d, err := db.Open(t.Context(), "sqlite:"+path, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Migrate(t.Context(), db.Helpdesk); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		for _, s := range changesSQL {
			if _, err := tx.Exec(t.Context(), s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

const resultPrefix = "RESULT "

// result is what a child reports.
type result struct {
	failed bool
	days   float64
	steps  int
	trace  uint64
	output string
}

// child simulates a seed in another process. log receives each step; nil: none.
func child(t *testing.T, template string, seed uint64, log io.Writer) (r result) {
	// Paths and the environment are the same in each run: their lengths would change what the
	// child allocates.
	dir := t.TempDir()
	if err := os.Link(template, filepath.Join(dir, templateName)); err != nil {
		t.Fatal(err)
	}
	var out string
	var err error
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$", "-test.timeout=5m", fmt.Sprintf("-seed=%d", seed))
		cmd.Args[0] = "sim.test"
		cmd.Dir = dir
		cmd.Env = childEnviron(strconv.Itoa(threads()))
		if log != nil {
			cmd.Env = append(cmd.Env, childVariable+"_LOG=1")
		}
		out, err = output(cmd, seed)
		cancel()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != anotherStart {
			break
		}
	}
	if i := strings.Index(out, resultPrefix); i >= 0 {
		fmt.Sscanf(out[i:], resultPrefix+"days=%f steps=%d trace=%x", &r.days, &r.steps, &r.trace)
	}
	if log != nil {
		io.WriteString(log, out)
	}
	r.failed = err != nil || r.steps == 0
	r.output = out
	if len(r.output) > 4000 {
		r.output = "…" + r.output[len(r.output)-4000:]
	}
	if err != nil {
		r.output += err.Error()
	}
	return r
}

// TestChild simulates one seed.
func TestChild(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		t.Skip("run by TestSim")
	}
	if n := pprof.Lookup("threadcreate").Count(); strconv.Itoa(n) != os.Getenv(threadsVariable) {
		fmt.Printf("threads=%d\n", n)
		os.Exit(anotherStart)
	}
	cryptotest.SetGlobalRandom(t, *seed)
	var verbose io.Writer
	if os.Getenv(childVariable+"_LOG") != "" {
		verbose = os.Stdout
	}
	synctest.Test(t, func(t *testing.T) {
		w := run(t, *seed, templateName, verbose)
		for i, v := range w.model.violations {
			if i < 10 {
				t.Errorf("%s", v)
			}
		}
		fmt.Printf("\n"+resultPrefix+"days=%.3f steps=%d trace=%x tickets=%d deliveries=%d replies=%d nodes=%d\n",
			w.nodeTime.Hours()/24, w.sched.steps, w.sched.trace, len(w.model.tickets), len(w.model.deliveries), len(w.model.replies), w.started)
	})
}
