package inbound_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

func TestResult(t *testing.T) {
	h := start(t)
	c := h.connect(t, "sms", ours)
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)), 200, twiml)
	e := h.list(t, inbound.Accepted)[0]
	e.ID, e.ReceivedAt = "", time.Time{}
	e.Size = 0
	want := inbound.StoredEvent{
		OrganizationID: "org-1", ConnectionID: c.ID, Channel: "sms", Key: "SM1", Kind: "message", Sender: theirs, Address: ours,
		VerifiedBy: "connection, secret 1", State: inbound.Accepted,
	}
	if got := fmt.Sprintf("%+v", *e); got != fmt.Sprintf("%+v", want) {
		t.Errorf("event %s, want %+v", got, want)
	}
	h.until(t, event.MessageCreated, 1)
	list := h.list(t)
	if len(list) != 1 || list[0].State != inbound.Processed || list[0].ProcessedAt.Before(list[0].ReceivedAt) {
		t.Fatalf("events %+v, want one that is processed", list)
	}
	if r := result(t, list[0]); r.Outcome != desk.TicketCreated || r.TicketNumber != 1 || r.MessageID == "" {
		t.Errorf("result %+v, want a ticket created", r)
	}
}

// TestOrderDespiteFailure: the first of three messages fails twice.
func TestOrderDespiteFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(loose)
		h := startSQLite(t, with(a))
		h.connect(t, "sms", ours)
		var mu sync.Mutex
		var tries []string
		a.parse = func(p channel.Part) error {
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, p.Key)
			if p.Key == "SM1" && len(tries) < 4 { // SM1, another sender's, SM1 again
				return errors.New("not now")
			}
			return nil
		}
		for i := 1; i <= 3; i++ {
			h.wantAnswer(t, smsRequest(text(fmt.Sprintf("SM%d", i), theirs, fmt.Sprint(i)), secretOf(ours)), 200, twiml)
		}
		h.run(t)
		synctest.Wait()
		// Another sender does not wait.
		h.wantAnswer(t, smsRequest(text("SM4", theirs+"4", "4"), secretOf(ours)), 200, twiml)
		synctest.Wait()
		h.wantTickets(t, "org-1", []string{"4"})
		h.settled(t)
		h.wantTickets(t, "org-1", []string{"4"}, []string{"1", "2", "3"})
		if want := []string{"SM1", "SM4", "SM1", "SM1", "SM2", "SM3"}; !slices.Equal(tries, want) {
			t.Errorf("tried %v, want %v", tries, want)
		}
	})
}

func TestDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(loose)
		h := startSQLite(t, with(a))
		h.connect(t, "sms", ours)
		var tries atomic.Int64
		a.parse = func(p channel.Part) error {
			if p.Key != "SM1" {
				return nil
			}
			if tries.Add(1)%2 == 0 {
				panic("bad bytes \xff\x00")
			}
			return errors.New("bad bytes \xff\x00")
		}
		h.wantAnswer(t, smsRequest(text("SM1", theirs, "1"), secretOf(ours)), 200, twiml)
		h.wantAnswer(t, smsRequest(text("SM2", theirs, "2"), secretOf(ours)), 200, twiml)
		h.run(t)
		h.settled(t)
		list := h.list(t, inbound.Dead, inbound.Rejected, inbound.Unrouted)
		if tries.Load() != 8 || len(list) != 1 || list[0].State != inbound.Dead || list[0].Error != "panic: bad bytes \uFFFD" || list[0].Key != "SM1" {
			t.Fatalf("%d tries, events %+v; want 8 and SM1 dead", tries.Load(), list)
		}
		// Later messages continue.
		h.wantTickets(t, "org-1", []string{"2"})
		// The failed one is not lost.
		a.parse = nil
		e, err := h.Replay(t.Context(), list[0].ID)
		if err != nil || e.State == inbound.Dead || e.Error != "" {
			t.Errorf("Replay() = %+v, %v", e, err)
		}
		synctest.Wait()
		h.wantTickets(t, "org-1", []string{"2", "1"})
	})
}

func TestParserRejects(t *testing.T) {
	a := &loose{parse: func(p channel.Part) error {
		if p.Key == "SM1" {
			return fmt.Errorf("%w: gibberish \xff\x00", channel.ErrUnreadable)
		}
		return nil
	}}
	h := start(t, with(a))
	h.connect(t, "sms", ours)
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "1"), secretOf(ours)), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "2"), secretOf(ours)), 200, twiml)
	h.until(t, event.MessageCreated, 1) // of the second, which waits for the first
	list := h.list(t, inbound.Rejected)
	if len(list) != 1 || list[0].Key != "SM1" || list[0].Error != "gibberish \uFFFD" || list[0].ProcessedAt.IsZero() {
		t.Errorf("rejected events %+v, want SM1", list)
	}
	h.wantTickets(t, "org-1", []string{"2"})
}

// TestWorkerKilled leaves a job as a process does that dies while running it.
func TestWorkerKilled(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "1"), secretOf(ours)), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "2"), secretOf(ours)), 200, twiml)
	first := h.list(t)[1].ID
	h.exec(t, "UPDATE jobs SET state = 2, lease = 'killed/1', lease_until = $2 WHERE id = $1", first, time.Now().Add(-time.Second).UnixMicro())
	h.until(t, event.MessageCreated, 2)
	h.wantTickets(t, "org-1", []string{"1", "2"})
}

// TestWorkerStalled: a process loses its lease during a job, finishes it, and finds that
// another process has already done it.
func TestWorkerStalled(t *testing.T) {
	parsing, goOn := make(chan struct{}), make(chan struct{})
	slow := &loose{parse: func(channel.Part) error {
		close(parsing)
		<-goOn
		return nil
	}}
	h := start(t, with(slow))
	h.connect(t, "sms", ours)
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)), 200, twiml)
	if err := h.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-parsing
	h.exec(t, "UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE state = 2")
	other := startOn(t, h.db, func(o *house) { o.key = h.key })
	other.until(t, event.MessageCreated, 1)
	close(goOn)
	h.queue.Stop(context.Background())
	h.wantTickets(t, "org-1", []string{"hello"})
	if n := h.count(t, "SELECT count(*) FROM messages"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
	if list := h.list(t, inbound.Processed); len(list) != 1 {
		t.Errorf("events %+v, want one that is processed", h.list(t))
	}
	if !strings.Contains(h.logged(), "claimed by another process") {
		t.Errorf("the first worker does not log that it lost its lease:\n%s", h.logged())
	}
}

// TestBlobGone: a body is lost before it is processed.
func TestBlobGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t)
		h.connect(t, "email-raw", "help@acme.example")
		mail := mailText("m1@client.example", "ana@client.example", "help@acme.example", strings.Repeat("long ", 20_000))
		h.wantAnswer(t, mailRequest(mail, secretOf("help@acme.example"), "help@acme.example"), 200, `{"status":"accepted"}`+"\n")
		h.exec(t, "UPDATE inbound_events SET body_key = $1", strings.Repeat("ab", 32))
		h.run(t)
		h.settled(t)
		if list := h.list(t, inbound.Dead); len(list) != 1 || list[0].Error != "open body: blob not found" {
			t.Errorf("dead events %+v", list)
		}
	})
}

func TestUnknownChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t)
		h.connect(t, "sms", ours)
		h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)), 200, twiml)
		h.exec(t, "UPDATE inbound_events SET channel = 'smoke-signals'")
		h.run(t)
		h.settled(t)
		list := h.list(t, inbound.Dead)
		if len(list) != 1 || list[0].Error != `channel "smoke-signals" is not part of this program` {
			t.Errorf("dead events %+v", list)
		}
	})
}

func TestReceipt(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	form := text("SM1", theirs, "")
	form.Del("Body")
	form.Set("MessageStatus", "delivered")
	form.Set("From", ours)
	form.Set("To", theirs)
	h.wantAnswer(t, smsRequest(form, secretOf(ours)), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "hello"), secretOf(ours)), 200, twiml)
	e := h.list(t)[1]
	if e.Kind != "status" || e.Key != "SM1:delivered" || e.Sender != "" {
		t.Errorf("event %+v, want a state without a sender", e)
	}
	synctestless(t, h, e.ID)
}

// synctestless waits, on either engine, until an event is processed: its job is gone then.
func synctestless(t *testing.T, h *house, id string) {
	t.Helper()
	h.run(t)
	for end := time.Now().Add(time.Minute); h.count(t, "SELECT count(*) FROM jobs WHERE id = $1", id) > 0; {
		if time.Now().After(end) {
			t.Fatal("the event is not processed")
		}
	}
	e, err := h.Find(t.Context(), id)
	if err != nil || e.State != inbound.Processed || !json.Valid(e.Result) {
		t.Errorf("event %+v, %v; want it processed", e, err)
	}
}
