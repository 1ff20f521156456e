package fleet

import (
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// CustomerStatus is whether somebody may ride.
type CustomerStatus string

// The statuses.
const (
	CustomerActive     CustomerStatus = "active"
	CustomerBlocked    CustomerStatus = "blocked"
	CustomerAnonymised CustomerStatus = "anonymised" // for good
)

// Customer is somebody who rides (fleet-api.md 1.3).
type Customer struct {
	Head
	Name             Text           `json:"name"`
	Email            Text           `json:"email"`
	Phone            Text           `json:"phone"`    // E.164
	Language         Text           `json:"language"` // BCP 47
	Status           CustomerStatus `json:"status"`
	BlockReason      Text           `json:"block_reason"`
	BirthDate        Text           `json:"birth_date"`
	LicenseStatus    string         `json:"driver_license_status"`
	MarketingConsent bool           `json:"marketing_consent"`
	DefaultCurrency  string         `json:"default_currency"`
	RideCount        int64          `json:"ride_count"`   // that were completed
	LastRideAt       rfc3339.Time   `json:"last_ride_at"` // when the last one began
	OpenRideID       Text           `json:"open_ride_id"`
	Tail

	revision int64
}

// NewCustomer is what a customer is made of who comes from elsewhere.
type NewCustomer struct {
	SubaccountID     string            `json:"subaccount_id"`
	ExternalID       Text              `json:"external_id"`
	Name             Text              `json:"name"`
	Email            Text              `json:"email"`
	Phone            Text              `json:"phone"`
	Language         Text              `json:"language"`
	Status           CustomerStatus    `json:"status"` // empty: active
	BlockReason      Text              `json:"block_reason"`
	BirthDate        Text              `json:"birth_date"`
	LicenseStatus    string            `json:"driver_license_status"` // empty: none
	MarketingConsent bool              `json:"marketing_consent"`
	Metadata         map[string]string `json:"metadata"`
}

// CustomerChange is what a PUT changes of a customer. What is absent stays.
type CustomerChange struct {
	ExternalID       optional.Value[Text]              `json:"external_id"`
	Name             optional.Value[Text]              `json:"name"`
	Email            optional.Value[Text]              `json:"email"`
	Phone            optional.Value[Text]              `json:"phone"`
	Language         optional.Value[Text]              `json:"language"`
	Status           optional.Value[CustomerStatus]    `json:"status"`
	BlockReason      optional.Value[Text]              `json:"block_reason"`
	BirthDate        optional.Value[Text]              `json:"birth_date"`
	LicenseStatus    optional.Value[string]            `json:"driver_license_status"`
	MarketingConsent optional.Value[bool]              `json:"marketing_consent"`
	Metadata         optional.Value[map[string]string] `json:"metadata"` // the whole, merged already
}
