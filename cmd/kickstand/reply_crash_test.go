package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"

	"github.com/emersion/go-smtp"
)

// TestCrashReplies kills the server at random times while replies are sent by SMS and
// mail. None may arrive twice. Each SMS must arrive, since its provider can be queried; a
// mail must have arrived if it is sent, and may have if it is failed.
func TestCrashReplies(t *testing.T) {
	kills := 30
	if testing.Short() {
		kills = 8
	}
	provider := &textProvider{pause: func() { pause(30 * time.Millisecond) }}
	api := httptest.NewServer(provider)
	t.Cleanup(api.Close)
	server := mailtest.NewServer(t, mailtest.ServerConfig{Refuse: func(string) *smtp.SMTPError {
		pause(10 * time.Millisecond)
		return nil
	}})
	p := newPatient(t)
	p.args = append(p.args, "--sms-api-url="+api.URL, "--smtp-url="+server.URL, "--retry-time-scale=0.05")
	p.command("org", "create", "--name=Crash")
	p.command("channel", "connect", "sms", "--org=crash", "--address="+p.to, "--secret="+p.secret,
		`--credentials={"account_sid":"AC1","auth_token":"t"}`)
	p.command("channel", "connect", "email-raw", "--org=crash", "--address="+p.mailbox, "--secret="+p.secret)
	p.start()
	for i := range 10 {
		p.post(t.Context(), smsRequest(p.url, p.secret, fmt.Sprintf("SMin%d", i), p.number(i), p.to, "Hello?"), "")
		from := fmt.Sprintf("ana%d@client.example", i)
		p.post(t.Context(), mailRequest(p.url, p.secret, from, p.mailbox, fmt.Appendf(nil,
			"From: %s\r\nTo: %s\r\nSubject: Hello\r\nMessage-ID: <%d@client.example>\r\n\r\nHello?\r\n", from, p.mailbox, i)), "")
	}
	tickets := make(map[string][]string) // by channel
	for range poll(t, time.Minute) {
		for _, channel := range []string{"sms", "email"} {
			tickets[channel] = p.column("SELECT id FROM tickets WHERE channel = $1", channel)
		}
		if len(tickets["sms"]) == 10 && len(tickets["email"]) == 10 {
			break
		}
	}
	if len(tickets["sms"]) != 10 || len(tickets["email"]) != 10 {
		t.Fatalf("20 messages became %d and %d tickets in a minute, want 10 and 10", len(tickets["sms"]), len(tickets["email"]))
	}

	// Replies are written next to the server, as commands do.
	a, err := app.Open(t.Context(), app.Config{
		BaseURL: p.url, Data: p.data(), DatabaseURL: p.databaseURL, APIURLs: map[string]string{"sms": api.URL}, SMTPURL: server.URL, MailFrom: "k@client.example",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	org, err := a.Accounts.OrganizationBySlug(t.Context(), "crash")
	if err != nil {
		t.Fatal(err)
	}
	write, stopWriting := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	written := 0
	writer.Go(func() {
		for ; write.Err() == nil; written++ {
			for channel, ids := range tickets {
				says, err := a.Desk.Compose(t.Context(), "", desk.Draft{Text: fmt.Sprintf("%s %d.", channel, written)})
				if err != nil {
					t.Error(err)
					return
				}
				if err := a.DB.Write(t.Context(), func(tx *db.Tx) error {
					_, err := a.Desk.ReplyTx(t.Context(), tx, org.ID, ids[written%len(ids)], desk.Reply{By: desk.Actor{ID: "k", Name: "Key"}, Content: says})
					return err
				}); err != nil {
					t.Error(err)
					return
				}
			}
			pause(20 * time.Millisecond)
		}
	})
	for range kills {
		pause(400 * time.Millisecond)
		p.kill()
		p.start()
	}
	stopWriting()
	writer.Wait()
	for range poll(t, 2*time.Minute) {
		if len(p.column("SELECT message_id FROM outbox")) == 0 {
			break
		}
	}
	p.kill()

	texts, mails := provider.count(), make(map[string]int)
	for _, m := range server.Received(t) {
		mails[strings.TrimSpace(m.Text)]++
	}
	states := make(map[string]int)
	for _, row := range p.column(`SELECT channel || '|' || delivery_state || '|' || body || '|' || coalesce(delivery_error, '')
		FROM messages WHERE direction = 'outbound' AND kind = 'reply'`) {
		f := strings.Split(row, "|")
		channel, state, body, reason := f[0], f[1], f[2], f[3]
		states[channel+" "+state]++
		n := texts[body]
		if channel == "email" {
			n = mails[body]
		}
		switch {
		case state == "sent" && n == 1:
		case state == "failed" && channel == "email" && n <= 1 && strings.HasPrefix(reason, "it may have arrived"):
		default:
			t.Errorf("%q by %s is %s (%s) and arrived %d times", body, channel, state, reason, n)
		}
	}
	if total := states["sms sent"] + states["email sent"] + states["email failed"]; total != 2*written || written == 0 {
		t.Errorf("%d messages, %d were written", total, 2*written)
	}
	if states["email failed"] > kills*10 {
		t.Errorf("%d mails are in doubt after %d kills", states["email failed"], kills)
	}
	t.Logf("%d kills, %v", kills, states)
}

// data returns the data folder of the server.
func (p *patient) data() string {
	for _, arg := range p.args {
		if folder, ok := strings.CutPrefix(arg, "--data="); ok {
			return folder
		}
	}
	return ""
}

// pause waits for a random time up to d, deliberately.
func pause(d time.Duration) { <-time.After(time.Duration(rand.Int64N(int64(d)))) }

// column returns the first column of a query.
func (p *patient) column(query string, args ...any) []string {
	p.t.Helper()
	list, err := db.All(p.t.Context(), p.watch, func(row db.Row) (s string, err error) { err = row.Scan(&s); return s, err }, query, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

// textProvider is a slow SMS provider's API.
type textProvider struct {
	pause func()

	mu    sync.Mutex
	texts []map[string]any
}

func (p *textProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		p.mu.Lock()
		defer p.mu.Unlock()
		list := []map[string]any{}
		for _, m := range slices.Backward(p.texts) {
			if m["to"] == r.FormValue("To") && m["from"] == r.FormValue("From") {
				list = append(list, m)
			}
		}
		json.NewEncoder(w).Encode(map[string]any{"messages": list[:min(len(list), 100)]})
		return
	}
	if r.ParseForm() != nil {
		return // the sender ended the request within its body
	}
	p.pause()
	p.mu.Lock()
	m := map[string]any{
		"sid": fmt.Sprintf("SM%032d", len(p.texts)), "body": r.FormValue("Body"), "to": r.FormValue("To"), "from": r.FormValue("From"),
		"direction": "outbound-api", "status": "queued", "date_created": time.Now().UTC().Format(time.RFC1123Z),
	}
	p.texts = append(p.texts, m)
	p.mu.Unlock()
	p.pause()
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(m)
}

// count returns how often each SMS was accepted.
func (p *textProvider) count() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := make(map[string]int)
	for _, m := range p.texts {
		n[m["body"].(string)]++
	}
	return n
}
