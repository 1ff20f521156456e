package db_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// openSQLite returns an open database with an empty table
// things (id TEXT PRIMARY KEY, body BLOB), and its file.
func openSQLite(t *testing.T) (*db.DB, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	d := dbtest.Open(t, "sqlite:"+path)
	write(t, d, "CREATE TABLE things (id TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
	return d, path
}

func insert(tx *db.Tx, id string) error {
	_, err := tx.Exec(context.Background(), "INSERT INTO things (id) VALUES ($1)", id)
	return err
}

func ids(t testing.TB, d *db.DB) []string {
	t.Helper()
	list, err := db.All(context.Background(), d, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	}, "SELECT id FROM things ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func wantIDs(t testing.TB, d *db.DB, want ...string) {
	t.Helper()
	if got := ids(t, d); !slices.Equal(got, want) {
		t.Errorf("got rows %q, want %q", got, want)
	}
}

func wantUnavailable(t testing.TB, what string, err error) {
	t.Helper()
	if problem.Of(err) != problem.Unavailable {
		t.Errorf("%s: got %v, want unavailable", what, err)
	}
}

// group runs the functions in one group of the writer, in order, and returns their outcomes:
// the result or panic of Write, or errExited.
func group(t *testing.T, d *db.DB, fns ...func(tx *db.Tx) error) []error {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		d.Write(context.Background(), func(*db.Tx) error {
			close(entered)
			<-leave
			return errors.New("nothing to commit")
		})
	})
	<-entered
	outcomes := make([]error, len(fns))
	for i, fn := range fns {
		wg.Go(func() {
			outcomes[i] = errExited
			defer func() {
				if p := recover(); p != nil {
					outcomes[i] = fmt.Errorf("panic: %v", p)
				}
			}()
			outcomes[i] = d.Write(context.Background(), fn)
		})
		for db.Waiting(d) <= i {
			runtime.Gosched()
		}
	}
	close(leave)
	wg.Wait()
	return outcomes
}

var errExited = errors.New("the goroutine ended")

func TestGroupSharesCommit(t *testing.T) {
	d, _ := openSQLite(t)
	var fns []func(*db.Tx) error
	var want []string
	for i := range db.MaxGroup {
		id := fmt.Sprintf("%03d", i)
		want = append(want, id)
		fns = append(fns, func(tx *db.Tx) error { return insert(tx, id) })
	}
	commits := db.Commits(d)
	for i, err := range group(t, d, fns...) {
		if err != nil {
			t.Errorf("function %d: %v", i, err)
		}
	}
	if got := commits.Load(); got != 1 {
		t.Errorf("%d functions: got %d commits, want 1", len(fns), got)
	}
	wantIDs(t, d, want...)
}

func TestGroupNeighbours(t *testing.T) {
	refused := errors.New("refused")
	ok := func(id string) func(*db.Tx) error {
		return func(tx *db.Tx) error { return insert(tx, id) }
	}
	for _, test := range []struct {
		name string
		bad  func(tx *db.Tx) error
		want string // in the outcome's text
		// commits is 1 when the group survives, or else one for each neighbour.
		commits int64
	}{
		{"an error", func(tx *db.Tx) error { insert(tx, "bad"); return refused }, "refused", 1},
		{"an error before any statement", func(*db.Tx) error { return refused }, "refused", 1},
		{"a panic", func(tx *db.Tx) error { insert(tx, "bad"); panic("on purpose") }, "panic: on purpose", 1},
		{"a panic beside open rows", func(tx *db.Tx) error {
			tx.Query(t.Context(), "INSERT INTO things (id) VALUES ('bad1'), ('bad2') RETURNING id")
			panic("on purpose")
		}, "panic: on purpose", 1},
		{"an end of the goroutine", func(tx *db.Tx) error { insert(tx, "bad"); runtime.Goexit(); return nil }, "the goroutine ended", 3},
		{"a failed statement", func(tx *db.Tx) error { insert(tx, "bad"); return insert(tx, "a") }, "UNIQUE", 1},
		{"a failed statement, not returned", func(tx *db.Tx) error { insert(tx, "bad"); insert(tx, "a"); return nil }, "UNIQUE", 1},
		{"a syntax error", func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), "INSERT things"); return err }, "syntax", 1},
		{"rows left open", func(tx *db.Tx) error {
			tx.Query(t.Context(), "INSERT INTO things (id) VALUES ('bad') RETURNING id")
			return refused
		}, "refused", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, _ := openSQLite(t)
			commits := db.Commits(d)
			got := group(t, d, ok("a"), ok("b"), test.bad, ok("c"))
			for i, err := range got {
				if i == 2 && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("the bad one: got %v, want %q", err, test.want)
				} else if i != 2 && err != nil {
					t.Errorf("neighbour %d: got %v", i, err)
				}
			}
			wantIDs(t, d, "a", "b", "c")
			if commits.Load() != test.commits {
				t.Errorf("got %d commits, want %d", commits.Load(), test.commits)
			}
			write(t, d, "INSERT INTO things (id) VALUES ('later')")
		})
	}
}

// However many functions of a group end their goroutine, the rest runs.
func TestGroupOfExits(t *testing.T) {
	d, _ := openSQLite(t)
	exit := func(*db.Tx) error { runtime.Goexit(); return nil }
	ok := func(id string) func(*db.Tx) error { return func(tx *db.Tx) error { return insert(tx, id) } }
	got := group(t, d, exit, ok("a"), exit, exit, ok("b"), exit)
	if want := []error{errExited, nil, errExited, errExited, nil, errExited}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	wantIDs(t, d, "a", "b")
}

// A caller that gives up while its group runs does not stop it, and its result agrees with the
// state on disk.
func TestGroupCancelledNeighbour(t *testing.T) {
	d, _ := openSQLite(t)
	ctx, cancel := context.WithCancel(t.Context())
	entered, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		d.Write(t.Context(), func(*db.Tx) error { close(entered); <-leave; return nil })
	})
	<-entered
	var cancelled error
	for i, fn := range []func(){
		func() {
			err := d.Write(t.Context(), func(tx *db.Tx) error { cancel(); return insert(tx, "a") })
			if err != nil {
				t.Error(err)
			}
		},
		func() {
			cancelled = d.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO things (id) VALUES ('b')")
				if err != nil {
					return err
				}
				var id string
				return tx.QueryRow(ctx, "SELECT id FROM things WHERE id = $1", "b").Scan(&id)
			})
		},
		func() {
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return insert(tx, "c") }); err != nil {
				t.Error(err)
			}
		},
	} {
		wg.Go(fn)
		for db.Waiting(d) <= i {
			runtime.Gosched()
		}
	}
	close(leave)
	wg.Wait()
	if cancelled != nil {
		t.Errorf("cancelled when it had been taken: got %v, want success", cancelled)
	}
	wantIDs(t, d, "a", "b", "c")
}

// While another process holds the lock, callers may give up, and the rest gets a result.
func TestLockedByAnother(t *testing.T) {
	d, path := openSQLite(t)
	other := dbtest.Open(t, "sqlite:"+path)
	entered, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := other.Write(t.Context(), func(tx *db.Tx) error {
			close(entered)
			<-leave
			return insert(tx, "other")
		}); err != nil {
			t.Error(err)
		}
	})
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		result <- d.Write(ctx, func(tx *db.Tx) error { return insert(tx, "mine") })
	}()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("gave up: got %v, want cancelled", err)
	}
	close(leave)
	wg.Wait()
	write(t, d, "INSERT INTO things (id) VALUES ('next')")
	wantIDs(t, d, "next", "other")

	write(t, d, "PRAGMA busy_timeout = 1")
	entered, leave = make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		other.Write(t.Context(), func(*db.Tx) error { close(entered); <-leave; return nil })
	})
	<-entered
	wantUnavailable(t, "locked", tryWrite(d, "INSERT INTO things (id) VALUES ('locked')"))
	close(leave)
	wg.Wait()
	write(t, d, "INSERT INTO things (id) VALUES ('unlocked')")
	wantIDs(t, d, "next", "other", "unlocked")
}

// fill makes the database as large as the disk: no page is free.
func fill(t *testing.T, d *db.DB, spare int64) {
	t.Helper()
	var pages int64
	if err := d.QueryRow(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	write(t, d, fmt.Sprintf("PRAGMA max_page_count = %d", pages+spare))
}

func TestDiskFull(t *testing.T) {
	d, _ := openSQLite(t)
	write(t, d, "INSERT INTO things (id) VALUES ('first')")
	fill(t, d, 8)
	big := make([]byte, 100<<10)
	insertBig := func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO things (id, body) VALUES ('big', $1)", big)
		return err
	}
	small := func(id string) func(*db.Tx) error {
		return func(tx *db.Tx) error { return insert(tx, id) }
	}

	got := group(t, d, small("a"), insertBig, small("b"), func(tx *db.Tx) error {
		insertBig(tx)
		// SQLite has left the transaction: this would commit on its own.
		insert(tx, "after")
		tx.QueryRow(t.Context(), "INSERT INTO things (id) VALUES ('after2') RETURNING id").Scan(new(string))
		return nil
	}, small("c"))
	for i, err := range got {
		if i == 1 || i == 3 {
			wantUnavailable(t, "too big for the disk", err)
		} else if err != nil {
			t.Errorf("neighbour %d: got %v", i, err)
		}
	}
	wantIDs(t, d, "a", "b", "c", "first")

	want := ids(t, d)
	var failed error
	for i := 0; failed == nil && i < 10_000; i++ {
		id := fmt.Sprintf("row %06d", i)
		if failed = d.Write(t.Context(), small(id)); failed == nil {
			want = append(want, id)
		}
	}
	wantUnavailable(t, "no room for another row", failed)
	if want := "try again"; failed == nil || !strings.Contains(failed.Error(), want) {
		t.Errorf("got %v, want %q in it", failed, want)
	}
	wantUnavailable(t, "still none", d.Write(t.Context(), small("row 999999")))
	slices.Sort(want)
	wantIDs(t, d, want...)

	write(t, d, "PRAGMA max_page_count = 1000000")
	write(t, d, "INSERT INTO things (id) VALUES ('z')")
	if err := d.Write(t.Context(), insertBig); err != nil {
		t.Errorf("with space again: %v", err)
	}
	want = append(want, "big", "z")
	slices.Sort(want)
	wantIDs(t, d, want...)
}

// A full disk may have room for the row of the probe. The database counts as full all the same, for
// ten seconds after each statement that found no space.
func TestProbeOfFullDisk(t *testing.T) {
	rawURL := dbtest.SQLiteURL(t)
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.Open(t, rawURL)
		write(t, d, "CREATE TABLE things (id TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
		if err := d.ProbeWrite(t.Context()); err != nil {
			t.Fatal(err)
		}
		fill(t, d, 8)
		wantUnavailable(t, "too large for the disk", tryWrite(d, "INSERT INTO things (id, body) VALUES ('big', $1)", make([]byte, 100<<10)))
		write(t, d, "INSERT INTO things (id) VALUES ('small')")
		time.Sleep(9 * time.Second)
		err := d.ProbeWrite(t.Context())
		if wantUnavailable(t, "the probe of a full disk", err); err != nil && db.FailureReason(err) != "the disk is full" {
			t.Errorf("the reason is %q", db.FailureReason(err))
		}
		time.Sleep(time.Second)
		if err := d.ProbeWrite(t.Context()); err != nil {
			t.Errorf("ten seconds after the last failure: %v", err)
		}
	})
}

func TestReadOnlyFile(t *testing.T) {
	d, _ := openSQLite(t)
	write(t, d, "INSERT INTO things (id) VALUES ('a')")
	write(t, d, "PRAGMA query_only = 1")
	wantUnavailable(t, "read-only", tryWrite(d, "INSERT INTO things (id) VALUES ('b')"))
	wantUnavailable(t, "ping", d.Ping(t.Context()))
	wantIDs(t, d, "a")
}

// SQLite would continue to write to an unreachable file.
func TestFileGone(t *testing.T) {
	for _, suffix := range []string{"", "-wal"} {
		d, path := openSQLite(t)
		path += suffix
		away := path + ".away"
		step := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		step(os.Rename(path, away))
		wantUnavailable(t, "renamed "+suffix, tryWrite(d, "INSERT INTO things (id) VALUES ('a')"))
		wantUnavailable(t, "ping "+suffix, d.Ping(t.Context()))
		step(os.WriteFile(path, nil, 0o600))
		wantUnavailable(t, "replaced "+suffix, tryWrite(d, "INSERT INTO things (id) VALUES ('b')"))
		step(os.Rename(away, path))
		write(t, d, "INSERT INTO things (id) VALUES ('c')")
		wantIDs(t, d, "c")
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := "pass" + "phrase"
	for _, test := range []struct{ url, want string }{
		{"", `must start with "sqlite:" or "postgres:"`},
		{"mysql://localhost/x", `must start with "sqlite:" or "postgres:"`},
		{"sqlite:", "sqlite needs a file"},
		{"sqlite::memory:", "sqlite needs a file"},
		{"sqlite:" + dir, dir},
		{"sqlite:" + filepath.Join(dir, "missing", "x.db"), "folder of the database"},
		{"sqlite:" + garbage, "not a database"},
		{"postgres://user:" + secret + "@127.0.0.1:1/x", "connect to postgres at 127.0.0.1"},
		{"postgres://user:" + secret + "@127.0.0.1:port/x", "cannot be parsed"},
		{"postgres://user:" + secret + "@127.0.0.1:1/x?sslmode=perhaps", "cannot be parsed"},
	} {
		d, err := db.Open(t.Context(), test.url, db.Options{})
		if err == nil {
			d.Close()
			t.Errorf("%q: got no error", test.url)
			continue
		}
		if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: got %q, want %q in it", test.url, err, test.want)
		}
	}
}

func TestOddPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?mode=memory#%20;é&_pragma=x.db")
	d := dbtest.Open(t, "sqlite:"+path)
	write(t, d, "CREATE TABLE things (id TEXT PRIMARY KEY)")
	write(t, d, "INSERT INTO things (id) VALUES ('a')")
	wantIDs(t, d, "a")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestCloseMergesLog(t *testing.T) {
	d, path := openSQLite(t)
	write(t, d, "INSERT INTO things (id) VALUES ('a')")
	wantIDs(t, d, "a")
	if err := d.Read(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRow(t.Context(), "SELECT id FROM things").Scan(new(string))
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log after Close: got %v, want it gone", err)
	}
	wantIDs(t, dbtest.Open(t, "sqlite:"+path), "a")
}

// Writes that Close admits are in the file; refused ones are not.
func TestCloseKeepsItsWord(t *testing.T) {
	for range 20 {
		d, path := openSQLite(t)
		var mu sync.Mutex
		var want []string
		var wg, started sync.WaitGroup
		for i := range 64 {
			started.Add(1)
			wg.Go(func() {
				id := fmt.Sprintf("%02d", i)
				started.Done()
				err := d.Write(context.Background(), func(tx *db.Tx) error { return insert(tx, id) })
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					want = append(want, id)
				} else {
					wantUnavailable(t, "beside Close", err)
				}
			})
		}
		started.Wait()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		slices.Sort(want)
		wantIDs(t, dbtest.Open(t, "sqlite:"+path), want...)
	}
}

// Calls that wait when Close is called still run.
func TestCloseAnswersWaiting(t *testing.T) {
	for range 20 {
		d, _ := openSQLite(t)
		entered, leave := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			d.Write(context.Background(), func(*db.Tx) error { close(entered); <-leave; return nil })
		})
		<-entered
		for i := range 10 {
			wg.Go(func() {
				if err := d.Write(context.Background(), func(tx *db.Tx) error { return insert(tx, fmt.Sprint(i)) }); err != nil {
					t.Errorf("waiting before Close: %v", err)
				}
			})
		}
		for db.Waiting(d) < 10 {
			runtime.Gosched()
		}
		closed := make(chan error)
		go func() { closed <- d.Close() }()
		for !db.Closing(d) {
			runtime.Gosched()
		}
		close(leave)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// A function that ends the transaction behind our back gets no further.
func TestRollbackByStatement(t *testing.T) {
	d, _ := openSQLite(t)
	bad := func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "ROLLBACK"); err != nil {
			return err
		}
		insert(tx, "alone")
		tx.QueryRow(t.Context(), "INSERT INTO things (id) VALUES ('alone2') RETURNING id").Scan(new(string))
		return nil
	}
	got := group(t, d, func(tx *db.Tx) error { return insert(tx, "a") }, bad, func(tx *db.Tx) error { return insert(tx, "b") })
	if got[0] != nil || got[1] == nil || got[2] != nil {
		t.Errorf("got %v, want only the second to fail", got)
	}
	wantIDs(t, d, "a", "b")
}

func TestStatementsStayCompiled(t *testing.T) {
	d, _ := openSQLite(t)
	before := db.Compiled(d)
	for i := range 50 {
		write(t, d, "INSERT INTO things (id) VALUES ($1)", fmt.Sprint(i))
	}
	if got := db.Compiled(d) - before; got != 1 {
		t.Errorf("one statement, 50 times: got %d compiled, want 1", got)
	}
	for i := range db.MaxStmts + 100 {
		write(t, d, fmt.Sprintf("UPDATE things SET body = $1 WHERE id = '%d'", i), []byte{1})
		var n int
		if err := d.QueryRow(t.Context(), fmt.Sprintf("SELECT count(*) + %d FROM things", i)).Scan(&n); err != nil || n != 50+i {
			t.Fatalf("statement %d: got %d, %v, want %d", i, n, err, 50+i)
		}
	}
	if got := db.Compiled(d); got != db.MaxStmts {
		t.Errorf("more statements than it keeps: got %d compiled, want %d", got, db.MaxStmts)
	}
	// A compiled statement notices that the schema has changed.
	write(t, d, "ALTER TABLE things ADD COLUMN more TEXT")
	write(t, d, "INSERT INTO things (id) VALUES ($1)", "after")
}

// Functions of a group take numbers that nobody else gets, also beside one that fails, and later
// groups and processes continue after them.
func TestNextNumbers(t *testing.T) {
	d, path := openSQLite(t)
	write(t, d, "CREATE TABLE counter (last BIGINT NOT NULL)")
	write(t, d, "INSERT INTO counter VALUES (100)")
	other := dbtest.Open(t, "sqlite:"+path) // as another process
	var taken []int64
	take := func(tx *db.Tx) error {
		first, err := tx.NextNumbers(context.Background(), "counter", 2)
		taken = append(taken, first, first+1)
		return err
	}
	failing := func(tx *db.Tx) error { return errors.Join(take(tx), errors.New("refused")) }
	for _, fns := range [][]func(*db.Tx) error{{take, take}, {take, failing, take}, {failing}} {
		before := len(taken)
		failed := 0
		for _, err := range group(t, d, fns...) {
			if err != nil {
				failed++
			}
		}
		// The first try of a group with a failure is rolled back, and its numbers are taken again.
		if got := taken[len(taken)-2*len(fns):]; failed > 1 || !slices.IsSorted(got) || before > 0 && len(fns) > 1 && got[0] <= taken[before-1] {
			t.Errorf("got numbers %v after %v, %d failures", got, taken[:before], failed)
		}
	}
	mark := len(taken)
	for _, d := range []*db.DB{other, d, other} {
		if err := d.Write(t.Context(), take); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := taken[mark:], []int64{111, 112, 113, 114, 115, 116}; !slices.Equal(got, want) {
		t.Errorf("two processes got %v, want %v after %v", got, want, taken[:mark])
	}
}
