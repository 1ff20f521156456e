package outbound_test

import (
	"strings"
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

func (r *rig) replyOptions(ticketID string) []desk.ReplyOption {
	r.Helper()
	replyOptions, err := r.desk.ReplyOptions(r.Context(), r.db, org, ticketID)
	if err != nil {
		r.Fatal(err)
	}
	return replyOptions
}

// TestReplyOptions: the reply options equal the results of replies.
func TestReplyOptions(t *testing.T) {
	r := newRig(t)
	sms, mailbox := r.connect("sms", ourNumber), r.connect("email-raw", ourMail)
	texted := r.texts(sms, "SM1", anasPhone, "Hello?")
	mailed := r.mails(mailbox, "From: Ana <"+anasMail+">\nTo: "+ourMail+"\nCc: Bob <bob@c.example>\nMessage-ID: <m1@c.example>\nSubject: Help\n\nHello?\n")
	only := func(what, ticketID string) desk.ReplyOption {
		t.Helper()
		replyOptions := r.replyOptions(ticketID)
		if len(replyOptions) != 1 {
			t.Fatalf("%s: got %+v, want one", what, replyOptions)
		}
		_, err := r.tryReply(ticketID, "Hi")
		p, _ := err.(*problem.Error)
		if got := replyOptions[0].Refusal; (err == nil) != (got == "") || err != nil && (p == nil || p.Message != got) {
			t.Errorf("%s: it is refused with %q, and a reply with %v", what, got, err)
		}
		return replyOptions[0]
	}
	w := only("text", texted.TicketID)
	if w.Channel != "sms" || w.ConversationID != texted.ConversationID || w.ConnectionID != sms.ID || w.From != ourNumber || w.To.Phone != anasPhone ||
		w.Refusal != "" || w.Warning != "" || !w.OpenUntil.IsZero() {
		t.Errorf("text: got %+v", w)
	}
	w = only("mail", mailed.TicketID)
	if w.Channel != "email" || w.ConnectionID != mailbox.ID || w.From != ourMail || w.To != (channel.Party{Name: "Ana", Email: anasMail}) ||
		len(w.Cc) != 1 || w.Cc[0].Email != "bob@c.example" || w.Subject != "Re: Help" || w.Refusal != "" {
		t.Errorf("mail: got %+v", w)
	}

	r.intake(sms, "sms", channel.Event{Message: &channel.Message{ExternalID: "SM2", ThreadKey: anasPhone, From: channel.Party{Phone: anasPhone}, Text: "STOP", OptOut: true}})
	if w := only("opted out", texted.TicketID); !strings.HasPrefix(w.Refusal, "the customer has opted out") {
		t.Errorf("opted out: got %+v", w)
	}
	r.intake(sms, "sms", channel.Event{Message: &channel.Message{ExternalID: "SM3", ThreadKey: anasPhone, From: channel.Party{Phone: anasPhone}, Text: "START", OptIn: true}})
	if err := r.connections.SetEnabled(t.Context(), org, sms.ID, false); err != nil {
		t.Fatal(err)
	}
	if w := only("off", texted.TicketID); w.Refusal != "the connection of "+ourNumber+" is switched off" || w.ConversationID != texted.ConversationID {
		t.Errorf("off: got %+v", w)
	}

	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := r.desk.MergeTx(t.Context(), tx, org, texted.TicketID, mailed.TicketID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]string{"survivor": mailed.TicketID, "merged": texted.TicketID} {
		replyOptions := r.replyOptions(id)
		if len(replyOptions) != 2 || replyOptions[0].Channel != "sms" || replyOptions[0].Refusal == "" || replyOptions[1].Channel != "email" || replyOptions[1].Refusal != "" {
			t.Errorf("%s: got %+v, want the later conversation first", what, replyOptions)
		}
	}
	var bare desk.Ticket
	if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		bare, err = r.desk.CreateTicketTx(t.Context(), tx, org, desk.NewTicket{Subject: "x", Customer: &desk.Person{Name: "Ana"}, By: desk.Actor{ID: graceID}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if replyOptions := r.replyOptions(bare.ID); len(replyOptions) != 1 || replyOptions[0].ConversationID != "" || replyOptions[0].Channel != desk.ChannelAPI {
		t.Errorf("nothing was said: got %+v, want a conversation that the first reply creates", replyOptions)
	}
	says, err := r.desk.Compose(t.Context(), "", desk.Draft{Text: "Hello?"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		bare, err = r.desk.CreateTicketTx(t.Context(), tx, org, desk.NewTicket{Subject: "x", Customer: &desk.Person{Name: "Ana"}, Content: says})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if w := only("by the API", bare.ID); w.Channel != desk.ChannelAPI || w.Refusal != "" || w.To.Name != "Ana" {
		t.Errorf("by the API: got %+v", w)
	}
	if _, err := r.desk.ReplyOptions(t.Context(), r.db, "0190c0de-0000-7000-8000-00000000000b", texted.TicketID); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization's: got %v", err)
	}
}

// TestWindow: a messenger's reply window counts from the customer's last message.
func TestWindow(t *testing.T) {
	for _, tt := range []struct {
		adapter string
		more    string // credential
		window  time.Duration
	}{
		{"business-messaging", "", 24 * time.Hour}, {"social-messenger", "", 24 * time.Hour}, {"social-messenger", "human_agent", 7 * 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := rigOn(t, dbtest.NewSQLite(t))
			c := r.connect(tt.adapter, "1065", func(n *connection.New) {
				n.Credentials = map[string]string{"access_token": "token"}
				if tt.more != "" {
					n.Credentials[tt.more] = "true"
				}
			})
			at := time.Now().Add(-time.Hour).UTC()
			ticket := r.intake(c, strings.ReplaceAll(tt.adapter, "-", "_"), channel.Event{Message: &channel.Message{
				ExternalID: "in-1", ThreadKey: "9001", From: channel.Party{ID: "9001", Name: "Ana"}, Text: "Hello?", SentAt: at,
			}}).TicketID
			for _, passed := range []time.Duration{0, tt.window - 2*time.Hour, 2 * time.Hour} {
				time.Sleep(passed)
				replyOptions := r.replyOptions(ticket)
				if open := time.Since(at) < tt.window; len(replyOptions) != 1 || !replyOptions[0].OpenUntil.Equal(at.Add(tt.window)) || (replyOptions[0].Refusal == "") != open {
					t.Errorf("%s %s: after %v got %+v, want it open until %v", tt.adapter, tt.more, time.Since(at), replyOptions, at.Add(tt.window))
				}
			}
		})
	}
}
