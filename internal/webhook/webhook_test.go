package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

func TestCreate(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	plain := r.create(webhook.New{URL: "https://receiver.example.com/hook?a=b", Events: []string{"ticket.created", "message.created", "ticket.created"}})
	want := webhook.Webhook{
		ID: plain.ID, OrganizationID: org, URL: "https://receiver.example.com/hook?a=b", Source: event.Helpdesk, Events: []string{"ticket.created", "message.created"},
		State: webhook.Enabled, PayloadForm: payload.Nested, RetrySchedule: webhook.ShortSchedule, CreatedAt: plain.CreatedAt, UpdatedAt: plain.CreatedAt,
	}
	if got := fmt.Sprintf("%+v", plain); got != fmt.Sprintf("%+v", want) || plain.CreatedAt.IsZero() {
		t.Errorf("got %s, want %+v", got, want)
	}
	full := r.create(webhook.New{
		Events: []string{"*"}, Secret: new("a secret of ours"), Disabled: true, PayloadForm: payload.Flat, RetrySchedule: webhook.LongSchedule,
	})
	if full.State != webhook.Disabled || !full.HasSecret || full.PayloadForm != payload.Flat || full.RetrySchedule != webhook.LongSchedule {
		t.Errorf("got %+v", full)
	}
	list, err := r.hooks.List(t.Context(), org)
	if err != nil || len(list) != 2 || list[0].ID != plain.ID || list[1].ID != full.ID {
		t.Errorf("got %+v, %v, want both, oldest first", list, err)
	}
	if list, err := r.hooks.List(t.Context(), otherOrg); err != nil || len(list) != 0 {
		t.Errorf("other organization: got %+v, %v, want none", list, err)
	}
}

func TestRefusedInput(t *testing.T) {
	good := webhook.New{URL: "https://receiver.example.com/", Events: []string{"ticket.created"}}
	tests := map[string]struct {
		change func(*webhook.New)
		want   string // "path message" of every issue
	}{
		"no url":           {func(n *webhook.New) { n.URL = "" }, "url must not be empty"},
		"http":             {func(n *webhook.New) { n.URL = "http://receiver.example.com/" }, "url must use https"},
		"other scheme":     {func(n *webhook.New) { n.URL = "ftp://receiver.example.com/" }, "url must use https"},
		"no url at all":    {func(n *webhook.New) { n.URL = "hello" }, "url must use https"},
		"user":             {func(n *webhook.New) { n.URL = "https://a:b@receiver.example.com/" }, "url must not contain a user name or password"},
		"loopback":         {func(n *webhook.New) { n.URL = "https://127.0.0.1/" }, "url must be publicly reachable: 127.0.0.1 is not a public address (loopback)"},
		"mapped":           {func(n *webhook.New) { n.URL = "https://[::ffff:10.0.0.1]/" }, "url must be publicly reachable: ::ffff:10.0.0.1 is not a public address (IPv4-mapped)"},
		"localhost":        {func(n *webhook.New) { n.URL = "https://localhost/" }, "url must have a public host name"},
		"no events":        {func(n *webhook.New) { n.Events = nil }, "events must name at least one event"},
		"unknown event":    {func(n *webhook.New) { n.Events = []string{"ticket.created", "ticket.exploded"} }, "events.1 is not the name of an event"},
		"pattern":          {func(n *webhook.New) { n.Events = []string{"ticket.*"} }, "events.0 is not the name of an event"},
		"space":            {func(n *webhook.New) { n.Events = []string{"ticket.created ticket.updated"} }, "events.0 is not the name of an event"},
		"long secret":      {func(n *webhook.New) { n.Secret = new(strings.Repeat("s", 501)) }, "secret must have at most 500 characters"},
		"no whsec secret":  {func(n *webhook.New) { n.Secret = new("whsec_" + "not base64 at all!") }, "secret must be whsec_ followed by base64"},
		"empty secret":     {func(n *webhook.New) { n.Secret = new("") }, "secret must have at least 16 characters"},
		"short secret":     {func(n *webhook.New) { n.Secret = new(strings.Repeat("s", 15)) }, "secret must have at least 16 characters"},
		"blank secret":     {func(n *webhook.New) { n.Secret = new(strings.Repeat(" \t\n", 6)) }, "secret must not be blank"},
		"form":             {func(n *webhook.New) { n.PayloadForm = "c" }, `payloadForm must be "a" or "b"`},
		"schedule":         {func(n *webhook.New) { n.RetrySchedule = "three" }, `retrySchedule must be "one" or "two"`},
		"several":          {func(n *webhook.New) { n.URL, n.Events = "http://x.example/", []string{} }, "url must use https; events must name at least one event"},
		"not UTF-8":        {func(n *webhook.New) { n.URL = "https://receiver.example.com/\xff" }, "url must be valid UTF-8"},
		"all right as two": {func(n *webhook.New) { n.Events = []string{"*", "ticket.created"} }, ""},
	}
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(good)
	for name, test := range tests {
		n := good
		test.change(&n)
		_, err := r.hooks.Create(t.Context(), org, n)
		if got := issues(err); got != test.want {
			t.Errorf("%s: create: got %q, want %q", name, got, test.want)
		}
		c := webhook.Change{URL: &n.URL, Events: &n.Events, Secret: n.Secret}
		if n.PayloadForm != "" {
			c.PayloadForm = &n.PayloadForm
		}
		if n.RetrySchedule != "" {
			c.RetrySchedule = &n.RetrySchedule
		}
		_, err = r.hooks.Update(t.Context(), org, w.ID, c)
		if got := issues(err); got != test.want {
			t.Errorf("%s: update: got %q, want %q", name, got, test.want)
		}
	}
}

func issues(err error) string {
	if err == nil {
		return ""
	}
	p, ok := err.(*problem.Error)
	if !ok || p.Kind != problem.Invalid {
		return err.Error()
	}
	var out []string
	for _, i := range p.Issues {
		out = append(out, i.Path+" "+i.Message)
	}
	return strings.Join(out, "; ")
}

func TestPrivateReceiversAllowed(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), func(c *webhook.Config) { c.AllowPrivate = true })
	r.create(webhook.New{URL: "http://127.0.0.1:8090/"})
	if _, err := r.hooks.Create(t.Context(), org, webhook.New{URL: "ftp://127.0.0.1/", Events: []string{"*"}}); issues(err) != "url must use https or http" {
		t.Errorf("got %v", err)
	}
}

func TestOtherOrganization(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{Secret: new("a secret of ours")})
	ctx := t.Context()
	for name, call := range map[string]func(org, id string) error{
		"find": func(org, id string) error { _, err := r.hooks.Find(ctx, org, id); return err },
		"update": func(org, id string) error {
			_, err := r.hooks.Update(ctx, org, id, webhook.Change{Enabled: new(false)})
			return err
		},
		"delete": func(org, id string) error { return r.hooks.Delete(ctx, org, id) },
		"test":   func(org, id string) error { _, err := r.hooks.Test(ctx, org, id); return err },
		"list": func(org, id string) error {
			_, err := r.hooks.Search(ctx, org, webhook.Query{WebhookID: id})
			return err
		},
		"upcoming": func(org, id string) error { _, err := r.hooks.Upcoming(ctx, org, id, 10); return err },
		"delivery": func(org, id string) error { _, _, err := r.hooks.Delivery(ctx, org, id); return err },
		"body":     func(org, id string) error { _, err := r.hooks.Body(ctx, org, id); return err },
		"replay":   func(org, id string) error { _, err := r.hooks.Replay(ctx, org, []string{id}); return err },
		"event":    func(org, id string) error { _, err := r.hooks.ReplayEvent(ctx, org, id, id); return err },
		"range": func(org, id string) error {
			_, err := r.hooks.ReplayRange(ctx, org, webhook.Range{WebhookID: id, To: time.Now()})
			return err
		},
	} {
		if err := call(otherOrg, w.ID); problem.Of(err) != problem.NotFound {
			t.Errorf("%s of another organization: got %v, want not found", name, err)
		}
		if err := call(org, "00000000-0000-7000-8000-000000000000"); problem.Of(err) != problem.NotFound {
			t.Errorf("%s of no webhook: got %v, want not found", name, err)
		}
	}
	if got := r.find(w.ID); got.State != webhook.Enabled {
		t.Errorf("got %s, want it untouched", got.State)
	}
}

func TestAtMost100(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for range 110 {
		wg.Go(func() {
			_, err := r.hooks.Create(t.Context(), org, webhook.New{URL: "https://receiver.example.com/", Events: []string{"*"}})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case problem.Of(err) == problem.Precondition:
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != 100 || refused != 10 {
		t.Errorf("made %d, refused %d, want 100 and 10", made, refused)
	}
	if _, err := r.hooks.Create(t.Context(), otherOrg, webhook.New{URL: "https://receiver.example.com/", Events: []string{"*"}}); err != nil {
		t.Errorf("another organization: %v", err)
	}
}

func TestSecretIsSealed(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{Secret: new("planted-secret-1")})
	r.update(w.ID, webhook.Change{Secret: new("planted-secret-2")})
	err := r.db.Read(t.Context(), func(tx *db.Tx) error {
		var secret, old []byte
		if err := tx.QueryRow(t.Context(), "SELECT secret, old_secret FROM webhooks").Scan(&secret, &old); err != nil {
			return err
		}
		if len(secret) == 0 || len(old) == 0 || strings.Contains(string(secret)+string(old), "planted") {
			t.Errorf("stored secrets: got %q and %q, want both sealed", secret, old)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%+v", r.find(w.ID)); strings.Contains(got, "planted") {
		t.Errorf("the record holds a secret: %s", got)
	}
}

// Every event reaches exactly its subscribers, in their form, signed if they have a secret.
func TestFanOut(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	all := n.receive("all.example.com", nil)
	some := n.receive("some.example.com", nil)
	foreign := n.receive("foreign.example.com", nil)
	allHook := r.create(webhook.New{URL: "https://all.example.com/", Secret: new("a secret of ours")})
	r.create(webhook.New{URL: "https://some.example.com/", Events: []string{"ticket.created", "sla.warning"}, PayloadForm: payload.Flat})
	if _, err := r.hooks.Create(t.Context(), otherOrg, webhook.New{URL: "https://foreign.example.com/", Events: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	created := ticketCreated(7)
	deleted := ticketCreated(8)
	deleted.Name = event.TicketDeleted
	events := []event.Event{created, deleted}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error { return r.log.EmitTx(t.Context(), tx, events...) }); err != nil {
		t.Fatal(err)
	}
	if got := r.find(allHook.ID).QueuedEvents; got != 2 {
		t.Errorf("queued before the start: got %d, want 2", got)
	}
	r.start()
	posts := all.wait(t, 2)
	some.wait(t, 1)
	r.stop()

	if got := len(foreign.all()); got != 0 {
		t.Errorf("another organization got %d events", got)
	}
	if got := some.all(); len(got) != 1 || got[0].number != 7 || got[0].header.Get("X-Service-Signature") != "" ||
		got[0].header.Get("Webhook-Signature") != "" || got[0].header.Get("Webhook-Id") == "" || !strings.HasPrefix(got[0].body, `{"event":"ticket.created","timestamp":"`) {
		t.Errorf("form a without a secret: got %+v", got)
	}
	for _, p := range posts {
		var body struct{ ID, Event string }
		if err := json.Unmarshal([]byte(p.body), &body); err != nil {
			t.Fatal(err)
		}
		if form, err := payload.Verify(p.header, []byte(p.body), "a secret of ours", time.Now()); form != payload.Nested || err != nil {
			t.Errorf("verify: got %s, %v", form, err)
		}
		if got := p.header.Get("X-Service-Event"); got != body.Event {
			t.Errorf("event: got %s, want %s", got, body.Event)
		}
		if got := p.header.Get("Webhook-Id"); got != body.ID || body.ID == "" {
			t.Errorf("webhook-id: got %s, want %s", got, body.ID)
		}
		if got := p.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("content type: got %s", got)
		}
		for _, name := range []string{"Idempotency-Key", "Cookie", "Authorization"} {
			if _, ok := p.header[name]; ok {
				t.Errorf("header %s was sent", name)
			}
		}
		d, attempts, err := r.hooks.Delivery(t.Context(), org, p.header.Get("X-Service-Delivery"))
		if err != nil {
			t.Fatal(err)
		}
		if d.State != webhook.Delivered || d.EventID != body.ID || string(d.Event) != body.Event || len(attempts) != 1 ||
			attempts[0].Status != 200 || attempts[0].Error != "" || attempts[0].Number != 1 || attempts[0].At.IsZero() {
			t.Errorf("delivery: got %+v, %+v", d, attempts)
		}
		if got, err := r.hooks.Body(t.Context(), org, d.ID); string(got) != p.body || err != nil {
			t.Errorf("body: got %s, %v, want %s", got, err, p.body)
		}
	}
	w := r.find(allHook.ID)
	if w.QueuedEvents != 0 || w.LastError != "" || w.LastDeliveryAt.IsZero() {
		t.Errorf("got %+v", w)
	}
	if jobs := r.count("SELECT count(*) FROM jobs WHERE kind = 'webhook' AND lane = $1", allHook.ID); jobs != 0 {
		t.Errorf("jobs left: got %d", jobs)
	}
}

func (r *rig) count(query string, args ...any) int {
	r.t.Helper()
	var n int
	if err := r.db.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func TestRolledBackChangeSendsNothing(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	w := r.create(webhook.New{})
	r.start()
	err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		if err := r.log.EmitTx(t.Context(), tx, ticketCreated(1)); err != nil {
			return err
		}
		return fmt.Errorf("no")
	})
	if err == nil {
		t.Fatal("the write succeeded")
	}
	r.emit(2)
	rc.wait(t, 1)
	r.stop()
	if got := rc.numbers(); !slices.Equal(got, []int{2}) || len(r.deliveries(w.ID)) != 1 {
		t.Errorf("got %v and %d deliveries, want [2] and 1", got, len(r.deliveries(w.ID)))
	}
}

// A body too long for the cache is rendered at the attempt.
func TestLongBody(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	r.create(webhook.New{Secret: new("a secret of ours")})
	e := ticketCreated(1)
	e.Name = event.MessageCreated
	e.Data.Message = &event.Message{ID: "m", TicketID: "t", Text: strings.Repeat("<long> ", 50_000), CreatedAt: time.Now()}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error { return r.log.EmitTx(t.Context(), tx, e) }); err != nil {
		t.Fatal(err)
	}
	r.start()
	p := rc.wait(t, 1)[0]
	if _, err := payload.Verify(p.header, []byte(p.body), "a secret of ours", time.Now()); err != nil || !strings.Contains(p.body, e.Data.Message.Text) {
		t.Errorf("got %d bytes, %v", len(p.body), err)
	}
}

// Waiting deliveries use the webhook's settings at the time of sending.
func TestUpdateAppliesToWaiting(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("new.example.com", nil)
	w := r.create(webhook.New{URL: "https://old.example.com/"})
	r.emit(1)
	w = r.update(w.ID, webhook.Change{
		URL: new("https://new.example.com/"), PayloadForm: new(payload.Flat), Secret: new("another of ours."), Events: &[]string{"sla.warning"}, RetrySchedule: new(webhook.LongSchedule),
	})
	if w.URL != "https://new.example.com/" || w.PayloadForm != payload.Flat || !w.HasSecret || w.RetrySchedule != webhook.LongSchedule ||
		!slices.Equal(w.Events, []string{"sla.warning"}) || !w.UpdatedAt.After(w.CreatedAt) || w.State != webhook.Enabled {
		t.Errorf("got %+v", w)
	}
	r.emit(2) // no longer wanted
	r.start()
	p := rc.wait(t, 1)[0]
	r.stop()
	if form, err := payload.Verify(p.header, []byte(p.body), "another of ours.", time.Now()); form != payload.Flat || err != nil || p.number != 1 {
		t.Errorf("got %d in form %s, %v, want 1 in form a", p.number, form, err)
	}
	if got := len(rc.all()); got != 1 {
		t.Errorf("got %d posts, want 1", got)
	}
	if w = r.update(w.ID, webhook.Change{Unsigned: true}); w.HasSecret {
		t.Error("the secret was not removed")
	}
}

func TestDisabledQueues(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	w := r.create(webhook.New{})
	r.start()
	r.emit(1)
	rc.wait(t, 1)
	r.stop() // it is recorded
	r = newRig(t, r.db, n, nil)
	r.start()
	if w = r.update(w.ID, webhook.Change{Enabled: new(false)}); w.State != webhook.Disabled {
		t.Fatalf("got %s", w.State)
	}
	for i := 2; i <= 40; i++ {
		r.emit(i)
	}
	if got := r.find(w.ID).QueuedEvents; got != 39 {
		t.Errorf("queued: got %d, want 39", got)
	}
	if w = r.update(w.ID, webhook.Change{Enabled: new(true)}); w.State != webhook.Enabled {
		t.Fatalf("got %s", w.State)
	}
	for i := 41; i <= 50; i++ {
		r.emit(i)
	}
	rc.wait(t, 49)
	r.stop()
	// The 39 that waited in order, and the newer ones after them.
	got := rc.numbers()
	for i, number := range got[:40] {
		if number != i+1 {
			t.Fatalf("got %v, want the first 40 in order", got)
		}
	}
	if w = r.find(w.ID); w.QueuedEvents != 0 || w.DroppedEvents != 0 || len(got) != 50 {
		t.Errorf("got %+v and %d posts, want nothing queued and 50", w, len(got))
	}
}

func TestFullQueueDropsOldest(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	w := r.create(webhook.New{})
	exec := func(query string, args ...any) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), query, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	// Most of the queue is from before it was disabled.
	const numbers = `WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 9990)`
	const id = "'00000000-0000-7000-8000-' || (100000000000 + n)"
	exec(`INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at) `+numbers+` SELECT $1, `+id+`, 'e', 'ticket.created', 0, 0 FROM numbers`, w.ID)
	exec(`INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at) `+numbers+` SELECT `+id+`, 'webhook', $1, 0, $2, 0, 0 FROM numbers`, w.ID, []byte("e ticket.created"))
	r.update(w.ID, webhook.Change{Enabled: new(false)})

	next := 1
	emit := func(count int) {
		for range count {
			r.emit(next)
			next++
		}
	}
	check := func(queued, dropped int64) {
		t.Helper()
		if got := r.find(w.ID); got.QueuedEvents != queued || got.DroppedEvents != dropped {
			t.Errorf("got %d queued and %d dropped, want %d and %d", got.QueuedEvents, got.DroppedEvents, queued, dropped)
		}
	}
	emit(9)
	check(9_999, 0)
	emit(1)
	check(10_000, 0)
	emit(1)
	check(10_000, 1)
	emit(6)
	check(10_000, 7)
	if got := r.count("SELECT count(*) FROM deliveries WHERE state = 4 AND id <= '00000000-0000-7000-8000-100000000007'"); got != 7 {
		t.Errorf("dropped of the oldest: got %d, want 7", got)
	}
	if got := r.count("SELECT count(*) FROM jobs"); got != 10_000 {
		t.Errorf("jobs: got %d, want 10000", got)
	}
	exec("DELETE FROM jobs WHERE id < '00000000-0000-7000-8000-2'")
	exec("DELETE FROM deliveries WHERE id < '00000000-0000-7000-8000-2'")
	r.start()
	r.update(w.ID, webhook.Change{Enabled: new(true)})
	rc.wait(t, 17)
	r.stop()
	want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
	if got := rc.numbers(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	check(0, 7)
}

// Deliveries from before a webhook was disabled count too: the oldest are dropped until the
// queue is within its limit, unless the webhook is enabled first.
func TestLongQueueIsTrimmed(t *testing.T) {
	const numbers = `WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 11700)`
	const id = "'00000000-0000-7000-8000-' || (100000000000 + n)"
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{})
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at) `+numbers+` SELECT $1, `+id+`, 'e', 'ticket.created', n % 2, 0 FROM numbers`, w.ID)
		if err == nil {
			_, err = tx.Exec(t.Context(), `INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at) `+numbers+` SELECT `+id+`, 'webhook', $1, n % 2, $2, 0, 0 FROM numbers`, w.ID, []byte("e ticket.created"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.update(w.ID, webhook.Change{Enabled: new(false)})
	r.start()
	r.until(func() bool { return r.count("SELECT count(*) FROM jobs WHERE kind = 'webhook-trim'") == 0 })
	r.stop()
	if got := r.find(w.ID); got.QueuedEvents != 10_000 || got.DroppedEvents != 1_700 {
		t.Errorf("got %d queued and %d dropped, want 10000 and 1700", got.QueuedEvents, got.DroppedEvents)
	}
	if got := r.count("SELECT count(*) FROM deliveries WHERE state = 4 AND id <= '00000000-0000-7000-8000-100000001700'"); got != 1_700 {
		t.Errorf("dropped of the oldest: got %d, want 1700", got)
	}
	if got := r.count("SELECT count(*) FROM jobs"); got != 10_000 {
		t.Errorf("jobs: got %d, want 10000", got)
	}
}

// Deliveries that were under way when the webhook was disabled, and ended, leave
// their places to newer ones.
func TestFullQueueCountsAgain(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{Disabled: true})
	r.emit(1)
	set := func(held int) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE webhooks SET held = $1", held)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	set(9_999)
	r.emit(2)
	if got := r.count("SELECT held FROM webhooks"); got != 2 {
		t.Errorf("counted again: got %d, want 2", got)
	}
	r.emit(3)
	if got := r.find(w.ID); got.QueuedEvents != 3 || got.DroppedEvents != 0 {
		t.Errorf("got %+v, want 3 queued and none dropped", got)
	}
}

func TestDelete(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	arrived, gone := make(chan struct{}), make(chan struct{})
	n.serve("receiver.example.com", func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body) // or the server does not notice the end of the connection
		close(arrived)
		<-q.Context().Done()
		close(gone)
	})
	w := r.create(webhook.New{})
	r.start()
	r.emit(1)
	<-arrived
	if err := r.hooks.Delete(t.Context(), org, w.ID); err != nil {
		t.Fatal(err)
	}
	<-gone // the post under way is cut off
	r.emit(2)
	r.stop()
	if _, err := r.hooks.Find(t.Context(), org, w.ID); problem.Of(err) != problem.NotFound {
		t.Errorf("got %v, want not found", err)
	}
	if got := r.count("SELECT count(*) FROM jobs"); got != 0 {
		t.Errorf("jobs left: got %d", got)
	}
	if deleted, err := r.hooks.Purge(t.Context(), 30*24*time.Hour); deleted != 1 || err != nil {
		t.Errorf("purge: got %d, %v, want the one delivery of the deleted webhook", deleted, err)
	}
	if got := r.count("SELECT count(*) FROM deliveries"); got != 0 {
		t.Errorf("deliveries left: got %d", got)
	}
}

// All attempts fail: the webhook does too, once, and its queue waits.
func TestExhausted(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, func(c *webhook.Config) { c.RetryTimeScale = 1e-9 })
	healthy := make(chan struct{})
	posts := 0
	rc := n.receive("receiver.example.com", func(_ int, w http.ResponseWriter, q *http.Request) {
		select {
		case <-healthy:
		default:
			posts++ // sequentially: there is one delivery
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "out of order")
		}
	})
	w := r.create(webhook.New{URL: "https://receiver.example.com/secret-path"})
	r.start()
	r.emit(1)
	rc.wait(t, 6)
	r.stop() // the sixth is recorded
	mails := r.mails.all()
	r = newRig(t, r.db, n, nil)
	r.start()
	r.emit(2, 3, 4)
	got := r.find(w.ID)
	if got.State != webhook.Failed || got.QueuedEvents != 3 || got.LastError != "the receiver answered 500 Internal Server Error" || posts != 6 {
		t.Errorf("got %+v after %d posts, want it failed with 3 queued after 6", got, posts)
	}
	list := r.deliveries(w.ID)
	first := list[len(list)-1]
	attempts := r.attempts(first.ID)
	if first.State != webhook.DeliveryFailed || first.Attempts != 6 || len(attempts) != 6 || !first.NextAt.IsZero() {
		t.Errorf("got %+v with %d attempts, want it failed after 6", first, len(attempts))
	}
	for i, a := range attempts {
		if a.Number != i+1 || a.Status != 500 || a.Response != "out of order" || a.Error == "" {
			t.Errorf("attempt %d: got %+v", i+1, a)
		}
	}
	if len(mails) != 2 || mails[0].To[0].Address != "ada@1111.example" || mails[1].To[0].Address != "bob@1111.example" {
		t.Fatalf("got mails %+v, want one to each admin", mails)
	}
	if m := mails[0]; m.Subject != "Webhook to receiver.example.com disabled" {
		t.Errorf("got subject %q", m.Subject)
	}
	for name, text := range map[string]string{"text": mails[0].Text, "HTML": mails[0].HTML} {
		for _, want := range []string{"500 Internal Server Error", "https://help.example.com/", w.ID, "10,000"} {
			if !strings.Contains(text, want) {
				t.Errorf("the mail's %s lacks %q: %s", name, want, text)
			}
		}
		if strings.Contains(text, "secret-path") {
			t.Errorf("the mail's %s has the whole URL: %s", name, text)
		}
	}
	close(healthy)
	if got := r.update(w.ID, webhook.Change{Enabled: new(true)}); got.State != webhook.Enabled {
		t.Errorf("got %s", got.State)
	}
	rc.wait(t, 4)
	r.stop()
	if got := rc.numbers()[6:]; !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("after enabling: got %v, want [1 2 3 4]", got)
	}
	if got := r.find(w.ID); got.LastError != "" || got.QueuedEvents != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestTest(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	status := http.StatusOK
	rc := n.receive("receiver.example.com", func(_ int, w http.ResponseWriter, q *http.Request) { w.WriteHeader(status) })
	w := r.create(webhook.New{Secret: new("a secret of ours"), Events: []string{"sla.warning"}, Disabled: true})
	for _, test := range []struct {
		status int
		err    string
	}{
		{200, ""}, {204, ""}, {404, "the receiver answered 404 Not Found"}, {500, "the receiver answered 500 Internal Server Error"},
		{302, "the receiver answered 302 Found, and redirects are not followed"},
	} {
		status = test.status
		got, err := r.hooks.Test(t.Context(), org, w.ID)
		if err != nil || got.StatusCode != test.status || got.Error != test.err {
			t.Errorf("got %+v, %v, want status %d and error %q", got, err, test.status, test.err)
		}
		p := rc.wait(t, 1)[0]
		if _, err := payload.Verify(p.header, []byte(p.body), "a secret of ours", time.Now()); err != nil {
			t.Errorf("verify: %v", err)
		}
		if p.header.Get("X-Service-Event") != "sla.warning" || p.header.Get("X-Service-Delivery") != got.DeliveryID || p.header.Get("X-Service-Test") != "true" {
			t.Errorf("got headers %v, want a test of sla.warning and %s", p.header, got.DeliveryID)
		}
		if !strings.Contains(p.body, `"test":true`) || !strings.Contains(p.body, `"metric":"first_response"`) {
			t.Errorf("got the body %s", p.body)
		}
		if _, attempts, err := r.hooks.Delivery(t.Context(), org, got.DeliveryID); err != nil || attempts[0].Request.Header.Get("X-Service-Test") != "true" {
			t.Errorf("stored: got %+v, %v", attempts, err)
		}
		if body, err := r.hooks.Body(t.Context(), org, got.DeliveryID); string(body) != p.body || err != nil {
			t.Errorf("body: got %s, %v, want %s", body, err, p.body)
		}
		d := r.deliveries(w.ID)[0]
		if d.ID != got.DeliveryID || !d.Test || d.Attempts != 1 || d.Last.Status != test.status || d.Last.Error != test.err {
			t.Errorf("kept: got %+v", d)
		}
		if hook := r.find(w.ID); hook.LastError != test.err || hook.LastDeliveryAt.IsZero() || hook.State != webhook.Disabled || hook.QueuedEvents != 0 {
			t.Errorf("got %+v", hook)
		}
	}
	r.update(w.ID, webhook.Change{URL: new("https://nobody.example.com/")})
	got, err := r.hooks.Test(t.Context(), org, w.ID)
	if err != nil || got.StatusCode != 0 || !strings.Contains(got.Error, "connection refused") {
		t.Errorf("nobody listens: got %+v, %v", got, err)
	}
}

func TestReplay(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", func(count int, w http.ResponseWriter, q *http.Request) {
		if count == 2 {
			w.WriteHeader(http.StatusGone)
		}
	})
	other := n.receive("other.example.com", nil)
	w := r.create(webhook.New{})
	r.create(webhook.New{URL: "https://other.example.com/", Events: []string{"sla.warning"}})
	r.start()
	for i := range 3 {
		r.emit(i + 1)
		rc.wait(t, 1)
	}
	if _, err := r.hooks.Test(t.Context(), org, w.ID); err != nil {
		t.Fatal(err)
	}
	rc.wait(t, 1)
	r.stop() // all is recorded
	r = newRig(t, r.db, n, nil)
	r.start()
	list := r.deliveries(w.ID) // newest first: test, 3, 2, 1
	if len(list) != 4 || list[2].State != webhook.DeliveryFailed {
		t.Fatalf("got %+v", list)
	}
	ids, err := r.hooks.Replay(t.Context(), org, []string{list[3].ID})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	p := rc.wait(t, 1)[0]
	if p.number != 1 || p.header.Get("X-Service-Delivery") != id || id == list[3].ID || p.header.Get("Webhook-Id") != list[3].EventID {
		t.Errorf("one: got %+v, want a new delivery %s of event %s", p, id, list[3].EventID)
	}
	if _, err := r.hooks.Replay(t.Context(), org, []string{list[0].ID}); problem.Of(err) != problem.Invalid {
		t.Errorf("a test: got %v, want it refused", err)
	}

	ids, err = r.hooks.ReplayEvent(t.Context(), org, list[3].EventID, "")
	if err != nil || len(ids) != 1 {
		t.Errorf("event: got %v, %v, want one delivery", ids, err)
	}
	if p := rc.wait(t, 1)[0]; p.number != 1 {
		t.Errorf("event: got %d, want 1", p.number)
	}
	if _, err := r.hooks.ReplayEvent(t.Context(), otherOrg, list[3].EventID, ""); problem.Of(err) != problem.NotFound {
		t.Errorf("event of another organization: got %v, want not found", err)
	}

	now := time.Now()
	count, err := r.hooks.ReplayRange(t.Context(), org, webhook.Range{WebhookID: w.ID, From: now.Add(-time.Hour), To: now.Add(time.Hour), States: webhook.FailedOnly(true)})
	if count != 1 || err != nil {
		t.Errorf("failed ones: got %d, %v, want 1", count, err)
	}
	if p := rc.wait(t, 1)[0]; p.number != 2 {
		t.Errorf("failed ones: got %d, want 2", p.number)
	}
	count, err = r.hooks.ReplayRange(t.Context(), org, webhook.Range{WebhookID: w.ID, From: now.Add(-time.Hour), To: now.Add(time.Hour)})
	if count != 3 || err != nil {
		t.Errorf("all: got %d, %v, want each of 3 events once", count, err)
	}
	rc.wait(t, 3)
	for _, past := range [][2]time.Time{{now.Add(-2 * time.Hour), now.Add(-time.Hour)}, {now.Add(time.Hour), now.Add(2 * time.Hour)}} {
		if count, err := r.hooks.ReplayRange(t.Context(), org, webhook.Range{WebhookID: w.ID, From: past[0], To: past[1]}); count != 0 || err != nil {
			t.Errorf("another time: got %d, %v, want none", count, err)
		}
	}
	if got := len(other.all()); got != 0 {
		t.Errorf("the other webhook got %d", got)
	}
}

func TestPurge(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	w := r.create(webhook.New{Secret: new("the first secret")})
	r.update(w.ID, webhook.Change{Secret: new("the second secret")})
	now := time.Now()
	const day = 24 * time.Hour
	insert := func(id string, state webhook.DeliveryState, made, attempted time.Duration) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			at := now.Add(-made)
			id = fmt.Sprintf("%08x-%04x-7000-8000-%012s", at.UnixMilli()>>16, at.UnixMilli()&0xffff, id)
			if _, err := tx.Exec(t.Context(), `INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at, attempts, attempted_at)
				VALUES ($1, $2, 'e', 'ticket.created', $3, $4, 2, $5)`, w.ID, id, int64(state), at.UnixMicro(), now.Add(-attempted).UnixMicro()); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO delivery_attempts (webhook_id, delivery_id, attempt, attempted_at, latency)
				VALUES ($1, $2, 1, $3, 5)`, w.ID, id, at.UnixMicro())
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 600 { // more than a batch
		insert(fmt.Sprint("a", i), webhook.Delivered, 31*day, 31*day)
	}
	insert("b", webhook.DeliveryFailed, 40*day, 29*day)
	insert("c", webhook.Retrying, 40*day, 39*day)
	insert("d", webhook.Delivered, 29*day, 29*day)
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE webhooks SET old_secret_until = $1", now.UnixMicro())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := r.hooks.Purge(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("without an end: got %d, %v, want none", n, err)
	}
	// A step that fails takes none before it back, and each is small.
	var held string
	if err := r.db.QueryRow(t.Context(), "SELECT id FROM deliveries WHERE state = 2 AND attempted_at < $1 ORDER BY id LIMIT 1 OFFSET 500", now.Add(-30*day).UnixMicro()).Scan(&held); err != nil {
		t.Fatal(err)
	}
	dbtest.Hold(t, r.db, "deliveries", held)
	if n, err := r.hooks.Purge(t.Context(), 30*day); n != 500 || err == nil {
		t.Errorf("got %d, %v, want 500 and an error", n, err)
	}
	dbtest.Release(t, r.db, "deliveries")
	if n, err := r.hooks.Purge(t.Context(), 30*day); n != 100 || err != nil {
		t.Errorf("got %d, %v, want 100", n, err)
	}
	if deliveries, attempts := r.count("SELECT count(*) FROM deliveries"), r.count("SELECT count(*) FROM delivery_attempts"); deliveries != 3 || attempts != 3 {
		t.Errorf("left: got %d deliveries and %d attempts, want 3 and 3", deliveries, attempts)
	}
	if got := r.count("SELECT count(*) FROM webhooks WHERE old_secret IS NOT NULL OR secret IS NULL"); got != 0 {
		t.Error("the old secret is kept, or the new one is not")
	}
}
