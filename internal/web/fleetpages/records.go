package fleetpages

import "github.com/kickstand-dev/kickstand/internal/fleet"

// handleRecords adds the lists and the pages of records.
func (p *pages) handleRecords() {
	p.handle("/rides", route{get: p.rides})
	p.handle("/rides/{id}", route{get: p.ride})
	p.handle("/rides/{id}/move", route{post: p.moveRide, anyone: true})
	p.handle("/rides/{id}/end", route{get: p.endRide, post: p.endRide, anyone: true})
	p.handle("/rides/{id}/cancel", route{get: p.cancelRide, post: p.cancelRide, anyone: true})
	p.handle("/rides/{id}/adjust", route{get: p.adjustRide, post: p.adjustRide, anyone: true})
}

// eventWord says why a vehicle's state changed.
func eventWord(e fleet.VehicleEvent) string {
	if word, ok := eventWords[e]; ok {
		return word
	}
	return string(e)
}

var eventWords = map[fleet.VehicleEvent]string{
	"reservation_start": "Reserved", "reservation_cancel": "Reservation ended", "trip_start": "Ride started", "trip_end": "Ride ended",
	"trip_cancel": "Ride cancelled", "comms_lost": "Fell silent", "comms_restored": "Heard of again", "not_located": "Not found for long",
	"maintenance": "Maintenance", "off_hours": "Closing hours", "on_hours": "Opening hours", "system_suspend": "Service suspended", "system_resume": "Service resumed",
	"battery_low": "Battery low", "battery_charged": "Battery charged", "unspecified": "Without a reason", "located": "Found",
	"maintenance_pick_up": "Taken for maintenance", "rebalance_pick_up": "Taken to another place", "compliance_pick_up": "Taken, as rules ask", "agency_pick_up": "Taken by the city",
	"decommissioned": "Taken out for good", "provider_drop_off": "Put there by us", "agency_drop_off": "Put there by the city",
}
