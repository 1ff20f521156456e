package main

import (
	"io"
	"strings"
	"testing"
)

// TestSecondServer: a second server on one SQLite file is refused in one sentence, while
// other commands work beside the first; and the lock ends with the server.
func TestSecondServer(t *testing.T) {
	data := "--data=" + t.TempDir()
	first := start(t, data)
	err := run(t.Context(), []string{"serve", "--listen=127.0.0.1:0", data}, noEnvironment, nil, io.Discard, t.Output())
	if err == nil || !strings.HasPrefix(err.Error(), "another server runs on the database ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second server: got %v, want it refused in a sentence", err)
	}
	if err := run(t.Context(), []string{"org", "create", "--name=Acme", data}, noEnvironment, nil, io.Discard, t.Output()); err != nil {
		t.Errorf("a command beside the server: %v", err)
	}
	first.stop()
	start(t, data)
}
