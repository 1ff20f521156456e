package requestlog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
)

var start = time.Date(2026, 3, 14, 9, 26, 53, 589_793_000, time.UTC)

// request returns the n-th request of a key of the organization o.
func request(key string, n, status int) requestlog.Request {
	return requestlog.Request{
		RequestID: fmt.Sprint(key, "-", n), Key: requestlog.Key{ID: key, OrganizationID: "o", Service: "helpdesk", Environment: "live"},
		At: start.Add(time.Duration(n) * time.Millisecond), Duration: 1234 * time.Microsecond, Method: "GET", Path: "/api/v1/tickets", Status: status,
		Address: netip.MustParseAddr("192.0.2.1"),
	}
}

func flush(t *testing.T, l *requestlog.Log) {
	t.Helper()
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// list returns the requests of a query as "request id status".
func list(t *testing.T, l *requestlog.Log, q requestlog.Query) []string {
	t.Helper()
	found, err := l.List(t.Context(), "o", q)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range found {
		out = append(out, fmt.Sprint(r.RequestID, " ", r.Status))
	}
	return out
}

func TestLog(t *testing.T) {
	d := dbtest.New(t)
	l := requestlog.Open(requestlog.Config{DB: d})
	refused := request("a", 2, 403)
	refused.Code, refused.Refusal = "permission_denied", requestlog.Refusal{Rule: requestlog.Level, Needed: "read_write"}
	fleet := request("c", 4, 200)
	fleet.Key.Service, fleet.Address = "fleet", netip.Addr{}
	foreign := request("d", 5, 200)
	foreign.Key.OrganizationID = "another"
	for _, r := range []requestlog.Request{request("a", 1, 200), request("b", 3, 404), refused, fleet, foreign} {
		l.Record(r)
	}
	if got := list(t, l, requestlog.Query{KeyID: "a"}); got != nil {
		t.Errorf("before the flush there are %v", got)
	}
	flush(t, l)
	desk := requestlog.Query{Service: "helpdesk", Environment: "live"}
	for _, tt := range []struct {
		query requestlog.Query
		want  string
	}{
		{desk, "b-3 404,a-2 403,a-1 200"},
		{requestlog.Query{KeyID: "a"}, "a-2 403,a-1 200"},
		{requestlog.Query{KeyID: "a", Failed: true}, "a-2 403"},
		{requestlog.Query{KeyID: "c"}, "c-4 200"},
		{requestlog.Query{KeyID: "c", Service: "helpdesk", Environment: "live"}, ""},
		{requestlog.Query{Service: "helpdesk", Environment: "live", Code: "permission_denied"}, "a-2 403"},
		{requestlog.Query{Service: "helpdesk", Environment: "live", Limit: 2}, "b-3 404,a-2 403"},
		{requestlog.Query{KeyID: "d"}, ""},
	} {
		if got := strings.Join(list(t, l, tt.query), ","); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.query, got, tt.want)
		}
	}
	got, err := l.Find(t.Context(), "o", "a-2", desk)
	if err != nil {
		t.Fatal(err)
	}
	next := desk
	if next.Before = got.ID; strings.Join(list(t, l, next), ",") != "a-1 200" {
		t.Errorf("the next page has %v", list(t, l, next))
	}
	refused.ID = got.ID
	if got != refused {
		t.Errorf("got %+v, want %+v", got, refused)
	}
	if again, err := l.Find(t.Context(), "o", got.ID, requestlog.Query{KeyID: "a"}); err != nil || again != got {
		t.Errorf("by id: got %+v, %v", again, err)
	}
	for _, q := range []requestlog.Query{{KeyID: "b"}, {Service: "fleet", Environment: "live"}} {
		if _, err := l.Find(t.Context(), "o", got.ID, q); problem.Of(err) != problem.NotFound {
			t.Errorf("%+v: got %v", q, err)
		}
	}
}

// TestBusyKey: the last requests of a key stay, and successes do not displace errors.
func TestBusyKey(t *testing.T) {
	d := dbtest.New(t)
	l := requestlog.Open(requestlog.Config{DB: d})
	l.Record(request("busy", 0, 500))
	for n := range 3 * requestlog.PerKey {
		l.Record(request("busy", n, 200))
		if n%requestlog.PerKey == 42 {
			flush(t, l)
		}
	}
	l.Record(request("calm", 0, 200))
	flush(t, l)
	got := list(t, l, requestlog.Query{KeyID: "busy"})
	if len(got) != requestlog.PerKey+1 || got[0] != "busy-1499 200" || got[requestlog.PerKey-1] != "busy-1000 200" || got[requestlog.PerKey] != "busy-0 500" {
		t.Errorf("got %d requests, from %s to %s", len(got), got[0], got[len(got)-1])
	}
	if got := list(t, l, requestlog.Query{KeyID: "calm"}); len(got) != 1 {
		t.Errorf("the other key has %v", got)
	}
}

func TestFullBuffer(t *testing.T) {
	d := dbtest.NewSQLite(t)
	var text bytes.Buffer
	l := requestlog.Open(requestlog.Config{DB: d, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	for n := range 20_000 + 7 {
		l.Record(request(fmt.Sprint("key", n/100), n, 200))
	}
	flush(t, l)
	var stored int
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM api_requests").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if stored != 20_000 || !strings.Contains(text.String(), "its buffer was full\" requests=7") {
		t.Errorf("%d requests are stored; log %q", stored, text.String())
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		var recorded []string
		l := requestlog.Open(requestlog.Config{DB: d, Recorded: func(organizationID, keyID string) { recorded = append(recorded, organizationID+" "+keyID) }})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		synctest.Wait()
		l.Record(request("a", 1, 200))
		time.Sleep(3 * time.Second)
		if got := list(t, l, requestlog.Query{KeyID: "a"}); len(got) != 1 {
			t.Errorf("after three seconds: %v", got)
		}
		l.Record(request("a", 2, 200))
		stop()
		running.Wait()
		if got := list(t, l, requestlog.Query{KeyID: "a"}); len(got) != 2 {
			t.Errorf("after the end: %v", got)
		}
		if want := []string{"o a", "o a"}; !slices.Equal(recorded, want) {
			t.Errorf("recorded %v, want %v", recorded, want)
		}
	})
}

// TestLostDatabase: requests are dropped with an error, and later ones are recorded.
func TestLostDatabase(t *testing.T) {
	d := dbtest.NewSQLite(t)
	l := requestlog.Open(requestlog.Config{DB: d})
	rename := func(from, to string) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	rename("api_requests", "lost")
	l.Record(request("a", 1, 200))
	if err := l.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "write 1 requests") {
		t.Errorf("got %v", err)
	}
	rename("lost", "api_requests")
	l.Record(request("a", 2, 200))
	flush(t, l)
	if got := list(t, l, requestlog.Query{KeyID: "a"}); !slices.Equal(got, []string{"a-2 200"}) {
		t.Errorf("got %v", got)
	}
}

func TestPurge(t *testing.T) {
	l := requestlog.Open(requestlog.Config{DB: dbtest.New(t)})
	l.Record(request("a", 1, 200))
	flush(t, l)
	for _, tt := range []struct {
		before time.Time
		left   int
	}{{time.Now().Add(-time.Minute), 1}, {time.Now().Add(time.Minute), 0}} {
		if err := l.Purge(t.Context(), tt.before); err != nil {
			t.Fatal(err)
		}
		if got := list(t, l, requestlog.Query{KeyID: "a"}); len(got) != tt.left {
			t.Errorf("before %s: %v are left", tt.before, got)
		}
	}
}

func TestClients(t *testing.T) {
	l := requestlog.Open(requestlog.Config{DB: dbtest.New(t)})
	from := func(address string, n int, rule requestlog.Rule) {
		r := request("a", n, 200)
		r.Refusal.Rule = rule
		if r.Address = (netip.Addr{}); address != "" {
			r.Address = netip.MustParseAddr(address)
		}
		l.Record(r)
	}
	from("192.0.2.1", 1, "")
	from("::ffff:192.0.2.2", 2, "")
	from("192.0.2.2", 4, requestlog.Level)
	from("", 3, "")
	from("192.0.2.9", 5, requestlog.Address)
	flush(t, l)
	got, err := l.Clients(t.Context(), "a", start.Add(2*time.Millisecond))
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }
	if want := []requestlog.Client{{"192.0.2.2", 2, at(4)}, {"", 1, at(3)}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestNoLog(t *testing.T) {
	var l *requestlog.Log
	l.Record(request("a", 1, 200)) // does not panic
}

func BenchmarkRecord(b *testing.B) {
	l := requestlog.Open(requestlog.Config{})
	r := request("a", 1, 200)
	b.ReportAllocs()
	for b.Loop() {
		l.Record(r)
	}
}

// TestClientTexts: texts of clients are bounded, and none makes the requests of others lost.
func TestClientTexts(t *testing.T) {
	l := requestlog.Open(requestlog.Config{DB: dbtest.New(t)})
	odd := request("a", 1, 403)
	odd.Method, odd.Path = strings.Repeat("M", 5000), strings.Repeat("p", 5000)
	odd.Refusal = requestlog.Refusal{Rule: requestlog.Scope, Needed: "a\x00\xff" + strings.Repeat("ä", 5000)}
	l.Record(odd)
	l.Record(request("b", 2, 200))
	flush(t, l)
	found, err := l.List(t.Context(), "o", requestlog.Query{Service: "helpdesk", Environment: "live"})
	if err != nil || len(found) != 2 {
		t.Fatalf("got %d requests, %v", len(found), err)
	}
	got := found[1]
	if len(got.Method) != 1000 || len(got.Path) != 1000 || len(got.Refusal.Needed) > 1010 || !strings.HasPrefix(got.Refusal.Needed, "a\uFFFD\uFFFDä") {
		t.Errorf("got %d, %d and %d bytes: %.20q", len(got.Method), len(got.Path), len(got.Refusal.Needed), got.Refusal.Needed)
	}
}
