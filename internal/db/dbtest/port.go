package dbtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort returns a port of this machine that nobody listens on. It is below those of the system's
// own choice, which connections and other tests' servers could get while no server of this test
// has it.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		if ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			ln.Close()
			return port
		}
	}
	t.Fatal("no free port from 20000 to 29999")
	return ""
}
