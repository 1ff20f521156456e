package inbox_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestUndoSend checks that a reply can be undone before it leaves, with its status, and that its
// text is the draft again.
func TestUndoSend(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	h.Prefer(h.Agent, "{}")
	d, notice := b.Follow(b.Post("/tickets/1/write", reply("reply", "Wrong price", "do", "resolved")))
	if !strings.HasPrefix(notice, "Reply sent. Status set to resolved now.") {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Leaves in a few seconds", "Wrong price")
	if n := len(h.messages(r.TicketID)); n != 1 || h.ticket(1).Status != desk.StatusResolved {
		t.Errorf("there are %d messages, and the ticket is %s", n, h.ticket(1).Status)
	}
	d, notice = undo(t, b, d)
	if !strings.HasPrefix(notice, "Nothing was sent. The text is in the reply field.") {
		t.Errorf("got notice %q", notice)
	}
	if d.Want("Wrong price"); h.ticket(1).Status != desk.StatusOpen {
		t.Errorf("after the undoing the ticket is %s", h.ticket(1).Status)
	}
	if text := webtest.Text(d.Field("reply")); strings.TrimSpace(text) != "Wrong price" {
		t.Errorf("the reply field has %q", text)
	}
}

// TestUndoCopies checks that the notice of an undone reply names the copies, which the draft does not
// have.
func TestUndoCopies(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@example.com", "m1")
	b := h.SignIn(h.Agent)
	h.Prefer(h.Agent, "{}")
	for bcc, want := range map[string]bool{"": false, `"Doe, John" <john@example.com>`: true} {
		d, _ := b.Follow(b.Post("/tickets/1/write", reply("reply", "Wrong price", "conversation", r.ConversationID, "bcc."+r.ConversationID, bcc)))
		if _, notice := undo(t, b, d); strings.Contains(notice, "Enter Cc and Bcc again.") != want {
			t.Errorf("with blind copies to %q the notice is %q", bcc, notice)
		}
	}
}

// TestSendLater checks that a reply is scheduled in the reader's time zone, and can be sent at
// once.
func TestSendLater(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	tomorrow := time.Now().UTC().AddDate(0, 0, 1)
	d, notice := b.Follow(b.Post("/tickets/1/write", reply("reply", "Good morning", "do", "", "at", tomorrow.Format("2006-01-02T15:04"))))
	if !strings.HasPrefix(notice, "Reply scheduled for "+tomorrow.Format("2 Jan 2006, 15:04")+".") {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Leaves on "+tomorrow.Format("2 Jan 2006, 15:04"), "Send now")
	pending, err := h.desk.PendingReplies(t.Context(), h.DB, h.Organization.ID, r.TicketID)
	if err != nil || len(pending) != 1 || !pending[0].SendAt.Equal(tomorrow.Truncate(time.Minute)) {
		t.Fatalf("pending: %v, %v", pending, err)
	}
	if _, notice := b.Follow(b.Post("/tickets/1/pending/"+pending[0].ID, url.Values{"do": {"now"}})); notice != "Reply sent." {
		t.Errorf("got notice %q", notice)
	}
	for _, at := range []string{"2026-01-01T00:00", "yesterday"} {
		b.WantRefused(b.Post("/tickets/1/write", reply("reply", "Too late", "do", "", "at", "own", "own", at)), 422).Want("Too late", "Nothing was sent")
	}
}

// TestSendNext checks that "Send, resolve, next" leads to the ticket below.
func TestSendNext(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "One")
	h.text("+14155550112", "SM2", "Two")
	b := h.SignIn(h.Agent)
	for number, want := range map[string]string{"2": "/tickets/1"} {
		w := b.Post("/tickets/"+number+"/write?in=unassigned", reply("reply", "Done", "do", "next"))
		if got, _, _ := strings.Cut(w.Header().Get("Location"), "?"); got != want {
			t.Errorf("after ticket %s comes %s, want %s", number, got, want)
		}
	}
	if s := h.ticket(2).Status; s != desk.StatusResolved {
		t.Errorf("the ticket is %s", s)
	}
	if w := b.Post("/tickets/1/write", reply("note", "Done", "do", "next")); !strings.HasPrefix(w.Header().Get("Location"), "/inbox") {
		t.Errorf("after the last ticket comes %s", w.Header().Get("Location"))
	}
}

// TestSnoozePage checks the snooze of a ticket, and its undo.
func TestSnoozePage(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	b := h.SignIn(h.Agent)
	at := time.Now().UTC().Add(3 * time.Hour)
	d, _ := b.Follow(b.Post("/tickets/1/properties", url.Values{"at": {at.Format("2006-01-02T15:04")}}))
	d.Want("Until " + at.Format("2 Jan 2006, 15:04"))
	if got := h.ticket(1); got.Status != desk.StatusOnHold {
		t.Errorf("the ticket is %s", got.Status)
	}
	undo(t, b, d)
	if got := h.ticket(1); got.Status != desk.StatusOpen || !got.Snoozed().IsZero() {
		t.Errorf("after the undoing it is %s, snoozed %v", got.Status, got.Snoozed())
	}
	d, _ = b.Follow(b.Post("/tickets/1/properties", url.Values{"at": {"reply"}}))
	d.Want("Until the customer answers")
	if _, notice := b.Follow(b.Post("/tickets/1/properties", url.Values{"at": {"2026-01-01T00:00"}})); notice != "Not snoozed. The time must be in the future." {
		t.Errorf("got notice %q", notice)
	}
}
