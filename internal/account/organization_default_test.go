package account_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// wantDefault checks the id of the default organization; empty: none.
func (f *fixture) wantDefault(t *testing.T, when, id string) {
	t.Helper()
	got, ok, err := f.DefaultOrganization(t.Context(), f.db)
	if err != nil || got != id || ok != (id != "") {
		t.Errorf("%s: the default organization is %q, %t, %v; want %q", when, got, ok, err, id)
	}
}

// signUp signs up a new user with an organization.
func (f *fixture) signUp(t *testing.T, email, name string) account.Organization {
	t.Helper()
	done, err := f.CompleteSignup(t.Context(), f.signIn(t, email).User.ID, account.SignupRequest{Name: "Ada", OrganizationName: name})
	if err != nil {
		t.Fatal(err)
	}
	return done.Organization
}

func (f *fixture) create(t *testing.T, n account.NewOrganization) account.Organization {
	t.Helper()
	o, err := f.CreateOrganization(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSignUpNeverBecomesDefault: on a public server no sign-up, first or later, makes an
// organization the default that receives unconnected events.
func TestSignUpNeverBecomesDefault(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.wantDefault(t, "empty", "")
	first := f.signUp(t, "mallory@evil.example", "First")
	if first.CreatedBy != account.CreatedBySignUp {
		t.Errorf("the organization was made by %q", first.CreatedBy)
	}
	f.wantDefault(t, "one sign-up", "")
	acme := f.create(t, account.NewOrganization{Name: "Acme"})
	if acme.CreatedBy != account.CreatedByOperator {
		t.Errorf("the organization was made by %q", acme.CreatedBy)
	}
	f.wantDefault(t, "one of the operator's", acme.ID)
	f.signUp(t, "eve@evil.example", "Later")
	f.wantDefault(t, "a later sign-up", acme.ID)
	other := f.create(t, account.NewOrganization{Name: "Other"})
	f.wantDefault(t, "another of the operator's", acme.ID)

	if o, err := f.SetDefaultOrganization(t.Context(), other.Slug); err != nil || o != other {
		t.Fatalf("SetDefaultOrganization() = %+v, %v", o, err)
	}
	f.wantDefault(t, "named", other.ID)
	f.signUp(t, "zoe@evil.example", "Last")
	f.wantDefault(t, "named, and a sign-up", other.ID)
	third := f.create(t, account.NewOrganization{Name: "Third", Default: true})
	f.wantDefault(t, "created as the default", third.ID)
	// The operator may name one from a sign-up.
	if _, err := f.SetDefaultOrganization(t.Context(), first.Slug); err != nil {
		t.Fatal(err)
	}
	f.wantDefault(t, "a signed-up one, named", first.ID)
	if _, err := f.SetDefaultOrganization(t.Context(), "nobody"); problem.Of(err) != problem.NotFound {
		t.Errorf("an unknown slug: %v, want it not found", err)
	}
	f.wantDefault(t, "after an unknown slug", first.ID)
}

// TestFirstIsDefault: with FirstIsDefault the first organization is the default, and a
// later sign-up does not change it.
func TestFirstIsDefault(t *testing.T) {
	f := newFixture(t, dbtest.New(t), func(c *account.Config) { c.FirstIsDefault = true })
	f.wantDefault(t, "empty", "")
	first := f.signUp(t, "ada@one.example", "First")
	f.wantDefault(t, "one sign-up", first.ID)
	f.signUp(t, "eve@two.example", "Second")
	f.wantDefault(t, "a second sign-up", first.ID)
	acme := f.create(t, account.NewOrganization{Name: "Acme"})
	f.wantDefault(t, "one of the operator's", acme.ID)
}

// TestDefaultsAtOnce: concurrent changes of the default leave one.
func TestDefaultsAtOnce(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	for i := range 8 {
		f.create(t, account.NewOrganization{Name: fmt.Sprint("Acme ", i)})
	}
	var named sync.WaitGroup
	for i := range 8 {
		named.Go(func() {
			if _, err := f.SetDefaultOrganization(t.Context(), fmt.Sprint("acme-", i)); err != nil {
				t.Error(err)
			}
		})
	}
	named.Wait()
	var n int
	if err := f.db.QueryRow(t.Context(), "SELECT count(*) FROM default_organization").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d organizations are the default, %v", n, err)
	}
}
