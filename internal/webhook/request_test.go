package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// wire stores requests as received on the connection.
type wire struct {
	mu       sync.Mutex
	raw      [][]byte
	requests []*http.Request
}

// record makes a host answer with the result of answer for the n-th request, from 1.
func (n *network) record(host string, answer func(n int) int) *wire {
	l := n.listen(host)
	n.t.Cleanup(func() { l.Close() })
	w := new(wire)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(conn, answer)
		}
	}()
	return w
}

func (w *wire) serve(conn net.Conn, answer func(n int) int) {
	defer conn.Close()
	var seen bytes.Buffer
	r := bufio.NewReader(io.TeeReader(conn, &seen))
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return
		}
		w.mu.Lock()
		w.raw = append(w.raw, bytes.Clone(seen.Bytes()[:seen.Len()-r.Buffered()]))
		w.requests = append(w.requests, q)
		count := len(w.raw)
		w.mu.Unlock()
		seen.Reset()
		fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", answer(count))
	}
}

// The request of every attempt is reconstructed as sent, after any later changes.
func TestRequests(t *testing.T) {
	n := newNetwork(t)
	var r *rig
	var id string
	done := make(chan struct{})
	// Changes during the n-th request, and its answer.
	steps := []func() int{
		func() int { // B, signed; then with two secrets
			r.update(id, webhook.Change{Secret: new("the secret two...")})
			return 500
		},
		func() int {
			r.update(id, webhook.Change{URL: new("https://receiver.example.com:8443/a/./b?c=d&e=%20f"), PayloadForm: new(payload.Flat)})
			return 503
		},
		func() int { // A, with two secrets
			r.update(id, webhook.Change{Unsigned: true})
			return 500
		},
		func() int { // A, not signed
			r.update(id, webhook.Change{PayloadForm: new(payload.Nested)})
			return 429
		},
		func() int { // B, not signed
			r.update(id, webhook.Change{URL: new("https://receiver.example.com"), PayloadForm: new(payload.Flat), Secret: new("the secret three...")})
			return 500
		},
		func() int { // A, signed
			close(done)
			return 200
		},
		func() int { return 200 }, // a test, A
		func() int { return 404 }, // a test, B
	}
	w := n.record("receiver.example.com", func(n int) int { return steps[n-1]() })
	r = newRig(t, dbtest.New(t), n, func(c *webhook.Config) { c.RetryTimeScale = 1e-9 })
	id = r.create(webhook.New{Secret: new("the secret one...")}).ID
	r.start()
	r.emit(1)
	<-done
	r.stop()
	test := func() string {
		t.Helper()
		got, err := r.hooks.Test(t.Context(), org, id)
		if err != nil {
			t.Fatal(err)
		}
		return got.DeliveryID
	}
	testA := test()
	r.update(id, webhook.Change{PayloadForm: new(payload.Nested)})
	testB := test()
	r.update(id, webhook.Change{URL: new("https://elsewhere.example.com/"), PayloadForm: new(payload.Flat), Secret: new("the secret four...")})
	// The program may be reached elsewhere by then, too.
	r = newRig(t, r.db, n, func(c *webhook.Config) { c.BaseURL = "https://moved.example.com/" })

	attempts := r.attempts(w.requests[0].Header.Get("X-Service-Delivery"))
	attempts = append(attempts, append(r.attempts(testA), r.attempts(testB)...)...)
	if len(attempts) != len(steps) || len(w.raw) != len(steps) {
		t.Fatalf("got %d attempts and %d requests, want %d", len(attempts), len(w.raw), len(steps))
	}
	for i, a := range attempts {
		if a.Request == nil {
			t.Errorf("request %d: got none", i+1)
			continue
		}
		raw, err := a.Request.Bytes()
		if err != nil || !bytes.Equal(raw, w.raw[i]) {
			t.Errorf("request %d:\n got %q, %v\nwant %q", i+1, raw, err, w.raw[i])
		}
		want := w.requests[i]
		want.Header["Host"] = []string{want.Host}
		if !maps.EqualFunc(a.Request.Header, want.Header, func(a, b []string) bool { return len(a) == 1 && len(b) == 1 && a[0] == b[0] }) {
			t.Errorf("request %d: got headers %v, want %v", i+1, a.Request.Header, want.Header)
		}
		if got := a.Request.Method + " " + a.Request.URL; !strings.HasPrefix(got, "POST https://"+want.Host) {
			t.Errorf("request %d: got %s to %s", i+1, got, want.Host)
		}
	}
	for i, want := range []struct {
		url        string
		signatures int
		form       string // begins the form's signature
	}{
		{"https://receiver.example.com/hook", 1, "sha256="},
		{"https://receiver.example.com/hook", 2, "sha256="},
		{"https://receiver.example.com:8443/a/./b?c=d&e=%20f", 2, ""},
		{"https://receiver.example.com:8443/a/./b?c=d&e=%20f", 0, ""},
		{"https://receiver.example.com:8443/a/./b?c=d&e=%20f", 0, ""},
		{"https://receiver.example.com", 1, ""},
	} {
		q := attempts[i].Request
		signatures := len(strings.Fields(q.Header.Get("Webhook-Signature")))
		if q.URL != want.url || signatures != want.signatures || !strings.HasPrefix(q.Header.Get("X-Service-Signature"), want.form) {
			t.Errorf("request %d: got %s with %d signatures, %v, want %+v", i+1, q.URL, signatures, q.Header, want)
		}
	}
}

// Requests that cannot be reconstructed are left out.
func TestRequestsThatAreGone(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	w := r.create(webhook.New{Secret: new("the only secret.")})
	r.start()
	r.emit(1, 2)
	rc.wait(t, 2)
	r.stop()
	list := r.deliveries(w.ID)
	exec := func(query string, args ...any) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), query, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string) {
		t.Helper()
		q := r.attempts(list[1].ID)[0].Request
		if q == nil || q.Body != nil || q.Header.Get("Content-Length") == "" || q.Header.Get("X-Service-Signature") == "" {
			t.Fatalf("%s: got %+v, want all but the body", name, q)
		}
		head, err := q.Bytes()
		if err != nil || !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			t.Errorf("%s: got %q, %v, want the head", name, head, err)
		}
	}
	exec(`UPDATE events SET data = '{"ticket":{"id":"t","number":7}}' WHERE id = $1`, list[1].EventID)
	check("written otherwise")
	exec("DELETE FROM events WHERE id = $1", list[1].EventID)
	check("no longer stored")
	exec("UPDATE deliveries SET version = NULL, body_sum = NULL, signatures = NULL WHERE id = $1", list[0].ID)
	if a := r.attempts(list[0].ID)[0]; a.Request != nil || a.Status != 200 {
		t.Errorf("from before requests were kept: got %+v, want no request", a)
	}
	exec("UPDATE webhook_versions SET webhook_id = 'another'")
	if a := r.attempts(list[1].ID)[0]; a.Request != nil {
		t.Errorf("without versions: got %+v, want no request", a.Request)
	}
}

// Versions of webhooks are retained as long as attempts made with them.
func TestPurgeVersions(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{})
	deleted := r.create(webhook.New{})
	for i := range 4 {
		r.update(w.ID, webhook.Change{URL: new(fmt.Sprintf("https://receiver.example.com/%d", i))})
	}
	r.update(w.ID, webhook.Change{URL: new("https://receiver.example.com/3"), Events: &[]string{"ticket.created"}}) // no other request
	versions := func(want int) {
		t.Helper()
		if _, err := r.hooks.Purge(t.Context(), 30*24*time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := r.count("SELECT count(*) FROM webhook_versions"); got != want {
			t.Errorf("got %d versions, want %d", got, want)
		}
	}
	versions(6)
	age := func(query string, args ...any) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(context.Background(), query, args...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	const hour = 3_600_000_000
	age("UPDATE webhook_versions SET created_at = created_at - $1 * (10 - version)", int64(hour))
	// The third was replaced six hours ago: a retained delivery may have used it.
	age(`INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at) VALUES ($1, $2, 'e', 'ticket.created', 2, 0)`,
		w.ID, uuidAgo(6*60+30))
	versions(4)
	age("DELETE FROM deliveries")
	versions(2)
	if err := r.hooks.Delete(t.Context(), org, deleted.ID); err != nil {
		t.Fatal(err)
	}
	versions(1)
}

// A host with non-ASCII letters is shown as sent.
func TestRequestToInternationalHost(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		var host string
		rc := n.receive("xn--bcher-kva.example.com", func(_ int, _ http.ResponseWriter, q *http.Request) { host = q.Host })
		w := r.create(webhook.New{URL: "https://b\u00fccher.example.com/hook"})
		r.start()
		r.emit(1)
		rc.wait(t, 1)
		r.stop()
		q := r.attempts(r.deliveries(w.ID)[0].ID)[0].Request
		if got := q.Header.Get("Host"); got != host || host != "xn--bcher-kva.example.com" {
			t.Errorf("got host %q, want %q, which was sent", got, host)
		}
	})
}
