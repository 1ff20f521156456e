package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
)

// TestKill kills the server between the request and the answer of creates. The library retries,
// and each record must exist exactly once, under the id that the program prints.
//
// A proxy stands between the program and the server. It passes a request on, kills the server
// before the answer reaches the program, starts it again with the same data, and breaks the
// program's connection. Half of the kills come at a random moment, before or after the write;
// the others after it, when the server has already answered.
func TestKill(t *testing.T) {
	kills := 5
	if n := os.Getenv("KICKSTAND_TEST_KILLS"); n != "" {
		var err error
		if kills, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	each(t, func(t *testing.T, l *language) {
		s := newServer(t)
		p := &killer{t: t, server: s, left: kills, seen: map[string]bool{}}
		proxy := httptest.NewServer(p)
		t.Cleanup(proxy.Close)
		count := kills + 3
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(30+5*count)*time.Second)
		defer cancel()
		cmd := l.command(t, ctx, l.examplePath(t, "kill"), l.library(t),
			"KICKSTAND_URL="+proxy.URL, "KICKSTAND_KEY="+s.key, "KICKSTAND_COUNT="+strconv.Itoa(count))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if p.left != 0 {
			t.Errorf("%d kills are left", p.left)
		}
		s.check(t, count, strings.Fields(string(out)))
		t.Logf("%d kills, %d of them after the server's answer, %d answers replayed", kills, p.answered, p.replayed)
	})
}

// server is a server that is killed and started again.
type server struct {
	url, key string
	args     []string
	process  *apptest.Process
}

func newServer(t *testing.T) *server {
	t.Helper()
	listen := apptest.Address(t)
	s := &server{url: "http://" + listen, args: []string{"--listen=" + listen, "--data=" + filepath.Join(t.TempDir(), "data"), "--log-format=json"}}
	s.command(t, "org", "create", "--name=Crash", "--plan=business")
	key := s.command(t, "key", "create", "--org=crash", "--service=helpdesk", "--environment=live", "--name=Kill", "--level=read_write")
	s.key, _, _ = strings.Cut(key, "\n")
	s.start(t)
	t.Cleanup(func() { s.process.Kill() })
	return s
}

// command runs a command of the program and returns its output.
func (s *server) command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), serverPath(t), append(args, s.args[1])...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

func (s *server) start(t *testing.T) {
	t.Helper()
	s.process = apptest.Start(t, exec.Command(serverPath(t), append([]string{"serve"}, s.args...)...), s.url)
}

// check compares the tickets with the ids that the program printed.
func (s *server) check(t *testing.T, count int, printed []string) {
	t.Helper()
	ids := map[string][]string{} // by subject
	for _, ticket := range list(t, s.url+"/api/v1/tickets?sort=created_at", s.key) {
		ids[ticket.Subject] = append(ids[ticket.Subject], ticket.ID)
	}
	if len(printed) != count || len(ids) != count {
		t.Errorf("%d ids were printed, and there are %d subjects, expected %d", len(printed), len(ids), count)
	}
	for i, id := range printed {
		subject := fmt.Sprintf("record %d", i)
		if got := ids[subject]; !slices.Equal(got, []string{id}) {
			t.Errorf("%s is %v, the program printed %s", subject, got, id)
		}
	}
}

// killer is the proxy.
type killer struct {
	t      *testing.T
	server *server

	mu       sync.Mutex
	left     int             // kills
	seen     map[string]bool // idempotency keys of requests that were killed
	answered int             // kills after the server's answer
	replayed int             // answers of the server with Idempotent-Replayed
}

func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock() // one request at a time, as the program sends them
	defer k.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	kill := k.left > 0 && r.Method == http.MethodPost && !k.seen[key]
	answers := make(chan *answer, 1)
	go func() { answers <- k.forward(r, body) }()
	if !kill {
		a := <-answers
		if a == nil {
			panic(http.ErrAbortHandler)
		}
		a.write(w)
		return
	}
	k.seen[key] = true
	k.left--
	var a *answer
	if k.left%2 == 0 {
		a = <-answers
	} else {
		select { // deliberately random
		case a = <-answers:
		case <-time.After(time.Duration(rand.Int64N(int64(8 * time.Millisecond)))):
		}
	}
	if a != nil {
		k.answered++
	}
	k.server.process.Kill()
	if a == nil {
		<-answers
	}
	k.server.start(k.t)
	panic(http.ErrAbortHandler) // breaks the connection
}

// answer is a whole answer of the server.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// forward sends a request to the server, on a connection of its own. It returns nil if the
// server died.
func (k *killer) forward(r *http.Request, body []byte) *answer {
	req, err := http.NewRequest(r.Method, k.server.url+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil
	}
	req.Header = r.Header.Clone()
	req.Close = true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	if resp.Header.Get("Idempotent-Replayed") == "true" {
		k.replayed++
	}
	return &answer{resp.StatusCode, resp.Header, text}
}

func (a *answer) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// record is the part of a record that the tests look at.
type record struct{ ID, Subject, Kind string }

// list returns all records of a list, by its export.
func list(t *testing.T, url, key string) []record {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", url, resp.Status)
	}
	var all []record
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
