// Package apptest runs the server in a process of its own, for tests that kill it.
package apptest

import (
	"bytes"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// Address returns a free address of this machine that servers of a test can use one after the
// other.
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", dbtest.FreePort(t))
}

// Process is a running server.
type Process struct {
	cmd    *exec.Cmd
	output lockedBuffer
	ended  chan struct{} // closed at the end of the process
}

// Start runs a command that serves at url, and returns when it is ready.
func Start(t testing.TB, cmd *exec.Cmd, url string) *Process {
	t.Helper()
	return StartUntil(t, cmd, url+"/readyz")
}

// StartUntil runs a command, and returns when url answers 200.
func StartUntil(t testing.TB, cmd *exec.Cmd, url string) *Process {
	t.Helper()
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(p.ended)
	}()
	for range Poll(t, 30*time.Second) {
		select {
		case <-p.ended:
			t.Fatalf("the server ended at its start: %s", p.Output())
		default:
		}
		resp, err := http.Get(url)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return p
		}
	}
	p.Kill()
	t.Fatalf("the server does not come up: %s", p.Output())
	return nil
}

// Kill ends the process at once, without a chance to finish anything. It does nothing the
// second time.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// Stop asks the process to end, and reports whether it did within limit.
func (p *Process) Stop(limit time.Duration) bool {
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Output returns the last 8000 bytes that the process printed.
func (p *Process) Output() string { return p.output.last(8000) }

// Log returns all that the process printed.
func (p *Process) Log() string { return p.output.last(math.MaxInt) }

// Poll yields every 10 ms until the limit or the end of the test.
func Poll(t testing.TB, limit time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		end := time.After(limit)
		for yield() {
			select {
			case <-tick.C:
			case <-end:
				return
			case <-t.Context().Done():
				return
			}
		}
	}
}

// lockedBuffer is a buffer that can be read while the process prints.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) last(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text.Bytes()[max(0, b.text.Len()-n):])
}
