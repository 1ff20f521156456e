package live_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/live"
)

// drain waits for topics.
func drain(t *testing.T, s *live.Subscription) []string {
	t.Helper()
	select {
	case _, ok := <-s.Ready():
		if !ok {
			t.Fatal("the subscription has ended")
		}
		return s.Drain()
	case <-time.After(time.Minute):
		t.Fatal("no news came")
		return nil
	}
}

func TestTell(t *testing.T) {
	h := live.Open(dbtest.New(t))
	mine, other := h.Subscribe("a"), h.Subscribe("b")
	defer mine.Close()
	defer other.Close()
	h.Publish("a", "ticket:2", "ticket:1")
	h.Publish("a", "ticket:1")
	if got, want := drain(t, mine), []string{"ticket:1", "ticket:2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := other.Drain(); len(got) != 0 {
		t.Errorf("another organization heard of %q", got)
	}
	mine.Close()
	mine.Close()
	h.Publish("a", "ticket:3")
	if got := mine.Drain(); len(got) != 0 {
		t.Errorf("who had closed heard of %q", got)
	}
}

// TestMark: a mark changes with every publication, by either method.
func TestMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := live.Open(dbtest.NewSQLite(t))
		mark := h.Version("a")
		for name, tell := range map[string]func(){
			"at once":      func() { h.Publish("a", "ticket:1") },
			"unheard":      func() { h.PublishCoalesced("a", "ride:1") },
			"in a burst":   func() { s := h.Subscribe("a"); h.PublishCoalesced("a", "ride:1"); s.Close() },
			"gathered":     func() { s := h.Subscribe("a"); h.PublishCoalesced("a", "ride:2"); s.Close() },
			"by a restart": func() { h = live.Open(dbtest.NewSQLite(t)) },
		} {
			if h.Publish("b", "ticket:1"); h.Version("a") != mark {
				t.Errorf("%s: another organization's news moved it", name)
			}
			tell()
			now := h.Version("a")
			if now == mark {
				t.Errorf("%s: the mark is the same", name)
			}
			mark = now
		}
		time.Sleep(time.Second) // the burst's end
	})
}

// TestMarks: the hub does not remember every organization for ever.
func TestMarks(t *testing.T) {
	h := live.Open(dbtest.NewSQLite(t))
	mark := h.Version("quiet")
	for i := range 100_000 {
		h.Publish(strconv.Itoa(i), "ticket:1")
	}
	if h.Version("quiet") != mark {
		t.Error("it is forgotten already")
	}
	if h.Publish("one more", "ticket:1"); h.Version("quiet") == mark {
		t.Error("what was forgotten has the mark of before")
	}
}

// TestSlow: a subscriber that does not drain gets Everything.
func TestSlow(t *testing.T) {
	h := live.Open(dbtest.New(t))
	s := h.Subscribe("a")
	defer s.Close()
	for i := range 1000 {
		h.Publish("a", fmt.Sprint("ticket:", i))
	}
	got := drain(t, s)
	if !slices.Contains(got, live.Everything) || len(got) > 257 {
		t.Errorf("got %d topics", len(got))
	}
}

func TestClose(t *testing.T) {
	h := live.Open(dbtest.New(t))
	before := h.Subscribe("a")
	h.Close()
	after := h.Subscribe("a")
	for _, s := range []*live.Subscription{before, after} {
		if _, ok := <-s.Ready(); ok {
			t.Error("got news after the end")
		}
		s.Close()
	}
	h.Publish("a", "ticket:1")
}

// TestProcesses: topics reach subscribers of another process.
func TestProcesses(t *testing.T) {
	if os.Getenv("KICKSTAND_TEST_DATABASE_URL") == "" {
		t.Skip("only on PostgreSQL, which KICKSTAND_TEST_DATABASE_URL names")
	}
	rawURL := dbtest.URL(t)
	here, there := live.Open(dbtest.Open(t, rawURL)), live.Open(dbtest.Open(t, rawURL))
	s := there.Subscribe("a") // before it listens, which is announced once
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); there.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if got := drain(t, s); !slices.Equal(got, []string{live.Everything}) {
		t.Fatalf("got %q", got)
	}
	here.Publish("b", "ticket:0")
	here.Publish("a", "ticket:1 and spaces")
	if got := drain(t, s); !slices.Equal(got, []string{"ticket:1 and spaces"}) {
		t.Errorf("got %q", got)
	}
}

// TestPublishSoon: frequent topics are collected into one, and sending ends.
func TestPublishSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := live.Open(dbtest.NewSQLite(t))
		h.PublishCoalesced("o1", "ride:unheard")
		s := h.Subscribe("o1")
		defer s.Close()
		time.Sleep(time.Second)
		if got := s.Drain(); len(got) != 0 {
			t.Errorf("got %q from before", got)
		}
		h.PublishCoalesced("o1", "ride:1")
		if got := s.Drain(); !slices.Equal(got, []string{"ride:1"}) {
			t.Errorf("after a quiet time: got %q at once", got)
		}
		for i := range 1000 {
			h.PublishCoalesced("o1", "vehicle:"+strconv.Itoa(i))
			h.PublishCoalesced("o1", "ride:"+strconv.Itoa(i%2))
			h.PublishCoalesced("o2", "ride:3")
		}
		if got := s.Drain(); len(got) != 0 {
			t.Errorf("amid a burst: got %q", got)
		}
		time.Sleep(time.Second)
		if got := s.Drain(); !slices.Equal(got, []string{"ride:0", "ride:1", "vehicle:*"}) {
			t.Errorf("after a burst: got %q", got)
		}
		h.PublishCoalesced("o1", "ride:4")
		if got := s.Drain(); !slices.Equal(got, []string{"ride:4"}) {
			t.Errorf("after another quiet time: got %q", got)
		}
		h.PublishCoalesced("o1", "ride:5")
		h.Close()
		time.Sleep(time.Second)
	})
}
