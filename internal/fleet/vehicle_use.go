package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// UseGroupMembers lists the fields by which the use of vehicles can be grouped.
var UseGroupMembers = [...]string{"subaccount_id", "vehicle_type_id"}

// UseQuery selects vehicles and the form of a report.
type UseQuery struct {
	From, To    time.Time // From is inclusive, To exclusive
	Granularity period.Granularity
	Location    *time.Location // time zone of the periods; nil: UTC
	GroupBy     []string       // of UseGroupMembers
	// Filters by any of the values; nil: all.
	Subaccounts  []string
	VehicleTypes []string
}

// UseFigures sum up the time of vehicles by their states. Seconds are whole, rounded down.
// The time of removed and missing vehicles does not count.
type UseFigures struct {
	VehicleCount       int64 `json:"vehicle_count"`       // deployed at any time
	DeployedSeconds    int64 `json:"deployed_seconds"`    // the sum of the next four
	OnTripSeconds      int64 `json:"on_trip_seconds"`     // ridden, pauses included
	ReservedSeconds    int64 `json:"reserved_seconds"`    //
	IdleSeconds        int64 `json:"idle_seconds"`        // available
	UnavailableSeconds int64 `json:"unavailable_seconds"` // out of service or out of contact
	// Both are rounded half up, and nil if no vehicle was deployed.
	UtilizationBasisPoints *int64 `json:"utilization_basis_points"`     // on trips, of the deployed time
	IdleSecondsPerDay      *int64 `json:"idle_seconds_per_vehicle_day"` // per 24 hours deployed
}

// UseRow has the figures of a period or of a group in it.
type UseRow struct {
	Period period.Period
	Group  []NullString // values of the fields of GroupBy; empty is null and comes first
	UseFigures
}

// UseReport is the result of [Service.UseAnalytics].
type UseReport struct {
	GeneratedAt time.Time // by the organization's clock
	Rows        []UseRow  // by period, then by group
	Totals      UseFigures
}

// maxUseChanges is the maximum number of state changes of a report, which reads each.
var maxUseChanges int64 = 1_000_000

// Classes of states.
const (
	onTripTime = iota
	reservedTime
	idleTime
	unavailableTime
	useClasses
	absentTime = -1 // does not count
)

func useClass(state VehicleState) int {
	switch state {
	case OnTrip:
		return onTripTime
	case VehicleReserved:
		return reservedTime
	case Available:
		return idleTime
	case NonOperational, NonContactable:
		return unavailableTime
	}
	return absentTime
}

// useSum is the time of vehicles by class, in milliseconds.
type useSum struct {
	vehicles int64
	time     [useClasses]int64
}

// usedVehicle is a vehicle at a moment of the range.
type usedVehicle struct {
	group  string // values of GroupBy, separated by |
	class  int
	since  int64 // milliseconds
	period int   // the last one that counts the vehicle; -1: none
}

// useAnalysis sums up the time of vehicles.
type useAnalysis struct {
	edges    []int64 // of the periods in milliseconds, including the end of the last
	vehicles map[string]*usedVehicle
	sums     []map[string]*useSum // by period and group
	total    useSum
}

// UseAnalytics sums up the time of an organization's vehicles by state, from their stored
// state changes, up to now. Without groups, every period has a row. With groups, only groups
// with vehicles have rows. A deleted vehicle has the type that it had
// at last; none if a previous version deleted it and it had no ride.
//
// Errors: Invalid, with code range_too_large for more than 5,000 periods; Unparseable, with the
// same code, for more than 1,000,000 state changes.
func (s *Service) UseAnalytics(ctx context.Context, organizationID string, q UseQuery) (UseReport, error) {
	periods, err := q.check()
	if err != nil {
		return UseReport{}, err
	}
	a := &useAnalysis{vehicles: make(map[string]*usedVehicle), sums: make([]map[string]*useSum, len(periods))}
	for i, p := range periods {
		a.edges = append(a.edges, p.Start.UnixMilli())
		a.sums[i] = make(map[string]*useSum)
	}
	a.edges = append(a.edges, q.To.UnixMilli())
	var out UseReport
	ctx = db.LongRunning(ctx, "analytics")
	err = s.db.Read(ctx, func(tx *db.Tx) error {
		if out.GeneratedAt, err = s.Now(ctx, tx, organizationID); err != nil {
			return err
		}
		if err := a.begin(ctx, tx, organizationID, &q); err != nil {
			return err
		}
		return a.follow(ctx, tx, organizationID, &q, min(out.GeneratedAt.UnixMilli(), a.edges[len(a.edges)-1]))
	})
	if _, refused := errors.AsType[*problem.Error](err); refused {
		return UseReport{}, err
	}
	if err != nil {
		return UseReport{}, fmt.Errorf("sum up the use of vehicles: %w", err)
	}
	out.Rows, out.Totals = a.rows(periods, len(q.GroupBy)), a.total.figures()
	return out, nil
}

// check returns the periods of the query.
func (q *UseQuery) check() ([]period.Period, error) {
	var v problem.Validation
	for i, member := range q.GroupBy {
		if !slices.Contains(UseGroupMembers[:], member) {
			v.Add("group_by", "must be among %s", strings.Join(UseGroupMembers[:], ", "))
		} else if slices.Contains(q.GroupBy[:i], member) {
			v.Add("group_by", "must not repeat a field")
		}
	}
	loc := q.Location
	if loc == nil {
		loc = time.UTC
	}
	periods, err := period.Split(q.From, q.To, q.Granularity, loc)
	switch {
	case errors.Is(err, period.ErrTooMany):
		v.AddCode("range_too_large", "to", "%v", err)
	case errors.Is(err, period.ErrUnknown):
		v.Add("granularity", "%v", err)
	case err != nil:
		v.Add("to", "%v", err)
	}
	return periods, v.Err()
}

// groupOf returns the group of a vehicle; false if the filters exclude it.
func (q *UseQuery) groupOf(subaccountID, vehicleTypeID string) (string, bool) {
	if q.Subaccounts != nil && !slices.Contains(q.Subaccounts, subaccountID) || q.VehicleTypes != nil && !slices.Contains(q.VehicleTypes, vehicleTypeID) {
		return "", false
	}
	values := make([]string, len(q.GroupBy))
	for i, member := range q.GroupBy {
		if values[i] = vehicleTypeID; member == "subaccount_id" {
			values[i] = subaccountID
		}
	}
	return strings.Join(values, "|"), true
}

// begin reads the vehicles with their states at the start of the range.
func (a *useAnalysis) begin(ctx context.Context, tx *db.Tx, organizationID string, q *UseQuery) error {
	const before = ", (SELECT e.doc FROM vehicle_events e WHERE e.organization_id = v.organization_id AND e.vehicle_id = v.id AND e.id < $2 ORDER BY e.id DESC LIMIT 1) FROM "
	_, err := db.All(ctx, tx, func(row db.Row) (none struct{}, err error) {
		var id, subaccountID, vehicleTypeID, doc string
		if err := row.Scan(&id, &subaccountID, db.IntoText(&vehicleTypeID), db.IntoText(&doc)); err != nil {
			return none, err
		}
		group, selected := q.groupOf(subaccountID, vehicleTypeID)
		if !selected {
			return none, nil
		}
		v := &usedVehicle{group: group, class: absentTime, since: a.edges[0], period: -1}
		if doc != "" {
			state, _, err := readUse(doc)
			if err != nil {
				return none, err
			}
			v.class = useClass(state)
		}
		a.vehicles[id] = v
		return none, nil
	}, "SELECT v.id, v.subaccount_id, v.vehicle_type_id"+before+"vehicles v WHERE v.organization_id = $1 UNION ALL "+
		"SELECT v.id, v.subaccount_id, v.vehicle_type_id"+before+"deleted_vehicles v WHERE v.organization_id = $1",
		organizationID, idsFrom(eventPrefix, q.From))
	return err
}

// follow reads the state changes of the range and adds the time between them, up to end.
func (a *useAnalysis) follow(ctx context.Context, tx *db.Tx, organizationID string, q *UseQuery, end int64) error {
	from, to := idsFrom(eventPrefix, q.From), idsFrom(eventPrefix, q.To)
	var n int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM vehicle_events WHERE organization_id = $1 AND id >= $2 AND id < $3 LIMIT $4) AS changes",
		organizationID, from, to, maxUseChanges+1).Scan(&n)
	if err != nil {
		return err
	}
	if n > maxUseChanges {
		e := problem.New(problem.Unparseable, "vehicles changed their states more than %d times in the range; choose a shorter one", maxUseChanges)
		e.Code = "range_too_large"
		return e
	}
	rows, err := tx.Query(ctx, "SELECT vehicle_id, doc FROM vehicle_events WHERE organization_id = $1 AND id >= $2 AND id < $3 ORDER BY id", organizationID, from, to)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, doc string
		if err := rows.Scan(&id, &doc); err != nil {
			return err
		}
		v := a.vehicles[id]
		if v == nil { // excluded
			continue
		}
		state, at, err := readUse(doc)
		if err != nil {
			return err
		}
		a.add(v, at)
		v.class = useClass(state)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, v := range a.vehicles {
		a.add(v, end)
	}
	return nil
}

// readUse returns the state and the time, in milliseconds, of a state change. It decodes
// nothing else.
func readUse(doc string) (state VehicleState, at int64, err error) {
	err = eachMember(doc, func(name, value string) error {
		var text string
		switch name {
		case "state":
			err := stringOf(value, &text)
			state = VehicleState(text)
			return err
		case "at":
			if err := stringOf(value, &text); err != nil {
				return err
			}
			t, err := rfc3339.Parse(text)
			at = t.UnixMilli()
			return err
		}
		return nil
	})
	if err != nil {
		return "", 0, fmt.Errorf("read a state change: %w", err)
	}
	return state, at, nil
}

// add counts the state of a vehicle since its last change, up to a time.
func (a *useAnalysis) add(v *usedVehicle, until int64) {
	from := v.since
	v.since = max(v.since, until)
	if v.class == absentTime {
		return
	}
	for i := sort.Search(len(a.edges)-1, func(i int) bool { return a.edges[i+1] > from }); i < len(a.edges)-1 && from < until; i++ {
		to := min(until, a.edges[i+1])
		sum := a.sums[i][v.group]
		if sum == nil {
			sum = new(useSum)
			a.sums[i][v.group] = sum
		}
		if v.period < 0 {
			a.total.vehicles++
		}
		if v.period < i {
			v.period = i
			sum.vehicles++
		}
		sum.time[v.class] += to - from
		a.total.time[v.class] += to - from
		from = to
	}
}

// rows returns the rows of the report.
func (a *useAnalysis) rows(periods []period.Period, groupBy int) []UseRow {
	var list []UseRow
	for i, p := range periods {
		if groupBy == 0 {
			row := UseRow{Period: p, Group: []NullString{}}
			if sum := a.sums[i][""]; sum != nil {
				row.UseFigures = sum.figures()
			}
			list = append(list, row)
			continue
		}
		first := len(list)
		for name, sum := range a.sums[i] {
			row := UseRow{Period: p, UseFigures: sum.figures()}
			for value := range strings.SplitSeq(name, "|") {
				row.Group = append(row.Group, NullString(value))
			}
			list = append(list, row)
		}
		slices.SortFunc(list[first:], func(x, y UseRow) int { return slices.Compare(x.Group, y.Group) })
	}
	return list
}

// figures converts milliseconds.
func (s *useSum) figures() UseFigures {
	f := UseFigures{
		VehicleCount: s.vehicles, OnTripSeconds: s.time[onTripTime] / 1000, ReservedSeconds: s.time[reservedTime] / 1000,
		IdleSeconds: s.time[idleTime] / 1000, UnavailableSeconds: s.time[unavailableTime] / 1000,
	}
	f.DeployedSeconds = f.OnTripSeconds + f.ReservedSeconds + f.IdleSeconds + f.UnavailableSeconds
	if f.DeployedSeconds > 0 {
		f.UtilizationBasisPoints = new(ratio(f.OnTripSeconds, 10_000, f.DeployedSeconds))
		f.IdleSecondsPerDay = new(ratio(f.IdleSeconds, 24*60*60, f.DeployedSeconds))
	}
	return f
}

// ratio is a × times / b, rounded half up.
func ratio(a, times, b int64) int64 { return (2*a*times + b) / (2 * b) }
