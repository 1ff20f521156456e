package desk_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// TestRelated: each side of a merge or a split is related to the other, and to
// nothing else.
func TestRelated(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for _, from := range []string{"ann@x.example", "bob@x.example", "cid@x.example"} {
		ids = append(ids, f.intake(mail(from, "<"+from+">")).TicketID)
	}
	related := func(org, id string) string {
		t.Helper()
		ticket := f.ticket(id)
		list, err := f.desk.Related(t.Context(), f.db, org, &ticket)
		if err != nil {
			t.Fatal(err)
		}
		var numbers []string
		for _, r := range list {
			numbers = append(numbers, fmt.Sprint(r.Number))
		}
		return strings.Join(numbers, " ")
	}
	if got := related(orgA, ids[0]); got != "" {
		t.Errorf("got %q related to a ticket alone", got)
	}
	if _, err := f.merge(orgA, ids[1], ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := f.note(orgA, ids[0], desk.Actor{ID: graceID, Name: "Grace"}, desk.Draft{Text: "look"}); err != nil {
		t.Fatal(err)
	}
	off, err := f.split(orgA, ids[0], f.messages(ids[0])[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[string]string{ids[0]: "2 4", ids[1]: "1", ids[2]: "", off.ID: "1"} {
		if got := related(orgA, i); got != want {
			t.Errorf("got %q related to %d, want %q", got, f.ticket(i).Number, want)
		}
	}
	if got := related(orgB, ids[0]); got != "" {
		t.Errorf("another organization got %q", got)
	}
}

// TestChanged: Config.Changed is called after commits without an event.
func TestChanged(t *testing.T) {
	var told []string
	f := newFixture(t, func(c *desk.Config) {
		c.Dispatcher = new(messageRecorder)
		c.Changed = func(org, ticket string) { told = append(told, org+" "+ticket) }
	})
	in := text("+4915112345678", "hi")
	r := f.intake(in)
	if len(told) != 0 {
		t.Errorf("told %q of a new ticket, of which events tell", told)
	}
	want := []string{orgA + " " + r.TicketID}
	expect := func(what string) {
		t.Helper()
		if !slices.Equal(slices.Compact(told), want) {
			t.Errorf("told %q of %s, want %q", told, what, want)
		}
		told = nil
	}
	if _, err := f.note(orgA, r.TicketID, desk.Actor{ID: graceID, Name: "Grace"}, desk.Draft{Text: "look"}); err != nil {
		t.Fatal(err)
	}
	expect("a note")
	if _, err := f.note(orgB, r.TicketID, desk.Actor{ID: heidiID}, desk.Draft{Text: "look"}); err == nil || len(told) != 0 {
		t.Errorf("told %q of a note that was refused with %v", told, err)
	}
	m := f.reply(r.TicketID, "hello")
	told = nil
	w := f.waiting(m.ID)
	if _, err := write(f, func(tx *db.Tx) (any, error) { return nil, f.desk.SetDelayReasonTx(t.Context(), tx, &w, "busy") }); err != nil {
		t.Fatal(err)
	}
	expect("a delay")
	if _, err := write(f, func(tx *db.Tx) (any, error) { return nil, f.desk.RecordSentTx(t.Context(), tx, &w, []string{"SM1"}) }); err != nil {
		t.Fatal(err)
	}
	expect("what left")
	in.Event = channel.Event{Receipt: &channel.Receipt{ExternalIDs: []string{"SM1"}, State: channel.ReceiptDelivered, Recipient: "+4915112345678"}}
	f.intake(in)
	expect("what arrived")
}

// TestRelatedGoesByIDs checks that the related tickets are looked up, and not sought among all of
// the organization.
func TestRelatedGoesByIDs(t *testing.T) {
	f := fixtureOn(t, dbtest.NewSQLite(t))
	one := f.ticket(f.intake(text("+4915112345671", "one")).TicketID)
	e := &explainer{Querier: f.db, t: t}
	e.refuse = regexp.MustCompile(`^SEARCH t .*organization_id`)
	if _, err := f.desk.Related(t.Context(), e, orgA, &one); err != nil || e.n == 0 {
		t.Errorf("%d statements, %v", e.n, err)
	}
}
