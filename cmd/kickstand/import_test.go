package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/importer"
)

// TestCrashImport kills the command at random times while it imports. The command that then runs to its
// end completes the import, the next one finds nothing to do, and the database verifies.
func TestCrashImport(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var mailbox bytes.Buffer
	const threads = 1500
	for i := range 2 * threads {
		sender, answers := fmt.Sprintf("rider%d@rider.example", i/2%400), ""
		if i%2 == 1 {
			sender, answers = "help@acme.example", fmt.Sprintf("In-Reply-To: <%d@mail.example>\n", i-1)
		}
		fmt.Fprintf(&mailbox, "From x Mon May  6 08:00:00 2024\nFrom: %s\nTo: help@acme.example\nSubject: Thread %d\nDate: Mon, 06 May 2024 %02d:%02d:%02d +0000\nMessage-ID: <%d@mail.example>\n%s\nMail %d.\n\n",
			sender, i/2, i/3600%24, i/60%60, i%60, i, answers, i)
	}
	path := filepath.Join(folder, "all.mbox")
	if err := os.WriteFile(path, mailbox.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--data=" + filepath.Join(folder, "data"), "--database-url=" + dbtest.EmptyURL(t)}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], append(args, flags...)...)
		cmd.Env, cmd.Stderr = append(os.Environ(), asProgram+"=1"), t.Output()
		return cmd
	}
	if err := command("org", "create", "--name=Acme").Run(); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"import", "mbox", path, "--org=acme", "--agents=help@acme.example", "--json"}
	complete := func() (r importer.Run) {
		t.Helper()
		out, err := command(arguments...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for range 6 {
		cmd := command(arguments...)
		cmd.Stderr = nil
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pause(2 * time.Second)
		cmd.Process.Kill()
		cmd.Wait() // killed, or done before
	}
	first := complete()
	second := complete()
	if second.State != importer.Done || second.Counts.Tickets+second.Counts.Messages != 0 || second.Counts.Known != 3*threads {
		t.Errorf("the last run: %+v, before it: %+v", second.Counts, first.Counts)
	}
	if out, err := command("verify").Output(); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}
