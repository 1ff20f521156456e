package desk_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// snooze snoozes a ticket.
func (f *fixture) snooze(ticketID string, to desk.Snooze) desk.Ticket {
	f.Helper()
	t, err := f.update(orgA, ticketID, desk.Update{Snooze: &to})
	if err != nil {
		f.Fatal(err)
	}
	return t
}

func TestSnooze(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		id := f.intake(text(ana, "hello")).TicketID
		f.read(graceID, id)
		f.emitted()
		tomorrow := time.Now().Add(24 * time.Hour)
		if got := f.snooze(id, desk.Snooze{Until: tomorrow}); got.Status != desk.StatusOnHold || !got.Snoozed().Until.Equal(tomorrow) {
			t.Fatalf("snoozed: %s until %v", got.Status, got.Snoozed())
		}
		if got := f.emitted(); got != "ticket.updated ticket.status_changed" {
			t.Errorf("it emitted %q", got)
		}
		pass(23 * time.Hour)
		if got := f.ticket(id); got.Status != desk.StatusOnHold || f.unread(graceID) != "" {
			t.Errorf("too early: %s", got.Status)
		}
		// A later time replaces the first.
		f.snooze(id, desk.Snooze{Until: tomorrow.Add(time.Hour)})
		pass(90 * time.Minute)
		if got := f.ticket(id); got.Status != desk.StatusOnHold {
			t.Errorf("it opened at its first time")
		}
		pass(time.Hour)
		if got := f.ticket(id); got.Status != desk.StatusOpen || !got.Snoozed().IsZero() || f.unread(graceID) != "1" {
			t.Errorf("after its time it is %s, snoozed %v, unread %q", got.Status, got.Snoozed(), f.unread(graceID))
		}
	})
}

func TestSnoozeEndsWithTheStatus(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		id := f.intake(text(ana, "hello")).TicketID
		hour := func() desk.Snooze { return desk.Snooze{Until: time.Now().Add(time.Hour)} }
		f.snooze(id, hour())
		f.intake(text(ana, "are you there?"))
		if got := f.ticket(id); got.Status != desk.StatusOpen || !got.Snoozed().IsZero() {
			t.Errorf("an answer: %s, %v", got.Status, got.Snoozed())
		}
		if got := f.snooze(id, desk.Snooze{UntilReply: true}); got.Status != desk.StatusPending || !got.Snoozed().UntilReply {
			t.Errorf("until the answer: %s, %v", got.Status, got.Snoozed())
		}
		f.setStatus(id, desk.StatusOnHold)
		if got := f.ticket(id); !got.Snoozed().IsZero() {
			t.Errorf("another status keeps the snooze %v", got.Snoozed())
		}
		f.snooze(id, hour())
		f.setStatus(id, desk.StatusResolved)
		pass(2 * time.Hour)
		if got := f.ticket(id); got.Status != desk.StatusResolved {
			t.Errorf("a resolved ticket became %s", got.Status)
		}
		_, err := f.update(orgA, id, desk.Update{Snooze: new(hour())})
		refused(t, "a resolved ticket", err, problem.Conflict, "invalid_transition", "")
		f.setStatus(id, desk.StatusOpen)
		f.snooze(id, hour())
		if got := f.snooze(id, desk.Snooze{}); got.Status != desk.StatusOpen || !got.Snoozed().IsZero() {
			t.Errorf("taken back: %s, %v", got.Status, got.Snoozed())
		}
	})
}

func TestSnoozeRefused(t *testing.T) {
	f := newFixture(t)
	id := f.intake(text(ana, "hello")).TicketID
	for what, u := range map[string]desk.Update{
		"the past":  {Snooze: &desk.Snooze{Until: time.Now().Add(-time.Hour)}},
		"two years": {Snooze: &desk.Snooze{Until: time.Now().AddDate(2, 0, 0)}},
	} {
		_, err := f.update(orgA, id, u)
		refused(t, what, err, problem.Invalid, "invalid_value", "snoozed_until")
	}
	_, err := f.update(orgA, id, desk.Update{Snooze: &desk.Snooze{UntilReply: true}, Status: new(desk.StatusOpen)})
	refused(t, "with an open status", err, problem.Invalid, "conflict", "snoozed_until")
	// A client that sends back the record that it read changes the status alone.
	snoozed := f.snooze(id, desk.Snooze{Until: time.Now().Add(time.Hour)})
	got, err := f.update(orgA, id, desk.Update{Snooze: new(snoozed.Snoozed()), Status: new(desk.StatusOpen)})
	if err != nil || got.Status != desk.StatusOpen || !got.Snoozed().IsZero() {
		t.Errorf("the whole record with another status: %s, %v, %v", got.Status, got.Snoozed(), err)
	}
}

// A snooze goes on after an undone merge, and one whose time has come meanwhile opens the ticket.
func TestSnoozeAfterMerge(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		into := f.intake(text("+4915112345672", "two")).TicketID
		for apart, want := range map[time.Duration]desk.Status{time.Minute: desk.StatusOnHold, 2 * time.Hour: desk.StatusOpen} {
			id := f.intake(text("+49151123456"+strconv.Itoa(int(apart.Minutes())+10), "one")).TicketID
			f.snooze(id, desk.Snooze{Until: time.Now().Add(time.Hour)})
			if _, err := f.merge(orgA, id, into); err != nil {
				t.Fatal(err)
			}
			pass(apart)
			if _, err := f.unmerge(orgA, id); err != nil {
				t.Fatal(err)
			}
			if got := f.ticket(id); got.Status != want {
				t.Errorf("apart for %v it is %s, want %s", apart, got.Status, want)
			}
			pass(2 * time.Hour)
			if got := f.ticket(id); got.Status != desk.StatusOpen || !got.Snoozed().IsZero() {
				t.Errorf("in the end it is %s, snoozed %v", got.Status, got.Snoozed())
			}
		}
	})
}
