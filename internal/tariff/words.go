package tariff

import (
	"strconv"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Words of tariffs are in English, as all pages are.
var printer = message.NewPrinter(language.English)

const (
	wordsUnlock    = "Unlocking"
	wordsFloor     = "Raised to the minimum fare of 0"
	wordsOutOfZone = "Out-of-zone fee"
)

// Summary summarizes the charges for riding: "€1.00 to unlock, then €0.25 a minute,
// at most €12.00 in each 24 hours".
func (t *Tariff) Summary() string {
	var parts []string
	if t.UnlockAmount > 0 {
		parts = append(parts, Money(t.UnlockAmount, t.Currency)+" to unlock")
	}
	if minutes := rates(t.PerMinute, t.Currency, minuteWords); minutes != "" {
		parts = append(parts, minutes)
	}
	if kilometers := rates(t.PerKilometer, t.Currency, kilometerWords); kilometers != "" {
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
		text += ", at most " + describeCap(t)
	}
	return capitalize(text)
}

// describeCap describes the fare cap: "€12.00 in each 24 hours".
func describeCap(t *Tariff) string {
	return Money(t.FareCap.Amount, t.Currency) + " in each " + formatMinutes(t.FareCap.DurationMinutes)
}

// Terms describes a tariff, one sentence per rule.
func (t *Tariff) Terms() []string {
	list := []string{t.Summary() + "."}
	switch {
	case t.PausePerMinAmount == nil:
		list = append(list, "Pauses cost the same as riding.")
	case *t.PausePerMinAmount == 0:
		list = append(list, "Pauses are free.")
	default:
		list = append(list, "Pauses cost "+Money(*t.PausePerMinAmount, t.Currency)+" a minute.")
	}
	switch {
	case t.ReservationFlat != nil && *t.ReservationFlat > 0:
		list = append(list, "A reservation costs "+Money(*t.ReservationFlat, t.Currency)+".")
	case t.ReservationPerMin != nil && *t.ReservationPerMin > 0:
		text := "A reservation costs " + Money(*t.ReservationPerMin, t.Currency) + " a minute"
		if t.ReservationFreeMinutes > 0 {
			text += " after the first " + count(t.ReservationFreeMinutes, "%d minute", "%d minutes")
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
		list = append(list, "The out-of-zone fee is "+Money(*t.OutOfZoneAmount, t.Currency)+".")
	}
	switch {
	case t.Taxable:
		list = append(list, Percent(t.TaxBasisPoints)+" tax is added.")
	case t.TaxBasisPoints > 0:
		list = append(list, "Amounts include "+Percent(t.TaxBasisPoints)+" tax.")
	}
	return list
}

// unitWords are the words of a unit: after an amount, singular and plural.
type unitWords struct{ each, one, other string }

var (
	minuteWords    = unitWords{"a minute", "%d minute", "%d minutes"}
	kilometerWords = unitWords{"a kilometer", "%d kilometer", "%d kilometers"}
)

func (u unitWords) count(n int64) string { return count(n, u.one, u.other) }

// rates describes segments in order.
func rates(list []Segment, currency string, u unitWords) string {
	// A single later segment is free before its start.
	if len(list) == 1 && list[0].Start > 0 && list[0].Interval > 0 && list[0].Rate > 0 && list[0].End == nil {
		return "free for the first " + u.count(list[0].Start) + ", then " + rate(list[0], currency, u)
	}
	var parts []string
	for _, s := range list {
		if s.Rate != 0 {
			parts = append(parts, describeSegment(s, currency, u))
		}
	}
	return strings.Join(parts, ", plus ")
}

// describeSegment describes charge and range: "€0.10 a minute from minute 20".
func describeSegment(s Segment, currency string, u unitWords) string {
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
	return text + " after " + number(s.Start) + " and until " + u.count(*s.End)
}

// rate describes a segment's charge: "€1.00 every 15 minutes".
func rate(s Segment, currency string, u unitWords) string {
	amount, less := s.Rate, ""
	if amount < 0 {
		amount, less = -amount, " less"
	}
	text := Money(amount, currency)
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
		return count(minutes/1440, "%d day", "%d days")
	case minutes%60 == 0:
		return count(minutes/60, "%d hour", "%d hours")
	}
	return count(minutes, "%d minute", "%d minutes")
}

// Percent formats basis points: "19%", "7.7%".
func Percent(basisPoints int64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(float64(basisPoints)/100, 'f', 2, 64), "0"), ".") + "%"
}

// capitalize makes the first letter upper case.
func capitalize(text string) string {
	if text != "" && text[0] >= 'a' && text[0] <= 'z' {
		return string(text[0]-'a'+'A') + text[1:]
	}
	return text
}

// clock formats a duration in whole seconds: "11 min 15 s".
func clock(seconds int64) string {
	if seconds < 60 {
		return number(seconds) + " s"
	}
	return number(seconds/60) + " min " + number(seconds%60) + " s"
}

// roundedUp describes a quantity that was rounded up to whole units; nil if it was whole.
func roundedUp(from string, exact bool, to int64, u unitWords) *string {
	if exact {
		return nil
	}
	return new(from + " rounded up to " + u.count(to))
}

func minutesRounded(seconds int64) *string {
	return roundedUp(clock(seconds), seconds%60 == 0, divUp(seconds, 60), minuteWords)
}

func kilometersRounded(meters int64) *string {
	return roundedUp(number(meters)+" m", meters%1000 == 0, divUp(meters, 1000), kilometerWords)
}

// describeReservation describes the price of a reservation by the minute, of types
// with up to limit minutes.
func (t *Tariff) describeReservation(limit int64) string {
	text := "Reservation: " + Money(*t.ReservationPerMin, t.Currency) + " a minute"
	if t.ReservationFreeMinutes > 0 {
		text += " after the first " + minuteWords.count(t.ReservationFreeMinutes)
	}
	return text + ", up to " + minuteWords.count(limit)
}

// number formats a count: "12,345".
func number(n int64) string { return strings.Replace(printer.Sprint(n), "-", "−", 1) }

// count formats a quantity in the singular or plural.
func count(n int64, one, other string) string {
	if n == 1 || n == -1 {
		other = one
	}
	return printer.Sprintf(other, n)
}

// Money formats an amount in minor units of currency: "€12.50", "CHF 3.00", "−¥250".
func Money(amount int64, currency string) string {
	digits, _ := MinorDigits(currency)
	minor := int64(1)
	for range digits {
		minor *= 10
	}
	sign := ""
	if amount < 0 {
		sign = "−"
	}
	text := sign + symbol(currency) + strings.TrimPrefix(printer.Sprint(amount/minor), "-")
	if digits > 0 {
		text += printer.Sprintf(".%0*d", digits, max(amount%minor, -(amount%minor)))
	}
	return text
}

// symbol returns the prefix of amounts: a currency's symbol if it is unambiguous, or its
// code and a space.
func symbol(currency string) string {
	switch currency {
	case "EUR":
		return "€"
	case "USD":
		return "$"
	case "GBP":
		return "£"
	case "JPY":
		return "¥"
	}
	return currency + "\u00a0"
}
