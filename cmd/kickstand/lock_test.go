package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestSecondServer: a second server on one SQLite file is refused with one sentence,
// while commands work next to the first; the lock ends with the server.
func TestSecondServer(t *testing.T) {
	data := "--data=" + t.TempDir()
	first := start(t, data)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // ends a server that is not refused
	defer cancel()
	err := run(ctx, []string{"serve", "--listen=127.0.0.1:0", data}, noEnvironment, nil, io.Discard, t.Output())
	if err == nil || !strings.HasPrefix(err.Error(), "another server runs on the database ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second server: got %v, want it refused in a sentence", err)
	}
	if err := run(t.Context(), []string{"org", "create", "--name=Acme", data}, noEnvironment, nil, io.Discard, t.Output()); err != nil {
		t.Errorf("a command beside the server: %v", err)
	}
	first.stop()
	start(t, data)
}

// TestLowLimits: a server with too few files or too little memory does not start, and one
// sentence names the limit to raise.
func TestLowLimits(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh to set limits with")
	}
	for _, tt := range []struct{ limit, want string }{
		{"ulimit -n 40", "files and connections"},
		{"ulimit -v 1800000", "address space"},
	} {
		t.Run(tt.limit, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", tt.limit+` && exec "$0" "$@"`, os.Args[0], "serve", "--listen=127.0.0.1:0", "--data="+t.TempDir())
			cmd.Env = append(os.Environ(), asProgram+"=1")
			out, err := cmd.CombinedOutput()
			text := strings.TrimSpace(string(out))
			if err == nil || !strings.HasPrefix(text, "kickstand: ") || strings.Count(text, "\n") > 0 || !strings.Contains(text, tt.want) {
				t.Errorf("got %v and %q, want a sentence about %s", err, text, tt.want)
			}
		})
	}
}
