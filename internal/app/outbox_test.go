package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// relay is an in-memory mail server.
type relay struct {
	mu       sync.Mutex
	err      error
	tries    []time.Time
	received []string // subjects
}

func (r *relay) Send(_ context.Context, m mail.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries = append(r.tries, time.Now())
	if r.err == nil {
		r.received = append(r.received, m.Subject)
	}
	return r.err
}

func (r *relay) answer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// outboxFixture returns an outbox that sends to a relay, under synctest.
func outboxFixture(t *testing.T) (*outbox, *db.DB, *relay) {
	t.Helper()
	d := dbtest.NewSQLite(t)
	r := new(relay)
	o := &outbox{queue: queue.Open(d, queue.Config{}), sender: r, from: func() mail.Address { return mail.Address{Address: "no-reply@help.example.com"} }, box: seal.New(seal.NewKey())}
	o.queue.Handle(queue.Worker{Kind: mailKind, Concurrency: 8, Run: o.send, Retry: mail.Retry})
	return o, d, r
}

func (o *outbox) post(t *testing.T, d *db.DB, subjects ...string) {
	t.Helper()
	for i, s := range subjects {
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			return o.EnqueueMailTx(t.Context(), tx, mail.Message{To: []mail.Address{{Address: fmt.Sprintf("p%d@example.com", i)}}, Subject: s, Text: "secret link"})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestMailServerDown: while the server is unreachable mails wait, encrypted; none is lost
// or sent twice.
func TestMailServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d, r := outboxFixture(t)
		r.answer(&mail.Error{Op: mail.OpConnect, Temporary: true, Err: errors.New("connection refused")})
		if err := o.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer o.queue.Stop(t.Context())
		begin := time.Now()
		o.post(t, d, "first")
		time.Sleep(24 * time.Minute)
		synctest.Wait()
		var waits []string
		for _, at := range r.tries {
			waits = append(waits, at.Sub(begin).Round(time.Second).String())
		}
		if got, want := strings.Join(waits, " "), "0s 5s 20s 1m5s 3m5s 8m5s 23m5s"; got != want {
			t.Errorf("tried after %s, want %s", got, want)
		}
		var sealed int
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE kind = 'mail' AND instr(payload, 'secret link') = 0").Scan(&sealed); err != nil || sealed != 1 {
			t.Errorf("got %d sealed mails waiting, %v, want 1", sealed, err)
		}
		o.post(t, d, "second", "third")
		time.Sleep(3 * time.Hour)
		r.answer(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(r.received) != 3 {
			t.Errorf("got %q after the server was back, want all three once", r.received)
		}
	})
}

func TestMailRetry(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		tries int
		span  time.Duration // from the first to the last attempt, rounded
	}{
		{"unreachable", &mail.Error{Op: mail.OpConnect, Temporary: true}, 337, 165 * time.Hour},
		{"password refused", &mail.Error{Op: mail.OpLogin, Code: 535}, 337, 165 * time.Hour},
		{"no service", &mail.Error{Op: mail.OpConnect, Code: 554}, 337, 165 * time.Hour},
		{"log in first", &mail.Error{Op: mail.OpSender, Code: 530}, 337, 165 * time.Hour},
		{"busy", &mail.Error{Op: mail.OpConnect, Code: 421, Temporary: true}, 9, 47 * time.Hour},
		{"later", &mail.Error{Op: mail.OpRecipient, Code: 451, Temporary: true}, 9, 47 * time.Hour},
		{"never", &mail.Error{Op: mail.OpRecipient, Code: 550}, 1, 0},
		{"sender refused", &mail.Error{Op: mail.OpSender, Code: 550}, 1, 0},
		{"not sendable", &mail.Error{Op: mail.OpCompose}, 1, 0},
	} {
		tries, span := 1, time.Duration(0)
		for {
			wait, again := mail.Retry(tries, fmt.Errorf("send: %w", tt.err))
			if !again {
				break
			}
			tries, span = tries+1, span+wait
		}
		if tries != tt.tries || span.Truncate(time.Hour) != tt.span {
			t.Errorf("%s: got %d tries over %s, want %d over %s", tt.name, tries, span, tt.tries, tt.span)
		}
	}
}

// TestMailSurvivesRestart: the next process sends waiting mails.
func TestMailSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := "sqlite:" + filepath.Join(t.TempDir(), "kickstand.db")
		key := seal.NewKey()
		session := func(answer error, stay time.Duration, mails ...string) *relay {
			d, err := db.Open(t.Context(), url, db.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if _, err := d.Migrate(t.Context(), db.Helpdesk); err != nil {
				t.Fatal(err)
			}
			r := &relay{err: answer}
			o := &outbox{queue: queue.Open(d, queue.Config{}), sender: r, from: func() mail.Address { return mail.Address{Address: "no-reply@help.example.com"} }, box: seal.New(key)}
			o.queue.Handle(queue.Worker{Kind: mailKind, Concurrency: 8, Run: o.send, Retry: mail.Retry})
			if err := o.queue.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.post(t, d, mails...)
			time.Sleep(stay)
			o.queue.Stop(t.Context())
			return r
		}
		session(&mail.Error{Op: mail.OpConnect, Temporary: true}, time.Minute, "first", "second")
		if r := session(nil, time.Hour); len(r.received) != 2 {
			t.Errorf("got %q after the restart, want both", r.received)
		}
	})
}
