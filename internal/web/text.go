package web

import (
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// Pages are in English. A sentence of a page stands in the page's template or in its file, and is
// the key of its translations: another language is a catalog and a printer per request.
var (
	pageLanguage = language.English
	printer      = message.NewPrinter(pageLanguage)
)

// Sprintf formats a sentence with numbers in the form of the language: 12,345.
func Sprintf(format string, args ...any) string { return printer.Sprintf(format, args...) }

// Count formats a sentence about n things in the singular or plural: "1 ticket",
// "12,345 tickets". Forms may omit %d; the plural is the key of
// translations.
func Count[N int | int64](n N, one, other string) string {
	form := other
	if plural.Cardinal.MatchPlural(pageLanguage, int(max(n, -n)), 0, 0, 0, 0) == plural.One {
		form = one
	}
	return printer.Sprintf(message.Key(other, form), n)
}

// Number formats a count: "12,345".
func Number(n int64) string {
	return strings.Replace(printer.Sprint(n), "-", "−", 1)
}

// Money formats an amount in minor units of currency: "€12.50", "CHF 3.00", "−¥250".
func Money(amount int64, currency string) string { return tariff.Money(amount, currency) }

// Lines returns the lines of a text without the space around them, except for empty ones.
func Lines(text string) []string {
	list := []string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}
