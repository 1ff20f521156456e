package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/netguard/netguardtest"
)

// pipes is a server in memory.
type pipes struct{ *netguardtest.Listener }

// dial returns a connection to the server from an address.
func (p pipes) dial(t *testing.T, remote string) net.Conn {
	t.Helper()
	conn, err := p.Dial(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// servePipes serves h with the limits of the real server, under synctest.
func servePipes(t *testing.T, h http.Handler) pipes {
	t.Helper()
	p := pipes{netguardtest.NewListener()}
	srv := newServer(limitUnreadBody(h), quiet)
	go srv.Serve(p)
	t.Cleanup(func() {
		srv.Close()
		<-time.After(time.Second) // the server lingers, in fake time
	})
	return p
}

// trickle writes head and then rest once per second until the server closes the
// connection. It returns the status of the response, or 0, and the time until then.
func trickle(conn net.Conn, head string, rest byte) (status int, after time.Duration) {
	began, stop := time.Now(), make(chan struct{})
	go func() {
		defer close(stop)
		if _, err := io.WriteString(conn, head); err != nil {
			return
		}
		for {
			<-time.After(time.Second)
			if _, err := conn.Write([]byte{rest}); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	after = time.Since(began)
	if err == nil {
		status = resp.StatusCode
	}
	conn.Close()
	<-stop
	return status, after
}

// TestAttackSlowConnections: a client that sends its headers, or a body that the handler
// reads or has refused, byte by byte is disconnected.
func TestAttackSlowConnections(t *testing.T) {
	reads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	})
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	const post = "POST / HTTP/1.1\r\nHost: h\r\n"
	for _, tt := range []struct {
		name    string
		handler http.Handler
		head    string
		rest    byte
		status  int
		within  time.Duration
	}{
		{"headers", reads, "POST / HTTP/1.1\r\nX-A: ", 'a', 0, 10 * time.Second},
		{"body that is read", reads, post + "Content-Length: 100000\r\n\r\n", 'a', 408, 2 * time.Minute},
		{"body that is refused", refuses, post + "Content-Length: 100000\r\n\r\n", 'a', 401, 2 * time.Second},
		{"large body that is refused", refuses, post + "Content-Length: 36700160\r\n\r\n", 'a', 401, 0},
		{"chunks that are refused", refuses, post + "Transfer-Encoding: chunked\r\n\r\nFFFF\r\n", 'a', 401, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := servePipes(t, tt.handler)
				status, after := trickle(p.dial(t, "192.0.2.1:1"), tt.head, tt.rest)
				if status != tt.status || after > tt.within+3*time.Second {
					t.Errorf("answered %d after %v, want %d after %v at most", status, after, tt.status, tt.within)
				}
			})
		})
	}
}

// TestAttackIdleConnection: a silent connection is closed.
func TestAttackIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := servePipes(t, http.NotFoundHandler())
		for name, tt := range map[string]struct {
			first string
			after time.Duration
		}{"before a request": {"", 10 * time.Second}, "after a request": {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 2 * time.Minute}} {
			conn := p.dial(t, "192.0.2.1:1")
			began := time.Now()
			go io.WriteString(conn, tt.first)
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > tt.after+time.Second {
				t.Errorf("%s: open for %v, want %v", name, took, tt.after)
			}
		}
	})
}

// TestAttackLargeHeaders: headers over the limit are refused.
func TestAttackLargeHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := servePipes(t, http.NotFoundHandler())
		for name, head := range map[string]string{
			"one":  "X-A: " + strings.Repeat("a", 200<<10) + "\r\n",
			"many": strings.Repeat("X-A: a\r\n", 40_000),
		} {
			conn := p.dial(t, "192.0.2.1:1")
			go fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", head)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s: got %v, %v", name, resp, err)
			}
			conn.Close()
		}
	})
}

// TestAttackHTTP2Streams: HTTP/2 is disabled, since its streams could flood one
// connection, both with prior knowledge and by upgrade.
func TestAttackHTTP2Streams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := servePipes(t, http.NotFoundHandler())
		for name, head := range map[string]string{
			"prior knowledge": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			"upgrade":         "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
		} {
			conn := p.dial(t, "192.0.2.1:1")
			go io.WriteString(conn, head)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusNotFound || resp.ProtoMajor != 1 {
				t.Errorf("%s: got %v, %v, want 404 by HTTP/1.1", name, resp, err)
			}
			conn.Close()
		}
	})
}
