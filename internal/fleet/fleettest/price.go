package fleettest

// Plan is a version of a pricing plan, in its wire format (fleet-api.md 1.5).
type Plan struct {
	Unlock          int64     `json:"unlock_amount"`
	PerMinute       []Segment `json:"per_min_pricing"`
	PerKilometer    []Segment `json:"per_km_pricing"`
	PausePerMinute  *int64    `json:"pause_per_min_amount"`
	ReservePerMin   *int64    `json:"reservation_per_min_amount"`
	ReserveFlat     *int64    `json:"reservation_flat_amount"`
	ReserveFreeMins int64     `json:"reservation_free_minutes"`
	Cap             *Cap      `json:"fare_cap"`
	OutOfZone       *int64    `json:"out_of_zone_amount"`
	Taxable         bool      `json:"is_taxable"`
	BasisPoints     int64     `json:"tax_basis_points"`
	Active          bool      `json:"active"`

	ID       string `json:"-"`
	Version  int64  `json:"-"`
	Currency string `json:"-"`
}

// Segment is an entry of per_min_pricing or per_km_pricing.
type Segment struct {
	Start    int64  `json:"start"`
	Rate     int64  `json:"rate_amount"`
	Interval int64  `json:"interval"`
	End      *int64 `json:"end"`
}

// Cap is a fare cap.
type Cap struct {
	Minutes int64 `json:"duration_minutes"`
	Amount  int64 `json:"amount"`
}

// Price is a price in its wire format (fleet-api.md 1.1).
type Price struct {
	Currency    string `json:"currency"`
	Unlock      int64  `json:"unlock_amount"`
	Time        int64  `json:"time_amount"`
	Pause       int64  `json:"pause_amount"`
	Distance    int64  `json:"distance_amount"`
	Fare        int64  `json:"fare_amount"`
	Reservation int64  `json:"reservation_amount"`
	OutOfZone   int64  `json:"out_of_zone_amount"`
	Subtotal    int64  `json:"subtotal_amount"`
	Tax         int64  `json:"tax_amount"`
	Adjustment  int64  `json:"adjustment_amount"`
	Total       int64  `json:"total_amount"`

	Minutes         int64 `json:"billed_minutes"`
	PausedMinutes   int64 `json:"billed_paused_minutes"`
	Kilometers      int64 `json:"billed_kilometers"`
	ReservedMinutes int64 `json:"billed_reservation_minutes"`
}

// Use is the chargeable use of a ride. Durations are in whole seconds.
type Use struct {
	Ridden                  bool
	Seconds, Paused, Meters int64 // Seconds has the pauses in it
	Reserved                bool
	ReservedSeconds         int64
	ReservableMinutes       int64 // of the vehicle type
	Outside                 bool  // ended out of zone, for the fee
}

// PriceOf returns the price of a rider's ride by fleet-api.md 8, point by point: each minute and
// kilometer is charged on its own.
func (p *Plan) PriceOf(u Use) Price {
	out := Price{Currency: p.Currency}
	if u.Ridden {
		p.ride(&out, u)
	}
	if u.Reserved {
		p.reservation(&out, u)
	}
	if u.Outside && p.OutOfZone != nil {
		out.OutOfZone = *p.OutOfZone
	}
	out.Subtotal = out.Fare + out.Reservation + out.OutOfZone
	if p.Taxable {
		// Half up: the remainder decides.
		tax := out.Subtotal * p.BasisPoints
		if out.Tax = tax / 10_000; tax%10_000 >= 5000 {
			out.Tax++
		}
	}
	out.adjust(0)
	return out
}

// adjust sets the adjustment and the total, which is never below 0.
func (p *Price) adjust(amount int64) {
	p.Adjustment = amount
	if p.Total = p.Subtotal + p.Tax + amount; p.Total < 0 {
		p.Total = 0
	}
}

func (p *Plan) ride(out *Price, u Use) {
	riding := u.Seconds
	if p.PausePerMinute != nil {
		riding -= u.Paused
		out.PausedMinutes = ceil(u.Paused, 60)
		out.Pause = out.PausedMinutes * *p.PausePerMinute
	}
	out.Unlock, out.Minutes, out.Kilometers = p.Unlock, ceil(riding, 60), ceil(u.Meters, 1000)
	windows := int64(1)
	if p.Cap != nil && ceil(u.Seconds, 60) > 0 {
		windows = ceil(ceil(u.Seconds, 60), p.Cap.Minutes)
	}
	charged := make([]int64, windows) // unlock and time by window
	charged[0] = p.Unlock
	for minute := range out.Minutes {
		amount := chargeAt(p.PerMinute, minute)
		out.Time += amount
		if p.Cap != nil {
			charged[min(minute/p.Cap.Minutes, windows-1)] += amount
		}
	}
	for kilometer := range out.Kilometers {
		out.Distance += chargeAt(p.PerKilometer, kilometer)
	}
	out.Fare = out.Unlock + out.Time + out.Pause + out.Distance
	if p.Cap != nil {
		out.Fare = out.Pause + out.Distance
		for _, amount := range charged {
			out.Fare += min(max(0, amount), p.Cap.Amount)
		}
		out.Fare = min(out.Fare, windows*p.Cap.Amount)
	}
	out.Fare = max(0, out.Fare)
}

// chargeAt returns the charge of the segments at a minute or kilometer, counted from 0.
func chargeAt(segments []Segment, at int64) (amount int64) {
	for _, s := range segments {
		if at < s.Start || s.End != nil && at >= *s.End {
			continue
		}
		if s.Interval == 0 && at == s.Start || s.Interval > 0 && (at-s.Start)%s.Interval == 0 {
			amount += s.Rate
		}
	}
	return amount
}

func (p *Plan) reservation(out *Price, u Use) {
	switch {
	case p.ReserveFlat != nil:
		out.Reservation = *p.ReserveFlat
	case p.ReservePerMin != nil && *p.ReservePerMin > 0: // else it is free, and no minutes are billed
		out.ReservedMinutes = max(0, min(ceil(u.ReservedSeconds, 60), u.ReservableMinutes)-p.ReserveFreeMins)
		out.Reservation = *p.ReservePerMin * out.ReservedMinutes
	}
}

// ceil returns n / by, rounded up.
func ceil(n, by int64) int64 {
	q := n / by
	if n%by > 0 {
		q++
	}
	return q
}
