package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestCrashPending kills the server at random times while replies are held and scheduled, some are
// undone, and tickets are snoozed. A reply that was undone is never sent; every other one is sent
// once; every snooze ends.
func TestCrashPending(t *testing.T) {
	kills := 30
	if testing.Short() {
		kills = 6
	}
	provider := &textProvider{pause: func() { pause(10 * time.Millisecond) }}
	api := httptest.NewServer(provider)
	t.Cleanup(api.Close)
	p := newPatient(t)
	p.args = append(p.args, "--sms-api-url="+api.URL, "--retry-time-scale=0.05")
	p.command("org", "create", "--name=Crash")
	p.command("channel", "connect", "sms", "--org=crash", "--address="+p.to, "--secret="+p.secret,
		`--credentials={"account_sid":"AC1","auth_token":"t"}`)
	p.start()
	const tickets = 10
	for i := range 2 * tickets {
		p.post(t.Context(), smsRequest(p.url, p.secret, fmt.Sprintf("SMin%d", i), p.number(i), p.to, "Hello?"), "")
	}
	var ids []string
	for range poll(t, time.Minute) {
		if ids = p.column("SELECT id FROM tickets ORDER BY number"); len(ids) == 2*tickets {
			break
		}
	}
	if len(ids) != 2*tickets {
		t.Fatalf("%d texts became %d tickets in a minute", 2*tickets, len(ids))
	}
	a, err := app.Open(t.Context(), app.Config{
		BaseURL: p.url, Data: p.data(), DatabaseURL: p.databaseURL, APIURLs: map[string]string{"sms": api.URL}, MailFrom: "k@client.example",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	org, err := a.Accounts.OrganizationBySlug(t.Context(), "crash")
	if err != nil {
		t.Fatal(err)
	}

	load, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	undone := make(map[string]bool) // by text: whether it was undone before it left
	snoozes := 0
	undo := func(id, text string) {
		err := a.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := a.Desk.CancelReplyTx(t.Context(), tx, org.ID, id)
			return err
		})
		if err != nil && problem.Of(err) != problem.Conflict {
			t.Errorf("undo %q: %v", text, err)
		}
		mu.Lock()
		undone[text] = err == nil
		mu.Unlock()
	}
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := 0; load.Err() == nil; i++ {
				text := fmt.Sprintf("%d-%d.", w, i)
				content, err := a.Desk.Compose(t.Context(), org.ID, desk.Draft{Text: text})
				if err != nil {
					t.Error(err)
					return
				}
				after := time.Duration(rand.Int64N(int64(time.Second)))
				undoWithin := time.Second
				if i == 0 { // at least one is undone, long before it would leave
					after, undoWithin = time.Minute, time.Millisecond
				}
				r := desk.Reply{By: desk.Actor{ID: "k", Name: "Key"}, Content: content, Hold: after}
				if i%2 == 0 {
					r.Hold, r.SendAt = 0, time.Now().Add(after+50*time.Millisecond)
				}
				var m desk.Message
				err = a.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
					m, err = a.Desk.ReplyTx(t.Context(), tx, org.ID, ids[rand.IntN(tickets)], r)
					return err
				})
				if problem.Of(err) == problem.Precondition { // too many wait
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				undone[text] = false
				mu.Unlock()
				if i%3 == 0 {
					pause(undoWithin)
					undo(m.ID, text)
				}
				until := time.Now().Add(200*time.Millisecond + time.Duration(rand.Int64N(int64(time.Second))))
				if err := a.DB.Write(t.Context(), func(tx *db.Tx) error {
					_, err := a.Desk.UpdateTx(t.Context(), tx, org.ID, ids[tickets+rand.IntN(tickets)], desk.Update{Snooze: &desk.Snooze{Until: until}})
					return err
				}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				snoozes++
				mu.Unlock()
				pause(30 * time.Millisecond)
			}
		})
	}
	for range kills {
		pause(500 * time.Millisecond)
		p.kill()
		p.start()
	}
	stop()
	writers.Wait()
	for range poll(t, 2*time.Minute) {
		if len(p.column("SELECT message_id FROM outbox UNION ALL SELECT message_id FROM pending_replies UNION ALL SELECT id FROM tickets WHERE status = 'on_hold'")) == 0 {
			break
		}
	}
	p.kill()

	texts := provider.count()
	sent := 0
	for text, was := range undone {
		want := 1
		if was {
			want = 0
		}
		if n := texts[text]; n != want {
			t.Errorf("%q was sent %d times, want %d", text, n, want)
		}
		sent += want
	}
	if n := len(p.column("SELECT id FROM messages WHERE direction = 'outbound'")); n != sent || sent == 0 || sent == len(undone) {
		t.Errorf("there are %d messages, %d of %d were to be sent", n, sent, len(undone))
	}
	t.Logf("%d kills, %d replies sent, %d undone, %d snoozes", kills, sent, len(undone)-sent, snoozes)
}
