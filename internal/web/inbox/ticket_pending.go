package inbox

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// undoTime returns how long a member's replies can be undone.
func undoTime(r *web.Request) time.Duration {
	return time.Duration(r.Preferences.UndoSend) * time.Second
}

// moment is an offered time.
type moment struct {
	Value string // of the form; see readMoment
	Label string
}

// laterMoments offers times for a reply.
func laterMoments(r *web.Request) []moment {
	return append([]moment{newMoment(r, r.Now.Add(time.Hour), "In an hour")}, mornings(r)...)
}

// snoozeMoments offers times for a ticket.
func snoozeMoments(r *web.Request) []moment {
	list := append([]moment{newMoment(r, r.Now.Add(3*time.Hour), "In 3 hours")}, mornings(r)...)
	return append(list, newMoment(r, morning(r.Now, 7), "In a week"), moment{untilReply, "Until the customer answers"})
}

func newMoment(r *web.Request, at time.Time, label string) moment {
	return moment{web.DateTimeLocal(at), label + ", " + at.Format("Mon ") + r.Time(at).Clock()}
}

// mornings are tomorrow's and next Monday's.
func mornings(r *web.Request) []moment {
	list := []moment{newMoment(r, morning(r.Now, 1), "Tomorrow")}
	if days := (int(time.Monday) - int(r.Now.Weekday()) + 7) % 7; days > 1 {
		list = append(list, newMoment(r, morning(r.Now, days), "On Monday"))
	}
	return list
}

// morning returns 9:00 of a day ahead, in the reader's zone.
func morning(now time.Time, days int) time.Time {
	y, m, d := now.Date()
	return time.Date(y, m, d+days, 9, 0, 0, 0, now.Location())
}

// untilReply is the value of a snooze until the customer's answer; ownMoment that of a time in the
// field "own".
const (
	untilReply = "reply"
	ownMoment  = "own"
)

// readMoment returns the time that a form selects in "at", or in "own", in the reader's zone; zero:
// none. Error: Invalid.
func readMoment(r *web.Request, form url.Values) (time.Time, error) {
	text := form.Get("at")
	if text == ownMoment {
		text = form.Get(ownMoment)
	} else if text == "" {
		return time.Time{}, nil
	}
	at, err := time.ParseInLocation("2006-01-02T15:04", text, r.Now.Location())
	if err != nil { // of an undo
		at, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return time.Time{}, problem.New(problem.Invalid, "choose a date and a time")
	}
	return at, nil
}

// replyNotice returns the notice of a reply, with its undo while it has not left.
func replyNotice(r *web.Request, t *desk.Ticket, m *desk.Message) web.Notice {
	n := web.Notice{Text: "Reply sent."}
	switch m.Delivery.State {
	case "":
		n.Text = "Reply saved. The API integration delivers it."
	case desk.DeliveryScheduled:
		n.Text = "Reply scheduled for " + r.Time(m.SendAt).When() + "."
	}
	if !m.SendAt.IsZero() {
		n.Undo, n.Fields = ticketPath(t.Number)+"/pending/"+m.ID+listQuery(r), map[string]string{"do": "undo"}
	}
	return n
}

// changePending undoes a reply that has not left, or sends it at once. Undoing restores its text
// as the user's draft, and the fields of the ticket that were set with it.
func (p *pages) changePending(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	n := web.Notice{Text: "Reply sent."}
	if form.Get("do") == "now" {
		err = p.DB.Write(r.Context(), func(tx *db.Tx) error { return p.Desk.SendNowTx(r.Context(), tx, r.OrganizationID, id) })
	} else {
		n.Text = "Nothing was sent. The text is in the reply field."
		err = p.DB.Write(r.Context(), func(tx *db.Tx) error { return p.undoReply(r.Context(), tx, r, &t, id, &n) })
		if err == nil {
			err = p.undoChanges(r, form, &n)
		}
	}
	if e, ok := submitError(err); ok {
		n, err = web.Notice{Text: "Undo failed. " + asSentence(e.Message), Bad: true}, nil
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, ticketPath(t.Number)+listQuery(r), n)
}

// undoReply deletes a reply that has not left, and restores its text as the user's draft.
func (p *pages) undoReply(ctx context.Context, tx *db.Tx, r *web.Request, t *desk.Ticket, id string, n *web.Notice) error {
	m, err := p.Desk.CancelReplyTx(ctx, tx, r.OrganizationID, id)
	if err != nil {
		return err
	}
	if m.TicketID != t.ID { // merged meanwhile
		if *t, err = p.Desk.Ticket(ctx, tx, r.OrganizationID, m.TicketID); err != nil {
			return err
		}
	}
	drafts, err := p.Desk.SavedDrafts(ctx, tx, r.OrganizationID, r.UserID, t.ID)
	if err != nil {
		return err
	}
	d := desk.SavedDraft{TicketID: t.ID, UserID: r.UserID, Kind: desk.KindReply, ConversationID: m.ConversationID, Text: m.Text}
	if later := drafts[desk.KindReply].Text; strings.TrimSpace(later) != "" {
		both := d
		if both.Text += "\n\n" + later; problem.Check(both) == nil {
			d = both
		}
	}
	if err := p.Desk.SaveDraftTx(ctx, tx, r.OrganizationID, d); err != nil {
		return err
	}
	if len(m.Attachments) > 0 {
		n.Text += " Attach the files again."
	}
	if len(m.Cc)+len(m.Drop)+len(m.Bcc) > 0 {
		n.Text += " Enter Cc and Bcc again."
	}
	if m.To != "" {
		n.Text += " Select the recipient again."
	}
	return nil
}

// undoChanges undoes the changes that were made with a reply, except those that have been changed
// since. A refusal is part of the notice: the reply is undone all the same.
func (p *pages) undoChanges(r *web.Request, form url.Values, n *web.Notice) error {
	err := p.inTransaction(r, func(ctx context.Context, tx *db.Tx, t desk.Ticket) error {
		u, changes := revert(&t, form)
		if !changes {
			return nil
		}
		var err error
		if u.Snooze, err = readSnooze(r, form); err != nil {
			return err
		}
		_, err = p.Desk.UpdateTx(ctx, tx, r.OrganizationID, t.ID, u)
		return err
	})
	if e, ok := submitError(err); ok {
		n.Text += " The ticket’s changes were not undone: " + asSentence(e.Message)
		return nil
	}
	return err
}

// addSnooze adds the snooze of a ticket before a change to the fields that undo the change.
func addSnooze(fields map[string]string, before *desk.Ticket) {
	switch s := before.Snoozed(); {
	case s.UntilReply:
		fields["at"] = untilReply
	case !s.Until.IsZero():
		fields["at"] = s.Until.UTC().Format(time.RFC3339)
	}
}

// snoozeText describes when a ticket opens by itself; empty: it does not.
func snoozeText(r *web.Request, s desk.Snooze) string {
	switch {
	case s.UntilReply:
		return "Until the customer answers"
	case s.Until.IsZero():
		return ""
	}
	return "Until " + r.Time(s.Until).When()
}
