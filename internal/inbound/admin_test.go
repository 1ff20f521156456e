package inbound_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestList(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"sms": {"the deployment's"}} })
	first := h.connect(t, "sms", ours)
	h.connect(t, "sms", "+14155550102", func(n *connection.New) { n.OrganizationID = "org-2" })
	for i, to := range []string{ours, "+14155550102", "+14155550109", ours} {
		form := text(fmt.Sprintf("SM%d", i), theirs, "x")
		form.Set("To", to)
		h.do(smsRequest(form, "the deployment's"))
	}
	h.do(smsRequest(text("", "", "x"), secretOf(ours)))
	all := mustList(t, h, inbound.Filter{})
	if len(all) != 5 {
		t.Fatalf("%d events, want 5", len(all))
	}
	for _, tt := range []struct {
		name   string
		filter inbound.Filter
		want   []string
	}{
		{"all", inbound.Filter{}, []string{"unreadable", "SM3", "SM2", "SM1", "SM0"}},
		{"two", inbound.Filter{Limit: 2}, []string{"unreadable", "SM3"}},
		{"the next two", inbound.Filter{Limit: 2, Before: all[1].ID}, []string{"SM2", "SM1"}},
		{"accepted", inbound.Filter{States: []inbound.State{inbound.Accepted}}, []string{"SM3", "SM1", "SM0"}},
		{"unrouted", inbound.Filter{States: []inbound.State{inbound.Unrouted}}, []string{"SM2"}},
		{"waiting for somebody", inbound.Filter{States: []inbound.State{inbound.Unrouted, inbound.Rejected, inbound.Dead}}, []string{"unreadable", "SM2"}},
		{"of any of two states", inbound.Filter{States: []inbound.State{inbound.Accepted, inbound.Unrouted}}, []string{"SM3", "SM2", "SM1", "SM0"}},
		{"of an organization", inbound.Filter{OrganizationID: "org-2"}, []string{"SM1"}},
		{"of a connection", inbound.Filter{ConnectionID: first.ID, States: []inbound.State{inbound.Accepted}}, []string{"SM3", "SM0"}},
		{"of a channel", inbound.Filter{Channel: "email-raw"}, nil},
	} {
		var got []string
		for _, e := range mustList(t, h, tt.filter) {
			got = append(got, strings.Split(e.Key, ":")[0])
			if e.Header != nil || e.Body != nil || e.URL != "" {
				t.Errorf("%s: event %+v has what a listing leaves out", tt.name, e)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	shown, err := json.Marshal(all[1])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"` + all[1].ID + `","organization_id":"org-1","connection_id":"` + first.ID + `","channel":"sms","key":"SM3","kind":"message",` +
		`"sender":"+14155550111","address":"+14155550100","verified_by":"deployment, secret 1","state":"accepted","result":null,"error":"",` +
		`"received_at":"` + all[1].ReceivedAt.Format(time.RFC3339Nano) + `","size":85}`
	if string(shown) != want {
		t.Errorf("shown as %s, want %s", shown, want)
	}
}

func TestFindNothing(t *testing.T) {
	h := start(t)
	if _, err := h.Find(t.Context(), "no\x00such\xff"); problem.Of(err) != problem.NotFound {
		t.Errorf("Find() of nothing: %v, want it not found", err)
	}
	if _, err := h.Replay(t.Context(), "none"); problem.Of(err) != problem.NotFound {
		t.Errorf("Replay() of nothing: %v, want it not found", err)
	}
	if _, err := h.Route(t.Context(), "none", "none"); problem.Of(err) != problem.NotFound {
		t.Errorf("Route() of nothing: %v, want it not found", err)
	}
}

func TestReplayUnrouted(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"sms": {"the deployment's"}} })
	for i := range 3 {
		h.wantAnswer(t, smsRequest(text(fmt.Sprintf("SM%d", i), theirs, fmt.Sprint(i)), "the deployment's"), 200, twiml)
	}
	list := h.list(t, inbound.Unrouted)
	if len(list) != 3 {
		t.Fatalf("%d unrouted events, want 3", len(list))
	}
	id := func(i int) string { return list[2-i].ID }
	if _, err := h.Replay(t.Context(), id(0)); problem.Of(err) != problem.Precondition || !strings.Contains(err.Error(), ours) {
		t.Errorf("Replay() before the address is connected: %v, want a precondition that names it", err)
	}
	c := h.connect(t, "sms", ours)
	if err := h.connections.SetEnabled(t.Context(), "org-1", c.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Replay(t.Context(), id(0)); problem.Of(err) != problem.Precondition {
		t.Errorf("Replay() while the connection is off: %v, want a precondition", err)
	}
	if err := h.connections.SetEnabled(t.Context(), "org-1", c.ID, true); err != nil {
		t.Fatal(err)
	}
	e, err := h.Replay(t.Context(), id(0))
	if err != nil || e.State != inbound.Accepted || e.OrganizationID != "org-1" || e.ConnectionID != c.ID {
		t.Errorf("Replay() = %+v, %v; want it accepted for the connection", e, err)
	}
	if _, err := h.Replay(t.Context(), id(0)); problem.Of(err) != problem.Conflict {
		t.Errorf("Replay() of what waits already: %v, want a conflict", err)
	}
	// The provider has repeated the event meanwhile.
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "1"), "the deployment's"), 200, twiml)
	e, err = h.Replay(t.Context(), id(1))
	if err != nil || e.State != inbound.Processed || !strings.Contains(string(e.Result), `"duplicate"`) {
		t.Errorf("Replay() of what came again: %+v, %v; want it to be a duplicate", e, err)
	}
	h.until(t, event.MessageCreated, 2)
	h.wantTickets(t, "org-1", []string{"0", "1"})
}

func TestReplayToDefaultOrganization(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"sms": {"the deployment's"}} })
	h.wantAnswer(t, smsRequest(text("SM0", theirs, "0"), "the deployment's"), 200, twiml)
	sole := "org-5"
	h.fallback.Store(&sole)
	if _, err := h.Replay(t.Context(), h.list(t)[0].ID); err != nil {
		t.Fatal(err)
	}
	h.until(t, event.MessageCreated, 1)
	h.wantTickets(t, "org-5", []string{"0"})
}

func TestRoute(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"sms": {"the deployment's"}} })
	h.wantAnswer(t, smsRequest(text("SM0", theirs, "0"), "the deployment's"), 200, twiml)
	id := h.list(t, inbound.Unrouted)[0].ID
	c := h.connect(t, "sms", "+14155550102", func(n *connection.New) { n.OrganizationID = "org-2" })
	mail := h.connect(t, "email-raw", "help@acme.example")
	if _, err := h.Route(t.Context(), id, mail.ID); problem.Of(err) != problem.Precondition {
		t.Errorf("Route() to another channel: %v, want a precondition", err)
	}
	if _, err := h.Route(t.Context(), id, "none"); problem.Of(err) != problem.NotFound {
		t.Errorf("Route() to nothing: %v, want it not found", err)
	}
	e, err := h.Route(t.Context(), id, c.ID)
	if err != nil || e.State != inbound.Accepted || e.ConnectionID != c.ID || e.OrganizationID != "org-2" {
		t.Errorf("Route() = %+v, %v", e, err)
	}
	if _, err := h.Route(t.Context(), id, c.ID); problem.Of(err) != problem.Precondition {
		t.Errorf("Route() of what is routed: %v, want a precondition", err)
	}
	h.until(t, event.MessageCreated, 1)
	h.wantTickets(t, "org-2", []string{"0"})
}

// TestReplayRejected replays rejected requests after a parser fix.
func TestReplayRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &loose{
			split: func() error { return fmt.Errorf("%w: not yet", channel.ErrUnreadable) },
			parse: func(channel.Part) error { return fmt.Errorf("%w: not yet", channel.ErrUnreadable) },
		}
		h := startSQLite(t, with(a), func(h *house) { h.secrets = map[string][]string{"sms": {"the deployment's"}} })
		h.connect(t, "sms", ours)
		h.run(t)
		const answer = `{"error":"the request is signed but cannot be read: not yet"}` + "\n"
		h.wantAnswer(t, smsRequest(text("SM1", theirs, "whole"), secretOf(ours)), 400, answer)
		other := text("SM2", theirs, "for nobody")
		other.Set("To", "+14155550102")
		h.wantAnswer(t, smsRequest(other, "the deployment's"), 400, answer)
		long := text("SM3", theirs, strings.Repeat("long ", 10_000))
		h.wantAnswer(t, smsRequest(long, secretOf(ours)), 400, answer)
		list := h.list(t, inbound.Rejected)
		if len(list) != 3 {
			t.Fatalf("%d rejected events, want 3", len(list))
		}
		if _, err := h.Replay(t.Context(), list[2].ID); problem.Of(err) != problem.Precondition || !strings.HasSuffix(err.Error(), "not yet") {
			t.Errorf("Replay() before it is mended: %v, want a precondition", err)
		}
		a.split = nil
		for _, e := range slices.Backward(list) {
			for range 2 { // the second time changes nothing
				e, err := h.Replay(t.Context(), e.ID)
				if err != nil || e.State != inbound.Processed || !strings.Contains(string(e.Result), `"split"`) {
					t.Errorf("Replay() = %+v, %v; want it split", e, err)
				}
			}
		}
		synctest.Wait()
		if n := h.files(t); n != 2 { // the request's and the event's
			t.Errorf("%d files, want 2", n)
		}
		if list := h.list(t, inbound.Unrouted); len(list) != 1 || list[0].Key != "SM2" || list[0].VerifiedBy != "deployment, secret 1" {
			t.Errorf("unrouted events %+v, want SM2", list)
		}

		// The second half is fixed, too.
		list = h.list(t, inbound.Rejected)
		if len(list) != 2 || list[1].Key != "SM1" || list[0].Key != "SM3" || list[0].ReceivedAt.IsZero() {
			t.Fatalf("rejected events %+v, want SM1 and SM3", list)
		}
		a.parse = nil
		for _, e := range slices.Backward(list) {
			if _, err := h.Replay(t.Context(), e.ID); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		h.wantTickets(t, "org-1", []string{"whole", strings.TrimSpace(long.Get("Body"))})

		// A processed event may be replayed; the desk ignores it.
		e, err := h.Replay(t.Context(), list[1].ID)
		if err != nil || e.State != inbound.Accepted && e.State != inbound.Processed { // the worker may be quick
			t.Errorf("Replay() of what is processed: %+v, %v", e, err)
		}
		synctest.Wait()
		e, err = h.Find(t.Context(), list[1].ID)
		if err != nil || result(t, e).Outcome != "duplicate" {
			t.Errorf("processed again: %s, %v; want a duplicate", e.Result, err)
		}
		h.wantTickets(t, "org-1", []string{"whole", strings.TrimSpace(long.Get("Body"))})
	})
}

func TestPurge(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"sms": {"the deployment's"}} })
	h.connect(t, "sms", ours)
	const many = 1100 // more than two batches
	for i := range many {
		form := text(fmt.Sprintf("SM%d", i), theirs, "x")
		form.Set("To", "+14155550109") // no connection has it
		h.do(smsRequest(form, "the deployment's"))
	}
	h.do(smsRequest(text("SMa", theirs, "still waits"), secretOf(ours)))
	h.do(smsRequest(text("", "", strings.Repeat("long ", 10_000)), secretOf(ours)))
	if n := h.files(t); n != 1 {
		t.Fatalf("%d files, want 1", n)
	}
	// Ids tell milliseconds apart.
	for last := time.Now().UnixMilli(); time.Now().UnixMilli() <= last; {
	}
	cut := time.Now()
	h.do(smsRequest(text("SMb", theirs, "too young"), "the deployment's"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Purge(ctx, cut); err == nil {
		t.Error("Purge() that was cancelled succeeds")
	}
	// A step that fails takes none before it back, and each is small.
	var held string
	if err := h.db.QueryRow(t.Context(), "SELECT id FROM inbound_events WHERE state <> 'accepted' ORDER BY id LIMIT 1 OFFSET 500").Scan(&held); err != nil {
		t.Fatal(err)
	}
	dbtest.Hold(t, h.db, "inbound_events", held)
	if n, err := h.Purge(t.Context(), cut); n != 500 || err == nil {
		t.Errorf("Purge() = %d, %v; want 500 and an error", n, err)
	}
	dbtest.Release(t, h.db, "inbound_events")
	if n, err := h.Purge(t.Context(), cut); n != many+1-500 || err != nil {
		t.Errorf("Purge() = %d, %v; want %d", n, err, many+1-500)
	}
	var left []string
	for _, e := range h.list(t) {
		left = append(left, e.Key)
	}
	if want := []string{"SMb", "SMa"}; !slices.Equal(left, want) || h.files(t) != 0 {
		t.Errorf("left are %v and %d files, want %v and none", left, h.files(t), want)
	}
	if n, err := h.Purge(t.Context(), cut); n != 0 || err != nil {
		t.Errorf("Purge() again = %d, %v; want 0", n, err)
	}
}

// FuzzStoredRequest: a verified request with any headers and query is stored, without the
// values of credentials.
func FuzzStoredRequest(f *testing.F) {
	f.Add("Authorization", "a=1&token=%ZZ&b")
	f.Add("X-Api-Key", "api-key=1;x=2&&&=;")
	f.Add("x\x00y", "to=a%00b\xff&key=\xfe")
	h := startSQLite(f)
	h.connect(f, "email-raw", "help@acme.example")
	n := 0
	f.Fuzz(func(t *testing.T, name, query string) {
		n++
		mail := mailText(fmt.Sprintf("m%d@client.example", n), "ana@client.example", "help@acme.example", "x")
		r := mailRequest(mail, secretOf("help@acme.example"), "help@acme.example")
		r.RequestURI = mailPath + "?" + query
		r.Header[name] = []string{"hunter2"}
		w := h.do(r)
		if w.Code == 401 { // one of our headers was replaced, or another style requested
			return
		}
		if w.Code != 200 && w.Code != 415 {
			t.Fatalf("answered %d %s\n%s", w.Code, w.Body, h.logged())
		}
		for _, e := range h.list(t, inbound.Accepted) {
			e, err := h.Find(t.Context(), e.ID)
			if err != nil {
				t.Fatal(err)
			}
			for name, values := range e.Header {
				if strings.Contains(strings.ToLower(name), "authorization") && bytes.Contains([]byte(strings.Join(values, "")), []byte("hunter2")) {
					t.Errorf("header %q: %q is stored", name, values)
				}
			}
			for pair := range strings.FieldsFuncSeq(e.URL[strings.IndexByte(e.URL, '?')+1:], func(c rune) bool { return c == '&' || c == ';' }) {
				if value, ok := strings.CutPrefix(strings.ToLower(pair), "token="); ok && value != "%28not+stored%29" {
					t.Errorf("URL %q: a token is stored", e.URL)
				}
			}
		}
		h.exec(t, "DELETE FROM jobs")
		h.exec(t, "DELETE FROM inbound_events")
	})
}
