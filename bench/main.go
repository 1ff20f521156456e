// Command bench measures the main path against ceilings: the same work with the standard
// library and the database driver alone, in the same run, on the same machine. Compare
// ratios; absolute figures depend on the machine. `go run ./bench -help` explains its use.
//
// A measurement is in process, where nothing but rates is of interest, or from outside: a
// server of the built program, which clients of another process call. Clients, servers,
// PostgreSQL and receivers share the machine and its loopback interface.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// row is one line of the table.
type row struct {
	What    string `json:"what"`
	Got     string `json:"measured"`
	Ceiling string `json:"ceiling,omitempty"`
	Ratio   string `json:"ratio,omitempty"`
	Aim     string `json:"aim,omitempty"`
}

// benchmark is one measurement, which may yield several rows.
type benchmark struct {
	name     string
	section  string
	about    string
	postgres bool // it needs a PostgreSQL server
	run      func(ctx context.Context, b *bench) ([]row, error)
}

// Sections of the page.
const (
	mainPath  = "Main path"
	underLoad = "Under a sustained load"
	requests  = "Requests"
	pages     = "Lists and pages"
	costs     = "Cost"
	growths   = "Growth"
	onServer  = "PostgreSQL"
	curves    = "Several processes on PostgreSQL"
	fleets    = "Fleet"
	atRest    = "At rest"
)

var benchmarks = []benchmark{
	{"sms accept", mainPath, "signed texts accepted durably, without processing", false, acceptSMS},
	{"sms accept while busy", mainPath, "latency of accepting beside a backlog", false, acceptWhileBusy},
	{"sms to ticket", mainPath, "accepted texts processed", false, smsToTicket},
	{"deliveries", mainPath, "waiting deliveries sent to 1 and 10 receivers", false, deliveries},
	{"hanging receivers", mainPath, "latency of deliveries beside receivers that hang", false, slowReceivers},
	{"beside a backlog", mainPath, "a new webhook beside a million waiting deliveries", false, besideBacklog},
	{"sustained", underLoad, "texts accepted and processed at once, from outside", false, onSQLite(sustained)},
	{"password sign-ins", requests, "sign-ins against bare argon2id", false, passwordSignIns},
	{"signin beside wrong ones", requests, "sign-ins beside an address with wrong passwords", false, signInBesideWrong},
	{"auth.getUser", requests, "the cheapest procedure of a session", false, getUser},
	{"keyed GET", requests, "a ticket read with an API key", false, onSQLite(keyedGet)},
	{"keyed POST", requests, "tickets created with an API key", false, keyedPost},
	{"compression", requests, "a list by each coding", false, compression},
	{"lists of tickets", pages, "lists and searches over 1,000,000 tickets", false, listOfTickets},
	{"inbox", pages, "the inbox over 1,000,000 tickets", false, inboxPages},
	{"cost", costs, "CPU, bytes, statements and allocations per text, delivery and request", false, onSQLite(cost)},
	{"growth", growths, "operations at 10^4, 10^5 and 10^6 tickets, with the exponent", false, growth},
	{"postgres accept", onServer, "signed texts accepted durably", true, onPostgres(acceptOn)},
	{"postgres sustained", onServer, "texts accepted and processed at once, from outside", true, onPostgres(sustained)},
	{"postgres deliveries", onServer, "waiting deliveries sent to 1 and 10 receivers", true, onPostgres(deliveriesOn)},
	{"postgres keyed GET", onServer, "a ticket read with an API key", true, onPostgres(keyedGet)},
	{"postgres cost", onServer, "CPU, bytes, statements, round trips and allocations", true, onPostgres(cost)},
	{"postgres queue", onServer, "jobs that do nothing, beside river's", true, noopJobs},
	{"postgres workers", curves, "texts processed by 1, 2 and 4 processes, for 1 and 100 organizations", true, workersOnMachine},
	{"postgres workers apart", curves, "the same with a delay per round trip: processes with cores of their own, simulated", true, workersApart},
	{"fleet", fleets, "the fleet's API over 5,000,000 rides", false, fleetUnderLoad},
	{"telemetry", fleets, "reports of 20,000 vehicles accepted durably", false, onSQLite(telemetryAccepted)},
	{"fleet day", fleets, "20,000 vehicles report every five seconds for five minutes, beside rides and reads", false, onSQLite(fleetDay)},
	{"postgres telemetry", onServer, "the same", true, onPostgres(telemetryAccepted)},
	{"idle", atRest, "an idle server", false, idle},
}

func onSQLite(run func(ctx context.Context, b *bench, e engine) ([]row, error)) func(ctx context.Context, b *bench) ([]row, error) {
	return func(ctx context.Context, b *bench) ([]row, error) { return run(ctx, b, sqlite) }
}

func onPostgres(run func(ctx context.Context, b *bench, e engine) ([]row, error)) func(ctx context.Context, b *bench) ([]row, error) {
	return func(ctx context.Context, b *bench) ([]row, error) { return run(ctx, b, postgres) }
}

// selected returns the benchmarks that a list of names selects: each name selects the
// benchmark of that name, or those whose names contain it.
func selected(only string) ([]benchmark, error) {
	if only == "" {
		return benchmarks, nil
	}
	chosen := make([]bool, len(benchmarks))
	for name := range strings.SplitSeq(only, ",") {
		name = strings.TrimSpace(name)
		exact := slices.IndexFunc(benchmarks, func(m benchmark) bool { return m.name == name })
		found := exact >= 0
		for i, m := range benchmarks {
			if i == exact || exact < 0 && strings.Contains(m.name, name) {
				chosen[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no benchmark is named like %q; -list names them", name)
		}
	}
	var list []benchmark
	for i, m := range benchmarks {
		if chosen[i] {
			list = append(list, m)
		}
	}
	return list, nil
}

// options are the flags.
type options struct {
	only     string
	list     bool
	short    bool
	json     bool
	write    bool
	page     bool
	keep     string
	postgres string
	program  string
	duration time.Duration
	delay    time.Duration
	profile  string

	compare   string
	pairs     int
	failBelow float64

	role string // of a process that the program starts itself
}

const usage = `Bench measures Kickstand against ceilings and peers.

  go run ./bench                             all rows; writes docs/benchmarks.md
  go run ./bench -short                      small loads, a smoke test; writes nothing
  go run ./bench -list                       names of the benchmarks
  go run ./bench -only "sms accept,cost"     only these, by name or a part of it
  go run ./bench -only growth -write         replaces these rows in docs/benchmarks.md
  go run ./bench -only sustained -json       rows as JSON
  go run ./bench -page                       draws the page anew from docs/benchmarks/results.json
  go run ./bench -keep DIR                   stores the generated data, which takes longest, or reuses it
  go run ./bench -postgres URL               with the rows of PostgreSQL, in databases of its own
  go run ./bench -compare v0.1.0             the working tree against a revision
  go run ./bench -compare HEAD~3 HEAD -short -only "deliveries,keyed GET" -pairs 9

How to read a row: MEASURED is Kickstand, CEILING the same work by plain means in the same
run, RATIO the first by the second. Other work on the machine disturbs costs least, ratios
less than rates, and tails (p99) most: stop it before a run for the record.

-compare OLD [NEW] builds two revisions, each in a work tree of its own, and runs each
benchmark of both alternately: OLD NEW, NEW OLD, … The default of NEW is the working tree. A
file is a built bench instead, measured with the built kickstand beside it. The table has
medians, and the median, least and greatest quotient of the pairs. Above 1, NEW is better,
whatever the unit: rates are divided NEW by OLD, times and costs OLD by NEW. Rows with a
ceiling compare their ratios.

PostgreSQL needs a user with the right to create databases and, for the share of waiting
connections, to read pg_stat_activity. "postgres queue" runs river (bench/river, a module of
its own) if the module can be had.

Flags:
`

// parse reads the command line. Flags may follow arguments.
func parse(args []string, environment func(string) string, out io.Writer) (o options, compared []string, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprint(out, usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.only, "only", "", "measure only these benchmarks: `names` or parts of names, with commas")
	f.BoolVar(&o.list, "list", false, "list the benchmarks")
	f.BoolVar(&o.short, "short", false, "small loads; write nothing")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	f.BoolVar(&o.write, "write", false, "replace the measured rows in docs/benchmarks.md")
	f.BoolVar(&o.page, "page", false, "write docs/benchmarks.md and its charts from the stored results; measure nothing")
	f.StringVar(&o.keep, "keep", "", "keep the data that is made up in `folder`, or use what is there")
	f.StringVar(&o.postgres, "postgres", environment("KICKSTAND_TEST_DATABASE_URL"), "`URL` of a PostgreSQL server (default: KICKSTAND_TEST_DATABASE_URL); none skips its rows")
	f.StringVar(&o.program, "program", "", "measure this built `file` from outside instead of building cmd/kickstand")
	f.DurationVar(&o.duration, "duration", 0, "`time` of sustained rows, and at most of each point of a curve (default 1m; 2s with -short)")
	f.DurationVar(&o.delay, "delay", 2*time.Millisecond, "`time` added to each round trip to PostgreSQL where cores are simulated")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to `file`")
	f.StringVar(&o.compare, "compare", "", "compare revision or file `OLD` with NEW, the first argument (default: the working tree)")
	f.IntVar(&o.pairs, "pairs", 5, "`number` of pairs of runs that are compared")
	f.Float64Var(&o.failBelow, "fail-below", 0, "fail if a ratio or a cost is worse than this `quotient` in every pair")
	f.StringVar(&o.role, "as", "", "`role` of a process that bench starts itself")
	for {
		if err := f.Parse(args); err != nil {
			return o, nil, err
		}
		if f.NArg() == 0 {
			break
		}
		compared, args = append(compared, f.Arg(0)), f.Args()[1:]
	}
	switch {
	case o.compare == "" && len(compared) > 0 || len(compared) > 1:
		return o, nil, fmt.Errorf("unexpected argument %q", compared[len(compared)-1])
	case o.compare != "" && o.pairs < 1:
		return o, nil, errors.New("-pairs must be at least 1")
	case o.short && o.write:
		return o, nil, errors.New("-short measures nothing worth writing")
	}
	if o.duration == 0 {
		o.duration = time.Minute
		if o.short {
			o.duration = 2 * time.Second
		}
	}
	return o, compared, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	o, compared, err := parse(args, os.Getenv, os.Stderr)
	if err != nil {
		return err
	}
	if o.role != "" {
		return act(ctx, o.role, in, out)
	}
	chosen, err := selected(o.only)
	if err != nil {
		return err
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	switch {
	case o.list:
		return list(out, chosen)
	case o.page:
		stored, err := readReport(resultsPath("docs"))
		if err != nil {
			return err
		}
		return stored.writePage("docs")
	case o.compare != "":
		return compare(ctx, o, compared, chosen, out)
	}
	return measure(ctx, o, chosen, out)
}

func list(out io.Writer, chosen []benchmark) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, m := range chosen {
		fmt.Fprintf(t, "%s\t%s\n", m.name, m.about)
	}
	return t.Flush()
}

// bench has the values that the benchmarks share.
type bench struct {
	short    bool
	dir      string // temporary folder
	dataDir  string // persistent folder for generated data; empty: none
	postgres string // URL of a server; empty: none
	program  string // built program; empty: it is not built yet
	duration time.Duration
	delay    time.Duration

	databases int      // made so far
	figures   []figure // of the benchmark that runs
	tables    []table  // likewise
}

// scale returns n, or a small part of it in a short run.
func (b *bench) scale(n int) int {
	if b.short {
		return max(n/50, 64)
	}
	return n
}

// brief is [bench.scale] for operations of which a thousand take less than a second. Short
// runs make enough of them for a ratio that repeats itself.
func (b *bench) brief(n int) int {
	if b.short {
		return max(n/10, 64)
	}
	return n
}

// folder returns the folder of generated data, which is kept if the run keeps any.
func (b *bench) folder() string {
	if b.short {
		return b.dir
	}
	return cmp.Or(b.dataDir, b.dir)
}

func measure(ctx context.Context, o options, chosen []benchmark, out io.Writer) error {
	dir, err := os.MkdirTemp("", "kickstand-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{short: o.short, dir: dir, dataDir: o.keep, postgres: o.postgres, program: o.program, duration: o.duration, delay: o.delay}
	var rep report
	for _, m := range chosen {
		if m.postgres && b.postgres == "" {
			fmt.Fprintf(os.Stderr, "%s: skipped without a PostgreSQL server (-postgres URL)\n", m.name)
			continue
		}
		b.figures, b.tables = nil, nil
		start := time.Now()
		got, err := m.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		rep.add(m.name, got, b.figures, b.tables)
		fmt.Fprintf(os.Stderr, "%s: %s\n", m.name, time.Since(start).Round(time.Second))
		runtime.GC() // collects the garbage of the last measurement
	}
	if o.json {
		err = rep.encode(out, "")
	} else {
		err = rep.print(out)
	}
	if err != nil || !o.write && (o.short || o.only != "") {
		return err
	}
	return rep.write("docs")
}

// quantile returns the q-th quantile of the durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[max(int(math.Ceil(q*float64(len(d))))-1, 0)] // by nearest rank
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

func rate(r float64) string { return fmt.Sprintf("%.0f/s", r) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// besideCeiling is a row of a rate and its ratio to the ceiling's.
func besideCeiling(what string, got, ceiling float64, aim string) row {
	return row{what, rate(got), rate(ceiling), fmt.Sprintf("%.2f", got/ceiling), aim}
}

// latencyRow is a row of the median and the 99th percentile, in ms.
func latencyRow(what string, latencies []time.Duration, aim string) row {
	return row{What: what, Got: ms(quantile(latencies, 0.5)) + ", " + ms(quantile(latencies, 0.99)), Aim: aim}
}

// errorLogger returns a logger for errors only.
func errorLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// count returns the result of a counting query.
func count(ctx context.Context, d *db.DB, query string, args ...any) (int, error) {
	var n int
	err := d.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}
