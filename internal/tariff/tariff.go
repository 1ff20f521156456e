// Package tariff computes the prices of rides.
//
// A [Tariff] is the immutable price list of a version of a plan. [Tariff.Price] computes the
// price of a [Usage] of a vehicle, and [Tariff.Explain] the same price with the lines that lead
// to it, in words that receipts, pages and the API share. Amounts are
// integers in the minor unit of a currency ([MinorDigits]); only the tax is rounded. A tariff
// that passes [Tariff.Check] never exceeds [MaxAmount], so no computation overflows.
package tariff

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Tariff is the immutable price list of a plan's version (fleet-api.md 1.5).
// Amounts are integers in the currency's minor unit.
type Tariff struct {
	Currency               string    `json:"currency"` // ISO 4217
	UnlockAmount           int64     `json:"unlock_amount"`
	PerMinute              []Segment `json:"per_min_pricing"`
	PerKilometer           []Segment `json:"per_km_pricing"`
	PausePerMinAmount      *int64    `json:"pause_per_min_amount"` // nil: pauses cost the same as riding
	ReservationPerMin      *int64    `json:"reservation_per_min_amount"`
	ReservationFlat        *int64    `json:"reservation_flat_amount"`
	ReservationFreeMinutes int64     `json:"reservation_free_minutes"`
	FareCap                *FareCap  `json:"fare_cap"`
	OutOfZoneAmount        *int64    `json:"out_of_zone_amount"` // nil: riders cannot end there
	Taxable                bool      `json:"is_taxable"`         // tax is added to amounts
	TaxBasisPoints         int64     `json:"tax_basis_points"`
}

// Segment charges Rate at Start, Start+Interval, … before End and before the length
// of the ride; with Interval 0 only at Start. Overlapping segments add up (GBFS
// per_min_pricing and per_km_pricing).
type Segment struct {
	Start    int64  `json:"start"`
	Rate     int64  `json:"rate_amount"` // may be negative
	Interval int64  `json:"interval"`
	End      *int64 `json:"end"` // exclusive; nil: unlimited
}

// FareCap is the maximum charge for riding in each window of DurationMinutes.
type FareCap struct {
	DurationMinutes int64 `json:"duration_minutes"`
	Amount          int64 `json:"amount"`
}

// Usage is the billable use of a ride. Durations are in whole seconds.
type Usage struct {
	Ridden          bool  // started and not cancelled
	Seconds         int64 // from start to end, including pauses
	PausedSeconds   int64
	Meters          int64
	Reserved        bool  // has a billable reservation
	ReservedSeconds int64 // until start, cancellation or expiry
	// ReservationMinutes is the maximum for the vehicle type.
	ReservationMinutes int64
	OutOfZone          bool // ended out of zone, with the fee accepted
}

// Price is the itemized price of a ride (fleet-api.md 1.1). The first four amounts
// are before cap and floor, so their sum may differ from the fare.
type Price struct {
	Currency          string `json:"currency"`
	UnlockAmount      int64  `json:"unlock_amount"`
	TimeAmount        int64  `json:"time_amount"`
	PauseAmount       int64  `json:"pause_amount"`
	DistanceAmount    int64  `json:"distance_amount"`
	FareAmount        int64  `json:"fare_amount"`
	ReservationAmount int64  `json:"reservation_amount"`
	OutOfZoneAmount   int64  `json:"out_of_zone_amount"`
	SubtotalAmount    int64  `json:"subtotal_amount"`
	TaxAmount         int64  `json:"tax_amount"`
	AdjustmentAmount  int64  `json:"adjustment_amount"` // signed
	TotalAmount       int64  `json:"total_amount"`      // at least 0

	BilledMinutes            int64 `json:"billed_minutes"`
	BilledPausedMinutes      int64 `json:"billed_paused_minutes"`
	BilledKilometers         int64 `json:"billed_kilometers"`
	BilledReservationMinutes int64 `json:"billed_reservation_minutes"`
}

// Price computes the price of a rider trip (fleet-api.md 8). The price of any other
// trip is [Price]{Currency: …}.
func (t *Tariff) Price(u Usage) Price { return t.compute(u, nil) }

// compute computes a price, and calls explain with each of its lines unless it is nil.
// Lines of amount 0 are omitted.
func (t *Tariff) compute(u Usage, explain func(Line)) Price {
	p := Price{Currency: t.Currency}
	if u.Ridden {
		t.addRide(&p, u, explain)
	}
	if u.Reserved {
		t.addReservation(&p, u, explain)
	}
	if u.Ridden && u.OutOfZone && t.OutOfZoneAmount != nil {
		p.OutOfZoneAmount = *t.OutOfZoneAmount
		if explain != nil && p.OutOfZoneAmount != 0 {
			explain(once(LineOutOfZone, p.OutOfZoneAmount, wordsOutOfZone))
		}
	}
	p.SubtotalAmount = p.FareAmount + p.ReservationAmount + p.OutOfZoneAmount
	if t.Taxable {
		t.addTax(&p, explain)
	}
	return p.Adjusted(0)
}

// Adjusted returns p with amount in place of its adjustment.
func (p Price) Adjusted(amount int64) Price {
	p.AdjustmentAmount = amount
	p.TotalAmount = max(0, p.SubtotalAmount+p.TaxAmount+amount)
	return p
}

// addRide adds the charges for riding: section 8, rules 1 and 2.
func (t *Tariff) addRide(p *Price, u Usage, explain func(Line)) {
	riding := u.Seconds
	if t.PausePerMinAmount != nil {
		riding -= u.PausedSeconds
	}
	p.BilledMinutes, p.BilledKilometers = divUp(riding, 60), divUp(u.Meters, 1000)
	if p.UnlockAmount = t.UnlockAmount; explain != nil && p.UnlockAmount != 0 {
		explain(once(LineUnlock, p.UnlockAmount, wordsUnlock))
	}
	for _, s := range t.PerMinute {
		times := s.charges(0, p.BilledMinutes)
		p.TimeAmount += s.Rate * times
		if explain != nil && s.Rate*times != 0 {
			explain(t.segmentLine(LineTime, s, times, minutesRounded(riding)))
		}
	}
	if t.PausePerMinAmount != nil {
		p.BilledPausedMinutes = divUp(u.PausedSeconds, 60)
		p.PauseAmount = p.BilledPausedMinutes * *t.PausePerMinAmount
		if explain != nil && p.PauseAmount != 0 {
			explain(Line{
				Code: LinePause, Quantity: p.BilledPausedMinutes, Unit: UnitMinute, UnitAmount: t.PausePerMinAmount, Amount: p.PauseAmount,
				Explanation: "Pauses: " + Money(*t.PausePerMinAmount, t.Currency) + " a minute", Rounding: minutesRounded(u.PausedSeconds),
			})
		}
	}
	for _, s := range t.PerKilometer {
		times := s.charges(0, p.BilledKilometers)
		p.DistanceAmount += s.Rate * times
		if explain != nil && s.Rate*times != 0 {
			explain(t.segmentLine(LineDistance, s, times, kilometersRounded(u.Meters)))
		}
	}
	charged := p.UnlockAmount + p.TimeAmount + p.PauseAmount + p.DistanceAmount
	windows := int64(1)
	if t.FareCap == nil {
		p.FareAmount = max(0, charged)
	} else {
		windows = max(1, divUp(divUp(u.Seconds, 60), t.FareCap.DurationMinutes))
		p.FareAmount = max(0, t.capped(p, windows))
	}
	switch other := p.FareAmount - charged; {
	case explain == nil || other == 0:
	case other < 0:
		explain(Line{Code: LineCap, Quantity: windows, Unit: UnitWindow, Amount: other, Explanation: "At most " + describeCap(t)})
	default: // a cap raises the sum if a window of it was below 0
		explain(once(LineFloor, other, wordsFloor))
	}
}

// capped returns the sum of all windows, each capped. Windows follow each other.
// Charges after the start of the last window, due to pauses, belong to it.
func (t *Tariff) capped(p *Price, windows int64) int64 {
	limit, duration := t.FareCap.Amount, t.FareCap.DurationMinutes
	sum := p.PauseAmount + p.DistanceAmount
	for w := range windows {
		var amount int64
		if w == 0 {
			amount = p.UnlockAmount
		}
		from, to := w*duration, (w+1)*duration
		if w == windows-1 {
			to = math.MaxInt64
		}
		for _, s := range t.PerMinute {
			amount += s.Rate * s.charges(from, min(to, p.BilledMinutes))
		}
		sum += min(max(0, amount), limit)
	}
	return min(windows*limit, sum)
}

// charges counts the charges of the segment from one length (inclusive) to another
// (exclusive).
func (s *Segment) charges(from, to int64) int64 {
	if s.End != nil {
		to = min(to, *s.End)
	}
	if s.Interval == 0 {
		if s.Start >= from && s.Start < to {
			return 1
		}
		return 0
	}
	return max(0, s.before(to)-s.before(from))
}

// before counts the repeated charges before a length.
func (s *Segment) before(length int64) int64 {
	if length <= s.Start {
		return 0
	}
	return divUp(length-s.Start, s.Interval)
}

// addReservation adds the charge for the reservation: section 8, rule 3.
func (t *Tariff) addReservation(p *Price, u Usage, explain func(Line)) {
	switch {
	case t.ReservationFlat != nil:
		p.ReservationAmount = *t.ReservationFlat
		if explain != nil && p.ReservationAmount != 0 {
			explain(once(LineReservation, p.ReservationAmount, "Reservation"))
		}
	case t.ReservationPerMin != nil && *t.ReservationPerMin > 0:
		p.BilledReservationMinutes = max(0, min(divUp(u.ReservedSeconds, 60), u.ReservationMinutes)-t.ReservationFreeMinutes)
		p.ReservationAmount = *t.ReservationPerMin * p.BilledReservationMinutes
		if explain != nil && p.ReservationAmount != 0 {
			explain(Line{
				Code: LineReservation, Quantity: p.BilledReservationMinutes, Unit: UnitMinute, UnitAmount: t.ReservationPerMin, Amount: p.ReservationAmount,
				Explanation: t.describeReservation(u.ReservationMinutes), Rounding: minutesRounded(u.ReservedSeconds),
			})
		}
	}
}

// addTax adds the tax on the subtotal: section 8, rule 4.
func (t *Tariff) addTax(p *Price, explain func(Line)) {
	tax, exact := taxOn(p.SubtotalAmount, t.TaxBasisPoints)
	p.TaxAmount = tax
	if explain == nil || tax == 0 {
		return
	}
	l := Line{
		Code: LineTax, Quantity: t.TaxBasisPoints, Unit: UnitBasisPoint, Amount: tax,
		Explanation: "Tax, " + Percent(t.TaxBasisPoints) + " of " + Money(p.SubtotalAmount, t.Currency),
	}
	if !exact {
		l.Rounding = new("rounded half up to " + Money(tax, t.Currency))
	}
	explain(l)
}

// taxOn rounds half up, the only rounding of amounts. It also reports whether the result
// is exact. amount must not be negative.
func taxOn(amount, basisPoints int64) (tax int64, exact bool) {
	// The product of an amount up to 2^53 and 10,000 exceeds 63 bits.
	high, low := bits.Mul64(uint64(amount), uint64(basisPoints))
	low, carry := bits.Add64(low, 5000, 0)
	result, rest := bits.Div64(high+carry, low, 10000)
	return int64(result), rest == 5000
}

// divUp is a / b rounded up. a must not be negative.
func divUp(a, b int64) int64 { return (a + b - 1) / b }

const (
	// MaxAmount is the greatest amount of a price, in minor units: the greatest integer
	// that a JSON number holds exactly.
	MaxAmount = 1<<53 - 1
	// MaxMeters is the greatest distance of a ride.
	MaxMeters = 10_000_000

	maxSegments    = 100
	maxLength      = 1_000_000_000 // minutes or kilometers
	maxBasisPoints = 10_000
)

// Check adds issues of a tariff for rides up to maxRideMinutes and vehicle types
// with up to reservationMinutes.
func (t *Tariff) Check(v *problem.Validation, maxRideMinutes, reservationMinutes int64) {
	notNegative := func(path string, amount *int64) {
		if amount != nil && *amount < 0 {
			v.AddCode("too_small", path, "must not be negative")
		}
	}
	notNegative("unlock_amount", &t.UnlockAmount)
	notNegative("pause_per_min_amount", t.PausePerMinAmount)
	notNegative("reservation_per_min_amount", t.ReservationPerMin)
	notNegative("reservation_flat_amount", t.ReservationFlat)
	notNegative("reservation_free_minutes", &t.ReservationFreeMinutes)
	notNegative("out_of_zone_amount", t.OutOfZoneAmount)
	if t.ReservationPerMin != nil && t.ReservationFlat != nil {
		v.AddCode("conflict", "reservation_flat_amount", "must not be given with reservation_per_min_amount")
	}
	if t.FareCap != nil {
		if t.FareCap.DurationMinutes < 1 {
			v.AddCode("too_small", "fare_cap.duration_minutes", "must be at least 1")
		}
		notNegative("fare_cap.amount", &t.FareCap.Amount)
	}
	if t.TaxBasisPoints < 0 {
		v.AddCode("too_small", "tax_basis_points", "must not be negative")
	}
	if t.TaxBasisPoints > maxBasisPoints {
		v.AddCode("too_large", "tax_basis_points", "must be at most %d", maxBasisPoints)
	}
	checkSegments(v, "per_min_pricing", t.PerMinute)
	checkSegments(v, "per_km_pricing", t.PerKilometer)
	if v.Err() == nil && t.maxCharge(maxRideMinutes, reservationMinutes) > MaxAmount {
		v.AddCode("too_large", "", "would charge more than %d for a ride of %d minutes and %d km", int64(MaxAmount), maxRideMinutes, MaxMeters/1000)
	}
}

// WithinLimits reports whether the charges of rides and reservations of these
// lengths fit the range of amounts.
func (t *Tariff) WithinLimits(maxRideMinutes, reservationMinutes int64) bool {
	var v problem.Validation
	t.Check(&v, maxRideMinutes, reservationMinutes)
	return v.Err() == nil
}

func checkSegments(v *problem.Validation, path string, list []Segment) {
	if len(list) > maxSegments {
		v.AddCode("too_long", path, "must have at most %d values", maxSegments)
		return
	}
	for i, s := range list {
		at := func(member string) string { return path + "." + strconv.Itoa(i) + "." + member }
		if s.Start < 0 {
			v.AddCode("too_small", at("start"), "must not be negative")
		}
		if s.Interval < 0 {
			v.AddCode("too_small", at("interval"), "must not be negative")
		}
		if s.Start > maxLength {
			v.AddCode("too_large", at("start"), "must be at most %d", int64(maxLength))
		}
		if s.Interval > maxLength {
			v.AddCode("too_large", at("interval"), "must be at most %d", int64(maxLength))
		}
		if s.End != nil && *s.End <= s.Start {
			v.AddCode("too_small", at("end"), "must be after start")
		}
	}
}

// maxCharge is an upper bound of the price of a ride and of each partial sum,
// ignoring caps. It is precise enough to refuse amounts out of range.
func (t *Tariff) maxCharge(maxRideMinutes, reservationMinutes int64) float64 {
	sum := float64(t.UnlockAmount)
	add := func(amount *int64, times int64) {
		if amount != nil {
			sum += math.Abs(float64(*amount)) * float64(times)
		}
	}
	add(t.PausePerMinAmount, maxRideMinutes)
	add(t.ReservationPerMin, reservationMinutes)
	add(t.ReservationFlat, 1)
	add(t.OutOfZoneAmount, 1)
	for _, s := range t.PerMinute {
		add(&s.Rate, s.charges(0, maxRideMinutes))
	}
	for _, s := range t.PerKilometer {
		add(&s.Rate, s.charges(0, MaxMeters/1000))
	}
	if t.FareCap != nil {
		add(&t.FareCap.Amount, max(1, divUp(maxRideMinutes, t.FareCap.DurationMinutes)))
	}
	return sum * (1 + float64(t.TaxBasisPoints)/maxBasisPoints)
}
