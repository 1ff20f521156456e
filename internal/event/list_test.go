package event_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestList(t *testing.T) {
	d := dbtest.New(t)
	log := new(event.Log)
	var all []event.Event
	for i, name := range []event.Name{
		event.TicketCreated, event.MessageCreated, event.SLAWarning, event.MessageCreated, event.SLABreached, event.TicketDeleted, event.SLAWarning, event.MessageCreated,
	} {
		e := event.Event{OrganizationID: "a", Name: name, Data: event.Data{Ticket: &event.Ticket{ID: "t" + string('0'+rune(i%2))}}}
		other := event.Event{OrganizationID: "b", Name: name, Data: e.Data}
		for _, e := range []*event.Event{&e, &other} {
			list := []event.Event{*e}
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return log.EmitTx(t.Context(), tx, list...) }); err != nil {
				t.Fatal(err)
			}
			*e = list[0]
		}
		all = append(all, e)
	}
	from := all[3].At
	early := from.Add(-24 * time.Hour)
	for _, c := range []struct {
		query event.Query
		want  []int // of all, in order
	}{
		{event.Query{Ascending: true}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{event.Query{Ascending: true, Names: []event.Name{event.SLAWarning, event.SLABreached}}, []int{2, 4, 6}},
		{event.Query{Ascending: true, Names: []event.Name{event.SLAWarning, event.MessageCreated}}, []int{1, 2, 3, 6, 7}},
		{event.Query{Ascending: true, Names: []event.Name{event.TicketAssigned}}, nil},
		{event.Query{Ascending: true, TicketID: "t1"}, []int{1, 3, 5, 7}},
		{event.Query{Ascending: true, TicketID: "t1", Names: []event.Name{event.TicketDeleted}}, []int{5}},
		{event.Query{Ascending: true, TicketID: "t9"}, nil},
		{event.Query{Ascending: true, CreatedAt: period.Range{Low: &from}}, []int{3, 4, 5, 6, 7}},
		{event.Query{Ascending: true, CreatedAt: period.Range{High: &from, HighOpen: true}}, []int{0, 1, 2}},
		{event.Query{Ascending: true, CreatedAt: period.Range{High: &early}}, nil},
		{event.Query{Ascending: true, CreatedAt: period.Range{Low: &from, LowOpen: true}, Names: []event.Name{event.SLAWarning}}, []int{6}},
	} {
		for _, ascending := range []bool{true, false} {
			var want []string
			for _, i := range c.want {
				want = append(want, all[i].ID)
			}
			if c.query.Ascending = ascending; !ascending {
				slices.Reverse(want)
			}
			for _, limit := range []int{0, 1, 2, 3} {
				var got []string
				for page := c.query; ; {
					page.Limit = limit
					list, next, err := event.List(t.Context(), d, "a", page)
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range list {
						got = append(got, e.ID)
					}
					if page.After = next; next == "" {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%+v by %d: got %v, want %v", c.query, limit, got, want)
				}
			}
			var got []string
			if err := event.Each(t.Context(), d, "a", c.query, func(e *event.Event) error { got = append(got, e.ID); return nil }); err != nil || !slices.Equal(got, want) {
				t.Errorf("export of %+v: got %v, %v, want %v", c.query, got, err, want)
			}
		}
	}
	for _, q := range []event.Query{{Limit: 201}, {Names: []event.Name{"x"}}, {After: "\x00"}, {TicketID: "\xff"}} {
		if _, _, err := event.List(context.Background(), d, "a", q); problem.Of(err) != problem.Invalid {
			t.Errorf("%+v: got %v, want invalid", q, err)
		}
	}
}
