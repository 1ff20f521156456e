package fleetpages

import (
	"github.com/kickstand-dev/kickstand/internal/tariff"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// line is a line of a receipt.
type line struct {
	What   string
	How    string // "10 × €0.25"; empty if not repeated
	Note   string // the rounding; empty: none
	Amount string
	Sum    bool
}

// receipt itemizes an explained price down to its total.
func receipt(e tariff.Explanation) []line {
	var list []line
	for _, l := range e.Lines {
		shown := line{What: l.Explanation, Amount: web.Money(l.Amount, e.Currency)}
		if l.UnitAmount != nil && l.Quantity != 1 {
			shown.How = web.Number(l.Quantity) + " × " + web.Money(*l.UnitAmount, e.Currency)
		}
		if l.Rounding != nil {
			shown.Note = *l.Rounding
		}
		list = append(list, shown)
	}
	return append(list, line{What: "Total", Amount: web.Money(e.TotalAmount, e.Currency), Sum: true})
}
