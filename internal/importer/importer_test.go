package importer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/keyset"
)

// TestTwice: a second import of the same source changes no row, is silent, and brings nothing.
func TestTwice(t *testing.T) {
	for _, source := range importer.Sources {
		t.Run(source, func(t *testing.T) {
			r := newRig(t)
			first := r.run(imported(source, org))
			r.index()
			before := r.dump()
			if first.State != importer.Done || first.Counts.Tickets == 0 || first.Counts.Messages == 0 || first.Counts.Files == 0 {
				t.Fatalf("first run: %+v", first)
			}
			second := r.run(imported(source, org))
			r.index()
			if after := r.dump(); !slices.Equal(before, after) {
				t.Errorf("the second run changed rows:\n%s", strings.Join(difference(before, after), "\n"))
			}
			if c := second.Counts; c.Tickets+c.Messages+c.Notes+c.Files+c.Customers != 0 || second.ID == first.ID {
				t.Errorf("second run: %+v", second)
			}
			if got := r.rows("SELECT action FROM audit_entries WHERE organization_id = $1 AND action LIKE 'import.%' ORDER BY sequence", org); !slices.Equal(got,
				[]string{importer.AuditStarted, importer.AuditFinished, importer.AuditStarted, importer.AuditFinished}) {
				t.Errorf("audit log: %q", got)
			}
			if n := r.events.Load(); n != 0 {
				t.Errorf("%d events, want none", n)
			}
			if n := len(r.rows("SELECT id FROM jobs")); n != 0 {
				t.Errorf("%d jobs, want none", n)
			}
		})
	}
}

func difference(a, b []string) (list []string) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			list = append(list, "- "+x)
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			list = append(list, "+ "+x)
		}
	}
	return list
}

// TestHistory compares what the fixtures become.
func TestHistory(t *testing.T) {
	for _, source := range importer.Sources {
		t.Run(source, func(t *testing.T) {
			r := newRig(t)
			run := r.run(imported(source, org))
			list := r.history(org)
			for _, p := range run.Problems {
				list = append(list, "problem "+p.Where+": "+p.Reason)
			}
			compare(t, "testdata/"+source+".txt", strings.Join(list, "\n")+"\n")
		})
	}
}

// TestInterrupted interrupts imports at random statements 50 times each, on PostgreSQL fewer times with
// -short. Continued, they are complete.
func TestInterrupted(t *testing.T) {
	for _, source := range importer.Sources {
		t.Run(source, func(t *testing.T) {
			r := newRig(t)
			times := 50
			if testing.Short() && r.db.Postgres() {
				times = 15
			}
			r.imports.SetBatch(2)
			statements := 0
			r.observer.OnStatement(func(string) { statements++ })
			r.run(imported(source, org))
			r.observer.OnStatement(nil)
			want := r.history(org)
			interrupted := 0
			for i := range times {
				organizationID := fmt.Sprintf("0190c0de-0000-7000-8000-%012d", i)
				for attempt := 0; ; attempt++ {
					ctx, cancel := context.WithCancel(t.Context())
					left := 1 + rand.IntN(statements)
					if attempt == 0 {
						left = 1 + left/2
					}
					r.observer.OnStatement(func(string) {
						if left--; left == 0 {
							cancel()
						}
					})
					run, err := r.imports.Run(ctx, imported(source, organizationID), nil)
					r.observer.OnStatement(nil)
					cancel()
					if err == nil && run.State == importer.Done {
						break
					}
					interrupted++
					if attempt > 100 {
						t.Fatalf("no progress: %v", err)
					}
				}
				if got := r.history(organizationID); !slices.Equal(want, got) {
					t.Fatalf("after interruptions:\n%s", strings.Join(difference(want, got), "\n"))
				}
			}
			if interrupted < times {
				t.Errorf("%d interruptions, want at least %d", interrupted, times)
			}
			t.Logf("%d interruptions, %d statements", interrupted, statements)
		})
	}
}

// TestAnswer: a mail that answers an imported one joins its ticket, and opens it.
func TestAnswer(t *testing.T) {
	r := newRig(t)
	r.run(imported(importer.Mbox, org))
	res := r.receive(&channel.Mail{MessageID: "new@rider.example", InReplyTo: []string{"lock-2@acme.example"}},
		channel.Party{Name: "Ada", Email: "ada@rider.example"}, "Re: The lock", "It is broken again.")
	got := r.rows("SELECT subject, status FROM tickets WHERE id = $1", res.TicketID)
	if res.Outcome != desk.Appended || !res.Reopened || !slices.Equal(got, []string{"The lock does not open | open"}) {
		t.Errorf("got %+v in %v", res, got)
	}
	// A mailbox with that mail brings nothing new.
	before := r.history(org)
	r.run(imported(importer.Mbox, org))
	if after := r.history(org); !slices.Equal(before, after) {
		t.Errorf("the import changed the ticket:\n%s", strings.Join(difference(before, after), "\n"))
	}
}

// TestDryRun reports what a run would write, and writes no record.
func TestDryRun(t *testing.T) {
	for _, source := range importer.Sources {
		t.Run(source, func(t *testing.T) {
			r := newRig(t)
			before := r.dump()
			n := imported(source, org)
			n.Dry = true
			dry := r.run(n)
			if after := r.dump(); !slices.Equal(before, after) {
				t.Errorf("the dry run wrote:\n%s", strings.Join(difference(before, after), "\n"))
			}
			real := r.run(imported(source, org))
			d, c := dry.Counts, real.Counts
			if d.Tickets != c.Tickets || d.Messages != c.Messages || d.Notes != c.Notes || d.Skipped != c.Skipped || d.UnknownAuthors != c.UnknownAuthors || d.Problems > c.Problems {
				t.Errorf("dry %+v, then %+v", d, c)
			}
		})
	}
}

// TestUndo: an undo leaves nothing behind, except for tickets with later messages.
func TestUndo(t *testing.T) {
	for _, source := range importer.Sources {
		t.Run(source, func(t *testing.T) {
			r := newRig(t)
			run := r.run(imported(source, org))
			r.index()
			run, err := r.imports.Undo(t.Context(), org, run.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.index()
			if left := r.history(org); len(left) != 0 || run.State != importer.Undone || run.Counts.Removed.Tickets != run.Counts.Tickets {
				t.Errorf("left %v, run %+v", left, run)
			}
			for _, table := range []string{"tickets", "messages", "conversations", "customers", "contact_points", "message_ids", "participants", "attachments", "search_docs", "customer_docs", "import_records"} {
				if n := len(r.rows("SELECT 1 FROM " + table)); n != 0 {
					t.Errorf("%d rows are left in %s", n, table)
				}
			}
			again := r.run(imported(source, org))
			if again.Counts.Tickets != run.Counts.Tickets {
				t.Errorf("again %+v", again.Counts)
			}
		})
	}
	t.Run("later message", func(t *testing.T) {
		r := newRig(t)
		run := r.run(imported(importer.Mbox, org))
		res := r.receive(&channel.Mail{MessageID: "new@rider.example", InReplyTo: []string{"lock-1@rider.example"}},
			channel.Party{Email: "ada@rider.example"}, "Re: The lock", "Again.")
		run, err := r.imports.Undo(t.Context(), org, run.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.rows("SELECT id FROM tickets"); !slices.Equal(got, []string{res.TicketID}) || run.Counts.Removed.Left != 1 {
			t.Errorf("left %v, run %+v", got, run.Counts)
		}
		if n := len(r.rows("SELECT id FROM messages")); n != 4 {
			t.Errorf("%d messages are left, want 4", n)
		}
		before := len(r.rows("SELECT id FROM messages WHERE ticket_id = $1", res.TicketID))
		r.run(imported(importer.Mbox, org))
		if after := len(r.rows("SELECT id FROM messages WHERE ticket_id = $1", res.TicketID)); after != before {
			t.Errorf("a further run doubled messages: %d, then %d", before, after)
		}
	})
}

// TestOldTicketsInLists: imported tickets are older than those with smaller numbers, and lists by time
// of creation are right all the same.
func TestOldTicketsInLists(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.receive(&channel.Mail{MessageID: fmt.Sprintf("live-%d@rider.example", i)}, channel.Party{Email: fmt.Sprintf("live%d@rider.example", i)}, "Live", "Text")
	}
	for _, source := range importer.Sources {
		r.run(imported(source, org))
	}
	r.receive(&channel.Mail{MessageID: "live-9@rider.example"}, channel.Party{Email: "live9@rider.example"}, "Live", "Text")
	r.index()
	all, _, err := r.desk.FindTickets(t.Context(), r.db, org, desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByNumber}, Limit: 200})
	if err != nil || len(all) < 12 {
		t.Fatalf("%d tickets, %v", len(all), err)
	}
	for _, tt := range []struct {
		name  string
		query desk.TicketQuery
		match func(t *desk.Ticket) bool
	}{
		{"all", desk.TicketQuery{}, func(*desk.Ticket) bool { return true }},
		{"status", desk.TicketQuery{Status: []desk.Status{desk.StatusClosed}}, func(t *desk.Ticket) bool { return t.Status == desk.StatusClosed }},
		{"open", desk.TicketQuery{Status: []desk.Status{desk.StatusOpen}}, func(t *desk.Ticket) bool { return t.Status == desk.StatusOpen }},
		{"channel", desk.TicketQuery{Channel: []string{"email"}}, func(t *desk.Ticket) bool { return t.Channel == "email" }},
		{"tag", desk.TicketQuery{Tags: []string{"lock"}}, func(t *desk.Ticket) bool { return slices.Contains(t.Tags, "lock") }},
		{"assignee", desk.TicketQuery{AssigneeID: []string{graceID}}, func(t *desk.Ticket) bool { return t.AssigneeID == graceID }},
		{"priority", desk.TicketQuery{Priority: []desk.Priority{desk.PriorityHigh}}, func(t *desk.Ticket) bool { return t.Priority == desk.PriorityHigh }},
		{"year", desk.TicketQuery{Text: "created:2023-01-01..2023-12-31"}, func(t *desk.Ticket) bool { return t.CreatedAt.Year() == 2023 }},
		{"year and channel", desk.TicketQuery{Text: "created:2022-01-01..2022-12-31", Channel: []string{"email"}}, func(t *desk.Ticket) bool { return t.CreatedAt.Year() == 2022 && t.Channel == "email" }},
		{"word", desk.TicketQuery{Text: "lock"}, func(t *desk.Ticket) bool { return strings.Contains(t.Subject, "lock") }},
		{"number of the source", desk.TicketQuery{Text: "zendesk-35"}, func(t *desk.Ticket) bool { return t.ExternalID == "zendesk-35" }},
	} {
		for _, sort := range []keyset.Sort{
			{}, {Field: desk.ByCreatedAt}, {Field: desk.ByNumber}, {Field: desk.ByNumber, Descending: true}, {Field: desk.ByUpdatedAt}, {Field: desk.ByPriority},
		} {
			t.Run(fmt.Sprintf("%s by %s %v", tt.name, sort.Field, sort.Descending), func(t *testing.T) {
				var want []string
				for i := range all {
					if tt.match(&all[i]) {
						want = append(want, all[i].ID)
					}
				}
				query := tt.query
				query.Sort, query.Limit = sort, 2
				var got []string
				var last *desk.Ticket
				for {
					page, next, err := r.desk.FindTickets(t.Context(), r.db, org, query)
					if err != nil {
						t.Fatal(err)
					}
					for i := range page {
						if last != nil && !inOrder(last, &page[i], sort) {
							t.Errorf("#%d after #%d", page[i].Number, last.Number)
						}
						last = &page[i]
						got = append(got, page[i].ID)
					}
					if query.After = next; next == nil {
						break
					}
				}
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(want, got) {
					t.Errorf("%d tickets, want %d", len(got), len(want))
				}
			})
		}
	}
}

func inOrder(a, b *desk.Ticket, s keyset.Sort) bool {
	if s.Field == "" || s.Descending {
		a, b = b, a
	}
	switch s.Field {
	case "", desk.ByCreatedAt:
		return !b.CreatedAt.Before(a.CreatedAt)
	case desk.ByNumber:
		return a.Number < b.Number
	case desk.ByUpdatedAt:
		return !b.UpdatedAt.Before(a.UpdatedAt)
	}
	return slices.Index(desk.Priorities[:], a.Priority) <= slices.Index(desk.Priorities[:], b.Priority)
}

// TestInvariants: an import leaves a database that verifies, and no ticket is unread.
func TestInvariants(t *testing.T) {
	r := newRig(t)
	for _, source := range importer.Sources {
		r.run(imported(source, org))
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO organizations (id, name, slug, plan, created_at, updated_at) VALUES ($1, 'Acme', 'acme', 'free', 1, 1)", org)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, rule := range desk.Invariants(r.db.Postgres(), r.db.Now().AddDate(-20, 0, 0)) {
		if broken := r.rows(rule.Broken, rule.Args...); len(broken) > 0 {
			t.Errorf("%s: %v", rule.Name, broken)
		}
	}
	all, _, err := r.desk.FindTickets(t.Context(), r.db, org, desk.TicketQuery{Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	unread, err := r.desk.Unread(t.Context(), r.db, graceID, all)
	if err != nil {
		t.Fatal(err)
	}
	for id, is := range unread {
		if is {
			t.Errorf("ticket %s is unread", id)
		}
	}
}
