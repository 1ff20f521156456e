package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/blob/blobtest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// cluster is several server processes on one PostgreSQL, under load: customers write texts, each
// the next when the last was accepted, a member replies, and a receiver gets the events.
type cluster struct {
	t        *testing.T
	program  string // of new processes; empty: this one
	flags    []string
	database string // for the test's own look
	members  []*member
	provider *textProvider
	key      string // of the API
	tickets  []string

	stop    context.CancelFunc // of the load
	writers sync.WaitGroup
	behind  atomic.Bool // more jobs wait than the processes will do in some seconds

	mu       sync.Mutex
	accepted map[string]int    // texts by customer
	replied  map[string]int    // replies by ticket
	heard    map[string]string // delivery by event
	again    int               // deliveries that came again
}

// member is a process of a cluster.
type member struct {
	listen, url string
	process     *apptest.Process // nil: none is running
}

const (
	clusterSecret  = "cluster-secret-0123456789"
	clusterNumber  = "+14155550100"
	clusterMailbox = "support@cluster.example"
	customers      = 6
)

// newCluster starts three processes on a database, with an organization and a ticket of each
// customer. watch is the URL of the same database for the test.
func newCluster(t *testing.T, databaseURL, watch string, flags ...string) *cluster {
	t.Helper()
	c := &cluster{
		t: t, database: watch, provider: &textProvider{pause: func() { pause(10 * time.Millisecond) }},
		accepted: make(map[string]int), replied: make(map[string]int), heard: make(map[string]string),
	}
	api := httptest.NewServer(c.provider)
	t.Cleanup(api.Close)
	c.flags = append([]string{"--data=" + t.TempDir(), "--database-url=" + databaseURL, "--log-format=json", "--sms-secret=" + clusterSecret,
		"--sms-api-url=" + api.URL, "--allow-private-receivers", "--retry-time-scale=0.01"}, flags...)
	t.Cleanup(func() {
		c.stopLoad()
		for _, m := range c.members {
			if m.process != nil {
				m.process.Kill()
				if t.Failed() {
					t.Logf("%s said, at last: %s", m.url, m.process.Output())
				}
			}
		}
	})
	return c
}

// setUp creates the organization and its tickets; the first process is running.
func (c *cluster) setUp() {
	t := c.t
	t.Helper()
	call := c.call
	call(nil, "org", "create", "--name=Cluster", "--plan=business")
	password := "cluster-test-password"
	call(nil, "user", "create", "--email=admin@example.com", "--password="+password, "--org=cluster", "--role=admin")
	call(nil, "channel", "connect", "sms", "--org=cluster", "--address="+clusterNumber, "--secret="+clusterSecret, `--credentials={"account_sid":"AC1","auth_token":"t"}`)
	var made struct{ Key string }
	call(&made, "key", "create", "--org=cluster", "--service=helpdesk", "--environment=live", "--name=Cluster", "--level=admin")
	c.key = made.Key
	body := `{"url":"` + c.receiverURL() + `","events":["*"]}`
	if status, text, err := c.api(t.Context(), c.members[0], http.MethodPost, "/api/v1/webhooks", "", body); err != nil || status != http.StatusCreated {
		t.Fatalf("create a webhook: %d %s %v", status, text, err)
	}
	for i := range customers {
		if !c.text(t.Context(), i, 0) {
			t.Fatal("no text was accepted")
		}
	}
	d := c.watch()
	defer d.Close()
	for range poll(t, time.Minute) {
		var err error
		c.tickets, err = db.All(t.Context(), d, func(row db.Row) (id string, err error) { err = row.Scan(&id); return id, err },
			"SELECT ticket_id FROM conversations WHERE channel = 'sms' ORDER BY thread_key")
		if err != nil {
			t.Fatal(err)
		}
		if len(c.tickets) == customers {
			return
		}
	}
	t.Fatalf("the customers have %d tickets", len(c.tickets))
}

// call runs a command of the program beside the processes.
func (c *cluster) call(output any, args ...string) {
	c.t.Helper()
	cmd := c.command(append(args, append(c.flags, "--json")...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err == nil && output != nil {
		err = json.Unmarshal(out, output)
	}
	if err != nil {
		c.t.Fatalf("%v: %v: %s %s", args, err, out, &said)
	}
}

func (c *cluster) receiverURL() string {
	receiver := httptest.NewServer(http.HandlerFunc(c.hear))
	c.t.Cleanup(receiver.Close)
	return receiver.URL
}

// hear is the receiver of the webhook.
func (c *cluster) hear(_ http.ResponseWriter, r *http.Request) {
	var body struct{ ID string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return
	}
	delivery := r.Header.Get("X-Service-Delivery")
	c.mu.Lock()
	defer c.mu.Unlock()
	before, again := c.heard[body.ID]
	if again {
		c.again++
	}
	if again && before != delivery {
		c.t.Errorf("event %s came as delivery %s and as %s", body.ID, before, delivery)
	}
	c.heard[body.ID] = delivery
}

// command is a command of the program.
func (c *cluster) command(args ...string) *exec.Cmd {
	if c.program != "" {
		return exec.Command(c.program, args...)
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// add starts processes.
func (c *cluster) add(count int) {
	c.t.Helper()
	for range count {
		listen := apptest.Address(c.t)
		m := &member{listen: listen, url: "http://" + listen}
		c.mu.Lock()
		c.members = append(c.members, m)
		c.mu.Unlock()
		c.start(m)
	}
}

func (c *cluster) start(m *member) {
	c.t.Helper()
	m.process = apptest.Start(c.t, c.command(append([]string{"serve", "--listen=" + m.listen}, c.flags...)...), m.url)
}

func (c *cluster) kill(m *member) {
	m.process.Kill()
	m.process = nil
}

// any returns one of the processes.
func (c *cluster) any() *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[rand.IntN(len(c.members))]
}

// one is a client with a connection for each request, as different clients have.
func one() *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
}

// api makes a request with the key.
func (c *cluster) api(ctx context.Context, m *member, method, path, idempotencyKey, body string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, m.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	resp, err := one().Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

func customer(i int) string { return fmt.Sprintf("+14155550%03d", 101+i) }

// text posts a customer's text until a process accepts it, as a provider does. It returns false
// if ctx ends before.
func (c *cluster) text(ctx context.Context, i, n int) bool {
	for ctx.Err() == nil {
		status := c.post(ctx, c.any(), i, n)
		switch {
		case status == http.StatusOK:
			c.mu.Lock()
			c.accepted[customer(i)] = n + 1
			c.mu.Unlock()
			return true
		case status != 0 && status != http.StatusServiceUnavailable:
			c.t.Errorf("a text was answered %d", status)
			return false
		}
		pause(40 * time.Millisecond)
	}
	return false
}

// post posts a text once; 0: there was no response.
func (c *cluster) post(ctx context.Context, m *member, i, n int) (status int) {
	req := smsRequest(m.url, clusterSecret, fmt.Sprintf("SM%d-%d", i, n), customer(i), clusterNumber, strconv.Itoa(n))
	resp, err := one().Do(req.WithContext(ctx))
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// load lets customers write and the member reply until [cluster.finish].
func (c *cluster) load() {
	ctx, cancel := context.WithCancel(c.t.Context())
	c.stop = cancel
	for i := range customers {
		c.writers.Go(func() {
			for n := 1; c.text(ctx, i, n); n++ {
				for pause(20 * time.Millisecond); c.behind.Load() && ctx.Err() == nil; {
					pause(50 * time.Millisecond)
				}
			}
		})
	}
	c.writers.Go(func() { c.watchBacklog(ctx) })
	for _, ticket := range c.tickets {
		c.writers.Go(func() {
			for n := 0; ctx.Err() == nil; {
				if c.behind.Load() {
					pause(100 * time.Millisecond)
					continue
				}
				text := fmt.Sprintf("%s %d.", ticket, n)
				status, said, err := c.api(ctx, c.any(), http.MethodPost, "/api/v1/tickets/"+ticket+"/messages", strings.ReplaceAll(text, " ", "-"), `{"kind":"reply","text":"`+text+`"}`)
				switch {
				case err != nil || status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests:
				case status == http.StatusConflict && strings.Contains(said, "idempotency"): // the first try runs still
				case status != http.StatusCreated:
					c.t.Errorf("a reply was answered %d %s", status, said)
					return
				default:
					n++
					c.mu.Lock()
					c.replied[ticket] = n
					c.mu.Unlock()
				}
				pause(200 * time.Millisecond)
			}
		})
	}
}

// mostBehind is the backlog of jobs during which customers and the member do not write: the load is
// what the machine can do.
const mostBehind = 1000

// watchBacklog pauses the customers while the processes are behind.
func (c *cluster) watchBacklog(ctx context.Context) {
	d := c.watch()
	defer d.Close()
	for ctx.Err() == nil {
		var jobs int
		if err := d.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM jobs LIMIT $1) AS waiting", 2*mostBehind).Scan(&jobs); err == nil {
			c.behind.Store(jobs > mostBehind)
		}
		pause(300 * time.Millisecond)
	}
}

func (c *cluster) stopLoad() {
	if c.stop != nil {
		c.stop()
		c.writers.Wait()
		c.stop = nil
	}
}

// count returns the numbers of accepted texts and replies.
func (c *cluster) count() (texts, replies int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.accepted {
		texts += n
	}
	for _, n := range c.replied {
		replies += n
	}
	return texts, replies
}

// progress returns when so many more texts were accepted, and the time that took.
func (c *cluster) progress(texts int) time.Duration {
	c.t.Helper()
	begun := time.Now()
	before, _ := c.count()
	for range poll(c.t, 2*time.Minute) {
		if now, _ := c.count(); now >= before+texts {
			return time.Since(begun)
		}
	}
	c.t.Fatalf("texts are not accepted any more")
	return 0
}

// ready waits until in the /readyz of every process only the given part fails, or none if it is
// empty, and returns the time that took. Without a database, the queue cannot be read either.
func (c *cluster) ready(part string, limit time.Duration) time.Duration {
	c.t.Helper()
	return c.parts(limit, fmt.Sprintf("%q to fail", part), func(parts map[string]string) bool {
		for name, status := range parts {
			if (status == "failed") != (name == part) && !(part == "database" && name == "queue_age") {
				return false
			}
		}
		return true
	})
}

// parts waits until the statuses of the parts of every process's /readyz are as wanted.
func (c *cluster) parts(limit time.Duration, want string, wanted func(map[string]string) bool) time.Duration {
	c.t.Helper()
	begun := time.Now()
	var all sync.WaitGroup
	for _, m := range c.members {
		all.Go(func() {
			report := ""
			for range poll(c.t, limit) {
				resp, err := one().Get(m.url + "/readyz")
				if err != nil {
					report = err.Error()
					continue
				}
				text, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				report = string(text)
				var body struct {
					Status string
					Parts  map[string]struct{ Status string }
				}
				if err := json.Unmarshal(text, &body); err != nil || (body.Status == "ok") != (resp.StatusCode == http.StatusOK) {
					c.t.Errorf("/readyz answers %d %s (%v)", resp.StatusCode, text, err)
					return
				}
				statuses := make(map[string]string)
				for name, p := range body.Parts {
					statuses[name] = p.Status
				}
				if wanted(statuses) {
					return
				}
			}
			c.t.Errorf("after %s /readyz is %s, want %s", limit, report, want)
		})
	}
	all.Wait()
	return time.Since(begun)
}

// refused posts texts to each process until one is refused, and returns how long the longest took. A
// full disk may have room for a few on pages that exist.
func (c *cluster) refused(limit time.Duration) (longest time.Duration) {
	c.t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, m := range c.members {
		all.Go(func() {
			begun, status := time.Now(), http.StatusOK
			for n := 1; status == http.StatusOK && time.Since(begun) < limit; n++ {
				status = c.post(c.t.Context(), m, customers+i, n)
			}
			took := time.Since(begun)
			if status != http.StatusServiceUnavailable || took > limit {
				c.t.Errorf("a text was answered %d after %s, want 503 within %s", status, took, limit)
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, took)
		})
	}
	all.Wait()
	return longest
}

// watch opens the database for the test.
func (c *cluster) watch() *db.DB {
	c.t.Helper()
	d, err := db.Open(c.t.Context(), c.database, db.Options{MaxConns: 3})
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

// finish ends the load, waits until all work is done, and counts. Every accepted text must be
// one message, in order; every reply must have reached the customer once, in order; every event
// the receiver.
func (c *cluster) finish() {
	t := c.t
	t.Helper()
	c.stopLoad()
	d := c.watch()
	defer d.Close()
	var jobs, outbox int
	for range poll(t, 2*time.Minute) {
		err := d.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM jobs WHERE kind LIKE 'inbound/%' OR kind = 'webhook'), (SELECT count(*) FROM outbox)").Scan(&jobs, &outbox)
		if err != nil {
			t.Fatal(err)
		}
		if jobs+outbox == 0 {
			break
		}
	}
	if jobs+outbox > 0 {
		t.Errorf("not done: %d jobs, %d replies", jobs, outbox)
	}
	c.call(nil, "verify", "--blobs")
	var lost, doubled, disordered int
	for i, ticket := range c.tickets {
		want := c.accepted[customer(i)]
		got := c.messages(ticket)
		if len(got) > want && got[len(got)-1] == want { // was accepted as the load ended
			want++
		}
		l, d, o := compare(got, want)
		lost, doubled, disordered = lost+l, doubled+d, disordered+o
		if l+d+o > 0 {
			t.Errorf("texts of customer %d: got %v, want 0 to %d", i, got, want-1)
		}
	}
	c.provider.mu.Lock()
	arrived := make(map[string][]int) // by ticket
	for _, m := range c.provider.texts {
		ticket, number, _ := strings.Cut(strings.TrimSuffix(m["body"].(string), "."), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Errorf("the provider got %q", m["body"])
		}
		arrived[ticket] = append(arrived[ticket], n)
	}
	c.provider.mu.Unlock()
	for _, ticket := range c.tickets {
		got, want := arrived[ticket], c.replied[ticket]
		if len(got) > want && slices.Max(got) == want {
			want++
		}
		l, d, o := compare(got, want)
		lost, doubled, disordered = lost+l, doubled+d, disordered+o
		if l+d+o > 0 {
			t.Errorf("replies in ticket %s: got %v, want 0 to %d", ticket, got, want-1)
		}
	}
	events, err := eventIDs(t.Context(), d)
	if err != nil || len(events) == 0 {
		t.Fatal(len(events), err)
	}
	texts, replies := c.count()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range events {
		if c.heard[id] == "" {
			lost++
			t.Errorf("event %s did not reach the receiver", id)
		}
	}
	t.Logf("%d texts, %d replies, %d events (%d deliveries came again): %d lost, %d doubled, %d out of order", texts, replies, len(events), c.again, lost, doubled, disordered)
}

// quiet checks that the processes have logged each trouble once or twice, however often it occurred.
func (c *cluster) quiet() {
	c.t.Helper()
	var lines, most int
	for _, m := range c.members {
		times := make(map[string]int)
		for text := range strings.Lines(m.process.Log()) {
			var line struct{ Level, Msg, Check, Message string }
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				c.t.Errorf("%s printed %s", m.url, text)
				continue
			}
			lines++
			if (line.Level == "WARN" || line.Level == "ERROR") && line.Message == "" { // not about one message
				what := strings.TrimSpace(line.Msg + " " + line.Check)
				times[what]++
				if most = max(most, times[what]); times[what] == 4 {
					c.t.Errorf("%s says again and again: %s", m.url, text)
				}
			}
		}
	}
	c.t.Logf("%d lines of %d processes' logs; no trouble has more than %d", lines, len(c.members), most)
}

// compare counts how a list differs from 0, 1, …, want-1.
func compare(got []int, want int) (lost, doubled, disordered int) {
	seen := make(map[int]bool)
	for i, n := range got {
		if seen[n] {
			doubled++
		}
		seen[n] = true
		if i > 0 && n < got[i-1] {
			disordered++
		}
	}
	for n := range want {
		if !seen[n] {
			lost++
		}
	}
	return lost, doubled, disordered
}

// messages returns the numbers of a ticket's texts in the order of its thread.
func (c *cluster) messages(ticket string) (numbers []int) {
	t := c.t
	t.Helper()
	path := "/api/v1/tickets/" + ticket + "/messages?direction=inbound&limit=100&sort=created_at"
	for cursor := ""; ; {
		var page struct {
			Data       []struct{ Text string }
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}
		var text string
		for range poll(t, time.Minute) {
			status, body, err := c.api(t.Context(), c.any(), http.MethodGet, path+cursor, "", "")
			if text = body; err == nil && status == http.StatusOK {
				break
			}
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, m := range page.Data {
			n, err := strconv.Atoi(m.Text)
			if err != nil {
				t.Fatalf("a text is %q", m.Text)
			}
			numbers = append(numbers, n)
		}
		if page.NextCursor == "" {
			return numbers
		}
		cursor = "&cursor=" + page.NextCursor
	}
}

// kills returns the number of kills of a test.
func kills(t *testing.T, fewest int) int {
	t.Helper()
	text := os.Getenv("KICKSTAND_TEST_KILLS")
	if text == "" {
		return fewest
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KICKSTAND_TEST_KILLS: %v", err)
	}
	return n
}

// TestClusterUpgrade replaces three processes of the last release one by one by this version,
// which migrates the database, under load.
func TestClusterUpgrade(t *testing.T) {
	if os.Getenv(dbtest.ClusterVariable) == "" {
		t.Skip("set " + dbtest.ClusterVariable + " to test with servers of its own")
	}
	s := dbtest.NewServer(t)
	s.Exec("CREATE DATABASE k")
	c := newCluster(t, s.URL("k"), s.URL("k"))
	c.program = previous(t)
	c.add(3)
	c.setUp()
	c.load()
	c.progress(60)
	c.program = ""
	for i := range c.members {
		m := &member{listen: apptest.Address(t)}
		m.url = "http://" + m.listen
		c.start(m) // migrates, while the old ones serve
		c.progress(60)
		c.mu.Lock()
		old := c.members[i]
		c.members[i] = m
		c.mu.Unlock()
		if !old.process.Stop(30 * time.Second) {
			t.Errorf("an old process does not stop: %s", old.process.Output())
		}
		c.progress(60)
	}
	c.finish()
}

// previous builds the last release, and returns the path of the program.
func previous(t *testing.T) string {
	t.Helper()
	name, err := os.ReadFile("../../.ci/previous-release")
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(name))
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("the history has no commit %s of the last release: %v", commit, err)
	}
	folder := t.TempDir()
	archive := exec.Command("git", "archive", "--output="+filepath.Join(folder, "tree.tar"), commit)
	archive.Dir = "../.."
	unpack := exec.Command("tar", "-xf", "tree.tar")
	build := exec.Command("go", "build", "-o", "previous", "./cmd/kickstand")
	unpack.Dir, build.Dir = folder, folder
	for _, cmd := range []*exec.Cmd{archive, unpack, build} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	return filepath.Join(folder, "previous")
}

// onServer starts a PostgreSQL server with an empty database, and a cluster of three on it.
func onServer(t *testing.T, flags ...string) (*dbtest.Server, *cluster) {
	t.Helper()
	s := dbtest.NewServer(t)
	s.Exec("CREATE DATABASE k")
	c := newCluster(t, s.URL("k"), s.URL("k"), flags...)
	c.add(3)
	c.setUp()
	return s, c
}

// TestClusterKills kills random ones of three processes. KICKSTAND_TEST_KILLS says how often.
func TestClusterKills(t *testing.T) {
	n := kills(t, 6)
	_, c := onServer(t)
	c.load()
	for range n {
		pause(800 * time.Millisecond)
		m := c.any()
		c.kill(m)
		c.start(m)
	}
	c.finish()
	t.Logf("%d kills", n)
}

// TestClusterFailover kills the primary server under load and promotes its synchronous standby.
// Everything must go on by itself within ten seconds.
func TestClusterFailover(t *testing.T) {
	primary := dbtest.NewServer(t)
	primary.Exec("CREATE DATABASE k")
	standby := primary.Standby()
	both := strings.Replace(primary.URL("k"), primary.Address(), primary.Address()+","+standby.Address(), 1)
	c := newCluster(t, both, both)
	c.add(3)
	c.setUp()
	c.load()
	c.progress(60)
	primary.Kill()
	c.ready("database", 10*time.Second)
	refused := c.refused(5 * time.Second)
	standby.Promote()
	promoted := time.Now()
	first := c.progress(1)
	c.ready("", 10*time.Second)
	took := time.Since(promoted)
	c.progress(60)
	c.finish()
	c.quiet()
	if took > 10*time.Second {
		t.Errorf("ready %s after the promotion", took)
	}
	t.Logf("refused within %s; after the promotion, the first text was accepted after %s, all were ready after %s", round(refused), round(first), round(took))
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// TestClusterFrozen freezes the database server. Requests get 503, first after some seconds and
// then at once, and everything goes on when it continues.
func TestClusterFrozen(t *testing.T) {
	s, c := onServer(t)
	c.load()
	c.progress(30)
	s.Freeze()
	var unready, first time.Duration
	var both sync.WaitGroup
	both.Go(func() { unready = c.ready("database", 10*time.Second) })
	both.Go(func() { first = c.refused(20 * time.Second) })
	both.Wait()
	next := c.refused(8 * time.Second)
	s.Thaw()
	begun := time.Now()
	c.progress(1)
	c.ready("", 30*time.Second)
	took := time.Since(begun)
	c.progress(30)
	c.finish()
	c.quiet()
	t.Logf("not ready after %s; 503 after %s, later after %s; ready %s after it went on", round(unready), round(first), round(next), round(took))
}

// TestClusterReadOnly makes the database server read-only for a while.
func TestClusterReadOnly(t *testing.T) {
	s, c := onServer(t)
	c.load()
	c.progress(30)
	s.Exec("ALTER SYSTEM SET default_transaction_read_only = on")
	s.Exec("SELECT pg_reload_conf()")
	unready := c.ready("database", 10*time.Second)
	longest := c.refused(2 * time.Second)
	c.ready("database", time.Second)
	s.Exec("ALTER SYSTEM RESET default_transaction_read_only")
	s.Exec("SELECT pg_reload_conf()")
	took := c.ready("", 10*time.Second)
	t.Logf("not ready after %s; 503 after %s; ready %s after it could be written again", round(unready), round(longest), round(took))
	c.progress(30)
	c.finish()
	c.quiet()
}

// startRedis starts a Redis at a socket.
func startRedis(t *testing.T, socket string) (stop func()) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is not installed: %v", err)
	}
	redis := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no")
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		redis.Process.Kill()
		redis.Wait()
		os.Remove(socket)
	})
	t.Cleanup(stop)
	for range poll(t, 10*time.Second) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
	}
	return stop
}

// TestClusterRedisAway kills the Redis that the processes share, and starts it again. Everything
// goes on meanwhile, and /readyz tells what is away.
func TestClusterRedisAway(t *testing.T) {
	if os.Getenv(dbtest.ClusterVariable) == "" {
		t.Skip("set " + dbtest.ClusterVariable + " to test with servers of its own")
	}
	socket := filepath.Join(t.TempDir(), "redis")
	stop := startRedis(t, socket)
	_, c := onServer(t, "--redis-url=unix://"+socket)
	c.load()
	c.progress(60)
	stop()
	took := c.progress(60)
	c.ready("", 5*time.Second)
	redisIs := func(status string) time.Duration {
		t.Helper()
		return c.parts(10*time.Second, "redis "+status, func(parts map[string]string) bool { return parts["redis"] == status })
	}
	noticed := redisIs("warned")
	startRedis(t, socket)
	back := redisIs("ok")
	c.progress(30)
	c.finish()
	c.quiet()
	t.Logf("60 texts took %s without Redis; /readyz warned after %s, and was ok %s after its start", round(took), round(noticed), round(back))
}

// mailWithFile posts a mail with an attachment until it is accepted or ctx ends. Each refusal is
// counted.
func (c *cluster) mailWithFile(ctx context.Context, n, size int, refused *atomic.Int64) (accepted bool) {
	raw := fmt.Appendf(nil, "From: Ada <ada@client.example>\r\nTo: %s\r\nSubject: Mail %d\r\nMessage-ID: <%[2]d@client.example>\r\nMIME-Version: 1.0\r\n"+
		"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nHello\r\n--b\r\nContent-Type: text/plain\r\n"+
		"Content-Disposition: attachment; filename=file.txt\r\n\r\n%s of %[2]d\r\n--b--\r\n", clusterMailbox, n, strings.Repeat("A file. ", size/8))
	for ctx.Err() == nil {
		resp, err := one().Do(mailRequest(c.any().url, clusterSecret, "ada@client.example", clusterMailbox, raw).WithContext(ctx))
		if err != nil {
			continue
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusOK:
			return true
		case http.StatusServiceUnavailable:
			refused.Add(1)
		default:
			c.t.Errorf("a mail was answered %s", resp.Status)
			return false
		}
		pause(40 * time.Millisecond)
	}
	return false
}

// TestClusterFilesAway makes the bucket of attachments unavailable. What has no files goes on.
// Mails with files wait: large ones at their provider, small ones here. Nothing is lost.
func TestClusterFilesAway(t *testing.T) {
	bucket := blobtest.NewS3(t)
	_, c := onServer(t, "--blob-url="+bucket.URL, "--email-raw-secret="+clusterSecret)
	c.call(nil, "channel", "connect", "email-raw", "--org=cluster", "--address="+clusterMailbox, "--secret="+clusterSecret)
	c.load()
	mailing, stop := context.WithCancel(t.Context())
	var accepted, refused atomic.Int64
	var writers sync.WaitGroup
	for w, size := range []int{1000, 100_000, 200_000} {
		writers.Go(func() {
			for n := w; mailing.Err() == nil; n += 3 {
				if c.mailWithFile(mailing, n, size, &refused) {
					accepted.Add(1)
				}
				pause(30 * time.Millisecond)
			}
		})
	}
	c.progress(60)
	bucket.SetAway(true)
	noticed := c.ready("blobs", 10*time.Second)
	before := accepted.Load()
	texts := c.progress(60)
	for range poll(t, 30*time.Second) {
		if accepted.Load() >= before+5 && refused.Load() >= 4 {
			break
		}
	}
	during := accepted.Load() - before
	bucket.SetAway(false)
	back := c.ready("", 10*time.Second)
	c.progress(30)
	stop()
	writers.Wait()
	c.finish()
	c.quiet()
	d := c.watch()
	defer d.Close()
	var messages, files int64
	if err := d.QueryRow(t.Context(), "SELECT count(DISTINCT id), (SELECT count(*) FROM attachments WHERE blob_key IS NOT NULL) FROM messages WHERE channel = 'email' AND direction = 'inbound'").Scan(&messages, &files); err != nil {
		t.Fatal(err)
	}
	// The last mail of each writer may have been accepted without its knowledge.
	if n := accepted.Load(); messages < n || messages > n+3 || files != messages {
		t.Errorf("%d mails were accepted, and are %d messages with %d files", n, messages, files)
	}
	t.Logf("not ready after %s; 60 texts took %s without files; of %d mails %d were accepted meanwhile, after %d refusals; ready %s after the bucket was back",
		round(noticed), round(texts), messages, during, refused.Load(), round(back))
}

// smallDiskVariable names the folder where [TestClusterDiskFull], running as a process in mount and user
// namespaces of its own, mounts the disk of the database.
const smallDiskVariable = "KICKSTAND_TEST_SMALL_DISK"

// TestClusterDiskFull fills the disk of the database server, and frees it again. What is answered
// 200 is stored, the rest gets 503, and everything goes on by itself.
func TestClusterDiskFull(t *testing.T) {
	if os.Getenv(dbtest.ClusterVariable) == "" {
		t.Skip("set " + dbtest.ClusterVariable + " to test with servers of its own")
	}
	disk := os.Getenv(smallDiskVariable)
	if disk == "" {
		inNamespace(t)
		return
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=300m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	s := dbtest.NewServerIn(t, disk, "max_wal_size=64MB", "min_wal_size=32MB")
	s.Exec("CREATE DATABASE k")
	c := newCluster(t, s.URL("k"), s.URL("k"))
	c.add(3)
	c.setUp()
	c.load()
	c.progress(60)
	free := fillDisk(t, filepath.Join(disk, "ballast"))
	unready := c.ready("database", 30*time.Second)
	refused := c.refused(5 * time.Second)
	free()
	if !s.Running() {
		s.Start()
	}
	back := c.ready("", 20*time.Second)
	c.progress(30)
	c.finish()
	c.quiet()
	t.Logf("not ready %s after the disk was full; 503 within %s; ready %s after there was room again", round(unready), round(refused), round(back))
}

// fillDisk writes a file until the disk is full. free removes it.
func fillDisk(t *testing.T, path string) (free func()) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size >= 1<<12; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	f.Close()
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// inNamespace runs the test once more in a process that may mount disks, which end with it.
func inNamespace(t *testing.T) {
	t.Helper()
	const sysAdmin = 21   // the capability to mount
	const somebody = 1000 // PostgreSQL refuses root
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), smallDiskVariable+"="+t.TempDir())
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: somebody, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: somebody, HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{sysAdmin},
	}
	out, err := child.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skipf("cannot have mounts of our own: %v", err)
	}
	t.Logf("%s", out)
	switch {
	case err != nil:
		t.Error(err)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skip("it was skipped in its namespace")
	}
}
