package fleet

import (
	"slices"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// RideStatus is where a ride is in its life.
type RideStatus string

// The statuses (fleet-api.md 2). A ride is open in the first three.
const (
	Reserved  RideStatus = "reserved"
	Active    RideStatus = "active"
	Paused    RideStatus = "paused"
	Completed RideStatus = "completed"
	Cancelled RideStatus = "cancelled"
)

// Open reports whether a ride holds its vehicle and its customer.
func (s RideStatus) Open() bool { return s == Reserved || s == Active || s == Paused }

// Next lists what a request may make of a ride; conditions are another matter.
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

// The states that are used here.
const (
	Available      VehicleState = "available"
	VehicleTaken   VehicleState = "reserved"
	OnTrip         VehicleState = "on_trip"
	NonOperational VehicleState = "non_operational"
	NonContactable VehicleState = "non_contactable"
	Missing        VehicleState = "missing"
	Removed        VehicleState = "removed"
)

// VehicleEvent is an MDS event_type: why a state changes.
type VehicleEvent string

// transition is a change of state that a request may ask for, and the events that can
// be its reason; the first one is, unless the request says otherwise.
type transition struct {
	from   []VehicleState
	to     VehicleState
	events []VehicleEvent
}

// transitions are the changes by PUT of fleet-api.md 2. Rides and reports make others.
var transitions = []transition{
	{[]VehicleState{Available}, NonOperational, []VehicleEvent{"maintenance", "off_hours", "system_suspend", "battery_low", "unspecified"}},
	{[]VehicleState{NonOperational}, Available, []VehicleEvent{"maintenance", "on_hours", "system_resume", "battery_charged", "unspecified"}},
	{[]VehicleState{Available, NonOperational}, Removed, []VehicleEvent{"maintenance_pick_up", "rebalance_pick_up", "compliance_pick_up", "agency_pick_up", "decommissioned"}},
	{[]VehicleState{Removed, NonContactable, Missing}, Available, []VehicleEvent{"provider_drop_off", "agency_drop_off"}},
	{[]VehicleState{Missing}, NonOperational, []VehicleEvent{"located"}},
	{[]VehicleState{NonContactable}, Removed, []VehicleEvent{"agency_pick_up", "decommissioned", "unspecified"}},
	{[]VehicleState{Missing}, Removed, []VehicleEvent{"agency_pick_up", "decommissioned", "unspecified", "located"}},
}

// eventsFor returns the events that can make a vehicle go from one state to
// another by request, the usual one first; none when it cannot.
func eventsFor(from, to VehicleState) []VehicleEvent {
	for _, m := range transitions {
		if m.to == to && slices.Contains(m.from, from) {
			return m.events
		}
	}
	return nil
}

// Next lists the states that a request may put a vehicle into.
func (s VehicleState) Next() []VehicleState {
	var next []VehicleState
	for _, m := range transitions {
		if slices.Contains(m.from, s) && !slices.Contains(next, m.to) {
			next = append(next, m.to)
		}
	}
	return next
}

// isEvent reports whether there is a change by request with an event.
func isEvent(event VehicleEvent) bool {
	return slices.ContainsFunc(transitions, func(m transition) bool { return slices.Contains(m.events, event) })
}

// invalidTransition is the refusal of a change of state that there is not.
func invalidTransition[S ~string](from, to S, allowed []S) *problem.Error {
	e := conflict("invalid_transition", "%s cannot become %s", from, to)
	names := make([]string, len(allowed))
	for i, one := range allowed {
		names[i] = string(one)
	}
	e.Details = map[string]any{"from": string(from), "to": string(to), "allowed": names}
	return e
}
