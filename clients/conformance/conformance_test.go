// Package conformance runs programs of all client libraries against real servers: the first
// program of each README, a walk through the documentation of the APIs, and a program with a
// server that is killed between request and answer.
//
// KICKSTAND_TEST_CLIENTS names the languages to run, whose interpreters must be installed: a list
// with commas, or "all". Others are skipped. KICKSTAND_TEST_KILLS is the number of
// kills; 5 without it. KICKSTAND_TEST_TYPESCRIPT is a built copy of the TypeScript library.
package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// language is a client library and the way to run its programs.
type language struct {
	name string
	// needs are the commands that its programs need.
	needs []string
	// fence is the info string of the README's code block, and file the name of its program.
	fence, file string
	// prepare makes a folder in which the README's program finds the library.
	prepare func(t *testing.T, library, folder string)
	// run returns the command of a program. The folder is its working directory.
	run func(library, program string) []string
	// example returns the path of an example within the library.
	example string
	// check are the arguments of a command that checks programs without running them; paths follow.
	check func(library string) []string
	env   func(library string) []string // more variables, or nil
}

var languages = []language{
	{
		name: "go", needs: []string{"go"}, fence: "go", file: "main.go", example: "examples/%s/main.go",
		prepare: func(t *testing.T, library, folder string) {
			const module = "github.com/kickstand-dev/kickstand/clients/go"
			writeFile(t, filepath.Join(folder, "go.mod"), fmt.Sprintf("module first\n\ngo 1.24\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, library))
		},
		run:   func(_, program string) []string { return []string{"go", "run", program} },
		check: func(string) []string { return []string{"go", "vet"} },
	},
	{
		name: "python", needs: []string{"python3"}, fence: "python", file: "first.py", example: "examples/%s.py",
		run:   func(_, program string) []string { return []string{"python3", program} },
		check: func(string) []string { return []string{"mypy", "--strict", "--scripts-are-modules"} },
		env:   func(library string) []string { return []string{"PYTHONPATH=" + filepath.Join(library, "src")} },
	},
	{
		name: "ruby", needs: []string{"ruby"}, fence: "ruby", file: "first.rb", example: "examples/%s.rb",
		run: func(library, program string) []string {
			return []string{"ruby", "-I", filepath.Join(library, "lib"), program}
		},
		check: func(string) []string {
			return []string{"ruby", "-w", "-e", "ARGV.each { |f| RubyVM::InstructionSequence.compile_file(f) }"}
		},
	},
	{
		name: "php", needs: []string{"php"}, fence: "php", file: "first.php", example: "examples/%s.php",
		prepare: func(t *testing.T, library, folder string) {
			writeFile(t, filepath.Join(folder, "vendor", "autoload.php"), fmt.Sprintf("<?php\nrequire '%s/autoload.php';\n", library))
		},
		run: func(_, program string) []string { return []string{"php", program} },
		check: func(string) []string {
			return []string{"php", "-r", "foreach (array_slice($argv, 1) as $f) token_get_all(file_get_contents($f), TOKEN_PARSE);", "--"}
		},
	},
	{
		name: "typescript", needs: []string{"node", "npm"}, fence: "ts", file: "first.mjs", example: "dist-test/examples/%s.js",
		prepare: func(t *testing.T, library, folder string) {
			scope := filepath.Join(folder, "node_modules", "@kickstand")
			if err := errors.Join(os.MkdirAll(scope, 0o755), os.Symlink(library, filepath.Join(scope, "client"))); err != nil {
				t.Fatal(err)
			}
		},
		run: func(_, program string) []string { return []string{"node", program} },
		check: func(library string) []string {
			return []string{filepath.Join(library, "node_modules", ".bin", "tsc"), "--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022", "--module", "nodenext",
				"--typeRoots", filepath.Join(library, "node_modules", "@types"), "--types", "node"}
		},
	},
}

// each runs a test for every language, or skips it.
func each(t *testing.T, test func(t *testing.T, l *language)) {
	forced := strings.Split(os.Getenv("KICKSTAND_TEST_CLIENTS"), ",")
	for i := range languages {
		l := &languages[i]
		t.Run(l.name, func(t *testing.T) {
			must := slices.Contains(forced, "all") || slices.Contains(forced, l.name)
			if !must {
				t.Skip("takes minutes: KICKSTAND_TEST_CLIENTS=all runs it")
			}
			for _, command := range l.needs {
				if _, err := exec.LookPath(command); err != nil {
					t.Fatal(err)
				}
			}
			test(t, l)
		})
	}
}

// library returns the folder of the library.
func (l *language) library(t *testing.T) string {
	t.Helper()
	if l.name == "typescript" && os.Getenv("KICKSTAND_TEST_TYPESCRIPT") != "" {
		return os.Getenv("KICKSTAND_TEST_TYPESCRIPT")
	}
	folder, err := filepath.Abs(filepath.Join("..", l.name))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// command returns the command of a program, which is a path. Its environment has the given
// variables and no others about Kickstand.
func (l *language) command(t *testing.T, ctx context.Context, program, folder string, env ...string) *exec.Cmd {
	return l.start(t, ctx, l.run(l.library(t), program), folder, env...)
}

// start returns a command in the environment of the library's programs.
func (l *language) start(t *testing.T, ctx context.Context, args []string, folder string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = folder, t.Output()
	// A program that starts others, like go run, ends with them.
	cmd.WaitDelay = time.Second
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KICKSTAND_") })
	if l.env != nil {
		cmd.Env = append(cmd.Env, l.env(l.library(t))...)
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// examplePath returns the path of an example program.
func (l *language) examplePath(t *testing.T, name string) string {
	return filepath.Join(l.library(t), filepath.FromSlash(fmt.Sprintf(l.example, name)))
}

// TestFirstProgram runs the first program of each README as written.
func TestFirstProgram(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		readme, err := os.ReadFile(filepath.Join(l.library(t), "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		text, ok := firstBlock(string(readme), l.fence)
		if !ok {
			t.Fatalf("the README has no block of %s", l.fence)
		}
		folder := t.TempDir()
		if l.prepare != nil {
			l.prepare(t, l.library(t), folder)
		}
		program := filepath.Join(folder, l.file)
		writeFile(t, program, text)
		d := startDemo(t)
		before := d.state(t)
		out, err := l.command(t, t.Context(), program, folder, d.env()...).Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		after := d.state(t)
		if after.tickets != before.tickets+1 || after.replies < 1 || after.ended != before.ended+1 {
			t.Errorf("before: %+v, after: %+v", before, after)
		}
		if !bytes.Contains(out, []byte("ticket.created")) {
			t.Errorf("no delivery was verified:\n%s", out)
		}
	})
}

// TestWalk runs the walks through docs/api/README.md and docs/api/fleet.md.
func TestWalk(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		d := startDemo(t)
		program := l.examplePath(t, "walk")
		out, err := l.command(t, t.Context(), program, l.library(t), d.env()...).Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if steps := bytes.Count(out, []byte("\n")); steps < 15 {
			t.Errorf("only %d steps:\n%s", steps, out)
		}
	})
}

// firstBlock returns the first code block of a language.
func firstBlock(text, fence string) (string, bool) {
	_, rest, ok := strings.Cut(text, "\n```"+fence+"\n")
	block, _, closed := strings.Cut(rest, "\n```\n")
	return block + "\n", ok && closed
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// program builds the server once, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "kickstand-conformance")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "kickstand")
	build := exec.Command("go", "build", "-o", path, "github.com/kickstand-dev/kickstand/cmd/kickstand")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func serverPath(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// demo is a running demo.
type demo struct {
	URL          string `json:"url"`
	LiveKey      string `json:"live_key"`
	FleetTestKey string `json:"fleet_test_key"`
}

func startDemo(t *testing.T) *demo {
	t.Helper()
	cmd := exec.Command(serverPath(t), "demo", "--still", "--map-tiles=none", "--listen=127.0.0.1:0", "--json")
	cmd.Dir, cmd.Stderr = t.TempDir(), t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Errorf("the demo ended with %v", err)
		}
	})
	var d demo
	if err := json.NewDecoder(out).Decode(&d); err != nil {
		t.Fatalf("the demo did not start: %v", err)
	}
	return &d
}

func (d *demo) env() []string {
	return []string{"KICKSTAND_URL=" + d.URL, "KICKSTAND_KEY=" + d.LiveKey, "KICKSTAND_FLEET_KEY=" + d.FleetTestKey}
}

// demoState counts records of a demo.
type demoState struct{ tickets, replies, ended int }

// state counts tickets, the replies of the newest ticket, and completed rides.
func (d *demo) state(t *testing.T) demoState {
	t.Helper()
	tickets := list(t, d.URL+"/api/v1/tickets?channel=api", d.LiveKey)
	s := demoState{tickets: len(tickets), ended: len(list(t, d.URL+"/sandbox/v1/rides?status=completed", d.FleetTestKey))}
	if len(tickets) > 0 {
		for _, m := range list(t, d.URL+"/api/v1/tickets/"+tickets[0].ID+"/messages", d.LiveKey) {
			if m.Kind == "reply" {
				s.replies++
			}
		}
	}
	return s
}
