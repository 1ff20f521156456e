package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// site is the fleet of one organization, for tests.
type site struct {
	*fleet.Service
	db  *db.DB
	org string
	// The only subaccount, with a scooter type and a default plan.
	sub     fleet.Subaccount
	scooter string
	plan    fleet.Plan
}

// newSite returns a fleet with a subaccount, a vehicle type and a plan.
func newSite(t testing.TB) *site {
	t.Helper()
	return newSiteOn(t, dbtest.NewFleet(t), true)
}

func newSiteOn(t testing.TB, d *db.DB, live bool) *site {
	t.Helper()
	s := &site{Service: fleet.Open(fleet.Config{DB: d, Live: live}), db: d, org: "org-1"}
	o := fleet.Organization{ID: s.org, Name: "Acme Mobility"}
	if err := s.Provision(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !live {
		s.write(t, func(ctx context.Context, tx *db.Tx) error { return s.CreateWithoutRecordsTx(ctx, tx, o) })
	}
	subs, err := s.Subaccounts(t.Context(), d, s.org)
	if err != nil || len(subs) != 1 {
		t.Fatalf("got %d subaccounts, %v; want 1", len(subs), err)
	}
	s.sub = subs[0]
	s.changeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of([]fleet.VehicleType{scooter()})})
	s.scooter = s.sub.VehicleTypes[0].ID
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		s.plan, err = s.CreatePlanTx(ctx, tx, s.org, newPlan(s.sub.ID))
		return err
	})
	s.changeSub(t, fleet.SubaccountChange{DefaultPricingPlanID: optional.Of(fleet.NullString(s.plan.ID))})
	return s
}

func scooter() fleet.VehicleType {
	return fleet.VehicleType{Name: "Scooter", FormFactor: "scooter_standing", PropulsionType: "electric", MaxRangeMeters: new(int64(45_000)), ReservationMinutes: 15}
}

func newPlan(subaccountID string) fleet.NewPlan {
	return fleet.NewPlan{SubaccountID: subaccountID, Name: "Standard", Tariff: tariff.Tariff{UnlockAmount: 100, PerMinute: []tariff.Segment{{Rate: 25, Interval: 1}}}}
}

func newCustomer(subaccountID string) fleet.NewCustomer {
	return fleet.NewCustomer{SubaccountID: subaccountID, Name: "Ada Example", Email: "Ada@example.com", Phone: "+4930901820", Language: "de"}
}

func newZone(t testing.TB, subaccountID string) fleet.NewZone {
	return fleet.NewZone{SubaccountID: subaccountID, Name: "Mitte", Type: fleet.ServiceArea, Geometry: box(t, "13", "52", "14", "53")}
}

// write runs fn in a transaction and fails the test on an error.
func (s *site) write(t testing.TB, fn func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	if err := s.try(t, fn); err != nil {
		t.Fatal(err)
	}
}

// try runs fn in a transaction and returns its error.
func (s *site) try(t testing.TB, fn func(ctx context.Context, tx *db.Tx) error) error {
	return s.db.Write(t.Context(), func(tx *db.Tx) error { return fn(t.Context(), tx) })
}

// changeSub updates the subaccount.
func (s *site) changeSub(t testing.TB, c fleet.SubaccountChange) {
	t.Helper()
	if err := s.tryChangeSub(t, c); err != nil {
		t.Fatal(err)
	}
}

func (s *site) tryChangeSub(t testing.TB, c fleet.SubaccountChange) error {
	return s.try(t, func(ctx context.Context, tx *db.Tx) error {
		sub, err := s.LockSubaccountTx(ctx, tx, s.org, s.sub.ID)
		if err != nil {
			return err
		}
		sub, err = s.UpdateSubaccountTx(ctx, tx, s.org, sub, c)
		if err == nil {
			s.sub = sub
		}
		return err
	})
}

// faults formats an error as its code, or as "path code" of each issue, sorted.
func faults(err error) string {
	e, ok := errors.AsType[*problem.Error](err)
	switch {
	case err == nil:
		return "none"
	case !ok:
		return "not a problem: " + err.Error()
	case e.Code != "" && e.Details["member"] != nil:
		return fmt.Sprintf("%s %s", e.Code, e.Details["member"])
	case e.Code != "":
		return e.Code
	case len(e.Issues) == 0:
		return e.Kind.String()
	}
	var list []string
	for _, i := range e.Issues {
		list = append(list, i.Path+" "+i.Code)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func wantFaults(t *testing.T, name string, err error, want string) {
	t.Helper()
	if got := faults(err); got != want {
		t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
}
