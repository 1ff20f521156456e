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
var varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\b[a-z]{2,4}_[0-9A-Z]{26}\b|20\d\d-\d\d-\d\dT[0-9:.]+Z|curl/[0-9.]+|urn:request:[a-z0-9]+|"request_id":"[a-z0-9]+"|"number":\d+|/tickets/\d+`)

// TestSignInPage pastes every request of docs/sign-in.md.
func TestSignInPage(t *testing.T) {
	s := start(t, "--data="+t.TempDir(), "--database-url="+dbtest.URL(t))
	folder := paste(t, "../../docs/sign-in.md", s.url)
	if _, err := os.Stat(filepath.Join(folder, "jar")); err != nil {
		t.Error("no cookies were kept")
	}
}

// TestAPIPage pastes every request of docs/api/README.md, from the making of the
// key on.
func TestAPIPage(t *testing.T) {
	data, database := t.TempDir(), dbtest.URL(t)
	s := start(t, "--data="+data, "--database-url="+database)
	command(t, nil, "org", "create", "--name=Demo Wheels", "--data="+data, "--database-url="+database)
	paste(t, "../../docs/api/README.md", s.url,
		"KICKSTAND_DATABASE_URL="+database, "KICKSTAND_SECRET_KEY_FILE="+filepath.Join(data, "secret.key"), asProgram+"=1")
}

// TestFleetPage pastes every request of docs/api/fleet.md.
func TestFleetPage(t *testing.T) {
	data, database := t.TempDir(), dbtest.URL(t)
	s := start(t, "--data="+data, "--database-url="+database)
	command(t, nil, "org", "create", "--name=Demo Wheels", "--data="+data, "--database-url="+database)
	paste(t, "../../docs/api/fleet.md", s.url,
		"KICKSTAND_DATABASE_URL="+database, "KICKSTAND_SECRET_KEY_FILE="+filepath.Join(data, "secret.key"), asProgram+"=1")
}

// paste runs the shell blocks of a page in one shell, in a folder of their own
// that it returns, and compares what they print with the page's other blocks. The
// command kickstand is this program.
func paste(t *testing.T, path, url string, environment ...string) (folder string) {
	t.Helper()
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("pasting requests takes %s", program)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const base = "http://127.0.0.1:8080"
	var script strings.Builder
	script.WriteString("set -eu\nkickstand() { \"" + os.Args[0] + "\" \"$@\"; }\n")
	var want strings.Builder
	for _, block := range regexp.MustCompile("(?s)```(sh|json)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := strings.ReplaceAll(block[2], base, url)
		if block[1] == "sh" {
			script.WriteString(text)
		} else {
			want.WriteString(strings.ReplaceAll(text, url, base))
		}
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	bash.Dir = t.TempDir()
	bash.Env = append(os.Environ(), environment...)
	var trouble strings.Builder
	bash.Stderr = &trouble
	got, err := bash.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, got, &trouble)
	}
	g := strings.Split(varying.ReplaceAllString(strings.ReplaceAll(string(got), url, base), "…"), "\n")
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
	return bash.Dir
}
