package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// varying matches the parts of a response that differ in every run.
var varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\b[a-z]{2,4}_[0-9A-Z]{26}\b|20\d\d-\d\d-\d\dT[0-9:.]+Z|curl/[0-9.]+|urn:request:[a-z0-9]+|"request_id":"[a-z0-9]+"|"number":\d+|/tickets/\d+`)

// base is the server's URL in the documentation.
const base = "http://127.0.0.1:8080"

// block is a code block of a page.
type block struct {
	line     int
	language string
	text     string
	reason   string // why it is not run; empty: it is
	prints   string // the following block with the expected output; empty: none
}

var (
	fence = regexp.MustCompile("(?ms)^(?: *<!-- not run: ([^\n]+?) -->\n+)?( *)```(\\w+)\n(.*?)^ *```\n")
	// inEmptyFolder marks a page that runs in a data folder of its own.
	inEmptyFolder = "<!-- commands run in an empty folder -->"
	// checkedElsewhere lists languages of blocks that other tests run or compile:
	// receivers in package webhook, ts in package rpc, the contact form in e2e.
	checkedElsewhere = []string{"go", "html", "java", "js", "php", "python", "ts"}
)

// blocks returns the blocks of a page, in order.
func blocks(page string) []block {
	var list []block
	end := -1
	for _, m := range fence.FindAllStringSubmatchIndex(page, -1) {
		b := block{line: 1 + strings.Count(page[:m[6]], "\n"), language: page[m[6]:m[7]]}
		if m[2] >= 0 {
			b.reason = page[m[2]:m[3]]
		}
		indent := page[m[4]:m[5]]
		for line := range strings.Lines(page[m[8]:m[9]]) {
			b.text += strings.TrimPrefix(line, indent)
		}
		isOutput := b.language == "json" || b.language == "text"
		if isOutput && len(list) > 0 && list[len(list)-1].language == "sh" && strings.TrimSpace(page[end:m[0]]) == "" {
			list[len(list)-1].prints = b.text
		}
		list = append(list, b)
		end = m[1]
	}
	return list
}

// TestDocs runs the shell blocks of every page in the folder of a running demo, one shell
// per page, and compares their output with the following block. Data blocks are parsed. A
// preceding comment says why a block is not run.
func TestDocs(t *testing.T) {
	t.Parallel()
	dbtest.OnlySQLite(t)
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("pasting commands takes %s", program)
		}
	}
	demo := startDemoProcess(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pages := pagesBelow(t, root)
	if len(pages) < 30 {
		t.Fatalf("found only %d pages", len(pages))
	}
	run, left := 0, 0
	for _, name := range pages {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		p := page{name: name, demo: demo, text: string(text)}
		var scripts []block
		for _, b := range blocks(p.text) {
			switch {
			case b.reason != "":
				left++
				t.Logf("%s:%d is not run: %s", name, b.line, b.reason)
				if len(b.reason) < 12 || b.language != "sh" {
					t.Errorf("%s:%d: %q is no reason not to run a block of %s", name, b.line, b.reason, b.language)
				}
			case b.language == "sh":
				run++
				scripts = append(scripts, b)
			default:
				checkData(t, name, b)
			}
		}
		if len(scripts) > 0 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p.paste(t, scripts)
			})
		}
	}
	if run < 80 || left > 33 {
		t.Errorf("%d blocks are run and %d are not, want at least 80 and at most 33", run, left)
	}
}

// pagesBelow returns README.md, the other pages in the root, and docs/.
func pagesBelow(t *testing.T, root string) []string {
	t.Helper()
	var list []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) == ".md" {
			list = append(list, name)
			return err
		}
		if d.IsDir() && name != "." && name != "docs" && !strings.HasPrefix(name, "docs/") {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checkData parses a data block.
func checkData(t *testing.T, page string, b block) {
	t.Helper()
	switch b.language {
	case "json": // one value, or one per line
		d := json.NewDecoder(strings.NewReader(b.text))
		for d.More() {
			var v any
			if err := d.Decode(&v); err != nil {
				t.Errorf("%s:%d is not JSON: %v", page, b.line, err)
				return
			}
		}
	case "ini":
		for line := range strings.Lines(b.text) {
			if !regexp.MustCompile(`^(\[\w+\]|\w+=.*)\n$`).MatchString(line) {
				t.Errorf("%s:%d: %q is neither a section nor a setting", page, b.line, line)
			}
		}
	case "text", "mermaid":
	default:
		if !slices.Contains(checkedElsewhere, b.language) {
			t.Errorf("%s:%d: nothing checks blocks of %s", page, b.line, b.language)
		}
	}
}

// page is a page of the documentation.
type page struct {
	name, text string
	demo       demoProcess
}

// refusal matches the APIs' error responses, which curl prints like others.
var refusal = regexp.MustCompile(`"error":\s*\{|/problems/`)

// between separates the output of blocks.
const between = "\x1e"

// paste runs the blocks in one shell in a folder of their own. The commands kickstand and
// `go run ./cmd/kickstand` are this program.
func (p *page) paste(t *testing.T, scripts []block) {
	folder, bin := t.TempDir(), t.TempDir()
	if !strings.Contains(p.text, inEmptyFolder) {
		if err := os.Symlink(filepath.Join(p.demo.folder, demoFolder), filepath.Join(folder, demoFolder)); err != nil {
			t.Fatal(err)
		}
	}
	program := "#!/bin/sh\n" + asProgram + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	for _, path := range []string{filepath.Join(bin, "kickstand"), filepath.Join(folder, "kickstand")} {
		if err := os.WriteFile(path, []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var script strings.Builder
	script.WriteString("set -eu\ngo() { shift 2; kickstand \"$@\"; }\n") // go run ./cmd/kickstand …
	for _, b := range scripts {
		for _, program := range []string{"openssl", "sqlite3"} {
			if _, err := exec.LookPath(program); err != nil && strings.Contains(b.text, program+" ") {
				t.Skipf("pasting the commands of %s takes %s", p.name, program)
			}
		}
		script.WriteString(strings.ReplaceAll(b.text, base, p.demo.URL) + "printf '\\036'\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script.String())
	shell.Dir, shell.WaitDelay = folder, time.Second
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	var trouble strings.Builder
	shell.Stderr = &trouble
	out, err := shell.Output()
	printed := strings.Split(strings.ReplaceAll(string(out), p.demo.URL, base), between)
	if err != nil {
		t.Fatalf("%s:%d: %v\n%s\n%s", p.name, scripts[len(printed)-1].line, err, printed[len(printed)-1], &trouble)
	}
	for i, b := range scripts {
		if b.prints == "" {
			if refusal.MatchString(printed[i]) {
				t.Errorf("%s:%d is refused:\n%s", p.name, b.line, printed[i])
			}
			continue
		}
		got, want := varying.ReplaceAllString(printed[i], "…"), varying.ReplaceAllString(b.prints, "…")
		if got != want {
			t.Errorf("%s:%d prints\n%s\nwant\n%s", p.name, b.line, got, want)
		}
	}
}

// demoProcess is a demo in a process of its own.
type demoProcess struct {
	URL    string `json:"url"`
	folder string // working directory
}

func startDemoProcess(t *testing.T) demoProcess {
	t.Helper()
	d := demoProcess{folder: t.TempDir()}
	demo := exec.Command(os.Args[0], "demo", "--still", "--map-tiles=none", "--listen=127.0.0.1:0", "--json")
	demo.Dir, demo.Env, demo.Stderr = d.folder, append(os.Environ(), asProgram+"=1"), t.Output()
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(demo.Process.Signal(os.Interrupt), demo.Wait()); err != nil {
			t.Errorf("the demo ended with %v", err)
		}
	})
	if err := json.NewDecoder(out).Decode(&d); err != nil {
		t.Fatalf("the demo did not start: %v", err)
	}
	for range poll(t, 30*time.Second) { // until its first messages are tickets
		list := exec.Command(os.Args[0], "inbound", "list", "--state=accepted", "--json")
		list.Dir, list.Env, list.Stderr = d.folder, demo.Env, t.Output()
		waiting, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(waiting, []byte(`"events": []`)) {
			break
		}
	}
	return d
}
