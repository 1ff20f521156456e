package fleet

import (
	"slices"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// RideStatus is the status of a ride.
type RideStatus string

// Statuses (fleet-api.md 2). The first three are open.
const (
	Reserved  RideStatus = "reserved"
	Active    RideStatus = "active"
	Paused    RideStatus = "paused"
	Completed RideStatus = "completed"
	Cancelled RideStatus = "cancelled"
)

// Open reports whether the ride occupies its vehicle and its customer.
func (s RideStatus) Open() bool { return s == Reserved || s == Active || s == Paused }

// Next lists the statuses that a request may set, other conditions aside.
func (s RideStatus) Next() []RideStatus {
	switch s {
	case Reserved:
		return []RideStatus{Active, Cancelled}
	case Active:
		return []RideStatus{Paused, Completed, Cancelled}
	case Paused:
		return []RideStatus{Active, Completed}
	}
	return nil
}

// VehicleState is an MDS vehicle_state.
type VehicleState string

// The supported states.
const (
	Available       VehicleState = "available"
	VehicleReserved VehicleState = "reserved"
	OnTrip          VehicleState = "on_trip"
	NonOperational  VehicleState = "non_operational"
	NonContactable  VehicleState = "non_contactable"
	Missing         VehicleState = "missing"
	Removed         VehicleState = "removed"
)

// VehicleEvent is an MDS event_type: the reason of a transition.
type VehicleEvent string

// transition is a change of state by request, with its valid events, the default
// first.
type transition struct {
	from   []VehicleState
	to     VehicleState
	events []VehicleEvent
}

// transitions are the transitions by PUT of fleet-api.md 2. Rides and reports cause
// further ones.
var transitions = []transition{
	{[]VehicleState{Available}, NonOperational, []VehicleEvent{"maintenance", "off_hours", "system_suspend", "battery_low", "unspecified"}},
	{[]VehicleState{NonOperational}, Available, []VehicleEvent{"maintenance", "on_hours", "system_resume", "battery_charged", "unspecified"}},
	{[]VehicleState{Available, NonOperational}, Removed, []VehicleEvent{"maintenance_pick_up", "rebalance_pick_up", "compliance_pick_up", "agency_pick_up", "decommissioned"}},
	{[]VehicleState{Removed, NonContactable, Missing}, Available, []VehicleEvent{"provider_drop_off", "agency_drop_off"}},
	{[]VehicleState{Missing}, NonOperational, []VehicleEvent{"located"}},
	{[]VehicleState{NonContactable}, Removed, []VehicleEvent{"agency_pick_up", "decommissioned", "unspecified"}},
	{[]VehicleState{Missing}, Removed, []VehicleEvent{"agency_pick_up", "decommissioned", "unspecified", "located"}},
}

// Events returns the events valid for a transition by request, the default
// first; none if the transition is not allowed.
func (s VehicleState) Events(to VehicleState) []VehicleEvent {
	for _, m := range transitions {
		if m.to == to && slices.Contains(m.from, s) {
			return m.events
		}
	}
	return nil
}

// Next lists the states that a request may set.
func (s VehicleState) Next() []VehicleState {
	var next []VehicleState
	for _, m := range transitions {
		if slices.Contains(m.from, s) && !slices.Contains(next, m.to) {
			next = append(next, m.to)
		}
	}
	return next
}

// isEvent reports whether any transition by request has the event.
func isEvent(event VehicleEvent) bool {
	return slices.ContainsFunc(transitions, func(m transition) bool { return slices.Contains(m.events, event) })
}

// invalidTransition is the error of a transition that is not allowed.
func invalidTransition[S ~string](from, to S, allowed []S) *problem.Error {
	e := conflict("invalid_transition", "%s cannot become %s", from, to)
	names := make([]string, len(allowed))
	for i, one := range allowed {
		names[i] = string(one)
	}
	e.Details = map[string]any{"from": string(from), "to": string(to), "allowed": names}
	return e
}
