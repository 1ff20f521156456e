package fleetpages

import (
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/tariff"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// priced summarizes the charges for riding: "€1.00 to unlock, then €0.25 a minute,
// at most €12.00 in each 24 hours".
func priced(t *tariff.Tariff) string {
	var parts []string
	if t.UnlockAmount > 0 {
		parts = append(parts, web.Money(t.UnlockAmount, t.Currency)+" to unlock")
	}
	if minutes := rates(t.PerMinute, t.Currency, minuteUnit); minutes != "" {
		parts = append(parts, minutes)
	}
	if kilometers := rates(t.PerKilometer, t.Currency, kilometerUnit); kilometers != "" {
		parts = append(parts, kilometers)
	}
	if len(parts) == 0 {
		return "Free"
	}
	text := parts[0]
	for _, part := range parts[1:] {
		text += ", then " + part
	}
	if len(parts) == 3 {
		text = parts[0] + ", then " + parts[1] + ", and " + parts[2]
	}
	if t.FareCap != nil {
		text += ", at most " + capped(t)
	}
	return capitalize(text)
}

// capped describes the fare cap: "€12.00 in each 24 hours".
func capped(t *tariff.Tariff) string {
	return web.Money(t.FareCap.Amount, t.Currency) + " in each " + formatMinutes(t.FareCap.DurationMinutes)
}

// terms describes a tariff, one sentence per rule.
func terms(t *tariff.Tariff) []string {
	list := []string{priced(t) + "."}
	switch {
	case t.PausePerMinAmount == nil:
		list = append(list, "Pauses cost the same as riding.")
	case *t.PausePerMinAmount == 0:
		list = append(list, "Pauses are free.")
	default:
		list = append(list, "Pauses cost "+web.Money(*t.PausePerMinAmount, t.Currency)+" a minute.")
	}
	switch {
	case t.ReservationFlat != nil && *t.ReservationFlat > 0:
		list = append(list, "A reservation costs "+web.Money(*t.ReservationFlat, t.Currency)+".")
	case t.ReservationPerMin != nil && *t.ReservationPerMin > 0:
		text := "A reservation costs " + web.Money(*t.ReservationPerMin, t.Currency) + " a minute"
		if t.ReservationFreeMinutes > 0 {
			text += " after the first " + web.Count(t.ReservationFreeMinutes, "%d minute", "%d minutes")
		}
		list = append(list, text+".")
	default:
		list = append(list, "Reservations are free.")
	}
	switch {
	case t.OutOfZoneAmount == nil:
		list = append(list, "Rides can't end out of zone.")
	case *t.OutOfZoneAmount == 0:
		list = append(list, "Rides can end anywhere.")
	default:
		list = append(list, "The out-of-zone fee is "+web.Money(*t.OutOfZoneAmount, t.Currency)+".")
	}
	switch {
	case t.Taxable:
		list = append(list, percent(t.TaxBasisPoints)+" tax is added.")
	case t.TaxBasisPoints > 0:
		list = append(list, "Amounts include "+percent(t.TaxBasisPoints)+" tax.")
	}
	return list
}

// unit is the unit of a segment, singular and plural.
type unit struct{ each, one, other string }

var (
	minuteUnit    = unit{"a minute", "%d minute", "%d minutes"}
	kilometerUnit = unit{"a kilometer", "%d kilometer", "%d kilometers"}
)

func (u unit) count(n int64) string { return web.Count(n, u.one, u.other) }

// rates describes segments in order.
func rates(list []tariff.Segment, currency string, u unit) string {
	// A single later segment is free before its start.
	if len(list) == 1 && list[0].Start > 0 && list[0].Interval > 0 && list[0].Rate > 0 && list[0].End == nil {
		return "free for the first " + u.count(list[0].Start) + ", then " + rate(list[0], currency, u)
	}
	var parts []string
	for _, s := range list {
		if s.Rate != 0 {
			parts = append(parts, segment(s, currency, u))
		}
	}
	return strings.Join(parts, ", plus ")
}

// segment describes charge and range: "€0.10 a minute from minute 20".
func segment(s tariff.Segment, currency string, u unit) string {
	text := rate(s, currency, u)
	switch {
	case s.Interval == 0 && s.Start == 0:
		return text
	case s.Start == 0 && s.End == nil:
		return text
	case s.Start == 0:
		return text + " for the first " + u.count(*s.End)
	case s.Interval == 0 || s.End == nil:
		return text + " after " + u.count(s.Start)
	}
	return text + " after " + web.Number(s.Start) + " and until " + u.count(*s.End)
}

// rate describes a segment's charge: "€1.00 every 15 minutes".
func rate(s tariff.Segment, currency string, u unit) string {
	amount, less := s.Rate, ""
	if amount < 0 {
		amount, less = -amount, " less"
	}
	text := web.Money(amount, currency)
	switch s.Interval {
	case 0:
		return text + less + " once"
	case 1:
		return text + less + " " + u.each
	}
	return text + less + " every " + u.count(s.Interval)
}

// formatMinutes formats whole minutes: "24 hours", "90 minutes", "7 days".
func formatMinutes(minutes int64) string {
	switch {
	case minutes == 60:
		return "hour"
	case minutes > 1440 && minutes%1440 == 0:
		return web.Count(minutes/1440, "%d day", "%d days")
	case minutes%60 == 0:
		return web.Count(minutes/60, "%d hour", "%d hours")
	}
	return web.Count(minutes, "%d minute", "%d minutes")
}

// percent formats basis points: "19%", "7.7%".
func percent(basisPoints int64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(float64(basisPoints)/100, 'f', 2, 64), "0"), ".") + "%"
}

// capitalize makes the first letter upper case.
func capitalize(text string) string {
	if text != "" && text[0] >= 'a' && text[0] <= 'z' {
		return string(text[0]-'a'+'A') + text[1:]
	}
	return text
}

// line is a line of a receipt.
type line struct {
	What   string
	How    string // "10 × €0.25"; empty if not repeated
	Amount string
	Sum    bool
}

// receipt itemizes a price down to its total.
func receipt(t *tariff.Tariff, u tariff.Usage, p tariff.Price, why string) []line {
	var list []line
	for _, item := range t.Items(u) {
		l := line{What: charged(t, item), Amount: web.Money(item.Amount, t.Currency)}
		if item.Rate != 0 {
			l.How = web.Number(item.Times) + " × " + web.Money(item.Rate, t.Currency)
		}
		list = append(list, l)
	}
	return append(list, ending(p, why)...)
}

// sums is the receipt of a price without its usage.
func sums(p tariff.Price, why string) []line {
	var list []line
	add := func(what string, amount int64) {
		if amount != 0 {
			list = append(list, line{What: what, Amount: web.Money(amount, p.Currency)})
		}
	}
	add("Riding", p.FareAmount)
	add("Reservation", p.ReservationAmount)
	add("Out-of-zone fee", p.OutOfZoneAmount)
	add("Tax", p.TaxAmount)
	return append(list, ending(p, why)...)
}

// ending returns the last lines of a receipt: adjustment and total.
func ending(p tariff.Price, why string) []line {
	var list []line
	if p.AdjustmentAmount != 0 {
		what := "Adjustment"
		if why != "" {
			what += ": " + why
		}
		list = append(list, line{What: what, Amount: web.Money(p.AdjustmentAmount, p.Currency)})
	}
	if sum := p.SubtotalAmount + p.TaxAmount + p.AdjustmentAmount; sum < p.TotalAmount {
		list = append(list, line{What: "Raised to the minimum total of 0", Amount: web.Money(p.TotalAmount-sum, p.Currency)})
	}
	return append(list, line{What: "Total", Amount: web.Money(p.TotalAmount, p.Currency), Sum: true})
}

// charged describes an item.
func charged(t *tariff.Tariff, item tariff.Item) string {
	switch item.Kind {
	case tariff.ItemUnlock:
		return "Unlocking"
	case tariff.ItemTime:
		return "Riding: " + segment(*item.Segment, t.Currency, minuteUnit)
	case tariff.ItemPause:
		return "Pauses, a minute"
	case tariff.ItemDistance:
		return "Distance: " + segment(*item.Segment, t.Currency, kilometerUnit)
	case tariff.ItemCap:
		return "At most " + capped(t)
	case tariff.ItemFloor:
		return "Raised to the minimum fare of 0"
	case tariff.ItemReservation:
		if item.Rate != 0 {
			return "Reservation, a minute"
		}
		return "Reservation"
	case tariff.ItemOutOfZone:
		return "Out-of-zone fee"
	case tariff.ItemTax:
		return "Tax, " + percent(t.TaxBasisPoints) + " added"
	}
	return string(item.Kind)
}
