package fleet

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/bitpack"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// A fact is the part of a ride that analytics count. Facts of a chunk of time are
// packed into a few bytes each, since a request cannot read five million documents.
//
// Packed facts always agree with the rides: a change of a ride invalidates the
// packed facts of its chunks in the same transaction ([Service.invalidateRollups]).
// Chunks without packed facts are read from the rides.

// fact is the part of a ride that analytics count.
type fact struct {
	at       int64 // milliseconds since 1970
	group    factGroup
	customer string // empty: none
	vehicle  string
	// One more than the value of a completed ride; else 0.
	duration, distance int64
	money              [moneyColumns]int64
}

// factGroup has the values by which rides are filtered and grouped. Each may be
// empty.
type factGroup [groupMembers]string

// Members of a factGroup.
const (
	subaccountMember = iota
	typeMember
	tripMember
	zoneMember
	planMember
	statusMember
	currencyMember // empty unless the ride has ended with a price
	groupMembers
)

// name is the stored form of a group. Members contain no |.
func (g *factGroup) name() string { return strings.Join(g[:], "|") }

func parseGroup(name string) (g factGroup, err error) {
	if strings.Count(name, "|") != groupMembers-1 {
		return g, errors.New("group of rides is corrupt")
	}
	i := 0
	for member := range strings.SplitSeq(name, "|") {
		g[i] = member
		i++
	}
	return g, nil
}

// Columns of amounts. Amounts that follow from others by the pricing rules are
// stored as their difference from the rule, usually 0, which needs no space.
const (
	unlockColumn = iota
	timeColumn
	pauseColumn
	distanceMoneyColumn
	fareColumn // less the first four amounts
	reservationColumn
	outOfZoneColumn
	subtotalColumn // less fare, reservation and out of zone
	taxColumn
	adjustmentColumn
	totalColumn // less subtotal, tax and adjustment
	moneyColumns
)

// moneyOf returns the columns of a price.
func moneyOf(p *tariff.Price) [moneyColumns]int64 {
	return [...]int64{
		p.UnlockAmount, p.TimeAmount, p.PauseAmount, p.DistanceAmount,
		p.FareAmount - p.UnlockAmount - p.TimeAmount - p.PauseAmount - p.DistanceAmount,
		p.ReservationAmount, p.OutOfZoneAmount,
		p.SubtotalAmount - p.FareAmount - p.ReservationAmount - p.OutOfZoneAmount,
		p.TaxAmount, p.AdjustmentAmount,
		p.TotalAmount - p.SubtotalAmount - p.TaxAmount - p.AdjustmentAmount,
	}
}

// setMoney sets the amounts from columns or sums of them.
func (f *RevenueFigures) setMoney(m *[moneyColumns]int64) {
	f.UnlockAmount, f.TimeAmount, f.PauseAmount, f.DistanceAmount = m[unlockColumn], m[timeColumn], m[pauseColumn], m[distanceMoneyColumn]
	f.FareAmount = m[fareColumn] + f.UnlockAmount + f.TimeAmount + f.PauseAmount + f.DistanceAmount
	f.ReservationAmount, f.OutOfZoneAmount = m[reservationColumn], m[outOfZoneColumn]
	f.SubtotalAmount = m[subtotalColumn] + f.FareAmount + f.ReservationAmount + f.OutOfZoneAmount
	f.TaxAmount, f.AdjustmentAmount = m[taxColumn], m[adjustmentColumn]
	f.TotalAmount = m[totalColumn] + f.SubtotalAmount + f.TaxAmount + f.AdjustmentAmount
	f.NetAmount = f.TotalAmount - f.TaxAmount
}

// factOf returns the fact of a ride with its basis time.
func factOf(r *Ride, at time.Time) fact {
	f := fact{at: at.UnixMilli(), customer: string(r.CustomerID), vehicle: r.VehicleID}
	f.group = factGroup{r.SubaccountID, r.vehicleTypeID, string(r.TripType), string(r.StartZoneID), string(r.PricingPlanID), string(r.Status)}
	if r.Status == Completed {
		f.duration = r.DurationSeconds + 1
		if r.DistanceMeters != nil {
			f.distance = *r.DistanceMeters + 1
		}
	}
	if r.Price != nil && !r.Status.Open() {
		f.group[currencyMember] = r.Price.Currency
		f.money = moneyOf(r.Price)
	}
	return f
}

// readFact is factOf for a document. It decodes only the fields it needs.
func readFact(doc string, vehicleTypeID string, at time.Time) (fact, error) {
	f := fact{at: at.UnixMilli()}
	f.group[typeMember] = vehicleTypeID
	duration, distance, price := "", "null", "null"
	err := eachMember(doc, func(name, value string) error {
		var into *string
		switch name {
		case "subaccount_id":
			into = &f.group[subaccountMember]
		case "trip_type":
			into = &f.group[tripMember]
		case "start_zone_id":
			into = &f.group[zoneMember]
		case "pricing_plan_id":
			into = &f.group[planMember]
		case "status":
			into = &f.group[statusMember]
		case "customer_id":
			into = &f.customer
		case "vehicle_id":
			into = &f.vehicle
		case "duration_seconds":
			duration = value
		case "distance_meters":
			distance = value
		case "price":
			price = value
		}
		if into != nil {
			return stringOf(value, into)
		}
		return nil
	})
	if err != nil {
		return f, fmt.Errorf("read a ride: %w", err)
	}
	status := RideStatus(f.group[statusMember])
	if status == Completed {
		if f.duration, err = strconv.ParseInt(duration, 10, 64); err != nil {
			return f, fmt.Errorf("read the duration of a ride: %w", err)
		}
		f.duration++
		if distance != "null" {
			if f.distance, err = strconv.ParseInt(distance, 10, 64); err != nil {
				return f, fmt.Errorf("read the distance of a ride: %w", err)
			}
			f.distance++
		}
	}
	if price != "null" && !status.Open() {
		var p tariff.Price
		if err := readPrice(price, &p); err != nil {
			return f, fmt.Errorf("read the price of a ride: %w", err)
		}
		f.group[currencyMember] = p.Currency
		f.money = moneyOf(&p)
	}
	return f, nil
}

func readPrice(text string, p *tariff.Price) error {
	return eachMember(text, func(name, value string) (err error) {
		var into *int64
		switch name {
		case "currency":
			return stringOf(value, &p.Currency)
		case "unlock_amount":
			into = &p.UnlockAmount
		case "time_amount":
			into = &p.TimeAmount
		case "pause_amount":
			into = &p.PauseAmount
		case "distance_amount":
			into = &p.DistanceAmount
		case "fare_amount":
			into = &p.FareAmount
		case "reservation_amount":
			into = &p.ReservationAmount
		case "out_of_zone_amount":
			into = &p.OutOfZoneAmount
		case "subtotal_amount":
			into = &p.SubtotalAmount
		case "tax_amount":
			into = &p.TaxAmount
		case "adjustment_amount":
			into = &p.AdjustmentAmount
		case "total_amount":
			into = &p.TotalAmount
		default:
			return nil
		}
		*into, err = strconv.ParseInt(value, 10, 64)
		return err
	})
}

var errNotEncoded = errors.New("not a document in stored form")

// eachMember calls fn with each field of an object written by encode: without
// spaces or escaped names. Values are raw; nested ones are skipped unchecked.
func eachMember(text string, fn func(name, value string) error) error {
	if len(text) < 2 || text[0] != '{' {
		return errNotEncoded
	}
	if text == "{}" {
		return nil
	}
	for rest := text[1:]; ; {
		if rest == "" || rest[0] != '"' {
			return errNotEncoded
		}
		name, after, ok := strings.Cut(rest[1:], `":`)
		if !ok {
			return errNotEncoded
		}
		n := valueLength(after)
		if n <= 0 || n >= len(after) {
			return errNotEncoded
		}
		if err := fn(name, after[:n]); err != nil {
			return err
		}
		switch {
		case after[n] == ',':
			rest = after[n+1:]
		case after[n:] == "}":
			return nil
		default:
			return errNotEncoded
		}
	}
}

// valueLength is the length of the JSON value at the start of text.
func valueLength(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 0 {
				return i
			}
			if text[i] != ',' {
				depth--
			}
		}
	}
	return len(text)
}

// stringOf decodes a JSON string; null becomes empty.
func stringOf(value string, into *string) error {
	if value == "null" {
		return nil
	}
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' && strings.IndexByte(value, '\\') < 0 {
		*into = value[1 : n-1]
		return nil
	}
	return json.Unmarshal([]byte(value), into)
}

// encodedFact is a fact with dictionary numbers in place of ids.
type encodedFact struct {
	at    int64
	group int64
	rides [rideColumns]int64
	money [moneyColumns]int64
}

// Columns of rides.
const (
	customerColumn = iota // number plus one; 0: none
	vehicleColumn
	durationColumn
	distanceColumn
	rideColumns
)

// packedFacts is the stored form of facts, sorted by group, then by time:
//
//	runs   number of facts; then of each group the difference of its number from
//	       the previous one, and its number of facts
//	rides, money, times   columns of package bitpack
//
// Numbers are varints.
type packedFacts struct{ runs, rides, money, times []byte }

// packFacts sorts and packs facts.
func packFacts(facts []encodedFact) packedFacts {
	slices.SortFunc(facts, func(a, b encodedFact) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.at, b.at))
	})
	var p packedFacts
	p.runs = binary.AppendUvarint(nil, uint64(len(facts)))
	last := int64(0)
	for i := 0; i < len(facts); {
		end := i + 1
		for end < len(facts) && facts[end].group == facts[i].group {
			end++
		}
		p.runs = binary.AppendUvarint(p.runs, uint64(facts[i].group-last))
		p.runs = binary.AppendUvarint(p.runs, uint64(end-i))
		last, i = facts[i].group, end
	}
	values := make([]int64, len(facts))
	column := func(to []byte, value func(*encodedFact) int64) []byte {
		for i := range facts {
			values[i] = value(&facts[i])
		}
		return bitpack.Append(to, values)
	}
	for c := range rideColumns {
		p.rides = column(p.rides, func(f *encodedFact) int64 { return f.rides[c] })
	}
	for c := range moneyColumns {
		p.money = column(p.money, func(f *encodedFact) int64 { return f.money[c] })
	}
	p.times = column(p.times, func(f *encodedFact) int64 { return f.at })
	p.rides, p.money, p.times = bitpack.Finish(p.rides), bitpack.Finish(p.money), bitpack.Finish(p.times)
	return p
}

var errFacts = errors.New("rollup is corrupt")

// groupRun is the range of facts of a group.
type groupRun struct {
	group  int64
	lo, hi int
}

func parseRuns(text []byte) (runs []groupRun, n int, err error) {
	number := func() int64 {
		v, size := binary.Uvarint(text)
		if size <= 0 || v > 1<<40 {
			err, text = errFacts, nil
			return 0
		}
		text = text[size:]
		return int64(v)
	}
	want := number()
	group, at := int64(0), 0
	for len(text) > 0 {
		group += number()
		size := int(number())
		runs = append(runs, groupRun{group, at, at + size})
		at += size
	}
	if err == nil && int64(at) != want {
		err = errFacts
	}
	return runs, at, err
}
