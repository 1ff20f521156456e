package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// wire carries requests to a handler in memory, for tests in a bubble. It counts
// attempts, and can lose requests and responses.
type wire struct {
	to http.Handler
	attempts
	// lose is called before and after a request reaches the handler.
	lose func(r *http.Request, arrived bool) error
}

// attempts are the times of attempts.
type attempts struct {
	mu    sync.Mutex
	tries []time.Time
}

func (a *attempts) note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries = append(a.tries, time.Now())
}

func (a *attempts) times() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.tries)
}

// loses makes f lose requests and responses from now on.
func (w *wire) loses(f func(r *http.Request, arrived bool) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = f
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		w.note()
	}
	w.mu.Lock()
	lose := w.lose
	w.mu.Unlock()
	if lose == nil {
		lose = func(*http.Request, bool) error { return nil }
	}
	if err := lose(r, false); err != nil {
		return nil, err
	}
	trace(r)
	answer := httptest.NewRecorder()
	w.to.ServeHTTP(answer, r)
	if err := lose(r, true); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

// TestProviderErrors: each of the provider's errors, as a response and as a later
// report.
func TestProviderErrors(t *testing.T) {
	p := newProvider(t)
	r := newRig(t, func(r *rig) { r.apiURL = p.URL })
	r.run()
	for _, tt := range []struct {
		code, reason string
		undelivered  bool // the number is marked
		optedOut     bool
		status       int // of the provider's response; 0: report only
	}{
		{"20003", "the provider refuses the connection's credentials (20003)", false, false, 401},
		{"21211", "the number is not valid (21211)", true, false, 400},
		{"21408", "sending to this country is not enabled (21408)", false, false, 403},
		{"21610", "the recipient has opted out (21610)", false, true, 400},
		{"21614", "the number is not a mobile number (21614)", true, false, 400},
		{"21606", "our number is not one of the account's that can send texts (21606)", false, false, 400},
		{"99999", "words of the provider (99999)", false, false, 400},
		{"30003", "the phone is switched off or out of reach (30003)", false, false, 0},
		{"30004", "the recipient or carrier blocks messages from us (30004)", false, false, 0},
		{"30005", "the number does not exist or is out of service (30005)", true, false, 0},
		{"30006", "the number is a landline or its carrier takes no texts (30006)", true, false, 0},
		{"30007", "the carrier filtered the message as unwanted (30007)", false, false, 0},
		{"30008", "the carrier gave no reason (30008)", false, false, 0},
		{"30034", "our number is not registered with the carriers (30034)", false, false, 0},
	} {
		t.Run(tt.code, func(t *testing.T) {
			p.answer(func(w http.ResponseWriter, r *http.Request) bool {
				if tt.status == 0 {
					return false
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, `{"code":`+tt.code+`,"message":"words of the provider","status":`+"400}")
				return true
			})
			r := *r
			r.TB = t
			c := r.connect("sms", "+1415"+tt.code+"00")
			from := "+1415" + tt.code + "11"
			in := r.texts(c, "SM"+tt.code, from, "Hello?")
			m := r.reply(in.TicketID, "Hello!")
			if tt.status == 0 {
				r.until(m, channel.ReceiptSent, "")
				r.receipt(c, "https://help.example/api/webhooks/sms?message="+m.ID, "SMlater"+tt.code, "undelivered", tt.code)
			}
			r.until(m, channel.ReceiptFailed, tt.reason)

			list, err := r.desk.Messages(t.Context(), r.db, org, in.TicketID)
			if err != nil {
				t.Fatal(err)
			}
			note := list[len(list)-1]
			if note.Kind != desk.KindNote || !strings.Contains(note.Text, tt.reason) {
				t.Errorf("the last message is a %s, %q; want a note with %q", note.Kind, note.Text, tt.reason)
			}
			customer, err := r.desk.Customer(t.Context(), r.db, org, in.CustomerID)
			if err != nil {
				t.Fatal(err)
			}
			want := []string(nil)
			if tt.undelivered && tt.status != 0 {
				want = []string{from}
			}
			if tt.status != 0 && !slices.Equal(customer.Undeliverable, want) {
				t.Errorf("undeliverable addresses are %q, want %q", customer.Undeliverable, want)
			}
			_, err = r.tryReply(in.TicketID, "Again?")
			if got := problem.Of(err) == problem.Conflict; got != tt.optedOut {
				t.Errorf("a further reply: error %v; opted out should be %t", err, tt.optedOut)
			}
		})
	}
}

// TestRetries checks the times of retries. Waits are up to a tenth longer.
func TestRetries(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	unavailable := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request) bool
		lose   func(r *http.Request, arrived bool) error
		waits  []time.Duration
		reason string // meanwhile
	}{
		{"unreachable", nil, func(r *http.Request, arrived bool) error {
			if arrived {
				return nil
			}
			return errors.New("no route to host")
		}, []time.Duration{5 * s, 15 * s, 45 * s, 2 * m, 5 * m, 15 * m, 30 * m, 30 * m}, "the provider cannot be reached: no route to host"},
		{"503", unavailable, nil, []time.Duration{40 * s, 40 * s, 45 * s, 2 * m, 5 * m, 15 * m, 30 * m}, "the provider failed (503)"},
		{"429 with Retry-After", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, nil, []time.Duration{h, h}, "the provider's rate limit was exceeded (429)"},
		{"20429", func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"code":20429,"message":"Too Many Requests"}`)
			return true
		}, nil, []time.Duration{5 * s, 15 * s}, "the provider's rate limit was exceeded (429)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(provider)
				p.answer(tt.answer)
				w := &wire{to: p, lose: tt.lose}
				r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = w })
				c := r.connect("sms", ourNumber)
				sent := r.reply(r.texts(c, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
				r.run()
				for i := range tt.waits {
					for len(w.times()) < i+2 {
						time.Sleep(time.Second)
					}
					got := w.times()[i+1].Sub(w.times()[i])
					// The queue polls at intervals, and a provider's pause holds for its other
					// messages, too.
					if want := tt.waits[i]; got < want || got > want+want/4+5*s {
						t.Errorf("wait %d is %s, want %s", i+1, got, want)
					}
					synctest.Wait()
					if got, want := r.message(sent).Delivery, (desk.Delivery{State: channel.ReceiptQueued, Error: tt.reason}); got != want {
						t.Errorf("after attempt %d the delivery is %+v, want %+v", i+2, got, want)
					}
				}
				p.answer(nil)
				w.loses(nil)
				time.Sleep(2 * h)
				synctest.Wait()
				if got := r.message(sent).Delivery; got.State != channel.ReceiptSent || got.Error != "" {
					t.Errorf("in the end the delivery is %+v, want it sent", got)
				}
				if n := len(p.taken()); n != 1 {
					t.Errorf("the provider took %d texts, want 1", n)
				}
			})
		})
	}
}

// TestGiveUp: a provider defers for more than two days, and another is unreachable
// for more than a week.
func TestGiveUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lose   func(r *http.Request, arrived bool) error
		within time.Duration
		reason string
	}{
		{"429", nil, 60 * time.Hour, "the provider's rate limit was exceeded (429)"},
		{"unreachable", func(*http.Request, bool) error { return io.EOF }, 9 * 24 * time.Hour, "the provider cannot be reached: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(provider)
				p.answer(func(w http.ResponseWriter, r *http.Request) bool {
					w.WriteHeader(http.StatusTooManyRequests)
					return true
				})
				r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: p, lose: tt.lose} })
				c := r.connect("sms", ourNumber)
				m := r.reply(r.texts(c, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
				r.run()
				time.Sleep(tt.within * 8 / 10)
				if got := r.message(m).Delivery.State; got != channel.ReceiptQueued {
					t.Errorf("too early it is %s", got)
				}
				time.Sleep(tt.within)
				synctest.Wait()
				if got, want := r.message(m).Delivery, (desk.Delivery{State: channel.ReceiptFailed, Error: tt.reason}); got != want {
					t.Errorf("delivery is %+v, want %+v", got, want)
				}
			})
		})
	}
}

// TestLostAnswer: after a lost response the message is found at the provider, and
// not sent again.
func TestLostAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(r *http.Request, arrived bool) error
	}{
		{"the connection broke", func(r *http.Request, arrived bool) error {
			if arrived && r.Method == http.MethodPost {
				return io.ErrUnexpectedEOF
			}
			return nil
		}},
		{"no answer came", func(r *http.Request, arrived bool) error {
			if arrived && r.Method == http.MethodPost {
				<-r.Context().Done()
				return r.Context().Err()
			}
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(provider)
				w := &wire{to: p}
				r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = w })
				c := r.connect("sms", ourNumber)
				ticket := r.texts(c, "SM1", anasPhone, "Hello?").TicketID
				// An earlier message with the same text is known.
				first := r.reply(ticket, "Hello!")
				r.run()
				time.Sleep(time.Second)
				synctest.Wait()
				w.loses(tt.lose)
				second := r.reply(ticket, "Hello!")
				third := r.reply(ticket, "Bye!")
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				want := []string{"SM00000000000000000000000000000001", "SM00000000000000000000000000000002", "SM00000000000000000000000000000003"}
				for i, m := range []desk.Message{first, second, third} {
					got := r.message(m)
					if got.Delivery != (desk.Delivery{State: channel.ReceiptSent}) || got.ExternalID != want[i] {
						t.Errorf("message %d is %+v as %s, want it sent as %s", i+1, got.Delivery, got.ExternalID, want[i])
					}
				}
				var bodies []string
				for _, m := range p.taken() {
					bodies = append(bodies, m.Body)
				}
				if want := []string{"Hello!", "Hello!", "Bye!"}; !slices.Equal(bodies, want) {
					t.Errorf("the provider took %q, want %q", bodies, want)
				}
			})
		})
	}
}

// TestOtherAccount changes the account of a connection while a text is uncertain:
// the new account's list does not have it.
func TestOtherAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		w := &wire{to: p}
		w.lose = func(r *http.Request, arrived bool) error {
			if arrived {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = w })
		c := r.connect("sms", ourNumber)
		m := r.reply(r.texts(c, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
		r.run()
		time.Sleep(time.Second)
		synctest.Wait()
		w.loses(nil)
		err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := r.connections.UpdateTx(t.Context(), tx, org, c.ID, connection.Change{Credentials: map[string]string{"account_sid": "AC2", "auth_token": "token of AC2"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, want := r.message(m).Delivery, (desk.Delivery{State: channel.ReceiptFailed, Error: unsure}); got != want || len(p.taken()) != 1 {
			t.Errorf("delivery is %+v and the provider took %d, want %+v and 1", got, len(p.taken()), want)
		}
	})
}

// TestLostRequest: the request is lost after it began; the provider does not have
// the message, so it is sent again.
func TestLostRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		lost := false
		w := &wire{to: p}
		w.lose = func(r *http.Request, arrived bool) error {
			if r.Method == http.MethodPost && !arrived && !lost {
				lost = true
				trace(r)
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = w })
		c := r.connect("sms", ourNumber)
		m := r.reply(r.texts(c, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
		r.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.message(m).Delivery.State; got != channel.ReceiptSent || len(w.times()) != 2 || len(p.taken()) != 1 {
			t.Errorf("it is %s after %d attempts, of which %d arrived; want sent, 2, 1", got, len(w.times()), len(p.taken()))
		}
	})
}

// TestOrder: a conversation's messages leave in order even if the first ones fail,
// and other conversations do not wait.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		fails := 3
		p.answer(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || r.FormValue("To") != anasPhone || fails == 0 {
				return false
			}
			fails--
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: p} })
		c := r.connect("sms", ourNumber)
		ana := r.texts(c, "SM1", anasPhone, "Hello?").TicketID
		bob := r.texts(c, "SM2", "+14155550222", "Hello?").TicketID
		for _, text := range []string{"one", "two", "three"} {
			r.reply(ana, text)
		}
		r.reply(bob, "for Bob")
		r.run()
		time.Sleep(time.Hour)
		synctest.Wait()
		var got []string
		for _, m := range p.taken() {
			got = append(got, m.Body)
		}
		if want := []string{"for Bob", "one", "two", "three"}; !slices.Equal(got, want) {
			t.Errorf("the provider took %q, want %q", got, want)
		}
	})
}

// TestDeadProvider: a connection's hundred hanging messages do not delay another's.
func TestDeadProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		w := &wire{to: p}
		w.lose = func(r *http.Request, arrived bool) error {
			if strings.Contains(r.URL.Path, "ACdead") {
				<-r.Context().Done()
				return r.Context().Err()
			}
			return nil
		}
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = w })
		dead := r.connect("sms", "+14155550199", func(n *connection.New) {
			n.Credentials = map[string]string{"account_sid": "ACdead", "auth_token": "token"}
		})
		alive := r.connect("sms", ourNumber)
		for i := range 200 {
			number := "+1415556" + string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10), '0'})
			r.reply(r.texts(dead, "SM"+number, number, "Hello?").TicketID, "Hello!")
		}
		r.run()
		time.Sleep(time.Second)
		synctest.Wait()
		m := r.reply(r.texts(alive, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := r.message(m).Delivery.State; got != channel.ReceiptSent {
			t.Errorf("after 100 ms it is %s, want sent", got)
		}
	})
}

// TestRefusedReplies: replies that can never be sent.
func TestRefusedReplies(t *testing.T) {
	r := newRig(t)
	c := r.connect("sms", ourNumber)
	bare := r.connect("sms", "+14155550101", func(n *connection.New) { n.Credentials = nil })
	ticket := r.texts(c, "SM1", anasPhone, "Hello?").TicketID
	for _, tt := range []struct {
		name string
		do   func() error
		kind problem.Kind
		text string // of the problem or its first issue
	}{
		{"too long", func() error {
			_, err := r.tryReply(ticket, strings.Repeat("ü", 1601))
			return err
		}, problem.Invalid, "must have at most 1600 characters on this channel"},
		{"a file", func() error {
			says, err := r.desk.Compose(t.Context(), "", desk.Draft{Text: "See!", Attachments: []channel.Attachment{{Name: "a.png", Data: []byte("x")}}})
			if err != nil {
				return err
			}
			_, err = r.tryReply(ticket, "", func(r *desk.Reply) { r.Content = says })
			return err
		}, problem.Invalid, "cannot be sent on this channel: carriers take pictures, audio, video, contacts and PDF, and this is application/octet-stream"},
		{"nothing", func() error {
			_, err := r.tryReply(ticket, "")
			return err
		}, problem.Invalid, "must be given"},
		{"another ticket's conversation", func() error {
			_, err := r.tryReply(ticket, "Hi", func(r *desk.Reply) { r.ConversationID = "0190c0de-0000-7000-8000-000000000000" })
			return err
		}, problem.Invalid, "must be a conversation of the ticket"},
		{"no ticket", func() error {
			_, err := r.tryReply("0190c0de-0000-7000-8000-000000000000", "Hi")
			return err
		}, problem.NotFound, "there is no such ticket"},
		{"no credentials", func() error {
			_, err := r.tryReply(r.texts(bare, "SM2", "+14155550222", "Hello?").TicketID, "Hi")
			return err
		}, problem.Precondition, "the connection of +14155550101 cannot send: its credentials need account_sid with auth_token, or with api_key and api_secret"},
		{"a name", func() error {
			res := r.intake(c, "sms", channel.Event{Message: &channel.Message{ExternalID: "SM3", ThreadKey: "BANK", From: channel.Party{ID: "BANK"}, Text: "Your code"}})
			_, err := r.tryReply(res.TicketID, "Hi")
			return err
		}, problem.Precondition, "BANK cannot be answered: it is a sender name, not a number"},
		{"opted out", func() error {
			r.intake(c, "sms", channel.Event{Message: &channel.Message{ExternalID: "SM4", ThreadKey: anasPhone, From: channel.Party{Phone: anasPhone}, Text: "STOP", OptOut: true}})
			_, err := r.tryReply(ticket, "Hi")
			return err
		}, problem.Conflict, "the customer has opted out: no more messages may be sent in this conversation"},
		{"opted in again", func() error {
			r.intake(c, "sms", channel.Event{Message: &channel.Message{ExternalID: "SM5", ThreadKey: anasPhone, From: channel.Party{Phone: anasPhone}, Text: "START", OptIn: true}})
			_, err := r.tryReply(ticket, "Hi")
			return err
		}, 0, ""},
		{"switched off", func() error {
			if err := r.connections.SetEnabled(t.Context(), org, c.ID, false); err != nil {
				return err
			}
			_, err := r.tryReply(ticket, "Hi")
			return err
		}, problem.Precondition, "the connection of " + ourNumber + " is switched off"},
	} {
		err := tt.do()
		if tt.text == "" {
			if err != nil {
				t.Errorf("%s: error %v, want none", tt.name, err)
			}
			continue
		}
		p, _ := errors.AsType[*problem.Error](err)
		got := ""
		if p != nil {
			if got = p.Message; len(p.Issues) > 0 {
				got = p.Issues[0].Message
			}
		}
		if problem.Of(err) != tt.kind || got != tt.text {
			t.Errorf("%s: error %v, want %v, %q", tt.name, err, tt.kind, tt.text)
		}
	}
}

// TestDeletedMeanwhile deletes a ticket with a queued message.
func TestDeletedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: p} })
		c := r.connect("sms", ourNumber)
		ticket := r.texts(c, "SM1", anasPhone, "Hello?").TicketID
		r.reply(ticket, "Hello!")
		r.delete(ticket)
		r.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(p.taken()); n != 0 {
			t.Errorf("the provider took %d texts, want none", n)
		}
	})
}

// TestStop: a message in flight is finished on shutdown.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		reached := make(chan struct{})
		p.answer(func(w http.ResponseWriter, r *http.Request) bool {
			close(reached)
			time.Sleep(5 * time.Second)
			return false
		})
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: p} })
		c := r.connect("sms", ourNumber)
		m := r.reply(r.texts(c, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
		if err := r.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-reached
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		r.queue.Stop(ctx)
		if got := r.message(m).Delivery.State; got != channel.ReceiptSent {
			t.Errorf("after the stop it is %s, want sent", got)
		}
	})
}
