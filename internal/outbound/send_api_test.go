package outbound_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// pigeon is a channel without a search.
type pigeon struct{}

func (pigeon) Info() channel.Info {
	return channel.Info{Name: "pigeon", TicketChannel: "pigeon", Path: "/api/webhooks/pigeon", MaxBody: 1}
}
func (pigeon) API() channel.API                             { return channel.API{URL: "https://pigeon.example"} }
func (pigeon) Addresses(*channel.Request) ([]string, error) { return nil, nil }
func (pigeon) Verify(*channel.Request, string) bool         { return false }
func (pigeon) Split(*channel.Request) ([]channel.Part, error) {
	return nil, channel.ErrUnreadable
}
func (pigeon) Parse(*channel.Request, channel.Part) (channel.Event, error) {
	return channel.Event{}, channel.ErrUnreadable
}
func (pigeon) Check(*channel.Outgoing, channel.Credentials) error { return nil }

func (pigeon) SendCall(m *channel.Outgoing, credentials channel.Credentials) channel.APIRequest {
	said := []string{m.ID, m.To.ID, m.Text, m.LastInboundID, m.ThreadKey}
	for _, f := range m.Files {
		said = append(said, f.URL)
	}
	return credentials.NewRequest("POST", "/fly", nil, []byte(strings.Join(said, "|")))
}

func (pigeon) ReadSendResponse(_ *channel.Outgoing, a channel.Response) channel.SendResult {
	switch a.Status {
	case 200:
		return channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{string(a.Body)}}
	case 429:
		return channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the loft is full", RetryAfter: netguard.RetryAfter(a.Header, time.Now())}
	case 503:
		return channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the loft is on fire"}
	}
	return channel.SendResult{Verdict: channel.VerdictRefused, Reason: "no such bird"}
}

// ringed is a channel that recognizes repeated messages: the last of eight calls is within its
// window however long the waits between them are, and a ninth is after it.
type ringed struct{ pigeon }

func (ringed) Info() channel.Info {
	return channel.Info{Name: "ringed", TicketChannel: "ringed", Path: "/api/webhooks/ringed", MaxBody: 1}
}
func (ringed) IdempotencyWindow() time.Duration { return 70 * time.Minute }

var (
	_ channel.APISender        = pigeon{}
	_ channel.IdempotentSender = ringed{}
)

// loft is the API of both; it records the calls.
type loft struct {
	mu     sync.Mutex
	bodies []string
	// does returns the result of the n-th call, from 0; 0 or 200: accepted, negative:
	// the response is lost.
	does func(n int) int
	rest string // Retry-After of 429
}

func (l *loft) RoundTrip(r *http.Request) (*http.Response, error) {
	trace(r)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.bodies)
	l.bodies = append(l.bodies, string(body))
	status := 200
	if l.does != nil {
		if s := l.does(n); s != 0 {
			status = s
		}
	}
	if status < 0 {
		return nil, io.ErrUnexpectedEOF
	}
	h := http.Header{}
	if status == 429 && l.rest != "" {
		h.Set("Retry-After", l.rest)
	}
	id, _, _ := strings.Cut(string(body), "|")
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("bird-" + id))}, nil
}

func (l *loft) calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.bodies)
}

// flown receives a customer's message on such a channel, and replies as Grace.
func (r *rig) flown(adapter, from, text string) desk.Message {
	r.Helper()
	c := r.connect(adapter, "loft of "+from)
	in := r.intake(c, adapter, channel.Event{Message: &channel.Message{
		ExternalID: "B" + from, ThreadKey: from, From: channel.Party{ID: from}, Text: "Hello?",
	}})
	return r.reply(in.TicketID, text)
}

const unsure = "it may have arrived: the connection ended before the server confirmed it. It is not sent again automatically"

// TestCallWithoutMemory: an uncertain call is repeated only if that is harmless,
// and then unchanged.
func TestCallWithoutMemory(t *testing.T) {
	crash := func(r *rig, m desk.Message) { r.crashDuringSubmission(m, "call https://pigeon.example/fly") }
	elsewhere := func(r *rig, m desk.Message) { r.crashDuringSubmission(m, "call https://other.example/fly") }
	later := func(by time.Duration) func(r *rig, m desk.Message) {
		return func(r *rig, m desk.Message) {
			crash(r, m)
			time.Sleep(by)
		}
	}
	once := func(status int) func(int) int {
		return func(n int) int {
			if n == 0 {
				return status
			}
			return 200
		}
	}
	for _, tt := range []struct {
		name    string
		adapter string
		before  func(r *rig, m desk.Message)
		does    func(n int) int
		state   channel.ReceiptState
		reason  string
		calls   int
	}{
		{"nothing goes wrong", "pigeon", nil, nil, channel.ReceiptSent, "", 1},
		{"a lost answer", "pigeon", nil, once(-1), channel.ReceiptFailed, unsure, 1},
		{"an unclear answer", "pigeon", nil, once(503), channel.ReceiptFailed, unsure, 1},
		{"a crash before the answer", "pigeon", crash, nil, channel.ReceiptFailed, unsure, 0},
		{"later", "pigeon", nil, once(429), channel.ReceiptSent, "", 2},
		{"refused", "pigeon", nil, once(404), channel.ReceiptFailed, "no such bird", 1},
		{"a lost answer, with a ring", "ringed", nil, once(-1), channel.ReceiptSent, "", 2},
		{"an unclear answer, with a ring", "ringed", nil, once(503), channel.ReceiptSent, "", 2},
		{"a crash, with a ring", "ringed", crash, nil, channel.ReceiptSent, "", 1},
		{"a crash on another way, with a ring", "ringed", elsewhere, nil, channel.ReceiptFailed, unsure, 0},
		{"a crash long ago, with a ring", "ringed", later(2 * time.Hour), nil, channel.ReceiptFailed, unsure, 0},
		{"answers lost for too long, with a ring", "ringed", nil, func(int) int { return -1 }, channel.ReceiptFailed, unsure, 8},
		{"a lost answer and then a full loft, with a ring", "ringed", nil, func(n int) int { return []int{-1, 429}[min(n, 1)] }, channel.ReceiptFailed, unsure, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &loft{does: tt.does}
				r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http, r.more = l, []channel.Adapter{pigeon{}, ringed{}} })
				m := r.flown(tt.adapter, "ana", "Hello!")
				if tt.before != nil {
					tt.before(r, m)
				}
				r.run()
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				calls := l.calls()
				got := r.message(m)
				if got.Delivery != (desk.Delivery{State: tt.state, Error: tt.reason}) {
					t.Errorf("got %+v, want %s, %q", got.Delivery, tt.state, tt.reason)
				}
				if len(calls) != tt.calls || len(calls) > 0 && len(slices.Compact(slices.Clone(calls))) != 1 {
					t.Errorf("got calls %q, want %d of the same", calls, tt.calls)
				}
				for _, c := range calls {
					if want := m.ID + "|ana|Hello!|Bana|ana"; c != want {
						t.Errorf("got %s, want %s", c, want)
					}
				}
				if sent := tt.state == channel.ReceiptSent; sent != !got.SentAt.IsZero() {
					t.Errorf("got sent at %v", got.SentAt)
				}
			})
		})
	}
}

// TestRest: a pause that a provider asks for holds for the whole connection.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		l := &loft{rest: "600"}
		l.does = func(n int) int {
			times = append(times, time.Now())
			if n == 0 {
				return 429
			}
			return 200
		}
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http, r.more = l, []channel.Adapter{pigeon{}} })
		c := r.connect("pigeon", "loft")
		var replies []desk.Message
		for _, from := range []string{"ana", "bob"} {
			in := r.intake(c, "pigeon", channel.Event{Message: &channel.Message{ExternalID: from, ThreadKey: from, From: channel.Party{ID: from}, Text: "Hello?"}})
			replies = append(replies, r.reply(in.TicketID, "Hello!"))
			if from == "ana" {
				r.run()
				synctest.Wait()
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, m := range replies {
			if got := r.message(m).Delivery.State; got != channel.ReceiptSent {
				t.Errorf("got %s, want sent", got)
			}
		}
		if len(times) != 3 || times[1].Sub(times[0]) < 10*time.Minute || times[2].Sub(times[0]) < 10*time.Minute {
			t.Errorf("got calls at %v, want none within ten minutes after the first", times)
		}
	})
}

// TestFilesByLink: the provider fetches a file by a signed link, valid for a week.
func TestFilesByLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(loft)
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http, r.more = l, []channel.Adapter{pigeon{}} })
		says, err := r.desk.Compose(t.Context(), "", desk.Draft{Text: "See!", Attachments: []channel.Attachment{{Name: "a.png", ContentType: "image/png", Data: []byte("a picture")}}})
		if err != nil {
			t.Fatal(err)
		}
		c := r.connect("pigeon", "loft")
		in := r.intake(c, "pigeon", channel.Event{Message: &channel.Message{ExternalID: "1", ThreadKey: "ana", From: channel.Party{ID: "ana"}, Text: "Hello?"}})
		m := r.reply(in.TicketID, "", func(r *desk.Reply) { r.Content = says })
		r.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		calls := l.calls()
		if len(calls) != 1 {
			t.Fatalf("got %d calls", len(calls))
		}
		parts := strings.Split(calls[0], "|")
		link, err := url.Parse(parts[len(parts)-1])
		if err != nil {
			t.Fatal(err)
		}
		id := r.message(m).Attachments[0].ID
		if link.Scheme+"://"+link.Host+link.Path != "https://help.example/attachments/"+id {
			t.Errorf("got link %s", link)
		}
		until, sig := link.Query().Get("until"), link.Query().Get("sig")
		check := func(name, id, until, sig string, want bool) {
			t.Helper()
			_, content, err := r.desk.OpenShared(context.Background(), id, until, sig)
			if err == nil {
				data, _ := io.ReadAll(content)
				content.Close()
				if string(data) != "a picture" {
					t.Errorf("%s: got %q", name, data)
				}
			}
			if (err == nil) != want {
				t.Errorf("%s: got %v", name, err)
			}
		}
		check("the link", id, until, sig, true)
		check("another file", m.ID, until, sig, false)
		check("a longer time", id, until+"0", sig, false)
		check("another signature", id, until, strings.Repeat("0", len(sig)), false)
		check("half of it", id, until, sig[:len(sig)/2], false)
		check("none", id, until, "", false)
		time.Sleep(7 * 24 * time.Hour)
		check("a week later", id, until, sig, true)
		time.Sleep(24*time.Hour + time.Minute)
		check("after that", id, until, sig, false)
	})
}
