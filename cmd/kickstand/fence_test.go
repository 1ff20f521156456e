package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestFencedOff: a server ends, and says why, when a newer version announces that it takes away
// what the server uses; it does not start again.
func TestFencedOff(t *testing.T) {
	url := dbtest.URL(t)
	listen := apptest.Address(t)
	args := []string{"serve", "--listen=" + listen, "--data=" + t.TempDir(), "--database-url=" + url}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	p := apptest.Start(t, cmd, "http://"+listen)
	t.Cleanup(p.Kill)
	d := dbtest.Open(t, url)
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO schema_floor (id, version) VALUES (1, 9999) ON CONFLICT (id) DO UPDATE SET version = excluded.version")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	const why = "a newer version of kickstand has removed"
	select {
	case <-p.Ended():
	case <-time.After(30 * time.Second):
		t.Fatal("the server goes on")
	}
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.Output(), why) {
		t.Errorf("it ended with %d: %s", cmd.ProcessState.ExitCode(), p.Output())
	}
	again := exec.Command(os.Args[0], args...)
	again.Env = append(os.Environ(), asProgram+"=1")
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), why) {
		t.Errorf("the next start: %v, %s", err, out)
	}
}
