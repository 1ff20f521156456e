package tariff

// ItemKind is the reason of an [Item].
type ItemKind string

// Kinds, in the order of a receipt.
const (
	ItemUnlock      ItemKind = "unlock"
	ItemTime        ItemKind = "time"
	ItemPause       ItemKind = "pause"
	ItemDistance    ItemKind = "distance"
	ItemCap         ItemKind = "cap"   // the reduction by the fare cap
	ItemFloor       ItemKind = "floor" // the increase of a fare below 0
	ItemReservation ItemKind = "reservation"
	ItemOutOfZone   ItemKind = "out_of_zone"
	ItemTax         ItemKind = "tax"
)

// Item is a line of an itemized price.
type Item struct {
	Kind    ItemKind
	Segment *Segment // of a charge by time or distance
	Rate    int64    // amount of each charge; 0 if not repeated
	Times   int64    // number of charges
	Amount  int64    // negative for a reduction
}

// Items returns the lines of a price. Their sum is SubtotalAmount plus TaxAmount of
// [Tariff.Price]. Items of amount 0 are omitted.
func (t *Tariff) Items(u Usage) []Item {
	p := t.Price(u)
	var list []Item
	add := func(item Item) {
		if item.Amount != 0 {
			list = append(list, item)
		}
	}
	segments := func(kind ItemKind, of []Segment, length int64) {
		for i := range of {
			times := of[i].charges(0, length)
			add(Item{Kind: kind, Segment: &of[i], Rate: of[i].Rate, Times: times, Amount: of[i].Rate * times})
		}
	}
	if u.Ridden {
		add(Item{Kind: ItemUnlock, Amount: p.UnlockAmount})
		segments(ItemTime, t.PerMinute, p.BilledMinutes)
		if t.PausePerMinAmount != nil {
			add(Item{Kind: ItemPause, Rate: *t.PausePerMinAmount, Times: p.BilledPausedMinutes, Amount: p.PauseAmount})
		}
		segments(ItemDistance, t.PerKilometer, p.BilledKilometers)
		// A cap raises the sum if a window of it was below 0.
		other := p.FareAmount - (p.UnlockAmount + p.TimeAmount + p.PauseAmount + p.DistanceAmount)
		kind := ItemFloor
		if other < 0 {
			kind = ItemCap
		}
		add(Item{Kind: kind, Amount: other})
	}
	if u.Reserved {
		item := Item{Kind: ItemReservation, Times: p.BilledReservationMinutes, Amount: p.ReservationAmount}
		if t.ReservationFlat == nil && t.ReservationPerMin != nil {
			item.Rate = *t.ReservationPerMin
		}
		add(item)
	}
	add(Item{Kind: ItemOutOfZone, Amount: p.OutOfZoneAmount})
	add(Item{Kind: ItemTax, Amount: p.TaxAmount})
	return list
}
