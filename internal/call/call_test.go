package call_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// placed is a message as placed in a ticket.
type placed struct {
	ticket  string
	at      time.Time
	message channel.Message
	files   []string
}

// desk places messages like the real one: a thread is a ticket, and a failed
// transaction leaves nothing.
type desk struct {
	mu     sync.Mutex
	list   []placed
	merged map[string]string // ticket into ticket

	place func(m *channel.Message) error // may fail
}

func (d *desk) IngestMessageTx(_ context.Context, tx *db.Tx, o channel.Source, m *channel.Message) (string, error) {
	if o.Channel != "voice" || o.TicketChannel != "voice" || o.OrganizationID != "org" {
		return "", fmt.Errorf("origin %+v", o)
	}
	if d.place != nil {
		if err := d.place(m); err != nil {
			return "", err
		}
	}
	p := placed{ticket: "ticket of " + m.ThreadKey, at: tx.Now, message: *m}
	for _, a := range m.Attachments {
		p.files = append(p.files, a.URL)
	}
	tx.AfterCommit(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.list = append(d.list, p)
	})
	return p.ticket, nil
}

func (d *desk) merge(_ context.Context, tx *db.Tx, organizationID, ticketID, into string) error {
	tx.AfterCommit(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.merged == nil {
			d.merged = make(map[string]string)
		}
		d.merged[ticketID] = into
	})
	return nil
}

// all returns the messages by ticket, after all merges.
func (d *desk) all() map[string][]placed {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string][]placed)
	for _, p := range d.list {
		t := p.ticket
		for d.merged[t] != "" {
			t = d.merged[t]
		}
		out[t] = append(out[t], p)
	}
	return out
}

type fixture struct {
	*call.Service
	t        testing.TB
	db       *db.DB
	queue    *queue.Queue
	desk     *desk
	settings map[string]string
	look     func() // called before the settings are read; may be nil
}

func newFixture(t testing.TB, d *db.DB) *fixture {
	f := &fixture{t: t, db: d, desk: new(desk), settings: map[string]string{}}
	f.open()
	return f
}

// open restarts the service on the same database.
func (f *fixture) open() {
	f.queue = queue.Open(f.db, queue.Config{})
	f.Service = call.Open(call.Config{
		DB: f.db, Queue: f.queue, Merge: f.desk.merge,
		Settings: func(context.Context, string) (map[string]string, error) {
			if f.look != nil {
				f.look()
			}
			return f.settings, nil
		},
	})
	f.RegisterWorkers(f.desk)
	if err := f.queue.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.queue.Stop(ctx)
}

var origin = channel.Source{OrganizationID: "org", ConnectionID: "connection", Channel: "voice", TicketChannel: "voice"}

func (f *fixture) intake(c *channel.PhoneCall) call.Result {
	f.t.Helper()
	var r any
	if err := f.db.Write(f.t.Context(), func(tx *db.Tx) (err error) {
		r, err = f.IngestCallTx(f.t.Context(), tx, origin, c)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	return r.(call.Result)
}

const (
	link = "https://dialpad.com/blob/voicemail/1.mp3"
	text = "The lock does not open."
)

var began = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// news is an event of a call with some legs, seconds after its start.
func news(state string, seconds int, legs ...string) *channel.PhoneCall {
	c := &channel.PhoneCall{
		IDs: legs, State: state, At: began.Add(time.Duration(seconds) * time.Second), Inbound: true, StartedAt: began,
		Contact: channel.Party{Name: "Ana", Phone: "+17025550111"}, Target: channel.Party{Name: "Support", Phone: "+12085550100", ID: "11"},
	}
	switch state {
	case "voicemail": // the URL precedes the file
		c.Audio = []channel.Attachment{{Name: "voicemail.mp3", URL: link + "?early"}}
	case "voicemail_uploaded":
		c.Voicemail = true
		c.Audio = []channel.Attachment{{Name: "voicemail.mp3", URL: link}}
		c.EndedAt = began.Add(41 * time.Second)
	case "transcription":
		c.Transcription = text
	case "hangup":
		c.EndedAt = began.Add(41 * time.Second)
	case "recording":
		c.Recordings = []channel.Attachment{{Name: "recording.mp3", URL: "https://dialpad.com/blob/recording/1.mp3"}}
	}
	return c
}

// orders returns every order of every subset of steps.
func orders(steps []string) [][]string {
	out := [][]string{{}}
	for i, s := range steps {
		rest := slices.Delete(slices.Clone(steps), i, i+1)
		for _, o := range orders(rest) {
			out = append(out, append([]string{s}, o...))
		}
	}
	return out
}

// the final contents of a ticket, in any order of events.
type contents struct {
	texts, audio, recordings int
}

func count(list []placed) (c contents) {
	for _, p := range list {
		c.texts += strings.Count(p.message.Text, text)
		for _, a := range p.files {
			switch {
			case strings.HasPrefix(a, link):
				c.audio++
			default:
				c.recordings++
			}
		}
	}
	return c
}

var seconds = map[string]int{"ringing": 1, "voicemail": 20, "hangup": 41, "missed": 42, "voicemail_uploaded": 45, "transcription": 60, "recording": 70}

// Every order of every subset of a voicemail's events, with repetitions, has the
// same result.
func TestEveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		sequences := orders([]string{"voicemail", "voicemail_uploaded", "transcription", "hangup", "recording"})
		ids := make([]string, len(sequences))
		for i, o := range sequences {
			for j, state := range o {
				ids[i] = f.intake(news(state, seconds[state], fmt.Sprintf("leg %d", i))).CallID
				if (i+j)%3 == 0 {
					f.intake(news(state, seconds[state], fmt.Sprintf("leg %d", i)))
				}
			}
			if i%2 == 0 { // the rest arrive in one go
				synctest.Wait()
			}
		}
		synctest.Wait()
		tickets := f.desk.all()
		for i, o := range sequences {
			got := tickets["ticket of call "+ids[i]]
			if slices.Contains(o, "transcription") != (len(got) > 0) {
				t.Errorf("%v: %d messages at once", o, len(got))
			}
		}
		time.Sleep(call.TranscriptionWait)
		synctest.Wait()
		tickets = f.desk.all()
		for i, o := range sequences {
			has := func(state string) int {
				if slices.Contains(o, state) {
					return 1
				}
				return 0
			}
			var want contents
			if has("voicemail_uploaded")+has("transcription") > 0 {
				want = contents{texts: has("transcription"), audio: max(has("voicemail"), has("voicemail_uploaded")), recordings: has("recording")}
			}
			got := tickets["ticket of call "+ids[i]]
			if count(got) != want {
				t.Errorf("%v: the ticket holds %+v, want %+v", o, count(got), want)
			}
			if len(o) == 0 {
				continue
			}
			newest := slices.MaxFunc(o, func(a, b string) int { return cmp.Compare(seconds[a], seconds[b]) })
			c, err := f.Find(t.Context(), f.db, "org", ids[i])
			if err != nil {
				t.Fatal(err)
			}
			if c.State != newest || len(c.Steps) != len(o) {
				t.Errorf("%v: the call is in state %s after %v, want %s", o, c.State, c.Steps, newest)
			}
		}
		f.wantOnce()
	})
}

// ids returns the id of a leg's call.
func (f *fixture) ids(leg string) string {
	f.t.Helper()
	list, err := f.List(f.t.Context(), f.db, "org", call.Filter{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range list {
		if slices.Contains(c.Legs, leg) {
			return c.ID
		}
	}
	return ""
}

// wantOnce checks that no message was placed twice.
func (f *fixture) wantOnce() {
	f.t.Helper()
	seen := make(map[string]bool)
	for _, p := range f.desk.list {
		if seen[p.message.ExternalID] {
			f.t.Errorf("%q was placed twice", p.message.ExternalID)
		}
		seen[p.message.ExternalID] = true
	}
}

func TestMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		r := f.intake(news("voicemail_uploaded", 45, "1"))
		synctest.Wait()
		if len(f.desk.list) != 0 {
			t.Fatalf("placed %+v before the transcription", f.desk.list)
		}
		f.intake(news("transcription", 60, "1"))
		synctest.Wait()
		if len(f.desk.list) != 1 {
			t.Fatalf("placed %+v, want one message", f.desk.list)
		}
		got := f.desk.list[0].message
		want := channel.Message{
			ExternalID: "call " + r.CallID + " voicemail", ThreadKey: "call " + r.CallID,
			From: channel.Party{Name: "Ana", Phone: "+17025550111"}, Subject: "Voicemail from Ana (+17025550111)",
			Text: text, SentAt: began, Voicemail: true,
			Attachments: []channel.Attachment{{Name: "voicemail.mp3", URL: link}},
			Metadata: map[string]string{
				"call": r.CallID, "caller": "Ana (+17025550111)", "called": "Support (+12085550100)",
				"started_at": "2026-11-20T09:00:00Z", "duration_seconds": "41",
			},
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("message\n%+v, want\n%+v", got, want)
		}
	})
}

// A caller with a withheld number is not matched with other calls.
func TestWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		n := news("transcription", 60, "1")
		n.Contact = channel.Party{}
		f.intake(n)
		synctest.Wait()
		got := f.desk.list[0].message
		if got.From != (channel.Party{}) || got.Subject != "Voicemail from a withheld number" {
			t.Errorf("message from %+v: %s", got.From, got.Subject)
		}
	})
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		heard := time.Now()
		f.intake(news("voicemail", 20, "1"))
		time.Sleep(time.Minute)
		f.intake(news("voicemail_uploaded", 45, "1"))
		time.Sleep(2 * time.Minute)
		f.intake(news("hangup", 41, "1"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(f.desk.list) != 1 {
			t.Fatalf("placed %+v, want one message", f.desk.list)
		}
		first := f.desk.list[0]
		if waited := first.at.Sub(heard); waited != 6*time.Minute {
			t.Errorf("placed after %v, want 5m after the upload", waited)
		}
		if first.message.Text != "A voicemail (0:41), without a transcription." || !slices.Equal(first.files, []string{link}) {
			t.Errorf("message %q with %v", first.message.Text, first.files)
		}
		f.intake(news("transcription", 60, "1"))
		synctest.Wait()
		if len(f.desk.list) != 2 {
			t.Fatalf("placed %+v, want the text, too", f.desk.list)
		}
		second := f.desk.list[1]
		if second.ticket != first.ticket || second.message.Text != text || second.files != nil {
			t.Errorf("then %q with %v in %s", second.message.Text, second.files, second.ticket)
		}
		f.wantOnce()
	})
}

// A transcription event without text ends the wait, too.
func TestEmptyTranscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		f.intake(news("voicemail_uploaded", 45, "1"))
		n := news("transcription", 60, "1")
		n.Transcription = ""
		f.intake(n)
		synctest.Wait()
		if got := f.desk.list; len(got) != 1 || !slices.Equal(got[0].files, []string{link}) {
			t.Fatalf("placed %+v, want the recording", got)
		}
		f.intake(news("transcription", 61, "1"))
		synctest.Wait()
		if got := f.desk.list; len(got) != 2 || got[1].message.Text != text {
			t.Errorf("placed %+v, want the text at last", got)
		}
	})
}

// The wait continues after a restart, and ends on time even if the program was
// down.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name       string
		down, want time.Duration
	}{
		{"back before it is due", time.Minute, 5 * time.Minute},
		{"back after", time.Hour, time.Hour + 3*time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, dbtest.NewSQLite(t))
				heard := time.Now()
				f.intake(news("voicemail_uploaded", 45, "1"))
				time.Sleep(3 * time.Minute)
				f.stop()
				time.Sleep(tt.down)
				f.open()
				defer f.stop()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if len(f.desk.list) != 1 {
					t.Fatalf("placed %+v, want one message", f.desk.list)
				}
				if waited := f.desk.list[0].at.Sub(heard); waited != tt.want {
					t.Errorf("placed after %v, want %v", waited, tt.want)
				}
			})
		})
	}
}

func TestMissed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		setting string
		steps   []string
		want    []string // subjects
	}{
		{"by default nothing comes of it", "", []string{"ringing", "missed"}, nil},
		{"a ticket where wanted", "ticket", []string{"ringing", "missed", "hangup"}, []string{"Missed call from Ana (+17025550111)"}},
		{"with a voicemail after it", "ticket", []string{"missed", "voicemail_uploaded", "transcription"}, []string{"Missed call from Ana (+17025550111)", "Voicemail from Ana (+17025550111)"}},
		{"with a voicemail before it", "ticket", []string{"voicemail_uploaded", "transcription", "missed"}, []string{"Voicemail from Ana (+17025550111)"}},
		{"another setting", "none", []string{"missed"}, nil},
		{"one that nobody left anything at", "ticket", []string{"voicemail", "missed"}, []string{"Missed call from Ana (+17025550111)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, dbtest.NewSQLite(t))
				defer f.stop()
				f.settings[call.SettingMissedCalls] = tt.setting
				for _, state := range tt.steps {
					f.intake(news(state, seconds[state], "1"))
					synctest.Wait()
				}
				// A decision is final.
				f.settings[call.SettingMissedCalls] = "ticket"
				f.intake(news("hangup", 41, "1"))
				time.Sleep(time.Hour)
				synctest.Wait()
				var got []string
				for _, p := range f.desk.list {
					got = append(got, p.message.Subject)
				}
				if !slices.Equal(got, tt.want) || len(f.desk.all()) != min(1, len(tt.want)) {
					t.Errorf("placed %q in %d tickets, want %q in one", got, len(f.desk.all()), tt.want)
				}
			})
		})
	}
}

// Outbound calls, conversations and states outside the contract make no ticket.
func TestNoTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		f.settings[call.SettingMissedCalls] = "ticket"
		for i, state := range []string{"calling", "connected", "hangup", "recording", "missed"} {
			n := news(state, i, "ours")
			n.Inbound = false
			f.intake(n)
		}
		for i, state := range []string{"ringing", "connected", "hold", "connected", "hangup", "recording", "recap_summary", "call_transcription", "ai_playbook"} {
			f.intake(news(state, i, "theirs"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(f.desk.list) != 0 {
			t.Errorf("placed %+v", f.desk.list)
		}
		c, err := f.Find(t.Context(), f.db, "org", f.ids("theirs"))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Steps) != 9 || c.State != "ai_playbook" {
			t.Errorf("the call is in state %s after %v", c.State, c.Steps)
		}
	})
}

// Without the provider's clock, a call's state does not go back in the contract's
// order.
func TestStatesWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		for _, tt := range []struct{ state, want string }{
			{"connected", "connected"}, {"ringing", "connected"}, {"hold", "hold"}, {"connected", "connected"}, {"recap_summary", "connected"},
			{"hangup", "hangup"}, {"voicemail_uploaded", "voicemail_uploaded"}, {"voicemail", "voicemail_uploaded"}, {"transcription", "transcription"}, {"hangup", "transcription"},
		} {
			n := news(tt.state, 0, "1")
			n.At = time.Time{}
			if got := f.intake(n).State; got != tt.want {
				t.Errorf("after %s the call is in state %s, want %s", tt.state, got, tt.want)
			}
		}
	})
}

// Two calls are merged as soon as an event links their legs, in any order.
func TestUnion(t *testing.T) {
	steps := map[string]func() *channel.PhoneCall{
		"text of leg 1":   func() *channel.PhoneCall { return news("transcription", 60, "1") },
		"upload of leg 2": func() *channel.PhoneCall { return news("voicemail_uploaded", 45, "2") },
		"both":            func() *channel.PhoneCall { return news("hangup", 41, "3", "1", "2") },
	}
	for _, order := range orders([]string{"text of leg 1", "upload of leg 2", "both"}) {
		if len(order) < 3 {
			continue
		}
		for _, patient := range []bool{false, true} {
			t.Run(fmt.Sprint(order, patient), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, dbtest.NewSQLite(t))
					defer f.stop()
					for _, step := range order {
						f.intake(steps[step]())
						if patient { // so that each call makes a ticket on its own
							time.Sleep(call.TranscriptionWait)
						}
						synctest.Wait()
					}
					time.Sleep(2 * call.TranscriptionWait)
					synctest.Wait()
					all := f.desk.all()
					if len(all) != 1 {
						t.Fatalf("%d tickets, want one: %+v", len(all), all)
					}
					for _, list := range all {
						if got, want := count(list), (contents{texts: 1, audio: 1}); got != want {
							t.Errorf("the ticket holds %+v, want %+v", got, want)
						}
					}
					calls, err := f.List(t.Context(), f.db, "org", call.Filter{})
					if err != nil {
						t.Fatal(err)
					}
					if len(calls) != 1 || !slices.Equal(calls[0].Legs, []string{"1", "2", "3"}) || calls[0].State != "transcription" {
						t.Errorf("calls %+v, want one of three legs", calls)
					}
				})
			})
		}
	}
}

// The same leg at another connection is another call.
func TestConnectionsApart(t *testing.T) {
	d := dbtest.New(t)
	f := newFixture(t, d)
	defer f.stop()
	first := f.intake(news("ringing", 1, "1"))
	var second any
	if err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
		o := origin
		o.OrganizationID, o.ConnectionID = "another", "another's"
		second, err = f.IngestCallTx(t.Context(), tx, o, news("ringing", 1, "1"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if first.CallID == second.(call.Result).CallID {
		t.Error("two organizations share a call")
	}
	if _, err := f.Find(t.Context(), d, "another", first.CallID); !isNotFound(err) {
		t.Errorf("Find() of another organization's = %v", err)
	}
	list, err := f.List(t.Context(), d, "another", call.Filter{})
	if err != nil || len(list) != 1 || list[0].ID == first.CallID {
		t.Errorf("List() = %+v, %v", list, err)
	}
}

func isNotFound(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	return ok && p.Kind == problem.NotFound
}

// Twenty concurrent copies of every leg's events make one call and one message.
func TestParallel(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	defer f.stop()
	done := make(chan struct{}, 100)
	f.desk.place = func(*channel.Message) error { done <- struct{}{}; return nil }
	var wg sync.WaitGroup
	for i := range 20 {
		for _, legs := range [][]string{{"1"}, {"2", "1"}, {"3"}, {"3", "2"}} {
			wg.Go(func() {
				n := news("transcription", 60, legs...)
				n.Audio, n.Voicemail = []channel.Attachment{{Name: "voicemail.mp3", URL: link}}, true
				if i%2 == 0 {
					n = news("voicemail_uploaded", 45, legs...)
				}
				if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
					_, err := f.IngestCallTx(t.Context(), tx, origin, n)
					return err
				}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	<-done
	for pending := 1; pending > 0; { // until the queue is empty
		if err := f.db.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE run_at < $1", time.Now().Add(time.Minute).UnixMicro()).Scan(&pending); err != nil {
			t.Fatal(err)
		}
	}
	f.stop()
	all := f.desk.all()
	if len(all) != 1 {
		t.Fatalf("%d tickets, want one: %+v", len(all), all)
	}
	for _, list := range all {
		if got, want := count(list), (contents{texts: 1, audio: 1}); len(f.desk.merged) == 0 && got != want {
			t.Errorf("the ticket holds %+v, want %+v", got, want)
		}
	}
	f.wantOnce()
}

// A failed placement is retried.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		places := 0
		f.desk.place = func(*channel.Message) error {
			if places++; places < 12 { // beyond the usual number of attempts
				return errors.New("not now")
			}
			return nil
		}
		f.intake(news("voicemail_uploaded", 45, "1"))
		f.intake(news("transcription", 60, "1"))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if len(f.desk.list) != 1 || places != 12 {
			t.Errorf("placed %+v after %d tries, want one message", f.desk.list, places)
		}
	})
}

// An event during a placement is neither lost nor placed twice.
func TestNewsWhilePlacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		f.settings[call.SettingMissedCalls] = call.MissedCallsTicket
		looked := 0
		f.look = func() {
			if looked++; looked == 1 { // the call was read, without a voicemail yet
				f.intake(news("voicemail_uploaded", 45, "1"))
				f.intake(news("transcription", 60, "1"))
			}
		}
		f.intake(news("missed", 40, "1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if looked == 0 || len(f.desk.list) != 1 || f.desk.list[0].message.Text != text {
			t.Errorf("placed %+v after %d looks, want the voicemail alone", f.desk.list, looked)
		}
	})
}

func TestRedact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		defer f.stop()
		f.intake(news("voicemail_uploaded", 45, "waiting"))
		f.intake(news("transcription", 60, "placed"))
		other := news("voicemail_uploaded", 45, "another's")
		other.Contact.Phone = "+17025550122"
		f.intake(other)
		synctest.Wait()
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			return f.RedactTx(t.Context(), tx, "org", []string{"ticket of call " + f.ids("placed")}, []string{"+17025550111"})
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * call.TranscriptionWait)
		synctest.Wait()
		if got := len(f.desk.list); got != 2 {
			t.Errorf("placed %d messages, want that of before and the other's", got)
		}
		list, err := f.List(t.Context(), f.db, "org", call.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			gone := c.Contact == (call.Party{}) && c.Transcription == "" && c.Audio == nil
			if gone == slices.Contains(c.Legs, "another's") {
				t.Errorf("the call %v is with %+v", c.Legs, c.Contact)
			}
		}
		// Neither late events nor another leg restore the data.
		f.intake(news("transcription", 60, "waiting"))
		f.intake(news("recording", 70, "placed"))
		f.intake(news("hangup", 80, "another leg"))
		f.intake(news("hangup", 90, "another leg", "placed"))
		synctest.Wait()
		if got := len(f.desk.list); got != 2 {
			t.Errorf("placed %d messages after late news, want that of before and the other's", got)
		}
		if list, err := f.List(t.Context(), f.db, "org", call.Filter{Phone: "+17025550111"}); err != nil || len(list) != 0 {
			t.Errorf("List() by the forgotten number = %+v, %v", list, err)
		}
		if list, err := f.List(t.Context(), f.db, "org", call.Filter{Phone: "+17025550122"}); err != nil || len(list) != 1 {
			t.Errorf("List() by number = %+v, %v", list, err)
		}
	})
}
