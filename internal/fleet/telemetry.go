package fleet

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// MaxReports bounds the reports of one call of [Service.RecordTelemetryTx].
const MaxReports = 10_000

// Report is a report of a vehicle.
type Report struct {
	Vehicle VehicleRef
	Data    track.Report // at the time by the tracker's clock
	// Invalid marks a report that is not valid, because of the value at a JSON pointer. It is
	// rejected.
	Invalid bool
	Pointer string
	// Direct marks a report of a tracker that repeats it until it is taken. A clock that is
	// certainly wrong is corrected at once then.
	Direct bool
}

// VehicleRef names a vehicle by one of its unique members; the others are empty.
type VehicleRef struct {
	ID       string
	Code     string // ignoring case
	DeviceID string
}

// TelemetryResult is the result of a call of [Service.RecordTelemetryTx].
type TelemetryResult struct {
	Accepted, Ignored, Rejected int64
	Verdicts                    []Verdict // of reports that were not accepted, in their order
	Clocks                      []ClockCorrection
}

// Statuses of a [Verdict].
const (
	ReportIgnored  = "ignored"
	ReportRejected = "rejected"
)

// Verdict is the outcome of a report that was not accepted.
type Verdict struct {
	Index  int    // of the report
	Status string // ReportIgnored or ReportRejected
	// Code is not_found, outside_scope, in_future or invalid_value of a rejected report;
	// out_of_order or duplicate of an ignored one. A report out of order is part of the track.
	Code    string
	Pointer string // JSON pointer of the value in the report; empty: the report as a whole
}

// ClockCorrection is a wrong clock of a tracker. The times of its reports were corrected.
type ClockCorrection struct {
	VehicleID string
	Ahead     time.Duration // of the tracker's clock; negative if it is behind
	Reports   int64         // corrected in this call
}

// RecordTelemetryTx stores reports in the tracks of their vehicles and applies them to the
// vehicles, in the caller's transaction and in the order of their times. Every report has a
// verdict; none fails the others. covers reports whether the caller may change vehicles of a
// subaccount.
//
// A report that is older than the last one of its vehicle becomes part of the track and changes
// no state. One that is stored already is a duplicate. A wrong clock of a tracker is recognized
// by reports that are consistently wrong, and corrected from then on.
func (s *Service) RecordTelemetryTx(ctx context.Context, tx *db.Tx, organizationID string, reports []Report, covers func(subaccountID string) bool) (TelemetryResult, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return TelemetryResult{}, err
	}
	in := &intake{
		s: s, tx: tx, org: a, reports: reports, verdicts: make([]Verdict, len(reports)),
		now: a.now.Truncate(time.Millisecond), oldest: a.now.AddDate(0, 0, -int(a.settings.TrackRetentionDays)),
		subaccounts: make(map[string]*Subaccount),
	}
	if err := in.lock(ctx, covers); err != nil {
		return TelemetryResult{}, err
	}
	if err := in.correctTimes(ctx); err != nil {
		return TelemetryResult{}, err
	}
	if err := in.loadSegments(ctx); err != nil {
		return TelemetryResult{}, err
	}
	if err := in.loadAlertFacts(ctx); err != nil {
		return TelemetryResult{}, err
	}
	for _, v := range in.vehicles {
		if err := in.record(ctx, v); err != nil {
			return TelemetryResult{}, err
		}
	}
	for _, v := range in.vehicles {
		if len(v.saved) > 0 { // telemetry has no events of its own
			if err := s.emitVehicle(ctx, tx, a, &v.stored, &v.Vehicle, v.saved); err != nil {
				return TelemetryResult{}, err
			}
		}
		if err := s.finishAlerts(ctx, tx, a, v.alerts); err != nil {
			return TelemetryResult{}, err
		}
		if err := s.applyOdometer(ctx, tx, a, &v.Vehicle); err != nil {
			return TelemetryResult{}, err
		}
	}
	return in.result(), nil
}

// intake is one call of RecordTelemetryTx.
type intake struct {
	s           *Service
	tx          *db.Tx
	org         orgContext
	now, oldest time.Time
	reports     []Report
	verdicts    []Verdict           // by report; accepted ones have no code
	vehicles    []*reportingVehicle // in the order of their ids
	subaccounts map[string]*Subaccount
	alertFacts  *alertFacts // nil: no alert rule is enabled

	before, after []column        // memory of the columns of one vehicle
	memory        []track.Segment // of segments that are stored, for the next vehicles
}

// reportingVehicle is a locked vehicle with its reports.
type reportingVehicle struct {
	Vehicle
	stored    Vehicle
	reports   []timedReport // first in the order of the call, then in that of time
	segments  map[int64]*segment
	corrected int64
	clock     trackerClock
	saved     []StateChange   // by this call
	alerts    []*VehicleAlert // that this call raised or cleared
}

// timedReport is a report at its corrected time.
type timedReport struct {
	index int
	track.Report
}

// segment is a stored or new segment of a track.
type segment struct {
	stored  []byte // encoded, until it is decoded; nil: none
	reports track.Segment
	changed bool
}

// decode decodes a stored segment that begins at start. It comes late, since the segments of a
// call take ten times the memory decoded: an hour of a vehicle has hundreds of reports.
func (in *intake) decode(g *segment, start int64) (err error) {
	if g.stored == nil {
		return nil
	}
	if last := len(in.memory) - 1; last >= 0 {
		g.reports, in.memory = in.memory[last], in.memory[:last]
	}
	g.reports, err = g.reports.Decode(g.stored, start)
	g.stored = nil
	return err
}

func (in *intake) reject(index int, code, pointer string) {
	in.verdicts[index] = Verdict{Index: index, Status: ReportRejected, Code: code, Pointer: pointer}
}

func (in *intake) ignore(index int, code string) {
	in.verdicts[index] = Verdict{Index: index, Status: ReportIgnored, Code: code}
}

// lock finds and locks the vehicles of the reports. Their rides that are due end before.
func (in *intake) lock(ctx context.Context, covers func(string) bool) error {
	ids := make(map[string]bool)
	codes, devices := make(map[string]string), make(map[string]string) // to ids
	for i := range in.reports {
		r := &in.reports[i]
		switch {
		case r.Invalid:
			in.reject(i, "invalid_value", r.Pointer)
		case r.Vehicle.ID != "":
			ids[r.Vehicle.ID] = true
		case r.Vehicle.Code != "":
			codes[strings.ToLower(r.Vehicle.Code)] = ""
		default:
			devices[r.Vehicle.DeviceID] = ""
		}
	}
	for column, names := range map[string]map[string]string{"code": codes, "device_id": devices} {
		if err := in.resolve(ctx, column, names, ids); err != nil {
			return err
		}
	}
	if err := in.endDueRides(ctx, ids); err != nil {
		return err
	}
	list, err := db.All(ctx, in.tx, in.scanVehicle, "SELECT "+vehicleColumns+" FROM vehicles WHERE organization_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE",
		in.org.id, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return fmt.Errorf("lock the vehicles of reports: %w", err)
	}
	byID := make(map[string]*reportingVehicle, len(list))
	for _, v := range list {
		byID[v.ID] = v
	}
	for i := range in.reports {
		r := &in.reports[i]
		if r.Invalid {
			continue
		}
		id, pointer := r.Vehicle.ID, "/vehicle/id"
		switch {
		case r.Vehicle.Code != "":
			id, pointer = codes[strings.ToLower(r.Vehicle.Code)], "/vehicle/code"
		case r.Vehicle.DeviceID != "":
			id, pointer = devices[r.Vehicle.DeviceID], "/vehicle/device_id"
		}
		switch v := byID[id]; {
		case v == nil:
			in.reject(i, "not_found", pointer)
		case !covers(v.SubaccountID):
			in.reject(i, "outside_scope", pointer)
		default:
			v.reports = append(v.reports, timedReport{i, r.Data})
		}
	}
	in.vehicles = slices.DeleteFunc(list, func(v *reportingVehicle) bool { return len(v.reports) == 0 })
	return nil
}

// resolve sets the ids of the vehicles whose column has one of the names, and adds them to ids.
func (in *intake) resolve(ctx context.Context, column string, names map[string]string, ids map[string]bool) error {
	if len(names) == 0 {
		return nil
	}
	found, err := db.All(ctx, in.tx, func(row db.Row) (f [2]string, err error) {
		err = row.Scan(&f[0], &f[1])
		return f, err
	}, "SELECT "+column+", id FROM vehicles WHERE organization_id = $1 AND "+column+" = ANY($2)", in.org.id, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return fmt.Errorf("look up vehicles by %s: %w", column, err)
	}
	for _, f := range found {
		names[f[0]] = f[1]
		ids[f[1]] = true
	}
	return nil
}

// endDueRides ends the rides of vehicles that are due. Rides are locked before vehicles.
func (in *intake) endDueRides(ctx context.Context, vehicleIDs map[string]bool) error {
	due, err := db.All(ctx, in.tx, func(row db.Row) (f [2]string, err error) {
		err = row.Scan(&f[0], &f[1])
		return f, err
	}, "SELECT id, vehicle_id FROM rides WHERE organization_id = $1 AND due_at <= $2 ORDER BY id", in.org.id, in.org.now.UnixMicro())
	if err != nil {
		return fmt.Errorf("look up due rides: %w", err)
	}
	var rides []string
	for _, ride := range due {
		if vehicleIDs[ride[1]] {
			rides = append(rides, ride[0])
		}
	}
	return in.s.expireRides(ctx, in.tx, in.org, rides, slices.Collect(maps.Keys(vehicleIDs)))
}

func (in *intake) scanVehicle(row db.Row) (*reportingVehicle, error) {
	v := &reportingVehicle{segments: make(map[int64]*segment, 1)}
	if err := v.scan(row); err != nil {
		return nil, err
	}
	v.org, v.stored = in.org, v.Vehicle
	v.applyTimers(in.org.settings, in.org.now)
	return v, nil
}

// correctTimes corrects the times of the reports by the trackers' clocks, rejects those that are
// out of bounds, and sorts them.
func (in *intake) correctTimes(ctx context.Context) error {
	ids := make([]string, len(in.vehicles))
	for i, v := range in.vehicles {
		ids[i] = v.ID
	}
	clocks, err := trackerClocks(ctx, in.tx, in.org.id, ids)
	if err != nil {
		return err
	}
	future := in.now.Add(maxReportAhead).UnixMilli()
	impossible := in.now.AddDate(0, 0, -int(max(in.org.settings.TrackRetentionDays, trackerMemoryDays)))
	for _, v := range in.vehicles {
		stored := clocks[v.ID]
		v.clock = stored
		evidence := evidence(v.reports, in.now)
		v.clock.observe(evidence.Time(), in.now, impossible, in.reports[evidence.index].Direct)
		if v.clock != stored {
			if err := v.clock.save(ctx, in.tx, in.org.id, v.ID); err != nil {
				return err
			}
		}
		ahead, kept := v.clock.ahead.Milliseconds(), v.reports[:0]
		for _, r := range v.reports {
			if ahead != 0 {
				r.At -= ahead
				r.Set(track.Shift, ahead)
			}
			switch {
			case r.At > future:
				in.reject(r.index, "in_future", "/reported_at")
			case r.At < in.oldest.UnixMilli():
				in.reject(r.index, "invalid_value", "/reported_at")
			default:
				kept = append(kept, r)
			}
		}
		if ahead != 0 {
			v.corrected = int64(len(kept))
		}
		v.reports = kept
		slices.SortStableFunc(v.reports, func(r, o timedReport) int { return int(r.At - o.At) })
	}
	return nil
}

// loadSegments reads the segments that the reports belong to, or could be stored in.
func (in *intake) loadSegments(ctx context.Context) error {
	needed := make(map[int64][]string) // ids by start
	byID := make(map[string]*reportingVehicle, len(in.vehicles))
	for _, v := range in.vehicles {
		byID[v.ID] = v
		for i := range v.reports {
			starts, n := v.clock.segmentsOf(&v.reports[i].Report)
			for _, start := range starts[:n] {
				if v.segments[start] == nil {
					v.segments[start] = new(segment)
					needed[start] = append(needed[start], v.ID)
				}
			}
		}
	}
	for start, ids := range needed {
		_, err := db.All(ctx, in.tx, func(row db.Row) (none struct{}, err error) {
			var id string
			var encoded []byte
			if err := row.Scan(&id, &encoded); err != nil {
				return none, err
			}
			byID[id].segments[start].stored = encoded
			return none, nil
		}, "SELECT vehicle_id, reports FROM tracks WHERE organization_id = $1 AND vehicle_id = ANY($2) AND start_at = $3", in.org.id, ids, start*1000)
		if err != nil {
			return fmt.Errorf("read the tracks of vehicles: %w", err)
		}
	}
	return nil
}

// record stores the reports of a vehicle and applies them to it.
func (in *intake) record(ctx context.Context, v *reportingVehicle) error {
	leveled, applied := false, false
	var first, last time.Time // of the new reports
	for i := range v.reports {
		r := &v.reports[i]
		start := track.Start(r.At)
		g := v.segments[start]
		if err := in.decode(g, start); err != nil {
			return err
		}
		elsewhere, err := in.storedElsewhere(v, &r.Report)
		if err != nil {
			return err
		}
		if len(g.reports) >= track.MaxReports && !elsewhere && !g.reports.Has(&r.Report) {
			in.reject(r.index, "invalid_value", "/reported_at")
			continue
		}
		if elsewhere || !g.reports.Insert(r.Report) {
			in.ignore(r.index, "duplicate")
			continue
		}
		g.changed = true
		if first.IsZero() {
			first = r.Time()
		}
		last = r.Time()
		if r.Time().Before(v.reportedAt()) {
			in.ignore(r.index, "out_of_order")
			continue
		}
		applied = true
		leveled = v.applyTrackerReport(&r.Report, in.now, in.org.settings) || leveled
	}
	for _, start := range slices.Sorted(maps.Keys(v.segments)) {
		g := v.segments[start]
		in.memory = append(in.memory, g.reports[:0])
		if !g.changed {
			continue
		}
		err := in.tx.Queue(ctx, `INSERT INTO tracks (organization_id, vehicle_id, start_at, reports) VALUES ($1, $2, $3, $4)
			ON CONFLICT (organization_id, vehicle_id, start_at) DO UPDATE SET reports = excluded.reports`, in.org.id, v.ID, start*1000, g.reports.Append(nil, start))
		if err != nil {
			return fmt.Errorf("store a track: %w", err)
		}
	}
	v.segments = nil // to free their memory
	// A ride ends by a change of state, unless its vehicle is out of contact.
	if !first.IsZero() && (!first.After(v.stored.StateChangedAt.Std()) || v.stored.State == NonContactable) {
		// Not longestRide: the rides of a year of thousands of vehicles would take minutes to read.
		longest := time.Duration(in.org.settings.MaxRideMinutes)*time.Minute + longestReservation
		if err := noteLateReports(ctx, in.tx, in.org.id, v.ID, first, last, longest); err != nil {
			return err
		}
	}
	if applied && leveled {
		if err := in.estimateRange(ctx, v); err != nil {
			return err
		}
	}
	if !applied && len(v.changes) == 0 {
		return nil
	}
	return in.save(ctx, v)
}

// storedElsewhere reports whether another segment than its own has a report, by a former correction
// of the clock.
func (in *intake) storedElsewhere(v *reportingVehicle, r *track.Report) (bool, error) {
	starts, n := v.clock.segmentsOf(r)
	for _, start := range starts[1:n] {
		g := v.segments[start]
		if err := in.decode(g, start); err != nil || g.reports.Has(r) {
			return err == nil, err
		}
	}
	return false, nil
}

// loadAlertFacts reads the facts for alert rules, if any is enabled.
func (in *intake) loadAlertFacts(ctx context.Context) (err error) {
	if in.org.alerts == nil {
		return nil
	}
	vehicles := make([]*Vehicle, len(in.vehicles))
	for i, v := range in.vehicles {
		vehicles[i] = &v.Vehicle
	}
	in.alertFacts, err = in.s.alertFacts(ctx, in.tx, in.org, vehicles...)
	return err
}

// estimateRange sets the range by the vehicle's type.
func (in *intake) estimateRange(ctx context.Context, v *reportingVehicle) error {
	sub := in.subaccounts[v.SubaccountID]
	if sub == nil {
		var err error
		if sub, _, err = in.s.subaccount(ctx, in.tx, in.org.id, v.SubaccountID); err != nil {
			return err
		}
		in.subaccounts[v.SubaccountID] = sub
	}
	if kind := sub.vehicleType(v.VehicleTypeID); kind != nil {
		v.CurrentRangeMeters = v.estimatedRange(kind)
	}
	return nil
}

// save writes a vehicle that reported. The due time of its silence stays until then: when it
// comes, the timer finds the later one.
func (in *intake) save(ctx context.Context, v *reportingVehicle) error {
	v.revision = v.stored.revision + 1
	v.UpdatedAt = nextUpdatedAt(v.stored.UpdatedAt, in.org.now)
	if err := v.encode(in.org); err != nil {
		return err
	}
	var err error
	if v.alerts, err = in.s.applyAlertRules(ctx, in.tx, in.org, in.alertFacts, &v.Vehicle, in.org.now); err != nil {
		return err
	}
	if due := v.stored.dueAt; len(v.changes) == 0 && due.After(in.org.now) && v.dueAt.After(due) {
		v.dueAt = due
	}
	in.s.notify(in.tx, in.org.id, VehicleKind, v.ID)
	v.saved = v.changes
	in.before, in.after = v.stored.appendColumns(in.before[:0]), v.appendColumns(in.after[:0])
	if err := queueUpdate(ctx, in.tx, "vehicles", in.org.id, v.ID, in.before, in.after); err != nil {
		return err
	}
	return v.insertStateChanges(ctx, in.tx, in.org.id)
}

func (in *intake) result() TelemetryResult {
	var t TelemetryResult
	for i := range in.verdicts {
		switch in.verdicts[i].Status {
		case "":
			t.Accepted++
			continue
		case ReportIgnored:
			t.Ignored++
		case ReportRejected:
			t.Rejected++
		}
		t.Verdicts = append(t.Verdicts, in.verdicts[i])
	}
	for _, v := range in.vehicles {
		if v.corrected > 0 {
			t.Clocks = append(t.Clocks, ClockCorrection{v.ID, v.clock.ahead, v.corrected})
		}
	}
	return t
}

// applyTrackerReport applies a report that is not older than the last one. It reports whether a
// level of battery or fuel applied.
func (v *Vehicle) applyTrackerReport(r *track.Report, now time.Time, settings *Settings) (leveled bool) {
	isNew := r.Time().After(v.reportedAt())
	if r.Located() {
		v.Location = positionOf(r)
	}
	if n, ok := r.Get(track.Battery); ok {
		v.BatteryPercent, leveled = new(n), true
	}
	if n, ok := r.Get(track.Fuel); ok {
		v.FuelPercent, leveled = new(n), true
	}
	if n, ok := r.Get(track.Odometer); ok {
		v.OdometerMeters, v.odometerAt = new(n), r.Time()
	}
	v.LastReportedAt = rfc3339.Time(r.Time())
	// Of reports that waited in the tracker, those that are as old as a silence restore no contact:
	// it would be lost again at once.
	if isNew && r.Time().Add(time.Duration(settings.ContactLostMinutes)*time.Minute).After(now) {
		v.regainContact(now, settings)
	}
	if leveled {
		v.applyLevel(now, settings)
	}
	return leveled
}

// positionOf returns the position of a located report.
func positionOf(r *track.Report) *geo.Position {
	lat, _ := r.Get(track.Lat)
	lng, _ := r.Get(track.Lng)
	p := &geo.Position{Lat: geo.Degrees(lat), Lng: geo.Degrees(lng)}
	if n, ok := r.Get(track.Accuracy); ok {
		p.AccuracyMeters = new(float64(n) / 10)
	}
	if n, ok := r.Get(track.Heading); ok {
		p.Heading = new(float64(n) / 10)
	}
	if n, ok := r.Get(track.Speed); ok {
		p.SpeedMPS = new(math.Round(float64(n)/36*100) / 100)
	}
	return p
}
