package fleet

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Tariff is what a pricing plan charges: a version of it, which never changes
// (fleet-api.md 1.5). Amounts are integers in the currency's minor unit.
type Tariff struct {
	Currency               string    `json:"currency"` // ISO 4217
	UnlockAmount           int64     `json:"unlock_amount"`
	PerMinute              []Segment `json:"per_min_pricing"`
	PerKilometer           []Segment `json:"per_km_pricing"`
	PausePerMinAmount      *int64    `json:"pause_per_min_amount"` // nil: pauses cost as riding
	ReservationPerMin      *int64    `json:"reservation_per_min_amount"`
	ReservationFlat        *int64    `json:"reservation_flat_amount"`
	ReservationFreeMinutes int64     `json:"reservation_free_minutes"`
	FareCap                *FareCap  `json:"fare_cap"`
	OutOfZoneAmount        *int64    `json:"out_of_zone_amount"` // nil: a ride cannot be ended there
	Taxable                bool      `json:"is_taxable"`         // tax comes on top
	TaxBasisPoints         int64     `json:"tax_basis_points"`
}

// Segment charges Rate at Start, Start+Interval, … as long as that is before End
// and before the length of the ride; at Start only when Interval is 0. Segments
// that overlap add up (GBFS per_min_pricing and per_km_pricing).
type Segment struct {
	Start    int64  `json:"start"`
	Rate     int64  `json:"rate_amount"` // may be negative
	Interval int64  `json:"interval"`
	End      *int64 `json:"end"` // exclusive; nil: never
}

// FareCap bounds what is charged for riding in each window of some minutes.
type FareCap struct {
	DurationMinutes int64 `json:"duration_minutes"`
	Amount          int64 `json:"amount"`
}

// Usage is what a ride is charged for. Seconds are whole.
type Usage struct {
	Ridden          bool  // it was started, and is not cancelled
	Seconds         int64 // from start to end, pauses included
	PausedSeconds   int64
	Meters          int64
	Reserved        bool  // it began as a reservation that is charged for
	ReservedSeconds int64 // until it was started, cancelled or expired
	// ReservationMinutes is for how long its vehicle type can be reserved.
	ReservationMinutes int64
	OutOfZone          bool // it ended outside, and the rider accepted the fee
}

// Price is what a ride costs, part by part (fleet-api.md 1.1). The first four
// amounts are as charged, before cap and floor, so they need not add up to the
// fare.
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
	TotalAmount       int64  `json:"total_amount"`      // never below 0

	BilledMinutes            int64 `json:"billed_minutes"`
	BilledPausedMinutes      int64 `json:"billed_paused_minutes"`
	BilledKilometers         int64 `json:"billed_kilometers"`
	BilledReservationMinutes int64 `json:"billed_reservation_minutes"`
}

// Price returns what a rider's trip costs (fleet-api.md 8). Other trips cost
// nothing: theirs is [Price]{Currency: …}.
func (t *Tariff) Price(u Usage) Price {
	p := Price{Currency: t.Currency}
	if u.Ridden {
		t.addRide(&p, u)
	}
	if u.Reserved {
		t.addReservation(&p, u)
	}
	if u.Ridden && u.OutOfZone && t.OutOfZoneAmount != nil {
		p.OutOfZoneAmount = *t.OutOfZoneAmount
	}
	p.SubtotalAmount = p.FareAmount + p.ReservationAmount + p.OutOfZoneAmount
	if t.Taxable {
		p.TaxAmount = taxOn(p.SubtotalAmount, t.TaxBasisPoints)
	}
	return p.Adjusted(0)
}

// Adjusted returns p with an adjustment, in place of the one before.
func (p Price) Adjusted(amount int64) Price {
	p.AdjustmentAmount = amount
	p.TotalAmount = max(0, p.SubtotalAmount+p.TaxAmount+amount)
	return p
}

// payment is the payment status of a ride that has just ended.
func (p *Price) payment() string {
	if p.TotalAmount > 0 {
		return "due"
	}
	return "not_due"
}

// addRide charges for riding: section 8, rules 1 and 2.
func (t *Tariff) addRide(p *Price, u Usage) {
	riding := u.Seconds
	if t.PausePerMinAmount != nil {
		riding -= u.PausedSeconds
		p.BilledPausedMinutes = divUp(u.PausedSeconds, 60)
		p.PauseAmount = p.BilledPausedMinutes * *t.PausePerMinAmount
	}
	p.BilledMinutes, p.BilledKilometers = divUp(riding, 60), divUp(u.Meters, 1000)
	p.UnlockAmount = t.UnlockAmount
	for _, s := range t.PerMinute {
		p.TimeAmount += s.Rate * s.charges(0, p.BilledMinutes)
	}
	for _, s := range t.PerKilometer {
		p.DistanceAmount += s.Rate * s.charges(0, p.BilledKilometers)
	}
	if t.FareCap == nil {
		p.FareAmount = max(0, p.UnlockAmount+p.TimeAmount+p.PauseAmount+p.DistanceAmount)
		return
	}
	p.FareAmount = max(0, t.capped(p, u.Seconds))
}

// capped adds up the windows, each within the cap. A window begins when the one
// before is over; what is charged later than the last began, because a pause
// made the ride longer than it was ridden, belongs to it.
func (t *Tariff) capped(p *Price, seconds int64) int64 {
	limit, duration := t.FareCap.Amount, t.FareCap.DurationMinutes
	windows := max(1, divUp(divUp(seconds, 60), duration))
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

// charges counts the points from one length (included) to another (excluded) at
// which a segment charges.
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

// before counts the points of a repeated charge that are before a length.
func (s *Segment) before(length int64) int64 {
	if length <= s.Start {
		return 0
	}
	return divUp(length-s.Start, s.Interval)
}

// addReservation charges for the reservation: section 8, rule 3.
func (t *Tariff) addReservation(p *Price, u Usage) {
	switch {
	case t.ReservationFlat != nil:
		p.ReservationAmount = *t.ReservationFlat
	case t.ReservationPerMin != nil && *t.ReservationPerMin > 0:
		p.BilledReservationMinutes = max(0, min(divUp(u.ReservedSeconds, 60), u.ReservationMinutes)-t.ReservationFreeMinutes)
		p.ReservationAmount = *t.ReservationPerMin * p.BilledReservationMinutes
	}
}

// taxOn is the only rounding there is: half up. amount is not negative.
func taxOn(amount, basisPoints int64) int64 {
	// amount is up to 2^53, which times 10,000 is more than 63 bits hold.
	high, low := bits.Mul64(uint64(amount), uint64(basisPoints))
	low, carry := bits.Add64(low, 5000, 0)
	tax, _ := bits.Div64(high+carry, low, 10000)
	return int64(tax)
}

// divUp is a / b, rounded up. a is not negative.
func divUp(a, b int64) int64 { return (a + b - 1) / b }

// Bounds of what a tariff may charge.
const (
	maxAmount      = 1<<53 - 1 // what a JSON number holds exactly
	maxSegments    = 100
	maxLength      = 1_000_000_000 // minutes or kilometers
	maxBasisPoints = 10_000
	longestRide    = 10_000_000 // meters
)

// check records what is wrong with a tariff for rides of up to maxRideMinutes,
// of vehicles that can be reserved for up to reservationMinutes.
func (t *Tariff) check(v *problem.Validation, maxRideMinutes, reservationMinutes int64) {
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
		v.AddCode("conflict", "reservation_flat_amount", "must not be given beside reservation_per_min_amount")
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
	if v.Err() == nil && t.maxCharge(maxRideMinutes, reservationMinutes) > maxAmount {
		v.AddCode("too_large", "", "would charge more than %d for a ride of %d minutes and %d km", int64(maxAmount), maxRideMinutes, longestRide/1000)
	}
}

func checkSegments(v *problem.Validation, path string, list []Segment) {
	if len(list) > maxSegments {
		v.AddCode("too_long", path, "must be at most %d", maxSegments)
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

// maxCharge is a bound of what a ride can cost, whatever cap there is, and of each
// sum on the way; exact enough to refuse what could not be stored or shown.
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
		add(&s.Rate, s.charges(0, longestRide/1000))
	}
	if t.FareCap != nil {
		add(&t.FareCap.Amount, max(1, divUp(maxRideMinutes, t.FareCap.DurationMinutes)))
	}
	return sum * (1 + float64(t.TaxBasisPoints)/maxBasisPoints)
}
