package fleet

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"

	"github.com/tidwall/rtree"
)

// Zone is a geofence with rules (fleet-api.md 1.4).
type Zone struct {
	RecordHeader
	Name        string       `json:"name"`
	Description NullString   `json:"description"`
	Type        ZoneType     `json:"type"`
	Geometry    geo.Area     `json:"geometry"`
	Rules       []Rule       `json:"rules"`    // the first one for a vehicle type applies
	Priority    int64        `json:"priority"` // smaller precedes
	StartsAt    rfc3339.Time `json:"starts_at"`
	EndsAt      rfc3339.Time `json:"ends_at"`
	Timestamps

	revision int64
}

// NewZone has the fields of a zone to create.
type NewZone struct {
	SubaccountID string            `json:"subaccount_id"`
	ExternalID   NullString        `json:"external_id"`
	Name         string            `json:"name"`
	Description  NullString        `json:"description"`
	Type         ZoneType          `json:"type"`
	Geometry     geo.Area          `json:"geometry"`
	Rules        []Rule            `json:"rules"`    // empty: the type's default
	Priority     *int64            `json:"priority"` // nil: the type's default
	StartsAt     rfc3339.Time      `json:"starts_at"`
	EndsAt       rfc3339.Time      `json:"ends_at"`
	Metadata     map[string]string `json:"metadata"`
}

// ZoneChange has the fields that a PUT sets. Absent fields remain.
type ZoneChange struct {
	ExternalID  optional.Value[NullString]        `json:"external_id"`
	Name        optional.Value[string]            `json:"name"`
	Description optional.Value[NullString]        `json:"description"`
	Type        optional.Value[ZoneType]          `json:"type"`
	Geometry    optional.Value[geo.Area]          `json:"geometry"`
	Rules       optional.Value[[]Rule]            `json:"rules"`
	Priority    optional.Value[int64]             `json:"priority"`
	StartsAt    optional.Value[rfc3339.Time]      `json:"starts_at"`
	EndsAt      optional.Value[rfc3339.Time]      `json:"ends_at"`
	Metadata    optional.Value[map[string]string] `json:"metadata"` // the merged result
}

// Rule is a geofencing rule of GBFS for some vehicle types or all. Riding through
// and maximum speed are published for apps and devices, not enforced here.
type Rule struct {
	VehicleTypeIDs []string `json:"vehicle_type_ids,omitempty"` // none: all
	StartAllowed   bool     `json:"ride_start_allowed"`
	EndAllowed     bool     `json:"ride_end_allowed"`
	ThroughAllowed bool     `json:"ride_through_allowed"`
	MaximumSpeed   *int64   `json:"maximum_speed_kph,omitempty"`
}

// covers reports whether the rule applies to a vehicle type.
func (r *Rule) covers(vehicleTypeID string) bool {
	return len(r.VehicleTypeIDs) == 0 || slices.Contains(r.VehicleTypeIDs, vehicleTypeID)
}

// ZoneType determines the default rules and priority of a zone.
type ZoneType string

// Types of zones.
const (
	ServiceArea ZoneType = "service_area"
	Parking     ZoneType = "parking"
	NoParking   ZoneType = "no_parking"
	Slow        ZoneType = "slow"
	NoRide      ZoneType = "no_ride"
	CustomZone  ZoneType = "custom" // no default rules
)

// defaults returns the default priority and rules of a type (fleet-api.md 1.4).
func (t ZoneType) defaults() (priority int64, rules []Rule) {
	switch t {
	case NoRide:
		return 10, []Rule{{}}
	case NoParking:
		return 20, []Rule{{StartAllowed: true, ThroughAllowed: true}}
	case Slow:
		return 30, []Rule{{StartAllowed: true, EndAllowed: true, ThroughAllowed: true, MaximumSpeed: new(int64(10))}}
	case Parking:
		return 40, []Rule{{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}}
	case ServiceArea:
		return 100, []Rule{{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}}
	}
	return 100, nil
}

// fence is the projection of a zone that rule evaluation needs.
type fence struct {
	id       string
	stamp    int64 // of the row
	kind     ZoneType
	area     geo.Area
	rules    []Rule
	priority int64
	starts   time.Time // zero: unlimited
	ends     time.Time // zero: unlimited
}

// inForce reports whether the zone is in force at a time.
func (f *fence) inForce(at time.Time) bool {
	return !at.Before(f.starts) && (f.ends.IsZero() || at.Before(f.ends))
}

// fences is a spatial index of the zones of a subaccount.
type fences struct {
	list  []fence // by priority, then id: the order of precedence
	areas []int   // indexes in list of service areas
	where rtree.RTreeG[int]
}

// newFences indexes zones. It sorts list.
func newFences(list []fence) *fences {
	f := &fences{list: list}
	slices.SortFunc(list, func(a, b fence) int { return cmp.Or(cmp.Compare(a.priority, b.priority), strings.Compare(a.id, b.id)) })
	for i := range list {
		if list[i].kind == ServiceArea {
			f.areas = append(f.areas, i)
		}
		for _, b := range list[i].area.Boxes() {
			f.where.Insert([2]float64{b.MinLng, b.MinLat}, [2]float64{b.MaxLng, b.MaxLat}, i)
		}
	}
	return f
}

// decide returns the rule for a vehicle type at a place and a time, and the id of
// its zone, empty if the rule is global or a default. Zones are evaluated by
// priority, then id (GBFS; fleet-api.md 1.4). The first rule for the type applies
// alone. A nil place is outside of all zones.
func (f *fences) decide(global []Rule, place *geo.Position, vehicleTypeID string, at time.Time) (Rule, string) {
	first := len(f.list)
	var rule *Rule
	lng, lat := 999.0, 999.0 // not on earth
	if place != nil {
		lng, lat = place.Lng, place.Lat
	}
	here := [2]float64{lng, lat}
	f.where.Search(here, here, func(_, _ [2]float64, i int) bool {
		if zone := &f.list[i]; i < first && zone.inForce(at) {
			r := slices.IndexFunc(zone.rules, func(r Rule) bool { return r.covers(vehicleTypeID) })
			if r >= 0 && zone.area.Contains(lng, lat) {
				first, rule = i, &zone.rules[r]
			}
		}
		return true
	})
	if rule != nil {
		return *rule, f.list[first].id
	}
	for _, r := range global {
		if r.covers(vehicleTypeID) {
			return r, ""
		}
	}
	if len(global) == 0 && slices.ContainsFunc(f.areas, func(i int) bool { return f.list[i].inForce(at) }) {
		return Rule{ThroughAllowed: true}, ""
	}
	return Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}, ""
}

// DraftID is the id of a new zone in the decisions of [Service.RulesWith].
const DraftID = "~" // after all others, like that of the latest zone

// Decision is the rule for a vehicle type at a place.
type Decision struct {
	VehicleTypeID string // empty: any
	Rule          Rule
	ZoneID        string // empty: no zone decides
}

// RulesOrDefault returns the rules that the zone would have.
func (n *NewZone) RulesOrDefault() []Rule {
	if len(n.Rules) > 0 {
		return n.Rules
	}
	_, rules := n.Type.defaults()
	return rules
}

// RulesWith returns the rules that would apply now at a place if draft was stored in place of
// the zone replaces, or as a new zone if replaces is empty: one per vehicle type of the
// subaccount. A draft without an area changes nothing, and is not validated otherwise. Error:
// NotFound for the subaccount.
func (s *Service) RulesWith(ctx context.Context, q db.Querier, organizationID, subaccountID string, draft *NewZone, replaces string, place geo.Position) ([]Decision, error) {
	sub, stamp, err := s.subaccount(ctx, q, organizationID, subaccountID)
	if err != nil {
		return nil, err
	}
	a, err := s.orgContext(ctx, q, s.db.Now(), organizationID)
	if err != nil {
		return nil, err
	}
	stored, err := s.fencesIn(ctx, q, organizationID, subaccountID, stamp)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(slices.Clone(stored.list), func(f fence) bool { return f.id == replaces })
	if !draft.Geometry.IsEmpty() {
		priority, _ := draft.Type.defaults()
		if draft.Priority != nil {
			priority = *draft.Priority
		}
		list = append(list, fence{
			id: cmp.Or(replaces, DraftID), kind: draft.Type, area: draft.Geometry, rules: draft.RulesOrDefault(), priority: priority,
			starts: draft.StartsAt.Std(), ends: draft.EndsAt.Std(),
		})
	}
	zones := newFences(list)
	types := []string{""}
	if len(sub.VehicleTypes) > 0 {
		types = nil
		for _, t := range sub.VehicleTypes {
			types = append(types, t.ID)
		}
	}
	var decisions []Decision
	for _, id := range types {
		rule, zoneID := zones.decide(sub.GlobalRules, &place, id, a.now)
		decisions = append(decisions, Decision{id, rule, zoneID})
	}
	return decisions, nil
}

// fencesIn returns the zones of a subaccount at a stamp, read-only.
func (s *Service) fencesIn(ctx context.Context, q db.Querier, organizationID, subaccountID string, stamp int64) (*fences, error) {
	around, err := s.fences.get(subaccountID, stamp, func(into *fences) error {
		list, err := readFences(ctx, q, organizationID, subaccountID, s.fences.last(subaccountID))
		*into = *newFences(list)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the zones of a subaccount: %w", err)
	}
	return around, nil
}

// readFences reads the zones of a subaccount. Zones in before (may be nil) with the
// same stamp are reused.
func readFences(ctx context.Context, q db.Querier, organizationID, subaccountID string, before *fences) ([]fence, error) {
	if before == nil || len(before.list) == 0 {
		return db.All(ctx, q, scanFence, "SELECT stamp, doc FROM zones WHERE organization_id = $1 AND subaccount_id = $2", organizationID, subaccountID)
	}
	had := make(map[string]*fence, len(before.list))
	for i := range before.list {
		had[before.list[i].id] = &before.list[i]
	}
	list, err := db.All(ctx, q, func(row db.Row) (f fence, err error) {
		return f, row.Scan(&f.id, &f.stamp)
	}, "SELECT id, stamp FROM zones WHERE organization_id = $1 AND subaccount_id = $2", organizationID, subaccountID)
	if err != nil {
		return nil, err
	}
	var changed []string
	same := list[:0]
	for _, f := range list {
		if h := had[f.id]; h != nil && h.stamp == f.stamp {
			same = append(same, *h)
		} else {
			changed = append(changed, f.id)
		}
	}
	if len(changed) == 0 {
		return same, nil
	}
	read, err := db.All(ctx, q, scanFence, "SELECT stamp, doc FROM zones WHERE organization_id = $1 AND id = ANY($2)", organizationID, changed)
	return append(same, read...), err
}

func scanFence(row db.Row) (fence, error) {
	var z Zone
	var stamp int64
	err := row.Scan(&stamp, db.IntoJSON(&z))
	return fence{z.ID, stamp, z.Type, z.Geometry, z.Rules, z.Priority, z.StartsAt.Std(), z.EndsAt.Std()}, err
}

// Record returns the zone's stored form.
func (z *Zone) Record() (Record, error) {
	text, err := encode(z)
	return Record{ID: z.ID, SubaccountID: z.SubaccountID, Revision: z.revision, JSON: text, Distance: -1}, err
}

// Zone returns a zone. Error: NotFound.
func (s *Service) Zone(ctx context.Context, q db.Querier, organizationID, id string) (Zone, error) {
	return readZone(ctx, q, organizationID, id, "")
}

// LockZoneTx is Zone with a lock, for an update in the same transaction.
func (s *Service) LockZoneTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Zone, error) {
	return readZone(ctx, tx, organizationID, id, " FOR UPDATE")
}

func readZone(ctx context.Context, q db.Querier, organizationID, id, lock string) (z Zone, err error) {
	err = q.QueryRow(ctx, "SELECT revision, doc FROM zones WHERE organization_id = $1 AND id = $2"+lock, organizationID, id).Scan(&z.revision, db.IntoJSON(&z))
	return z, wrapReadError(err, "zone")
}

// CreateZoneTx creates a zone in the caller's transaction. Errors: Invalid; Conflict
// already_exists with the member external_id.
func (s *Service) CreateZoneTx(ctx context.Context, tx *db.Tx, organizationID string, n NewZone) (Zone, error) {
	z, err := s.createZone(ctx, tx, organizationID, n)
	if err != nil {
		return Zone{}, err
	}
	return z, s.record(ctx, tx, organizationID, ZoneCreated, audit.Target{Type: "zone", ID: z.ID, Name: z.Name}, nil)
}

// createZone is [Service.CreateZoneTx] without an audit entry.
func (s *Service) createZone(ctx context.Context, tx *db.Tx, organizationID string, n NewZone) (Zone, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Zone{}, err
	}
	if err := s.restampSubaccount(ctx, tx, organizationID, n.SubaccountID); err != nil {
		return Zone{}, err
	}
	var v problem.Validation
	sub, err := s.subaccountForNew(ctx, tx, &v, organizationID, n.SubaccountID)
	if err != nil {
		return Zone{}, err
	}
	z := Zone{
		Name: n.Name, Description: n.Description, Type: n.Type, Geometry: n.Geometry, Rules: slices.Clone(n.Rules),
		StartsAt: n.StartsAt, EndsAt: n.EndsAt, revision: 1,
	}
	z.RecordHeader, z.Timestamps = s.newRecord(zonePrefix, "zone", n.SubaccountID, a.now)
	z.ExternalID, z.Metadata = n.ExternalID, metadataOf(n.Metadata)
	priority, rules := n.Type.defaults()
	if len(z.Rules) == 0 {
		z.Rules = rules
	}
	z.Priority = priority
	if n.Priority != nil {
		z.Priority = *n.Priority
	}
	z.check(&v, sub)
	if err := v.Err(); err != nil {
		return Zone{}, err
	}
	doc, err := encode(z)
	if err != nil {
		return Zone{}, err
	}
	minLng, minLat, maxLng, maxLat := z.Geometry.Bound()
	made, err := tx.Exec(ctx, `INSERT INTO zones (organization_id, id, subaccount_id, revision, external_id, type, name, priority, starts_at, ends_at, min_lng, min_lat, max_lng, max_lat, doc, stamp)
		VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT DO NOTHING`,
		organizationID, z.ID, z.SubaccountID, db.Text(string(z.ExternalID)), string(z.Type), z.Name, z.Priority, db.Time(z.StartsAt.Std()), db.Time(z.EndsAt.Std()),
		minLng, minLat, maxLng, maxLat, string(doc), newStamp())
	if err != nil {
		return Zone{}, fmt.Errorf("insert a zone: %w", err)
	}
	if made == 0 {
		return Zone{}, alreadyExistsError("external_id")
	}
	s.notify(tx, organizationID, ZoneKind, z.ID)
	if err := s.examineZones(ctx, tx, a, z.SubaccountID); err != nil {
		return Zone{}, err
	}
	return z, s.emitZone(ctx, tx, a, event.ZoneCreated, nil, &z)
}

// UpdateZoneTx updates a zone that the caller's transaction has locked. An update
// without a difference creates no revision.
//
// Cleared rules and priority become the type's defaults. If only the type changes,
// rules and priority change with it if they are the defaults of the former type.
// Errors: Invalid; Conflict already_exists with the member external_id.
func (s *Service) UpdateZoneTx(ctx context.Context, tx *db.Tx, organizationID string, z Zone, c ZoneChange) (Zone, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Zone{}, err
	}
	before, err := encode(z)
	if err != nil {
		return Zone{}, err
	}
	if err := s.restampSubaccount(ctx, tx, organizationID, z.SubaccountID); err != nil {
		return Zone{}, err
	}
	sub, _, err := s.subaccount(ctx, tx, organizationID, z.SubaccountID)
	if err != nil {
		return Zone{}, err
	}
	former := z
	c.ExternalID.Into(&z.ExternalID)
	c.Name.Into(&z.Name)
	c.Description.Into(&z.Description)
	c.Type.Into(&z.Type)
	c.Geometry.Into(&z.Geometry)
	c.StartsAt.Into(&z.StartsAt)
	c.EndsAt.Into(&z.EndsAt)
	if c.Metadata.Set {
		z.Metadata = metadataOf(c.Metadata.Value)
	}
	formerPriority, formerRules := former.Type.defaults()
	priority, rules := z.Type.defaults()
	switch {
	case len(c.Rules.Value) > 0:
		z.Rules = slices.Clone(c.Rules.Value)
	case c.Rules.Set, rules != nil && reflect.DeepEqual(z.Rules, formerRules):
		z.Rules = rules
	}
	switch {
	case c.Priority.Set && !c.Priority.Null:
		z.Priority = c.Priority.Value
	case c.Priority.Set, z.Priority == formerPriority:
		z.Priority = priority
	}
	var v problem.Validation
	z.check(&v, sub)
	if err := v.Err(); err != nil {
		return Zone{}, err
	}
	doc, err := encode(z)
	if err != nil || bytes.Equal(doc, before) {
		return former, err
	}
	if z.ExternalID != former.ExternalID {
		err := checkUnique(ctx, tx, "external_id", "zones WHERE organization_id = $1 AND subaccount_id = $2 AND external_id = $3 AND id <> $4",
			organizationID, z.SubaccountID, string(z.ExternalID), z.ID)
		if err != nil {
			return Zone{}, err
		}
	}
	z.UpdatedAt = nextUpdatedAt(z.UpdatedAt, a.now)
	z.revision++
	if doc, err = encode(z); err != nil {
		return Zone{}, err
	}
	minLng, minLat, maxLng, maxLat := z.Geometry.Bound()
	_, err = tx.Exec(ctx, `UPDATE zones SET revision = $3, external_id = $4, type = $5, name = $6, priority = $7, starts_at = $8, ends_at = $9,
		min_lng = $10, min_lat = $11, max_lng = $12, max_lat = $13, doc = $14, stamp = $15 WHERE organization_id = $1 AND id = $2`,
		organizationID, z.ID, z.revision, db.Text(string(z.ExternalID)), string(z.Type), z.Name, z.Priority, db.Time(z.StartsAt.Std()), db.Time(z.EndsAt.Std()),
		minLng, minLat, maxLng, maxLat, string(doc), newStamp())
	if db.IsUnique(err) { // by a concurrent transaction
		return Zone{}, alreadyExistsError("external_id")
	}
	if err != nil {
		return Zone{}, fmt.Errorf("update a zone: %w", err)
	}
	s.notify(tx, organizationID, ZoneKind, z.ID)
	if err := s.examineZones(ctx, tx, a, z.SubaccountID); err != nil {
		return Zone{}, err
	}
	if err := s.emitZone(ctx, tx, a, event.ZoneUpdated, &former, &z); err != nil {
		return Zone{}, err
	}
	return z, s.recordChange(ctx, tx, organizationID, ZoneUpdated, audit.Target{Type: "zone", ID: z.ID, Name: z.Name}, former, z)
}

// DeleteZoneTx deletes a zone in the caller's transaction. Its id remains in rides.
// Error: NotFound.
func (s *Service) DeleteZoneTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return err
	}
	var z Zone
	err = tx.QueryRow(ctx, "DELETE FROM zones WHERE organization_id = $1 AND id = $2 RETURNING doc", organizationID, id).Scan(db.IntoJSON(&z))
	if err := wrapReadError(err, "zone"); err != nil {
		return err
	}
	if err := s.restampSubaccount(ctx, tx, organizationID, z.SubaccountID); err != nil { // before vehicles are locked
		return err
	}
	s.notify(tx, organizationID, ZoneKind, id)
	if err := s.examineZones(ctx, tx, a, z.SubaccountID); err != nil {
		return err
	}
	if err := s.emitZone(ctx, tx, a, event.ZoneDeleted, nil, &z); err != nil {
		return err
	}
	return s.record(ctx, tx, organizationID, ZoneDeleted, audit.Target{Type: "zone", ID: id, Name: z.Name}, nil)
}

// check adds issues of the zone and normalizes it. sub may be nil.
func (z *Zone) check(v *problem.Validation, sub *Subaccount) {
	checkLine(v, "name", z.Name, maxName)
	v.Length("description", string(z.Description), 0, maxText)
	checkOneOf(v, "type", z.Type, ServiceArea, Parking, NoParking, Slow, NoRide, CustomZone)
	checkCommon(v, z.ExternalID, z.Metadata)
	if z.Geometry.IsEmpty() {
		v.AddCode("required", "geometry", "is required")
	}
	if len(z.Rules) == 0 && z.Type == CustomZone {
		v.AddCode("required", "rules", "are required for a custom zone")
	}
	checkRange(v, "priority", z.Priority, 0, 1000)
	z.StartsAt, z.EndsAt = checkSpan(v, "", z.StartsAt, z.EndsAt)
	if sub != nil {
		z.Rules = checkRules(v, "rules", z.Rules, sub)
	}
}

// checkRules adds issues of rules for the types of a subaccount and returns the
// rules normalized, never nil.
func checkRules(v *problem.Validation, path string, rules []Rule, sub *Subaccount) []Rule {
	if len(rules) > maxList {
		v.AddCode("too_long", path, "must have at most %d values", maxList)
		return rules
	}
	for i := range rules {
		r, at := &rules[i], path+"."+strconv.Itoa(i)
		checkOptional(v, at+".maximum_speed_kph", r.MaximumSpeed, 0, maxSpeed)
		if len(r.VehicleTypeIDs) > 0 {
			r.VehicleTypeIDs = checkTypes(v, at+".vehicle_type_ids", r.VehicleTypeIDs, sub)
		}
	}
	if rules == nil {
		return []Rule{}
	}
	return rules
}
