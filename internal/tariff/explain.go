package tariff

// LineCode is the reason of a [Line].
type LineCode string

// Codes, in the order of a receipt.
const (
	LineUnlock      LineCode = "unlock"
	LineTime        LineCode = "time"
	LinePause       LineCode = "pause"
	LineDistance    LineCode = "distance"
	LineCap         LineCode = "cap"   // the reduction by the fare cap
	LineFloor       LineCode = "floor" // the increase of a fare or total below 0
	LineReservation LineCode = "reservation"
	LineOutOfZone   LineCode = "out_of_zone"
	LineTax         LineCode = "tax"
	LineAdjustment  LineCode = "adjustment"
)

// LineCodes are all codes.
var LineCodes = []string{
	string(LineUnlock), string(LineTime), string(LinePause), string(LineDistance), string(LineCap), string(LineFloor),
	string(LineReservation), string(LineOutOfZone), string(LineTax), string(LineAdjustment),
}

// Unit is the unit of the quantity of a [Line].
type Unit string

// Units.
const (
	UnitOnce       Unit = "once"        // a flat amount; the quantity is 1
	UnitMinute     Unit = "minute"      // started minutes
	UnitKilometer  Unit = "kilometer"   // started kilometers
	UnitInterval   Unit = "interval"    // started intervals of a segment, longer than a minute or kilometer
	UnitWindow     Unit = "window"      // windows of the fare cap
	UnitBasisPoint Unit = "basis_point" // hundredths of a percent
)

// Units are all units.
var Units = []string{
	string(UnitOnce), string(UnitMinute), string(UnitKilometer), string(UnitInterval), string(UnitWindow), string(UnitBasisPoint),
}

// Line is a line of an explained price. Quantity × UnitAmount is Amount, if there is a
// unit amount.
type Line struct {
	Code        LineCode `json:"code"`
	Quantity    int64    `json:"quantity"`
	Unit        Unit     `json:"unit"`
	UnitAmount  *int64   `json:"unit_amount"` // nil: the line has no price per unit
	Amount      int64    `json:"amount"`      // negative for a reduction
	Explanation string   `json:"explanation"` // the rule, in English
	Rounding    *string  `json:"rounding"`    // how the quantity or the amount was rounded; nil: not at all
}

// Explanation is a price with the lines that lead to it. The sum of the lines is the
// price's TotalAmount.
type Explanation struct {
	Price
	Lines []Line `json:"lines"`
}

// Explain returns the price of a rider trip, as [Tariff.Price] does, with its lines.
// Lines of amount 0 are omitted.
func (t *Tariff) Explain(u Usage) Explanation {
	lines := []Line{}
	p := t.compute(u, func(l Line) { lines = append(lines, l) })
	return Explanation{p, lines}
}

// ExplainAmounts explains a price whose tariff or usage is unknown, by its amounts alone.
func ExplainAmounts(p Price) Explanation {
	lines := []Line{}
	add := func(code LineCode, amount, quantity int64, unit Unit, words string) {
		if amount != 0 {
			lines = append(lines, Line{Code: code, Quantity: quantity, Unit: unit, Amount: amount, Explanation: words})
		}
	}
	add(LineUnlock, p.UnlockAmount, 1, UnitOnce, wordsUnlock)
	add(LineTime, p.TimeAmount, p.BilledMinutes, UnitMinute, "Riding")
	add(LinePause, p.PauseAmount, p.BilledPausedMinutes, UnitMinute, "Pauses")
	add(LineDistance, p.DistanceAmount, p.BilledKilometers, UnitKilometer, "Distance")
	if other := p.FareAmount - (p.UnlockAmount + p.TimeAmount + p.PauseAmount + p.DistanceAmount); other < 0 {
		add(LineCap, other, 1, UnitOnce, "Fare cap")
	} else {
		add(LineFloor, other, 1, UnitOnce, wordsFloor)
	}
	add(LineReservation, p.ReservationAmount, 1, UnitOnce, "Reservation")
	add(LineOutOfZone, p.OutOfZoneAmount, 1, UnitOnce, wordsOutOfZone)
	add(LineTax, p.TaxAmount, 1, UnitOnce, "Tax")
	return Explanation{p.Adjusted(0), lines}.Adjusted(p.AdjustmentAmount, "")
}

// Adjusted returns e with an adjustment, which must not have one. why is the reason;
// empty: none.
func (e Explanation) Adjusted(amount int64, why string) Explanation {
	e.Price = e.Price.Adjusted(amount)
	if amount == 0 {
		return e
	}
	words := "Adjustment"
	if why != "" {
		words += ": " + why
	}
	e.Lines = append(e.Lines, once(LineAdjustment, amount, words))
	if sum := e.SubtotalAmount + e.TaxAmount + amount; sum < e.TotalAmount {
		e.Lines = append(e.Lines, once(LineFloor, e.TotalAmount-sum, "Raised to the minimum total of 0"))
	}
	return e
}

// once is a line of a flat amount.
func once(code LineCode, amount int64, words string) Line {
	return Line{Code: code, Quantity: 1, Unit: UnitOnce, UnitAmount: &amount, Amount: amount, Explanation: words}
}

// segmentLine is the line of times charges of a segment by unit.
func (t *Tariff) segmentLine(code LineCode, s Segment, times int64, rounding *string) Line {
	l := Line{Code: code, Quantity: times, Unit: UnitInterval, UnitAmount: &s.Rate, Amount: s.Rate * times, Rounding: rounding}
	of, what := minuteWords, "Riding: "
	each := UnitMinute
	if code == LineDistance {
		of, what, each = kilometerWords, "Distance: ", UnitKilometer
	}
	switch s.Interval {
	case 0:
		l.Unit, l.Rounding = UnitOnce, nil
	case 1:
		l.Unit = each
	}
	l.Explanation = what + describeSegment(s, t.Currency, of)
	return l
}
