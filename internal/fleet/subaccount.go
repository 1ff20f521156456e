package fleet

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Subaccount is one operating area, and one system of the public feed
// (fleet-api.md 1.6).
type Subaccount struct {
	ID                   string        `json:"id"`
	Object               string        `json:"object"`
	Live                 bool          `json:"livemode"`
	Name                 string        `json:"name"`
	ExternalID           Text          `json:"external_id"`
	Status               string        `json:"status"` // "active" or "archived"
	TimeZone             string        `json:"timezone"`
	Currency             string        `json:"currency"`
	CountryCode          Text          `json:"country_code"`
	DefaultPricingPlanID Text          `json:"default_pricing_plan_id"`
	GlobalRules          []Rule        `json:"global_rules"`
	VehicleTypes         []VehicleType `json:"vehicle_types"`
	GBFS                 GBFS          `json:"gbfs"`
	Alerts               []Alert       `json:"alerts"`
	CreatedAt            rfc3339.Time  `json:"created_at"`
	UpdatedAt            rfc3339.Time  `json:"updated_at"`

	revision int64
}

// VehicleType is what vehicles have in common. Form factor and propulsion type
// never change.
type VehicleType struct {
	ID                   string `json:"id"`
	Name                 string `json:"name"`
	FormFactor           string `json:"form_factor"`
	PropulsionType       string `json:"propulsion_type"`
	MaxRangeMeters       *int64 `json:"max_range_meters"` // nil only without a motor
	WheelCount           *int64 `json:"wheel_count"`
	MaxPermittedSpeed    *int64 `json:"max_permitted_speed_kph"`
	RiderCapacity        *int64 `json:"rider_capacity"`
	ReservationMinutes   int64  `json:"reservation_minutes"` // 0: cannot be reserved
	LicenseRequired      bool   `json:"license_required"`
	MinAge               int64  `json:"min_age"` // 0: none
	DefaultPricingPlanID Text   `json:"default_pricing_plan_id"`
}

// GBFS is what the public feed says of a subaccount, if it is enabled.
type GBFS struct {
	Enabled      bool `json:"enabled"`
	SystemID     Text `json:"system_id"` // unique in the environment
	Operator     Text `json:"operator"`
	OpeningHours Text `json:"opening_hours"` // OSM syntax
	ContactEmail Text `json:"feed_contact_email"`
	LicenseID    Text `json:"license_id"` // SPDX
}

// Alert is something riders should know of a system.
type Alert struct {
	ID          string       `json:"id"`
	Type        string       `json:"type"` // "system_closure" or "other"
	Summary     string       `json:"summary"`
	Description Text         `json:"description"`
	URL         Text         `json:"url"`
	StartsAt    rfc3339.Time `json:"starts_at"`
	EndsAt      rfc3339.Time `json:"ends_at"`
}

// NewSubaccount is what a subaccount is made of.
type NewSubaccount struct {
	Name        string `json:"name"`
	ExternalID  Text   `json:"external_id"`
	TimeZone    string `json:"timezone"`
	Currency    string `json:"currency"`
	CountryCode Text   `json:"country_code"`
}

// SubaccountChange is what a PUT changes of a subaccount. What is absent stays;
// lists are replaced whole, and those in them that have an id keep it.
type SubaccountChange struct {
	Name                 optional.Value[string]        `json:"name"`
	ExternalID           optional.Value[Text]          `json:"external_id"`
	Status               optional.Value[string]        `json:"status"`
	TimeZone             optional.Value[string]        `json:"timezone"`
	Currency             optional.Value[string]        `json:"currency"`
	CountryCode          optional.Value[Text]          `json:"country_code"`
	DefaultPricingPlanID optional.Value[Text]          `json:"default_pricing_plan_id"`
	GlobalRules          optional.Value[[]Rule]        `json:"global_rules"`
	VehicleTypes         optional.Value[[]VehicleType] `json:"vehicle_types"`
	GBFS                 optional.Value[GBFS]          `json:"gbfs"`
	Alerts               optional.Value[[]Alert]       `json:"alerts"`
}

// subaccount returns a subaccount, which must not be changed, and its stamp.
func (s *Service) subaccount(ctx context.Context, q db.Querier, organizationID, id string) (*Subaccount, int64, error) {
	var revision, stamp int64
	err := q.QueryRow(ctx, "SELECT revision, stamp FROM subaccounts WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(&revision, &stamp)
	if err != nil {
		return nil, 0, found(err, "subaccount")
	}
	sub, err := s.subaccounts.get(id, stamp, func(into *Subaccount) error {
		into.revision = revision
		return q.QueryRow(ctx, "SELECT doc FROM subaccounts WHERE organization_id = $1 AND id = $2", organizationID, id).Scan(db.IntoJSON(into))
	})
	return sub, stamp, err
}

// vehicleType returns one of its types, nil when it has none such.
func (s *Subaccount) vehicleType(id string) *VehicleType {
	for i := range s.VehicleTypes {
		if s.VehicleTypes[i].ID == id {
			return &s.VehicleTypes[i]
		}
	}
	return nil
}
