package outbound_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestOurTrouble: a moment's failure of our own, after days of waiting, is the
// first of its kind, and not the last of many.
func TestOurTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: p} })
		c := r.connect("sms", ourNumber)
		m := r.reply(r.texts(c, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
		enable := func(on bool) {
			if err := r.connections.SetEnabled(t.Context(), org, c.ID, on); err != nil {
				t.Fatal(err)
			}
		}
		enable(false)
		r.run()
		time.Sleep(3 * 24 * time.Hour)
		r.fails(errors.New("no room"))
		enable(true)
		time.Sleep(10 * time.Minute)
		r.fails(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := r.message(m).Delivery; got != (desk.Delivery{State: channel.ReceiptSent}) {
			t.Errorf("delivery is %+v, want it sent", got)
		}
	})
}

// TestOwnOutage: a database that cannot record a submission costs the mail no
// attempt, however long that lasts.
func TestOwnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(relay)
		away := &mail.Error{Op: mail.OpContent, Temporary: true, Err: problem.New(problem.Unavailable, "away")}
		server.fail = func(mail.Message, bool) error { return away }
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.mail = server })
		c := r.connect("email-raw", ourMail)
		m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
		r.run()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := r.message(m).Delivery; got != (desk.Delivery{State: channel.ReceiptQueued}) {
			t.Errorf("during the outage the delivery is %+v, want it queued without a reason", got)
		}
		server.recover()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := r.message(m).Delivery; got != (desk.Delivery{State: channel.ReceiptSent}) || len(server.received) != 1 {
			t.Errorf("afterwards the delivery is %+v and the server has %d mails, want it sent once", got, len(server.received))
		}
	})
}

// TestBarred: the recipient opts out or is deleted while a message waits.
func TestBarred(t *testing.T) {
	for _, tt := range []struct {
		name   string
		happen func(r *rig, m desk.Message, customerID string) error
		want   desk.Delivery
	}{
		{"opted out", func(r *rig, m desk.Message, _ string) error {
			r.intake(r.connection, "sms", channel.Event{Message: &channel.Message{ExternalID: "SM2", ThreadKey: anasPhone, From: channel.Party{Phone: anasPhone}, Text: "STOP", OptOut: true}})
			return nil
		}, desk.Delivery{State: channel.ReceiptFailed, Error: "the customer has opted out: no more messages may be sent in this conversation"}},
		{"split off, then opted out", func(r *rig, m desk.Message, _ string) error {
			if err := r.split(m); err != nil {
				return err
			}
			r.intake(r.connection, "sms", channel.Event{Message: &channel.Message{ExternalID: "SM2", ThreadKey: anasPhone, From: channel.Party{Phone: anasPhone}, Text: "STOP", OptOut: true}})
			return nil
		}, desk.Delivery{State: channel.ReceiptFailed, Error: "the customer has opted out: no more messages may be sent in this conversation"}},
		{"split off", func(r *rig, m desk.Message, _ string) error { return r.split(m) }, desk.Delivery{State: channel.ReceiptSent}},
		{"deleted", func(r *rig, _ desk.Message, customerID string) error {
			return r.db.Write(r.Context(), func(tx *db.Tx) error { return r.desk.DeleteCustomerTx(r.Context(), tx, org, customerID) })
		}, desk.Delivery{State: channel.ReceiptFailed, Error: "the customer was deleted, so there is no address to send to"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(provider)
				r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: p} })
				c := r.connect("sms", ourNumber)
				r.connection = c
				in := r.texts(c, "SM1", anasPhone, "Hello?")
				m := r.reply(in.TicketID, "Hello!")
				if err := tt.happen(r, m, in.CustomerID); err != nil {
					t.Fatal(err)
				}
				r.run()
				time.Sleep(time.Minute)
				synctest.Wait()
				texts := 0
				if tt.want.State == channel.ReceiptSent {
					texts = 1
				}
				var state, reason string
				if err := r.db.QueryRow(t.Context(), "SELECT delivery_state, coalesce(delivery_error, '') FROM messages WHERE id = $1", m.ID).Scan(&state, &reason); err != nil {
					t.Fatal(err)
				}
				if got := (desk.Delivery{State: channel.ReceiptState(state), Error: reason}); got != tt.want || len(p.taken()) != texts {
					t.Errorf("delivery is %+v, and the provider took %d; want %+v, %d", got, len(p.taken()), tt.want, texts)
				}
			})
		})
	}
}

// TestOptedOutThread: a reply in a conversation split off a thread with an opt-out.
func TestOptedOutThread(t *testing.T) {
	r := newRig(t)
	c := r.connect("sms", ourNumber)
	r.connection = c
	ticket := r.texts(c, "SM1", anasPhone, "Hello?").TicketID
	m := r.reply(ticket, "Hello!")
	if err := r.split(m); err != nil {
		t.Fatal(err)
	}
	split := r.ticketOf(m)
	word := func(sid, text string, out bool) {
		r.intake(c, "sms", channel.Event{Message: &channel.Message{
			ExternalID: sid, ThreadKey: anasPhone, From: channel.Party{Phone: anasPhone}, Text: text, OptOut: out, OptIn: !out,
		}})
	}
	for _, tt := range []struct {
		sid, text string
		out       bool
	}{{"SM2", "STOP", true}, {"SM3", "START", false}} {
		word(tt.sid, tt.text, tt.out)
		if _, err := r.tryReply(split, "Still there?"); (err != nil) != tt.out {
			t.Errorf("a reply after %s: error %v", tt.text, err)
		}
	}
}

// TestSlowProvider: a process dies while the provider processes a message: it is
// not sent again before the provider can have finished.
func TestSlowProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: p} })
		c := r.connect("sms", ourNumber)
		m := r.reply(r.texts(c, "SM1", anasPhone, "Hello?").TicketID, "Hello!")
		r.crashDuringSubmission(m, "call https://api.twilio.com/2010-04-01/Accounts/AC1/Messages.json")
		time.AfterFunc(25*time.Second, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.texts = append(p.texts, text{SID: "SMslow", Body: "Hello!", To: anasPhone, From: ourNumber, at: time.Now()})
		})
		r.run()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := r.message(m); got.Delivery.State != channel.ReceiptSent || got.ExternalID != "SMslow" || len(p.taken()) != 1 {
			t.Errorf("it is %s as %s, and the provider has %d; want it sent as SMslow, 1", got.Delivery.State, got.ExternalID, len(p.taken()))
		}
	})
}
