package desk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

const linusID = "0190c0de-0000-7000-8000-0000000000d3"

// team is a directory of Grace and Linus in orgA, with their preferences.
type team struct {
	staff
	preferences map[string]string
	left        map[string]bool
}

func (d *team) Agent(ctx context.Context, q db.Querier, org, id string) (event.Person, bool, error) {
	list, _ := d.Agents(ctx, q, org)
	i := slices.IndexFunc(list, func(p event.Person) bool { return p.ID == id })
	if i < 0 {
		return event.Person{}, false, nil
	}
	return list[i], true, nil
}

func (d *team) AgentByEmail(ctx context.Context, q db.Querier, org, email string) (event.Person, bool, error) {
	list, _ := d.Agents(ctx, q, org)
	i := slices.IndexFunc(list, func(p event.Person) bool { return strings.EqualFold(p.Email, email) })
	if i < 0 {
		return event.Person{}, false, nil
	}
	return list[i], true, nil
}

func (d *team) Agents(_ context.Context, _ db.Querier, org string) (list []event.Person, err error) {
	for _, p := range []event.Person{{ID: graceID, Name: "Grace", Email: "grace@a.example"}, {ID: linusID, Name: "Linus Berg", Email: "l.berg@a.example"}} {
		if org == orgA && !d.left[p.ID] {
			list = append(list, p)
		}
	}
	return list, nil
}

func (d *team) Preferences(ctx context.Context, q db.Querier, org string, ids []string) (map[string]json.RawMessage, error) {
	found := make(map[string]json.RawMessage)
	list, _ := d.Agents(ctx, q, org)
	for _, p := range list {
		if slices.Contains(ids, p.ID) {
			found[p.ID] = json.RawMessage("{" + d.preferences[p.ID] + "}")
		}
	}
	return found, nil
}

// mailRoute sends from the address of the organization, or refuses.
type mailRoute struct{ refuses bool }

func (r *mailRoute) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	if r.refuses {
		return "", problem.New(problem.Precondition, "nothing leaves today")
	}
	m.From, m.MessageID = "support@a.example", m.ID+"@a.example"
	return connectionID, nil
}

// noticing is a configuration with a team and a mailer.
func noticing(d *team, mailer *mailRecorder, route *mailRoute) func(*desk.Config) {
	return func(c *desk.Config) {
		c.Directory, c.Mailer, c.Dispatcher, c.Box = d, mailer, route, seal.New(seal.NewKey())
	}
}

// notices lists the notices of a member, the oldest first; unread ones have an asterisk.
func (f *fixture) notices(userID string) string {
	f.Helper()
	list, err := f.desk.Notices(f.Context(), f.db, orgA, userID)
	if err != nil {
		f.Fatal(err)
	}
	unread, err := f.desk.UnreadNotices(f.Context(), f.db, orgA, userID)
	if err != nil {
		f.Fatal(err)
	}
	var out []string
	for _, n := range slices.Backward(list) {
		s := fmt.Sprintf("%d %s", n.TicketNumber, n.Kind)
		if n.SeenAt.IsZero() {
			s, unread = s+"*", unread-1
		}
		out = append(out, s)
	}
	if unread != 0 {
		f.Errorf("the count differs from the list by %d", unread)
	}
	return strings.Join(out, ", ")
}

func (f *fixture) followers(ticketID string) (names string) {
	f.Helper()
	list, err := f.desk.Followers(f.Context(), f.db, orgA, ticketID)
	if err != nil {
		f.Fatal(err)
	}
	for _, f := range list {
		names += map[string]string{graceID: "G", linusID: "L"}[f.UserID]
	}
	if names == "LG" {
		return "GL"
	}
	return names
}

// assign assigns a ticket as a member.
func (f *fixture) assign(ticketID, by, to string) {
	f.Helper()
	f.by(audit.Source{Actor: audit.Actor{Type: audit.User, ID: by}}, func(ctx context.Context, tx *db.Tx) error {
		_, err := f.desk.UpdateTx(ctx, tx, orgA, ticketID, desk.Update{AssigneeID: &to})
		return err
	})
}

func (f *fixture) readNotices(userID, ticketID string) {
	f.Helper()
	if err := f.db.Write(f.Context(), func(tx *db.Tx) error { return f.desk.MarkNoticesSeenTx(f.Context(), tx, orgA, userID, ticketID) }); err != nil {
		f.Fatal(err)
	}
}

func TestNotices(t *testing.T) {
	d := &team{preferences: map[string]string{linusID: `"theme":"dark","notices":{"mentioned":"none","unknown":7}`}}
	f := newFixture(t, noticing(d, new(mailRecorder), new(mailRoute)))
	id := f.intake(mail("ana@c.example", "m1@c.example")).TicketID
	if got := f.notices(graceID) + f.followers(id); got != "" {
		t.Errorf("a new ticket: %s", got)
	}
	f.assign(id, graceID, graceID)
	if got := f.notices(graceID) + " " + f.followers(id); got != " G" {
		t.Errorf("of one's own act: %q", got)
	}
	f.assign(id, graceID, linusID)
	f.assign(id, linusID, graceID)
	if got := f.notices(graceID) + ", " + f.notices(linusID); got != "1 assigned*, 1 assigned*" {
		t.Errorf("assigned by each other: %s", got)
	}
	f.note(orgA, id, desk.Actor{ID: linusID, Name: "Linus Berg"}, desk.Draft{Text: "What does @grace think, and @Linus?"})
	f.note(orgA, id, grace, desk.Draft{Text: "@Linus Berg knows."})
	if got := f.notices(graceID) + ", " + f.notices(linusID); got != "1 assigned*, 1 mentioned*, 1 assigned*" {
		t.Errorf("mentioned; Linus wants none: %s", got)
	}
	if m := f.last(id); !slices.Equal(m.Details.Mentions, []string{linusID}) {
		t.Errorf("the note mentions %v", m.Details.Mentions)
	}
	f.readNotices(linusID, id)
	next := mail("ana@c.example", "m2@c.example")
	next.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	f.intake(next)
	f.intake(next) // repeated
	if got := f.notices(graceID) + ", " + f.notices(linusID); got != "1 assigned*, 1 mentioned*, 1 answered*, 1 assigned, 1 answered*" {
		t.Errorf("answered: %s", got)
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnfollowTx(t.Context(), tx, orgA, id, linusID) }); err != nil {
		t.Fatal(err)
	}
	third := mail("ana@c.example", "m3@c.example")
	third.Event.Message.Mail.InReplyTo = []string{"m1@c.example"}
	f.intake(third)
	if got := f.notices(linusID); got != "1 assigned, 1 answered*" {
		t.Errorf("unfollowed: %s", got)
	}
	w := f.waiting(f.reply(id, "hello?").ID)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		return f.desk.RecordFailureTx(t.Context(), tx, &w, channel.SendResult{Verdict: channel.VerdictRefused, Reason: "no"})
	}); err != nil {
		t.Fatal(err)
	}
	if got := f.notices(graceID); !strings.HasSuffix(got, ", 1 delivery_failed*") || strings.Count(got, "failed") != 1 {
		t.Errorf("author and assignee in one: %s", got)
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnassignTx(t.Context(), tx, orgA, graceID) }); err != nil {
		t.Fatal(err)
	}
	if got := f.notices(graceID) + f.followers(id); got != "" {
		t.Errorf("of a member who has left: %s", got)
	}
	f.delete(id)
	if f.count("notices")+f.count("ticket_followers") != 0 {
		t.Error("rows of a deleted ticket")
	}
}

// TestNoticesAreBounded: the oldest notices of a member go.
func TestNoticesAreBounded(t *testing.T) {
	f := newFixture(t, noticing(&team{}, new(mailRecorder), new(mailRoute)))
	id := f.intake(mail("ana@c.example", "m1@c.example")).TicketID
	f.assign(id, graceID, linusID)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		for range 210 {
			if _, err := f.desk.AddNoteTx(t.Context(), tx, orgA, id, desk.Actor{ID: linusID}, f.compose(desk.Draft{Text: "@grace", Note: true})); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(f.notices(graceID), "mentioned"); n != 200 || f.notices(linusID) != "1 assigned*" {
		t.Errorf("%d notices, want 200", n)
	}
}

func TestNoticeOfSLA(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		f.setPolicy(desk.SLAPolicy{OrganizationID: orgA, Priority: desk.PriorityNormal, FirstResponseMinutes: 60})
		id := f.intake(mail("ana@c.example", "m1@c.example")).TicketID
		f.assign(id, linusID, graceID)
		pass(2 * time.Hour)
		if got := f.notices(graceID); got != "1 assigned*, 1 sla_warning*" {
			t.Errorf("got %s", got)
		}
	}, noticing(&team{}, new(mailRecorder), new(mailRoute)))
}

// TestNoticeMail: notices of a minute are one mail, which can be answered if it is about one ticket.
func TestNoticeMail(t *testing.T) {
	mailer := new(mailRecorder)
	onClock(t, func(t *testing.T, f *fixture) {
		id := f.intake(mail("ana@c.example", "m1@c.example")).TicketID
		f.assign(id, linusID, graceID)
		pass(30 * time.Second)
		f.note(orgA, id, desk.Actor{ID: linusID, Name: "Linus Berg"}, desk.Draft{Text: "@Grace, can you?"})
		if len(mailer.sent) != 0 {
			t.Fatal("a mail at once")
		}
		pass(5 * time.Minute)
		if len(mailer.sent) != 1 {
			t.Fatalf("%d mails, want 1", len(mailer.sent))
		}
		m := mailer.sent[0]
		if m.To[0].Address != "grace@a.example" || m.ReplyTo.Address != "support@a.example" || !strings.HasPrefix(m.MessageID, "n."+id+"."+graceID+".") {
			t.Errorf("to %v, answers to %v, id %s", m.To, m.ReplyTo, m.MessageID)
		}
		for _, want := range []string{"assigned to you", "Linus Berg mentions you", "@Grace, can you?", "https://desk.example/tickets/1", "goes to the customer"} {
			if !strings.Contains(m.Text, want) {
				t.Errorf("the mail has no %q:\n%s", want, m.Text)
			}
		}

		other := f.intake(mail("bo@c.example", "m2@c.example")).TicketID
		f.assign(other, linusID, graceID)
		f.note(orgA, id, desk.Actor{ID: linusID, Name: "Linus Berg"}, desk.Draft{Text: "@Grace?"})
		pass(5 * time.Minute)
		if len(mailer.sent) != 2 || mailer.sent[1].ReplyTo.Address != "" || strings.Contains(mailer.sent[1].Text, "above this line") ||
			!strings.Contains(mailer.sent[1].Text, "Ticket #2") || !strings.Contains(mailer.sent[1].Text, "Ticket #1") {
			t.Errorf("%d mails, the last %+v", len(mailer.sent), mailer.sent[len(mailer.sent)-1])
		}

		// Read before the mail leaves.
		f.note(orgA, id, desk.Actor{ID: linusID}, desk.Draft{Text: "@Grace!"})
		f.readNotices(graceID, id)
		pass(5 * time.Minute)
		if len(mailer.sent) != 2 {
			t.Error("a mail about what has been read")
		}
	}, noticing(&team{}, mailer, new(mailRoute)))
}

// TestAnswerToNotice: an answer of a notice's member becomes their reply once; a forged one never.
func TestAnswerToNotice(t *testing.T) {
	d, mailer, route := &team{left: map[string]bool{}}, new(mailRecorder), new(mailRoute)
	onClock(t, func(t *testing.T, f *fixture) {
		id := f.intake(mail("ana@c.example", "m1@c.example")).TicketID
		f.assign(id, linusID, graceID)
		pass(5 * time.Minute)
		signed := mailer.sent[0].MessageID
		serial := 0
		answer := func(edit func(m *channel.Message)) desk.InboundEvent {
			serial++
			in := mail("grace@a.example", fmt.Sprintf("answer-%d@a.example", serial))
			m := in.Event.Message
			m.Text = "We come at noon.\n\nKickstand wrote:\n" + mailer.sent[0].Text
			m.Stripped, m.Mail.InReplyTo = m.Text, []string{signed}
			proven(m)
			edit(m)
			return in
		}
		at := strings.IndexByte(signed, '@') - 1
		digit := "0"
		if signed[at] == '0' {
			digit = "1"
		}
		forged := signed[:at] + digit + signed[at+1:]
		for name, edit := range map[string]func(m *channel.Message){
			"unsigned":             func(m *channel.Message) { m.Mail.InReplyTo[0] = forged },
			"of another ticket":    func(m *channel.Message) { m.Mail.InReplyTo[0] = strings.Replace(signed, id, linusID, 1) },
			"of another member":    func(m *channel.Message) { m.Mail.InReplyTo[0] = strings.Replace(signed, graceID, linusID, 1) },
			"by a stranger":        func(m *channel.Message) { m.From.Email, m.Mail.Sender.Email = "eve@evil.example", "eve@evil.example" },
			"by a colleague":       func(m *channel.Message) { m.From.Email, m.Mail.Sender.Email = "l.berg@a.example", "l.berg@a.example" },
			"by the customer":      func(m *channel.Message) { m.From.Email, m.Mail.Sender.Email = "ana@c.example", "ana@c.example" },
			"unproven":             func(m *channel.Message) { m.Mail.Proof = mailauth.Result{Verdict: mailauth.Unproven} },
			"disowned":             func(m *channel.Message) { m.Mail.Proof = mailauth.Result{Verdict: mailauth.Failed} },
			"with another id":      func(m *channel.Message) { proven(m, "in-reply-to") },
			"again as another one": func(m *channel.Message) { proven(m, "message-id") },
			"automatic":            func(m *channel.Message) { m.Mail.Class = channel.ClassAutoReply },
		} {
			r := f.intake(answer(edit))
			if n := len(f.messages(id)); n != 1 || r.TicketID == id {
				t.Errorf("%s: %+v, %d messages", name, r, n)
			}
		}
		// In another organization the id means nothing.
		foreign := answer(func(m *channel.Message) {})
		foreign.OrganizationID, foreign.ConnectionID = orgB, mailB
		f.intake(foreign)
		if n := len(f.messages(id)); n != 1 {
			t.Fatalf("by another organization: %d messages", n)
		}

		good := answer(func(m *channel.Message) { m.Mail.InReplyTo = nil; m.Mail.References = []string{"x@y", signed} })
		r := f.intake(good)
		m := f.last(id)
		if r.Outcome != desk.Appended || r.TicketID != id || m.Kind != desk.KindReply || m.Direction != desk.DirectionOutbound ||
			m.Author.ID != graceID || m.Text != "We come at noon.\n\nKickstand wrote:" || m.Delivery.State != channel.ReceiptQueued || m.Details.To[0].Email != "ana@c.example" {
			t.Fatalf("%+v\n%+v", r, m)
		}
		if f.ticket(id).FirstRespondedAt.IsZero() {
			t.Error("it is no response")
		}
		for range 2 {
			if r := f.intake(good); r.Outcome != desk.Duplicate || len(f.messages(id)) != 2 {
				t.Fatalf("repeated: %+v", r)
			}
		}

		route.refuses = true
		refused := answer(func(m *channel.Message) {})
		for range 2 {
			f.intake(refused)
		}
		if m := f.last(id); len(f.messages(id)) != 3 || m.Kind != desk.KindNote || m.Author.ID != graceID ||
			!strings.HasPrefix(m.Text, "This answer was not sent to the customer: nothing leaves today.\n\nWe come at noon.") {
			t.Errorf("not sendable: %+v", m)
		}
		route.refuses = false
		d.left[graceID] = true
		if r := f.intake(answer(func(m *channel.Message) {})); r.TicketID == id {
			t.Errorf("of a member who has left: %+v", r)
		}
		d.left[graceID] = false
		f.delete(id)
		if r := f.intake(answer(func(m *channel.Message) {})); r.Outcome != desk.TicketCreated {
			t.Errorf("of a deleted ticket: %+v", r)
		}
	}, noticing(d, mailer, route))
}

func TestNoticeChoices(t *testing.T) {
	old := json.RawMessage(`{"theme":"dark","notices":{"answered":"mail","odd":[1]}}`)
	got, err := desk.SetNoticeChoices(old, desk.NoticeChoices{desk.NoticeSLA: desk.NoticeNever}, nil)
	if err != nil || string(got) != `{"notices":{"answered":"mail","odd":[1],"sla_warning":"none"},"theme":"dark"}` {
		t.Errorf("got %s, %v", got, err)
	}
	c := desk.NoticeChoicesIn(got)
	for kind, want := range map[desk.NoticeKind]desk.NoticeWay{
		desk.NoticeAnswered: desk.NoticeByMail, desk.NoticeSLA: desk.NoticeNever, desk.NoticeAssigned: desk.NoticeByBoth,
	} {
		if c.Way(kind) != want {
			t.Errorf("%s: %s, want %s", kind, c.Way(kind), want)
		}
	}
	for _, bad := range []string{"", "{}", `{"notices":null}`, `{"notices":3}`, `{"notices":{"answered":"loud"}}`} {
		if got := desk.NoticeChoicesIn(json.RawMessage(bad)).Way(desk.NoticeAnswered); got != desk.NoticeInPage {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

// TestFollowBesideDeletion: a member who follows a ticket while it is deleted leaves no row.
func TestFollowBesideDeletion(t *testing.T) {
	f := newFixture(t)
	for i, change := range []func(tx *db.Tx, id string) error{
		func(tx *db.Tx, id string) error { return f.desk.FollowTx(t.Context(), tx, orgA, id, graceID) },
		func(tx *db.Tx, id string) error { return f.desk.MarkReadTx(t.Context(), tx, orgA, graceID, id) },
		func(tx *db.Tx, id string) error {
			return f.desk.SaveDraftTx(t.Context(), tx, orgA, desk.SavedDraft{TicketID: id, UserID: graceID, Kind: desk.KindNote, Text: "draft"})
		},
	} {
		id := f.intake(text(fmt.Sprintf("+491511234567%d", i), "hello")).TicketID
		deleted := make(chan error, 1)
		err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			if err := change(tx, id); err != nil {
				return err
			}
			go func() { deleted <- f.tryDelete(orgA, id) }()
			for f.db.Postgres() { // until the deletion waits for this transaction, or has missed it
				select {
				case err := <-deleted:
					deleted <- err
					return nil
				default:
				}
				var waiting bool
				if err := f.db.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting); err != nil || waiting {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, <-deleted); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"ticket_followers", "ticket_reads", "ticket_drafts"} {
		if n := f.count(table); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
}

func TestPushChoices(t *testing.T) {
	old := json.RawMessage(`{"notices":{"answered":"none","sla_warning":"none"},"notice_push":{"sla_warning":true,"mentioned":false,"assigned":"yes"}}`)
	pushes := func(preferences json.RawMessage) (kinds []desk.NoticeKind) {
		for _, kind := range desk.NoticeKinds {
			if desk.PushChoicesIn(preferences).Pushes(kind, desk.NoticeChoicesIn(preferences)) {
				kinds = append(kinds, kind)
			}
		}
		return kinds
	}
	if got := fmt.Sprint(pushes(old)); got != "[assigned sla_warning delivery_failed fleet_alert]" {
		t.Errorf("pushed are %s", got)
	}
	changed, err := desk.SetNoticeChoices(old, nil, desk.PushChoices{desk.NoticeAssigned: false, desk.NoticeAnswered: true})
	if got := fmt.Sprint(pushes(changed)); err != nil || got != "[answered sla_warning delivery_failed fleet_alert]" {
		t.Errorf("pushed are then %s, %v", got, err)
	}
	if err := problem.Check(desk.PushChoices{"noise": true}); problem.Of(err) != problem.Invalid {
		t.Errorf("an unknown kind: %v", err)
	}
}

// pushRecorder records pushed notices, "USER ID".
type pushRecorder struct{ sent []string }

func (r *pushRecorder) NotifyTx(_ context.Context, _ *db.Tx, _, userID, noticeID string) error {
	r.sent = append(r.sent, userID+" "+noticeID)
	return nil
}

// TestPushedNotices: notices are pushed by the choices of their members, also those that the page
// does not show, until they are read.
func TestPushedNotices(t *testing.T) {
	d, mailer, pushed := &team{preferences: map[string]string{
		graceID: `"notices":{"assigned":"none"},"notice_push":{"assigned":true}`, linusID: `"notice_push":{"assigned":false}`,
	}}, new(mailRecorder), new(pushRecorder)
	f := newFixture(t, noticing(d, mailer, new(mailRoute)), func(c *desk.Config) { c.Pusher = pushed })
	ticket, _ := f.begin("It is flat.")
	f.assign(ticket, linusID, graceID)
	f.assign(ticket, graceID, linusID)
	if len(pushed.sent) != 1 {
		t.Fatalf("pushed are %v", pushed.sent)
	}
	user, id, _ := strings.Cut(pushed.sent[0], " ")
	if list := f.notices(graceID); user != graceID || list != "" {
		t.Errorf("pushed to %s, whose page has %q", user, list)
	}
	unread := func(org, user string) bool {
		n, ok, err := f.desk.UnreadNotice(t.Context(), f.db, org, user, id)
		if err != nil || ok && n.TicketNumber != 1 {
			t.Errorf("read %+v, %v", n, err)
		}
		return ok
	}
	if !unread(orgA, graceID) || unread(orgA, linusID) || unread(orgB, graceID) {
		t.Error("a notice is not its member's alone")
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.MarkNoticesSeenTx(t.Context(), tx, orgA, graceID, ticket) }); err != nil {
		t.Fatal(err)
	}
	if unread(orgA, graceID) {
		t.Error("it is unread after the ticket was opened")
	}
}
