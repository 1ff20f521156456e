package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
)

// ahead is records that were read and decoded before the transaction that changes
// them. On SQLite transactions wait for one another, so what can be done before
// one's turn is; and pages that were read once are in the system's cache then.
//
// It says nothing of what is stored when the turn comes: there the documents are
// read again, and what was decoded stands in for decoding the same text, once.
type ahead struct {
	ride     decoded[Ride]
	vehicle  decoded[Vehicle]
	customer decoded[Customer]
}

// decoded is a document, and what decoding it gave.
type decoded[T any] struct {
	text  []byte // nil: nothing
	value T
}

func (d *decoded[T]) read(text []byte) {
	if text != nil && json.Unmarshal(text, &d.value) == nil {
		d.text = text
	}
}

type aheadKey struct{}

// decode is [json.Unmarshal] into an empty record, unless that was done ahead.
func decode[T any](ctx context.Context, text []byte, into *T, of func(*ahead) *decoded[T]) error {
	if a, ok := ctx.Value(aheadKey{}).(*ahead); ok {
		if d := of(a); d.text != nil && bytes.Equal(d.text, text) {
			*into, d.text = d.value, nil // a function that runs again changes another
			return nil
		}
	}
	return json.Unmarshal(text, into)
}

// BeforeStart returns the context for [Service.StartRide], within which it takes
// less time. It is of use once, outside of a transaction; whatever it finds, the
// ride is the same.
func (s *Service) BeforeStart(ctx context.Context, organizationID string, n NewRide) context.Context {
	column, value := "id", string(n.VehicleID)
	if n.VehicleID == "" {
		column, value = "code", strings.ToLower(string(n.VehicleCode))
	}
	return s.before(ctx, "SELECT NULL, (SELECT doc FROM vehicles WHERE organization_id = $1 AND "+column+" = $2), "+
		"(SELECT doc FROM customers WHERE organization_id = $1 AND id = $3)", organizationID, value, string(n.CustomerID))
}

// BeforeRide is [Service.BeforeStart] for [Service.LockRide] and
// [Service.UpdateRide].
func (s *Service) BeforeRide(ctx context.Context, organizationID, id string) context.Context {
	return s.before(ctx, "SELECT r.doc, v.doc, c.doc FROM rides r "+
		"LEFT JOIN vehicles v ON v.organization_id = r.organization_id AND v.id = r.vehicle_id AND r."+openRides+" "+
		"LEFT JOIN customers c ON c.organization_id = r.organization_id AND c.id = r.customer_id AND r."+openRides+" "+
		"WHERE r.organization_id = $1 AND r.id = $2", organizationID, id)
}

// before reads the documents of a ride, a vehicle and a customer. That it cannot,
// the transaction will find out.
func (s *Service) before(ctx context.Context, query string, args ...any) context.Context {
	if s.db.Postgres() { // where nobody waits for a turn
		return ctx
	}
	var ride, vehicle, customer []byte
	if err := s.db.Lookup(ctx, query, args...).Scan(&ride, &vehicle, &customer); err != nil {
		return ctx
	}
	a := new(ahead)
	a.ride.read(ride)
	a.vehicle.read(vehicle)
	a.customer.read(customer)
	return context.WithValue(ctx, aheadKey{}, a)
}
