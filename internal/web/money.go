package web

import (
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// Money formats an amount in minor units of currency: "€12.50", "CHF 3.00", "−¥250".
func Money(amount int64, currency string) string {
	text := strconv.FormatInt(amount, 10)
	sign := ""
	if amount < 0 {
		sign, text = "−", text[1:]
	}
	digits, ok := fleet.MinorDigits(currency)
	if !ok {
		digits = 0
	}
	for len(text) <= digits {
		text = "0" + text
	}
	whole, rest := text[:len(text)-digits], text[len(text)-digits:]
	if rest != "" {
		rest = "." + rest
	}
	return sign + symbol(currency) + grouped(whole) + rest
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

// Number formats a count: "12,345".
func Number(n int64) string {
	if n < 0 {
		return "−" + grouped(strconv.FormatInt(n, 10)[1:])
	}
	return grouped(strconv.FormatInt(n, 10))
}

// grouped inserts a comma between groups of three digits.
func grouped(digits string) string {
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
