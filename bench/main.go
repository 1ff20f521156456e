// Command bench measures the main path against ceilings: the same work with the standard
// library and the database driver alone, in the same run, on the same machine. Compare
// ratios; absolute figures depend on the machine.
//
//	go run ./bench               prints the table and writes docs/benchmarks.md
//	go run ./bench -only sms     measures the rows with "sms" in their name
//	go run ./bench -short        small loads, a smoke test; writes nothing
//	go run ./bench -keep DIR     stores the generated fleet and inbox, which take longest, or reuses them
//
// Clients, server and receivers share the machine and its loopback interface.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
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
	What    string
	Got     string
	Ceiling string
	Ratio   string
	Aim     string
}

// benchmark is one measurement, which may yield several rows.
type benchmark struct {
	name string
	run  func(ctx context.Context, b *bench) ([]row, error)
}

var benchmarks = []benchmark{
	{"sms accept", acceptSMS},
	{"sms accept while busy", acceptWhileBusy},
	{"sms to ticket", smsToTicket},
	{"deliveries", deliveries},
	{"hanging receivers", slowReceivers},
	{"beside a backlog", besideBacklog},
	{"password sign-ins", passwordSignIns},
	{"signin beside wrong ones", signInBesideWrong},
	{"auth.getUser", getUser},
	{"keyed GET", keyedGet},
	{"keyed POST", keyedPost},
	{"compression", compression},
	{"lists of tickets", listOfTickets},
	{"inbox", inboxPages},
	{"fleet", fleetUnderLoad},
	{"idle", idle},
}

// bench has the values that the benchmarks share.
type bench struct {
	short   bool
	dir     string // temporary folder
	dataDir string // persistent folder for fleet and inbox; empty: none
}

// scale returns n, or a small part of it in a short run.
func (b *bench) scale(n int) int {
	if b.short {
		return max(n/50, 64)
	}
	return n
}

func main() {
	only := flag.String("only", "", "measure only what `contains` this")
	short := flag.Bool("short", false, "small loads; write nothing")
	keep := flag.String("keep", "", "keep the fleet and the inbox that are made up in `folder`, or use those there")
	profile := flag.String("cpuprofile", "", "write a CPU profile to `file`")
	clients := flag.String("crowd", "", "sign in, as `JSON` says; for the program itself")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		defer f.Close()
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *clients != "" {
		if err := runCrowd(ctx, *clients); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if err := measure(ctx, *only, *short, *keep); err != nil {
		pprof.StopCPUProfile()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, only string, short bool, keep string) error {
	dir, err := os.MkdirTemp("", "kickstand-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{short: short, dir: dir, dataDir: keep}
	var rows []row
	for _, m := range benchmarks {
		if !strings.Contains(m.name, only) {
			continue
		}
		start := time.Now()
		got, err := m.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		rows = append(rows, got...)
		fmt.Fprintf(os.Stderr, "%s: %s\n", m.name, time.Since(start).Round(time.Second))
		runtime.GC() // collects the garbage of the last measurement
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tMEASURED\tCEILING\tRATIO\tAIM")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.What, r.Got, r.Ceiling, r.Ratio, r.Aim)
	}
	t.Flush()
	if short || only != "" {
		return nil
	}
	return write("docs/benchmarks.md", rows)
}

func write(path string, rows []row) error {
	var s strings.Builder
	s.WriteString(`# Benchmarks

Written by ` + "`go run ./bench`" + `. The ceiling is the same work with nothing but the
standard library and the database driver, measured in the same run; its code is
beside each benchmark. Clients, server and receivers share the machine.

| What | Measured | Ceiling | Ratio | Aim |
|---|---|---|---|---|
`)
	for _, r := range rows {
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s |\n", r.What, r.Got, r.Ceiling, r.Ratio, r.Aim)
	}
	fmt.Fprintf(&s, "\n%s, %s, %s/%s, %d cores (%s), SQLite with synchronous=FULL.\n",
		time.Now().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor())
	return os.WriteFile(path, []byte(s.String()), 0o644)
}

// processor returns the processor's name, if known.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// quantile returns the q-th quantile of the durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

func rate(r float64) string { return fmt.Sprintf("%.0f/s", r) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

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
