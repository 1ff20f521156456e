package fleet

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

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

// Usage returns the billable use of an ended ride.
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

// PlanTariff returns the tariff of a version of a plan. Error: NotFound.
func (s *Service) PlanTariff(ctx context.Context, q db.Querier, organizationID, planID string, version int64) (Tariff, error) {
	t, err := s.tariff(ctx, q, organizationID, planID, version)
	if err != nil {
		return Tariff{}, err
	}
	return *t, nil
}

// RideChanges returns the state changes of the vehicle caused by a ride, the first
// one first, at most 100.
func (s *Service) RideChanges(ctx context.Context, q db.Querier, organizationID string, r *Ride) ([]StateChange, error) {
	list, err := db.All(ctx, q, func(row db.Row) (c StateChange, err error) {
		err = row.Scan(db.IntoJSON(&c))
		return c, err
	}, "SELECT doc FROM vehicle_events WHERE organization_id = $1 AND vehicle_id = $2 AND id >= $3 ORDER BY id LIMIT 100",
		organizationID, r.VehicleID, idsFrom(eventPrefix, r.CreatedAt.Std()))
	if err != nil {
		return nil, fmt.Errorf("read the state changes of a ride: %w", err)
	}
	var own []StateChange
	for _, c := range list {
		if c.RideID == NullString(r.ID) {
			own = append(own, c)
		}
	}
	return own, nil
}

// Events lists the events valid for a transition by request, the default first.
func (s VehicleState) Events(to VehicleState) []VehicleEvent { return eventsFor(s, to) }
