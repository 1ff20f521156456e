package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// helpOf returns the help of a command on a terminal of fixed width.
func helpOf(t *testing.T, path []string, flag string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(slices.Clone(path), flag), noEnvironment, nil, &out, t.Output()); err != nil {
		t.Errorf("%v %s: %v", path, flag, err)
	}
	return out.String()
}

// TestHelp checks the help of every command: its own flags precede those of every
// command; the server's settings are in --help-all only; no line exceeds 100 columns; and
// examples parse.
func TestHelp(t *testing.T) {
	t.Setenv("COLUMNS", "200")
	parser, err := kong.New(new(commands))
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string][]string{} // by command
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		path := strings.Fields(strings.TrimPrefix(n.FullPath(), parser.Model.Name))
		short, all := helpOf(t, path, "--help"), helpOf(t, path, "--help-all")
		own, shared, found := strings.Cut(short, everyCommand.Title)
		if !found || !strings.Contains(shared, "--help-all") {
			t.Errorf("the help of %q does not end with the flags of every command:\n%s", path, short)
		}
		if n.Type == kong.CommandNode {
			for _, f := range n.Flags {
				if flagLine(f.Name).FindString(own) == "" || flagLine(f.Name).FindString(all) == "" {
					t.Errorf("the help of %q lacks --%s in front of the flags of every command:\n%s", path, f.Name, short)
				}
			}
		}
		for _, f := range parser.Model.Flags {
			setting := f.Group != nil && f.Group.Key != everyCommand.Key
			if shown := flagLine(f.Name).MatchString(short); setting && shown {
				t.Errorf("the help of %q shows the server's --%s", path, f.Name)
			}
			if !flagLine(f.Name).MatchString(all) {
				t.Errorf("all help of %q lacks --%s", path, f.Name)
			}
		}
		for line := range strings.Lines(all) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > 100 {
				t.Errorf("the help of %q has a line of %d columns: %s", path, utf8.RuneCountInString(line), line)
			}
		}
		for line := range strings.Lines(regexp.MustCompile(`\\\n *`).ReplaceAllString(all, " ")) {
			if example, ok := exampleIn(strings.TrimSuffix(line, "\n")); ok {
				examples[n.FullPath()] = append(examples[n.FullPath()], example)
			}
		}
		for _, c := range n.Children {
			visit(c)
		}
	}
	visit(parser.Model.Node)
	if len(examples) < 15 {
		t.Errorf("only %d commands have examples", len(examples))
	}
	for command, list := range examples {
		for i, args := range words(t, list) {
			if _, err := parser.Parse(args); err != nil {
				t.Errorf("the help of %q has the example %s: %v", command, list[i], err)
			}
		}
	}
}

// flagLine matches the line of a flag in a help text.
func flagLine(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^ +(-\w, )?--(\[no-\])?` + regexp.QuoteMeta(name) + `\b[^-]`)
}

// exampleIn returns the command in a help line, without its explanation.
func exampleIn(line string) (string, bool) {
	text, indented := strings.CutPrefix(line, "    ")
	if !indented || !regexp.MustCompile(`^(KICKSTAND_\w+=\S+ )*kickstand `).MatchString(text) {
		return "", false
	}
	text, _, _ = strings.Cut(text, "   ")
	return text, true
}

// words splits commands into arguments by a shell.
func words(t *testing.T, list []string) [][]string {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("splitting commands takes bash")
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", `set -eu; exec 3>&1; kickstand() { printf '%s\0' "$@" >&3; printf '\n\0' >&3; }; SECRET=x`+"\n"+strings.Join(list, "\n"))
	shell.Dir = t.TempDir()
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("%v in %q: %s", err, list, out)
	}
	var split [][]string
	for one := range strings.SplitSeq(strings.TrimSuffix(string(out), "\n\x00"), "\n\x00") {
		split = append(split, strings.Split(strings.TrimSuffix(one, "\x00"), "\x00"))
	}
	return split
}
