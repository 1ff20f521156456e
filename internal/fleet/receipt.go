package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// ItemKind is what an [Item] is charged for.
type ItemKind string

// The kinds, in the order of a receipt.
const (
	ItemUnlock      ItemKind = "unlock"
	ItemTime        ItemKind = "time"
	ItemPause       ItemKind = "pause"
	ItemDistance    ItemKind = "distance"
	ItemCap         ItemKind = "cap"   // what the fare cap takes off
	ItemFloor       ItemKind = "floor" // what a fare below 0 is raised by
	ItemReservation ItemKind = "reservation"
	ItemOutOfZone   ItemKind = "out_of_zone"
	ItemTax         ItemKind = "tax"
)

// Item is one line of how a price came about.
type Item struct {
	Kind    ItemKind
	Segment *Segment // of a price by time or distance
	Rate    int64    // what is charged each time; 0 where it is not charged by times
	Times   int64    // how often
	Amount  int64    // negative where something is taken off
}

// Items returns the lines that a price is the sum of: all of them add up to
// SubtotalAmount and TaxAmount of [Tariff.Price]. What is charged nothing for has
// no line.
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
		// A cap can also raise the sum, where a window of it was below 0.
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

// Usage returns what a ride that has ended was charged for.
func (r *Ride) Usage() Usage {
	switch {
	case r.Status == Cancelled && r.CancelReason == "operator", r.Status.Open():
		return Usage{}
	case r.Status == Cancelled:
		u := r.reservationUsage()
		if r.StartedAt.Std().IsZero() && u.Reserved {
			u.ReservedSeconds = seconds(r.ReservedAt, r.EndedAt.Std())
		}
		return u
	}
	u := r.reservationUsage()
	u.Ridden, u.Seconds, u.PausedSeconds = true, r.DurationSeconds, r.PausedSeconds
	if r.DistanceMeters != nil {
		u.Meters = *r.DistanceMeters
	}
	u.OutOfZone = r.Price != nil && r.Price.OutOfZoneAmount > 0
	return u
}

// PlanTariff returns what a plan charges in one of its versions. Error: NotFound
// where there is no such plan.
func (s *Service) PlanTariff(ctx context.Context, q db.Querier, organizationID, planID string, version int64) (Tariff, error) {
	t, err := s.tariff(ctx, q, organizationID, planID, version)
	if err != nil {
		return Tariff{}, err
	}
	return *t, nil
}

// RideChanges returns what a ride has made of its vehicle's state, the first one
// first: at most 100.
func (s *Service) RideChanges(ctx context.Context, q db.Querier, organizationID string, r *Ride) ([]StateChange, error) {
	list, err := db.All(ctx, q, func(row db.Row) (c StateChange, err error) {
		err = row.Scan(db.IntoJSON(&c))
		return c, err
	}, "SELECT doc FROM vehicle_events WHERE organization_id = $1 AND vehicle_id = $2 AND id >= $3 ORDER BY id LIMIT 100",
		organizationID, r.VehicleID, idsFrom(eventPrefix, r.CreatedAt.Std()))
	if err != nil {
		return nil, fmt.Errorf("read the changes of a ride's vehicle: %w", err)
	}
	var own []StateChange
	for _, c := range list {
		if c.RideID == NullString(r.ID) {
			own = append(own, c)
		}
	}
	return own, nil
}

// Events lists why a request may put a vehicle into another state, the usual
// reason first.
func (s VehicleState) Events(to VehicleState) []VehicleEvent { return eventsFor(s, to) }
