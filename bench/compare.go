package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// build is a built bench of a revision.
type build struct {
	name    string
	path    string
	folder  string   // of its source, where it runs; empty: this folder
	program string   // built kickstand; empty: the bench builds it
	keep    string   // folder of generated data; empty: none is kept
	json    bool     // it prints JSON: older ones print a table only
	names   []string // of its benchmarks; nil: unknown
}

// compared is a figure of a row over the pairs.
type compared struct {
	What  string  `json:"what"`
	Old   float64 `json:"old"` // median
	New   float64 `json:"new"` // median
	Unit  string  `json:"unit"`
	Pairs []float64
	gated bool // it can fail the comparison
}

// compare builds two revisions, runs the chosen benchmarks alternately and prints how they
// compare.
func compare(ctx context.Context, o options, args []string, chosen []benchmark, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "kickstand-compare")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	newer := "."
	if len(args) > 0 {
		newer = args[0]
	}
	var builds []*build
	for i, name := range []string{o.compare, newer} {
		made, remove, err := buildBench(ctx, name, filepath.Join(dir, strconv.Itoa(i)))
		defer remove()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if o.keep != "" {
			if made.keep, err = filepath.Abs(filepath.Join(o.keep, []string{"old", "new"}[i])); err != nil {
				return err
			}
		}
		builds = append(builds, made)
	}
	var all []*compared
	for _, m := range chosen {
		list, err := compareOne(ctx, o, builds[0], builds[1], m)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	if err := printCompared(all, o, builds, out); err != nil {
		return err
	}
	return regressions(all, o.failBelow)
}

// buildBench builds the bench and the program of a revision into a folder, in a work tree of
// its own; "." is the working tree as it is, and a file is a built bench, with its program beside
// it. The caller calls remove, also after an error.
func buildBench(ctx context.Context, name, dir string) (b *build, remove func(), err error) {
	remove = func() {}
	b = &build{name: name}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		if b.path, err = filepath.Abs(name); err != nil {
			return b, remove, err
		}
		beside := filepath.Join(filepath.Dir(b.path), "kickstand")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			b.program = beside
		}
		return b, remove, b.probe(ctx)
	}
	source, err := filepath.Abs(".")
	if err != nil {
		return b, remove, err
	}
	if name != "." {
		source = filepath.Join(dir, "source")
		if out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--quiet", "--detach", source, name).CombinedOutput(); err != nil {
			return b, remove, fmt.Errorf("neither a file nor a revision: %s", strings.TrimSpace(string(out)))
		}
		remove = func() { exec.Command("git", "worktree", "remove", "--force", source).Run() }
	}
	b.folder, b.path, b.program = source, filepath.Join(dir, "bench"), filepath.Join(dir, "kickstand")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return b, remove, err
	}
	fmt.Fprintf(os.Stderr, "build %s\n", name)
	for path, pkg := range map[string]string{b.path: "./bench", b.program: "./cmd/kickstand"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
		cmd.Dir = source
		if out, err := cmd.CombinedOutput(); err != nil {
			return b, remove, fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
	}
	return b, remove, b.probe(ctx)
}

// probe finds out what the bench understands.
func (b *build) probe(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, b.path, "-help").CombinedOutput()
	if err != nil {
		return fmt.Errorf("is no bench: %w", err)
	}
	if b.json = strings.Contains(string(out), "-json"); !b.json {
		return nil
	}
	if out, err = exec.CommandContext(ctx, b.path, "-list").Output(); err != nil {
		return fmt.Errorf("list the benchmarks: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(line, "  ")
		b.names = append(b.names, strings.TrimSpace(name))
	}
	return nil
}

// has reports whether the build may have a benchmark.
func (b *build) has(name string) bool { return b.names == nil || slices.Contains(b.names, name) }

// run runs a benchmark once and returns its figures.
func (b *build) run(ctx context.Context, o options, m benchmark) ([]reading, error) {
	args := []string{"-only", m.name}
	if o.short {
		args = append(args, "-short")
	}
	if b.keep != "" {
		args = append(args, "-keep", b.keep)
	}
	if b.json {
		args = append(args, "-json", "-postgres", o.postgres, "-duration", o.duration.String(), "-delay", o.delay.String())
		if b.program != "" {
			args = append(args, "-program", b.program)
		}
	}
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = b.folder
	var trouble strings.Builder
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w: %s", m.name, b.name, err, trouble.String())
	}
	var rows []row
	if b.json {
		var r report
		if err := json.Unmarshal(out, &r); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", m.name, b.name, err)
		}
		for _, one := range r.Benchmarks {
			rows = append(rows, one.Rows...)
		}
	} else {
		rows = parseTable(string(out))
	}
	return readings(rows), nil
}

// compareOne runs a benchmark of both builds alternately. A benchmark that one of them does
// not have compares nothing.
func compareOne(ctx context.Context, o options, older, newer *build, m benchmark) ([]*compared, error) {
	if !older.has(m.name) || !newer.has(m.name) {
		return nil, nil
	}
	var list []*compared
	olds, news := map[string][]float64{}, map[string][]float64{}
	for pair := range o.pairs {
		var got [2][]reading
		order := []int{0, 1}
		if pair%2 == 1 {
			slices.Reverse(order) // neither is always the second
		}
		for _, i := range order {
			var err error
			if got[i], err = []*build{older, newer}[i].run(ctx, o, m); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(os.Stderr, "%s: pair %d of %d\n", m.name, pair+1, o.pairs)
		for _, r := range got[1] {
			i := slices.IndexFunc(got[0], func(q reading) bool { return q.what == r.what && q.unit == r.unit })
			if i < 0 {
				continue
			}
			olds[r.what], news[r.what] = append(olds[r.what], got[0][i].value), append(news[r.what], r.value)
			at := slices.IndexFunc(list, func(c *compared) bool { return c.What == r.what })
			if at < 0 {
				at, list = len(list), append(list, &compared{What: r.what, Unit: r.unit, gated: r.ratio || m.section == costs})
			}
			list[at].Pairs = append(list[at].Pairs, r.quotient(got[0][i]))
		}
		if len(list) == 0 {
			break
		}
	}
	for _, c := range list {
		c.Old, c.New = median(olds[c.What]), median(news[c.What])
	}
	return list, nil
}

// reading is a figure of a row.
type reading struct {
	what  string
	value float64
	unit  string
	ratio bool // to a ceiling
	less  bool // less is better
}

// quotient is how much better r is than an older reading: above 1, it is better.
func (r reading) quotient(older reading) float64 {
	switch {
	case r.value == older.value:
		return 1
	case r.less:
		return older.value / r.value
	}
	return r.value / older.value
}

// figures in texts of rows: "12520/s", "4.3 ms, 11.4 ms", "161 MB".
var quantity = regexp.MustCompile(`^(-?[0-9.]+) ?(.*)$`)

// readings returns the figures of rows. A row with a ceiling has its ratio only. Rows that
// begin with "…" are named after the row before.
func readings(rows []row) []reading {
	var list []reading
	subject := ""
	for _, one := range rows {
		what := one.What
		if rest, ok := strings.CutPrefix(what, "… "); ok {
			what = subject + ", " + rest
		} else {
			subject = what
		}
		perSecond := strings.HasSuffix(one.Got, "/s")
		if ratio, ok := ratioOf(one); ok {
			list = append(list, reading{what, ratio, "of the ceiling", true, !perSecond})
			continue
		}
		parts := strings.Split(one.Got, ", ")
		for i, part := range parts {
			m := quantity.FindStringSubmatch(part)
			if m == nil {
				continue
			}
			value, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				continue
			}
			name := what
			if len(parts) > 1 {
				name += fmt.Sprintf(" [%d]", i+1)
			}
			list = append(list, reading{name, value, m[2], false, m[2] != "/s"})
		}
	}
	return list
}

// ratioOf returns the ratio of a row to its ceiling, if it has one.
func ratioOf(r row) (float64, bool) {
	number, _, _ := strings.Cut(r.Ratio, " ") // "0.92 of p99"
	v, err := strconv.ParseFloat(number, 64)
	return v, err == nil && r.Ceiling != ""
}

// parseTable reads the table that [report.print] writes.
func parseTable(text string) []row {
	var rows []row
	var starts []int // of columns, in runes
	for line := range strings.Lines(text) {
		runes := []rune(strings.TrimRight(line, "\n"))
		if strings.HasPrefix(line, "WHAT ") {
			for _, name := range []string{"WHAT", "MEASURED", "CEILING", "RATIO", "AIM"} {
				starts = append(starts, strings.Index(line, name))
			}
			continue
		}
		if starts == nil {
			continue // before the table
		}
		column := func(i int) string {
			from, to := min(starts[i], len(runes)), len(runes)
			if i+1 < len(starts) {
				to = min(starts[i+1], len(runes))
			}
			return strings.TrimSpace(string(runes[from:to]))
		}
		rows = append(rows, row{column(0), column(1), column(2), column(3), column(4)})
	}
	return rows
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// printCompared writes a line per figure, or JSON.
func printCompared(all []*compared, o options, builds []*build, out io.Writer) error {
	if o.json {
		return json.NewEncoder(out).Encode(map[string]any{"old": builds[0].name, "new": builds[1].name, "rows": all})
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "WHAT\tOLD %s\tNEW %s\tQUOTIENT\tLEAST\tGREATEST\n", builds[0].name, builds[1].name)
	for _, c := range all {
		fmt.Fprintf(t, "%s\t%.4g %s\t%.4g %s\t%.2f\t%.2f\t%.2f\n", c.What, c.Old, c.Unit, c.New, c.Unit, median(c.Pairs), slices.Min(c.Pairs), slices.Max(c.Pairs))
	}
	return t.Flush()
}

// regressions returns an error if a ratio or a cost is worse than the limit in every pair: on a
// machine with other work, single pairs say little.
func regressions(all []*compared, limit float64) error {
	var wrong []string
	for _, c := range all {
		if c.gated && slices.Max(c.Pairs) < limit {
			wrong = append(wrong, fmt.Sprintf("%s: %.2f (%.2f to %.2f)", c.What, median(c.Pairs), slices.Min(c.Pairs), slices.Max(c.Pairs)))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("worse than %.2f in every pair:\n  %s", limit, strings.Join(wrong, "\n  "))
}
