package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// databaseFiles are the names of the three databases on SQLite.
var databaseFiles = []string{"kickstand.db", "fleet-live.db", "fleet-test.db"}

// TestLitestream replicates the databases of a server with Litestream while requests arrive, kills
// both, and restores the replica. All records are complete there, and every request that Litestream
// had replicated is among them.
func TestLitestream(t *testing.T) {
	dbtest.OnlySQLite(t)
	program, err := exec.LookPath("litestream")
	if err != nil {
		t.Skip("replicating takes litestream in PATH")
	}
	p := newPatient(t)
	p.start()
	p.setUp()
	p.command("fleet", "seed", "--org=crash", "--environment=live")
	from := filepath.Dir(strings.TrimPrefix(p.databaseURL, "sqlite:"))
	l := startLitestream(t, program, from)
	p.acceptFurther(50)
	l.sync()
	replicated := p.acceptedIDs()
	p.command("backup", t.TempDir()) // Litestream's tables do not prevent it
	p.acceptFurther(20)
	l.kill()
	p.kill()

	to := t.TempDir()
	l.restore(to)
	for _, name := range []string{"attachments", "secret.key"} {
		if out, err := exec.Command("cp", "-a", filepath.Join(p.flag("data"), name), to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	restored := p.at(to, "sqlite:"+filepath.Join(to, "kickstand.db"))
	restored.command("verify", "--blobs")
	restored.command("hold", "--reason=restored by Litestream")
	restored.serveHeld("restored")
	if list := restored.outputOf("release"); !strings.Contains(list, "restored by Litestream") {
		t.Errorf("outgoing work is not held: %s", list)
	}
	restored.command("release", "--send")
	restored.command("verify", "--blobs")
	have := make(map[string]bool)
	for _, id := range restored.column("SELECT external_id FROM messages") {
		have[id] = true
	}
	for _, id := range replicated {
		if !have[id] {
			t.Errorf("%s was replicated, and is not in the restored database", id)
		}
	}
	t.Logf("%d requests replicated, %d accepted, %d messages restored", len(replicated), len(p.acceptedIDs()), len(have))
}

// acceptFurther has the server accept at least n further requests.
func (p *patient) acceptFurther(n int) {
	p.t.Helper()
	want := len(p.acceptedIDs()) + n
	load, stop := context.WithCancel(p.t.Context())
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() { p.pour(load, want+w) })
	}
	for range poll(p.t, 30*time.Second) {
		if len(p.acceptedIDs()) >= want {
			break
		}
	}
	stop()
	writers.Wait()
}

// acceptedIDs returns the external ids of the requests acknowledged with 200.
func (p *patient) acceptedIDs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.accepted))
}

// litestream is a process that replicates the databases in a folder.
type litestream struct {
	t                     *testing.T
	program, from, folder string // folder has the replica and the configuration
	process               *exec.Cmd
}

// startLitestream replicates with the configuration in the documentation, for other paths.
func startLitestream(t *testing.T, program, from string) *litestream {
	t.Helper()
	l := &litestream{t: t, program: program, from: from, folder: t.TempDir()}
	config := documentedConfig(t) + "socket:\n  enabled: true\n  path: " + l.path("s") + "\n"
	config = strings.NewReplacer("/var/lib/kickstand", from, "/srv/replica", l.folder).Replace(config)
	if err := os.WriteFile(l.path("litestream.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l.process = exec.Command(program, "replicate", "-config", l.path("litestream.yml"))
	l.process.Stdout, l.process.Stderr = t.Output(), t.Output()
	if err := l.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.kill)
	for range poll(t, 30*time.Second) {
		if _, err := os.Stat(l.path("s")); err == nil {
			break
		}
	}
	return l
}

// documentedConfig returns the configuration of Litestream in the documentation.
func documentedConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(string(text)) {
		if config, ok := strings.CutPrefix(b.text, "cat >litestream.yml <<'END'\n"); ok {
			return strings.TrimSuffix(config, "END\n")
		}
	}
	t.Fatal("the documentation has no configuration of Litestream")
	return ""
}

func (l *litestream) path(name string) string { return filepath.Join(l.folder, name) }

func (l *litestream) kill() {
	l.process.Process.Kill()
	l.process.Wait()
}

// sync returns when all committed transactions are replicated.
func (l *litestream) sync() {
	l.t.Helper()
	for _, name := range databaseFiles {
		l.run("sync", "-wait", "-socket", l.path("s"), filepath.Join(l.from, name))
	}
}

// restore restores the databases into a folder.
func (l *litestream) restore(to string) {
	l.t.Helper()
	for _, name := range databaseFiles {
		l.run("restore", "-config", l.path("litestream.yml"), "-integrity-check", "full", "-o", filepath.Join(to, name), filepath.Join(l.from, name))
	}
}

func (l *litestream) run(args ...string) {
	l.t.Helper()
	if out, err := exec.CommandContext(l.t.Context(), l.program, args...).CombinedOutput(); err != nil {
		l.t.Fatalf("litestream %v: %v\n%s", args, err, out)
	}
}
