package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// node is one of several server processes on one database.
type node struct {
	url    string
	client *http.Client
	said   *processOutput
}

// processOutput is the output of a process so far.
type processOutput struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *processOutput) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *processOutput) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// startNodes starts several server processes on one database, and returns them with an
// organization's slug and the flags that commands need.
func startNodes(t *testing.T, count int, flags ...string) (nodes []node, slug string, common []string) {
	t.Helper()
	common = append([]string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t)}, flags...)
	command(t, nil, append([]string{"org", "create", "--name=Nodes", "--plan=free"}, common...)...)
	for range count {
		address := apptest.Address(t)
		cmd := exec.Command(os.Args[0], append([]string{"serve", "--listen=" + address}, common...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		output := new(processOutput)
		cmd.Stdout, cmd.Stderr = output, output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
			if t.Failed() {
				all := output.String()
				t.Logf("a server said, at last: %s", all[max(0, len(all)-4000):])
			}
		})
		n := node{"http://" + address, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300}}, output}
		t.Cleanup(n.client.CloseIdleConnections)
		up := false
		for range poll(t, 30*time.Second) {
			if resp, err := n.client.Get(n.url + "/readyz"); err == nil {
				resp.Body.Close()
				if up = resp.StatusCode == http.StatusOK; up {
					break
				}
			}
		}
		if !up {
			t.Fatal("a server does not come up")
		}
		nodes = append(nodes, n)
	}
	return nodes, "nodes", common
}

// command runs a command of the program and decodes its JSON output.
func command(t *testing.T, output any, args ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "--json"), noEnvironment, strings.NewReader(""), &out, t.Output()); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if output != nil {
		if err := json.Unmarshal(out.Bytes(), output); err != nil {
			t.Fatalf("%v printed %s: %v", args, &out, err)
		}
	}
}

// get requests a path from a node with a key.
func (n *node) get(ctx context.Context, path, key string) (status int, header http.Header, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+path, nil)
	if err != nil {
		return 0, nil, "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := n.client.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(text), err
}

// TestRevokedOnEveryNode: a key works on two processes until a third revokes it, and
// never after the commit.
func TestRevokedOnEveryNode(t *testing.T) {
	rounds, count := 1000, 2
	if os.Getenv(dbtest.Variable) == "" {
		count = 1 // SQLite has one node
	}
	if count == 1 || testing.Short() {
		rounds = 100
	}
	nodes, slug, common := startNodes(t, count)
	databaseURL := strings.TrimPrefix(common[1], "--database-url=")
	d := dbtest.Open(t, databaseURL)
	organization := ""
	if err := d.QueryRow(t.Context(), "SELECT id FROM organizations WHERE slug = $1", slug).Scan(&organization); err != nil {
		t.Fatal(err)
	}
	keys := apikey.Open(apikey.Config{
		DB:         d,
		Catalogues: map[apikey.ServiceName]apikey.Catalogue{apikey.Helpdesk: {}},
		PlanLimit:  func(context.Context, string) (int64, error) { return 60, nil },
	})
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(rounds) && t.Context().Err() == nil; i = next.Add(1) {
				k, token, err := keys.Create(t.Context(), apikey.New{
					OrganizationID: organization, Service: apikey.Helpdesk, Environment: apikey.Live, Name: "round " + strconv.FormatInt(i, 10),
					Permissions: apikey.Permissions{Level: apikey.ReadOnly},
				})
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				check := func(when string, want int, code string) {
					for j := range nodes {
						status, _, body, err := nodes[j].get(t.Context(), "/api/v1/key", token.Reveal())
						if err != nil || status != want || !strings.Contains(body, code) {
							t.Errorf("round %d, node %d, %s: got %d %s %v, want %d %s", i, j, when, status, body, err, want, code)
						}
					}
				}
				check("before", http.StatusOK, `"active"`)
				if _, err := keys.Revoke(t.Context(), organization, k.ID); err != nil {
					t.Errorf("revoke: %v", err)
					return
				}
				// After 60 failures a minute the address's bucket is empty, which refuses
				// as well.
				for j := range nodes {
					status, _, body, err := nodes[j].get(t.Context(), "/api/v1/key", token.Reveal())
					switch {
					case err != nil:
						t.Errorf("round %d, node %d: %v", i, j, err)
					case status == http.StatusUnauthorized && strings.Contains(body, `"api_key_revoked"`):
					case status == http.StatusTooManyRequests && strings.Contains(body, `"address"`):
					default:
						t.Errorf("round %d, node %d, after: got %d %s", i, j, status, body)
					}
				}
			}
		})
	}
	workers.Wait()
}

// TestRedisLimitOverNodes: of four times as many concurrent calls as a key's limit, over
// two processes with shared windows, exactly the limit passes, and refused calls do not
// extend the window.
func TestRedisLimitOverNodes(t *testing.T) {
	redis := os.Getenv("KICKSTAND_TEST_REDIS_URL")
	if redis == "" {
		t.Skip("KICKSTAND_TEST_REDIS_URL names no Redis to share windows in")
	}
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("SQLite has one node: " + dbtest.Variable + " names no PostgreSQL for two")
	}
	nodes, slug, common := startNodes(t, 2, "--redis-url="+redis)
	const limit = 60 // free plan
	// A node that waits too long for Redis counts alone and logs it: such calls are not
	// part of this test.
	alone := func() (times int, now bool) {
		for _, n := range nodes {
			began := strings.Count(n.said.String(), "redis is unavailable")
			times += began
			now = now || began > strings.Count(n.said.String(), "redis is available again")
		}
		return times, now
	}
	for round, tries := 0, 0; round < 3; tries++ {
		if tries == 20 {
			t.Fatal("Redis is too slow to share windows in")
		}
		before, _ := alone()
		var made struct{ Key string }
		command(t, &made, append([]string{"key", "create", "--org=" + slug, "--service=helpdesk", "--environment=live",
			"--name=round " + strconv.Itoa(tries), "--level=read_only"}, common...)...)
		var mu sync.Mutex
		passed, refused := 0, 0
		var first, last int64 // from the responses' end of the window
		var calls sync.WaitGroup
		for i := range 4 * limit {
			calls.Go(func() {
				status, header, body, err := nodes[i%2].get(t.Context(), "/api/v1/key", made.Key)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Errorf("call: %v", err)
				case status == http.StatusOK:
					passed++
				case status == http.StatusTooManyRequests && strings.Contains(body, `"rate_limited"`):
					refused++
				default:
					t.Errorf("call: got %d %s", status, body)
				}
				reset, err := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64)
				if err != nil {
					t.Errorf("the end of the window: %v", err)
					return
				}
				if first == 0 {
					first, last = reset, reset
				}
				first, last = min(first, reset), max(last, reset)
			})
		}
		calls.Wait()
		if times, now := alone(); now || times != before {
			t.Logf("round %d: once more, because Redis was too slow", round)
			continue
		}
		if passed != limit || refused != 3*limit {
			t.Errorf("round %d: %d passed and %d were refused, want %d and %d", round, passed, refused, limit, 3*limit)
		}
		// Each node computes the end by its own clock.
		if last-first > 1 {
			t.Errorf("round %d: the window ends at %d and at %d, want one moment", round, first, last)
		}
		round++
	}
}
