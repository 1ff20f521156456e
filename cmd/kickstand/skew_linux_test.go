package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// skewVariable names the file with the clock's error of a program of [buildSkewed].
const skewVariable = "KICKSTAND_TEST_SKEW"

const skewedTime = `package time

import "sync/atomic"

var skew atomic.Int64

// SetSkew sets the wall clock of the program wrong.
func SetSkew(d Duration) { skew.Store(int64(d)) }

func skewed(sec int64, nsec int32) (int64, int32) {
	sum := int64(nsec) + skew.Load()
	sec, sum = sec+sum/1e9, sum%1e9
	if sum < 0 {
		sec, sum = sec-1, sum+1e9
	}
	return sec, int32(sum)
}
`

const skewedMain = `package main

import (
	"os"
	"strings"
	"time"
)

// init sets the wall clock wrong by the duration in a file, now and whenever it changes.
func init() {
	set := func() {
		text, err := os.ReadFile(os.Getenv("` + skewVariable + `"))
		if err != nil {
			return
		}
		if d, err := time.ParseDuration(strings.TrimSpace(string(text))); err == nil {
			time.SetSkew(d)
		}
	}
	set()
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			set()
		}
	}()
}
`

// buildSkewed builds the program with a wall clock that is wrong by the duration in the file
// that [skewVariable] names. All code has this clock, that of dependencies, too.
func buildSkewed(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("no Go: %v", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const read = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"
	if strings.Count(string(text), read) != 1 {
		t.Fatal("time.Now has changed: adapt this test")
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	add := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = file
	}
	add(filepath.Join(source, "time.go"), strings.Replace(string(text), read, strings.Replace(read, "\tif", "\tsec, nsec = skewed(sec, nsec)\n\tif", 1), 1))
	add(filepath.Join(source, "skew_overlay.go"), skewedTime)
	add(filepath.Join(here, "skew_overlay.go"), skewedMain)
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "kickstand")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	build := exec.Command("go", "build", "-overlay="+path, "-o", program, ".")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program with a wrong clock: %v\n%s", err, said)
	}
	t.Logf("built in %s", time.Since(began).Round(time.Second))
	return program
}

// skewedNode is a server process with a wrong clock.
type skewedNode struct {
	url     string
	file    string // with the clock's error
	process *apptest.Process
	refused int // responses 503
}

func (n *skewedNode) set(t *testing.T, skew time.Duration) {
	t.Helper()
	// Renamed, so that the program never reads half a file.
	if err := os.WriteFile(n.file+".new", []byte(skew.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.file+".new", n.file); err != nil {
		t.Fatal(err)
	}
}

// ready returns the status of /readyz and its part about the clock.
func (n *skewedNode) ready(t *testing.T) (status int, clock struct {
	Status string
	Skew   float64 `json:"skew_seconds"`
}) {
	t.Helper()
	resp, err := http.Get(n.url + "/readyz")
	if err != nil {
		return 0, clock
	}
	defer resp.Body.Close()
	var body struct {
		Parts map[string]json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body.Parts["clock"], &clock); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, clock
}

// TestSkewedProcesses runs processes on one PostgreSQL with clocks that are right, wrong, very
// wrong, and jumping. Senders write texts, each after the previous one was answered 200, to
// any process; replies leave meanwhile. No text may be lost, doubled or out of order in its
// thread, and no reply may reach the customer twice or not at all.
func TestSkewedProcesses(t *testing.T) {
	if os.Getenv(dbtest.ClusterVariable) == "" {
		t.Skip("set " + dbtest.ClusterVariable + "=1: it builds the program and runs for a minute")
	}
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("only on PostgreSQL")
	}
	const senders, texts = 30, 25
	skews := []time.Duration{0, time.Second, -15 * time.Second, 2 * time.Minute, -time.Hour, 0}
	refusing, jumping := 4, 5

	program := buildSkewed(t)
	databaseURL := dbtest.URL(t)
	provider := &textProvider{pause: func() { pause(30 * time.Millisecond) }}
	api := httptest.NewServer(provider)
	t.Cleanup(api.Close)
	secret, to := "skew-"+strings.Repeat("x", 20), "+14155550100"
	data := t.TempDir()
	common := []string{"--data=" + data, "--database-url=" + databaseURL, "--log-format=json", "--sms-secret=" + secret, "--sms-api-url=" + api.URL,
		"--retry-time-scale=0.05"}
	command(t, nil, append([]string{"org", "create", "--name=Skew"}, common...)...)
	command(t, nil, append([]string{"channel", "connect", "sms", "--org=skew", "--address=" + to, "--secret=" + secret,
		`--credentials={"account_sid":"AC1","auth_token":"t"}`}, common...)...)

	nodes := make([]*skewedNode, len(skews))
	var starting sync.WaitGroup
	for i, skew := range skews {
		n := &skewedNode{file: filepath.Join(t.TempDir(), "skew")}
		listen := apptest.Address(t)
		n.url, nodes[i] = "http://"+listen, n
		n.set(t, skew)
		cmd := exec.Command(program, append([]string{"serve", "--listen=" + listen, "--database-connections=15"}, common...)...)
		cmd.Env = append(os.Environ(), skewVariable+"="+n.file)
		starting.Go(func() {
			path := "/readyz"
			if i == refusing {
				path = "/healthz"
			}
			n.process = apptest.StartUntil(t, cmd, n.url+path)
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	t.Cleanup(func() {
		for i, n := range nodes {
			n.process.Kill()
			if t.Failed() {
				t.Logf("the process with the clock off by %s said, at last: %s", skews[i], n.process.Output())
			}
		}
	})
	for i, skew := range skews {
		want, part := http.StatusOK, "warned"
		switch {
		case i == refusing:
			want, part = http.StatusServiceUnavailable, "failed"
		case skew == 0:
			part = "ok"
		}
		status, clock := nodes[i].ready(t)
		if status != want || clock.Status != part || clock.Skew < skew.Seconds()-0.4 || clock.Skew > skew.Seconds()+0.4 {
			t.Errorf("a clock off by %s: /readyz is %d with %+v, want %d with %s", skew, status, clock, want, part)
		}
		doctor := exec.Command(program, append([]string{"doctor", "--json"}, common...)...)
		doctor.Env = append(os.Environ(), skewVariable+"="+nodes[i].file)
		out, _ := doctor.Output() // other checks may fail
		var findings []struct{ Check, Status string }
		if err := json.Unmarshal(out, &findings); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		verdict := map[string]string{"ok": "ok", "warned": "warn", "failed": "fail"}[part]
		for _, f := range findings {
			if f.Check == "clock" && f.Status != verdict {
				t.Errorf("a clock off by %s: doctor says %s, want %s", skew, f.Status, verdict)
			}
		}
	}

	a, err := app.Open(t.Context(), app.Config{
		BaseURL: nodes[0].url, Data: data, DatabaseURL: databaseURL, APIURLs: map[string]string{"sms": api.URL}, MailFrom: "k@client.example",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	org, err := a.Accounts.OrganizationBySlug(t.Context(), "skew")
	if err != nil {
		t.Fatal(err)
	}

	load, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	jumps := 0
	others.Go(func() { // one clock jumps
		for ; load.Err() == nil; jumps++ {
			nodes[jumping].set(t, []time.Duration{0, -40 * time.Second, 3 * time.Minute, time.Hour, -time.Second, -24 * time.Hour, 20 * time.Second}[jumps%7])
			pause(800 * time.Millisecond)
		}
		nodes[jumping].set(t, 0)
	})
	replies := 0
	others.Go(func() { // replies of agents
		for load.Err() == nil {
			pause(100 * time.Millisecond)
			ids, err := db.All(load, a.DB, func(row db.Row) (id string, err error) { err = row.Scan(&id); return id, err }, "SELECT id FROM tickets")
			if err != nil || len(ids) == 0 {
				continue
			}
			says, err := a.Desk.Compose(t.Context(), "", desk.Draft{Text: fmt.Sprintf("Reply %d.", replies)})
			if err == nil {
				err = a.DB.Write(t.Context(), func(tx *db.Tx) error {
					_, err := a.Desk.ReplyTx(t.Context(), tx, org.ID, ids[rand.N(len(ids))], desk.Reply{By: desk.Actor{ID: "k", Name: "Key"}, Content: says})
					return err
				})
			}
			if err != nil {
				t.Error(err)
				return
			}
			replies++
		}
	})
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: senders}}
	var mu sync.Mutex
	post := func(from int, text string) {
		for t.Context().Err() == nil {
			i := rand.N(len(nodes))
			resp, err := client.Do(smsRequest(nodes[i].url, secret, fmt.Sprintf("SM%d-%s", from, text), fmt.Sprintf("+14155550%03d", 101+from), to, text))
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			switch {
			case resp.StatusCode == http.StatusOK && i == refusing:
				t.Error("a process with a clock off by an hour answered 200")
				return
			case resp.StatusCode == http.StatusOK:
				return
			case resp.StatusCode == http.StatusServiceUnavailable && (i == refusing || i == jumping):
				mu.Lock()
				nodes[i].refused++
				mu.Unlock()
			default:
				t.Errorf("a clock off by %s: the response is %s", skews[i], resp.Status)
				return
			}
		}
	}
	began := time.Now()
	var sending sync.WaitGroup
	for from := range senders {
		sending.Go(func() {
			for n := range texts {
				post(from, fmt.Sprintf("%03d", n))
				if rand.N(2) == 0 { // else at once
					pause(800 * time.Millisecond)
				}
			}
		})
	}
	sending.Wait()
	took := time.Since(began)
	stop()
	others.Wait()

	var left int
	for range poll(t, 2*time.Minute) {
		if err := a.DB.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM jobs WHERE kind LIKE 'inbound/%') + (SELECT count(*) FROM outbox)").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			break
		}
	}
	if left > 0 {
		t.Errorf("%d texts and replies are not processed", left)
	}
	for range poll(t, 20*time.Second) {
		if status, clock := nodes[jumping].ready(t); status == http.StatusOK && clock.Status == "ok" {
			break
		}
	}
	if status, clock := nodes[jumping].ready(t); status != http.StatusOK || clock.Status != "ok" {
		t.Errorf("after its clock is right, /readyz is %d with %+v", status, clock)
	}

	lost, doubled, disordered := 0, 0, 0
	for from := range senders {
		ids, err := db.All(t.Context(), a.DB, func(row db.Row) (id string, err error) { err = row.Scan(&id); return id, err },
			"SELECT DISTINCT ticket_id FROM conversations WHERE thread_key = $1", fmt.Sprintf("+14155550%03d", 101+from))
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) != 1 {
			t.Errorf("sender %d has %d tickets", from, len(ids))
			continue
		}
		var got []string
		if err := a.Desk.EachMessage(t.Context(), org.ID, ids[0], desk.MessageQuery{Sort: keyset.Sort{Field: desk.ByCreatedAt}, Direction: []string{string(desk.DirectionInbound)}}, func(m *desk.Message) error {
			got = append(got, strings.TrimSpace(m.Text))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		shown, err := a.Desk.Messages(t.Context(), a.DB, org.ID, ids[0])
		if err != nil {
			t.Fatal(err)
		}
		last := ""
		for _, m := range shown { // as the dashboard has it
			if text := strings.TrimSpace(m.Text); m.Direction == string(desk.DirectionInbound) {
				if text < last {
					disordered++
				}
				last = text
			}
		}
		count := make(map[string]int)
		for i, text := range got { // as the API has it
			count[text]++
			if i > 0 && text < got[i-1] {
				disordered++
			}
		}
		for n := range texts {
			switch c := count[fmt.Sprintf("%03d", n)]; {
			case c == 0:
				lost++
			case c > 1:
				doubled++
			}
		}
	}
	sent := provider.count()
	missing, twice := 0, 0
	for n := range replies {
		switch c := sent[fmt.Sprintf("Reply %d.", n)]; {
		case c == 0:
			missing++
		case c > 1:
			twice++
		}
	}
	if lost+doubled+disordered+missing+twice > 0 || replies == 0 || nodes[refusing].refused == 0 || nodes[jumping].refused == 0 {
		t.Errorf("%d texts lost, %d doubled, %d out of order; %d replies not sent, %d sent twice", lost, doubled, disordered, missing, twice)
	}
	t.Logf("%d texts of %d senders in %s, %d jumps, %d replies; %d and %d requests refused; %d texts lost, %d doubled, %d out of order; %d replies not sent, %d sent twice",
		senders*texts, senders, took.Round(time.Millisecond), jumps, replies, nodes[refusing].refused, nodes[jumping].refused, lost, doubled, disordered, missing, twice)
}
