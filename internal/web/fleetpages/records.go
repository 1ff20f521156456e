package fleetpages

import (
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// handleRecords registers the pages of records.
func (p *pages) handleRecords() {
	p.handle("/rides", route{get: p.rides})
	p.handle("/rides/{id}", route{get: p.ride})
	p.handle("/rides/{id}/move", route{post: p.setRideStatus, anyone: true})
	p.handle("/rides/{id}/end", route{get: p.endRide, post: p.endRide, anyone: true})
	p.handle("/rides/{id}/cancel", route{get: p.cancelRide, post: p.cancelRide, anyone: true})
	p.handle("/rides/{id}/adjust", route{get: p.adjustRide, post: p.adjustRide, anyone: true})

	p.handle("/vehicles", route{get: p.vehicles})
	p.handle("/vehicles/new", route{get: p.newVehicle, post: p.newVehicle, admin: true})
	p.handle("/vehicles/{id}", route{get: p.vehicle})
	p.handle("/vehicles/{id}/edit", route{get: p.editVehicle, post: p.editVehicle, admin: true})
	p.handle("/vehicles/{id}/state", route{get: p.setVehicleState, post: p.setVehicleState, anyone: true})
	p.handle("/vehicles/{id}/delete", route{get: p.deleteVehicle, post: p.deleteVehicle, admin: true})

	p.handle("/alerts", route{get: p.alerts})
	p.handle("/alerts/{id}/acknowledge", route{post: p.acknowledgeAlert, anyone: true})
	p.handle("/alert-rules", route{get: p.alertRules})
	p.handle("/alert-rules/new", route{get: p.alertRule, post: p.alertRule, admin: true})
	p.handle("/alert-rules/{id}", route{get: p.alertRule, post: p.alertRule, admin: true})
	p.handle("/alert-rules/{id}/delete", route{get: p.deleteAlertRule, post: p.deleteAlertRule, admin: true})
	p.handleTasks()

	p.handle("/riders", route{get: p.riders})
	p.handle("/riders/new", route{get: p.newRider, post: p.newRider, admin: true})
	p.handle("/riders/{id}", route{get: p.rider})
	p.handle("/riders/{id}/edit", route{get: p.editRider, post: p.editRider, admin: true})
	p.handle("/riders/{id}/block", route{get: p.blockRider, post: p.blockRider, anyone: true})
	p.handle("/riders/{id}/anonymise", route{get: p.anonymiseRider, post: p.anonymiseRider, admin: true, proof: p.Fleet.Live()})

	p.handle("/pricing", route{get: p.plans})
	p.handle("/pricing/new", route{get: p.newPlan, post: p.newPlan, admin: true})
	p.handle("/pricing/{id}", route{get: p.plan})
	p.handle("/pricing/{id}/edit", route{get: p.editPlan, post: p.editPlan, admin: true})

	p.handle("/subaccounts", route{get: p.subaccounts})
	p.handle("/subaccounts/new", route{get: p.newSubaccount, post: p.newSubaccount, admin: true})
	p.handle("/subaccounts/{id}", route{get: p.subaccount})
	for path, h := range map[string]web.Handler{
		"edit": p.editSubaccount, "rules": p.rules, "types/new": p.vehicleType, "types/{type}": p.vehicleType, "types/{type}/delete": p.deleteType,
		"alerts/new": p.alert, "alerts/{alert}": p.alert, "alerts/{alert}/delete": p.deleteAlert,
		"agencies/{agency}/delete": p.deleteAgency,
	} {
		p.handle("/subaccounts/{id}/"+path, route{get: h, post: h, admin: true})
	}

	// A key of an agency reads data, as API keys do.
	for _, path := range []string{"agencies/new", "agencies/{agency}"} {
		p.handle("/subaccounts/{id}/"+path, route{get: p.agency, post: p.agency, admin: true, proof: p.Fleet.Live()})
	}

	p.handle("/settings", route{get: p.settings})
	p.handle("/settings/edit", route{get: p.editSettings, post: p.editSettings, admin: true})
	if !p.Fleet.Live() {
		p.handle("/settings/clock", route{get: p.advanceClock, post: p.advanceClock, admin: true})
		p.handle("/settings/reset", route{get: p.reset, post: p.reset, admin: true})
	}
	p.handle("/data", route{get: p.data})
}

// eventLabel is the label of a transition's event.
func eventLabel(e fleet.VehicleEvent) string {
	if word, ok := eventLabels[e]; ok {
		return word
	}
	return string(e)
}

var eventLabels = map[fleet.VehicleEvent]string{
	"reservation_start": "Reserved", "reservation_cancel": "Reservation ended", "trip_start": "Ride started", "trip_end": "Ride ended",
	"trip_cancel": "Ride cancelled", "comms_lost": "Contact lost", "comms_restored": "Contact restored", "not_located": "Not located",
	"maintenance": "Maintenance", "off_hours": "Closing hours", "on_hours": "Opening hours", "system_suspend": "Service suspended", "system_resume": "Service resumed",
	"battery_low": "Battery low", "battery_charged": "Battery charged", "unspecified": "Unspecified", "located": "Located",
	"maintenance_pick_up": "Picked up for maintenance", "rebalance_pick_up": "Picked up for rebalancing", "compliance_pick_up": "Picked up for compliance", "agency_pick_up": "Picked up by the agency",
	"decommissioned": "Decommissioned", "provider_drop_off": "Dropped off by the operator", "agency_drop_off": "Dropped off by the agency",
}
