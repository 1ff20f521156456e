package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/bitpack"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// RideGroupMembers lists the fields by which rides can be grouped, in the order of
// factGroup. The vehicle type is that at the start of the ride.
var RideGroupMembers = [...]string{"subaccount_id", "vehicle_type_id", "trip_type", "start_zone_id", "pricing_plan_id", "status"}

// RideBases lists the times by which rides can be counted. A ride counts in the
// period of that time in whole milliseconds; a reservation that never started
// counts at its creation.
var RideBases = [...]string{"started_at", "ended_at"}

// AnalyticsQuery selects rides and the form of a report (fleet-api.md 7).
type AnalyticsQuery struct {
	From, To    time.Time // From is inclusive, To exclusive
	Granularity period.Granularity
	Location    *time.Location // time zone of the periods; nil: UTC
	GroupBy     []string       // up to two of RideGroupMembers
	DateBasis   string         // one of RideBases; empty: started_at of rides, ended_at of revenue
	// Filters by any of the values; nil: all. No default applies: the caller limits
	// reports to rider trips.
	Subaccounts  []string
	VehicleTypes []string
	TripTypes    []TripType
}

// RideFigures are figures of rides, open reservations excluded.
type RideFigures struct {
	RideCount      int64 `json:"ride_count"`
	CompletedCount int64 `json:"completed_count"`
	CancelledCount int64 `json:"cancelled_count"`
	// Of completed rides. Averages are rounded half up, nil without rides. The
	// average distance is of the rides with a distance.
	DurationSeconds        int64  `json:"duration_seconds"`
	DistanceMeters         int64  `json:"distance_meters"`
	AverageDurationSeconds *int64 `json:"average_duration_seconds"`
	AverageDistanceMeters  *int64 `json:"average_distance_meters"`
	UniqueCustomers        int64  `json:"unique_customers"`
	UniqueVehicles         int64  `json:"unique_vehicles"`
}

// RideRow has the figures of a period or of a group in it.
type RideRow struct {
	Period period.Period
	Group  []NullString // values of the fields of GroupBy; empty is null and comes first
	RideFigures
}

// RideReport is the result of [Service.RideAnalytics].
type RideReport struct {
	GeneratedAt time.Time // by the organization's clock
	DateBasis   string
	Rows        []RideRow   // by period, then by group
	Totals      RideFigures // of the whole range
}

// RevenueFigures are sums of the prices of completed and cancelled rides in one
// currency.
type RevenueFigures struct {
	Currency          string `json:"currency"`
	RideCount         int64  `json:"ride_count"`
	UnlockAmount      int64  `json:"unlock_amount"`
	TimeAmount        int64  `json:"time_amount"`
	PauseAmount       int64  `json:"pause_amount"`
	DistanceAmount    int64  `json:"distance_amount"`
	FareAmount        int64  `json:"fare_amount"`
	ReservationAmount int64  `json:"reservation_amount"`
	OutOfZoneAmount   int64  `json:"out_of_zone_amount"`
	SubtotalAmount    int64  `json:"subtotal_amount"`
	TaxAmount         int64  `json:"tax_amount"`
	AdjustmentAmount  int64  `json:"adjustment_amount"`
	TotalAmount       int64  `json:"total_amount"`
	NetAmount         int64  `json:"net_amount"` // total minus tax
}

// RevenueRow has the figures of a period and a currency, or of a group in it.
type RevenueRow struct {
	Period period.Period
	Group  []NullString // as in RideRow
	RevenueFigures
}

// RevenueReport is the result of [Service.RevenueAnalytics].
type RevenueReport struct {
	GeneratedAt time.Time // by the organization's clock
	DateBasis   string
	Rows        []RevenueRow     // by period, then by group, then by currency
	Totals      []RevenueFigures // of the whole range, by currency
}

// RideAnalytics counts an organization's rides by period and group. Without groups,
// every period has a row. With groups, only groups with rides have rows.
//
// Errors: Invalid, with code range_too_large for more than 5,000 periods.
func (s *Service) RideAnalytics(ctx context.Context, organizationID string, q AnalyticsQuery) (RideReport, error) {
	var out RideReport
	a, err := newAnalysis(organizationID, q, startedBasis())
	if err != nil {
		return out, err
	}
	out.DateBasis = a.basis.name
	ctx = db.LongRunning(ctx, "analytics")
	err = s.db.Read(ctx, func(tx *db.Tx) error {
		if out.GeneratedAt, err = s.Now(ctx, tx, organizationID); err != nil {
			return err
		}
		customers, vehicles := newRideCounter(customerColumn, durationColumn), newRideCounter(vehicleColumn, distanceColumn)
		if err := a.run(ctx, tx, rideColumns, customers, vehicles); err != nil {
			return err
		}
		out.Rows = a.rideRows(customers.rows, vehicles.rows)
		customers.total.unique, vehicles.total.unique = customers.all.size(), vehicles.all.size()
		out.Totals = figuresOf(&customers.total, &vehicles.total)
		return nil
	})
	if err != nil {
		return RideReport{}, fmt.Errorf("count rides: %w", err)
	}
	return out, nil
}

// RevenueAnalytics sums the prices of an organization's rides by period, group and
// currency. Without groups, each period has a row per currency of the rides in the
// range; without rides, per currency of the requested subaccounts. So do the
// totals.
//
// Errors: as of [Service.RideAnalytics].
func (s *Service) RevenueAnalytics(ctx context.Context, organizationID string, q AnalyticsQuery) (RevenueReport, error) {
	var out RevenueReport
	a, err := newAnalysis(organizationID, q, endedBasis())
	if err != nil {
		return out, err
	}
	out.DateBasis, a.revenue = a.basis.name, true
	ctx = db.LongRunning(ctx, "analytics")
	err = s.db.Read(ctx, func(tx *db.Tx) error {
		if out.GeneratedAt, err = s.Now(ctx, tx, organizationID); err != nil {
			return err
		}
		c := &revenueCounter{period: -1}
		if err := a.run(ctx, tx, moneyColumns, c); err != nil {
			return err
		}
		var currencies []string
		if len(c.rows) == 0 {
			if currencies, err = currenciesOf(ctx, tx, organizationID, q.Subaccounts); err != nil {
				return err
			}
		}
		out.Rows, out.Totals = a.revenueRows(c.rows, currencies)
		return nil
	})
	if err != nil {
		return RevenueReport{}, fmt.Errorf("sum the prices of rides: %w", err)
	}
	return out, nil
}

// currenciesOf lists the distinct currencies of subaccounts, sorted. Nil ids: of
// all.
func currenciesOf(ctx context.Context, q db.Querier, organizationID string, ids []string) ([]string, error) {
	list, err := db.All(ctx, q, func(r db.Row) (sub Subaccount, err error) {
		err = r.Scan(db.IntoJSON(&sub))
		return sub, err
	}, "SELECT doc FROM subaccounts WHERE organization_id = $1", organizationID)
	if err != nil {
		return nil, fmt.Errorf("read subaccounts: %w", err)
	}
	var currencies []string
	for i := range list {
		if ids == nil || slices.Contains(ids, list[i].ID) {
			currencies = append(currencies, list[i].Currency)
		}
	}
	slices.Sort(currencies)
	return slices.Compact(currencies), nil
}

// maxRideGroupBy is the maximum number of fields of GroupBy.
const maxRideGroupBy = 2

// analysis is the state of a query. One goroutine reads packed chunks and unpacked
// rides in the order of time; counters run concurrently.
type analysis struct {
	organization string
	basis        basis
	revenue      bool // separates currencies and excludes rides without a price
	query        AnalyticsQuery
	groupBy      []int // indexes of factGroup
	periods      []period.Period
	edges        []int64 // of the periods in milliseconds, including the end of the last

	slots      []slot     // of factGroups, by number
	groups     []groupKey // by slot.group
	indexes    map[groupKey]int32
	dictionary *dictionary // of unpacked rides; may have temporary numbers
	parts      []chan<- factBatch
}

// slot determines how the rides of a factGroup count.
type slot struct {
	group     int32 // index of analysis.groups; -1: excluded
	completed bool
	cancelled bool
}

// groupKey has the values of a group, and the currency for revenue.
type groupKey struct {
	values   [maxRideGroupBy]string
	currency string
}

// factBatch has facts of one period.
type factBatch struct {
	period  int
	columns []bitpack.Column
	spans   []span
}

// span is the range of facts of a slot, from lo (inclusive) to hi (exclusive).
type span struct {
	slot
	lo, hi int
}

func newAnalysis(organizationID string, q AnalyticsQuery, b basis) (*analysis, error) {
	a := &analysis{organization: organizationID, basis: b, query: q, indexes: make(map[groupKey]int32), dictionary: newDictionary()}
	var v problem.Validation
	for i, member := range q.GroupBy {
		at := slices.Index(RideGroupMembers[:], member)
		if at < 0 {
			v.Add("group_by", "must be among %s", strings.Join(RideGroupMembers[:], ", "))
		} else if slices.Contains(q.GroupBy[:i], member) {
			v.Add("group_by", "must not repeat a field")
		}
		a.groupBy = append(a.groupBy, at)
	}
	if len(q.GroupBy) > maxRideGroupBy {
		v.Add("group_by", "must have at most %d values", maxRideGroupBy)
	}
	switch q.DateBasis {
	case "":
	case "started_at":
		a.basis = startedBasis()
	case "ended_at":
		a.basis = endedBasis()
	default:
		v.Add("date_basis", "must be one of %s", strings.Join(RideBases[:], ", "))
	}
	loc := q.Location
	if loc == nil {
		loc = time.UTC
	}
	var err error
	a.periods, err = period.Split(q.From, q.To, q.Granularity, loc)
	switch {
	case errors.Is(err, period.ErrTooMany):
		v.AddCode("range_too_large", "to", "%v", err)
	case errors.Is(err, period.ErrUnknown):
		v.Add("granularity", "%v", err)
	case err != nil:
		v.Add("to", "%v", err)
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	// Rides have times in whole milliseconds, so edges round up.
	millis := func(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }
	for _, p := range a.periods {
		a.edges = append(a.edges, millis(p.Start))
	}
	a.edges = append(a.edges, millis(q.To))
	return a, nil
}

// counter counts batches until the channel is closed.
type counter interface{ count(<-chan factBatch) }

// run counts rides. columns is the number of columns to read per fact.
func (a *analysis) run(ctx context.Context, tx *db.Tx, columns int, counters ...counter) error {
	var wg sync.WaitGroup
	for _, c := range counters {
		parts := make(chan factBatch, 64)
		a.parts = append(a.parts, parts)
		wg.Go(func() { c.count(parts) })
	}
	err := a.read(ctx, tx, columns)
	for _, parts := range a.parts {
		close(parts)
	}
	wg.Wait()
	return err
}

// timeRange is a chunk or a gap between chunks.
type timeRange struct {
	start, end int64 // microseconds
	packed     bool
}

// read sends batches in the order of periods.
func (a *analysis) read(ctx context.Context, tx *db.Tx, columns int) error {
	from, to := a.edges[0]*1000, a.edges[len(a.edges)-1]*1000
	if from == to { // no whole millisecond
		return nil
	}
	pieces, err := db.All(ctx, tx, func(r db.Row) (p timeRange, err error) {
		err = r.Scan(&p.start, &p.end, &p.packed)
		return p, err
	}, `SELECT start_at, end_at, runs IS NOT NULL FROM ride_facts WHERE organization_id = $1 AND basis = $2 AND start_at < $4 AND end_at > $3
		AND start_at >= coalesce((SELECT start_at FROM ride_facts WHERE organization_id = $1 AND basis = $2 AND start_at <= $3 ORDER BY start_at DESC LIMIT 1), $3)
		ORDER BY start_at`, a.organization, a.basis.name, from, to)
	if err != nil {
		return fmt.Errorf("find rollups: %w", err)
	}
	groups, err := db.All(ctx, tx, func(r db.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	}, "SELECT name FROM ride_fact_names WHERE organization_id = $1 AND kind = 'group' ORDER BY n", a.organization)
	if err != nil {
		return fmt.Errorf("read groups of rides: %w", err)
	}
	for _, name := range groups {
		if err := a.nameGroup(name); err != nil {
			return err
		}
	}
	at := from
	for i := 0; i < len(pieces); {
		end := i
		for end < len(pieces) && pieces[end].packed {
			end++
		}
		if end > i {
			if err := a.readPacked(ctx, tx, pieces[i:end], columns); err != nil {
				return err
			}
		}
		for ; end < len(pieces) && !pieces[end].packed; end++ {
			if err := a.readRides(ctx, tx, max(pieces[end].start, from), min(pieces[end].end, to), columns); err != nil {
				return err
			}
		}
		i, at = end, pieces[end-1].end
	}
	if at < to {
		return a.readRides(ctx, tx, at, to, columns)
	}
	return nil
}

// nameGroup assigns the next number and a slot to a group.
func (a *analysis) nameGroup(name string) error {
	g, err := parseGroup(name)
	if err != nil {
		return err
	}
	a.dictionary[groupName][name] = int64(len(a.slots))
	a.slots = append(a.slots, a.slot(&g))
	return nil
}

// slot returns the slot of a group.
func (a *analysis) slot(g *factGroup) slot {
	q := &a.query
	if q.Subaccounts != nil && !slices.Contains(q.Subaccounts, g[subaccountMember]) ||
		q.VehicleTypes != nil && !slices.Contains(q.VehicleTypes, g[typeMember]) ||
		q.TripTypes != nil && !slices.Contains(q.TripTypes, TripType(g[tripMember])) ||
		a.revenue && g[currencyMember] == "" {
		return slot{group: -1}
	}
	var key groupKey
	for i, member := range a.groupBy {
		key.values[i] = g[member]
	}
	if a.revenue {
		key.currency = g[currencyMember]
	}
	index, ok := a.indexes[key]
	if !ok {
		index = int32(len(a.groups))
		a.indexes[key] = index
		a.groups = append(a.groups, key)
	}
	status := RideStatus(g[statusMember])
	return slot{index, status == Completed, status == Cancelled}
}

// periodOf is the index of the period of a time.
func (a *analysis) periodOf(millis int64) int {
	after, _ := slices.BinarySearch(a.edges, millis+1)
	return after - 1
}

// within returns the periods of times from start (inclusive) to end (exclusive), in
// microseconds, and whether the query covers all of these times.
func (a *analysis) within(start, end int64) (first, last int, whole bool) {
	low, high := time.UnixMicro(start).UnixMilli(), time.UnixMicro(end-1).UnixMilli()
	from, to := a.edges[0], a.edges[len(a.edges)-1]-1
	return a.periodOf(max(low, from)), a.periodOf(min(high, to)), from <= low && high <= to
}

// readPacked sends the facts of packed chunks.
func (a *analysis) readPacked(ctx context.Context, tx *db.Tx, pieces []timeRange, columns int) error {
	var divided []int64 // chunks in more than one period
	for _, p := range pieces {
		if first, last, whole := a.within(p.start, p.end); first != last || !whole {
			divided = append(divided, p.start)
		}
	}
	column := "rides"
	if a.revenue {
		column = "money"
	}
	rows, err := tx.Query(ctx, `SELECT start_at, end_at, runs, `+column+`, CASE WHEN start_at = ANY($5) THEN times END FROM ride_facts
		WHERE organization_id = $1 AND basis = $2 AND start_at >= $3 AND start_at <= $4 ORDER BY start_at`,
		a.organization, a.basis.name, pieces[0].start, pieces[len(pieces)-1].start, divided)
	if err != nil {
		return fmt.Errorf("read rollups: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var p timeRange
		var f packedFacts
		if err := rows.Scan(&p.start, &p.end, &f.runs, &f.rides, &f.times); err != nil {
			return fmt.Errorf("read rollups: %w", err)
		}
		if err := a.send(p, f.runs, f.rides, f.times, columns); err != nil {
			return err
		}
	}
	return rows.Err()
}

// rawRides is about the maximum number of unpacked rides in memory.
const rawRides = 4096

// temporary is the first number of names without a dictionary entry.
const temporary = 1 << 40

// readRides sends the facts of rides from start (inclusive) to end (exclusive).
func (a *analysis) readRides(ctx context.Context, tx *db.Tx, start, end int64, columns int) error {
	for start < end {
		next, err := nextChunkEnd(ctx, tx, chunk{organization: a.organization, basis: a.basis, start: start, end: end}, rawRides, false)
		if err != nil {
			return fmt.Errorf("find rides: %w", err)
		}
		if next == 0 || next > end {
			next = end
		}
		facts, err := readFacts(ctx, tx, a.organization, a.basis, start, next)
		if err != nil {
			return err
		}
		facts = slices.DeleteFunc(facts, func(f fact) bool { return a.slot(&f.group).group < 0 })
		if len(facts) > 0 {
			if err := a.sendRides(ctx, tx, timeRange{start, next, false}, facts, columns); err != nil {
				return err
			}
		}
		start = next
	}
	return nil
}

// sendRides packs facts of unpacked rides and sends them.
func (a *analysis) sendRides(ctx context.Context, tx *db.Tx, p timeRange, facts []fact, columns int) error {
	if err := a.dictionary.load(ctx, tx, a.organization, facts); err != nil {
		return fmt.Errorf("read the dictionary of rollups: %w", err)
	}
	for kind, list := range a.dictionary.missing(facts) {
		for _, name := range list {
			if kind != groupName {
				a.dictionary[kind][name] = int64(temporary + len(a.dictionary[kind]))
			} else if err := a.nameGroup(name); err != nil {
				return err
			}
		}
	}
	packed := packFacts(a.dictionary.encode(facts))
	figures := packed.rides
	if a.revenue {
		figures = packed.money
	}
	return a.send(p, packed.runs, figures, packed.times, columns)
}

// send sends packed facts to the counters by period. Times may be nil if all facts
// are in one period.
func (a *analysis) send(p timeRange, runText, columnText, timeText []byte, columns int) error {
	runs, n, err := parseRuns(runText)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	list := make([]bitpack.Column, columns)
	if err := bitpack.Parse(columnText, n, list); err != nil {
		return err
	}
	spans := make([]span, 0, len(runs))
	for _, r := range runs {
		if r.group < 0 || r.group >= int64(len(a.slots)) {
			return errFacts
		}
		if slot := a.slots[r.group]; slot.group >= 0 {
			spans = append(spans, span{slot, r.lo, r.hi})
		}
	}
	first, last, whole := a.within(p.start, p.end)
	if first == last && whole {
		a.sendPart(factBatch{first, list, spans})
		return nil
	}
	var times [1]bitpack.Column
	if err := bitpack.Parse(timeText, n, times[:]); err != nil {
		return err
	}
	before := func(lo, hi int, edge int64) int {
		for lo < hi {
			if middle := (lo + hi) / 2; times[0].At(middle) < edge {
				lo = middle + 1
			} else {
				hi = middle
			}
		}
		return lo
	}
	for i := range spans {
		spans[i].lo = before(spans[i].lo, spans[i].hi, a.edges[first])
	}
	for at := first; at <= last; at++ {
		var here []span
		for i := range spans {
			s := &spans[i]
			if s.lo == s.hi {
				continue
			}
			if end := before(s.lo, s.hi, a.edges[at+1]); end > s.lo {
				here = append(here, span{s.slot, s.lo, end})
				s.lo = end
			}
		}
		a.sendPart(factBatch{at, list, here})
	}
	return nil
}

func (a *analysis) sendPart(p factBatch) {
	if len(p.spans) > 0 {
		for _, parts := range a.parts {
			parts <- p
		}
	}
}

// rideCell has the counts of a group in a period.
type rideCell struct {
	period, group               int32
	rides, completed, cancelled int64
	unique                      int64
	sum, with                   int64 // of known values
}

// rideCounter counts rides, the distinct values of the column id, and the sum of
// the column value. Two counters cover all figures.
type rideCounter struct {
	id, value int // column indexes
	period    int32
	cells     []rideCell // of the period, by group
	touched   []int32    // groups with rides
	seen      distinct   // in the period
	all       distinct
	rows      []rideCell
	total     rideCell
}

func newRideCounter(id, value int) *rideCounter {
	return &rideCounter{id: id, value: value, period: -1}
}

func (c *rideCounter) count(parts <-chan factBatch) {
	for p := range parts {
		if int32(p.period) != c.period {
			c.flush()
			c.period = int32(p.period)
		}
		id, value := p.columns[c.id], p.columns[c.value]
		for _, s := range p.spans {
			for int(s.group) >= len(c.cells) {
				c.cells = append(c.cells, rideCell{})
			}
			cell := &c.cells[s.group]
			if cell.rides == 0 {
				c.touched = append(c.touched, s.group)
			}
			cell.add(s, &value)
			for i := s.lo; i < s.hi; i++ {
				if v := id.At(i); v != 0 || c.id != customerColumn {
					cell.unique += c.seen.add(uint64(s.group), uint64(v))
				}
			}
		}
	}
	c.flush()
}

// add counts the rides of a span.
func (c *rideCell) add(s span, value *bitpack.Column) {
	n := int64(s.hi - s.lo)
	c.rides += n
	switch {
	case s.completed:
		c.completed += n
		for i := s.lo; i < s.hi; i++ {
			if v := value.At(i); v != 0 { // one more than the value
				c.sum += v - 1
				c.with++
			}
		}
	case s.cancelled:
		c.cancelled += n
	}
}

// flush completes a period.
func (c *rideCounter) flush() {
	for _, g := range c.touched {
		cell := c.cells[g]
		c.cells[g] = rideCell{}
		cell.period, cell.group = c.period, g
		c.rows = append(c.rows, cell)
		c.total.rides += cell.rides
		c.total.completed += cell.completed
		c.total.cancelled += cell.cancelled
		c.total.sum += cell.sum
		c.total.with += cell.with
	}
	c.touched = c.touched[:0]
	c.seen.moveTo(&c.all)
}

// distinct is a set of numbers per group: a hash table of 64-bit words, compact for
// sparse and dense sets. The zero value is empty.
type distinct struct {
	keys  []uint64 // group and word number, plus one; 0: free
	words []uint64
	used  int
	shift int
}

// numberBits is the width of a word number.
const numberBits = 40

// add adds a number to a group. It returns 1, or 0 if present.
func (d *distinct) add(group, number uint64) int64 {
	return int64(d.or(group<<numberBits|number>>6, 1<<(number&63)))
}

// or adds the bits of a word and returns the number of new bits.
func (d *distinct) or(key, word uint64) int {
	if d.used*4 >= len(d.keys)*3 {
		d.grow()
	}
	for i := (key + 1) * 0x9e3779b97f4a7c15 >> d.shift; ; i = (i + 1) & uint64(len(d.keys)-1) {
		switch d.keys[i] {
		case key + 1:
			added := word &^ d.words[i]
			d.words[i] |= word
			return bits.OnesCount64(added)
		case 0:
			d.keys[i], d.words[i] = key+1, word
			d.used++
			return bits.OnesCount64(word)
		}
	}
}

func (d *distinct) grow() {
	old := *d
	size := max(1024, 2*len(old.keys))
	*d = distinct{keys: make([]uint64, size), words: make([]uint64, size), shift: 64 - bits.Len(uint(size-1))}
	for i, key := range old.keys {
		if key != 0 {
			d.or(key-1, old.words[i])
		}
	}
}

// moveTo moves all numbers to another set, in one group.
func (d *distinct) moveTo(all *distinct) {
	for i, key := range d.keys {
		if key != 0 {
			all.or((key-1)&(1<<numberBits-1), d.words[i])
		}
	}
	clear(d.keys)
	d.used = 0
}

// size is the number of elements.
func (d *distinct) size() (n int64) {
	for i, key := range d.keys {
		if key != 0 {
			n += int64(bits.OnesCount64(d.words[i]))
		}
	}
	return n
}

func figuresOf(customers, vehicles *rideCell) RideFigures {
	return RideFigures{
		RideCount: customers.rides, CompletedCount: customers.completed, CancelledCount: customers.cancelled,
		DurationSeconds: customers.sum, AverageDurationSeconds: average(customers.sum, customers.with),
		DistanceMeters: vehicles.sum, AverageDistanceMeters: average(vehicles.sum, vehicles.with),
		UniqueCustomers: customers.unique, UniqueVehicles: vehicles.unique,
	}
}

// average is sum/n rounded half up, nil for n 0.
func average(sum, n int64) *int64 {
	if n == 0 {
		return nil
	}
	mean := sum / n
	if rest := sum % n; rest >= n-rest {
		mean++
	}
	return &mean
}

// order returns the rank of each group by key, and the values of the groups.
func (a *analysis) order() (rank []int32, values [][]NullString) {
	sorted := make([]int32, len(a.groups))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(x, y int32) int {
		p, q := &a.groups[x], &a.groups[y]
		return cmp.Or(strings.Compare(p.values[0], q.values[0]), strings.Compare(p.values[1], q.values[1]), strings.Compare(p.currency, q.currency))
	})
	rank, values = make([]int32, len(sorted)), make([][]NullString, len(sorted))
	for i, g := range sorted {
		rank[g] = int32(i)
		for m := range a.groupBy {
			values[g] = append(values[g], NullString(a.groups[g].values[m]))
		}
	}
	return rank, values
}

func (a *analysis) rideRows(customers, vehicles []rideCell) []RideRow {
	rank, values := a.order()
	byRank := func(x, y rideCell) int {
		return cmp.Or(cmp.Compare(x.period, y.period), cmp.Compare(rank[x.group], rank[y.group]))
	}
	slices.SortFunc(customers, byRank)
	slices.SortFunc(vehicles, byRank)
	rows := make([]RideRow, 0, max(len(customers), len(a.periods)))
	for i := range customers {
		c := &customers[i]
		if len(a.groupBy) == 0 {
			rows = a.emptyRides(rows, int(c.period))
		}
		rows = append(rows, RideRow{a.periods[c.period], values[c.group], figuresOf(c, &vehicles[i])})
	}
	if len(a.groupBy) == 0 {
		rows = a.emptyRides(rows, len(a.periods))
	}
	return rows
}

// emptyRides adds rows for periods without rides up to before.
func (a *analysis) emptyRides(rows []RideRow, before int) []RideRow {
	for i := len(rows); i < before; i++ {
		rows = append(rows, RideRow{Period: a.periods[i]})
	}
	return rows
}

// revenueCell has the sums of a group in a period.
type revenueCell struct {
	period, group int32
	rides         int64
	money         [moneyColumns]int64
}

// revenueCounter sums prices.
type revenueCounter struct {
	period  int32
	cells   []revenueCell // of the period, by group
	touched []int32       // groups with rides
	rows    []revenueCell
}

func (c *revenueCounter) count(parts <-chan factBatch) {
	for p := range parts {
		if int32(p.period) != c.period {
			c.flush()
			c.period = int32(p.period)
		}
		for _, s := range p.spans {
			for int(s.group) >= len(c.cells) {
				c.cells = append(c.cells, revenueCell{})
			}
			cell := &c.cells[s.group]
			if cell.rides == 0 {
				c.touched = append(c.touched, s.group)
			}
			cell.rides += int64(s.hi - s.lo)
			for i := range cell.money {
				cell.money[i] += p.columns[i].Sum(s.lo, s.hi)
			}
		}
	}
	c.flush()
}

// flush completes a period.
func (c *revenueCounter) flush() {
	for _, g := range c.touched {
		cell := c.cells[g]
		c.cells[g] = revenueCell{}
		cell.period, cell.group = c.period, g
		c.rows = append(c.rows, cell)
	}
	c.touched = c.touched[:0]
}

// revenueRows returns rows and totals. currencies apply if there are no rides.
func (a *analysis) revenueRows(cells []revenueCell, currencies []string) ([]RevenueRow, []RevenueFigures) {
	rank, values := a.order()
	slices.SortFunc(cells, func(x, y revenueCell) int {
		return cmp.Or(cmp.Compare(x.period, y.period), cmp.Compare(rank[x.group], rank[y.group]))
	})
	totals := make(map[string]*revenueCell)
	for _, currency := range currencies {
		totals[currency] = new(revenueCell)
	}
	for i := range cells {
		currency := a.groups[cells[i].group].currency
		total := totals[currency]
		if total == nil {
			total = new(revenueCell)
			totals[currency] = total
			currencies = append(currencies, currency)
		}
		total.rides += cells[i].rides
		for m := range total.money {
			total.money[m] += cells[i].money[m]
		}
	}
	slices.Sort(currencies)
	figures := func(c *revenueCell, currency string) RevenueFigures {
		f := RevenueFigures{Currency: currency, RideCount: c.rides}
		f.setMoney(&c.money)
		return f
	}
	rows := make([]RevenueRow, 0, len(cells))
	for i := 0; len(a.groupBy) > 0 && i < len(cells); i++ {
		c := &cells[i]
		rows = append(rows, RevenueRow{a.periods[c.period], values[c.group], figures(c, a.groups[c.group].currency)})
	}
	if len(a.groupBy) == 0 {
		for p := range a.periods {
			for _, currency := range currencies {
				var c revenueCell
				if len(cells) > 0 && int(cells[0].period) == p && a.groups[cells[0].group].currency == currency {
					c, cells = cells[0], cells[1:]
				}
				rows = append(rows, RevenueRow{Period: a.periods[p], RevenueFigures: figures(&c, currency)})
			}
		}
	}
	out := make([]RevenueFigures, 0, len(currencies))
	for _, currency := range currencies {
		out = append(out, figures(totals[currency], currency))
	}
	return rows, out
}
