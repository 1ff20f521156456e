package fleet_test

import (
	"context"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// TestRecords makes one of each and reads it again.
func TestRecords(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	var c fleet.Customer
	var z fleet.Zone
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		if c, err = s.CreateCustomer(ctx, tx, s.org, newCustomer(s.sub.ID)); err != nil {
			return err
		}
		z, err = s.CreateZone(ctx, tx, s.org, newZone(t, s.sub.ID))
		return err
	})
	same := func(what string, made, read fleet.Doc, err error) {
		t.Helper()
		if err != nil || string(made.JSON) != string(read.JSON) || made.Revision != read.Revision || made.Revision < 1 || made.SubaccountID != s.sub.ID {
			t.Errorf("%s: made %+v\n%s, then read %+v\n%s, %v", what, made, made.JSON, read, read.JSON, err)
		}
	}
	made, _ := c.Doc()
	customer, err := s.Customer(ctx, s.db, s.org, c.ID)
	read, _ := customer.Doc()
	same("customer", made, read, err)
	made, _ = z.Doc()
	zone, err := s.Zone(ctx, s.db, s.org, z.ID)
	read, _ = zone.Doc()
	same("zone", made, read, err)
	made, _ = s.plan.Doc()
	plan, err := s.Plan(ctx, s.db, s.org, s.plan.ID)
	read, _ = plan.Doc()
	same("plan", made, read, err)
	made, _ = s.sub.Doc()
	sub, err := s.Subaccount(ctx, s.db, s.org, s.sub.ID)
	read, _ = sub.Doc()
	same("subaccount", made, read, err)

	for what, read := range map[string]func(org, id string) error{
		"customer":   func(org, id string) error { _, err := s.Customer(ctx, s.db, org, id); return err },
		"zone":       func(org, id string) error { _, err := s.Zone(ctx, s.db, org, id); return err },
		"plan":       func(org, id string) error { _, err := s.Plan(ctx, s.db, org, id); return err },
		"subaccount": func(org, id string) error { _, err := s.Subaccount(ctx, s.db, org, id); return err },
	} {
		id := map[string]string{"customer": c.ID, "zone": z.ID, "plan": s.plan.ID, "subaccount": s.sub.ID}[what]
		wantFaults(t, what+" of another organization", read("org-2", id), "not found")
		wantFaults(t, "no "+what, read(s.org, id+"0"), "not found")
	}
}
