package desk_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Filters in a search restrict a list like its other fields, and together with them.
func TestFiltersInSearches(t *testing.T) {
	f := newFixture(t)
	ids := make([]string, 4)
	for i, from := range []string{"+4915100000001", "+4915100000002", "+4915100000003"} {
		ids[i] = f.intake(text(from, "The lock is stuck "+from)).TicketID
	}
	ids[3] = f.intake(mail("max@client.example", "m1@client.example")).TicketID
	for i, u := range []desk.Update{
		{Tags: &[]string{"lock", "night shift"}, AssigneeID: new(graceID)},
		{Tags: &[]string{"lock"}, Priority: new(desk.PriorityHigh)},
		{Status: new(desk.StatusPending)},
		{Tags: &[]string{"vip"}, AssigneeID: new(graceID)},
	} {
		if _, err := f.update(orgA, ids[i], u); err != nil {
			t.Fatal(err)
		}
	}
	f.index()
	today := f.ticket(ids[0]).CreatedAt
	day, next := today.Format(time.DateOnly), today.AddDate(0, 0, 1).Format(time.DateOnly)
	grace := desk.Reader{UserID: graceID}
	find := func(q desk.TicketQuery) []int64 {
		t.Helper()
		got := f.numbers(orgA, q)
		slices.Sort(got)
		return got
	}
	for search, want := range map[string][]int64{
		"status:open":                       {1, 2, 4},
		"-status:open":                      {3},
		"status:Open,pending lock":          {1, 2, 3},
		"lock -status:pending":              {1, 2},
		"priority:high":                     {2},
		"-priority:high,normal":             nil,
		"channel:sms":                       {1, 2, 3},
		"-channel:SMS":                      {4},
		"channel:email,api":                 {4},
		"tag:lock":                          {1, 2},
		`tag:lock tag:"night shift"`:        {1},
		`tag:lock -tag:"night shift"`:       {2},
		"-tag:lock":                         {3, 4},
		"assignee:me":                       {1, 4},
		"-assignee:me":                      {2, 3},
		"assignee:none":                     {2, 3},
		"assignee:me,none status:pending":   {3},
		"assignee:me assignee:none":         nil,
		"customer:max@client.example":       {4},
		"customer:MAX@client.example stuck": nil,
		"customer:+4915100000002":           {2},
		"customer:nobody@client.example":    nil,
		"number:2,#3":                       {2, 3},
		"#2 number:3":                       nil,
		"created:" + day:                    {1, 2, 3, 4},
		"created:>" + day:                   nil,
		"created:>=" + day:                  {1, 2, 3, 4},
		"created:<" + day:                   nil,
		"created:<=" + day:                  {1, 2, 3, 4},
		"created:" + day + ".." + next:      {1, 2, 3, 4},
		"created:<" + next + " tag:vip":     {4},
		"updated:>" + next:                  nil,
		"Re: status:":                       nil,
	} {
		for _, by := range []string{desk.ByCreatedAt, desk.ByUpdatedAt, desk.ByPriority} {
			q := desk.TicketQuery{Text: search, Reader: grace}
			q.Sort.Field = by
			if got := find(q); !slices.Equal(got, want) {
				t.Errorf("%q by %s: found %v, want %v", search, by, got, want)
			}
		}
	}
	if got := find(desk.TicketQuery{Text: "status:open,pending", Status: []desk.Status{desk.StatusPending}}); !slices.Equal(got, []int64{3}) {
		t.Errorf("with a status: found %v", got)
	}
	berlin := time.FixedZone("", 14*3600)
	if got := find(desk.TicketQuery{Text: "created:" + today.In(berlin).Format(time.DateOnly), Reader: desk.Reader{Zone: berlin}}); len(got) != 4 {
		t.Errorf("today of a zone: found %v", got)
	}
	havana, err := time.LoadLocation("America/Havana")
	if err != nil {
		t.Fatal(err)
	}
	// The clock goes from 0:00 to 1:00 on that day, which begins at 5:00 UTC.
	f.exec("UPDATE tickets SET created_at = $2 WHERE id = $1", ids[0], time.Date(2026, 3, 8, 4, 59, 0, 0, time.UTC).UnixMicro())
	for search, want := range map[string][]int64{"created:2026-03-08": nil, "created:2026-03-07": {1}} {
		if got := find(desk.TicketQuery{Text: search, Reader: desk.Reader{Zone: havana}}); !slices.Equal(got, want) {
			t.Errorf("%s in Havana: found %v, want %v", search, got, want)
		}
	}
	for search, want := range map[string]string{
		"status:opne":          "no such status: opne; did you mean open?",
		"priority:hihg":        "no such priority: hihg; did you mean high?",
		"channel:emial":        "no such channel: emial; did you mean email?",
		"status:odd":           "status is one of open, pending",
		"status:>open":         "has values, and no order",
		"tag:,":                "a value must follow",
		"channel:fax":          "channel is one of",
		"assignee:me":          "an API key is no member",
		"assignee:x@y.example": "no member has this e-mail address",
		"created:yesterday":    "use created:2026-01-31",
		"-created:2026-01-01":  "use created:2026-01-31",
		"number:x":             "use number:6",
		"-customer:x":          "cannot be excluded",
	} {
		_, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, desk.TicketQuery{Text: search})
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.Invalid || len(p.Issues) != 1 || p.Issues[0].Path != "q" || !strings.Contains(p.Issues[0].Message, want) {
			t.Errorf("%q: got %v, want %q", search, err, want)
		}
	}
}

// TestFaultyFilters: a list ignores faulty filters and describes them, if the caller wants it.
func TestFaultyFilters(t *testing.T) {
	f := newFixture(t)
	for i, body := range []string{"my lock", "my lock again", "my wheel"} {
		f.intake(text(fmt.Sprintf("+491511234567%d", i), body))
	}
	f.setStatus(f.intake(text("+4915112345671", "closed")).TicketID, desk.StatusClosed)
	f.index()
	for search, want := range map[string]struct {
		numbers []int64
		faults  int
	}{
		"status:opne lock":                      {[]int64{1, 2}, 1},
		"status:open lock":                      {[]int64{1}, 0},
		"status:opne status:open lock":          {[]int64{1}, 1},
		"status:opne channel:fax":               {nil, 2},
		"assignee:nobody@x.example status:open": {[]int64{1, 3}, 1},
		"tag:, created:yesterday wheel":         {[]int64{3}, 2},
	} {
		faults := []string{"of before"}
		list, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, desk.TicketQuery{Text: search, Faults: &faults, Sort: keyset.Sort{Field: desk.ByNumber}})
		if want.faults == 0 {
			faults = nil
		}
		if err != nil || !slices.Equal(numbersOf(list), want.numbers) || len(faults) != want.faults {
			t.Errorf("%q: found %v with faults %q, %v, want %v", search, numbersOf(list), faults, err, want)
		}
	}
}
