package main

import (
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	environment := func(string) string { return "postgres://there" }
	for _, test := range []struct {
		args string
		want string // part of the error; empty: none
		ok   func(o options, compared []string) bool
	}{
		{"", "", func(o options, _ []string) bool { return o.duration == time.Minute && o.postgres == "postgres://there" }},
		{"-short -postgres=", "", func(o options, _ []string) bool { return o.duration == 2*time.Second && o.postgres == "" }},
		{"-compare a b -short -pairs 3", "", func(o options, compared []string) bool {
			return o.compare == "a" && slices.Equal(compared, []string{"b"}) && o.short && o.pairs == 3
		}},
		{"-compare a", "", func(o options, compared []string) bool { return o.compare == "a" && compared == nil }},
		{"-compare a b c", "unexpected", nil},
		{"sms", "unexpected", nil},
		{"-compare a -pairs 0", "-pairs", nil},
		{"-short -write", "-short", nil},
	} {
		o, compared, err := parse(strings.Fields(test.args), environment, io.Discard)
		switch {
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: got error %v, want %q", test.args, err, test.want)
		case test.want == "" && (err != nil || !test.ok(o, compared)):
			t.Errorf("%q: got %+v, %q, %v", test.args, o, compared, err)
		}
	}
	var help strings.Builder
	if _, _, err := parse([]string{"-help"}, environment, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "How to read a row") {
		t.Errorf("got help %q, %v", help.String(), err)
	}
}

func TestSelected(t *testing.T) {
	for _, test := range []struct{ only, want string }{
		{"sms accept", "sms accept"},
		{"sms a, idle", "sms accept, sms accept while busy, idle"},
		{"cost,keyed", "keyed GET, keyed POST, cost, postgres keyed GET"},
	} {
		list, err := selected(test.only)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range list {
			names = append(names, m.name)
		}
		if got := strings.Join(names, ", "); got != test.want {
			t.Errorf("%s: selected %s, want %s", test.only, got, test.want)
		}
	}
	if list, err := selected(""); err != nil || len(list) != len(benchmarks) {
		t.Errorf("without a selection: got %d benchmarks, %v", len(list), err)
	}
	if _, err := selected("nothing"); err == nil {
		t.Error("an unknown name is accepted")
	}
}

func TestExponent(t *testing.T) {
	for _, want := range []float64{0, 0.5, 1, 2} {
		var costs []float64
		sizes := []int{10_000, 100_000, 1_000_000}
		for _, size := range sizes {
			costs = append(costs, 3*math.Pow(float64(size), want))
		}
		if got := exponent(sizes, costs); math.Abs(got-want) > 1e-9 {
			t.Errorf("got %f, want %f", got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range [][2]string{
		{"SELECT 1\n\t\tFROM t", "SELECT 1 FROM t"},
		{"INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4), ($5, $6) RETURNING a", "INSERT INTO t (a, b) VALUES ($1, $2), … RETURNING a"},
		{"SELECT a FROM t WHERE b IN ($1, $2) AND c = $3", "SELECT a FROM t WHERE b IN ($1, $2) AND c = $3"},
	} {
		if got := shorten(test[0]); got != test[1] {
			t.Errorf("got %q, want %q", got, test[1])
		}
	}
}

// sample rows of each form.
var sampleRows = []row{
	{"deliveries", "900/s", "1000/s", "0.90", "≥ 0.5"},
	{"… latency p50, p99", "4.0 ms, 11.4 ms", "", "", "≤ 10 ms"},
	{"beside others", "3.0 ms, 6.0 ms", "2.0 ms, 5.0 ms", "1.20 of p99", "≤ 1.2"},
	{"… peak memory", "161 MB", "", "", ""},
	{"texts, CPU with 1 and 2 tickets", "10 µs, 12 µs", "", "n^0.10", "≤ n^0.1"},
}

// TestReadings: rows give the same figures as JSON and as a table of an older bench.
func TestReadings(t *testing.T) {
	want := []reading{
		{"deliveries", 0.9, "of the ceiling", true, false},
		{"deliveries, latency p50, p99 [1]", 4, "ms", false, true},
		{"deliveries, latency p50, p99 [2]", 11.4, "ms", false, true},
		{"beside others", 1.2, "of the ceiling", true, true},
		{"beside others, peak memory", 161, "MB", false, true},
		{"texts, CPU with 1 and 2 tickets [1]", 10, "µs", false, true},
		{"texts, CPU with 1 and 2 tickets [2]", 12, "µs", false, true},
	}
	if got := readings(sampleRows); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	r := report{Benchmarks: []measured{{Name: "deliveries", Rows: sampleRows}}}
	text := new(strings.Builder)
	text.WriteString("   3 tickets, printed before the table\n")
	if err := r.print(text); err != nil {
		t.Fatal(err)
	}
	if got := parseTable(text.String()); !slices.Equal(got, sampleRows) {
		t.Errorf("got rows %q\nof %s", got, text)
	}
}

func TestQuotient(t *testing.T) {
	faster, slower := reading{value: 200}, reading{value: 100}
	if got := faster.quotient(slower); got != 2 {
		t.Errorf("a doubled rate is %v", got)
	}
	shorter, longer := reading{value: 100, less: true}, reading{value: 200, less: true}
	if got := shorter.quotient(longer); got != 2 {
		t.Errorf("half the time is %v", got)
	}
	if got := (reading{less: true}).quotient(reading{}); got != 1 {
		t.Errorf("nothing beside nothing is %v", got)
	}
}

// script writes a program that acts as a built bench, which prints one rate of the given ratio.
func script(t *testing.T, ratio string) string {
	path := filepath.Join(t.TempDir(), "bench")
	text := `#!/bin/sh
case "$*" in
*-help*) echo "-json" >&2 ;;
*-list*) echo "keyed GET  a ticket"; echo "idle  a server" ;;
*POST*) exit 1 ;;
*"keyed GET"*) echo '{"benchmarks":[{"name":"keyed GET","rows":[{"what":"get","measured":"10/s","ceiling":"20/s","ratio":"` + ratio + `"}]}]}' ;;
*) echo '{"benchmarks":[]}' ;;
esac
`
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCompare: a regression beyond the limit in every pair fails, others do not, and a benchmark
// that one build does not have is left out.
func TestCompare(t *testing.T) {
	chosen, err := selected("keyed GET,idle,keyed POST")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		old, new string
		want     string // in the error; empty: none
	}{
		{"0.50", "0.49", ""},
		{"0.50", "0.90", ""},
		{"0.50", "0.40", "get: 0.80"},
	} {
		var out strings.Builder
		o := options{compare: script(t, test.old), pairs: 2, short: true, failBelow: 0.85}
		err := compare(t.Context(), o, []string{script(t, test.new)}, chosen, &out)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s to %s: got %v, want %q", test.old, test.new, err, test.want)
		}
		if lines := strings.Count(out.String(), "\n"); lines != 2 {
			t.Errorf("%s to %s: got\n%s", test.old, test.new, out.String())
		}
	}
}

// TestRegressionsNeedEveryPair: one good pair of a noisy machine is enough.
func TestRegressionsNeedEveryPair(t *testing.T) {
	all := []*compared{
		{What: "noisy", Pairs: []float64{0.4, 0.9, 0.5}, gated: true},
		{What: "a tail", Pairs: []float64{0.1, 0.1}},
	}
	if err := regressions(all, 0.85); err != nil {
		t.Error(err)
	}
	all[0].Pairs[1] = 0.8
	if err := regressions(all, 0.85); err == nil || strings.Contains(err.Error(), "tail") {
		t.Errorf("got %v", err)
	}
}

// TestProxy: a round trip is delayed and counted once, whatever its size.
func TestProxy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	const delay = 20 * time.Millisecond
	p, url, err := startProxy(context.Background(), "postgres://user@"+ln.Addr().String()+"/name", delay)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "postgres://user@"), "/name"))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 3 {
		answer := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "hello" {
			t.Fatalf("got %q, %v", answer, err)
		}
	}
	if took := time.Since(start); took < 3*delay {
		t.Errorf("three round trips took %s", took)
	}
	if n := p.trips.Load(); n != 3 {
		t.Errorf("counted %d round trips", n)
	}
	c.Close()
	p.close()
}

// sampleFigures are figures of each form.
var sampleFigures = []figure{
	{Name: "lines", Title: "64 clients keep sending <& more>", Panels: []panel{
		{Title: "Accepted per second", Unit: "/s", Line: true, Points: []point{{"1 s", 4000, ""}, {"2 s", 4500, ""}, {"3 s", 3900, ""}}},
		{Title: "None", Unit: "/s", Line: true},
	}},
	{Name: "bars", Title: "Worker processes", Note: "Below each bar: waits.", Panels: []panel{
		{Title: "1 organization", Unit: "/s", Points: []point{{"1 process", 400, "12.0 % wait"}, {"2 processes", 700, "20.0 % wait"}, {"4 processes", 650, "60.0 % wait"}}},
	}},
	{Name: "growth", Title: "CPU per operation", Note: "Both scales are logarithmic.", Sizes: []int{10_000, 100_000, 1_000_000}, Panels: []panel{
		{Title: "text → ticket", Unit: "µs", Points: []point{{"", 500, ""}, {"", 520, ""}, {"", 560, ""}}},
		{Title: "list of open tickets", Unit: "µs", Points: []point{{"", 480, ""}, {"", 900, ""}, {"", 1560, ""}}},
	}},
}

// TestCharts: charts are well-formed XML without impossible coordinates.
func TestCharts(t *testing.T) {
	charts := map[string]string{"ratios": drawRatios([]ratioBar{{"texts & more", 0.4, 0.5}, {"others", 1.7, 0}})}
	for _, f := range sampleFigures {
		charts[f.Name] = f.draw()
	}
	for name, svg := range charts {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s has impossible coordinates:\n%s", name, svg)
		}
		if folder := os.Getenv("KICKSTAND_TEST_PICTURES"); folder != "" {
			if err := os.WriteFile(filepath.Join(folder, name+".svg"), []byte(svg), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPage: the page of the documentation is that of the stored results, and results that are
// written replace those of the same benchmark only.
func TestPage(t *testing.T) {
	docs := t.TempDir()
	if err := os.CopyFS(filepath.Join(docs, "benchmarks"), os.DirFS("../docs/benchmarks")); err != nil {
		t.Fatal(err)
	}
	if err := new(report).write(docs); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(docs, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, filepath.Join(docs, "benchmarks.md")) {
		name, err := filepath.Rel(docs, path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("..", "docs", name)); err != nil || string(got) != string(want) {
			t.Errorf("docs/%s is not that of the stored results: run go run ./bench -page (%v)", name, err)
		}
	}

	var r report
	r.add("growth", sampleRows, sampleFigures, []table{{Title: "Statements", Head: []string{"Each", "Statement"}, Rows: [][]string{{"1.00", "SELECT a || b"}}}})
	if err := r.write(docs); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Growth", "(benchmarks/bars.svg)", `| 1.00 | ` + "`SELECT a \\|\\| b` |", "| deliveries | 900/s | 1000/s | 0.90 | ≥ 0.5 |", "## Main path"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}
