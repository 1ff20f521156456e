package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// Statuses of a subaccount.
const (
	subaccountActive   = "active"
	subaccountArchived = "archived" // accepts no new records or rides
)

// Subaccount is a part of the fleet and a system of the public feed (fleet-api.md
// 1.6).
type Subaccount struct {
	ID                   string        `json:"id"`
	Object               string        `json:"object"`
	Live                 bool          `json:"livemode"`
	Name                 string        `json:"name"`
	ExternalID           NullString    `json:"external_id"`
	Status               string        `json:"status"` // "active" or "archived"
	TimeZone             string        `json:"timezone"`
	Currency             string        `json:"currency"`
	CountryCode          NullString    `json:"country_code"`
	DefaultPricingPlanID NullString    `json:"default_pricing_plan_id"`
	GlobalRules          []Rule        `json:"global_rules"`
	VehicleTypes         []VehicleType `json:"vehicle_types"`
	GBFS                 GBFS          `json:"gbfs"`
	MDS                  MDS           `json:"mds"`
	Alerts               []Alert       `json:"alerts"`
	CreatedAt            rfc3339.Time  `json:"created_at"`
	UpdatedAt            rfc3339.Time  `json:"updated_at"`

	revision int64
}

// VehicleType has the common properties of vehicles. Form factor and propulsion
// type never change.
type VehicleType struct {
	ID                   string     `json:"id"`
	Name                 string     `json:"name"`
	FormFactor           string     `json:"form_factor"`
	PropulsionType       string     `json:"propulsion_type"`
	MaxRangeMeters       *int64     `json:"max_range_meters"` // nil only for type human
	WheelCount           *int64     `json:"wheel_count"`
	MaxPermittedSpeed    *int64     `json:"max_permitted_speed_kph"`
	RiderCapacity        *int64     `json:"rider_capacity"`
	ReservationMinutes   int64      `json:"reservation_minutes"` // 0: cannot be reserved
	LicenseRequired      bool       `json:"license_required"`
	MinAge               int64      `json:"min_age"` // 0: none
	DefaultPricingPlanID NullString `json:"default_pricing_plan_id"`
}

// GBFS configures the public feed of a subaccount.
type GBFS struct {
	Enabled      bool       `json:"enabled"`
	SystemID     NullString `json:"system_id"` // unique in the environment
	Operator     NullString `json:"operator"`
	OpeningHours NullString `json:"opening_hours"` // OSM syntax
	ContactEmail NullString `json:"feed_contact_email"`
	LicenseID    NullString `json:"license_id"` // SPDX

	// Links to a vehicle, with [VehicleIDVariable] where its public id stands.
	WebRentalURI     NullString `json:"rental_uri_web"`
	AndroidRentalURI NullString `json:"rental_uri_android"`
	IOSRentalURI     NullString `json:"rental_uri_ios"`
	// Of the apps: their pages in the stores, and whether they are installed.
	AndroidStoreURI     NullString `json:"store_uri_android"`
	AndroidDiscoveryURI NullString `json:"discovery_uri_android"`
	IOSStoreURI         NullString `json:"store_uri_ios"`
	IOSDiscoveryURI     NullString `json:"discovery_uri_ios"`
}

// VehicleIDVariable stands for the public id of a vehicle in links to it.
const VehicleIDVariable = "{vehicle_id}"

// Alert is a notice to riders in the public feed.
type Alert struct {
	ID          string       `json:"id"`
	Type        string       `json:"type"` // "system_closure" or "other"
	Summary     string       `json:"summary"`
	Description NullString   `json:"description"`
	URL         NullString   `json:"url"`
	StartsAt    rfc3339.Time `json:"starts_at"`
	EndsAt      rfc3339.Time `json:"ends_at"`
}

// NewSubaccount has the fields of a subaccount to create.
type NewSubaccount struct {
	Name        string     `json:"name"`
	ExternalID  NullString `json:"external_id"`
	TimeZone    string     `json:"timezone"`
	Currency    string     `json:"currency"`
	CountryCode NullString `json:"country_code"`
}

// SubaccountChange has the fields that a PUT sets. Absent fields remain. Lists
// replace the stored list; elements with an id retain it.
type SubaccountChange struct {
	Name                 optional.Value[string]        `json:"name"`
	ExternalID           optional.Value[NullString]    `json:"external_id"`
	Status               optional.Value[string]        `json:"status"`
	TimeZone             optional.Value[string]        `json:"timezone"`
	Currency             optional.Value[string]        `json:"currency"`
	CountryCode          optional.Value[NullString]    `json:"country_code"`
	DefaultPricingPlanID optional.Value[NullString]    `json:"default_pricing_plan_id"`
	GlobalRules          optional.Value[[]Rule]        `json:"global_rules"`
	VehicleTypes         optional.Value[[]VehicleType] `json:"vehicle_types"`
	GBFS                 optional.Value[GBFS]          `json:"gbfs"`
	MDS                  optional.Value[MDS]           `json:"mds"`
	Alerts               optional.Value[[]Alert]       `json:"alerts"`
}

// subaccount returns a subaccount, read-only, and its stamp.
func (s *Service) subaccount(ctx context.Context, q db.Querier, organizationID, id string) (*Subaccount, int64, error) {
	var revision, stamp int64
	err := q.QueryRow(ctx, "SELECT revision, stamp FROM subaccounts WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(&revision, &stamp)
	if err != nil {
		return nil, 0, wrapReadError(err, "subaccount")
	}
	sub, err := s.subaccountAt(ctx, q, organizationID, id, revision, stamp)
	return sub, stamp, err
}

// subaccountAt is subaccount with revision and stamp already read.
func (s *Service) subaccountAt(ctx context.Context, q db.Querier, organizationID, id string, revision, stamp int64) (*Subaccount, error) {
	sub, err := s.subaccounts.get(id, stamp, func(into *Subaccount) error {
		into.revision = revision
		return q.QueryRow(ctx, "SELECT doc FROM subaccounts WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(db.IntoJSON(into))
	})
	if err != nil {
		return nil, fmt.Errorf("read a subaccount: %w", err)
	}
	return sub, nil
}

// vehicleType returns a type of the subaccount, nil if there is none.
func (s *Subaccount) vehicleType(id string) *VehicleType {
	for i := range s.VehicleTypes {
		if s.VehicleTypes[i].ID == id {
			return &s.VehicleTypes[i]
		}
	}
	return nil
}

// Record returns the subaccount's stored form.
func (s *Subaccount) Record() (Record, error) {
	text, err := encode(s)
	return Record{ID: s.ID, SubaccountID: s.ID, Revision: s.revision, JSON: text, Distance: -1}, err
}

// Subaccounts returns an organization's subaccounts, the oldest first.
func (s *Service) Subaccounts(ctx context.Context, q db.Querier, organizationID string) ([]Subaccount, error) {
	list, err := db.All(ctx, q, scanSubaccount, "SELECT revision, doc FROM subaccounts WHERE organization_id = $1 ORDER BY id", organizationID)
	if err != nil {
		return nil, fmt.Errorf("list subaccounts: %w", err)
	}
	return list, nil
}

// SubaccountIDs returns the ids of an organization's subaccounts, the oldest first.
func (s *Service) SubaccountIDs(ctx context.Context, q db.Querier, organizationID string) ([]string, error) {
	list, err := db.All(ctx, q, func(row db.Row) (id string, err error) {
		return id, row.Scan(&id)
	}, "SELECT id FROM subaccounts WHERE organization_id = $1 ORDER BY id", organizationID)
	if err != nil {
		return nil, fmt.Errorf("list subaccounts: %w", err)
	}
	return list, nil
}

// Subaccount returns a subaccount. Error: NotFound.
func (s *Service) Subaccount(ctx context.Context, q db.Querier, organizationID, id string) (Subaccount, error) {
	return readSubaccount(ctx, q, organizationID, id, "")
}

// LockSubaccountTx is Subaccount with a lock, for an update in the same transaction.
func (s *Service) LockSubaccountTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Subaccount, error) {
	return readSubaccount(ctx, tx, organizationID, id, " FOR UPDATE")
}

func readSubaccount(ctx context.Context, q db.Querier, organizationID, id, lock string) (Subaccount, error) {
	sub, err := db.One(ctx, q, scanSubaccount, "SELECT revision, doc FROM subaccounts WHERE organization_id = $1 AND id = $2"+lock, organizationID, id)
	return sub, wrapReadError(err, "subaccount")
}

func scanSubaccount(row db.Row) (sub Subaccount, err error) {
	return sub, row.Scan(&sub.revision, db.IntoJSON(&sub))
}

// subaccountForNew returns the subaccount of a new record, read-only. If it is
// missing or archived, it adds an issue and returns nil.
func (s *Service) subaccountForNew(ctx context.Context, q db.Querier, v *problem.Validation, organizationID, id string) (*Subaccount, error) {
	if id == "" {
		v.AddCode("required", "subaccount_id", "is required")
		return nil, nil
	}
	sub, _, err := s.subaccount(ctx, q, organizationID, id)
	switch {
	case problem.Of(err) == problem.NotFound:
		v.AddCode("not_found", "subaccount_id", "must be a subaccount of the organization")
		return nil, nil
	case err != nil:
		return nil, err
	case sub.Status == subaccountArchived:
		v.AddCode("conflict", "subaccount_id", "is archived and accepts no new records")
		return nil, nil
	}
	return sub, nil
}

// restampSubaccount sets a new stamp before a change of zones, and locks the row
// until the end of the transaction.
func (s *Service) restampSubaccount(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	if err := tx.Queue(ctx, "UPDATE subaccounts SET stamp = $3 WHERE organization_id = $1 AND id = $2", organizationID, id, newStamp()); err != nil {
		return fmt.Errorf("stamp a subaccount: %w", err)
	}
	return nil
}

// CreateSubaccountTx creates an active subaccount in the caller's transaction,
// without rules, vehicle types or a public feed. Errors: Invalid; Conflict
// already_exists with the member external_id.
func (s *Service) CreateSubaccountTx(ctx context.Context, tx *db.Tx, organizationID string, n NewSubaccount) (Subaccount, error) {
	sub, err := s.createSubaccount(ctx, tx, organizationID, n)
	if err != nil {
		return Subaccount{}, err
	}
	return sub, s.record(ctx, tx, organizationID, SubaccountCreated, audit.Target{Type: "subaccount", ID: sub.ID, Name: sub.Name}, nil)
}

// createSubaccount is [Service.CreateSubaccountTx] without an audit entry.
func (s *Service) createSubaccount(ctx context.Context, tx *db.Tx, organizationID string, n NewSubaccount) (Subaccount, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Subaccount{}, err
	}
	head, tail := s.newRecord(subaccountPrefix, "subaccount", "", a.now)
	sub := Subaccount{
		ID: head.ID, Object: head.Object, Live: head.Live, Name: n.Name, ExternalID: n.ExternalID, Status: subaccountActive,
		TimeZone: n.TimeZone, Currency: n.Currency, CountryCode: n.CountryCode,
		GlobalRules: []Rule{}, VehicleTypes: []VehicleType{}, Alerts: []Alert{},
		CreatedAt: tail.CreatedAt, UpdatedAt: tail.UpdatedAt, revision: 1,
	}
	var v problem.Validation
	sub.check(&v)
	if err := v.Err(); err != nil {
		return Subaccount{}, err
	}
	doc, err := encode(sub)
	if err != nil {
		return Subaccount{}, err
	}
	made, err := tx.Exec(ctx, "INSERT INTO subaccounts (organization_id, id, revision, stamp, external_id, system_id, doc) VALUES ($1, $2, 1, $3, $4, NULL, $5) ON CONFLICT DO NOTHING",
		organizationID, sub.ID, newStamp(), db.Text(string(sub.ExternalID)), string(doc))
	if err != nil {
		return Subaccount{}, fmt.Errorf("insert a subaccount: %w", err)
	}
	if made == 0 {
		return Subaccount{}, alreadyExistsError("external_id")
	}
	s.notify(tx, organizationID, SubaccountKind, sub.ID)
	return sub, nil
}

// UpdateSubaccountTx updates a subaccount that the caller's transaction has locked.
// An update without a difference creates no revision. Errors: Invalid, with
// not_found for a plan of another subaccount or an unknown id in a list, read_only
// for a fixed property of a vehicle type, conflict for a currency in use or the
// removal of a vehicle type in use; Conflict already_exists with the member
// external_id or gbfs.system_id.
func (s *Service) UpdateSubaccountTx(ctx context.Context, tx *db.Tx, organizationID string, sub Subaccount, c SubaccountChange) (Subaccount, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Subaccount{}, err
	}
	before, err := encode(sub)
	if err != nil {
		return Subaccount{}, err
	}
	former := sub
	c.Name.Into(&sub.Name)
	c.ExternalID.Into(&sub.ExternalID)
	c.Status.Into(&sub.Status)
	c.TimeZone.Into(&sub.TimeZone)
	c.Currency.Into(&sub.Currency)
	c.CountryCode.Into(&sub.CountryCode)
	c.DefaultPricingPlanID.Into(&sub.DefaultPricingPlanID)
	c.GBFS.Into(&sub.GBFS)
	c.MDS.Into(&sub.MDS)
	var v problem.Validation
	if c.VehicleTypes.Set {
		sub.VehicleTypes = former.mergeTypes(&v, c.VehicleTypes.Value, a.now)
	}
	if c.GlobalRules.Set {
		sub.GlobalRules = slices.Clone(c.GlobalRules.Value)
	}
	if c.Alerts.Set {
		sub.Alerts = former.mergeAlerts(&v, c.Alerts.Value, a.now)
	}
	sub.check(&v)
	if err := s.checkUse(ctx, tx, &v, organizationID, &former, &sub); err != nil {
		return Subaccount{}, err
	}
	if err := v.Err(); err != nil {
		return Subaccount{}, err
	}
	doc, err := encode(sub)
	if err != nil || bytes.Equal(doc, before) {
		return former, err
	}
	if sub.ExternalID != former.ExternalID {
		if err := checkUnique(ctx, tx, "external_id", "subaccounts WHERE organization_id = $1 AND external_id = $2 AND id <> $3", organizationID, string(sub.ExternalID), sub.ID); err != nil {
			return Subaccount{}, err
		}
	}
	if sub.systemID() != former.systemID() {
		if err := checkUnique(ctx, tx, "gbfs.system_id", "subaccounts WHERE system_id = $1 AND id <> $2", string(sub.systemID()), sub.ID); err != nil {
			return Subaccount{}, err
		}
	}
	sub.UpdatedAt = nextUpdatedAt(former.UpdatedAt, a.now)
	sub.revision++
	if doc, err = encode(sub); err != nil {
		return Subaccount{}, err
	}
	_, err = tx.Exec(ctx, "UPDATE subaccounts SET revision = $3, stamp = $4, external_id = $5, system_id = $6, doc = $7 WHERE organization_id = $1 AND id = $2",
		organizationID, sub.ID, sub.revision, newStamp(), db.Text(string(sub.ExternalID)), db.Text(string(sub.systemID())), string(doc))
	if db.IsUnique(err) { // by a concurrent transaction
		if sub.systemID() != former.systemID() {
			return Subaccount{}, alreadyExistsError("gbfs.system_id")
		}
		return Subaccount{}, alreadyExistsError("external_id")
	}
	if err != nil {
		return Subaccount{}, fmt.Errorf("update a subaccount: %w", err)
	}
	if err := storeFormerPlans(ctx, tx, organizationID, &former, &sub); err != nil {
		return Subaccount{}, err
	}
	s.notify(tx, organizationID, SubaccountKind, sub.ID)
	return sub, s.recordChange(ctx, tx, organizationID, SubaccountUpdated, audit.Target{Type: "subaccount", ID: sub.ID, Name: sub.Name}, former, sub)
}

// checkUnique returns alreadyExistsError if a row matches from, a table with its
// condition. The value of member must not be empty.
func checkUnique(ctx context.Context, tx *db.Tx, member, from string, args ...any) error {
	var is bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM "+from+")", args...).Scan(&is); err != nil {
		return fmt.Errorf("check that the %s is unique: %w", member, err)
	}
	if is {
		return alreadyExistsError(member)
	}
	return nil
}

// PublicSystemID is the system_id in the public feed. In the sandbox it has the
// prefix "test_", so that it differs from production's.
func (s *Subaccount) PublicSystemID() string {
	if s.Live {
		return string(s.GBFS.SystemID)
	}
	return sandboxSystem + string(s.GBFS.SystemID)
}

const sandboxSystem = "test_"

// systemID is the id of the public feed, empty if the feed is disabled.
func (s *Subaccount) systemID() NullString {
	if !s.GBFS.Enabled {
		return ""
	}
	return s.GBFS.SystemID
}

// locationOf returns the location of a subaccount's time zone.
func locationOf(timeZone string) (*time.Location, error) {
	zone, err := time.LoadLocation(timeZone)
	if err != nil {
		return nil, fmt.Errorf("time zone of a subaccount: %w", err)
	}
	return zone, nil
}

// mergeTypes returns the new vehicle types of s: types with an id retain it, new
// types get one.
func (s *Subaccount) mergeTypes(v *problem.Validation, list []VehicleType, now time.Time) []VehicleType {
	types := append([]VehicleType{}, list...)
	for i := range types {
		t, path := &types[i], "vehicle_types."+strconv.Itoa(i)
		if t.ID == "" {
			t.ID = newID(typePrefix, now, rand.Reader)
			continue
		}
		switch was := s.vehicleType(t.ID); {
		case was == nil:
			v.AddCode("not_found", path+".id", "must be a vehicle type of the subaccount, or absent for a new one")
		case slices.ContainsFunc(types[:i], func(other VehicleType) bool { return other.ID == t.ID }):
			v.AddCode("conflict", path+".id", "is repeated")
		default:
			if t.FormFactor != was.FormFactor {
				v.AddCode("read_only", path+".form_factor", "cannot be changed")
			}
			if t.PropulsionType != was.PropulsionType {
				v.AddCode("read_only", path+".propulsion_type", "cannot be changed")
			}
		}
	}
	return types
}

// mergeAlerts returns the new alerts of s, with ids as in mergeTypes.
func (s *Subaccount) mergeAlerts(v *problem.Validation, list []Alert, now time.Time) []Alert {
	alerts := append([]Alert{}, list...)
	for i := range alerts {
		is := func(other Alert) bool { return other.ID == alerts[i].ID }
		path := "alerts." + strconv.Itoa(i) + ".id"
		switch {
		case alerts[i].ID == "":
			alerts[i].ID = newID(alertPrefix, now, rand.Reader)
		case !slices.ContainsFunc(s.Alerts, is):
			v.AddCode("not_found", path, "must be an alert of the subaccount, or absent for a new one")
		case slices.ContainsFunc(alerts[:i], is):
			v.AddCode("conflict", path, "is repeated")
		}
	}
	return alerts
}

// check adds issues of the subaccount's own fields and normalizes them.
func (s *Subaccount) check(v *problem.Validation) {
	checkLine(v, "name", s.Name, maxName)
	checkCommon(v, s.ExternalID, nil)
	checkOneOf(v, "status", s.Status, subaccountActive, subaccountArchived)
	checkTimeZone(v, "timezone", s.TimeZone)
	if s.Currency == "" {
		v.AddCode("required", "currency", "is required")
	} else if _, ok := tariff.MinorDigits(s.Currency); !ok {
		v.AddCode("invalid_value", "currency", "must be an ISO 4217 currency such as EUR")
	}
	if s.CountryCode != "" && !isCountry(string(s.CountryCode)) {
		v.AddCode("invalid_value", "country_code", "must be an ISO 3166 country of two letters such as DE")
	}
	if len(s.VehicleTypes) > maxList {
		v.AddCode("too_long", "vehicle_types", "must have at most %d values", maxList)
	}
	for i := range s.VehicleTypes[:min(maxList, len(s.VehicleTypes))] {
		s.VehicleTypes[i].check(v, "vehicle_types."+strconv.Itoa(i))
	}
	s.GlobalRules = checkRules(v, "global_rules", s.GlobalRules, s)
	s.GBFS.check(v)
	s.MDS.check(v)
	if len(s.Alerts) > maxList {
		v.AddCode("too_long", "alerts", "must have at most %d values", maxList)
	}
	for i := range s.Alerts[:min(maxList, len(s.Alerts))] {
		s.Alerts[i].check(v, "alerts."+strconv.Itoa(i))
	}
}

func (t *VehicleType) check(v *problem.Validation, path string) {
	path += "."
	checkLine(v, path+"name", t.Name, maxName)
	checkOneOf(v, path+"form_factor", t.FormFactor, "bicycle", "cargo_bicycle", "car", "moped", "scooter_standing", "scooter_seated", "other")
	checkOneOf(v, path+"propulsion_type", t.PropulsionType,
		"human", "electric_assist", "electric", "combustion", "combustion_diesel", "hybrid", "plug_in_hybrid", "hydrogen_fuel_cell")
	if t.MaxRangeMeters == nil && t.PropulsionType != "human" {
		v.AddCode("required", path+"max_range_meters", "is required with a motor")
	}
	checkOptional(v, path+"max_range_meters", t.MaxRangeMeters, 1, maxMeters)
	checkOptional(v, path+"wheel_count", t.WheelCount, 1, 100)
	checkOptional(v, path+"max_permitted_speed_kph", t.MaxPermittedSpeed, 1, maxSpeed)
	checkOptional(v, path+"rider_capacity", t.RiderCapacity, 1, 100)
	checkRange(v, path+"reservation_minutes", t.ReservationMinutes, 0, 7*24*60)
	checkRange(v, path+"min_age", t.MinAge, 0, 120)
}

func (g *GBFS) check(v *problem.Validation) {
	needed := func(path string, value NullString) {
		if g.Enabled && value == "" {
			v.AddCode("required", path, "is required for the public feed")
		}
	}
	needed("gbfs.system_id", g.SystemID)
	needed("gbfs.opening_hours", g.OpeningHours)
	needed("gbfs.feed_contact_email", g.ContactEmail)
	if g.SystemID != "" && !isName(string(g.SystemID), "_.-", 64) {
		v.AddCode("invalid_format", "gbfs.system_id", "must be 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen, a letter or digit first")
	}
	if g.LicenseID != "" && !isName(string(g.LicenseID), ".+-", 64) {
		v.AddCode("invalid_format", "gbfs.license_id", "must be an SPDX identifier such as CC0-1.0")
	}
	v.Line("gbfs.operator", string(g.Operator), 0, maxName)
	v.Line("gbfs.opening_hours", string(g.OpeningHours), 0, maxName)
	if g.ContactEmail != "" {
		checkEmail(v, "gbfs.feed_contact_email", string(g.ContactEmail))
	}
	g.checkLinks(v)
}

// checkLinks adds issues of the links to apps and vehicles.
func (g *GBFS) checkLinks(v *problem.Validation) {
	checkURL(v, "gbfs.rental_uri_web", NullString(strings.ReplaceAll(string(g.WebRentalURI), VehicleIDVariable, "x")))
	for _, app := range []struct {
		name                     string
		rental, store, discovery NullString
	}{
		{"android", g.AndroidRentalURI, g.AndroidStoreURI, g.AndroidDiscoveryURI}, {"ios", g.IOSRentalURI, g.IOSStoreURI, g.IOSDiscoveryURI},
	} {
		checkAppURI(v, "gbfs.rental_uri_"+app.name, app.rental)
		checkURL(v, "gbfs.store_uri_"+app.name, app.store)
		checkAppURI(v, "gbfs.discovery_uri_"+app.name, app.discovery)
		if app.store == "" && (app.rental != "" || app.discovery != "") {
			v.AddCode("required", "gbfs.store_uri_"+app.name, "is required with links of the app")
		}
		if app.discovery == "" && (app.rental != "" || app.store != "") {
			v.AddCode("required", "gbfs.discovery_uri_"+app.name, "is required with links of the app")
		}
	}
}

// checkAppURI adds an issue unless a link that an app opens is absolute; empty: none.
func checkAppURI(v *problem.Validation, path string, uri NullString) {
	if uri == "" {
		return
	}
	u, err := url.Parse(strings.ReplaceAll(string(uri), VehicleIDVariable, "x"))
	switch {
	case len(uri) > maxURL:
		v.AddCode("too_long", path, "must have at most %d characters", maxURL)
	case err != nil || u.Scheme == "" || u.Opaque != "" || slices.Contains([]string{"javascript", "data", "file"}, u.Scheme):
		v.AddCode("invalid_format", path, "must be an absolute link such as com.example.android://rent/%s", VehicleIDVariable)
	}
}

// isName reports whether name has up to high letters and digits and, after the
// first character, punctuation of others.
func isName(name, others string, high int) bool {
	for i := range len(name) {
		c := name[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || strings.IndexByte(others, c) < 0) {
			return false
		}
	}
	return name != "" && len(name) <= high
}

func (a *Alert) check(v *problem.Validation, path string) {
	path += "."
	checkOneOf(v, path+"type", a.Type, "system_closure", "other")
	checkLine(v, path+"summary", a.Summary, maxName)
	v.Length(path+"description", string(a.Description), 0, maxText)
	checkURL(v, path+"url", a.URL)
	a.StartsAt, a.EndsAt = checkSpan(v, path, a.StartsAt, a.EndsAt)
}

// checkSpan adds an issue unless the end is after the start, if both are set. It
// returns both in whole milliseconds.
func checkSpan(v *problem.Validation, path string, start, end rfc3339.Time) (rfc3339.Time, rfc3339.Time) {
	for _, t := range [...]struct {
		member string
		at     *rfc3339.Time
	}{{"starts_at", &start}, {"ends_at", &end}} {
		if t.at.Std().IsZero() {
			continue
		}
		*t.at = rfc3339.Time(t.at.Std().UTC().Truncate(time.Millisecond))
		if year := t.at.Std().Year(); year < 1970 || year > 9999 {
			v.AddCode("invalid_value", path+t.member, "must be from 1970 to 9999")
		}
	}
	if !start.Std().IsZero() && !end.Std().IsZero() && !end.Std().After(start.Std()) {
		v.AddCode("too_small", path+"ends_at", "must be after starts_at")
	}
	return start, end
}

// checkUse adds issues where the change conflicts with records of the subaccount.
func (s *Service) checkUse(ctx context.Context, tx *db.Tx, v *problem.Validation, organizationID string, before, after *Subaccount) error {
	plans, err := s.plansOf(ctx, tx, organizationID, after.ID)
	if err != nil {
		return err
	}
	planExists := func(path string, id NullString) {
		if id != "" && !slices.ContainsFunc(plans, func(p Plan) bool { return p.ID == string(id) }) {
			v.AddCode("not_found", path, "must be a pricing plan of the subaccount")
		}
	}
	planExists("default_pricing_plan_id", after.DefaultPricingPlanID)
	for i, t := range after.VehicleTypes {
		planExists("vehicle_types."+strconv.Itoa(i)+".default_pricing_plan_id", t.DefaultPricingPlanID)
	}
	if after.Currency != before.Currency {
		var used bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM plans WHERE organization_id = $1 AND subaccount_id = $2)
			OR EXISTS (SELECT 1 FROM rides WHERE organization_id = $1 AND subaccount_id = $2)
			OR EXISTS (SELECT 1 FROM customers WHERE organization_id = $1 AND subaccount_id = $2)`, organizationID, after.ID).Scan(&used)
		if err != nil {
			return fmt.Errorf("check the use of the currency: %w", err)
		}
		if used {
			v.AddCode("conflict", "currency", "cannot be changed while pricing plans, rides or customers use it")
		}
	}
	if after.maxReservationMinutes() > before.maxReservationMinutes() {
		settings, _, err := s.Settings(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		for _, p := range plans {
			if !p.WithinLimits(settings.MaxRideMinutes, after.maxReservationMinutes()) {
				v.AddCode("conflict", "vehicle_types", "would let the price of plan %s exceed the maximum amount, by reservation_minutes", p.ID)
			}
		}
	}
	for _, t := range before.VehicleTypes {
		if after.vehicleType(t.ID) != nil {
			continue
		}
		users, err := s.typeUsage(ctx, tx, organizationID, before, plans, t.ID)
		if err != nil {
			return err
		}
		if users != "" {
			v.AddCode("conflict", "vehicle_types", "must include %s, which %s use", t.ID, users)
		}
	}
	return nil
}

// maxReservationMinutes is the maximum over all vehicle types.
func (s *Subaccount) maxReservationMinutes() (minutes int64) {
	for _, t := range s.VehicleTypes {
		minutes = max(minutes, t.ReservationMinutes)
	}
	return minutes
}

// typeUsage names the records that use a vehicle type; empty if there are none.
func (s *Service) typeUsage(ctx context.Context, tx *db.Tx, organizationID string, before *Subaccount, plans []Plan, typeID string) (string, error) {
	var vehicles bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM vehicles WHERE organization_id = $1 AND vehicle_type_id = $2)", organizationID, typeID).Scan(&vehicles)
	if err != nil {
		return "", fmt.Errorf("look for vehicles of a type: %w", err)
	}
	if vehicles {
		return "vehicles", nil
	}
	if slices.ContainsFunc(plans, func(p Plan) bool { return slices.Contains(p.VehicleTypeIDs, typeID) }) {
		return "pricing plans", nil
	}
	_, stamp, err := s.subaccount(ctx, tx, organizationID, before.ID)
	if err != nil {
		return "", err
	}
	around, err := s.fencesIn(ctx, tx, organizationID, before.ID, stamp)
	if err != nil {
		return "", err
	}
	names := func(r Rule) bool { return slices.Contains(r.VehicleTypeIDs, typeID) }
	if slices.ContainsFunc(around.list, func(f fence) bool { return slices.ContainsFunc(f.rules, names) }) {
		return "zones", nil
	}
	return "", nil
}

// countries has the alpha-2 codes of ISO 3166-1.
const countries = " AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ" +
	" CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR" +
	" GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP" +
	" KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ" +
	" NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW" +
	" SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ" +
	" UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW "

func isCountry(code string) bool {
	return len(code) == 2 && strings.Contains(countries, " "+code+" ")
}
