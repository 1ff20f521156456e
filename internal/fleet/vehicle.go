package fleet

import (
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Vehicle is one vehicle (fleet-api.md 1.2).
type Vehicle struct {
	Head
	Code               string       `json:"code"` // unique in the organization, whatever the case
	VehicleTypeID      string       `json:"vehicle_type_id"`
	FormFactor         string       `json:"form_factor"`
	PropulsionType     string       `json:"propulsion_type"`
	State              VehicleState `json:"state"`
	LastEvent          VehicleEvent `json:"last_event"`
	StateChangedAt     rfc3339.Time `json:"state_changed_at"`
	Location           *Position    `json:"location"`
	BatteryPercent     *int64       `json:"battery_percent"`
	FuelPercent        *int64       `json:"fuel_percent"`
	CurrentRangeMeters *int64       `json:"current_range_meters"`
	OdometerMeters     *int64       `json:"odometer_meters"`
	LastReportedAt     rfc3339.Time `json:"last_reported_at"`
	PricingPlanID      Text         `json:"pricing_plan_id"`
	DeviceID           Text         `json:"device_id"` // unique in the organization
	VIN                Text         `json:"vin"`
	LicensePlate       Text         `json:"license_plate"`
	CurrentRideID      Text         `json:"current_ride_id"`
	PublicVehicleID    string       `json:"public_vehicle_id"` // a UUID; another one after each ride
	Tail

	// Not shown.
	revision int64
	former   VehicleState // of one that is out of contact
}

// NewVehicle is what a vehicle is made of.
type NewVehicle struct {
	SubaccountID       string            `json:"subaccount_id"`
	ExternalID         Text              `json:"external_id"`
	Code               string            `json:"code"`
	VehicleTypeID      string            `json:"vehicle_type_id"`
	State              VehicleState      `json:"state"` // empty: removed
	Location           *Position         `json:"location"`
	BatteryPercent     *int64            `json:"battery_percent"`
	FuelPercent        *int64            `json:"fuel_percent"`
	CurrentRangeMeters *int64            `json:"current_range_meters"`
	OdometerMeters     *int64            `json:"odometer_meters"`
	LastReportedAt     rfc3339.Time      `json:"last_reported_at"`
	PricingPlanID      Text              `json:"pricing_plan_id"`
	DeviceID           Text              `json:"device_id"`
	VIN                Text              `json:"vin"`
	LicensePlate       Text              `json:"license_plate"`
	Metadata           map[string]string `json:"metadata"`
}

// VehicleChange is what a PUT changes of a vehicle. What is absent stays.
type VehicleChange struct {
	ExternalID         optional.Value[Text]              `json:"external_id"`
	Code               optional.Value[string]            `json:"code"`
	VehicleTypeID      optional.Value[string]            `json:"vehicle_type_id"`
	State              optional.Value[VehicleState]      `json:"state"`
	Event              optional.Value[VehicleEvent]      `json:"event"`
	Location           optional.Value[Position]          `json:"location"`
	BatteryPercent     optional.Value[int64]             `json:"battery_percent"`
	FuelPercent        optional.Value[int64]             `json:"fuel_percent"`
	CurrentRangeMeters optional.Value[int64]             `json:"current_range_meters"`
	OdometerMeters     optional.Value[int64]             `json:"odometer_meters"`
	LastReportedAt     optional.Value[rfc3339.Time]      `json:"last_reported_at"`
	PricingPlanID      optional.Value[Text]              `json:"pricing_plan_id"`
	DeviceID           optional.Value[Text]              `json:"device_id"`
	VIN                optional.Value[Text]              `json:"vin"`
	LicensePlate       optional.Value[Text]              `json:"license_plate"`
	Metadata           optional.Value[map[string]string] `json:"metadata"` // the whole, merged already
}

// Change is one change of a vehicle's state, as it is kept.
type Change struct {
	ID             string       `json:"id"`
	VehicleID      string       `json:"vehicle_id"`
	State          VehicleState `json:"state"`
	Event          VehicleEvent `json:"event"`
	At             rfc3339.Time `json:"at"`
	Location       *Position    `json:"location"`
	BatteryPercent *int64       `json:"battery_percent"`
	RideID         Text         `json:"ride_id"`
	Actor          By           `json:"actor"`
}
