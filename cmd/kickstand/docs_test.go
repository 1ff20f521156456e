package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// varying are parts of an answer that are another each time.
var varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|20\d\d-\d\d-\d\dT[0-9:.]+Z|curl/[0-9.]+`)

// TestSignInPage pastes every request of docs/sign-in.md and compares what comes
// back with what the page says.
func TestSignInPage(t *testing.T) {
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("pasting requests takes %s", program)
		}
	}
	page, err := os.ReadFile("../../docs/sign-in.md")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, "--data="+t.TempDir(), "--database-url="+dbtest.URL(t))
	const base = "http://127.0.0.1:8080"
	var script strings.Builder
	script.WriteString("set -eu\n")
	var want strings.Builder
	for _, block := range regexp.MustCompile("(?s)```(sh|json)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := strings.ReplaceAll(block[2], base, s.url)
		if block[1] == "sh" {
			script.WriteString(text)
		} else {
			want.WriteString(text)
		}
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	bash.Dir = t.TempDir()
	var trouble strings.Builder
	bash.Stderr = &trouble
	got, err := bash.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, got, &trouble)
	}
	g := strings.Split(varying.ReplaceAllString(string(got), "…"), "\n")
	w := strings.Split(varying.ReplaceAllString(want.String(), "…"), "\n")
	for i := range max(len(g), len(w)) {
		var gotLine, wantLine string
		if i < len(g) {
			gotLine = g[i]
		}
		if i < len(w) {
			wantLine = w[i]
		}
		if gotLine != wantLine {
			t.Errorf("answer %d\n got %s\nwant %s", i+1, gotLine, wantLine)
		}
	}
	if _, err := os.Stat(filepath.Join(bash.Dir, "jar")); err != nil {
		t.Error("no cookies were kept")
	}
}
