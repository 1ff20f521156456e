package fleetpages

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// priceExamples are rides with their prices by the amounts of a form. Its template is
// "price-examples".
type priceExamples struct {
	Rows    []examplePrice
	Samples bool   // by the amounts of the placeholders: the form has none yet
	Fault   string // why there are no prices; empty: there are
}

// examplePrice is the price of an example ride.
type examplePrice struct {
	Ride  string
	How   string // the lines of its price
	Total string
}

// exampleRides are the rides of a form's examples.
var exampleRides = []struct {
	name  string
	usage tariff.Usage
}{
	{"5 min, 1 km", tariff.Usage{Ridden: true, Seconds: 5 * 60, Meters: 1000}},
	{"20 min, 4 km", tariff.Usage{Ridden: true, Seconds: 20 * 60, Meters: 4000}},
	{"45 min, 6 km, of these 15 min paused", tariff.Usage{Ridden: true, Seconds: 45 * 60, PausedSeconds: 15 * 60, Meters: 6000}},
	{"Reserved for 10 min, then 20 min, 4 km", tariff.Usage{Ridden: true, Seconds: 20 * 60, Meters: 4000, Reserved: true, ReservedSeconds: 10 * 60, ReservationMinutes: 10}},
	{"A day, 30 km", tariff.Usage{Ridden: true, Seconds: 24 * 60 * 60, Meters: 30_000}},
}

// Amounts of the placeholders, in minor units.
const (
	sampleUnlock, samplePerMinute, samplePerKilometer = 100, 25, 40
	samplePause, sampleReservation, sampleFlat        = 10, 10, 50
	sampleOutOfZone, sampleCap, sampleTaxPoints       = 1000, 2500, 1900
)

// sampleTariff is the tariff of the placeholders.
func sampleTariff(currency string) tariff.Tariff {
	return tariff.Tariff{
		Currency: currency, UnlockAmount: sampleUnlock, PerMinute: []tariff.Segment{{Rate: samplePerMinute, Interval: 1}},
		PausePerMinAmount: new(int64(samplePause)), ReservationPerMin: new(int64(sampleReservation)), FareCap: &tariff.FareCap{Amount: sampleCap, DurationMinutes: 1440},
	}
}

// amountInputs are the prefixes of the fields that make up a tariff.
var amountInputs = []string{"unlock_amount", "per_min_pricing.", "per_km_pricing.", "fare_cap.", "reservation_", "pause_", "out_of_zone_"}

// examplesOf prices the example rides by the submitted form, which it leaves unchanged.
func examplesOf(t *formInput, currency string, settings *fleet.Settings) *priceExamples {
	entered := &formInput{Values: maps.Clone(t.Values)}
	isEntered := func(name string) bool {
		return entered.text(name) != "" && slices.ContainsFunc(amountInputs, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	terms := sampleTariff(currency)
	samples := true
	for name := range entered.Values {
		samples = samples && !isEntered(name)
	}
	if !samples {
		terms = tariffOf(entered, currency)
	}
	terms.Check(&entered.v, settings.MaxRideMinutes, settings.MaxRideMinutes)
	if fault, ok := errors.AsType[*problem.Error](entered.v.Err()); ok {
		return &priceExamples{Fault: firstFault(fault)}
	}
	e := pricedExamples(&terms, settings)
	e.Samples = samples
	return e
}

// firstFault describes the first issue of a form's amounts.
func firstFault(e *problem.Error) string {
	if len(e.Issues) == 0 {
		return "Correct the amounts to see prices."
	}
	issue := e.Issues[0]
	label := "An amount or a number"
	switch issue.Path {
	case "":
		return tooExpensive
	case "reservation_flat_amount":
		if issue.Code == "conflict" {
			return "A reservation has a price per minute or a flat fee, not both."
		}
		label = "The flat fee"
	case "fare_cap.amount":
		label = "The amount of the fare cap"
	case "fare_cap.duration_minutes":
		label = "The period of the fare cap"
	case "tax_basis_points":
		label = "The tax"
	case "unlock_amount":
		label = "The price to unlock"
	}
	return label + " " + issue.Message + "."
}

// pricedExamples prices the example rides that the settings allow.
func pricedExamples(terms *tariff.Tariff, settings *fleet.Settings) *priceExamples {
	e := new(priceExamples)
	for _, ride := range exampleRides {
		if ride.usage.Seconds > settings.MaxRideMinutes*60 {
			continue
		}
		explained := terms.Explain(ride.usage)
		var how []string
		for _, l := range explained.Lines {
			what, _, _ := strings.Cut(l.Explanation, ":") // the rate is in the form
			how = append(how, what+" "+web.Money(l.Amount, terms.Currency))
		}
		e.Rows = append(e.Rows, examplePrice{ride.name, strings.Join(how, ", "), web.Money(explained.TotalAmount, terms.Currency)})
	}
	return e
}
