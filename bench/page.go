package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const pageHead = `# Benchmarks

Written by ` + "`go run ./bench`" + `, whose ` + "`-help`" + ` explains how to measure, to select and to compare. A ceiling is the same work with nothing but
the standard library and the database driver, measured in the same run; its code is beside each benchmark. Clients, servers,
PostgreSQL and receivers share the machine, so compare ratios.

SQLite runs with synchronous=FULL: whatever is counted is on disk.
`

// introductions are the texts at the begin of sections.
var introductions = map[string]string{
	underLoad: `A server of its own process accepts and processes at once; 64 clients of another process send one text after the other, each from a
new number, so each becomes a ticket. The ceiling is a bare server, also a process of its own: an HMAC, and inserts many per commit.
`,
	costs: `CPU, bytes and allocations are of a server, a process of its own, divided by the units of work. Bytes are those that the system
wrote for it, or PostgreSQL's write-ahead log. Statements are counted without those that begin and end transactions; claims and
commits of many jobs share theirs.
`,
	growths: `CPU of a server per operation, with more and more tickets stored. An exponent of 0.1 is a quarter more for ten times the tickets.
`,
	curves: `Worker processes share one PostgreSQL and make tickets of the same backlog of texts, each with its delivery written. Rows follow
how many of PostgreSQL's active connections waited meanwhile, sampled from pg_stat_activity: for locks (of rows, tables and
transactions), and for the server's inner, light ones.

Where each round trip has a delay, a proxy between the processes and PostgreSQL adds it: statements then cost time instead of the
processors that all processes share here, so the rest is the time that processes wait for one another. This is **simulated**: it says how
the curve bends, not how fast it is.
`,
}

// writePage writes the page and its charts.
func (r *report) writePage(docs string) error {
	var s strings.Builder
	s.WriteString(pageHead)
	if ratios := r.ratios(); len(ratios) > 0 {
		if err := writeChart(docs, "ratios", drawRatios(ratios)); err != nil {
			return err
		}
		image(&s, "ratios", "Ratio to the ceiling of the same run")
	}
	section := ""
	for i, m := range r.Benchmarks {
		of := benchmarks[slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == m.Name })]
		if of.section != section {
			section = of.section
			last := i
			for last+1 < len(r.Benchmarks) && sectionOf(r.Benchmarks[last+1].Name) == section {
				last++
			}
			if err := writeSection(&s, docs, section, r.Benchmarks[i:last+1]); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(docs, "benchmarks.md"), []byte(s.String()), 0o644)
}

// sectionOf returns the section of a benchmark.
func sectionOf(name string) string {
	return benchmarks[slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == name })].section
}

func writeSection(s *strings.Builder, docs, title string, list []measured) error {
	fmt.Fprintf(s, "\n## %s\n\n", title)
	if text := introductions[title]; text != "" {
		s.WriteString(text + "\n")
	}
	s.WriteString("| What | Measured | Ceiling | Ratio | Aim |\n|---|---|---|---|---|\n")
	for _, m := range list {
		for _, one := range m.Rows {
			fmt.Fprintf(s, "| %s | %s | %s | %s | %s |\n", cell(one.What), one.Got, one.Ceiling, one.Ratio, one.Aim)
		}
	}
	for _, m := range list {
		for _, f := range m.Figures {
			if err := writeChart(docs, f.Name, f.draw()); err != nil {
				return err
			}
			image(s, f.Name, f.Title)
		}
	}
	for _, m := range list {
		for _, t := range m.Tables {
			t.write(s)
		}
	}
	writeOrigin(s, list)
	return nil
}

// writeOrigin says when, of which commit and where rows were measured.
func writeOrigin(s *strings.Builder, list []measured) {
	var origins []string
	of := map[string][]string{}
	for _, m := range list {
		o := m.Date
		if m.Commit != "" {
			o += ", commit " + m.Commit
		}
		o += ", " + m.Machine
		if of[o] == nil {
			origins = append(origins, o)
		}
		of[o] = append(of[o], m.Name)
	}
	s.WriteString("\n")
	for i, o := range origins {
		if i > 0 {
			s.WriteString("\\\n")
		}
		if len(origins) > 1 {
			s.WriteString(strings.Join(of[o], ", ") + ": ")
		}
		s.WriteString(o + ".")
	}
	s.WriteString("\n")
}

// write writes the table in Markdown, folded.
func (t table) write(s *strings.Builder) {
	fmt.Fprintf(s, "\n<details><summary>%s</summary>\n\n| %s |\n|%s\n", t.Title, strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
	for _, r := range t.Rows {
		cells := slices.Clone(r)
		cells[len(cells)-1] = "`" + cell(strings.ReplaceAll(cells[len(cells)-1], "`", "'")) + "`"
		fmt.Fprintf(s, "| %s |\n", strings.Join(cells, " | "))
	}
	s.WriteString("\n</details>\n")
}

// cell escapes a cell of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func image(s *strings.Builder, name, title string) {
	fmt.Fprintf(s, "\n![%s](benchmarks/%s.svg)\n", title, name)
}

func writeChart(docs, name, svg string) error {
	return os.WriteFile(filepath.Join(docs, "benchmarks", name+".svg"), []byte(svg), 0o644)
}
