package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// smallDiskVariable names the folder where the test, running as a process in a separate mount
// namespace, mounts its disk.
const smallDiskVariable = "KICKSTAND_TEST_SMALL_DISK"

// TestSmallDisk is TestDiskFull on a real disk, where the write-ahead log runs out of space.
// The mount ends with its process.
func TestSmallDisk(t *testing.T) {
	dir := os.Getenv(smallDiskVariable)
	if dir == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestSmallDisk$")
		child.Env = append(os.Environ(), smallDiskVariable+"="+t.TempDir())
		child.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := child.CombinedOutput()
		if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
			t.Skipf("cannot have mounts of our own: %v", err)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if bytes.Contains(out, []byte("--- SKIP")) {
			t.Skipf("%s", out)
		}
		return
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	d := dbtest.Open(t, "sqlite:"+filepath.Join(dir, "test.db"))
	write(t, d, "CREATE TABLE things (id TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
	write(t, d, "CREATE TABLE heartbeat (id INTEGER PRIMARY KEY, beat_at BIGINT NOT NULL)")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var want []string
	var full bool
	for round := range 200 {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				id := fmt.Sprintf("%03d-%02d", round, i)
				err := tryWrite(d, "INSERT INTO things (id, body) VALUES ($1, $2)", id, make([]byte, 2000))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					want = append(want, id)
					return
				}
				full = true
				wantUnavailable(t, "a full disk", err)
			})
		}
		if wg.Wait(); full {
			break
		}
	}
	if !full {
		t.Fatal("the disk did not become full")
	}
	var err error
	for range 1000 { // there may be room for some
		if err = d.ProbeWrite(t.Context()); err != nil {
			break
		}
	}
	if wantUnavailable(t, "a beat on a full disk", err); err != nil && db.FailureReason(err) != "the disk is full" {
		t.Errorf("the reason is %q", db.FailureReason(err))
	}
	slices.Sort(want)
	wantIDs(t, d, want...)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	write(t, d, "INSERT INTO things (id) VALUES ('z')")
	wantIDs(t, d, append(want, "z")...)
}
