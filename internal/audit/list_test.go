package audit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// TestTwoDatabases lists the logs of two databases merged.
func TestTwoDatabases(t *testing.T) {
	key := seal.NewKey()
	one, other := open(dbtest.New(t), key), open(dbtest.NewFleet(t), key)
	logs := []*audit.Log{one, other}
	var want []string
	for i := range 9 {
		in := one
		if i%3 == 1 {
			in = other
		}
		action := fmt.Sprint("test.", i)
		want = append([]string{action}, want...)
		if err := in.Record(t.Context(), audit.Entry{OrganizationID: "o1", Service: "fleet", Action: action}); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit < 11; limit++ {
		var walked []string
		for q := (audit.Query{Service: "fleet", Limit: limit}); ; {
			p, err := audit.List(t.Context(), logs, "o1", q)
			if err != nil || len(p.Entries) > limit {
				t.Fatal(len(p.Entries), err)
			}
			for _, e := range p.Entries {
				walked = append(walked, e.Action)
			}
			if q.Before = p.Next; p.Next == "" {
				break
			}
		}
		if !slices.Equal(walked, want) {
			t.Errorf("by %d: got %q, want %q", limit, walked, want)
		}
	}
	var each []string
	err := audit.Each(t.Context(), logs, "o1", audit.Query{}, func(e *audit.Entry) error {
		each = append(each, e.Action)
		return nil
	})
	if err != nil || !slices.Equal(each, want) {
		t.Errorf("got %q, %v, want %q", each, err, want)
	}
	if p, err := audit.List(t.Context(), logs[:1], "o1", audit.Query{}); err != nil || len(p.Entries) != 6 {
		t.Errorf("of the one: got %d entries, %v, want 6", len(p.Entries), err)
	}
}

func TestQuery(t *testing.T) {
	l := open(dbtest.New(t), seal.NewKey())
	ctx := audit.WithSource(t.Context(), alice)
	for _, e := range []audit.Entry{
		{Action: "member.removed", Target: audit.Target{Type: "member", ID: "u2"}},
		{Action: "member.role_changed"},
		{Action: "members.exported"},
		{Action: "sign_in.refused", Outcome: audit.Refused, Service: "fleet", Environment: "test"},
	} {
		e.OrganizationID = "o1"
		if err := l.Record(ctx, e); err != nil {
			t.Fatal(err)
		}
		ctx = t.Context() // without a source: the system
	}
	all, err := audit.List(t.Context(), []*audit.Log{l}, "o1", audit.Query{})
	if err != nil || len(all.Entries) != 4 {
		t.Fatal(len(all.Entries), err)
	}
	for _, tt := range []struct {
		name string
		q    audit.Query
		want int
	}{
		{"group", audit.Query{Group: "member"}, 2},
		{"action", audit.Query{Action: "members.exported"}, 1},
		{"no such group", audit.Query{Group: "memb"}, 0},
		{"outcome", audit.Query{Outcome: audit.Refused}, 1},
		{"service", audit.Query{Service: "helpdesk"}, 3},
		{"environment", audit.Query{Environment: "test"}, 1},
		{"actor", audit.Query{ActorID: "u1"}, 1},
		{"actor type", audit.Query{ActorType: audit.System}, 3},
		{"actor that is a pattern", audit.Query{ActorID: "%"}, 0},
		{"target", audit.Query{TargetID: "u2"}, 1},
		{"from", audit.Query{From: all.Entries[1].At}, 2},
		{"to", audit.Query{To: all.Entries[1].At}, 2},
		{"page", audit.Query{Before: all.Entries[1].ID}, 2},
	} {
		p, err := audit.List(t.Context(), []*audit.Log{l}, "o1", tt.q)
		if err != nil || len(p.Entries) != tt.want {
			t.Errorf("%s: %d entries, %v, want %d", tt.name, len(p.Entries), err, tt.want)
		}
	}
	for _, q := range []audit.Query{{Limit: 501}, {Limit: -1}, {Before: "x"}} {
		if _, err := audit.List(t.Context(), []*audit.Log{l}, "o1", q); problem.Of(err) != problem.Invalid {
			t.Errorf("%+v: %v, want Invalid", q, err)
		}
	}
}
