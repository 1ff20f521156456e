package inbound_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

// picture returns a text with files.
func picture(sid, from, body string, urls ...string) *http.Request {
	form := text(sid, from, body)
	form.Set("NumMedia", fmt.Sprint(len(urls)))
	for i, u := range urls {
		form.Set(fmt.Sprint("MediaUrl", i), u)
		form.Set(fmt.Sprint("MediaContentType", i), "image/png")
	}
	return smsRequest(form, secretOf(ours))
}

// fileStates returns the state of the files of a ticket's messages, in order.
func (h *house) fileStates(t testing.TB, ticketID string) (states []string) {
	t.Helper()
	messages, err := h.desk.Messages(t.Context(), h.db, "org-1", ticketID)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		for _, a := range m.Attachments {
			switch {
			case a.Pending:
				states = append(states, "pending")
			case a.BlobKey != "":
				states = append(states, fmt.Sprint(a.Size))
			default:
				states = append(states, a.Error)
			}
		}
	}
	return states
}

// TestTextFirst: texts appear at once, also the sender's next ones, however long their files
// take; files of other hosts do not wait either.
func TestTextFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{answers: map[string]answerFunc{api: inTurn(hang, hangInBody, file(png)), cdn: file("GIF89a")}}
		for i := range 40 {
			p.answers[fmt.Sprint(api, "/hanging/", i)] = hang
		}
		h := startSQLite(t, func(h *house) { h.media = p })
		h.connect(t, "sms", ours)
		h.run(t)
		began := time.Now()
		want := []string{"look"}
		h.wantAnswer(t, picture("SM1", theirs, "look", api), 200, twiml)
		for i := range 40 {
			h.wantAnswer(t, picture(fmt.Sprint("SMh", i), theirs, fmt.Sprint("and ", i), fmt.Sprint(api, "/hanging/", i)), 200, twiml)
			want = append(want, fmt.Sprint("and ", i))
		}
		synctest.Wait() // the second ticket is the other sender's
		h.wantAnswer(t, picture("SM2", "+14155550199", "me, too", cdn), 200, twiml)
		synctest.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		h.wantTickets(t, "org-1", want, []string{"me, too"})
		ids := ticketIDs(t, h)
		if got := h.fileStates(t, ids[1]); !slices.Equal(got, []string{"6"}) {
			t.Errorf("the other host's file is %q", got)
		}
		if got := h.fileStates(t, ids[0]); len(got) != 41 || slices.ContainsFunc(got, func(state string) bool { return state != "pending" }) {
			t.Errorf("files that hang are %q", got)
		}
		h.settled(t)
		got := h.fileStates(t, ids[0])
		if got[0] != fmt.Sprint(len(png)) || got[1] != "the provider could not be reached" || slices.Contains(got, "pending") {
			t.Errorf("in the end the files are %q", got)
		}
		if n := h.files(t); n != 2 {
			t.Errorf("%d files are stored, want 2", n)
		}
	})
}

// TestFileFollows: on both engines a message is announced before its file is stored; the file
// causes no further event.
func TestFileFollows(t *testing.T) {
	release := make(chan struct{})
	h := start(t, func(h *house) {
		h.media = transport(func(r *http.Request) (*http.Response, error) {
			select {
			case <-release:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return file(png)(r)
		})
	})
	h.connect(t, "sms", ours)
	h.wantAnswer(t, picture("SM1", theirs, "look", api, cdn), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "still there?"), secretOf(ours)), 200, twiml)
	h.until(t, event.MessageCreated, 2)
	h.wantTickets(t, "org-1", []string{"look", "still there?"})
	id := ticketIDs(t, h)[0]
	if got := h.fileStates(t, id); !slices.Equal(got, []string{"pending", "pending"}) {
		t.Fatalf("files %q, want them to be fetched still", got)
	}
	close(release)
	for h.count(t, "SELECT count(*) FROM jobs WHERE kind = $1", desk.FetchKind) > 0 {
		runtime.Gosched()
	}
	if got := h.fileStates(t, id); !slices.Equal(got, []string{"17", "17"}) || h.files(t) != 1 {
		t.Errorf("files %q in %d, want the same twice in one", got, h.files(t))
	}
}

// TestFileAfterCrash: if a process ends during a download, the next one stores the file once.
func TestFileAfterCrash(t *testing.T) {
	d := dbtest.New(t)
	var asked sync.WaitGroup
	asked.Add(1)
	first := startOn(t, d, func(h *house) {
		h.media = transport(func(r *http.Request) (*http.Response, error) {
			asked.Done()
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
	})
	first.connect(t, "sms", ours)
	first.wantAnswer(t, picture("SM1", theirs, "look", api), 200, twiml)
	first.run(t)
	asked.Wait()
	ended, end := context.WithCancel(context.Background())
	end()
	first.queue.Stop(ended)

	second := startOn(t, d, func(h *house) {
		h.key, h.media = first.key, &provider{answers: map[string]answerFunc{api: file(png)}}
	})
	second.run(t)
	for second.count(t, "SELECT count(*) FROM jobs") > 0 {
		runtime.Gosched()
	}
	second.wantTickets(t, "org-1", []string{"look"})
	if got := second.fileStates(t, ticketIDs(t, second)[0]); !slices.Equal(got, []string{"17"}) || second.files(t) != 1 || first.files(t) != 0 {
		t.Errorf("files %q, %d stored", got, second.files(t))
	}
}

// TestFileOfDeletedTicket: a file for a deleted ticket is not stored, and pending downloads are
// dropped.
func TestFileOfDeletedTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		h := startSQLite(t, func(h *house) {
			h.media = transport(func(r *http.Request) (*http.Response, error) {
				asked.Add(1)
				time.Sleep(time.Second)
				return file(png)(r)
			})
		})
		h.connect(t, "sms", ours)
		h.run(t)
		h.wantAnswer(t, picture("SM1", theirs, "look", api), 200, twiml)
		synctest.Wait()
		begun := asked.Load()
		h.exec(t, "DELETE FROM attachments")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := asked.Load(); begun == 0 || begun == 3 || n != begun {
			t.Errorf("%d of 3 files were asked for before the ticket was deleted, and %d in all", begun, n)
		}
		if n, jobs := h.files(t), h.count(t, "SELECT count(*) FROM jobs"); n != 0 || jobs != 0 {
			t.Errorf("%d files and %d jobs are left", n, jobs)
		}
	})
}

// TestOutageIsNoAttempt: an outage of our storage uses up none of the provider's attempts.
func TestOutageIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store brokenStore
		store.broken.Store(true)
		p := &provider{answers: map[string]answerFunc{api: file(png)}}
		h := startSQLite(t, func(h *house) {
			h.media = p
			h.store = func(s blob.Store) blob.Store { store.Store = s; return &store }
		})
		h.connect(t, "sms", ours, func(n *connection.New) {
			n.Credentials = map[string]string{"account_sid": "AC1", "auth_token": "token"}
		})
		h.run(t)
		h.wantAnswer(t, picture("SM1", theirs, "look", api), 200, twiml)
		time.Sleep(time.Hour)
		synctest.Wait()
		h.wantTickets(t, "org-1", []string{"look"})
		p.mu.Lock()
		p.answers[api] = inTurn(status(503), status(503), status(503), file(png))
		p.mu.Unlock()
		store.broken.Store(false)
		h.settled(t)
		if got := h.fileStates(t, ticketIDs(t, h)[0]); !slices.Equal(got, []string{"17"}) {
			t.Errorf("the file is %q", got)
		}
		if list := h.list(t, inbound.Dead); len(list) > 0 {
			t.Errorf("%d events are dead", len(list))
		}
	})
}
