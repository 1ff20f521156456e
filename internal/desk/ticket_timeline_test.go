package desk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// by runs fn in a transaction of a request from a source.
func (f *fixture) by(source audit.Source, fn func(ctx context.Context, tx *db.Tx) error) {
	f.Helper()
	ctx := audit.WithSource(f.Context(), source)
	if err := f.db.Write(ctx, func(tx *db.Tx) error { return fn(ctx, tx) }); err != nil {
		f.Fatal(err)
	}
}

var (
	byGrace = audit.Source{Actor: audit.Actor{Type: audit.User, ID: graceID, Email: "grace@a.example"}, Surface: audit.Web}
	byKey   = audit.Source{Actor: audit.Actor{Type: audit.Key, ID: "key-1"}, Surface: audit.REST}
	byTool  = audit.Source{Actor: audit.Actor{Type: audit.Key, ID: "key-1"}, Surface: audit.MCP}
)

// timeline returns a ticket's timeline, oldest first, in lines.
func (f *fixture) timeline(id string, names ...string) string {
	f.Helper()
	list, next, err := f.desk.FindChanges(f.Context(), f.db, orgA, id, desk.ChangeQuery{Sort: keyset.Sort{Field: desk.ByAt}, Limit: 200})
	if err != nil || next != nil {
		f.Fatal(err, next)
	}
	var lines []string
	at := time.Time{}
	for _, c := range list {
		if c.At.Before(at) || c.TicketID != id {
			f.Errorf("change %d of %s is at %s, after %s", c.Number, c.TicketID, c.At, at)
		}
		at = c.At
		changes, err := json.Marshal(c.Changes)
		if err != nil {
			f.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d %s %s %s %s %s", c.Number, c.Actor.Type, c.Actor.ID, c.Surface, c.Action, changes))
	}
	return strings.NewReplacer(slices.Concat(names, []string{graceID, "GRACE"})...).Replace(strings.Join(lines, "\n"))
}

// TestTimeline makes each kind of change once.
func TestTimeline(t *testing.T) {
	f := newFixture(t)
	one := f.intake(text(number, "hello"))
	two := f.intake(mail("bob@c.example", "b1"))
	if n := f.count("ticket_changes"); n != 0 {
		t.Errorf("tickets of customers cost %d rows", n)
	}
	f.by(byGrace, func(ctx context.Context, tx *db.Tx) error {
		_, err := f.desk.UpdateTx(ctx, tx, orgA, one.TicketID, desk.Update{Status: new(desk.StatusPending), AssigneeID: new(graceID)})
		return err
	})
	f.by(byKey, func(ctx context.Context, tx *db.Tx) error {
		_, err := f.desk.UpdateTx(ctx, tx, orgA, one.TicketID, desk.Update{
			Priority: new(desk.PriorityHigh), Tags: &[]string{"lock", "app"}, Subject: new("Lock"), ExternalID: new("T-1"), Metadata: desk.MetadataUpdate{"ride": new("7")},
		})
		return err
	})
	f.by(byTool, func(ctx context.Context, tx *db.Tx) error { // which changes nothing
		_, err := f.desk.UpdateTx(ctx, tx, orgA, one.TicketID, desk.Update{Priority: new(desk.PriorityHigh)})
		return err
	})
	f.intake(text(number, "again"))
	f.by(byTool, func(ctx context.Context, tx *db.Tx) error {
		_, err := f.desk.UpdateTicketsTx(ctx, tx, orgA, []string{one.TicketID, two.TicketID}, desk.BulkUpdate{AddTags: []string{"bulk"}})
		return err
	})
	f.by(byGrace, func(ctx context.Context, tx *db.Tx) error { return f.desk.UnassignTx(ctx, tx, orgA, graceID) })
	f.by(byGrace, func(ctx context.Context, tx *db.Tx) error {
		_, err := f.desk.MergeTx(ctx, tx, orgA, one.TicketID, two.TicketID)
		return err
	})
	f.by(byKey, func(ctx context.Context, tx *db.Tx) error {
		_, err := f.desk.UnmergeTx(ctx, tx, orgA, one.TicketID)
		return err
	})
	var split desk.Ticket
	again := f.messages(one.TicketID)[1].ID
	f.by(byGrace, func(ctx context.Context, tx *db.Tx) (err error) {
		split, err = f.desk.SplitTx(ctx, tx, orgA, one.TicketID, []string{again})
		return err
	})
	var made desk.Ticket
	f.by(byKey, func(ctx context.Context, tx *db.Tx) (err error) {
		made, err = f.desk.CreateTicketTx(ctx, tx, orgA, desk.NewTicket{Subject: "S", CustomerID: one.CustomerID})
		return err
	})
	f.wantInvariants(t)

	names := []string{one.TicketID, "ONE", two.TicketID, "TWO", split.ID, "SPLIT", one.CustomerID, "ANA", two.CustomerID, "BOB"}
	for id, want := range map[string]string{
		one.TicketID: `0 customer ANA inbound ticket.created {}
1 user GRACE web ticket.updated {"assignee":{"from":null,"to":"GRACE"},"status":{"from":"open","to":"pending"}}
2 key key-1 rest ticket.updated {"external_id":{"from":null,"to":"T-1"},"metadata":{"from":{},"to":{"ride":"7"}},"priority":{"from":"normal","to":"high"},"subject":{"from":"hello","to":"Lock"},"tags":{"from":[],"to":["lock","app"]}}
3 customer ANA inbound ticket.updated {"status":{"from":"pending","to":"open"}}
4 key key-1 mcp ticket.updated {"tags":{"from":["lock","app"],"to":["lock","app","bulk"]}}
5 user GRACE web ticket.updated {"assignee":{"from":"GRACE","to":null}}
6 user GRACE web ticket.merged {"merged_into_id":{"from":null,"to":"TWO"},"status":{"from":"open","to":"closed"}}
7 key key-1 rest ticket.unmerged {"merged_into_id":{"from":"TWO","to":null},"status":{"from":"closed","to":"open"}}
8 user GRACE web ticket.split {"split_ticket_id":{"from":null,"to":"SPLIT"}}`,
		two.TicketID: `0 customer BOB inbound ticket.created {}
1 key key-1 mcp ticket.updated {"tags":{"from":[],"to":["bulk"]}}
2 user GRACE web ticket.merged {"merged_ticket_id":{"from":null,"to":"ONE"}}
3 key key-1 rest ticket.unmerged {"merged_ticket_id":{"from":"ONE","to":null}}`,
		split.ID: `0 user GRACE web ticket.created {}`,
		made.ID:  `0 key key-1 rest ticket.created {}`,
	} {
		if got := f.timeline(id, names...); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}

	f.delete(one.TicketID)
	if n := f.count("ticket_changes WHERE ticket_id = '" + one.TicketID + "'"); n != 0 {
		t.Errorf("a deleted ticket leaves %d changes", n)
	}
	if _, _, err := f.desk.FindChanges(t.Context(), f.db, orgA, one.TicketID, desk.ChangeQuery{}); problem.Of(err) != problem.NotFound {
		t.Errorf("its timeline: %v", err)
	}
}

// TestTimelineOfRules: breaches, closing after a time, and a message sent by another program.
func TestTimelineOfRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t), func(c *desk.Config) { c.CloseAfter = time.Hour })
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 10, ResolutionMinutes: 20})
		r := f.intake(text(number, "hello"))
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		f.by(byGrace, func(ctx context.Context, tx *db.Tx) error {
			_, err := f.desk.UpdateTx(ctx, tx, orgA, r.TicketID, desk.Update{Status: new(desk.StatusResolved)})
			return err
		})
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got, want := f.timeline(r.TicketID, r.CustomerID, "ANA"), `0 customer ANA inbound ticket.created {}
1 system  system sla.breached {"first_response":{"from":"running","to":"breached"}}
2 system  system sla.breached {"resolution":{"from":"running","to":"breached"}}
3 user GRACE web ticket.updated {"status":{"from":"open","to":"resolved"}}
4 system  system ticket.updated {"status":{"from":"resolved","to":"closed"}}`; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		in := text("+4915112345600", "we called you")
		in.Event.Message.Outbound = true
		in.Event.Message.From, in.Event.Message.To = channel.Party{Name: "Front desk"}, []channel.Party{{Phone: "+4915112345600"}}
		if got := f.timeline(f.intake(in).TicketID); got != "0 user  inbound ticket.created {}" {
			t.Errorf("sent by another program: %s", got)
		}
	})
}

// TestLateBreach: a breach that a change finds is before the change.
func TestLateBreach(t *testing.T) {
	f := newFixture(t)
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 10})
	r := f.intake(text(number, "hello"))
	f.older(time.Hour)
	f.by(byGrace, func(ctx context.Context, tx *db.Tx) error {
		_, err := f.desk.UpdateTx(ctx, tx, orgA, r.TicketID, desk.Update{Status: new(desk.StatusPending)})
		return err
	})
	if got, want := f.timeline(r.TicketID, r.CustomerID, "ANA"), `0 customer ANA inbound ticket.created {}
1 system  system sla.breached {"first_response":{"from":"running","to":"breached"}}
2 user GRACE web ticket.updated {"status":{"from":"open","to":"pending"}}`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTimelinePages pages in both directions, filters, and refuses another organization.
func TestTimelinePages(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text(number, "hello"))
	for i := range 6 {
		f.setStatus(r.TicketID, []desk.Status{desk.StatusPending, desk.StatusOpen}[i%2])
	}
	if _, err := f.split(orgA, r.TicketID, f.intake(text(number, "more")).MessageID); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query desk.ChangeQuery
		want  string
	}{
		{desk.ChangeQuery{}, "[7 6 5] [4 3 2] [1 0]"},
		{desk.ChangeQuery{Sort: keyset.Sort{Field: desk.ByAt}}, "[0 1 2] [3 4 5] [6 7]"},
		{desk.ChangeQuery{Action: []desk.ChangeAction{desk.ChangeCreated, desk.ChangeSplit}}, "[7 0]"},
		{desk.ChangeQuery{Action: []desk.ChangeAction{desk.ChangeMerged}}, "[]"},
		{desk.ChangeQuery{At: period.Range{High: new(time.Now().Add(-time.Hour))}}, "[]"},
	} {
		var pages []string
		c.query.Limit = 3
		for {
			list, next, err := f.desk.FindChanges(t.Context(), f.db, orgA, r.TicketID, c.query)
			if err != nil {
				t.Fatal(err)
			}
			var numbers []int64
			for _, change := range list {
				numbers = append(numbers, change.Number)
			}
			pages = append(pages, fmt.Sprint(numbers))
			if c.query.After = next; next == nil {
				break
			}
		}
		if got := strings.Join(pages, " "); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.query, got, c.want)
		}
		var all []string
		if err := f.desk.EachChange(t.Context(), orgA, r.TicketID, c.query, func(change *desk.TicketChange) error {
			all = append(all, fmt.Sprint(change.Number))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(all, " "), strings.NewReplacer("[", "", "]", "").Replace(c.want); got != want {
			t.Errorf("%+v: exported %s, want %s", c.query, got, want)
		}
	}
	if _, _, err := f.desk.FindChanges(t.Context(), f.db, orgB, r.TicketID, desk.ChangeQuery{}); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization's: %v", err)
	}
	if err := f.desk.EachChange(t.Context(), orgB, r.TicketID, desk.ChangeQuery{}, nil); problem.Of(err) != problem.NotFound {
		t.Errorf("an export of another organization's: %v", err)
	}
	if _, _, err := f.desk.FindChanges(t.Context(), f.db, orgA, r.TicketID, desk.ChangeQuery{After: &keyset.Cursor{Value: "x"}}); problem.Of(err) != problem.Invalid {
		t.Errorf("a forged cursor: %v", err)
	}
}

// TestConcurrentChanges: each change has a number of its own.
func TestConcurrentChanges(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text(number, "hello"))
	const n = 24
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := f.updateAll(orgA, desk.BulkUpdate{AddTags: []string{fmt.Sprint("tag ", i)}}, r.TicketID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, _, err := f.desk.FindChanges(t.Context(), f.db, orgA, r.TicketID, desk.ChangeQuery{Limit: 200})
	if err != nil || len(list) != n+1 {
		t.Fatalf("got %d changes, %v, want %d", len(list), err, n+1)
	}
	tags := any([]any{})
	for i, c := range slices.Backward(list) {
		if c.Number != int64(n-i) {
			t.Errorf("change %d has number %d", n-i, c.Number)
		}
		if change, ok := c.Changes["tags"]; ok {
			if asJSON(change.From) != asJSON(tags) {
				t.Errorf("change %d is from %v, want %v", c.Number, change.From, tags)
			}
			tags = change.To
		}
	}
}

// TestTimelineErases: the timeline has no deleted text of a message and no name of its customer.
func TestTimelineErases(t *testing.T) {
	f := newFixture(t)
	in := said("", userID, "tell nobody")
	in.Event.Message.ExternalID = "w.1"
	r := f.intake(in)
	f.setStatus(r.TicketID, desk.StatusPending)
	if _, err := f.update(orgA, r.TicketID, desk.Update{Subject: new("Another")}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.update(orgA, r.TicketID, desk.Update{Subject: new("tell nobody")}); err != nil {
		t.Fatal(err)
	}
	f.intake(about(channel.Event{Annotation: &channel.Annotation{ExternalID: "w.1", Kind: channel.Deleted, By: channel.Party{ID: userID}}}))
	if got, want := f.timeline(r.TicketID, r.CustomerID, "ANA"), `0 customer ANA inbound ticket.created {}
1 system  system ticket.updated {"status":{"from":"open","to":"pending"}}
2 system  system ticket.updated {"subject":{"from":null,"to":null}}
3 system  system ticket.updated {"subject":{"from":null,"to":null}}
4 system  system ticket.updated {"subject":{"from":null,"to":null}}`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	named := f.intake(mail("ana@c.example", "m1"))
	actor := func() string {
		list, _, err := f.desk.FindChanges(t.Context(), f.db, orgA, named.TicketID, desk.ChangeQuery{})
		if err != nil {
			t.Fatal(err)
		}
		return list[0].Actor.Name
	}
	if got := actor(); got != "ana@c.example" {
		t.Errorf("the customer is named %q", got)
	}
	if err := f.deleteCustomer(orgA, named.CustomerID); err != nil {
		t.Fatal(err)
	}
	if got := actor(); got != "" {
		t.Errorf("the deleted customer is named %q", got)
	}
}
