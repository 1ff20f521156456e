package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"

	"github.com/emersion/go-smtp"
)

// flag returns the value of an argument of the server.
func (p *patient) flag(name string) string {
	for _, arg := range p.args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// at returns a patient with the same settings over another folder and database.
func (p *patient) at(data, databaseURL string) *patient {
	other := &patient{t: p.t, url: p.url, secret: p.secret, listen: p.listen, to: p.to, mailbox: p.mailbox, databaseURL: databaseURL}
	for _, arg := range p.args {
		if !strings.HasPrefix(arg, "--data=") && !strings.HasPrefix(arg, "--database-url=") {
			other.args = append(other.args, arg)
		}
	}
	other.args = append(other.args, "--data="+data, "--database-url="+databaseURL)
	p.t.Cleanup(other.kill)
	return other
}

// outputOf runs a command and returns what it prints.
func (p *patient) outputOf(args ...string) string {
	p.t.Helper()
	var out strings.Builder
	if err := run(p.t.Context(), append(args, p.args...), noEnvironment, strings.NewReader(""), &out, p.t.Output()); err != nil {
		p.t.Fatalf("%v: %v\n%s", args, err, &out)
	}
	return out.String()
}

// TestBackupUnderLoad backs up a server while requests arrive, replies and webhooks leave and
// vehicles are rented, restores the backup elsewhere and moves it to another database. All records
// are complete there, and servers on them send nothing again, neither while outgoing work is held
// nor after its release.
func TestBackupUnderLoad(t *testing.T) {
	// Slow, so that the backup has replies whose outcome it does not know.
	provider := &textProvider{pause: func() { pause(200 * time.Millisecond) }}
	api := httptest.NewServer(provider)
	t.Cleanup(api.Close)
	server := mailtest.NewServer(t, mailtest.ServerConfig{Refuse: func(string) *smtp.SMTPError {
		pause(200 * time.Millisecond)
		return nil
	}})
	p := newPatient(t)
	p.args = append(p.args, "--sms-api-url="+api.URL, "--smtp-url="+server.URL, "--retry-time-scale=0.05")
	p.start()
	p.setUp()
	// The second receiver does not respond before the last backup, so that the backup has
	// deliveries whose outcome it does not know.
	gate := make(chan struct{})
	var slow, slowAgain atomic.Int64
	var seen sync.Map // deliveries of the second receiver
	second := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, again := seen.LoadOrStore(r.Header.Get("X-Service-Delivery"), true); again {
			slowAgain.Add(1)
		}
		slow.Add(1)
		<-gate
	}))
	t.Cleanup(second.Close)
	c := browser(t)
	call(t, c, p.url, "auth.signInWithPassword", map[string]any{"email": "admin@example.com", "password": "crash-test-password"}, nil)
	call(t, c, p.url, "webhooks.create", map[string]any{"url": second.URL, "events": []string{"ticket.created"}, "secret": p.secret}, nil)
	p.command("fleet", "seed", "--org=crash", "--environment=live")

	a, err := app.Open(t.Context(), app.Config{
		BaseURL: p.url, Data: p.flag("data"), DatabaseURL: p.databaseURL, APIURLs: map[string]string{"sms": api.URL}, SMTPURL: server.URL, MailFrom: "k@client.example",
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
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() { p.pour(load, w) })
	}
	writers.Go(func() {
		for n := 0; load.Err() == nil; n++ {
			pause(20 * time.Millisecond)
			ids := p.column("SELECT id FROM tickets ORDER BY id")
			if len(ids) == 0 {
				continue
			}
			says, err := a.Desk.Compose(t.Context(), "", desk.Draft{Text: fmt.Sprintf("Reply %d.", n)})
			if err == nil {
				err = a.DB.Write(t.Context(), func(tx *db.Tx) error {
					_, err := a.Desk.ReplyTx(t.Context(), tx, org.ID, ids[n%len(ids)], desk.Reply{By: desk.Actor{ID: "k", Name: "Key"}, Content: says})
					return err
				})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	archive := t.TempDir()
	var report struct{ Rows int }
	for n := 1; n <= 2; n++ {
		for range poll(t, time.Minute) {
			if len(server.Deliveries()) >= 5*n && len(provider.count()) >= 5*n && p.deliveries.Load() > int64(50*n) && len(p.column("SELECT message_id FROM outbox")) >= 5 {
				break
			}
		}
		if err := json.Unmarshal([]byte(p.outputOf("backup", archive, "--with-key", "--json")), &report); err != nil || report.Rows < 500 {
			t.Fatalf("backup %d: %+v, %v", n, report, err)
		}
	}
	close(gate)
	stop()
	writers.Wait()
	for range poll(t, time.Minute) {
		if p.settled() && len(p.column("SELECT message_id FROM outbox")) == 0 {
			break
		}
	}
	p.kill()
	p.command("verify", "--blobs")
	p.command("restore", archive, "--check")
	mails, texts, deliveries := len(server.Deliveries()), len(provider.count()), p.deliveries.Load()+slow.Load()

	folder := t.TempDir()
	restored := p.at(folder, "sqlite:"+filepath.Join(folder, "kickstand.db"))
	restored.command("restore", archive)
	moved := p.at(folder, dbtest.EmptyURL(t))
	restored.command("verify", "--blobs")
	restored.serveHeld("restored")
	restored.command("move", "--to="+moved.databaseURL)
	moved.command("verify", "--blobs")
	moved.serveHeld("moved")
	if m, x, d := len(server.Deliveries()), len(provider.count()), p.deliveries.Load()+slow.Load(); m != mails || x != texts || d != deliveries {
		t.Errorf("servers on restored databases sent %d mails, %d texts and %d webhooks again", m-mails, x-texts, d-deliveries)
	}
	if len(moved.column("SELECT id FROM jobs WHERE kind = 'webhook'")) == 0 {
		t.Error("no delivery waits, so that nothing could be sent again")
	}
	if n := len(moved.column("SELECT id FROM messages")); n < 50 {
		t.Errorf("only %d messages were moved", n)
	}
	t.Logf("%d rows in the last backup, %d mails, %d texts, %d webhooks", report.Rows, mails, texts, deliveries)

	var waiting heldWork
	if err := json.Unmarshal([]byte(moved.outputOf("release", "--json")), &waiting); err != nil || !waiting.Held || len(waiting.Replies) == 0 || len(waiting.Webhooks) == 0 {
		t.Fatalf("held: %+v, %v, want replies and deliveries", waiting, err)
	}
	for _, r := range waiting.Replies {
		if r.Organization != "crash" || r.Ticket == 0 || r.Recipient == "" || !r.MayHaveLeft {
			t.Errorf("a waiting reply is %+v", r)
		}
	}
	again := p.repeated() + slowAgain.Load()
	moved.command("release", "--discard", "webhooks")
	moved.command("release", "--send")
	moved.start()
	for range poll(t, time.Minute) {
		if moved.settled() && len(moved.column("SELECT message_id FROM outbox")) == 0 {
			break
		}
	}
	if left := moved.column("SELECT message_id FROM outbox"); len(left) > 0 {
		t.Errorf("%d replies wait after the release", len(left))
	}
	moved.kill()
	moved.command("verify", "--blobs")
	sent := provider.count()
	for _, m := range server.Received(t) {
		sent[strings.TrimSpace(m.Text)]++
	}
	for text, n := range sent {
		if n > 1 {
			t.Errorf("%q was sent %d times", text, n)
		}
	}
	if n := p.repeated() + slowAgain.Load() - again; n > 0 {
		t.Errorf("%d deliveries of webhooks were sent again", n)
	}
	t.Logf("after the release of %d replies and the deliveries of %d webhooks: %d different replies sent, none twice", len(waiting.Replies), len(waiting.Webhooks), len(sent))
}

// repeated returns how many deliveries came more than once.
func (p *patient) repeated() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deliveries.Load() - int64(len(p.received))
}

// serveHeld runs a server until it has processed everything that was received and indexed all
// tickets. Outgoing work waits.
func (p *patient) serveHeld(name string) {
	p.t.Helper()
	p.watch = dbtest.Open(p.t, p.databaseURL)
	p.start()
	defer p.kill()
	for range poll(p.t, time.Minute) {
		if len(p.column("SELECT id FROM inbound_events WHERE state = 'accepted'")) == 0 && len(p.column("SELECT id FROM search_pending")) == 0 {
			break
		}
	}
	if left := p.column("SELECT id FROM search_pending"); len(left) > 0 {
		p.t.Errorf("%s: %d tickets are not indexed", name, len(left))
	}
}

// TestMoveContinuesAfterKill kills moves and restores at random times. Each continues where it
// stopped, and ends with equal rows.
func TestMoveContinuesAfterKill(t *testing.T) {
	kills := 2
	if n, err := strconv.Atoi(os.Getenv("KICKSTAND_TEST_KILLS")); err == nil {
		kills = n
	}
	data, archive := t.TempDir(), t.TempDir()
	from := []string{"--data=" + data, "--database-url=sqlite:" + filepath.Join(data, "kickstand.db")}
	do := func(args ...string) {
		t.Helper()
		if err := run(t.Context(), args, noEnvironment, strings.NewReader(""), io.Discard, t.Output()); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	do(append([]string{"org", "create", "--name=Acme"}, from...)...)
	do(append([]string{"fleet", "seed", "--org=acme", "--environment=live"}, from...)...)
	do(append([]string{"backup", archive}, from...)...)
	for name, args := range map[string]func(to string) []string{
		"move": func(to string) []string { return append([]string{"move", "--to=" + to}, from...) },
		"restore": func(to string) []string {
			return []string{"restore", archive, "--data=" + data, "--database-url=" + to}
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := dbtest.EmptyURL(t)
			killed := 0
			for range kills {
				cmd := exec.Command(os.Args[0], args(to)...)
				cmd.Env = append(os.Environ(), asProgram+"=1")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				pause(time.Duration(200+300*killed) * time.Millisecond)
				cmd.Process.Kill()
				if err := cmd.Wait(); err == nil {
					break // it was faster
				}
				killed++
				// No server starts on the rest of a copy.
				err := run(t.Context(), []string{"org", "list", "--data=" + data, "--database-url=" + to}, noEnvironment, strings.NewReader(""), io.Discard, io.Discard)
				if err == nil {
					break // finished before the kill
				}
			}
			if err := run(t.Context(), args(to), noEnvironment, strings.NewReader(""), io.Discard, t.Output()); err != nil && !strings.Contains(err.Error(), "is not empty") {
				t.Fatal(err)
			}
			do("verify", "--data="+data, "--database-url="+to)
			t.Logf("%d kills", killed)
		})
	}
}
