package account_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestSetPlanState(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	write := func(fn func(tx *db.Tx) error) {
		t.Helper()
		if err := f.db.Write(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx *db.Tx) error { return f.SetPendingPlanTx(t.Context(), tx, o.ID, account.Pro) })
	for _, tt := range []struct {
		name      string
		set, want account.PlanState
	}{
		{"only a payment failed", account.PlanState{PastDue: true}, account.PlanState{Plan: account.Free, PendingPlan: account.Pro, PastDue: true}},
		{"raised", account.PlanState{Plan: account.Pro}, account.PlanState{Plan: account.Pro}},
		{"the same again", account.PlanState{Plan: account.Pro}, account.PlanState{Plan: account.Pro}},
		{"wants more", account.PlanState{Plan: account.Pro, PendingPlan: account.Business}, account.PlanState{Plan: account.Pro, PendingPlan: account.Business}},
		{"dropped", account.PlanState{Plan: account.Free}, account.PlanState{Plan: account.Free}},
	} {
		was, err := f.Organization(t.Context(), o.ID)
		if err != nil {
			t.Fatal(err)
		}
		write(func(tx *db.Tx) error {
			before, err := f.SetPlanStateTx(t.Context(), tx, o.ID, tt.set)
			if err == nil && before != was {
				t.Errorf("%s: SetPlanStateTx() = %+v, want what was before, %+v", tt.name, before, was)
			}
			return err
		})
		now, err := f.Organization(t.Context(), o.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got := (account.PlanState{Plan: now.Plan, PendingPlan: now.PendingPlan, PastDue: now.PastDue}); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		if changed := now.UpdatedAt != was.UpdatedAt; changed != (tt.name != "the same again") {
			t.Errorf("%s: updated %t", tt.name, changed)
		}
	}
	err = f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := f.SetPlanStateTx(t.Context(), tx, "none", account.PlanState{Plan: account.Pro})
		return err
	})
	if problem.Of(err) != problem.NotFound {
		t.Errorf("SetPlanStateTx() of nobody: %v, want not found", err)
	}
}

func TestOrganizations(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	for _, name := range []string{"Zeta", "Acme"} {
		if _, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: name, Plan: account.Pro}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := f.Organizations(t.Context())
	if err != nil || len(list) != 2 || list[0].Slug != "zeta" || list[1].Slug != "acme" {
		t.Errorf("Organizations() = %+v, %v; want zeta and acme", list, err)
	}
}

func TestPlans(t *testing.T) {
	for _, tt := range []struct {
		text string
		want account.Plan
		ok   bool
	}{
		{"pro", account.Pro, true}, {" Business ", account.Business, true}, {"free", account.Free, true}, {"gold", "", false}, {"", "", false},
	} {
		if got, ok := account.ParsePlan(tt.text); got != tt.want || ok != tt.ok {
			t.Errorf("ParsePlan(%q) = %q, %t; want %q, %t", tt.text, got, ok, tt.want, tt.ok)
		}
	}
	if account.Free.Compare(account.Pro) >= 0 || account.Business.Compare(account.Pro) <= 0 || account.Pro.Compare(account.Pro) != 0 {
		t.Error("plans are not in the order free, pro, business")
	}
}
