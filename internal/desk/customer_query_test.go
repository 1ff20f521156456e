package desk_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// TestCustomerListsAreExact compares every way to find customers with a full scan,
// while customers are created and deleted between the pages.
func TestCustomerListsAreExact(t *testing.T) {
	f := newFixture(t)
	f.desk.SmallSteps()
	type human struct {
		id, name, email  string
		created, updated time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		r := random(t)
		w := &world{fixture: f, org: uuid.NewString(), base: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		var all []human
		add := func(n int) {
			w.write(func(tx *db.Tx) {
				for range n {
					h := human{
						uuid.Must(uuid.NewV7()).String(), pick(r, []string{"", "Ada", "ada", "Adam", "Zoë", "öl"}), fmt.Sprintf("P%d@a.example", len(all)),
						w.base.Add(time.Duration(r.IntN(9)) * time.Minute), w.base.Add(time.Duration(r.IntN(9)) * time.Minute),
					}
					all = append(all, h)
					w.exec(tx, "INSERT INTO customers (id, organization_id, name, email, phone, created_at, updated_at) VALUES ($1, $2, $3, $4, '', $5, $6)",
						h.id, w.org, h.name, h.email, h.created.UnixMicro(), h.updated.UnixMicro())
					w.exec(tx, "INSERT INTO contact_points (value, scope, kind, display, customer_id) VALUES ($1, $2, 'email', $3, $4)",
						strings.ToLower(h.email), w.org, h.email, h.id)
				}
			})
		}
		add(r.IntN(25))
		for range 10 {
			q := desk.CustomerQuery{
				Sort:  keyset.Sort{Field: pick(r, []string{"", desk.ByCreatedAt, desk.ByUpdatedAt, desk.ByName}), Descending: r.IntN(2) == 0},
				Limit: 1 + r.IntN(5), Name: pick(r, []string{"", "", "A", "adA", "Zoë", "x"}),
			}
			if r.IntN(4) == 0 {
				q.Email = []string{fmt.Sprintf("p%d@A.example", r.IntN(9)), "p3@a.example"}
			}
			if low, high := w.base.Add(2*time.Minute), w.base.Add(6*time.Minute); r.IntN(3) == 0 {
				q.CreatedAt = period.Range{Low: &low, HighOpen: true, High: &high}
			} else if r.IntN(3) == 0 {
				q.UpdatedAt = period.Range{Low: &low, LowOpen: true, High: &high}
			}
			var want []human
			for _, h := range all {
				if (q.Email == nil || slices.ContainsFunc(q.Email, func(e string) bool { return strings.EqualFold(e, h.email) })) &&
					strings.HasPrefix(strings.ToLower(h.name), strings.ToLower(q.Name)) && q.CreatedAt.Contains(h.created) && q.UpdatedAt.Contains(h.updated) {
					want = append(want, h)
				}
			}
			slices.SortFunc(want, func(a, b human) int {
				var c int
				switch q.Sort.Field {
				case desk.ByName:
					if (a.name == "") != (b.name == "") {
						return cmp.Compare(len(b.name), len(a.name))
					}
					c = cmp.Compare(strings.ToLower(a.name), strings.ToLower(b.name))
				case desk.ByUpdatedAt:
					c = a.updated.Compare(b.updated)
				default:
					c = a.created.Compare(b.created)
				}
				if c = cmp.Or(c, cmp.Compare(a.id, b.id)); q.Sort.Descending || q.Sort.Field == "" {
					c = -c
				}
				return c
			})
			var got, ids []string
			for _, h := range want {
				ids = append(ids, h.id)
			}
			for page := q; ; {
				list, next, err := f.desk.FindCustomers(context.Background(), f.db, w.org, page)
				if err != nil || next != nil && len(list) != q.Limit {
					t.Fatalf("%+v: %d, %v, %v", page, len(list), next, err)
				}
				for _, c := range list {
					got = append(got, c.ID)
				}
				if page.After = next; next == nil {
					break
				}
			}
			if !slices.Equal(got, ids) {
				t.Fatalf("%+v: got %v, want %v", q, got, ids)
			}
			got = nil
			if err := f.desk.EachCustomer(context.Background(), w.org, q, func(c *desk.Customer) error { got = append(got, c.ID); return nil }); err != nil || !slices.Equal(got, ids) {
				t.Fatalf("export of %+v: got %v, %v, want %v", q, got, err, ids)
			}
		}
	})
}

func TestCustomerListRefuses(t *testing.T) {
	f := newFixture(t)
	for _, q := range []desk.CustomerQuery{
		{Limit: -1}, {Sort: keyset.Sort{Field: "email"}}, {After: &keyset.Cursor{Value: "x"}}, {Email: make([]string, 101)}, {Name: strings.Repeat("x", 201)},
	} {
		if _, _, err := f.desk.FindCustomers(t.Context(), f.db, orgA, q); problem.Of(err) != problem.Invalid {
			t.Errorf("%+v: got %v, want invalid", q, err)
		}
	}
}

func TestMessageList(t *testing.T) {
	f := newFixture(t)
	r := f.intake(text(ana, "one"))
	for i := range 4 {
		if i == 2 {
			if _, err := f.note(orgA, r.TicketID, desk.Actor{ID: graceID}, desk.Draft{Text: "note"}); err != nil {
				t.Fatal(err)
			}
		}
		f.intake(text(ana, fmt.Sprint("more ", i)))
	}
	all := []string{"one", "more 0", "more 1", "note", "more 2", "more 3"}
	for _, c := range []struct {
		query desk.MessageQuery
		want  []string
	}{
		{desk.MessageQuery{Sort: keyset.Sort{Field: desk.ByCreatedAt}, Limit: 2}, all},
		{desk.MessageQuery{Sort: keyset.Sort{Field: desk.ByCreatedAt}, Kind: []string{"note"}}, []string{"note"}},
		{desk.MessageQuery{Sort: keyset.Sort{Field: desk.ByCreatedAt}, Direction: []string{"inbound"}, Limit: 1}, []string{"one", "more 0", "more 1", "more 2", "more 3"}},
		{desk.MessageQuery{Limit: 4}, []string{"more 3", "more 2", "note", "more 1", "more 0", "one"}},
	} {
		var got []string
		for page := c.query; ; {
			list, next, err := f.desk.FindMessages(t.Context(), f.db, orgA, r.TicketID, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				got = append(got, m.Text)
			}
			if page.After = next; next == nil {
				break
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %q, want %q", c.query, got, c.want)
		}
		got = nil
		if err := f.desk.EachMessage(t.Context(), orgA, r.TicketID, c.query, func(m *desk.Message) error { got = append(got, m.Text); return nil }); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("export of %+v: got %q, %v, want %q", c.query, got, err, c.want)
		}
	}
	if _, _, err := f.desk.FindMessages(t.Context(), f.db, orgB, r.TicketID, desk.MessageQuery{}); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization's: got %v, want not found", err)
	}
	if err := f.desk.EachMessage(t.Context(), orgB, r.TicketID, desk.MessageQuery{}, nil); problem.Of(err) != problem.NotFound {
		t.Errorf("export of another organization's: got %v, want not found", err)
	}
	for _, q := range []desk.MessageQuery{{Kind: []string{"x"}}, {Direction: []string{""}}, {Limit: 201}, {Sort: keyset.Sort{Field: "id"}}, {After: &keyset.Cursor{Value: "x"}}} {
		if _, _, err := f.desk.FindMessages(t.Context(), f.db, orgA, r.TicketID, q); problem.Of(err) != problem.Invalid {
			t.Errorf("%+v: got %v, want invalid", q, err)
		}
	}
}

// TestCustomersByWords finds customers, with and without tickets, by parts of what they are known by.
func TestCustomersByWords(t *testing.T) {
	f := newFixture(t)
	create := func(org string, n desk.NewCustomer) desk.Customer {
		c, err := f.createCustomer(org, n)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	names := map[string]string{}
	nunez := create(orgA, desk.NewCustomer{Name: "José Núñez", Emails: []string{"pepe.nunez@client.example"}, ExternalID: "CRM-4711"})
	weber := create(orgA, desk.NewCustomer{Name: "Max Weber", Phones: []string{"+49 1511 2345678"}})
	create(orgB, desk.NewCustomer{Name: "Max Weber"})
	chat := f.intake(said("", userID, "hello")).CustomerID
	names[nunez.ID], names[weber.ID], names[chat] = "nunez", "weber", "chat"
	find := func(org, text string) string {
		t.Helper()
		list, err := f.desk.CustomersByWords(t.Context(), f.db, org, text, 10)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, c := range list {
			found = append(found, names[c.ID])
		}
		slices.Sort(found)
		return strings.Join(found, " ")
	}
	f.index()
	for text, want := range map[string]string{
		"une": "nunez", "NÚÑ jos": "nunez", "pepe": "nunez", "nunez@cli": "nunez", "4711": "nunez", "711": "nunez", "jo": "nunez", "os": "",
		"eber ma": "weber", "0151 12345": "weber", "5678": "weber", "+49 1511 2345678": "weber", "23456": "weber", "weber nunez": "",
		"77aa": "chat", "": "", "\"": "", "'": "", "' OR ''='": "", "zzz": "",
	} {
		if got := find(orgA, text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	// A list combines them with the beginning of the name, which needs no index.
	late := create(orgA, desk.NewCustomer{Name: "Zuzanna"})
	for text, want := range map[string]int{"zuz": 1, "zanna": 0, "eber": 1, "xa": 0, "ex": 1} {
		if list, _, err := f.desk.FindCustomers(t.Context(), f.db, orgA, desk.CustomerQuery{Text: text}); err != nil || len(list) != want {
			t.Errorf("%s: got %d, %v", text, len(list), err)
		}
	}
	f.index()
	names[late.ID] = "late"
	if got := find(orgA, "zanna"); got != "late" {
		t.Errorf("got %q", got)
	}
	// Changes, merges and deletions follow.
	if _, err := f.updateCustomer(orgA, weber.ID, desk.CustomerUpdate{Name: new("Moritz"), ExternalID: new("x-99")}); err != nil {
		t.Fatal(err)
	}
	f.mustMergeCustomers(late.ID, weber.ID)
	if err := f.deleteCustomer(orgA, nunez.ID); err != nil {
		t.Fatal(err)
	}
	f.index()
	for text, want := range map[string]string{"eber": "", "orit": "weber", "x-99": "weber", "zanna": "", "une": ""} {
		if got := find(orgA, text); got != want {
			t.Errorf("%q afterwards: got %q, want %q", text, got, want)
		}
	}
	f.wantInvariants(t)
}
