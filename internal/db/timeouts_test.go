package db_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// hasty opens a database with short limits.
func hasty(t *testing.T, rawURL string) *db.DB {
	t.Helper()
	var err error
	for range 10 { // the limits are short for a busy machine
		var d *db.DB
		if d, err = db.Open(t.Context(), rawURL, db.Hasty()); err == nil {
			t.Cleanup(func() { d.Close() })
			return d
		}
	}
	t.Fatal(err)
	return nil
}

// ice carries connections to a server, and passes nothing on while it is frozen.
type ice struct {
	address  string
	accepted atomic.Int64 // connections
	mu       sync.Mutex
	thawed   *sync.Cond
	frozen   bool
}

func newIce(t *testing.T, target string) *ice {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &ice{address: ln.Addr().String()}
	i.thawed = sync.NewCond(&i.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			i.accepted.Add(1)
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			wg.Go(func() { i.pass(near, far) })
			wg.Go(func() { i.pass(far, near) })
		}
	})
	t.Cleanup(func() {
		i.freeze(false)
		ln.Close()
		wg.Wait()
	})
	return i
}

func (i *ice) pass(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		i.mu.Lock()
		for i.frozen {
			i.thawed.Wait()
		}
		i.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (i *ice) freeze(frozen bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.frozen = frozen
	i.thawed.Broadcast()
}

// TestServerFrozen: a server that does not answer blocks no caller, inside and outside of
// transactions and while waiting for a connection, new or idle. It is used again once it answers.
func TestServerFrozen(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("needs PostgreSQL")
	}
	u, err := url.Parse(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	line := newIce(t, u.Host)
	u.Host = line.address
	d := hasty(t, u.String())
	ctx := context.Background() // no deadline but the database's own
	read := func() error {
		var n int
		return d.QueryRow(ctx, "SELECT 1").Scan(&n)
	}
	if err := read(); err != nil { // leaves an idle connection
		t.Fatal(err)
	}
	line.freeze(true)
	var wg sync.WaitGroup
	for range 100 { // more than there are connections
		wg.Go(func() { wantUnavailable(t, "a read at a frozen server", read()) })
		wg.Go(func() {
			wantUnavailable(t, "a grouped write at a frozen server", d.WriteGrouped(ctx, "key", func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1")
				return err
			}))
		})
		wg.Go(func() {
			wantUnavailable(t, "a write at a frozen server", d.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1")
				return err
			}))
		})
	}
	wg.Wait()
	// Once it is known that the server hangs, few try it.
	if n := line.accepted.Load(); n > 100 {
		t.Errorf("%d connections were tried for 300 requests", n)
	}
	line.freeze(false)
	for err := read(); err != nil; err = read() {
		wantUnavailable(t, "a read before the next try", err)
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the server is not used again")
		}
	}
}

// TestImpatientCaller: a caller that waits no longer is no sign of a frozen server, and the next one
// does not wait. A new connection has time to be opened: the server may be busy with other tests.
func TestImpatientCaller(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("needs PostgreSQL")
	}
	d, err := db.Open(t.Context(), dbtest.URL(t), db.Wary())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	ctx := context.Background() // no deadline but the database's own
	read := func() error {
		var n int
		return d.QueryRow(ctx, "SELECT 1").Scan(&n)
	}
	short, end := context.WithTimeout(ctx, 20*time.Millisecond)
	defer end()
	if err := d.QueryRow(short, "SELECT pg_sleep(0.1)").Scan(new(any)); err == nil {
		t.Error("a statement outlived its caller")
	}
	if err := read(); err != nil {
		t.Errorf("a read after one whose caller had no more time: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := d.Read(ended, func(*db.Tx) error { return nil }); problem.Of(err) == problem.Unavailable {
		t.Errorf("a read without time: got %v, want the context's error", err)
	}
	if err := read(); err != nil {
		t.Errorf("a read after one that its caller ended: %v", err)
	}
}

// TestSlowStatement: a statement has a limit, which is longer for work that is named.
func TestSlowStatement(t *testing.T) {
	rawURL := dbtest.URL(t)
	d := hasty(t, rawURL)
	ctx := t.Context()
	slow := "SELECT pg_sleep(0.4)"
	if !d.Postgres() {
		slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) SELECT count(*) FROM n"
	}
	run := func(ctx context.Context) error {
		return d.Read(ctx, func(tx *db.Tx) error {
			var skip any
			return tx.QueryRow(ctx, slow).Scan(&skip)
		})
	}
	err := run(ctx)
	wantUnavailable(t, "a slow statement", err)
	if !d.Postgres() && !strings.Contains(err.Error(), "a statement took too long: longer than 200ms") {
		t.Errorf("a slow statement: %v, want its limit named", err)
	}
	wantUnavailable(t, "a slow statement without a transaction", d.QueryRow(ctx, slow).Scan(new(any)))
	if !d.Postgres() {
		slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT count(*) FROM n"
	}
	if err := run(db.LongRunning(ctx, "test")); err != nil {
		t.Errorf("a slow statement of long work: %v", err)
	}
	if err := d.ReadBulk(ctx, func(ctx context.Context, tx *db.Tx) error { return tx.QueryRow(ctx, slow).Scan(new(any)) }); err != nil {
		t.Errorf("a slow statement of an export: %v", err)
	}
}

// TestLockHeld: waiting for a locked row ends.
func TestLockHeld(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("needs PostgreSQL: SQLite has one writer")
	}
	d := hasty(t, dbtest.URL(t))
	ctx := t.Context()
	held, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- d.Write(ctx, func(tx *db.Tx) error {
			err := tx.Lock(ctx, "k")
			close(held)
			<-release
			return err
		})
	}()
	<-held
	err := d.Write(ctx, func(tx *db.Tx) error { return tx.Lock(ctx, "k") })
	wantUnavailable(t, "a lock that is held", err)
	if got := db.FailureReason(err); got != "a lock is held for too long" { // not that the statement took too long
		t.Errorf("the reason is %q", got)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestReadOnlyServer: a read-only server is not ready.
func TestReadOnlyServer(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("needs PostgreSQL")
	}
	u, err := url.Parse(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("default_transaction_read_only", "on")
	u.RawQuery = q.Encode()
	wantUnavailable(t, "a server that only reads", hasty(t, u.String()).ProbeWrite(t.Context()))
}

// TestDamage: a database with detected damage reports it for ten minutes, although rows can be written.
func TestDamage(t *testing.T) {
	rawURL := dbtest.SQLiteURL(t)
	synctest.Test(t, func(t *testing.T) {
		path := strings.TrimPrefix(rawURL, "sqlite:")
		d := dbtest.Open(t, rawURL)
		write(t, d, "CREATE TABLE things (id BIGINT PRIMARY KEY, body TEXT)")
		for i := range 200 {
			write(t, d, "INSERT INTO things (id, body) VALUES ($1, $2)", i, strings.Repeat("body", 500))
		}
		if err := d.ProbeWrite(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil { // the log is merged into the file
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		const page = 4096
		if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 20*page), info.Size()-40*page); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		d = dbtest.Open(t, rawURL)
		if err := d.ProbeWrite(t.Context()); err != nil {
			t.Errorf("before anybody has read the table: %v", err)
		}
		var n int
		wantUnavailable(t, "a read of a damaged table", d.QueryRow(t.Context(), "SELECT count(body) FROM things WHERE body <> ''").Scan(&n))
		err = d.ProbeWrite(t.Context())
		wantUnavailable(t, "the damaged database", err)
		if got := db.FailureReason(err); got != "a table or an index is damaged" {
			t.Errorf("the reason is %q", got)
		}
		time.Sleep(10*time.Minute - time.Second)
		wantUnavailable(t, "ten minutes later", d.ProbeWrite(t.Context()))
		time.Sleep(time.Second)
		if err := d.ProbeWrite(t.Context()); err != nil {
			t.Errorf("when nobody has found any for ten minutes: %v", err)
		}
	})
}
