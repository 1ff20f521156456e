package fleet

import (
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// TripType is what a trip is for.
type TripType string

// The types of trip. The last two have no customer and cost nothing.
const (
	RiderTrip       TripType = "rider"
	RebalanceTrip   TripType = "rebalance"
	MaintenanceTrip TripType = "maintenance"
)

// Ride is a trip, or the reservation of one (fleet-api.md 1.1).
type Ride struct {
	Head
	Status               RideStatus   `json:"status"`
	TripType             TripType     `json:"trip_type"`
	CustomerID           Text         `json:"customer_id"`
	VehicleID            string       `json:"vehicle_id"`
	PricingPlanID        Text         `json:"pricing_plan_id"` // null for other trips than a rider's
	PricingPlanVersion   *int64       `json:"pricing_plan_version"`
	ReservedAt           rfc3339.Time `json:"reserved_at"`
	ReservationExpiresAt rfc3339.Time `json:"reservation_expires_at"`
	StartedAt            rfc3339.Time `json:"started_at"`
	EndedAt              rfc3339.Time `json:"ended_at"`
	DurationSeconds      int64        `json:"duration_seconds"` // of an open one as of now, which is not stored
	PausedSeconds        int64        `json:"paused_seconds"`
	DistanceMeters       *int64       `json:"distance_meters"`
	StartLocation        *Position    `json:"start_location"`
	EndLocation          *Position    `json:"end_location"`
	StartZoneID          Text         `json:"start_zone_id"`
	EndZoneID            Text         `json:"end_zone_id"`
	EndReason            Text         `json:"end_reason"`
	CancelReason         Text         `json:"cancel_reason"`
	ParkingURL           Text         `json:"parking_verification_url"`
	ParkingCategory      Text         `json:"parking_category"`
	Price                *Price       `json:"price"`
	AdjustmentAmount     int64        `json:"adjustment_amount"`
	AdjustmentReason     Text         `json:"adjustment_reason"`
	PaymentStatus        string       `json:"payment_status"`
	Tail

	// Not shown.
	revision      int64
	vehicleTypeID string       // of the vehicle, when it began
	pausedAt      rfc3339.Time // when the pause began that it is in
	startOdometer *int64       // meters
}

// NewRide is what a ride is made of (fleet-api.md 1.1, R, O and C).
type NewRide struct {
	SubaccountID       string            `json:"subaccount_id"` // of the vehicle; empty: whichever it is
	ExternalID         Text              `json:"external_id"`
	Status             RideStatus        `json:"status"`    // empty: active
	TripType           TripType          `json:"trip_type"` // empty: rider
	CustomerID         Text              `json:"customer_id"`
	VehicleID          Text              `json:"vehicle_id"`
	VehicleCode        Text              `json:"vehicle_code"` // in place of its id
	PricingPlanID      Text              `json:"pricing_plan_id"`
	PricingPlanVersion *int64            `json:"pricing_plan_version"`
	StartLocation      *Position         `json:"start_location"`
	Metadata           map[string]string `json:"metadata"`
}

// RideChange is what a PUT changes of a ride. What is absent stays.
type RideChange struct {
	Status             optional.Value[RideStatus]        `json:"status"`
	ExternalID         optional.Value[Text]              `json:"external_id"`
	DistanceMeters     optional.Value[int64]             `json:"distance_meters"`
	EndLocation        optional.Value[Position]          `json:"end_location"`
	EndReason          optional.Value[Text]              `json:"end_reason"`
	CancelReason       optional.Value[Text]              `json:"cancel_reason"`
	AcceptOutOfZoneFee optional.Value[bool]              `json:"accept_out_of_zone_fee"`
	ParkingURL         optional.Value[Text]              `json:"parking_verification_url"`
	ParkingCategory    optional.Value[Text]              `json:"parking_category"`
	AdjustmentAmount   optional.Value[int64]             `json:"adjustment_amount"`
	AdjustmentReason   optional.Value[Text]              `json:"adjustment_reason"`
	PaymentStatus      optional.Value[string]            `json:"payment_status"`
	Metadata           optional.Value[map[string]string] `json:"metadata"` // the whole, merged already
}
