package db_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

func open(t *testing.T, rawURL string, o db.Options) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), rawURL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestFrozenIsFound: statements at a server that answers nothing fail long before their limit,
// and the next ones at once. A slow statement is none of these.
func TestFrozenIsFound(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("needs PostgreSQL")
	}
	u, err := url.Parse(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	line := newIce(t, u.Host)
	u.Host = line.address
	o := db.Wary()
	o.MaxConns = 4
	d := open(t, u.String(), o)
	ctx := context.Background()
	if err := d.QueryRow(ctx, "SELECT pg_sleep(2.5)").Scan(new(any)); err != nil {
		t.Errorf("a slow statement, while the server answers: %v", err)
	}
	line.freeze(true)
	begun := time.Now()
	var waiting sync.WaitGroup
	for range 20 { // more than there are connections
		waiting.Go(func() { wantUnavailable(t, "a read at a frozen server", d.QueryRow(ctx, "SELECT 1").Scan(new(int))) })
	}
	waiting.Wait()
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("statements failed after %s", took)
	}
	line.freeze(false)
	eventually(t, 30*time.Second, "the server is used again", func() bool { return d.QueryRow(ctx, "SELECT 1").Scan(new(int)) == nil })
}

// TestOneConnectionReadOnly: when one connection finds its server read-only, the others are
// replaced, so that the probe of /readyz and all writes agree. Afterwards all write again.
func TestOneConnectionReadOnly(t *testing.T) {
	s := dbtest.NewServer(t)
	s.Exec("CREATE DATABASE k")
	d := open(t, s.URL("k"), db.Options{MaxConns: 4})
	if _, err := d.Migrate(t.Context(), db.Helpdesk); err != nil {
		t.Fatal(err)
	}
	everywhere := func() { // on each of four connections
		var held, writers sync.WaitGroup
		held.Add(4)
		for range 4 {
			writers.Go(func() {
				here := sync.OnceFunc(held.Done)
				defer here()
				d.Write(t.Context(), func(tx *db.Tx) error {
					here()
					held.Wait()
					_, err := tx.Exec(t.Context(), "UPDATE heartbeat SET beat_at = 1 WHERE id = 2")
					return err
				})
			})
		}
		writers.Wait()
	}
	everywhere()
	s.Exec("ALTER DATABASE k SET default_transaction_read_only = on") // of later sessions
	s.Exec("SELECT pg_terminate_backend(min(pid)) FROM pg_stat_activity WHERE datname = 'k'")
	everywhere() // one of which is new
	probe := func() error { return d.ProbeWrite(t.Context()) }
	eventually(t, 5*time.Second, "a probe fails", func() bool { return probe() != nil })
	eventually(t, 5*time.Second, "the reason is known", func() bool {
		err := probe()
		return err != nil && db.FailureReason(err) == "it can only be read"
	})
	for range 20 {
		wantUnavailable(t, "a probe, afterwards", probe())
	}
	if err := d.QueryRow(t.Context(), "SELECT 1").Scan(new(int)); err != nil {
		t.Errorf("a read: %v", err)
	}
	s.Exec("ALTER DATABASE k RESET default_transaction_read_only")
	took := eventually(t, 10*time.Second, "it can be written again", func() bool { return probe() == nil })
	t.Logf("written again after %s", took)
}

// TestSeveralHosts: the server that can be written to is used, wherever it stands in the list,
// also for listening, and a transaction is durable only once the standby has it.
func TestSeveralHosts(t *testing.T) {
	primary := dbtest.NewServer(t)
	primary.Exec("CREATE DATABASE k")
	standby := primary.Standby()
	u, err := url.Parse(primary.URL("k"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = standby.Address() + "," + primary.Address()
	o := db.Wary()
	d := open(t, u.String(), o)
	if _, err := d.Migrate(t.Context(), db.Helpdesk); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 100)
	listening, stop := context.WithCancel(t.Context())
	var listener sync.WaitGroup
	listener.Go(func() { d.Listen(listening, "news", func(payload string) { heard <- payload }) })
	defer listener.Wait()
	defer stop()
	if got := <-heard; got != "" {
		t.Errorf("heard %q first", got)
	}
	write(t, d, "CREATE TABLE things (id BIGINT PRIMARY KEY)")
	ids := 0
	for range 100 {
		write(t, d, "INSERT INTO things (id) VALUES ($1)", ids)
		ids++
	}
	begun := time.Now()
	primary.Kill()
	wantUnavailable(t, "a write without a primary", tryWrite(d, "INSERT INTO things (id) VALUES (-1)"))
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it failed after %s", took)
	}
	standby.Promote()
	took := eventually(t, 10*time.Second, "the new primary is written", func() bool { return tryWrite(d, "INSERT INTO things (id) VALUES ($1)", ids) == nil })
	var n int
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM things WHERE id >= 0").Scan(&n); err != nil || n != ids+1 {
		t.Errorf("%d rows, %v, want %d", n, err, ids+1)
	}
	if got := <-heard; got != "" {
		t.Errorf("heard %q after the failover, want nothing but that something may be lost", got)
	}
	if err := d.Notify(t.Context(), "news", []string{"hello"}); err != nil {
		t.Error(err)
	}
	if got := <-heard; got != "hello" {
		t.Errorf("heard %q", got)
	}
	t.Logf("written again %s after the promotion", took.Round(time.Millisecond))
}

// TestStandbyAway: a transaction that the synchronous standby has not confirmed is no success,
// even if the server ends the wait.
func TestStandbyAway(t *testing.T) {
	primary := dbtest.NewServer(t)
	primary.Exec("CREATE DATABASE k")
	standby := primary.Standby()
	d := open(t, primary.URL("k"), db.Wary())
	write(t, d, "CREATE TABLE things (id BIGINT PRIMARY KEY)")
	standby.Kill()
	ended := make(chan error, 1)
	go func() { ended <- tryWrite(d, "INSERT INTO things (id) VALUES (1)") }()
	eventually(t, 30*time.Second, "the commit waits", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the write did not wait: %v", err)
		default:
		}
		return primary.Value("SELECT count(pg_cancel_backend(pid))::text FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = 'k'") == "1"
	})
	err := <-ended
	wantUnavailable(t, "a write without the standby", err)
	if got := db.FailureReason(err); got != "the standby server does not confirm transactions" {
		t.Errorf("the reason is %q: %v", got, err)
	}
	standby.Start()
	if err := tryWrite(d, "INSERT INTO things (id) VALUES (2)"); err != nil {
		t.Errorf("a write, with the standby again: %v", err)
	}
}

// TestPooler: through a pooler that hands each transaction to any session, everything is the
// same, but notifications, which need a direct connection.
func TestPooler(t *testing.T) {
	s := dbtest.NewServer(t, "max_connections=200")
	pooler := dbtest.NewPooler(s)
	n := 0
	t.Run("conformance", func(t *testing.T) {
		t.Setenv(dbtest.Variable, s.URL("postgres"))
		dbtest.Run(t, func(t *testing.T) *db.DB {
			direct, err := url.Parse(dbtest.URL(t))
			if err != nil {
				t.Fatal(err)
			}
			d := open(t, pooler.URL(strings.TrimPrefix(direct.Path, "/")), db.Options{MaxConns: 8, DirectURL: direct.String()})
			if !d.Pooled() {
				t.Error("the pooler is not noticed")
			}
			n++
			return d
		})
	})
	if n == 0 {
		t.Error("nothing was tested")
	}

	s.Exec("CREATE DATABASE k")
	pooled := pooler.URL("k")
	var dbs []*db.DB
	for i := range 3 {
		d := open(t, pooled, db.Options{Namespace: fmt.Sprintf("space_%d", i), MaxConns: 8})
		if _, err := d.Migrate(t.Context(), db.Fleet); err != nil {
			t.Fatal(err)
		}
		write(t, d, "CREATE TABLE who (name TEXT)")
		write(t, d, "INSERT INTO who (name) VALUES ($1)", fmt.Sprint(i))
		dbs = append(dbs, d)
	}
	var all sync.WaitGroup
	for i, d := range dbs {
		for range 8 {
			all.Go(func() {
				for range 50 {
					var got, timeout string
					if err := d.QueryRow(t.Context(), "SELECT name FROM who").Scan(&got); err != nil || got != fmt.Sprint(i) {
						t.Errorf("a read in space %d: got %q, %v", i, got, err)
					}
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						return tx.QueryRow(t.Context(), "SELECT name, current_setting('statement_timeout') FROM who").Scan(&got, &timeout)
					})
					if err != nil || got != fmt.Sprint(i) || timeout != "15s" {
						t.Errorf("a transaction in space %d: got %q, %s, %v", i, got, timeout, err)
					}
				}
			})
		}
	}
	all.Wait()
	// The sessions of the pooler keep nothing of ours for its other clients.
	for _, setting := range []string{"search_path", "statement_timeout", "lock_timeout"} {
		other := open(t, pooled, db.Options{})
		var set string
		if err := other.QueryRow(t.Context(), "SELECT source FROM pg_settings WHERE name = $1", setting).Scan(&set); err != nil || set != "default" {
			t.Errorf("%s comes from %q, %v", setting, set, err)
		}
	}
	// Without a direct connection, listeners are told to look now and then.
	heard := make(chan string, 100)
	listening, stop := context.WithCancel(t.Context())
	var listener sync.WaitGroup
	listener.Go(func() { dbs[0].Listen(listening, "news", func(payload string) { heard <- payload }) })
	for range 2 {
		if got := <-heard; got != "" {
			t.Errorf("heard %q", got)
		}
	}
	stop()
	listener.Wait()
}
