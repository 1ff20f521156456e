package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestCustomerText: customers are found by parts of names, addresses, numbers and external ids, page
// by page and in an export, and only those of the organization and the permitted subaccounts.
func TestCustomerText(t *testing.T) {
	s := newSite(t)
	names := make(map[string]string)
	add := func(name, email, phone, external string) {
		t.Helper()
		s.write(t, func(ctx context.Context, tx *db.Tx) error {
			n := newCustomer(s.sub.ID)
			n.Name, n.Email, n.Phone, n.ExternalID = fleet.NullString(name), fleet.NullString(email), fleet.NullString(phone), fleet.NullString(external)
			c, err := s.CreateCustomerTx(ctx, tx, s.org, n)
			names[c.ID], _, _ = strings.Cut(name, " ")
			return err
		})
	}
	add("José Núñez", "pepe.nunez@client.example", "+49 1511 2345678", "crm-4711")
	add("Max Weber", "max@client.example", "+49 30 901820", "")
	add("Maxine Núñez", "", "", "47")
	add("Zoë 100% O'Neil", "", "", "")
	find := func(q fleet.CustomerQuery) string {
		t.Helper()
		var found []string
		for {
			docs, next, err := s.ListCustomers(t.Context(), s.db, s.org, q)
			if err != nil {
				t.Fatalf("%q: %v", q.Text, err)
			}
			for _, d := range docs {
				found = append(found, names[d.ID])
			}
			if next == nil {
				slices.Sort(found)
				return strings.Join(found, " ")
			}
			q.After = next
		}
	}
	for text, want := range map[string]string{
		"nunez": "José Maxine", "NÚÑ": "José Maxine", "max": "Max Maxine", "max nun": "Maxine", "une jos": "José", "client.exa": "José Max", "pepe": "José",
		"max@client.example": "Max", "MAX@client.EXAMPLE": "Max", "47": "Maxine", "471": "José", "5678": "José", "0151 12345": "José", "+49 1511 2345678": "José", "(030) 9018": "Max", "901820": "Max",
		"100%": "Zoë", "%": "", "_": "", "'": "", "o'neil": "Zoë", "zoe": "Zoë", "oe": "", "x' OR ''='": "", "   ": "",
	} {
		if got := find(fleet.CustomerQuery{Text: text}); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if got := find(fleet.CustomerQuery{Text: text, Limit: 1}); got != want {
			t.Errorf("%q one by one: got %q, want %q", text, got, want)
		}
		var exported []string
		err := s.EachCustomer(t.Context(), s.org, fleet.CustomerQuery{Text: text}, func(d *fleet.Record) error {
			exported = append(exported, names[d.ID])
			return nil
		})
		slices.Sort(exported)
		if err != nil || strings.Join(exported, " ") != want {
			t.Errorf("%q: exported %q, %v", text, exported, err)
		}
	}
	for _, q := range []fleet.CustomerQuery{
		{Text: "nunez", Subaccounts: []string{}}, {Text: "nunez", Subaccount: []string{"sub_other"}}, {Text: "nunez", Status: []fleet.CustomerStatus{fleet.CustomerBlocked}}, {Text: "max@client.example", Subaccounts: []string{}},
	} {
		if got := find(q); got != "" {
			t.Errorf("%+v: got %s", q, got)
		}
	}
	if docs, _, err := s.ListCustomers(t.Context(), s.db, "org_other", fleet.CustomerQuery{Text: "nunez"}); err != nil || len(docs) != 0 {
		t.Errorf("another organization got %d, %v", len(docs), err)
	}
	for _, q := range []fleet.CustomerQuery{{Text: strings.Repeat("x", 201)}, {Text: "a\x00"}, {Text: "x", Sort: keyset.Sort{Field: "name"}}, {Text: "x", After: &keyset.Cursor{Value: "x"}}} {
		if _, _, err := s.ListCustomers(t.Context(), s.db, s.org, q); problem.Of(err) != problem.Invalid {
			t.Errorf("%.20q: got %v", q.Text, err)
		}
	}
}

// TestCustomerTextShared: all customers who share an address or a number are found, page by page, and
// only they.
func TestCustomerTextShared(t *testing.T) {
	s := newSite(t)
	for i := range 4 {
		s.write(t, func(ctx context.Context, tx *db.Tx) error {
			n := newCustomer(s.sub.ID)
			n.Name, n.Email, n.Phone, n.ExternalID = "Ana", "Desk@client.example", "+493090182000", ""
			if i == 3 {
				n.Email, n.Phone = "help.desk@client.example", "+4930901820001"
			}
			_, err := s.CreateCustomerTx(ctx, tx, s.org, n)
			return err
		})
	}
	for _, q := range []fleet.CustomerQuery{
		{Text: "desk@CLIENT.example"}, {Text: "+49 30 90182000"}, {Text: "desk@client.example", Email: []string{"DESK@client.example"}, Status: []fleet.CustomerStatus{fleet.CustomerActive}},
	} {
		for _, q.Limit = range []int{1, 2, 3, 0} {
			found := make(map[string]bool)
			for {
				docs, next, err := s.ListCustomers(t.Context(), s.db, s.org, q)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range docs {
					found[d.ID] = true
				}
				if next == nil {
					break
				}
				q.After = next
			}
			if q.After = nil; len(found) != 3 {
				t.Errorf("%q by %d: got %d", q.Text, q.Limit, len(found))
			}
		}
	}
	if docs, _, err := s.ListCustomers(t.Context(), s.db, s.org, fleet.CustomerQuery{Text: "desk@client.example", Email: []string{"other@client.example"}}); err != nil || len(docs) != 0 {
		t.Errorf("got %d, %v", len(docs), err)
	}
}

// TestCustomerTextMany: more customers than one statement reads.
func TestCustomerTextMany(t *testing.T) {
	if testing.Short() {
		t.Skip("creates thousands of customers")
	}
	s := newSite(t)
	var want []string
	s.write(t, func(ctx context.Context, tx *db.Tx) error {
		for i := range 4100 {
			n := newCustomer(s.sub.ID)
			n.Name, n.Email, n.Phone, n.ExternalID = fleet.NullString(fmt.Sprintf("Rider %04d", i)), "", "", ""
			if i%1000 == 7 {
				n.Name = fleet.NullString(fmt.Sprintf("Nunez %04d", i))
			}
			c, err := s.CreateCustomerTx(ctx, tx, s.org, n)
			if err != nil {
				return err
			}
			if i%1000 == 7 {
				want = append(want, c.ID)
			}
		}
		return nil
	})
	slices.Sort(want)
	slices.Reverse(want)
	docs, next, err := s.ListCustomers(t.Context(), s.db, s.org, fleet.CustomerQuery{Text: "UNEZ"})
	var got []string
	for _, d := range docs {
		got = append(got, d.ID)
	}
	if err != nil || next != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, %v", got, next, err)
	}
}
