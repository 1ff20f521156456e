package fleet_test

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// TestRecords creates a record of each kind and reads it.
func TestRecords(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	var c fleet.Customer
	var z fleet.Zone
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		if c, err = s.CreateCustomerTx(ctx, tx, s.org, newCustomer(s.sub.ID)); err != nil {
			return err
		}
		z, err = s.CreateZoneTx(ctx, tx, s.org, newZone(t, s.sub.ID))
		return err
	})
	same := func(what string, made, read fleet.Record, err error) {
		t.Helper()
		if err != nil || string(made.JSON) != string(read.JSON) || made.Revision != read.Revision || made.Revision < 1 || made.SubaccountID != s.sub.ID {
			t.Errorf("%s: made %+v\n%s, then read %+v\n%s, %v", what, made, made.JSON, read, read.JSON, err)
		}
	}
	made, _ := c.Record()
	customer, err := s.Customer(ctx, s.db, s.org, c.ID)
	read, _ := customer.Record()
	same("customer", made, read, err)
	made, _ = z.Record()
	zone, err := s.Zone(ctx, s.db, s.org, z.ID)
	read, _ = zone.Record()
	same("zone", made, read, err)
	made, _ = s.plan.Record()
	plan, err := s.Plan(ctx, s.db, s.org, s.plan.ID)
	read, _ = plan.Record()
	same("plan", made, read, err)
	made, _ = s.sub.Record()
	sub, err := s.Subaccount(ctx, s.db, s.org, s.sub.ID)
	read, _ = sub.Record()
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

func long(n int) string { return strings.Repeat("x", n) }

func manyKeys(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[strconv.Itoa(i)] = ""
	}
	return m
}

// TestIDsAscend: records created in one millisecond sort by creation.
func TestIDsAscend(t *testing.T) {
	s := newSite(t)
	var last string
	s.write(t, func(ctx context.Context, tx *db.Tx) error {
		for range 100 {
			c, err := s.CreateCustomerTx(ctx, tx, s.org, newCustomer(s.sub.ID))
			if err != nil {
				return err
			}
			if c.ID <= last {
				t.Fatalf("%s was made after %s", c.ID, last)
			}
			last = c.ID
		}
		return nil
	})
}

func TestCustomerFaults(t *testing.T) {
	s := newSite(t)
	s.write(t, func(ctx context.Context, tx *db.Tx) error {
		n := newCustomer(s.sub.ID)
		n.ExternalID = "app-1"
		_, err := s.CreateCustomerTx(ctx, tx, s.org, n)
		return err
	})
	tomorrow := fleet.NullString(time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly))
	for _, tt := range []struct {
		name   string
		change func(*fleet.NewCustomer)
		want   string
	}{
		{"good", func(*fleet.NewCustomer) {}, "none"},
		{"nothing but a subaccount", func(n *fleet.NewCustomer) { *n = fleet.NewCustomer{SubaccountID: n.SubaccountID} }, "none"},
		{"no subaccount", func(n *fleet.NewCustomer) { n.SubaccountID = "" }, "subaccount_id required"},
		{"unknown subaccount", func(n *fleet.NewCustomer) { n.SubaccountID = "sub_1" }, "subaccount_id not_found"},
		{"external id taken", func(n *fleet.NewCustomer) { n.ExternalID = "app-1" }, "already_exists external_id"},
		{"everything", func(n *fleet.NewCustomer) {
			*n = fleet.NewCustomer{
				SubaccountID: "sub_1", ExternalID: fleet.NullString(long(129)), Name: fleet.NullString(long(257)), Email: "Ada <ada@example.com>", Phone: "123",
				Language: "german", Status: "gone", BlockReason: fleet.NullString(long(501)), BirthDate: "2.5.1994", LicenseStatus: "maybe", Metadata: manyKeys(51),
			}
		}, "birth_date invalid_format, block_reason too_long, driver_license_status invalid_value, email invalid_format, external_id too_long, language invalid_format, " +
			"metadata too_long, name too_long, phone invalid_format, status invalid_value, subaccount_id not_found"},
		{"metadata", func(n *fleet.NewCustomer) { n.Metadata = map[string]string{"": "", "a": long(501), long(41): ""} }, "metadata too_long, metadata too_short, metadata.a too_long"},
		{"two lines", func(n *fleet.NewCustomer) { n.Name = "a\nb" }, "name invalid_format"},
		{"a NUL", func(n *fleet.NewCustomer) { n.Name = "a\x00" }, "name invalid_format"},
		{"not UTF-8", func(n *fleet.NewCustomer) { n.ExternalID = "\xff" }, "external_id invalid_format"},
		{"two addresses", func(n *fleet.NewCustomer) { n.Email = "a@example.com, b@example.com" }, "email invalid_format"},
		{"address with spaces", func(n *fleet.NewCustomer) { n.Email = " a@example.com" }, "email invalid_format"},
		{"address too long", func(n *fleet.NewCustomer) { n.Email = fleet.NullString(long(250) + "@x.de") }, "email invalid_format"},
		{"national number", func(n *fleet.NewCustomer) { n.Phone = "030 901820" }, "phone invalid_format"},
		{"locale", func(n *fleet.NewCustomer) { n.Language = "de_DE" }, "language invalid_format"},
		{"unregistered language", func(n *fleet.NewCustomer) { n.Language = "xq" }, "language invalid_format"},
		{"no such day", func(n *fleet.NewCustomer) { n.BirthDate = "2001-02-29" }, "birth_date invalid_format"},
		{"not born", func(n *fleet.NewCustomer) { n.BirthDate = tomorrow }, "birth_date too_large"},
		{"long ago", func(n *fleet.NewCustomer) { n.BirthDate = "1899-12-31" }, "birth_date too_small"},
		{"anonymised", func(n *fleet.NewCustomer) { n.Status = fleet.CustomerAnonymised }, "status invalid_value"},
		{"a reason without a block", func(n *fleet.NewCustomer) { n.BlockReason = "fraud" }, "block_reason conflict"},
		{"a block", func(n *fleet.NewCustomer) { n.Status, n.BlockReason = fleet.CustomerBlocked, "fraud" }, "none"},
	} {
		n := newCustomer(s.sub.ID)
		tt.change(&n)
		wantFaults(t, tt.name, s.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := s.CreateCustomerTx(ctx, tx, s.org, n)
			return err
		}), tt.want)
	}
}

// TestCustomerChanges updates a customer repeatedly.
func TestCustomerChanges(t *testing.T) {
	s := newSite(t)
	var c fleet.Customer
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		n := newCustomer(s.sub.ID)
		n.ExternalID = "app-1"
		if _, err = s.CreateCustomerTx(ctx, tx, s.org, n); err != nil {
			return err
		}
		n.ExternalID = "app-2"
		c, err = s.CreateCustomerTx(ctx, tx, s.org, n)
		return err
	})
	if c.DefaultCurrency != "EUR" || c.Status != fleet.CustomerActive || c.LicenseStatus != "none" {
		t.Errorf("made %+v", c)
	}
	revision := int64(1)
	for _, tt := range []struct {
		name   string
		change fleet.CustomerChange
		want   string
		is     func(fleet.Customer) bool
		writes bool
	}{
		{"nothing", fleet.CustomerChange{}, "none", func(fleet.Customer) bool { return true }, false},
		{"the same", fleet.CustomerChange{Name: optional.Of[fleet.NullString]("Ada Example"), Phone: optional.Of[fleet.NullString]("+49 (30) 901820")}, "none", func(fleet.Customer) bool { return true }, false},
		{"phone and language", fleet.CustomerChange{Phone: optional.Of[fleet.NullString]("0049 151 12345678"), Language: optional.Of[fleet.NullString]("PT-br")}, "phone invalid_format", nil, false},
		{"in usual form", fleet.CustomerChange{Phone: optional.Of[fleet.NullString]("+49 151 12345678"), Language: optional.Of[fleet.NullString]("PT-br")}, "none",
			func(c fleet.Customer) bool { return c.Phone == "+4915112345678" && c.Language == "pt-BR" }, true},
		{"cleared", fleet.CustomerChange{Phone: optional.Value[fleet.NullString]{Set: true, Null: true}}, "none", func(c fleet.Customer) bool { return c.Phone == "" }, true},
		{"another's external id", fleet.CustomerChange{ExternalID: optional.Of[fleet.NullString]("app-1")}, "already_exists external_id", nil, false},
		{"block", fleet.CustomerChange{Status: optional.Of(fleet.CustomerBlocked), BlockReason: optional.Of[fleet.NullString]("fraud")}, "none",
			func(c fleet.Customer) bool { return c.BlockReason == "fraud" }, true},
		{"unblock, as it was read", fleet.CustomerChange{Status: optional.Of(fleet.CustomerActive), BlockReason: optional.Of[fleet.NullString]("fraud")}, "none",
			func(c fleet.Customer) bool { return c.Status == fleet.CustomerActive && c.BlockReason == "" }, true},
		{"anonymise", fleet.CustomerChange{Status: optional.Of(fleet.CustomerAnonymised)}, "status invalid_value", nil, false},
		{"metadata", fleet.CustomerChange{Metadata: optional.Of(map[string]string{"tier": "gold"})}, "none", func(c fleet.Customer) bool { return c.Metadata["tier"] == "gold" }, true},
		{"consent", fleet.CustomerChange{MarketingConsent: optional.Of(true), LicenseStatus: optional.Of("verified"), BirthDate: optional.Of[fleet.NullString]("1994-05-02")}, "none",
			func(c fleet.Customer) bool {
				return c.MarketingConsent && c.LicenseStatus == "verified" && c.BirthDate == "1994-05-02"
			}, true},
		{"no licence", fleet.CustomerChange{LicenseStatus: optional.Value[string]{Set: true, Null: true}}, "driver_license_status required", nil, false},
	} {
		var got fleet.Customer
		err := s.try(t, func(ctx context.Context, tx *db.Tx) error {
			locked, err := s.LockCustomerTx(ctx, tx, s.org, c.ID)
			if err != nil {
				return err
			}
			got, err = s.UpdateCustomerTx(ctx, tx, s.org, locked, tt.change)
			return err
		})
		wantFaults(t, tt.name, err, tt.want)
		if tt.writes {
			revision++
		}
		if tt.is != nil {
			stored, err := s.Customer(t.Context(), s.db, s.org, c.ID)
			before, _ := got.Record()
			after, _ := stored.Record()
			if err != nil || string(before.JSON) != string(after.JSON) || after.Revision != revision || before.Revision != revision || !tt.is(stored) {
				t.Errorf("%s: got revision %d of %s, want %d\nstored revision %d of %s, %v", tt.name, before.Revision, before.JSON, revision, after.Revision, after.JSON, err)
			}
		}
	}

	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		c, err = s.AnonymiseCustomerTx(ctx, tx, s.org, c.ID)
		return err
	})
	text, _ := c.Record()
	for _, secret := range []string{"Ada", "example.com", "app-2", "1994", "gold"} {
		if strings.Contains(string(text.JSON), secret) {
			t.Errorf("anonymised, there is still %q in %s", secret, text.JSON)
		}
	}
	var left int
	if err := s.db.QueryRow(t.Context(), "SELECT count(*) FROM customers WHERE id = $1 AND (email IS NOT NULL OR phone IS NOT NULL OR name IS NOT NULL OR external_id IS NOT NULL)", c.ID).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows, %v, tell who it was", left, err)
	}
	update := func(change fleet.CustomerChange) error {
		return s.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := s.UpdateCustomerTx(ctx, tx, s.org, c, change)
			return err
		})
	}
	wantFaults(t, "the same again", update(fleet.CustomerChange{Status: optional.Of(fleet.CustomerAnonymised)}), "none")
	wantFaults(t, "a name again", update(fleet.CustomerChange{Name: optional.Of[fleet.NullString]("Ada")}), "invalid_transition")
	err := update(fleet.CustomerChange{Status: optional.Of(fleet.CustomerActive)})
	if e, _ := errors.AsType[*problem.Error](err); e == nil || e.Details["from"] != fleet.CustomerAnonymised || e.Details["to"] != fleet.CustomerActive || e.Details["allowed"] == nil {
		t.Errorf("active again: got %v, want from, to and allowed", err)
	}
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		twice, err := s.AnonymiseCustomerTx(ctx, tx, s.org, c.ID)
		if again, _ := twice.Record(); again.Revision != text.Revision {
			t.Errorf("anonymised twice: got revision %d, want %d", again.Revision, text.Revision)
		}
		return err
	})
}

// TestPlanFaults checks the validation of plans (fleet-api.md 1.5).
func TestPlanFaults(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		name   string
		change func(*fleet.NewPlan)
		want   string
	}{
		{"good", func(n *fleet.NewPlan) { n.Currency, n.VehicleTypeIDs = "EUR", []string{s.scooter, s.scooter} }, "none"},
		{"another currency", func(n *fleet.NewPlan) { n.Currency = "USD" }, "currency conflict"},
		{"everything", func(n *fleet.NewPlan) {
			n.Name, n.Description, n.URL, n.VehicleTypeIDs = "", long(5001), "javascript:alert(1)", []string{s.scooter, "vt_1"}
			n.UnlockAmount, n.TaxBasisPoints = -1, 10_001
			n.PerMinute = []tariff.Segment{{}, {Start: 5, End: new(int64(5))}}
			n.PerKilometer = []tariff.Segment{{Start: -1, Interval: -1}}
			n.FareCap = &tariff.FareCap{Amount: -1}
		}, "description too_long, fare_cap.amount too_small, fare_cap.duration_minutes too_small, name required, per_km_pricing.0.interval too_small, per_km_pricing.0.start too_small, " +
			"per_min_pricing.1.end too_small, tax_basis_points too_large, unlock_amount too_small, url invalid_format, vehicle_type_ids.1 not_found"},
		{"too dear", func(n *fleet.NewPlan) { n.PerMinute[0].Rate = 1 << 45 }, " too_large"},
		{"too dear to reserve", func(n *fleet.NewPlan) { n.ReservationPerMin = new(int64(1 << 50)) }, " too_large"},
	} {
		n := newPlan(s.sub.ID)
		tt.change(&n)
		wantFaults(t, tt.name, s.try(t, func(ctx context.Context, tx *db.Tx) error {
			p, err := s.CreatePlanTx(ctx, tx, s.org, n)
			if err == nil && (p.Currency != "EUR" || !p.Active || p.Version != 1) {
				t.Errorf("%s: made %+v", tt.name, p)
			}
			return err
		}), tt.want)
	}
}

// TestPlanVersions: each update creates a version and retains the previous ones.
func TestPlanVersions(t *testing.T) {
	s := newSite(t)
	update := func(c fleet.PlanChange) error {
		return s.try(t, func(ctx context.Context, tx *db.Tx) error {
			p, err := s.LockPlanTx(ctx, tx, s.org, s.plan.ID)
			if err != nil {
				return err
			}
			_, err = s.UpdatePlanTx(ctx, tx, s.org, p, c)
			return err
		})
	}
	wantFaults(t, "dearer", update(fleet.PlanChange{UnlockAmount: optional.Of(int64(200)), ReservationFlat: optional.Of(int64(50))}), "none")
	wantFaults(t, "nothing new", update(fleet.PlanChange{}), "none")
	wantFaults(t, "both ways to charge for a reservation", update(fleet.PlanChange{ReservationPerMin: optional.Of(int64(10))}), "reservation_flat_amount conflict")
	wantFaults(t, "without a list", update(fleet.PlanChange{PerMinute: optional.Value[[]tariff.Segment]{Set: true, Null: true}, ReservationFlat: optional.Value[int64]{Set: true, Null: true}}), "none")
	p, err := s.Plan(t.Context(), s.db, s.org, s.plan.ID)
	text, _ := p.Record()
	if err != nil || p.Version != 4 || text.Revision != 4 || p.UnlockAmount != 200 || p.ReservationFlat != nil || !strings.Contains(string(text.JSON), `"per_min_pricing":[]`) {
		t.Errorf("got revision %d of %s, %v", text.Revision, text.JSON, err)
	}
	for version, unlock := range map[int64]int64{1: 100, 2: 200, 3: 200, 4: 200} {
		got, err := s.PlanTariff(t.Context(), s.db, s.org, s.plan.ID, version)
		if err != nil || got.UnlockAmount != unlock || (len(got.PerMinute) == 0) != (version == 4) {
			t.Errorf("version %d: got %+v, %v; want %d to unlock", version, got, err, unlock)
		}
	}

	// A change that could lead to amounts out of range is refused.
	wantFaults(t, "very dear", update(fleet.PlanChange{PerMinute: optional.Of([]tariff.Segment{{Rate: 1 << 42, Interval: 1}})}), "none")
	wantFaults(t, "longer rides", s.try(t, func(ctx context.Context, tx *db.Tx) error {
		_, _, err := s.UpdateSettingsTx(ctx, tx, s.org, fleet.SettingsChange{MaxRideMinutes: optional.Of(int64(10_000))})
		return err
	}), "max_ride_minutes conflict")
	wantFaults(t, "dear to reserve", update(fleet.PlanChange{PerMinute: optional.Of([]tariff.Segment{}), ReservationPerMin: optional.Of(int64(1 << 48))}), "none")
	types := s.sub.VehicleTypes
	types[0].ReservationMinutes = 1000
	wantFaults(t, "longer reservations", s.tryChangeSub(t, fleet.SubaccountChange{VehicleTypes: optional.Of(types)}), "vehicle_types conflict")
}

// TestZoneFaults checks the validation of zones (fleet-api.md 1.4).
func TestZoneFaults(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		name   string
		change func(*fleet.NewZone)
		want   string
	}{
		{"good", func(n *fleet.NewZone) {
			n.Rules = []fleet.Rule{{VehicleTypeIDs: []string{s.scooter}, MaximumSpeed: new(int64(0))}}
		}, "none"},
		{"custom", func(n *fleet.NewZone) { n.Type = fleet.CustomZone }, "rules required"},
		{"everything", func(n *fleet.NewZone) {
			*n = fleet.NewZone{
				SubaccountID: n.SubaccountID, Description: fleet.NullString(long(5001)), Priority: new(int64(1001)),
				Rules:    []fleet.Rule{{}, {VehicleTypeIDs: []string{s.scooter, "vt_1"}, MaximumSpeed: new(int64(-1))}},
				StartsAt: rfc3339.Time(moment), EndsAt: rfc3339.Time(moment),
			}
		}, "description too_long, ends_at too_small, geometry required, name required, priority too_large, rules.1.maximum_speed_kph too_small, rules.1.vehicle_type_ids.1 not_found, type required"},
		{"unknown type", func(n *fleet.NewZone) { n.Type = "lake" }, "type invalid_value"},
		{"too many rules", func(n *fleet.NewZone) { n.Rules = make([]fleet.Rule, 101) }, "rules too_long"},
		{"long ago", func(n *fleet.NewZone) { n.StartsAt = rfc3339.Time(time.Date(1066, 10, 14, 9, 0, 0, 0, time.UTC)) }, "starts_at invalid_value"},
	} {
		n := newZone(t, s.sub.ID)
		tt.change(&n)
		wantFaults(t, tt.name, s.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := s.CreateZoneTx(ctx, tx, s.org, n)
			return err
		}), tt.want)
	}
}

// TestZoneChanges checks rules and priority after a change of type.
func TestZoneChanges(t *testing.T) {
	s := newSite(t)
	var z fleet.Zone
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		z, err = s.CreateZoneTx(ctx, tx, s.org, newZone(t, s.sub.ID))
		return err
	})
	own := []fleet.Rule{{StartAllowed: true}}
	for _, tt := range []struct {
		name     string
		change   fleet.ZoneChange
		want     string
		priority int64
		rule     fleet.Rule
	}{
		{"another type", fleet.ZoneChange{Type: optional.Of(fleet.NoParking)}, "none", 20, fleet.Rule{StartAllowed: true, ThroughAllowed: true}},
		{"a priority of its own", fleet.ZoneChange{Priority: optional.Of(int64(7))}, "none", 7, fleet.Rule{StartAllowed: true, ThroughAllowed: true}},
		{"which stays", fleet.ZoneChange{Type: optional.Of(fleet.NoRide)}, "none", 7, fleet.Rule{}},
		{"rules of its own", fleet.ZoneChange{Rules: optional.Of(own), Priority: optional.Value[int64]{Set: true, Null: true}}, "none", 10, fleet.Rule{StartAllowed: true}},
		{"which stay", fleet.ZoneChange{Type: optional.Of(fleet.ServiceArea)}, "none", 100, fleet.Rule{StartAllowed: true}},
		{"cleared", fleet.ZoneChange{Rules: optional.Value[[]fleet.Rule]{Set: true, Null: true}}, "none", 100, fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}},
		{"custom keeps them", fleet.ZoneChange{Type: optional.Of(fleet.CustomZone)}, "none", 100, fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}},
		{"custom needs them", fleet.ZoneChange{Rules: optional.Of([]fleet.Rule{})}, "rules required", 100, fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}},
		{"no shape", fleet.ZoneChange{Geometry: optional.Value[geo.Area]{Set: true, Null: true}}, "geometry required", 100, fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}},
		{"nothing", fleet.ZoneChange{}, "none", 100, fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}},
	} {
		wantFaults(t, tt.name, s.try(t, func(ctx context.Context, tx *db.Tx) error {
			locked, err := s.LockZoneTx(ctx, tx, s.org, z.ID)
			if err != nil {
				return err
			}
			_, err = s.UpdateZoneTx(ctx, tx, s.org, locked, tt.change)
			return err
		}), tt.want)
		got, err := s.Zone(t.Context(), s.db, s.org, z.ID)
		if err != nil || got.Priority != tt.priority || len(got.Rules) != 1 || !reflect.DeepEqual(got.Rules[0], tt.rule) {
			t.Errorf("%s: got %d, %+v, %v; want %d, %+v", tt.name, got.Priority, got.Rules, err, tt.priority, tt.rule)
		}
	}
	got, _ := s.Zone(t.Context(), s.db, s.org, z.ID)
	if doc, _ := got.Record(); doc.Revision != 8 {
		t.Errorf("after 7 changes: got revision %d, want 8", doc.Revision)
	}
	s.write(t, func(ctx context.Context, tx *db.Tx) error { return s.DeleteZoneTx(ctx, tx, s.org, z.ID) })
	wantFaults(t, "deleted twice", s.try(t, func(ctx context.Context, tx *db.Tx) error { return s.DeleteZoneTx(ctx, tx, s.org, z.ID) }), "not found")
}

// TestSubaccountFaults checks the validation of subaccounts (fleet-api.md 1.6).
func TestSubaccountFaults(t *testing.T) {
	s := newSite(t)
	had := s.sub.VehicleTypes[0]
	var other fleet.Subaccount
	s.write(t, func(ctx context.Context, tx *db.Tx) (err error) {
		other, err = s.CreateSubaccountTx(ctx, tx, s.org, fleet.NewSubaccount{Name: "Osaka", TimeZone: "Asia/Tokyo", Currency: "JPY", ExternalID: "osaka"})
		if err != nil {
			return err
		}
		feed := fleet.GBFS{Enabled: true, SystemID: "osaka", OpeningHours: "24/7", ContactEmail: "feed@example.com"}
		if other, err = s.UpdateSubaccountTx(ctx, tx, s.org, other, fleet.SubaccountChange{GBFS: optional.Of(feed)}); err != nil {
			return err
		}
		n := newZone(t, s.sub.ID)
		n.Rules = []fleet.Rule{{VehicleTypeIDs: []string{s.scooter}}}
		_, err = s.CreateZoneTx(ctx, tx, s.org, n)
		return err
	})
	typed := func(change func(*fleet.VehicleType)) fleet.SubaccountChange {
		kind := had
		change(&kind)
		return fleet.SubaccountChange{VehicleTypes: optional.Of([]fleet.VehicleType{kind})}
	}
	for _, tt := range []struct {
		name   string
		change fleet.SubaccountChange
		want   string
	}{
		{"everything", fleet.SubaccountChange{
			Name: optional.Of(""), Status: optional.Of("closed"), TimeZone: optional.Of("Local"), Currency: optional.Of("eur"), CountryCode: optional.Of[fleet.NullString]("UK"),
			DefaultPricingPlanID: optional.Of[fleet.NullString]("plan_1"), GlobalRules: optional.Of([]fleet.Rule{{VehicleTypeIDs: []string{"vt_2"}}}),
			VehicleTypes: optional.Of([]fleet.VehicleType{had, {ID: "vt_1"}, {Name: "Car", FormFactor: "car", PropulsionType: "combustion", ReservationMinutes: -1, MinAge: 121,
				WheelCount: new(int64(0)), DefaultPricingPlanID: "plan_1"}, had}),
			GBFS:   optional.Of(fleet.GBFS{Enabled: true, SystemID: "../x", ContactEmail: "nobody", LicenseID: "my own"}),
			Alerts: optional.Of([]fleet.Alert{{ID: "alert_1", Type: "flood"}, {Type: "other", Summary: "x", URL: "/x", StartsAt: rfc3339.Time(moment), EndsAt: rfc3339.Time(moment)}}),
		}, "alerts.0.id not_found, alerts.0.summary required, alerts.0.type invalid_value, alerts.1.ends_at too_small, alerts.1.url invalid_format, country_code invalid_value, " +
			"currency conflict, currency invalid_value, default_pricing_plan_id not_found, gbfs.feed_contact_email invalid_format, gbfs.license_id invalid_format, gbfs.opening_hours required, " +
			"gbfs.system_id invalid_format, global_rules.0.vehicle_type_ids.0 not_found, name required, status invalid_value, timezone invalid_value, " +
			"vehicle_types.1.form_factor required, vehicle_types.1.id not_found, vehicle_types.1.max_range_meters required, vehicle_types.1.name required, vehicle_types.1.propulsion_type required, " +
			"vehicle_types.2.default_pricing_plan_id not_found, vehicle_types.2.max_range_meters required, vehicle_types.2.min_age too_large, vehicle_types.2.reservation_minutes too_small, " +
			"vehicle_types.2.wheel_count too_small, vehicle_types.3.id conflict"},
		{"another form", typed(func(k *fleet.VehicleType) { k.FormFactor = "car" }), "vehicle_types.0.form_factor read_only"},
		{"another motor", typed(func(k *fleet.VehicleType) { k.PropulsionType = "human" }), "vehicle_types.0.propulsion_type read_only"},
		{"a type that a zone names", fleet.SubaccountChange{VehicleTypes: optional.Of([]fleet.VehicleType{})}, "vehicle_types conflict"},
		{"another currency", fleet.SubaccountChange{Currency: optional.Of("USD")}, "currency conflict"},
		{"another's external id", fleet.SubaccountChange{ExternalID: optional.Of[fleet.NullString]("osaka")}, "already_exists external_id"},
		{"another's system", fleet.SubaccountChange{GBFS: optional.Of(other.GBFS)}, "already_exists gbfs.system_id"},
		{"but no system", fleet.SubaccountChange{GBFS: optional.Of(fleet.GBFS{SystemID: other.GBFS.SystemID})}, "none"},
		{"no plan", fleet.SubaccountChange{DefaultPricingPlanID: optional.Value[fleet.NullString]{Set: true, Null: true}}, "none"},
		{"the plan", fleet.SubaccountChange{DefaultPricingPlanID: optional.Of(fleet.NullString(s.plan.ID))}, "none"},
		{"two types and an alert", fleet.SubaccountChange{
			VehicleTypes: optional.Of([]fleet.VehicleType{scooter(), had}), GlobalRules: optional.Of([]fleet.Rule{{VehicleTypeIDs: []string{had.ID}}}),
			Alerts: optional.Of([]fleet.Alert{{Type: "other", Summary: "Marathon"}}),
		}, "none"},
		{"archived", fleet.SubaccountChange{Status: optional.Of("archived")}, "none"},
	} {
		wantFaults(t, tt.name, s.tryChangeSub(t, tt.change), tt.want)
	}
	if got := s.sub; got.VehicleTypes[1].ID != had.ID || got.VehicleTypes[0].ID == had.ID || !strings.HasPrefix(got.VehicleTypes[0].ID, "vt_") || !strings.HasPrefix(got.Alerts[0].ID, "alert_") {
		t.Errorf("got types %+v, alerts %+v", got.VehicleTypes, got.Alerts)
	}
	wantFaults(t, "a zone in one that is archived", s.try(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := s.CreateZoneTx(ctx, tx, s.org, newZone(t, s.sub.ID))
		return err
	}), "subaccount_id conflict")
	for _, tt := range []struct {
		name string
		n    fleet.NewSubaccount
		want string
	}{
		{"nothing", fleet.NewSubaccount{}, "currency required, name required, timezone required"},
		{"wrong", fleet.NewSubaccount{Name: long(257), TimeZone: "posix/UTC", Currency: "XXX", CountryCode: "de", ExternalID: "a\nb"},
			"country_code invalid_value, currency invalid_value, external_id invalid_format, name too_long, timezone invalid_value"},
		{"external id taken", fleet.NewSubaccount{Name: "x", TimeZone: "UTC", Currency: "KWD", ExternalID: "osaka"}, "already_exists external_id"},
	} {
		wantFaults(t, "new: "+tt.name, s.try(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := s.CreateSubaccountTx(ctx, tx, s.org, tt.n)
			return err
		}), tt.want)
	}
}
