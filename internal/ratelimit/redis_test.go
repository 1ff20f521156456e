package ratelimit

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
)

// redisVariable has the address of the Redis for the tests. They use names of
// their own in it.
const redisVariable = "KICKSTAND_TEST_REDIS_URL"

// testRedis opens the Redis for the tests, with more patience than a slow
// machine needs.
func testRedis(t *testing.T, change func(s *server), log *slog.Logger) *Redis {
	t.Helper()
	rawURL := os.Getenv(redisVariable)
	if rawURL == "" {
		t.Skip("needs a Redis: set " + redisVariable + "; .ci/redis starts one")
	}
	s, err := parseURL(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&s)
	}
	r := openRedis(s, time.Minute, log)
	t.Cleanup(func() { r.Close() })
	return r
}

// do runs a command of Redis, and returns its answer.
func do(t *testing.T, r *Redis, command string, args ...any) any {
	t.Helper()
	c := r.pool.Get()
	defer c.Close()
	answer, err := c.Do(command, args...)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return answer
}

// integer converts an answer.
func integer(t *testing.T, answer any) int64 {
	t.Helper()
	n, err := redis.Int64(answer, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkExpiry reports a key that does not expire in about a minute.
func checkExpiry(t *testing.T, r *Redis, key string) {
	t.Helper()
	if ttl := time.Duration(integer(t, do(t, r, "PTTL", key))) * time.Millisecond; ttl <= 0 || ttl > 61*time.Second {
		t.Errorf("the counter expires in %v, want about a minute", ttl)
	}
}

// lines is a log with counted lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// drain returns the lines logged since its last call.
func (l *lines) drain() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return strings.FieldsFunc(l.buf.String(), func(r rune) bool { return r == '\n' })
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestRedisTake(t *testing.T) {
	r := testRedis(t, nil, nil)
	w := r.Windows(rand.Text(), time.Minute)
	key := redisKey(w.name, "k")
	ends := func() int64 {
		t.Helper()
		return integer(t, do(t, r, "HGET", key, "ends"))
	}
	// The clock of Redis cannot be moved; the stored end can.
	end := func(fromNow time.Duration) {
		t.Helper()
		now, err := redis.Int64s(do(t, r, "TIME"), nil)
		if err != nil {
			t.Fatal(err)
		}
		do(t, r, "HSET", key, "ends", now[0]*1_000_000+now[1]+fromNow.Microseconds())
	}
	check := func(what string, got State, gotOK bool, remaining int64, ok bool) {
		t.Helper()
		if gotOK != ok || got.Remaining != remaining {
			t.Errorf("%s: got %t with %d remaining, want %t with %d", what, gotOK, got.Remaining, ok, remaining)
		}
	}
	checkReset := func(what string, got State, before time.Time) {
		t.Helper()
		if got.Reset.Before(before.Add(time.Minute)) || got.Reset.After(time.Now().Add(time.Minute)) {
			t.Errorf("%s: the window ends in %v, want one minute after the call", what, got.Reset.Sub(before))
		}
	}

	before := time.Now()
	state := peek(t, w, "k", 2)
	check("a look at what nobody opened", state, false, 2, false)
	checkReset("a look at what nobody opened", state, before)

	before = time.Now()
	state, ok := acquire(t, w, "k", 2)
	check("the first", state, ok, 1, true)
	checkReset("the first", state, before)
	opened := ends()
	check("a look", peek(t, w, "k", 2), false, 1, false)
	state, ok = acquire(t, w, "k", 2)
	check("the second", state, ok, 0, true)
	for range 3 {
		state, ok = acquire(t, w, "k", 2)
		check("one too many", state, ok, 0, false)
	}
	state, ok = acquire(t, w, "k", 1)
	check("the limit lowered", state, ok, 0, false)
	state, ok = acquire(t, w, "k", 5)
	check("the limit raised", state, ok, 2, true)
	if got := ends(); got != opened {
		t.Errorf("the end of the window moved by %d µs", got-opened)
	}
	checkExpiry(t, r, key)
	state, ok = acquire(t, w, "another", 1)
	check("another key", state, ok, 0, true)
	state, ok = acquire(t, r.Windows(rand.Text(), time.Minute), "k", 1)
	check("the key under another name", state, ok, 0, true)
	state, ok = acquire(t, r.Windows(w.name, time.Minute), "k", 5)
	check("another process", state, ok, 1, true)

	end(0)
	check("a look after the end", peek(t, w, "k", 2), false, 2, false)
	before = time.Now()
	state, ok = acquire(t, w, "k", 2)
	check("the first after the end", state, ok, 1, true)
	checkReset("the first after the end", state, before)

	acquire(t, w, "k", 2)
	end(time.Hour)
	state, ok = acquire(t, w, "k", 2)
	check("the clock of Redis was set back", state, ok, 1, true)

	if got := peek(t, w, "none", 0); got.Remaining != 0 {
		t.Errorf("a limit of nothing leaves %d", got.Remaining)
	}
	if _, ok := acquire(t, w, "none", 0); ok || integer(t, do(t, r, "EXISTS", redisKey(w.name, "none"))) != 0 {
		t.Errorf("a limit of nothing: passed %t, or opened a window", ok)
	}
}

func TestRedisAllow(t *testing.T) {
	r := testRedis(t, nil, nil)
	l := r.Limiter(rand.Text(), 3, time.Minute)
	key := redisKey(l.name, "ana@client.example")
	check := func(what string, ok bool, low, high time.Duration) {
		t.Helper()
		if got, wait := l.Allow(t.Context(), "ana@client.example"); got != ok || wait < low || wait > high {
			t.Errorf("%s: got %t, %v, want %t, %v to %v", what, got, wait, ok, low, high)
		}
	}
	// pass moves the recorded passes back in time.
	pass := func(d time.Duration) {
		t.Helper()
		times, err := redis.Int64s(do(t, r, "LRANGE", key, 0, -1), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range times {
			do(t, r, "LSET", key, i, at-d.Microseconds())
		}
	}
	look := func(what string, low, high time.Duration) {
		t.Helper()
		if wait := l.Wait(t.Context(), "ana@client.example"); wait < low || wait > high {
			t.Errorf("%s: got wait %v, want %v to %v", what, wait, low, high)
		}
	}
	look("before the first", 0, 0)
	check("the first", true, 0, 0)
	pass(20 * time.Second)
	check("the second", true, 0, 0)
	pass(20 * time.Second)
	for range 3 {
		look("before the third", 0, 0)
	}
	check("the third", true, 0, 0)
	look("after the third", time.Nanosecond, 20*time.Second)
	for range 3 {
		check("one too many", false, time.Nanosecond, 20*time.Second)
	}
	pass(20 * time.Second)
	check("when the first has left the window", true, 0, 0)
	// No fresh three: only the first has left.
	check("one too many again", false, time.Nanosecond, 20*time.Second)
	if n := integer(t, do(t, r, "LLEN", key)); n != 3 {
		t.Errorf("%d times are kept, want 3", n)
	}
	checkExpiry(t, r, key)
	pass(-time.Hour)
	check("the clock of Redis was set back", true, 0, 0)
	if ok, _ := l.Allow(t.Context(), "bob@client.example"); !ok {
		t.Error("another key was refused")
	}
	if ok, _ := r.Limiter(rand.Text(), 3, time.Minute).Allow(t.Context(), "ana@client.example"); !ok {
		t.Error("the key was refused under another name")
	}
}

// callerVariable makes this test binary a caller of TestRedisTwoProcesses; its value is the
// name to count under.
const callerVariable = "KICKSTAND_TEST_LIMIT_CALLER"

const (
	sharedLimit = 200
	sharedKeys  = 3
)

// sharedPasses are the passes of a caller.
type sharedPasses struct {
	Windows, Limiter [sharedKeys]int64
	Log              []string
}

// TestRedisCaller is not a test but a process of TestRedisTwoProcesses.
func TestRedisCaller(t *testing.T) {
	name := os.Getenv(callerVariable)
	if name == "" {
		return // TestRedisTwoProcesses runs it
	}
	var log lines
	r := testRedis(t, nil, log.logger())
	w, l := r.Windows(name, time.Hour), r.Limiter(name+"-sliding", sharedLimit, time.Hour)
	r.Check(t.Context())
	if _, err := io.WriteString(os.Stdout, "\n"); err != nil { // ready
		t.Fatal(err)
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var windows, limiter [sharedKeys]atomic.Int64
	var wg sync.WaitGroup
	const callers = 20
	for range callers {
		wg.Go(func() {
			for range 2 * sharedLimit / callers {
				for k := range sharedKeys {
					key := string(rune('a' + k))
					if _, ok, _ := w.Acquire(t.Context(), key, sharedLimit); ok {
						windows[k].Add(1)
					}
					if ok, _ := l.Allow(t.Context(), key); ok {
						limiter[k].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	got := sharedPasses{Log: log.drain()}
	for k := range sharedKeys {
		got.Windows[k], got.Limiter[k] = windows[k].Load(), limiter[k].Load()
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		t.Fatal(err)
	}
}

// Of the 4 N calls of two processes at once, exactly N pass.
func TestRedisTwoProcesses(t *testing.T) {
	testRedis(t, nil, nil)
	name := rand.Text()
	type caller struct {
		in  io.Writer
		out io.Reader
		cmd *exec.Cmd
	}
	var callers []caller
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRedisCaller$")
		cmd.Env = append(os.Environ(), callerVariable+"="+name)
		cmd.Stderr = t.Output()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		callers = append(callers, caller{in, out, cmd})
	}
	for _, c := range callers {
		if _, err := io.ReadFull(c.out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range callers {
		if _, err := c.in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	var windows, limiter [sharedKeys]int64
	for i, c := range callers {
		var got sharedPasses
		if err := json.NewDecoder(c.out).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c.out); err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(got.Log) > 0 {
			t.Errorf("process %d logged %q, want nothing", i, got.Log)
		}
		t.Logf("process %d passed %v windows, %v limiter", i, got.Windows, got.Limiter)
		for k := range sharedKeys {
			windows[k] += got.Windows[k]
			limiter[k] += got.Limiter[k]
		}
	}
	want := [sharedKeys]int64{sharedLimit, sharedLimit, sharedLimit}
	if windows != want || limiter != want {
		t.Errorf("passed: got %v in windows and %v sliding, want %v", windows, limiter, want)
	}
}

// proxy stands before Redis and can go away.
type proxy struct {
	t               *testing.T
	network, target string
	addr            string
	tls             *tls.Config // nil for none

	mu    sync.Mutex
	ln    net.Listener
	conns []net.Conn
}

func (p *proxy) listen() {
	p.t.Helper()
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ln, p.addr = ln, ln.Addr().String()
	if p.tls != nil {
		ln = tls.NewListener(ln, p.tls)
	}
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial(p.network, p.target)
			if err != nil {
				near.Close()
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, near, far)
			p.mu.Unlock()
			go io.Copy(far, near)
			go io.Copy(near, far)
		}
	}()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ln.Close()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// While Redis is down this process counts alone, from zero; once it is back, earlier counts
// apply. Start and end of the outage are logged once each.
func TestRedisGoesAndComesBack(t *testing.T) {
	var log lines
	p := &proxy{t: t, addr: "127.0.0.1:0"}
	r := testRedis(t, func(s *server) {
		p.network, p.target = s.network, s.address
		p.listen()
		s.network, s.address = "tcp", p.addr
	}, log.logger())
	t.Cleanup(p.cut)
	r.breaker.pause = 0 // every call tries
	w, l := r.Windows(rand.Text(), time.Hour), r.Limiter(rand.Text(), 3, time.Hour)

	pass := func(want int) {
		t.Helper()
		var windows, sliding int
		for range 5 {
			if _, ok := acquire(t, w, "k", 3); ok {
				windows++
			}
			if ok, _ := l.Allow(t.Context(), "k"); ok {
				sliding++
			}
		}
		if windows != want || sliding != want {
			t.Errorf("passed: got %d in windows and %d sliding, want %d", windows, sliding, want)
		}
	}
	logged := func(want ...string) {
		t.Helper()
		got := log.drain()
		if len(got) != len(want) {
			t.Fatalf("logged %q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("logged %q, want %q", got[i], want[i])
			}
		}
	}
	acquire(t, w, "k", 3)
	l.Allow(t.Context(), "k")
	logged()

	p.cut()
	if got := peek(t, w, "k", 3); got.Remaining != 3 {
		t.Errorf("alone: got %d remaining, want 3", got.Remaining)
	}
	pass(3)
	logged("redis is unavailable")

	p.listen()
	if got := peek(t, w, "k", 3); got.Remaining != 2 {
		t.Errorf("when Redis is back: got %d remaining, want 2", got.Remaining)
	}
	pass(2)
	logged("redis is available again")

	p.cut()
	r.Check(t.Context())
	logged("redis is unavailable")
}

// Idle connections that died with a server do not fail calls once it is back.
func TestRedisRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		var ends []net.Conn
		r := openRedis(server{
			dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				ends = append(ends, far)
				go func() {
					for buf := make([]byte, 4096); ; {
						n, err := far.Read(buf)
						if err != nil {
							return
						}
						answer := "*3\r\n:1\r\n:1\r\n:60000000\r\n"
						if bytes.Contains(buf[:n], []byte("PING")) {
							answer = "+PONG\r\n"
						}
						if _, err := io.WriteString(far, answer); err != nil {
							return
						}
					}
				}()
				return near, nil
			},
		}, callTimeout, log.logger())
		defer r.Close()
		var idle []redis.Conn
		for range 3 {
			idle = append(idle, r.pool.Get())
		}
		for _, c := range idle {
			c.Close()
		}
		w := r.Windows("w", time.Minute)
		acquire(t, w, "k", 3)
		for _, c := range ends {
			c.Close()
		}
		time.Sleep(pause)
		for range 3 {
			acquire(t, w, "k", 3)
		}
		if got := log.drain(); len(got) > 0 || len(ends) != 4 {
			t.Errorf("logged %q and made %d connections, want nothing and 4", got, len(ends))
		}
		for _, c := range ends {
			c.Close()
		}
	})
}

// A server that answers but does not write, such as a replica or one without
// memory, counts nothing, so it cannot be used: also where nothing would be written.
func TestRedisThatOnlyReads(t *testing.T) {
	admin := testRedis(t, nil, nil)
	user, password := rand.Text(), rand.Text()
	allow := func(rules ...any) {
		t.Helper()
		do(t, admin, "ACL", append([]any{"SETUSER", user}, rules...)...)
	}
	allow("on", ">"+password, "~*", "+@read", "+@scripting", "+@connection", "+time")
	t.Cleanup(func() { do(t, admin, "ACL", "DELUSER", user) })
	var log lines
	r := testRedis(t, func(s *server) { s.username, s.password = user, password }, log.logger())
	r.breaker.pause = 0 // every call tries
	w := r.Windows(rand.Text(), time.Minute)
	full := func() {
		t.Helper()
		if _, ok := acquire(t, w, "k", 1); ok {
			t.Error("one too many passed")
		}
	}

	r.Check(t.Context())
	acquire(t, w, "k", 1)
	for range 3 {
		if got := peek(t, w, "k", 1); got.Remaining != 0 {
			t.Errorf("got %d remaining, want 0: this process counts", got.Remaining)
		}
		full()
		r.Check(t.Context())
	}
	if got := log.drain(); len(got) != 1 || !strings.Contains(got[0], "redis is unavailable") {
		t.Errorf("logged %q, want one line", got)
	}
	allow("+@write")
	acquire(t, w, "k", 1)
	peek(t, w, "k", 1)
	full()
	if got := log.drain(); len(got) != 1 || !strings.Contains(got[0], "redis is available again") {
		t.Errorf("logged %q, want one line", got)
	}
}

// A rediss URL uses TLS and verifies the server's name.
func TestRedisByTLS(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // its certificate is for example.com and 127.0.0.1
	defer certified.Close()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	for host, want := range map[string]string{"127.0.0.1": "", "localhost": "certificate"} {
		t.Run(host, func(t *testing.T) {
			var log lines
			p := &proxy{t: t, addr: "127.0.0.1:0", tls: &tls.Config{Certificates: certified.TLS.Certificates}}
			r := testRedis(t, func(s *server) {
				p.network, p.target = s.network, s.address
				p.listen()
				_, port, err := net.SplitHostPort(p.addr)
				if err != nil {
					t.Fatal(err)
				}
				secure, err := parseURL("rediss://" + net.JoinHostPort(host, port))
				if err != nil {
					t.Fatal(err)
				}
				secure.tls.RootCAs = roots
				s.network, s.address, s.tls = secure.network, secure.address, secure.tls
			}, log.logger())
			t.Cleanup(p.cut)
			acquire(t, r.Windows(rand.Text(), time.Hour), "k", 1)
			got := strings.Join(log.drain(), "\n")
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("logged %q, want %q", got, want)
			}
		})
	}
}

// A Redis that does not answer delays one call a second by the timeout, and no other.
func TestSilentRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		dialed := 0
		r := openRedis(server{
			dial: func(context.Context, string, string) (net.Conn, error) {
				dialed++
				near, far := net.Pipe()
				t.Cleanup(func() { far.Close() })
				go io.Copy(io.Discard, far)
				return near, nil
			},
		}, callTimeout, log.logger())
		defer r.Close()
		w := r.Windows("w", time.Minute)
		l := r.Limiter("l", 1, time.Minute)
		took := func(f func()) time.Duration {
			start := time.Now()
			f()
			return time.Since(start)
		}
		for i := range 10 {
			if got := took(func() { acquire(t, w, "k", 1000) }); got != 250*time.Millisecond {
				t.Errorf("call that tries %d took %v, want 250ms", i, got)
			}
			if got := took(func() {
				for range 50 {
					acquire(t, w, "k", 1000)
				}
				peek(t, w, "k", 1000)
				l.Allow(t.Context(), "k")
			}); got != 0 {
				t.Errorf("calls in the second after it took %v, want nothing", got)
			}
			time.Sleep(time.Second)
		}
		if dialed != 10 {
			t.Errorf("Redis was called %d times, want 10", dialed)
		}
		if got := peek(t, w, "k", 1000); got.Remaining != 1000-10*51 {
			t.Errorf("got %d remaining, want %d", got.Remaining, 1000-10*51)
		}
		if got := log.drain(); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
	})
}

// One that refuses costs nothing at all.
func TestRefusingRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRedis(server{
			dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
		}, callTimeout, nil)
		defer r.Close()
		w := r.Windows("w", time.Hour)
		start := time.Now()
		for i := range 3 {
			if state, ok := acquire(t, w, "k", 2); ok != (i < 2) || state.Remaining != int64(max(0, 1-i)) {
				t.Errorf("call %d: got %t, %d remaining", i, ok, state.Remaining)
			}
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("three calls took %v, want nothing", got)
		}
	})
}

// A caller that cancels during the call is counted, and is no outage.
func TestRedisCallerGone(t *testing.T) {
	var log lines
	r := testRedis(t, nil, log.logger())
	w := r.Windows(rand.Text(), time.Hour)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := w.Acquire(gone, "k", 2); !ok || err != nil {
		t.Errorf("got %t, %v, want true", ok, err)
	}
	if got := peek(t, r.Windows(w.name, time.Hour), "k", 2); got.Remaining != 1 {
		t.Errorf("got %d remaining, want 1", got.Remaining)
	}
	if got := log.drain(); len(got) != 0 {
		t.Errorf("logged %q, want nothing", got)
	}
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{pause: time.Second}
		enter := func(what string, probe, ok bool) {
			t.Helper()
			if gotProbe, gotOK := b.enter(); gotProbe != probe || gotOK != ok {
				t.Errorf("%s: enter = %t, %t, want %t, %t", what, gotProbe, gotOK, probe, ok)
			}
		}
		leave := func(what string, probe bool, err error, changed bool, lasted time.Duration) {
			t.Helper()
			if gotChanged, gotLasted := b.leave(probe, err); gotChanged != changed || gotLasted != lasted {
				t.Errorf("%s: leave = %t, %v, want %t, %v", what, gotChanged, gotLasted, changed, lasted)
			}
		}
		bad := errors.New("no answer")
		enter("at first", false, true)
		leave("a success", false, nil, false, 0)
		leave("a failure", false, bad, true, 0)
		leave("another that was under way", false, bad, false, 0)
		leave("a late success", false, nil, false, 0)
		enter("during the pause", false, false)
		time.Sleep(time.Second)
		enter("after it", true, true)
		enter("beside the one that tries", false, false)
		leave("which fails", true, bad, false, 0)
		time.Sleep(time.Second)
		enter("after another pause", true, true)
		leave("a success that counts", true, nil, true, 2*time.Second)
		enter("when it is back", false, true)
	})
}

// A server may quote the password in its refusal; the log does not.
func TestRedisPasswordIsNotLogged(t *testing.T) {
	const password = "hunter2-of-redis"
	for _, refusal := range []string{
		"-ERR unknown command 'AUTH', with args beginning with: 'hunter2' \r\n",
		"-WRONGPASS " + password + " is not the password\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var log lines
			s, err := parseURL("redis://:" + password + "@redis.example/3")
			if err != nil {
				t.Fatal(err)
			}
			s.dial = func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					for buf := make([]byte, 4096); ; {
						if _, err := far.Read(buf); err != nil {
							return
						}
						if _, err := io.WriteString(far, refusal); err != nil {
							return
						}
					}
				}()
				return near, nil
			}
			r := openRedis(s, callTimeout, log.logger())
			defer r.Close()
			acquire(t, r.Windows("w", time.Minute), "k", 1)
			if got := log.drain(); len(got) != 1 || strings.Contains(got[0], "hunter2") || !strings.Contains(got[0], "redis is unavailable") {
				t.Errorf("refused with %q: logged %q", refusal, got)
			}
		})
	}
}

func TestCheckURL(t *testing.T) {
	for _, rawURL := range []string{
		"redis://redis.example",
		"redis://redis.example:6380/2",
		"redis://user:hunter2@[::1]:6379/0",
		"rediss://:hunter2@redis.example",
		"unix:///run/redis.sock",
		"unix://user:hunter2@/run/redis.sock?db=2",
	} {
		if err := CheckURL(rawURL); err != nil {
			t.Errorf("%s: got %v", rawURL, err)
		}
	}
	for _, rawURL := range []string{
		"",
		"redis.example:6379",
		"localhost",
		"http://redis.example",
		"redis://",
		"redis:///2",
		"redis://redis.example/hunter2",
		"redis://redis.example/-1",
		"redis://redis.example/1/hunter2",
		"redis://redis.example?hunter2=1",
		"redis://redis.example?pool_size=hunter2",
		"redis://redis.example?db=hunter2",
		"redis://redis.example#hunter2",
		"redis://:hun%zzter2@redis.example",
		"redis://:hunter2/@redis.example",
		"redis://:hun?ter2@redis.example",
		"unix://hunter2/redis.sock",
		"unix://",
	} {
		if err := CheckURL(rawURL); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: got %v, want a refusal that quotes nothing", rawURL, err)
		}
	}
}

func BenchmarkRedisTake(b *testing.B) {
	rawURL := os.Getenv(redisVariable)
	if rawURL == "" {
		b.Skip("needs a Redis: set " + redisVariable + "; .ci/redis starts one")
	}
	r, err := OpenRedis(rawURL, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	w := r.Windows(rand.Text(), time.Minute)
	for b.Loop() {
		w.Acquire(b.Context(), "k", 300)
	}
}
