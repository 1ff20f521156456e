package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the outcome of a run, or what docs/benchmarks has of several.
type report struct {
	Benchmarks []measured `json:"benchmarks"`
}

// measured is the outcome of a benchmark.
type measured struct {
	Name    string   `json:"name"`
	Date    string   `json:"date"`
	Commit  string   `json:"commit,omitempty"`
	Machine string   `json:"machine"`
	Rows    []row    `json:"rows"`
	Figures []figure `json:"figures,omitempty"`
	Tables  []table  `json:"tables,omitempty"`
}

// figure is a chart of the page.
type figure struct {
	Name   string  `json:"name"` // of the file
	Title  string  `json:"title"`
	Note   string  `json:"note,omitempty"`
	Sizes  []int   `json:"sizes,omitempty"` // logarithmic, with a line per panel; none: panels one below another
	Panels []panel `json:"panels"`
}

// panel is a part of a figure: bars, or a line.
type panel struct {
	Title  string  `json:"title"`
	Unit   string  `json:"unit"`
	Line   bool    `json:"line,omitempty"`
	Points []point `json:"points"`
}

type point struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`
	Note  string  `json:"note,omitempty"` // below the label
}

// table is a list beside the rows.
type table struct {
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
}

// draw adds a figure to the benchmark that runs.
func (b *bench) draw(f figure) { b.figures = append(b.figures, f) }

// add adds the outcome of a benchmark.
func (r *report) add(name string, rows []row, figures []figure, tables []table) {
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		commit = nil // outside of a repository
	}
	r.Benchmarks = append(r.Benchmarks, measured{
		Name: name, Date: time.Now().Format(time.DateOnly), Commit: strings.TrimSpace(string(commit)), Machine: machine(),
		Rows: rows, Figures: figures, Tables: tables,
	})
}

// print writes the rows as a table of text.
func (r *report) print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tMEASURED\tCEILING\tRATIO\tAIM")
	for _, m := range r.Benchmarks {
		for _, one := range m.Rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", one.What, one.Got, one.Ceiling, one.Ratio, one.Aim)
		}
	}
	return t.Flush()
}

// encode writes the report as JSON.
func (r *report) encode(out io.Writer, indent string) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(r)
}

// write replaces the measured benchmarks in a folder: the page benchmarks.md, and its charts
// and rows in the folder benchmarks.
func (r *report) write(docs string) error {
	path := resultsPath(docs)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	all, err := readReport(path)
	if err != nil {
		return err
	}
	all.replace(r.Benchmarks)
	var text bytes.Buffer
	if err := all.encode(&text, "\t"); err != nil {
		return err
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return err
	}
	return all.writePage(docs)
}

// resultsPath returns the path of the stored results.
func resultsPath(docs string) string { return filepath.Join(docs, "benchmarks", "results.json") }

// readReport reads stored results. A file that does not exist has none.
func readReport(path string) (report, error) {
	var all report
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// replace replaces benchmarks by newer outcomes. The order is that of the program, and those
// that it no longer has are dropped.
func (r *report) replace(newer []measured) {
	var all []measured
	for _, b := range benchmarks {
		named := func(m measured) bool { return m.Name == b.name }
		if i := slices.IndexFunc(newer, named); i >= 0 {
			all = append(all, newer[i])
		} else if i := slices.IndexFunc(r.Benchmarks, named); i >= 0 {
			all = append(all, r.Benchmarks[i])
		}
	}
	r.Benchmarks = all
}
