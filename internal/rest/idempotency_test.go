package rest_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

func TestIdempotencyKeys(t *testing.T) {
	n := open(t)
	for _, test := range []struct {
		key string
		ok  bool
	}{
		{"a", true}, {strings.Repeat("k", 255), true}, {strings.Repeat("k", 256), false}, {"", false}, {"a b", false}, {"ä", false}, {"a\tb", false},
		{`"quoted"`, true}, {`"with\"quote\""`, true}, {`"open`, false}, {`"a" b`, false}, {`""`, false}, {`"a b"`, false}, {`"` + strings.Repeat("q", 255) + `"`, true}, {"a,b", true}, {`a"`, true},
	} {
		a := n.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: "+test.key)
		if test.ok && a.Status != 201 || !test.ok && a.Code() != "invalid_idempotency_key" {
			t.Errorf("key %q: got %d %s, want it taken: %t", test.key, a.Status, a.Body, test.ok)
		}
	}
	if a := n.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: a", "Idempotency-Key: a"); a.Code() != "invalid_idempotency_key" {
		t.Errorf("two keys: got %d %s", a.Status, a.Body)
	}
	if a := n.Get("/notes", "Idempotency-Key: ä"); a.Status != 200 {
		t.Errorf("GET: got %d, want it ignored", a.Status)
	}
}

func TestReplay(t *testing.T) {
	n := open(t)
	first := n.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: one")
	where := first.Header.Get("Location")
	// Another key of the account, as after a rotation.
	rotated := n.As(n.key(t, ours, apikey.Permissions{Level: apikey.ReadWrite}))
	for _, key := range []string{"one", `"one"`} {
		a := rotated.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: "+key)
		if a.Status != 201 || a.Body != first.Body || a.Header.Get("Location") != where || a.Header.Get("ETag") != first.Header.Get("ETag") || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("key %s: got %d %s %v, want %s", key, a.Status, a.Body, a.Header, first.Body)
		}
		if a.Header.Get("X-Request-Id") == first.Header.Get("X-Request-Id") {
			t.Errorf("key %s: the request id is not fresh", key)
		}
	}
	for _, other := range []struct{ method, path, body string }{
		{"POST", "/notes", `{"text":"b"}`}, {"POST", "/notes", `{"text": "a"}`}, {"PUT", where, `{"text":"a"}`}, {"DELETE", where, ""}, {"POST", where + "/ring", ""},
	} {
		if a := n.Do(other.method, other.path, other.body, "Idempotency-Key: one"); a.Status != 422 || a.Code() != "idempotency_key_reused" {
			t.Errorf("%s %s: got %d %s, want 422 idempotency_key_reused", other.method, other.path, a.Status, a.Body)
		}
	}
	if a := n.As(n.key(t, theirs, apikey.Permissions{Level: apikey.ReadWrite})).Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: one"); a.Status != 201 || a.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("another account: got %d %s", a.Status, a.Body)
	}
	if a := n.As(n.key(t, ours, apikey.Permissions{Level: apikey.ReadOnly})).Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: one"); a.Status != 403 {
		t.Errorf("without permission: got %d %s, want 403", a.Status, a.Body)
	}
	// PUT and DELETE; a deleted record stays deleted.
	put := n.Do("PUT", where, `{"stars":1}`, "Idempotency-Key: two")
	n.Do("PUT", where, `{"stars":2}`)
	if a := n.Do("PUT", where, `{"stars":1}`, "Idempotency-Key: two"); a.Body != put.Body || a.Header.Get("ETag") != put.Header.Get("ETag") {
		t.Errorf("PUT again: got %s, want %s", a.Body, put.Body)
	}
	for i := range 2 {
		if a := n.Do("DELETE", where, "", "Idempotency-Key: three"); a.Status != 204 || (a.Header.Get("Idempotent-Replayed") != "") != (i == 1) {
			t.Errorf("DELETE %d: got %d %s", i+1, a.Status, a.Body)
		}
	}
	if got := n.count(t); got != 1 {
		t.Errorf("there are %d notes, want the other account's", got)
	}
}

// TestWhatIsKept holds which refusals leave no trace.
func TestWhatIsKept(t *testing.T) {
	n := open(t)
	made := n.add(t, "one")
	for _, test := range []struct {
		method, path, body, header string
		status                     int
		kept                       bool
	}{
		{"POST", "/notes", `{"text":"taken"}`, "", 409, true},
		{"PUT", "/notes/none", `{"stars":1}`, "", 404, false}, // it may be there a moment later
		{"PUT", "/notes/" + made.ID, `{"stars":1}`, `If-Match: "x"`, 412, true},
		{"POST", "/notes/none/ring", "", "", 404, false},
		{"POST", "/notes", `{"text":""}`, "", 422, false},
		{"POST", "/notes?x=1", `{"text":"a"}`, "", 400, false},
	} {
		key := "Idempotency-Key: " + test.method + test.path + test.body
		key = strings.NewReplacer("{", "", "}", "").Replace(key)
		headers := []string{key}
		if test.header != "" {
			headers = append(headers, test.header)
		}
		for i := range 2 {
			a := n.Do(test.method, test.path, test.body, headers...)
			if a.Status != test.status || (a.Header.Get("Idempotent-Replayed") == "true") != (test.kept && i == 1) {
				t.Errorf("%s %s, time %d: got %d %s, replayed %q; want %d", test.method, test.path, i+1, a.Status, a.Body, a.Header.Get("Idempotent-Replayed"), test.status)
			}
		}
		// Corrected, under the same key.
		if a := n.Do("POST", "/notes", `{"text":"corrected"}`, key); test.kept && a.Status != 422 || !test.kept && a.Status != 201 {
			t.Errorf("%s %s, corrected: got %d %s", test.method, test.path, a.Status, a.Body)
		}
	}
}

// TestFailureLeavesNeither holds that the change and the answer come together or
// not at all.
func TestFailureLeavesNeither(t *testing.T) {
	n := open(t)
	n.failMake = errors.New("the process dies here")
	if a := n.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: k"); a.Status != 500 {
		t.Fatalf("got %d %s, want 500", a.Status, a.Body)
	}
	var keys int
	if err := n.db.QueryRow(t.Context(), "SELECT count(*) FROM idempotency_keys").Scan(&keys); err != nil || keys != 0 || n.count(t) != 0 {
		t.Errorf("left behind: %d answers, %d notes, %v", keys, n.count(t), err)
	}
	n.failMake = nil
	if a := n.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: k"); a.Status != 201 || n.count(t) != 1 {
		t.Errorf("again: got %d %s, %d notes", a.Status, a.Body, n.count(t))
	}
}

func TestInProgress(t *testing.T) {
	for _, call := range []string{"/notes", "/notes/ID/ring"} {
		n := open(t)
		path := strings.Replace(call, "ID", n.add(t, "one").ID, 1)
		body := `{"text":"a"}`
		if path != call {
			body = ""
		}
		n.enter, n.leave = make(chan struct{}), make(chan struct{})
		var first int
		var wg sync.WaitGroup
		wg.Go(func() { first = n.Do("POST", path, body, "Idempotency-Key: k").Status })
		<-n.enter
		a := n.Do("POST", path, body, "Idempotency-Key: k")
		if a.Status != 409 || a.Code() != "idempotency_in_progress" || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s, the same: got %d %s", call, a.Status, a.Body)
		}
		if a := n.Do("POST", path, `{"text":"b"}`, "Idempotency-Key: k"); a.Status != 422 || a.Code() != "idempotency_key_reused" {
			t.Errorf("%s, another: got %d %s", call, a.Status, a.Body)
		}
		close(n.leave)
		wg.Wait()
		if a := n.Do("POST", path, body, "Idempotency-Key: k"); a.Status != first || first >= 300 || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s, afterwards: got %d %s, first %d", call, a.Status, a.Body, first)
		}
	}
}

// TestParallelRetriesRunOnce sends the same request many times at once, to two
// processes.
func TestParallelRetriesRunOnce(t *testing.T) {
	url := dbtest.URL(t)
	nodes := []*notebook{openOn(t, dbtest.Open(t, url)), openOn(t, dbtest.Open(t, url))}
	token := nodes[0].Token
	for _, key := range []string{"k1", "k2", "k3", "k4", "k5"} {
		var wg sync.WaitGroup
		statuses := make([]int, 24)
		bodies := make([]string, len(statuses))
		for i := range statuses {
			wg.Go(func() {
				a := nodes[i%2].As(token).Do("POST", "/notes", `{"text":"once"}`, "Idempotency-Key: "+key)
				statuses[i], bodies[i] = a.Status, a.Body
			})
		}
		wg.Wait()
		body := ""
		for i, s := range statuses {
			switch {
			case s == 201 && (body == "" || body == bodies[i]):
				body = bodies[i]
			case s != 409:
				t.Errorf("key %s: got %d %s", key, s, bodies[i])
			}
		}
		if body == "" {
			t.Errorf("key %s: nobody made it", key)
		}
		// A client refused with 409 finds the created record later.
		for i, node := range nodes {
			a := node.As(token).Do("POST", "/notes", `{"text":"once"}`, "Idempotency-Key: "+key)
			if a.Status != 201 || a.Body != body || a.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("key %s, afterwards at node %d: got %d %s, want %s", key, i, a.Status, a.Body, body)
			}
		}
	}
	if got := nodes[0].count(t); got != 5 {
		t.Errorf("there are %d notes, want 5", got)
	}
}

// TestRunningElsewhere: a request refused because another process runs it leaves no trace; the
// other may fail.
func TestRunningElsewhere(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("needs PostgreSQL: SQLite has one writer at a time")
	}
	url := dbtest.URL(t)
	n, other := openOn(t, dbtest.Open(t, url)), openOn(t, dbtest.Open(t, url))
	c := other.As(n.Token)
	post := func(c *resttest.Client) resttest.Answer {
		return c.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: k")
	}
	n.enter, n.leave, n.failMake = make(chan struct{}), make(chan struct{}), errors.New("the disk is full")
	var wg sync.WaitGroup
	wg.Go(func() { post(n.Client) })
	<-n.enter
	for i := range 2 {
		if a := post(c); a.Status != 409 || a.Code() != "idempotency_in_progress" || a.Header.Get("Retry-After") != "1" || a.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("while it runs, time %d: got %d %s %v", i+1, a.Status, a.Body, a.Header)
		}
	}
	close(n.leave)
	wg.Wait()
	if a := post(c); a.Status != 201 || a.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("after it failed: got %d %s", a.Status, a.Body)
	}
}

// TestClaims: claims exclude retries of changes that are not one transaction.
func TestClaims(t *testing.T) {
	url := dbtest.URL(t)
	n, other := openOn(t, dbtest.Open(t, url)), openOn(t, dbtest.Open(t, url))
	ring := "/notes/" + n.add(t, "one").ID + "/ring"
	n.enter, n.leave = make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { n.Do("POST", ring, "", "Idempotency-Key: k") })
	<-n.enter
	c := other.As(n.Token)
	if a := c.Do("POST", ring, "", "Idempotency-Key: k"); a.Status != 409 || a.Code() != "idempotency_in_progress" {
		t.Errorf("at another node, the same: got %d %s", a.Status, a.Body)
	}
	if a := c.Do("POST", ring, `{}`, "Idempotency-Key: k"); a.Status != 422 || a.Code() != "idempotency_key_reused" {
		t.Errorf("at another node, another: got %d %s", a.Status, a.Body)
	}
	var life int64
	if err := n.db.QueryRow(t.Context(), "SELECT expires_at FROM idempotency_keys WHERE status = 0").Scan(&life); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(time.UnixMicro(life)); left > time.Minute || left < 50*time.Second {
		t.Errorf("the claim holds for %v, want 60s", left)
	}
	// The process died, and a minute is over.
	age(t, n, time.Minute)
	if a := c.Do("POST", ring, "", "Idempotency-Key: k"); a.Status != 200 || a.Header.Get("Idempotent-Replayed") != "" || other.rings != 1 {
		t.Errorf("after a minute: got %d %s, rang %d times", a.Status, a.Body, other.rings)
	}
	close(n.leave)
	wg.Wait()
	n.enter = nil

	// A failure that leaves no trace frees the claim at once.
	mute := "/notes/" + n.add(t, "mute").ID + "/ring"
	for i := range 2 {
		if a := c.Do("POST", mute, "", "Idempotency-Key: m"); a.Status != 503 || a.Header.Get("Retry-After") != "5" || other.rings != 2+i {
			t.Errorf("mute, time %d: got %d %s, rang %d times", i+1, a.Status, a.Body, other.rings)
		}
	}
}

// TestLongClaims: a test delivery may take 30 seconds.
func TestLongClaims(t *testing.T) {
	if os.Getenv(dbtest.Variable) != "" {
		t.Skip("bubbles tell about SQLite")
	}
	synctest.Test(t, func(t *testing.T) {
		n := open(t)
		ring := "/notes/" + n.add(t, "one").ID + "/ring"
		n.ring = func() { time.Sleep(30 * time.Second) }
		for i := range 2 {
			a := n.Do("POST", ring, "", "Idempotency-Key: k")
			if a.Status != 200 || n.rings != 1 || (a.Header.Get("Idempotent-Replayed") == "true") != (i == 1) {
				t.Errorf("time %d: got %d %s, rang %d times", i+1, a.Status, a.Body, n.rings)
			}
		}
	})
}

// age makes stored answers and claims older.
func age(t *testing.T, n *notebook, by time.Duration) {
	t.Helper()
	err := n.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE idempotency_keys SET expires_at = expires_at - $1", by.Microseconds())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnswersAreKeptForADay(t *testing.T) {
	n := open(t)
	n.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: k")
	stored := func() (got int) {
		t.Helper()
		if err := rest.Purge(t.Context(), n.db); err != nil {
			t.Fatal(err)
		}
		if err := n.db.QueryRow(t.Context(), "SELECT count(*) FROM idempotency_keys").Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	age(t, n, 24*time.Hour-time.Minute)
	if a := n.Do("POST", "/notes", `{"text":"a"}`, "Idempotency-Key: k"); a.Header.Get("Idempotent-Replayed") != "true" || stored() != 1 {
		t.Errorf("within a day: got %d %v, %d stored", a.Status, a.Header, stored())
	}
	age(t, n, time.Minute)
	if a := n.Do("POST", "/notes", `{"text":"b"}`, "Idempotency-Key: k"); a.Status != 201 || a.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("after a day: got %d %s", a.Status, a.Body)
	}
	age(t, n, 24*time.Hour)
	if got := stored(); got != 0 {
		t.Errorf("after another: %d are stored, want none", got)
	}
}

// TestStoredAnswersAreSealed: an answer may hold a secret that is shown once.
func TestStoredAnswersAreSealed(t *testing.T) {
	n := open(t)
	n.Do("POST", "/notes", `{"text":"nobody reads this"}`, "Idempotency-Key: k")
	var body []byte
	if err := n.db.QueryRow(t.Context(), "SELECT body FROM idempotency_keys").Scan(&body); err != nil {
		t.Fatal(err)
	}
	if len(body) == 0 || bytes.Contains(body, []byte("nobody")) {
		t.Errorf("stored as %q", body)
	}
}
