package desk_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func (f *fixture) createView(org string, n desk.NewView) (v desk.View, err error) {
	err = f.db.Write(f.Context(), func(tx *db.Tx) error {
		v, err = f.desk.CreateViewTx(f.Context(), tx, org, n)
		return err
	})
	return v, err
}

func (f *fixture) mustCreateView(n desk.NewView) desk.View {
	f.Helper()
	v, err := f.createView(orgA, n)
	if err != nil {
		f.Fatal(err)
	}
	return v
}

func (f *fixture) updateView(org, userID, id string, u desk.ViewUpdate) (v desk.View, err error) {
	err = f.db.Write(f.Context(), func(tx *db.Tx) error {
		v, err = f.desk.UpdateViewTx(f.Context(), tx, org, userID, id, u)
		return err
	})
	return v, err
}

func (f *fixture) deleteView(org, userID, id string) error {
	return f.db.Write(f.Context(), func(tx *db.Tx) error {
		_, err := f.desk.DeleteViewTx(f.Context(), tx, org, userID, id)
		return err
	})
}

// viewNames lists the views that a member sees: "Name 1", with their positions.
func (f *fixture) viewNames(org, userID string) string {
	f.Helper()
	list, err := f.desk.Views(f.Context(), f.db, org, userID)
	if err != nil {
		f.Fatal(err)
	}
	var names []string
	for _, v := range list {
		names = append(names, fmt.Sprint(v.Name, " ", v.Position))
	}
	return strings.Join(names, ", ")
}

func TestViews(t *testing.T) {
	f := newFixture(t)
	a := f.mustCreateView(desk.NewView{Name: " A ", Query: " status:open assignee:me "})
	if a.Name != "A" || a.Query != "status:open assignee:me" || desk.SortText(a.Sort) != "-updated_at" || !slices.Equal(a.Columns, desk.DefaultColumns) || a.Position != 1 {
		t.Errorf("created %+v", a)
	}
	f.mustCreateView(desk.NewView{Name: "B", Columns: []desk.Column{}})
	c := f.mustCreateView(desk.NewView{Name: "C", Position: 1, Sort: keyset.Sort{Field: desk.ByDueAt}, Columns: []desk.Column{desk.ColumnTags, desk.ColumnStatus}})
	own := f.mustCreateView(desk.NewView{Name: "Own", OwnerID: graceID})
	for who, want := range map[string]string{"": "C 1, A 2, B 3", graceID: "Own 1, C 1, A 2, B 3", fredID: "C 1, A 2, B 3"} {
		if got := f.viewNames(orgA, who); got != want {
			t.Errorf("%q sees %s, want %s", who, got, want)
		}
	}
	read, err := f.desk.View(t.Context(), f.db, orgA, "", c.ID)
	if err != nil || read.Sort != c.Sort || !slices.Equal(read.Columns, c.Columns) || !read.CreatedAt.Equal(c.CreatedAt) {
		t.Errorf("read %+v, %v; created %+v", read, err, c)
	}

	// Order.
	if _, err := f.updateView(orgA, "", c.ID, desk.ViewUpdate{Position: new(2)}); err != nil {
		t.Fatal(err)
	}
	if got := f.viewNames(orgA, ""); got != "A 1, C 2, B 3" {
		t.Errorf("moved: %s", got)
	}
	if v, err := f.updateView(orgA, "", c.ID, desk.ViewUpdate{Position: new(99), Name: new("D")}); err != nil || v.Position != 3 {
		t.Errorf("moved to %d, %v", v.Position, err)
	}
	if got := f.viewNames(orgA, ""); got != "A 1, B 2, D 3" {
		t.Errorf("moved: %s", got)
	}
	// A view that is shared joins the other list as its last.
	shared, err := f.updateView(orgA, graceID, own.ID, desk.ViewUpdate{OwnerID: new("")})
	if err != nil || shared.Position != 4 {
		t.Errorf("shared %+v, %v", shared, err)
	}
	if _, err := f.updateView(orgA, graceID, a.ID, desk.ViewUpdate{OwnerID: new(graceID)}); err != nil {
		t.Fatal(err)
	}
	if got := f.viewNames(orgA, graceID); got != "A 1, B 1, D 2, Own 3" {
		t.Errorf("shared: %s", got)
	}
	if err := f.deleteView(orgA, fredID, c.ID); err != nil {
		t.Fatal(err)
	}
	if got := f.viewNames(orgA, ""); got != "B 1, Own 2" {
		t.Errorf("deleted: %s", got)
	}

	// Other members and other organizations.
	for who, org := range map[string]string{fredID: orgA, "": orgA, graceID: orgB} {
		_, readErr := f.desk.View(t.Context(), f.db, org, who, a.ID)
		_, updateErr := f.updateView(org, who, a.ID, desk.ViewUpdate{Name: new("X")})
		for _, err := range []error{readErr, updateErr, f.deleteView(org, who, a.ID)} {
			if problem.Of(err) != problem.NotFound {
				t.Errorf("%q of %s: got %v, want not found", who, org, err)
			}
		}
	}
	if got := f.viewNames(orgB, graceID); got != "" {
		t.Errorf("the other organization has %s", got)
	}

	// Who leaves takes the own views with them.
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnassignTx(t.Context(), tx, orgA, graceID) }); err != nil {
		t.Fatal(err)
	}
	if got := f.viewNames(orgA, graceID); got != "B 1, Own 2" {
		t.Errorf("after leaving: %s", got)
	}
}

func TestWrongViews(t *testing.T) {
	f := newFixture(t)
	v := f.mustCreateView(desk.NewView{Name: "A"})
	for _, c := range []struct {
		view desk.NewView
		want string
	}{
		{desk.NewView{Name: " "}, "name must not be empty"},
		{desk.NewView{Name: strings.Repeat("n", 81)}, "name must have at most 80"},
		{desk.NewView{Name: "a\nb"}, "name must not contain control characters"},
		{desk.NewView{Name: "A", Query: "status:opne lock"}, "query has a fault: no such status: opne; did you mean open?"},
		{desk.NewView{Name: "A", Query: "assignee:heidi@b.example"}, "no member has this e-mail address"},
		{desk.NewView{Name: "A", Query: strings.Repeat("q", 401)}, "query must have at most 400"},
		{desk.NewView{Name: "A", Sort: keyset.Sort{Field: "subject"}}, "sort must be one of"},
		{desk.NewView{Name: "A", Columns: []desk.Column{"colour"}}, "columns must be of status"},
		{desk.NewView{Name: "A", Columns: []desk.Column{desk.ColumnTags, desk.ColumnTags}}, "columns must not have tags twice"},
	} {
		_, err := f.createView(orgA, c.view)
		_, updateErr := f.updateView(orgA, "", v.ID, desk.ViewUpdate{Name: &c.view.Name, Query: &c.view.Query, Columns: &c.view.Columns, Sort: new(c.view.Sort)})
		if c.view.Sort.Field == "" {
			updateErr = err
		}
		for _, err := range []error{err, updateErr} {
			if problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: got %v, want %q", c.view, err, c.want)
			}
		}
	}
	if got := f.viewNames(orgA, ""); got != "A 1" {
		t.Errorf("there are %s", got)
	}
}

func TestMaxViews(t *testing.T) {
	f := newFixture(t)
	for i := range desk.MaxViews {
		f.mustCreateView(desk.NewView{Name: fmt.Sprint(i)})
	}
	own := f.mustCreateView(desk.NewView{Name: "Own", OwnerID: graceID})
	_, createErr := f.createView(orgA, desk.NewView{Name: "One more"})
	_, shareErr := f.updateView(orgA, graceID, own.ID, desk.ViewUpdate{OwnerID: new("")})
	for _, err := range []error{createErr, shareErr} {
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Code != "invalid_transition" || !strings.Contains(p.Message, "100 shared views") {
			t.Errorf("got %v", err)
		}
	}
	if list, err := f.desk.Views(t.Context(), f.db, orgA, graceID); err != nil || len(list) != desk.MaxViews+1 || list[0].ID != own.ID || list[100].Name != "99" {
		t.Errorf("got %d views, %v", len(list), err)
	}
	if _, err := f.createView(orgB, desk.NewView{Name: "Theirs"}); err != nil {
		t.Errorf("of the other organization: %v", err)
	}
}

func TestCountTickets(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for i := range 7 {
		ids = append(ids, f.intake(text(fmt.Sprint("+49151123456", 10+i), fmt.Sprint("hello ", i))).TicketID)
	}
	theirs := text("+4915112345699", "hello")
	theirs.OrganizationID = orgB
	f.intake(theirs)
	f.setStatus(ids[0], desk.StatusPending)
	if _, err := f.update(orgA, ids[1], desk.Update{Tags: &[]string{"lock"}}); err != nil {
		t.Fatal(err)
	}
	f.index()
	for _, c := range []struct {
		query string
		most  int
		want  string
	}{
		{"", 10, "7 false"}, {"", 7, "7 false"}, {"", 6, "6 true"}, {"status:open", 10, "6 false"}, {"tag:lock", 10, "1 false"},
		{"status:open -tag:lock", 3, "3 true"}, {"hello", 10, "7 false"}, {"hello status:pending", 10, "1 false"}, {"tag:none", 10, "0 false"}, {"assignee:me", 10, "0 false"},
	} {
		for _, sort := range desk.TicketSorts {
			n, more, err := f.desk.CountTickets(t.Context(), f.db, orgA, desk.TicketQuery{Text: c.query, Sort: keyset.Sort{Field: sort}, Reader: desk.Reader{UserID: graceID}}, c.most)
			want := c.want
			if sort == desk.ByDueAt {
				want = "0 false"
			}
			if got := fmt.Sprintf("%d %t", n, more); err != nil || got != want {
				t.Errorf("%q by %s up to %d: got %s, %v, want %s", c.query, sort, c.most, got, err, want)
			}
		}
	}
	_, _, err := f.desk.CountTickets(t.Context(), f.db, orgA, desk.TicketQuery{Text: "status:opne"}, 10)
	if desk.SearchFault(err) == "" {
		t.Errorf("got %v", err)
	}
	// Beyond the limits the count is a lower bound, and frequent words are not counted.
	f.desk.NarrowLimits()
	for i := range 140 {
		f.intake(text(fmt.Sprint("+49151123457", 10+i), fmt.Sprint("more ", i)))
	}
	f.index()
	n, more, err := f.desk.CountTickets(t.Context(), f.db, orgA, desk.TicketQuery{Text: "channel:sms -tag:lock assignee:none"}, 1000)
	if err != nil || n == 0 || n >= 100 || !more {
		t.Errorf("within narrow limits: got %d, %t, %v", n, more, err)
	}
	if n, more, err := f.desk.CountTickets(t.Context(), f.db, orgA, desk.TicketQuery{Text: "more"}, 100); !f.db.Postgres() && (err != nil || n != 0 || !more) {
		t.Errorf("frequent words: got %d, %t, %v", n, more, err)
	}
}
