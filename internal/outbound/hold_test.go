package outbound_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

const mayHaveLeft = "it may have arrived: it waited in the backup from which this server was restored, and may have been sent since. It is not sent again automatically"

func (r *rig) write(f func(tx *db.Tx) error) {
	r.Helper()
	if err := r.db.Write(r.Context(), f); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) holdAfterRestore() {
	r.Helper()
	r.write(func(tx *db.Tx) error { return outbound.HoldAfterRestoreTx(r.Context(), tx, "restored") })
}

func (r *rig) release() {
	r.Helper()
	r.write(func(tx *db.Tx) error { return r.queue.ReleaseOutgoingTx(r.Context(), tx) })
}

// TestRestoredReplies: of the replies that waited in a backup, only those go after the release of
// which the provider can tell, and no reply goes before. Newer ones go.
func TestRestoredReplies(t *testing.T) {
	for _, tt := range []struct {
		name, adapter string
		after         time.Duration // from the reply to the release
		forget        bool          // the operator has them sent
		state         channel.ReceiptState
		reason        string
		calls         int // of the restored reply
	}{
		{"no search", "pigeon", time.Hour, false, channel.ReceiptFailed, mayHaveLeft, 0},
		{"no search, sent by the operator's choice", "pigeon", time.Hour, true, channel.ReceiptSent, "", 1},
		{"recognized", "ringed", 30 * time.Minute, false, channel.ReceiptSent, "", 1},
		{"recognized no more", "ringed", 2 * time.Hour, false, channel.ReceiptFailed, mayHaveLeft, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := new(loft)
				r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http, r.more = l, []channel.Adapter{pigeon{}, ringed{}} })
				old := r.flown(tt.adapter, "ana", "Hello!")
				r.holdAfterRestore()
				r.run()
				newer := r.flown(tt.adapter, "bob", "Hello, Bob!")
				time.Sleep(tt.after)
				synctest.Wait()
				if calls := l.calls(); len(calls) != 0 {
					t.Fatalf("calls %q while held", calls)
				}
				if got := r.message(old).Delivery.State; got != channel.ReceiptQueued {
					t.Errorf("the reply is %s while held", got)
				}
				entries, err := r.desk.OutboxEntries(t.Context(), r.db, "", 10)
				if err != nil || len(entries) != 2 || !entries[0].Restored || entries[1].Restored || entries[0].Submitted || entries[0].Recipient != "ana" {
					t.Errorf("entries %+v, %v", entries, err)
				}
				if tt.forget {
					r.write(func(tx *db.Tx) error { return r.desk.ClearRestoredTx(t.Context(), tx) })
				}
				r.release()
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := r.message(old).Delivery; got != (desk.Delivery{State: tt.state, Error: tt.reason}) {
					t.Errorf("got %+v, want %s, %q", got, tt.state, tt.reason)
				}
				if got := r.message(newer).Delivery; got != (desk.Delivery{State: channel.ReceiptSent}) {
					t.Errorf("the newer reply: got %+v, want it sent", got)
				}
				calls := slices.DeleteFunc(l.calls(), func(c string) bool { return c == newer.ID+"|bob|Hello, Bob!|Bbob|bob" })
				if len(calls) != tt.calls {
					t.Errorf("calls %q, want %d", calls, tt.calls)
				}
			})
		})
	}
}

// TestRestoredText: a text that the provider has is not sent again, one that it has not is.
func TestRestoredText(t *testing.T) {
	p := newProvider(t)
	r := newRig(t, func(r *rig) { r.apiURL, r.scale = p.URL, 0.001 })
	c := r.connect("sms", ourNumber)
	ticket := r.texts(c, "SM1", anasPhone, "Where is the key?").TicketID
	sent := r.reply(ticket, "Under the mat.")
	unsent := r.reply(ticket, "Really.")
	// The process that made the backup sends the first afterwards.
	p.texts = append(p.texts, text{SID: "SM9", Body: "Under the mat.", To: anasPhone, From: ourNumber, at: time.Now()})
	r.holdAfterRestore()
	r.release()
	r.run()
	r.until(unsent, channel.ReceiptSent, "")
	if got := r.message(sent); got.Delivery.State != channel.ReceiptSent || got.ExternalID != "SM9" {
		t.Errorf("the first: %+v, id %q", got.Delivery, got.ExternalID)
	}
	if got := p.taken(); len(got) != 2 || got[1].Body != "Really." {
		t.Errorf("the provider has %+v", got)
	}
}

// TestRestoredMail: a mail server cannot tell, a delivery provider recognizes the mail.
func TestRestoredMail(t *testing.T) {
	p := mailtest.NewProvider(t, nil)
	r := newRig(t, byProvider(t, p))
	c := r.connect("email-raw", ourMail)
	m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
	r.holdAfterRestore()
	r.run()
	r.release()
	r.until(m, channel.ReceiptSent, "")
	if got := p.Deliveries(); len(got) != 1 || got[0].IdempotencyKey != m.ID {
		t.Errorf("sent %+v", got)
	}

	r = newRig(t)
	c = r.connect("email-raw", ourMail)
	m = r.reply(r.mails(c, question).TicketID, "Under the mat.")
	r.holdAfterRestore()
	entries, err := r.desk.OutboxEntries(t.Context(), r.db, "", 10)
	if err != nil || len(entries) != 1 || entries[0].Recipient != anasMail || entries[0].Channel != "email" {
		t.Errorf("entries %+v, %v", entries, err)
	}
	r.run()
	r.release()
	r.until(m, channel.ReceiptFailed, mayHaveLeft)
}

// TestFailWaiting: the operator has waiting replies fail, in order and with a note.
func TestFailWaiting(t *testing.T) {
	r := newRig(t)
	c := r.connect("email-raw", ourMail)
	m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
	r.write(func(tx *db.Tx) error { return queue.HoldOutgoingTx(t.Context(), tx, queue.Hold{Reason: "by hand"}) })
	r.write(func(tx *db.Tx) error { return r.desk.FailWaitingTx(t.Context(), tx, "too old", m.ID, "unknown") })
	if got := r.message(m).Delivery; got != (desk.Delivery{State: channel.ReceiptFailed, Error: "too old"}) {
		t.Errorf("got %+v", got)
	}
	if jobs, err := r.queue.OutgoingJobs(t.Context()); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
}
