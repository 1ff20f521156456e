package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// File is a fleet to import, with records as in fleet-api.md 1. Read-only fields
// (times, counts, open rides) are ignored. Ids only link records of the file, see
// [Service.ImportTx].
type File struct {
	Subaccounts  []Subaccount
	VehicleTypes []FileType // in addition to those in Subaccounts
	Plans        []FilePlan
	Customers    []FileCustomer
	Zones        []FileZone
	Vehicles     []FileVehicle
}

// FileType is a vehicle type of a subaccount.
type FileType struct {
	SubaccountID string `json:"subaccount_id"`
	VehicleType
}

// FilePlan is a pricing plan.
type FilePlan struct {
	ID string `json:"id"`
	NewPlan
}

// FileCustomer is a customer.
type FileCustomer struct {
	ID string `json:"id"`
	NewCustomer
}

// FileZone is a zone.
type FileZone struct {
	ID string `json:"id"`
	NewZone
}

// FileVehicle is a vehicle. Its last event tells why it is out of service.
type FileVehicle struct {
	ID        string       `json:"id"`
	LastEvent VehicleEvent `json:"last_event"`
	NewVehicle
}

// ParseFile decodes a JSON object with the lists subaccounts, vehicle_types,
// pricing_plans, customers, zones and vehicles. The error is Invalid, with an issue
// for each malformed record.
func ParseFile(text []byte) (File, error) {
	var f File
	var v problem.Validation
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(text, &lists); err != nil || lists == nil {
		v.AddCode("invalid_format", "", "must be a JSON object with lists of records")
		return File{}, v.Err()
	}
	for name, list := range lists {
		switch name {
		case "subaccounts":
			f.Subaccounts = parseList[Subaccount](&v, name, list)
		case "vehicle_types":
			f.VehicleTypes = parseList[FileType](&v, name, list)
		case "pricing_plans":
			f.Plans = parseList[FilePlan](&v, name, list)
		case "customers":
			f.Customers = parseList[FileCustomer](&v, name, list)
		case "zones":
			f.Zones = parseList[FileZone](&v, name, list)
		case "vehicles":
			f.Vehicles = parseList[FileVehicle](&v, name, list)
		default:
			v.AddCode("unknown_field", name, "is not a supported list")
		}
	}
	return f, v.Err()
}

func parseList[T any](v *problem.Validation, name string, text json.RawMessage) []T {
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		v.AddCode("invalid_type", name, "must be an array")
		return nil
	}
	list := make([]T, len(raw))
	for i, text := range raw {
		path := name + "." + strconv.Itoa(i)
		if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
			v.AddCode("invalid_type", path, "must be an object")
			continue
		}
		err := json.Unmarshal(text, &list[i])
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			for member := range strings.SplitSeq(wrong.Field, ".") {
				if member != "" && (member[0] < 'A' || member[0] > 'Z') { // else an embedded struct
					path += "." + member
				}
			}
			v.AddCode("invalid_type", path, "must not be a JSON %s", wrong.Value)
		} else if err != nil && !addIssuesBelow(v, path, err) {
			v.AddCode("invalid_format", path, "%v", err)
		}
	}
	return list
}

// Imported counts the created records.
type Imported struct {
	Subaccounts  int `json:"subaccounts"`
	VehicleTypes int `json:"vehicle_types"`
	Plans        int `json:"pricing_plans"`
	Customers    int `json:"customers"`
	Zones        int `json:"zones"`
	Vehicles     int `json:"vehicles"`
}

// ImportTx creates the records of a file in the caller's transaction, all or none.
//
// Ids in the file link its records; each created record gets a new id. If the
// organization has a record with the id, that record is linked and not changed. A
// record without a subaccount belongs to the file's only subaccount, else to the
// organization's only one. Vehicles arrive without rides, those without a location or
// without contact as removed.
//
// The error is Invalid with the issues of all records, by path such as
// customers.12.email.
func (s *Service) ImportTx(ctx context.Context, tx *db.Tx, organizationID string, f File, by Actor) (Imported, error) {
	im := importRun{s: s, tx: tx, organizationID: organizationID, by: by,
		subaccounts: map[string]string{}, types: map[string]string{}, plans: map[string]string{}}
	for _, step := range []func(context.Context, *File) error{im.importSubaccounts, im.importTypes, im.importPlans, im.finish, im.importCustomers, im.importZones, im.importVehicles, im.archive} {
		if err := step(ctx, &f); err != nil {
			return Imported{}, err
		}
	}
	if err := im.faults.Err(); err != nil {
		return Imported{}, err
	}
	if im.made == (Imported{}) {
		return im.made, nil
	}
	return im.made, s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: organizationID, Action: FleetImported, Target: audit.Target{Type: "fleet"},
		Details: map[string]any{
			"subaccounts": im.made.Subaccounts, "vehicle_types": im.made.VehicleTypes, "pricing_plans": im.made.Plans,
			"customers": im.made.Customers, "zones": im.made.Zones, "vehicles": im.made.Vehicles,
		},
	})
}

// importRun is the state of an import. After an issue, a substitute is created so
// that dependent records can be checked; the caller rolls everything back.
type importRun struct {
	s              *Service
	tx             *db.Tx
	organizationID string
	by             Actor
	faults         problem.Validation
	made           Imported

	// New ids by ids of the file.
	subaccounts, types, plans map[string]string
	// The default subaccount.
	only string
	// New vehicle types by subaccount id.
	incoming map[string][]incoming
	homes    []string // keys of incoming, in order
}

// incoming is a vehicle type of the file.
type incoming struct {
	VehicleType
	path string
}

// resolveID returns the new id for an id of the file.
func resolveID(ids map[string]string, id string) string {
	if now, ok := ids[id]; ok {
		return now
	}
	return id
}

func (im *importRun) home(id string) string {
	if id == "" {
		return im.only
	}
	return resolveID(im.subaccounts, id)
}

// addIssues adds the issues of err below path. It returns any other error.
func (im *importRun) addIssues(path string, err error) error {
	if err == nil || addIssuesBelow(&im.faults, path, err) {
		return nil
	}
	return fmt.Errorf("import %s: %w", path, err)
}

// checkDuplicates adds an issue for each repeated id of a list.
func checkDuplicates[T any](im *importRun, name string, list []T, id func(*T) string) {
	seen := make(map[string]bool, len(list))
	for i := range list {
		if at := id(&list[i]); at != "" {
			if seen[at] {
				im.faults.AddCode("conflict", name+"."+strconv.Itoa(i)+".id", "is repeated")
			}
			seen[at] = true
		}
	}
}

// existingIDs returns the ids that a table of the organization has.
func (im *importRun) existingIDs(ctx context.Context, table string, ids []string) (map[string]bool, error) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := db.All(ctx, im.tx, func(row db.Row) (id string, err error) {
		return id, row.Scan(&id)
	}, "SELECT id FROM "+table+" WHERE organization_id = $1 AND id = ANY($2)", im.organizationID, ids)
	if err != nil {
		return nil, fmt.Errorf("look up existing records: %w", err)
	}
	there := make(map[string]bool, len(list))
	for _, id := range list {
		there[id] = true
	}
	return there, nil
}

func idsOf[T any](list []T, id func(*T) string) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = id(&list[i])
	}
	return ids
}

func (im *importRun) importSubaccounts(ctx context.Context, f *File) error {
	id := func(sub *Subaccount) string { return sub.ID }
	checkDuplicates(im, "subaccounts", f.Subaccounts, id)
	there, err := im.s.SubaccountIDs(ctx, im.tx, im.organizationID)
	if err != nil {
		return err
	}
	for i := range f.Subaccounts {
		sub, path := &f.Subaccounts[i], "subaccounts."+strconv.Itoa(i)
		if slices.Contains(there, sub.ID) {
			im.only = sub.ID
			continue
		}
		n := NewSubaccount{Name: sub.Name, ExternalID: sub.ExternalID, TimeZone: sub.TimeZone, Currency: sub.Currency, CountryCode: sub.CountryCode}
		made, err := im.s.createSubaccount(ctx, im.tx, im.organizationID, n)
		if err != nil {
			if err := im.addIssues(path, err); err != nil {
				return err
			}
			instead := NewSubaccount{Name: "instead", TimeZone: "UTC", Currency: "EUR"}
			if _, ok := tariff.MinorDigits(sub.Currency); ok {
				instead.Currency = sub.Currency
			}
			if made, err = im.s.createSubaccount(ctx, im.tx, im.organizationID, instead); err != nil {
				return err
			}
		}
		im.made.Subaccounts++
		if sub.ID == "" {
			sub.ID = made.ID
		}
		im.subaccounts[sub.ID] = made.ID
		im.only = made.ID
	}
	switch {
	case len(f.Subaccounts) == 0 && len(there) == 1:
		im.only = there[0]
	case len(f.Subaccounts) != 1:
		im.only = ""
	}
	return nil
}

// importTypes adds the vehicle types. Their plans follow in finish.
func (im *importRun) importTypes(ctx context.Context, f *File) error {
	if err := im.collectTypes(ctx, f); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, home := range im.homes {
		if err := im.importTypesOf(ctx, home, seen); err != nil {
			return err
		}
	}
	return nil
}

// collectTypes groups the vehicle types by subaccount.
func (im *importRun) collectTypes(ctx context.Context, f *File) error {
	im.incoming = map[string][]incoming{}
	note := func(home string, t VehicleType, path string) {
		if _, ok := im.incoming[home]; !ok {
			im.homes = append(im.homes, home)
		}
		im.incoming[home] = append(im.incoming[home], incoming{t, path})
	}
	for i, sub := range f.Subaccounts {
		for j, t := range sub.VehicleTypes {
			note(im.home(sub.ID), t, fmt.Sprintf("subaccounts.%d.vehicle_types.%d", i, j))
		}
	}
	for i, t := range f.VehicleTypes {
		path := "vehicle_types." + strconv.Itoa(i)
		home := im.home(t.SubaccountID)
		var v problem.Validation
		if _, err := im.s.subaccountForNew(ctx, im.tx, &v, im.organizationID, home); err != nil {
			return err
		}
		if err := im.addIssues(path, v.Err()); err != nil {
			return err
		}
		note(home, t.VehicleType, path)
	}
	return nil
}

// importTypesOf adds the vehicle types of a subaccount. seen has the ids of all types
// so far.
func (im *importRun) importTypesOf(ctx context.Context, home string, seen map[string]bool) error {
	sub, err := im.s.LockSubaccountTx(ctx, im.tx, im.organizationID, home)
	if problem.Of(err) == problem.NotFound {
		return nil // reported
	}
	if err != nil {
		return err
	}
	list := slices.Clone(sub.VehicleTypes)
	var added []incoming
	for _, t := range im.incoming[home] {
		if t.ID != "" && seen[t.ID] {
			im.faults.AddCode("conflict", t.path+".id", "is repeated")
			continue
		}
		seen[t.ID] = true
		if t.ID != "" && sub.vehicleType(t.ID) != nil {
			continue
		}
		plain := t.VehicleType
		plain.ID, plain.DefaultPricingPlanID = "", ""
		list, added = append(list, plain), append(added, t)
	}
	im.incoming[home] = added
	had := len(sub.VehicleTypes)
	changed, err := im.s.UpdateSubaccountTx(ctx, im.tx, im.organizationID, sub, SubaccountChange{VehicleTypes: optional.Of(list)})
	if err != nil {
		if err := im.addTypeIssues(err, "", had, added); err != nil {
			return err
		}
		for i := range list[had:] {
			list[had+i] = VehicleType{Name: "instead", FormFactor: "other", PropulsionType: "human"}
		}
		if len(list) > maxList {
			return nil
		}
		if changed, err = im.s.UpdateSubaccountTx(ctx, im.tx, im.organizationID, sub, SubaccountChange{VehicleTypes: optional.Of(list)}); err != nil {
			return err
		}
	}
	for i, t := range added {
		now := changed.VehicleTypes[had+i].ID
		if t.ID == "" {
			added[i].ID = now
		}
		im.types[added[i].ID] = now
	}
	im.made.VehicleTypes += len(added)
	return nil
}

// addTypeIssues is addIssues for a change of a subaccount that added its vehicle types from
// index had on.
func (im *importRun) addTypeIssues(err error, path string, had int, added []incoming) error {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok || len(e.Issues) == 0 {
		return im.addIssues(path, err)
	}
	for _, issue := range e.Issues {
		at := strings.TrimPrefix(path+"."+issue.Path, ".")
		if rest, ok := strings.CutPrefix(issue.Path, "vehicle_types."); ok {
			number, member, _ := strings.Cut(rest, ".")
			if i, err := strconv.Atoi(number); err == nil && i >= had && i-had < len(added) {
				at = added[i-had].path + "." + member
			}
		}
		im.faults.AddCode(issue.Code, at, "%s", issue.Message)
	}
	return nil
}

// resolveTypes returns the new ids of vehicle types.
func (im *importRun) resolveTypes(ids []string) []string {
	now := slices.Clone(ids)
	for i := range now {
		now[i] = resolveID(im.types, now[i])
	}
	return now
}

func (im *importRun) resolveRules(rules []Rule) []Rule {
	now := slices.Clone(rules)
	for i := range now {
		now[i].VehicleTypeIDs = im.resolveTypes(now[i].VehicleTypeIDs)
	}
	return now
}

func (im *importRun) importPlans(ctx context.Context, f *File) error {
	id := func(p *FilePlan) string { return p.ID }
	checkDuplicates(im, "pricing_plans", f.Plans, id)
	there, err := im.existingIDs(ctx, "plans", idsOf(f.Plans, id))
	if err != nil {
		return err
	}
	for i := range f.Plans {
		p := &f.Plans[i]
		if there[p.ID] {
			continue
		}
		n := p.NewPlan
		n.SubaccountID, n.VehicleTypeIDs = im.home(n.SubaccountID), im.resolveTypes(n.VehicleTypeIDs)
		made, err := im.s.createPlan(ctx, im.tx, im.organizationID, n)
		if err != nil {
			if err := im.addIssues("pricing_plans."+strconv.Itoa(i), err); err != nil {
				return err
			}
			made, err = im.s.createPlan(ctx, im.tx, im.organizationID, NewPlan{SubaccountID: n.SubaccountID, Name: "instead"})
			if problem.Of(err) == problem.Invalid {
				continue // its subaccount is missing, too
			}
			if err != nil {
				return err
			}
		}
		im.made.Plans++
		im.plans[p.ID] = made.ID
	}
	return nil
}

// finish sets the fields of new subaccounts and vehicle types that refer to records
// created after them.
func (im *importRun) finish(ctx context.Context, f *File) error {
	path := map[string]string{}
	for i := range f.Subaccounts {
		sub := &f.Subaccounts[i]
		home, isNew := im.subaccounts[sub.ID]
		if !isNew || path[home] != "" {
			continue
		}
		path[home] = "subaccounts." + strconv.Itoa(i)
		alerts := slices.Clone(sub.Alerts)
		for j := range alerts {
			alerts[j].ID = ""
		}
		c := SubaccountChange{
			GlobalRules: optional.Of(im.resolveRules(sub.GlobalRules)), GBFS: optional.Of(sub.GBFS), MDS: optional.Of(sub.MDS), Alerts: optional.Of(alerts),
			DefaultPricingPlanID: optional.Of(NullString(resolveID(im.plans, string(sub.DefaultPricingPlanID)))),
		}
		if sub.Status != "" && sub.Status != subaccountArchived {
			c.Status = optional.Of(sub.Status)
		}
		if err := im.change(ctx, home, path[home], c); err != nil {
			return err
		}
	}
	for _, home := range im.homes {
		if len(im.incoming[home]) > 0 {
			if err := im.change(ctx, home, "", SubaccountChange{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// archive archives new subaccounts, after their records are created.
func (im *importRun) archive(ctx context.Context, f *File) error {
	for i := range f.Subaccounts {
		home, isNew := im.subaccounts[f.Subaccounts[i].ID]
		if !isNew || f.Subaccounts[i].Status != subaccountArchived {
			continue
		}
		if err := im.change(ctx, home, "subaccounts."+strconv.Itoa(i), SubaccountChange{Status: optional.Of(subaccountArchived)}); err != nil {
			return err
		}
	}
	return nil
}

// change updates a subaccount, and the plans of its new vehicle types.
func (im *importRun) change(ctx context.Context, home, path string, c SubaccountChange) error {
	sub, err := im.s.LockSubaccountTx(ctx, im.tx, im.organizationID, home)
	if problem.Of(err) == problem.NotFound {
		return nil // reported
	}
	if err != nil {
		return err
	}
	list, added := slices.Clone(sub.VehicleTypes), im.incoming[home]
	had := len(list) - len(added)
	for i, t := range added {
		if had >= 0 {
			list[had+i].DefaultPricingPlanID = NullString(resolveID(im.plans, string(t.DefaultPricingPlanID)))
		}
	}
	c.VehicleTypes = optional.Of(list)
	delete(im.incoming, home) // they are final now
	if _, err = im.s.UpdateSubaccountTx(ctx, im.tx, im.organizationID, sub, c); err != nil {
		return im.addTypeIssues(err, path, had, added)
	}
	return nil
}

func (im *importRun) importCustomers(ctx context.Context, f *File) error {
	id := func(c *FileCustomer) string { return c.ID }
	checkDuplicates(im, "customers", f.Customers, id)
	there, err := im.existingIDs(ctx, "customers", idsOf(f.Customers, id))
	if err != nil {
		return err
	}
	for i := range f.Customers {
		n := f.Customers[i].NewCustomer
		if there[f.Customers[i].ID] {
			continue
		}
		n.SubaccountID = im.home(n.SubaccountID)
		if _, err := im.s.CreateCustomerTx(ctx, im.tx, im.organizationID, n); err != nil {
			if err := im.addIssues("customers."+strconv.Itoa(i), err); err != nil {
				return err
			}
		}
		im.made.Customers++
	}
	return nil
}

func (im *importRun) importZones(ctx context.Context, f *File) error {
	id := func(z *FileZone) string { return z.ID }
	checkDuplicates(im, "zones", f.Zones, id)
	there, err := im.existingIDs(ctx, "zones", idsOf(f.Zones, id))
	if err != nil {
		return err
	}
	for i := range f.Zones {
		n := f.Zones[i].NewZone
		if there[f.Zones[i].ID] {
			continue
		}
		n.SubaccountID, n.Rules = im.home(n.SubaccountID), im.resolveRules(n.Rules)
		if _, err := im.s.createZone(ctx, im.tx, im.organizationID, n); err != nil {
			if err := im.addIssues("zones."+strconv.Itoa(i), err); err != nil {
				return err
			}
		}
		im.made.Zones++
	}
	return nil
}

func (im *importRun) importVehicles(ctx context.Context, f *File) error {
	id := func(v *FileVehicle) string { return v.ID }
	checkDuplicates(im, "vehicles", f.Vehicles, id)
	there, err := im.existingIDs(ctx, "vehicles", idsOf(f.Vehicles, id))
	if err != nil {
		return err
	}
	a, err := im.s.orgContext(ctx, im.tx, im.tx.Now, im.organizationID)
	if err != nil {
		return err
	}
	for i := range f.Vehicles {
		n := f.Vehicles[i].NewVehicle
		if there[f.Vehicles[i].ID] {
			continue
		}
		path := "vehicles." + strconv.Itoa(i)
		if n.State != "" {
			checkOneOf(&im.faults, path+".state", n.State, Available, VehicleReserved, OnTrip, NonOperational, NonContactable, Missing, Removed)
		}
		var out VehicleEvent
		n.State, out = f.Vehicles[i].imported(a.settings)
		n.SubaccountID, n.VehicleTypeID, n.PricingPlanID = im.home(n.SubaccountID), resolveID(im.types, n.VehicleTypeID), NullString(resolveID(im.plans, string(n.PricingPlanID)))
		if _, err := im.s.createVehicle(ctx, im.tx, a, n, out, im.by); err != nil {
			if err := im.addIssues(path, err); err != nil {
				return err
			}
		}
		im.made.Vehicles++
	}
	return nil
}

// imported returns the state in which a vehicle is created, and the event that takes it out of service at
// once; empty: none. Rides are not imported, so a vehicle with a ride is available. An available vehicle with
// a low battery is out of service, as after a ride. Without contact, it is not known to stand on the street.
func (f *FileVehicle) imported(settings *Settings) (VehicleState, VehicleEvent) {
	inContact := []VehicleState{Available, VehicleReserved, OnTrip, NonOperational}
	level := Vehicle{BatteryPercent: f.BatteryPercent, FuelPercent: f.FuelPercent}
	switch {
	case f.Location == nil || !slices.Contains(inContact, f.State):
		return Removed, ""
	case f.State == NonOperational && slices.Contains(Available.Events(NonOperational), f.LastEvent):
		return Available, f.LastEvent
	case f.State == NonOperational: // the reason is not in the file; maintenance is the one that no report ends
		return Available, "maintenance"
	case level.batteryBelow(settings.LowBatteryPercent):
		return Available, "battery_low"
	}
	return Available, ""
}
