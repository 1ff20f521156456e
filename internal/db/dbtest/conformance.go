package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Run is the conformance suite of package db. open returns an empty database for the caller's
// exclusive use.
func Run(t *testing.T, open func(t *testing.T) *db.DB) {
	for _, test := range []struct {
		name           string
		run            func(*testing.T, *suite)
		alone, grouped bool // by which of Write and WriteGrouped it writes
	}{
		{"placeholders", testPlaceholders, true, false},
		{"any of a list", testAny, true, true},
		{"row locks", testRowLocks, true, false},
		{"returning, upsert and cte", testStatements, true, true},
		{"values", testValues, true, true},
		{"stored forms", testStoredForms, true, true},
		{"a time is no argument", testTimeArgument, true, true},
		{"unique", testUnique, true, false},
		{"text by bytes", testByteOrder, true, false},
		{"read is a snapshot", testReadSnapshot, true, false},
		{"read does not write", testReadOnly, true, false},
		{"more readers than connections", testManyReaders, true, false},
		{"an error rolls back", testRollback, true, true},
		{"a failed statement fails the transaction", testFailedStatement, true, true},
		{"open rows", testOpenRows, true, true},
		{"queued statements", testQueue, true, true},
		{"failed queued statements", testFailedQueue, true, true},
		{"after the end", testAfterEnd, true, true},
		{"after commit", testAfterCommit, true, true},
		{"panic", testPanic, true, true},
		{"goexit", testGoexit, true, true},
		{"cancelled before", testCancelledBefore, true, true},
		{"cancelled while waiting", testCancelledWaiting, true, false},
		{"cancelled within", testCancelledWithin, true, true},
		{"64 writers", testManyWriters, true, true},
		{"lock", testLock, true, true},
		{"wait for writes", testWaitForWrites, true, false},
		{"try lock", testTryLock, true, false},
		{"deadlock", testDeadlock, true, false},
		{"serialization", testSerialization, true, false},
		{"notify", testNotify, true, false},
		{"close while writes wait", testClose, true, false},
		{"closed", testClosed, true, true},
		{"server lost", testServerLost, true, false},
		{"functions that succeed", testGroup, false, true},
		{"a function that fails", testFailedGroup, false, true},
		{"row locks of several functions", testCommonRows, false, true},
		{"an argument that panics", testPanickingArgument, false, true},
	} {
		if test.alone {
			t.Run(test.name, func(t *testing.T) { run(t, open, test.run, false) })
		}
		if test.grouped { // no function waits for another one
			t.Run("grouped/"+test.name, func(t *testing.T) { run(t, open, test.run, true) })
		}
	}
}

func run(t *testing.T, open func(t *testing.T) *db.DB, test func(*testing.T, *suite), grouped bool) {
	s := &suite{open(t), grouped}
	text, blob := "TEXT", "BLOB"
	if s.Postgres() {
		text, blob = `TEXT COLLATE "C"`, "BYTEA"
	}
	s.mustExec(t, strings.NewReplacer("TEXT", text, "BLOB", blob).Replace(
		`CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT, body BLOB, flag BOOLEAN, note TEXT)`))
	test(t, s)
}

// suite is the database under test, with an empty table
// things (id TEXT PRIMARY KEY, n BIGINT, body BLOB, flag BOOLEAN, note TEXT).
type suite struct {
	*db.DB
	grouped bool // Write is WriteGrouped
}

func (s *suite) Write(ctx context.Context, fn func(tx *db.Tx) error) error {
	if s.grouped {
		return s.WriteGrouped(ctx, "key", fn)
	}
	return s.DB.Write(ctx, fn)
}

func (s *suite) exec(ctx context.Context, query string, args ...any) error {
	return s.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

func (s *suite) mustExec(t testing.TB, query string, args ...any) {
	t.Helper()
	if err := s.exec(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func scanString(r db.Row) (v string, err error) { err = r.Scan(&v); return }
func scanInt(r db.Row) (v int64, err error)     { err = r.Scan(&v); return }

// ids returns the ids that the query finds, joined with spaces.
func (s *suite) ids(t testing.TB, query string, args ...any) string {
	t.Helper()
	list, err := db.All(t.Context(), s, scanString, query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(list, " ")
}

func (s *suite) wantIDs(t testing.TB, want string) {
	t.Helper()
	if got := s.ids(t, "SELECT id FROM things ORDER BY id"); got != want {
		t.Errorf("got rows %q, want %q", got, want)
	}
}

func (s *suite) insert(ctx context.Context, tx *db.Tx, id string) error {
	_, err := tx.Exec(ctx, "INSERT INTO things (id) VALUES ($1)", id)
	return err
}

func (s *suite) n(t testing.TB, id string) int64 {
	t.Helper()
	n, err := db.One(t.Context(), s, scanInt, "SELECT n FROM things WHERE id = $1", id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantKind(t testing.TB, what string, err error, want problem.Kind) {
	t.Helper()
	if err == nil || problem.Of(err) != want {
		t.Errorf("%s: got %v, want a problem of kind %v", what, err, want)
	}
}

func testPlaceholders(t *testing.T, s *suite) {
	s.mustExec(t, "INSERT INTO things (note, id, n) VALUES ($2, $1, $3)", "a", "first", 7)
	s.mustExec(t, "INSERT INTO things (id, note, n) VALUES ($1, $1, $2)", "b", 11)
	for _, test := range []struct {
		query string
		args  []any
		want  string
	}{
		{"SELECT id FROM things WHERE n = $2 AND note = $1", []any{"first", 7}, "a"},
		{"SELECT id FROM things WHERE id = $1 AND note = $1", []any{"b"}, "b"},
		{"SELECT id FROM things WHERE n > $1 OR id = $3 OR note = $2 OR n < $1 ORDER BY id", []any{9, "first", "b"}, "a b"},
		{"SELECT id FROM things WHERE n = $10 AND n NOT IN ($9, $8, $7, $6, $5, $4, $3, $2, $1)",
			[]any{7, 2, 3, 4, 5, 6, 1, 8, 9, 11}, "b"},
	} {
		if got := s.ids(t, test.query, test.args...); got != test.want {
			t.Errorf("%s: got %q, want %q", test.query, got, test.want)
		}
		// The statement is compiled by now; it must not remember its arguments.
		if got := s.ids(t, test.query, test.args...); got != test.want {
			t.Errorf("%s, again: got %q, want %q", test.query, got, test.want)
		}
	}
	if err := s.exec(t.Context(), "UPDATE things SET n = $1 WHERE id = $2", 1); err == nil {
		t.Error("a missing argument: got no error")
	}
}

func testAny(t *testing.T, s *suite) {
	for i, id := range []string{"a", "b", `"c",\`, "ä"} {
		s.mustExec(t, "INSERT INTO things (id, n) VALUES ($1, $2)", id, i)
	}
	for _, test := range []struct {
		where string
		args  []any
		want  string
	}{
		{"id = ANY($1)", []any{[]string{"b", "a", "b", "zz"}}, "a b"},
		{"id = ANY($1)", []any{[]string{`"c",\`, "ä"}}, `"c",\ ä`},
		{"id = ANY($1)", []any{[]string{}}, ""},
		{"id = ANY($1)", []any{[]string(nil)}, ""},
		{"id <> ALL($1)", []any{[]string{"a", "ä"}}, `"c",\ b`},
		{"id <> ALL($1)", []any{[]string{}}, `"c",\ a b ä`},
		{"n = ANY($1)", []any{[]int64{3, 1, math.MaxInt64}}, "b ä"},
		{"n = ANY($1)", []any{[]int64{}}, ""},
		{"n <> ALL($1)", []any{[]int64{0, 1, 2}}, "ä"},
		{"n <> ALL($1)", []any{[]int64{}}, `"c",\ a b ä`},
		{"id <> $2 AND n = ANY($1) AND id = ANY($3)", []any{[]int64{0, 1}, "a", []string{"a", "b"}}, "b"},
	} {
		if got := s.ids(t, "SELECT id FROM things WHERE "+test.where+" ORDER BY id", test.args...); got != test.want {
			t.Errorf("%s with %q: got %q, want %q", test.where, test.args, got, test.want)
		}
	}
	err := s.Write(t.Context(), func(tx *db.Tx) error {
		n, err := tx.Exec(t.Context(), "DELETE FROM things WHERE n = ANY($1)", []int64{0, 2, 9})
		if n != 2 {
			t.Errorf("rows changed: got %d, want 2", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.wantIDs(t, "b ä")
}

func testRowLocks(t *testing.T, s *suite) {
	s.mustExec(t, "INSERT INTO things (id, n) VALUES ('a', 1), ('b', 2)")
	err := s.Write(t.Context(), func(tx *db.Tx) error {
		for _, suffix := range []string{
			"FOR UPDATE", "FOR NO KEY UPDATE", "FOR UPDATE SKIP LOCKED", "FOR UPDATE OF things SKIP LOCKED",
		} {
			got, err := db.All(t.Context(), tx, scanString, "SELECT id FROM things WHERE n > $1 ORDER BY id LIMIT 1 "+suffix, 0)
			if err != nil || !slices.Equal(got, []string{"a"}) {
				t.Errorf("%s: got %v, %v, want [a]", suffix, got, err)
			}
		}
		_, err := tx.Exec(t.Context(), `UPDATE things SET n = n + 10 WHERE id IN
			(SELECT id FROM things WHERE n < $1 ORDER BY id LIMIT 1
			 FOR UPDATE SKIP LOCKED)`, 100)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.n(t, "a"); got != 11 {
		t.Errorf("updated through a locking subquery: got %d, want 11", got)
	}
}

func testStatements(t *testing.T, s *suite) {
	ctx := t.Context()
	const upsert = `INSERT INTO things (id, n) VALUES ($1, $2)
		ON CONFLICT (id) DO UPDATE SET n = things.n + excluded.n WHERE excluded.n > 0 RETURNING n`
	err := s.Write(ctx, func(tx *db.Tx) error {
		for _, step := range []struct {
			add, want int64
		}{{5, 5}, {3, 8}} {
			if got, err := db.One(ctx, tx, scanInt, upsert, "a", step.add); err != nil || got != step.want {
				t.Errorf("upsert of %d: got %d, %v, want %d", step.add, got, err, step.want)
			}
		}
		if _, err := db.One(ctx, tx, scanInt, upsert, "a", -1); !errors.Is(err, db.ErrNoRows) {
			t.Errorf("upsert that its condition refuses: got %v, want no rows", err)
		}
		n, err := tx.Exec(ctx, "INSERT INTO things (id) VALUES ($1) ON CONFLICT DO NOTHING", "a")
		if err != nil || n != 0 {
			t.Errorf("insert of what exists: got %d rows, %v, want 0", n, err)
		}
		got, err := db.All(ctx, tx, scanString, "INSERT INTO things (id, n) VALUES ('b', 1), ('c', 2), ('d', 3) RETURNING id")
		slices.Sort(got)
		if err != nil || !slices.Equal(got, []string{"b", "c", "d"}) {
			t.Errorf("returning: got %v, %v, want [b c d]", got, err)
		}
		got, err = db.All(ctx, tx, scanString, `WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < $1),
			wanted AS (SELECT i FROM r WHERE i <> 2)
			SELECT id FROM things JOIN wanted ON wanted.i = n ORDER BY id`, 3)
		if err != nil || !slices.Equal(got, []string{"b", "d"}) {
			t.Errorf("cte: got %v, %v, want [b d]", got, err)
		}
		got, err = db.All(ctx, tx, scanString, "DELETE FROM things WHERE n = $1 RETURNING id", 2)
		if err != nil || !slices.Equal(got, []string{"c"}) {
			t.Errorf("delete returning: got %v, %v, want [c]", got, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.wantIDs(t, "a b d")
}

func testValues(t *testing.T, s *suite) {
	type named string
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, test := range []struct {
		id         string
		n          any
		body       any
		flag       any
		note       any
		wantN      *int64
		wantBody   []byte
		wantIsNull bool
		wantFlag   *bool
		wantNote   *string
	}{
		{id: "null", wantIsNull: true},
		{id: "zero", n: 0, body: []byte{}, flag: false, note: "",
			wantN: new(int64(0)), wantBody: []byte{}, wantFlag: new(false), wantNote: new("")},
		{id: "large", n: int64(math.MaxInt64), body: all, flag: true, note: "ä \t\n'\"$1 ?1 = ANY($1) 🚲",
			wantN: new(int64(math.MaxInt64)), wantBody: all, wantFlag: new(true), wantNote: new("ä \t\n'\"$1 ?1 = ANY($1) 🚲")},
		{id: "small", n: int64(math.MinInt64), body: []byte(nil), note: named("named"),
			wantN: new(int64(math.MinInt64)), wantIsNull: true, wantNote: new("named")},
		{id: "pointers", n: new(int64(4)), flag: new(true), note: (*string)(nil),
			wantN: new(int64(4)), wantIsNull: true, wantFlag: new(true)},
	} {
		s.mustExec(t, "INSERT INTO things (id, n, body, flag, note) VALUES ($1, $2, $3, $4, $5)",
			test.id, test.n, test.body, test.flag, test.note)
		var n *int64
		var body []byte
		var bodyNull bool
		var flag *bool
		var note *string
		err := s.QueryRow(t.Context(), "SELECT n, body, body IS NULL, flag, note FROM things WHERE id = $1", test.id).
			Scan(&n, &body, &bodyNull, &flag, &note)
		if err != nil {
			t.Fatalf("%s: %v", test.id, err)
		}
		if !equal(n, test.wantN) || !bytes.Equal(body, test.wantBody) || bodyNull != test.wantIsNull ||
			!equal(flag, test.wantFlag) || !equal(note, test.wantNote) {
			t.Errorf("%s: got %v, %q (null %v), %v, %v", test.id, n, body, bodyNull, flag, note)
		}
	}
	if got := s.ids(t, "SELECT id FROM things WHERE flag ORDER BY id"); got != "large pointers" {
		t.Errorf("a boolean as a condition: got %q, want %q", got, "large pointers")
	}
	if got := s.ids(t, "SELECT id FROM things WHERE flag = $1 ORDER BY id", false); got != "zero" {
		t.Errorf("a boolean as an argument: got %q, want %q", got, "zero")
	}
}

func equal[T comparable](a, b *T) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

func testStoredForms(t *testing.T, s *suite) {
	type doc struct {
		A string   `json:"a"`
		B []string `json:"b"`
	}
	moment := time.Date(2026, 2, 3, 4, 5, 6, 789_012_345, time.FixedZone("east", 3600))
	for _, test := range []struct {
		id       string
		time     time.Time
		text     string
		doc      doc
		wantTime time.Time
		wantNull int64 // how many of the three are stored as NULL
	}{
		{"empty", time.Time{}, "", doc{}, time.Time{}, 2},
		{"full", moment, "x", doc{"<ä>", []string{"1", "2"}}, time.Date(2026, 2, 3, 3, 5, 6, 789_012_000, time.UTC), 0},
		{"before 1970", time.UnixMicro(-1), "\x01", doc{A: "\u2028"}, time.UnixMicro(-1).UTC(), 0},
	} {
		s.mustExec(t, "INSERT INTO things (id, n, note) VALUES ($1, $2, $3), ($4, NULL, $5)",
			test.id, db.Time(test.time), db.Text(test.text), test.id+" doc", db.JSON(test.doc))
		gotTime, gotText := time.Unix(1, 0), "before"
		if err := s.QueryRow(t.Context(), "SELECT n, note FROM things WHERE id = $1", test.id).
			Scan(db.IntoTime(&gotTime), db.IntoText(&gotText)); err != nil {
			t.Fatal(err)
		}
		var gotDoc doc
		if err := s.QueryRow(t.Context(), "SELECT note FROM things WHERE id = $1", test.id+" doc").
			Scan(db.IntoJSON(&gotDoc)); err != nil {
			t.Fatal(err)
		}
		if gotTime != test.wantTime || gotText != test.text || gotDoc.A != test.doc.A || !slices.Equal(gotDoc.B, test.doc.B) {
			t.Errorf("%s: got %v, %q, %v", test.id, gotTime, gotText, gotDoc)
		}
		nulls, err := db.One(t.Context(), s, scanInt,
			"SELECT count(*) - count(n) + count(*) - count(note) FROM things WHERE id = $1", test.id)
		if err != nil || nulls != test.wantNull {
			t.Errorf("%s: got %d NULLs, %v, want %d", test.id, nulls, err, test.wantNull)
		}
	}
	unchanged := doc{A: "as before"}
	if err := s.QueryRow(t.Context(), "SELECT note FROM things WHERE id = 'empty'").Scan(db.IntoJSON(&unchanged)); err != nil || unchanged.A != "as before" {
		t.Errorf("JSON from NULL: got %v, %v, want it unchanged", unchanged, err)
	}
	err := s.exec(t.Context(), "INSERT INTO things (id, note) VALUES ('bad', $1)", db.JSON(math.NaN()))
	if err == nil {
		t.Error("a value without JSON: got no error")
	}
}

// A time without db.Time must not be stored as text in a BIGINT column.
func testTimeArgument(t *testing.T, s *suite) {
	if err := s.exec(t.Context(), "INSERT INTO things (id, n) VALUES ('a', $1)", time.Now()); err == nil {
		t.Error("a time in Exec: got no error")
	}
	if _, err := s.Query(t.Context(), "SELECT id FROM things WHERE n = $1", time.Now()); err == nil {
		t.Error("a time in Query: got no error")
	}
	s.wantIDs(t, "")
}

func testUnique(t *testing.T, s *suite) {
	s.mustExec(t, "CREATE UNIQUE INDEX things_n ON things (n)")
	s.mustExec(t, "CREATE TABLE parts (thing TEXT NOT NULL REFERENCES things (id), n BIGINT CHECK (n > 0))")
	s.mustExec(t, "INSERT INTO things (id, n) VALUES ('a', 1)")
	for _, test := range []struct {
		query string
		want  bool
	}{
		{"INSERT INTO things (id, n) VALUES ('a', 2)", true},
		{"INSERT INTO things (id, n) VALUES ('b', 1)", true},
		{"INSERT INTO parts (thing, n) VALUES (NULL, 2)", false},
		{"INSERT INTO parts (thing, n) VALUES ('zz', 1)", false},
		{"INSERT INTO parts (thing, n) VALUES ('a', 0)", false},
		{"INSERT INTO nowhere (id) VALUES ('a')", false},
	} {
		err := s.exec(t.Context(), test.query)
		if err == nil {
			t.Errorf("%s: got no error", test.query)
		}
		if got := db.IsUnique(fmt.Errorf("wrapped: %w", err)); got != test.want {
			t.Errorf("%s: IsUnique got %v, want %v (%v)", test.query, got, test.want, err)
		}
		if problem.Of(err) != problem.Internal {
			t.Errorf("%s: got kind %v, want it unclassified", test.query, problem.Of(err))
		}
	}
	s.wantIDs(t, "a")
}

func testByteOrder(t *testing.T, s *suite) {
	want := []string{"", "-", "A", "Z", "a", "a b", "a-b", "ab", "b", "z", "ß", "ä", "é", "Ω", "\U0001f6b2"}
	for _, id := range slices.Backward(want) {
		s.mustExec(t, "INSERT INTO things (id) VALUES ($1)", id)
	}
	got, err := db.All(t.Context(), s, scanString, "SELECT id FROM things ORDER BY id")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got := s.ids(t, "SELECT id FROM things WHERE id > $1 AND id < $2 ORDER BY id", "B", "b"); got != "Z a a b a-b ab" {
		t.Errorf("a range: got %q, want %q", got, "Z a a b a-b ab")
	}
}

func testReadSnapshot(t *testing.T, s *suite) {
	ctx := t.Context()
	s.mustExec(t, "INSERT INTO things (id) VALUES ('a')")
	count := func(q db.Querier) int64 {
		t.Helper()
		n, err := db.One(ctx, q, scanInt, "SELECT count(*) FROM things")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	err := s.Read(ctx, func(tx *db.Tx) error {
		if got := count(tx); got != 1 {
			t.Errorf("at first: got %d, want 1", got)
		}
		s.mustExec(t, "INSERT INTO things (id) VALUES ('b')")
		if got := count(tx); got != 1 {
			t.Errorf("after another's commit: got %d, want 1", got)
		}
		if got := count(s); got != 2 {
			t.Errorf("outside of the transaction: got %d, want 2", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	if err := s.Read(ctx, func(*db.Tx) error { return mine }); err != mine {
		t.Errorf("error of the function: got %v, want it as it is", err)
	}
}

func testReadOnly(t *testing.T, s *suite) {
	ctx := t.Context()
	err := s.Read(ctx, func(tx *db.Tx) error {
		return s.insert(ctx, tx, "a")
	})
	if err == nil {
		t.Error("an insert in Read: got no error")
	}
	if _, err := db.One(ctx, s, scanString, "INSERT INTO things (id) VALUES ('b') RETURNING id"); err == nil && !s.Postgres() {
		t.Error("an insert in QueryRow: got no error")
	}
	s.mustExec(t, "DELETE FROM things WHERE id = 'b'")
	s.wantIDs(t, "")
}

// Each reader needs several statements, none of which may need a second
// connection.
func testManyReaders(t *testing.T, s *suite) {
	s.mustExec(t, "INSERT INTO things (id, n) VALUES ('a', 1)")
	const readers = 32
	var arrived, wg sync.WaitGroup
	arrived.Add(readers)
	for i := range readers {
		wg.Go(func() {
			arrived.Done()
			arrived.Wait()
			err := s.Read(t.Context(), func(tx *db.Tx) error {
				for j := range 3 {
					query := fmt.Sprintf("SELECT n + %d - %d FROM things WHERE id = $1", i*3+j, i*3+j)
					if n, err := db.One(t.Context(), tx, scanInt, query, "a"); err != nil || n != 1 {
						return fmt.Errorf("%s: got %d, %w", query, n, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func testRollback(t *testing.T, s *suite) {
	ctx := t.Context()
	mine := errors.New("mine")
	err := s.Write(ctx, func(tx *db.Tx) error {
		if err := s.insert(ctx, tx, "a"); err != nil {
			return err
		}
		if _, err := db.One(ctx, tx, scanString, "INSERT INTO things (id) VALUES ('b') RETURNING id"); err != nil {
			return err
		}
		return mine
	})
	if err != mine {
		t.Errorf("got %v, want the function's error as it is", err)
	}
	refused := problem.New(problem.Conflict, "No.")
	if err := s.Write(ctx, func(*db.Tx) error { return refused }); err != error(refused) {
		t.Errorf("got %v, want the function's problem as it is", err)
	}
	s.wantIDs(t, "")
}

func testFailedStatement(t *testing.T, s *suite) {
	ctx := t.Context()
	s.mustExec(t, "INSERT INTO things (id) VALUES ('a')")
	for _, test := range []struct {
		name string
		fail func(tx *db.Tx) error
	}{
		{"Exec", func(tx *db.Tx) error { return s.insert(ctx, tx, "a") }},
		{"Query", func(tx *db.Tx) error {
			_, err := tx.Query(ctx, "INSERT INTO things (id) VALUES ('a') RETURNING id")
			return err
		}},
		{"QueryRow", func(tx *db.Tx) error {
			return tx.QueryRow(ctx, "INSERT INTO things (id) VALUES ('a') RETURNING id").Scan(new(string))
		}},
		{"unknown table", func(tx *db.Tx) error {
			return tx.QueryRow(ctx, "SELECT id FROM nowhere").Scan(new(string))
		}},
	} {
		err := s.Write(ctx, func(tx *db.Tx) error {
			if err := s.insert(ctx, tx, "b"); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			if err := test.fail(tx); err == nil {
				t.Errorf("%s: got no error", test.name)
			}
			if err := s.insert(ctx, tx, "c"); err == nil {
				t.Errorf("%s: a later Exec: got no error", test.name)
			}
			if _, err := tx.Query(ctx, "SELECT id FROM things"); err == nil {
				t.Errorf("%s: a later Query: got no error", test.name)
			}
			if err := tx.QueryRow(ctx, "SELECT id FROM things").Scan(new(string)); err == nil || errors.Is(err, db.ErrNoRows) {
				t.Errorf("%s: a later QueryRow: got %v, want the failure", test.name, err)
			}
			tx.AfterCommit(func() { t.Errorf("%s: AfterCommit was called", test.name) })
			return nil // as if nothing had been
		})
		if err == nil {
			t.Errorf("%s: Write: got no error", test.name)
		}
	}
	s.wantIDs(t, "a")
}

// testQueue: queued statements run in order before the next one and before the commit, however
// many there are.
func testQueue(t *testing.T, s *suite) {
	ctx := t.Context()
	const many = 200
	must(t, s.Write(ctx, func(tx *db.Tx) error {
		args := make([]any, 0, 2)
		for i := range many {
			args = append(args[:0], fmt.Sprintf("%03d", i), i) // the slice is the caller's again
			if err := tx.Queue(ctx, "INSERT INTO things (id, n) VALUES ($1, $2)", args...); err != nil {
				return err
			}
		}
		if err := tx.Queue(ctx, "UPDATE things SET n = n + 1 WHERE id < $1", "100"); err != nil {
			return err
		}
		var sum int64
		if err := tx.QueryRow(ctx, "SELECT sum(n) FROM things").Scan(&sum); err != nil {
			return err
		}
		if want := int64(many*(many-1)/2 + 100); sum != want {
			t.Errorf("after %d queued statements: got the sum %d, want %d", many+1, sum, want)
		}
		if err := tx.Queue(ctx, "DELETE FROM things WHERE id = $1", "000"); err != nil {
			return err
		}
		if n, err := tx.Exec(ctx, "DELETE FROM things WHERE id <= $1", "009"); err != nil || n != 9 {
			t.Errorf("after a queued deletion of one: deleted %d, %v, want 9", n, err)
		}
		if err := tx.Queue(ctx, "DELETE FROM things WHERE id = $1", "010"); err != nil {
			return err
		}
		if n, err := tx.ExecPlanned(ctx, "DELETE FROM things WHERE id <= $1", "011"); err != nil || n != 1 {
			t.Errorf("a planned statement after a queued one: deleted %d, %v, want 1", n, err)
		}
		return tx.Queue(ctx, "DELETE FROM things WHERE id = $1", "012")
	}))
	var n int
	must(t, s.QueryRow(ctx, "SELECT count(*) FROM things").Scan(&n))
	if n != many-13 {
		t.Errorf("after the commit: got %d rows, want %d", n, many-13)
	}
}

// testFailedQueue: the failure of a queued statement fails the transaction, at the latest at its
// commit, and is not taken for that of a later statement.
func testFailedQueue(t *testing.T, s *suite) {
	ctx := t.Context()
	s.mustExec(t, "INSERT INTO things (id) VALUES ('a')")
	for name, end := range map[string]func(tx *db.Tx) error{
		"commit": func(tx *db.Tx) error { return nil },
		"another statement": func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO things (id) VALUES ('c')")
			if err == nil || s.Postgres() && db.IsUnique(err) {
				t.Errorf("a statement after a failed one: got %v", err)
			}
			return nil
		},
		"a query": func(tx *db.Tx) error {
			if err := tx.QueryRow(ctx, "SELECT n FROM things").Scan(new(any)); err == nil {
				t.Error("a query after a failed statement: got no error")
			}
			return nil
		},
	} {
		err := s.Write(ctx, func(tx *db.Tx) error {
			if err := tx.Queue(ctx, "INSERT INTO things (id) VALUES ('b')"); err != nil {
				return err
			}
			if err := tx.Queue(ctx, "INSERT INTO things (id) VALUES ('a')"); err != nil {
				return err
			}
			return end(tx)
		})
		if err == nil || problem.Of(err) == problem.Unavailable {
			t.Errorf("%s: got %v, want the error of the statement", name, err)
		}
	}
	var n int
	must(t, s.QueryRow(ctx, "SELECT count(*) FROM things").Scan(&n))
	if n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
}

// writeMany runs many functions of three keys at once, and returns their errors and the number of
// times of their transactions.
func (s *suite) writeMany(t *testing.T, many int, fn func(ctx context.Context, tx *db.Tx, i int) error) (failures []error, transactions int) {
	times := make(map[time.Time]bool)
	failures = make([]error, many)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			var now time.Time
			failures[i] = s.WriteGrouped(t.Context(), fmt.Sprint(i%3), func(tx *db.Tx) error {
				now = tx.Now
				return fn(t.Context(), tx, i)
			})
			mu.Lock()
			defer mu.Unlock()
			times[now] = true
		})
	}
	wg.Wait()
	return failures, len(times)
}

// testGroup: functions that run at once share transactions, lock common rows in order, and see
// what they have written themselves.
func testGroup(t *testing.T, s *suite) {
	const many = 300
	s.mustExec(t, "INSERT INTO things (id, n) VALUES ('last a', 0), ('last b', 0), ('sum', 0)")
	var committed atomic.Int64
	failures, transactions := s.writeMany(t, many, func(ctx context.Context, tx *db.Tx, i int) error {
		id := fmt.Sprintf("%03d", i)
		if err := tx.Queue(ctx, "INSERT INTO things (id, n, body) VALUES ($1, $2, $3)", id, i, []byte(id)); err != nil {
			return err
		}
		if i%2 == 0 { // so that not all reach the common row in the same round
			if n, err := tx.ExecPlanned(ctx, "UPDATE things SET flag = true WHERE id = $1", id); err != nil || n != 1 {
				return fmt.Errorf("changed %d rows: %w", n, err)
			}
		}
		var note *string
		var body []byte
		err := tx.QueryRow(ctx, "SELECT note, body FROM things WHERE id = $1", id).Scan(&note, &body)
		if err != nil || note != nil || string(body) != id {
			return fmt.Errorf("read %v, %q: %w", note, body, err)
		}
		rows, err := db.All(ctx, tx, scanInt, "SELECT n FROM things WHERE id = $1 UNION ALL SELECT 1000 ORDER BY n", id)
		if err != nil || !slices.Equal(rows, []int64{int64(i), 1000}) {
			return fmt.Errorf("read %v: %w", rows, err)
		}
		common := []string{"last a", "last b"}[i%2]
		var n int
		if err := tx.QueryRowInOrder(ctx, common, "UPDATE things SET n = n + 1 WHERE id = $1 RETURNING n", common).Scan(&n); err != nil {
			return err
		}
		if err := tx.Queue(ctx, "UPDATE things SET n = $2, note = $3 WHERE id = $1", id, n, common); err != nil {
			return err
		}
		tx.Gather("sum", n, func(values []any) error {
			sum := 0
			for _, v := range values {
				sum += v.(int)
			}
			_, err := tx.Exec(ctx, "UPDATE things SET n = n + $1 WHERE id = 'sum'", sum)
			return err
		})
		tx.AfterCommit(func() { committed.Add(1) })
		return nil
	})
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	if s.Postgres() && transactions > many/3 { // on SQLite each function has its own time
		t.Errorf("%d functions took %d transactions, want few", many, transactions)
	}
	if committed.Load() != many {
		t.Errorf("AfterCommit ran %d times, want %d", committed.Load(), many)
	}
	want := int64(many / 2 * (many/2 + 1)) // twice the sum of 1 to half as many
	if n := s.n(t, "sum"); n != want {
		t.Errorf("got the sum %d, want %d", n, want)
	}
	for _, common := range []string{"last a", "last b"} {
		if n := s.n(t, common); n != many/2 {
			t.Errorf("%s: got %d, want %d", common, n, many/2)
		}
		distinct, err := db.One(t.Context(), s, scanInt, "SELECT count(DISTINCT n) FROM things WHERE note = $1", common)
		if err != nil || distinct != many/2 {
			t.Errorf("%s: got %d different numbers, %v, want %d", common, distinct, err, many/2)
		}
	}
}

// testFailedGroup: a function that fails, by itself or by a statement, leaves nothing and affects no
// other.
func testFailedGroup(t *testing.T, s *suite) {
	const many = 60
	mine := errors.New("mine")
	failures, _ := s.writeMany(t, many, func(ctx context.Context, tx *db.Tx, i int) error {
		if err := s.insert(ctx, tx, fmt.Sprintf("%03d", i)); err != nil {
			return err
		}
		switch i {
		case 7:
			return mine
		case 8:
			return s.insert(ctx, tx, "008") // again
		case 9:
			return tx.Queue(ctx, "INSERT INTO things (id) VALUES ('009')")
		case 10:
			return tx.Try(ctx, func() error { return s.insert(ctx, tx, "tried") })
		case 11:
			tx.BeforeCommit("", func() error { return mine })
		}
		return nil
	})
	for i, err := range failures {
		switch i {
		case 7, 11:
			if !errors.Is(err, mine) {
				t.Errorf("function %d: got %v, want its own error", i, err)
			}
		case 8, 9:
			if err == nil || problem.Of(err) != problem.Internal {
				t.Errorf("function %d: got %v, want the error of its statement", i, err)
			}
		default:
			if err != nil {
				t.Errorf("function %d: %v", i, err)
			}
		}
	}
	var want []string
	for i := range many {
		if i < 7 || i == 10 || i > 11 {
			want = append(want, fmt.Sprintf("%03d", i))
		}
	}
	s.wantIDs(t, strings.Join(append(want, "tried"), " "))
}

func testOpenRows(t *testing.T, s *suite) {
	ctx := t.Context()
	s.mustExec(t, "INSERT INTO things (id) VALUES ('a'), ('b')")
	err := s.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, "SELECT id FROM things")
		if err != nil {
			return err
		}
		defer rows.Close()
		return s.insert(ctx, tx, "c")
	})
	if err == nil {
		t.Error("a statement beside open rows: got no error")
	}
	for name, leak := range map[string]func(tx *db.Tx){
		"rows":     func(tx *db.Tx) { tx.Query(ctx, "SELECT id FROM things") },
		"read row": func(tx *db.Tx) { rows, _ := tx.Query(ctx, "SELECT id FROM things"); rows.Next() },
		"row":      func(tx *db.Tx) { tx.QueryRow(ctx, "SELECT id FROM things") },
		"two rows": func(tx *db.Tx) {
			tx.QueryRow(ctx, "SELECT id FROM things WHERE id = $1", "a")
			if err := tx.QueryRow(ctx, "SELECT id FROM things WHERE id = $1", "b").Scan(new(string)); err != nil {
				t.Errorf("beside a row that nobody scanned: %v", err)
			}
			tx.QueryRow(ctx, "SELECT id FROM things")
		},
	} {
		for _, do := range []func(context.Context, func(*db.Tx) error) error{s.Read, s.Write} {
			if err := do(ctx, func(tx *db.Tx) error { leak(tx); return nil }); err != nil {
				t.Errorf("%s left open: %v", name, err)
			}
		}
		func() {
			defer func() { recover() }()
			s.Write(ctx, func(tx *db.Tx) error { leak(tx); panic("with " + name + " open") })
		}()
	}
	s.mustExec(t, "INSERT INTO things (id) VALUES ('d')")
	s.wantIDs(t, "a b d")
}

func testAfterEnd(t *testing.T, s *suite) {
	ctx := t.Context()
	for name, do := range map[string]func(context.Context, func(*db.Tx) error) error{"Read": s.Read, "Write": s.Write} {
		var kept *db.Tx
		if err := do(ctx, func(tx *db.Tx) error { kept = tx; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.insert(ctx, kept, "late"); err == nil {
			t.Errorf("Exec after %s: got no error", name)
		}
		if _, err := kept.Query(ctx, "SELECT id FROM things"); err == nil {
			t.Errorf("Query after %s: got no error", name)
		}
		if err := kept.QueryRow(ctx, "SELECT 1").Scan(new(int)); err == nil {
			t.Errorf("QueryRow after %s: got no error", name)
		}
	}
	s.wantIDs(t, "")
}

func testAfterCommit(t *testing.T, s *suite) {
	ctx := t.Context()
	var calls []string
	err := s.Write(ctx, func(tx *db.Tx) error {
		tx.AfterCommit(func() { calls = append(calls, "first sees "+s.ids(t, "SELECT id FROM things")) })
		tx.AfterCommit(func() { calls = append(calls, "second") })
		return s.insert(ctx, tx, "a")
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"first sees a", "second"}; !slices.Equal(calls, want) {
		t.Errorf("got calls %q, want %q", calls, want)
	}
	err = s.Write(ctx, func(tx *db.Tx) error {
		tx.AfterCommit(func() { t.Error("called after an error") })
		return errors.New("no")
	})
	if err == nil {
		t.Error("got no error")
	}
	err = s.Read(ctx, func(tx *db.Tx) error {
		tx.AfterCommit(func() { t.Error("called after Read") })
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func testPanic(t *testing.T, s *suite) {
	ctx := t.Context()
	for name, do := range map[string]func(context.Context, func(*db.Tx) error) error{"Read": s.Read, "Write": s.Write} {
		func() {
			defer func() {
				if p := recover(); !strings.Contains(fmt.Sprint(p), "on purpose") {
					t.Errorf("%s: recovered %v, want the panic", name, p)
				}
			}()
			err := do(ctx, func(tx *db.Tx) error {
				tx.AfterCommit(func() { t.Errorf("%s: AfterCommit was called", name) })
				if name == "Write" {
					if err := s.insert(ctx, tx, "a"); err != nil {
						return err
					}
				}
				panic("on purpose")
			})
			t.Errorf("%s returned %v, want a panic", name, err)
		}()
	}
	s.mustExec(t, "INSERT INTO things (id) VALUES ('b')")
	s.wantIDs(t, "b")
}

// A test that fails inside of a function ends its goroutine there.
func testGoexit(t *testing.T, s *suite) {
	ctx := t.Context()
	returned := false
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Write(ctx, func(tx *db.Tx) error {
			tx.AfterCommit(func() { t.Error("AfterCommit was called") })
			if err := s.insert(ctx, tx, "a"); err != nil {
				t.Error(err)
			}
			runtime.Goexit()
			return nil
		})
		returned = true
	})
	wg.Wait()
	if returned {
		t.Error("Write returned, want its goroutine ended")
	}
	s.mustExec(t, "INSERT INTO things (id) VALUES ('b')")
	s.wantIDs(t, "b")
}

func testCancelledBefore(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		err := s.Write(ctx, func(*db.Tx) error { t.Error("the function ran"); return nil })
		if !errors.Is(err, context.Canceled) || problem.Of(err) != problem.Internal {
			t.Fatalf("Write: got %v, want cancelled", err)
		}
		if err := s.Read(ctx, func(*db.Tx) error { t.Error("the function ran"); return nil }); !errors.Is(err, context.Canceled) {
			t.Fatalf("Read: got %v, want cancelled", err)
		}
		if _, err := s.Query(ctx, "SELECT id FROM things"); !errors.Is(err, context.Canceled) {
			t.Fatalf("Query: got %v, want cancelled", err)
		}
	}
}

// hold holds a lock named "held" until release is called.
func (s *suite) hold(t *testing.T) (release func()) {
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		err := s.Write(context.Background(), func(tx *db.Tx) error {
			if err := tx.Lock(context.Background(), "held"); err != nil {
				return err
			}
			once.Do(func() { close(entered) })
			<-leave
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-entered
	return func() { close(leave); <-done }
}

func testCancelledWaiting(t *testing.T, s *suite) {
	release := s.hold(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		result <- s.Write(ctx, func(tx *db.Tx) error {
			if err := tx.Lock(ctx, "held"); err != nil {
				return err
			}
			return s.insert(ctx, tx, "a")
		})
	}()
	cancel()
	err := <-result // while the lock is still held
	if !errors.Is(err, context.Canceled) || problem.Of(err) != problem.Internal {
		t.Errorf("got %v, want cancelled", err)
	}
	release()
	s.mustExec(t, "INSERT INTO things (id) VALUES ('b')")
	s.wantIDs(t, "b")
}

// The returned error agrees with the state on disk.
func testCancelledWithin(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	called := false
	err := s.Write(ctx, func(tx *db.Tx) error {
		tx.AfterCommit(func() { called = true })
		if err := s.insert(ctx, tx, "a"); err != nil {
			return err
		}
		cancel()
		_, err := tx.Exec(ctx, "UPDATE things SET n = 1 WHERE id = 'a'")
		return err
	})
	want := "a"
	if err != nil {
		want = ""
		if !errors.Is(err, context.Canceled) || problem.Of(err) != problem.Internal {
			t.Errorf("got %v, want cancelled", err)
		}
	}
	s.wantIDs(t, want)
	if called != (err == nil) {
		t.Errorf("AfterCommit called: %v, but Write returned %v", called, err)
	}
	s.mustExec(t, "INSERT INTO things (id) VALUES ('b')")
}

func testManyWriters(t *testing.T, s *suite) {
	ctx := t.Context()
	const writers, each = 64, 20
	refused := errors.New("refused")
	var wg sync.WaitGroup
	var told atomic.Int64
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				fail := (i+j)%5 == 0
				err := s.Write(ctx, func(tx *db.Tx) error {
					tx.AfterCommit(func() { told.Add(1) })
					if err := s.insert(ctx, tx, fmt.Sprintf("%02d-%02d", i, j)); err != nil {
						return err
					}
					if fail {
						return refused
					}
					return nil
				})
				if fail && err != refused || !fail && err != nil {
					t.Errorf("writer %d, row %d: got %v", i, j, err)
				}
			}
		})
	}
	wg.Wait()
	n, err := db.One(ctx, s, scanInt, "SELECT count(*) FROM things")
	if want := int64(writers * each * 4 / 5); err != nil || n != want || told.Load() != want {
		t.Errorf("got %d rows and %d calls after commit, %v, want %d", n, told.Load(), err, want)
	}
}

func testLock(t *testing.T, s *suite) {
	ctx := t.Context()
	countAtOnce(t, s, func(tx *db.Tx, _ int, id string) error {
		if err := tx.Lock(ctx, "counter "+id); err != nil {
			return err
		}
		n, err := db.One(ctx, tx, scanInt, "SELECT n FROM things WHERE id = $1", id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE things SET n = $2 WHERE id = $1", id, n+1)
		return err
	})
}

// testCommonRows: a function that locks a row sees the writes of others to it.
func testCommonRows(t *testing.T, s *suite) {
	ctx := t.Context()
	countAtOnce(t, s, func(tx *db.Tx, i int, id string) error {
		var n int64
		if err := tx.QueryRow(ctx, []string{
			"SELECT id, n FROM things WHERE id = $1 FOR UPDATE",
			"SELECT t.id, t.n FROM things o JOIN things t ON t.id = o.id WHERE o.id = $1 FOR NO KEY UPDATE OF t",
		}[i/2%2], id).Scan(new(string), &n); err != nil {
			return err
		}
		return tx.Queue(ctx, "UPDATE things SET n = $2 WHERE id = $1", id, n+1)
	})
}

// countAtOnce raises two numbers by concurrent transactions: raise adds 1 to the number of a thing in
// the i-th.
func countAtOnce(t *testing.T, s *suite, raise func(tx *db.Tx, i int, id string) error) {
	t.Helper()
	s.mustExec(t, "INSERT INTO things (id, n) VALUES ('a', 0), ('b', 0)")
	var wg sync.WaitGroup
	for i := range 32 {
		id := []string{"a", "b"}[i%2]
		wg.Go(func() {
			if err := s.Write(t.Context(), func(tx *db.Tx) error { return raise(tx, i, id) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if a, b := s.n(t, "a"), s.n(t, "b"); a != 16 || b != 16 {
		t.Errorf("counted %d and %d, want 16 each", a, b)
	}
}

// panics is an argument that cannot be encoded.
type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no stored form") }

// testPanickingArgument: a panic while a statement is sent ends the function that called it only.
func testPanickingArgument(t *testing.T, s *suite) {
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			defer func() {
				if v := recover(); (v != nil) != (i == 3) {
					t.Errorf("function %d: got the panic %v", i, v)
				}
			}()
			if err := s.Write(ctx, func(tx *db.Tx) error {
				if err := s.insert(ctx, tx, fmt.Sprint(i)); err != nil || i != 3 {
					return err
				}
				_, err := tx.Exec(ctx, "UPDATE things SET note = $1 WHERE id = '3'", db.JSON(panics{}))
				return err
			}); err != nil {
				t.Errorf("function %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	s.wantIDs(t, "0 1 2 4 5 6 7")
}

func testTryLock(t *testing.T, s *suite) {
	ctx := t.Context()
	try := func(key string) (free bool) {
		t.Helper()
		err := s.Write(ctx, func(tx *db.Tx) (err error) {
			free, err = tx.TryLock(ctx, key)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return free
	}
	if s.Postgres() { // On SQLite the holder blocks every other writer.
		release := s.hold(t)
		if try("held") {
			t.Error("the lock was free while another transaction held it")
		}
		if !try("other") {
			t.Error("another lock was not free")
		}
		release()
	}
	if !try("held") {
		t.Error("the lock was not free after its transaction")
	}
	err := s.Write(ctx, func(tx *db.Tx) error {
		for range 2 {
			if free, err := tx.TryLock(ctx, "held"); err != nil || !free {
				return fmt.Errorf("our own lock: got %v, %w", free, err)
			}
		}
		return tx.Lock(ctx, "held")
	})
	if err != nil {
		t.Error(err)
	}
}

// WaitForWrites waits for a transaction that has written, and for no later one.
func testWaitForWrites(t *testing.T, s *suite) {
	ctx := t.Context()
	if err := s.WaitForWrites(ctx); err != nil {
		t.Errorf("nobody writes: %v", err)
	}
	changed, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		err := s.Write(context.Background(), func(tx *db.Tx) error {
			if err := s.insert(context.Background(), tx, "slow"); err != nil {
				return err
			}
			once.Do(func() { close(changed) })
			<-leave
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-changed
	if s.Postgres() {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := s.WaitForWrites(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside a transaction that has written: got %v, want to wait for it", err)
		}
	} else if err := s.WaitForWrites(ctx); err != nil {
		t.Errorf("beside a transaction that has written: %v", err)
	}
	close(leave)
	<-done
	if err := s.WaitForWrites(ctx); err != nil {
		t.Errorf("after it: %v", err)
	}
	s.wantIDs(t, "slow")
}

// Two transactions that lock two rows in opposite order: the server ends one,
// which must be run again.
func testDeadlock(t *testing.T, s *suite) {
	if !s.Postgres() {
		t.Skip("one writer cannot deadlock")
	}
	ctx := t.Context()
	s.mustExec(t, "INSERT INTO things (id, n) VALUES ('a', 0), ('b', 0)")
	var first, wg sync.WaitGroup
	first.Add(2)
	var runs, told atomic.Int64
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			met := false
			err := s.Write(ctx, func(tx *db.Tx) error {
				runs.Add(1)
				tx.AfterCommit(func() { told.Add(1) })
				if _, err := tx.Exec(ctx, "SET LOCAL deadlock_timeout = '50ms'"); err != nil {
					return err
				}
				for i, id := range order {
					if i == 1 && !met {
						met = true
						first.Done()
						first.Wait()
					}
					if _, err := tx.Exec(ctx, "UPDATE things SET n = n + 1 WHERE id = $1", id); err != nil {
						return fmt.Errorf("update %s: %w", id, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if a, b := s.n(t, "a"), s.n(t, "b"); a != 2 || b != 2 {
		t.Errorf("counted %d and %d, want 2 each", a, b)
	}
	if runs.Load() < 3 || told.Load() != 2 {
		t.Errorf("got %d runs and %d calls after commit, want at least 3 and 2", runs.Load(), told.Load())
	}
}

func testSerialization(t *testing.T, s *suite) {
	if !s.Postgres() {
		t.Skip("one writer is always serial")
	}
	ctx := t.Context()
	s.mustExec(t, "INSERT INTO things (id, n) VALUES ('a', 0)")
	s.mustExec(t, `DO $do$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
	END $do$`)
	s.exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()") // fails with its connection
	var first, wg sync.WaitGroup
	first.Add(2)
	for range 2 {
		wg.Go(func() {
			met := false
			err := s.Write(ctx, func(tx *db.Tx) error {
				n, err := db.One(ctx, tx, scanInt, "SELECT n FROM things WHERE id = 'a'")
				if err != nil {
					return err
				}
				if !met {
					met = true
					first.Done()
					first.Wait()
				}
				// Swallowing the failure must neither commit nor end the matter.
				tx.Exec(ctx, "UPDATE things SET n = $1 WHERE id = 'a'", n+1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := s.n(t, "a"); got != 2 {
		t.Errorf("counted %d, want 2", got)
	}
}

func testNotify(t *testing.T, s *suite) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Notify(ctx, "news", nil); err != nil {
		t.Errorf("nothing to say: %v", err)
	}
	heard := make(chan string, 16)
	ended := make(chan struct{})
	listenCtx, stop := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		s.Listen(listenCtx, "news", func(payload string) { heard <- payload })
	}()
	if s.Postgres() {
		next := func() string {
			t.Helper()
			select {
			case payload := <-heard:
				return payload
			case <-ctx.Done():
				t.Fatal("heard nothing")
				return ""
			}
		}
		if got := next(); got != "" {
			t.Errorf("at first: heard %q, want the empty payload", got)
		}
		if err := s.Notify(ctx, "other", []string{"not for us"}); err != nil {
			t.Error(err)
		}
		if err := s.Notify(ctx, "news", []string{"one", `"two", 2`}); err != nil {
			t.Error(err)
		}
		if got := []string{next(), next()}; !slices.Equal(got, []string{"one", `"two", 2`}) {
			t.Errorf("heard %q", got)
		}
		// After a lost connection it reports that notifications may be missing.
		s.mustExec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
		if got := next(); got != "" {
			t.Errorf("after the connection was lost: heard %q, want the empty payload", got)
		}
		if err := s.Notify(ctx, "news", []string{"three"}); err != nil {
			t.Error(err)
		}
		if got := next(); got != "three" {
			t.Errorf("heard %q, want three", got)
		}
	} else if err := s.Notify(ctx, "news", []string{"nobody hears"}); err != nil {
		t.Error(err)
	}
	stop()
	<-ended

	ended = make(chan struct{})
	go func() {
		defer close(ended)
		s.Listen(context.Background(), "news", func(string) {})
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

func testClose(t *testing.T, s *suite) {
	release := s.hold(t)
	var started, wg sync.WaitGroup
	for i := range 40 {
		started.Add(1)
		wg.Go(func() {
			told := false
			started.Done()
			err := s.Write(context.Background(), func(tx *db.Tx) error {
				tx.AfterCommit(func() { told = true })
				if err := tx.Lock(context.Background(), "held"); err != nil {
					return err
				}
				return s.insert(context.Background(), tx, fmt.Sprint(i))
			})
			if err != nil && problem.Of(err) != problem.Unavailable {
				t.Errorf("a write beside Close: got %v, want success or unavailable", err)
			}
			if told != (err == nil) {
				t.Errorf("AfterCommit called: %v, but Write returned %v", told, err)
			}
		})
	}
	started.Wait()
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Errorf("Close returned %v while a write was under way", err)
	default:
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func testClosed(t *testing.T, s *suite) {
	ctx := t.Context()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fn := func(*db.Tx) error { t.Error("the function ran"); return nil }
	wantKind(t, "Write", s.Write(ctx, fn), problem.Unavailable)
	wantKind(t, "Read", s.Read(ctx, fn), problem.Unavailable)
	wantKind(t, "Ping", s.Ping(ctx), problem.Unavailable)
	_, err := s.Query(ctx, "SELECT id FROM things")
	wantKind(t, "Query", err, problem.Unavailable)
	_, err = db.One(ctx, s, scanString, "SELECT id FROM things")
	wantKind(t, "QueryRow", err, problem.Unavailable)
	_, err = db.All(ctx, s, scanString, "SELECT id FROM things")
	wantKind(t, "All", err, problem.Unavailable)
}

func testServerLost(t *testing.T, s *suite) {
	if !s.Postgres() {
		t.Skip("there is no server")
	}
	ctx := t.Context()
	err := s.Write(ctx, func(tx *db.Tx) error {
		tx.AfterCommit(func() { t.Error("AfterCommit was called") })
		if err := s.insert(ctx, tx, "a"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())"); err == nil {
			t.Error("got no error from the lost connection")
		}
		return s.insert(ctx, tx, "b")
	})
	wantKind(t, "Write on a lost connection", err, problem.Unavailable)
	s.mustExec(t, "INSERT INTO things (id) VALUES ('c')")
	s.wantIDs(t, "c")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
